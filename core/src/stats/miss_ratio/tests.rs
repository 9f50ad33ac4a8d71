//! The sampled curve beside the true one.

use super::*;

/// True reuse distances, of all blocks: a tree of counts over the times of last use (Olken).
struct Exact {
    /// When each block was used last; 0: never.
    last: Vec<u32>,
    tree: Vec<u32>,
    now: usize,
    /// Reads by the size of the cache that would have hit.
    hits: Vec<u64>,
    reads: u64,
}

impl Exact {
    fn new(blocks: u64, uses: usize) -> Exact {
        let hits = vec![0; blocks as usize + 2];
        Exact { last: vec![0; blocks as usize], tree: vec![0; uses + 1], now: 0, hits, reads: 0 }
    }

    fn add(&mut self, mut at: usize, change: i32) {
        while at < self.tree.len() {
            self.tree[at] = self.tree[at].wrapping_add_signed(change);
            at += at & at.wrapping_neg();
        }
    }

    fn up_to(&self, mut at: usize) -> u64 {
        let mut sum = 0;
        while at > 0 {
            sum += u64::from(self.tree[at]);
            at &= at - 1;
        }
        sum
    }

    fn use_block(&mut self, block: u64, reads: bool) {
        self.now += 1;
        self.reads += u64::from(reads);
        let last = core::mem::replace(&mut self.last[block as usize], self.now as u32) as usize;
        if last > 0 {
            let between = self.up_to(self.now) - self.up_to(last);
            self.hits[between as usize + 1] += u64::from(reads);
            self.add(last, -1);
        }
        self.add(self.now, 1);
    }

    fn hit_ratio(&self, cache: u64) -> f64 {
        self.hits[..=cache as usize].iter().sum::<u64>() as f64 / self.reads as f64
    }
}

struct Random {
    state: u64,
    place: u64,
}

impl Random {
    fn new(seed: u64) -> Random {
        Random { state: seed, place: seed * 7_919 }
    }

    fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        let x = self.state ^ self.state >> 33;
        x.wrapping_mul(0xFF51_AFD7_ED55_8CCD) >> 11
    }

    fn unit(&mut self) -> f64 {
        self.next() as f64 / (1u64 << 53) as f64
    }

    /// Of `n` blocks, few most of the time: the rank's share falls with its power `s` (inverse of the continuous form).
    fn zipf(&mut self, n: u64, s: f64) -> u64 {
        let u = self.unit();
        let rank = if (s - 1.0).abs() < 1e-9 {
            (u * (n as f64).ln()).exp()
        } else {
            ((n as f64).powf(1.0 - s) * u + 1.0 - u).powf(1.0 / (1.0 - s))
        };
        // Hot blocks lie anywhere.
        ((rank as u64 - 1) * 0x9E37_79B1 + self.place) % n
    }
}

/// A curve and what follows the uses for it.
struct Sampled {
    curve: MissRatio,
    sampler: ReuseSampler,
}

impl Sampled {
    fn of(curve: MissRatio) -> Sampled {
        let sampler = ReuseSampler::new(&curve);
        Sampled { curve, sampler }
    }

    fn with(cache_blocks: u64, stride: u64, samples_max: usize) -> Sampled {
        Sampled::of(MissRatio::with(cache_blocks, stride, samples_max))
    }

    fn read(&mut self, first: u64, count: u64) {
        self.sampler.read(&mut self.curve, BlockIndex(first), count);
    }

    fn hit_ratio(&self, blocks: u64) -> Option<f64> {
        self.curve.hit_ratio(blocks * BLOCK_BYTES)
    }
}

/// Both curves of one trace, from half the cache to all of the blocks: the largest difference, at which size.
fn error_of(blocks: u64, stride: u64, uses: usize, mut next: impl FnMut(usize) -> (u64, bool)) -> (f64, u64) {
    let mut sampled = Sampled::with(blocks / DEEPEST_TIMES, stride, (blocks / stride) as usize);
    let mut exact = Exact::new(blocks, uses);
    for step in 0..uses {
        let (block, reads) = next(step);
        exact.use_block(block, reads);
        match reads {
            true => sampled.read(block, 1),
            false => sampled.sampler.touch(BlockIndex(block), 1),
        }
    }
    assert_eq!(sampled.curve.blocks_read(), exact.reads);
    let error = |cache: u64| (sampled.hit_ratio(cache).unwrap() - exact.hit_ratio(cache)).abs();
    let sizes = (4..64).map(|part| blocks * part / 64);
    sizes.map(|cache| (error(cache), cache)).max_by(|a, b| a.0.total_cmp(&b.0)).unwrap()
}

const BLOCKS: u64 = 100_000;

