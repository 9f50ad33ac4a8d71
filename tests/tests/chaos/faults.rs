//! What happens to the cluster in a round: drawn, or written down for a fault that is planted.

use super::{Storage, VOLUMES};
use forebay_tests::cluster::NAMES;
use forebay_tests::rng::Rng;
use std::fmt;
use std::time::Duration;

/// A fault that lasts so long has another node take over what it meets.
const TAKE_OVER: Duration = Duration::from_secs(7);

/// What happens to the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    Kill,
    LoseMemory,
    Pause,
    /// A daemon and the member of etcd beside it stand still, as a host that hangs.
    HostHangs,
    Isolate,
    OneWay,
    OneLink,
    /// What a node sends to others arrives only where it is little.
    Choke,
    Unplug,
    EtcdMember,
    /// One member of etcd stands still, and whoever is connected to it hears no error.
    EtcdHangs,
    EtcdAway,
    EtcdHidden,
    /// etcd is put back to what it was when the round began.
    EtcdRestored,
    /// A file system does not answer one node: what that asks of a volume's image by system calls (its data go by the ring, where there
    /// is one).
    FilesHang,
    /// One kind of system call on a volume's image or its tier does not return to a node ([`HANGS`]); where that is [`At::Any`] and
    /// it is on an image, to none of them.
    CallHangs,
    HandOver,
    Peers,
}

/// Kinds of system calls that hang together: each that may wait for a file system, as the gate of the calls names them.
pub const HANGS: [&[&str]; 8] = [
    &["fsync", "fdatasync", "syncfs"],
    &["ftruncate", "fallocate"],
    &["close"],
    &["munmap"],
    &["openat"],
    &["rename", "unlinkat", "getdents64"],
    &["fcntl", "flock"],
    &["fstat", "fstatat", "statx"],
];

/// Those of [`HANGS`] that no image sees here, which nobody makes, maps or removes. An export's image is nobody's file at all.
const OF_TIERS_ONLY: [usize; 3] = [1, 3, 5];

/// Each with its share: what makes a volume change its owner more often than the rest.
pub const KINDS: [(Kind, u64); 18] = [
    (Kind::Kill, 4),
    (Kind::LoseMemory, 1),
    (Kind::Pause, 4),
    (Kind::HostHangs, 2),
    (Kind::Isolate, 4),
    (Kind::OneWay, 2),
    (Kind::OneLink, 1),
    (Kind::Choke, 2),
    (Kind::Unplug, 1),
    (Kind::EtcdMember, 1),
    (Kind::EtcdHangs, 1),
    (Kind::EtcdAway, 1),
    (Kind::EtcdHidden, 2),
    (Kind::EtcdRestored, 4),
    (Kind::FilesHang, 3),
    (Kind::CallHangs, 4),
    (Kind::HandOver, 2),
    (Kind::Peers, 1),
];

/// Which node a fault meets, as things are when it begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum At {
    /// The volume's owner.
    Owner,
    /// Another member of it.
    Copy,
    /// The node of [`Fault::choice`].
    Any,
}

/// One fault as it was drawn; which nodes it meets depends on who the owner is then.
#[derive(Clone, Copy, Debug)]
pub struct Fault {
    pub kind: Kind,
    pub volume: usize,
    pub at: At,
    pub choice: usize,
    /// Which of [`HANGS`].
    pub call: usize,
    /// Calls hang on the volume's tier, else on its image.
    pub of_tier: bool,
    pub begins: Duration,
    pub lasts: Duration,
}

impl Fault {
    /// A fault of one round, in milliseconds of it.
    pub const fn of(kind: Kind, volume: usize, at: At, begins: u64, lasts: u64) -> Fault {
        let (begins, lasts) = (Duration::from_millis(begins), Duration::from_millis(lasts));
        Fault { kind, volume, at, choice: 0, call: 0, of_tier: false, begins, lasts }
    }

    fn draw_kind(rng: &mut Rng) -> Kind {
        let mut share = rng.below(KINDS.iter().map(|(_, share)| share).sum());
        let chosen = KINDS.iter().find(|(_, own)| share.checked_sub(*own).map(|left| share = left).is_none());
        chosen.expect("the shares are all there is").0
    }

    /// The kind of a second fault. Beside calls that hang most often what moves a volume, or makes it another copy.
    fn draw_beside(rng: &mut Rng, first: Kind) -> Kind {
        let moves = [Kind::HandOver, Kind::HandOver, Kind::Peers, Kind::Kill];
        let kind = Fault::draw_kind(rng);
        match first {
            Kind::CallHangs if kind == Kind::CallHangs || rng.chance(70) => moves[rng.below(4) as usize],
            _ => kind,
        }
    }

