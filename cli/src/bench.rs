//! `forebay bench`: the CrystalDiskMark set by fio on a backing and on a volume, side by side; and what this machine
//! could do at most if a volume cost nothing (`--limit`).

use crate::Client;
use anyhow::{Context, Result, bail};
use clap::Args;
use forebay_api::status::NodeReport;
use forebay_api::units::{parse_seconds, parse_size, show_size};
use forebay_front::nbd::client::{Address, Client as NbdClient, Load};
use forebay_front::nbd::limit::{self, Receipt};
use forebay_io::machine::random_bytes;
use forebay_io::program;
use serde::Serialize;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// Arena of the limit server: too large for any cache.
const LIMIT_ARENA_BYTES: usize = 2 << 30;

/// Flags of `bench`.
#[derive(Args)]
pub struct BenchArgs {
    /// File, block device or NBD URI to measure, such as the backing; not one that a volume is using
    #[arg(long, required_unless_present_any = ["limit", "volume"])]
    backing: Option<String>,
    /// Volume of the running daemon, or NBD URI, to measure
    #[arg(long)]
    volume: Option<String>,
    /// Measure writes as well: DESTROYS what the backing and the volume hold
    #[arg(long)]
    overwrite: bool,
    /// Part that is used, from the start
    #[arg(long, value_parser = parse_size, default_value = "1G")]
    size: u64,
    /// Time for each row
    #[arg(long, value_parser = parse_seconds, default_value = "10s")]
    time: u64,
    /// Measure a server that does nothing but NBD and checksums: the most that this machine can do
    #[arg(long, conflicts_with_all = ["backing", "volume"])]
    limit: bool,
    /// The daemon's API socket
    #[arg(long, env = "FOREBAY_API", value_name = "PATH")]
    api: Option<PathBuf>,
    /// Print what is said as JSON
    #[arg(long)]
    json: bool,
}

struct Row {
    name: &'static str,
    rw: &'static str,
    block_bytes: u32,
    depth: u32,
    writes: bool,
}

const fn row(name: &'static str, rw: &'static str, block_bytes: u32, depth: u32, writes: bool) -> Row {
    Row { name, rw, block_bytes, depth, writes }
}

/// The set of CrystalDiskMark's default profile.
const ROWS: [Row; 6] = [
    row("seq 1M q8 read", "read", 1 << 20, 8, false),
    row("seq 1M q8 write", "write", 1 << 20, 8, true),
    row("rand 4K q32 read", "randread", 4096, 32, false),
    row("rand 4K q32 write", "randwrite", 4096, 32, true),
    row("rand 4K q1 read", "randread", 4096, 1, false),
    row("rand 4K q1 write", "randwrite", 4096, 1, true),
];

#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
struct Measured {
    iops: f64,
    bytes_per_s: f64,
    mean_us: f64,
    p99_us: f64,
}

#[derive(Serialize)]
struct Line {
    name: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    backing: Option<Measured>,
    #[serde(skip_serializing_if = "Option::is_none")]
    volume: Option<Measured>,
}

/// Measures what the arguments name, and prints the figures.
pub fn run(args: &BenchArgs) -> Result<bool> {
    if args.limit {
        return run_limit(args);
    }
    let backing = args.backing.as_deref().map(target_of_backing).transpose()?;
    let volume = args.volume.as_deref().map(|v| target_of_volume(v, args)).transpose()?;
    let mut lines = Vec::new();
    for row in ROWS.iter().filter(|r| args.overwrite || !r.writes) {
        eprintln!("forebay: measuring {}", row.name);
        // One after the other, row by row: a machine that changes its mood treats both alike.
        let measure = |target: &Option<Target>| target.as_ref().map(|t| fio(t, row, args)).transpose();
        lines.push(Line { name: row.name, backing: measure(&backing)?, volume: measure(&volume)? });
    }
    if args.json {
        println!("{}", serde_json::to_string_pretty(&lines)?);
        return Ok(true);
    }
    println!("{:<18} {:>34} {:>34}", "", "backing", "volume");
    for line in &lines {
        println!("{:<18} {} {}", line.name, show(line.backing), show(line.volume));
    }
    if !args.overwrite {
        println!("writes were not measured; --overwrite does, and destroys what both hold");
    }
    Ok(true)
}

fn show(measured: Option<Measured>) -> String {
    match measured {
        None => format!("{:>34}", "-"),
        Some(m) => format!(
            "{:>9.0} IOPS {:>8}/s {:>7}us",
            m.iops,
            show_size(m.bytes_per_s as u64),
            if m.mean_us < 100.0 { format!("{:.1}", m.mean_us) } else { format!("{:.0}", m.mean_us) }
        ),
    }
}

