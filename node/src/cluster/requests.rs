//! What nodes ask each other for, and who may: a request is carried out only if the node that it says has made it, for this node, a
//! moment ago, once. An answer counts only if the node that was asked has given it.
//!
//! Why not by the links: a request may have to be answered by a node that is not linked, and what asks about the links must not
//! depend on them; and its answer takes it away in one transaction, so that who gives up knows that nothing more comes of it.
//!
//! Invariants:
//! - A request is sealed with the nonce of the node that is asked ([`Nonces`]), by the clock of that node alone: it counts as long as that
//!   nonce or the next one is told, and no longer, whatever other clocks say.
//! - What has been carried out under a nonce is remembered as long as that counts: a request that somebody writes once more is refused.
//! - What is listed is taken once, however often it is listed; whoever gives a request up withdraws it.
//! - An answer that nobody can have given is passed over, and waited on: the true one takes its place.

use super::control::Cluster;
use crate::coordinator::commands::now_ms;
use crate::coordinator::link_asks::Ask;
use crate::coordinator::requests::{Nonce, Request};
use crate::coordinator::schema::{self, Call, Document};
use crate::coordinator::{Error, Outcome};
use crate::log;
use anyhow::{Context, Result, bail};
use forebay_api::checked::NodeName;
use forebay_api::record::VolumeId;
use forebay_host::seals::{Seal, Sealed};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::{Duration as Time, Instant};

/// A nonce is told for so long, and counts for as long again.
const NONCE_PERIOD: Time = Time::from_secs(30);
/// What was carried out under one is remembered, each kind by itself; beyond so many of a kind nothing more of it is, until the next one is
/// drawn.
const CARRIED_OUT_MAX: usize = 4096;
/// Own nonces of which one may be found in the coordinator.
const TOLD_REMEMBERED: usize = 8;
/// What is not listed any more is remembered for so many others: a list that was on its way may still name it.
const ENDED_REMEMBERED: usize = 256;
/// Between two looks for an answer, besides the hints that it is there.
const ANSWER_LOOK: Time = Time::from_secs(1);
/// Between two attempts at a coordinator that does not answer.
const RETRY: Time = Time::from_secs(1);
/// That another daemon has this node's identity is said so often.
const TWIN_SAID_AGAIN: Time = Time::from_secs(60);
/// Both tell a nonce once in its period, so that each finds the other's as often.
const TWIN_SHOWN: Time = Time::from_secs(75);

/// What was taken of that which lies in the coordinator for this node: nothing is taken twice.
#[derive(Default)]
pub(super) struct Taken(Mutex<VecDeque<VolumeId>>);

impl Taken {
    /// Those of a list that were not taken before. What is listed is never forgotten, however long the list is.
    pub(super) fn new_of<T>(&self, listed: Vec<T>, id: impl Fn(&T) -> VolumeId) -> Vec<T> {
        let mut taken = self.0.lock().expect("nobody panics while holding it");
        let ids: BTreeSet<VolumeId> = listed.iter().map(&id).collect();
        let before: BTreeSet<VolumeId> = taken.iter().copied().collect();
        let new: Vec<T> = listed.into_iter().filter(|one| !before.contains(&id(one))).collect();
        taken.extend(new.iter().map(&id));
        let ended = taken.iter().filter(|id| !ids.contains(id)).count();
        let mut excess = ended.saturating_sub(ENDED_REMEMBERED);
        taken.retain(|id| {
            let forget = excess > 0 && !ids.contains(id);
            excess -= usize::from(forget);
            !forget
        });
        new
    }
}

/// A kind of requests that this node carries out for others.
pub(super) trait Served: Request {
    /// An answer that carries nothing out is tried for so long.
    const REFUSED_MAX: Time;

    /// Which of them were taken.
    fn taken(cluster: &Cluster) -> &Taken;

    /// Carries out one that was checked, and answers it.
    fn serve(self, cluster: Arc<Cluster>) -> impl Future<Output = ()> + Send;
}

