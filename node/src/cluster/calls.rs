//! Commands that the owner of a volume carries out, given at any node: there, or by a call to the owner's node, which lies in the
//! coordinator until it is answered.
//!
//! Invariants:
//! - What is carried out for another node is the same command, checked in the same way, as one that is given here.
//! - Nothing is carried out before [`requests`](super::requests) has found who asks, and that he asks now.
//! - A call that nobody waits for any more is not answered; a hold that nobody knows of is ended.

use super::commands::{Answer, Trouble, failure};
use super::control::Cluster;
use crate::coordinator::words::{self, Answered, Call, NodeEntry, NotDone, Wish};
use crate::failure::{Failure, FailureKind};
use forebay_api::checked::NodeName;
use forebay_api::record::VolumeId;
use forebay_core::cluster::{LogState, NodeId};
use forebay_core::ownership::State;
use std::collections::{BTreeSet, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::{Duration as Time, Instant};
use tokio::sync::oneshot;

/// Between two looks for an answer, besides the hints that it is there.
const ANSWER_LOOK: Time = Time::from_secs(1);
/// So long the link to the owner may be down, or the volume be another node's, before a call is given up.
const OWNER_GONE_MAX: Time = Time::from_secs(15);
/// A volume that is about to have an owner is waited for.
const OWNER_WAIT: Time = Time::from_secs(20);
const OWNER_LOOK: Time = Time::from_millis(200);
/// What is not listed any more is remembered for so many others: a list that was on its way may still name it.
const ENDED_REMEMBERED: usize = 256;

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

/// Who carries out what is asked of a volume.
pub(super) enum Owner {
    Here,
    There(NodeId),
    /// Nobody serves it.
    Nobody,
    /// It is being taken over, opened, or read about.
    Unsettled,
}

impl Cluster {
    pub(super) async fn owner_of(&self, volume: VolumeId) -> Owner {
        let Some(shown) = self.show(volume).await else { return Owner::Unsettled };
        if matches!(shown.ownership.state, State::Owner | State::Custodian) {
            return Owner::Here;
        }
        match shown.ownership.record {
            Some(record) if record.log == LogState::Released => Owner::Nobody,
            Some(record) if record.owner != self.place.node => Owner::There(record.owner),
            Some(_) | None => Owner::Unsettled,
        }
    }

    pub(super) fn node_name(&self, node: NodeId) -> Option<NodeName> {
        self.nodes().iter().find(|entry| entry.node() == node).map(|entry| entry.name.clone())
    }

    /// Has the volume's owner do something, wherever it is. `gone`: closes when nobody waits for it any more.
    pub(super) async fn at_owner(
        self: &Arc<Cluster>,
        volume: VolumeId,
        name: &str,
        wish: Wish,
        gone: &mut oneshot::Receiver<()>,
    ) -> Answer<()> {
        let until = Instant::now() + OWNER_WAIT;
        loop {
            let done = match self.owner_of(volume).await {
                Owner::Here => self.carry_out(volume, name, &wish).await,
                Owner::There(node) => self.call(node, volume, name, &wish, gone).await,
                Owner::Nobody => {
                    return failure(
                        FailureKind::Conflict,
                        format!(
                            "nobody serves volume {name}: it was released, and there is nothing to be done about it"
                        ),
                    );
                }
                Owner::Unsettled => Err(Trouble::NotOwner),
            };
            match done {
                Ok(()) => return Ok(()),
                Err(Trouble::Failure(why)) => return Err(why),
                Err(Trouble::NotOwner) if Instant::now() < until => tokio::time::sleep(OWNER_LOOK).await,
                Err(Trouble::NotOwner) => {
                    let message = format!("volume {name} has no owner now; `forebay volume show {name}` says why");
                    return failure(FailureKind::Conflict, message);
                }
            }
        }
    }

    async fn call(
        &self,
        node: NodeId,
        volume: VolumeId,
        name: &str,
        wish: &Wish,
        gone: &mut oneshot::Receiver<()>,
    ) -> Result<(), Trouble> {
        let Some(to) = self.node_name(node) else { return Err(Trouble::NotOwner) };
        let id = VolumeId::random().map_err(|error| Trouble::failed(format!("{error:#}")))?;
        let call = Call { version: words::VERSION, id, from: self.name.clone(), volume, wish: wish.clone() };
        if let Err(error) = self.request(&to, &call).await {
            return Err(Trouble::failed(format!("volume {name}: its owner {to} cannot be asked: {error:#}")));
        }
        let ended = tokio::select! {
            answered = self.await_answer(&to, &call, node) => answered,
            _ = gone => Err("who asked for it has gone away".to_owned()),
        };
        // What stays behind is withdrawn by nobody, and read by nobody.
        let _ = self.coordinator.withdraw(&to, &call).await;
        match ended {
            Ok(Answered { not_done: None, .. }) => Ok(()),
            Ok(Answered { not_done: Some(kind), why, .. }) => Err(Trouble::of(kind, why)),
            Err(why) => Err(Trouble::failed(format!(
                "volume {name}: its owner {to} was asked, and {why}; whether it was done is not known: see `forebay volume show {name}`"
            ))),
        }
    }

    async fn await_answer(&self, to: &NodeName, call: &Call, node: NodeId) -> Result<Answered, String> {
        let mut well = Instant::now();
        loop {
            let hint = self.answered.notified();
            if let Some(answered) = self.response(to, call).await {
                return Ok(answered);
            }
            let _ = tokio::time::timeout(ANSWER_LOOK, hint).await;
            let owns = matches!(self.owner_of(call.volume).await, Owner::There(owner) if owner == node);
            if owns && self.is_linked(node).await {
                well = Instant::now();
            } else if well.elapsed() > OWNER_GONE_MAX {
                return Err("gives no answer".to_owned());
            }
        }
    }

    async fn is_linked(&self, node: NodeId) -> bool {
        self.links().await.iter().any(|link| link.node == node && link.up)
    }

    // --- for other nodes ---

    pub(super) async fn take_calls(self: &Arc<Cluster>) {
        for call in self.new_requests(&self.calls_taken).await {
            let cluster = self.clone();
            tokio::spawn(async move { cluster.carry_out_call(call).await });
        }
    }

    async fn carry_out_call(self: Arc<Cluster>, call: Call) {
        if let Err(refused) = self.check_request(&call).await {
            self.respond(&call, &refused, Some(OWNER_GONE_MAX)).await;
            return;
        }
        let name = self.known().get(&call.volume).map(|known| known.definition.name.clone());
        let done = match &name {
            Some(name) => self.carry_out(call.volume, name, &call.wish).await,
            None => Err(Trouble::of(NotDone::NotFound, format!("{} does not know the volume", self.name))),
        };
        let (not_done, why) = match done {
            Ok(()) => (None, String::new()),
            Err(trouble) => {
                let (kind, why) = trouble.into_words();
                (Some(kind), why)
            }
        };
        let answered = Answered { version: words::VERSION, not_done, why };
        let told = self.respond(&call, &answered, None).await;
        if let (false, Wish::Hold { .. }, None, Some(name)) = (told, &call.wish, not_done, &name) {
            // Nobody would know of it. One who was told after all finds out when he releases it.
            let _ = self.carry_out(call.volume, name, &Wish::Release).await;
        }
    }

    // --- nodes by name ---

    pub(super) fn node_called(&self, name: &str) -> Answer<NodeEntry> {
        self.nodes().into_iter().find(|entry| entry.name == name).ok_or_else(|| Failure {
            kind: FailureKind::NotFound,
            message: format!("there is no node {name}; `forebay node list` shows those there are"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
