//! The node as part of a cluster: whose volumes are the cluster's, and who answers for them.

use super::{Answer, Node, failure};
use crate::cluster::control::Cluster;
use crate::failure::FailureKind;
use forebay_api::cluster::AuditReport;
use forebay_api::status::VolumeReport;
use forebay_core::cluster::Epoch;
use forebay_core::types::Term;
use forebay_host::identity::revocation::Revocation;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

impl Node {
    /// Numbers of volumes, for whoever attaches them.
    pub fn keys(&self) -> Arc<AtomicU64> {
        self.keys.clone()
    }

    /// It is a node of this cluster; said once, before it serves.
    pub fn set_cluster(&self, cluster: Arc<Cluster>) {
        assert!(self.cluster.set(cluster).is_ok(), "a node is of one cluster");
    }

    /// The cluster, if it is a node of one.
    pub fn cluster(&self) -> Option<&Arc<Cluster>> {
        self.cluster.get()
    }

    /// The cluster, if the volume is its.
    pub(super) fn cluster_of(&self, name: &str) -> Option<&Arc<Cluster>> {
        self.cluster().filter(|cluster| cluster.find(name).is_some())
    }

    /// Makes another node the owner of a volume of the cluster.
    pub async fn hand_over(&self, name: &str, to: &str) -> Answer<VolumeReport> {
        match self.cluster_of(name) {
            Some(cluster) => cluster.hand_over(name, to).await,
            None => failure(FailureKind::NotFound, format!("the cluster has no volume {name}")),
        }
    }

    /// The cluster, for a command that only a volume of it knows.
    fn must_be_of_cluster(&self, name: &str) -> Answer<&Arc<Cluster>> {
        match self.cluster_of(name) {
            Some(cluster) => Ok(cluster),
            None => failure(FailureKind::NotFound, format!("the cluster has no volume {name}")),
        }
    }

    /// Serves here a volume that nobody serves, and that no member can take over.
    pub async fn open_in_cluster(&self, name: &str, accept_loss: bool, by: &str) -> Answer<VolumeReport> {
        self.must_be_of_cluster(name)?.open(name, accept_loss, by).await
    }

    /// Serves here with what a loss of power has left of the log.
    pub async fn take_synced(&self, name: &str, by: &str) -> Answer<VolumeReport> {
        self.must_be_of_cluster(name)?.take_synced(name, by).await
    }

    /// The operator's word about former owners.
    pub async fn fenced(&self, name: &str, nodes: &[String], by: &str) -> Answer<VolumeReport> {
        self.must_be_of_cluster(name)?.fenced(name, nodes, by).await
    }

    /// The coordinator went back in time: the record is written anew as this node knows it, which the operator has seen.
    pub async fn restore_record(&self, name: &str, saw: Option<(u32, u32)>, by: &str) -> Answer<VolumeReport> {
        let saw = saw.map(|(term, epoch)| (Term(term), Epoch(epoch)));
        self.must_be_of_cluster(name)?.restore_record(name, saw, by).await
    }

    /// The coordinator went back in time, and a node cannot say what it knows of before.
    pub async fn cannot_answer(&self, name: &str, by: &str) -> Answer<()> {
        match self.cluster() {
            Some(cluster) => cluster.cannot_answer(name, by).await,
            None => failure(FailureKind::NotFound, "this node is not part of a cluster"),
        }
    }

    /// Identities of nodes count no more, as the cluster's authority has said.
    pub async fn revoke(&self, revocations: Vec<Revocation>, by: &str) -> Answer<()> {
        match self.cluster() {
            Some(cluster) => cluster.revoke(revocations, by).await,
            None => failure(FailureKind::NotFound, "this node is not part of a cluster"),
        }
    }

    /// A node will not come back; its identities are revoked where the cluster's authority has said so.
    pub async fn forget(&self, name: &str, revocation: Option<Revocation>, by: &str) -> Answer<()> {
        match self.cluster() {
            Some(cluster) => cluster.forget(name, revocation, by).await,
            None => failure(FailureKind::NotFound, "this node is not part of a cluster"),
        }
    }

    /// What operators have decided.
    pub async fn audit_log(&self) -> Answer<Vec<AuditReport>> {
        match self.cluster() {
            Some(cluster) => cluster.audit_log().await,
            None => failure(FailureKind::NotFound, "this node is not part of a cluster"),
        }
    }
}
