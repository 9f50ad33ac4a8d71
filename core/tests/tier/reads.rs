//! What a client's read shows of a log on flash that is slow to take what it is given, or fails to (A8).

use crate::stand::*;
use forebay_core::api::*;
use forebay_core::format::TierKind;
use forebay_core::status::{ControlError, Phase};
use forebay_core::types::*;

/// A volume whose tier has not answered its writes of the log yet.
struct Slow {
    life: Life,
    under_way: Vec<Effect>,
    replies: Vec<(RequestId, Result<u8, RequestError>)>,
}

impl Slow {
    fn begin() -> Slow {
        Slow { life: Life::first(TierKind::Flash), under_way: Vec::new(), replies: Vec::new() }
    }

    /// Everything but the answers to writes of the tier.
    fn go(&mut self) {
        loop {
            self.life.now += 1_000_000;
            self.life.volume.settle(Instant(self.life.now));
            let mut idle = true;
            while let Some(effect) = self.life.volume.poll_effect() {
                idle = false;
                match effect {
                    Effect::Reply { id, result } => self.replied(id, result),
                    Effect::TierWrite { .. } => self.under_way.push(effect),
                    Effect::Merge { op, target, base, from, to, .. } => self.merge(op, target, base, from, to),
                    other => {
                        if let Some((op, outcome)) = self.life.execute(other) {
                            self.life.volume.handle(Instant(self.life.now), Event::Done { op, outcome });
                        }
                    }
                }
            }
            self.life.volume.validate();
            if idle {
                return;
            }
        }
    }

    fn replied(&mut self, id: RequestId, result: Result<Pieces, RequestError>) {
        let shown = result.map(|pieces| {
            let value = match pieces.first().map(|piece| piece.source) {
                Some(Source::Frame(frame, offset)) => self.life.frame(frame)[usize::from(offset)],
                Some(Source::Zero) | None => 0,
            };
            self.life.volume.handle(Instant(self.life.now), Event::Sent(pieces));
            value
        });
        self.replies.push((id, shown));
    }

    fn merge(&mut self, op: OpId, target: FrameId, base: Source, from: u16, to: u16) {
        let old = match base {
            Source::Frame(frame, _) => self.life.frame(frame).to_vec(),
            Source::Zero => vec![0; BLOCK],
        };
        let new = self.life.frame(target);
        new[..usize::from(from)].copy_from_slice(&old[..usize::from(from)]);
        new[usize::from(to)..].copy_from_slice(&old[usize::from(to)..]);
        // Nobody looks at it: what is read here lies in frames.
        let outcome = Outcome::Merged(0);
        self.life.volume.handle(Instant(self.life.now), Event::Done { op, outcome });
    }

    /// The tier answers all that it was given, and what it is given then.
    fn tier_answers(&mut self, outcome: Outcome) {
        while !self.under_way.is_empty() {
            self.life.tier_answer = outcome.clone();
            for effect in std::mem::take(&mut self.under_way) {
                let (op, outcome) = self.life.execute(effect).expect("a write is answered");
                self.life.volume.handle(Instant(self.life.now), Event::Done { op, outcome });
            }
            self.go();
        }
    }

    fn ask(&mut self, request: Request) -> RequestId {
        self.life.requests += 1;
        let id = RequestId(self.life.requests);
        self.life.volume.handle(Instant(self.life.now), Event::Request { id, request });
        self.go();
        id
    }

    fn write(&mut self, block: u64, value: u8) -> RequestId {
        let request = self.life.write_request(block, 1, value);
        self.ask(request)
    }

    /// One sector of a block.
    fn write_sector(&mut self, block: u64, sector: u64, value: u8) -> RequestId {
        let mut request = self.life.write_request(block, 1, value);
        let Request::Write { offset, length, .. } = &mut request else { unreachable!("it was made just now") };
        (*offset, *length) = (*offset + sector * SECTOR_BYTES, SECTOR_BYTES as u32);
        self.ask(request)
    }

    fn read(&mut self, block: u64) -> RequestId {
        self.ask(Request::Read { offset: block * BLOCK_BYTES, length: BLOCK as u32 })
    }

