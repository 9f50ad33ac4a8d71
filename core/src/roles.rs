//! Who may come in where: the roles that certificates carry, and lists of certificates by name.
//!
//! A certificate of a cluster's authority carries one *role*, as a URI among its alternative names: `forebay:role:node`.
//! Every listener and every caller asks [`standing`] what the other side's role is good for there, before anything else is
//! believed of it. A certificate of an operator's own authority carries no role: it is good for nothing but where it is listed
//! by a [`Name`].
//!
//! Invariants:
//! - The table is closed: a new role, or a new place, does not compile before it is said who may come in there.
//! - What is unclear is refused: two roles, a role that is not known, more names than anybody needs.
//! - A list compares whole names, never patterns, and says of which kind each is: nobody gets in under a name of another kind.

use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;
use core::str::FromStr;

/// What a certificate was issued for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    /// A node of the cluster, on links.
    Node,
    /// A server that NBD clients call.
    NbdServer,
    /// A server of the HTTP API.
    HttpServer,
    /// A caller of NBD servers: a client of volumes.
    NbdClient,
    /// A caller of the HTTP API.
    Admin,
}

/// All URIs of this scheme are ours.
const SCHEME: &str = "forebay:";
const ROLE_PREFIX: &str = "forebay:role:";

impl Role {
    /// Every role, in the order of declaration.
    pub const ALL: [Role; 5] = [Role::Node, Role::NbdServer, Role::HttpServer, Role::NbdClient, Role::Admin];

    /// The word by which people name it, and which a certificate carries.
    pub fn word(self) -> &'static str {
        match self {
            Role::Node => "node",
            Role::NbdServer => "nbd-server",
            Role::HttpServer => "http-server",
            Role::NbdClient => "nbd-client",
            Role::Admin => "admin",
        }
    }

    /// As a certificate carries it.
    pub fn uri(self) -> String {
        [ROLE_PREFIX, self.word()].concat()
    }

    /// The one of this word.
    pub fn of_word(word: &str) -> Option<Role> {
        Role::ALL.into_iter().find(|role| role.word() == word)
    }
}

/// What a certificate says of its role.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Claim {
    /// Nothing: it is of somebody else's authority, or older than roles.
    Nothing,
    /// Exactly one role that is known.
    Role(Role),
    /// Two roles, one that is not known, or more names than are read.
    Unclear,
}

impl fmt::Display for Claim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Claim::Nothing => f.write_str("has no role"),
            Claim::Role(role) => write!(f, "has the role {}", role.word()),
            Claim::Unclear => f.write_str("says no single role that is known here"),
        }
    }
}

/// Where certificates are asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// Between nodes, at both ends.
    Link,
    /// Where NBD clients come in over TCP.
    Nbd,
    /// Where callers of the HTTP API come in over TCP.
    Http,
}

impl Place {
    /// Every place, in the order of declaration.
    pub const ALL: [Place; 3] = [Place::Link, Place::Nbd, Place::Http];
}

/// What a role is good for at a place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Standing {
    /// Nothing: TLS itself refuses it.
    Refused,
    /// For what a list there names this very certificate for.
    IfListed,
    /// For what the place is for.
    Admitted,
}

/// The table. Who comes with which certificate to which place.
pub fn standing(place: Place, claim: Claim) -> Standing {
    match (place, claim) {
        (Place::Link | Place::Nbd | Place::Http, Claim::Unclear) => Standing::Refused,

        (Place::Link, Claim::Role(Role::Node)) => Standing::Admitted,
        // Identities that were given out before there were roles. The cluster's authority signed nothing else then, and a link checks
        // that the certificate names the node; the last of them ends two years after the first role.
        (Place::Link, Claim::Nothing) => Standing::Admitted,
        (Place::Link, Claim::Role(Role::NbdServer | Role::HttpServer | Role::NbdClient | Role::Admin)) => {
            Standing::Refused
        }

        (Place::Nbd, Claim::Role(Role::NbdClient)) => Standing::Admitted,
        (Place::Nbd, Claim::Nothing) => Standing::IfListed,
        (Place::Nbd, Claim::Role(Role::Node | Role::NbdServer | Role::HttpServer | Role::Admin)) => Standing::Refused,

        // Nobody by the role alone: an authority that signs what it is asked to sign would make administrators.
        (Place::Http, Claim::Nothing | Claim::Role(Role::Admin | Role::NbdClient)) => Standing::IfListed,
        (Place::Http, Claim::Role(Role::Node | Role::NbdServer | Role::HttpServer)) => Standing::Refused,
    }
}

