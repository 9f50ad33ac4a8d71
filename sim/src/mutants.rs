//! Bugs planted in the volume, or in ownership, must be found, or the simulator's silence about the real ones means nothing.
//!
//! A seed that fails with a planted bug has caught it only when it does not fail without it: what would be found
//! otherwise is a bug of the volume, or of the simulator, and the planted one may still go unseen.

use crate::random::Random;
use crate::run::attempt;
use crate::setup::Setup;
use crate::world::World;
use core::ops::Range;
use forebay_core::{ownership, volume};

/// What is broken on purpose in every node of a world.
#[derive(Clone, Copy, Default)]
pub struct Planted {
    /// Bugs of its volume.
    pub volume: volume::Rules,
    /// Bugs of its ownership.
    pub ownership: ownership::Rules,
}

impl From<volume::Rules> for Planted {
    fn from(volume: volume::Rules) -> Planted {
        Planted { volume, ..Planted::default() }
    }
}

impl From<ownership::Rules> for Planted {
    fn from(ownership: ownership::Rules) -> Planted {
        Planted { ownership, ..Planted::default() }
    }
}

/// Runs `world` of one seed after the other until one catches `planted`. Panics when none of `seeds` does: then a rule
/// of the design is tested by nothing.
pub fn is_caught(name: &str, planted: impl Into<Planted>, seeds: Range<u64>, world: impl Fn(u64) -> (Setup, Random)) {
    let planted = planted.into();
    for seed in seeds.clone() {
        let run = |Planted { volume, ownership }| {
            attempt(format!("{name}, seed {seed}"), || {
                let (setup, random) = world(seed);
                World::new(setup, random, None, volume, false).with_ownership(ownership).run()
            })
        };
        let Err(caught) = run(planted) else { continue };
        if let Err(other) = run(Planted::default()) {
            panic!("{name}: not caught by this plant: seed {seed} fails without it: {}", other.message);
        }
        let message = caught.message.lines().nth(1).unwrap_or_default();
        println!("{name}: caught by seed {seed}: {message}");
        return;
    }
    panic!("{name} survived the seeds {seeds:?}");
}
