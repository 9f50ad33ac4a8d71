//! The load client and the limit server from a command line, to measure by hand.
//!
//! ```text
//! nbd-load run ADDRESS EXPORT [--depth N] [--bytes N[-N]] [--read PERCENT] [--seconds S] [--operations N]
//!              [--sequential] [--verify]
//! nbd-load limit unix:PATH SIZE_MIB ARENA_MIB
//! ```

use forebay_front::nbd::client::{Address, Client, Load};
use forebay_front::nbd::limit;
use std::os::unix::net::UnixListener;
use std::time::Duration;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let ended = match arguments.first().map(String::as_str) {
        Some("run") => run(&arguments[1..]),
        Some("limit") => serve_limit(&arguments[1..]),
        Some(_) | None => Err("usage: nbd-load run|limit ..., see the head of its source".into()),
    };
    if let Err(error) = ended {
        eprintln!("nbd-load: {error}");
        std::process::exit(1);
    }
}

type Ended = Result<(), Box<dyn std::error::Error>>;

fn run(arguments: &[String]) -> Ended {
    let [address, export, options @ ..] = arguments else { return Err("run needs an address and an export".into()) };
    let mut client = Client::connect(&address.parse::<Address>()?, export)?;
    let mut load = Load {
        depth: 32,
        operations: u64::MAX,
        duration: Duration::from_secs(3),
        request_bytes: 4096..=4096,
        read_percent: 0,
        sequential: false,
        region: 0..client.size_bytes() / 4096 * 4096,
        seed: 1,
        verify: false,
    };
    let mut options = options.iter();
    while let Some(option) = options.next() {
        let mut value = || options.next().ok_or(format!("{option} needs a value"));
        match option.as_str() {
            "--depth" => load.depth = value()?.parse()?,
            "--bytes" => {
                let sizes = value()?;
                let (least, most) = sizes.split_once('-').unwrap_or((sizes, sizes));
                load.request_bytes = least.parse()?..=most.parse()?;
            }
            "--read" => load.read_percent = value()?.parse()?,
            "--seconds" => load.duration = Duration::from_secs_f64(value()?.parse()?),
            "--operations" => load.operations = value()?.parse()?,
            "--seed" => load.seed = value()?.parse()?,
            "--sequential" => load.sequential = true,
            "--verify" => load.verify = true,
            _ => return Err(format!("unknown option {option}").into()),
        }
    }
    let report = client.run(&load)?;
    client.flush()?;
    client.disconnect()?;
    let operations = report.reads + report.writes;
    println!(
        "{operations} operations ({} reads), {:.0}/s, {:.1} MiB/s, p50 {:.1} us, p99 {:.1} us, client {:.2} us/op, \
         {} errors, {} of {} sectors wrong",
        report.reads,
        operations as f64 / report.seconds,
        report.bytes as f64 / report.seconds / f64::from(1 << 20),
        report.latency.quantile(0.5) as f64 / 1e3,
        report.latency.quantile(0.99) as f64 / 1e3,
        report.cpu_seconds / operations.max(1) as f64 * 1e6,
        report.errors,
        report.mismatches,
        report.verified,
    );
    if report.errors + report.mismatches > 0 {
        return Err("the server answered wrong".into());
    }
    Ok(())
}

fn serve_limit(arguments: &[String]) -> Ended {
    let [address, size, arena] = arguments else { return Err("limit needs unix:PATH SIZE_MIB ARENA_MIB".into()) };
    let Address::Unix(path) = address.parse()? else { return Err("limit listens on a unix socket".into()) };
    let listener = UnixListener::bind(path)?;
    loop {
        let (client, _) = listener.accept()?;
        client.set_nonblocking(true)?;
        let report = limit::serve(client.into(), size.parse::<u64>()? << 20, arena.parse::<usize>()? << 20)?;
        println!(
            "{} operations, {:.2} us/op, {:.1} operations in a batch, checksum {:08x}",
            report.operations,
            report.cpu_seconds / report.operations.max(1) as f64 * 1e6,
            report.operations as f64 / report.batches.max(1) as f64,
            report.checksum,
        );
    }
}
