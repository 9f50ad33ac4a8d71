//! Threads on a CPU, and memory on a node: asked for, touched, and then looked at where it really is.

use anyhow::{Context, Result, bail};
use forebay_host::topology::{Cpu, NodeNumber};
use forebay_io::numa::stay_on;
use std::io;
use std::ptr::NonNull;

/// Buffers begin at, and are a multiple of, what one entry of a TLB maps with huge pages.
pub const HUGE_PAGE: usize = 2 << 20;
/// Pages of a buffer that are looked at; the specification of the measurement wants at least 64.
const PAGES_LOOKED_AT: usize = 64;
/// Numbers of nodes and CPUs that a mask of ours can hold: what the largest kernels are built for.
const MASK_BITS: usize = 8192;

type Mask = [u64; MASK_BITS / 64];

fn mask_of(number: u32) -> Result<Mask> {
    let mut mask = [0; MASK_BITS / 64];
    let Some(word) = mask.get_mut(number as usize / 64) else { bail!("number {number} is beyond {MASK_BITS}") };
    *word = 1 << (number % 64);
    Ok(mask)
}

/// Keeps the calling thread on one CPU.
pub fn pin(cpu: Cpu) -> Result<()> {
    stay_on(&[cpu])
        .with_context(|| format!("keep a thread on CPU {cpu}: it must be online and in this process's cpuset"))
}

/// Memory that is bound to one node.
pub struct Buffer {
    address: NonNull<u8>,
    bytes: usize,
    mapped: (*mut libc::c_void, usize),
}

// SAFETY: the memory belongs to the buffer alone, and is used through it.
unsafe impl Send for Buffer {}
// SAFETY: a shared buffer only gives its address away; what is done there says for itself why it may.
unsafe impl Sync for Buffer {}

impl Buffer {
    /// Maps memory, binds it to a node, writes to each page of it from the calling thread, and looks where the pages are. `bind`: the host has
    /// other nodes as well; where it has none, there is nothing to ask for.
    pub fn on(node: NodeNumber, bytes: usize, bind: bool) -> Result<Buffer> {
        let bytes = bytes.next_multiple_of(HUGE_PAGE);
        let length = bytes + HUGE_PAGE;
        let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: a new mapping at an address that the kernel chooses.
        let mapped = unsafe { libc::mmap(std::ptr::null_mut(), length, protection, flags, -1, 0) };
        if mapped == libc::MAP_FAILED {
            return Err(io::Error::last_os_error()).with_context(|| format!("map {length} bytes for node {node}"));
        }
        let start = mapped.cast::<u8>();
        // SAFETY: less than the HUGE_PAGE bytes that were mapped beyond the buffer.
        let start = unsafe { start.add(start.align_offset(HUGE_PAGE)) };
        let address = NonNull::new(start).context("a mapping at address 0")?;
        let buffer = Buffer { address, bytes, mapped: (mapped, length) };
        // SAFETY: the buffer's own pages. A kernel without huge pages refuses, and the report then says that there are none.
        unsafe { libc::madvise(start.cast(), bytes, libc::MADV_HUGEPAGE) };
        if bind {
            buffer.bind(node)?;
        }
        // SAFETY: the buffer's own bytes, which nobody else knows yet. Written, because a page that was only read is the one page of zeros.
        unsafe { start.write_bytes(1, bytes) };
        if bind {
            buffer.check(node)?;
        }
        Ok(buffer)
    }

    fn bind(&self, node: NodeNumber) -> Result<()> {
        // Of linux/mempolicy.h; libc has only the first.
        const MPOL_MF_STRICT: libc::c_ulong = 1;
        let mask = mask_of(node)?;
        // SAFETY: the buffer's own pages; the kernel reads one bit less than it is told that the mask has.
        let bound = unsafe {
            libc::syscall(
                libc::SYS_mbind,
                self.address.as_ptr(),
                self.bytes,
                libc::MPOL_BIND as libc::c_ulong,
                mask.as_ptr(),
                MASK_BITS as libc::c_ulong,
                MPOL_MF_STRICT,
            )
        };
        if bound != 0 {
            return Err(io::Error::last_os_error()).with_context(|| {
                format!(
                    "bind memory to node {node}: this process's cpuset must contain the node (Mems_allowed in \
                     /proc/self/status), and a container must allow mbind"
                )
            });
        }
        Ok(())
    }

