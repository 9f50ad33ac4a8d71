//! The only source of chance in the simulator: one `u64` seed decides everything that happens in a run.
//! xoshiro256**, seeded by splitmix64; written out here so that a seed means the same run for ever,
//! whatever a random-number crate does in its next version.

/// A stream of random numbers.
#[derive(Clone, Debug)]
pub struct Random {
    state: [u64; 4],
}

/// Splitmix64's finalizer: a bijection on `u64` that scatters every bit.
pub fn mix(value: u64) -> u64 {
    let z = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Inverse of [`mix`].
pub fn unmix(value: u64) -> u64 {
    let z = value ^ (value >> 31) ^ (value >> 62);
    let z = z.wrapping_mul(0x3196_42b2_d24d_8ec3);
    let z = z ^ (z >> 27) ^ (z >> 54);
    let z = z.wrapping_mul(0x96de_1b17_3f11_9089);
    z ^ (z >> 30) ^ (z >> 60)
}

impl Random {
    /// A stream decided by the seed alone.
    pub fn new(seed: u64) -> Random {
        let mut at = seed;
        let state = std::array::from_fn(|_| {
            at = at.wrapping_add(0x9e37_79b9_7f4a_7c15);
            mix(at)
        });
        Random { state }
    }

    /// The next 64 bits.
    pub fn draw(&mut self) -> u64 {
        let s = &mut self.state;
        let result = s[1].wrapping_mul(5).rotate_left(7).wrapping_mul(9);
        let t = s[1] << 17;
        s[2] ^= s[0];
        s[3] ^= s[1];
        s[1] ^= s[2];
        s[0] ^= s[3];
        s[2] ^= t;
        s[3] = s[3].rotate_left(45);
        result
    }

    /// A number below `bound`, which is not 0. The bias of the modulus is below 2^-32 for the bounds used here.
    pub fn below(&mut self, bound: u64) -> u64 {
        assert!(bound > 0, "a random number below 0 was asked for");
        self.draw() % bound
    }

    /// A number in `[low, high]`.
    pub fn range(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high - low + 1)
    }

    /// True in so many of a million cases. Draws nothing at 0, so that a fault that is off changes nothing else.
    pub fn chance(&mut self, per_million: u32) -> bool {
        per_million > 0 && self.below(1_000_000) < u64::from(per_million)
    }

    /// One of several.
    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len() as u64) as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mix_can_be_undone() {
        let mut random = Random::new(1);
        for _ in 0..10_000 {
            let value = random.draw();
            assert_eq!(unmix(mix(value)), value);
        }
    }

    #[test]
    fn equal_seeds_give_equal_streams_and_others_do_not() {
        let stream = |seed| {
            let mut random = Random::new(seed);
            (0..8).map(|_| random.draw()).collect::<Vec<_>>()
        };
        assert_eq!(stream(7), stream(7));
        assert_ne!(stream(7), stream(8));
    }
}