enum Target {
    File(String),
    Nbd(String),
}

fn is_uri(text: &str) -> bool {
    text.starts_with("nbd://") || text.starts_with("nbd+unix://")
}

fn target_of_backing(backing: &str) -> Result<Target> {
    if is_uri(backing) {
        return Ok(Target::Nbd(backing.to_owned()));
    }
    if backing.starts_with("slow:") || backing.starts_with("faulty:") {
        bail!(
            "fio reaches files, devices and NBD servers, not {backing:?}; serve it as a volume with --policy through and give \
             that volume's NBD URI"
        );
    }
    let path = Path::new(backing);
    let marker = PathBuf::from(format!("{backing}.forebay"));
    if let Ok(file) = forebay_io::folder::open_image(path)
        && let forebay_io::lock::HolderDescription::Process { pid, command } =
            forebay_io::lock::find_holder(&file, forebay_io::lock::LockRange::WHOLE)
    {
        bail!("{backing} is in use by process {pid} ({command}); measure a copy, or another file beside it");
    }
    if let Some(marker) = forebay_api::record::Marker::load(&marker)?
        && !marker.clean
    {
        bail!(
            "{backing} belongs to volume {} and is not complete by itself; measure another file beside it",
            marker.name
        );
    }
    Ok(Target::File(backing.to_owned()))
}

fn target_of_volume(volume: &str, args: &BenchArgs) -> Result<Target> {
    if is_uri(volume) {
        return Ok(Target::Nbd(volume.to_owned()));
    }
    let client = Client::new(args.api.clone());
    client.call("GET", &format!("/v1/volumes/{volume}"), None)?;
    let node: NodeReport = serde_json::from_value(client.call("GET", "/v1/status", None)?)?;
    for address in &node.nbd {
        match address.split_once(':') {
            Some(("unix", path)) => return Ok(Target::Nbd(format!("nbd+unix:///{volume}?socket={path}"))),
            Some(("tcp", rest)) => return Ok(Target::Nbd(format!("nbd://{rest}/{volume}"))),
            Some(_) | None => {}
        }
    }
    bail!("the daemon has no NBD address; give the volume's NBD URI")
}

fn fio(target: &Target, row: &Row, args: &BenchArgs) -> Result<Measured> {
    let fio = program::find("fio").context("cannot run fio; install it (package `fio`)")?;
    let mut command = Command::new(fio);
    command.args(["--name=bench", "--output-format=json", "--time_based=1", "--group_reporting=1", "--randrepeat=1"]);
    command.arg(format!("--rw={}", row.rw));
    command.arg(format!("--bs={}", row.block_bytes));
    command.arg(format!("--iodepth={}", row.depth));
    command.arg(format!("--size={}", args.size));
    command.arg(format!("--runtime={}", args.time));
    match target {
        Target::File(path) => {
            command.args(["--ioengine=io_uring", "--direct=1", "--allow_file_create=0"]);
            command.arg(format!("--filename={}", path.replace(':', "\\:")));
        }
        Target::Nbd(uri) => {
            command.arg("--ioengine=nbd").arg(format!("--uri={uri}"));
        }
    }
    let output = command.output().context("cannot run fio; install it (package `fio`)")?;
    let stdout = String::from_utf8_lossy(&output.stdout);
    if !output.status.success() {
        bail!("fio failed at {}: {}", row.name, String::from_utf8_lossy(&output.stderr).trim());
    }
    parse_fio(&stdout, row.writes).with_context(|| format!("cannot read fio's result of {}", row.name))
}

fn parse_fio(text: &str, writes: bool) -> Result<Measured> {
    // fio prints notes before its JSON.
    let start = text.find('{').context("there is no JSON in it")?;
    let value: Value = serde_json::from_str(&text[start..])?;
    let side = &value["jobs"][0][if writes { "write" } else { "read" }];
    let number = |v: &Value| v.as_f64().context("a number is missing");
    Ok(Measured {
        iops: number(&side["iops"])?,
        bytes_per_s: number(&side["bw_bytes"])?,
        mean_us: number(&side["lat_ns"]["mean"])? / 1000.0,
        p99_us: side["clat_ns"]["percentile"]["99.000000"].as_f64().unwrap_or(0.0) / 1000.0,
    })
}

