//! A volume on a test stand: devices of known speeds around it, and a clock that is set, not waited for.

use forebay_core::api::*;
use forebay_core::format::*;
use forebay_core::status::{DestageMode, Policy, Status};
use forebay_core::types::*;
use forebay_core::{Volume, VolumeConfig};

pub const MILLISECOND: u64 = 1_000_000;
pub const SECOND: u64 = 1_000 * MILLISECOND;

/// A fresh write-back volume whose arena is the tier of a memory layout, without a journal and without a limit on the
/// time to drain.
pub fn config(layout: TierLayout, size_bytes: u64) -> VolumeConfig {
    VolumeConfig {
        superblock: Superblock {
            version: Version::Two,
            tier: 1,
            volume: [1; 16],
            name: [0; 64],
            size_bytes,
            created_unix_s: 0,
            layout,
        },
        fresh: true,
        size_bytes,
        policy: Policy::Back,
        frames: layout.payload_blocks,
        backing_align: 512,
        backing_depth_max: 64,
        backing_write_bytes_max: 1 << 20,
        destage_round_bytes_max: 32 << 20,
        journal_blocks: 0,
        destage: DestageMode::Auto,
        destage_delay: Duration::from_millis(500),
        drain_max: Duration(0),
        cluster: None,
    }
}

/// What stands around a volume.
pub trait Stand {
    fn volume(&mut self) -> &mut Volume;
    fn now(&self) -> Instant;
    /// Does what the volume asks, or notes when it will be done.
    fn execute(&mut self, effect: Effect);

    fn handle(&mut self, event: Event) {
        let now = self.now();
        self.volume().handle(now, event);
    }

    fn done(&mut self, op: OpId) {
        self.handle(Event::Done { op, outcome: Outcome::Ok });
    }

    fn status(&mut self) -> Status {
        let now = self.now();
        self.volume().status(now)
    }

    /// Decides and carries out until there is nothing left to do now. True if there was anything.
    fn work(&mut self) -> bool {
        let mut any = false;
        loop {
            let now = self.now();
            self.volume().settle(now);
            let mut idle = true;
            while let Some(effect) = self.volume().poll_effect() {
                (idle, any) = (false, true);
                self.execute(effect);
            }
            if idle {
                return any;
            }
        }
    }

    /// Asks for the write of one whole block; false: there is no frame for it.
    fn write_block(&mut self, id: u64, block: u64) -> bool {
        let mut frames = Frames::new();
        if !self.volume().take_frames(ClientId(0), 1, &mut frames) {
            return false;
        }
        let payload = Payloads::from_slice(&[Payload { frame: frames[0], checksum: 0 }]);
        let request = Request::Write { offset: block * BLOCK_BYTES, length: BLOCK_BYTES as u32, payload, fua: false };
        self.handle(Event::Request { id: RequestId(id), request });
        true
    }
}
