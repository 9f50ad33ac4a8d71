//! `forebay doctor`: what bounds this host's data path, with its number, and what to do.
//!
//! ```text
//! system (files, live or recorded) -> topology -> checks -> verdicts -> report: text, JSON
//! ```
//!
//! Reading changes nothing.

pub mod act;
pub mod baseline;
pub mod chain;
pub mod checks;
pub mod counters;
pub mod findings;
#[cfg(test)]
pub mod fixture;
pub mod formulas;
pub mod interfaces;
#[cfg(test)]
mod large_tests;
pub mod matrix;
pub mod parts;
pub mod peer;
pub mod record;
pub mod report;
pub mod show;
pub mod sysroot;
#[cfg(test)]
mod trees;
pub mod watch;
pub mod words;

use checks::limits::counted;
use checks::management::Board;
use counters::Counters;
use findings::Verdict;
use forebay_host::net::Net;
use forebay_host::system::System;
use forebay_host::topology::{self, Topology};
use std::collections::BTreeSet;
use std::sync::OnceLock;
use std::time::Duration;
use watch::devices::{Between, Devices};

/// How long counters are watched for.
const WATCHED: Duration = Duration::from_millis(400);

/// What the checks look at.
pub struct Host {
    /// Its files, now.
    pub system: System,
    /// What it is made of.
    pub topology: Topology,
    /// What no file shows of its network.
    pub net: Net,
    /// What it has counted until now, and a while before: what grows is told by these.
    pub counters: Counters,
    /// The same a while before, and how long that was. None in a recorded tree that has only one look.
    pub earlier: Option<(Counters, Duration)>,
    /// What its devices move of memory, and whose, from the earlier look to this one.
    pub devices: Devices,
    /// What the board's controller says, once it was asked: some take seconds.
    pub board: OnceLock<Board>,
    /// Names of the interfaces of hardware, once they were asked for: see [`interfaces::hardware`].
    pub hardware: OnceLock<BTreeSet<String>>,
}

impl Host {
    /// Looks at a host; the living one twice, so that growth is seen.
    pub fn look(system: System) -> Host {
        let (earlier, between) = if system.is_live() {
            let before = Counters::of(&system, counted(&system));
            let between = Between::wait(WATCHED);
            (Some((before, WATCHED)), between)
        } else {
            (Counters::recorded_earlier(&system, counted(&system)), Between::default())
        };
        let (topology, net, counters) =
            (topology::read(&system), Net::of(&system), Counters::of(&system, counted(&system)));
        let devices = between.devices(&system, &topology);
        let (board, hardware) = (OnceLock::new(), OnceLock::new());
        Host { system, topology, net, counters, earlier, devices, board, hardware }
    }

    /// What every check says.
    pub fn examine(&self) -> Vec<(&'static checks::Check, Verdict)> {
        checks::all().into_iter().map(|check| (check, (check.look)(self))).collect()
    }
}
