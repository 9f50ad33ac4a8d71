//! Certificates made anew for each test, in the folder layout that QEMU's and libnbd's TLS clients read:
//! `ca-cert.pem`, `client-cert.pem`, `client-key.pem`, and for the server `server-cert.pem`, `server-key.pem`.

use crate::harness::TempDir;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose, SanType,
};
use std::path::{Path, PathBuf};

/// An authority, which issues certificates.
pub struct Authority(CertifiedIssuer<'static, KeyPair>);

/// Whether a certificate is still good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Validity {
    /// It is good now.
    Current,
    /// Its end is long ago.
    Expired,
}

/// What a client's certificate says of its owner.
#[derive(Clone, Copy, Debug)]
pub struct Says<'a> {
    /// DNS names, and addresses, that it is for.
    pub dns: &'a [&'a str],
    /// URIs; a role is one.
    pub uris: &'a [&'a str],
}

impl Authority {
    /// A new one of this name.
    pub fn new(name: &str) -> Authority {
        let mut params = CertificateParams::new([]).expect("no names to be wrong");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().expect("a key can be made");
        Authority(CertifiedIssuer::self_signed(params, key).expect("an authority vouches for itself"))
    }

    fn issue(&self, folder: &Path, role: &str, purpose: ExtendedKeyUsagePurpose, validity: Validity) {
        let uris: &[&str] = if role == "client" { &["forebay:role:nbd-client"] } else { &[] };
        let says = Says { dns: &["localhost", "127.0.0.1"], uris };
        self.issue_for(folder, role, says, vec![purpose], validity);
    }

    fn issue_for(
        &self,
        folder: &Path,
        role: &str,
        says: Says<'_>,
        purposes: Vec<ExtendedKeyUsagePurpose>,
        validity: Validity,
    ) {
        let names: Vec<String> = says.dns.iter().map(|name| (*name).to_owned()).collect();
        let mut params = CertificateParams::new(names).expect("plain names");
        params
            .subject_alt_names
            .extend(says.uris.iter().map(|uri| SanType::URI((*uri).try_into().expect("plain text"))));
        params.distinguished_name.push(DnType::CommonName, role);
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = purposes;
        if validity == Validity::Expired {
            params.not_before = rcgen::date_time_ymd(2001, 1, 1);
            params.not_after = rcgen::date_time_ymd(2002, 1, 1);
        }
        let key = KeyPair::generate().expect("a key can be made");
        let certificate = params.signed_by(&key, &self.0).expect("an authority signs");
        put(folder, &format!("{role}-cert.pem"), &certificate.pem());
        put(folder, &format!("{role}-key.pem"), &key.serialize_pem());
    }

    /// A server's files, in a folder of the test's.
    pub fn server(&self, test: &TempDir, name: &str, validity: Validity) -> PathBuf {
        let folder = self.folder(test, name);
        self.issue(&folder, "server", ExtendedKeyUsagePurpose::ServerAuth, validity);
        folder
    }

    /// Files of a server at this address that is a client as well, as a member of etcd is: its gateway calls itself.
    pub fn member(&self, test: &TempDir, name: &str, address: &str) -> PathBuf {
        let folder = self.folder(test, name);
        let purposes = vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        let says = Says { dns: &[address], uris: &[] };
        self.issue_for(&folder, "server", says, purposes, Validity::Current);
        folder
    }

    /// Files of who is client and server at once, and says this of itself: its certificate, its key, both in PEM, and their folder.
    pub fn anybody(&self, test: &TempDir, name: &str, says: Says<'_>, validity: Validity) -> PathBuf {
        let folder = self.folder(test, name);
        let purposes = vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        self.issue_for(&folder, "client", says, purposes, validity);
        folder
    }

    /// A client's files: it trusts this authority, and has a certificate of `own` with the role of a client of volumes, if any.
    pub fn client(&self, test: &TempDir, name: &str, own: Option<(&Authority, Validity)>) -> PathBuf {
        let folder = self.folder(test, name);
        if let Some((issuer, validity)) = own {
            issuer.issue(&folder, "client", ExtendedKeyUsagePurpose::ClientAuth, validity);
        }
        folder
    }

    fn folder(&self, test: &TempDir, name: &str) -> PathBuf {
        let folder = test.join(name);
        std::fs::create_dir_all(&folder).unwrap_or_else(|e| panic!("make {}: {e}", folder.display()));
        put(&folder, "ca-cert.pem", &self.0.pem());
        folder
    }
}

fn put(folder: &Path, name: &str, text: &str) {
    let path = folder.join(name);
    std::fs::write(&path, text).unwrap_or_else(|e| panic!("write {}: {e}", path.display()));
}
