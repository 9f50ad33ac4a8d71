//! What operators want of other nodes: commands that the owner of a volume carries out, and nodes that are to be emptied.
//!
//! Invariants:
//! - A call is answered by the node that it is meant for, in one transaction that takes the call away: one that was withdrawn is
//!   never answered, so whoever carries something out can undo what nobody waits for.
//! - Nothing of safety depends on a call: what it asks for is checked like a command that is given on the spot.

use super::store::{Operation, Read, Transaction};
use super::words::{self, Answered, Call, Leaving, OwnedVolumes, Words};
use super::{Asked, Coordinator, Error, Outcome, absent, equals, value_of};

impl Coordinator {
    fn call_key(&self, to: &str, call: &Call) -> String {
        self.key(&format!("call/{to}/{}", call.id))
    }

    fn answer_key(&self, call: &Call) -> String {
        self.key(&format!("answer/{}/{}", call.from, call.id))
    }

    /// Asks a node for something.
    pub async fn call(&self, to: &str, call: &Call) -> Result<Outcome<()>, Error> {
        let put = Operation::Put { key: self.call_key(to, call), value: call.encode() };
        self.change(Transaction { compare: vec![], then: vec![put], otherwise: vec![] }).await
    }

    /// What a node is asked for.
    pub async fn calls(&self, to: &str) -> Result<Vec<Call>, Error> {
        self.list(&format!("call/{to}/")).await
    }

    /// Answers a call, if somebody still waits for it: else it is lost.
    pub async fn answer(&self, to: &str, call: &Call, answered: &Answered) -> Result<Outcome<()>, Error> {
        let key = self.call_key(to, call);
        let then = vec![
            Operation::Delete(key.clone()),
            Operation::Put { key: self.answer_key(call), value: answered.encode() },
        ];
        self.change(Transaction { compare: vec![equals(key, call.encode())], then, otherwise: vec![] }).await
    }

    /// The answer to a call, if it is there.
    pub async fn answer_to(&self, call: &Call) -> Result<Option<Answered>, Error> {
        let key = self.answer_key(call);
        let found = self.look(vec![Read::Key(key.clone())]).await?;
        value_of(&found[0]).map(|text| self.decode(&key, text)).transpose()
    }

    /// A call is over, for whoever made it.
    pub async fn withdraw(&self, to: &str, call: &Call) -> Result<Outcome<()>, Error> {
        let then = vec![Operation::Delete(self.call_key(to, call)), Operation::Delete(self.answer_key(call))];
        self.change(Transaction { compare: vec![], then, otherwise: vec![] }).await
    }

    pub(super) async fn change(&self, transaction: Transaction) -> Result<Outcome<()>, Error> {
        Ok(match self.ask(transaction).await? {
            Asked::Changed => Outcome::Won,
            Asked::Found(_) => Outcome::Lost(()),
            Asked::Unknown(why) => Outcome::Unknown(why),
        })
    }

    // --- what owners tell ---

    /// What this node tells of its volumes. Its fate is nobody's concern: the next one follows soon.
    pub async fn tell(&self, told: &OwnedVolumes) -> Result<(), Error> {
        let put = Operation::Put { key: self.key(&format!("told/{}", told.name)), value: told.encode() };
        self.change(Transaction { compare: vec![], then: vec![put], otherwise: vec![] }).await.map(|_| ())
    }

    /// What all have told, by name.
    pub async fn told(&self) -> Result<Vec<OwnedVolumes>, Error> {
        self.list("told/").await
    }

    // --- nodes that are to be emptied ---

    /// The operator is about to stop a node of the cluster. Repeated, it stays as it was said first.
    pub async fn begin_leaving(&self, leaving: &Leaving) -> Result<Outcome<()>, Error> {
        let key = self.key(&format!("leaving/{}", leaving.name));
        let put = Operation::Put { key: key.clone(), value: leaving.encode() };
        match self.change(Transaction { compare: vec![absent(key)], then: vec![put], otherwise: vec![] }).await? {
            Outcome::Lost(()) => Ok(Outcome::Won),
            decided => Ok(decided),
        }
    }

    /// It stays.
    pub async fn end_leaving(&self, name: &str) -> Result<Outcome<()>, Error> {
        let then = vec![Operation::Delete(self.key(&format!("leaving/{name}")))];
        self.change(Transaction { compare: vec![], then, otherwise: vec![] }).await
    }

    /// Nodes that are to be emptied.
    pub async fn leaving(&self) -> Result<Vec<Leaving>, Error> {
        self.list("leaving/").await
    }
}

/// Milliseconds since 1970, for people.
pub fn now_ms() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |time| time.as_millis() as u64)
}

impl Leaving {
    /// From now on.
    pub fn now(name: &str) -> Leaving {
        Leaving { version: words::VERSION, name: name.to_owned(), at_ms: now_ms() }
    }
}
