//! What lies in the coordinator, as JSON: the record of a volume, its definition, nodes, and lines of the audit log.
//!
//! Invariants:
//! - Each is versioned. One of another version, or with a field that is not known here, is refused and never written over:
//!   passing it over would drop what a newer node has put there. So a newer version goes on writing the old form
//!   until each registered node can read its own ([`NodeEntry::record_version`]).
//! - **One form for one meaning.** What is read must be, byte by byte, what this code would write. So to compare the whole text is to
//!   compare the whole record (C1), and what was edited by hand is noticed before anything rests on it.
//! - **Read as if a stranger had sent it.** Names and texts are types that check themselves ([`checked`](forebay_api::checked)), and every
//!   number is held against what it can be (`limits`) before anybody sees it: what is out of bounds is no value.

use super::limits;
use forebay_api::checked::{Code, FaultDomain, Hex64, Line, NodeName, VolumeName};
use forebay_api::config::address::VirtualAddress;
use forebay_api::config::volume::{COMMON_VERSION, Common};
use forebay_api::config::{DestageName, FlushName, PolicyName, TierName};
use forebay_api::record::VolumeId;
use forebay_core::cluster::{Host, NodeId, RewindId};
use forebay_core::ownership::Timing;
use forebay_core::types::Duration;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// Version of everything here that has no other.
pub const VERSION: u32 = 1;
/// Of a record that says what flushes have promised. One that says nothing is of [`VERSION`].
pub const VERSION_FLUSHED: u32 = 3;
/// Highest version that this program reads: since 2 nodes ask each other what they see of their links (`asks`); since 3 a record
/// says what flushes have promised, and a definition may have settings that need it or a later one ([`Common::known_since`]). All else
/// is of [`VERSION`].
pub const VERSION_READ: u32 = COMMON_VERSION;
const _: () = assert!(VERSION_FLUSHED <= VERSION_READ);

mod record;

use record::HostText;
pub use record::StoredRecord;

/// Text of a value, or why it is not one.
pub trait Document: Sized {
    /// The text of the value; one value has one text.
    fn encode(&self) -> String;
    /// Reads it; the error says what is wrong with it.
    fn decode(text: &str) -> Result<Self, String>;
    /// Whether it may lie under a key with this end: one that speaks of another thing than its key does was put there by somebody
    /// else.
    fn is_at(&self, _end: &str) -> bool {
        true
    }
}

#[derive(Deserialize)]
struct Versioned {
    version: u32,
}

pub(super) fn write<T: Serialize>(value: &T) -> String {
    serde_json::to_string(value).expect("plain values with text as keys")
}

/// Reads what [`write()`] wrote, and nothing else.
fn read<T: Serialize + DeserializeOwned>(text: &str) -> Result<T, String> {
    read_of(text, VERSION)
}

/// The same for what is of another version.
pub(super) fn read_of<T: Serialize + DeserializeOwned>(text: &str, wanted: u32) -> Result<T, String> {
    limits::text(text)?;
    match serde_json::from_str::<Versioned>(text) {
        Ok(Versioned { version }) if version == wanted => {}
        Ok(Versioned { version }) => {
            return Err(format!("it is of version {version}, this Forebay knows version {wanted}; use a newer one"));
        }
        Err(error) => return Err(format!("it is damaged: {error}")),
    }
    let value: T = serde_json::from_str(text).map_err(|error| format!("it is damaged: {error}"))?;
    if write(&value) != text {
        return Err("it was not written by Forebay: order of fields, spaces or digits are not its own".into());
    }
    Ok(value)
}

/// As the kernel prints machine and boot ids, hyphens left out.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
struct Hex128([u8; 16]);

impl From<Hex128> for String {
    fn from(id: Hex128) -> String {
        format!("{:032x}", u128::from_be_bytes(id.0))
    }
}

impl TryFrom<String> for Hex128 {
    type Error = String;
    fn try_from(text: String) -> Result<Hex128, String> {
        let plain = text.len() == 32 && text.bytes().all(|b| b.is_ascii_hexdigit());
        let number = plain.then(|| u128::from_str_radix(&text, 16).ok()).flatten();
        number.map(|n| Hex128(n.to_be_bytes())).ok_or_else(|| format!("{text:?} is not 32 hexadecimal digits"))
    }
}

