//! In which terms a node was the owner of a volume whose every change of the backing has ended: `ended/NAME`, and its seal,
//! `seal/ended/NAME`. What it says once stays true: a term belongs to one process, which gives it up for good.

use super::schema::{self, Document};
use super::store::{Operation, Read, Transaction};
use super::{Asked, Coordinator, Error, Outcome, absent, equals, limits, value_of};
use forebay_api::checked::NodeName;
use forebay_api::record::VolumeId;
use forebay_core::types::Term;
use forebay_host::seals::{Seal, Sealed};
use serde::{Deserialize, Serialize};

/// First part of the key, and what the seal is about.
const KIND: &str = "ended";

/// A term in which the node was the owner.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EndedTerm {
    volume: VolumeId,
    term: u32,
}

/// See the module's text.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EndedTerms {
    version: u32,
    /// Name of the node that says it.
    pub name: NodeName,
    /// Those of the volume that something was said of last come last.
    terms: Vec<EndedTerm>,
}

impl EndedTerms {
    /// What a node says that has not said anything yet.
    pub fn none(name: NodeName) -> EndedTerms {
        EndedTerms { version: schema::VERSION, name, terms: Vec::new() }
    }

    /// Whether it says so of this term.
    pub fn has(&self, volume: VolumeId, term: Term) -> bool {
        self.terms.contains(&EndedTerm { volume, term: term.0 })
    }

    /// The same with these terms of a volume in the place of what was said of it before; volumes that are no more are left out.
    pub fn with(&self, volume: VolumeId, new: &[Term], is_there: impl Fn(VolumeId) -> bool) -> EndedTerms {
        let others = self.terms.iter().copied().filter(|old| old.volume != volume && is_there(old.volume));
        let mut terms: Vec<EndedTerm> = others.collect();
        terms.extend(new.iter().map(|term| EndedTerm { volume, term: term.0 }));
        terms.drain(..terms.len().saturating_sub(limits::ENDED_MAX));
        EndedTerms { version: self.version, name: self.name.clone(), terms }
    }

    /// Calls a function with what is sealed.
    pub fn sealed<T>(&self, with: impl FnOnce(Sealed<'_>) -> T) -> T {
        with(Sealed { kind: KIND, by: &self.name, to: &self.name, parts: &[&self.encode()] })
    }
}

impl Document for EndedTerms {
    fn encode(&self) -> String {
        schema::write(self)
    }

    fn decode(text: &str) -> Result<EndedTerms, String> {
        let ended: EndedTerms = schema::read_of(text, schema::VERSION)?;
        limits::ended(ended.terms.len()).map(|()| ended)
    }

    fn is_at(&self, end: &str) -> bool {
        self.name == *end
    }
}

impl Coordinator {
    fn ended_keys(&self, name: &NodeName) -> (String, String) {
        (self.key(&format!("{KIND}/{name}")), self.key(&format!("seal/{KIND}/{name}")))
    }

    /// What a node has said, and its seal. Nothing of it counts without that.
    pub async fn ended_terms(&self, name: &NodeName) -> Result<Option<(EndedTerms, Seal)>, Error> {
        let (key, seal_key) = self.ended_keys(name);
        let found = self.look(vec![Read::Key(key.clone()), Read::Key(seal_key.clone())]).await?;
        let (Some(ended), Some(seal)) = (value_of(&found[0]), value_of(&found[1])) else { return Ok(None) };
        let ended: EndedTerms = self.decode(&key, ended)?;
        if !ended.is_at(name.as_str()) {
            return Err(Error::Damaged { key, why: "it speaks of something else than its key".into() });
        }
        Ok(Some((ended, self.decode(&seal_key, seal)?)))
    }

    /// Says this in the place of whatever is there: nobody but this node says anything under its name. An earlier transaction that takes
    /// effect late changes nothing, because it compares.
    pub async fn say_ended(&self, (ended, seal): (&EndedTerms, &Seal)) -> Result<Outcome<()>, Error> {
        let (key, seal_key) = self.ended_keys(&ended.name);
        let found = self.look(vec![Read::Key(key.clone())]).await?;
        let as_found = match value_of(&found[0]) {
            Some(text) => equals(key.clone(), text.to_owned()),
            None => absent(key.clone()),
        };
        let transaction = Transaction {
            compare: vec![as_found],
            then: vec![
                Operation::Put { key, value: ended.encode() },
                Operation::Put { key: seal_key, value: seal.encode() },
            ],
            otherwise: vec![],
        };
        Ok(match self.ask(transaction).await? {
            Asked::Changed => Outcome::Won,
            Asked::Found(_) => Outcome::Lost(()),
            Asked::Unknown(why) => Outcome::Unknown(why),
        })
    }

    /// What goes with a node that is forgotten.
    pub(super) fn end_ended(&self, name: &NodeName) -> [Operation; 2] {
        let (key, seal_key) = self.ended_keys(name);
        [Operation::Delete(key), Operation::Delete(seal_key)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const VM1: VolumeId = VolumeId([1; 16]);
    const VM2: VolumeId = VolumeId([2; 16]);

    #[test]
    fn what_is_said_of_a_volume_takes_the_place_of_what_was() {
        let all = |_| true;
        let ended = EndedTerms::none(NodeName::new("alpha").unwrap());
        let ended = ended.with(VM2, &[Term(3)], all).with(VM1, &[Term(1), Term(2)], all);
        assert!(ended.has(VM1, Term(1)) && ended.has(VM1, Term(2)) && ended.has(VM2, Term(3)));
        assert!(!ended.has(VM1, Term(3)) && !ended.has(VM2, Term(1)));
        let ended = ended.with(VM1, &[Term(2), Term(5)], all);
        assert!(!ended.has(VM1, Term(1)) && ended.has(VM1, Term(2)) && ended.has(VM1, Term(5)));
        assert!(ended.has(VM2, Term(3)));
        let ended = ended.with(VM1, &[Term(5)], |volume| volume == VM1);
        assert!(!ended.has(VM2, Term(3)), "a volume that is no more");
        assert_eq!(EndedTerms::decode(&ended.encode()), Ok(ended));
    }

    #[test]
    fn no_more_is_read_than_a_node_writes() {
        let terms = vec![EndedTerm { volume: VM1, term: 1 }; limits::ENDED_MAX + 1];
        let name = NodeName::new("alpha").unwrap();
        let ended = EndedTerms { version: schema::VERSION, name, terms };
        assert!(EndedTerms::decode(&ended.encode()).unwrap_err().contains("terms"));
    }
}
