//! What is told of the past: series of figures over a time; and how they are kept, byte for byte.
//!
//! [`series`] names the figures; [`mod@format`] is how they lie in a file, [`pictures`] the whole histograms of some minutes.

pub mod format;
pub mod pictures;
pub mod series;

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// One series over time; nothing where nobody looked.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Line {
    /// Means; of a largest figure the largest.
    pub avg: Vec<Option<f32>>,
    /// Smallest of the seconds; left out where a step is one.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub min: Option<Vec<Option<f32>>>,
    /// Largest of the seconds; left out where a step is one.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub max: Option<Vec<Option<f32>>>,
}

/// What is known of a time.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct History {
    /// The volume whose history it is; none: it is a node's.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub volume: Option<String>,
    /// The node whose history it is; none: it is a volume's.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub node: Option<String>,
    /// The first step's begin, in seconds since 1970.
    pub from: u64,
    /// The last step's end, in seconds since 1970.
    pub to: u64,
    /// How many seconds a step of the answer has.
    pub step_s: u64,
    /// When each step begins, in seconds since 1970.
    pub at: Vec<u64>,
    /// The figures of each series, by its name.
    pub series: BTreeMap<String, Line>,
}
