//! What a check says: each finding with the files that show it, its number, how sure it is, and what helps.

pub use forebay_api::sentence::Sentence;
use serde::{Deserialize, Serialize};

/// How much a finding costs.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Severity {
    /// Worth knowing; costs little, or only under some load.
    Note,
    /// It costs throughput or latency.
    Warning,
    /// Something is broken, or most of what the hardware can do is lost.
    Error,
}

/// How sure a finding is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Confidence {
    /// It follows from a rule of thumb.
    Likely,
    /// Computed of what was read.
    Computed,
    /// Read as it stands, or measured.
    Certain,
}

/// The exact file, or counter, and what it says.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Evidence {
    /// A path, or the name of a counter with the device it belongs to.
    pub source: String,
    /// What it says, as it stands there.
    pub value: String,
}

impl Evidence {
    /// What a source says, as it stands there.
    pub fn new(source: impl Into<String>, value: impl ToString) -> Evidence {
        Evidence { source: source.into(), value: value.to_string() }
    }
}

/// What can be gained, as a number.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Number {
    /// What it is now, in `unit`.
    pub is: f64,
    /// What it could be, in `unit`.
    pub could_be: f64,
    /// Of both, such as `B/s`, `s` or `1`.
    pub unit: String,
}

/// How it can be cured.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Remedy {
    /// Forebay can write this, measure, and take it back: each a file and what to write there, in this order.
    Apply {
        /// What it does, for people.
        what: Sentence,
        /// Files, and what is written to each.
        writes: Vec<Write>,
    },
    /// What a person does: a setting of the firmware, a slot, a cable, a file of another program.
    Explain {
        /// What to do, for people.
        what: Sentence,
        /// The command to type, where there is one.
        #[serde(skip_serializing_if = "Option::is_none")]
        command: Option<String>,
    },
}

impl Remedy {
    /// What it does, or what to do.
    pub fn what(&self) -> &Sentence {
        match self {
            Remedy::Apply { what, .. } | Remedy::Explain { what, .. } => what,
        }
    }
}

/// One setting of the kernel, and what it is to become.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Write {
    /// A file of procfs or sysfs.
    pub path: String,
    /// What is written to it.
    pub value: String,
}

/// Something that bounds, or endangers, a path of this host.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Finding {
    /// Names it for `--apply` and for comparing runs: the check's word and the thing, as in `pcie-link-degraded/0000:06:00.0`.
    pub id: String,
    /// Number of the check.
    pub check: u8,
    /// How much it costs to leave it so.
    pub severity: Severity,
    /// How sure it is.
    pub confidence: Confidence,
    /// What it says, for people.
    pub text: Sentence,
    /// What shows it. Never empty.
    pub evidence: Vec<Evidence>,
    /// What is lost, where it can be computed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub number: Option<Number>,
    /// What helps, the best first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub remedies: Vec<Remedy>,
}

/// What a check has come to.
#[derive(Clone, PartialEq, Debug)]
pub enum Verdict {
    /// It has found these, at least one.
    Found(Vec<Finding>),
    /// Looked at, and not the bound: why, in a sentence with the number.
    Fine(Sentence),
    /// This host has none of what it looks at.
    NotHere,
    /// It could not look: what was hidden, and the command or right that would show it.
    NotSeen {
        /// What could not be read, and why.
        what: String,
        /// The command or right that would show it.
        how: Sentence,
    },
    /// It has found these, at least one, in the part that could be seen.
    FoundPart {
        /// What was found in that part.
        found: Vec<Finding>,
        /// What could not be read of the rest, and why.
        what: String,
        /// The command or right that would show it.
        how: Sentence,
    },
}

impl Verdict {
    /// What was found, at least one, beside what hid the rest where something did.
    pub fn of_found(found: Vec<Finding>, hidden: Option<(String, Sentence)>) -> Verdict {
        match hidden {
            None => Verdict::Found(found),
            Some((what, how)) => Verdict::FoundPart { found, what, how },
        }
    }

    /// All that was found; nothing where there is no finding.
    pub fn into_found(self) -> Vec<Finding> {
        match self {
            Verdict::Found(found) | Verdict::FoundPart { found, .. } => found,
            Verdict::Fine(_) | Verdict::NotHere | Verdict::NotSeen { .. } => Vec::new(),
        }
    }
}
