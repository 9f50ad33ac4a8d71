//! The coordinator of one node: all keys in one file of the state folder, replaced whole at each change.
//!
//! Why not a database: a record changes when a node starts, stops or is given another policy, a few times a day, and a
//! thousand volumes are half a megabyte. A file that is replaced whole and durably (as records and markers are) is atomic over several keys,
//! can be read by a person, and brings no code that would have to be trusted with it.
//!
//! Invariants:
//! - The file is durable before a transaction is answered, and nobody is told of a content that is not.
//! - What could not be made durable is *unknown*: the next transaction first takes up what a reader of the file would
//!   find, and makes that durable.
//! - One process at a time: the daemon's lock on the state folder sees to it.

use super::store::{Answer, CHANGES_MAX, Changed, Changes, Compare, Entry, Failure, Operation, Read, Transaction};
use anyhow::{Context, Result, bail};
use forebay_io::durable::write_atomically;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use tokio::sync::mpsc;

/// Version of the file that this code writes, and the only one it reads.
const VERSION: u32 = 1;

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    version: u32,
    entries: BTreeMap<String, String>,
}

/// Keys in a file.
pub struct Embedded {
    path: PathBuf,
    state: Mutex<State>,
}

struct State {
    entries: BTreeMap<String, String>,
    /// The last change may lie in the file or not, durably or not.
    doubtful: bool,
    listeners: Vec<(String, mpsc::Sender<Changed>)>,
}

impl Embedded {
    /// Opens the file, or begins without one.
    pub fn open(path: &Path) -> Result<Embedded> {
        let state = State { entries: load(path)?, doubtful: false, listeners: Vec::new() };
        Ok(Embedded { path: path.to_owned(), state: Mutex::new(state) })
    }

    /// As [`Store::transact`](super::store::Store::transact).
    pub fn transact(&self, transaction: &Transaction) -> Result<Answer, Failure> {
        let mut state = self.state.lock().expect("nothing panics while it is held");
        state.settle_doubt(&self.path).map_err(|error| Failure::Nothing(format!("{error:#}")))?;
        let held = transaction.compare.iter().all(|compare| state.holds(compare));
        if !held {
            let found = transaction.otherwise.iter().map(|read| look(&state.entries, read)).collect();
            return Ok(Answer { held, found });
        }
        let mut next = state.entries.clone();
        let mut found = Vec::new();
        let mut changed = Vec::new();
        for operation in &transaction.then {
            match operation {
                Operation::Read(read) => found.push(look(&next, read)),
                Operation::Put { key, value } => {
                    next.insert(key.clone(), value.clone());
                    changed.push(key);
                }
                Operation::Delete(key) => {
                    next.remove(key);
                    changed.push(key);
                }
            }
        }
        if !changed.is_empty() {
            if let Err(error) = save(&self.path, &next) {
                state.doubtful = true;
                return Err(Failure::Unknown(format!("{error:#}")));
            }
            state.entries = next;
            state.tell(&changed);
        }
        Ok(Answer { held, found })
    }

    /// As [`Store::changes`](super::store::Store::changes).
    pub fn changes(&self, prefix: &str) -> Changes {
        let (sender, receiver) = mpsc::channel(CHANGES_MAX);
        sender.try_send(Changed::Anything).expect("it is empty");
        let mut state = self.state.lock().expect("nothing panics while it is held");
        state.listeners.push((prefix.to_owned(), sender));
        receiver
    }
}

impl State {
    fn holds(&self, compare: &Compare) -> bool {
        self.entries.get(&compare.key) == compare.value.as_ref()
    }

    /// A failed write may have replaced the file all the same, and pages that a failed sync gave up are not written by the
    /// next one: so what is found is written again as a whole.
    fn settle_doubt(&mut self, path: &Path) -> Result<()> {
        if self.doubtful {
            let found = load(path)?;
            save(path, &found)?;
            self.entries = found;
            self.doubtful = false;
        }
        Ok(())
    }

    /// A listener that does not look drops what it could be told: it has as many hints to look at as it can hold.
    fn tell(&mut self, keys: &[&String]) {
        self.listeners.retain(|(_, listener)| !listener.is_closed());
        for (prefix, listener) in &self.listeners {
            for key in keys.iter().filter(|key| key.starts_with(prefix)) {
                let _ = listener.try_send(Changed::Key((*key).clone()));
            }
        }
    }
}

fn look(entries: &BTreeMap<String, String>, read: &Read) -> Vec<Entry> {
    let owned = |(key, value): (&String, &String)| (key.clone(), value.clone());
    match read {
        Read::Key(key) => entries.get_key_value(key).map(owned).into_iter().collect(),
        Read::Prefix { prefix, after, most } => {
            let from = after.as_ref().unwrap_or(prefix);
            let listed = entries.range(from.clone()..).filter(|(key, _)| Some(*key) != after.as_ref());
            listed.take_while(|(key, _)| key.starts_with(prefix.as_str())).take(*most).map(owned).collect()
        }
    }
}

fn load(path: &Path) -> Result<BTreeMap<String, String>> {
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(BTreeMap::new()),
        Err(error) => {
            return Err(error).with_context(|| format!("cannot read the coordinator's file {}", path.display()));
        }
    };
    let file: File = serde_json::from_str(&text)
        .with_context(|| format!("the coordinator's file {} is damaged; restore it from a backup", path.display()))?;
    if file.version != VERSION {
        bail!("{} was written by another version of Forebay ({}); use that one", path.display(), file.version);
    }
    Ok(file.entries)
}

fn save(path: &Path, entries: &BTreeMap<String, String>) -> Result<()> {
    let file = File { version: VERSION, entries: entries.clone() };
    let mut text = serde_json::to_vec_pretty(&file).context("cannot encode the coordinator's file")?;
    text.push(b'\n');
    Ok(write_atomically(path, &text)?)
}
