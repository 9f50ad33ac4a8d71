//! Who is a node of a cluster: the cluster's authority, and the identity files that it gives out.
//!
//! - The *authority* lies in a folder of the machine where `forebay node init-ca` ran, and its key leaves it never. It
//!   remembers which nodes it has enrolled, with their numbers.
//! - An *identity* is one file for one node: its name and number, its certificate and key, the authority's certificate,
//!   and which cluster it is. Whoever has the file is that node.
//!
//! Invariants:
//! - A name is given out once. A renewed identity has the number of the former one: to the cluster it is the same node.
//! - Of one name each certificate is made later than those before it, and than what was revoked ([`revocation`]).
//! - The authority has durably remembered a number before the file with it exists.
//! - Files with keys are made readable by their owner alone, and one that others can read is refused.
//! - An identity is used only if its certificate is of its authority, names it, belongs to its key and is valid now.
//!
//! The certificate names the node as a DNS name, for both directions of TLS, and has the role of a node, so that it is good for
//! nothing but links; `forebay-io` checks both there. Other roles get their certificates by [`certify`].

pub mod certify;
pub mod ends;
pub mod revocation;

use anyhow::{Context, Result, anyhow, bail};
use ends::Ends;
use forebay_api::calendar;
use forebay_api::checked::{Hex64, NodeName};
use forebay_api::record::VolumeId;
use forebay_api::secret::check_secret_mode;
use forebay_core::cluster::NodeId;
use forebay_core::roles::{Claim, Place, Role, may_serve};
use forebay_io::certificate::{BEGINS_BEFORE, validity};
use forebay_io::durable::remove_durably;
use forebay_io::folder::{self, Folder};
use forebay_io::machine::random_bytes;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, SanType,
};
use revocation::Which;
use rustls::RootCertStore;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use serde::{Deserialize, Serialize};
use std::fs::{File, OpenOptions, Permissions, TryLockError};
use std::io::Write;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Version of both files that this code writes, and the only one it reads.
const VERSION: u32 = 1;
/// Some hundred bytes for each node that was ever enrolled.
const AUTHORITY_BYTES_MAX: u64 = 16 << 20;
const DAY: Duration = Duration::from_secs(24 * 3600);
/// An authority outlives the machines: renewing it means enrolling every node again.
const AUTHORITY_VALID: Duration = DAY.saturating_mul(20 * 365);
/// Two years: long enough not to be a chore, short enough that a lost file ends by itself.
pub const NODE_VALID: Duration = DAY.saturating_mul(2 * 365);
/// So long before its end an identity is said to be due for renewal.
pub const RENEWAL_DUE: Duration = DAY.saturating_mul(60);
/// Another command has changed the authority after so long.
const LOCKED_WITHIN: Duration = Duration::from_secs(10);
/// Longest name: one label of DNS, and the field for it on the wire.
const NAME_BYTES_MAX: usize = 63;

/// Names of nodes and clusters: a label of DNS, as certificates compare them, in lower case, so that two names never
/// match one certificate.
pub fn check_label(what: &str, name: &str) -> Result<()> {
    let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    let ends = name.starts_with(|c: char| c.is_ascii_lowercase()) && !name.ends_with('-');
    if !ends || name.len() > NAME_BYTES_MAX || !name.bytes().all(plain) {
        bail!(
            "{what} {name:?}: use 1 to {NAME_BYTES_MAX} lower-case letters, digits and hyphens, beginning with a letter and not \
             ending with a hyphen"
        );
    }
    Ok(())
}

// --- the authority ---

/// The authority's file.
#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct AuthorityFile {
    version: u32,
    cluster: String,
    cluster_id: VolumeId,
    valid_until: String,
    certificate: String,
    key: String,
    #[serde(default)]
    node: Vec<Enrolled>,
}

/// A node that the authority has enrolled.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Enrolled {
    name: String,
    node: Hex64,
    valid_until: String,
    /// When its newest certificate was made, in seconds since 1970: each later than all before it. 0: an earlier version has made it.
    #[serde(default)]
    made_s: u64,
    /// It was renewed, or an earlier version has not kept whether it was: there may be others from before its newest certificate.
    #[serde(default = "unknown_is_renewed")]
    renewed: bool,
    /// What was made up to then was revoked; 0: nothing was.
    #[serde(default)]
    revoked_until_s: u64,
}

fn unknown_is_renewed() -> bool {
    true
}