/// Why a request has no answer.
pub(super) enum NoAnswer<W> {
    /// It could not be made; nothing comes of it.
    NotAsked(anyhow::Error),
    /// It was not waited for any longer; whether it is carried out is not known.
    GivenUp(W),
}

/// What requests to this node must be sealed with: the one that is told, and the one before it.
#[derive(Default)]
pub(super) struct Nonces {
    counting: Mutex<[Option<Counting>; 2]>,
    /// When one was found last that this daemon has not told, and which.
    foreign: Mutex<Option<(Instant, VolumeId)>>,
}

/// A nonce, and what was carried out under it.
#[derive(Clone)]
struct Counting {
    nonce: VolumeId,
    /// By kind: who may only look never keeps a command from being carried out.
    carried_out: BTreeMap<&'static str, BTreeSet<VolumeId>>,
}

/// What a nonce that a request was sealed with is worth.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Worth {
    New,
    CarriedOut,
    Full,
}

impl Nonces {
    /// From now on this one is told.
    fn turn(&self, nonce: VolumeId) {
        let mut all = self.counting.lock().expect("nobody panics while holding it");
        all.swap(0, 1);
        all[0] = Some(Counting { nonce, carried_out: BTreeMap::new() });
    }

    /// Those that count, the newest first.
    fn counting(&self) -> Vec<VolumeId> {
        let all = self.counting.lock().expect("nobody panics while holding it");
        all.iter().flatten().map(|counting| counting.nonce).collect()
    }

    /// Takes a request that was sealed with this nonce, for the first time.
    fn take(&self, nonce: VolumeId, kind: &'static str, request: VolumeId) -> Worth {
        let mut all = self.counting.lock().expect("nobody panics while holding it");
        // It may have been sealed with either, which is the same request.
        let mut before = all.iter().flatten().flat_map(|counting| counting.carried_out.get(kind));
        if before.any(|carried_out| carried_out.contains(&request)) {
            return Worth::CarriedOut;
        }
        let Some(counting) = all.iter_mut().flatten().find(|counting| counting.nonce == nonce) else {
            return Worth::Full;
        };
        let carried_out = counting.carried_out.entry(kind).or_default();
        if carried_out.len() >= CARRIED_OUT_MAX {
            return Worth::Full;
        }
        carried_out.insert(request);
        Worth::New
    }
}

fn sealed_request<'a>(kind: &'a str, by: &'a NodeName, to: &'a NodeName, parts: &'a [&'a str]) -> Sealed<'a> {
    Sealed { kind, by, to, parts }
}

impl Cluster {
    /// Asks a node for something. The error says why that could not be done; after it nothing comes of it.
    async fn request<R: Request>(&self, to: &NodeName, request: &R) -> Result<()> {
        let Some(Nonce { nonce, .. }) = self.coordinator.nonce(to).await? else {
            bail!(
                "{to} has not said yet how what it is asked for is to be sealed: it has just been started, or runs an older version; try \
                 again, or give the command at {to}"
            );
        };
        let (nonce, text) = (nonce.to_string(), request.encode());
        let parts = [nonce.as_str(), text.as_str()];
        let seal = self.seals.seal(sealed_request(R::ASKED, &self.name, to, &parts))?;
        // Where it is not known whether it lies there, an answer may come all the same.
        self.coordinator.request(to, request, &seal).await?;
        Ok(())
    }

    /// Asks a node for something, and waits for its answer until `given_up` returns. With the answer: when it was here, in milliseconds
    /// since 1970.
    pub(super) async fn answer_of<R: Request, W>(
        &self,
        to: &NodeName,
        request: &R,
        given_up: impl Future<Output = W>,
    ) -> Result<(R::Answer, u64), NoAnswer<W>> {
        self.request(to, request).await.map_err(NoAnswer::NotAsked)?;
        let answered = tokio::select! {
            answer = self.await_answer(to, request) => Ok(answer),
            why = given_up => match self.response(to, request).await {
                Some(answer) => Ok(answer),
                None => Err(NoAnswer::GivenUp(why)),
            },
        };
        let at_ms = now_ms();
        // What stays behind is withdrawn by nobody, and read by nobody: it is dropped when this node or the other one starts.
        let _ = self.coordinator.withdraw(to, request).await;
        answered.map(|answer| (answer, at_ms))
    }

