//! Many writers change one record at a time, while the coordinator suffers; what they were told is then checked against what
//! has really become of the record.

use super::*;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

/// The number of a change; it is part of the record that the change writes. 0 wrote the first.
pub type Change = u64;

/// What a writer was told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Told {
    /// A read, or a refused change, has found the record of this change.
    Found(Change),
    /// The change is done.
    Won(Change),
    /// It is not done, and never will be.
    Lost(Change),
    /// It is not known whether the change is done, or will be.
    Unknown(Change),
}

/// One question and its answer.
#[derive(Clone, Copy, Debug)]
pub struct Event {
    began: Instant,
    ended: Instant,
    told: Told,
}

/// All that was said, and what each change was based on.
#[derive(Clone, Debug, Default)]
pub struct History {
    events: Vec<Event>,
    based_on: BTreeMap<Change, Change>,
}

impl History {
    /// Says what is wrong: a change that was lost or doubled, a record that went back.
    pub fn invalid(&self, last: Change) -> Option<String> {
        let mut chain = vec![last];
        let mut on_chain = BTreeSet::from([last]);
        while let Some(&change) = chain.last().filter(|change| **change != 0) {
            let Some(&before) = self.based_on.get(&change) else {
                return Some(format!("nobody has asked for change {change}"));
            };
            if !on_chain.insert(before) {
                return Some(format!("change {before} has happened twice"));
            }
            chain.push(before);
        }
        let place: BTreeMap<Change, usize> = chain.iter().rev().enumerate().map(|(at, change)| (*change, at)).collect();
        let mut known = Vec::new();
        for event in &self.events {
            let (change, must_be) = match event.told {
                Told::Found(change) | Told::Won(change) => (change, true),
                Told::Lost(change) => (change, false),
                Told::Unknown(_) => continue,
            };
            match (place.get(&change), must_be) {
                (Some(&at), true) => known.push((event, at)),
                (None, false) => {}
                (None, true) => return Some(format!("{event:?}, and it is not part of what has become")),
                (Some(_), false) => return Some(format!("{event:?}, and it has happened")),
            }
        }
        went_back(known)
    }

    /// Questions that were answered.
    pub fn answered(&self) -> usize {
        self.events.iter().filter(|event| !matches!(event.told, Told::Unknown(_))).count()
    }

    /// Changes that were told as done.
    pub fn won(&self) -> usize {
        self.events.iter().filter(|event| matches!(event.told, Told::Won(_))).count()
    }

    /// Changes whose fate was not told.
    pub fn unknown(&self) -> usize {
        self.events.iter().filter(|event| matches!(event.told, Told::Unknown(_))).count()
    }
}

/// Who asks after an answer was given finds at least what that answer knew.
fn went_back(mut known: Vec<(&Event, usize)>) -> Option<String> {
    let mut ends = known.clone();
    ends.sort_by_key(|(event, _)| event.ended);
    known.sort_by_key(|(event, _)| event.began);
    let (mut newest, mut ended) = (None::<(&Event, usize)>, ends.into_iter().peekable());
    for (event, at) in known {
        while let Some((earlier, there)) = ended.next_if(|(earlier, _)| earlier.ended < event.began) {
            if newest.is_none_or(|(_, most)| there > most) {
                newest = Some((earlier, there));
            }
        }
        if let Some((earlier, there)) = newest.filter(|(_, there)| *there > at) {
            return Some(format!("{event:?} (place {at}) began after {earlier:?} (place {there}) was known"));
        }
    }
    None
}

/// Writers and readers at work, each in a thread and with a coordinator of its own, until told to stop.
pub struct Writers {
    stop: Arc<AtomicBool>,
    history: Arc<Mutex<History>>,
    threads: Vec<std::thread::JoinHandle<()>>,
}

/// A tier is never numbered 0.
fn tier_of(change: Change) -> u64 {
    change + 1
}

/// The change that wrote this record.
pub fn change_of(kept: &StoredRecord) -> Change {
    match kept {
        StoredRecord::Record(record) => record.members[0].tier - 1,
        StoredRecord::Deleted { .. } => panic!("nobody deletes it"),
    }
}

/// The record that a change writes after this one.
fn next(from: &StoredRecord, change: Change, writer: u64) -> StoredRecord {
    let StoredRecord::Record(from) = from else { panic!("nobody deletes it") };
    let owner = NodeId(writer);
    StoredRecord::Record(Record {
        term: Term(from.term.0 + 1),
        owner,
        members: vec![Incarnation { node: owner, tier: tier_of(change), life: 0 }],
        ..from.clone()
    })
}

/// The record before any change.
pub fn first() -> StoredRecord {
    let mut record = record(1, 1);
    record.members[0].tier = tier_of(0);
    StoredRecord::Record(record)
}

