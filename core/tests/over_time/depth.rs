//! How much of the depth a backing gets: a fast one all of it, any other half, so that a read waits behind few writes.

use crate::stand::{SECOND, Stand, config};
use forebay_core::api::*;
use forebay_core::format::*;
use forebay_core::types::*;
use forebay_core::{Volume, VolumeConfig};
use std::collections::VecDeque;

const BLOCKS: u64 = 6_000;
const DEPTH: usize = 64;
const MICROSECOND: u64 = 1_000;

/// A backing that takes one write after the other.
struct OneByOne {
    volume: Volume,
    now: u64,
    write_ns: u64,
    under_way: VecDeque<(u64, OpId)>,
    writing: usize,
    writing_most: usize,
}

impl Stand for OneByOne {
    fn volume(&mut self) -> &mut Volume {
        &mut self.volume
    }

    fn now(&self) -> Instant {
        Instant(self.now)
    }

    fn execute(&mut self, effect: Effect) {
        match effect {
            Effect::Reply { result, .. } => assert_eq!(result, Ok(Pieces::new())),
            Effect::TierWrite { op, .. } | Effect::TierSync { op } => self.done(op),
            Effect::BackingWrite { op, .. } => {
                self.writing += 1;
                self.writing_most = self.writing_most.max(self.writing);
                self.at_backing(op);
            }
            Effect::BackingSync { op } => {
                assert_eq!(self.writing, 0, "a sync of what is still being written");
                self.at_backing(op);
            }
            Effect::Describe { .. } | Effect::FramesFree | Effect::Copy { .. } => {}
            other => panic!("whole blocks need no {other:?}"),
        }
    }
}

impl OneByOne {
    fn at_backing(&mut self, op: OpId) {
        let free = self.under_way.back().map_or(self.now, |(at, _)| *at);
        self.under_way.push_back((free + self.write_ns, op));
    }

    /// One end after the other, until nothing is dirty; the most writes that were in flight at one time.
    fn drain(&mut self) -> usize {
        self.writing_most = 0;
        while self.status().dirty_bytes > 0 {
            match self.under_way.pop_front() {
                Some((at, op)) => {
                    self.now = at;
                    self.writing = self.writing.saturating_sub(1);
                    self.done(op);
                }
                None => self.now += SECOND / 100,
            }
            self.work();
        }
        self.writing_most
    }

    fn write_all(&mut self) {
        // With gaps: neighbours would be one write.
        for i in 0..BLOCKS {
            assert!(self.write_block(i, 2 * i));
            self.work();
        }
    }
}

/// The most writes in flight, of one load after the other, before a backing of this speed.
fn most_in_flight(write_ns: u64) -> [usize; 2] {
    let layout = TierLayout::memory(32 << 10).unwrap();
    let config = VolumeConfig { backing_depth_max: DEPTH as u32, ..config(layout, 4 * BLOCKS * BLOCK_BYTES) };
    let mut volume = Volume::new(config, Instant(SECOND));
    volume.handle(Instant(SECOND), Event::BackingReady);
    let under_way = VecDeque::new();
    let mut stand = OneByOne { volume, now: SECOND, write_ns, under_way, writing: 0, writing_most: 0 };
    stand.work();
    [(), ()].map(|()| {
        stand.write_all();
        stand.drain()
    })
}

#[test]
fn a_fast_backing_gets_the_whole_depth_and_others_half() {
    assert_eq!(most_in_flight(30 * MICROSECOND)[1], DEPTH, "33,000 writes a second");
    assert_eq!(most_in_flight(100 * MICROSECOND), [DEPTH / 2; 2], "10,000 writes a second");
}
