//! What a front end needs of the volume behind it.
//!
//! Implemented by the shard around a `forebay_core::Volume` and its arena, and by test doubles. All calls come from the
//! thread of the shard, none of them blocks, and none of them calls back into a connection.

use core::ptr::NonNull;
use forebay_core::api::{Pieces, Request, RequestError};
use forebay_core::types::{BlockIndex, ClientId, FrameId, Frames, RequestId, SectorMask};
use forebay_core::volume::Extent;

/// A volume as a front end sees it.
///
/// # Safety
///
/// [`Backend::frame`] must return memory that stays mapped, readable and writable for
/// [`forebay_core::types::BLOCK_BYTES`] bytes: for a frame given out by [`Backend::take_frames`] until it is returned
/// or submitted, and for a frame named in a reply until [`Backend::sent`]. In that time nobody else writes to it, and
/// nobody holds a Rust reference into it.
pub unsafe trait Backend {
    /// Size of the volume in bytes.
    fn size_bytes(&self) -> u64;

    /// Checks a request before it is handed in: `forebay_core::Volume::admissible`.
    fn admissible(&self, request: &Request) -> Result<(), RequestError>;

    /// Takes `count` frames for a payload that is about to be received, appending them to `into`; false, and none
    /// taken, when there are not enough, or others have waited longer: the connection stops reading until its `receive` is
    /// called again, when it asks again. Its place is kept until then, or until [`Backend::withdraw`]. The connection, which
    /// holds `held` frames already, holds these as well until [`Backend::let_go`].
    fn take_frames(&mut self, client: ClientId, held: u32, count: u32, into: &mut Frames) -> bool;

    /// A client that was refused frames for a payload does not wait for them any more.
    fn withdraw(&mut self, client: ClientId);

    /// A read is about to be handed in whose answer uses up to `count` frames until the client has taken it. The
    /// connection, which holds `held` frames already, holds these as well until [`Backend::let_go`]; false, and none held,
    /// when that would leave too few to others: the connection stops reading until its `receive` is called again.
    fn hold(&mut self, held: u32, count: u32) -> bool;

    /// The connection has its payload whole, or its answer has left, or it has ended: it holds so many frames less.
    fn let_go(&mut self, count: u32);

    /// Gives back frames whose request never came.
    fn return_frames(&mut self, frames: &[FrameId]);

    /// Where a frame's bytes lie.
    fn frame(&self, frame: FrameId) -> NonNull<u8>;

    /// Checksum of one payload block that lies in a frame this connection took, bound to volume and term:
    /// `forebay_core::format::payload_checksum`.
    fn checksum(&self, block: BlockIndex, mask: SectorMask, bytes: &[u8]) -> u32;

    /// Hands a request in. Exactly one reply follows, unless [`Backend::hangup`] names it first. The bytes of a write are
    /// on their way to its frames: nobody looks at them before the connection's `receive` has returned.
    fn submit(&mut self, id: RequestId, request: Request);

    /// The bytes of a read's answer have left, or will never leave: its pieces are handed back.
    fn sent(&mut self, pieces: Pieces);

    /// The client is gone. These requests have no answer yet; some of them may still be answered.
    fn hangup(&mut self, ids: Vec<RequestId>);

    /// Takes back those of these requests that wait and have had no effect; the frames of their payloads are the connection's
    /// again. Of the others nobody can say any more what becomes of them, and their answers find nobody.
    fn take_back(&mut self, ids: &[RequestId]) -> Vec<(RequestId, Request)>;

    /// Extents from `offset` on, at most `max` of them, for block status.
    fn extents(&self, offset: u64, length: u64, max: usize) -> Vec<Extent>;
}
