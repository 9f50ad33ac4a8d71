//! Who may take how many frames of the arena, so that nobody waits for frames for ever while others get them.
//!
//! With R for [`Volume::frames_reserved`], a good quarter of the arena, and E for [`Volume::frames_kept`], a small part of R:
//!
//! | who | what may be taken |
//! |---|---|
//! | volume itself: edges of writes, compaction, old blocks under sectors | what there is; few at a time, and others wait for it |
//! | destage and journal, to load what left memory | what there is, up to R/2 at a time; as much ahead, of a quarter of what there is |
//! | reads of clients, with a frame to load records into where blocks are put together | all but E and what payloads have not yet taken of their R |
//! | more frames to load records into, for those reads | the same, a few for each, and only while no read waits for frames |
//! | payloads of clients | all but E up to R; beyond that, all but R |
//! | prefetches | R/2 and no more than 512 KiB at a time, of what is free beyond the shares of reads and payloads |
//!
//! So payloads always come to R frames and reads to R - E, whatever the other kind does: neither can starve the other, nor
//! destage, which both wait for. What is beyond those shares goes to whoever asks first.
//!
//! Within each kind it is first come, first served, so that a large request is not overtaken for ever by small ones. Who
//! takes nothing from those before it need not wait: a read of what is in memory and pinned, in the log, or zeros.
//!
//! Left to others: what frames there are ([`super::frames`]), reads that wait ([`super::read`]).

use super::*;

/// Payloads that wait for frames, in the order of their asking.
#[derive(Default)]
struct Claims {
    queue: VecDeque<(ClientId, u32)>,
    /// The first of them was told to ask again, and has not done so yet.
    told: bool,
}

/// Frames that are in use until a client does its part.
#[derive(Default)]
struct Holds {
    /// How many, of all clients.
    frames: u32,
    /// A client was refused since it was last told to try again.
    refused: bool,
    /// Some have been let go since then.
    freed: bool,
}

/// See the module.
#[derive(Default)]
pub(super) struct FrameQuota {
    claims: Claims,
    holds: Holds,
}

impl Claims {
    /// Frames claimed before this client's turn.
    fn ahead_of(&self, client: ClientId) -> u32 {
        self.queue.iter().take_while(|(other, _)| *other != client).map(|(_, count)| count).sum()
    }

    /// The client was refused: it waits in its place.
    fn wait(&mut self, client: ClientId, count: u32) {
        match self.queue.iter().position(|(other, _)| *other == client) {
            Some(0) => {
                self.queue[0].1 = count;
                self.told = false;
            }
            Some(place) => self.queue[place].1 = count,
            None => self.queue.push_back((client, count)),
        }
    }

    /// The client waits no longer.
    fn remove(&mut self, client: ClientId) {
        if let Some(place) = self.queue.iter().position(|(other, _)| *other == client) {
            self.queue.remove(place);
            self.told &= place > 0;
        }
    }
}

impl Volume {
    /// Takes frames for a payload to be received; false (and none taken) when they are not to be had now, or others have
    /// waited longer: the client's place is kept until it asks again, which it must at [`Effect::FramesFree`], or is withdrawn by
    /// [`Volume::withdraw`].
    pub fn take_frames(&mut self, client: ClientId, count: u32, into: &mut Frames) -> bool {
        if !self.has_room_for_payload(count + self.quota.claims.ahead_of(client)) {
            self.quota.claims.wait(client, count);
            return false;
        }
        self.quota.claims.remove(client);
        for _ in 0..count {
            into.push(self.pool.allocate_for_payload().expect("there is room"));
        }
        true
    }

    /// Takes frames for the payload of a peer's message, about to be received. False, and none taken: there is no room, the
    /// message is to be thrown away, and the peer sends it again.
    pub fn take_frames_for_peer(&mut self, count: u32, into: &mut Frames) -> bool {
        // As long as a memory tier is being read, nobody knows which frames hold records.
        let known = matches!(self.phase, Phase::Following | Phase::Agreeing | Phase::Serving | Phase::Stopping);
        let fits = known && self.pool.available_to_clients() >= count + self.frames_kept();
        if fits {
            into.extend((0..count).map(|_| self.pool.allocate_for_payload().expect("there is room")));
        }
        fits
    }

    /// The client does not wait for frames any more: its connection has ended.
    pub fn withdraw(&mut self, client: ClientId) {
        self.quota.claims.remove(client);
    }

    /// Gives back frames whose request never came.
    pub fn return_frames(&mut self, frames: &[FrameId]) {
        for &frame in frames {
            self.pool.release(frame);
        }
    }

