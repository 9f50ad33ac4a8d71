//! Wall time as people write it: RFC 3339, in UTC. For people only: nothing is decided by it.

use anyhow::{Result, bail};
use std::time::{SystemTime, UNIX_EPOCH};

/// Milliseconds since 1970; 0 while the clock is before that.
pub fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}

/// A time in milliseconds since 1970 as text, in UTC: `2026-11-22T07:45:01.250Z`.
pub fn show_ms(ms: u64) -> String {
    let (seconds, rest) = (ms / 1000, ms % 1000);
    let (year, month, day) = date_of((seconds / 86400) as i64);
    let clock = seconds % 86400;
    let (hour, minute, second) = (clock / 3600, clock / 60 % 60, clock % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{rest:03}Z")
}

/// Seconds since 1970: a number of them, or RFC 3339 with `Z` or an offset.
pub fn parse(text: &str) -> Result<u64> {
    if !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit()) {
        return match text.parse::<u64>() {
            // The year 9999; what is beyond is milliseconds by mistake.
            Ok(seconds) if seconds < 253_402_300_800 => Ok(seconds),
            Ok(_) | Err(_) => bail!("time {text:?} is too large for seconds since 1970"),
        };
    }
    match parse_rfc3339(text) {
        Some(seconds) => Ok(seconds),
        None => bail!("time {text:?}: write RFC 3339, such as 2026-11-22T07:45:00Z, or seconds since 1970"),
    }
}

fn parse_rfc3339(text: &str) -> Option<u64> {
    // A `+` in a query is a space by the time it arrives.
    let text = text.trim().replace(' ', "+");
    let (date, clock) = text.split_once(['T', 't']).or_else(|| text.split_once('+'))?;
    let field = |text: &str, digits: usize, max: i64| {
        let fits = text.len() == digits && text.bytes().all(|b| b.is_ascii_digit());
        fits.then(|| text.parse::<i64>().ok()).flatten().filter(|&number| number <= max)
    };
    let mut parts = date.split('-');
    let (year, month, day) =
        (field(parts.next()?, 4, 9999)?, field(parts.next()?, 2, 12)?, field(parts.next()?, 2, 31)?);
    if parts.next().is_some() || month == 0 || day == 0 {
        return None;
    }
    let at = clock.find(['Z', 'z', '+', '-'])?;
    let (clock, zone) = clock.split_at(at);
    let clock = clock.split_once('.').map_or(clock, |(whole, _)| whole);
    let mut parts = clock.split(':');
    let (hour, minute, second) =
        (field(parts.next()?, 2, 23)?, field(parts.next()?, 2, 59)?, field(parts.next()?, 2, 60)?);
    let ahead = match zone {
        "Z" | "z" => 0,
        zone => {
            let (hours, minutes) = zone[1..].split_once(':')?;
            let seconds = field(hours, 2, 23)? * 3600 + field(minutes, 2, 59)? * 60;
            if zone.starts_with('-') { -seconds } else { seconds }
        }
    };
    let days = days_until(year, month, day);
    // A day that its month does not have.
    if parts.next().is_some() || date_of(days) != (year, month, day) {
        return None;
    }
    u64::try_from(days * 86400 + hour * 3600 + minute * 60 + second - ahead).ok()
}

/// Days from 1970-01-01 to a date of the Gregorian calendar (Hinnant, "chrono-compatible low-level date algorithms").
fn days_until(year: i64, month: i64, day: i64) -> i64 {
    // Years begin in March, so that the leap day is a year's last.
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let of_era = year.rem_euclid(400);
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

fn date_of(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let of_era = days.rem_euclid(146_097);
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let shifted = (5 * of_year + 2) / 153;
    let (day, month) = (of_year - (153 * shifted + 2) / 5 + 1, if shifted < 10 { shifted + 3 } else { shifted - 9 });
    (year + era * 400 + i64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_shown_and_read_alike() {
        // By `date -u -d @... --iso-8601=seconds`.
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_400, "2000-02-29T00:00:00.000Z"),
            (1_700_000_000, "2023-11-14T22:13:20.000Z"),
            (4_102_444_799, "2099-12-31T23:59:59.000Z"),
        ] {
            assert_eq!(show_ms(seconds * 1000), text);
            assert_eq!(parse(text).unwrap(), seconds);
            assert_eq!(parse(&seconds.to_string()).unwrap(), seconds);
        }
        assert_eq!(parse("2023-11-15T00:13:20+02:00").unwrap(), 1_700_000_000);
        assert_eq!(parse("2023-11-15T00:13:20 02:00").unwrap(), 1_700_000_000, "as a query brings it");
        assert_eq!(parse("2023-11-14T20:13:20.75-02:00").unwrap(), 1_700_000_000);
    }

    #[test]
    fn every_day_of_four_centuries_comes_back() {
        for days in 0..146_097 {
            let (year, month, day) = date_of(days);
            assert_eq!(days_until(year, month, day), days);
        }
    }

    #[test]
    fn what_is_no_time_is_refused() {
        for bad in
            ["", "yesterday", "2023-02-29T00:00:00Z", "2023-11-14", "2023-11-14T25:00:00Z", "2023-13-01T00:00:00Z"]
        {
            assert!(parse(bad).is_err(), "{bad:?} was taken");
        }
        assert!(parse("1700000000000").is_err(), "milliseconds are not seconds");
        assert!(parse("1969-12-31T23:59:59Z").is_err());
    }
}
