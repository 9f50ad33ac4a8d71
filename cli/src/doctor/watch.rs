//! `forebay doctor watch`.

use super::Asked;
use crate::seconds;
use anyhow::Result;
use forebay_api::calendar;
use forebay_doctor::findings::Sentence;
use forebay_doctor::show;
use forebay_doctor::watch::{Rate, Watch, rates};
use forebay_host::topology;
use serde_json::json;
use std::io::Write;
use std::time::{Duration, Instant};

#[derive(clap::Args)]
pub struct WatchArgs {
    /// Between two looks
    #[arg(long, value_name = "TIME", value_parser = seconds, default_value = "1s")]
    interval: u64,
    /// End after so many [default: never]
    #[arg(long, value_name = "NUMBER")]
    count: Option<u64>,
}

/// Tells until it is told to stop; of a recorded host what there is.
pub(super) fn run(asked: &Asked, args: &WatchArgs) -> Result<bool> {
    let mut watch = Watch::new(asked.system.clone(), topology::read(&asked.system));
    if !asked.json {
        println!("{}", asked.say(&Sentence::new("watch.rung").with("rung", watch.rung)));
        for why in &watch.lacking {
            println!("    {}", asked.say(why));
        }
    }
    if !asked.system.is_live() {
        return match watch.recorded() {
            Some((time, rates)) => tell(asked, &watch, None, time, &rates).map(|()| true),
            None => {
                eprintln!("{}", asked.say(&Sentence::new("watch.no-sample")));
                Ok(false)
            }
        };
    }
    let (mut before, mut looked) = (watch.totals(), Instant::now());
    for _ in 0..args.count.unwrap_or(u64::MAX) {
        std::thread::sleep(Duration::from_secs(args.interval));
        let (now, at) = (watch.totals(), Instant::now());
        let time = at - looked;
        let wall = calendar::show_ms(calendar::now_ms());
        tell(asked, &watch, Some(wall), time, &rates(&before, &now, time))?;
        (before, looked) = (now, at);
    }
    Ok(true)
}

/// `at`: when it was; a record does not say.
fn tell(asked: &Asked, watch: &Watch, at: Option<String>, time: Duration, rates: &[Rate]) -> Result<()> {
    let mut out = std::io::stdout().lock();
    if asked.json {
        let lacking: Vec<String> = watch.lacking.iter().map(|why| asked.say(why)).collect();
        let seconds = time.as_secs_f64();
        let line = json!({ "at": at, "seconds": seconds, "rung": watch.rung, "lacking": lacking, "rates": rates });
        writeln!(out, "{line}")?;
        return Ok(out.flush()?);
    }
    let recorded =
        || asked.say(&Sentence::new("watch.as-recorded").with("seconds", format!("{:.1}", time.as_secs_f64())));
    writeln!(out, "{}", at.unwrap_or_else(recorded))?;
    for rate in rates {
        let shown = match rate.unit {
            "B/s" => format!("{}/s", show::bytes(rate.rate)),
            unit => format!("{:.0} {unit}", rate.rate),
        };
        writeln!(out, "    {shown:>14}  {} {}", rate.of, asked.say(&rate.what.sentence()))?;
    }
    Ok(out.flush()?)
}
