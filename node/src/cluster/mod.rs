//! A node as part of a cluster: who the other nodes are, which volumes the cluster has, and what serving them needs besides
//! the data path.
//!
//! What each file owns: [`join`] how a node becomes part of it; [`control`] the control thread's part: coordinator, tiers and
//! backings; [`driver`] the data path's part: links, and ownership beside each volume; [`member`] the tier of a volume on this
//! node; [`reach`] which backings it reaches; [`marker`] what lies beside an image; [`addresses`] where clients reach what is served
//! here; [`proof`] what is known of former owners, and fences, `watchdog` that of this machine; [`commands`] what operators want, `calls` how another node is asked for
//! it, `deletion` the end of a volume, `leaving` a node that is emptied, [`ways_out`] what they decide where the cluster cannot know;
//! [`report`] what is shown, `told` what an owner tells for that, `sides` what two nodes see of their links for `forebay doctor`.
//!
//! Decisions are core's: who may serve is `forebay_core::ownership`, the log is `forebay_core::volume`. Left out by intent: more
//! than one shard, and journals.

pub mod addresses;
mod calls;
pub mod commands;
pub mod control;
mod deletion;
pub mod driver;
pub mod join;
mod leaving;
mod marker;
mod media;
pub mod member;
pub mod proof;
mod reach;
pub mod report;
mod sides;
mod told;
mod watchdog;
pub mod ways_out;
mod without_copy;
