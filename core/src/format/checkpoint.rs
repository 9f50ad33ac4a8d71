//! What changes slowly on a tier: how far the log is destaged, its size, and where a member stands in the protocol
//! between nodes. All of it lies in the first 512 bytes, so a device that does not tear sectors does not tear it.
//!
//! Encode and decode only: what the fields mean for a recovery is decided by `volume::recover`, what a member writes into its
//! [`Standing`] by its role.

use super::*;
use crate::cluster::{Epoch, Host, Mark, MarkNumber, PINS_MAX, Part, Pin};

const CHECKPOINT_MAGIC: [u8; 8] = *b"FBCKPT\0\0";
/// Bytes that a device writes whole or not at all.
const UNTORN_BYTES: usize = 512;
const PINS_AT: usize = 160;
const PIN_BYTES: usize = 32;

const _: () = assert!(PINS_AT + PINS_MAX * PIN_BYTES <= UNTORN_BYTES);

/// Two copies; the newer valid one counts. Every change is written twice, with consecutive sequence numbers, and relied
/// upon only when both are durable: so that a copy damaged at rest is covered by the other and never a step back to an
/// older watermark or term.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Checkpoint {
    /// Grows by one with each writing; even ones go to block 2, odd ones to block 1.
    pub sequence: u64,
    /// Which start of the tier wrote it.
    pub start: Start,
    /// The highest term of the volume that is known here; of an owner its own. Version 1: the start's number.
    pub term: Term,
    /// Everything up to here is durable in the backing and no longer needed.
    pub destaged: Lsn,
    /// No record of this or an earlier position has been given out later: the next start begins above it.
    pub accepted: Lsn,
    /// Flash: every batch up to this one was durable when this was written.
    pub batches_synced: u64,
    /// Size of the volume in bytes.
    pub size_bytes: u64,
    /// The log was empty and the backing synced when the daemon stopped.
    pub clean: bool,
    /// Grows with each start that may have lost what was held ([`Incarnation`](crate::cluster::Incarnation)). Version 1: 0.
    pub life: u32,
    /// Where it was written, if that is known. Version 1: not known.
    pub host: Option<Host>,
    /// Of a member of a cluster. None: one node has the volume to itself.
    pub standing: Option<Standing>,
}

/// Where a member of a volume stands in the protocol between nodes (`docs/protocol.md`).
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Standing {
    /// With the checkpoint's term the highest pair that has been seen (C3).
    pub epoch: Epoch,
    /// The term's `Begin` has been answered (S9). Until then the member is sealed: it listens to no older term, and what it
    /// holds does not count in this one.
    pub agreed: bool,
    /// Every member holds everything up to here, as far as this one knows. What is above is kept whole (S5).
    pub committed: Lsn,
    /// The newest mark: watermark, window, size and pins. Of a former term's owner until the term has been agreed on.
    pub mark: Mark,
}

impl Checkpoint {
    /// Tier block of this copy.
    pub fn place(&self) -> TierBlock {
        TierBlock(if self.sequence % 2 == 1 { 1 } else { 2 })
    }

    /// Encodes it into one block of 4096 bytes.
    pub fn encode(&self, version: Version, volume: &[u8; 16]) -> Vec<u8> {
        let mut b = vec![0u8; TIER_BLOCK_BYTES];
        b[..8].copy_from_slice(&CHECKPOINT_MAGIC);
        b[8..12].copy_from_slice(&self.start.0.to_le_bytes());
        b[16..24].copy_from_slice(&self.sequence.to_le_bytes());
        b[24..32].copy_from_slice(&self.destaged.0.to_le_bytes());
        b[32..40].copy_from_slice(&self.batches_synced.to_le_bytes());
        b[40..48].copy_from_slice(&self.size_bytes.to_le_bytes());
        b[48] = u8::from(self.clean);
        b[56..64].copy_from_slice(&self.accepted.0.to_le_bytes());
        match version {
            Version::One => debug_assert_eq!(self.start.0, self.term.0, "version 1 has one number for both"),
            Version::Two => {
                b[52..56].copy_from_slice(&self.life.to_le_bytes());
                b[64..68].copy_from_slice(&self.term.0.to_le_bytes());
                if let Some(host) = self.host {
                    b[72..88].copy_from_slice(&host.machine);
                    b[88..104].copy_from_slice(&host.boot);
                }
                if let Some(standing) = &self.standing {
                    standing.encode_into(&mut b);
                }
            }
        }
        seal(volume, u64::from(self.place().0), &mut b, 12);
        b
    }