// --- a coordinator that went back ---

/// Most names in a mark.
pub const MARKED_MAX: usize = 16;

/// That the coordinator is known to have gone back (C6).
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RewindMark {
    version: u32,
    rewinds: Vec<Hex64>,
}

impl RewindMark {
    /// What is to be written by a node for which `open` are open, in place of what it has found; none: all of them are there.
    pub fn with(found: Option<&RewindMark>, open: &[RewindId]) -> Option<RewindMark> {
        let mut rewinds = found.map(|mark| mark.rewinds.clone()).unwrap_or_default();
        let missing: Vec<Hex64> = open.iter().map(|id| Hex64(id.0)).filter(|id| !rewinds.contains(id)).collect();
        if missing.is_empty() {
            return None;
        }
        rewinds.extend(missing);
        let rewinds = rewinds.split_off(rewinds.len().saturating_sub(MARKED_MAX));
        Some(RewindMark { version: VERSION, rewinds })
    }

    /// The rewinds that the mark tells of.
    pub fn rewinds(&self) -> impl Iterator<Item = RewindId> {
        self.rewinds.iter().map(|id| RewindId(id.0))
    }
}

impl Document for RewindMark {
    fn encode(&self) -> String {
        write(self)
    }
    fn decode(text: &str) -> Result<RewindMark, String> {
        let mark: RewindMark = read(text)?;
        match mark.rewinds.len() <= MARKED_MAX && mark.rewinds().all(RewindId::is_name) {
            true => Ok(mark),
            false => Err("it tells of rewinds that no node has named".to_owned()),
        }
    }
}

// --- what people and nodes have said ---

/// The tier that each member of a volume makes.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TierChoice {
    /// The medium that the tier is on.
    pub kind: TierName,
    /// Size of each member's tier in bytes.
    pub size_bytes: u64,
}

/// What the operator asks of a volume: all that a node must know to serve it, besides who may.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Definition {
    /// The layout of this text: [`VERSION`].
    pub version: u32,
    /// Its name; no other volume of the cluster has it.
    pub name: VolumeName,
    /// The volume's identity, which is in its tiers and its marker as well.
    pub volume: VolumeId,
    /// As given by the user, absolute: the same on each node that may own it.
    pub backing: String,
    /// The backing is raw whatever its first bytes say.
    pub format_raw: bool,
    /// When a write is acknowledged, as the operator asks for.
    pub policy: PolicyName,
    /// Copies besides the owner's that are asked for.
    pub peers: u8,
    /// With fewer the volume degrades.
    pub min_peers: u8,
    /// The tier that each member makes for it.
    pub tier: TierChoice,
    /// What a flush of a client promises.
    pub flush: FlushName,
    /// RAM for staging and read cache before a flash tier.
    pub memory_bytes: u64,
    /// How groups reach the backing, as the operator asks for.
    pub destage: DestageName,
    /// Bytes of the journal beside the image; 0: as the size of the volume suggests.
    pub journal_bytes: u64,
    /// Seconds that the log may take to drain before writes are slowed; 0: no such limit.
    pub drain_max_s: u64,
    /// Where clients reach it, whichever node serves it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub address: Option<VirtualAddress>,
    /// Every owner reserves the backing's device before it writes: a successor can expel it. For the volume's whole life.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub reserves: bool,
    /// What its record and its report have as well. Only nodes that read the versions which these need know the definition
    /// ([`Common::known_since`]).
    #[serde(flatten)]
    pub common: Common,
}

impl Document for Definition {
    fn encode(&self) -> String {
        write(self)
    }

    fn decode(text: &str) -> Result<Definition, String> {
        let definition: Definition = read(text)?;
        limits::definition(&definition).map(|()| definition)
    }

    fn is_at(&self, end: &str) -> bool {
        self.volume.to_string() == end
    }
}

/// The machine of a node resets itself when its daemon hangs; docs/protocol.md, Watchdog.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WatchdogDefinition {
    /// Name of the watchdog's hardware.
    pub identity: Line,
    /// At most so many milliseconds after the end of an owner's lease (H2).
    pub resets_within_ms: u64,
    /// When it has last done so, in seconds since 1970 by the node's clock.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub proven_unix_s: Option<u64>,
}

