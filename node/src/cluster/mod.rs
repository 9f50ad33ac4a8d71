//! A node as part of a cluster: who the other nodes are, which volumes the cluster has, and what serving them needs besides
//! the data path.
//!
//! What each file owns: [`join`] how a node becomes part of it, `registration` that it stays one, `revocations` whose identities count no more, `own_addresses` by which addresses; [`control`] the control thread's
//! part: coordinator, tiers and backings; [`crate::datapath::driver`] the data path's part: links, to whom there are any (`peers`), and ownership
//! beside each volume; [`member`] the tier of a volume on this node; [`backing_probe`] which backings it reaches; [`marker`] what lies beside
//! an image; [`crate::addresses`] where clients reach what is served here, and `clients` who they may be; [`fencing`] what is known of former
//! owners, and fences, `watchdog` that of this machine, `own_lock` the lock of an owner; [`commands`] what operators want, `requests`
//! how nodes ask each other, and whose word counts, `calls` how the owner is asked for it, `backings` which backings are opened here
//! and `pins` what a volume is for its life, `deletion` the end of a volume, `evacuation` a node that is about to stop, `tier_migration` copies that
//! change their medium, [`overrides`] what operators decide where the cluster cannot know; [`status`] what is shown, `owner_status` what an owner tells for that,
//! `missing_replicas` why copies are missing, `health` how the coordinator is, `link_diagnosis` what two nodes see of their links for `forebay doctor`.
//!
//! Decisions are core's: who may serve is `forebay_core::ownership`, the log is `forebay_core::volume`. Left out by intent: more
//! than one shard, and journals.

mod backing_probe;
mod backings;
mod calls;
mod clients;
pub mod commands;
pub mod control;
pub mod deletion;
mod ended_terms;
mod evacuation;
pub mod fencing;
mod health;
pub mod join;
mod link_diagnosis;
mod marker;
pub mod member;
mod missing_replicas;
mod new_image;
pub mod overrides;
mod own_addresses;
mod own_identity;
mod own_lock;
mod owner_status;
mod pins;
mod registration;
mod requests;
mod resolve;
mod revocations;
pub mod status;
mod tier_migration;
mod watchdog;
