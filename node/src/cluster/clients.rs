//! Which clients a volume of the cluster is for: what a node of the cluster has said by a command, and nothing else that lies in the
//! coordinator.
//!
//! Invariants:
//! - A list that is known here ([`super::pins`]) gives way only to one that a node has sealed, with a higher number: not to an older one, and
//!   to none at all that the definition alone has.
//! - Of a volume that is new here, or that an older version had known, the definition is believed, once.

use super::control::Cluster;
use crate::coordinator::Outcome;
use crate::coordinator::clients::{ClientsWord, KIND};
use crate::coordinator::schema::{self, Definition, Document};
use crate::log;
use anyhow::{Context, Result, bail};
use forebay_api::checked::NodeName;
use forebay_api::config::certificates::Clients;
use forebay_api::record::VolumeId;
use forebay_host::seals::{Seal, Sealed, Seals};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// A list, and the number of the word that has said it; 0: no word has.
#[derive(Clone, Default, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct KnownClients {
    pub(super) number: u64,
    pub(super) clients: Clients,
}

/// Whether a word is by the node that it names.
fn check(seals: &Seals, word: &ClientsWord, seal: &Seal) -> Result<()> {
    seals.check(seal, sealed(word, &[&word.encode()]))
}

/// Whether a word is by the node that it names, with whichever of its identities: also with one that was revoked.
fn was_sealed(seals: &Seals, word: &ClientsWord, seal: &Seal) -> bool {
    seals.signer(seal, sealed(word, &[&word.encode()])).is_ok()
}

/// What is sealed; `text`: the word's own.
fn sealed<'a>(word: &'a ClientsWord, text: &'a [&'a str]) -> Sealed<'a> {
    Sealed { kind: KIND, by: &word.by, to: &word.by, parts: text }
}

/// Lists that are said anew are said within this.
const SAID_WITHIN: Duration = Duration::from_secs(5);

/// Numbers that a word may leave out. Nobody sets a list so often while a node is away; and who once had a node's key cannot use them up.
const NUMBERS_LEFT_OUT_MAX: u64 = 1 << 32;

fn follows(number: u64, known: u64) -> bool {
    number > known && number - known <= NUMBERS_LEFT_OUT_MAX
}

/// What a node says in place of another one's word, as a newer one. None: it is not what this node knows of the list.
fn instead(word: &ClientsWord, known: &KnownClients, by: &NodeName) -> Option<ClientsWord> {
    if (word.number, &word.clients) != (known.number, &known.clients) {
        return None;
    }
    Some(ClientsWord { number: word.number.checked_add(1)?, by: by.clone(), ..word.clone() })
}

impl Cluster {
    /// What is known of the volume's list from now on is put into its definition. Why it is not the one that the definition has, if it is not.
    /// `word`: what was found in the coordinator, unchecked.
    pub(super) async fn judge_clients(
        &self,
        definition: &mut Definition,
        word: Option<&ClientsWord>,
    ) -> Option<String> {
        let (volume, pins) = (definition.volume, &self.place.pins);
        let known = pins.clients(volume);
        let number = known.as_ref().map_or(0, |known| known.number);
        let newer = word.is_some_and(|word| follows(word.number, number));
        if newer && let Some(said) = self.sealed_clients(volume).await {
            let is_news = follows(said.number, number);
            if is_news {
                definition.common.clients = said.clients.clone();
                pins.set_clients(volume, &said);
                return None;
            }
        }
        let Some(known) = known else {
            pins.set_clients(volume, &KnownClients { number: 0, clients: definition.common.clients.clone() });
            return None;
        };
        if definition.common.clients == known.clients {
            return None;
        }
        definition.common.clients = known.clients;
        Some(
            "its list of clients is not the one that a node has set by a command, and stays as it was: see who can write to the coordinator \
             besides Forebay, or, if an older version has set it, set it again at a node of this one (`forebay volume set NAME --clients`)"
                .to_owned(),
        )
    }

    /// What a node has said of a volume's clients, if one has.
    async fn sealed_clients(&self, volume: VolumeId) -> Option<KnownClients> {
        let (word, seal) = self.coordinator.clients_word(volume).await.ok()??;
        match check(&self.seals, &word, &seal) {
            Ok(()) => Some(KnownClients { number: word.number, clients: word.clients }),
            Err(why) => {
                self.report_forged(&format!("a list of clients in the name of {} is passed over: {why:#}", word.by));
                None
            }
        }
    }

    /// Identities of these nodes were revoked by an operator's command, and with them what the nodes have said of lists. What this node knows of that it
    /// says itself from now on, for those who do not know it yet. What is left, because it takes too long or is no such word, keeps nobody
    /// from having an identity revoked: such a list is to be set again.
    pub(super) async fn say_clients_for(&self, names: &[NodeName]) {
        let said = tokio::time::timeout(SAID_WITHIN, async {
            let words = self.coordinator.clients_words().await?;
            // An identity of its own that was revoked is a former one, or this node is none any more.
            let of_them = |word: &ClientsWord| names.contains(&word.by) && self.revocation_due().is_none();
            let mut left = Ok(());
            for word in words.into_iter().filter(of_them) {
                let Some(known) = self.place.pins.clients(word.volume) else { continue };
                // One that is no such word keeps none of the others from it.
                let said = self.say_clients_of(word.volume, &known, names).await;
                left = left.and(said);
            }
            left
        });
        let why = match said.await {
            Ok(Ok(())) => return,
            Ok(Err(why)) => format!("{why:#}"),
            Err(_) => "it takes too long".to_owned(),
        };
        log::say!(
            Warning,
            "lists of clients that were set at a node of which an identity is revoked are not all said anew by this one: {why}; set them again \
             (`forebay volume set NAME --clients`)"
        );
    }

