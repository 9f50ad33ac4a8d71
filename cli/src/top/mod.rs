//! `forebay top`: the fleet and its volumes, live in the terminal.
//!
//! [`feed`] asks the daemon, [`model`] keeps what it said and what the user chose, [`view`] makes lines of it, [`terminal`]
//! shows them. Without a terminal, or with `--once`, one frame is printed as plain text.

mod feed;
pub mod model;
mod terminal;
mod view;

use crate::Client;
use crate::words::Language;
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

/// What is shown, and how.
#[derive(clap::Args)]
pub struct TopArgs {
    /// Begin with this one
    volume: Option<String>,
    /// Print it once, as text
    #[arg(long)]
    once: bool,
    /// What it is told in [default: as LC_ALL, LC_MESSAGES, LANG say]
    #[arg(long, value_name = "LANGUAGE")]
    language: Option<Language>,
}

/// Runs until the user ends it. `json`: what the daemon says, once.
pub fn run(client: Client, json: bool, args: TopArgs) -> Result<bool> {
    if json {
        let fleet = client.call("GET", "/v1/fleet", None)?;
        println!("{}", serde_json::to_string_pretty(&fleet)?);
        return Ok(true);
    }
    let language = args.language.unwrap_or_else(Language::of_environment);
    let screen = args.volume.map_or(Screen::List, Screen::Detail);
    if args.once || !std::io::stdout().is_terminal() || !std::io::stdin().is_terminal() {
        return print_once(&client, screen, language);
    }
    let mut model = Model::new(screen);
    let updates = feed::start(client, language);
    let terminal = Terminal::open()?;
    let mut shown = Vec::new();
    loop {
        updates.try_iter().for_each(|update| model.take(update));
        let (width, height) = terminal.size();
        let look = Look { height: Some(height), width, styles: true, colours: colours(), ..plain(language) };
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

fn print_once(client: &Client, screen: Screen, language: Language) -> Result<bool> {
    let mut model = Model::new(screen);
    model.take(Update::Fleet(feed::fleet(client, language)?));
    if let Screen::Detail(name) = &model.screen {
        if !model.fleet.volumes.iter().any(|volume| volume.report.name == *name) {
            bail!("there is no volume {name}; `forebay volume list` shows those that there are");
        }
        let past = feed::past(client, name)?;
        model.take(Update::Past(name.clone(), past));
    }
    let columns = std::env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok());
    let width = columns.unwrap_or(80usize).clamp(20, 1000);
    let look = Look { width, ..plain(language) };
    for line in view::frame(&model, look) {
        println!("{line}");
    }
    Ok(true)
}

/// What text alone needs, as many lines as there are.
fn plain(language: Language) -> Look {
    Look { language, width: 80, height: None, styles: false, colours: false, unicode: unicode() }
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
