//! `faulty:` planned errors of a backing, the same for the same seed and order of operations.
//!
//! Two families. Honest faults are what a real device does: errors, a full device, requests that hang. Planted lies
//! (`drop_sync`, `early_sync`, `drop_write`, `corrupt_read`) are what no honest device does: they exist to prove that
//! a crash test fails when it must.

use crate::units::parse_bytes;

/// Kinds of operation, as faults and models see them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // each name says what it is
pub enum DeviceOperation {
    Read { bytes: u64 },
    Write { bytes: u64 },
    Zero { bytes: u64 },
    Sync,
}

/// What happens to one operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It is done, and its result told.
    Honest,
    /// It fails with this errno, and is not done.
    Fails(i32),
    /// It is never answered, and not done.
    Hangs,
    /// Lie: success is told, and nothing done.
    Dropped,
    /// Lie: success is told at once, while it is still being done.
    AnsweredEarly,
    /// Lie: one bit of what was read is flipped.
    Corrupted,
}

/// Which faults there are, and how often.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct FaultyParameters {
    /// Probability that a read fails with EIO.
    pub read_error: f64,
    /// Probability that a write fails with EIO.
    pub write_error: f64,
    /// Probability that a zero fails with EIO.
    pub zero_error: f64,
    /// Probability that a sync fails with EIO.
    pub sync_error: f64,
    /// After so many bytes written every write fails with ENOSPC.
    pub nospace_after: Option<u64>,
    /// After so many operations nothing is answered any more.
    pub hang_after: Option<u64>,
    /// After so many operations the device is gone (ENODEV).
    pub gone_after: Option<u64>,
    /// Seed of what the probabilities decide.
    pub seed: u64,
    /// Planted lie: a sync does nothing and says it did.
    pub drop_sync: bool,
    /// Planted lie: a sync is answered before it is done.
    pub early_sync: bool,
    /// Planted lie: probability that a write does nothing and says it did.
    pub drop_write: f64,
    /// Planted lie: probability that a read has one wrong bit.
    pub corrupt_read: f64,
}

impl FaultyParameters {
    /// Reads what follows `faulty:` in a spec, as in `write_error=0.01,seed=7`.
    pub fn parse(text: &str) -> Result<FaultyParameters, String> {
        let mut p = FaultyParameters::default();
        for (key, value) in super::pairs("faulty:", text)? {
            match key {
                "read_error" => p.read_error = probability(key, value)?,
                "write_error" => p.write_error = probability(key, value)?,
                "zero_error" => p.zero_error = probability(key, value)?,
                "sync_error" => p.sync_error = probability(key, value)?,
                "nospace_after" => p.nospace_after = Some(parse_bytes(value)?),
                "hang_after" => p.hang_after = Some(super::number(key, value)?),
                "gone_after" => p.gone_after = Some(super::number(key, value)?),
                "seed" => p.seed = super::number(key, value)?,
                "drop_sync" => p.drop_sync = switch(key, value)?,
                "early_sync" => p.early_sync = switch(key, value)?,
                "drop_write" => p.drop_write = probability(key, value)?,
                "corrupt_read" => p.corrupt_read = probability(key, value)?,
                _ => {
                    return Err(format!(
                        "faulty: has no parameter `{key}`; it has read_error, write_error, zero_error, sync_error, \
                         nospace_after, hang_after, gone_after, seed, drop_sync, early_sync, drop_write and corrupt_read"
                    ));
                }
            }
        }
        Ok(p)
    }
}

fn probability(key: &str, value: &str) -> Result<f64, String> {
    let number: f64 = value.parse().map_err(|_| format!("`{key}={value}`: a probability is a number from 0 to 1"))?;
    if (0.0..=1.0).contains(&number) { Ok(number) } else { Err(format!("`{key}={value}` does not lie in 0 to 1")) }
}

fn switch(key: &str, value: &str) -> Result<bool, String> {
    match value {
        "0" => Ok(false),
        "1" => Ok(true),
        _ => Err(format!("`{key}={value}`: write 0 or 1")),
    }
}

/// The plan and how far it has come.
#[derive(Clone, Debug)]
pub struct FaultPlan {
    parameters: FaultyParameters,
    random: u64,
    operations: u64,
    written: u64,
}

impl FaultPlan {
    /// A plan before the first operation.
    pub fn new(parameters: FaultyParameters) -> FaultPlan {
        FaultPlan { parameters, random: parameters.seed, operations: 0, written: 0 }
    }

