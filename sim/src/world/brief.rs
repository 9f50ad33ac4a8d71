//! Events and effects in one line each, for traces.

use super::*;

pub(super) fn brief_event(event: &Event) -> String {
    match event {
        Event::Done { op, outcome: Outcome::Bytes(bytes) } => format!("Done {op:?} {} bytes", bytes.len()),
        Event::Peer { envelope, message, .. } => format!("Peer {} {message:?}", brief_envelope(envelope)),
        Event::Request { .. }
        | Event::Sent(_)
        | Event::Hangup(_)
        | Event::Done { .. }
        | Event::BackingReady
        | Event::Refused { .. }
        | Event::Interrupted(_)
        | Event::Ownership(_)
        | Event::Control { .. } => format!("{event:?}"),
    }
}

pub(super) fn brief_effect(version: Version, effect: &Effect) -> String {
    match effect {
        Effect::TierWrite { op, at, head, frames } => {
            let what = match Batch::decode(&VOLUME_UUID, *at, &head[..BLOCK.min(head.len())]) {
                Ok(batch) => format!("{batch:?}"),
                Err(_) => match Checkpoint::decode(version, &VOLUME_UUID, *at, &head[..BLOCK.min(head.len())]) {
                    Ok(checkpoint) => format!("{checkpoint:?}"),
                    Err(_) => format!("{} bytes", head.len()),
                },
            };
            format!("TierWrite {op:?} at {at} {what} frames {frames:?}")
        }
        Effect::Describe { index, bytes } => {
            format!("Describe {index} {:?}", Descriptor::decode(&VOLUME_UUID, u64::from(*index), bytes))
        }
        Effect::JournalWrite { op, at, head, frames, .. } => {
            let what = match JournalBatch::head_blocks_hint(head) {
                Some(blocks) => {
                    format!("{:?}", JournalBatch::decode(&VOLUME_UUID, *at, &head[..blocks as usize * BLOCK]))
                }
                None => format!("{} bytes", head.len()),
            };
            format!("JournalWrite {op:?} at {at} {what} frames {frames:?}")
        }
        Effect::Send(sending) => {
            format!("Send {:?} {} {:?}", sending.op, brief_envelope(&sending.envelope), sending.message)
        }
        Effect::Reply { .. }
        | Effect::FramesFree
        | Effect::Answer { .. }
        | Effect::TierSync { .. }
        | Effect::TierRead { .. }
        | Effect::TierScan { .. }
        | Effect::BackingRead { .. }
        | Effect::BackingWrite { .. }
        | Effect::BackingZero { .. }
        | Effect::BackingSync { .. }
        | Effect::JournalSync { .. }
        | Effect::Merge { .. }
        | Effect::Report(_)
        | Effect::Copy { .. } => format!("{effect:?}"),
    }
}

/// Who to whom, in which term and epoch.
fn brief_envelope(envelope: &Envelope) -> String {
    let Envelope { term, epoch, from, to, .. } = envelope;
    format!("n{}.{} -> n{}.{} term {term}.{epoch}", index_of(from.node), from.tier, index_of(to.node), to.tier)
}
