//! What operators want of other nodes: commands that the owner of a volume carries out, by [`requests`](super::requests), and nodes that
//! are to be evacuated.

use super::requests::Request;
use super::schema::{self, Answered, Call, Document, Evacuation, NotDone, OwnedVolumes};
use super::store::{Operation, Transaction};
use super::{Asked, Coordinator, Error, Outcome, absent};
use forebay_api::checked::NodeName;
use forebay_api::record::VolumeId;

impl Request for Call {
    type Answer = Answered;
    const ASKED: &'static str = "call";
    const ANSWERED: &'static str = "answer";

    fn id(&self) -> VolumeId {
        self.id
    }

    fn from(&self) -> &NodeName {
        &self.from
    }

    fn refused(&self, why: String) -> Answered {
        Answered { version: schema::VERSION, not_done: Some(NotDone::Conflict), why }
    }
}

impl Coordinator {
    pub(super) async fn change(&self, transaction: Transaction) -> Result<Outcome<()>, Error> {
        Ok(match self.ask(transaction).await? {
            Asked::Changed => Outcome::Won,
            Asked::Found(_) => Outcome::Lost(()),
            Asked::Unknown(why) => Outcome::Unknown(why),
        })
    }

    // --- what owners tell ---

    /// What this node tells of its volumes. Its fate is nobody's concern: the next one follows soon.
    pub async fn publish_owner_status(&self, told: &OwnedVolumes) -> Result<(), Error> {
        let put = Operation::Put { key: self.key(&format!("told/{}", told.name)), value: told.encode() };
        self.change(Transaction { compare: vec![], then: vec![put], otherwise: vec![] }).await.map(|_| ())
    }

    /// What all have told, by name.
    pub async fn owner_statuses(&self) -> Result<Vec<OwnedVolumes>, Error> {
        self.list("told/").await
    }

    // --- nodes that are to be evacuated ---

    /// The operator is about to stop a node of the cluster. Repeated, it stays as it was said first.
    pub async fn begin_evacuation(&self, leaving: &Evacuation) -> Result<Outcome<()>, Error> {
        let key = self.key(&format!("leaving/{}", leaving.name));
        let put = Operation::Put { key: key.clone(), value: leaving.encode() };
        match self.change(Transaction { compare: vec![absent(key)], then: vec![put], otherwise: vec![] }).await? {
            Outcome::Lost(()) => Ok(Outcome::Won),
            decided => Ok(decided),
        }
    }

    /// The node stays in the cluster after all: it may own volumes and keep copies again.
    pub async fn end_evacuation(&self, name: &str) -> Result<Outcome<()>, Error> {
        let then = vec![Operation::Delete(self.key(&format!("leaving/{name}")))];
        self.change(Transaction { compare: vec![], then, otherwise: vec![] }).await
    }

    /// Nodes that are to be evacuated.
    pub async fn evacuations(&self) -> Result<Vec<Evacuation>, Error> {
        self.list("leaving/").await
    }
}

/// Milliseconds since 1970, for people.
pub fn now_ms() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |time| time.as_millis() as u64)
}

impl Evacuation {
    /// The node is to be evacuated from now on.
    pub fn now(name: NodeName) -> Evacuation {
        Evacuation { version: schema::VERSION, name, at_ms: now_ms() }
    }
}
