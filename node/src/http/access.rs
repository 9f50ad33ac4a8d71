//! Who may call what.
//!
//! On the unix socket the kernel says who asks. On TCP it is a token, a certificate that is listed by name, or a session that began
//! with a token; a caller on this host reads without any. Nothing here is remembered but the sessions, and they end with the daemon.

use super::sessions::Sessions;
use axum::http::{HeaderMap, Method, StatusCode, header};
use forebay_api::config::certificates::CertificateList;
use forebay_core::roles::{Certified, HttpRight, http_right};
use serde::{Deserialize, Serialize};
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

/// With a session's cookie, changes need this header as well: no form and no link of another site can send it.
pub const SESSION_HEADER: &str = "x-forebay";

/// Who is at the other end.
#[derive(Clone, Debug)]
pub enum Peer {
    /// A process of this host; its user, if the kernel says.
    Unix {
        /// Effective user of the process; none: the kernel does not say.
        uid: Option<u32>,
    },
    /// Somebody who has come over TCP.
    Tcp {
        /// Address and port that it has come from.
        from: SocketAddr,
        /// What it has shown of the authority of callers.
        certificate: Option<Arc<Certified>>,
    },
}

/// What a caller may do; each includes the one before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// Look at everything, and change nothing.
    ReadOnly,
    /// Change everything, and look at it.
    #[default]
    Admin,
}

/// By what a caller has its role.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum By {
    /// It came by the unix socket.
    UnixSocket,
    /// It gave one of the daemon's tokens.
    Token,
    /// It has shown a certificate that is known here.
    Certificate,
    /// It has logged in, and shows its session.
    Session,
    /// It is on this host.
    Loopback,
}

/// A caller, as far as it is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Caller {
    /// What it may do; none: only what needs no login.
    pub role: Option<Role>,
    /// What it has the role by; none: it has no role.
    pub by: Option<By>,
}

/// Why a request goes no further.
pub type Refusal = (StatusCode, String);

/// The words that give a role.
#[derive(Clone)]
pub struct Tokens {
    /// The word of who may change everything.
    pub admin: String,
    /// The word of who may look at everything.
    pub read_only: String,
}

impl Tokens {
    /// Those of this state folder; made at the first start, readable by the daemon's user alone.
    pub fn load(state: &Path) -> anyhow::Result<Tokens> {
        Ok(Tokens { admin: token(&state.join("token"))?, read_only: token(&state.join("token-read"))? })
    }

    /// The role that a word gives; none: it is no token.
    pub fn role_of(&self, given: &str) -> Option<Role> {
        let is = |token: &str| equal_in_constant_time(given.as_bytes(), token.as_bytes());
        let (admin, read_only) = (is(&self.admin), is(&self.read_only));
        if admin { Some(Role::Admin) } else { read_only.then_some(Role::ReadOnly) }
    }
}

/// How a listener on TCP is reached.
#[derive(Clone)]
pub struct Listening {
    /// The address that it is bound to.
    pub at: SocketAddr,
    /// It speaks TLS; then, what certificates are good for.
    pub tls: Option<Listed>,
}

/// The certificates that a listener knows by name.
#[derive(Clone, Default)]
pub struct Listed {
    /// Names of certificates whose holders may change everything.
    pub admins: CertificateList,
    /// Names of certificates whose holders may look at everything.
    pub readers: CertificateList,
}

impl Listed {
    fn role_of(&self, certified: &Certified) -> Option<Role> {
        match http_right(certified, self.admins.names(), self.readers.names())? {
            HttpRight::Look => Some(Role::ReadOnly),
            HttpRight::Change => Some(Role::Admin),
        }
    }
}

/// The rules of one listener, with what they compare to.
pub struct Guard {
    /// The tokens of the daemon.
    pub tokens: Tokens,
    /// How the listener is reached; none: it is the unix socket.
    pub listening: Option<Listening>,
    /// Who has logged in by it.
    pub sessions: Sessions,
}

