//! NBD URIs as the NBD project defines them, with two parameters of our own.
//!
//! ```text
//! nbd://HOST[:PORT]/EXPORT            nbd+unix:///EXPORT?socket=PATH
//!     [nbd_quiet=5s]       wait after a restart that was not clean, and after a connection lost with open writes
//!     [nbd_no_flush_ok=1]  take a server that cannot flush
//! ```
//!
//! Two URIs that differ only in our parameters name the same export.

use crate::units::parse_duration;
use forebay_core::types::Duration;
use std::fmt;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

/// Port of NBD servers, as registered.
const PORT_DEFAULT: u16 = 10809;
/// How long late writes of a former connection are waited for where nothing is said.
pub const QUIET_DEFAULT: Duration = Duration::from_secs(5);
/// Longest export name of the protocol.
const EXPORT_BYTES_MAX: usize = 4096;
/// A unix socket's path has room for so many bytes and a zero.
const SOCKET_PATH_BYTES_MAX: usize = 107;

/// Where a server listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Server {
    /// At a host and port, over TCP.
    Tcp {
        /// Name or address, an IPv6 address without its brackets.
        host: String,
        /// TCP port; 10809 where none was given.
        port: u16,
    },
    /// At a unix socket of this path.
    Unix(PathBuf),
}

/// An export and how it is to be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NbdUri {
    /// Where the server of the export listens.
    pub server: Server,
    /// Its name; empty is the server's default.
    pub export: String,
    /// How long late writes of a former connection are waited for.
    pub quiet: Duration,
    /// Without flushes nothing is known to be durable; accepted.
    pub no_flush_ok: bool,
}

impl NbdUri {
    /// Whether a text is meant as an NBD URI, a right one or not.
    pub fn is_meant(text: &str) -> bool {
        text.split_once("://").is_some_and(|(scheme, _)| scheme.starts_with("nbd"))
    }

    /// Reads one; touches nothing.
    pub fn parse(text: &str) -> Result<NbdUri, String> {
        const SHAPE: &str = "an NBD URI is nbd://HOST[:PORT]/EXPORT or nbd+unix:///EXPORT?socket=PATH";
        let (scheme, rest) = text.split_once("://").ok_or(SHAPE)?;
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        if rest.contains('#') || query.contains('#') {
            return Err(format!("an NBD URI has no fragment (write `#` in a name as %23); {SHAPE}"));
        }
        let export = String::from_utf8(decode(path)?).map_err(|_| "the export's name is not UTF-8".to_owned())?;
        if export.len() > EXPORT_BYTES_MAX {
            return Err(format!(
                "the export's name has {} bytes; the protocol allows {EXPORT_BYTES_MAX}",
                export.len()
            ));
        }
        let (mut socket, mut quiet, mut no_flush_ok) = (None, QUIET_DEFAULT, false);
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            let value = decode(value)?;
            let word = String::from_utf8_lossy(&value);
            match key {
                "socket" => socket = Some(PathBuf::from(std::ffi::OsString::from_vec(value))),
                "nbd_quiet" => quiet = parse_duration(&word)?,
                "nbd_no_flush_ok" => {
                    no_flush_ok = match &*word {
                        "1" => true,
                        "0" => false,
                        _ => return Err(format!("`nbd_no_flush_ok={word}`: write 0 or 1")),
                    }
                }
                _ => {
                    return Err(format!(
                        "`{key}` is no parameter of an NBD backing; there are socket, nbd_quiet and nbd_no_flush_ok"
                    ));
                }
            }
        }
        let server = match (scheme, socket) {
            ("nbd", None) => tcp(authority)?,
            ("nbd", Some(_)) => return Err("`socket=` belongs to nbd+unix://, and nbd:// is TCP".into()),
            ("nbd+unix", Some(_)) if !authority.is_empty() => {
                return Err(format!(
                    "a unix socket is on no host: write nbd+unix:///..., not nbd+unix://{authority}/..."
                ));
            }
            ("nbd+unix", Some(path)) => {
                let bytes = path.as_os_str().len();
                if bytes == 0 || bytes > SOCKET_PATH_BYTES_MAX || path.as_os_str().as_bytes().contains(&0) {
                    return Err(format!(
                        "a socket's path has 1 to {SOCKET_PATH_BYTES_MAX} bytes and none of them is zero; this one has {bytes}"
                    ));
                }
                Server::Unix(path)
            }
            ("nbd+unix", None) => return Err("nbd+unix:// needs its socket: nbd+unix:///EXPORT?socket=PATH".into()),
            ("nbds" | "nbds+unix", _) => {
                return Err("a backing is reached without TLS: use nbd:// through a tunnel (stunnel, WireGuard)".into());
            }
            _ => return Err(format!("`{scheme}://` is no kind of NBD server that is spoken to; {SHAPE}")),
        };
        Ok(NbdUri { server, export, quiet, no_flush_ok })
    }

    /// The same with its socket's path made absolute, so that it outlives the folder it was written in.
    pub fn absolute(mut self) -> NbdUri {
        if let Server::Unix(path) = &mut self.server
            && let Ok(absolute) = std::path::absolute(&path)
        {
            *path = absolute;
        }
        self
    }

    /// Whether both name one export.
    pub fn same_export(&self, other: &NbdUri) -> bool {
        self.server == other.server && self.export == other.export
    }
}

