//! The end of this node's identity, looked at each day. The daemon makes itself no new one: what signs it is the authority's key, which is
//! on another machine, so that a node that was broken into makes no nodes.

use super::control::Cluster;
use crate::log;
use forebay_host::identity::ends::{Due, Ends};
use forebay_host::identity::{self, Identity};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration as Time;

/// Between two looks.
const LOOK: Time = Time::from_secs(24 * 3600);
/// The identity file is read for so long at most; a look without it says the same, but for a new file that waits for a restart.
const READ_MAX: Time = Time::from_secs(10);

/// When this node's certificates end, and what the last look has found about that.
pub(super) struct OwnIdentity {
    path: PathBuf,
    ends: Ends,
    due: Mutex<Option<Due>>,
}

impl OwnIdentity {
    pub(super) fn new(path: PathBuf, ends: Ends) -> OwnIdentity {
        OwnIdentity { path, ends, due: Mutex::default() }
    }

    /// Looks at this time. `waiting`: the end of the certificate in the file.
    fn look(&self, now: Time, waiting: Option<Time>) -> Option<Due> {
        let due = self.ends.due(now, waiting);
        self.due.lock().expect("nobody panics while holding it").clone_from(&due);
        due
    }

    /// The end of the certificate that lies in the identity file now.
    async fn waiting(&self) -> Option<Time> {
        let path = self.path.clone();
        let read = tokio::task::spawn_blocking(move || Identity::load(&path).ok().map(|identity| identity.ends.own));
        tokio::time::timeout(READ_MAX, read).await.ok()?.ok()?
    }
}

impl Cluster {
    /// Looks each day, for ever, and says what is to be done.
    pub(super) async fn watch_own_identity(self: Arc<Cluster>) {
        loop {
            let waiting = self.own_identity.waiting().await;
            // A clock from before 1970 is told by whatever else needs one.
            match identity::now().ok().and_then(|now| self.own_identity.look(now, waiting)) {
                Some(Due { is_urgent: true, text }) => log::say!(Error, "{text}"),
                Some(Due { is_urgent: false, text }) => log::say!(Warning, "{text}"),
                None => {}
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    /// What is to be done about this node's identity: it was revoked, or ends, as the last look has found.
    pub fn identity_due(&self) -> Option<Due> {
        if let Some(due) = self.revocation_due() {
            return Some(due);
        }
        self.own_identity.due.lock().expect("nobody panics while holding it").clone()
    }

    /// When this node's certificates end.
    pub fn identity_ends(&self) -> &Ends {
        &self.own_identity.ends
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_look_has_found_is_shown_until_the_next() {
        let day = |day: u64| Time::from_secs(day * 24 * 3600);
        let ends = Ends { name: "alpha".into(), own: day(20_000), authority: day(30_000) };
        let own = OwnIdentity::new("none-such".into(), ends);
        let shown = || own.due.lock().unwrap().clone();
        own.look(day(19_900), None);
        assert_eq!(shown(), None);
        own.look(day(19_950), None);
        assert!(!shown().expect("50 days before").is_urgent);
        own.look(day(20_001), None);
        assert!(shown().expect("the day after").is_urgent);
    }
}
