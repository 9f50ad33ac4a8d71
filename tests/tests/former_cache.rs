//! After a hand-over the new owner has a cold cache and a slow backing, and reads from the former owner's cache instead: what it
//! reads there is the newest, also when both have written since. What a faulty answer or a lost node makes of it, the simulator
//! shows.

use forebay_tests::cluster::{Cluster, NAMES, PATIENCE};
use forebay_tests::nbd::Client;
use serde_json::Value;

const BLOCK: usize = 4096;
/// Blocks of one request.
const RUN: usize = 16;
const RUNS: usize = 128;
const BLOCKS: u64 = (RUNS * RUN) as u64;
/// A former owner that a busy machine does not let follow within 0.8 s is dropped, and its cache with it. Not each time.
const HOPS_MAX: u64 = 12;

/// The volume, and in which hop each run was written last.
struct Stand {
    cluster: Cluster,
    written: [u64; RUNS],
}

/// What a run holds after its writing in a hop.
fn content(run: usize, hop: u64) -> Vec<u8> {
    ((run as u64) << 8 | hop).to_le_bytes().repeat(RUN * BLOCK / 8)
}

impl Stand {
    #[track_caller]
    fn connect(&self, node: usize) -> Client {
        let client = Client::connect_within(&self.cluster.target(node), PATIENCE);
        client.unwrap_or_else(|e| panic!("connect to {}: {e}", NAMES[node]))
    }

    #[track_caller]
    fn command(&self, node: usize, words: &[&str]) {
        self.cluster.try_command(node, words).unwrap_or_else(|why| panic!("{words:?}: {why}"));
    }

    /// Writes one run in so many, and brings it to the backing.
    #[track_caller]
    fn write(&mut self, node: usize, hop: u64, one_in: usize) {
        let mut client = self.connect(node);
        for run in (0..RUNS).step_by(one_in) {
            client.write((run * RUN * BLOCK) as u64, &content(run, hop), 0).expect("connected").expect("a write");
            self.written[run] = hop;
        }
        client.disconnect().expect("connected");
        self.command(node, &["volume", "drain", "vm1"]);
    }

    /// Reads all, and finds in each run what was written last.
    #[track_caller]
    fn read(&self, node: usize) {
        let mut client = self.connect(node);
        let mut bytes = vec![0; RUN * BLOCK];
        for (run, hop) in self.written.iter().enumerate() {
            client.read((run * RUN * BLOCK) as u64, &mut bytes).expect("connected").expect("a read");
            assert!(bytes == content(run, *hop), "{}: run {run} is not what was written in hop {hop}", NAMES[node]);
        }
        client.disconnect().expect("connected");
    }

    /// Hands over, reads all at the new owner, and tells whether most of it came from the former one, and little from the backing.
    #[track_caller]
    fn hop(&self, from: usize, to: usize) -> bool {
        self.cluster.wait_for_copies(from);
        let before = self.cluster.show(to);
        self.command(from, &["volume", "hand-over", "vm1", NAMES[to]]);
        self.cluster.wait_for_owner(to);
        self.read(to);
        let (after, sender) = (self.cluster.show(to), self.cluster.show(from));
        let grown = |name| count(&after, name).saturating_sub(count(&before, name));
        let (hits, misses, backing) = (grown("former_hits"), grown("former_misses"), grown("read_blocks_from_backing"));
        println!("{}: {hits} blocks from {}, {misses} not, {backing} from the backing", NAMES[to], NAMES[from]);
        assert!(count(&sender, "cached_blocks_sent") >= hits, "{hits} blocks came from {}: {sender:#}", NAMES[from]);
        let most = hits > BLOCKS / 2 && backing < BLOCKS / 2;
        if most {
            assert_eq!(after["cluster"]["predecessor_cache"]["node"], NAMES[from], "{after:#}");
        }
        most
    }
}

fn count(shown: &Value, name: &str) -> u64 {
    let counter = shown["counters"].get(name).or_else(|| shown["cluster"]["counters"].get(name));
    counter.and_then(Value::as_u64).unwrap_or_else(|| panic!("there is a counter {name}: {shown:#}"))
}

fn the_next_owner_reads_from_the_cache_of_the_former_one(name: &str, tier: &str) {
    let Some(mut cluster) = Cluster::new(name, 2) else { return };
    cluster.backing_before = "slow:latency=5ms:".to_owned();
    cluster.serve_with_a_copy(tier);
    let mut stand = Stand { cluster, written: [0; RUNS] };
    stand.write(0, 0, 1);
    let (mut owner, mut hop, mut good) = (0, 0, false);
    // At least there and back.
    while hop < 2 || !good {
        hop += 1;
        assert!(hop <= HOPS_MAX, "no hand-over of {HOPS_MAX} was followed by reads from the former owner's cache");
        let next = 1 - owner;
        good |= stand.hop(owner, next);
        owner = next;
        // Both have an older content of these in their memory, and the former owner is asked for what is not written.
        stand.write(owner, hop, 3);
        stand.read(owner);
    }
}

#[test]
fn from_memory_to_memory() {
    the_next_owner_reads_from_the_cache_of_the_former_one("former-cache-memory", "memory");
}

#[test]
fn from_flash_to_flash() {
    the_next_owner_reads_from_the_cache_of_the_former_one("former-cache-flash", "flash");
}
