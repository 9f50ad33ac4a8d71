//! A connection that ends by its volume, which is being stopped.
//!
//! What a stop abandons has no answer: clients take an error for good (a kernel hands ESHUTDOWN on as an I/O error), and ask
//! again whom they find when they connect anew. So the end of the connection is the answer, after all others have left.

use super::*;

impl Connection {
    /// The volume is being stopped and does not know what became of a request, or has not done it.
    pub(super) fn abandoned<B: Backend + ?Sized>(&mut self, backend: &mut B, index: u32, asked: Asked, label: Label) {
        self.slots[index as usize] = Slot::Free;
        self.slots_free.extend(NonZeroU32::new(index));
        self.in_flight -= 1;
        self.in_flight_bytes -= asked.bytes();
        self.let_go(backend, asked.frames_held(label.offset));
        self.leave();
    }

    /// The end of the connection will be the answer to what the volume does not take or finish. One that has said good-bye ends anyway.
    pub(super) fn leave(&mut self) {
        if self.phase == Phase::Open {
            self.phase = Phase::Leaving;
        }
    }

    /// Answers a request that the volume does not take.
    pub(super) fn refuse_for(&mut self, label: Label, error: RequestError) {
        match code_of(error) {
            Some(code) => self.refuse(label, code),
            None => self.leave(),
        }
    }

    /// Ends it where it is to end and everything has left.
    pub(super) fn finish_if_done<B: Backend + ?Sized>(&mut self, backend: &mut B) {
        if self.in_flight > 0 || self.has_unsent() {
            return;
        }
        match self.phase {
            Phase::Finishing => self.end(backend, Closed::Disconnected),
            Phase::Leaving => self.end(backend, Closed::Stopped),
            Phase::Open | Phase::Closed(_) => {}
        }
    }
}

/// None: no answer is given, see [`Connection::leave`].
pub(super) fn code_of(error: RequestError) -> Option<ErrorCode> {
    match error {
        RequestError::Io => Some(ErrorCode::Io),
        RequestError::NoSpace => Some(ErrorCode::NoSpace),
        RequestError::Invalid => Some(ErrorCode::Invalid),
        RequestError::Shutdown => None,
    }
}