    async fn await_answer<R: Request>(&self, to: &NodeName, request: &R) -> R::Answer {
        loop {
            let hint = self.answered.notified();
            if let Some(answer) = self.response(to, request).await {
                return answer;
            }
            let _ = tokio::time::timeout(ANSWER_LOOK, hint).await;
        }
    }

    /// The answer, if the node that was asked has given one.
    async fn response<R: Request>(&self, to: &NodeName, request: &R) -> Option<R::Answer> {
        let (answer, seal) = self.coordinator.response(to, request).await.ok()??;
        let (asked, text) = (request.encode(), answer.encode());
        let parts = [asked.as_str(), text.as_str()];
        match self.seals.check(&seal, sealed_request(R::ANSWERED, to, &self.name, &parts)) {
            Ok(()) => Some(answer),
            Err(why) => {
                self.report_forged(&format!("an answer in the name of {to} is passed over: {why:#}"));
                None
            }
        }
    }

    /// Carries out what is asked of this node, each once, and nothing before it was found who asks, and that he asks now.
    pub(super) async fn take_requests<R: Served>(self: &Arc<Cluster>) {
        // What is not known now is asked for again soon.
        let requests = self.coordinator.requests::<R>(&self.name).await.unwrap_or_default();
        for request in R::taken(self).new_of(requests, R::id) {
            let cluster = self.clone();
            tokio::spawn(async move {
                match cluster.check_request(&request).await {
                    Ok(()) => request.serve(cluster).await,
                    Err(refused) => {
                        cluster.respond(&request, &refused, Some(R::REFUSED_MAX)).await;
                    }
                }
            });
        }
    }

    /// Whether a request is to be carried out. `Err`: the answer that it gets instead.
    async fn check_request<R: Request>(&self, request: &R) -> Result<(), R::Answer> {
        let judged = match self.coordinator.seal_of(&self.name, request).await {
            Ok(Some(seal)) => self.judge(request, &seal),
            Ok(None) => Err(anyhow::anyhow!("it has no seal: who has made it runs an older version, or is no node")),
            Err(error) => Err(error.into()),
        };
        judged.map_err(|why| {
            let from = request.from();
            self.report_forged(&format!("what was asked for in the name of {from} is not carried out: {why:#}"));
            request.refused(format!("{} does not carry it out: {why:#}", self.name))
        })
    }

    /// Whether a request is by whom it says, for this node, new and of now.
    fn judge<R: Request>(&self, request: &R, seal: &Seal) -> Result<()> {
        let text = request.encode();
        let mut refused = None;
        for nonce in self.nonces.counting() {
            let with = nonce.to_string();
            let parts = [with.as_str(), text.as_str()];
            match self.seals.check(seal, sealed_request(R::ASKED, request.from(), &self.name, &parts)) {
                Ok(()) => match self.nonces.take(nonce, R::ASKED, request.id()) {
                    Worth::New => return Ok(()),
                    Worth::CarriedOut => bail!("it was carried out before, and was written there once more"),
                    Worth::Full => {
                        bail!("this node has been asked for more than it remembers at one time; try again in a minute")
                    }
                },
                Err(why) => refused = Some(why),
            }
        }
        let why = refused.context("this node has just been started; give the command again")?;
        Err(why
            .context("it was not sealed for this node within the last moments by whom it says; give the command again"))
    }

