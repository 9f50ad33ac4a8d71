//! How long requests wait once nothing keeps them: each is answered within a bound ([`World::wait_max_allowed`]) of being possible.
//!
//! A request is possible while its volume serves and no fault is under way: no operation of a device stalls, the backing is there, and nothing
//! has failed of late. Whatever it waits for besides is the volume's own doing: room in the log, frames, the end of a hold, an operation
//! that is not begun, or nothing at all.
//!
//! Of a cluster only the end is judged, when all faults have stopped ([`Stage`]): which of its faults keeps whom is not told apart here.

use super::*;

/// A request that is possible is answered within this, and what a slow backing needs.
const WAIT_MAX: Duration = Duration::from_secs(60);

impl World {
    /// Where the log is full, a request waits until enough of it has been destaged: the whole volume may have to be written, twice, with one
    /// write after the other.
    fn wait_max_allowed(&self) -> Duration {
        let writes = self.setup.size_bytes_max / u64::from(self.setup.backing_write_bytes_max);
        Duration(WAIT_MAX.0 + Duration::from_micros(2 * writes * self.setup.backing_micros_max).0)
    }

    /// A fault is under way until then, and nothing that waits meanwhile has waited too long.
    pub(super) fn note_trouble_until(&mut self, until: Instant) {
        self.possible_since = self.possible_since.max(until);
    }

    /// Nobody who could be answered waits too long, at the node whose turn it is.
    pub(super) fn check_waits(&mut self) {
        let frames = self.clients.iter().filter_map(|client| client.refused_at);
        let open = self.node.open.values().filter(|open| !open.hung_up);
        if let Some(oldest) = open.map(|open| open.asked_at).chain(frames).min() {
            self.check_wait(oldest);
        }
    }

    /// Neither does who asked then, and is answered now or is not.
    pub(super) fn check_wait(&mut self, asked: Instant) {
        if self.cluster.is_some() || !self.node.serving || !self.node.backing_ready || self.damaged {
            return;
        }
        let since = asked.max(self.possible_since).max(self.node.ready_since);
        if self.now <= since {
            return;
        }
        let waited = self.now - since;
        self.possible_wait_max = self.possible_wait_max.max(waited);
        assert!(
            waited <= self.wait_max_allowed(),
            "a request that could be answered waits for {waited:?}: {}",
            self.unfinished()
        );
    }
}
