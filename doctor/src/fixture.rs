//! Hosts made for tests, as the doctor examines them.

use crate::findings::{Remedy, Verdict};
use crate::matrix::{Bandwidth, KEPT, Matrix, Mix};
use crate::{Host, checks};
pub use forebay_host::fixture::Tree;
use std::collections::BTreeMap;

/// What the doctor adds to a host's tree.
pub trait Examined {
    /// A measurement of this boot between nodes 0 and 1, in GB/s read: by node 0 of its own memory and of node 1's, by node 1 of node 0's and of its own.
    fn measured(self, bandwidths: [f64; 4]) -> Tree;
    /// What one check says of it.
    fn says(&self, number: u8) -> Verdict;
}

impl Examined for Tree {
    fn measured(self, [own, far, back, other]: [f64; 4]) -> Tree {
        let cell = |cpus, memory, gigabytes: f64| Bandwidth {
            cpus,
            memory,
            mix: Mix::Read,
            threads: 4,
            bytes_per_second: gigabytes * 1e9,
            bus_bytes_per_second: None,
            spread: 0.01,
        };
        let read = vec![cell(0, 0, own), cell(0, 1, far), cell(1, 0, back), cell(1, 1, other)];
        let cpuinfo = self.text("/proc/cpuinfo");
        let model = cpuinfo.lines().find_map(|line| line.strip_prefix("model name\t: ")).unwrap_or_default().to_owned();
        let matrix = Matrix { boot_id: "this boot".to_owned(), cpu_model: model, read, ..Matrix::default() };
        self.file(KEPT, &serde_json::to_string(&matrix).expect("JSON"))
            .file("/proc/sys/kernel/random/boot_id", "this boot\n")
    }

    fn says(&self, number: u8) -> Verdict {
        let check = checks::all().into_iter().find(|check| check.number == number).expect("there is such a check");
        (check.look)(&Host::look(self.system()))
    }
}

/// No two remedies of one host write different values to one file, nor give one thing different values by command. Returns how many
/// findings there were.
pub fn assert_no_contradictions(verdicts: impl IntoIterator<Item = Verdict>) -> usize {
    let mut count = 0;
    let mut told: BTreeMap<String, (String, String)> = BTreeMap::new();
    let mut tell = |what: String, value: &str, id: &str| {
        let (known, by) = told.entry(what.clone()).or_insert_with(|| (value.to_owned(), id.to_owned()));
        assert_eq!(known, value, "{what}: {by} and {id} contradict each other");
    };
    for verdict in verdicts {
        for finding in verdict.into_found() {
            count += 1;
            // What a finding tells first; others of its own are instead of that one.
            match finding.remedies.first() {
                Some(Remedy::Apply { writes, .. }) => {
                    writes.iter().for_each(|write| tell(write.path.clone(), &write.value, &finding.id));
                }
                Some(Remedy::Explain { command: Some(command), .. }) => {
                    let settings = command.split(" && ").filter_map(|command| command.rsplit_once(' '));
                    settings.for_each(|(what, value)| tell(what.to_owned(), value, &finding.id));
                }
                _ => {}
            }
        }
    }
    count
}