    fn draw(rng: &mut Rng, kind: Kind, alone: bool) -> Fault {
        // With the memory of one node gone, and the other stopped by a second fault, a volume could not go on.
        let kind = if kind == Kind::LoseMemory && !alone { Kind::Kill } else { kind };
        // Shorter than the lease, or longer than the grace.
        let lasts = match kind {
            Kind::CallHangs => 1000 + rng.below(9000),
            _ if rng.chance(45) => 200 + rng.below(2300),
            _ => 6000 + rng.below(5000),
        };
        let volume = rng.below(VOLUMES.len() as u64) as usize;
        let call = rng.below(HANGS.len() as u64) as usize;
        Fault {
            kind,
            volume,
            at: match rng.below(100) {
                0..60 if kind != Kind::CallHangs => At::Owner,
                0..40 => At::Owner,
                60..75 => At::Copy,
                _ => At::Any,
            },
            choice: rng.below(NAMES.len() as u64) as usize,
            call,
            of_tier: rng.chance(30) || OF_TIERS_ONLY.contains(&call) || VOLUMES[volume].storage == Storage::Export,
            begins: Duration::from_millis(200 + rng.below(800)),
            lasts: Duration::from_millis(lasts),
        }
    }

    /// One, or in a third of all rounds two that overlap. A coordinator that goes back is never alone, and never too early: it went back
    /// by what the other fault has changed meanwhile. A call that hangs is never alone either, and comes first: a volume that stays where
    /// it is makes few of them.
    pub fn draw_round(rng: &mut Rng, forced: Option<Kind>) -> Vec<Fault> {
        let alone = rng.below(3) > 0;
        let kind = forced.unwrap_or_else(|| Fault::draw_kind(rng));
        let mut first = Fault::draw(rng, kind, alone && kind != Kind::CallHangs);
        if alone && !matches!(first.kind, Kind::EtcdRestored | Kind::CallHangs) {
            return vec![first];
        }
        let kind = Fault::draw_beside(rng, first.kind);
        let mut second = Fault::draw(rng, kind, false);
        if first.kind == Kind::EtcdRestored || second.kind == Kind::CallHangs {
            std::mem::swap(&mut first, &mut second);
        }
        if first.kind == Kind::CallHangs {
            // It is to meet the calls that hang.
            (second.volume, second.at) = (first.volume, At::Owner);
        }
        let percent = if second.kind == Kind::EtcdRestored {
            first.lasts = first.lasts.max(TAKE_OVER);
            60 + rng.below(50)
        } else {
            // A take-over begins some seconds after what it is for.
            rng.below(if first.kind == Kind::CallHangs { 30 } else { 90 })
        };
        let during = first.lasts.as_millis() as u64 * percent / 100;
        vec![first, Fault { begins: first.begins + Duration::from_millis(during), ..second }]
    }

    pub fn ends(&self) -> Duration {
        self.begins + self.lasts
    }

    fn medium(&self) -> &'static str {
        if self.of_tier { "tier" } else { "image" }
    }

    /// What the node had under way to an NBD server may arrive when others have long gone on.
    pub fn loses_a_node(&self) -> bool {
        match self.kind {
            Kind::Kill | Kind::LoseMemory | Kind::Pause | Kind::HostHangs | Kind::Isolate => true,
            Kind::OneWay
            | Kind::OneLink
            | Kind::Choke
            | Kind::Unplug
            | Kind::EtcdMember
            | Kind::EtcdHangs
            | Kind::EtcdAway
            | Kind::EtcdHidden
            | Kind::EtcdRestored
            | Kind::FilesHang
            | Kind::CallHangs
            | Kind::HandOver
            | Kind::Peers => false,
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let at = match self.at {
            At::Owner => "its owner",
            At::Copy => "a copy",
            At::Any if self.kind == Kind::CallHangs && !self.of_tier => "every node",
            At::Any => NAMES[self.choice],
        };
        let (volume, begins, lasts) = (VOLUMES[self.volume].name, self.begins.as_secs_f64(), self.lasts.as_secs_f64());
        write!(f, "{:?} of {volume} at {at}, {begins:.1}+{lasts:.1} s", self.kind)?;
        match self.kind {
            Kind::CallHangs => write!(f, " ({:?} on its {})", HANGS[self.call], self.medium()),
            _ => Ok(()),
        }
    }
}
