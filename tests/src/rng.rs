//! A small seeded generator, so that a failing run can be repeated from the seed it printed.

/// splitmix64: full period, no state to warm up, good enough for load generation.
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    /// A generator that begins with this seed.
    pub fn new(seed: u64) -> Rng {
        Rng(seed)
    }

    /// From the clock and the process, for runs that print their seed.
    pub fn fresh_seed() -> u64 {
        let since = std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .expect("the clock is after 1970")
            .as_nanos() as u64;
        Rng(since ^ (u64::from(std::process::id()) << 40)).next()
    }

    /// The next 64 bits.
    #[allow(clippy::should_implement_trait)] // not an iterator: it never ends
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// Uniform in `0..bound`; the bias of the remainder does not matter for load.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    /// True in `percent` of a hundred calls.
    pub fn chance(&mut self, percent: u32) -> bool {
        self.below(100) < u64::from(percent)
    }
}

/// The output function of splitmix64: one word to one word, all bits mixed.
pub fn mix(word: u64) -> u64 {
    let word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}
