//! Threads on the CPUs of a NUMA node, and memory on it: asked for, and looked at where it really is.
//!
//! Which node that should be is for others to decide.

use crate::memory::Mapping;
use std::collections::BTreeMap;
use std::io;
use std::marker::PhantomData;

/// Numbers of nodes and CPUs that a mask of ours can hold: what the largest kernels are built for.
const MASK_BITS: usize = 8192;
/// Pages of a mapping that are looked at for where it lies: enough that a share is told to two in a hundred, and a few
/// microseconds' work however large the mapping is.
const PAGES_LOOKED_AT: usize = 64;

type Mask = [u64; MASK_BITS / 64];

fn mask_of(numbers: &[u32]) -> io::Result<Mask> {
    let mut mask = [0; MASK_BITS / 64];
    for &number in numbers {
        let word: Option<&mut u64> = mask.get_mut(number as usize / 64);
        let beyond = || io::Error::new(io::ErrorKind::InvalidInput, format!("number {number} is beyond {MASK_BITS}"));
        *word.ok_or_else(beyond)? |= 1 << (number % 64);
    }
    Ok(mask)
}

/// The CPUs that the calling thread may run on.
pub fn allowed_cpus() -> io::Result<Vec<u32>> {
    let mut mask: Mask = [0; MASK_BITS / 64];
    // SAFETY: the kernel writes at most as many bytes as the mask has.
    let got = unsafe { libc::syscall(libc::SYS_sched_getaffinity, 0, size_of::<Mask>(), mask.as_mut_ptr()) };
    if got < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok((0..MASK_BITS as u32).filter(|&cpu| mask[cpu as usize / 64] & (1 << (cpu % 64)) != 0).collect())
}

