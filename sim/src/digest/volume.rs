//! Canonical bytes of what a volume decides.

use super::canon::Canon;
use forebay_core::api::*;
use forebay_core::status::ControlError;
use forebay_core::types::FrameId;

impl Canon<'_> {
    pub(super) fn volume_effect(&mut self, effect: &Effect) {
        match effect {
            Effect::Reply { id, result } => {
                self.row(1, &[id.0]);
                self.result(result.as_ref().map_err(|error| request_error(*error)), |canon, pieces| {
                    canon.list(pieces, Self::piece);
                });
            }
            Effect::FramesFree => self.tag(2),
            Effect::Answer { id, result } => {
                self.row(3, &[id.0]);
                self.result(result.map_err(control_error), |_, ()| ());
            }
            Effect::Describe { index, bytes } => {
                self.row(4, &[(*index).into()]);
                self.bytes(bytes);
            }
            Effect::TierWrite { op, at, head, frames } => {
                self.row(5, &[op.0, at.0.into()]);
                self.bytes(head);
                self.frames(frames);
            }
            Effect::TierSync { op } => self.row(6, &[op.0]),
            Effect::TierRead { op, at, frames } => {
                self.row(7, &[op.0, at.0.into()]);
                self.checks(frames);
            }
            Effect::TierScan { op, at, blocks } => self.row(8, &[op.0, at.0.into(), (*blocks).into()]),
            Effect::BackingRead { op, at, frames } => {
                self.row(10, &[op.0, at.0]);
                self.frames(frames);
            }
            Effect::BackingWrite { op, offset, parts } => {
                self.row(11, &[op.0, *offset]);
                self.list(parts, Self::part);
            }
            Effect::BackingZero { op, offset, length, hole } => {
                self.row(12, &[op.0, *offset, *length]);
                self.truth(*hole);
            }
            Effect::BackingSync { op } => self.row(13, &[op.0]),
            Effect::JournalWrite { op, at, head, frames, checks } => {
                self.row(14, &[op.0, (*at).into()]);
                self.bytes(head);
                self.frames(frames);
                self.list(checks, Self::check);
            }
            Effect::JournalSync { op } => self.row(15, &[op.0]),
            Effect::Send(sending) => {
                let Sending { op, envelope, message, frames } = &**sending;
                self.tag(16);
                self.option(op.as_ref(), |canon, op| canon.number(op.0));
                self.message(envelope, message);
                self.frames(frames);
            }
            Effect::Report(report) => {
                self.tag(17);
                self.report(report);
            }
            Effect::Merge { op, checks, target, base, from, to, block, term } => {
                self.row(18, &[op.0, target.0.into(), (*from).into(), (*to).into(), block.0, term.0.into()]);
                self.source(base);
                self.checks(checks);
            }
            Effect::Copy { source, target, start, length } => {
                self.row(19, &[target.0.into(), (*start).into(), (*length).into()]);
                self.source(source);
            }
        }
    }

    fn frames(&mut self, frames: &[FrameId]) {
        self.list(frames, |canon, frame| canon.number(frame.0));
    }

    fn source(&mut self, source: &Source) {
        match source {
            Source::Frame(frame, from) => self.row(1, &[frame.0.into(), (*from).into()]),
            Source::Zero => self.tag(2),
        }
    }

    fn piece(&mut self, piece: &Piece) {
        let Piece { source, length } = piece;
        self.source(source);
        self.number(*length);
    }

    fn check(&mut self, check: &Check) {
        let Check { block, mask, term, checksum } = check;
        self.number(block.0);
        self.number(mask.0);
        self.number(term.0);
        self.number(*checksum);
    }

    fn checks(&mut self, checks: &Checks) {
        self.list(checks, |canon, (frame, check)| {
            canon.number(frame.0);
            canon.check(check);
        });
    }

    fn part(&mut self, part: &Part) {
        let Part { frame, from, length, check } = part;
        self.number(frame.0);
        self.number(*from);
        self.number(*length);
        self.option(check.as_ref(), Self::check);
    }
}

fn request_error(error: RequestError) -> u8 {
    match error {
        RequestError::Io => 1,
        RequestError::NoSpace => 2,
        RequestError::Invalid => 3,
        RequestError::Shutdown => 4,
    }
}

