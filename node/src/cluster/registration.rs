//! What the coordinator has of this node: kept as this node is, also where the coordinator was put back to an older state.
//!
//! A node that is not registered is asked for nothing before a record is changed (C5), gets no copies, and others have no link to it; one
//! whose entry is older is looked for at its former addresses, and taken to be in its former boot. So whoever finds its own entry gone, or
//! not as it was written, writes it again.

use super::control::Cluster;
use crate::coordinator::schema::NodeEntry;
use crate::coordinator::{Error, Registered};
use crate::log;
use forebay_core::cluster::{NodeId, RewindId};
use std::sync::Mutex;
use std::time::{Duration as Time, Instant};

/// Between two attempts: two daemons with one identity, which is told elsewhere, are not to take turns all the time.
const PAUSE: Time = Time::from_secs(5);

/// So many nodes count as registered at most that the coordinator does not show.
const FORMER_MAX: usize = 256;

/// This node as it has registered last, and those that have.
pub(super) struct Registration {
    entry: Mutex<NodeEntry>,
    tried: Mutex<Option<Instant>>,
    former: Mutex<Former>,
    /// Held while the entry is written, so that an older one is never put over a newer one.
    writes: tokio::sync::Mutex<()>,
}

/// Nodes that the coordinator has shown before it was known to have gone back, and not since (C6).
#[derive(Default)]
struct Former {
    /// What was known of that at the last look.
    rewinds: Vec<RewindId>,
    nodes: Vec<NodeEntry>,
}

impl Former {
    /// At each look. Who is shown now and gone later was taken away since: by the operator (`node forget`), or by a restore that has a name
    /// of its own.
    fn look(&mut self, shown: &[NodeEntry], before: &[NodeEntry], open: &[RewindId]) {
        if open.iter().any(|id| !self.rewinds.contains(id)) {
            let numbers: Vec<NodeId> = self.nodes.iter().map(NodeEntry::node).collect();
            self.nodes.extend(before.iter().filter(|entry| !numbers.contains(&entry.node())).cloned());
        }
        self.rewinds = open.to_vec();
        let numbers: Vec<NodeId> = shown.iter().map(NodeEntry::node).collect();
        self.nodes.retain(|entry| !open.is_empty() && !numbers.contains(&entry.node()));
        self.nodes.truncate(FORMER_MAX);
    }
}

impl Registration {
    pub(super) fn new(entry: NodeEntry) -> Registration {
        let (tried, former, writes) = (Mutex::new(None), Mutex::default(), tokio::sync::Mutex::default());
        Registration { entry: Mutex::new(entry), tried, former, writes }
    }

    /// This node as it is to be registered.
    pub(super) fn own(&self) -> NodeEntry {
        self.entry.lock().expect("nobody panics while holding it").clone()
    }

    /// It is another one from now on, and whoever has changed it registers it.
    pub(super) fn change(&self, change: impl FnOnce(&mut NodeEntry)) {
        *self.tried.lock().expect("nobody panics while holding it") = Some(Instant::now());
        change(&mut self.entry.lock().expect("nobody panics while holding it"));
    }

    /// The nodes that the coordinator shows, and, as long as it is known to have gone back and not settled, those that it had shown before:
    /// a node that registered after the backup is one that may know more (C6). `before`: who counted at the last look.
    pub(super) fn with_former(&self, shown: Vec<NodeEntry>, before: &[NodeEntry], open: &[RewindId]) -> Vec<NodeEntry> {
        let mut former = self.former.lock().expect("nobody panics while holding it");
        former.look(&shown, before, open);
        shown.into_iter().chain(former.nodes.iter().cloned()).collect()
    }

    /// Takes this node to be what it has registered itself; what its name stands for instead, if that is another node.
    fn without_twin(&self, mut shown: Vec<NodeEntry>) -> (Vec<NodeEntry>, Option<NodeEntry>) {
        let own = self.entry.lock().expect("nobody panics while holding it").clone();
        let found = shown.iter().position(|entry| entry.name == own.name && entry.node() != own.node());
        let twin = found.map(|at| std::mem::replace(&mut shown[at], own));
        (shown, twin)
    }

    /// Whether the entry is to be written: it is not among those that the coordinator has shown, and it was not tried just before.
    fn is_missing_in(&self, shown: &[NodeEntry]) -> bool {
        if shown.contains(&self.own()) {
            return false;
        }
        let mut tried = self.tried.lock().expect("nobody panics while holding it");
        if tried.is_some_and(|at| at.elapsed() < PAUSE) {
            return false;
        }
        *tried = Some(Instant::now());
        true
    }
}

impl Cluster {
    /// The nodes that the coordinator shows, without another one of this node's own name: that is no node that could be linked, or asked.
    /// What stands there instead is shown.
    pub(super) fn without_twin(&self, shown: Vec<NodeEntry>) -> Vec<NodeEntry> {
        let (nodes, twin) = self.registration.without_twin(shown);
        let why = twin.map(|twin| {
            format!(
                "somebody has registered this node's own name, {}, with the number {:016x}; this node goes on with its own, {:016x}: see who can \
                 write to the coordinator besides Forebay, or which machine was enrolled under the same name",
                self.name,
                twin.node().0,
                self.place.node.0
            )
        });
        self.coordinator.refuse_node(&self.name, why);
        nodes
    }

