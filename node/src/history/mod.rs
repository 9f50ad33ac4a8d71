//! What was seen of volumes and of the node, kept over time and bounded.
//!
//! [`sampler`] looks once a second; [`reading`] makes figures of two looks; [`series`] names them; [`writer`] is the thread
//! that writes them into the [`files`], whose bytes are [`mod@format`]'s; [`query`] makes charts' lines of them again.
//! [`pictures`] are the whole histograms of each five minutes, kept beside them in an [`album`].

pub mod album;
pub mod files;
pub mod format;
pub mod pictures;
pub mod query;
pub mod reading;
pub mod sampler;
pub mod series;
pub mod writer;