/// Keeps the calling thread, and those that it starts from now on, on these CPUs.
pub fn stay_on(cpus: &[u32]) -> io::Result<()> {
    let mask = mask_of(cpus)?;
    // SAFETY: the kernel reads as many bytes as the mask has; 0 is the calling thread.
    let set = unsafe { libc::syscall(libc::SYS_sched_setaffinity, 0, size_of::<Mask>(), mask.as_ptr()) };
    if set == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Has the calling thread's new memory come from a node, as long as that has room: what is demanded of a full node (`MPOL_BIND`) ends in
/// the death of processes while other nodes have memory.
pub fn prefer(node: u32) -> io::Result<()> {
    set_policy(libc::MPOL_PREFERRED, &mask_of(&[node])?)
}

fn set_policy(mode: libc::c_int, mask: &Mask) -> io::Result<()> {
    // SAFETY: the kernel reads one bit less than it is told that the mask has.
    let set = unsafe {
        libc::syscall(libc::SYS_set_mempolicy, mode as libc::c_long, mask.as_ptr(), MASK_BITS as libc::c_ulong)
    };
    if set == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// The calling thread prefers a node until this goes; then it prefers what it did before.
#[derive(Debug)]
pub struct Preferring {
    mode: libc::c_int,
    mask: Mask,
    /// Of this thread, and no other.
    _here: PhantomData<*const ()>,
}

impl Preferring {
    /// Notes what the calling thread prefers now, then has it prefer this node as [`prefer`] does.
    pub fn node(node: u32) -> io::Result<Preferring> {
        let (mut mode, mut mask): (libc::c_int, Mask) = (0, [0; MASK_BITS / 64]);
        // SAFETY: places for the mode and for as many bits as are told; without an address and flags it is the thread's policy.
        let got = unsafe {
            libc::syscall(
                libc::SYS_get_mempolicy,
                &raw mut mode,
                mask.as_mut_ptr(),
                MASK_BITS as libc::c_ulong,
                std::ptr::null::<u8>(),
                0 as libc::c_ulong,
            )
        };
        if got != 0 {
            return Err(io::Error::last_os_error());
        }
        prefer(node)?;
        Ok(Preferring { mode, mask, _here: PhantomData })
    }
}

impl Drop for Preferring {
    fn drop(&mut self) {
        // What the kernel has just told it takes back. If it did not, the thread would prefer a node, which costs no data.
        let _ = set_policy(self.mode, &self.mask);
    }
}

/// Has a mapping's pages come from a node from now on, whoever touches them, as long as that has room; those that are there stay where they
/// are. Also keeps the kernel from taking the pages away now and then to see who misses them (NUMA balancing), which would slow who does.
pub fn prefer_for(mapping: &Mapping, node: u32) -> io::Result<()> {
    let mask = mask_of(&[node])?;
    // SAFETY: the mapping's own pages, of which nothing changes; the kernel reads one bit less than it is told that the mask has.
    let bound = unsafe {
        libc::syscall(
            libc::SYS_mbind,
            mapping.as_ptr(),
            mapping.len(),
            libc::MPOL_PREFERRED as libc::c_ulong,
            mask.as_ptr(),
            MASK_BITS as libc::c_ulong,
            0 as libc::c_ulong,
        )
    };
    if bound == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// On which nodes pages of a mapping are, of a few all over it: how many on each. Pages that were never touched are on none.
pub fn nodes_of(mapping: &Mapping) -> io::Result<BTreeMap<u32, u32>> {
    let step = (mapping.len() / PAGES_LOOKED_AT).next_multiple_of(4096).max(4096);
    let pages: Vec<usize> = (0..mapping.len()).step_by(step).map(|at| mapping.as_ptr() as usize + at).collect();
    if mapping.is_of_file() {
        // Of a file that is there the kernel only knows where the pages are that this process has looked at.
        for &page in &pages {
            // SAFETY: a page of the mapping, of which nothing changes. Kernels before 5.14 refuse, and fewer pages are told.
            unsafe { libc::madvise(page as *mut libc::c_void, 4096, libc::MADV_POPULATE_READ) };
        }
    }
    let mut at = vec![-1i32; pages.len()];
    // SAFETY: without a list of nodes nothing is moved: as many numbers are written as there are addresses, of which the kernel
    // checks each.
    let looked = unsafe {
        libc::syscall(libc::SYS_move_pages, 0, pages.len(), pages.as_ptr(), std::ptr::null::<i32>(), at.as_mut_ptr(), 0)
    };
    if looked != 0 {
        return Err(io::Error::last_os_error());
    }
    let mut nodes = BTreeMap::new();
    for node in at.into_iter().filter_map(|node| u32::try_from(node).ok()) {
        *nodes.entry(node).or_default() += 1;
    }
    Ok(nodes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    /// Past the test runner, which keeps to itself what a test that passes says.
    fn skip(why: &str) {
        let _ = writeln!(std::io::stderr(), "SKIPPED where memory is on this host: {why}");
    }

    fn of_this_thread(name: &str) -> String {
        let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
        status.lines().find_map(|line| line.strip_prefix(name)).unwrap().trim().to_owned()
    }

    #[test]
    fn a_thread_and_those_it_starts_stay_where_it_is_put_and_others_do_not() {
        let before = of_this_thread("Cpus_allowed_list:");
        std::thread::spawn(|| {
            let last = *allowed_cpus().unwrap().last().unwrap();
            stay_on(&[last]).unwrap();
            assert_eq!(allowed_cpus().unwrap(), [last]);
            assert_eq!(std::thread::spawn(|| of_this_thread("Cpus_allowed_list:")).join().unwrap(), last.to_string());
            assert!(stay_on(&[8191]).is_err());
            assert!(stay_on(&[1 << 20]).is_err());
        })
        .join()
        .unwrap();
        assert_eq!(of_this_thread("Cpus_allowed_list:"), before);
    }

    #[test]
    fn memory_that_was_preferred_to_be_on_a_node_is_found_there_and_what_nobody_touched_nowhere() {
        let node = of_this_thread("Mems_allowed_list:");
        let node = node.split(['-', ',']).next().unwrap().parse().unwrap();
        let preferring = match Preferring::node(node) {
            Ok(preferring) => preferring,
            Err(why) => return skip(&format!("the kernel has no policies of memory: {why}")),
        };
        let touched = Mapping::anonymous(1 << 20, true).unwrap();
        let nodes = match nodes_of(&touched) {
            Ok(nodes) => nodes,
            Err(why) => return skip(&format!("the kernel does not say it: {why}")),
        };
        assert_eq!(nodes.keys().collect::<Vec<_>>(), [&node]);
        assert_eq!(nodes_of(&Mapping::anonymous(64 << 20, false).unwrap()).unwrap(), BTreeMap::new());
        prefer_for(&touched, node).unwrap();
        assert!(prefer_for(&touched, 1000).is_err());
        assert_eq!(nodes_of(&touched).unwrap(), nodes);
        // Of numa_maps: what the thread's policy is.
        let policy = || std::fs::read_to_string("/proc/thread-self/numa_maps").unwrap_or_default();
        assert!(
            policy().is_empty() || policy().contains(&format!("prefer:{node}")) || policy().contains("prefer (many)")
        );
        // Its pages are preferred there for good.
        drop(touched);
        drop(preferring);
        assert!(!policy().contains("prefer"));
        assert!(Preferring::node(1000).is_err());
    }

    #[test]
    fn pages_of_a_file_are_found_that_this_process_has_not_looked_at_yet() {
        let path = std::env::temp_dir().join(format!("forebay-numa-{}", std::process::id()));
        let mut file = std::fs::File::options().read(true).write(true).create_new(true).open(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        file.write_all(&[1; 1 << 20]).unwrap();
        let mapping = Mapping::shared(&file, 1 << 20).unwrap();
        match nodes_of(&mapping) {
            Ok(nodes) if nodes.is_empty() => skip("this kernel has no MADV_POPULATE_READ"),
            Ok(nodes) => assert_eq!(nodes.values().sum::<u32>(), PAGES_LOOKED_AT as u32),
            Err(why) => skip(&format!("the kernel does not say it: {why}")),
        }
    }
}
