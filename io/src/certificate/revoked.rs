//! Certificates of nodes that count no more, although they have not ended: all that were made for a name up to a time.
//!
//! A time, and no number of a certificate: who has a node forgotten does not know which certificates its disk, its backups and its former
//! disks hold, and one that is made for the name afterwards is good.
//!
//! A lock is held while one is looked at, which is when a connection comes about or a signature is checked, and for no longer than
//! that takes.

use super::validity::validity;
use rustls::pki_types::CertificateDer;
use std::collections::BTreeMap;
use std::sync::{PoisonError, RwLock};
use std::time::Duration;

/// A certificate of a cluster's authority is valid from so long before it was made: clocks of new machines are wrong by hours.
pub const BEGINS_BEFORE: Duration = Duration::from_secs(24 * 3600);

/// See the module's text. The times are since 1970, by name.
#[derive(Debug, Default)]
pub struct Revoked(RwLock<BTreeMap<String, Duration>>);

impl Revoked {
    /// From now on these count no more: of each name what was made up to a time since 1970.
    pub fn set(&self, revoked: BTreeMap<String, Duration>) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = revoked;
    }

    /// Whether this certificate counts no more.
    pub fn refuses(&self, certificate: &CertificateDer<'_>) -> bool {
        let revoked = self.0.read().unwrap_or_else(PoisonError::into_inner);
        if revoked.is_empty() {
            return false;
        }
        // What cannot be read is refused by whoever checks certificates.
        let Ok(parsed) = webpki::EndEntityCert::try_from(certificate) else { return true };
        let mut names = parsed.valid_dns_names();
        names.any(|name| {
            let until = revoked.get(&name.to_ascii_lowercase());
            until.is_some_and(|until| is_made_by(certificate, *until))
        })
    }
}

/// Whether a certificate was made at this time since 1970, or before. One of which that cannot be read is taken to be.
pub fn is_made_by(certificate: &CertificateDer<'_>, until: Duration) -> bool {
    validity(certificate).is_none_or(|(begin, _)| begin + BEGINS_BEFORE <= until)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{CertificateParams, KeyPair, date_time_ymd};

    fn made_for(names: &[&str], day: u8) -> CertificateDer<'static> {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut params = CertificateParams::new(names).unwrap();
        // The day before.
        params.not_before = date_time_ymd(2026, 3, day) - BEGINS_BEFORE;
        params.self_signed(&KeyPair::generate().unwrap()).unwrap().der().clone()
    }

    #[test]
    fn what_was_made_for_a_name_up_to_a_time_is_refused_and_what_comes_after_is_not() {
        let at = |day: u8, second: i64| {
            let time = date_time_ymd(2026, 3, day) - date_time_ymd(1970, 1, 1);
            Duration::from_secs((time.whole_seconds() + second) as u64)
        };
        let (old, new) = (made_for(&["gamma"], 5), made_for(&["gamma"], 7));
        let revoked = Revoked::default();
        assert!(!revoked.refuses(&old));
        for (until, refuses_old) in [(at(4, 86_399), false), (at(5, 0), true), (at(6, 0), true)] {
            revoked.set(BTreeMap::from([("gamma".to_owned(), until)]));
            assert_eq!(revoked.refuses(&old), refuses_old, "{until:?}");
            assert!(!revoked.refuses(&new), "{until:?}");
        }
        assert!(!revoked.refuses(&made_for(&["beta"], 5)), "another node");
        assert!(!revoked.refuses(&made_for(&["gamma.lab"], 5)), "another name");
        assert!(revoked.refuses(&made_for(&["beta", "gamma"], 5)), "whichever of its names it is");
        assert!(revoked.refuses(&made_for(&["GAMMA"], 5)), "names of DNS have no case");
        assert!(revoked.refuses(&CertificateDer::from(vec![0x30, 0])), "what is no certificate");
    }
}