    fn reply(&self, id: RequestId) -> Option<Result<u8, RequestError>> {
        self.replies.iter().find(|(answered, _)| *answered == id).map(|(_, shown)| *shown)
    }
}

/// Block 0 holds 1, block 1 holds 2, both in the log; a write of 9 over block 0 is on its way to the tier.
fn overwriting() -> (Slow, RequestId) {
    let mut slow = Slow::begin();
    for block in 0..2 {
        slow.write(block, 1 + block as u8);
    }
    slow.tier_answers(Outcome::Ok);
    let write = slow.write(0, 9);
    (slow, write)
}

#[test]
fn a_read_waits_until_the_tier_holds_what_it_shows() {
    let (mut slow, write) = overwriting();
    let (over, beside) = (slow.read(0), slow.read(1));
    assert_eq!((slow.reply(write), slow.reply(over)), (None, None), "a kill would take back what it shows");
    assert_eq!(slow.reply(beside), Some(Ok(2)), "nothing of it is under way");
    slow.tier_answers(Outcome::Ok);
    assert_eq!((slow.reply(write), slow.reply(over)), (Some(Ok(0)), Some(Ok(9))));
}

#[test]
fn later_writes_do_not_prolong_a_read_and_are_not_in_it() {
    let (mut slow, _) = overwriting();
    let read = slow.read(0);
    let later = slow.write(0, 10);
    // The tier answers the first write only.
    let (op, outcome) = slow.life.execute(slow.under_way.remove(0)).expect("a write is answered");
    slow.life.volume.handle(Instant(slow.life.now), Event::Done { op, outcome });
    slow.go();
    assert_eq!((slow.reply(read), slow.reply(later)), (Some(Ok(9)), None));
    slow.tier_answers(Outcome::Ok);
    assert_eq!(slow.reply(later), Some(Ok(0)));
}

#[test]
fn sectors_that_are_not_under_way_are_read_at_once() {
    let mut slow = Slow::begin();
    // The old block is not in memory: the write is one of a sector.
    slow.write_sector(5, 3, 7);
    let ask = |slow: &mut Slow, sector: u64| {
        let offset = 5 * BLOCK_BYTES + sector * SECTOR_BYTES;
        slow.ask(Request::Read { offset, length: SECTOR_BYTES as u32 })
    };
    let (before, over) = (ask(&mut slow, 2), ask(&mut slow, 3));
    assert_eq!((slow.reply(before), slow.reply(over)), (Some(Ok(0)), None));
    slow.tier_answers(Outcome::Ok);
    assert_eq!(slow.reply(over), Some(Ok(7)));
}

#[test]
fn a_range_under_way_to_be_zero_is_neither_read_nor_called_zero() {
    let (mut slow, _) = overwriting();
    slow.tier_answers(Outcome::Ok);
    slow.ask(Request::Zero { offset: 0, length: 4 * BLOCK_BYTES, hole: true, fua: false });
    let read = slow.read(1);
    let zero = |slow: &Slow| slow.life.volume.extents(0, 4 * BLOCK_BYTES, 8).iter().all(|extent| extent.zero);
    assert_eq!(slow.reply(read), None);
    assert!(!zero(&slow), "whoever copies the volume would leave out what is there after a kill");
    slow.tier_answers(Outcome::Ok);
    assert_eq!(slow.reply(read), Some(Ok(0)));
    assert!(zero(&slow));
}

#[test]
fn a_write_of_part_of_a_sector_over_one_under_way_waits_for_no_copy() {
    let (mut slow, _) = overwriting();
    let mut request = slow.life.write_request(0, 1, 11);
    let Request::Write { length, .. } = &mut request else { unreachable!("it was made just now") };
    *length = 100;
    let accepted = slow.life.volume.status(Instant(slow.life.now)).accepted;
    slow.ask(request);
    assert_eq!(slow.life.volume.status(Instant(slow.life.now)).accepted, accepted.next(), "its edge was read");
}

