//! Sizes and times as people write them: `512M`, `10G`, `8ms`.

use forebay_core::types::Duration;

/// Bytes from `4096`, `512K`, `512M`, `10G` or `1T`; the units are binary.
pub fn parse_bytes(text: &str) -> Result<u64, String> {
    let (digits, shift) = match text.as_bytes().last() {
        Some(b'K' | b'k') => (&text[..text.len() - 1], 10),
        Some(b'M' | b'm') => (&text[..text.len() - 1], 20),
        Some(b'G' | b'g') => (&text[..text.len() - 1], 30),
        Some(b'T' | b't') => (&text[..text.len() - 1], 40),
        Some(_) | None => (text, 0),
    };
    let wrong = || format!("`{text}` is not a size; write a whole number of bytes, or one with K, M, G or T behind it");
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return Err(wrong());
    }
    let number: u64 = digits.parse().map_err(|_| wrong())?;
    number.checked_mul(1 << shift).ok_or_else(|| format!("`{text}` is larger than 2^64 bytes"))
}

/// A time from `100us`, `8ms` or `5s`.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    let wrong = || format!("`{text}` is not a time; write a whole number with us, ms or s behind it, such as 8ms");
    let (digits, nanos) = if let Some(digits) = text.strip_suffix("us") {
        (digits, 1_000)
    } else if let Some(digits) = text.strip_suffix("ms") {
        (digits, 1_000_000)
    } else if let Some(digits) = text.strip_suffix('s') {
        (digits, 1_000_000_000)
    } else {
        return Err(wrong());
    };
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return Err(wrong());
    }
    let number: u64 = digits.parse().map_err(|_| wrong())?;
    number.checked_mul(nanos).map(Duration).ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_binary_and_strict() {
        assert_eq!(parse_bytes("4096"), Ok(4096));
        assert_eq!(parse_bytes("110M"), Ok(110 << 20));
        assert_eq!(parse_bytes("1T"), Ok(1 << 40));
        for wrong in ["", "G", "-1", "+1", "1.5G", "1GB", "99999999999T"] {
            assert!(parse_bytes(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn times_need_a_unit() {
        assert_eq!(parse_duration("100us"), Ok(Duration::from_micros(100)));
        assert_eq!(parse_duration("8ms"), Ok(Duration::from_millis(8)));
        assert_eq!(parse_duration("5s"), Ok(Duration::from_secs(5)));
        for wrong in ["", "8", "ms", "-8ms", "1m", "99999999999999999s"] {
            assert!(parse_duration(wrong).is_err(), "{wrong}");
        }
    }
}
