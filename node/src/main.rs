//! `forebay`: daemon, command line and HTTP API of a node in one binary.
//!
//! - [`cli`] takes the words, [`serve`] brings a node up and down.
//! - [`shard`] is the data path: the one loop. Everything else is control plane, on one thread.
//! - [`forward`] serves the clients of volumes that other nodes own; [`connections`] is what both have in common.
//! - [`identity`] is who a node of a cluster is, [`seals`] what it has said, [`allowed`] what it opens for others, [`coordinator`] who says who is who.
//! - [`node`] keeps the volumes, [`open`] opens one, [`volume_store`] is what is remembered of it besides its tier.
//! - [`seeing`] is what is seen of it, now and over time: [`history`], [`events`], what is [`degraded`].
//! - [`api`], [`report`], [`metrics`], [`top`] and [`review`] tell about it; [`inspect`], [`salvage`] and [`fence_test`] need no daemon, [`mod@bench`]
//!   loads one.

mod allowed;
mod api;
mod bench;
mod calendar;
mod cli;
mod cluster;
mod config;
mod connections;
#[cfg_attr(
    not(test),
    expect(
        dead_code,
        reason = "deletion, the operator's ways out and the embedded store have no command; its tests use all of it"
    )
)]
mod coordinator;
mod degraded;
mod directory;
mod doctor;
mod events;
mod fence_test;
mod forward;
mod history;
mod identity;
mod inspect;
mod journal;
mod judgement;
mod mailbox;
mod memory_place;
mod metrics;
mod node;
mod open;
mod paths;
mod placement;
mod report;
mod review;
mod salvage;
mod seals;
mod seeing;
mod serve;
mod shard;
mod tier_reader;
mod top;
mod units;
mod volume_store;

fn main() -> std::process::ExitCode {
    cli::main()
}
