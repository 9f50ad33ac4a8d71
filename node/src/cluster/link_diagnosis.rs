//! What two nodes see of the links between them, for `forebay doctor --peer`: this node looks, and asks the other one by the
//! coordinator, which both reach also where the links between them are what is broken.
//!
//! Invariants:
//! - A node looks by a process of its own, one at a time: what a sick interface does to it is not done to the volumes.
//! - Who begins the channels says which pairs of addresses there are; the other one knows them from it.
//! - Nothing is decided by what is seen.
//! - Whoever may look at this node may ask for it as often as he likes: of each other node one look is under way at a time, which goes on when
//!   nobody waits for it any more, and whoever comes meanwhile is told what it sees; the looks that wait are few, and so are those that other
//!   nodes ask for.
//! - A look waits for its turn, and an answer for the coordinator, no longer than whoever asked waits at most.

use super::commands::{Answer, failure};
use super::control::Cluster;
use super::requests::{NoAnswer, Served, Taken};
use crate::coordinator::commands::now_ms;
use crate::coordinator::link_asks::{Ask, LinkEndSeen, VERSION};
use crate::coordinator::requests::Request;
use crate::coordinator::schema::NodeEntry;
use crate::datapath::driver::LinkShown;

use crate::failure::FailureKind;
use crate::rounds::said_by;
use forebay_api::record::VolumeId;
use forebay_doctor::peer::{BothEnds, Channel, LinkEnd, Looked, Pair, Silence};
use forebay_io::link::{AddressPair, CHANNELS_MAX, ChannelPhase, ChannelStatus};
use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use std::time::{Duration as Time, Instant};
use tokio::sync::{Semaphore, watch};

/// A look takes seconds where packets are lost, and waits for one before it.
const ANSWER_MAX: Time = Time::from_secs(25);
/// Who is not linked may be dead; if he lives, his look finds nobody to answer its packets, and is over by then.
const ANSWER_MAX_UNLINKED: Time = Time::from_secs(12);

/// Looks at links that are under way or wait for their turn, each at another node's.
const LOOKS_MAX: usize = 8;
/// Asks of other nodes that are answered or wait for it.
const ASKS_MAX: usize = 16;

/// What comes of a look; none yet.
type Outcome = watch::Receiver<Option<Arc<Answer<BothEnds>>>>;

/// Looks that are under way, by the other node's name.
#[derive(Default)]
struct Looks(Mutex<BTreeMap<String, Outcome>>);

impl Looks {
    /// The look at this node's links that is under way, or the one that is begun now. None: there are as many as may be.
    fn join(&self, name: &str, begin: impl FnOnce(watch::Sender<Option<Arc<Answer<BothEnds>>>>)) -> Option<Outcome> {
        let mut looks = self.0.lock().expect("nobody panics while holding it");
        // Who has an outcome has told those that waited; who has ended without one tells nobody any more.
        looks.retain(|_, look| look.borrow().is_none() && look.has_changed().is_ok());
        if let Some(look) = looks.get(name) {
            return Some(look.clone());
        }
        if looks.len() >= LOOKS_MAX {
            return None;
        }
        let (told, look) = watch::channel(None);
        looks.insert(name.to_owned(), look.clone());
        begin(told);
        Some(look)
    }
}

/// How this node looks.
pub(super) struct LinkDiagnosis {
    wants_multipath: bool,
    looks: Looks,
    asks: Semaphore,
    turn: tokio::sync::Mutex<()>,
    hangs: Arc<AtomicBool>,
    taken: Taken,
}

impl LinkDiagnosis {
    pub(super) fn new(wants_multipath: bool) -> LinkDiagnosis {
        LinkDiagnosis {
            wants_multipath,
            looks: Looks::default(),
            asks: Semaphore::new(ASKS_MAX),
            turn: Default::default(),
            hangs: Arc::default(),
            taken: Taken::default(),
        }
    }
}

impl Served for Ask {
    const REFUSED_MAX: Time = ANSWER_MAX;

    fn taken(cluster: &Cluster) -> &Taken {
        &cluster.link_diagnosis.taken
    }

    fn serve(self, cluster: Arc<Cluster>) -> impl Future<Output = ()> + Send {
        cluster.answer_ask(self)
    }
}

fn pair_of(pair: &AddressPair) -> Pair {
    Pair { own: pair.own, peer: pair.peer.ip(), port: pair.peer.port(), calls: true }
}

