//! Certificates of the cluster's authority for who is no node: clients of volumes, callers of the API, and the servers that
//! both call. Each has one role, and is good for that alone.
//!
//! They are PEM files under the names that QEMU, libnbd and others look for in one folder.

use super::{Authority, Made, NODE_VALID, Replace, day, now, role_name, set_validity, write_secret};
use anyhow::{Context, Result, bail};
use forebay_core::roles::{Name, Role};
use forebay_io::folder::Folder;
use rcgen::{CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose, SanType};
use std::net::IpAddr;
use std::path::Path;

/// What a certificate is for, by who shows it and how its files are called.
fn files_of(role: Role) -> Result<(&'static str, ExtendedKeyUsagePurpose)> {
    match role {
        Role::NbdClient | Role::Admin => Ok(("client", ExtendedKeyUsagePurpose::ClientAuth)),
        Role::NbdServer | Role::HttpServer => Ok(("server", ExtendedKeyUsagePurpose::ServerAuth)),
        Role::Node => bail!("a node gets its identity by `forebay node enrol`"),
    }
}

impl Authority {
    /// Makes the authority's certificate, one with this role and these names (DNS names and addresses), and its key in a folder,
    /// where none of the three may be.
    pub fn certify(&self, role: Role, names: &[String], folder: &Path) -> Result<Made> {
        let (word, purpose) = files_of(role)?;
        let mut params = CertificateParams::new([]).context("no names to be wrong")?;
        for name in names {
            let name = match (name.parse::<IpAddr>(), format!("dns:{name}").parse::<Name>()) {
                (Ok(address), _) => SanType::IpAddress(address),
                (Err(_), Ok(_)) => SanType::DnsName(name.to_ascii_lowercase().try_into().context("a DNS name")?),
                (Err(_), Err(why)) => bail!("{name:?} is no name for a certificate: {why}"),
            };
            params.subject_alt_names.push(name);
        }
        if let Some(node) =
            names.iter().find(|name| self.file.node.iter().any(|node| node.name == name.to_ascii_lowercase()))
        {
            bail!(
                "{node} is a node of the cluster, and nobody else goes by its name; give the host's whole name, or its address"
            );
        }
        let first = names.first().context("a certificate names somebody: give a name")?;
        params.subject_alt_names.push(role_name(role)?);
        params.distinguished_name.push(DnType::CommonName, first);
        params.distinguished_name.push(DnType::OrganizationalUnitName, role.word());
        params.is_ca = IsCa::ExplicitNoCa;
        params.use_authority_key_identifier_extension = true;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![purpose];
        set_validity(&mut params, now()?, NODE_VALID);
        let own = KeyPair::from_pem(&self.file.key)
            .with_context(|| format!("the authority's key in {} is damaged", self.path.display()))?;
        let issuer = Issuer::new(Authority::params(&self.file.cluster, self.file.cluster_id)?, own);
        let key = KeyPair::generate().with_context(|| format!("cannot make a key for {first}"))?;
        let certificate = params.signed_by(&key, &issuer).with_context(|| format!("cannot sign for {first}"))?;
        let paths = ["ca-cert.pem".to_owned(), format!("{word}-cert.pem"), format!("{word}-key.pem")];
        let paths = paths.map(|name| folder.join(name));
        if let Some(there) = paths.iter().find(|path| path.exists()) {
            bail!("{} is there already; give another folder with --to", there.display());
        }
        Folder::make_all(folder, 0o755).with_context(|| format!("cannot make {}", folder.display()))?;
        let texts = [self.file.certificate.clone(), certificate.pem(), key.serialize_pem()];
        for (path, text) in paths.iter().zip(&texts) {
            write_secret(path, text, Replace::No)?;
        }
        Ok(Made { path: folder.to_owned(), name: first.clone(), node: None, valid_until: day(now()? + NODE_VALID) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_core::roles::Claim;
    use forebay_tests::harness::TempDir;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn each_has_its_role_and_names_and_a_key_that_is_its_owners_alone() {
        let folder = TempDir::new("certify");
        Authority::init(folder.path(), "lab").unwrap();
        let authority = Authority::open(folder.path()).unwrap();
        let names = ["VM1.lab".to_owned(), "10.0.0.7".to_owned()];
        for (role, word) in [
            (Role::NbdClient, "client"),
            (Role::Admin, "client"),
            (Role::NbdServer, "server"),
            (Role::HttpServer, "server"),
        ] {
            let to = folder.join(role.word());
            authority.certify(role, &names, &to).unwrap();
            let path = to.join(format!("{word}-cert.pem"));
            let read = forebay_io::tls::certificates("a certificate", &path).unwrap();
            let certified = forebay_io::certificate::read(&read[0]);
            assert_eq!(certified.claim(), Claim::Role(role));
            assert!(certified.is_in(&["dns:vm1.lab".parse().unwrap()]));
            let key = std::fs::metadata(to.join(format!("{word}-key.pem"))).unwrap();
            assert_eq!(key.permissions().mode() & 0o777, 0o600);
            let again = authority.certify(role, &names, &to).unwrap_err().to_string();
            assert!(again.contains("is there already"), "{again}");
        }
        let refused = |role, names: &[&str]| {
            let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
            authority.certify(role, &names, &folder.join("none")).unwrap_err().to_string()
        };
        assert!(refused(Role::Node, &["alpha"]).contains("enrol"));
        assert!(refused(Role::NbdClient, &[]).contains("give a name"));
        for name in ["*.lab", "forebay:role:admin", "a b", ""] {
            assert!(refused(Role::NbdClient, &[name]).contains("no name for a certificate"), "{name}");
        }
        let mut authority = Authority::open(folder.path()).unwrap();
        authority.enrol("alpha", &folder.join("alpha.toml"), false).unwrap();
        let alpha = authority.certify(Role::NbdServer, &["Alpha".to_owned()], &folder.join("none"));
        assert!(alpha.unwrap_err().to_string().contains("is a node of the cluster"));
        assert!(!folder.join("none").exists());
    }
}
