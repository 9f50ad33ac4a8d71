//! Whose identity was revoked is not let in, is not called, and goes at once: TLS refuses its certificate at both ends ([`security`]), and what
//! got through before the word came is looked at again: with the hello, when a channel is taken over, and here.
//!
//! [`security`]: super::security

use super::{Arrival, Failure, Identity, Link, Receiver, State};
use crate::channel::Channel;
use crate::reactor::Reactor;
use forebay_core::types::Instant;
use rustls::pki_types::CertificateDer;

impl Identity {
    /// Whether the identity that the other side has shown was revoked. Who shows none cannot be told by it.
    pub fn refuses(&self, channel: &Channel) -> bool {
        let certificate = channel.session().and_then(|session| session.certificate());
        certificate.is_some_and(|certificate| self.revoked.refuses(certificate))
    }
}

impl Arrival {
    /// Whether the identity that the node has shown was revoked since.
    pub fn is_refused_by(&self, identity: &Identity) -> bool {
        identity.refuses(&self.channel)
    }

    /// The certificate that the node has shown; none: its connection is plain.
    pub fn certificate(&self) -> Option<CertificateDer<'static>> {
        self.channel.session().and_then(|session| session.certificate()).cloned()
    }
}

impl Link {
    /// Identities were revoked: channels with one of them end now.
    pub fn end_revoked(&mut self, reactor: &mut Reactor, receiver: &mut dyn Receiver, now: Instant) {
        for index in 0..self.slots.len() {
            let is_refused = match &self.slots[index].state {
                State::Down { .. } | State::Calling { .. } => false,
                State::Greeting { channel, .. } => self.config.identity.refuses(channel),
                State::Up(live) => self.config.identity.refuses(live.channel()),
            };
            if is_refused {
                self.fail(reactor, receiver, index, Failure::Revoked, now);
            }
        }
    }
}
