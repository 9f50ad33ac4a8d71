//! Who the other side of TLS is: the names and the role in its certificate, and who is let in by them.
//!
//! Every listener that asks for certificates, and every caller, takes its verifier from here, and must say which place it
//! is: `forebay_core::roles` has the table. What is refused there is refused by TLS itself, before a byte of the
//! other side's is looked at.

mod revoked;
mod validity;

pub use revoked::{BEGINS_BEFORE, Revoked, is_made_by};
pub use validity::validity;

use crate::channel::Channel;
use crate::socket;
use crate::tls::{TlsError, provider};
use forebay_core::roles::{Certified, Client, Place, may_serve, may_speak};
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::ring::cipher_suite::TLS13_AES_128_GCM_SHA256;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{CertificateError, DigitallySignedStruct, DistinguishedName, Error, RootCertStore, SignatureScheme};
use std::path::Path;
use std::sync::Arc;

/// What a certificate says of its owner. That its authority says so is for TLS to find.
pub fn read(certificate: &CertificateDer<'_>) -> Certified {
    match webpki::EndEntityCert::try_from(certificate) {
        Ok(parsed) => {
            Certified::new(parsed.valid_dns_names(), parsed.valid_uri_names(), fingerprint(certificate.as_ref()))
        }
        Err(_) => Certified::unreadable(),
    }
}

/// SHA-256, as rustls has it for its own use.
fn fingerprint(bytes: &[u8]) -> [u8; 32] {
    let suite = TLS13_AES_128_GCM_SHA256.tls13().expect("it is of TLS 1.3");
    suite.common.hash_provider.hash(bytes).as_ref().try_into().expect("SHA-256 has 32 bytes")
}

/// The client of volumes at the other end. Where there is TLS, its handshake has ended.
pub fn client(channel: &Channel) -> Client {
    match channel.session().map(|session| session.certificate()) {
        Some(Some(certificate)) => Client::Certified(read(certificate)),
        // Encrypted for nobody known, or not at all.
        Some(None) => Client::Anonymous,
        None if socket::is_local(channel.socket()) => Client::Local,
        None => Client::Anonymous,
    }
}

/// Refuses to listen with a certificate that was issued for something else.
pub fn check_own(place: Place, what: &'static str, path: &Path, own: &CertificateDer<'_>) -> Result<(), TlsError> {
    let claim = read(own).claim();
    if may_serve(place, claim) {
        return Ok(());
    }
    Err(TlsError::new(
        what,
        path,
        format!("it {claim}, and was issued for something else; take one that was issued for this"),
    ))
}

/// Whether who calls must show a certificate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Shown {
    /// Whoever shows none is not let in.
    Always,
    /// Who shows none has other ways to say who it is.
    AtWill,
}

/// Lets in who has a certificate of these authorities that is of use at this place.
pub fn of_callers(place: Place, roots: RootCertStore, shown: Shown) -> Result<Arc<dyn ClientCertVerifier>, String> {
    of_callers_but(place, roots, shown, Arc::default())
}

/// The same, but for who is revoked.
pub fn of_callers_but(
    place: Place,
    roots: RootCertStore,
    shown: Shown,
    revoked: Arc<Revoked>,
) -> Result<Arc<dyn ClientCertVerifier>, String> {
    let builder = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider());
    let builder = match shown {
        Shown::Always => builder,
        Shown::AtWill => builder.allow_unauthenticated(),
    };
    let inner = builder.build().map_err(|error| error.to_string())?;
    Ok(Arc::new(OfCallers { place, inner, revoked }))
}

/// Goes on with who answers under the name that was called, with a certificate of these authorities that is of use at this place, but for
/// who is revoked.
pub fn of_called(
    place: Place,
    roots: RootCertStore,
    revoked: Arc<Revoked>,
) -> Result<Arc<dyn ServerCertVerifier>, String> {
    let inner = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider()).build();
    Ok(Arc::new(OfCalled { place, inner: inner.map_err(|error| error.to_string())?, revoked }))
}

