//! The inner loops: what reads and writes memory as fast as one core can, in the widest instructions that it has.
//!
//! Stores come in two kinds. A normal one makes the core read the line before (RFO) and write it back later: two bytes on the bus for each byte of
//! the program. One past the caches (non-temporal) is one.

use std::hint::black_box;

/// What is written, and never zeros: some CPUs bring a line of zeros to memory at half its cost.
const WRITTEN: u8 = 0x5a;

/// What a block of memory is used for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mix {
    /// All bytes are read.
    Read,
    /// Two bytes read, one written past the caches.
    TwoToOne,
    /// One byte read, one written past the caches.
    OneToOne,
    /// Writes past the caches.
    WritePast,
    /// Writes as programs do.
    Write,
}

impl Mix {
    /// Every mix that there is.
    pub const ALL: [Mix; 5] = [Mix::Read, Mix::TwoToOne, Mix::OneToOne, Mix::WritePast, Mix::Write];

    /// Bytes read to bytes written, as these mixes are commonly named; `NT` is past the caches (non-temporal).
    pub fn figures(self) -> &'static str {
        match self {
            Mix::Read => "1R",
            Mix::TwoToOne => "2R:1W NT",
            Mix::OneToOne => "1R:1W NT",
            Mix::WritePast => "1W NT",
            Mix::Write => "1W",
        }
    }

    /// Streams that it goes through side by side.
    pub fn streams(self) -> usize {
        match self {
            Mix::Read | Mix::WritePast | Mix::Write => 1,
            Mix::OneToOne => 2,
            Mix::TwoToOne => 3,
        }
    }

    /// Bytes on the memory bus for each byte of the program. None where the machine decides: ARM cores notice that whole lines are written.
    pub fn bus_bytes(self) -> Option<f64> {
        match self {
            Mix::Read => Some(1.0),
            Mix::Write => cfg!(target_arch = "x86_64").then_some(2.0),
            Mix::TwoToOne | Mix::OneToOne | Mix::WritePast => cfg!(target_arch = "x86_64").then_some(1.0),
        }
    }
}

/// Uses `bytes` at `a`, and at `b` and `c` where a mix has so many streams: the last of them is written.
type Loop = unsafe fn(a: *mut u8, b: *mut u8, c: *mut u8, bytes: usize);

/// The loops of one kind of instruction.
#[derive(Clone, Copy)]
pub struct Kernels {
    /// What they are, as in `AVX2`.
    pub name: &'static str,
    read: Loop,
    two_to_one: Loop,
    one_to_one: Loop,
    write_past: Loop,
    write: Loop,
}

impl Kernels {
    /// The widest that this CPU has. AVX-512 is left out: memory is the bound long before, and some CPUs lower their clock for it.
    pub fn best() -> Kernels {
        #[cfg(target_arch = "x86_64")]
        let best = if is_x86_feature_detected!("avx2") { avx2::KERNELS } else { sse2::KERNELS };
        #[cfg(target_arch = "aarch64")]
        let best = neon::KERNELS;
        #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
        let best = words::KERNELS;
        best
    }

    /// Goes once through `bytes` of each of the mix's streams.
    ///
    /// # Safety
    ///
    /// Each stream has `bytes` bytes that nobody else writes; it begins at a multiple of 64, and `bytes` is a multiple of 256, eight of the widest vectors.
    pub unsafe fn run(&self, mix: Mix, streams: [*mut u8; 3], bytes: usize) {
        let [a, b, c] = streams;
        let run = match mix {
            Mix::Read => self.read,
            Mix::TwoToOne => self.two_to_one,
            Mix::OneToOne => self.one_to_one,
            Mix::WritePast => self.write_past,
            Mix::Write => self.write,
        };
        // SAFETY: as the caller promises; and these loops were chosen for what this CPU has.
        unsafe { run(a, b, c, bytes) }
    }
}

