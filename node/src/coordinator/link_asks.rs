//! Nodes ask each other what they see of the links between them, by the coordinator: what asks about the links must not depend on
//! them.
//!
//! Invariants:
//! - An ask changes nothing anywhere. How it gets there and back is [`requests`](super::requests)'.
//! - Who is asked has registered as a reader of [`VERSION`]; an older node would not understand, and is not asked.

use super::requests::Request;
use super::schema::{self, Document};
use forebay_api::checked::NodeName;
use forebay_api::record::VolumeId;
use forebay_doctor::peer::{LinkEnd, Pair};
use serde::{Deserialize, Serialize};

/// Version of asks and of their answers.
pub const VERSION: u32 = 2;
const _: () = assert!(VERSION <= schema::VERSION_READ);

/// What does a node see of its links to another one?
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ask {
    /// The layout of this text: [`VERSION`].
    pub version: u32,
    /// Identity of this ask, drawn at random.
    pub id: VolumeId,
    /// Name of the node that asks.
    pub from: NodeName,
    /// Of these pairs of addresses, as the asked one has them; none: of those that it calls by.
    pub pairs: Vec<Pair>,
}

impl Document for Ask {
    fn encode(&self) -> String {
        schema::write(self)
    }

    fn decode(text: &str) -> Result<Ask, String> {
        schema::read_of(text, VERSION)
    }

    fn is_at(&self, end: &str) -> bool {
        self.id.to_string() == end
    }
}

/// What the asked node sees, as its answer.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LinkEndSeen {
    /// The layout of this text: [`VERSION`].
    pub version: u32,
    /// Identity of the ask that it answers.
    pub id: VolumeId,
    /// What the asked node sees; none: it could not look.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub side: Option<LinkEnd>,
    /// Why it could not look.
    #[serde(skip_serializing_if = "String::is_empty", default)]
    pub why: String,
}

impl Document for LinkEndSeen {
    fn encode(&self) -> String {
        schema::write(self)
    }

    fn decode(text: &str) -> Result<LinkEndSeen, String> {
        schema::read_of(text, VERSION)
    }
}

impl Request for Ask {
    type Answer = LinkEndSeen;
    const ASKED: &'static str = "ask";
    const ANSWERED: &'static str = "seen";

    fn id(&self) -> VolumeId {
        self.id
    }

    fn from(&self) -> &NodeName {
        &self.from
    }

    fn refused(&self, why: String) -> LinkEndSeen {
        LinkEndSeen { version: VERSION, id: self.id, side: None, why }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_doctor::peer::{Channel, End, Interface, Looked, Probe, Tcp};

    fn pair() -> Pair {
        let at = |text: &str| text.parse().expect("an address");
        Pair { own: at("10.0.0.2"), peer: at("10.0.0.1"), port: 7071, calls: false }
    }

    /// Nodes of neighbouring versions read each other's.
    #[test]
    fn asks_and_what_was_seen_have_one_form() {
        let id = VolumeId([7; 16]);
        let ask = Ask { version: VERSION, id, from: NodeName::new("alpha").unwrap(), pairs: vec![pair()] };
        let text = concat!(
            r#"{"version":2,"id":"07070707-0707-0707-0707-070707070707","from":"alpha","#,
            r#""pairs":[{"own":"10.0.0.2","peer":"10.0.0.1","port":7071,"calls":false}]}"#
        );
        assert_eq!(ask.encode(), text);
        assert_eq!(Ask::decode(text), Ok(ask));
        let end = End {
            pair: pair(),
            interface: Some("eth0".into()),
            prefix: Some(24),
            leaves_by: Some("eth0".into()),
            via: None,
            neighbour: Some("02:00:00:00:00:01".into()),
            probe: Probe::Lost { bytes: 9000, limit: None },
            tcp: Some(Tcp { connections: 1, round_trip_us: Some(90), segments: 10, resent: 0, path_mtu: 1500 }),
        };
        let interface = Interface {
            name: "eth0".into(),
            mtu: 9000,
            hardware: None,
            speed_mbit: Some(25_000),
            full_duplex: Some(true),
            is_line: true,
            rdma: vec![("mlx5_0/1".into(), "ACTIVE".into())],
        };
        let side = LinkEnd {
            node: "beta".into(),
            program: "0.1.0".into(),
            at_ms: 5,
            wants_multipath: false,
            channels: vec![Channel { own: None, peer: None, up: true, multipath: false, why: None }],
            looked: Looked { interfaces: vec![interface], ends: vec![end], hidden: vec![] },
        };
        let seen = LinkEndSeen { version: VERSION, id, side: Some(side), why: String::new() };
        let text = concat!(
            r#"{"version":2,"id":"07070707-0707-0707-0707-070707070707","side":{"node":"beta","program":"0.1.0","at_ms":5,"#,
            r#""wants_multipath":false,"channels":[{"up":true,"multipath":false}],"looked":{"interfaces":[{"name":"eth0","#,
            r#""mtu":9000,"speed_mbit":25000,"full_duplex":true,"is_line":true,"rdma":[["mlx5_0/1","ACTIVE"]]}],"#,
            r#""ends":[{"pair":{"own":"10.0.0.2","peer":"10.0.0.1","port":7071,"calls":false},"interface":"eth0","#,
            r#""prefix":24,"leaves_by":"eth0","neighbour":"02:00:00:00:00:01","probe":{"lost":{"bytes":9000}},"#,
            r#""tcp":{"connections":1,"round_trip_us":90,"segments":10,"resent":0,"path_mtu":1500}}]}}}"#
        );
        assert_eq!(seen.encode(), text);
        assert_eq!(LinkEndSeen::decode(text), Ok(seen));
        let failed = LinkEndSeen { version: VERSION, id, side: None, why: "no".into() };
        assert_eq!(LinkEndSeen::decode(&failed.encode()), Ok(failed));
        for probe in [Probe::Silent, Probe::Carried { bytes: 1 }, Probe::NotSent { why: "no".into() }] {
            let text = schema::write(&probe);
            assert_eq!(serde_json::from_str::<Probe>(&text).ok(), Some(probe), "{text}");
        }
    }

    #[test]
    fn an_ask_of_another_version_or_with_more_in_it_is_refused() {
        let ask = Ask { version: VERSION, id: VolumeId([7; 16]), from: NodeName::new("alpha").unwrap(), pairs: vec![] };
        let text = ask.encode();
        assert!(Ask::decode(&text.replace("\"version\":2", "\"version\":3")).unwrap_err().contains("version 3"));
        assert!(Ask::decode(&text.replace("\"pairs\":[]", "\"pairs\":[],\"more\":1")).unwrap_err().contains("more"));
        assert!(Ask::decode(&text[..20]).is_err());
    }
}
