//! Reads that the backing fails to deliver, for a while or for good.

use crate::stand::{MILLISECOND, SECOND, Stand, config};
use forebay_core::api::*;
use forebay_core::cluster::*;
use forebay_core::format::*;
use forebay_core::status::{BackingState, Flush, Phase};
use forebay_core::types::*;
use forebay_core::{ClusterConfig, Volume, VolumeConfig};
use std::collections::{BTreeMap, BTreeSet};

const VOLUME_BYTES: u64 = 64 << 20;
/// A read that was asked for at once ends with an error then, at the latest.
const FAILS_BY: u64 = 20 * SECOND;

/// A volume before a backing that delivers nothing until a given moment. Everything takes a millisecond.
struct Unread {
    volume: Volume,
    now: u64,
    delivers_from: u64,
    under_way: BTreeMap<(u64, OpId), Outcome>,
    /// What was copied into frames.
    copies: Vec<(Source, FrameId, u16, u16)>,
    /// Of each request: when it was answered, and how.
    answers: BTreeMap<RequestId, (u64, Result<(), RequestError>)>,
}

impl Stand for Unread {
    fn volume(&mut self) -> &mut Volume {
        &mut self.volume
    }

    fn now(&self) -> Instant {
        Instant(self.now)
    }

    fn execute(&mut self, effect: Effect) {
        let (op, outcome) = match effect {
            Effect::Reply { id, result } => {
                let before =
                    self.answers.insert(id, (self.now - SECOND, result.as_ref().map(|_| ()).map_err(|error| *error)));
                assert!(before.is_none(), "{id:?} is answered twice");
                if let Ok(pieces) = result {
                    self.handle(Event::Sent(pieces));
                }
                return;
            }
            Effect::BackingRead { op, .. } if self.now < self.delivers_from => (op, Outcome::Failed(IoError::Failed)),
            Effect::Merge { op, .. } => (op, Outcome::Merged(0)),
            Effect::BackingRead { op, .. }
            | Effect::BackingWrite { op, .. }
            | Effect::BackingSync { op }
            | Effect::TierWrite { op, .. }
            | Effect::TierSync { op } => (op, Outcome::Ok),
            Effect::Describe { .. } | Effect::FramesFree | Effect::Answer { .. } | Effect::Report(_) => return,
            Effect::Copy { source, target, start, length } => {
                return self.copies.push((source, target, start, length));
            }
            other => panic!("nobody asks here for {other:?}"),
        };
        self.under_way.insert((self.now + MILLISECOND, op), outcome);
    }
}

impl Unread {
    /// The times are those since it serves.
    fn until(delivers_from: u64) -> Unread {
        Unread::begin(config(TierLayout::memory(512).unwrap(), VOLUME_BYTES), delivers_from, |_| {})
    }

    /// The same, as the owner of a volume of a cluster that nobody else has a copy of.
    fn owner_until(delivers_from: u64) -> Unread {
        let own = Incarnation { node: NodeId(1), tier: 1, life: 1 };
        let cluster = ClusterConfig {
            own,
            host: Host { machine: [1; 16], boot: [1; 16] },
            min_peers: 0,
            flush: Flush::Best,
            peer_window_bytes_max: 64 << 10,
            window_bytes_max: 64 << 10,
            resend_after: Duration::from_millis(150),
            stall_max: Duration::from_millis(800),
            degrade_stall_max: Duration::from_secs(10),
        };
        let layout = TierLayout::memory(512).unwrap();
        let config = VolumeConfig { cluster: Some(cluster), ..config(layout, VOLUME_BYTES) };
        Unread::begin(config, delivers_from, |unread| {
            let own = Own {
                term: Term(1),
                epoch: Epoch(1),
                members: vec![own],
                log: LogState::Needed,
                flushed: Flushed::Unrecorded,
                watermark: Lsn(0),
                fetch: None,
                unfenced: Vec::new(),
                former: None,
            };
            unread.handle(Event::Ownership(Order::Own(own)));
            unread.handle(Event::Ownership(Order::Lease { until: Instant(u64::MAX) }));
        })
    }

    fn begin(config: VolumeConfig, delivers_from: u64, own: impl FnOnce(&mut Unread)) -> Unread {
        let volume = Volume::new(config, Instant(SECOND / 2));
        let (under_way, answers) = (BTreeMap::new(), BTreeMap::new());
        let delivers_from = delivers_from.saturating_add(SECOND);
        let mut unread = Unread { volume, now: SECOND / 2, delivers_from, under_way, copies: Vec::new(), answers };
        unread.work();
        unread.run_to_instant(SECOND * 3 / 4);
        own(&mut unread);
        unread.handle(Event::BackingReady);
        unread.work();
        unread.run_to(0);
        assert_eq!(unread.status().phase, Phase::Serving);
        unread
    }

