//! What a cache of another size would hit: reuse distances of a sample of blocks (SHARDS: Waldspurger et al., FAST 2015).
//!
//! A block is sampled by a hash of its number, so all or none of its uses are seen. How many sampled blocks were used since
//! a block's last use, times the blocks that each stands for, is how large a cache has to be to still have it, were it
//! ordered by age. So one pass gives the hit rate of all sizes. Reads count; a write brings its blocks into the cache as well
//! (what was destaged stays as clean cache), so it makes a block recent, and counts as no read.
//!
//! Bounded in memory and in time: a fixed number of sampled blocks is remembered, and the oldest is forgotten first; so the
//! curve ends at [`MissRatio::deepest_blocks`]. The paper's way to a fixed size lowers the rate with each new block instead and
//! never raises it: one scan of a large volume would leave a hot set of some gigabytes with hardly a sampled block for ever.

use super::KEPT_COUNT_MAX;
use super::histogram::{class_of, edge_above};
use crate::block_map::BlockMap;
use crate::types::{BLOCK_BYTES, BlockIndex};
use alloc::vec;
use alloc::vec::Vec;

/// Sampled blocks that are remembered.
const SAMPLED_MAX: usize = 8_192;
/// The curve goes to so many times the cache.
const DEEPEST_TIMES: u64 = 8;
/// One in so many blocks is sampled at most: sampling a block costs what forty others cost.
const STRIDE_MIN: u64 = 16;
/// Distances from 2^35 blocks on, twice the largest volume, are counted in the last class.
const CLASSES: usize = (35 - 2) * 8;

/// Reuse distances of reads. Only grows; what came between two looks is their difference.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MissRatio {
    /// Each sampled block stands for so many.
    stride: u64,
    deepest_blocks: u64,
    cache_blocks: u64,
    /// Blocks read, sampled or not.
    reads: u64,
    /// Sampled blocks read.
    sampled: u64,
    /// Those of them that had been used before, by the blocks that a cache must hold to hit.
    distances: [u64; CLASSES],
}

impl MissRatio {
    /// Nothing was read yet, with a cache of so many blocks.
    pub fn new(cache_blocks: u64) -> MissRatio {
        let deepest = cache_blocks * DEEPEST_TIMES;
        let stride = deepest.div_ceil(SAMPLED_MAX as u64).next_power_of_two().max(STRIDE_MIN);
        MissRatio::with(cache_blocks, stride, SAMPLED_MAX)
    }

    fn with(cache_blocks: u64, stride: u64, samples_max: usize) -> MissRatio {
        let deepest_blocks = stride * samples_max as u64;
        MissRatio { stride, deepest_blocks, cache_blocks, reads: 0, sampled: 0, distances: [0; CLASSES] }
    }

    /// The cache that there is.
    pub fn cache_bytes(&self) -> u64 {
        self.cache_blocks * BLOCK_BYTES
    }

    /// Of a larger cache than this nothing is known but that it hits no less.
    pub fn deepest_bytes(&self) -> u64 {
        self.deepest_blocks * BLOCK_BYTES
    }

    /// Blocks read by clients.
    pub fn blocks_read(&self) -> u64 {
        self.reads
    }

    /// How much of what was read a cache of this size would have hit, ordered by age; none where too little was read to say.
    pub fn hit_ratio(&self, cache_bytes: u64) -> Option<f64> {
        let blocks = (cache_bytes / BLOCK_BYTES).min(self.deepest_blocks);
        let expected = self.reads as f64 / self.stride as f64;
        if self.sampled == 0 || expected < 1.0 {
            return None;
        }
        // What was sampled too much or too little is hot blocks, of which there are few (SHARDS-adj in the paper).
        let astray = if blocks > 0 { expected - self.sampled as f64 } else { 0.0 };
        Some(((self.reused_within(blocks) + astray) / expected).clamp(0.0, 1.0))
    }

    /// Sampled reads whose distance is at most this.
    fn reused_within(&self, blocks: u64) -> f64 {
        let mut within = 0.0;
        let mut from = 0;
        for (class, &count) in self.distances.iter().enumerate() {
            let to = edge_above(class) - 1;
            if to > blocks {
                // Evenly spread within the class.
                return within + count as f64 * (blocks - from) as f64 / (to - from) as f64;
            }
            within += count as f64;
            from = to;
        }
        within
    }