    /// Whether the pages are where they were asked for.
    fn check(&self, node: NodeNumber) -> Result<()> {
        let step = (self.bytes / PAGES_LOOKED_AT).max(4096);
        let pages: Vec<usize> = (0..self.bytes).step_by(step).map(|at| self.address.as_ptr() as usize + at).collect();
        let mut at = vec![-1i32; pages.len()];
        // SAFETY: without a list of nodes nothing is moved: as many numbers are written as there are addresses.
        let looked = unsafe {
            libc::syscall(
                libc::SYS_move_pages,
                0,
                pages.len(),
                pages.as_ptr(),
                std::ptr::null::<i32>(),
                at.as_mut_ptr(),
                0,
            )
        };
        if looked != 0 {
            return Err(io::Error::last_os_error())
                .with_context(|| format!("ask where memory of node {node} is; a container must allow move_pages"));
        }
        match at.iter().find(|&&at| at != node as i32) {
            None => Ok(()),
            Some(other) => bail!("memory that was bound to node {node} is on node {other}"),
        }
    }

    /// Address of its first byte.
    pub fn address(&self) -> *mut u8 {
        self.address.as_ptr()
    }

    /// How many bytes it has.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether most of it is in huge pages: else what is measured is the TLB as well.
    pub fn is_huge(&self) -> bool {
        let smaps = std::fs::read_to_string("/proc/self/smaps").unwrap_or_default();
        let start = self.address.as_ptr() as usize;
        let range = start..start + self.bytes;
        huge_bytes(&smaps, &range) >= self.bytes / 10 * 9
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // SAFETY: mapped by us, and nobody has its address any longer.
        unsafe { libc::munmap(self.mapped.0, self.mapped.1) };
    }
}

/// Bytes in huge pages of the mappings that begin in a range, or hold its begin. The kernel joins neighbours to one mapping: what it counts of
/// such a one is at most the range's.
fn huge_bytes(smaps: &str, range: &std::ops::Range<usize>) -> usize {
    let (mut inside, mut huge) = (false, 0);
    for line in smaps.lines() {
        let first = line.split(' ').next().unwrap_or_default();
        if let Some((from, to)) = first.split_once('-')
            && let (Ok(from), Ok(to)) = (usize::from_str_radix(from, 16), usize::from_str_radix(to, 16))
        {
            inside = from < range.end && range.start < to;
        } else if inside && let Some(amount) = line.strip_prefix("AnonHugePages:") {
            let kilobytes: usize = amount.trim().trim_end_matches(" kB").parse().unwrap_or_default();
            huge += kilobytes * 1024;
        }
    }
    huge.min(range.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_io::numa::allowed_cpus;

    #[test]
    fn a_thread_stays_where_it_is_put_and_a_cpu_that_is_not_there_is_told() {
        std::thread::spawn(|| {
            let last = *allowed_cpus().expect("asked").last().expect("there is one");
            pin(last).expect("pinned");
            assert_eq!(allowed_cpus().expect("asked"), [last]);
            let error = pin(8191).expect_err("no such CPU");
            assert!(error.to_string().starts_with("keep a thread on CPU 8191"), "{error}");
            assert!(pin(1 << 20).is_err());
        })
        .join()
        .expect("no panic");
    }

    #[test]
    fn memory_of_a_node_is_there_and_of_a_node_that_is_not_there_is_refused() {
        let nodes = std::fs::read_to_string("/sys/devices/system/node/online").unwrap_or_default();
        let Ok(node) = nodes.trim().split(['-', ',']).next().unwrap_or_default().parse() else {
            forebay_tests::harness::skip("this kernel has no NUMA: /sys/devices/system/node/online is not there");
            return;
        };
        match Buffer::on(node, 3 << 20, true) {
            Ok(buffer) => {
                assert_eq!((buffer.bytes(), buffer.address() as usize % HUGE_PAGE), (4 << 20, 0));
                // SAFETY: a byte of the buffer.
                assert_eq!(unsafe { *buffer.address().add((4 << 20) - 1) }, 1);
            }
            Err(why) if format!("{why:#}").contains("not permitted") => {
                forebay_tests::harness::skip(&format!("{why:#}"));
                return;
            }
            Err(why) => panic!("{why:#}"),
        }
        let error = Buffer::on(1000, 1 << 20, true).err().expect("there is no such node");
        assert!(error.to_string().starts_with("bind memory to node 1000"), "{error}");
    }

    #[test]
    fn huge_pages_are_counted_of_the_buffer_alone() {
        let smaps = "7f0000000000-7f0000400000 rw-p 00000000 00:00 0 \nSize: 4096 kB\nAnonHugePages:      4096 kB\n\
                     7f0000800000-7f0000a00000 rw-p 00000000 00:00 0 \nAnonHugePages:      2048 kB\n";
        let range = |from: usize, bytes| 0x7f00_0000_0000 + from..0x7f00_0000_0000 + from + bytes;
        assert_eq!(huge_bytes(smaps, &range(0, 4 << 20)), 4 << 20);
        assert_eq!(huge_bytes(smaps, &range(2 << 20, 2 << 20)), 2 << 20);
        assert_eq!(huge_bytes(smaps, &range(4 << 20, 2 << 20)), 0);
        assert_eq!(huge_bytes(smaps, &range(8 << 20, 2 << 20)), 2 << 20);
    }
}
