//! How the coordinator is, asked now and then: what an operator should do about it before nothing can be changed there any more.

use super::control::Cluster;
use forebay_api::status::CoordinatorTrouble;
use std::sync::Arc;
use std::time::Duration as Time;

/// Between two looks. Room in etcd goes by days, and what was refused for want of it is shown at once.
const LOOK: Time = Time::from_secs(15);

impl Cluster {
    /// Looks at the coordinator's health again and again, for ever.
    pub(super) async fn watch_health(self: Arc<Cluster>) {
        loop {
            self.coordinator.look_at_health().await;
            tokio::time::sleep(LOOK).await;
        }
    }

    /// What the last look has found that an operator should do about the coordinator.
    pub fn coordinator_trouble(&self) -> Vec<CoordinatorTrouble> {
        let plain = |trouble: crate::coordinator::etcd::health::Trouble| CoordinatorTrouble {
            code: trouble.kind.code().to_owned(),
            text: trouble.text,
        };
        self.coordinator.trouble().into_iter().map(plain).collect()
    }
}