fn channel_of(channel: &ChannelStatus) -> Channel {
    Channel {
        own: channel.pair.map(|pair| pair.own),
        peer: channel.address.map(|address| address.ip()),
        up: channel.phase == ChannelPhase::Up,
        multipath: channel.multipath,
        why: match &channel.phase {
            ChannelPhase::Up | ChannelPhase::Beginning => None,
            ChannelPhase::Down(why) => why.as_ref().map(ToString::to_string),
        },
    }
}

impl Cluster {
    /// What this node and another one see of the links between them, in a look that is shared by all who ask for it while it is under way.
    pub async fn both_ends(self: &Arc<Cluster>, name: &str) -> Answer<BothEnds> {
        // Of what is no node nothing is kept.
        if self.name == name || !self.nodes().iter().any(|entry| entry.name == name) {
            return self.look_at_both(name).await;
        }
        let (cluster, asked) = (self.clone(), name.to_owned());
        let look = self.link_diagnosis.looks.join(name, move |told| {
            tokio::spawn(async move {
                let seen = cluster.look_at_both(&asked).await;
                // Whoever asked may have gone.
                let _ = told.send(Some(Arc::new(seen)));
            });
        });
        let Some(mut look) = look else {
            let message =
                format!("{LOOKS_MAX} looks at links are under way at {}; ask again when one has ended", self.name);
            return failure(FailureKind::Conflict, message);
        };
        match look.wait_for(Option::is_some).await.as_deref() {
            Ok(Some(seen)) => seen.as_ref().clone(),
            Ok(None) | Err(_) => {
                failure(FailureKind::Failed, "looking at the links panicked; this is a bug".to_owned())
            }
        }
    }

    async fn look_at_both(self: &Arc<Cluster>, name: &str) -> Answer<BothEnds> {
        if self.name == name {
            return failure(FailureKind::Invalid, format!("{name} is this very node; name another one"));
        }
        let Some(entry) = self.nodes().into_iter().find(|entry| entry.name == name) else {
            let names: Vec<String> = self
                .nodes()
                .into_iter()
                .map(|entry| entry.name)
                .filter(|other| *other != self.name)
                .map(String::from)
                .collect();
            let known = if names.is_empty() { "there is no other".to_owned() } else { names.join(", ") };
            return failure(FailureKind::NotFound, format!("the cluster has no node {name}; other nodes: {known}"));
        };
        let linked = self.link_to(&entry).await.is_some_and(|link| link.up);
        let calls = self.name < entry.name;
        let pairs = self.pairs_with(&entry);
        let begun = now_ms();
        // The pairs of who calls are those that there are.
        let (asked, here) = if calls {
            let there = pairs.iter().map(|pair| pair.seen_from_there()).collect();
            tokio::join!(self.ask(&entry, there, linked), self.side(&entry, pairs))
        } else {
            let asked = self.ask(&entry, Vec::new(), linked).await;
            let told = asked.as_ref().ok().map(|(side, _)| &side.looked.ends);
            let told = told.map(|ends| ends.iter().map(|end| end.pair.seen_from_there()).collect());
            let here = self.side(&entry, told.unwrap_or(pairs)).await;
            (asked, here)
        };
        let here = match here {
            Ok(here) => here,
            Err(why) => return failure(FailureKind::Failed, format!("cannot look at the links to {name}: {why}")),
        };
        let (there, silence, answered) = match asked {
            Ok((there, answered)) => (Some(there), None, answered),
            Err(silence) => (None, Some(silence), now_ms()),
        };
        Ok(BothEnds { peer: entry.name.into(), here, there, silence, asked_ms: (begun, answered) })
    }

    async fn link_to(&self, entry: &NodeEntry) -> Option<LinkShown> {
        self.links().await.into_iter().find(|link| link.node == entry.node())
    }

    /// As this node's settings have them, whoever calls.
    fn pairs_with(&self, entry: &NodeEntry) -> Vec<Pair> {
        let pairs = self.peer(entry).map(|peer| peer.pairs).unwrap_or_default();
        let calls = self.name < entry.name;
        pairs.iter().map(|pair| Pair { calls, ..pair_of(pair) }).collect()
    }