impl Writers {
    /// Begins on the volume [`VM1`], which [`first`] describes.
    pub fn start(nodes: Vec<Coordinator>) -> Writers {
        let (stop, history) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(History::default())));
        let changes = Arc::new(AtomicU64::new(1));
        let writer = |(number, node): (usize, Coordinator)| {
            let (stop, history, changes) = (stop.clone(), history.clone(), changes.clone());
            std::thread::spawn(move || block_on(write(node, number as u64 + 1, &stop, &history, &changes)))
        };
        let threads = nodes.into_iter().enumerate().map(writer).collect();
        Writers { stop, history, threads }
    }

    /// Questions that were answered so far.
    pub fn answered(&self) -> usize {
        self.history.lock().unwrap().answered()
    }

    /// Waits until so many more questions are answered.
    #[track_caller]
    pub fn wait_for(&self, more: usize) {
        let (begun, before) = (Instant::now(), self.answered());
        while self.answered() < before + more {
            assert!(begun.elapsed() < Duration::from_secs(180), "no progress: {} of {more}", self.answered() - before);
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// What was told.
    pub fn stop(self) -> History {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads {
            thread.join().expect("a writer does not panic");
        }
        std::mem::take(&mut *self.history.lock().unwrap())
    }
}

async fn write(node: Coordinator, number: u64, stop: &AtomicBool, history: &Mutex<History>, changes: &AtomicU64) {
    let tell = |began, told| history.lock().unwrap().events.push(Event { began, ended: Instant::now(), told });
    let mut known = None;
    while !stop.load(Ordering::Relaxed) {
        let began = Instant::now();
        let Some(from) = known.take() else {
            match node.record(VM1).await {
                Ok(found) => {
                    tell(began, Told::Found(change_of(&found)));
                    known = Some(found);
                }
                Err(Error::Unreachable(_)) => {}
                Err(error) => panic!("a read: {error}"),
            }
            continue;
        };
        let change = changes.fetch_add(1, Ordering::Relaxed);
        history.lock().unwrap().based_on.insert(change, change_of(&from));
        let to = next(&from, change, number);
        match node.commit(VM1, &from, &to, None, None).await {
            Ok(Outcome::Won) => {
                tell(began, Told::Won(change));
                known = Some(to);
            }
            Ok(Outcome::Lost(found)) => {
                // The answer to a lost one is lost as well: it may be our own change of before that is found.
                tell(began, Told::Lost(change));
                tell(began, Told::Found(change_of(&found)));
            }
            Ok(Outcome::Unknown(_)) => tell(began, Told::Unknown(change)),
            Err(Error::Unreachable(_)) => tell(began, Told::Lost(change)),
            Err(error) => panic!("a change: {error}"),
        }
    }
}

/// Ten writers on ten views of one coordinator, undisturbed.
fn concurrent_writers_lose_and_double_nothing(stand: &Stand) {
    let node = stand.joined("first");
    block_on(make(&node, &definition("vm1", VM1), &first()));
    let writers = Writers::start((0..10).map(|n| stand.node(&format!("writer{n}"))).collect());
    writers.wait_for(500);
    let history = writers.stop();
    let last = change_of(&block_on(sure(|| node.record(VM1))));
    assert_eq!(history.invalid(last), None);
    assert!(history.won() > 20 && history.based_on.len() > history.won(), "they did meet: {} won", history.won());
}

#[test]
fn concurrent_writers_lose_and_double_nothing_in_memory() {
    concurrent_writers_lose_and_double_nothing(&Stand::in_memory("writers"));
}

#[test]
fn concurrent_writers_lose_and_double_nothing_in_etcd_of_three() {
    concurrent_writers_lose_and_double_nothing(&Stand::etcd("writers-etcd", 3));
}

/// The check can fail: each way to be wrong is found.
#[test]
fn a_wrong_history_is_found_wrong() {
    let begin = Instant::now();
    let event = |from: u64, to: u64, told| Event {
        began: begin + Duration::from_millis(from),
        ended: begin + Duration::from_millis(to),
        told,
    };
    let events = vec![
        event(0, 1, Told::Found(0)),
        event(2, 3, Told::Won(1)),
        event(4, 5, Told::Unknown(2)),
        event(6, 7, Told::Won(3)),
    ];
    let good = History { events, based_on: BTreeMap::from([(1, 0), (2, 1), (3, 2), (4, 1)]) };
    assert_eq!(good.invalid(3), None);
    let with = |told, from, to| {
        let mut bad = good.clone();
        bad.events.push(event(from, to, told));
        bad.invalid(3).expect("it is wrong")
    };
    assert!(good.invalid(2).expect("3 was lost").contains("not part"));
    assert!(good.invalid(9).expect("9 is nobody's").contains("nobody"));
    assert!(with(Told::Lost(2), 8, 9).contains("has happened"));
    assert!(with(Told::Found(4), 8, 9).contains("not part"));
    assert!(with(Told::Found(1), 8, 9).contains("began after"));
    let mut circle = good.clone();
    circle.based_on.insert(1, 3);
    assert!(circle.invalid(3).expect("a circle").contains("twice"));
    // What overlaps may be seen in either order.
    let mut overlapping = good.clone();
    overlapping.events.push(event(6, 9, Told::Found(2)));
    assert_eq!(overlapping.invalid(3), None);
}
