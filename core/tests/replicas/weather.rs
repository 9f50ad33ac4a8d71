//! Chance, from one seed; and what the pipes between nodes do with messages.

/// A stream of random numbers (splitmix64).
pub struct Chance(pub u64);

impl Chance {
    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, bound: u64) -> u64 {
        self.draw() % bound
    }

    /// True in so many of a hundred cases.
    pub fn percent(&mut self, of_hundred: u64) -> bool {
        of_hundred > 0 && self.below(100) < of_hundred
    }
}

/// Of every pipe.
#[derive(Clone, Copy, Debug)]
pub struct Weather {
    pub lost_percent: u64,
    pub twice_percent: u64,
    /// A payload arrives with a sector changed.
    pub spoilt_percent: u64,
    pub delay_us_max: u64,
    /// Of tiers and backing.
    pub disk_us_max: u64,
}

/// Nothing goes wrong, and order is kept.
pub const FAIR: Weather =
    Weather { lost_percent: 0, twice_percent: 0, spoilt_percent: 0, delay_us_max: 0, disk_us_max: 100 };

/// Several channels, one of them bad.
pub const ROUGH: Weather =
    Weather { lost_percent: 5, twice_percent: 10, spoilt_percent: 2, delay_us_max: 5_000, disk_us_max: 2_000 };
