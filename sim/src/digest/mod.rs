//! A digest of everything that the real cores decide: of every effect in canonical bytes, with the moment at which it was polled and
//! the node that it belongs to. A change that moves or renames keeps it; one that decides anything otherwise does not.
//!
//! What is digested depends on no name of the source, no order of declaration and no formatted text: `canon`, `volume` and `ownership`
//! write each variant with a tag that is given there once and for all. A rename is followed there and changes no digest.
//! [`crate::blocks`] has the worlds and seeds that are looked at, and what is expected of them.
//!
//! What it leaves to others: whether a decision is right. It says that there is another one, and not more.

mod canon;
mod ownership;
mod volume;

use crate::random::mix;
use canon::Canon;
use std::cell::RefCell;

/// A running digest of 64 bits. It finds what changed by accident, and is no proof against intent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Digest(u64);

impl Default for Digest {
    fn default() -> Digest {
        Digest(0xcbf2_9ce4_8422_2325)
    }
}

impl Digest {
    /// Goes on with a number.
    pub fn number(&mut self, number: u64) {
        self.0 = mix(self.0 ^ number).wrapping_add(0x9e37_79b9_7f4a_7c15);
    }

    /// Goes on with bytes, and with how many they are.
    pub fn bytes(&mut self, bytes: &[u8]) {
        self.number(bytes.len() as u64);
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.number(u64::from_le_bytes(word));
        }
    }

    /// The digest of all that was decided so far.
    pub fn value(self) -> u64 {
        self.0
    }
}

/// What is recorded of one run.
#[derive(Default)]
struct Recording {
    digest: Digest,
    /// Of the effect at hand; kept for its memory.
    bytes: Vec<u8>,
}

/// Whose decision an effect is; numbers as tags.
#[derive(Clone, Copy)]
enum Core {
    Volume = 1,
    Ownership = 2,
}

thread_local! {
    /// Of the run of this thread, if it is recorded. Not a part of a world: a run that ends by a panic leaves its world, and what was
    /// decided until then counts.
    static RECORDING: RefCell<Option<Recording>> = const { RefCell::new(None) };
}

/// Runs `run` and gives the digest of all that the cores decided in it, on this thread. A run that breaks a promise is to be caught within
/// ([`crate::run::attempt`]).
pub fn recorded<T>(run: impl FnOnce() -> T) -> (T, u64) {
    RECORDING.set(Some(Recording::default()));
    let result = run();
    let recording = RECORDING.take().unwrap_or_default();
    (result, recording.digest.value())
}

/// A volume's effect was polled: by the world's clock, in nanoseconds, at the node with this index.
pub(crate) fn volume_decided(now: u64, node: usize, effect: &forebay_core::api::Effect) {
    note(Core::Volume, now, node, |canon| canon.volume_effect(effect));
}

/// The same of ownership.
pub(crate) fn ownership_decided(now: u64, node: usize, effect: &forebay_core::ownership::Effect) {
    note(Core::Ownership, now, node, |canon| canon.ownership_effect(effect));
}

fn note(core: Core, now: u64, node: usize, put: impl FnOnce(&mut Canon)) {
    RECORDING.with_borrow_mut(|recording| {
        let Some(Recording { digest, bytes }) = recording else { return };
        bytes.clear();
        put(&mut Canon(bytes));
        [core as u64, now, node as u64].into_iter().for_each(|number| digest.number(number));
        digest.bytes(bytes);
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_core::api::Effect;
    use forebay_core::types::OpId;

    fn of(polled: &[(u64, usize, Effect)]) -> u64 {
        recorded(|| polled.iter().for_each(|(now, node, effect)| volume_decided(*now, *node, effect))).1
    }

    #[test]
    fn order_moment_and_node_of_an_effect_count() {
        let (one, other) = (Effect::TierSync { op: OpId(1) }, Effect::BackingSync { op: OpId(2) });
        let digest = of(&[(1, 0, one.clone()), (1, 0, other.clone())]);
        assert_eq!(digest, of(&[(1, 0, one.clone()), (1, 0, other.clone())]));
        assert_ne!(digest, of(&[(1, 0, other.clone()), (1, 0, one.clone())]), "turned round");
        assert_ne!(digest, of(&[(1, 0, one.clone()), (2, 0, other.clone())]), "later");
        assert_ne!(digest, of(&[(1, 0, one.clone()), (1, 1, other)]), "at another node");
        assert_ne!(digest, of(&[(1, 0, one)]), "one less");
    }

    #[test]
    fn a_seam_is_not_taken_for_the_other() {
        let volume = recorded(|| volume_decided(1, 0, &Effect::TierSync { op: OpId(1) })).1;
        let owner = recorded(|| ownership_decided(1, 0, &forebay_core::ownership::Effect::EndSessions)).1;
        assert_ne!(volume, owner);
    }

    #[test]
    fn bytes_have_this_digest() {
        let mut digest = Digest::default();
        digest.bytes(b"canonical");
        let all = digest.value();
        let mut shorter = Digest::default();
        shorter.bytes(b"canonica");
        assert_ne!(all, shorter.value());
        let mut longer = Digest::default();
        longer.bytes(b"canonical\0");
        assert_ne!(all, longer.value());
    }

    #[test]
    fn what_is_not_recorded_leaves_nothing() {
        volume_decided(1, 0, &Effect::FramesFree);
        assert_eq!(recorded(|| ()).1, Digest::default().value());
    }
}
