//! What one node asks another one for, by the coordinator, and the answer: one protocol for commands (`call`, `answer`) and for looks at
//! links (`ask`, `seen`).
//!
//! ```text
//! nonce/TO                what a request must be sealed with; TO draws another one now and then
//! call/TO/ID              the request              seal/call/TO/ID          who has made it
//! answer/FROM/ID          the answer               seal/answer/FROM/ID      who has given it
//! ```
//!
//! Invariants:
//! - A request is answered by the node that it is meant for, in one transaction that takes it away: one that was withdrawn is never
//!   answered, so whoever carries something out can undo what nobody waits for.
//! - A text and its seal are written in one transaction. What they are worth is judged by `cluster::requests`; here nothing is believed.
//! - Nothing of safety depends on a request: what it asks for is checked like a command that is given on the spot.

use super::schema::{self, Document};
use super::store::{Operation, Read, Transaction};
use super::{Asked, Coordinator, Error, Outcome, absent, equals, value_of};
use forebay_api::checked::NodeName;
use forebay_api::record::VolumeId;
use forebay_host::seals::Seal;
use serde::{Deserialize, Serialize};

/// etcd takes so many steps in one transaction by default, and some more.
const STEPS_MAX: usize = 100;

/// Something that a node asks another one for.
pub trait Request: Document + Clone + Send + Sync + 'static {
    /// What it is answered with.
    type Answer: Document + Send + Sync;
    /// First part of the key of a request.
    const ASKED: &'static str;
    /// First part of the key of an answer.
    const ANSWERED: &'static str;
    /// Identity of this request, drawn at random.
    fn id(&self) -> VolumeId;
    /// Name of the node that asks.
    fn from(&self) -> &NodeName;
    /// The answer where it is not carried out, because of who has asked, or when.
    fn refused(&self, why: String) -> Self::Answer;
}

/// What requests to a node are sealed with. Whoever waits longer than two of these are drawn waits in vain.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Nonce {
    /// The layout of this text: [`schema::VERSION`].
    pub version: u32,
    /// Name of the node that has drawn it.
    pub name: NodeName,
    /// What it has drawn at random.
    pub nonce: VolumeId,
}

impl Document for Nonce {
    fn encode(&self) -> String {
        schema::write(self)
    }

    fn decode(text: &str) -> Result<Nonce, String> {
        schema::read_of(text, schema::VERSION)
    }

    fn is_at(&self, end: &str) -> bool {
        self.name == end
    }
}

impl Document for Seal {
    fn encode(&self) -> String {
        schema::write(self)
    }

    fn decode(text: &str) -> Result<Seal, String> {
        schema::read_of(text, schema::VERSION)
    }
}

/// The keys of one request.
struct Keys {
    request: String,
    request_seal: String,
    answer: String,
    answer_seal: String,
}

impl Coordinator {
    fn keys_of<R: Request>(&self, to: &NodeName, request: &R) -> Keys {
        let asked = format!("{}/{to}/{}", R::ASKED, request.id());
        let answered = format!("{}/{}/{}", R::ANSWERED, request.from(), request.id());
        Keys {
            request_seal: self.key(&format!("seal/{asked}")),
            request: self.key(&asked),
            answer_seal: self.key(&format!("seal/{answered}")),
            answer: self.key(&answered),
        }
    }

    /// Asks a node for something.
    pub async fn request<R: Request>(&self, to: &NodeName, request: &R, seal: &Seal) -> Result<Outcome<()>, Error> {
        let keys = self.keys_of(to, request);
        let then = vec![
            Operation::Put { key: keys.request_seal, value: seal.encode() },
            Operation::Put { key: keys.request, value: request.encode() },
        ];
        self.change(Transaction { compare: vec![], then, otherwise: vec![] }).await
    }

    /// What a node is asked for.
    pub async fn requests<R: Request>(&self, to: &NodeName) -> Result<Vec<R>, Error> {
        self.list(&format!("{}/{to}/", R::ASKED)).await
    }

    /// By whom, if that is there.
    pub async fn seal_of<R: Request>(&self, to: &NodeName, request: &R) -> Result<Option<Seal>, Error> {
        let key = self.keys_of(to, request).request_seal;
        let found = self.look(vec![Read::Key(key.clone())]).await?;
        value_of(&found[0]).map(|text| self.decode(&key, text)).transpose()
    }

