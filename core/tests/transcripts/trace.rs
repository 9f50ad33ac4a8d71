//! Writes down what happens in a world: messages as they arrive or get lost, what nodes ask of tiers and backing, answers, and how
//! far each node is whenever that has changed.

use crate::oracle::Stamp;
use crate::words;
use crate::world::{MS, Watch};
use forebay_core::Volume;
use forebay_core::api::Effect;
use forebay_core::cluster::NodeId;
use forebay_core::message::{Envelope, Message};
use forebay_core::types::*;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

/// Lines since the last command.
#[derive(Default)]
struct Lines {
    lines: Vec<String>,
    begin: u64,
    told_ms: u64,
    /// How far each node was when it was last told, word for word.
    far: BTreeMap<usize, Vec<String>>,
}

/// Shared by a world, which tells it, and whoever reads it.
#[derive(Clone, Default)]
pub struct Trace(Rc<RefCell<Lines>>);

impl Trace {
    /// What was traced since, with the time of each line since the command, where it is another one.
    pub fn take(&self, now: u64) -> Vec<String> {
        let mut lines = self.0.borrow_mut();
        (lines.begin, lines.told_ms) = (now, 0);
        std::mem::take(&mut lines.lines)
    }

    pub fn line(&self, now: u64, text: String) {
        let mut lines = self.0.borrow_mut();
        let ms = (now - lines.begin) / MS;
        let time = if ms == lines.told_ms { String::new() } else { format!("{ms} ms") };
        lines.told_ms = ms;
        lines.lines.push(format!("{time:>8}  {text}"));
    }

    /// A process of this node begins: all is told of it.
    pub fn forget(&self, node: usize) {
        self.0.borrow_mut().far.remove(&node);
    }
}

fn name(node: usize) -> String {
    words::node(NodeId(node as u64 + 1))
}

/// What is told of how far a node is.
fn far(now: u64, volume: &Volume) -> Vec<String> {
    let (status, figures) = (volume.status(Instant(now)), volume.figures());
    let mut far = vec![
        words::phase(status.phase),
        format!("t{} c{}", figures.term, figures.epoch),
        format!("accepted {}", figures.accepted),
        format!("held {}", figures.held),
    ];
    far.extend(figures.synced.map(|synced| format!("synced {synced}")));
    far.push(format!("committed {}", figures.committed));
    far.push(words::mark(&figures.mark));
    far.push(format!("dirty blocks {}", status.dirty_bytes / BLOCK_BYTES));
    far
}

impl Watch for Trace {
    fn arrives(&mut self, now: u64, envelope: &Envelope, message: &Message) {
        self.line(now, words::message("->", envelope, message));
    }

    fn lost(&mut self, now: u64, envelope: &Envelope, message: &Message) {
        self.line(now, words::message("-x", envelope, message));
    }

    fn asks(&mut self, now: u64, node: usize, effect: &Effect) {
        let what = match effect {
            Effect::Report(report) => format!("reports: {}", words::report(report)),
            // The blocks after the superblock are its places.
            Effect::TierWrite { at: TierBlock(1 | 2), .. } => "writes its checkpoint".into(),
            Effect::TierWrite { head, frames, .. } if frames.is_empty() && head.iter().all(|byte| *byte == 0) => {
                "erases".into()
            }
            Effect::TierWrite { .. } => "writes its log".into(),
            Effect::TierSync { .. } => "syncs its tier".into(),
            Effect::TierRead { frames, .. } => format!("reads {} blocks from its tier", frames.len()),
            Effect::BackingRead { at, frames, .. } => {
                format!("reads {} blocks from the backing, from {at} on", frames.len())
            }
            Effect::BackingZero { offset, length, .. } => {
                format!("zeroes blocks {}-{} of the backing", offset / BLOCK_BYTES, (offset + length) / BLOCK_BYTES - 1)
            }
            Effect::BackingSync { .. } => "syncs the backing".into(),
            // Told when they arrive, are answered or are in the backing, or of no node's concern but the own.
            Effect::Send(_) | Effect::Reply { .. } | Effect::Answer { .. } | Effect::BackingWrite { .. } => return,
            Effect::Describe { .. } | Effect::FramesFree | Effect::TierScan { .. } => return,
            Effect::Merge { .. } | Effect::Copy { .. } => return,
            Effect::JournalWrite { .. } => "writes to the journal".into(),
            Effect::JournalSync { .. } => "syncs the journal".into(),
        };
        self.line(now, format!("{} {what}", name(node)));
    }

    fn destages(&mut self, now: u64, node: usize, sectors: &[(u64, Stamp)]) {
        self.line(now, format!("{} writes to the backing: {}", name(node), words::content(sectors)));
    }

    fn lands(&mut self, now: u64, node: usize, sectors: &[(u64, Stamp)]) {
        self.line(now, format!("backing, of {}: {}", name(node), words::content(sectors)));
    }

    fn answers(&mut self, now: u64, node: usize, id: RequestId, sectors: &[(u64, Stamp)]) {
        let shown = if sectors.is_empty() { String::new() } else { format!(": {}", words::content(sectors)) };
        self.line(now, format!("{} answers request {}{shown}", name(node), id.0));
    }

    fn rests(&mut self, now: u64, node: usize, volume: &Volume) {
        let far = far(now, volume);
        let before = self.0.borrow_mut().far.insert(node, far.clone()).unwrap_or_default();
        let changed: Vec<String> = far.into_iter().filter(|word| !before.contains(word)).collect();
        if !changed.is_empty() {
            self.line(now, format!("{} is: {}", name(node), changed.join(", ")));
        }
    }
}