/// A node of the cluster.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NodeEntry {
    version: u32,
    /// Its name, as in its certificate; no other node has it.
    pub name: NodeName,
    node: Hex64,
    host: HostText,
    /// Addresses where its links listen, with ports.
    pub addresses: Vec<String>,
    /// What fails together with it: a rack, a power feed. Empty: itself.
    pub fault_domain: FaultDomain,
    /// Lowest and highest version of the links' protocol that it speaks.
    pub wire_versions: (u16, u16),
    /// The newest layout of records that it reads: its [`VERSION_READ`].
    pub record_version: u32,
    /// Its machine's watchdog, while that is armed.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub watchdog: Option<WatchdogDefinition>,
}

impl NodeEntry {
    /// The entry of a node that speaks this version.
    pub fn new(name: NodeName, node: NodeId, host: Host) -> NodeEntry {
        NodeEntry {
            version: VERSION,
            name,
            node: Hex64(node.0),
            host: host.into(),
            addresses: Vec::new(),
            fault_domain: FaultDomain::new("").expect("a node alone"),
            wire_versions: (0, 0),
            record_version: VERSION_READ,
            watchdog: None,
        }
    }

    /// The node's number, as core has it.
    pub fn node(&self) -> NodeId {
        NodeId(self.node.0)
    }

    /// The machine it runs on, in one of its boots.
    pub fn host(&self) -> Host {
        (&self.host).into()
    }
}

impl Document for NodeEntry {
    fn encode(&self) -> String {
        write(self)
    }

    fn decode(text: &str) -> Result<NodeEntry, String> {
        let entry: NodeEntry = read(text)?;
        limits::node(&entry).map(|()| entry)
    }

    fn is_at(&self, end: &str) -> bool {
        self.name == *end
    }
}

/// What a node has to give, for the choice of peers. A hint: it is written without a comparison, and old when it is read.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Load {
    /// The layout of this text: [`VERSION`].
    pub version: u32,
    /// Name of the node that tells it.
    pub name: NodeName,
    /// Milliseconds since 1970 by its own clock.
    pub at_ms: u64,
    /// Memory that new tiers may take.
    pub memory_free_bytes: u64,
    /// Room for new flash tiers.
    pub flash_free_bytes: u64,
    /// Of its cores, per cent that are busy.
    pub busy_percent: u8,
    /// How many volumes it owns.
    pub owned: u32,
    /// Volumes that it holds a copy of.
    pub held: u32,
    /// Volumes whose backing it does not reach.
    pub unreached: Vec<VolumeId>,
}

impl Load {
    /// What new tiers on a medium may take.
    pub fn free_bytes(&self, kind: TierName) -> u64 {
        match kind {
            TierName::Memory => self.memory_free_bytes,
            TierName::Flash => self.flash_free_bytes,
        }
    }
}

impl Document for Load {
    fn encode(&self) -> String {
        write(self)
    }

    fn decode(text: &str) -> Result<Load, String> {
        read(text)
    }

    fn is_at(&self, end: &str) -> bool {
        self.name == *end
    }
}

/// The operator is about to stop a node: it is to own nothing and keep no copy that another node can keep.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Evacuation {
    /// The layout of this text: [`VERSION`].
    pub version: u32,
    /// Name of the node that is to be evacuated.
    pub name: NodeName,
    /// Since when, in milliseconds since 1970 by the clock of the node that was told.
    pub at_ms: u64,
}

impl Document for Evacuation {
    fn encode(&self) -> String {
        write(self)
    }

    fn decode(text: &str) -> Result<Evacuation, String> {
        read(text)
    }

    fn is_at(&self, end: &str) -> bool {
        self.name == *end
    }
}

/// What the owner of a volume is asked for.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum OwnerCommand {
    /// Make another node the owner.
    HandOver {
        /// Name of the node that is to own the volume.
        to: NodeName,
    },
    /// Destage everything; and keep it so.
    Drain {
        /// It is kept so until a release.
        through: bool,
    },
    /// Destage everything, and leave the backing unchanged.
    Hold {
        /// How many seconds it is held, at most.
        seconds: u64,
    },
    /// End a hold, or a drain that keeps the backing complete.
    Release,
    /// Grow the volume, and its backing with it.
    Resize {
        /// Size of the volume then, in bytes.
        size_bytes: u64,
    },
    /// Forget the volume, and remove its tiers.
    Delete {
        /// Although acknowledged writes are lost.
        discard_dirty: bool,
    },
}