impl Enrolled {
    /// When its newest certificate was made, or a time after that, in seconds since 1970: of an earlier version the day of its end is known.
    fn made_at_most(&self) -> u64 {
        if self.made_s != 0 {
            return self.made_s;
        }
        let end = calendar::parse(&format!("{}T23:59:59Z", self.valid_until)).unwrap_or(0);
        end.saturating_sub(NODE_VALID.as_secs())
    }
}

/// The authority of a cluster.
pub struct Authority {
    path: PathBuf,
    file: AuthorityFile,
}

/// What was made, for telling it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Made {
    /// Path of the file that was written.
    pub path: PathBuf,
    /// Whose it is: the cluster's or the node's name.
    pub name: String,
    /// The node's number; none for an authority.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<Hex64>,
    /// Day on which its certificate ends, for people.
    pub valid_until: String,
}

impl Authority {
    fn path_in(folder: &Path) -> PathBuf {
        folder.join("authority.toml")
    }

    /// A new cluster's authority in this folder, where there must be none.
    pub fn init(folder: &Path, cluster: &str) -> Result<Made> {
        check_label("cluster name", cluster)?;
        let path = Authority::path_in(folder);
        if path.exists() {
            bail!(
                "{} is there already: a new authority would make every node a stranger. Enrol nodes with it (forebay node enrol NAME), \
                 or keep the new one in another folder (--authority)",
                path.display()
            );
        }
        // Whoever may exchange it signs himself into the cluster with what the next enrolment gives away.
        Folder::make_private(folder, 0o700).with_context(|| format!("cannot make {}", folder.display()))?;
        let cluster_id = VolumeId::random()?;
        let key = KeyPair::generate().context("cannot make a key for the authority")?;
        let params = Authority::params(cluster, cluster_id)?;
        let issuer = CertifiedIssuer::self_signed(params, &key).context("cannot make the authority's certificate")?;
        let valid_until = day(now()? + AUTHORITY_VALID);
        let file = AuthorityFile {
            version: VERSION,
            cluster: cluster.to_owned(),
            cluster_id,
            valid_until: valid_until.clone(),
            certificate: issuer.pem(),
            key: key.serialize_pem(),
            node: Vec::new(),
        };
        write_secret(&path, &file.text()?, Replace::No)?;
        Ok(Made { path, name: cluster.to_owned(), node: None, valid_until })
    }

    /// The one in this folder, in which nobody else can have put it.
    pub fn open(folder: &Path) -> Result<Authority> {
        let path = Authority::path_in(folder);
        if !path.exists() {
            bail!(
                "there is no authority in {}: make one with `forebay node init-ca`, or name its folder with --authority; it stays on the \
                 machine where it was made",
                folder.display()
            );
        }
        let file = AuthorityFile::read(&path)?;
        Ok(Authority { path, file })
    }

    /// Reads it anew, and keeps other commands from changing it until what this returns is dropped.
    pub(crate) fn begin_change(&mut self) -> Result<File> {
        let folder = self.path.parent().unwrap_or(Path::new("/"));
        let attempt = || format!("cannot lock {}", folder.display());
        let lock = File::open(folder).with_context(attempt)?;
        let begun = Instant::now();
        loop {
            match lock.try_lock() {
                Ok(()) => break,
                Err(TryLockError::WouldBlock) if begun.elapsed() < LOCKED_WITHIN => {
                    std::thread::sleep(LOCKED_WITHIN / 100)
                }
                Err(error) => return Err(std::io::Error::from(error)).with_context(attempt),
            }
        }
        self.file = AuthorityFile::read(&self.path)?;
        Ok(lock)
    }

    /// As they were when the authority signed itself: what it signs must name it in the same words.
    fn params(cluster: &str, id: VolumeId) -> Result<CertificateParams> {
        let mut params = CertificateParams::new([]).context("no names to be wrong")?;
        params.distinguished_name.push(DnType::CommonName, format!("Forebay cluster {cluster}"));
        params.distinguished_name.push(DnType::OrganizationalUnitName, id.to_string());
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        set_validity(&mut params, now()?, AUTHORITY_VALID);
        Ok(params)
    }

