//! Signatures of what one node asks another one for, by the coordinator, and of the answers: with the key of the node's certificate,
//! checked against the cluster's authority. Whoever can write to the coordinator has neither.
//!
//! A seal is good for one text between two nodes of one cluster, in one direction. What it is about comes first, then each part
//! after its length, so that no other text has the same bytes; the beginning is that of nothing else which is signed by the same key
//! (TLS begins with spaces, a certificate with a byte that is no letter).

use crate::identity::{Identity, NodeCertificates};
use anyhow::{Context, Result, anyhow, bail};
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use forebay_api::checked::NodeName;
use forebay_io::certificate::Revoked;
use rustls::SignatureScheme;
use rustls::pki_types::CertificateDer;
use rustls::sign::SigningKey;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

const BEGINNING: &[u8] = b"Forebay seal 1\0";
/// What `forebay node enrol` makes keys for.
const SCHEME: SignatureScheme = SignatureScheme::ECDSA_NISTP256_SHA256;
/// Longest certificate and signature that are looked at.
const BYTES_MAX: usize = 8192;

/// A signature with the certificate that it is checked by; both as base64.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Seal {
    /// The layout of this seal, which is 1.
    pub version: u32,
    certificate: String,
    signature: String,
}

/// What a seal is about.
#[derive(Clone, Copy, Debug)]
pub struct Sealed<'a> {
    /// What kind of text it is: the first part of its key.
    pub kind: &'a str,
    /// The node that says it.
    pub by: &'a NodeName,
    /// The node that it is meant for; another one refuses it.
    pub to: &'a NodeName,
    /// The parts of what is said.
    pub parts: &'a [&'a str],
}

/// Makes and checks seals, as one node.
pub struct Seals {
    cluster: String,
    certificate: CertificateDer<'static>,
    key: Arc<dyn SigningKey>,
    certificates: NodeCertificates,
    revoked: Arc<Revoked>,
}

impl Seals {
    /// Seals of the node that has this identity. `revoked`: whose seals count no more.
    pub fn new(identity: &Identity, revoked: Arc<Revoked>) -> Result<Seals> {
        let provider = rustls::crypto::ring::default_provider();
        let key = provider.key_provider.load_private_key(identity.key.clone_key());
        Ok(Seals {
            cluster: identity.cluster_id.to_string(),
            certificate: identity.certificate.clone(),
            key: key.context("the identity's key cannot sign")?,
            certificates: NodeCertificates::of(&identity.authority)?,
            revoked,
        })
    }

    /// Seals what this node says.
    pub fn seal(&self, what: Sealed<'_>) -> Result<Seal> {
        let signer =
            self.key.choose_scheme(&[SCHEME]).context("the identity's key is of another kind than nodes have")?;
        let signature = signer.sign(&self.bytes(what)).context("cannot sign with the identity's key")?;
        Ok(Seal { version: 1, certificate: BASE64.encode(&self.certificate), signature: BASE64.encode(signature) })
    }

    /// Whether who is named has said it: with a certificate of a node of this cluster that is valid now, and not revoked.
    pub fn check(&self, seal: &Seal, what: Sealed<'_>) -> Result<()> {
        let certificate = self.signer(seal, what)?;
        if self.revoked.refuses(&certificate) {
            bail!("its seal is by an identity of {} that was revoked", what.by);
        }
        Ok(())
    }

