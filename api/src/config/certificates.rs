//! Lists of certificates: who may use a volume, look by HTTP, or change by HTTP. What a name is, and what a role besides is good
//! for, `forebay_core::roles` says.

use anyhow::{Result, bail};
use forebay_core::roles::{LISTED_MAX, Name};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// Certificates by name, each once.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Vec<String>", into = "Vec<String>")]
pub struct CertificateList(Arc<[Name]>);

impl CertificateList {
    /// A list of these names; an error if there are more than [`LISTED_MAX`].
    pub fn new(names: &[Name]) -> Result<CertificateList> {
        if names.len() > LISTED_MAX {
            bail!(
                "a list of {} certificates; at most {LISTED_MAX} are taken: give hosts that belong together one name",
                names.len()
            );
        }
        if let Some((_, twice)) = names.iter().enumerate().find(|(at, name)| names[..*at].contains(name)) {
            bail!("{twice} is in the list twice");
        }
        Ok(CertificateList(names.into()))
    }

    /// The names of those that are listed.
    pub fn names(&self) -> &[Name] {
        &self.0
    }
}

impl TryFrom<Vec<String>> for CertificateList {
    type Error = anyhow::Error;

    fn try_from(texts: Vec<String>) -> Result<CertificateList> {
        let read = |text: &String| text.parse().map_err(|why| anyhow::anyhow!("certificate {text:?}: {why}"));
        let names: Vec<Name> = texts.iter().take(LISTED_MAX + 1).map(read).collect::<Result<_>>()?;
        CertificateList::new(&names)
    }
}

impl From<CertificateList> for Vec<String> {
    fn from(list: CertificateList) -> Vec<String> {
        list.0.iter().map(Name::to_string).collect()
    }
}

/// Which clients with certificates may use a volume.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "ClientsText", into = "ClientsText")]
pub enum Clients {
    /// All with the role of a client of volumes.
    #[default]
    Any,
    /// These alone; none, where the list is empty.
    Listed(CertificateList),
}

impl Clients {
    /// Whether the volume has no list, and takes every client with the role.
    pub fn is_any(&self) -> bool {
        *self == Clients::Any
    }

    /// The list, where there is one.
    pub fn names(&self) -> Option<&[Name]> {
        match self {
            Clients::Any => None,
            Clients::Listed(list) => Some(list.names()),
        }
    }
}

/// `any`, or a list of names.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum ClientsText {
    Word(String),
    List(Vec<String>),
}

impl TryFrom<ClientsText> for Clients {
    type Error = anyhow::Error;

    fn try_from(text: ClientsText) -> Result<Clients> {
        match text {
            ClientsText::Word(word) => word.parse(),
            ClientsText::List(names) => CertificateList::try_from(names).map(Clients::Listed),
        }
    }
}

impl From<Clients> for ClientsText {
    fn from(clients: Clients) -> ClientsText {
        match clients {
            Clients::Any => ClientsText::Word("any".to_owned()),
            Clients::Listed(list) => ClientsText::List(list.into()),
        }
    }
}

/// As a command has it: `any`, `none`, or names with commas between them.
impl std::str::FromStr for Clients {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Clients> {
        let names = match text {
            "any" => return Ok(Clients::Any),
            "none" => Vec::new(),
            names => names.split(',').map(str::to_owned).collect(),
        };
        CertificateList::try_from(names).map(Clients::Listed)
    }
}

/// The list in words for people, as reports and the command line show it.
impl std::fmt::Display for Clients {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.names() {
            None => f.write_str("any with the role nbd-client"),
            Some([]) => f.write_str("none by TLS"),
            Some(names) => f.write_str(&names.iter().map(Name::to_string).collect::<Vec<_>>().join(", ")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_have_one_form_and_bounds() {
        let list =
            |names: &[&str]| CertificateList::try_from(names.iter().map(|n| (*n).to_owned()).collect::<Vec<_>>());
        let good = list(&["dns:VM1", "uri:spiffe://lab/vm1"]).unwrap();
        assert_eq!(serde_json::to_string(&good).unwrap(), r#"["dns:vm1","uri:spiffe://lab/vm1"]"#);
        let said = list(&["dns:vm1", "dns:VM1"]).unwrap_err().to_string();
        assert!(said.contains("dns:vm1 is in the list twice"), "{said}");
        let said = list(&["vm1"]).unwrap_err().to_string();
        assert!(said.contains("\"vm1\"") && said.contains("dns:NAME"), "{said}");
        let many: Vec<String> = (0..LISTED_MAX + 1).map(|n| format!("dns:vm{n}")).collect();
        assert!(CertificateList::try_from(many[..LISTED_MAX].to_vec()).is_ok());
        assert!(CertificateList::try_from(many).unwrap_err().to_string().contains("at most 64"));
    }

    #[test]
    fn any_and_none_are_no_names() {
        let word = |text: &str| text.parse::<Clients>().map(|clients| clients.to_string()).ok();
        assert_eq!(word("any").unwrap(), "any with the role nbd-client");
        assert_eq!(word("none").unwrap(), "none by TLS");
        assert_eq!(word("dns:a,dns:b").unwrap(), "dns:a, dns:b");
        for wrong in ["", "a", "any,dns:a", "dns:a,", "dns:a, dns:b"] {
            assert_eq!(word(wrong), None, "{wrong:?}");
        }
        for text in [r#""any""#, "[]", r#"["dns:a"]"#] {
            let read: Clients = serde_json::from_str(text).unwrap();
            assert_eq!(serde_json::to_string(&read).unwrap(), text);
        }
        assert!(serde_json::from_str::<Clients>("null").is_err() && serde_json::from_str::<Clients>("7").is_err());
    }
}