    /// Writes this node's entry as it is when its turn has come, unless its identity was revoked. Several parts of the daemon change it, each what
    /// is its own.
    pub(super) async fn register(&self) -> Result<Registered, Error> {
        let _turn = self.registration.writes.lock().await;
        self.must_not_be_revoked().await?;
        self.coordinator.register(&self.registration.own()).await
    }

    /// Registers anew where the coordinator does not show this node as it is. What fails is tried again at a later look.
    pub(super) async fn stay_registered(&self, shown: &[NodeEntry]) {
        // Who is none any more has been told so.
        if self.revocation_due().is_some() || !self.registration.is_missing_in(shown) {
            return;
        }
        match self.register().await {
            Ok(Registered::Done) => log::say!(
                Notice,
                "the coordinator did not have this node as it is (was it restored from a backup?): {} is registered anew",
                self.name
            ),
            Ok(Registered::NameTaken(other)) => log::say!(
                Warning,
                "{} is another node's name by now (number {:016x}): stop this one, and enrol it under another name",
                self.name,
                other.node().0
            ),
            Ok(Registered::NumberTaken(other)) => log::say!(
                Warning,
                "this node's number is that of {other} by now: stop this one, and enrol it under another name"
            ),
            Ok(Registered::Unknown(why)) => {
                log::say!(Error, "whether this node is registered anew is not known: {why}")
            }
            Err(error) => log::say!(Error, "this node cannot be registered anew: {error}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_api::checked::NodeName;
    use forebay_core::cluster::Host;

    fn entry(name: &str, node: u64) -> NodeEntry {
        let host = Host { machine: [1; 16], boot: [2; 16] };
        NodeEntry::new(NodeName::new(name).expect("a name"), NodeId(node), host)
    }

    #[test]
    fn who_is_not_shown_as_it_is_registers_anew_and_not_all_the_time() {
        let now = entry("beta", 2);
        let registration = Registration::new(now.clone());
        assert!(!registration.is_missing_in(&[entry("alpha", 1), now.clone()]));
        let mut older = now.clone();
        older.addresses = vec!["10.0.0.9:1".into()];
        assert!(registration.is_missing_in(&[entry("alpha", 1), older]));
        assert!(!registration.is_missing_in(&[]), "it was tried just before");
    }

    #[test]
    fn another_node_of_ones_own_name_is_none_and_told() {
        let alpha = entry("alpha", 1);
        let registration = Registration::new(alpha.clone());
        let shown = vec![entry("alpha", 0xaa), entry("beta", 2)];
        assert_eq!(
            registration.without_twin(shown),
            (vec![alpha.clone(), entry("beta", 2)], Some(entry("alpha", 0xaa)))
        );
        let shown = vec![alpha, entry("beta", 2)];
        assert_eq!(registration.without_twin(shown.clone()), (shown, None));
    }

    #[test]
    fn a_node_that_a_restore_has_taken_away_stays_one_that_is_asked() {
        let (alpha, beta) = (entry("alpha", 1), entry("beta", 2));
        let (registration, before, rewind) =
            (Registration::new(alpha.clone()), [alpha.clone(), beta.clone()], [RewindId(7)]);
        for _ in 0..2 {
            assert_eq!(registration.with_former(vec![alpha.clone()], &before, &rewind), before);
        }
        assert_eq!(registration.with_former(vec![alpha.clone()], &before, &[]), [alpha], "it was settled");
    }

    #[test]
    fn a_node_that_was_shown_since_and_is_gone_was_forgotten() {
        let (alpha, beta, gamma) = (entry("alpha", 1), entry("beta", 2), entry("gamma", 3));
        let registration = Registration::new(alpha.clone());
        let mut counted = vec![alpha.clone(), beta.clone()];
        for shown in [vec![alpha.clone()], vec![alpha.clone(), beta.clone(), gamma.clone()], vec![alpha.clone()]] {
            counted = registration.with_former(shown, &counted, &[RewindId(7)]);
        }
        assert_eq!(counted, std::slice::from_ref(&alpha), "beta is forgotten, and gamma came since");
        // A second restore takes away what was shown before it.
        counted = registration.with_former(vec![alpha.clone(), gamma.clone()], &counted, &[RewindId(7)]);
        counted = registration.with_former(vec![alpha.clone()], &counted, &[RewindId(7), RewindId(8)]);
        assert_eq!(counted, [alpha, gamma]);
    }

    #[test]
    fn nodes_that_come_and_go_in_the_coordinator_do_not_grow_without_bound() {
        let registration = Registration::new(entry("alpha", 1));
        let mut counted = Vec::new();
        for look in 0..2 * FORMER_MAX as u64 {
            let shown = vec![entry(&format!("n{look}"), 10 + look)];
            counted = registration.with_former(shown, &counted, &[RewindId(1 + look)]);
        }
        assert_eq!(counted.len(), 1 + FORMER_MAX);
    }
}