/// What a request needs; none: nothing.
fn needed(method: &Method, path: &str) -> Option<Role> {
    let reads = method == Method::GET || method == Method::HEAD;
    // The pages are the same for everybody and hold nothing; what they show they have to ask for.
    let open = path == "/v1/login" || (reads && (path == "/" || path == "/login" || path.starts_with("/assets/")));
    match (open, reads) {
        (true, _) => None,
        (false, true) => Some(Role::ReadOnly),
        (false, false) => Some(Role::Admin),
    }
}

impl Guard {
    /// Whether a request may go on, and who asks.
    pub fn check(&self, peer: &Peer, method: &Method, path: &str, headers: &HeaderMap) -> Result<Caller, Refusal> {
        let needed = needed(method, path);
        let caller = match peer {
            Peer::Unix { uid } => {
                let own = *uid == Some(0) || *uid == Some(forebay_api::paths::user_id());
                Caller { role: Some(if own { Role::Admin } else { Role::ReadOnly }), by: Some(By::UnixSocket) }
            }
            Peer::Tcp { from, certificate } => {
                self.check_host(headers)?;
                self.check_origin(headers)?;
                if needed.is_some() {
                    check_site(headers)?;
                }
                self.caller(from.ip(), certificate.as_deref(), headers)?
            }
        };
        let Some(needed) = needed else { return Ok(caller) };
        if caller.role < Some(needed) {
            return Err(lacking(caller, needed));
        }
        if needed == Role::Admin && caller.by == Some(By::Session) && !headers.contains_key(SESSION_HEADER) {
            let why = "a change in a session needs the header `X-Forebay: 1`, which no other site can send";
            return Err((StatusCode::FORBIDDEN, why.to_owned()));
        }
        Ok(caller)
    }

    fn caller(&self, from: IpAddr, certificate: Option<&Certified>, headers: &HeaderMap) -> Result<Caller, Refusal> {
        let known = |role, by| Ok(Caller { role: Some(role), by: Some(by) });
        // Who names a token means it, and is told when it is wrong.
        if let Some(given) = headers.get(header::AUTHORIZATION) {
            let given = given.to_str().ok().and_then(|text| text.strip_prefix("Bearer "));
            return match given.and_then(|given| self.tokens.role_of(given.trim())) {
                Some(role) => known(role, By::Token),
                None => Err((
                    StatusCode::UNAUTHORIZED,
                    "this is not a token of this daemon: they are in the files `token` and `token-read` of its state folder"
                        .to_owned(),
                )),
            };
        }
        let listed = self.listening.as_ref().and_then(|listening| listening.tls.as_ref());
        let of_certificate = certificate.map(|certificate| listed.and_then(|listed| listed.role_of(certificate)));
        let of_session = self.session_id(headers).and_then(|id| self.sessions.role_of(id, Instant::now()));
        match (of_certificate, of_session) {
            (Some(Some(role)), session) if Some(role) >= session => known(role, By::Certificate),
            (_, Some(role)) => known(role, By::Session),
            // Who shows a certificate is known by it, from this host as well: one that is on no list is good for nothing.
            (Some(_), None) => Ok(Caller { role: None, by: Some(By::Certificate) }),
            _ if from.to_canonical().is_loopback() => known(Role::ReadOnly, By::Loopback),
            _ => Ok(Caller { role: None, by: None }),
        }
    }

    /// A name that leads here only by somebody's own DNS is refused: a page loaded under it could read the answers.
    fn check_host(&self, headers: &HeaderMap) -> Result<(), Refusal> {
        let refuse = |host: &str| {
            Err((
                StatusCode::MISDIRECTED_REQUEST,
                format!("this is not {host:?}: use the address that the daemon printed, or localhost"),
            ))
        };
        let Some(host) = headers.get(header::HOST).and_then(|h| h.to_str().ok()) else { return refuse("") };
        let (name, port) = split_host(host);
        let Some(Listening { at, tls }) = &self.listening else { return refuse(host) };
        let usual = if tls.is_some() { 443 } else { 80 };
        if port.unwrap_or(usual) != at.port() {
            return refuse(host);
        }
        let address: Option<IpAddr> = name.parse().ok();
        let known = match address {
            // An address cannot be rebound to another.
            Some(_) => true,
            // Under TLS the browser has found the name in the certificate, which a stranger's name is not in.
            None if tls.is_some() => true,
            None => {
                name.eq_ignore_ascii_case("localhost") || name.eq_ignore_ascii_case(&forebay_io::machine::host_name())
            }
        };
        if known { Ok(()) } else { refuse(host) }
    }

