//! That identities of a node count no more: signed by the cluster's authority, which has made them.
//!
//! A revocation is about all certificates that the authority has made for a name up to a time of its own clock, and says so for ever; one that is
//! made afterwards is good. So revocations need no order among each other: whoever has several of a name goes by the latest time, whoever finds
//! one later adds it, and a list that an attacker or a restore puts back takes nothing away from who knows more. Nobody but the authority
//! can make one, whatever else he may write to.
//!
//! It is none of the lists of RFC 5280, which name certificates by their numbers: an authority that was itself restored from a backup does not know
//! all of those that it has given out, and here a name is enough.
//!
//! What is signed begins as nothing else does that this key signs (a certificate begins with a byte that is no letter), and has each part behind
//! its length.

use super::Authority;
use anyhow::{Context, Result, anyhow, bail};
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use forebay_api::checked::NodeName;
use forebay_api::record::VolumeId;
use forebay_io::folder;
use rustls::SignatureScheme;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use serde::{Deserialize, Serialize};
use std::path::Path;
use std::time::Duration;

const BEGINNING: &[u8] = b"Forebay revocation 1\0";
/// The layout that this code writes, and the only one that it reads.
const VERSION: u32 = 1;
/// What `forebay node init-ca` makes keys for.
const SCHEME: SignatureScheme = SignatureScheme::ECDSA_NISTP256_SHA256;
/// Longest signature that is looked at, in characters.
const SIGNATURE_MAX: usize = 256;
/// Longest file of revocations, in bytes.
pub const FILE_BYTES_MAX: u64 = 1 << 20;

/// What the authority has said of one name. It proves nothing before it was checked ([`Revocation::check`]).
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Revocation {
    /// The layout of this text, which is 1.
    pub version: u32,
    /// Name of the node.
    pub name: NodeName,
    /// What the authority has made for the name up to then counts no more: in seconds since 1970, by the authority's clock.
    pub until_s: u64,
    /// The authority's signature, as base64.
    pub signature: String,
}

/// Which of a node's identities are meant.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Which {
    /// All that there are.
    All,
    /// Those before the newest, which stays good.
    Former,
}

impl Revocation {
    /// What counts no more up to then, as a time since 1970.
    pub fn until(&self) -> Duration {
        Duration::from_secs(self.until_s)
    }

    /// Whether it goes before another one of the same name: it is about a later time, or about the same one, where any order is as good as long as
    /// all nodes have it.
    pub fn goes_before(&self, other: &Revocation) -> bool {
        (self.until_s, &other.signature) > (other.until_s, &self.signature)
    }

    /// Whether the authority of this cluster has said it.
    pub fn check(&self, authority: &CertificateDer<'_>, cluster: VolumeId) -> Result<()> {
        let Revocation { version, name, until_s, signature } = self;
        if *version != VERSION {
            bail!(
                "the revocation of {name} is of version {version}, this Forebay knows version {VERSION}; use a newer one"
            );
        }
        if signature.len() > SIGNATURE_MAX {
            bail!("the signature of the revocation of {name} is longer than one can be");
        }
        let signature = BASE64.decode(signature).map_err(|error| anyhow!("its signature is damaged: {error}"))?;
        let key = webpki::EndEntityCert::try_from(authority)
            .map_err(|error| anyhow!("the authority's certificate is damaged: {error}"))?;
        let signed = key.verify_signature(webpki::ring::ECDSA_P256_SHA256, &bytes(cluster, name, *until_s), &signature);
        signed.map_err(|_| anyhow!("the revocation of {name} is not signed by the authority of this cluster"))
    }
}

fn bytes(cluster: VolumeId, name: &NodeName, until_s: u64) -> Vec<u8> {
    let mut bytes = BEGINNING.to_vec();
    for part in [cluster.to_string().as_str(), name.as_str(), until_s.to_string().as_str()] {
        bytes.extend((part.len() as u64).to_be_bytes());
        bytes.extend(part.as_bytes());
    }
    bytes
}

/// Signs with the authority's key, which is PEM.
fn sign(key: &str, bytes: &[u8]) -> Result<String> {
    let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).map_err(|error| anyhow!("it is damaged: {error}"))?;
    let key = rustls::crypto::ring::default_provider().key_provider.load_private_key(key)?;
    let signer = key.choose_scheme(&[SCHEME]).context("it is of another kind than authorities have")?;
    Ok(BASE64.encode(signer.sign(bytes)?))
}

