//! Values in the coordinator that cannot be used: kept by key, said once each, and shown until they are gone or put right.

use crate::log;
use crate::names;
use forebay_api::checked::shown;
use forebay_api::record::VolumeId;
use std::collections::BTreeMap;
use std::sync::Mutex;

/// So many are kept and said of one list; whoever can write there can write any number.
const KEPT_MAX: usize = 64;

/// See the module's text.
#[derive(Default)]
pub(super) struct Refused(Mutex<BTreeMap<String, BTreeMap<String, String>>>);

impl Refused {
    /// All that one look has refused; what the same look has refused before is forgotten.
    pub(super) fn set(&self, look: &str, refused: Vec<(String, String)>) {
        let mut kept = self.0.lock().expect("nothing panics while it is held");
        let before = kept.remove(look).unwrap_or_default();
        let more = refused.len().saturating_sub(KEPT_MAX);
        let new: BTreeMap<String, String> = refused.into_iter().take(KEPT_MAX).collect();
        for (key, why) in new.iter().filter(|(key, why)| before.get(*key) != Some(*why)) {
            report(key, why);
        }
        if before.is_empty() && more > 0 {
            log::say!(Warning, "and {more} more of {} in the coordinator", shown(look));
        }
        if !new.is_empty() {
            kept.insert(look.to_owned(), new);
        }
    }

    pub(super) fn first(&self, look: &str) -> Option<(String, String)> {
        let kept = self.0.lock().expect("nothing panics while it is held");
        kept.get(look)?.iter().next().map(|(key, why)| (key.clone(), why.clone()))
    }

    pub(super) fn all(&self) -> Vec<(String, String)> {
        let kept = self.0.lock().expect("nothing panics while it is held");
        kept.values().flatten().map(|(key, why)| (key.clone(), why.clone())).collect()
    }
}

fn report(key: &str, why: &str) {
    let why = forebay_api::checked::Line::of(why);
    match volume_of(key) {
        Some(name) => log::say!(Warning, volume(name), "{} in the coordinator is not used: {why}", shown(key)),
        None => log::say!(Warning, "{} in the coordinator is not used: {why}", shown(key)),
    }
}

/// The name of the volume that a key is about, where it has its identity and that is known here.
fn volume_of(key: &str) -> Option<String> {
    let volume = key.rsplit('/').next()?.to_owned();
    names::known(VolumeId::try_from(volume).ok()?)
}