    /// Gives a node its identity, in this file. A name that was given out is given out again only to `renew` it, under its number.
    pub fn enrol(&mut self, name: &str, to: &Path, renew: bool) -> Result<Made> {
        check_label("node name", name)?;
        let _changing = self.begin_change()?;
        let known = self.position(name);
        let node = match (known, renew) {
            (Some(at), true) => self.file.node[at].node,
            (Some(at), false) => bail!(
                "{name} is enrolled already, until {}: for a new certificate of the same node add --renew; another node takes another name",
                self.file.node[at].valid_until
            ),
            (None, true) => bail!("{name} was never enrolled by {}, so there is nothing to renew", self.path.display()),
            (None, false) => random_node()?,
        };
        if to.exists() && !renew {
            bail!("{} is there already; give another file with --to", to.display());
        }
        let revoked_until_s = known.map_or(0, |at| self.file.node[at].revoked_until_s);
        let made = self.making_time(name, known.map(|at| &self.file.node[at]))?;
        let valid_until = day(made + NODE_VALID);
        let identity = self.issue(name, node, made, &valid_until)?;
        let (name_of, until) = (name.to_owned(), valid_until.clone());
        let enrolled = Enrolled {
            name: name_of,
            node,
            valid_until: until,
            made_s: made.as_secs(),
            renewed: renew,
            revoked_until_s,
        };
        match known {
            Some(at) => self.file.node[at] = enrolled,
            None => self.file.node.push(enrolled),
        }
        write_secret(&self.path, &self.file.text()?, Replace::Yes)?;
        write_secret(to, &identity.text()?, if renew { Replace::Yes } else { Replace::No })
            .with_context(|| format!("{name} is enrolled, and has no file yet; say it again with --renew"))?;
        Ok(Made { path: to.to_owned(), name: name.to_owned(), node: Some(node), valid_until })
    }

    fn position(&self, name: &str) -> Option<usize> {
        self.file.node.iter().position(|node| node.name == name)
    }

    /// When the next certificate for a name is said to be made: now, and later than all that were made for it or were revoked.
    fn making_time(&self, name: &str, enrolled: Option<&Enrolled>) -> Result<Duration> {
        let now = now()?;
        let after = enrolled.map_or(0, |enrolled| enrolled.made_at_most().max(enrolled.revoked_until_s));
        let made = now.max(Duration::from_secs(after.saturating_add(1)));
        // It would not be valid yet.
        if made > now + BEGINS_BEFORE {
            bail!(
                "{} has something of {name} from {}, which is to come by this machine's clock: set the clock, or wait until then",
                self.path.display(),
                day(made)
            );
        }
        Ok(made)
    }

    /// Up to when what was made for a name counts no more once these of its identities are revoked, in seconds since 1970.
    pub(crate) fn revocable(&self, name: &str, which: Which) -> Result<u64> {
        let Some(enrolled) = self.position(name).map(|at| &self.file.node[at]) else {
            bail!(
                "{name} was not enrolled by {}: if that was restored from a backup which is older than the node, enrol {name} again (`forebay node \
                 enrol {name} --to DIR`), delete the file that this makes, and revoke it then",
                self.path.display()
            );
        };
        let now = now()?.as_secs();
        if enrolled.made_s != 0 && now > enrolled.made_s + (NODE_VALID + BEGINS_BEFORE).as_secs() {
            bail!(
                "every identity of {name} has ended, by this machine's clock: if that is right, there is nothing to revoke"
            );
        }
        match (which, enrolled.made_s) {
            // What was said before is said again, as long as nothing was made since.
            (Which::All, made) if made != 0 && enrolled.revoked_until_s >= made => Ok(enrolled.revoked_until_s),
            (Which::All, _) => Ok(now.max(enrolled.made_at_most()).max(enrolled.revoked_until_s)),
            (Which::Former, 0) => bail!(
                "when the newest identity of {name} was made is not known: make another one (forebay node enrol {name} --renew), carry it to \
                 its node, start that anew, and say it again"
            ),
            (Which::Former, _) if !enrolled.renewed => bail!(
                "{name} has no identity from before its newest one: make that first (forebay node enrol {name} --renew), carry it to its node, and \
                 start that anew"
            ),
            (Which::Former, made) => Ok(made - 1),
        }
    }

    /// Keeps durably that these were revoked, each up to then.
    pub(crate) fn remember_revoked(&mut self, untils: &[(NodeName, u64)]) -> Result<()> {
        for (name, until) in untils {
            let at = self.position(name.as_str()).with_context(|| format!("{name} is not enrolled"))?;
            let revoked = &mut self.file.node[at].revoked_until_s;
            *revoked = (*revoked).max(*until);
        }
        write_secret(&self.path, &self.file.text()?, Replace::Yes)
    }

    pub(crate) fn key_pem(&self) -> &str {
        &self.file.key
    }

