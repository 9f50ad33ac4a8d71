//! What was seen of volumes and of the node, kept over time and bounded.
//!
//! [`sampler`] looks once a second; [`reading`] makes figures of two looks; [`series`] names them; [`writer`] is the thread
//! that writes them into the [`files`], whose bytes are [`format`]'s; [`query`] makes charts' lines of them again.

pub mod files;
pub mod format;
pub mod query;
pub mod reading;
pub mod sampler;
pub mod series;
pub mod writer;