fn control_error(error: ControlError) -> u8 {
    match error {
        ControlError::Busy => 1,
        ControlError::NotHeld => 2,
        ControlError::HoldEnded(_) => 3,
        ControlError::BadSize => 4,
        ControlError::BackingFailed => 5,
        ControlError::TierFailed => 6,
        ControlError::HoldRefused(_) => 7,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_core::cluster::{Epoch, Incarnation, NodeId};
    use forebay_core::types::*;
    use std::collections::BTreeSet;

    const CHECK: Check = Check { block: BlockIndex(1), mask: SectorMask::FULL, term: Term(2), checksum: 3 };

    /// Each is like one before it but for its variant or one field.
    fn different() -> Vec<Effect> {
        let op = OpId(1);
        let frames = || vec![FrameId(1), FrameId(2)];
        let one = |value| vec![FrameId(value)];
        let head = || vec![0; 8];
        let write = |frame, check| Part { frame: FrameId(frame), from: 0, length: 512, check };
        let backing = |parts: &[Part]| Effect::BackingWrite { op, offset: 0, parts: parts.into() };
        let piece = |source| Piece { source, length: 9 };
        let reply = |pieces: &[Piece]| Effect::Reply { id: RequestId(1), result: Ok(pieces.into()) };
        let peer = Incarnation::none(NodeId(1));
        vec![
            Effect::FramesFree,
            Effect::TierSync { op },
            Effect::TierSync { op: OpId(2) },
            Effect::BackingSync { op },
            Effect::JournalSync { op },
            reply(&[]),
            reply(&[piece(Source::Zero)]),
            reply(&[piece(Source::Frame(FrameId(0), 0))]),
            reply(&[piece(Source::Frame(FrameId(0), 1))]),
            reply(&[piece(Source::Zero), piece(Source::Frame(FrameId(0), 0))]),
            reply(&[piece(Source::Frame(FrameId(0), 0)), piece(Source::Zero)]),
            Effect::Reply { id: RequestId(2), result: Ok(Pieces::new()) },
            Effect::Reply { id: RequestId(1), result: Err(RequestError::Io) },
            Effect::Reply { id: RequestId(1), result: Err(RequestError::Shutdown) },
            Effect::Answer { id: ControlId(1), result: Ok(()) },
            Effect::Answer { id: ControlId(1), result: Err(ControlError::Busy) },
            Effect::Answer { id: ControlId(1), result: Err(ControlError::NotHeld) },
            Effect::TierWrite { op, at: TierBlock(1), head: head(), frames: frames() },
            Effect::TierWrite { op, at: TierBlock(1), head: vec![0; 16], frames: one(2) },
            Effect::TierWrite { op, at: TierBlock(1), head: head(), frames: vec![FrameId(2), FrameId(1)] },
            Effect::JournalWrite { op, at: 1, head: head(), frames: one(1), checks: vec![] },
            Effect::JournalWrite { op, at: 1, head: head(), frames: one(1), checks: vec![CHECK] },
            Effect::JournalWrite {
                op,
                at: 1,
                head: head(),
                frames: one(1),
                checks: vec![Check { checksum: 4, ..CHECK }],
            },
            backing(&[write(1, None), write(2, None)]),
            backing(&[write(2, None), write(1, None)]),
            backing(&[write(1, Some(CHECK)), write(2, None)]),
            Effect::BackingZero { op, offset: 0, length: 512, hole: false },
            Effect::BackingZero { op, offset: 0, length: 512, hole: true },
            Effect::BackingZero { op, offset: 512, length: 0, hole: false },
            Effect::Report(Report::Quiet),
            Effect::Report(Report::NotQuiet(forebay_core::status::Unrest::Reads)),
            Effect::Report(Report::NotQuiet(forebay_core::status::Unrest::Checkpoint)),
            Effect::Report(Report::PinsEnded),
            Effect::Report(Report::Agreed { term: Term(1) }),
            Effect::Report(Report::Outdated { term: Term(1), epoch: Epoch(0) }),
            Effect::Report(Report::Remembered { term: Term(1), epoch: Epoch(0) }),
            Effect::Report(Report::LearnerReady { peer }),
            Effect::Report(Report::PeerFailed { peer, why: PeerFailure::Slow }),
            Effect::Report(Report::PeerFailed { peer, why: PeerFailure::Stalled }),
            Effect::Copy { source: Source::Zero, target: FrameId(1), start: 0, length: 512 },
            Effect::Copy { source: Source::Zero, target: FrameId(1), start: 512, length: 0 },
        ]
    }

    #[test]
    fn different_effects_have_different_bytes() {
        let mut all = BTreeSet::new();
        for effect in different() {
            let mut bytes = Vec::new();
            Canon(&mut bytes).volume_effect(&effect);
            assert!(all.insert(bytes), "the bytes of another: {effect:?}");
        }
    }

    #[test]
    fn bytes_of_an_effect_are_these() {
        let mut bytes = Vec::new();
        Canon(&mut bytes).volume_effect(&Effect::BackingZero { op: OpId(7), offset: 512, length: 1024, hole: true });
        let golden = [&[12, 7, 0, 0, 0, 0, 0, 0, 0][..], &[0, 2, 0, 0, 0, 0, 0, 0], &[0, 4, 0, 0, 0, 0, 0, 0], &[1]];
        assert_eq!(bytes, golden.concat());
    }
}
