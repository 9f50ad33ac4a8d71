//! `forebay doctor path`: computed by [`forebay_doctor::chain`], told here.

use super::Asked;
use anyhow::Result;
use forebay_doctor::chain::path::{Question, answer};
use forebay_host::topology;

#[derive(clap::Args)]
pub struct PathArgs {
    /// Where bytes come from: an interface, an RDMA port, a block device, a file or folder, or ram; with commas, several that share the work
    #[arg(long, value_name = "A")]
    from: String,
    /// Where they go, named alike
    #[arg(long, value_name = "B")]
    to: String,
    /// What was measured on this path, in bytes a second: 3.1G, 587M (decimal, as fio and iperf print MB/s and GB/s)
    #[arg(long, value_name = "RATE", value_parser = rate)]
    measured: Option<f64>,
    /// How often CPUs copy each byte: a server in user space that reads and sends copies twice, software TLS is one more [default: as
    /// often as the kernel has to: sendfile never, a TCP receiver that writes to a file twice]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(..=16))]
    copies: Option<u32>,
}

/// A rate with a decimal unit, as links are sold and tools print it.
fn rate(text: &str) -> Result<f64, String> {
    let text = text.trim().trim_end_matches("/s").trim_end_matches('B');
    let (number, unit) = match text.char_indices().last() {
        Some((at, 'k' | 'K')) => (&text[..at], 1e3),
        Some((at, 'M')) => (&text[..at], 1e6),
        Some((at, 'G')) => (&text[..at], 1e9),
        Some((at, 'T')) => (&text[..at], 1e12),
        _ => (text, 1.0),
    };
    match number.trim().parse::<f64>() {
        Ok(number) if number.is_finite() && number > 0.0 => Ok(number * unit),
        _ => Err("write bytes a second, with K, M, G or T (decimal), such as 3.1G".to_owned()),
    }
}

impl PathArgs {
    /// Computes what bounds the path, and prints it.
    pub fn run(&self, asked: &Asked) -> Result<bool> {
        let topology = topology::read(&asked.system);
        let question = Question { from: &self.from, to: &self.to, measured: self.measured, copies: self.copies };
        let answer = answer(&asked.system, &topology, &question, asked.language)?;
        if asked.json {
            println!("{}", serde_json::to_string_pretty(&answer)?);
        } else {
            super::fold::print(&answer.text(asked.language));
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_decimal_and_take_the_units_that_tools_print() {
        for (text, value) in
            [("3.1G", 3.1e9), ("587M", 587e6), ("587 MB/s", 587e6), ("3.15GB/s", 3.15e9), ("1000", 1e3)]
        {
            assert!((rate(text).expect(text) - value).abs() < 1.0, "{text}");
        }
        for text in ["", "G", "-1G", "0", "inf", "fast"] {
            assert!(rate(text).is_err(), "{text}");
        }
    }
}
