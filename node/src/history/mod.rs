//! What was seen of volumes and of the node, kept over time and bounded.
//!
//! [`reading`] makes figures of two looks; [`writer`] is the thread that writes them into the [`files`]; [`query`] makes charts' lines of
//! them again. The whole histograms of each five minutes are kept beside them in an [`album`].

pub mod album;
pub mod files;
pub mod query;
pub mod reading;
pub mod writer;