    /// What this node sees of its links to another one.
    async fn side(&self, other: &NodeEntry, mut pairs: Vec<Pair>) -> Result<LinkEnd, String> {
        pairs.truncate(CHANNELS_MAX);
        let pairs = serde_json::to_string(&pairs).expect("addresses and numbers are JSON");
        let turn = tokio::time::timeout(ANSWER_MAX, self.link_diagnosis.turn.lock()).await;
        let Ok(_turn) = turn else {
            let waited = ANSWER_MAX.as_secs();
            return Err(format!("other looks at the links of {} have not ended for {waited} s; ask again", self.name));
        };
        let looked: Looked = said_by(&["--ends", &pairs], self.link_diagnosis.hangs.clone()).await?;
        let link = self.link_to(other).await;
        Ok(LinkEnd {
            node: self.name.to_string(),
            program: env!("CARGO_PKG_VERSION").to_owned(),
            at_ms: now_ms(),
            wants_multipath: self.link_diagnosis.wants_multipath,
            channels: link.iter().flat_map(|link| link.status.channels.iter().map(channel_of)).collect(),
            looked,
        })
    }

    /// What the other one sees, and when its answer was here.
    async fn ask(&self, to: &NodeEntry, pairs: Vec<Pair>, linked: bool) -> Result<(LinkEnd, u64), Silence> {
        if to.record_version < VERSION {
            return Err(Silence::Older);
        }
        let failed = |why: String| Silence::Failed { why };
        let id = VolumeId::random().map_err(|error| failed(format!("{error:#}")))?;
        let ask = Ask { version: VERSION, id, from: self.name.clone(), pairs };
        let given_up = async {
            let begun = Instant::now();
            tokio::time::sleep(if linked { ANSWER_MAX } else { ANSWER_MAX_UNLINKED }).await;
            begun.elapsed().as_secs()
        };
        match self.answer_of(&to.name, &ask, given_up).await {
            Ok((LinkEndSeen { side: Some(side), .. }, at_ms)) => Ok((side, at_ms)),
            Ok((LinkEndSeen { side: None, why, .. }, _)) => Err(failed(format!("it could not look: {why}"))),
            Err(NoAnswer::NotAsked(error)) => Err(failed(format!("it cannot be asked: {error:#}"))),
            Err(NoAnswer::GivenUp(waited_s)) => Err(Silence::NoAnswer { waited_s, linked, down_since: None }),
        }
    }

    /// Answers what another node asks.
    async fn answer_ask(self: Arc<Cluster>, ask: Ask) {
        let Ok(_place) = self.link_diagnosis.asks.try_acquire() else {
            let why = format!("{} looks at the links of {ASKS_MAX} others already; ask again", self.name);
            self.respond(&ask, &ask.refused(why), Some(Time::ZERO)).await;
            return;
        };
        let seen = match self.nodes().into_iter().find(|entry| entry.name == ask.from) {
            Some(entry) => {
                let pairs = if ask.pairs.is_empty() { self.pairs_with(&entry) } else { ask.pairs.clone() };
                self.side(&entry, pairs).await
            }
            None => Err(format!("{} does not know {}", self.name, ask.from)),
        };
        let (side, why) = match seen {
            Ok(side) => (Some(side), String::new()),
            Err(why) => (None, why),
        };
        let seen = LinkEndSeen { version: VERSION, id: ask.id, side, why };
        self.respond(&ask, &seen, Some(ANSWER_MAX)).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_asks_while_a_look_is_under_way_begins_no_other() {
        let looks = Looks::default();
        let mut begun = Vec::new();
        for _ in 0..1000 {
            // Who asked goes away at once.
            drop(looks.join("beta", |told| begun.push(told)).unwrap());
        }
        assert_eq!(begun.len(), 1);
        let late = looks.join("beta", |_| panic!("it is under way")).unwrap();
        let seen = failure(FailureKind::Failed, "a word".to_owned());
        begun[0].send(Some(Arc::new(seen))).unwrap();
        assert!(late.borrow().as_ref().is_some_and(|seen| matches!(&**seen, Err(why) if why.message == "a word")));
        // The next one is new, also where the one before has ended without a word.
        for _ in 0..2 {
            let mut next = None;
            looks.join("beta", |told| next = Some(told)).unwrap();
            assert!(next.is_some());
        }
    }

    #[test]
    fn looks_are_few() {
        let looks = Looks::default();
        let mut begun = Vec::new();
        let names: Vec<String> = (0..LOOKS_MAX + 1).map(|number| format!("n{number}")).collect();
        let joined: Vec<bool> = names.iter().map(|name| looks.join(name, |told| begun.push(told)).is_some()).collect();
        assert_eq!(joined.iter().filter(|joined| **joined).count(), LOOKS_MAX);
        begun.clear();
        looks.join("beta", |told| begun.push(told)).unwrap();
    }
}
