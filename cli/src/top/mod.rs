//! `forebay top`: the fleet and its volumes, live in the terminal.
//!
//! [`feed`] asks the daemon, [`model`] keeps what it said and what the user chose, [`view`] makes lines of it, [`terminal`]
//! shows them. Without a terminal, or with `--once`, one frame is printed as plain text.

mod feed;
pub mod model;
mod terminal;
mod view;

use crate::Client;
use anyhow::{Result, bail};
use feed::Update;
use model::{Model, Screen};
use std::io::IsTerminal;
use std::time::Duration;
use terminal::Terminal;
pub use terminal::size as terminal_size;
use view::Look;
pub use view::micros;

/// How long a key is waited for before the screen is looked at again; a change of the terminal's size shows by then.
const TICK: Duration = Duration::from_millis(200);

/// Runs until the user ends it. `volume`: the one to begin with. `json`: what the daemon says, once.
pub fn run(client: Client, volume: Option<String>, once: bool, json: bool) -> Result<bool> {
    if json {
        let fleet = client.call("GET", "/v1/fleet", None)?;
        println!("{}", serde_json::to_string_pretty(&fleet)?);
        return Ok(true);
    }
    let screen = volume.map_or(Screen::List, Screen::Detail);
    if once || !std::io::stdout().is_terminal() || !std::io::stdin().is_terminal() {
        return print_once(&client, screen);
    }
    let mut model = Model::new(screen);
    let updates = feed::start(client);
    let terminal = Terminal::open()?;
    let mut shown = Vec::new();
    loop {
        updates.try_iter().for_each(|update| model.take(update));
        let (width, height) = terminal.size();
        let look = Look { width, height: Some(height), styles: true, colours: colours(), unicode: unicode() };
        let lines = view::frame(&model, look);
        if lines != shown {
            terminal.draw(&lines)?;
            shown = lines;
        }
        let keys = terminal.keys(TICK);
        if terminal.ended() || !keys.into_iter().all(|key| model.press(key, height.saturating_sub(4).max(1))) {
            return Ok(true);
        }
    }
}

fn print_once(client: &Client, screen: Screen) -> Result<bool> {
    let mut model = Model::new(screen);
    model.take(Update::Fleet(client.call("GET", "/v1/fleet", None)?));
    if let Screen::Detail(name) = &model.screen {
        if !model.fleet.volumes.iter().any(|volume| volume.report.name == *name) {
            bail!("there is no volume {name}; `forebay volume list` shows those that there are");
        }
        let past = feed::past(client, name)?;
        model.take(Update::Past(name.clone(), past));
    }
    let columns = std::env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok());
    let width = columns.unwrap_or(80usize).clamp(20, 1000);
    let look = Look { width, height: None, styles: false, colours: false, unicode: unicode() };
    for line in view::frame(&model, look) {
        println!("{line}");
    }
    Ok(true)
}

/// Whether colours are wanted: the environment refuses them by `NO_COLOR` (<https://no-color.org>) or a terminal that is `dumb`.
fn colours() -> bool {
    std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
        && std::env::var_os("TERM").is_none_or(|t| t != "dumb")
}

/// Whether the terminal takes UTF-8, by the first of the variables that says so.
fn unicode() -> bool {
    let said = ["LC_ALL", "LC_CTYPE", "LANG"].iter().filter_map(std::env::var_os).find(|value| !value.is_empty());
    said.is_some_and(|value| {
        let value = value.to_string_lossy().to_lowercase();
        value.contains("utf-8") || value.contains("utf8")
    })
}
