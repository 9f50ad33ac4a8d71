//! Closes of what a volume had open, on other threads: a tier is opened again when it is closed, a deletion is done when all is.

use super::{Asked, Desks, Driver, Replica};
use forebay_api::record::VolumeId;
use forebay_io::Waker;
use std::sync::mpsc::{Receiver, Sender, channel};
use tokio::sync::oneshot;

/// Closes of files that are under way on other threads.
pub(super) struct Closes {
    made: u64,
    /// Numbers of those that have ended.
    ended: (Sender<u64>, Receiver<u64>),
    waker: Waker,
    /// Deletions that wait for all of these.
    awaited: Vec<(Vec<u64>, oneshot::Sender<()>)>,
}

impl Closes {
    /// None is under way.
    pub(super) fn new(waker: Waker) -> Closes {
        Closes { made: 0, ended: channel(), waker, awaited: Vec::new() }
    }

    /// The number of one more, and what tells its end.
    fn begin(&mut self) -> (u64, impl FnOnce() + Send + 'static) {
        self.made += 1;
        let (number, ended, waker) = (self.made, self.ended.0.clone(), self.waker.clone());
        let tell = move || {
            // The data path may have ended before.
            let _ = ended.send(number);
            waker.wake();
        };
        (number, tell)
    }
}

impl Driver {
    /// Takes note of all that was closed since the last time.
    pub(super) fn note_closed(&mut self) {
        while let Ok(number) = self.closes.ended.1.try_recv() {
            self.on_closed(number);
        }
    }

    /// Closes the volume, and with it tier and backing, when their last operation has ended.
    pub(super) fn detach(&mut self, desks: &mut Desks<'_>, volume: &[u8; 16]) {
        let Some(replica) = self.replicas.get_mut(volume) else { return };
        replica.figures_told = None;
        replica.serves = None;
        replica.forwarders.clear();
        self.keys.remove(volume);
        self.peers.iter_mut().for_each(|peer| peer.link.forget_volume(volume));
        if let Some(key) = replica.key.take()
            && let Some(mut slot) = desks.volumes[key].take()
        {
            replica.told = replica.told.and(&slot.volume.peer_counters());
            desks.clients.close_all_of(&mut slot, desks.reactor, desks.now);
            // Nothing is asked of it any more.
            replica.end_backing(slot.io.every_change_is_done());
            let ((tier, tier_closed), (backing, backing_closed)) = (self.closes.begin(), self.closes.begin());
            replica.closing.extend([tier, backing]);
            replica.tier_closing = Some((tier, None));
            slot.close(tier_closed, backing_closed);
        }
    }

    /// What was closed on another thread is closed now. Of a volume that was deleted meanwhile nobody but the deletion waits for it.
    fn on_closed(&mut self, number: u64) {
        for (numbers, _) in &mut self.closes.awaited {
            numbers.retain(|awaited| *awaited != number);
        }
        for (_, answer) in self.closes.awaited.extract_if(.., |(numbers, _)| numbers.is_empty()) {
            // Whoever asked may have gone.
            let _ = answer.send(());
        }
        let closes = |(volume, replica): (&[u8; 16], &Replica)| replica.closing.contains(&number).then_some(*volume);
        let Some(volume) = self.replicas.iter().find_map(closes) else { return };
        let Some(replica) = self.replicas.get_mut(&volume) else { return };
        replica.closing.retain(|closing| *closing != number);
        if let Some((_, opens)) = replica.tier_closing.take_if(|(tier, _)| *tier == number)
            && let Some(format) = opens
        {
            let asked = Asked::OpenTier { volume: VolumeId(volume), format };
            self.ask(asked);
        }
    }

    /// A volume was deleted. Whoever asked is told when all that it had open here is closed.
    pub(super) fn end(&mut self, desks: &mut Desks<'_>, volume: VolumeId, answer: oneshot::Sender<()>) {
        if let Some(replica) = self.replicas.get(&volume.0) {
            self.directory.remove(&replica.name);
        }
        self.detach(desks, &volume.0);
        let closing = match self.replicas.remove(&volume.0) {
            Some(replica) => {
                self.addresses.serve(volume, false);
                replica.closing
            }
            None => Vec::new(),
        };
        if closing.is_empty() {
            // Whoever asked may have gone.
            let _ = answer.send(());
        } else {
            self.closes.awaited.push((closing, answer));
        }
    }
}