fn tcp(authority: &str) -> Result<Server, String> {
    if authority.contains('@') {
        return Err("an NBD server takes no user name".into());
    }
    let (host, port) = match authority.strip_prefix('[') {
        Some(rest) => {
            let (host, after) = rest.split_once(']').ok_or("an IPv6 address ends with `]`")?;
            match after.strip_prefix(':') {
                Some(port) => (host, Some(port)),
                None if after.is_empty() => (host, None),
                None => return Err(format!("`{after}` after the address is no port")),
            }
        }
        None => match authority.split_once(':') {
            Some((_, port)) if port.contains(':') => {
                return Err("an IPv6 address is written in brackets: nbd://[::1]:10809/".into());
            }
            Some((host, port)) => (host, Some(port)),
            None => (authority, None),
        },
    };
    if host.is_empty() {
        return Err(
            "nbd:// needs a host: nbd://HOST[:PORT]/EXPORT (for a socket file: nbd+unix:///EXPORT?socket=PATH)".into(),
        );
    }
    let port = match port {
        None | Some("") => PORT_DEFAULT,
        Some(text) => match text.parse() {
            Ok(0) | Err(_) => return Err(format!("`{text}` is no port")),
            Ok(port) => port,
        },
    };
    Ok(Server::Tcp { host: host.to_owned(), port })
}

/// Each `%` and two hexadecimal digits become one byte.
fn decode(text: &str) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let mut digit = || rest.next().and_then(|b| (b as char).to_digit(16));
        let (Some(high), Some(low)) = (digit(), digit()) else {
            return Err(format!("`{text}`: two hexadecimal digits come after `%` (a percent sign itself is %25)"));
        };
        bytes.push((high << 4 | low) as u8);
    }
    Ok(bytes)
}

/// Percent-encodes what would end or change its part of a URI.
fn encode(bytes: &[u8]) -> String {
    let mut text = String::new();
    for &byte in bytes {
        if byte.is_ascii_alphanumeric() || b"-_.~/:,@=+".contains(&byte) {
            text.push(byte as char);
        } else {
            text.push_str(&format!("%{byte:02X}"));
        }
    }
    text
}

impl fmt::Display for NbdUri {
    /// As `parse` reads it back.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let export = encode(self.export.as_bytes());
        let mut mark = '?';
        match &self.server {
            Server::Tcp { host, port } => {
                let host = if host.contains(':') { format!("[{host}]") } else { host.clone() };
                write!(f, "nbd://{host}:{port}/{export}")?;
            }
            Server::Unix(path) => {
                write!(f, "nbd+unix:///{export}?socket={}", encode(path.as_os_str().as_bytes()))?;
                mark = '&';
            }
        }
        if self.quiet != QUIET_DEFAULT {
            let nanos = self.quiet.0;
            match nanos.is_multiple_of(1_000_000_000) {
                true => write!(f, "{mark}nbd_quiet={}s", nanos / 1_000_000_000)?,
                false => write!(f, "{mark}nbd_quiet={}us", nanos / 1_000)?,
            }
            mark = '&';
        }
        if self.no_flush_ok {
            write!(f, "{mark}nbd_no_flush_ok=1")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_uri_is_read_and_written_back() {
        for (text, written) in [
            ("nbd://nas", "nbd://nas:10809/"),
            ("nbd://nas/vm1", "nbd://nas:10809/vm1"),
            ("nbd://10.0.0.7:10810//a%20b/c", "nbd://10.0.0.7:10810//a%20b/c"),
            ("nbd://[::1]/x", "nbd://[::1]:10809/x"),
            ("nbd+unix:///?socket=/run/a.sock", "nbd+unix:///?socket=/run/a.sock"),
            ("nbd+unix:///vm%3f1?socket=/run/a%26b", "nbd+unix:///vm%3F1?socket=/run/a%26b"),
            ("nbd://h/?nbd_quiet=0s&nbd_no_flush_ok=1", "nbd://h:10809/?nbd_quiet=0s&nbd_no_flush_ok=1"),
            ("nbd+unix:///?nbd_quiet=1500ms&socket=s", "nbd+unix:///?socket=s&nbd_quiet=1500000us"),
        ] {
            let uri = NbdUri::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"));
            assert_eq!(uri.to_string(), written, "{text}");
            assert_eq!(NbdUri::parse(written).unwrap(), uri);
        }
        let uri = NbdUri::parse("nbd+unix:///?socket=s").unwrap().absolute();
        assert_eq!(uri.server, Server::Unix(std::env::current_dir().unwrap().join("s")));
    }

    #[test]
    fn what_cannot_be_meant_is_refused_with_what_to_write() {
        for (text, expected) in [
            ("nbd:///x", "needs a host"),
            ("nbd://h:0/x", "port"),
            ("nbd://h:99999/x", "port"),
            ("nbd://::1/x", "brackets"),
            ("nbd://h/x?socket=/s", "nbd+unix"),
            ("nbd+unix:///x", "socket=PATH"),
            ("nbd+unix://h/x?socket=/s", "no host"),
            ("nbds://h/x", "TLS"),
            ("nbd+vsock://1/x", "no kind"),
            ("nbd://h/x?nbd_quit=1s", "nbd_quiet"),
            ("nbd://h/x?nbd_quiet=5", "time"),
            ("nbd://h/x?nbd_no_flush_ok=yes", "0 or 1"),
            ("nbd://h/%4", "%25"),
            ("nbd://h/a#b", "%23"),
            (&format!("nbd+unix:///?socket=/{}", "x".repeat(107)), "107"),
        ] {
            let error = NbdUri::parse(text).expect_err(text);
            assert!(error.contains(expected), "{text}: {error}");
        }
    }

    #[test]
    fn our_parameters_do_not_make_another_export() {
        let parse = |text| NbdUri::parse(text).unwrap();
        assert!(parse("nbd://h/x?nbd_quiet=1s").same_export(&parse("nbd://h:10809/x")));
        assert!(!parse("nbd://h/x").same_export(&parse("nbd://h/y")));
    }
}
