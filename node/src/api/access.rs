//! Who may call what.

use axum::http::{HeaderMap, Method, StatusCode, header};
use std::net::{IpAddr, SocketAddr};
use std::path::Path;

/// Who is at the other end.
#[derive(Clone, Debug)]
pub enum Peer {
    /// A process of this host; its user, if the kernel says.
    Unix {
        /// Effective user.
        uid: Option<u32>,
    },
    /// Over TCP.
    Tcp(SocketAddr),
}

/// The rules, with what they compare to.
pub struct Guard {
    /// What allows changes over TCP.
    pub token: String,
    /// The address of the TCP listener.
    pub http: Option<SocketAddr>,
}

impl Guard {
    /// Whether a request may go on.
    pub fn check(
        &self,
        peer: &Peer,
        method: &Method,
        path: &str,
        headers: &HeaderMap,
    ) -> Result<(), (StatusCode, String)> {
        let reads = method == Method::GET || method == Method::HEAD;
        match peer {
            Peer::Unix { uid } => {
                if reads || *uid == Some(0) || *uid == Some(crate::paths::user_id()) {
                    return Ok(());
                }
                Err((
                    StatusCode::FORBIDDEN,
                    "only root and the daemon's own user may change something; use sudo".to_owned(),
                ))
            }
            Peer::Tcp(from) => {
                self.check_host(headers)?;
                self.check_origin(headers)?;
                // The dashboard is the same for everybody and holds nothing; what it shows it has to ask for.
                let dashboard = path == "/" || path.starts_with("/assets/");
                if self.has_token(headers) || (reads && (from.ip().is_loopback() || dashboard)) {
                    return Ok(());
                }
                Err((
                    StatusCode::UNAUTHORIZED,
                    "this needs the token: `Authorization: Bearer TOKEN`, from the file `token` in the state folder, or the \
                     unix socket"
                        .to_owned(),
                ))
            }
        }
    }

    /// A name that leads here only by somebody's own DNS is refused: a page loaded under it could read the answers.
    fn check_host(&self, headers: &HeaderMap) -> Result<(), (StatusCode, String)> {
        let refuse = |host: &str| {
            Err((
                StatusCode::MISDIRECTED_REQUEST,
                format!("this is not {host:?}: use the address that the daemon printed, or localhost"),
            ))
        };
        let Some(host) = headers.get(header::HOST).and_then(|h| h.to_str().ok()) else { return refuse("") };
        let (name, port) = split_host(host);
        let Some(bound) = self.http else { return refuse(host) };
        if port.unwrap_or(80) != bound.port() {
            return refuse(host);
        }
        let address: Option<IpAddr> = name.parse().ok();
        let known = match address {
            // An address cannot be rebound to another.
            Some(_) => true,
            None => {
                name.eq_ignore_ascii_case("localhost") || name.eq_ignore_ascii_case(&crate::volume_store::host_name())
            }
        };
        if known { Ok(()) } else { refuse(host) }
    }

    fn check_origin(&self, headers: &HeaderMap) -> Result<(), (StatusCode, String)> {
        let Some(origin) = headers.get(header::ORIGIN) else { return Ok(()) };
        let host = headers.get(header::HOST).and_then(|h| h.to_str().ok()).unwrap_or_default();
        if origin.to_str().is_ok_and(|o| o.eq_ignore_ascii_case(&format!("http://{host}"))) {
            return Ok(());
        }
        Err((StatusCode::FORBIDDEN, format!("a page of {origin:?} may not call this API")))
    }

