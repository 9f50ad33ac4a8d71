//! How the control plane reaches a shard: a channel of commands and a waker. The answers come back over one-shot
//! channels, so neither side ever waits for the other while it holds something.

use crate::datapath::driver::{DriverSetup, ToDriver};
use crate::datapath::seats::Seat;
use crate::log;
use crate::open::OpenVolume;
use forebay_api::record::VolumeId;
use forebay_core::api::Control;
use forebay_core::stats::Stats;
use forebay_core::status::{BackingState, ControlError, Status};
use forebay_core::types::{BlockIndex, Duration, Instant, Lsn};
use forebay_front::nbd::channel::Channel;
use forebay_front::nbd::connection::Packed;
use forebay_front::nbd::handshake::Negotiated;
use forebay_io::{Backing, Journal, Waker};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use tokio::sync::oneshot;

/// How long the close of a volume's files is awaited before what needs them closed goes on by their locks alone.
const CLOSE_MAX: std::time::Duration = std::time::Duration::from_secs(30);

/// A volume that runs on a shard. Never used twice in one life of the daemon.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct VolumeKey(pub u32);

/// What a volume shows of itself at a moment.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// What core says of the volume.
    pub status: Status,
    /// When it was looked at.
    pub at: Instant,
    /// Clients of this volume that are connected now.
    pub connections: u32,
    /// Largest request that it takes.
    pub request_bytes_max: u32,
    /// The block whose payload last failed its check.
    pub damaged: Option<BlockIndex>,
    /// Why the server of its backing cannot be reached, while it is known not to be.
    pub unreached: Option<String>,
    /// What it has measured, where that was asked for.
    pub seen: Option<Box<Stats>>,
}

impl Snapshot {
    /// It shows something that changes by time alone, although nothing happens to the volume.
    pub fn ages(&self) -> bool {
        let Status { backing, dirty_bytes, oldest_dirty, oldest_unanswered, hold_left, .. } = &self.status;
        *dirty_bytes > 0
            || (*oldest_dirty).max(*oldest_unanswered) > Duration::default()
            || hold_left.is_some()
            || *backing != BackingState::Ready
    }
}

/// Waits until files are closed, but no longer than [`CLOSE_MAX`]: their locks keep others out until they are. Whether they are.
pub async fn await_closed(closed: oneshot::Receiver<()>) -> bool {
    let ended = tokio::time::timeout(CLOSE_MAX, closed).await.is_ok();
    if !ended {
        log::say!(
            Error,
            "files of a volume are not closed after {} s, because their file system does not answer; their locks keep others \
             out meanwhile, and `forebay status` names them (close-hangs)",
            CLOSE_MAX.as_secs()
        );
    }
    ended
}

