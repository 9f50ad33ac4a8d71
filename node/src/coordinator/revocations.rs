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
pub const READ_TOGETHER: usize = 32;
/// Longest text of a word or a seal that anybody looks at, in bytes.
const TEXT_BYTES_MAX: usize = 16 << 10;

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
    /// The word and its seal.
    texts: [Text; 2],
}

/// What one key has.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Text {
    Absent,
    Found(String),
    /// More than anybody writes there; it is not kept.
    TooLong,
}

impl Text {
    fn of(found: Option<&str>) -> Text {
        match found {
            None => Text::Absent,
            Some(text) if text.len() > TEXT_BYTES_MAX => Text::TooLong,
            Some(text) => Text::Found(text.to_owned()),
        }
    }

    /// That the key is still so. None: it had nothing that is worth looking at.
    fn compare(self, key: String) -> Option<Compare> {
        match self {
            Text::Absent => Some(Compare { key, value: None }),
            Text::Found(text) => Some(Compare { key, value: Some(text) }),
            Text::TooLong => None,
        }
    }
}

impl FoundWord {
    #[cfg(test)]
    pub(crate) fn nothing_of(name: NodeName) -> FoundWord {
        FoundWord { name, texts: [Text::Absent, Text::Absent] }
    }

    /// What is said, and the seal. None: there is none. `Err`: why it cannot be used.
    pub fn read(&self) -> Result<Option<(RevokedWord, Seal)>, String> {
        let word = match &self.texts {
            [Text::Absent, _] => return Ok(None),
            [Text::Found(word), Text::Absent | Text::Found(_)] => RevokedWord::decode(word)?,
            [Text::TooLong, _] | [_, Text::TooLong] => {
                return Err("it, or its seal, is longer than one can be".to_owned());
            }
        };
        if word.name != self.name {
            return Err("it speaks of something else than its key".to_owned());
        }
        let [_, Text::Found(seal)] = &self.texts else { return Err("it has no seal".to_owned()) };
        Ok(Some((word, Seal::decode(seal).map_err(|why| format!("its seal cannot be used: {why}"))?)))
    }
}

impl Coordinator {
    fn revoked_keys(&self, name: &NodeName) -> [String; 2] {
        [self.key(&format!("{KIND}/{name}")), self.key(&format!("seal/{KIND}/{name}"))]
    }

    /// Whose identities are said to count no more, by name; nothing of it counts without its seal. None: somebody has put more there than can
    /// be listed, which is shown, and keeps nobody from asking for names that he knows.
    pub async fn revoked_names(&self) -> Result<Option<Vec<NodeName>>, Error> {
        let prefix = self.key(&format!("{KIND}/"));
        let look = format!("all of {prefix}");
        match self.read_entries(&prefix, true).await {
            Ok(entries) => {
                self.refused.set(&look, Vec::new());
                let name = |(key, _): (String, String)| NodeName::new(key.strip_prefix(&prefix)?).ok();
                Ok(Some(entries.into_iter().filter_map(name).collect()))
            }
            Err(error) => {
                // It may be the coordinator itself that does not answer.
                self.look(vec![]).await?;
                self.refused.set(&look, vec![(prefix, error.to_string())]);
                Ok(None)
            }
        }
    }

    /// What is said of these nodes, each word with its seal as of one moment; [`READ_TOGETHER`] at most. What is too long for an answer
    /// keeps nobody from the others: it comes with why.
    pub async fn revoked_words(&self, names: &[NodeName]) -> Result<Vec<Result<FoundWord, (NodeName, String)>>, Error> {
        assert!(names.len() <= READ_TOGETHER, "etcd takes no more in one transaction");
        if let Ok(found) = self.revoked_together(names).await {
            return Ok(found.into_iter().map(Ok).collect());
        }
        let mut found = Vec::new();
        for name in names {
            match self.revoked_together(std::slice::from_ref(name)).await {
                Ok(one) => found.extend(one.into_iter().map(Ok)),
                Err(error) => {
                    self.look(vec![]).await?;
                    found.push(Err((name.clone(), format!("it cannot be read: {error}"))));
                }
            }
        }
        Ok(found)
    }

    async fn revoked_together(&self, names: &[NodeName]) -> Result<Vec<FoundWord>, Error> {
        let keys = names.iter().flat_map(|name| self.revoked_keys(name));
        let read = self.look(keys.map(Read::Key).collect()).await?;
        let text = |at: usize| Text::of(read.get(at).and_then(|found| value_of(found)));
        let of =
            |(at, name): (usize, &NodeName)| FoundWord { name: name.clone(), texts: [text(2 * at), text(2 * at + 1)] };
        Ok(names.iter().enumerate().map(of).collect())
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
        self.change_revoked(found, self.put_revoked(word, seal)).await
    }

    /// Takes away what was found there: nobody may take it.
    pub async fn remove_revoked(&self, found: &FoundWord) -> Result<Outcome<()>, Error> {
        self.change_revoked(found, self.revoked_keys(&found.name).map(Operation::Delete)).await
    }

    async fn change_revoked(&self, found: &FoundWord, then: [Operation; 2]) -> Result<Outcome<()>, Error> {
        let keys = self.revoked_keys(&found.name).into_iter().zip(found.texts.clone());
        let compare = keys.filter_map(|(key, text)| text.compare(key)).collect();
        let transaction = Transaction { compare, then: then.into(), otherwise: vec![] };
        Ok(match self.ask(transaction).await? {
            Asked::Changed => Outcome::Won,
            Asked::Found(_) => Outcome::Lost(()),
            Asked::Unknown(why) => Outcome::Unknown(why),
        })
    }
}
