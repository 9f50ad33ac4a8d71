//! The daemon of a node: shard loop, volumes, cluster, HTTP API.
//!
//! From the bottom up; no module uses one that stands below it in this list:
//!
//! - [`names`] is what volumes are called, [`seconds`] when the control thread does what it does now and then.
//! - [`log`] is what the daemon says on its standard error, by whichever of these.
//! - [`volume_store`] is what is remembered of a volume besides its tier, [`allowed`] what is opened for others, [`judgement`] whether an
//!   image is the one that a tier belongs to, [`journal`] what is done about a journal at a start; [`open`] opens a volume by all that,
//!   [`placement`] says where its thread and memory are.
//! - [`datapath`] serves it. Everything else is control plane, on one thread.
//! - [`coordinator`] says who is who; [`cluster`] ties that, links, ownership and volumes together; [`addresses`] are where clients find them.
//! - [`telemetry`] is what is seen of it all, now and over time: [`history`], [`events`], what is [`degraded`]; [`rounds`] the doctor's looks.
//! - [`node`] keeps the volumes; [`sampler`] looks at them once a second.
//! - [`http`] and [`metrics`] tell about it; [`serve`] brings a node up and down.

mod addresses;
mod allowed;
mod board;
mod cluster;
mod coordinator;
mod datapath;
mod degraded;
mod events;
mod facts;
mod failure;
mod history;
mod http;
mod journal;
mod judgement;
mod log;
mod memory_place;
mod metrics;
mod names;
mod node;
mod open;
mod placement;
#[cfg(feature = "planted")]
mod planted;
mod rounds;
mod sampler;
mod seconds;
pub mod serve;
mod status;
mod telemetry;
mod volume_store;