impl Authority {
    /// Says for ever that identities of these nodes count no more. The authority has durably remembered that before it is told, so that what
    /// it makes for the name afterwards is good. All of them or none.
    pub fn revoke(&mut self, names: &[String], which: Which) -> Result<Vec<Revocation>> {
        let _changing = self.begin_change()?;
        let mut untils = Vec::new();
        for name in names {
            untils.push((
                NodeName::new(name).map_err(|why| anyhow!("node name {name:?}: {why}"))?,
                self.revocable(name, which)?,
            ));
        }
        self.remember_revoked(&untils)?;
        let mut all = Vec::new();
        for (name, until_s) in untils {
            let signature = sign(self.key_pem(), &bytes(self.cluster_id(), &name, until_s))
                .with_context(|| format!("cannot sign the revocation of {name} with the authority's key"))?;
            all.push(Revocation { version: VERSION, name, until_s, signature });
        }
        Ok(all)
    }
}

/// Reads a file that [`write()`] has made.
pub fn read(path: &Path) -> Result<Vec<Revocation>> {
    let what = || format!("cannot read revocations from {}", path.display());
    let text = folder::read_text(path, FILE_BYTES_MAX).with_context(what)?;
    serde_json::from_str(&text)
        .with_context(|| format!("{}: make it with `forebay node revoke NAME --to-file FILE`", what()))
}

