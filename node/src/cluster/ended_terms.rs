//! What a former owner says itself, of a backing whose locks say nothing (an NBD export): that all it has asked of it in a term has ended.
//! An owner that was only cut off, or stood still, is proof about itself in this way as soon as it is back; one that was killed is not.
//!
//! Invariants:
//! - It is said of a term that this process has given up: the record was read after the opening had ended, and has a higher one.
//! - It is said where every change is done, and none has failed or went with a connection: that one may be done later.
//! - It is said only of a term that the record names, so that nothing is written for orderly ends: no later change can add that term.
//! - It counts with the seal of the node that was the owner, and of nobody else.

use super::control::Cluster;
use crate::coordinator::ended_terms::EndedTerms;
use crate::coordinator::schema::StoredRecord;
use crate::coordinator::{Error, Outcome};
use crate::datapath::driver::opening::OpeningEnd;
use crate::log;
use crate::names;
use anyhow::{Result, bail};
use forebay_api::checked::NodeName;
use forebay_api::record::VolumeId;
use forebay_core::cluster::{LogState, Unfenced};
use forebay_core::types::Term;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// After the first attempt to say it that failed; twice as long after each further one ...
const PAUSE_MIN: Duration = Duration::from_secs(1);
/// ... up to this.
const PAUSE_MAX: Duration = Duration::from_secs(30);

/// For so long a look at what a node has said is good for all volumes.
const HEARD_MAX: Duration = Duration::from_millis(900);

/// What a node has said, or why nothing of it counts.
type Heard = Result<EndedTerms, String>;

/// What this node says, and has heard of others.
#[derive(Default)]
pub(super) struct Ended {
    /// Terms that have ended, each with all that the record named of this node then.
    to_say: Mutex<BTreeMap<(VolumeId, Term), Vec<Term>>>,
    /// Held by the one that says them.
    saying: tokio::sync::Mutex<()>,
    /// By node: when it was looked for, and what was found.
    heard: tokio::sync::Mutex<BTreeMap<NodeName, (Instant, Heard)>>,
}

impl Ended {
    fn to_say(&self) -> MutexGuard<'_, BTreeMap<(VolumeId, Term), Vec<Term>>> {
        self.to_say.lock().expect("nobody panics while holding it")
    }
}

/// What has come of saying it.
enum Said {
    Yes,
    /// The record does not name the term as one that somebody waits for, and never will.
    NobodyAsks,
    /// The record names this node in this term still.
    NotGivenUp,
}

impl Cluster {
    /// Says that a term has ended, when the opening of its backing has; as long as that takes.
    pub(super) async fn say_when_ended(self: Arc<Cluster>, volume: VolumeId, term: Term, end: Arc<OpeningEnd>) {
        end.ended().await;
        if !end.all_is_done() {
            return;
        }
        let (mut told, mut pause) = (None, PAUSE_MIN);
        loop {
            match self.say_ended(volume, term).await {
                Ok(Said::Yes) => {
                    log::say!(
                        Notice,
                        volume(names::shown(volume)),
                        "all that this node asked of its backing in term {} has ended, which the next owner is told",
                        term.0
                    );
                    return;
                }
                Ok(Said::NobodyAsks) => return,
                Ok(Said::NotGivenUp) => {}
                Err(error) => {
                    let words = format!("{error:#}");
                    if told.as_ref() != Some(&words) {
                        log::say!(
                            Warning,
                            volume(names::shown(volume)),
                            "cannot tell that term {} has ended: {words}",
                            term.0
                        );
                        told = Some(words);
                    }
                }
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    async fn say_ended(&self, volume: VolumeId, term: Term) -> Result<Said> {
        let own = |former: &&Unfenced| former.node == self.place.node;
        let named: Vec<Term> = match self.coordinator.record(volume).await? {
            StoredRecord::Record(record) if record.log == LogState::Released => return Ok(Said::NobodyAsks),
            StoredRecord::Record(record) if record.term <= term => return Ok(Said::NotGivenUp),
            StoredRecord::Record(record) => record.unfenced.iter().filter(own).map(|former| former.term).collect(),
            StoredRecord::Deleted { .. } => return Ok(Said::NobodyAsks),
        };
        if !named.contains(&term) {
            return Ok(Said::NobodyAsks);
        }
        self.ended.to_say().insert((volume, term), named.clone());
        // One writes for all that wait meanwhile.
        let _turn = self.ended.saying.lock().await;
        let found = match self.coordinator.ended_terms(&self.name).await {
            Ok(found) => found.filter(|(ended, seal)| ended.sealed(|what| self.seals.check(seal, what)).is_ok()),
            // Whatever that is, this node has not said it.
            Err(Error::Damaged { .. }) => None,
            Err(error) => return Err(error.into()),
        };
        let said = found.map_or_else(|| EndedTerms::none(self.name.clone()), |(ended, _)| ended);
        if said.has(volume, term) {
            self.ended.to_say().remove(&(volume, term));
            return Ok(Said::Yes);
        }
        let mut all = std::mem::take(&mut *self.ended.to_say());
        // An attempt of another one that failed has taken it along.
        all.insert((volume, term), named);
        let mut new = said;
        for ((volume, term), named) in all {
            // What the record does not name any more nobody asks for again.
            let still: Vec<Term> =
                named.into_iter().filter(|named| *named == term || new.has(volume, *named)).collect();
            new = new.with(volume, &still, |other| self.known().contains_key(&other));
        }
        let seal = new.sealed(|what| self.seals.seal(what))?;
        match self.coordinator.say_ended((&new, &seal)).await? {
            Outcome::Won => Ok(Said::Yes),
            Outcome::Lost(()) => bail!("somebody else has written what only this node says"),
            Outcome::Unknown(why) => bail!("it is not known whether it was written: {why}"),
        }
    }

    /// Whether a former owner says that all it asked of the backing in its term has ended. None: the coordinator does not tell.
    pub(super) async fn has_said_ended(&self, volume: VolumeId, former: &Unfenced) -> Option<Result<(), String>> {
        let entry = self.nodes().into_iter().find(|entry| entry.node() == former.node);
        let Some(name) = entry.map(|entry| entry.name) else {
            return Some(Err("its node is not registered".to_owned()));
        };
        // All volumes look by one read: what was said stays true.
        let mut heard = self.ended.heard.lock().await;
        let is_new = |at: &Instant| at.elapsed() < HEARD_MAX;
        if !heard.get(&name).is_some_and(|(at, _)| is_new(at)) {
            let at = Instant::now();
            let found = match self.coordinator.ended_terms(&name).await {
                Ok(Some((ended, seal))) => match ended.sealed(|what| self.seals.check(&seal, what)) {
                    Ok(()) => Ok(ended),
                    Err(why) => Err(format!("what it says of its writes does not count: {why:#}")),
                },
                Ok(None) => Ok(EndedTerms::none(name.clone())),
                Err(Error::Damaged { why, .. }) => Err(format!("what it says of its writes does not count: {why}")),
                Err(_) => return None,
            };
            heard.insert(name.clone(), (at, found));
        }
        let (_, found) = heard.get(&name).expect("it was just put there");
        Some(match found {
            Ok(ended) if ended.has(volume, former.term) => Ok(()),
            Ok(_) => Err("it has not said that its writes have ended".to_owned()),
            Err(why) => Err(why.clone()),
        })
    }
}
