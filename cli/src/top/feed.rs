//! What the daemon tells, as it comes: a thread that asks for the fleet, reads the stream, and begins again when the daemon
//! was gone. Bounded: it waits for whoever shows it.

use crate::Client;
use crate::words::Language;
use anyhow::{Context, Result, anyhow, bail};
use serde_json::Value;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

const UPDATES_MAX: usize = 64;
/// Volumes of which the last minutes are asked for at the beginning.
const PAST_VOLUMES_MAX: usize = 64;
/// Points between two looks at the fleet: what it alone has, such as reasons, is that old at most, in seconds.
const POINTS_PER_FLEET: u32 = 2;

/// Something new that the daemon has said, or that it says nothing.
pub enum Update {
    /// The whole answer of `/v1/fleet`.
    Fleet(Value),
    /// The last minutes of a volume.
    Past(String, Value),
    /// A second of the stream.
    Point(Value),
    /// The daemon does not answer.
    Lost(String),
}

/// Nobody listens any more, so nothing is asked any more.
struct Gone;

/// Begins to ask the daemon, in a thread of its own.
pub fn start(client: Client, language: Language) -> Receiver<Update> {
    let (sender, updates) = sync_channel(UPDATES_MAX);
    std::thread::spawn(move || {
        loop {
            let lost = match follow(&client, language, &sender) {
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

/// Asks for the cluster as it is now, with its troubles told in a language.
pub fn fleet(client: &Client, language: Language) -> Result<Value> {
    client.call("GET", &format!("/v1/fleet?language={}", language.word()), None)
}

/// Asks for the last minutes of a volume.
pub fn past(client: &Client, volume: &str) -> Result<Value> {
    let series = super::model::SERIES.join(",");
    client.call("GET", &format!("/v1/volumes/{volume}/history?window=2m&points=120&series={series}"), None)
}

fn follow(client: &Client, language: Language, sender: &SyncSender<Update>) -> Result<Gone> {
    let fleet = self::fleet(client, language)?;
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
    let (mut points, mut listening) = (0, true);
    let end = client.follow("/v1/stream", |message| {
        let mut send = |update| {
            listening = sender.send(update).is_ok();
            if listening { Ok(()) } else { Err(anyhow!("nobody listens")) }
        };
        let mut again = message.event == "fleet";
        if message.event == "point" {
            send(Update::Point(message.read().context("the daemon's stream is not JSON")?))?;
            points += 1;
            again = points % POINTS_PER_FLEET == 0;
        }
        if again { send(Update::Fleet(self::fleet(client, language)?)) } else { Ok(()) }
    });
    match end {
        _ if !listening => Ok(Gone),
        Ok(()) => bail!("the daemon has closed its stream"),
        Err(error) => Err(error),
    }
}
