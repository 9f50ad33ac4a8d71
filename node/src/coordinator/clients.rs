//! Which clients a volume is for, as a node says by a command: `clients/VOLUME`, and who has said it, `seal/clients/VOLUME`.
//!
//! A definition has the list as well, and versions before this one read it there alone. Whoever can write to the coordinator writes there what he
//! likes; so a node that knows a list takes another one only by this word, with the seal of a node and a higher number.

use super::schema::{self, Document};
use super::store::{Operation, Read, Transaction};
use super::{Asked, Coordinator, Error, Outcome, equals, value_of};
use forebay_api::checked::NodeName;
use forebay_api::config::certificates::Clients;
use forebay_api::record::VolumeId;
use forebay_host::seals::Seal;
use serde::{Deserialize, Serialize};

/// First part of the key, and what the seal is about.
pub const KIND: &str = "clients";

/// See the module's text.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClientsWord {
    /// The layout of this text: [`schema::VERSION`].
    pub version: u32,
    /// The volume whose clients they are.
    pub volume: VolumeId,
    /// Higher than that of every word before it.
    pub number: u64,
    /// Name of the node that has said it.
    pub by: NodeName,
    /// The clients that may use the volume.
    pub clients: Clients,
}

impl Document for ClientsWord {
    fn encode(&self) -> String {
        schema::write(self)
    }

    fn decode(text: &str) -> Result<ClientsWord, String> {
        schema::read_of(text, schema::VERSION)
    }

    fn is_at(&self, end: &str) -> bool {
        self.volume.to_string() == end
    }
}

impl Coordinator {
    fn clients_keys(&self, volume: VolumeId) -> (String, String) {
        (self.key(&format!("{KIND}/{volume}")), self.key(&format!("seal/{KIND}/{volume}")))
    }

    /// What is said of all volumes. Nothing of it counts without its seal.
    pub async fn clients_words(&self) -> Result<Vec<ClientsWord>, Error> {
        self.list(&format!("{KIND}/")).await
    }

    /// What is said of one, and its seal.
    pub async fn clients_word(&self, volume: VolumeId) -> Result<Option<(ClientsWord, Seal)>, Error> {
        let (key, seal_key) = self.clients_keys(volume);
        let found = self.look(vec![Read::Key(key.clone()), Read::Key(seal_key.clone())]).await?;
        let (Some(word), Some(seal)) = (value_of(&found[0]), value_of(&found[1])) else { return Ok(None) };
        let word: ClientsWord = self.decode(&key, word)?;
        if word.volume != volume {
            return Err(Error::Damaged { key, why: "it speaks of something else than its key".into() });
        }
        Ok(Some((word, self.decode(&seal_key, seal)?)))
    }

    /// Puts a word in the place of one that was found.
    pub async fn replace_clients(
        &self,
        (word, seal): &(ClientsWord, Seal),
        (new, new_seal): &(ClientsWord, Seal),
    ) -> Result<Outcome<()>, Error> {
        assert_eq!(word.volume, new.volume, "a word stays that of its volume");
        let (key, seal_key) = self.clients_keys(word.volume);
        let transaction = Transaction {
            compare: vec![equals(key, word.encode()), equals(seal_key, seal.encode())],
            then: self.put_clients(new, new_seal).into(),
            otherwise: vec![],
        };
        Ok(match self.ask(transaction).await? {
            Asked::Changed => Outcome::Won,
            Asked::Found(_) => Outcome::Lost(()),
            Asked::Unknown(why) => Outcome::Unknown(why),
        })
    }

    /// What goes with a change of the definition.
    pub(super) fn put_clients(&self, word: &ClientsWord, seal: &Seal) -> [Operation; 2] {
        let (key, seal_key) = self.clients_keys(word.volume);
        [Operation::Put { key, value: word.encode() }, Operation::Put { key: seal_key, value: seal.encode() }]
    }

    /// What goes with the end of a volume.
    pub(super) fn end_clients(&self, volume: VolumeId) -> [Operation; 2] {
        let (key, seal_key) = self.clients_keys(volume);
        [Operation::Delete(key), Operation::Delete(seal_key)]
    }
}