    async fn say_clients_of(&self, volume: VolumeId, known: &KnownClients, names: &[NodeName]) -> Result<()> {
        let Some((word, seal)) = self.coordinator.clients_word(volume).await? else { return Ok(()) };
        // With whichever identity it was said; one that this node takes is none that was revoked.
        if !was_sealed(&self.seals, &word, &seal)
            || !names.contains(&word.by)
            || check(&self.seals, &word, &seal).is_ok()
        {
            return Ok(());
        }
        let new = instead(&word, known, &self.name)
            .with_context(|| format!("what {} has said of {volume} is not what is known here", word.by))?;
        let text = new.encode();
        let new_seal = self.seals.seal(sealed(&new, &[&text]))?;
        match self.coordinator.replace_clients(&(word, seal), &(new, new_seal)).await? {
            Outcome::Won => Ok(()),
            Outcome::Lost(()) => bail!("what is said of {volume} has changed meanwhile, or is not as a node writes it"),
            Outcome::Unknown(why) => bail!("whether it is said is not known: {why}"),
        }
    }

    /// What this node says of a volume's clients by a command, in the place of all that was said before.
    /// `found`: the last that was.
    pub(super) fn publish_clients(
        &self,
        volume: VolumeId,
        clients: &Clients,
        found: Option<&(ClientsWord, Seal)>,
    ) -> Result<(ClientsWord, Seal)> {
        let known = self.place.pins.clients(volume).map_or(0, |known| known.number);
        // Others may have taken it before its node's identity was revoked.
        let found = found.filter(|(word, seal)| follows(word.number, known) && was_sealed(&self.seals, word, seal));
        let said = found.map_or(0, |(word, _)| word.number);
        let number = known.max(said).checked_add(1).context("the cluster's lists of clients have no numbers left")?;
        let (version, by) = (schema::VERSION, self.name.clone());
        let word = ClientsWord { version, volume, number, by, clients: clients.clone() };
        let text = word.encode();
        let seal = self.seals.seal(Sealed { kind: KIND, by: &self.name, to: &self.name, parts: &[&text] })?;
        Ok((word, seal))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_host::fixture::seals_of_nodes;
    use forebay_tests::harness::TempDir;

    #[test]
    fn a_list_of_clients_counts_only_with_the_seal_of_a_node_for_this_very_list() {
        let folder = TempDir::new("clients-word");
        let [alpha, beta] = &seals_of_nodes(folder.path(), "lab", &["alpha", "beta"])[..] else { panic!("two") };
        let by = NodeName::new("alpha").unwrap();
        let clients = "dns:vm1".parse().unwrap();
        let word = ClientsWord { version: schema::VERSION, volume: VolumeId([1; 16]), number: 3, by, clients };
        assert_eq!(
            word.encode(),
            r#"{"version":1,"volume":"01010101-0101-0101-0101-010101010101","number":3,"by":"alpha","clients":["dns:vm1"]}"#
        );
        assert_eq!(ClientsWord::decode(&word.encode()), Ok(word.clone()));
        let seal_of = |seals: &Seals, word: &ClientsWord| {
            let text = word.encode();
            seals.seal(Sealed { kind: KIND, by: &word.by, to: &word.by, parts: &[&text] }).unwrap()
        };
        let seal = seal_of(alpha, &word);
        check(beta, &word, &seal).unwrap();
        for other in [
            ClientsWord { clients: Clients::Any, ..word.clone() },
            ClientsWord { number: 4, ..word.clone() },
            ClientsWord { volume: VolumeId([2; 16]), ..word.clone() },
            ClientsWord { by: NodeName::new("beta").unwrap(), ..word.clone() },
        ] {
            check(beta, &other, &seal).unwrap_err();
        }
        check(beta, &word, &seal_of(beta, &word)).unwrap_err();
    }

    #[test]
    fn what_is_said_in_place_of_another_ones_word_is_only_what_is_known() {
        let [alpha, gamma] = ["alpha", "gamma"].map(|name| NodeName::new(name).unwrap());
        let clients: Clients = "dns:vm1".parse().unwrap();
        let word = |number| ClientsWord {
            version: schema::VERSION,
            volume: VolumeId([1; 16]),
            number,
            by: gamma.clone(),
            clients: clients.clone(),
        };
        let known = |number, clients: &Clients| KnownClients { number, clients: clients.clone() };
        let same = known(3, &clients);
        let new = instead(&word(3), &same, &alpha).expect("it is known");
        assert_eq!(new, ClientsWord { number: 4, by: alpha.clone(), ..word(3) });
        assert_eq!(instead(&word(2), &same, &alpha), None, "older");
        assert_eq!(instead(&word(4), &same, &alpha), None, "newer, which nobody has taken");
        assert_eq!(instead(&word(3), &known(3, &Clients::Any), &alpha), None, "another list of that number");
        assert_eq!(instead(&word(u64::MAX), &known(u64::MAX, &clients), &alpha), None, "no number is left behind it");
    }
}