/// Writes a file of them, which holds no secret.
pub fn write(path: &Path, all: &[Revocation]) -> Result<()> {
    let text = serde_json::to_string_pretty(all).context("cannot encode revocations")?;
    forebay_io::durable::write_atomically(path, text.as_bytes()).context("cannot keep the revocations")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::Identity;
    use forebay_io::certificate::Revoked;
    use forebay_tests::harness::TempDir;
    use std::collections::BTreeMap;

    struct Made {
        folder: TempDir,
        authority: Authority,
    }

    fn authority(place: &str) -> Made {
        let folder = TempDir::new(place);
        Authority::init(&folder.join("authority"), "lab").unwrap();
        let authority = Authority::open(&folder.join("authority")).unwrap();
        Made { folder, authority }
    }

    impl Made {
        fn enrol(&mut self, name: &str, renew: bool) -> Identity {
            let path = self.folder.join(&format!("{name}.toml"));
            self.authority.enrol(name, &path, renew).unwrap();
            Identity::load(&path).unwrap()
        }

        fn revoke(&mut self, name: &str, which: Which) -> Revocation {
            self.authority.revoke(&[name.to_owned()], which).unwrap().remove(0)
        }
    }

    fn refuses(revocation: &Revocation, identity: &Identity) -> bool {
        let revoked = Revoked::default();
        revoked.set(BTreeMap::from([(revocation.name.to_string(), revocation.until())]));
        revoked.refuses(&identity.certificate)
    }

    #[test]
    fn what_is_made_before_a_revocation_counts_no_more_and_what_is_made_after_it_does() {
        let mut made = authority("revocation");
        let (first, other) = (made.enrol("gamma", false), made.enrol("beta", false));
        let revocation = made.revoke("gamma", Which::All);
        revocation.check(&first.authority, first.cluster_id).unwrap();
        assert!(refuses(&revocation, &first) && !refuses(&revocation, &other));
        let none = made.authority.revoke(&["beta".into()], Which::Former).unwrap_err();
        assert!(none.to_string().contains("no identity from before"), "{none:#}");
        // In the same second, and by an authority that was opened anew.
        made.authority = Authority::open(&made.folder.join("authority")).unwrap();
        let second = made.enrol("gamma", true);
        assert!(!refuses(&revocation, &second));
        // Of two, the former alone.
        let former = made.revoke("gamma", Which::Former);
        assert!(refuses(&former, &first) && !refuses(&former, &second));
        let third = made.enrol("gamma", true);
        let former = made.revoke("gamma", Which::Former);
        assert!(refuses(&former, &second) && !refuses(&former, &third), "made in the same second");
        let all = made.revoke("gamma", Which::All);
        assert!(refuses(&all, &third));
        // Said again it is the same, so that nothing that was made meanwhile is caught by that.
        assert_eq!(made.revoke("gamma", Which::All).until_s, all.until_s);
        // What was signed and never told anybody does not make a former one of what is good.
        made.enrol("delta", false);
        let newest = made.enrol("delta", true);
        made.revoke("delta", Which::All);
        assert!(!refuses(&made.revoke("delta", Which::Former), &newest));
        let unknown = made.authority.revoke(&["beta".into(), "epsilon".into()], Which::All).unwrap_err();
        assert!(unknown.to_string().contains("restored from a backup"), "{unknown:#}");
        made.authority.revoke(&["Beta".into()], Which::All).unwrap_err();
    }

    #[test]
    fn a_revocation_is_what_the_authority_of_the_cluster_has_signed_and_nothing_else() {
        let (mut made, mut stranger) = (authority("revocation-signed"), authority("revocation-stranger"));
        let (gamma, strange) = (made.enrol("gamma", false), stranger.enrol("gamma", false));
        let revocation = made.revoke("gamma", Which::All);
        let good = |revocation: &Revocation| revocation.check(&gamma.authority, gamma.cluster_id).is_ok();
        assert!(good(&revocation));
        assert!(!good(&Revocation { until_s: revocation.until_s + 1, ..revocation.clone() }));
        assert!(!good(&Revocation { name: NodeName::new("beta").unwrap(), ..revocation.clone() }));
        assert!(!good(&Revocation { version: 2, ..revocation.clone() }));
        for signature in ["", "none", "AAAA", &"A".repeat(1000)] {
            assert!(!good(&Revocation { signature: signature.into(), ..revocation.clone() }), "{signature}");
        }
        assert!(!good(&stranger.revoke("gamma", Which::All)), "another authority");
        assert!(revocation.check(&gamma.authority, strange.cluster_id).is_err(), "another cluster");
        // A node's key signs none.
        let key = std::fs::read_to_string(made.folder.join("gamma.toml")).unwrap();
        let key = key.split("-----BEGIN PRIVATE KEY-----").nth(1).unwrap().split("-----END").next().unwrap();
        let key = format!("-----BEGIN PRIVATE KEY-----{key}-----END PRIVATE KEY-----\n");
        let signature = sign(&key, &bytes(gamma.cluster_id, &revocation.name, revocation.until_s)).unwrap();
        assert!(!good(&Revocation { signature, ..revocation }), "the key of a node");
    }

    #[test]
    fn an_authority_is_changed_by_one_command_after_the_other() {
        let mut made = authority("revocation-locked");
        let mut other = Authority::open(&made.folder.join("authority")).unwrap();
        let gamma = made.enrol("gamma", false);
        // The other one was opened before that.
        let revocation = other.revoke(&["gamma".into()], Which::All).unwrap().remove(0);
        assert!(refuses(&revocation, &gamma));
        assert!(!refuses(&revocation, &made.enrol("gamma", true)));
    }

    #[test]
    fn of_an_identity_from_before_times_were_kept_the_day_of_its_end_says_when_it_was_made() {
        let mut made = authority("revocation-former");
        let gamma = made.enrol("gamma", false);
        let path = made.folder.join("authority/authority.toml");
        let text = std::fs::read_to_string(&path).unwrap();
        let former: String =
            text.lines().filter(|line| !line.starts_with("made_s")).map(|line| format!("{line}\n")).collect();
        std::fs::write(&path, former).unwrap();
        assert!(made.authority.revoke(&["gamma".into()], Which::Former).unwrap_err().to_string().contains("--renew"));
        let revocation = made.revoke("gamma", Which::All);
        let day = 24 * 3600;
        let now = crate::identity::now().unwrap().as_secs();
        assert!(refuses(&revocation, &gamma) && (now..=now + day).contains(&revocation.until_s));
        assert!(!refuses(&revocation, &made.enrol("gamma", true)));
    }

    #[test]
    fn a_file_of_revocations_is_read_as_it_was_written() {
        let mut made = authority("revocation-file");
        made.enrol("gamma", false);
        let all = vec![made.revoke("gamma", Which::All)];
        let path = made.folder.join("revoked.json");
        write(&path, &all).unwrap();
        assert_eq!(read(&path).unwrap(), all);
        std::fs::write(&path, "[{").unwrap();
        assert!(format!("{:#}", read(&path).unwrap_err()).contains("--to-file"));
    }
}
