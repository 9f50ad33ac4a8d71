//! Sizes and times as people write them: `512M`, `10G`, `1T` (binary units), `30m`, `10s`.

use anyhow::{Result, bail};
use serde::{Deserialize, Deserializer, Serializer};

/// Parses a size. A bare number counts bytes.
pub fn parse_size(text: &str) -> Result<u64> {
    let trimmed = text.trim();
    let digits = trimmed.find(|c: char| !c.is_ascii_digit()).unwrap_or(trimmed.len());
    let (number, suffix) = trimmed.split_at(digits);
    let unit = match suffix.trim() {
        "" | "B" => 0,
        "K" | "k" | "KiB" => 10,
        "M" | "m" | "MiB" => 20,
        "G" | "g" | "GiB" => 30,
        "T" | "t" | "TiB" => 40,
        other => {
            bail!("size {text:?}: unknown unit {other:?}; write bytes, or a whole number with K, M, G or T (binary)")
        }
    };
    let Ok(number) = number.parse::<u64>() else {
        bail!("size {text:?} is not a number; write bytes, or a whole number with K, M, G or T (binary), such as 10G")
    };
    match number.checked_mul(1 << unit) {
        Some(bytes) => Ok(bytes),
        None => bail!("size {text:?} is larger than 2^64 bytes"),
    }
}

/// Shows a size: exactly where a binary unit divides it, else with one decimal.
pub fn show_size(bytes: u64) -> String {
    const UNITS: [(u32, &str); 4] = [(40, "T"), (30, "G"), (20, "M"), (10, "K")];
    for (shift, unit) in UNITS {
        if bytes >= 1 << shift {
            return if bytes.is_multiple_of(1 << shift) {
                format!("{}{unit}", bytes >> shift)
            } else {
                format!("{:.1}{unit}", bytes as f64 / (1u64 << shift) as f64)
            };
        }
    }
    format!("{bytes}B")
}

/// Parses a time: a whole number with `s`, `m` or `h`; a bare number counts seconds.
pub fn parse_seconds(text: &str) -> Result<u64> {
    let trimmed = text.trim();
    let digits = trimmed.find(|c: char| !c.is_ascii_digit()).unwrap_or(trimmed.len());
    let (number, suffix) = trimmed.split_at(digits);
    let factor = match suffix {
        "" | "s" => 1,
        "m" => 60,
        "h" => 3600,
        other => bail!("time {text:?}: unknown unit {other:?}; write a whole number with s, m or h, such as 30m"),
    };
    match number.parse::<u64>().ok().and_then(|n| n.checked_mul(factor)) {
        Some(seconds) => Ok(seconds),
        None => bail!("time {text:?} is not a number; write a whole number with s, m or h, such as 30m"),
    }
}

/// Shows seconds in the two largest units.
pub fn show_seconds(seconds: f64) -> String {
    if seconds < 10.0 {
        return format!("{seconds:.1}s");
    }
    let whole = seconds.min(1e15) as u64;
    match whole {
        0..60 => format!("{whole}s"),
        60..3600 => format!("{}m{:02}s", whole / 60, whole % 60),
        3600..86400 => format!("{}h{:02}m", whole / 3600, whole % 3600 / 60),
        _ => format!("{}d{:02}h", whole / 86400, whole % 86400 / 3600),
    }
}

/// For serde fields that hold a size: text with a unit, or a number of bytes.
pub mod size {
    use super::*;

    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Size {
        Bytes(u64),
        Text(String),
    }

    /// Reads an optional size.
    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u64>, D::Error> {
        match Option::<Size>::deserialize(from)? {
            None => Ok(None),
            Some(Size::Bytes(bytes)) => Ok(Some(bytes)),
            Some(Size::Text(text)) => parse_size(&text).map(Some).map_err(serde::de::Error::custom),
        }
    }

    /// Writes an optional size in bytes.
    pub fn serialize<S: Serializer>(size: &Option<u64>, to: S) -> Result<S::Ok, S::Error> {
        match size {
            Some(bytes) => to.serialize_some(bytes),
            None => to.serialize_none(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_take_binary_units_and_refuse_the_rest() {
        assert_eq!(parse_size("0").unwrap(), 0);
        assert_eq!(parse_size("4096").unwrap(), 4096);
        assert_eq!(parse_size("512M").unwrap(), 512 << 20);
        assert_eq!(parse_size("10G").unwrap(), 10 << 30);
        assert_eq!(parse_size("64TiB").unwrap(), 64 << 40);
        for bad in ["", "G", "-1", "1.5G", "10X", "1e9", "99999999999T"] {
            assert!(parse_size(bad).is_err(), "{bad:?} was taken");
        }
    }

    #[test]
    fn sizes_are_shown_as_they_are_written() {
        for text in ["512M", "10G", "1T", "64T", "4K", "511B"] {
            assert_eq!(show_size(parse_size(text).unwrap()), text);
        }
        assert_eq!(show_size(3 << 29), "1.5G");
    }

    #[test]
    fn times_take_seconds_minutes_and_hours() {
        assert_eq!(parse_seconds("30m").unwrap(), 1800);
        assert_eq!(parse_seconds("10").unwrap(), 10);
        assert_eq!(parse_seconds("2h").unwrap(), 7200);
        assert!(parse_seconds("1d").is_err());
        assert!(parse_seconds("m").is_err());
        assert_eq!(show_seconds(75.0), "1m15s");
        assert_eq!(show_seconds(2.25), "2.2s");
    }
}