    /// The smallest cache that hits nearly (0.99) as much as the largest known would: what is used again. None where nothing
    /// was.
    pub fn working_set_bytes(&self) -> Option<u64> {
        let all: u64 = self.distances.iter().sum();
        let mut within = 0;
        let class = self.distances.iter().position(|&count| {
            within += count;
            count > 0 && within * 100 >= all * 99
        })?;
        Some((edge_above(class) - 1).min(self.deepest_blocks) * BLOCK_BYTES)
    }

    /// Adds what another look at the same volume has counted.
    pub fn merge(&mut self, other: &MissRatio) {
        self.reads += other.reads;
        self.sampled += other.sampled;
        for (own, more) in self.distances.iter_mut().zip(&other.distances) {
            *own += more;
        }
    }

    /// What was counted since an earlier look. A look of another life, or with another cache, counts for nothing.
    pub fn minus(&self, earlier: &MissRatio) -> MissRatio {
        let mut since = self.clone();
        let grew = earlier.reads <= self.reads
            && (earlier.stride, earlier.cache_blocks) == (self.stride, self.cache_blocks)
            && earlier.distances.iter().zip(&self.distances).all(|(before, now)| before <= now);
        if grew && earlier.sampled <= self.sampled {
            since.reads -= earlier.reads;
            since.sampled -= earlier.sampled;
            for (own, before) in since.distances.iter_mut().zip(&earlier.distances) {
                *own -= before;
            }
        }
        since
    }

    /// All that it holds, in a fixed order.
    pub(super) fn numbers(&self) -> impl Iterator<Item = u64> + '_ {
        let MissRatio { stride, deepest_blocks, cache_blocks, reads, sampled, distances } = self;
        [*stride, *deepest_blocks, *cache_blocks, *reads, *sampled].into_iter().chain(distances.iter().copied())
    }

    /// Of what [`MissRatio::numbers`] gave.
    pub(super) fn of_numbers(next: &mut impl FnMut() -> u64) -> MissRatio {
        let [stride, deepest_blocks, cache_blocks] = [(); 3].map(|()| next().min(1 << 35));
        let [reads, sampled] = [(); 2].map(|()| next().min(KEPT_COUNT_MAX));
        // Of sampled blocks, which are few: their sum is taken a hundredfold when it is asked for the working set.
        let distances = core::array::from_fn(|_| next().min(1 << 32));
        MissRatio { stride: stride.max(1), deepest_blocks, cache_blocks, reads, sampled, distances }
    }

    fn count(&mut self, distance: u64) {
        self.distances[class_of(distance).min(CLASSES - 1)] += 1;
    }
}

/// Follows the uses of sampled blocks. All of its memory is taken at the beginning.
pub struct ReuseSampler {
    /// A block is sampled when its hash is below this.
    threshold: u64,
    /// Sampled blocks: each a block and its place in `order`.
    samples: Vec<(BlockIndex, u32)>,
    samples_max: usize,
    by_block: BlockMap,
    /// Samples by their last use; those whose bit is not set have been used again later.
    order: Vec<u32>,
    used: Vec<u64>,
    /// Set bits of each [`GROUP_WORDS`] words of `used`.
    used_of_group: Vec<u16>,
    /// The first place that nobody has had.
    next: usize,
    /// No place below this is used.
    oldest: usize,
}

const WORD_BITS: usize = 64;
const GROUP_WORDS: usize = 16;
const GROUP_BITS: usize = WORD_BITS * GROUP_WORDS;

impl ReuseSampler {
    /// For a curve in which nothing was counted yet.
    pub fn new(curve: &MissRatio) -> ReuseSampler {
        let samples_max = (curve.deepest_blocks / curve.stride) as usize;
        // So many places that squeezing out the unused ones is as rare as every so many samples.
        let places = (2 * samples_max).next_multiple_of(GROUP_BITS);
        ReuseSampler {
            threshold: u64::MAX / curve.stride,
            samples: Vec::with_capacity(samples_max),
            samples_max,
            by_block: BlockMap::with_capacity(samples_max),
            order: vec![0; places],
            used: vec![0; places / WORD_BITS],
            used_of_group: vec![0; places / GROUP_BITS],
            next: 0,
            oldest: 0,
        }
    }

    /// Memory that it takes, all of it from the beginning.
    pub fn bytes(&self) -> usize {
        self.samples.capacity() * size_of::<(BlockIndex, u32)>()
            + self.by_block.bytes()
            + self.order.len() * size_of::<u32>()
            + self.used.len() * size_of::<u64>()
            + self.used_of_group.len() * size_of::<u16>()
    }