/// Something for a shard to do.
pub enum ToShard {
    /// Serve the volume that was opened.
    Attach {
        /// Its name among the shards' volumes.
        key: VolumeKey,
        /// Tier and backing, opened and locked as far as could be.
        volume: Box<OpenVolume>,
        /// Grows with whatever happens to the volume, so that an idle one need not be asked.
        activity: Arc<AtomicU64>,
        /// Answered when it serves, or with the reason why it does not.
        serving: oneshot::Sender<Result<(), String>>,
    },
    /// Become the shard of a cluster's links and volumes.
    JoinCluster {
        /// The identity and settings of this node.
        setup: Box<DriverSetup>,
        /// Told whether it is one.
        answer: oneshot::Sender<std::io::Result<()>>,
    },
    /// Something for the cluster's part.
    Cluster(Box<ToDriver>),
    /// The backing is locked: nobody else can write to it any more.
    BackingReady(VolumeKey),
    /// The backing is locked, and the journal of an earlier life comes first.
    ReplayBegins(VolumeKey),
    /// A batch of an earlier life, if there was one, is durable in the backing.
    JournalReplayed {
        /// The volume whose journal it was.
        key: VolumeKey,
        /// The backing has everything up to here.
        through: Option<Lsn>,
        /// Told when the tier has recorded it.
        recorded: mpsc::Sender<()>,
    },
    /// There is an erased journal beside the backing now.
    JournalMade {
        /// The volume whose journal it is.
        key: VolumeKey,
        /// The journal, open and locked.
        journal: Journal,
    },
    /// Carry out a command of an operator.
    Control {
        /// The volume that it is for.
        key: VolumeKey,
        /// What the operator asks for.
        command: Control,
        /// Told how the command ended.
        answer: oneshot::Sender<Result<(), CommandError>>,
    },
    /// What does the volume show?
    Snapshot {
        /// The volume that is to show itself.
        key: VolumeKey,
        /// With what it has measured: some 40 KiB.
        with_seen: bool,
        /// Where to tell what it shows.
        answer: oneshot::Sender<Snapshot>,
    },
    /// Tell when nothing of a volume that has stopped is under way to its tier, backing or journal any more.
    AwaitRest {
        /// The volume that has stopped.
        key: VolumeKey,
        /// Then; dropped where there is no such volume.
        rests: oneshot::Sender<()>,
    },
    /// Ask the server of a backing for something, by the connection that there is.
    LookAtServer {
        /// The volume whose backing it is.
        key: VolumeKey,
        /// Told how it has answered, as soon as it has; at once where the backing is a file.
        answer: oneshot::Sender<std::io::Result<()>>,
    },
    /// A step of opening the backing of a volume anew.
    Opening {
        /// The volume whose backing it is.
        key: VolumeKey,
        /// What is to be done.
        step: OpeningStep,
    },
    /// Close a volume that has stopped, or that never served, with its connections.
    Detach {
        /// The volume that is to be closed.
        key: VolumeKey,
        /// When everything of it is closed.
        answer: oneshot::Sender<()>,
    },
    /// A client that has chosen this shard's volume.
    Connection {
        /// The volume that the client has chosen.
        key: VolumeKey,
        /// The connection to the client, after negotiation.
        channel: Channel,
        /// Place in its listener's count, given back when the connection ends.
        seat: Seat,
        /// What was agreed on in the negotiation.
        negotiated: Box<Negotiated>,
    },
    /// Who may use a volume has changed: end the sessions of who may not any more.
    ReviewClients,
    /// Take nothing more from the clients of a volume that is about to give way to another in its place, and keep them aside
    /// when what they had asked is answered.
    Park {
        /// The volume that is about to give way.
        key: VolumeKey,
        /// Told when it has no clients any more: the largest request that one of them was told, 0 where there are none.
        still: oneshot::Sender<u32>,
    },
    /// Give clients that were kept aside, or are to be, to the volume that is there now: they go on, and see a pause.
    Unpark {
        /// The volume whose clients they were.
        key: VolumeKey,
        /// The one in its place, or the same. Where neither is there, they have none any more.
        to: VolumeKey,
    },
    /// A client of a volume of the cluster that this node has come to own.
    Moved {
        /// The volume's identity in the cluster.
        volume: VolumeId,
        /// Key under which the volume was attached.
        key: VolumeKey,
        /// The client, and what it has asked.
        client: Box<Packed>,
        /// Place in its listener's count.
        seat: Seat,
    },
    /// End the thread; every volume has been detached.
    Exit,
}

/// Steps of opening a backing anew, in this order, each before the next.
pub enum OpeningStep {
    /// Share the journal beside the backing, to be looked at.
    ShareJournal {
        /// The same open journal, if there is one.
        answer: oneshot::Sender<Option<Journal>>,
    },
    /// Ask nothing more of backing and journal: what the volume asks of them fails at once, and it goes on from its log.
    Leave {
        /// When nothing is under way to them: the journal, if there is one.
        left: oneshot::Sender<Option<Journal>>,
    },
    /// Ask the backing again, and the journal.
    Return {
        /// With other openings of the same image and journal, under their locks; none: with the former ones.
        anew: Option<Box<(Backing, Option<Journal>)>>,
    },
}

/// Why a command was not carried out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CommandError {
    /// Core refused it, or could not carry it out.
    Refused(ControlError),
    /// The backing could not be grown.
    Backing(String),
}

/// The end at which others hand things over to a shard.
#[derive(Clone)]
pub struct ShardHandle {
    sender: mpsc::Sender<ToShard>,
    waker: Waker,
    works: Arc<AtomicU64>,
}

impl ShardHandle {
    /// Made by the shard's thread, which counts in `works` each begin and end of a round in which it does more than show volumes.
    pub fn new(sender: mpsc::Sender<ToShard>, waker: Waker, works: Arc<AtomicU64>) -> ShardHandle {
        ShardHandle { sender, waker, works }
    }

    /// How often the shard has worked, besides showing volumes; none while it does. As long as it is the same as before a snapshot was
    /// asked for, that snapshot shows all there is, but for one that [ages](Snapshot::ages).
    pub fn times_worked(&self) -> Option<u64> {
        let works = self.works.load(Ordering::SeqCst);
        works.is_multiple_of(2).then_some(works / 2)
    }

    /// Hands a command over. A shard that has ended takes nothing: whoever waits for an answer sees its channel close.
    pub fn send(&self, command: ToShard) {
        if self.sender.send(command).is_ok() {
            self.waker.wake();
        }
    }
}
