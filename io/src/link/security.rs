//! Who may speak on a link: certificates of one authority, or nobody's when plain was asked for by name.
//!
//! Both sides show a certificate that the cluster's authority has issued for a node. The calling side checks that it names the
//! node that was called, as TLS does; each side checks that it names the node that the hello names.

use crate::certificate::{self, Revoked, Shown};
use crate::tls::{self, Session, TlsError};
use forebay_core::roles::{Place, may_serve};
use forebay_core::wire::NodeName;
use rustls::client::{Resumption, verify_server_name};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::{NoServerSessionStorage, ParsedCertificate};
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use std::path::Path;
use std::sync::Arc;

/// How the channels of a node are protected. Cheap to clone.
#[derive(Clone)]
pub enum Security {
    /// Anybody who reaches the address may speak, read and change.
    Plain,
    /// TLS 1.3, certificates on both sides.
    Tls(PeerTls),
}

/// The node's certificate and the cluster's authority.
#[derive(Clone)]
pub struct PeerTls {
    calling: Arc<ClientConfig>,
    listening: Arc<ServerConfig>,
}

impl PeerTls {
    /// Reads PEM files: the node's certificate with those between it and the cluster's authority, its key, and the authority.
    pub fn load(certificate: &Path, key: &Path, authority: &Path) -> Result<PeerTls, TlsError> {
        const AUTHORITY: &str = "the cluster's authority";
        const KEY: &str = "the node's key";
        let roots = tls::authorities(AUTHORITY, authority)?;
        let chain = tls::certificates("the node's certificate", certificate)?;
        let private = tls::private_key(KEY, key)?;
        PeerTls::new(chain, private, roots, &Arc::default()).map_err(|error| TlsError::new(KEY, key, error))
    }

    /// From what was read before. `revoked`: who is not let in, and not spoken to, although the authority has signed for it.
    pub fn new(
        chain: Vec<CertificateDer<'static>>,
        private: PrivateKeyDer<'static>,
        roots: RootCertStore,
        revoked: &Arc<Revoked>,
    ) -> Result<PeerTls, rustls::Error> {
        let own = chain.first().map(certificate::read);
        if let Some(claim) = own.map(|own| own.claim()).filter(|claim| !may_serve(Place::Link, *claim)) {
            return Err(rustls::Error::General(format!("the node's certificate {claim}, and is none of a node")));
        }
        PeerTls::of(chain, private, roots, revoked)
    }

    /// Whatever the own certificate was issued for: the other side finds out.
    pub(super) fn of(
        chain: Vec<CertificateDer<'static>>,
        private: PrivateKeyDer<'static>,
        roots: RootCertStore,
        revoked: &Arc<Revoked>,
    ) -> Result<PeerTls, rustls::Error> {
        let wrong = rustls::Error::General;
        let versions = &[&rustls::version::TLS13];
        let called = certificate::of_called(Place::Link, roots.clone(), revoked.clone()).map_err(wrong)?;
        let mut calling = ClientConfig::builder_with_provider(tls::provider())
            .with_protocol_versions(versions)
            .expect("the provider has TLS 1.3")
            .dangerous()
            // As strict as without, and on top of it that the other side is a node.
            .with_custom_certificate_verifier(called)
            .with_client_auth_cert(chain.clone(), private.clone_key())?;
        calling.resumption = Resumption::disabled();
        let callers = certificate::of_callers_but(Place::Link, roots, Shown::Always, revoked.clone()).map_err(wrong)?;
        let mut listening = ServerConfig::builder_with_provider(tls::provider())
            .with_protocol_versions(versions)
            .expect("the provider has TLS 1.3")
            .with_client_cert_verifier(callers)
            .with_single_cert(chain, private)?;
        listening.session_storage = Arc::new(NoServerSessionStorage {});
        listening.send_tls13_tickets = 0;
        Ok(PeerTls { calling: Arc::new(calling), listening: Arc::new(listening) })
    }

    pub(super) fn listen(&self) -> Result<Session, rustls::Error> {
        Session::server(self.listening.clone())
    }

    pub(super) fn call(&self, name: &NodeName) -> Result<Session, rustls::Error> {
        Session::client(self.calling.clone(), server_name(name)?)
    }
}

fn server_name(name: &NodeName) -> Result<ServerName<'static>, rustls::Error> {
    let name = ServerName::try_from(name.as_str().to_owned());
    name.map_err(|_| rustls::Error::General("the node's name cannot stand in a certificate".into()))
}

/// Whether the certificate, which the authority has issued, was issued for this node.
pub(super) fn names(certificate: Option<&CertificateDer<'_>>, name: &NodeName) -> bool {
    let Some(certificate) = certificate else { return false };
    let Ok(parsed) = ParsedCertificate::try_from(certificate) else { return false };
    server_name(name).is_ok_and(|name| verify_server_name(&parsed, &name).is_ok())
}