    /// Whether a client that holds `held` frames may hold `more`: asked before frames are given to what ends only when the
    /// client does its part, which are a payload until its last byte has come, and a read until its answer has been
    /// taken. False: wait for [`Effect::FramesFree`].
    ///
    /// Nobody may hold more than half of what is left, so whoever comes next finds room however many are slow: one slow
    /// client costs a third of what clients may hold, each further one less. The largest request is always granted
    /// while the others hold little.
    pub fn may_hold(&mut self, held: u32, more: u32) -> bool {
        let left = self.holds_max().saturating_sub(self.quota.holds.frames);
        let granted = 2 * u64::from(held + more) <= u64::from(left);
        self.quota.holds.refused |= !granted;
        granted
    }

    /// A client holds so many frames more.
    pub fn hold(&mut self, frames: u32) {
        self.quota.holds.frames += frames;
    }

    /// A client holds so many frames less.
    pub fn let_go(&mut self, frames: u32) {
        assert!(frames <= self.quota.holds.frames, "what is let go was held");
        self.quota.holds.frames -= frames;
        self.quota.holds.freed |= self.quota.holds.refused && frames > 0;
    }

    /// Frames that clients may hold together: three times the largest request, or a quarter of a large arena.
    pub(super) fn holds_max(&self) -> u32 {
        (3 * self.frames_reserved()).max(self.pool.total() / 4)
    }

    /// Who was refused frames would get them now; it is to be told once.
    pub(super) fn frames_are_free(&mut self) -> bool {
        let holds = core::mem::take(&mut self.quota.holds.freed);
        if holds {
            self.quota.holds.refused = false;
        }
        self.first_claim_fits() || holds
    }

    fn first_claim_fits(&mut self) -> bool {
        let Some(&(_, count)) = self.quota.claims.queue.front() else { return false };
        let fits = !self.quota.claims.told && self.has_room_for_payload(count);
        self.quota.claims.told |= fits;
        fits
    }

    fn has_room_for_payload(&self, count: u32) -> bool {
        let within_share = self.pool.payloads() + count <= self.frames_reserved();
        let leaves = if within_share { self.frames_kept() } else { self.frames_reserved() };
        self.pool.available_to_clients() >= count + leaves
    }

    /// Frames that a client's read leaves.
    pub(super) fn frames_left_by_reads(&self) -> u32 {
        self.frames_kept() + self.frames_reserved().saturating_sub(self.pool.payloads())
    }

    /// The share of payloads, and that of reads: a good quarter of the arena, of which the largest request is all but
    /// what is kept, one frame for what is not aligned, and one to load records into; and no more than that takes in arenas from 128 MiB on.
    pub(super) fn frames_reserved(&self) -> u32 {
        super::largest::frames_reserved(self.pool.total())
    }

    /// Frames that no client takes.
    pub(super) fn frames_kept(&self) -> u32 {
        super::largest::frames_kept(self.frames_reserved())
    }

    /// Frames in which destage may have payloads at one time that it had to load.
    pub(super) fn loads_max(&self) -> u32 {
        self.frames_reserved() / 2
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::TierLayout;

    fn volume_of(frames: u32) -> Volume {
        fresh_volume(TierLayout::flash(1 << 16).expect("a possible size"), frames)
    }

    #[test]
    fn whatever_slow_clients_hold_others_find_room() {
        for frames in [256, 4096, 16384, 1 << 18] {
            let mut volume = volume_of(frames);
            let largest = volume.request_bytes_max().div_ceil(BLOCK_BYTES as u32) + 1;
            let total = volume.pool.total();
            assert!(volume.may_hold(0, largest), "{frames}: alone, the largest request");
            // Each takes as much as it gets and never lets go.
            for client in 1..=3 {
                let mut held = 0;
                for piece in [largest, 64, 8, 1] {
                    while volume.may_hold(held, piece) {
                        volume.hold(piece);
                        held += piece;
                    }
                }
                assert!(held < total / 3, "{frames}: client {client} holds {held} of {total}");
                assert!(volume.may_hold(0, 1), "{frames}: after client {client}");
                // All of it pinned, the frames that are kept and those of a small payload are left.
                let left = total - volume.quota.holds.frames;
                assert!(left > volume.frames_kept() + 1, "{frames}: {left} are left");
            }
        }
    }

    #[test]
    fn who_was_refused_is_told_once_when_somebody_lets_go() {
        let mut volume = volume_of(4096);
        let most = volume.holds_max();
        volume.hold(most);
        assert!(!volume.may_hold(0, 1));
        assert!(!volume.frames_are_free());
        volume.let_go(most);
        assert!(volume.frames_are_free());
        assert!(!volume.frames_are_free(), "once");
        assert!(volume.may_hold(0, 1));
    }
}
