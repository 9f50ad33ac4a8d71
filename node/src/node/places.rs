//! Places of backings and tiers that somebody has named: refused before anything of them is touched ([`crate::allowed`]).

use super::{Answer, Node, failure};
use crate::allowed::{NamedBy, is_refusal};
use crate::failure::FailureKind;
use forebay_api::config;
use forebay_api::config::volume::VolumeSpec;

impl Node {
    /// Refuses places that whoever has named them may not name.
    pub(super) async fn check_places(&self, spec: &VolumeSpec, by: NamedBy) -> Answer<()> {
        let (allowed, spec) = (self.allowed.clone(), spec.clone());
        let name = spec.name.clone();
        let work = move || -> anyhow::Result<()> {
            // What is missing, or cannot be read, is told by whoever opens it; but where somebody else has named a place, one that could
            // not be judged is one that is not allowed.
            let backing = allowed.check(&config::absolute_spec(&spec.backing), by, spec.create);
            let tier = spec.tier_path.as_ref().map_or(Ok(()), |path| allowed.check_tier(path, by));
            [backing, tier]
                .into_iter()
                .find(|checked| checked.as_ref().is_err_and(|why| is_refusal(why) || by == NamedBy::Elsewhere))
                .unwrap_or(Ok(()))
        };
        match tokio::task::spawn_blocking(work).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => failure(FailureKind::Invalid, format!("volume {name}: {error:#}")),
            Err(_) => failure(FailureKind::Failed, "looking at the backing panicked; this is a bug"),
        }
    }
}