    pub(crate) fn cluster_id(&self) -> VolumeId {
        self.file.cluster_id
    }

    fn issue(&self, name: &str, node: Hex64, made: Duration, valid_until: &str) -> Result<IdentityFile> {
        let own = KeyPair::from_pem(&self.file.key)
            .with_context(|| format!("the authority's key in {} is damaged", self.path.display()))?;
        let issuer = Issuer::new(Authority::params(&self.file.cluster, self.file.cluster_id)?, own);
        let mut params = CertificateParams::new([name.to_owned()]).context("the node's name")?;
        params.subject_alt_names.push(role_name(Role::Node)?);
        params.distinguished_name.push(DnType::CommonName, name);
        params.distinguished_name.push(DnType::OrganizationalUnitName, String::from(node));
        params.is_ca = IsCa::ExplicitNoCa;
        params.use_authority_key_identifier_extension = true;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        set_validity(&mut params, made, NODE_VALID);
        let key = KeyPair::generate().with_context(|| format!("cannot make a key for {name}"))?;
        let certificate = params.signed_by(&key, &issuer).with_context(|| format!("cannot sign for {name}"))?;
        Ok(IdentityFile {
            version: VERSION,
            cluster: self.file.cluster.clone(),
            cluster_id: self.file.cluster_id,
            name: name.to_owned(),
            node,
            valid_until: valid_until.to_owned(),
            certificate: certificate.pem(),
            key: key.serialize_pem(),
            authority: self.file.certificate.clone(),
        })
    }
}

/// A role, as a certificate carries it.
fn role_name(role: Role) -> Result<SanType> {
    Ok(SanType::URI(role.uri().try_into().context("a role is plain text")?))
}

impl AuthorityFile {
    fn read(path: &Path) -> Result<AuthorityFile> {
        let what = "the cluster's authority";
        check_secret_mode(path).with_context(|| format!("cannot read {what}"))?;
        let text = folder::read_private_text(path, AUTHORITY_BYTES_MAX);
        let text = text.with_context(|| format!("cannot read {what} from {}", path.display()))?;
        parse_secret(&text, path, what)
    }

    fn text(&self) -> Result<String> {
        let text = toml::to_string(self).context("cannot encode the authority's file")?;
        Ok(format!(
            "# Authority of the Forebay cluster {}. Whoever has it can make nodes of it: it stays here.\n{text}",
            self.cluster
        ))
    }
}

fn random_node() -> Result<Hex64> {
    let mut bytes = [0; 8];
    random_bytes(&mut bytes)?;
    Ok(Hex64(u64::from_be_bytes(bytes)))
}

// --- an identity ---

/// A node's file.
#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct IdentityFile {
    version: u32,
    cluster: String,
    cluster_id: VolumeId,
    name: String,
    node: Hex64,
    valid_until: String,
    certificate: String,
    key: String,
    authority: String,
}

impl IdentityFile {
    fn text(&self) -> Result<String> {
        let text = toml::to_string(self).context("cannot encode the identity")?;
        Ok(format!(
            "# Identity of the node {} in the Forebay cluster {}. Whoever has it is that node: keep it readable by the daemon alone.\n{text}",
            self.name, self.cluster
        ))
    }
}

/// A node's identity, checked.
#[derive(Debug)]
pub struct Identity {
    /// The cluster's name.
    pub cluster: String,
    /// The cluster's identity.
    pub cluster_id: VolumeId,
    /// The node's name, which its certificate names.
    pub name: String,
    /// The node's number.
    pub node: NodeId,
    /// Day of its end, for people; the certificate decides.
    pub valid_until: String,
    /// The certificate that names the node.
    pub certificate: CertificateDer<'static>,
    /// The private key of that certificate.
    pub key: PrivateKeyDer<'static>,
    /// Certificate of the cluster's authority.
    pub authority: CertificateDer<'static>,
    /// When its certificates end.
    pub ends: Ends,
    /// It was given out before certificates had roles.
    pub lacks_role: bool,
}

impl Identity {
    /// Reads and checks the file.
    pub fn load(path: &Path) -> Result<Identity> {
        let file: IdentityFile = read_secret(path, "a node's identity")?;
        Identity::check(file, now()?).with_context(|| format!("cannot use the identity {}", path.display()))
    }

