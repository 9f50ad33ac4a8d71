//! Commands that the owner of a volume carries out, given at any node: there, or by a call to the owner's node, which lies in the
//! coordinator until it is answered.
//!
//! Invariants:
//! - What is carried out for another node is the same command, checked in the same way, as one that is given here.
//! - Nothing is carried out before [`requests`](super::requests) has found who asks, and that he asks now.
//! - A call that nobody waits for any more is not answered; a hold that nobody knows of is ended.

use super::commands::{Answer, Trouble, failure};
use super::control::Cluster;
use super::requests::{NoAnswer, Served, Taken};
use crate::coordinator::schema::{self, Answered, Call, NodeEntry, NotDone, OwnerCommand};
use crate::failure::{Failure, FailureKind};
use forebay_api::checked::NodeName;

use forebay_api::record::VolumeId;
use forebay_core::cluster::{LogState, NodeId};
use forebay_core::ownership::State;
use std::sync::Arc;
use std::time::{Duration as Time, Instant};
use tokio::sync::oneshot;

/// Between two looks whether the owner that is asked can be reached, and owns it.
const OWNER_REACH_LOOK: Time = Time::from_secs(1);
/// So long the link to the owner may be down, or the volume be another node's, before a call is given up.
const OWNER_GONE_MAX: Time = Time::from_secs(15);
/// A volume that is about to have an owner is waited for.
const OWNER_WAIT: Time = Time::from_secs(20);
const OWNER_LOOK: Time = Time::from_millis(200);

impl Served for Call {
    const REFUSED_MAX: Time = OWNER_GONE_MAX;

    fn taken(cluster: &Cluster) -> &Taken {
        &cluster.calls_taken
    }

    fn serve(self, cluster: Arc<Cluster>) -> impl Future<Output = ()> + Send {
        cluster.execute_call(self)
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
        wish: OwnerCommand,
        gone: &mut oneshot::Receiver<()>,
    ) -> Answer<()> {
        let until = Instant::now() + OWNER_WAIT;
        loop {
            let done = match self.owner_of(volume).await {
                Owner::Here => self.execute(volume, name, &wish).await,
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
        wish: &OwnerCommand,
        gone: &mut oneshot::Receiver<()>,
    ) -> Result<(), Trouble> {
        let Some(to) = self.node_name(node) else { return Err(Trouble::NotOwner) };
        let id = VolumeId::random().map_err(|error| Trouble::failed(format!("{error:#}")))?;
        let call = Call { version: schema::VERSION, id, from: self.name.clone(), volume, command: wish.clone() };
        let given_up = async {
            tokio::select! {
                why = self.is_out_of_reach(volume, node) => why,
                _ = gone => "who asked for it has gone away",
            }
        };
        match self.answer_of(&to, &call, given_up).await {
            Ok((Answered { not_done: None, .. }, _)) => Ok(()),
            Ok((Answered { not_done: Some(kind), why, .. }, _)) => Err(Trouble::of(kind, why)),
            Err(NoAnswer::NotAsked(error)) => {
                Err(Trouble::failed(format!("volume {name}: its owner {to} cannot be asked: {error:#}")))
            }
            Err(NoAnswer::GivenUp(why)) => Err(Trouble::failed(format!(
                "volume {name}: its owner {to} was asked, and {why}; whether it was done is not known: see `forebay volume show {name}`"
            ))),
        }
    }

    /// Returns when the owner was not linked, or the volume another node's, for too long.
    async fn is_out_of_reach(&self, volume: VolumeId, node: NodeId) -> &'static str {
        let mut well = Instant::now();
        loop {
            tokio::time::sleep(OWNER_REACH_LOOK).await;
            let owns = matches!(self.owner_of(volume).await, Owner::There(owner) if owner == node);
            if owns && self.is_linked(node).await {
                well = Instant::now();
            } else if well.elapsed() > OWNER_GONE_MAX {
                return "gives no answer";
            }
        }
    }

    async fn is_linked(&self, node: NodeId) -> bool {
        self.links().await.iter().any(|link| link.node == node && link.up)
    }

    // --- for other nodes ---

    async fn execute_call(self: Arc<Cluster>, call: Call) {
        let name = self.known().get(&call.volume).map(|known| known.definition.name.clone());
        let done = match &name {
            Some(name) => self.execute(call.volume, name, &call.command).await,
            None => Err(Trouble::of(NotDone::NotFound, format!("{} does not know the volume", self.name))),
        };
        let (not_done, why) = match done {
            Ok(()) => (None, String::new()),
            Err(trouble) => {
                let (kind, why) = trouble.into_words();
                (Some(kind), why)
            }
        };
        let answered = Answered { version: schema::VERSION, not_done, why };
        let told = self.respond(&call, &answered, None).await;
        if let (false, OwnerCommand::Hold { .. }, None, Some(name)) = (told, &call.command, not_done, &name) {
            // Nobody would know of it. One who was told after all finds out when he releases it.
            let _ = self.execute(call.volume, name, &OwnerCommand::Release).await;
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