/// A node asks another one for something.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Call {
    /// The layout of this text: [`VERSION`].
    pub version: u32,
    /// Identity of this call, drawn at random.
    pub id: VolumeId,
    /// Name of the node that asks.
    pub from: NodeName,
    /// The volume that it is about.
    pub volume: VolumeId,
    /// What it asks the owner for.
    #[serde(rename = "wish")]
    pub command: OwnerCommand,
}

impl Document for Call {
    fn encode(&self) -> String {
        write(self)
    }

    fn decode(text: &str) -> Result<Call, String> {
        let call: Call = read(text)?;
        limits::command(&call.command).map(|()| call)
    }

    fn is_at(&self, end: &str) -> bool {
        self.id.to_string() == end
    }
}

/// Why something was not done, as callers tell kinds apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NotDone {
    /// There is no such thing.
    NotFound,
    /// The request cannot be meant.
    Invalid,
    /// The state of the volume forbids it.
    Conflict,
    /// It was tried and did not work.
    Failed,
    /// Another node owns the volume now.
    NotOwner,
}

/// How a call ended, as the asked node says.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Answered {
    /// The layout of this text: [`VERSION`].
    pub version: u32,
    /// Why it is not done, as a kind; none: it is done.
    pub not_done: Option<NotDone>,
    /// Why it is not done; empty if it is.
    pub why: String,
}

impl Document for Answered {
    fn encode(&self) -> String {
        write(self)
    }

    fn decode(text: &str) -> Result<Answered, String> {
        read(text)
    }
}

/// What an owner tells of its volumes, for reports at other nodes. A hint, like [`Load`].
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OwnedVolumes {
    /// The layout of this text: [`VERSION`].
    pub version: u32,
    /// Name of the owner's node.
    pub name: NodeName,
    /// Milliseconds since 1970 by its own clock.
    pub at_ms: u64,
    /// The volumes that the node owns.
    pub volumes: Vec<OwnedVolume>,
}

/// A volume, as its owner sees it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OwnedVolume {
    /// The volume that it is about.
    pub volume: VolumeId,
    /// The term in which the node is its owner.
    pub term: u32,
    /// How writes are acknowledged now.
    pub effective: PolicyName,
    /// Code of why it is not as requested, or `as-requested`.
    pub reason: Code,
    /// For how many seconds that had been so.
    pub since_s: u64,
    /// What the owner waits for, as a code.
    pub owner_reason: Code,
    /// For how many seconds it has waited for that.
    pub owner_since_s: u64,
    /// State of the backing, as a code.
    pub backing: Code,
    /// What is in no other place than the logs.
    pub dirty_bytes: u64,
    /// How many records each other member or learner is behind.
    pub lag: Vec<(Hex64, u64)>,
}

impl Document for OwnedVolumes {
    fn encode(&self) -> String {
        write(self)
    }

    fn decode(text: &str) -> Result<OwnedVolumes, String> {
        read(text)
    }

    fn is_at(&self, end: &str) -> bool {
        self.name == *end
    }
}

/// A line of the audit log: what an operator has decided that the cluster could not know.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AuditLine {
    /// The layout of this text: [`VERSION`].
    pub version: u32,
    /// Milliseconds since 1970 by the node's clock.
    pub at_ms: u64,
    /// The node that was told.
    pub node: NodeName,
    /// The volume it is about, if it is about one.
    pub volume: Option<VolumeId>,
    /// What was done, such as `accept-loss`.
    pub action: Code,
    /// By whose word it was decided, and what it cost.
    pub words: Line,
}

impl Document for AuditLine {
    fn encode(&self) -> String {
        write(self)
    }

    fn decode(text: &str) -> Result<AuditLine, String> {
        read(text)
    }
}

/// Which cluster a coordinator belongs to.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClusterIdentity {
    version: u32,
    /// Its name, for people and for the keys.
    pub name: String,
    /// Drawn at random by `forebay node init-ca`; a coordinator with another one is not ours.
    pub id: VolumeId,
}