    fn ask(&mut self, id: u64, request: Request) -> RequestId {
        self.handle(Event::Request { id: RequestId(id), request });
        self.work();
        RequestId(id)
    }

    fn read(&mut self, id: u64, block: u64) -> RequestId {
        self.ask(id, Request::Read { offset: block * BLOCK_BYTES, length: BLOCK_BYTES as u32 })
    }

    /// Some bytes within a sector: what is around them has to be read.
    fn write_bytes(&mut self, id: u64, block: u64) -> RequestId {
        let mut frames = Frames::new();
        assert!(self.volume.take_frames(ClientId(0), 1, &mut frames), "there is room");
        let payload = Payloads::from_slice(&[Payload { frame: frames[0], checksum: 0 }]);
        self.ask(id, Request::Write { offset: block * BLOCK_BYTES + 100, length: 10, payload, fua: false })
    }

    fn run_to(&mut self, end: u64) {
        self.run_to_instant(SECOND + end);
    }

    fn run_to_instant(&mut self, end: u64) {
        loop {
            let due = self.under_way.keys().next().map(|(at, _)| *at);
            let next = due.into_iter().chain(self.volume.poll_timeout().map(|at| at.0)).min();
            let Some(next) = next.filter(|next| *next <= end) else { break };
            self.now = next.max(self.now);
            while let Some(entry) = self.under_way.first_entry()
                && entry.key().0 <= self.now
            {
                let ((_, op), outcome) = entry.remove_entry();
                self.handle(Event::Done { op, outcome });
            }
            self.work();
        }
        self.now = end;
        self.volume.validate();
    }
}

#[test]
fn a_read_that_fails_for_a_while_is_read_again_and_meanwhile_the_state_says_so() {
    let mut unread = Unread::until(3 * SECOND);
    let ids = [unread.read(1, 0), unread.read(2, 5), unread.write_bytes(3, 9)];
    unread.run_to(2 * SECOND);
    assert!(unread.answers.is_empty(), "{:?}", unread.answers);
    assert_eq!(unread.status().backing, BackingState::FailingReads(IoError::Failed));
    // A whole block needs nothing of the backing.
    assert!(unread.write_block(4, 20));
    unread.run_to(2 * SECOND + 100 * MILLISECOND);
    assert_eq!(unread.answers.remove(&RequestId(4)).unwrap().1, Ok(()));
    unread.run_to(4 * SECOND);
    for id in ids {
        let (at, result) = &unread.answers[&id];
        assert_eq!(*result, Ok(()));
        assert!((3 * SECOND..3_600 * MILLISECOND).contains(at), "{at}");
    }
    // One that failed just now may fail again.
    assert_eq!(unread.status().backing, BackingState::FailingReads(IoError::Failed));
    unread.run_to(10 * SECOND);
    let status = unread.status();
    assert_eq!(status.backing, BackingState::Ready);
    assert!(status.counters.repeated_reads >= 6 && status.counters.backing_errors >= 6, "{:?}", status.counters);
}

#[test]
fn a_read_that_fails_for_good_ends_with_an_error_after_a_while() {
    let mut unread = Unread::until(u64::MAX / 2);
    let ids = [unread.read(1, 0), unread.write_bytes(2, 9)];
    unread.run_to(FAILS_BY + SECOND);
    for id in ids {
        let (at, result) = &unread.answers[&id];
        assert_eq!(*result, Err(RequestError::Io));
        assert!((FAILS_BY - SECOND..=FAILS_BY).contains(at), "{at}");
    }
    assert_eq!(unread.status().backing, BackingState::FailingReads(IoError::Failed));
    unread.run_to(FAILS_BY + 10 * SECOND);
    assert_eq!(unread.status().backing, BackingState::Ready);
}

/// Each waits for the one before, and its time runs meanwhile.
#[test]
fn writes_that_wait_for_each_other_do_not_fail_one_after_another() {
    let mut unread = Unread::until(u64::MAX / 2);
    let ids: Vec<RequestId> = (0..5).map(|id| unread.write_bytes(id, 9)).collect();
    unread.run_to(FAILS_BY + 10 * SECOND);
    for id in ids {
        assert_eq!(unread.answers[&id].1, Err(RequestError::Io));
    }
}

