//! Sizes and times as people write them: `512M`, `10G`, `1T` (binary units), `30m`, `10s`.

use anyhow::{Result, bail};
use serde::{Deserializer, Serializer};

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
        "P" | "PiB" => 50,
        "E" | "EiB" => 60,
        other => bail!(
            "size {text:?}: unknown unit {other:?}; write bytes, or a whole number with K, M, G, T or P (binary), such as {}",
            instead_of_fraction(number, other).unwrap_or_else(|| "10G".to_owned())
        ),
    };
    let Ok(number) = number.parse::<u64>() else {
        bail!("size {text:?} is not a number; write bytes, or a whole number with K, M, G or T (binary), such as 10G")
    };
    match number.checked_mul(1 << unit) {
        Some(bytes) => Ok(bytes),
        None => bail!("size {text:?} is larger than 2^64 bytes"),
    }
}

/// The whole number of the next smaller unit that somebody meant who wrote a fraction, such as `5632M` for 5.5G.
fn instead_of_fraction(whole: &str, rest: &str) -> Option<String> {
    let (fraction, unit) = rest.strip_prefix('.')?.split_at_checked(rest.len().checked_sub(2)?)?;
    let smaller = ["K", "M", "G", "T"].windows(2).find(|pair| pair[1] == unit)?[0];
    let number: f64 = format!("{whole}.{fraction}").parse().ok()?;
    (number < 1e6).then(|| format!("{:.0}{smaller}", number * 1024.0))
}

/// Shows a size: exactly where a binary unit divides it, else with one decimal.
pub fn show_size(bytes: u64) -> String {
    const UNITS: [(u32, &str); 6] = [(60, "E"), (50, "P"), (40, "T"), (30, "G"), (20, "M"), (10, "K")];
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
    use serde::de::{Error, Unexpected, Visitor};

    struct OptionalSize;

    impl<'de> Visitor<'de> for OptionalSize {
        type Value = Option<u64>;

        fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("a size: bytes as a whole number, or a text such as \"10G\" or \"5632M\"")
        }

        fn visit_none<E: Error>(self) -> Result<Option<u64>, E> {
            Ok(None)
        }

        fn visit_unit<E: Error>(self) -> Result<Option<u64>, E> {
            Ok(None)
        }

        fn visit_some<D: Deserializer<'de>>(self, from: D) -> Result<Option<u64>, D::Error> {
            from.deserialize_any(self)
        }

        fn visit_u64<E: Error>(self, bytes: u64) -> Result<Option<u64>, E> {
            Ok(Some(bytes))
        }

        fn visit_i64<E: Error>(self, bytes: i64) -> Result<Option<u64>, E> {
            let bytes = bytes.try_into().map_err(|_| E::invalid_value(Unexpected::Signed(bytes), &self))?;
            Ok(Some(bytes))
        }

        fn visit_str<E: Error>(self, text: &str) -> Result<Option<u64>, E> {
            parse_size(text).map(Some).map_err(E::custom)
        }
    }

    /// Reads an optional size.
    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u64>, D::Error> {
        from.deserialize_option(OptionalSize)
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
        assert_eq!(parse_size("1P").unwrap(), 1 << 50);
        let told = |text| parse_size(text).unwrap_err().to_string();
        assert!(told("5.5G").ends_with("such as 5632M") && told("1.5X").ends_with("such as 10G"), "{}", told("5.5G"));
        for bad in ["", "G", "-1", "1.5G", "10X", "1e9", "99999999999T", "16E", "5.G", "..G", "9.€", "1.5€M"] {
            assert!(parse_size(bad).is_err(), "{bad:?} was taken");
        }
    }

    #[test]
    fn sizes_are_shown_as_they_are_written() {
        for text in ["512M", "10G", "1T", "64T", "1P", "8E", "4K", "511B"] {
            assert_eq!(show_size(parse_size(text).unwrap()), text);
        }
        assert_eq!(show_size(3 << 29), "1.5G");
    }

    #[test]
    fn a_size_of_a_file_is_a_number_or_a_text_and_what_is_neither_is_told_how_to_write_it() {
        #[derive(serde::Deserialize, Debug)]
        struct Sized {
            #[serde(default, with = "size")]
            size: Option<u64>,
        }
        let of = |text: &str| toml::from_str::<Sized>(text).map(|sized| sized.size).map_err(|error| error.to_string());
        assert_eq!(of("size = 4096"), Ok(Some(4096)));
        assert_eq!(of("size = '1G'"), Ok(Some(1 << 30)));
        assert_eq!(of(""), Ok(None));
        assert_eq!(serde_json::from_str::<Sized>(r#"{"size": null}"#).unwrap().size, None);
        assert_eq!(serde_json::from_str::<Sized>(r#"{"size": 7}"#).unwrap().size, Some(7));
        for bad in ["size = 5.5", "size = -1", "size = true", "size = ['1G']"] {
            let told = of(bad).unwrap_err();
            assert!(told.contains("such as \"10G\""), "{told}");
        }
        assert!(of("size = '5.5G'").unwrap_err().contains("5632M"));
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
