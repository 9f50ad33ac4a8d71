//! `forebay doctor path`: computed by [`forebay_doctor::chain`], told here.

use super::Asked;
use anyhow::Result;
use forebay_doctor::chain::path::{Question, answer};
use forebay_doctor::chain::rate;
use forebay_host::topology;

#[derive(clap::Args)]
pub struct PathArgs {
    /// Where bytes come from: an interface, an RDMA port, a block device, a file or folder, or ram; with commas, several that share the work
    #[arg(long, value_name = "A")]
    from: String,
    /// Where they go, named alike
    #[arg(long, value_name = "B")]
    to: String,
    /// What was measured on this path in a second, with its unit: 3.1GB, 2.9GiB, 25Gbit
    #[arg(long, value_name = "RATE", value_parser = rate::measured)]
    measured: Option<f64>,
    /// How often CPUs copy each byte: a server in user space that reads and sends copies twice, software TLS is one more [default: as
    /// often as the kernel has to: sendfile never, a TCP receiver that writes to a file twice]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(..=16))]
    copies: Option<u32>,
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
