//! The node as part of a cluster: whose volumes are the cluster's, and who answers for them.

use super::{Answer, FailureKind, Node, failure};
use crate::cluster::control::Cluster;
use crate::report::VolumeReport;
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
}
