//! What the daemon tells, as it comes: a thread that asks for the fleet, reads the stream, and begins again when the daemon
//! was gone. Bounded: it waits for whoever shows it.

use crate::cli::Client;
use anyhow::{Context, Result, bail};
use serde_json::Value;
use std::io::BufRead;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

const UPDATES_MAX: usize = 64;
/// Volumes of which the last minutes are asked for at the beginning.
const PAST_VOLUMES_MAX: usize = 64;
/// Points between two looks at the fleet: what it alone has, such as reasons, is that old at most, in seconds.
const POINTS_PER_FLEET: u32 = 2;
/// A line of the stream; one of a thousand volumes has one million bytes.
const LINE_BYTES_MAX: u64 = 16 << 20;

/// Something new.
pub enum Update {
    /// `/v1/fleet`.
    Fleet(Value),
    /// The last minutes of a volume.
    Past(String, Value),
    /// A second of the stream.
    Point(Value),
    /// The daemon does not answer.
    Lost(String),
}

/// Nobody listens any more.
struct Gone;

/// Begins to ask.
pub fn start(client: Client) -> Receiver<Update> {
    let (sender, updates) = sync_channel(UPDATES_MAX);
    std::thread::spawn(move || {
        loop {
            let lost = match follow(&client, &sender) {
                Ok(Gone) => return,
                Err(error) => format!("{error:#}"),
            };
            if sender.send(Update::Lost(lost)).is_err() {
                return;
            }
            std::thread::sleep(Duration::from_secs(1));
        }
    });
    updates
}

/// Asks for the last minutes of a volume.
pub fn past(client: &Client, volume: &str) -> Result<Value> {
    let series = super::model::SERIES.join(",");
    client.call("GET", &format!("/v1/volumes/{volume}/history?window=2m&points=120&series={series}"), None)
}

fn follow(client: &Client, sender: &SyncSender<Update>) -> Result<Gone> {
    let fleet = client.call("GET", "/v1/fleet", None)?;
    let names: Vec<String> = fleet["volumes"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|volume| volume["name"].as_str().map(str::to_owned))
        .take(PAST_VOLUMES_MAX)
        .collect();
    if sender.send(Update::Fleet(fleet)).is_err() {
        return Ok(Gone);
    }
    for name in names {
        // One that was deleted meanwhile has no past.
        if let Ok(past) = past(client, &name)
            && sender.send(Update::Past(name, past)).is_err()
        {
            return Ok(Gone);
        }
    }
    let mut stream = client.stream("/v1/stream")?;
    let (mut event, mut points) = (String::new(), 0);
    loop {
        let mut line = Vec::new();
        let read = std::io::Read::take(&mut stream, LINE_BYTES_MAX).read_until(b'\n', &mut line);
        if read.context("lost the daemon's stream")? == 0 {
            bail!("the daemon has closed its stream");
        }
        let line = String::from_utf8_lossy(&line);
        if let Some(name) = line.strip_prefix("event:") {
            name.trim().clone_into(&mut event);
        } else if let Some(data) = line.strip_prefix("data:") {
            let data: Value = serde_json::from_str(data).context("the daemon's stream is not JSON")?;
            let mut again = event == "fleet";
            if event == "point" {
                if sender.send(Update::Point(data)).is_err() {
                    return Ok(Gone);
                }
                points += 1;
                again |= points % POINTS_PER_FLEET == 0;
            }
            if again && sender.send(Update::Fleet(client.call("GET", "/v1/fleet", None)?)).is_err() {
                return Ok(Gone);
            }
        }
    }
}