/// Whether TLS lets somebody go on who says this; where there are lists, they are asked next.
pub fn may_speak(place: Place, claim: Claim) -> bool {
    match (standing(place, claim), place) {
        (Standing::Admitted, _) | (Standing::IfListed, Place::Nbd | Place::Http) => true,
        (Standing::Refused, _) | (Standing::IfListed, Place::Link) => false,
    }
}

/// What a listener's own certificate may say; the other side may be one of ours, and checks.
pub fn may_serve(place: Place, claim: Claim) -> bool {
    match (place, claim) {
        (Place::Link | Place::Nbd | Place::Http, Claim::Unclear) => false,
        (Place::Link | Place::Nbd | Place::Http, Claim::Nothing) => true,
        (Place::Link, Claim::Role(role)) => role == Role::Node,
        (Place::Nbd, Claim::Role(role)) => role == Role::NbdServer,
        (Place::Http, Claim::Role(role)) => role == Role::HttpServer,
    }
}

/// More names in one certificate are read as [`Claim::Unclear`].
pub const CERTIFICATE_NAMES_MAX: usize = 64;
/// Longest name that a list takes.
pub const NAME_BYTES_MAX: usize = 253;
/// Most names in one list.
pub const LISTED_MAX: usize = 64;

/// One name of a certificate.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Name {
    /// A DNS name, in lower case.
    Dns(String),
    /// A URI, byte by byte.
    Uri(String),
    /// SHA-256 of the whole certificate.
    Sha256([u8; 32]),
}

/// Why a text is not a name for a list.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NotAName {
    /// Of none of the three kinds.
    Kind,
    /// A DNS name with other than letters, digits, dots and hyphens; a pattern, too.
    Dns,
    /// A URI that is empty, too long, or with other than printed ASCII.
    Uri,
    /// A role: it does not say who.
    Role,
    /// Not 32 bytes in hexadecimal digits.
    Sha256,
}

impl core::error::Error for NotAName {}

impl fmt::Display for NotAName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            NotAName::Kind => "write dns:NAME, uri:URI or sha256:FINGERPRINT",
            NotAName::Dns => "a DNS name is letters, digits, dots and hyphens; a pattern names nobody",
            NotAName::Uri => "a URI is 1 to 253 printed characters of ASCII without spaces and commas",
            NotAName::Role => "a role does not say who has it; name the certificate by dns:, another uri: or sha256:",
            NotAName::Sha256 => "a fingerprint is 64 hexadecimal digits, with or without colons",
        })
    }
}

impl FromStr for Name {
    type Err = NotAName;

    fn from_str(text: &str) -> Result<Name, NotAName> {
        match text.split_once(':') {
            Some(("dns", name)) => Name::dns(name).ok_or(NotAName::Dns),
            Some(("uri", uri)) if is_ours(uri) => Err(NotAName::Role),
            Some(("uri", uri)) => {
                let plain = |b: u8| b.is_ascii_graphic() && b != b',';
                let good = (1..=NAME_BYTES_MAX).contains(&uri.len()) && uri.bytes().all(plain);
                if good { Ok(Name::Uri(uri.to_string())) } else { Err(NotAName::Uri) }
            }
            Some(("sha256", digits)) => Name::fingerprint(digits).ok_or(NotAName::Sha256),
            Some(_) | None => Err(NotAName::Kind),
        }
    }
}

impl Name {
    fn dns(name: &str) -> Option<Name> {
        let plain = |b: u8| b.is_ascii_alphanumeric() || b == b'-' || b == b'.';
        let good = (1..=NAME_BYTES_MAX).contains(&name.len()) && name.bytes().all(plain) && !name.starts_with('.');
        good.then(|| Name::Dns(name.to_ascii_lowercase()))
    }

    fn fingerprint(text: &str) -> Option<Name> {
        let digits: Vec<u8> = text.bytes().filter(|b| *b != b':').collect();
        let mut bytes = [0; 32];
        if digits.len() != 2 * bytes.len() {
            return None;
        }
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks(2)) {
            let digit = |b: u8| char::from(b).to_digit(16);
            *byte = (digit(pair[0])? << 4 | digit(pair[1])?) as u8;
        }
        Some(Name::Sha256(bytes))
    }
}