    /// Answers, if somebody still waits for it: else it is lost.
    pub async fn respond<R: Request>(
        &self,
        own: &NodeName,
        request: &R,
        answer: &R::Answer,
        seal: &Seal,
    ) -> Result<Outcome<()>, Error> {
        let keys = self.keys_of(own, request);
        let then = vec![
            Operation::Delete(keys.request.clone()),
            Operation::Delete(keys.request_seal),
            Operation::Put { key: keys.answer_seal, value: seal.encode() },
            Operation::Put { key: keys.answer, value: answer.encode() },
        ];
        self.change(Transaction { compare: vec![equals(keys.request, request.encode())], then, otherwise: vec![] })
            .await
    }

    /// The answer with its seal, if both are there.
    pub async fn response<R: Request>(&self, to: &NodeName, request: &R) -> Result<Option<(R::Answer, Seal)>, Error> {
        let keys = self.keys_of(to, request);
        let found = self.look(vec![Read::Key(keys.answer.clone()), Read::Key(keys.answer_seal.clone())]).await?;
        let (Some(answer), Some(seal)) = (value_of(&found[0]), value_of(&found[1])) else { return Ok(None) };
        Ok(Some((self.decode(&keys.answer, answer)?, self.decode(&keys.answer_seal, seal)?)))
    }

    /// It is over, for whoever asked.
    pub async fn withdraw<R: Request>(&self, to: &NodeName, request: &R) -> Result<Outcome<()>, Error> {
        let keys = self.keys_of(to, request);
        let all = [keys.request, keys.request_seal, keys.answer, keys.answer_seal];
        let then = all.map(Operation::Delete).to_vec();
        self.change(Transaction { compare: vec![], then, otherwise: vec![] }).await
    }

    /// Takes away what lies there for a node from its former life: requests that nobody waits for any more, and answers that nobody
    /// reads; also what is none of either.
    pub async fn drop_old<R: Request>(&self, own: &NodeName) -> Result<(), Error> {
        let below = |kind: &str| [format!("{kind}/{own}/"), format!("seal/{kind}/{own}/")];
        for below in [below(R::ASKED), below(R::ANSWERED)].concat() {
            let found = self.entries(&self.key(&below)).await?;
            for some in found.chunks(STEPS_MAX) {
                let then = some.iter().map(|(key, _)| Operation::Delete(key.clone())).collect();
                self.change(Transaction { compare: vec![], then, otherwise: vec![] }).await?;
            }
        }
        Ok(())
    }

    // --- nonces ---

    fn nonce_key(&self, name: &NodeName) -> String {
        self.key(&format!("nonce/{name}"))
    }

    /// What requests to a node are sealed with now; none: it runs a version that knows of no seals, or has just been started.
    pub async fn nonce(&self, name: &NodeName) -> Result<Option<Nonce>, Error> {
        let key = self.nonce_key(name);
        let found = self.look(vec![Read::Key(key.clone())]).await?;
        value_of(&found[0]).map(|text| self.decode(&key, text)).transpose()
    }

    /// Tells another one, in the place of the one that was told before; what is there instead is told by [`Outcome::Lost`].
    pub async fn renew_nonce(&self, from: Option<&Nonce>, to: &Nonce) -> Result<Outcome<Option<Nonce>>, Error> {
        let key = self.nonce_key(&to.name);
        let before = match from {
            Some(from) => equals(key.clone(), from.encode()),
            None => absent(key.clone()),
        };
        let transaction = Transaction {
            compare: vec![before],
            then: vec![Operation::Put { key: key.clone(), value: to.encode() }],
            otherwise: vec![Read::Key(key.clone())],
        };
        Ok(match self.ask(transaction).await? {
            Asked::Changed => Outcome::Won,
            Asked::Unknown(why) => Outcome::Unknown(why),
            Asked::Found(answer) => {
                Outcome::Lost(value_of(&answer.found[0]).map(|text| self.decode(&key, text)).transpose()?)
            }
        })
    }

    /// Takes away whatever is there in the place of a nonce.
    pub async fn clear_nonce(&self, name: &NodeName) -> Result<Outcome<()>, Error> {
        let then = vec![Operation::Delete(self.nonce_key(name))];
        self.change(Transaction { compare: vec![], then, otherwise: vec![] }).await
    }
}
