//! Which clients a volume of the cluster is for: what a node of the cluster has said by a command, and nothing else that lies in the
//! coordinator.
//!
//! Invariants:
//! - A list that is known here ([`super::pins`]) gives way only to one that a node has sealed, with a higher number: not to an older one, and
//!   to none at all that the definition alone has.
//! - Of a volume that is new here, or that an older version had known, the definition is believed, once.

use super::control::Cluster;
use crate::coordinator::clients::{ClientsWord, KIND};
use crate::coordinator::schema::{self, Definition, Document};
use anyhow::{Context, Result};
use forebay_api::config::certificates::Clients;
use forebay_api::record::VolumeId;
use forebay_host::seals::{Seal, Sealed, Seals};
use serde::{Deserialize, Serialize};

/// A list, and the number of the word that has said it; 0: no word has.
#[derive(Clone, Default, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct KnownClients {
    pub(super) number: u64,
    pub(super) clients: Clients,
}

/// Whether a word is by the node that it names.
fn check(seals: &Seals, word: &ClientsWord, seal: &Seal) -> Result<()> {
    let text = word.encode();
    seals.check(seal, Sealed { kind: KIND, by: &word.by, to: &word.by, parts: &[&text] })
}

/// Numbers that a word may leave out. Nobody sets a list so often while a node is away; and who once had a node's key cannot use them up.
const NUMBERS_LEFT_OUT_MAX: u64 = 1 << 32;

fn follows(number: u64, known: u64) -> bool {
    number > known && number - known <= NUMBERS_LEFT_OUT_MAX
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

    /// What this node says of a volume's clients by a command, in the place of all that was said before.
    /// `found`: the last that was.
    pub(super) fn publish_clients(
        &self,
        volume: VolumeId,
        clients: &Clients,
        found: Option<&(ClientsWord, Seal)>,
    ) -> Result<(ClientsWord, Seal)> {
        let known = self.place.pins.clients(volume).map_or(0, |known| known.number);
        let found = found.filter(|(word, seal)| follows(word.number, known) && check(&self.seals, word, seal).is_ok());
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
    use forebay_api::checked::NodeName;
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
}
