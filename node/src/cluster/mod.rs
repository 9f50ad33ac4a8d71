//! A node as part of a cluster: who the other nodes are, which volumes the cluster has, and what serving them needs besides
//! the data path.
//!
//! What each file owns: [`join`] how a node becomes part of it, `registration` that it stays one; [`control`] the control thread's
//! part: coordinator, tiers and backings; [`crate::datapath::driver`] the data path's part: links, to whom there are any (`peers`), and ownership
//! beside each volume; [`member`] the tier of a volume on this node; [`reach`] which backings it reaches; [`marker`] what lies beside
//! an image; [`crate::addresses`] where clients reach what is served here, and `clients` who they may be; [`proof`] what is known of former
//! owners, and fences, `watchdog` that of this machine, `own_lock` the lock of an owner; [`commands`] what operators want, `requests`
//! how nodes ask each other, and whose word counts, `calls` how the owner is asked for it, `backings` which backings are opened here
//! and `pins` what a volume is for its life, `deletion` the end of a volume, `leaving` a node that is emptied, [`ways_out`] what they
//! decide where the cluster cannot know; [`report`] what is shown, `told` what an owner tells for that, `health` how the coordinator
//! is, `sides` what two nodes see of their links for `forebay doctor`.
//!
//! Decisions are core's: who may serve is `forebay_core::ownership`, the log is `forebay_core::volume`. Left out by intent: more
//! than one shard, and journals.

mod backings;
mod calls;
mod clients;
pub mod commands;
pub mod control;
pub mod deletion;
mod health;
pub mod join;
mod leaving;
mod marker;
mod media;
pub mod member;
mod own_lock;
mod pins;
pub mod proof;
mod reach;
mod registration;
pub mod report;
mod requests;
mod resolve;
mod sides;
mod told;
mod watchdog;
pub mod ways_out;
mod without_copy;
