//! Canonical bytes of what ownership decides.

use super::canon::Canon;
use forebay_core::ownership::{CommandError, Effect, Override};

impl Canon<'_> {
    pub(super) fn ownership_effect(&mut self, effect: &Effect) {
        match effect {
            Effect::Read(op) => self.row(1, &[op.0]),
            Effect::Commit { op, compare, new, by } => {
                self.row(2, &[op.0]);
                self.record(compare);
                self.record(new);
                self.option(by.as_ref(), |canon, by| match by {
                    Override::Restores(id) => canon.row(1, &[id.0]),
                    Override::AcceptsLoss(id) => canon.row(2, &[id.0]),
                });
            }
            Effect::Send(envelope, message) => {
                self.tag(3);
                self.message(envelope, message);
            }
            Effect::Volume(order) => {
                self.tag(4);
                self.order(order);
            }
            Effect::Serve(term) => self.row(5, &[term.0.into()]),
            Effect::EndSessions => self.tag(6),
            Effect::OpenTier { format } => {
                self.tag(7);
                self.truth(*format);
            }
            Effect::RewindNoticed { sent } => self.row(8, &[sent.0]),
            Effect::Rewound(id) => self.row(9, &[id.0]),
            Effect::RewindSettled(id) => self.row(10, &[id.0]),
            Effect::OpenBacking(term) => self.row(12, &[term.0.into()]),
            Effect::UseBacking(term) => self.row(13, &[term.0.into()]),
            Effect::Answer(id, result) => {
                self.row(11, &[id.0]);
                self.result(result.map_err(command_error), |_, ()| ());
            }
        }
    }
}

fn command_error(error: CommandError) -> u8 {
    match error {
        CommandError::NotOwner => 1,
        CommandError::Busy => 2,
        CommandError::NotMember => 3,
        CommandError::NotRecruited => 4,
        CommandError::TimedOut | CommandError::NotQuiet(_) => 5,
        CommandError::Unfenced => 6,
        CommandError::Served => 7,
        CommandError::LossSuspected => 8,
        CommandError::MemberAlive => 9,
        CommandError::LogsAnswer => 10,
        CommandError::Undecided => 11,
        CommandError::RecordChanged => 12,
        CommandError::NeedsProof => 13,
        CommandError::NoRecord => 14,
        CommandError::RecordWentBack => 15,
        CommandError::KnownElsewhere => 16,
        CommandError::NotAsSeen => 17,
        CommandError::Unheard => 18,
        CommandError::Answered => 19,
        CommandError::NoTier => 20,
        CommandError::NothingToDo => 21,
        CommandError::Superseded => 22,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_core::api::{Order, Own};
    use forebay_core::cluster::*;
    use forebay_core::message::*;
    use forebay_core::types::*;
    use std::collections::BTreeSet;

    /// Each is like one before it but for its variant or one field.
    fn different() -> Vec<Effect> {
        let record = Record::of_new_volume(NodeId(1), 1 << 20);
        let member = |node| Incarnation { node: NodeId(node), tier: 1, life: 0 };
        let commit = |new: Record, by| Effect::Commit { op: OpId(1), compare: record.clone(), new, by };
        let of_two = Record { members: vec![member(1), member(2)], ..record.clone() };
        let turned = Record { members: vec![member(2), member(1)], ..record.clone() };
        let owner = Own {
            term: Term(1),
            epoch: Epoch(1),
            members: vec![member(1)],
            log: LogState::Needed,
            flushed: Flushed::Held,
            watermark: Lsn(1),
            fetch: None,
            unfenced: vec![],
            former: None,
        };
        let owns = |own| Effect::Volume(Order::Own(own));
        let (from, to) = (member(1), member(2));
        let envelope = Envelope { volume: [1; 16], term: Term(1), epoch: Epoch(1), from, to };
        let back = Envelope { from: to, to: from, ..envelope };
        vec![
            Effect::EndSessions,
            Effect::Read(OpId(1)),
            Effect::Read(OpId(2)),
            Effect::Rewound(RewindId(1)),
            Effect::RewindSettled(RewindId(1)),
            Effect::RewindNoticed { sent: Instant(1) },
            Effect::Serve(Term(1)),
            Effect::OpenBacking(Term(1)),
            Effect::UseBacking(Term(1)),
            Effect::OpenTier { format: false },
            Effect::OpenTier { format: true },
            commit(record.clone(), None),
            commit(record.clone(), Some(Override::Restores(ControlId(1)))),
            commit(record.clone(), Some(Override::AcceptsLoss(ControlId(1)))),
            commit(of_two, None),
            commit(turned, None),
            commit(Record { term: Term(1), ..record.clone() }, None),
            commit(Record { epoch: Epoch(1), ..record.clone() }, None),
            commit(Record { log: LogState::Through, ..record.clone() }, None),
            commit(Record { flushed: Flushed::Held, ..record.clone() }, None),
            Effect::Send(envelope, OwnershipMessage::Seal.into()),
            Effect::Send(back, OwnershipMessage::Seal.into()),
            Effect::Send(envelope, OwnershipMessage::TakeOver.into()),
            Effect::Send(envelope, OwnershipMessage::Beacon { sent: Instant(1) }.into()),
            Effect::Send(envelope, OwnershipMessage::Granted { sent: Instant(1) }.into()),
            Effect::Volume(Order::Seal),
            Effect::Volume(Order::Quiesce { to: None }),
            Effect::Volume(Order::Quiesce { to: Some(NodeId(1)) }),
            Effect::Volume(Order::Lease { until: Instant(1) }),
            Effect::Volume(Order::Size(1)),
            owns(owner.clone()),
            owns(Own { fetch: Some((member(1), Lsn(1))), ..owner.clone() }),
            owns(Own { unfenced: vec![Term(1)], ..owner.clone() }),
            owns(Own { former: Some(member(1)), ..owner }),
            Effect::Answer(ControlId(1), Ok(())),
            Effect::Answer(ControlId(1), Err(CommandError::Busy)),
            Effect::Answer(ControlId(1), Err(CommandError::Superseded)),
        ]
    }

    #[test]
    fn different_effects_have_different_bytes() {
        let mut all = BTreeSet::new();
        for effect in different() {
            let mut bytes = Vec::new();
            Canon(&mut bytes).ownership_effect(&effect);
            assert!(all.insert(bytes), "the bytes of another: {effect:?}");
        }
    }
}