    fn check_origin(&self, headers: &HeaderMap) -> Result<(), Refusal> {
        let Some(origin) = headers.get(header::ORIGIN) else { return Ok(()) };
        let host = headers.get(header::HOST).and_then(|h| h.to_str().ok()).unwrap_or_default();
        let own = format!("{}://{host}", if self.under_tls() { "https" } else { "http" });
        if origin.to_str().is_ok_and(|o| o.eq_ignore_ascii_case(&own)) {
            return Ok(());
        }
        Err((StatusCode::FORBIDDEN, format!("a page of {origin:?} may not call this API")))
    }

    fn under_tls(&self) -> bool {
        self.listening.as_ref().is_some_and(|listening| listening.tls.is_some())
    }

    /// Cookies know no ports: two daemons of a host must not take each other's.
    fn cookie_name(&self) -> String {
        format!("forebay-{}", self.listening.as_ref().map_or(0, |listening| listening.at.port()))
    }

    /// The session that a request names.
    pub fn session_id<'a>(&self, headers: &'a HeaderMap) -> Option<&'a str> {
        let name = self.cookie_name();
        let cookies = headers.get_all(header::COOKIE).iter().filter_map(|cookies| cookies.to_str().ok());
        cookies.flat_map(|cookies| cookies.split(';')).find_map(|cookie| {
            let (key, value) = cookie.trim().split_once('=')?;
            (key == name).then_some(value)
        })
    }

    /// The cookie that keeps a session in a browser; `id` empty: that ends it there.
    pub fn cookie(&self, id: &str) -> String {
        let seconds = if id.is_empty() { 0 } else { super::sessions::LIFE.as_secs() };
        let secure = if self.under_tls() { "; Secure" } else { "" };
        format!("{}={id}; Path=/; Max-Age={seconds}; HttpOnly; SameSite=Strict{secure}", self.cookie_name())
    }
}

fn lacking(caller: Caller, needed: Role) -> Refusal {
    let text = match (caller.by, caller.role) {
        (Some(By::UnixSocket), _) => "only root and the daemon's own user may change something; use sudo",
        (Some(By::Certificate), None) => {
            "this certificate is in no list of this daemon, and so good for nothing here; `[listen] http_tls` names those \
             of administrators (admins) and readers"
        }
        (Some(By::Token | By::Session | By::Certificate), _) => {
            "this login may only look; a change needs the token in the file `token` of the state folder, or the unix socket"
        }
        _ if needed == Role::ReadOnly => {
            "this needs a login: `Authorization: Bearer TOKEN` with the file `token-read` or `token` of the state folder, a \
             client certificate where the daemon takes them, or /login in a browser"
        }
        _ => {
            "this needs the token: `Authorization: Bearer TOKEN`, from the file `token` in the state folder, or /login in a \
             browser, or the unix socket"
        }
    };
    let logged_in = matches!(caller.by, Some(By::UnixSocket | By::Token | By::Session | By::Certificate));
    (if logged_in { StatusCode::FORBIDDEN } else { StatusCode::UNAUTHORIZED }, text.to_owned())
}

/// Browsers say whose page asks. Another port of this host is another site here.
fn check_site(headers: &HeaderMap) -> Result<(), Refusal> {
    match headers.get("sec-fetch-site").map(|site| site.as_bytes()) {
        None | Some(b"same-origin" | b"none") => Ok(()),
        Some(_) => Err((StatusCode::FORBIDDEN, "a page of another site may not call this API".to_owned())),
    }
}