    /// The certificate by which who is named has said it, of a node of this cluster and valid now. Whether it is revoked is left to others.
    pub fn signer(&self, seal: &Seal, what: Sealed<'_>) -> Result<CertificateDer<'static>> {
        let decode = |text: &str| match text.len() <= BYTES_MAX {
            true => BASE64.decode(text).map_err(|error| anyhow!("its seal is damaged: {error}")),
            false => bail!("its seal is longer than one can be"),
        };
        if seal.version != 1 {
            bail!("its seal is of version {}, this Forebay knows version 1; use a newer one", seal.version);
        }
        let certificate = CertificateDer::from(decode(&seal.certificate)?);
        self.certificates
            .check(&certificate, what.by)
            .map_err(|error| anyhow!("its seal is not by {}: {error}", what.by))?;
        let end = webpki::EndEntityCert::try_from(&certificate)
            .map_err(|error| anyhow!("the certificate of its seal is damaged: {error}"))?;
        let signed =
            end.verify_signature(webpki::ring::ECDSA_P256_SHA256, &self.bytes(what), &decode(&seal.signature)?);
        signed.map_err(|_| anyhow!("its seal belongs to another text"))?;
        Ok(certificate)
    }

    fn bytes(&self, Sealed { kind, by, to, parts }: Sealed<'_>) -> Vec<u8> {
        let mut bytes = BEGINNING.to_vec();
        for part in [kind, &self.cluster, by.as_str(), to.as_str()].iter().chain(parts) {
            bytes.extend((part.len() as u64).to_be_bytes());
            bytes.extend(part.as_bytes());
        }
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::seals_of_nodes;
    use forebay_tests::harness::TempDir;

    #[test]
    fn a_seal_is_good_for_one_text_of_one_node_to_another() {
        let folder = TempDir::new("seals");
        let [alpha, beta] = &seals_of_nodes(folder.path(), "lab", &["alpha", "beta"])[..] else { panic!("two") };
        let strangers = seals_of_nodes(folder.path(), "other", &["alpha"]);
        let [a, b] = ["alpha", "beta"].map(|name| NodeName::new(name).unwrap());
        let what = Sealed { kind: "call", by: &a, to: &b, parts: &["nonce", "text"] };
        let seal = alpha.seal(what).unwrap();
        beta.check(&seal, what).unwrap();
        let refused = |seal: &Seal, what: Sealed<'_>| {
            let error = beta.check(seal, what).expect_err("it is not that").to_string();
            assert!(error.contains("seal"), "{error}");
        };
        refused(&seal, Sealed { kind: "ask", ..what });
        refused(&seal, Sealed { by: &b, ..what });
        refused(&seal, Sealed { to: &a, ..what });
        for parts in
            [&["nonce", "texu"][..], &["nonc", "etext"], &["noncetext"], &["nonce", "text", ""], &["nonce"], &[]]
        {
            refused(&seal, Sealed { parts, ..what });
        }
        refused(&strangers[0].seal(what).unwrap(), what);
        // With the right words, by a node that is not the one it says.
        refused(&beta.seal(what).unwrap(), what);
        for broken in [
            Seal { version: 2, ..seal.clone() },
            Seal { certificate: String::new(), ..seal.clone() },
            Seal { signature: String::new(), ..seal.clone() },
            Seal { signature: "#".into(), ..seal.clone() },
            Seal { signature: "A".repeat(1 << 20), ..seal.clone() },
            Seal { signature: seal.certificate.clone(), ..seal.clone() },
        ] {
            refused(&broken, what);
        }
    }

    #[test]
    fn a_seal_of_who_is_revoked_counts_no_more_whenever_it_was_made() {
        let folder = TempDir::new("seals-revoked");
        let [alpha, beta] = &seals_of_nodes(folder.path(), "lab", &["alpha", "beta"])[..] else { panic!("two") };
        let [a, b] = ["alpha", "beta"].map(|name| NodeName::new(name).unwrap());
        let what = Sealed { kind: "call", by: &a, to: &b, parts: &["text"] };
        let seal = alpha.seal(what).unwrap();
        beta.check(&seal, what).unwrap();
        let now = crate::identity::now().unwrap();
        beta.revoked.set([("alpha".to_owned(), now)].into());
        let error = beta.check(&seal, what).unwrap_err().to_string();
        assert!(error.contains("revoked"), "{error}");
        beta.signer(&seal, what).unwrap();
    }
}