    /// From the block at `place`.
    pub fn decode(version: Version, volume: &[u8; 16], place: TierBlock, b: &[u8]) -> Result<Checkpoint, Reason> {
        if b.len() != TIER_BLOCK_BYTES || b[..8] != CHECKPOINT_MAGIC {
            return Err("checkpoint: wrong magic");
        }
        if !sealed(volume, u64::from(place.0), b, 12) {
            return Err("checkpoint: checksum mismatch");
        }
        let host = Host { machine: get_uuid(b, 72), boot: get_uuid(b, 88) };
        let (term, life, host, standing) = match version {
            Version::One => (Term(get_u32(b, 8)), 0, None, None),
            Version::Two => {
                let host = Some(host).filter(|host| (host.machine, host.boot) != ([0; 16], [0; 16]));
                (Term(get_u32(b, 64)), get_u32(b, 52), host, Standing::decode(b)?)
            }
        };
        let found = Checkpoint {
            sequence: get_u64(b, 16),
            start: Start(get_u32(b, 8)),
            term,
            destaged: Lsn(get_u64(b, 24)),
            accepted: Lsn(get_u64(b, 56)),
            batches_synced: get_u64(b, 32),
            size_bytes: get_u64(b, 40),
            clean: b[48] == 1,
            life,
            host,
            standing,
        };
        if found.place() != place {
            return Err("checkpoint: in the other's place");
        }
        Ok(found)
    }
}

impl Standing {
    /// Nothing in it leads beyond any volume.
    pub fn is_possible(&self) -> bool {
        self.mark.lies_within_a_volume()
    }

    /// ```text
    /// 49  agreed u8, pins u8, 1 u8 = a standing is here | 68  epoch u32                    | 104 committed u64
    /// 112 mark: number u64, watermark u64, through u64, part block u64, part blocks u32, 0 u32, size u64
    /// 160 4 pins: term u32, part blocks u32, above u64, through u64, part block u64
    /// ```
    fn encode_into(&self, b: &mut [u8]) {
        let mark = &self.mark;
        assert!(mark.pins.len() <= PINS_MAX, "a mark names at most {PINS_MAX} windows");
        b[49] = u8::from(self.agreed);
        b[50] = mark.pins.len() as u8;
        b[51] = 1;
        b[68..72].copy_from_slice(&self.epoch.0.to_le_bytes());
        b[104..112].copy_from_slice(&self.committed.0.to_le_bytes());
        b[112..120].copy_from_slice(&mark.number.0.to_le_bytes());
        b[120..128].copy_from_slice(&mark.watermark.0.to_le_bytes());
        b[128..136].copy_from_slice(&mark.through.0.to_le_bytes());
        b[136..144].copy_from_slice(&mark.part.block.0.to_le_bytes());
        b[144..148].copy_from_slice(&mark.part.blocks.to_le_bytes());
        b[152..160].copy_from_slice(&mark.size_bytes.to_le_bytes());
        for (pin, b) in mark.pins.iter().zip(b[PINS_AT..].chunks_exact_mut(PIN_BYTES)) {
            b[..4].copy_from_slice(&pin.term.0.to_le_bytes());
            b[4..8].copy_from_slice(&pin.part.blocks.to_le_bytes());
            b[8..16].copy_from_slice(&pin.above.0.to_le_bytes());
            b[16..24].copy_from_slice(&pin.through.0.to_le_bytes());
            b[24..32].copy_from_slice(&pin.part.block.0.to_le_bytes());
        }
    }

    fn decode(b: &[u8]) -> Result<Option<Standing>, Reason> {
        if b[51] == 0 {
            return Ok(None);
        }
        let pins = usize::from(b[50]);
        if pins > PINS_MAX {
            return Err("checkpoint: more pins than there are places");
        }
        let part = |block, blocks| Part { block: BlockIndex(get_u64(b, block)), blocks: get_u32(b, blocks) };
        let pin = |at: usize| Pin {
            term: Term(get_u32(b, at)),
            above: Lsn(get_u64(b, at + 8)),
            through: Lsn(get_u64(b, at + 16)),
            part: part(at + 24, at + 4),
        };
        Ok(Some(Standing {
            epoch: Epoch(get_u32(b, 68)),
            agreed: b[49] == 1,
            committed: Lsn(get_u64(b, 104)),
            mark: Mark {
                number: MarkNumber(get_u64(b, 112)),
                watermark: Lsn(get_u64(b, 120)),
                through: Lsn(get_u64(b, 128)),
                part: part(136, 144),
                size_bytes: get_u64(b, 152),
                pins: (0..pins).map(|i| pin(PINS_AT + i * PIN_BYTES)).collect(),
            },
        }))
    }
}
