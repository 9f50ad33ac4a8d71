//! That identities of a node count no more, as the cluster's authority has said: `revoked/NAME`.
//!
//! Whoever can write to the coordinator can put such a text there, change it and take it away: without the authority's signature it is nothing,
//! and who has taken one keeps it ([`crate::cluster`]) and puts it back. Versions before this one pass the keys over.

use super::schema::Document;
use super::store::{Compare, Operation, Read, Transaction};
use super::{Asked, Coordinator, Error, Outcome, value_of};
use forebay_api::checked::NodeName;
use forebay_host::identity::revocation::Revocation;

/// First part of the key.
pub const KIND: &str = "revoked";
/// Many times as long as a revocation is.
const COMPARED_BYTES_MAX: usize = 64 << 10;

impl Document for Revocation {
    fn encode(&self) -> String {
        serde_json::to_string(self).expect("names and numbers are JSON")
    }

    fn decode(text: &str) -> Result<Revocation, String> {
        serde_json::from_str(text).map_err(|error| error.to_string())
    }

    fn is_at(&self, end: &str) -> bool {
        self.name == *end
    }
}

impl Coordinator {
    /// What is said of all names, unchecked.
    pub async fn revocations(&self) -> Result<Vec<Revocation>, Error> {
        self.list(&format!("{KIND}/")).await
    }

    /// Shows those that the authority has not signed, until they are gone.
    pub fn refuse_revocations(&self, forged: Vec<(NodeName, String)>) {
        let look = self.key(&format!("{KIND}/ that is not signed"));
        let key = |name: &NodeName| self.key(&format!("{KIND}/{name}"));
        self.refused.set(&look, forged.iter().map(|(name, why)| (key(name), why.clone())).collect());
    }

    /// What is said of one, unchecked; none where that cannot be read as one.
    pub async fn revocation(&self, name: &NodeName) -> Result<Option<Revocation>, Error> {
        let found = self.look(vec![Read::Key(self.key(&format!("{KIND}/{name}")))]).await?;
        let text = value_of(&found[0]);
        Ok(text.and_then(|text| Revocation::decode(text).ok()).filter(|found| found.name == *name))
    }

    /// Puts one there in the place of whatever there is, but not of one that goes before it. Lost: something else was put there meanwhile.
    pub async fn put_revocation(
        &self,
        revocation: &Revocation,
        goes_before: impl Fn(&Revocation) -> bool,
    ) -> Result<Outcome<()>, Error> {
        let key = self.key(&format!("{KIND}/{}", revocation.name));
        let found = self.look(vec![Read::Key(key.clone())]).await?;
        let found = value_of(&found[0]).map(str::to_owned);
        let there = found.as_deref().and_then(|text| Revocation::decode(text).ok());
        if there.is_some_and(|there| there == *revocation || (there.name == revocation.name && goes_before(&there))) {
            return Ok(Outcome::Won);
        }
        let put = Operation::Put { key: key.clone(), value: revocation.encode() };
        // What nobody would have written may be too long to be compared.
        let is_short = found.as_ref().is_none_or(|text| text.len() <= COMPARED_BYTES_MAX);
        let compare = if is_short { vec![Compare { key, value: found }] } else { Vec::new() };
        Ok(match self.ask(Transaction { compare, then: vec![put], otherwise: vec![] }).await? {
            Asked::Changed => Outcome::Won,
            Asked::Found(_) => Outcome::Lost(()),
            Asked::Unknown(why) => Outcome::Unknown(why),
        })
    }
}