    /// A client reads these blocks; counted in the curve.
    pub fn read(&mut self, curve: &mut MissRatio, first: BlockIndex, count: u64) {
        curve.reads += count;
        for block in first.0..first.0 + count {
            if hash(block) <= self.threshold {
                curve.sampled += 1;
                if let Some(between) = self.use_again(BlockIndex(block)) {
                    // A cache of one block more than lie in between has it.
                    curve.count(between * curve.stride + 1);
                }
            }
        }
    }

    /// A client writes these blocks: the cache has them now.
    pub fn touch(&mut self, first: BlockIndex, count: u64) {
        for block in first.0..first.0 + count {
            if hash(block) <= self.threshold {
                self.use_again(BlockIndex(block));
            }
        }
    }

    /// The sampled blocks that were used since this one was; none where it is new, or was forgotten.
    fn use_again(&mut self, block: BlockIndex) -> Option<u64> {
        if self.next == self.order.len() {
            self.squeeze();
        }
        let (sample, between) = match self.by_block.get(block) {
            Some(sample) => {
                let place = self.samples[sample as usize].1 as usize;
                let between = self.used_after(place);
                self.free(place);
                (sample, Some(between))
            }
            None => (self.take_sample(block), None),
        };
        let place = self.next;
        self.next += 1;
        self.order[place] = sample;
        self.used[place / WORD_BITS] |= 1 << (place % WORD_BITS);
        self.used_of_group[place / GROUP_BITS] += 1;
        self.samples[sample as usize].1 = place as u32;
        between
    }

    /// A sample for a new block: one that nobody has had, or that of the block that was not used for the longest time.
    fn take_sample(&mut self, block: BlockIndex) -> u32 {
        let sample = if self.samples.len() < self.samples_max {
            self.samples.push((block, 0));
            self.samples.len() as u32 - 1
        } else {
            self.oldest = self.first_used(self.oldest);
            let sample = self.order[self.oldest];
            self.free(self.oldest);
            self.by_block.remove(self.samples[sample as usize].0);
            self.samples[sample as usize].0 = block;
            sample
        };
        self.by_block.insert(block, sample);
        sample
    }

    fn free(&mut self, place: usize) {
        self.used[place / WORD_BITS] &= !(1 << (place % WORD_BITS));
        self.used_of_group[place / GROUP_BITS] -= 1;
    }

    /// The first used place from this one on; there is one.
    fn first_used(&self, from: usize) -> usize {
        let mut word = from / WORD_BITS;
        let mut bits = self.used[word] & (u64::MAX << (from % WORD_BITS));
        while bits == 0 {
            word += 1;
            bits = self.used[word];
        }
        word * WORD_BITS + bits.trailing_zeros() as usize
    }

    /// Used places after this one.
    fn used_after(&self, place: usize) -> u64 {
        let (word, group) = (place / WORD_BITS, place / GROUP_BITS);
        let in_word = (self.used[word] >> (place % WORD_BITS) >> 1).count_ones();
        let in_group = self.used[word + 1..(group + 1) * GROUP_WORDS].iter().map(|word| word.count_ones());
        let in_groups = self.used_of_group[group + 1..].iter().map(|&count| u64::from(count));
        u64::from(in_word + in_group.sum::<u32>()) + in_groups.sum::<u64>()
    }

    /// Moves all used places to the front, in their order.
    fn squeeze(&mut self) {
        let mut kept = 0;
        for word in 0..self.used.len() {
            let mut bits = core::mem::take(&mut self.used[word]);
            while bits != 0 {
                let sample = self.order[word * WORD_BITS + bits.trailing_zeros() as usize];
                bits &= bits - 1;
                self.order[kept] = sample;
                self.samples[sample as usize].1 = kept as u32;
                kept += 1;
            }
        }
        for (word, bits) in self.used.iter_mut().enumerate() {
            let here = kept.saturating_sub(word * WORD_BITS).min(WORD_BITS);
            *bits = if here == WORD_BITS { u64::MAX } else { (1 << here) - 1 };
        }
        for (group, count) in self.used_of_group.iter_mut().enumerate() {
            *count = kept.saturating_sub(group * GROUP_BITS).min(GROUP_BITS) as u16;
        }
        self.next = kept;
        self.oldest = 0;
    }
}

/// Neighbours, and blocks at any fixed distance, are sampled independently of each other (the end of splitmix64).
fn hash(block: u64) -> u64 {
    let x = (block ^ block >> 30).wrapping_add(0x9E37_79B9_7F4A_7C15).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let x = (x ^ x >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ x >> 31
}

#[cfg(test)]
mod tests;