/// The five loops over a type of `$bytes` bytes. `$load`, `$xor`, `$store`, `$stream` take pointers to it; `$fence` orders what went past the caches.
macro_rules! kernels {
    ($module:ident, $name:literal, $feature:literal, $vector:ty, $bytes:literal, $zero:expr, $load:path, $xor:path, $store:path, $stream:path, $fence:path) => {
        mod $module {
            use super::{Kernels, WRITTEN, black_box};
            #[cfg(target_arch = "aarch64")]
            use std::arch::aarch64::*;
            #[cfg(target_arch = "x86_64")]
            use std::arch::x86_64::*;

            pub const KERNELS: Kernels = Kernels { name: $name, read, two_to_one, one_to_one, write_past, write };

            #[target_feature(enable = $feature)]
            unsafe fn read(a: *mut u8, _: *mut u8, _: *mut u8, bytes: usize) {
                // SAFETY: within the bytes that the caller promises; a step is at most eight vectors, which divide them.
                unsafe {
                    // Four chains, so that no load waits for the sum of the one before.
                    let mut sums: [$vector; 4] = [$zero; 4];
                    for at in (0..bytes).step_by(8 * $bytes) {
                        let from = a.add(at).cast::<$vector>();
                        sums[0] = $xor($xor(sums[0], $load(from.cast())), $load(from.add(1).cast()));
                        sums[1] = $xor($xor(sums[1], $load(from.add(2).cast())), $load(from.add(3).cast()));
                        sums[2] = $xor($xor(sums[2], $load(from.add(4).cast())), $load(from.add(5).cast()));
                        sums[3] = $xor($xor(sums[3], $load(from.add(6).cast())), $load(from.add(7).cast()));
                    }
                    black_box(sums);
                }
            }

            /// Not known to the compiler, which would else make a call of memset of a loop that writes it.
            fn written() -> $vector {
                // SAFETY: a vector is so many bytes, and any are valid.
                unsafe { std::mem::transmute(black_box([WRITTEN; $bytes])) }
            }

            #[target_feature(enable = $feature)]
            unsafe fn two_to_one(a: *mut u8, b: *mut u8, c: *mut u8, bytes: usize) {
                // SAFETY: as for read.
                unsafe {
                    // Both streams may hold the same, which would make zeros.
                    let value = written();
                    for at in (0..bytes).step_by(2 * $bytes) {
                        let (a, b) = (a.add(at).cast::<$vector>(), b.add(at).cast::<$vector>());
                        let to = c.add(at).cast::<$vector>();
                        $stream(to.cast(), $xor(value, $xor($load(a.cast()), $load(b.cast()))));
                        $stream(to.add(1).cast(), $xor(value, $xor($load(a.add(1).cast()), $load(b.add(1).cast()))));
                    }
                    $fence();
                }
            }

            #[target_feature(enable = $feature)]
            unsafe fn one_to_one(a: *mut u8, b: *mut u8, _: *mut u8, bytes: usize) {
                // SAFETY: as for read.
                unsafe {
                    for at in (0..bytes).step_by(2 * $bytes) {
                        let (from, to) = (a.add(at).cast::<$vector>(), b.add(at).cast::<$vector>());
                        $stream(to.cast(), $load(from.cast()));
                        $stream(to.add(1).cast(), $load(from.add(1).cast()));
                    }
                    $fence();
                }
            }

            #[target_feature(enable = $feature)]
            unsafe fn write_past(a: *mut u8, _: *mut u8, _: *mut u8, bytes: usize) {
                // SAFETY: as for read.
                unsafe {
                    let value = written();
                    for at in (0..bytes).step_by(4 * $bytes) {
                        let to = a.add(at).cast::<$vector>();
                        $stream(to.cast(), value);
                        $stream(to.add(1).cast(), value);
                        $stream(to.add(2).cast(), value);
                        $stream(to.add(3).cast(), value);
                    }
                    $fence();
                }
            }

            #[target_feature(enable = $feature)]
            unsafe fn write(a: *mut u8, _: *mut u8, _: *mut u8, bytes: usize) {
                // SAFETY: as for read.
                unsafe {
                    let value = written();
                    for at in (0..bytes).step_by(4 * $bytes) {
                        let to = a.add(at).cast::<$vector>();
                        $store(to.cast(), value);
                        $store(to.add(1).cast(), value);
                        $store(to.add(2).cast(), value);
                        $store(to.add(3).cast(), value);
                    }
                }
            }
        }
    };
}

#[cfg(target_arch = "x86_64")]
kernels!(
    avx2,
    "AVX2",
    "avx2",
    __m256i,
    32,
    _mm256_setzero_si256(),
    _mm256_load_si256,
    _mm256_xor_si256,
    _mm256_store_si256,
    _mm256_stream_si256,
    _mm_sfence
);

#[cfg(target_arch = "x86_64")]
kernels!(
    sse2,
    "SSE2",
    "sse2",
    __m128i,
    16,
    _mm_setzero_si128(),
    _mm_load_si128,
    _mm_xor_si128,
    _mm_store_si128,
    _mm_stream_si128,
    _mm_sfence
);

#[cfg(target_arch = "aarch64")]
kernels!(
    neon,
    "NEON",
    "neon",
    uint8x16_t,
    16,
    vdupq_n_u8(0),
    vld1q_u8,
    veorq_u8,
    vst1q_u8,
    super::store_pair_past,
    super::no_fence
);