/// Neither holds a frame that others need: the cache is as small as it can be.
#[test]
fn reads_that_begin_anew_hold_no_frames() {
    let mut unread = Unread::until(3 * SECOND);
    for id in 0..2_000 {
        unread.read(id, id);
    }
    unread.run_to(2 * SECOND);
    assert!(unread.write_block(9_000, 3_000), "there is a frame for a write");
    unread.run_to(2 * SECOND + 100 * MILLISECOND);
    assert_eq!(unread.answers.remove(&RequestId(9_000)).unwrap().1, Ok(()));
    unread.run_to(5 * SECOND);
    assert_eq!(unread.answers.len(), 2_000);
    assert!(unread.answers.values().all(|(_, result)| result.is_ok()));
}

#[test]
fn nobody_is_answered_whose_connection_is_gone_and_a_stop_answers_the_rest() {
    let mut unread = Unread::until(u64::MAX / 2);
    let (gone, stays, write) = (unread.read(1, 0), unread.read(2, 1), unread.write_bytes(3, 9));
    let (written_by_nobody, behind_it) = (unread.write_bytes(4, 11), unread.write_bytes(5, 11));
    unread.run_to(SECOND + 100 * MILLISECOND);
    unread.handle(Event::Hangup(vec![gone, written_by_nobody, behind_it]));
    unread.work();
    assert_eq!(unread.status().waiting_writes, 0);
    unread.handle(Event::Control { id: ControlId(1), command: Control::Stop { drain: false } });
    unread.work();
    unread.run_to(FAILS_BY + SECOND);
    let answers: BTreeSet<_> = unread.answers.keys().copied().collect();
    assert_eq!(answers, BTreeSet::from([stays, write]));
    assert!(unread.answers.values().all(|(_, result)| result.is_err()));
}

/// One edge of it is merged with what the cache has, the other one waits for the backing, when the volume is to become quiet.
#[test]
fn a_write_that_is_kept_for_whoever_is_next_is_what_its_client_has_sent() {
    let mut unread = Unread::owner_until(0);
    unread.read(1, 0);
    unread.run_to(SECOND);
    assert_eq!(unread.answers.remove(&RequestId(1)).unwrap().1, Ok(()));
    unread.delivers_from = u64::MAX;
    let mut frames = Frames::new();
    assert!(unread.volume.take_frames(ClientId(0), 2, &mut frames), "there is room");
    let payload = frames.iter().map(|&frame| Payload { frame, checksum: 0 }).collect();
    let write = Request::Write { offset: 512, length: BLOCK_BYTES as u32 - 512 + 100, payload, fua: false };
    let kept = unread.ask(2, write);
    unread.run_to(SECOND + 100 * MILLISECOND);
    unread.copies.clear();
    unread.handle(Event::Ownership(Order::Quiesce { to: None }));
    unread.work();
    assert_eq!(unread.copies, [(Source::Zero, frames[0], 0, 512)], "the merged content is still around it");
    unread.delivers_from = 0;
    unread.handle(Event::Ownership(Order::Resume));
    unread.work();
    unread.run_to(2 * SECOND);
    assert_eq!(unread.answers[&kept].1, Ok(()));
}

/// Its edge is being read when its client goes: it is not tried again, and not kept for whoever is next.
#[test]
fn a_write_whose_client_has_hung_up_ends_with_the_failure() {
    let mut unread = Unread::owner_until(u64::MAX);
    let gone = unread.write_bytes(1, 9);
    unread.handle(Event::Hangup(vec![gone]));
    unread.run_to(SECOND);
    assert_eq!(unread.status().counters.repeated_reads, 0);
    unread.delivers_from = 0;
    // The range is free again.
    let next = unread.write_bytes(2, 9);
    unread.run_to(2 * SECOND);
    assert_eq!(unread.answers[&next].1, Ok(()));
}

/// Those under way when it is told to stop are not tried again, and their clients are told that it stops: it is not their backing that
/// has failed them.
#[test]
fn reads_that_fail_while_a_volume_stops_are_abandoned_and_not_failed() {
    for drain in [false, true] {
        let mut unread = Unread::until(u64::MAX / 2);
        let ids = [unread.read(1, 0), unread.write_bytes(2, 9)];
        unread.handle(Event::Control { id: ControlId(1), command: Control::Stop { drain } });
        unread.work();
        assert!(unread.answers.is_empty(), "they are under way: {:?}", unread.answers);
        unread.run_to(SECOND);
        for id in ids {
            assert_eq!(unread.answers[&id].1, Err(RequestError::Shutdown), "drain: {drain}");
        }
    }
}
