//! From when to when a certificate is valid, as far as it can be read: TLS and seals check that by themselves, and tell nobody.

use rustls::pki_types::CertificateDer;
use std::time::Duration;

/// Tags of DER that lie before a certificate's validity, or in it.
const SEQUENCE: u8 = 0x30;
const VERSION: u8 = 0xa0;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;

/// From when to when a certificate is valid, as times since 1970. None: it is none, or has times that are not in use.
pub fn validity(certificate: &CertificateDer<'_>) -> Option<(Duration, Duration)> {
    let (_, whole, _) = element(certificate)?;
    let (_, mut signed, _) = element(whole)?;
    if signed.first() == Some(&VERSION) {
        (_, _, signed) = element(signed)?;
    }
    // Its number, the kind of its signature, and who has signed it.
    for _ in 0..3 {
        (_, _, signed) = element(signed)?;
    }
    let (SEQUENCE, validity, _) = element(signed)? else { return None };
    let (tag, digits, end) = element(validity)?;
    let begin = time(tag, digits)?;
    let (tag, digits, _) = element(end)?;
    Some((begin, time(tag, digits)?))
}

/// The tag and the content of the first element, and what comes after it.
fn element(bytes: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&tag, rest) = bytes.split_first()?;
    let (&first, rest) = rest.split_first()?;
    let (length, rest) = match first {
        0..=0x7f => (usize::from(first), rest),
        // No certificate has a length of more than four bytes.
        0x81..=0x84 => {
            let (length, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
            (length.iter().fold(0, |sum, byte| sum << 8 | usize::from(*byte)), rest)
        }
        _ => return None,
    };
    let (content, rest) = rest.split_at_checked(length)?;
    Some((tag, content, rest))
}

/// `YYMMDDhhmmssZ`, or with four digits of the year.
fn time(tag: u8, digits: &[u8]) -> Option<Duration> {
    let digits = std::str::from_utf8(digits).ok()?.strip_suffix('Z')?;
    let (year, rest) = match tag {
        UTC_TIME => {
            let (year, rest) = digits.split_at_checked(2)?;
            let year: u64 = number(year)?;
            (if year < 50 { 2000 + year } else { 1900 + year }, rest)
        }
        GENERALIZED_TIME => {
            let (year, rest) = digits.split_at_checked(4)?;
            (number(year)?, rest)
        }
        _ => return None,
    };
    if rest.len() != 10 || !rest.is_ascii() {
        return None;
    }
    let part = |at: usize| number(&rest[at..at + 2]);
    let (month, of_month) = (part(0)?, part(2)?);
    if !(1..=12).contains(&month) || !(1..=31).contains(&of_month) || year < 1970 {
        return None;
    }
    let days = days_to(year, month) + of_month - 1;
    Some(Duration::from_secs(((days * 24 + part(4)?) * 60 + part(6)?) * 60 + part(8)?))
}

fn number(digits: &str) -> Option<u64> {
    digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok())?
}

/// Days from 1970 to the first of a month.
fn days_to(year: u64, month: u64) -> u64 {
    const BEFORE: [u64; 12] = [0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334];
    let leaps = |years: u64| years / 4 - years / 100 + years / 400;
    let is_leap = leaps(year) != leaps(year - 1);
    let before = BEFORE[month as usize - 1] + u64::from(is_leap && month > 2);
    (year - 1970) * 365 + leaps(year - 1) - leaps(1969) + before
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(year: i32, month: u8, of_month: u8) -> Duration {
        let time = rcgen::date_time_ymd(year, month, of_month) - rcgen::date_time_ymd(1970, 1, 1);
        Duration::from_secs(time.whole_seconds() as u64)
    }

    #[test]
    fn the_validity_of_a_certificate_is_read_as_it_was_written() {
        for (year, month, of_month) in
            [(1999, 12, 31), (2024, 2, 29), (2026, 3, 1), (2049, 12, 31), (2050, 1, 1), (2100, 3, 1)]
        {
            let mut params = rcgen::CertificateParams::new(["alpha".to_owned()]).unwrap();
            params.not_before = rcgen::date_time_ymd(1998, 1, 1);
            params.not_after = rcgen::date_time_ymd(year, month, of_month);
            let made = params.self_signed(&rcgen::KeyPair::generate().unwrap()).unwrap();
            assert_eq!(validity(made.der()), Some((at(1998, 1, 1), at(year, month, of_month))));
            // Cut anywhere it has none, or the same, and nothing panics.
            for length in 0..made.der().len() {
                assert_eq!(validity(&CertificateDer::from(made.der()[..length].to_vec())), None);
            }
        }
        for (tag, digits) in
            [(UTC_TIME, "261301000000Z"), (UTC_TIME, "2601010000+0Z"), (GENERALIZED_TIME, "é0260101000000Z")]
        {
            assert_eq!(time(tag, digits.as_bytes()), None, "{digits}");
        }
    }
}
