//! A node: one daemon with one tier and, while it lives, one [`Volume`]; its memory, what it has asked of its devices, who
//! asks things of it, and its own clock. Everything that dies with a process or with a host is here, what all nodes share
//! (backing, links, coordinator, clients) is the world's.

use super::*;

/// How a node's clock runs beside the world's: none is wrong by more than a hundredth, and none shows the same.
#[derive(Clone, Copy)]
pub(super) struct Clock {
    /// What it shows when the world's shows nothing.
    offset: u64,
    /// Parts in a million by which it is fast.
    fast: i64,
}

impl Clock {
    /// The world's own.
    pub(super) const TRUE: Clock = Clock { offset: 0, fast: 0 };

    pub(super) fn new(offset: Duration, fast: i64) -> Clock {
        assert!(fast.abs() <= 10_000, "clocks are right to a hundredth");
        Clock { offset: offset.0, fast }
    }

    /// What it shows at a moment of the world.
    pub(super) fn shows(self, at: Instant) -> Instant {
        let drift = i128::from(at.0) * i128::from(self.fast) / 1_000_000;
        Instant(self.offset + (i128::from(at.0) + drift) as u64)
    }

    /// The first moment of the world at which it shows this, or more.
    pub(super) fn will_show(self, shown: Instant) -> Instant {
        let since = i128::from(shown.0.saturating_sub(self.offset));
        let mut at = (since * 1_000_000 / (1_000_000 + i128::from(self.fast))) as u64;
        // Both ways round towards zero: the quotient may be a moment off on either side.
        while self.shows(Instant(at)) < shown {
            at += 1;
        }
        while at > 0 && self.shows(Instant(at - 1)) >= shown {
            at -= 1;
        }
        Instant(at)
    }
}

/// See the module.
pub(super) struct Node {
    pub(super) layout: TierLayout,
    pub(super) frames: u32,
    pub(super) clock: Clock,
    /// Its processes do nothing until then, and then all at once: SIGSTOP, a suspended guest, swapping.
    pub(super) paused_until: Option<Instant>,
    /// The coordinator does not hear it, nor it the coordinator.
    pub(super) coordinator_away_until: Instant,

    /// Its tier and what that can vouch for.
    pub(super) incarnation: Incarnation,
    /// Number of the host's boot.
    pub(super) boot: u64,
    pub(super) part: Part,
    /// The newest record that was seen, in the state folder.
    pub(super) seen: Option<Record>,
    /// What it knows of coordinators that went back, likewise.
    pub(super) rewinds: KnownRewinds,

    pub(super) volume: Option<Volume>,
    pub(super) serving: bool,
    pub(super) backing_ready: bool,
    pub(super) ready_since: Instant,
    pub(super) term: Term,
    pub(super) formatted: bool,
    /// A life ended while a copy of the checkpoint was on its way, and none since has written both: the older one may be the promise
    /// of an earlier time.
    pub(super) checkpoint_is_alone: bool,
    /// How its life ends before the next effect.
    pub(super) crash: Option<Crash>,

    pub(super) tier: Media,
    /// Flash tier: the arena, which dies with the process.
    pub(super) arena: Vec<u8>,
    pub(super) ops: BTreeMap<u64, Op>,
    pub(super) readers: Vec<u32>,
    pub(super) writing: Vec<bool>,
    pub(super) taken: Vec<bool>,
    /// Failed tier operations of this life.
    pub(super) tier_errors: u32,

    pub(super) open: BTreeMap<u64, Open>,
    pub(super) answers: Answers,
    pub(super) coming: BTreeMap<u64, Coming>,
    pub(super) controls: BTreeMap<u64, (Control, Moment)>,
    pub(super) stopping: bool,
    pub(super) stop_asked: Instant,
    /// Backing at the moment a hold was granted, and how often it was written by then.
    pub(super) hold: Option<(Vec<u8>, u64)>,
    /// A drain through has been answered, and no release yet.
    pub(super) keeping: bool,
    pub(super) releasing: Option<u64>,
    pub(super) through_since: Option<Moment>,

    pub(super) records: BTreeMap<u64, Logged>,
    pub(super) destaged_seen: Lsn,
    /// Where the last batch of this life ended whose sync succeeded.
    pub(super) journal_through: Lsn,
    /// What the tier had synced when the last batch was begun.
    pub(super) synced_at_batch: Lsn,
}

impl Node {
    /// A host with an unformatted tier.
    pub(super) fn new(layout: TierLayout, frames: u32, clock: Clock) -> Node {
        let count = frames as usize;
        Node {
            layout,
            frames,
            clock,
            paused_until: None,
            coordinator_away_until: Instant(0),
            incarnation: Incarnation { node: NodeId(0), tier: 0, life: 0 },
            boot: 0,
            part: Part::default(),
            seen: None,
            rewinds: KnownRewinds::default(),
            volume: None,
            serving: false,
            backing_ready: false,
            ready_since: Instant(0),
            term: Term(0),
            formatted: false,
            checkpoint_is_alone: false,
            crash: None,
            tier: Media::new(layout.tier_blocks as usize * BLOCK),
            arena: vec![0xdb; if layout.kind == TierKind::Flash { count * BLOCK } else { 0 }],
            ops: BTreeMap::new(),
            readers: vec![0; count],
            writing: vec![false; count],
            taken: vec![false; count],
            tier_errors: 0,
            open: BTreeMap::new(),
            answers: Answers::default(),
            coming: BTreeMap::new(),
            controls: BTreeMap::new(),
            stopping: false,
            stop_asked: Instant(0),
            hold: None,
            keeping: false,
            releasing: None,
            through_since: None,
            records: BTreeMap::new(),
            destaged_seen: Lsn(0),
            journal_through: Lsn(0),
            synced_at_batch: Lsn(0),
        }
    }

    /// It does nothing at this moment.
    pub(super) fn is_paused(&self, now: Instant) -> bool {
        self.paused_until.is_some_and(|until| until > now)
    }

    /// When the volume must be called at the latest, by the world's clock.
    pub(super) fn timeout(&self) -> Option<Instant> {
        let of_volume = self.volume.as_ref().and_then(Volume::poll_timeout);
        let at = self.clock.will_show(of_volume.into_iter().chain(self.part.timeout()).min()?);
        Some(self.paused_until.map_or(at, |until| at.max(until)))
    }

    /// Everything that dies with the process, but for the volume and what becomes of its operations.
    pub(super) fn forget_requests(&mut self) {
        self.open.clear();
        self.coming.clear();
        self.controls.clear();
    }

    /// A new life of the process begins.
    pub(super) fn begin_life(&mut self, volume: Volume) {
        self.volume = Some(volume);
        self.answers = Answers::default();
        self.serving = false;
        self.backing_ready = false;
        self.tier_errors = 0;
        self.stopping = false;
        self.hold = None;
        self.releasing = None;
        self.through_since = None;
        self.keeping = false;
        self.destaged_seen = Lsn(0);
        self.journal_through = Lsn(0);
        self.synced_at_batch = Lsn(0);
        self.readers.fill(0);
        self.writing.fill(false);
        self.taken.fill(false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_shows_what_was_waited_for_and_not_earlier() {
        for fast in [-10_000, -7, 0, 1, 10_000] {
            let clock = Clock::new(Duration::from_secs(77), fast);
            for at in [0, 1, 999_999_999, 1_000_000_000_007] {
                let shown = clock.shows(Instant(at));
                let found = clock.will_show(shown);
                assert!(clock.shows(found) >= shown);
                assert!(found.0 == 0 || clock.shows(Instant(found.0 - 1)) < shown);
            }
        }
    }
}