    fn has_token(&self, headers: &HeaderMap) -> bool {
        let given = headers.get(header::AUTHORIZATION).and_then(|h| h.to_str().ok()).unwrap_or_default();
        given
            .strip_prefix("Bearer ")
            .is_some_and(|given| equal_in_constant_time(given.as_bytes(), self.token.as_bytes()))
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

/// The token of this state folder; made at the first start, readable by the daemon's user alone.
pub fn token(state: &Path) -> anyhow::Result<String> {
    use anyhow::Context;
    use std::io::Write;
    use std::os::unix::fs::OpenOptionsExt;
    let path = state.join("token");
    match std::fs::read_to_string(&path) {
        Ok(text) if text.trim().len() >= 32 => return Ok(text.trim().to_owned()),
        Ok(_) => std::fs::remove_file(&path).with_context(|| format!("cannot replace the empty {}", path.display()))?,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
        Err(error) => return Err(error).with_context(|| format!("cannot read {}", path.display())),
    }
    let mut bytes = [0u8; 24];
    crate::volume_store::random_bytes(&mut bytes)?;
    let token: String = bytes.iter().map(|b| format!("{b:02x}")).collect();
    let mut file = std::fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&path)
        .with_context(|| format!("cannot write {}", path.display()))?;
    writeln!(file, "{token}").with_context(|| format!("cannot write {}", path.display()))?;
    Ok(token)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn guard() -> Guard {
        Guard { token: "secret-of-a-decent-length".into(), http: Some("127.0.0.1:7070".parse().unwrap()) }
    }

    fn headers(pairs: &[(header::HeaderName, &str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (name.clone(), value.parse().unwrap())).collect()
    }

    fn tcp(from: &str, method: Method, pairs: &[(header::HeaderName, &str)]) -> Result<(), StatusCode> {
        let peer = Peer::Tcp(from.parse().unwrap());
        guard().check(&peer, &method, "/v1/volumes", &headers(pairs)).map_err(|(status, _)| status)
    }

    const HOST: (header::HeaderName, &str) = (header::HOST, "127.0.0.1:7070");
    const BEARER: (header::HeaderName, &str) = (header::AUTHORIZATION, "Bearer secret-of-a-decent-length");

    #[test]
    fn loopback_reads_and_changes_only_with_the_token() {
        assert_eq!(tcp("127.0.0.1:1", Method::GET, &[HOST]), Ok(()));
        assert_eq!(tcp("127.0.0.1:1", Method::POST, &[HOST]), Err(StatusCode::UNAUTHORIZED));
        assert_eq!(tcp("127.0.0.1:1", Method::DELETE, &[HOST, BEARER]), Ok(()));
        let wrong = (header::AUTHORIZATION, "Bearer secret-of-a-decent-lengtH");
        assert_eq!(tcp("127.0.0.1:1", Method::POST, &[HOST, wrong]), Err(StatusCode::UNAUTHORIZED));
    }

    #[test]
    fn other_hosts_need_the_token_to_read() {
        assert_eq!(tcp("10.0.0.2:1", Method::GET, &[HOST]), Err(StatusCode::UNAUTHORIZED));
        assert_eq!(tcp("10.0.0.2:1", Method::GET, &[HOST, BEARER]), Ok(()));
    }

    #[test]
    fn the_dashboard_itself_is_for_everybody() {
        let other = Peer::Tcp("10.0.0.2:1".parse().unwrap());
        let may = |path| guard().check(&other, &Method::GET, path, &headers(&[HOST])).is_ok();
        assert!(may("/") && may("/assets/app.js"));
        assert!(!may("/v1/fleet") && !may("/metrics") && !may("/assets"));
        assert!(guard().check(&other, &Method::POST, "/assets/app.js", &headers(&[HOST])).is_err());
    }

    #[test]
    fn pages_of_other_sites_and_rebound_names_are_refused() {
        for host in ["evil.example:7070", "evil.example", "127.0.0.1:80", "[::1"] {
            let pairs = [(header::HOST, host), BEARER];
            assert_eq!(tcp("127.0.0.1:1", Method::GET, &pairs), Err(StatusCode::MISDIRECTED_REQUEST), "{host}");
        }
        assert_eq!(tcp("127.0.0.1:1", Method::GET, &[(header::HOST, "LocalHost:7070")]), Ok(()));
        assert_eq!(tcp("[::1]:1", Method::GET, &[(header::HOST, "[::1]:7070")]), Ok(()));
        let origin = |o| tcp("127.0.0.1:1", Method::POST, &[HOST, BEARER, (header::ORIGIN, o)]);
        assert_eq!(origin("http://evil.example"), Err(StatusCode::FORBIDDEN));
        assert_eq!(origin("null"), Err(StatusCode::FORBIDDEN));
        assert_eq!(origin("http://127.0.0.1:7070"), Ok(()));
    }

    #[test]
    fn on_the_unix_socket_others_read_and_do_not_change() {
        let check = |uid, method| guard().check(&Peer::Unix { uid }, &method, "/v1/volumes", &HeaderMap::new()).is_ok();
        let other = crate::paths::user_id() + 1;
        assert!(check(Some(other), Method::GET));
        assert!(!check(Some(other), Method::POST));
        assert!(!check(None, Method::DELETE));
        assert!(check(Some(0), Method::POST));
        assert!(check(Some(crate::paths::user_id()), Method::POST));
    }

    #[test]
    fn token_is_kept_and_private() {
        use std::os::unix::fs::MetadataExt;
        let dir = tempfile::tempdir().unwrap();
        let first = token(dir.path()).unwrap();
        assert_eq!(first.len(), 48);
        assert_eq!(token(dir.path()).unwrap(), first);
        assert_eq!(std::fs::metadata(dir.path().join("token")).unwrap().mode() & 0o777, 0o600);
    }
}