/// A store with the hint that nobody will read it soon. The instruction wants a pair; twice the half of one vector is one.
#[cfg(target_arch = "aarch64")]
unsafe fn store_pair_past(to: *mut u8, value: std::arch::aarch64::uint8x16_t) {
    use std::arch::aarch64::{vget_high_u8, vget_low_u8};
    // SAFETY: 16 bytes that the caller promises; the instruction writes these and nothing else.
    unsafe {
        let (low, high) = (vget_low_u8(value), vget_high_u8(value));
        std::arch::asm!("stnp {low:d}, {high:d}, [{to}]", low = in(vreg) low, high = in(vreg) high, to = in(reg) to,
            options(nostack, preserves_flags));
    }
}

/// The hint of ARM leaves the order of stores alone.
#[cfg(target_arch = "aarch64")]
fn no_fence() {}

/// Without vectors, for what else there is.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
mod words {
    use super::{Kernels, WRITTEN, black_box};

    pub const KERNELS: Kernels =
        Kernels { name: "64-bit words", read, two_to_one, one_to_one, write_past: write, write };

    unsafe fn read(a: *mut u8, _: *mut u8, _: *mut u8, bytes: usize) {
        let mut sum = 0;
        for at in (0..bytes).step_by(8) {
            // SAFETY: within the bytes that the caller promises.
            sum ^= unsafe { a.add(at).cast::<u64>().read() };
        }
        black_box(sum);
    }

    unsafe fn two_to_one(a: *mut u8, b: *mut u8, c: *mut u8, bytes: usize) {
        for at in (0..bytes).step_by(8) {
            // SAFETY: as for read.
            unsafe { c.add(at).cast::<u64>().write(a.add(at).cast::<u64>().read() ^ b.add(at).cast::<u64>().read()) };
        }
    }

    unsafe fn one_to_one(a: *mut u8, b: *mut u8, _: *mut u8, bytes: usize) {
        for at in (0..bytes).step_by(8) {
            // SAFETY: as for read.
            unsafe { b.add(at).cast::<u64>().write(a.add(at).cast::<u64>().read()) };
        }
    }

    unsafe fn write(a: *mut u8, _: *mut u8, _: *mut u8, bytes: usize) {
        let value = black_box(u64::from_ne_bytes([WRITTEN; 8]));
        for at in (0..bytes).step_by(8) {
            // SAFETY: as for read.
            unsafe { a.add(at).cast::<u64>().write(value) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::matrix::place::Buffer;

    const BYTES: usize = 64 << 10;

    fn all_of_this_cpu() -> Vec<Kernels> {
        #[cfg(target_arch = "x86_64")]
        let mut all = vec![sse2::KERNELS];
        #[cfg(target_arch = "x86_64")]
        all.extend(is_x86_feature_detected!("avx2").then_some(avx2::KERNELS));
        #[cfg(not(target_arch = "x86_64"))]
        let all = vec![Kernels::best()];
        all
    }

    /// Bytes of three streams after a mix went over them; they held 3, 5 and 9.
    fn after(kernels: &Kernels, mix: Mix) -> [Vec<u8>; 3] {
        let buffer = Buffer::on(0, 3 * BYTES, false).expect("mapped");
        // SAFETY: within the buffer.
        let streams = [0, 1, 2].map(|number| unsafe { buffer.address().add(number * BYTES) });
        for (stream, value) in streams.into_iter().zip([3, 5, 9]) {
            // SAFETY: its own bytes.
            unsafe { stream.write_bytes(value, BYTES) };
        }
        // SAFETY: disjoint parts of the buffer, at multiples of 64 KiB.
        unsafe { kernels.run(mix, streams, BYTES) };
        // SAFETY: written above, and nobody writes any longer.
        streams.map(|stream| unsafe { std::slice::from_raw_parts(stream, BYTES) }.to_vec())
    }

    #[test]
    fn each_mix_reads_and_writes_the_whole_of_its_streams_and_nothing_else() {
        let holds = |stream: &Vec<u8>, value| stream.iter().all(|&byte| byte == value);
        for kernels in all_of_this_cpu() {
            let expected = [
                (Mix::Read, [3, 5, 9]),
                (Mix::TwoToOne, [3, 5, 3 ^ 5 ^ WRITTEN]),
                (Mix::OneToOne, [3, 3, 9]),
                (Mix::WritePast, [WRITTEN, 5, 9]),
                (Mix::Write, [WRITTEN, 5, 9]),
            ];
            for (mix, values) in expected {
                let streams = after(&kernels, mix);
                for (stream, value) in streams.iter().zip(values) {
                    assert!(holds(stream, value), "{} {mix:?}", kernels.name);
                }
            }
        }
    }
}
