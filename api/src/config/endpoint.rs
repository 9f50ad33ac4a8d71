//! Where a member of etcd listens.

use anyhow::{Result, anyhow};

/// Where a member listens for clients.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Endpoint {
    /// Whether it wants TLS.
    pub tls: bool,
    /// Name or address of the host; of IPv6 without brackets.
    pub host: String,
    /// TCP port that it listens at for clients.
    pub port: u16,
}

impl Endpoint {
    /// Reads `http://HOST:PORT` or `https://HOST:PORT`.
    pub fn parse(text: &str) -> Result<Endpoint> {
        let wrong = || anyhow!("etcd endpoint {text:?}: write http://HOST:PORT or https://HOST:PORT");
        let uri: http::Uri = text.parse().map_err(|_| wrong())?;
        let tls = match uri.scheme_str() {
            Some("http") => false,
            Some("https") => true,
            _ => return Err(wrong()),
        };
        let host = uri.host().filter(|host| !host.is_empty()).ok_or_else(wrong)?;
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        if !matches!(uri.path(), "" | "/") || uri.query().is_some() || text.contains('@') {
            return Err(wrong());
        }
        Ok(Endpoint { tls, host, port: uri.port_u16().ok_or_else(wrong)? })
    }

    /// Host and port, as a request names them.
    pub fn authority(&self) -> String {
        if self.host.contains(':') {
            format!("[{}]:{}", self.host, self.port)
        } else {
            format!("{}:{}", self.host, self.port)
        }
    }

    /// Whether it wants TLS.
    pub fn is_tls(&self) -> bool {
        self.tls
    }
}

impl std::fmt::Display for Endpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let scheme = if self.tls { "https" } else { "http" };
        write!(f, "{scheme}://{}", self.authority())
    }
}