#[test]
fn what_a_failed_tier_never_held_is_not_shown() {
    let (mut slow, write) = overwriting();
    let waited = slow.read(0);
    slow.tier_answers(Outcome::Failed(IoError::Failed));
    assert_eq!(slow.reply(write), Some(Err(RequestError::Io)));
    assert_eq!(slow.reply(waited), Some(Err(RequestError::Io)), "the next start may not find it");
    let (over, beside) = (slow.read(0), slow.read(1));
    assert_eq!(slow.reply(over), Some(Err(RequestError::Io)));
    assert_eq!(slow.reply(beside), Some(Ok(2)), "reads go on");
}

#[test]
fn a_read_that_waits_and_whose_client_is_gone_holds_no_memory() {
    let (mut slow, _) = overwriting();
    let read = slow.read(0);
    // The write over it leaves the pinned frame to nobody else.
    slow.write(0, 10);
    slow.life.volume.handle(Instant(slow.life.now), Event::Hangup(vec![read]));
    slow.tier_answers(Outcome::Ok);
    assert_eq!(slow.reply(read), None, "nobody waits for it");
    let status = slow.life.volume.status(Instant(slow.life.now));
    assert_eq!((status.clean_bytes, status.committed), (2 * BLOCK_BYTES, status.accepted));
}

#[test]
fn a_stop_answers_reads_that_wait_for_a_tier_that_does_not_answer() {
    let (mut slow, _) = overwriting();
    let read = slow.read(0);
    slow.life
        .volume
        .handle(Instant(slow.life.now), Event::Control { id: ControlId(1), command: Control::Stop { drain: false } });
    slow.life.now += forebay_core::volume::STOP_PATIENCE.0;
    slow.go();
    assert_eq!(slow.reply(read), Some(Err(RequestError::Shutdown)));
    slow.tier_answers(Outcome::Ok);
    assert_eq!(slow.life.phase(), Phase::Stopped);
}

/// Found by the simulation (seed 771133406) and by a reader: the stop was over at once, and the write was never answered.
#[test]
fn a_stop_after_the_tier_has_failed_answers_a_write_that_waits_for_the_backing() {
    for drain in [false, true] {
        let mut life = Life::first(TierKind::Flash);
        life.volume.handle(Instant(life.now), Event::BackingReady);
        life.run();
        life.backing_hangs = true;
        // The rest of the sector is read first.
        let mut waiting = life.write_request(5, 1, 11);
        let Request::Write { length, .. } = &mut waiting else { unreachable!("it was made just now") };
        *length = 100;
        life.volume.handle(Instant(life.now), Event::Request { id: RequestId(1000), request: waiting });
        assert!(life.run().is_empty());
        life.tier_answer = Outcome::Failed(IoError::Failed);
        let lost = life.write_request(7, 1, 12);
        assert!(life.request(lost).is_err(), "the tier fails");
        let stop = Event::Control { id: ControlId(1), command: Control::Stop { drain } };
        life.volume.handle(Instant(life.now), stop);
        assert!(life.run().is_empty() && life.answers.is_empty(), "a stop waits for requests, for so long");
        life.now += forebay_core::volume::STOP_PATIENCE.0;
        assert_eq!(life.run(), [(RequestId(1000), Err(RequestError::Shutdown))]);
        let expected = if drain { Err(ControlError::TierFailed) } else { Ok(()) };
        assert_eq!((life.phase(), &life.answers[..]), (Phase::Stopped, &[expected][..]));
    }
}

/// Found by a reader: the stop was told to be well, and the image was marked clean while the tier was not.
#[test]
fn a_stop_whose_last_checkpoint_fails_is_not_clean() {
    for (tier_answer, expected) in
        [(Outcome::Failed(IoError::Failed), Err(ControlError::TierFailed)), (Outcome::Ok, Ok(()))]
    {
        for kind in KINDS {
            let mut life = Life::first(kind);
            life.volume.handle(Instant(life.now), Event::BackingReady);
            life.run();
            life.tier_answer = tier_answer.clone();
            life.command(Control::Stop { drain: true });
            assert_eq!((life.phase(), &life.answers[..]), (Phase::Stopped, &[expected][..]), "{kind:?}");
        }
    }
}
