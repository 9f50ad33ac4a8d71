//! Nodes ask each other what they see of the links between them, by the coordinator: what asks about the links must not depend on
//! them.
//!
//! Invariants:
//! - An ask changes nothing anywhere. It is answered in one transaction that takes it away: one that was withdrawn is not answered.
//! - Who is asked has registered as a reader of [`VERSION`]; an older node would not understand, and is not asked.

use super::store::{Operation, Transaction};
use super::words::{self, Words};
use super::{Coordinator, Error, Outcome, equals, value_of};
use crate::coordinator::store::Read;
use crate::doctor::peer::{Pair, Side};
use crate::volume_store::VolumeId;
use serde::{Deserialize, Serialize};

/// Of asks and their answers.
pub const VERSION: u32 = 2;
const _: () = assert!(VERSION <= words::VERSION_READ);

/// What does a node see of its links to another one?
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ask {
    /// [`VERSION`].
    pub version: u32,
    /// Drawn at random.
    pub id: VolumeId,
    /// Who asks.
    pub from: String,
    /// Of these pairs of addresses, as the asked one has them; none: of those that it calls by.
    pub pairs: Vec<Pair>,
}

impl Words for Ask {
    fn encode(&self) -> String {
        words::write(self)
    }

    fn decode(text: &str) -> Result<Ask, String> {
        words::read_of(text, VERSION)
    }
}

/// What it sees.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Seen {
    /// [`VERSION`].
    pub version: u32,
    /// Of which ask.
    pub id: VolumeId,
    /// That.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub side: Option<Side>,
    /// Why it could not look.
    #[serde(skip_serializing_if = "String::is_empty", default)]
    pub why: String,
}

impl Words for Seen {
    fn encode(&self) -> String {
        words::write(self)
    }

    fn decode(text: &str) -> Result<Seen, String> {
        words::read_of(text, VERSION)
    }
}

impl Coordinator {
    fn ask_key(&self, to: &str, id: VolumeId) -> String {
        self.key(&format!("ask/{to}/{id}"))
    }

    fn seen_key(&self, by: &str, id: VolumeId) -> String {
        self.key(&format!("seen/{by}/{id}"))
    }

    /// Asks a node.
    pub async fn ask_for_side(&self, to: &str, ask: &Ask) -> Result<Outcome<()>, Error> {
        let put = Operation::Put { key: self.ask_key(to, ask.id), value: ask.encode() };
        self.change(Transaction { compare: vec![], then: vec![put], otherwise: vec![] }).await
    }

    /// What a node is asked.
    pub async fn asks(&self, to: &str) -> Result<Vec<Ask>, Error> {
        self.list(&format!("ask/{to}/")).await
    }

    /// Answers, if somebody still waits for it: else it is lost.
    pub async fn answer_ask(&self, own: &str, ask: &Ask, seen: &Seen) -> Result<Outcome<()>, Error> {
        let key = self.ask_key(own, ask.id);
        let then = vec![
            Operation::Delete(key.clone()),
            Operation::Put { key: self.seen_key(&ask.from, ask.id), value: seen.encode() },
        ];
        self.change(Transaction { compare: vec![equals(key, ask.encode())], then, otherwise: vec![] }).await
    }

    /// The answer, if it is there.
    pub async fn seen(&self, ask: &Ask) -> Result<Option<Seen>, Error> {
        let key = self.seen_key(&ask.from, ask.id);
        let found = self.look(vec![Read::Key(key.clone())]).await?;
        value_of(&found[0]).map(|text| self.decode(&key, text)).transpose()
    }

    /// It is over, for whoever asked.
    pub async fn withdraw_ask(&self, to: &str, ask: &Ask) -> Result<Outcome<()>, Error> {
        let then =
            vec![Operation::Delete(self.ask_key(to, ask.id)), Operation::Delete(self.seen_key(&ask.from, ask.id))];
        self.change(Transaction { compare: vec![], then, otherwise: vec![] }).await
    }

    /// What lies there for a node from its former life: asks that nobody waits for any more, and answers that nobody reads.
    pub async fn drop_old_asks(&self, own: &str) -> Result<(), Error> {
        let mut then = Vec::new();
        then.extend(self.asks(own).await?.iter().map(|ask| Operation::Delete(self.ask_key(own, ask.id))));
        let seen: Vec<Seen> = self.list(&format!("seen/{own}/")).await?;
        then.extend(seen.iter().map(|seen| Operation::Delete(self.seen_key(own, seen.id))));
        if !then.is_empty() {
            self.change(Transaction { compare: vec![], then, otherwise: vec![] }).await?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::peer::{Channel, End, Interface, Looked, Probe, Tcp};

    fn pair() -> Pair {
        let at = |text: &str| text.parse().expect("an address");
        Pair { own: at("10.0.0.2"), peer: at("10.0.0.1"), port: 7071, calls: false }
    }

    /// Nodes of neighbouring versions read each other's.
    #[test]
    fn asks_and_what_was_seen_have_one_form() {
        let id = VolumeId([7; 16]);
        let ask = Ask { version: VERSION, id, from: "alpha".into(), pairs: vec![pair()] };
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
        let side = Side {
            node: "beta".into(),
            program: "0.1.0".into(),
            at_ms: 5,
            wants_multipath: false,
            channels: vec![Channel { own: None, peer: None, up: true, multipath: false, why: None }],
            looked: Looked { interfaces: vec![interface], ends: vec![end], hidden: vec![] },
        };
        let seen = Seen { version: VERSION, id, side: Some(side), why: String::new() };
        let text = concat!(
            r#"{"version":2,"id":"07070707-0707-0707-0707-070707070707","side":{"node":"beta","program":"0.1.0","at_ms":5,"#,
            r#""wants_multipath":false,"channels":[{"up":true,"multipath":false}],"looked":{"interfaces":[{"name":"eth0","#,
            r#""mtu":9000,"speed_mbit":25000,"full_duplex":true,"is_line":true,"rdma":[["mlx5_0/1","ACTIVE"]]}],"#,
            r#""ends":[{"pair":{"own":"10.0.0.2","peer":"10.0.0.1","port":7071,"calls":false},"interface":"eth0","#,
            r#""prefix":24,"leaves_by":"eth0","neighbour":"02:00:00:00:00:01","probe":{"lost":{"bytes":9000}},"#,
            r#""tcp":{"connections":1,"round_trip_us":90,"segments":10,"resent":0,"path_mtu":1500}}]}}}"#
        );
        assert_eq!(seen.encode(), text);
        assert_eq!(Seen::decode(text), Ok(seen));
        let failed = Seen { version: VERSION, id, side: None, why: "no".into() };
        assert_eq!(Seen::decode(&failed.encode()), Ok(failed));
        for probe in [Probe::Silent, Probe::Carried { bytes: 1 }, Probe::NotSent { why: "no".into() }] {
            let text = words::write(&probe);
            assert_eq!(serde_json::from_str::<Probe>(&text).ok(), Some(probe), "{text}");
        }
    }

    #[test]
    fn an_ask_of_another_version_or_with_more_in_it_is_refused() {
        let ask = Ask { version: VERSION, id: VolumeId([7; 16]), from: "alpha".into(), pairs: vec![] };
        let text = ask.encode();
        assert!(Ask::decode(&text.replace("\"version\":2", "\"version\":3")).unwrap_err().contains("version 3"));
        assert!(Ask::decode(&text.replace("\"pairs\":[]", "\"pairs\":[],\"more\":1")).unwrap_err().contains("more"));
        assert!(Ask::decode(&text[..20]).is_err());
    }
}
