//! TLS 1.3 for NBD: the server's certificate and key, from which each client gets a session.
//!
//! Invariant: no state is kept for clients to resume; nothing is shared between sessions but the configuration.

use forebay_core::roles::Place;
use forebay_io::certificate::{self, Shown};
use forebay_io::tls::{self, Session, TlsError};
use rustls::ServerConfig;
use rustls::server::NoServerSessionStorage;
use std::path::Path;
use std::sync::Arc;

/// What every session of a listener is made from. Cheap to clone.
#[derive(Clone)]
pub struct TlsServer(Arc<ServerConfig>);

impl TlsServer {
    /// Reads PEM files: the server's certificate with those between it and its authority, its key, and, where clients
    /// must show a certificate, the authorities that theirs may come from.
    pub fn load(own: &Path, key: &Path, client_authority: Option<&Path>) -> Result<TlsServer, TlsError> {
        const AUTHORITY: &str = "the authority of clients";
        const KEY: &str = "the server's key";
        const CERTIFICATE: &str = "the server's certificate";
        let builder = ServerConfig::builder_with_provider(tls::provider())
            .with_protocol_versions(&[&rustls::version::TLS13])
            .expect("the provider has TLS 1.3");
        let builder = match client_authority {
            None => builder.with_no_client_auth(),
            Some(path) => {
                let roots = tls::authorities(AUTHORITY, path)?;
                let clients = certificate::of_callers(Place::Nbd, roots, Shown::Always);
                builder.with_client_cert_verifier(clients.map_err(|error| TlsError::new(AUTHORITY, path, error))?)
            }
        };
        let chain = tls::certificates(CERTIFICATE, own)?;
        certificate::check_own(Place::Nbd, CERTIFICATE, own, &chain[0])?;
        let private = tls::private_key(KEY, key)?;
        // Refuses a key that does not belong to the certificate.
        let mut config = builder.with_single_cert(chain, private).map_err(|error| TlsError::new(KEY, key, error))?;
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        Ok(TlsServer(Arc::new(config)))
    }

    pub(super) fn accept(&self) -> Result<Session, rustls::Error> {
        Session::server(self.0.clone())
    }
}

#[cfg(test)]
mod tests;