#[derive(Serialize)]
struct LimitLine {
    name: String,
    iops: f64,
    bytes_per_s: f64,
    server_cpu_us_per_operation: f64,
    mean_batch: f64,
    p50_us: f64,
    p99_us: f64,
}

fn run_limit(args: &BenchArgs) -> Result<bool> {
    let mut lines = Vec::new();
    for (name, read_percent, depth, receipt) in [
        ("rand 4K q32 write, scattered", 0, 32, Receipt::Scatter),
        ("rand 4K q32 write, copied", 0, 32, Receipt::Copy),
        ("rand 4K q32 read", 100, 32, Receipt::Copy),
        ("rand 4K q1 write, scattered", 0, 1, Receipt::Scatter),
        ("rand 4K q1 write, copied", 0, 1, Receipt::Copy),
        ("rand 4K q1 read", 100, 1, Receipt::Copy),
    ] {
        lines.push(limit_line(name, read_percent, depth, receipt, args)?);
    }
    if args.json {
        println!("{}", serde_json::to_string_pretty(&lines)?);
        return Ok(true);
    }
    for l in &lines {
        println!(
            "{:<28} {:>9.0} IOPS  {:>8}/s  {:>6.2} us of server CPU each, {:>5.1} in a batch, p50 {:.1} us, p99 {:.1} us",
            l.name,
            l.iops,
            show_size(l.bytes_per_s as u64),
            l.server_cpu_us_per_operation,
            l.mean_batch,
            l.p50_us,
            l.p99_us
        );
    }
    Ok(true)
}

fn limit_line(name: &str, read_percent: u32, depth: usize, receipt: Receipt, args: &BenchArgs) -> Result<LimitLine> {
    let mut word = [0; 8];
    random_bytes(&mut word)?;
    let path = std::env::temp_dir().join(format!("forebay-limit-{:016x}.sock", u64::from_ne_bytes(word)));
    let listener = std::os::unix::net::UnixListener::bind(&path)
        .with_context(|| format!("cannot make the socket {}", path.display()))?;
    let size = args.size;
    let server = std::thread::spawn(move || {
        let (socket, _) = listener.accept()?;
        socket.set_nonblocking(true)?;
        limit::serve(socket.into(), size, LIMIT_ARENA_BYTES, receipt)
    });
    let measured = (|| -> std::io::Result<_> {
        let mut client = NbdClient::connect(&Address::Unix(path.clone()), "limit")?;
        let mut load = Load {
            depth,
            operations: u64::MAX,
            duration: Duration::from_secs(1),
            request_bytes: 4096..=4096,
            read_percent,
            sequential: false,
            region: 0..size,
            seed: 1,
            verify: false,
        };
        // Both sides warm before anything counts.
        client.run(&load)?;
        load.duration = Duration::from_secs(args.time);
        let report = client.run(&load)?;
        client.disconnect()?;
        Ok(report)
    })();
    let _ = std::fs::remove_file(&path);
    let report = measured.context("the load on the limit server failed")?;
    let served =
        server.join().map_err(|_| anyhow::anyhow!("the limit server panicked"))?.context("the limit server failed")?;
    let operations = (report.reads + report.writes) as f64;
    Ok(LimitLine {
        name: name.to_owned(),
        iops: operations / report.seconds,
        bytes_per_s: report.bytes as f64 / report.seconds,
        server_cpu_us_per_operation: served.cpu_seconds * 1e6 / served.operations.max(1) as f64,
        mean_batch: served.operations as f64 / served.batches.max(1) as f64,
        p50_us: report.latency.quantile(0.5) as f64 / 1000.0,
        p99_us: report.latency.quantile(0.99) as f64 / 1000.0,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn result_of_fio_is_read_behind_its_notes() {
        let text = r#"fio: a note
            {"jobs":[{"read":{"iops":10.5,"bw_bytes":43008,"lat_ns":{"mean":2000.0},
            "clat_ns":{"percentile":{"99.000000":5000}}},"write":{}}]}"#;
        let measured = parse_fio(text, false).unwrap();
        assert_eq!(measured, Measured { iops: 10.5, bytes_per_s: 43008.0, mean_us: 2.0, p99_us: 5.0 });
        assert!(parse_fio(text, true).is_err());
        assert!(parse_fio("no", false).is_err());
    }

    #[test]
    fn wrapped_backing_is_no_target_for_fio() {
        assert!(target_of_backing("slow:iops=1:/x").is_err());
        assert!(matches!(target_of_backing("nbd+unix:///?socket=/x").unwrap(), Target::Nbd(_)));
    }
}