fn admit(place: Place, certificate: &CertificateDer<'_>, revoked: &Revoked) -> Result<(), Error> {
    if revoked.refuses(certificate) {
        // The other side hears "certificate revoked".
        return Err(Error::InvalidCertificate(CertificateError::Revoked));
    }
    if may_speak(place, read(certificate).claim()) {
        return Ok(());
    }
    // The other side hears "access denied".
    Err(Error::InvalidCertificate(CertificateError::ApplicationVerificationFailure))
}

#[derive(Debug)]
struct OfCallers {
    place: Place,
    inner: Arc<dyn ClientCertVerifier>,
    revoked: Arc<Revoked>,
}

impl ClientCertVerifier for OfCallers {
    fn offer_client_auth(&self) -> bool {
        self.inner.offer_client_auth()
    }

    fn client_auth_mandatory(&self) -> bool {
        self.inner.client_auth_mandatory()
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.inner.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        let verified = self.inner.verify_client_cert(end_entity, intermediates, now)?;
        admit(self.place, end_entity, &self.revoked).map(|()| verified)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.inner.verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.inner.verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.inner.supported_verify_schemes()
    }
}

#[derive(Debug)]
struct OfCalled {
    place: Place,
    inner: Arc<WebPkiServerVerifier>,
    revoked: Arc<Revoked>,
}

impl ServerCertVerifier for OfCalled {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        stapled: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let verified = self.inner.verify_server_cert(end_entity, intermediates, name, stapled, now)?;
        admit(self.place, end_entity, &self.revoked).map(|()| verified)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.inner.verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.inner.verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.inner.supported_verify_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_core::roles::{Claim, Name, Role};
    use rcgen::{CertificateParams, KeyPair, SanType};

    fn with(names: &[SanType]) -> CertificateDer<'static> {
        let mut params = CertificateParams::new([]).unwrap();
        params.subject_alt_names = names.to_vec();
        params.self_signed(&KeyPair::generate().unwrap()).unwrap().der().clone()
    }

    fn uri(text: &str) -> SanType {
        SanType::URI(text.try_into().unwrap())
    }

    fn dns(text: &str) -> SanType {
        SanType::DnsName(text.try_into().unwrap())
    }

    #[test]
    fn role_and_names_are_read_from_a_real_certificate() {
        for role in Role::ALL {
            assert_eq!(read(&with(&[dns("a"), uri(&role.uri())])).claim(), Claim::Role(role));
        }
        assert_eq!(read(&with(&[dns("a")])).claim(), Claim::Nothing);
        assert_eq!(read(&with(&[])).claim(), Claim::Nothing);
        let two = with(&[uri(&Role::Admin.uri()), uri(&Role::NbdClient.uri())]);
        assert_eq!(read(&two).claim(), Claim::Unclear);
        // A role is a URI and nothing else.
        let as_dns = with(&[dns("forebay:role:admin"), SanType::Rfc822Name("forebay:role:admin".try_into().unwrap())]);
        assert_eq!(read(&as_dns).claim(), Claim::Nothing);
        let vm = with(&[dns("vm1.lab"), dns("*.lab"), uri("spiffe://lab/vm1"), uri(&Role::NbdClient.uri())]);
        let list = |name: &str| [name.parse::<Name>().unwrap()];
        let read_vm = read(&vm);
        assert!(read_vm.is_in(&list("dns:vm1.lab")) && read_vm.is_in(&list("uri:spiffe://lab/vm1")));
        assert!(!read_vm.is_in(&list("dns:vm2.lab")));
    }

    #[test]
    fn the_fingerprint_is_that_of_other_programs() {
        let digits = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(Name::Sha256(fingerprint(b"abc")).to_string(), format!("sha256:{digits}"));
    }

    #[test]
    fn what_is_no_certificate_is_nobodys() {
        let good = with(&[dns("a"), uri(&Role::NbdClient.uri())]);
        for cut in [0, 1, 17, good.len() / 2, good.len() - 1] {
            assert_eq!(read(&CertificateDer::from(&good.as_ref()[..cut])).claim(), Claim::Unclear, "{cut}");
        }
    }

    #[test]
    fn thousands_of_names_are_read_as_unclear() {
        let names: Vec<SanType> = (0..5000).map(|n| dns(&format!("h{n}"))).collect();
        assert_eq!(read(&with(&names)).claim(), Claim::Unclear);
    }
}