impl ClusterIdentity {
    /// The identity of a cluster, as this version writes it.
    pub fn new(name: &str, id: VolumeId) -> ClusterIdentity {
        ClusterIdentity { version: VERSION, name: name.to_owned(), id }
    }
}

impl Document for ClusterIdentity {
    fn encode(&self) -> String {
        write(self)
    }

    fn decode(text: &str) -> Result<ClusterIdentity, String> {
        read(text)
    }
}

/// Times that all members must have from one source (`docs/protocol.md`, Bounds).
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// The layout of this text: [`VERSION`].
    pub version: u32,
    /// A member whose oldest open message has not moved for so long is dropped (A3).
    pub dropped_ms: u32,
    /// What a member's grant is good for (L1).
    pub lease_ms: u32,
    /// A member that has heard no beacon for so long may ask for ownership (L2).
    pub grace_ms: u32,
}

impl Default for Settings {
    fn default() -> Settings {
        let timing = Timing::default();
        let ms = |time: Duration| (time.0 / 1_000_000) as u32;
        Settings {
            version: VERSION,
            dropped_ms: ms(timing.member_drop),
            lease_ms: ms(timing.lease),
            grace_ms: ms(timing.grace),
        }
    }
}

impl Settings {
    /// Core's words for it; the other times are no cluster's choice.
    pub fn timing(&self) -> Timing {
        let ms = |ms: u32| Duration::from_millis(ms.into());
        let (member_drop, lease, grace) = (ms(self.dropped_ms), ms(self.lease_ms), ms(self.grace_ms));
        Timing { member_drop, lease, grace, ..Timing::default() }
    }
}

impl Document for Settings {
    fn encode(&self) -> String {
        write(self)
    }