    fn check(file: IdentityFile, now: Duration) -> Result<Identity> {
        check_label("cluster name", &file.cluster)?;
        check_label("node name", &file.name)?;
        let pem = |what: &str, text: &str| {
            CertificateDer::from_pem_slice(text.as_bytes()).map_err(|error| anyhow!("its {what} is damaged: {error}"))
        };
        let (certificate, authority) = (pem("certificate", &file.certificate)?, pem("authority", &file.authority)?);
        let key = PrivateKeyDer::from_pem_slice(file.key.as_bytes())
            .map_err(|error| anyhow!("its key is damaged: {error}"))?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let signing = provider.key_provider.load_private_key(key.clone_key()).context("its key cannot be used")?;
        rustls::sign::CertifiedKey::new(vec![certificate.clone()], signing)
            .keys_match()
            .context("its certificate belongs to another key")?;
        let certificates = NodeCertificates::of(&authority)?;
        let valid_at = |at: Duration| certificates.check_at(&certificate, &file.name, at);
        valid_at(now).map_err(|error| {
            anyhow!(
                "its certificate is not valid for {} (until {}): {error}; renew it where the cluster's authority is, with \
                 `forebay node enrol {} --renew`, and see that this machine's clock is right",
                file.name,
                file.valid_until,
                file.name
            )
        })?;
        let claim = forebay_io::certificate::read(&certificate).claim();
        if !may_serve(Place::Link, claim) {
            bail!("its certificate {claim}, and is none of a node");
        }
        let end_of = |certificate| -> Result<Duration> {
            let (_, end) = validity(certificate).context("the end of its certificates cannot be read")?;
            Ok(end)
        };
        let ends = Ends { name: file.name.clone(), own: end_of(&certificate)?, authority: end_of(&authority)? };
        Ok(Identity {
            cluster: file.cluster,
            cluster_id: file.cluster_id,
            name: file.name,
            node: NodeId(file.node.0),
            valid_until: file.valid_until,
            certificate,
            key,
            authority,
            ends,
            lacks_role: claim == Claim::Nothing,
        })
    }
}

/// Certificates of the nodes of one cluster.
pub struct NodeCertificates(Arc<WebPkiServerVerifier>);

impl NodeCertificates {
    /// Of the cluster with this authority.
    pub fn of(authority: &CertificateDer<'static>) -> Result<NodeCertificates> {
        let mut roots = RootCertStore::empty();
        roots.add(authority.clone()).context("its authority is damaged")?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider);
        Ok(NodeCertificates(verifier.build().context("its authority cannot be used")?))
    }

    /// Whether this is the certificate of the node with this name, now.
    pub fn check(&self, certificate: &CertificateDer<'_>, name: &str) -> Result<()> {
        // The authority signs for others than nodes, too, and under names that a node may have later.
        let claim = forebay_io::certificate::read(certificate).claim();
        if !may_serve(Place::Link, claim) {
            bail!("its certificate is not that of a node");
        }
        self.check_at(certificate, name, now()?)
    }

    fn check_at(&self, certificate: &CertificateDer<'_>, name: &str, at: Duration) -> Result<()> {
        let name = ServerName::try_from(name.to_owned()).context("its name cannot be in a certificate")?;
        self.0.verify_server_cert(certificate, &[], &name, &[], UnixTime::since_unix_epoch(at))?;
        Ok(())
    }
}

// --- files and days ---

#[derive(Clone, Copy, PartialEq, Eq)]
enum Replace {
    Yes,
    No,
}

/// Makes a file that its owner alone can read, whole and durably.
fn write_secret(path: &Path, text: &str, replace: Replace) -> Result<()> {
    let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut aside = path.as_os_str().to_owned();
    aside.push(".new");
    let aside = PathBuf::from(aside);
    let write = || -> std::io::Result<()> {
        // One that was left behind could have been opened by somebody when it was still readable.
        let _ = std::fs::remove_file(&aside);
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&aside)?;
        file.set_permissions(Permissions::from_mode(0o600))?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        match replace {
            Replace::Yes => std::fs::rename(&aside, path)?,
            // A link fails where the name is taken, a rename would not.
            Replace::No => {
                std::fs::hard_link(&aside, path)?;
                std::fs::remove_file(&aside)?;
            }
        }
        File::open(folder)?.sync_all()
    };
    let written = write();
    if written.is_err() {
        let _ = remove_durably(&aside);
    }
    written.with_context(|| format!("cannot write {}", path.display()))
}

fn read_secret<T: serde::de::DeserializeOwned>(path: &Path, what: &str) -> Result<T> {
    check_secret_mode(path).with_context(|| format!("cannot read {what}"))?;
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {what} from {}", path.display()))?;
    parse_secret(&text, path, what)
}