#[test]
fn a_sample_of_one_in_a_hundred_blocks_gives_zipf_curves_within_five_hundredths() {
    for (stride, seed) in [(16, 0), (100, 10)] {
        let blocks = stride * SAMPLED_MAX as u64;
        for (more, s) in [(1, 0.6), (2, 0.8), (3, 1.0), (4, 1.2)] {
            let mut random = Random::new(seed + more);
            let (error, cache) = error_of(blocks, stride, 1_000_000, |_| (random.zipf(blocks, s), true));
            std::println!("one in {stride}, exponent {s}: {error:.4} at {cache} blocks");
            assert!(error < 0.05, "one in {stride}, exponent {s}: {error} at {cache} blocks");
        }
    }
}

#[test]
fn a_loop_is_all_miss_below_its_length_and_all_hit_above() {
    let looped = BLOCKS / 2;
    let mut sampled = Sampled::with(BLOCKS / 8, 16, BLOCKS as usize / 8);
    for _ in 0..10 {
        sampled.read(7_000, looped);
    }
    let ratio = |blocks: u64| sampled.hit_ratio(blocks).unwrap();
    assert!(ratio(looped * 8 / 10) < 0.02, "{}", ratio(looped * 8 / 10));
    assert!((ratio(looped * 12 / 10) - 0.9).abs() < 0.02, "{}", ratio(looped * 12 / 10));
    let working_set = sampled.curve.working_set_bytes().unwrap() as f64 / (looped * BLOCK_BYTES) as f64;
    assert!((working_set - 1.0).abs() < 0.15, "{working_set} of the loop");
}

#[test]
fn scans_between_hot_reads_and_writes_leave_the_curve_true() {
    let mut random = Random::new(9);
    let hot = BLOCKS / 10;
    let (error, cache) = error_of(BLOCKS, 16, 500_000, |step| match step % 4 {
        0 => (step as u64 / 4 % BLOCKS, true),
        1 => (random.next() % hot, false),
        _ => (random.next() % hot, true),
    });
    assert!(error < 0.05, "{error} at {cache} blocks");
}

#[test]
fn a_hot_set_is_seen_again_after_a_scan_of_a_thousand_times_the_cache() {
    let cache = 16_384;
    let mut sampled = Sampled::of(MissRatio::new(cache));
    sampled.read(1 << 30, cache * 1_000);
    let before = sampled.curve.clone();
    let scanned = before.hit_ratio(before.cache_bytes()).unwrap();
    assert!(scanned < 0.005, "a scan hits nothing: {scanned}");
    for _ in 0..20 {
        sampled.read(0, cache / 2);
    }
    let since = sampled.curve.minus(&before);
    let ratio = since.hit_ratio(since.cache_bytes()).unwrap();
    assert!((ratio - 0.95).abs() < 0.02, "the first pass misses, nineteen hit: {ratio}");
    assert!(since.hit_ratio(since.cache_bytes() / 4).unwrap() < 0.05);
}

#[test]
fn a_written_block_is_in_the_cache_and_no_read() {
    let mut sampled = Sampled::with(1 << 14, 1, 1 << 14);
    sampled.sampler.touch(BlockIndex(0), 1_000);
    assert_eq!(sampled.curve.hit_ratio(1 << 20), None, "nothing was read");
    sampled.read(0, 1_000);
    let ratio = |blocks: u64| sampled.hit_ratio(blocks).unwrap();
    assert_eq!((sampled.curve.blocks_read(), ratio(500), ratio(1_100)), (1_000, 0.0, 1.0));
}

#[test]
fn every_block_sampled_gives_the_true_curve_through_all_that_is_forgotten_and_squeezed() {
    let (blocks, samples) = (3_000, 1_024);
    let mut sampled = Sampled::with(64, 1, samples);
    let mut exact = Exact::new(blocks, 60_000);
    let mut random = Random::new(10);
    for step in 0..60_000 {
        let block = if step % 3 == 0 { step as u64 % blocks } else { random.zipf(blocks, 0.9) };
        exact.use_block(block, true);
        sampled.read(block, 1);
        assert!(sampled.sampler.by_block.len() <= samples && sampled.sampler.samples.len() <= samples);
    }
    // Where an edge of a class is, both are the same number.
    for cache in [1, 3, 7, 15, 127, 1_023] {
        assert_eq!(sampled.hit_ratio(cache), Some(exact.hit_ratio(cache)), "{cache} blocks");
    }
}

#[test]
fn the_largest_cache_and_the_smallest_have_the_same_memory() {
    for cache in [64, 16 << 20] {
        let mut sampled = Sampled::of(MissRatio::new(cache));
        sampled.read((1 << 34) - 200_000, 200_000);
        assert!(sampled.curve.deepest_bytes() >= 8 * sampled.curve.cache_bytes());
        let bytes = sampled.sampler.bytes();
        assert!(bytes < 384 << 10, "{bytes}");
    }
}
