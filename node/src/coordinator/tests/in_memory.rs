//! A coordinator for tests that need no etcd: all keys in a map of this process. It is always there, never in doubt and never goes back
//! by itself; what it forgets with the process no test asks for.

use crate::coordinator::store::{Answer, CHANGES_MAX, Changed, Changes, Compare, Entry, Operation, Read, Transaction};
use std::collections::BTreeMap;
use std::sync::Mutex;
use tokio::sync::mpsc;

/// Keys in a map.
#[derive(Default)]
pub struct InMemory(Mutex<State>);

#[derive(Default)]
struct State {
    entries: BTreeMap<String, String>,
    listeners: Vec<(String, mpsc::Sender<Changed>)>,
}

impl InMemory {
    /// As [`Store::transact`](crate::coordinator::store::Store::transact); it cannot fail.
    pub fn transact(&self, transaction: &Transaction) -> Answer {
        let mut state = self.0.lock().expect("nothing panics while it is held");
        let held = transaction.compare.iter().all(|compare| state.holds(compare));
        if !held {
            let found = transaction.otherwise.iter().map(|read| look(&state.entries, read)).collect();
            return Answer { held, found };
        }
        let (mut found, mut changed) = (Vec::new(), Vec::new());
        for operation in &transaction.then {
            match operation {
                Operation::Read(read) => found.push(look(&state.entries, read)),
                Operation::Put { key, value } => {
                    state.entries.insert(key.clone(), value.clone());
                    changed.push(key);
                }
                Operation::Delete(key) => {
                    state.entries.remove(key);
                    changed.push(key);
                }
            }
        }
        state.notify(&changed);
        Answer { held, found }
    }

    /// Tells of changes below a prefix, see [`Store::changes`](crate::coordinator::store::Store::changes).
    pub fn changes(&self, prefix: &str) -> Changes {
        let (sender, receiver) = mpsc::channel(CHANGES_MAX);
        sender.try_send(Changed::Anything).expect("it is empty");
        let mut state = self.0.lock().expect("nothing panics while it is held");
        state.listeners.push((prefix.to_owned(), sender));
        receiver
    }

    /// All keys with their values, in order.
    pub fn entries(&self) -> Vec<Entry> {
        let state = self.0.lock().expect("nothing panics while it is held");
        state.entries.iter().map(|(key, value)| (key.clone(), value.clone())).collect()
    }
}

impl State {
    fn holds(&self, compare: &Compare) -> bool {
        self.entries.get(&compare.key) == compare.value.as_ref()
    }

    /// A listener that does not look drops what it could be told: it has as many hints to look at as it can hold.
    fn notify(&mut self, keys: &[&String]) {
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