    fn decode(text: &str) -> Result<Settings, String> {
        let settings: Settings = read(text)?;
        match settings.timing().check() {
            Ok(()) => Ok(settings),
            Err(why) => Err(format!("it contradicts itself: {why}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::record::RecordText;
    use super::*;
    use forebay_core::cluster::{Epoch, Flushed, Incarnation, LogState, Record, Unfenced};
    use forebay_core::types::Term;

    fn record() -> Record {
        Record {
            term: Term(3),
            epoch: Epoch(2),
            owner: NodeId(0xa),
            host: Host { machine: [3; 16], boot: [4; 16] },
            members: vec![
                Incarnation { node: NodeId(0xa), tier: u64::MAX, life: 1 },
                Incarnation { node: NodeId(0xb), tier: 7, life: 0 },
            ],
            log: LogState::Needed,
            flushed: Flushed::Unrecorded,
            size_bytes: 1 << 40,
            unfenced: vec![Unfenced {
                term: Term(2),
                node: NodeId(0xc),
                host: Host { machine: [1; 16], boot: [2; 16] },
            }],
        }
    }

    /// What nodes of this version have written; it must be read for ever.
    const RECORD: &str = concat!(
        r#"{"version":1,"term":3,"config":2,"owner":"000000000000000a","#,
        r#""host":{"machine":"03030303030303030303030303030303","boot":"04040404040404040404040404040404"},"members":["#,
        r#"{"node":"000000000000000a","tier":"ffffffffffffffff","life":1},"#,
        r#"{"node":"000000000000000b","tier":"0000000000000007","life":0}],"log":"needed","size_bytes":1099511627776,"#,
        r#""unfenced":[{"term":2,"node":"000000000000000c","host":{"machine":"01010101010101010101010101010101","#,
        r#""boot":"02020202020202020202020202020202"}}]}"#
    );

    #[test]
    fn record_is_written_in_one_form_and_read_back() {
        assert_eq!(StoredRecord::Record(record()).encode(), RECORD);
        assert_eq!(StoredRecord::decode(RECORD), Ok(StoredRecord::Record(record())));
        let deleted = StoredRecord::Deleted { term: Term(9), epoch: Epoch(1) };
        assert_eq!(deleted.encode(), r#"{"version":1,"term":9,"config":1,"deleted":true}"#);
        assert_eq!(StoredRecord::decode(&deleted.encode()), Ok(deleted));
    }

    /// As long as a record says nothing of flushes, nodes of every version read and compare it.
    #[test]
    fn record_that_says_what_flushes_have_promised_is_of_a_version_of_its_own() {
        for (flushed, word) in [(Flushed::Held, "held"), (Flushed::Durable, "durable")] {
            let said = Record { flushed, ..record() };
            let text = RECORD.replacen("\"version\":1", "\"version\":3", 1).replacen(
                "\"needed\",",
                &format!("\"needed\",\"flushed\":\"{word}\","),
                1,
            );
            assert_eq!(StoredRecord::Record(said.clone()).encode(), text);
            assert_eq!(StoredRecord::decode(&text), Ok(StoredRecord::Record(said)));
            for (version, wrong) in [("1", &text), ("2", &text), ("3", &RECORD.to_owned())] {
                let wrong = wrong.replacen(if version == "3" { ":1" } else { ":3" }, &format!(":{version}"), 1);
                assert!(StoredRecord::decode(&wrong).is_err(), "{wrong}");
            }
        }
        // What an older node says of it: it is refused, and never written over.
        let newer = StoredRecord::Record(Record { flushed: Flushed::Held, ..record() }).encode();
        assert!(read_of::<RecordText>(&newer, VERSION).is_err_and(|error| error.contains("version 3")));
    }

    #[test]
    fn whatever_is_not_of_this_form_is_refused() {
        let refused = |from: &str, to: &str, why: &str| {
            assert!(RECORD.contains(from));
            let error = StoredRecord::decode(&RECORD.replacen(from, to, 1)).expect_err(to);
            assert!(error.contains(why), "{to}: {error}");
        };
        refused("\"version\":1", "\"version\":2", "version 2");
        refused("\"config\":2", "\"config\":2,\"extra\":1", "extra");
        refused("\"term\":3", "\"term\": 3", "not written by Forebay");
        refused("\"term\":3,\"config\":2", "\"config\":2,\"term\":3", "not written by Forebay");
        refused("ffffffffffffffff", "FFFFFFFFFFFFFFFF", "not written by Forebay");
        refused("000000000000000a", "a", "16 hexadecimal");
        refused("needed", "lost", "lost");
        refused("\"owner\":\"000000000000000a\"", "\"owner\":\"000000000000000d\"", "the owner is no member");
        refused("\"node\":\"000000000000000b\"", "\"node\":\"000000000000000a\"", "twice");
        refused("\"term\":3", "\"term\":2", "this term or a later one");
        refused("1099511627776", "1000", "a size that no volume");
        for text in ["", "{}", "null", r#"{"version":1,"term":9,"config":1,"deleted":false}"#, &RECORD[..40]] {
            assert!(StoredRecord::decode(text).is_err(), "{text}");
        }
    }

    #[test]
    fn settings_that_core_would_refuse_are_refused() {
        let good = Settings::default();
        assert_eq!(
            (good.dropped_ms, good.lease_ms, good.grace_ms, good.timing()),
            (800, 3000, 5000, Timing::default())
        );
        assert_eq!(Settings::decode(&good.encode()), Ok(good.clone()));
        for wrong in [
            Settings { grace_ms: 3050, ..good.clone() },
            Settings { grace_ms: 1000, ..good.clone() },
            Settings { lease_ms: 1000, ..good.clone() },
            Settings { dropped_ms: 100, ..good.clone() },
        ] {
            assert!(Settings::decode(&wrong.encode()).is_err(), "{wrong:?}");
        }
        assert_eq!(Settings { grace_ms: 3061, ..good }.timing().check(), Ok(()));
    }

    #[test]
    fn released_record_needs_no_member() {
        let released = Record { log: LogState::Released, members: vec![], unfenced: vec![], ..record() };
        let kept = StoredRecord::Record(released);
        assert_eq!(StoredRecord::decode(&kept.encode()), Ok(kept));
    }

    /// Nodes of neighbouring versions read each other's.
    #[test]
    fn calls_and_what_is_told_have_one_form() {
        let id = VolumeId([7; 16]);
        let call =
            |wish| Call { version: VERSION, id, from: NodeName::new("beta").unwrap(), volume: id, command: wish };
        let head = concat!(
            r#"{"version":1,"id":"07070707-0707-0707-0707-070707070707","from":"beta","#,
            r#""volume":"07070707-0707-0707-0707-070707070707","wish":"#
        );
        for (wish, text) in [
            (OwnerCommand::HandOver { to: NodeName::new("gamma").unwrap() }, r#"{"hand-over":{"to":"gamma"}}"#),
            (OwnerCommand::Drain { through: true }, r#"{"drain":{"through":true}}"#),
            (OwnerCommand::Hold { seconds: 60 }, r#"{"hold":{"seconds":60}}"#),
            (OwnerCommand::Release, r#""release""#),
            (OwnerCommand::Resize { size_bytes: 4096 }, r#"{"resize":{"size_bytes":4096}}"#),
            (OwnerCommand::Delete { discard_dirty: false }, r#"{"delete":{"discard_dirty":false}}"#),
        ] {
            let text = format!("{head}{text}}}");
            assert_eq!(call(wish.clone()).encode(), text);
            assert_eq!(Call::decode(&text), Ok(call(wish)));
        }
        let answered = Answered { version: VERSION, not_done: Some(NotDone::NotOwner), why: "no".into() };
        assert_eq!(answered.encode(), r#"{"version":1,"not_done":"not-owner","why":"no"}"#);
        assert_eq!(Answered::decode(&answered.encode()), Ok(answered));
        let leaving = Evacuation { version: VERSION, name: NodeName::new("alpha").unwrap(), at_ms: 5 };
        assert_eq!(leaving.encode(), r#"{"version":1,"name":"alpha","at_ms":5}"#);
        assert_eq!(Evacuation::decode(&leaving.encode()), Ok(leaving));
        let told = OwnedVolumes { version: VERSION, name: NodeName::new("alpha").unwrap(), at_ms: 5, volumes: vec![] };
        assert_eq!(told.encode(), r#"{"version":1,"name":"alpha","at_ms":5,"volumes":[]}"#);
        assert_eq!(OwnedVolumes::decode(&told.encode()), Ok(told));
    }

    #[test]
    fn definition_and_node_come_back_as_written() {
        let definition = Definition {
            version: VERSION,
            name: VolumeName::new("vm1").unwrap(),
            volume: VolumeId([7; 16]),
            backing: "/mnt/nas/vm1.img".into(),
            format_raw: false,
            policy: PolicyName::Back,
            peers: 2,
            min_peers: 1,
            tier: TierChoice { kind: TierName::Memory, size_bytes: 1 << 30 },
            flush: FlushName::Auto,
            memory_bytes: 64 << 20,
            destage: DestageName::Auto,
            journal_bytes: 0,
            drain_max_s: 10,
            address: None,
            reserves: false,
            common: Default::default(),
        };
        assert_eq!(Definition::decode(&definition.encode()), Ok(definition.clone()));
        assert!(!definition.encode().contains("address"), "it is read by who knows of none");
        for interface in [None, Some("eth0".to_owned())] {
            let address = VirtualAddress::new("10.0.0.50/24".parse().unwrap(), interface).unwrap();
            let reached = Definition { address: Some(address), ..definition.clone() };
            assert_eq!(Definition::decode(&reached.encode()), Ok(reached));
        }
        let description = Some(Line::new("the mail store").unwrap());
        let common = Common { clients: "dns:vm1".parse().unwrap(), description };
        let described = Definition { common, ..definition.clone() };
        let text = described.encode();
        assert!(text.ends_with(r#","clients":["dns:vm1"],"description":"the mail store"}"#), "{text}");
        assert_eq!(Definition::decode(&text), Ok(described));
        for unknown in [text.replace("\"description\"", "\"owner\""), text.replace("mail", "ma\\u001bil")] {
            assert!(Definition::decode(&unknown).is_err(), "{unknown}");
        }
        let wrong = Definition { min_peers: 3, ..definition };
        assert!(Definition::decode(&wrong.encode()).unwrap_err().contains("min_peers"));
        let node = NodeEntry::new(NodeName::new("alpha").unwrap(), NodeId(5), Host { machine: [3; 16], boot: [4; 16] });
        assert_eq!(NodeEntry::decode(&node.encode()), Ok(node.clone()));
        assert_eq!((node.node(), node.host().boot), (NodeId(5), [4; 16]));
    }
}