/// The one form of each name: what [`Name::from_str`] reads.
impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Name::Dns(name) => write!(f, "dns:{name}"),
            Name::Uri(uri) => write!(f, "uri:{uri}"),
            Name::Sha256(bytes) => {
                f.write_str("sha256:")?;
                bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
            }
        }
    }
}

fn is_ours(uri: &str) -> bool {
    uri.get(..SCHEME.len()).is_some_and(|scheme| scheme.eq_ignore_ascii_case(SCHEME))
}

/// What is known of a certificate that TLS has found good.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Certified {
    claim: Claim,
    names: Vec<Name>,
}

impl Certified {
    /// From the DNS names and URIs of a certificate, and its fingerprint. Names that no list can have (patterns) are left out.
    pub fn new<'a>(
        dns: impl Iterator<Item = &'a str>,
        uris: impl Iterator<Item = &'a str>,
        fingerprint: [u8; 32],
    ) -> Certified {
        let (mut claim, mut names, mut read) = (Claim::Nothing, Vec::new(), 0);
        names.push(Name::Sha256(fingerprint));
        for (name, is_uri) in dns.map(|name| (name, false)).chain(uris.map(|uri| (uri, true))) {
            read += 1;
            if read > CERTIFICATE_NAMES_MAX {
                return Certified::unreadable();
            }
            if !is_uri {
                names.extend(Name::dns(name));
            } else if is_ours(name) {
                let role = name.strip_prefix(ROLE_PREFIX).and_then(Role::of_word);
                claim = match (claim, role) {
                    (Claim::Nothing, Some(role)) => Claim::Role(role),
                    (Claim::Nothing | Claim::Role(_) | Claim::Unclear, _) => Claim::Unclear,
                };
            } else if name.len() <= NAME_BYTES_MAX {
                names.push(Name::Uri(name.to_string()));
            }
        }
        Certified { claim, names }
    }

    /// One that could not be read: it is nobody's.
    pub fn unreadable() -> Certified {
        Certified { claim: Claim::Unclear, names: Vec::new() }
    }

    /// What it says of its role.
    pub fn claim(&self) -> Claim {
        self.claim
    }

    /// Whether one of its names is one of these.
    pub fn is_in(&self, list: &[Name]) -> bool {
        self.names.iter().any(|name| list.contains(name))
    }

    /// For people: the name that says most, and its role.
    pub fn described(&self) -> String {
        let name = self.names.iter().find(|name| !matches!(name, Name::Sha256(_))).or(self.names.first());
        let name = name.map(Name::to_string).unwrap_or_default();
        alloc::format!("{name} ({})", self.claim)
    }
}

/// A client of volumes, as its listener knows it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Client {
    /// By a socket of this host, whose permissions have let it in; or sent by a node that has asked the same.
    Local,
    /// Over TCP, without a certificate.
    Anonymous,
    /// Over TLS, with this one.
    Certified(Certified),
}

impl Client {
    /// Whether it may know and use a volume with this list of clients; none: the volume has no list.
    pub fn may_use(&self, list: Option<&[Name]>) -> bool {
        match (self, list) {
            (Client::Local, _) => true,
            // Where TLS asks for no certificate, the operator has let everybody in; but nobody without a name is on a list.
            (Client::Anonymous, list) => list.is_none(),
            (Client::Certified(certified), list) => match (standing(Place::Nbd, certified.claim), list) {
                (Standing::Refused, _) => false,
                (Standing::IfListed, None) => false,
                (Standing::Admitted, None) => true,
                (Standing::IfListed | Standing::Admitted, Some(list)) => certified.is_in(list),
            },
        }
    }
}

/// What a listed certificate may do by HTTP.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HttpRight {
    /// Look at everything, and change nothing.
    Look,
    /// Look at everything, and change it.
    Change,
}

/// What a certificate gives by HTTP, where these are listed; none: nothing, not even what its address would give.
pub fn http_right(certified: &Certified, admins: &[Name], readers: &[Name]) -> Option<HttpRight> {
    match (standing(Place::Http, certified.claim), certified.claim) {
        (Standing::Refused, _) => None,
        (Standing::IfListed | Standing::Admitted, Claim::Nothing | Claim::Role(Role::Admin))
            if certified.is_in(admins) =>
        {
            Some(HttpRight::Change)
        }
        // A client of volumes that stands among the administrators by its host's name looks at most, where it is a reader as well.
        (Standing::IfListed | Standing::Admitted, _) => certified.is_in(readers).then_some(HttpRight::Look),
    }
}

#[cfg(test)]
mod tests;