fn split_host(host: &str) -> (&str, Option<u16>) {
    if let Some(rest) = host.strip_prefix('[') {
        let Some((name, after)) = rest.split_once(']') else { return (host, None) };
        return (name, after.strip_prefix(':').and_then(|p| p.parse().ok()));
    }
    match host.split_once(':') {
        Some((name, port)) => (name, port.parse().ok()),
        None => (host, None),
    }
}

/// How long it takes does not tell how much of it is right.
fn equal_in_constant_time(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && a.iter().zip(b).fold(0, |differs, (x, y)| differs | (x ^ y)) == 0
}

/// 192 random bits, so that nobody need count attempts to guess them.
pub fn random_word() -> anyhow::Result<String> {
    let mut bytes = [0u8; 24];
    forebay_io::machine::random_bytes(&mut bytes)?;
    Ok(bytes.iter().map(|b| format!("{b:02x}")).collect())
}

fn token(path: &Path) -> anyhow::Result<String> {
    use anyhow::Context;
    match std::fs::read_to_string(path) {
        Ok(text) if text.trim().len() >= 32 => return Ok(text.trim().to_owned()),
        // One that a version before this one could not write is empty.
        Ok(_) => {}
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
        Err(error) => return Err(error).with_context(|| format!("cannot read {}", path.display())),
    }
    let token = random_word()?;
    forebay_io::durable::write_secret_atomically(path, format!("{token}\n").as_bytes())?;
    Ok(token)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ADMIN: &str = "secret-of-a-decent-length";
    const READER: &str = "another-one-that-may-look";
    const HERE: &str = "127.0.0.1:1";
    const THERE: &str = "10.0.0.2:1";

    fn guard(tls: Option<Listed>) -> Guard {
        Guard {
            tokens: Tokens { admin: ADMIN.into(), read_only: READER.into() },
            listening: Some(Listening { at: "127.0.0.1:7070".parse().unwrap(), tls }),
            sessions: Sessions::default(),
        }
    }

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect()
    }

    fn peer(from: &str, certificate: Option<Certified>) -> Peer {
        Peer::Tcp { from: from.parse().unwrap(), certificate: certificate.map(Arc::new) }
    }

    fn list(names: &[&str]) -> CertificateList {
        CertificateList::try_from(names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>()).unwrap()
    }

    fn host_with(uris: &[&str]) -> Option<Certified> {
        Some(Certified::new(["host"].into_iter(), uris.iter().copied(), [0; 32]))
    }

    /// May look, may change: what the guard says to a GET and to a POST.
    fn may(guard: &Guard, peer: &Peer, pairs: &[(&'static str, &str)]) -> [Result<(), u16>; 2] {
        let mut all = vec![("host", "127.0.0.1:7070")];
        all.extend(pairs);
        [Method::GET, Method::POST].map(|method| {
            let checked = guard.check(peer, &method, "/v1/volumes", &headers(&all));
            checked.map(|_| ()).map_err(|(status, _)| status.as_u16())
        })
    }

    #[test]
    fn who_may_what() {
        let plain = guard(None);
        let bearer = |token: &str| format!("Bearer {token}");
        let (admin, reader, wrong) = (bearer(ADMIN), bearer(READER), bearer("secret-of-a-decent-lengtH"));
        let session = |guard: &Guard, role| guard.cookie(&guard.sessions.begin(role, Instant::now()).unwrap());
        let cookie = |set: String| set.split(';').next().unwrap().to_owned();
        let (admins, readers) = (cookie(session(&plain, Role::Admin)), cookie(session(&plain, Role::ReadOnly)));
        let (yes, login, no) = (Ok(()), Err(401), Err(403));
        let header = ("x-forebay", "1");
        for (what, from, pairs, expected) in [
            ("nothing, from this host", HERE, vec![], [yes, login]),
            ("nothing, from another", THERE, vec![], [login, login]),
            ("the reading token", THERE, vec![("authorization", &*reader)], [yes, no]),
            ("the admin's token", THERE, vec![("authorization", &*admin)], [yes, yes]),
            ("a wrong token", THERE, vec![("authorization", &*wrong)], [login, login]),
            ("a wrong token, from this host", HERE, vec![("authorization", &*wrong)], [login, login]),
            ("a password", THERE, vec![("authorization", "Basic YTpi")], [login, login]),
            ("a reader's session", THERE, vec![("cookie", &*readers), header], [yes, no]),
            ("an admin's session", THERE, vec![("cookie", &*admins), header], [yes, yes]),
            ("the same among others", THERE, vec![("cookie", &*format!("a=b; {admins}; c")), header], [yes, yes]),
            ("the same without the header", THERE, vec![("cookie", &*admins)], [yes, no]),
            ("a session of nobody", THERE, vec![("cookie", "forebay-7070=0"), header], [login, login]),
            ("the header alone", THERE, vec![header], [login, login]),
        ] {
            assert_eq!(may(&plain, &peer(from, None), &pairs), expected, "{what}");
        }
    }

    #[test]
    fn a_certificate_is_good_for_what_is_listed_and_for_nothing_else() {
        let (yes, login, no) = (Ok(()), Err(401), Err(403));
        let neither = Listed::default();
        let reader = Listed { readers: list(&["dns:host"]), ..Listed::default() };
        let admin = Listed { admins: list(&["dns:host"]), ..Listed::default() };
        let others = Listed { admins: list(&["dns:other"]), readers: list(&["dns:other"]) };
        let (role, roles) = (|word: &str| format!("forebay:role:{word}"), ["node", "nbd-server", "http-server"]);
        for from in [HERE, THERE] {
            let may =
                |listed: &Listed, uris: &[&str]| may(&guard(Some(listed.clone())), &peer(from, host_with(uris)), &[]);
            for uris in [vec![], vec![role("admin")], vec![role("nbd-client")]] {
                let uris: Vec<&str> = uris.iter().map(String::as_str).collect();
                let changes = !uris.contains(&"forebay:role:nbd-client");
                assert_eq!(may(&neither, &uris), [no, no], "{uris:?}");
                assert_eq!(may(&others, &uris), [no, no], "{uris:?}");
                assert_eq!(may(&reader, &uris), [yes, no], "{uris:?}");
                assert_eq!(may(&admin, &uris), if changes { [yes, yes] } else { [no, no] }, "{uris:?}");
            }
            for word in roles {
                for listed in [&neither, &reader, &admin] {
                    assert_eq!(may(listed, &[&role(word)]), [no, no], "{word}");
                }
            }
            assert_eq!(may(&admin, &[&role("admin"), &role("node")]), [no, no], "two roles");
        }
        // Without one nothing changes; a token and a session are worth what they are.
        assert_eq!(may(&guard(Some(admin.clone())), &peer(THERE, None), &[]), [login, login]);
        let guard = guard(Some(neither));
        let bearer = format!("Bearer {READER}");
        assert_eq!(may(&guard, &peer(THERE, host_with(&[])), &[("authorization", &bearer)]), [yes, no]);
        let cookie = guard.cookie(&guard.sessions.begin(Role::Admin, Instant::now()).unwrap());
        let session = [("cookie", cookie.split(';').next().unwrap()), ("x-forebay", "1")];
        assert_eq!(may(&guard, &peer(THERE, host_with(&[])), &session), [yes, yes]);
    }

    #[test]
    fn pages_and_the_login_are_for_everybody() {
        let (guard, peer, host) = (guard(None), peer(THERE, None), headers(&[("host", "127.0.0.1:7070")]));
        let open = |method, path| guard.check(&peer, &method, path, &host).is_ok();
        for path in ["/", "/login", "/assets/app.js", "/v1/login"] {
            assert!(open(Method::GET, path), "{path}");
        }
        assert!(open(Method::POST, "/v1/login") && open(Method::DELETE, "/v1/login"));
        for path in ["/metrics", "/v1/volumes", "/v1/openapi.json", "/assets", "/x"] {
            assert!(!open(Method::GET, path), "{path}");
        }
        assert!(!open(Method::POST, "/") && !open(Method::POST, "/assets/app.js"));
    }

    #[test]
    fn pages_of_other_sites_and_rebound_names_are_refused() {
        let bearer = format!("Bearer {ADMIN}");
        let status = |guard: &Guard, pairs: &[(&'static str, &str)]| {
            let mut all = vec![("authorization", &*bearer)];
            all.extend(pairs);
            let checked = guard.check(&peer(HERE, None), &Method::POST, "/v1/volumes", &headers(&all));
            checked.map(|_| 200).unwrap_or_else(|(status, _)| status.as_u16())
        };
        let (plain, secure) = (guard(None), guard(Some(Listed::default())));
        for host in ["evil.example:7070", "evil.example", "127.0.0.1:80", "[::1"] {
            assert_eq!(status(&plain, &[("host", host)]), 421, "{host}");
        }
        assert_eq!(status(&plain, &[]), 421);
        for host in ["LocalHost:7070", "[::1]:7070", "127.0.0.1:7070"] {
            assert_eq!(status(&plain, &[("host", host)]), 200, "{host}");
        }
        assert_eq!(status(&secure, &[("host", "storage1.example:7070")]), 200, "its certificate names it");
        assert_eq!(status(&secure, &[("host", "storage1.example")]), 421, "another port");
        let host = ("host", "127.0.0.1:7070");
        for (origin, allowed) in [
            ("http://evil.example", false),
            ("null", false),
            ("http://127.0.0.1:7070", true),
            ("https://127.0.0.1:7070", false),
        ] {
            assert_eq!(status(&plain, &[host, ("origin", origin)]) == 200, allowed, "{origin}");
        }
        assert_eq!(status(&secure, &[host, ("origin", "https://127.0.0.1:7070")]), 200);
        assert_eq!(status(&secure, &[host, ("origin", "http://127.0.0.1:7070")]), 403);
        for (site, allowed) in [("cross-site", false), ("same-site", false), ("same-origin", true), ("none", true)] {
            assert_eq!(status(&plain, &[host, ("sec-fetch-site", site)]) == 200, allowed, "{site}");
        }
    }

    #[test]
    fn cookies_are_for_this_site_and_this_daemon_alone() {
        let plain = guard(None);
        assert_eq!(plain.cookie("x"), "forebay-7070=x; Path=/; Max-Age=43200; HttpOnly; SameSite=Strict");
        assert!(guard(Some(Listed::default())).cookie("x").ends_with("; Secure"));
        assert!(plain.cookie("").contains("Max-Age=0"));
        assert_eq!(plain.session_id(&headers(&[("cookie", "forebay-7071=x")])), None);
    }

    #[test]
    fn on_the_unix_socket_others_read_and_do_not_change() {
        let guard = guard(None);
        let check = |uid, method| guard.check(&Peer::Unix { uid }, &method, "/v1/volumes", &HeaderMap::new()).is_ok();
        let other = forebay_api::paths::user_id() + 1;
        assert!(check(Some(other), Method::GET));
        assert!(!check(Some(other), Method::POST));
        assert!(!check(None, Method::DELETE));
        assert!(check(Some(0), Method::POST));
        assert!(check(Some(forebay_api::paths::user_id()), Method::POST));
    }

    #[test]
    fn tokens_are_kept_and_private_and_differ() {
        use std::os::unix::fs::MetadataExt;
        let dir = tempfile::tempdir().unwrap();
        let first = Tokens::load(dir.path()).unwrap();
        assert_eq!((first.admin.len(), first.read_only.len()), (48, 48));
        assert_ne!(first.admin, first.read_only);
        let again = Tokens::load(dir.path()).unwrap();
        assert_eq!((again.admin, again.read_only), (first.admin, first.read_only));
        for name in ["token", "token-read"] {
            assert_eq!(std::fs::metadata(dir.path().join(name)).unwrap().mode() & 0o777, 0o600);
        }
    }
}
