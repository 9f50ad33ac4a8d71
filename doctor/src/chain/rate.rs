//! A measured rate as a person types it, or as a tool printed it.

/// What is written where a rate has no unit, or one that may mean two things.
const HOW: &str = "write the rate with its unit: 3.1GB or 3.1GiB (bytes a second, as fio prints them), 25Gbit (bits a second, as iperf prints them)";

/// A rate with its unit in bytes a second: `3.1GB`, `587 MB/s`, `2.9GiB/s`, `25Gbit`, `940 Mbits/sec`. Of `3.1`, or `3.1G`, nobody knows
/// whether bytes or bits are meant, and so it is refused.
pub fn measured(text: &str) -> Result<f64, String> {
    let refused = || format!("{text:?} is no rate: {HOW}");
    let whole = text.trim();
    let bare = ["/sec", "/s"].into_iter().find_map(|end| whole.strip_suffix(end)).unwrap_or(whole).trim_end();
    let is_number = |letter: char| letter.is_ascii_digit() || letter == '.';
    let at = bare.find(|letter| !is_number(letter)).ok_or_else(refused)?;
    let (number, unit) = bare.split_at(at);
    let number: f64 = number.parse().map_err(|_| refused())?;
    let unit = unit.trim_start();
    // `Gbps` has its second in it.
    let (prefix, divisor) = ["bits", "bit", "bps", "b"]
        .into_iter()
        .map(|end| (end, 8.0))
        .chain(["Bytes", "Byte", "B"].into_iter().map(|end| (end, 1.0)))
        .find_map(|(end, divisor)| Some((unit.strip_suffix(end)?, divisor)))
        .ok_or_else(refused)?;
    let factor = match prefix {
        "" => 1.0,
        "k" | "K" => 1e3,
        "M" => 1e6,
        "G" => 1e9,
        "T" => 1e12,
        "Ki" => 1024.0,
        "Mi" => f64::from(1 << 20),
        "Gi" => f64::from(1 << 30),
        "Ti" => 1024.0 * f64::from(1 << 30),
        _ => return Err(refused()),
    };
    let rate = number * factor / divisor;
    if rate.is_finite() && rate > 0.0 { Ok(rate) } else { Err(refused()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_taken_with_the_units_that_tools_print() {
        let rows = [
            ("3.1GB", 3.1e9),
            ("587 MB/s", 587e6),
            ("3.15GB/s", 3.15e9),
            ("2.5GiB/s", 2.5 * 1_073_741_824.0),
            ("560MiB/s", 560.0 * 1_048_576.0),
            ("1TiB", 1_099_511_627_776.0),
            ("25Gbit", 3.125e9),
            ("25 Gbit/s", 3.125e9),
            ("9.41 Gbits/sec", 1.176_25e9),
            ("940Mbps", 117.5e6),
            ("10Gb/s", 1.25e9),
            ("1.1 GBytes/sec", 1.1e9),
            ("512kB", 512e3),
            ("3148000000B", 3.148e9),
        ];
        for (text, value) in rows {
            let rate = measured(text).expect(text);
            assert!((rate - value).abs() < 1.0, "{text}: {rate}");
        }
    }

    #[test]
    fn a_rate_without_a_unit_is_refused_with_what_to_write() {
        for text in [
            "3.1",
            "3148000000",
            "3.1G",
            "587M",
            "",
            "GB",
            "-1GB",
            "0GB",
            "infGB",
            "1e9999GB",
            "fast",
            "3.1 gB",
            "1.2.3GB",
            "3,1GB",
        ] {
            let why = measured(text).expect_err(text);
            assert!(why.contains("3.1GB") && why.contains("25Gbit"), "{text}: {why}");
        }
    }
}
