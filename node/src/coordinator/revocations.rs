//! That the identities of a node that was forgotten count no more: `revoked/NAME`, and which node has said it, `seal/revoked/NAME`.
//!
//! Whoever can write to the coordinator can put such a word there, change it and take it away: without the seal of a node it is nothing, and
//! who has taken one keeps it ([`crate::cluster`]). Versions before this one pass the keys over.

use super::schema::{self, Document};
use super::store::{Compare, Operation, Read, Transaction};
use super::{Asked, Coordinator, Error, Outcome, value_of};
use forebay_api::checked::NodeName;
use forebay_host::seals::{Seal, Sealed};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// First part of the key, and what the seal is about.
pub const KIND: &str = "revoked";
/// So many names are read at one moment: each has two keys, and etcd takes 128 in one transaction.
const READ_TOGETHER: usize = 32;

/// See the module's text.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RevokedWord {
    /// The layout of this text: [`schema::VERSION`].
    pub version: u32,
    /// Name of the node that was forgotten.
    pub name: NodeName,
    /// What was made for the name up to then counts no more: in seconds since 1970, by the clock of the node that has said it first.
    pub until_s: u64,
    /// Name of the node that has said it: another one.
    pub by: NodeName,
}

impl RevokedWord {
    /// The same as a time since 1970.
    pub fn until(&self) -> Duration {
        Duration::from_secs(self.until_s)
    }

    /// What is sealed; `text` is the word's own.
    pub fn sealed<'a>(&'a self, parts: &'a [&'a str]) -> Sealed<'a> {
        Sealed { kind: KIND, by: &self.by, to: &self.by, parts }
    }
}

impl Document for RevokedWord {
    fn encode(&self) -> String {
        schema::write(self)
    }

    fn decode(text: &str) -> Result<RevokedWord, String> {
        let word: RevokedWord = schema::read_of(text, schema::VERSION)?;
        match word.by != word.name {
            true => Ok(word),
            false => Err("a node says it of itself".to_owned()),
        }
    }

    fn is_at(&self, end: &str) -> bool {
        self.name == *end
    }
}

/// A word as it lies in the coordinator, with what is beside it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FoundWord {
    /// Name of the node that it would be about.
    pub name: NodeName,
    /// The word and its seal, both as they were written; none: there is nothing.
    texts: [Option<String>; 2],
}

impl FoundWord {
    #[cfg(test)]
    pub(crate) fn nothing_of(name: NodeName) -> FoundWord {
        FoundWord { name, texts: [None, None] }
    }

    /// What is said, and the seal. None: there is none. `Err`: why it cannot be used.
    pub fn read(&self) -> Result<Option<(RevokedWord, Seal)>, String> {
        let [Some(word), seal] = &self.texts else { return Ok(None) };
        let word = RevokedWord::decode(word)?;
        if word.name != self.name {
            return Err("it speaks of something else than its key".to_owned());
        }
        let seal = seal.as_ref().ok_or("it has no seal")?;
        Ok(Some((word, Seal::decode(seal).map_err(|why| format!("its seal cannot be used: {why}"))?)))
    }
}

impl Coordinator {
    fn revoked_keys(&self, name: &NodeName) -> [String; 2] {
        [self.key(&format!("{KIND}/{name}")), self.key(&format!("seal/{KIND}/{name}"))]
    }

    /// Whose identities are said to count no more, by name; nothing of it counts without its seal.
    pub async fn revoked_names(&self) -> Result<Vec<NodeName>, Error> {
        let words: Vec<RevokedWord> = self.list(&format!("{KIND}/")).await?;
        Ok(words.into_iter().map(|word| word.name).collect())
    }

    /// What is said of these nodes, each word with its seal as of one moment.
    pub async fn revoked_words(&self, names: &[NodeName]) -> Result<Vec<FoundWord>, Error> {
        let mut found = Vec::new();
        for names in names.chunks(READ_TOGETHER) {
            let keys = names.iter().flat_map(|name| self.revoked_keys(name));
            let read = self.look(keys.map(Read::Key).collect()).await?;
            let text = |at: usize| read.get(at).and_then(|found| value_of(found)).map(str::to_owned);
            let of = |(at, name): (usize, &NodeName)| FoundWord {
                name: name.clone(),
                texts: [text(2 * at), text(2 * at + 1)],
            };
            found.extend(names.iter().enumerate().map(of));
        }
        Ok(found)
    }

    /// Words that are not used here, and why: all that one look has found.
    pub fn refuse_revoked(&self, refused: Vec<(NodeName, String)>) {
        let key = |name: &NodeName| self.revoked_keys(name)[0].clone();
        self.refused.set("sealed words", refused.into_iter().map(|(name, why)| (key(&name), why)).collect());
    }

    /// What goes with the end of a node.
    pub(super) fn put_revoked(&self, word: &RevokedWord, seal: &Seal) -> [Operation; 2] {
        let [key, seal_key] = self.revoked_keys(&word.name);
        [Operation::Put { key, value: word.encode() }, Operation::Put { key: seal_key, value: seal.encode() }]
    }

    /// Puts a word in the place of what was found there.
    pub async fn replace_revoked(
        &self,
        found: &FoundWord,
        word: &RevokedWord,
        seal: &Seal,
    ) -> Result<Outcome<()>, Error> {
        assert_eq!(found.name, word.name, "a word stays that of its node");
        let compare = self.revoked_keys(&word.name).into_iter().zip(found.texts.clone());
        let transaction = Transaction {
            compare: compare.map(|(key, value)| Compare { key, value }).collect(),
            then: self.put_revoked(word, seal).into(),
            otherwise: vec![],
        };
        Ok(match self.ask(transaction).await? {
            Asked::Changed => Outcome::Won,
            Asked::Found(_) => Outcome::Lost(()),
            Asked::Unknown(why) => Outcome::Unknown(why),
        })
    }
}