fn parse_secret<T: serde::de::DeserializeOwned>(text: &str, path: &Path, what: &str) -> Result<T> {
    #[derive(Deserialize)]
    struct Versioned {
        version: u32,
    }
    match toml::from_str::<Versioned>(text) {
        Ok(Versioned { version: VERSION }) => {}
        Ok(Versioned { version }) => {
            bail!("{} is of version {version}, this Forebay knows version {VERSION}; use a newer one", path.display())
        }
        // The text holds a key: the parser's own words would show its lines.
        Err(_) => bail!("{} is not {what}, or is damaged", path.display()),
    }
    toml::from_str(text)
        .map_err(|error| anyhow!("{} is not {what}, or is damaged: {}", path.display(), error.message()))
}

/// The time since 1970 by this machine's clock.
pub fn now() -> Result<Duration> {
    SystemTime::now().duration_since(UNIX_EPOCH).context("this machine's clock is before 1970; set it")
}

/// From the day before it is made on.
fn set_validity(params: &mut CertificateParams, made: Duration, valid: Duration) {
    let epoch = rcgen::date_time_ymd(1970, 1, 1);
    (params.not_before, params.not_after) = (epoch + (made - BEGINS_BEFORE), epoch + (made + valid));
}

/// As people write a day.
fn day(since_1970: Duration) -> String {
    let time = rcgen::date_time_ymd(1970, 1, 1) + since_1970;
    format!("{:04}-{:02}-{:02}", time.year(), u8::from(time.month()), time.day())
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_io::certificate::{self, Shown};
    use forebay_tests::harness::TempDir;

    fn lab(name: &str) -> (TempDir, Authority) {
        let folder = TempDir::new(name);
        Authority::init(folder.path(), "lab").unwrap();
        let authority = Authority::open(folder.path()).unwrap();
        (folder, authority)
    }

    fn file(path: &Path) -> IdentityFile {
        read_secret(path, "a node's identity").unwrap()
    }

    fn mode(path: &Path) -> u32 {
        std::fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn three_nodes_of_one_cluster_have_files_that_are_good_and_theirs_alone() {
        let (folder, mut authority) = lab("identity-three");
        let mut nodes = Vec::new();
        for name in ["alpha", "beta", "gamma"] {
            let path = folder.join(&format!("{name}.toml"));
            let made = authority.enrol(name, &path, false).unwrap();
            let identity = Identity::load(&path).unwrap();
            assert_eq!((identity.name.as_str(), identity.cluster.as_str(), mode(&path)), (name, "lab", 0o600));
            assert_eq!((Some(Hex64(identity.node.0)), identity.valid_until.clone()), (made.node, made.valid_until));
            let now = now().unwrap();
            assert_eq!(identity.ends.due(now, None), None);
            let ends = &identity.ends;
            assert!(ends.own > now + NODE_VALID - DAY && ends.own <= now + NODE_VALID, "{ends:?}");
            assert!(ends.authority > now + AUTHORITY_VALID - DAY, "{ends:?}");
            assert_eq!(identity.cluster_id, authority.file.cluster_id);
            nodes.push(identity.node);
        }
        nodes.sort_unstable();
        nodes.dedup();
        assert_eq!(nodes.len(), 3, "numbers differ");
        assert_eq!(mode(&folder.join("authority.toml")), 0o600);
        // What was enrolled is known to whoever opens the folder.
        assert_eq!(Authority::open(folder.path()).unwrap().file.node.len(), 3);
    }

    #[test]
    fn a_name_is_given_out_once_and_renewed_under_its_number() {
        let (folder, mut authority) = lab("identity-renew");
        let (first, second) = (folder.join("a.toml"), folder.join("b.toml"));
        authority.enrol("alpha", &first, false).unwrap();
        let error = authority.enrol("alpha", &second, false).unwrap_err().to_string();
        assert!(error.contains("enrolled already") && error.contains("--renew") && !second.exists(), "{error}");
        let error = authority.enrol("beta", &second, true).unwrap_err().to_string();
        assert!(error.contains("never enrolled"), "{error}");
        let error = authority.enrol("beta", &first, false).unwrap_err().to_string();
        assert!(error.contains("is there already") && error.contains("--to"), "{error}");
        let before = file(&first);
        authority.enrol("alpha", &first, true).unwrap();
        let after = file(&first);
        assert_eq!(before.node, after.node);
        assert!(before.key != after.key && before.certificate != after.certificate);
        assert_eq!(mode(&first), 0o600);
        let error = Authority::init(folder.path(), "lab").unwrap_err().to_string();
        assert!(error.contains("stranger"), "{error}");
    }

    #[test]
    fn an_identity_has_the_role_of_a_node_or_is_from_before_there_were_roles() {
        let (folder, mut authority) = lab("identity-role");
        let path = folder.join("alpha.toml");
        authority.enrol("alpha", &path, false).unwrap();
        assert!(!Identity::load(&path).unwrap().lacks_role);
        // As another hand of the same authority would make it.
        let with = |uris: &[&str]| {
            let mut identity = file(&path);
            let own = KeyPair::from_pem(&authority.file.key).unwrap();
            let issuer = Issuer::new(Authority::params("lab", authority.file.cluster_id).unwrap(), own);
            let mut params = CertificateParams::new(["alpha".to_owned()]).unwrap();
            params.subject_alt_names.extend(uris.iter().map(|uri| SanType::URI((*uri).try_into().unwrap())));
            let key = KeyPair::generate().unwrap();
            identity.certificate = params.signed_by(&key, &issuer).unwrap().pem();
            identity.key = key.serialize_pem();
            Identity::check(identity, now().unwrap()).map(|identity| identity.lacks_role)
        };
        assert!(with(&[]).unwrap());
        assert!(!with(&["forebay:role:node"]).unwrap());
        for wrong in
            [&["forebay:role:nbd-client"][..], &["forebay:role:node", "forebay:role:admin"], &["forebay:role:x"]]
        {
            let said = with(wrong).unwrap_err().to_string();
            assert!(said.contains("none of a node"), "{said}");
        }
    }

    #[test]
    fn names_that_certificates_cannot_tell_apart_are_refused() {
        let (folder, mut authority) = lab("identity-names");
        let long = "a".repeat(64);
        for name in ["", "Alpha", "a_b", "a.b", "-a", "a-", "1", "10.0.0.1", "ä", "a b", long.as_str()] {
            let error = authority.enrol(name, &folder.join("x.toml"), false).unwrap_err().to_string();
            assert!(error.contains("lower-case"), "{error}");
        }
        authority.enrol(&long[1..], &folder.join("x.toml"), false).unwrap();
        assert!(Authority::init(&folder.join("other"), "Lab").is_err());
    }

    /// A handshake of two nodes, each with the other's name; whether both sides are content.
    fn greet(caller: &Identity, called: &Identity) -> Result<(), rustls::Error> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let versions = &[&rustls::version::TLS13];
        let roots = |identity: &Identity| {
            let mut roots = RootCertStore::empty();
            roots.add(identity.authority.clone()).unwrap();
            Arc::new(roots)
        };
        let callers = certificate::of_callers(Place::Link, (*roots(called)).clone(), Shown::Always).unwrap();
        let server = rustls::ServerConfig::builder_with_provider(provider.clone())
            .with_protocol_versions(versions)?
            .with_client_cert_verifier(callers)
            .with_single_cert(vec![called.certificate.clone()], called.key.clone_key())?;
        let client = rustls::ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(versions)?
            .with_root_certificates(roots(caller))
            .with_client_auth_cert(vec![caller.certificate.clone()], caller.key.clone_key())?;
        let name = ServerName::try_from(called.name.clone()).unwrap();
        let mut client = rustls::ClientConnection::new(Arc::new(client), name)?;
        let mut server = rustls::ServerConnection::new(Arc::new(server))?;
        while client.is_handshaking() || server.is_handshaking() {
            let mut bytes = Vec::new();
            client.write_tls(&mut bytes).unwrap();
            server.read_tls(&mut bytes.as_slice()).unwrap();
            server.process_new_packets()?;
            bytes.clear();
            server.write_tls(&mut bytes).unwrap();
            client.read_tls(&mut bytes.as_slice()).unwrap();
            client.process_new_packets()?;
        }
        Ok(())
    }

    #[test]
    fn nodes_of_one_cluster_know_each_other_and_a_stranger_is_known_by_nobody() {
        let (folder, mut authority) = lab("identity-greet");
        // Another cluster of the same name, with a node of the same name.
        let (other_folder, mut other) = lab("identity-greet-other");
        let identity = |authority: &mut Authority, folder: &TempDir, name: &str, renew: bool| {
            let path = folder.join(&format!("{name}.toml"));
            authority.enrol(name, &path, renew).unwrap();
            Identity::load(&path).unwrap()
        };
        let alpha = identity(&mut authority, &folder, "alpha", false);
        // Signed by the authority as it is opened again, on another day.
        let mut reopened = Authority::open(folder.path()).unwrap();
        let beta = identity(&mut reopened, &folder, "beta", false);
        let renewed = identity(&mut reopened, &folder, "alpha", true);
        let stranger = identity(&mut other, &other_folder, "beta", false);
        for (one, two) in [(&alpha, &beta), (&beta, &alpha), (&renewed, &beta), (&beta, &renewed)] {
            greet(one, two).unwrap();
        }
        assert!(greet(&alpha, &stranger).is_err() && greet(&stranger, &alpha).is_err());
        // Right authority, wrong name.
        let posing = Identity { name: "gamma".into(), ..beta };
        let error = greet(&alpha, &posing).unwrap_err();
        assert!(error.to_string().contains("gamma"), "{error}");
    }

    /// One field of a good file is that of another.
    #[test]
    fn an_identity_that_is_not_whole_and_valid_is_refused_with_its_reason() {
        let (folder, mut authority) = lab("identity-bad");
        let (stranger_folder, mut stranger) = lab("identity-stranger");
        let at = |folder: &TempDir, name: &str| folder.join(&format!("{name}.toml"));
        authority.enrol("alpha", &at(&folder, "alpha"), false).unwrap();
        authority.enrol("beta", &at(&folder, "beta"), false).unwrap();
        stranger.enrol("alpha", &at(&stranger_folder, "alpha"), false).unwrap();
        let (good, beta, forged) =
            (file(&at(&folder, "alpha")), file(&at(&folder, "beta")), file(&at(&stranger_folder, "alpha")));
        let now = now().unwrap();
        let refused = |file: IdentityFile, at: Duration, why: &str| {
            let error = format!("{:#}", Identity::check(file, at).unwrap_err());
            assert!(error.contains(why), "{error}");
        };
        assert!(Identity::check(good.clone(), now).is_ok());
        refused(IdentityFile { key: beta.key.clone(), ..good.clone() }, now, "another key");
        refused(IdentityFile { name: "beta".into(), ..good.clone() }, now, "not valid for beta");
        refused(IdentityFile { authority: forged.authority.clone(), ..good.clone() }, now, "not valid for alpha");
        let (certificate, key) = (forged.certificate, forged.key);
        refused(IdentityFile { certificate, key, ..good.clone() }, now, "UnknownIssuer");
        refused(IdentityFile { certificate: "none".into(), ..good.clone() }, now, "certificate is damaged");
        refused(IdentityFile { key: "none".into(), ..good.clone() }, now, "key is damaged");
        refused(good.clone(), now + NODE_VALID + DAY, "--renew");
        refused(good.clone(), now - 2 * BEGINS_BEFORE, "clock");
        let due_at = |now| Identity::check(good.clone(), now).unwrap().ends.due(now, None);
        assert!(due_at(now + NODE_VALID - RENEWAL_DUE + DAY).is_some());
        assert_eq!(due_at(now + NODE_VALID - RENEWAL_DUE - DAY), None);
    }

    #[test]
    fn a_file_that_others_can_read_or_that_is_none_is_refused() {
        let (folder, mut authority) = lab("identity-mode");
        let path = folder.join("alpha.toml");
        authority.enrol("alpha", &path, false).unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        let refused = |why: &str| {
            let error = format!("{:#}", Identity::load(&path).unwrap_err());
            assert!(error.contains(why) && !error.contains("PRIVATE KEY"), "{error}");
        };
        for mode in [0o640, 0o604, 0o620] {
            std::fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            refused("chmod 600");
        }
        std::fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        for (changed, why) in [
            (text.replace("version = 1", "version = 2"), "newer"),
            (text.replace("name = ", "nome = "), "damaged"),
            (text[..text.len() / 2].to_owned(), "damaged"),
            (String::new(), "damaged"),
        ] {
            std::fs::write(&path, changed).unwrap();
            refused(why);
        }
        std::fs::remove_file(&path).unwrap();
        refused("cannot read");
        let error = Authority::open(&folder.join("nowhere")).err().expect("none is there").to_string();
        assert!(error.contains("init-ca"), "{error}");
    }

    #[test]
    fn days_are_those_of_the_calendar() {
        assert_eq!(day(Duration::ZERO), "1970-01-01");
        assert_eq!(day(DAY * 20_000), "2024-10-04");
    }
}