    /// Answers a request; `most`: tries for so long, none: until it is known. Whether somebody was still waiting.
    pub(super) async fn respond<R: Request>(&self, request: &R, answer: &R::Answer, most: Option<Time>) -> bool {
        let begun = Instant::now();
        let (asked, text) = (request.encode(), answer.encode());
        let parts = [asked.as_str(), text.as_str()];
        let seal = match self.seals.seal(sealed_request(R::ANSWERED, &self.name, request.from(), &parts)) {
            Ok(seal) => seal,
            Err(error) => {
                log::say!(Error, "what {} has asked for is not answered: {error:#}", request.from());
                return false;
            }
        };
        loop {
            match self.coordinator.respond(&self.name, request, answer, &seal).await {
                Ok(Outcome::Won) => return true,
                Ok(Outcome::Lost(())) => return false,
                Ok(Outcome::Unknown(_)) | Err(_) if most.is_some_and(|most| begun.elapsed() >= most) => return false,
                Ok(Outcome::Unknown(_)) | Err(_) => tokio::time::sleep(RETRY).await,
            }
        }
    }

    /// At most once in a while: whoever can write to the coordinator can bring it about as often as he likes.
    pub(super) fn report_forged(&self, what: &str) {
        let mut said = self.forged_said.lock().expect("nobody panics while holding it");
        if said.is_none_or(|at| at.elapsed() >= TWIN_SAID_AGAIN) {
            *said = Some(Instant::now());
            log::say!(Warning, "{what}");
        }
    }

    /// Takes away what is meant for a former life of this node.
    pub(super) async fn drop_old_requests(&self) {
        // What is not dropped now is not carried out either: it is sealed with a nonce that does not count.
        let _ = self.coordinator.drop_old::<Call>(&self.name).await;
        let _ = self.coordinator.drop_old::<Ask>(&self.name).await;
    }

    /// Draws a nonce now and then, and tells it. Never ends. Whoever finds another one than it has told has found another daemon
    /// with this node's identity, or somebody else who writes there.
    pub(super) async fn publish_nonces(self: Arc<Cluster>) {
        // One of these may be there: of attempts whose fate is not known, each.
        let mut told: Vec<Nonce> = Vec::new();
        let (mut is_first, mut twin_said) = (true, None::<Instant>);
        loop {
            let Ok(nonce) = VolumeId::random() else {
                tokio::time::sleep(RETRY).await;
                continue;
            };
            // It counts before anybody can have read it, and the one before the last counts no more: also where somebody keeps this
            // node from telling it.
            self.nonces.turn(nonce);
            let begun = Instant::now();
            let new = Nonce { version: schema::VERSION, name: self.name.clone(), nonce };
            told.push(new.clone());
            let put = tokio::time::timeout(NONCE_PERIOD, self.put_nonce(&new)).await;
            // What is there before this daemon's first one may be of its former life.
            let was_first = is_first;
            is_first &= put.is_err();
            let found = put.ok().flatten();
            if let Some(other) = found.filter(|other| !was_first && !told.contains(other)) {
                *self.nonces.foreign.lock().expect("nobody panics while holding it") =
                    Some((Instant::now(), other.nonce));
                if twin_said.is_none_or(|at| at.elapsed() >= TWIN_SAID_AGAIN) {
                    twin_said = Some(Instant::now());
                    log::say!(Warning, "{}", twin_words(self.name.as_str(), other.nonce));
                }
            }
            told.drain(..told.len().saturating_sub(TOLD_REMEMBERED));
            tokio::time::sleep(NONCE_PERIOD.saturating_sub(begun.elapsed())).await;
        }
    }

    /// Another daemon with this node's identity was seen lately: in words, with what to do.
    pub(super) fn twin_found(&self) -> Option<String> {
        let found = *self.nonces.foreign.lock().expect("nobody panics while holding it");
        let (_, nonce) = found.filter(|(at, _)| at.elapsed() < TWIN_SHOWN)?;
        Some(twin_words(self.name.as_str(), nonce))
    }

