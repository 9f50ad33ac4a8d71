//! Bugs planted in the volume must be found, or the simulator's silence about the real one means nothing.
//!
//! A seed that fails with a planted bug has caught it only when it does not fail without it: what would be found
//! otherwise is a bug of the volume, or of the simulator, and the planted one may still go unseen.

use crate::random::Random;
use crate::run::attempt;
use crate::setup::Setup;
use crate::world::World;
use core::ops::Range;
use forebay_core::volume::Rules;

/// Runs `world` of one seed after the other until one catches `planted`. Panics when none of `seeds` does: then a rule
/// of the design is tested by nothing.
pub fn is_caught(name: &str, planted: Rules, seeds: Range<u64>, world: impl Fn(u64) -> (Setup, Random)) {
    for seed in seeds.clone() {
        let run = |rules| {
            attempt(format!("{name}, seed {seed}"), || {
                let (setup, random) = world(seed);
                World::new(setup, random, None, rules, false).run()
            })
        };
        let Err(caught) = run(planted) else { continue };
        if let Err(other) = run(Rules::default()) {
            panic!("{name}: not caught by this plant: seed {seed} fails without it: {}", other.message);
        }
        let message = caught.message.lines().nth(1).unwrap_or_default();
        println!("{name}: caught by seed {seed}: {message}");
        return;
    }
    panic!("{name} survived the seeds {seeds:?}");
}
