//! Why a channel is down, in one place, so that both nodes, the log and status use the same words.

use forebay_core::wire::Rejection;
use rustls::{AlertDescription, CertificateError, Error as TlsFailure, InvalidMessage};
use std::{fmt, io};

/// Why a channel was not begun, or has ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Failure {
    /// No connection to the address.
    Connect(io::ErrorKind),
    /// The other side did not come to its hello in time.
    TooSlow,
    /// The other side does not speak TLS, which is asked for here.
    NotTls,
    /// The other side speaks TLS, and here plain was asked for.
    NotPlain,
    /// A certificate or a record of TLS was found wrong, here or by the other side.
    Tls(String),
    /// This side has refused the other, and told it why.
    Refused(Rejection),
    /// Told by the other side.
    RefusedByPeer(Rejection),
    /// The other side's identity was revoked.
    Revoked,
    /// This side's was, says the other one.
    RevokedByPeer,
    /// Bytes that are no frame of this protocol, or that may not come now.
    Malformed(&'static str),
    /// The other side has closed it.
    HungUp,
    /// The socket failed with this error.
    Socket(io::ErrorKind),
    /// Nothing got on for so long that its messages go by others.
    NoProgress,
    /// The other side has begun it anew, or itself.
    Replaced,
    /// Nobody was let in before this one was through.
    Crowded,
}

impl Failure {
    /// Trying again soon would fail the same way, as long as nobody mends it.
    pub(super) fn needs_a_person(&self) -> bool {
        match self {
            Failure::RefusedByPeer(Rejection::Leaving) => false,
            Failure::Refused(_) | Failure::RefusedByPeer(_) | Failure::Malformed(_) => true,
            Failure::Tls(_) | Failure::NotTls | Failure::NotPlain => true,
            Failure::Revoked | Failure::RevokedByPeer => true,
            Failure::Connect(_) | Failure::TooSlow | Failure::HungUp | Failure::Socket(_) => false,
            Failure::NoProgress | Failure::Replaced | Failure::Crowded => false,
        }
    }

    /// Of a socket or a TLS session, before and after the hello.
    pub(super) fn of(error: &io::Error) -> Failure {
        let Some(tls) = error.get_ref().and_then(|inner| inner.downcast_ref::<TlsFailure>()) else {
            return match error.kind() {
                io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => {
                    Failure::HungUp
                }
                kind => Failure::Socket(kind),
            };
        };
        match tls {
            TlsFailure::InvalidMessage(InvalidMessage::InvalidContentType) => Failure::NotTls,
            TlsFailure::InvalidCertificate(CertificateError::UnknownIssuer) => {
                Failure::Tls("its certificate is not of this cluster's authority".into())
            }
            TlsFailure::InvalidCertificate(CertificateError::Revoked) => Failure::Revoked,
            TlsFailure::AlertReceived(AlertDescription::CertificateRevoked) => Failure::RevokedByPeer,
            TlsFailure::NoCertificatesPresented => Failure::Tls("it shows no certificate".into()),
            other => Failure::Tls(other.to_string()),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Connect(kind) => write!(f, "no connection: {kind}"),
            Failure::TooSlow => f.write_str("the other side did not say in time who it is"),
            Failure::NotTls => {
                f.write_str("the other side does not speak TLS; set it up there, or plain on both sides")
            }
            Failure::NotPlain => {
                f.write_str("the other side speaks TLS, here plain is set up; use the same on both sides")
            }
            Failure::Tls(why) => write!(f, "TLS: {why}"),
            Failure::Refused(why) => write!(f, "refused: {why}"),
            Failure::RefusedByPeer(why) => write!(f, "refused by the other side: {why}"),
            Failure::Revoked => f.write_str(
                "the identity that the other side shows was revoked (`forebay node revoke`, or `forget`); `forebay node enrol NAME --renew` where \
                 the cluster's authority is makes a new one",
            ),
            Failure::RevokedByPeer => f.write_str(
                "the other side says that the identity of this node was revoked, which counts only where this node says so itself (`forebay \
                 status`)",
            ),
            Failure::Malformed(what) => write!(f, "no frame of this protocol: {what}"),
            Failure::HungUp => f.write_str("the other side has closed it"),
            Failure::Socket(kind) => write!(f, "the connection failed: {kind}"),
            Failure::NoProgress => f.write_str("nothing got on; its messages went by others"),
            Failure::Replaced => f.write_str("the other side has begun anew"),
            Failure::Crowded => f.write_str("too many connections were waiting to say who they are"),
        }
    }
}