    /// Puts a nonce there, whatever is there; what that was.
    async fn put_nonce(&self, new: &Nonce) -> Option<Nonce> {
        let mut before = self.coordinator.nonce(&self.name).await.ok().flatten();
        loop {
            match self.coordinator.renew_nonce(before.as_ref(), new).await {
                Ok(Outcome::Won) => return before,
                Ok(Outcome::Lost(found)) if found.as_ref() == Some(new) => return before,
                Ok(Outcome::Lost(found)) => before = found,
                // What is there is none, and says nothing.
                Err(Error::Damaged { .. }) => {
                    let _ = self.coordinator.clear_nonce(&self.name).await;
                    before = None;
                    tokio::time::sleep(RETRY).await;
                }
                Ok(Outcome::Unknown(_)) | Err(_) => tokio::time::sleep(RETRY).await,
            }
        }
    }
}

fn twin_words(name: &str, nonce: VolumeId) -> String {
    format!(
        "another daemon runs with the identity of {name}, or somebody else writes to the coordinator (a nonce {nonce} was found there that is \
         not of this daemon): two daemons of one identity take each other's volumes away; stop one of them, and enrol a copied machine under a \
         name of its own"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_counts_once_and_for_two_nonces() {
        let id = |number: u8| VolumeId([number; 16]);
        let nonces = Nonces::default();
        assert_eq!(nonces.counting(), []);
        nonces.turn(id(1));
        assert_eq!(nonces.take(id(1), "call", id(100)), Worth::New);
        assert_eq!(nonces.take(id(1), "call", id(100)), Worth::CarriedOut);
        nonces.turn(id(2));
        assert_eq!(nonces.counting(), [id(2), id(1)]);
        assert_eq!(
            nonces.take(id(1), "call", id(100)),
            Worth::CarriedOut,
            "it is remembered as long as its nonce counts"
        );
        assert_eq!(nonces.take(id(2), "call", id(100)), Worth::CarriedOut);
        assert_eq!(
            (nonces.take(id(1), "call", id(101)), nonces.take(id(2), "call", id(102))),
            (Worth::New, Worth::New)
        );
        nonces.turn(id(3));
        assert_eq!(nonces.counting(), [id(3), id(2)]);
        assert_eq!(nonces.take(id(1), "call", id(103)), Worth::Full, "its nonce counts no more");
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let nonces = Nonces::default();
        nonces.turn(VolumeId([1; 16]));
        let take = |kind, number: usize| {
            let mut id = [0; 16];
            id[..8].copy_from_slice(&number.to_be_bytes());
            nonces.take(VolumeId([1; 16]), kind, VolumeId(id))
        };
        assert!((0..CARRIED_OUT_MAX).all(|number| take("ask", number) == Worth::New));
        assert_eq!(take("ask", CARRIED_OUT_MAX), Worth::Full);
        assert_eq!(take("ask", 0), Worth::CarriedOut);
        assert_eq!(take("call", CARRIED_OUT_MAX), Worth::New, "looks leave room for commands");
    }

    fn ids(numbers: std::ops::Range<u16>) -> Vec<VolumeId> {
        let id = |number: u16| {
            let mut bytes = [0; 16];
            bytes[..2].copy_from_slice(&number.to_be_bytes());
            VolumeId(bytes)
        };
        numbers.map(id).collect()
    }

    #[test]
    fn a_long_list_is_taken_once_and_what_has_ended_is_forgotten_late() {
        let taken = Taken::default();
        let new = |numbers: std::ops::Range<u16>| taken.new_of(ids(numbers), |id| *id).len();
        assert_eq!(new(0..1000), 1000);
        assert_eq!(new(0..1000), 0, "each of them is still listed");
        assert_eq!(new(0..1001), 1, "and one more");
        assert_eq!(new(1000..1001), 0);
        // Of those that have ended, the last ones may still be in a list that was on its way.
        assert_eq!(new(1000 - ENDED_REMEMBERED as u16..1001), 0);
        assert_eq!(taken.0.lock().unwrap().len(), ENDED_REMEMBERED + 1);
    }
}