    /// Decides about the next operation.
    pub fn fate(&mut self, operation: DeviceOperation) -> Fate {
        // One number for each operation, needed or not: the fate of one then does not shift that of the others.
        let (chance, p) = (self.chance(), self.parameters);
        self.operations += 1;
        if p.hang_after.is_some_and(|limit| self.operations > limit) {
            return Fate::Hangs;
        }
        if p.gone_after.is_some_and(|limit| self.operations > limit) {
            return Fate::Fails(libc::ENODEV);
        }
        match operation {
            DeviceOperation::Read { .. } if chance < p.read_error => Fate::Fails(libc::EIO),
            DeviceOperation::Read { .. } if chance - p.read_error < p.corrupt_read => Fate::Corrupted,
            DeviceOperation::Write { .. } if chance < p.write_error => Fate::Fails(libc::EIO),
            DeviceOperation::Write { bytes } => {
                if p.nospace_after.is_some_and(|limit| self.written + bytes > limit) {
                    return Fate::Fails(libc::ENOSPC);
                }
                self.written += bytes;
                if chance - p.write_error < p.drop_write { Fate::Dropped } else { Fate::Honest }
            }
            DeviceOperation::Zero { .. } if chance < p.zero_error => Fate::Fails(libc::EIO),
            DeviceOperation::Sync if chance < p.sync_error => Fate::Fails(libc::EIO),
            DeviceOperation::Sync if p.drop_sync => Fate::Dropped,
            DeviceOperation::Sync if p.early_sync => Fate::AnsweredEarly,
            DeviceOperation::Read { .. } | DeviceOperation::Zero { .. } | DeviceOperation::Sync => Fate::Honest,
        }
    }

    /// SplitMix64, as a number in 0 to 1.
    fn chance(&mut self) -> f64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.random;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 11) as f64 / (1u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(text: &str) -> FaultPlan {
        FaultPlan::new(FaultyParameters::parse(text).unwrap())
    }

    #[test]
    fn the_same_seed_gives_the_same_faults() {
        let write = DeviceOperation::Write { bytes: 4096 };
        let run = |text| {
            let mut plan = plan(text);
            (0..10_000).map(|_| plan.fate(write)).collect::<Vec<_>>()
        };
        let first = run("write_error=0.01,seed=3");
        assert_eq!(first, run("write_error=0.01,seed=3"));
        assert_ne!(first, run("write_error=0.01,seed=4"));
        let failed = first.iter().filter(|&&fate| fate == Fate::Fails(libc::EIO)).count();
        assert!((50..200).contains(&failed), "{failed} of 10000 at 1 %");
    }

    #[test]
    fn a_device_fills_hangs_and_goes() {
        let write = DeviceOperation::Write { bytes: 4096 };
        let mut full = plan("nospace_after=8K");
        assert_eq!([full.fate(write), full.fate(write)], [Fate::Honest; 2]);
        assert_eq!(full.fate(write), Fate::Fails(libc::ENOSPC));
        assert_eq!(full.fate(DeviceOperation::Sync), Fate::Honest);
        let mut hung = plan("hang_after=1");
        assert_eq!([hung.fate(write), hung.fate(write)], [Fate::Honest, Fate::Hangs]);
        let mut gone = plan("gone_after=0");
        assert_eq!(gone.fate(DeviceOperation::Sync), Fate::Fails(libc::ENODEV));
    }

    #[test]
    fn lies_are_told_only_where_asked_for() {
        assert_eq!(plan("drop_sync=1").fate(DeviceOperation::Sync), Fate::Dropped);
        assert_eq!(plan("early_sync=1").fate(DeviceOperation::Sync), Fate::AnsweredEarly);
        assert_eq!(plan("drop_write=1").fate(DeviceOperation::Write { bytes: 1 }), Fate::Dropped);
        assert_eq!(plan("corrupt_read=1").fate(DeviceOperation::Read { bytes: 1 }), Fate::Corrupted);
        assert_eq!(plan("corrupt_read=1,drop_write=1").fate(DeviceOperation::Sync), Fate::Honest);
    }

    #[test]
    fn parameters_are_strict() {
        for wrong in ["write_error=2", "write_error=-1", "write_error=NaN", "drop_sync=yes", "oops=1", "seed"] {
            assert!(FaultyParameters::parse(wrong).is_err(), "{wrong}");
        }
    }
}
