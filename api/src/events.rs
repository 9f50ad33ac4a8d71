//! What is told of what happened: an event, and the closed list of their kinds.

use crate::sentence::Sentence;
use crate::told::Told;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// How much an event matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Good to know.
    Info,
    /// Look at it.
    Warning,
    /// Do something about it.
    Error,
}

/// What happened, as a word: the closed list of what this daemon tells. (Those who read may meet others, of another version.)
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum EventKind {
    /// The daemon was started.
    DaemonStarted,
    /// It was stopped in order.
    DaemonStopped,
    /// A volume was made.
    VolumeCreated,
    /// It is no more.
    VolumeDeleted,
    /// It was grown.
    VolumeResized,
    /// It serves, waits, stops.
    PhaseChanged,
    /// Asked for, or in effect.
    PolicyChanged,
    /// Ordered or journaled.
    DestageChanged,
    /// To another medium.
    TierChanged,
    /// Writes fail.
    TierFailed,
    /// What was acknowledged stays in the tier.
    BackingFailing,
    /// Nothing is destaged before former owners are fenced.
    BackingAwaitsFence,
    /// It takes writes again.
    BackingReady,
    /// The backing stays unchanged.
    HoldBegun,
    /// It changes again.
    HoldEnded,
    /// What lies at the image's path is not the image.
    ImageDisplaced,
    /// It is again.
    ImageInPlace,
    /// Writes are as slow as the backing.
    ThrottlingBegun,
    /// They are not any more.
    ThrottlingEnded,
    /// Another node owns the volume, unasked.
    TakeOver,
    /// Another one, as was asked for.
    HandOver,
    /// Another one, as this node learns later.
    OwnerChanged,
    /// A node keeps the log no more.
    MemberLost,
    /// A node keeps it.
    MemberJoined,
    /// To a node.
    LinkDown,
    /// To a node.
    LinkUp,
    /// The cluster's coordinator needs an operator.
    CoordinatorTrouble,
    /// It does not any more.
    CoordinatorWell,
    /// It cannot be written.
    HistoryFailing,
    /// It is written again.
    HistoryReady,
    /// The wall clock, or the machine slept.
    ClockSet,
    /// Something bounds or endangers the host.
    DoctorFinding,
    /// It does not any more.
    DoctorFindingGone,
    /// The doctor could not look.
    DoctorFailed,
    /// The board's controller has logged something.
    BoardLog,
}

impl EventKind {
    /// Every kind that there is, in the order of the list.
    pub fn all() -> &'static [EventKind] {
        clap::ValueEnum::value_variants()
    }

    /// As it is told and kept, such as `policy-changed`.
    pub fn word(self) -> String {
        clap::ValueEnum::to_possible_value(&self).expect("no kind is left out").get_name().to_owned()
    }
}

/// Something that happened, before it has a time and a number.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Happened {
    /// The word of its kind, see [`EventKind::word`].
    pub kind: String,
    /// How much it matters.
    pub severity: Severity,
    /// Name of the volume that it happened to; none: it is not about one.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub volume: Option<String>,
    /// What happened, as a sentence for people: in English where it is kept, and where it is told in the language that was asked for.
    pub text: String,
    /// The same in any language; kept, and not told.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub sentence: Option<Sentence>,
    /// The same for programs: names and values that belong to the kind.
    #[serde(default)]
    pub details: Map<String, Value>,
}

impl Happened {
    /// Without a volume and details.
    pub fn new(kind: EventKind, severity: Severity, told: impl Into<Told>) -> Happened {
        let Told { text, sentence } = told.into();
        Happened { kind: kind.word(), severity, volume: None, text, sentence, details: Map::new() }
    }

    /// The same of this volume.
    pub fn of(mut self, volume: &str) -> Happened {
        self.volume = Some(volume.to_owned());
        self
    }

    /// The same with one more detail, for programs.
    pub fn with(mut self, name: &str, value: impl Into<Value>) -> Happened {
        self.details.insert(name.to_owned(), value.into());
        self
    }
}

/// An event, as it is told and kept.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// Greater than that of every event before it on this node.
    pub id: u64,
    /// When, by this node's clock: RFC 3339, UTC, milliseconds.
    pub at: String,
    /// The node that tells it.
    pub node: String,
    /// What happened, and to which volume.
    #[serde(flatten)]
    pub what: Happened,
}
