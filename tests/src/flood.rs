//! What a hostile client floods a volume with: requests of every kind, as many and as large as NBD permits.

use crate::nbd::{
    FLAG_NO_HOLE, FLAG_PAYLOAD, Stream, Target, extended_request, go_payload, greet, receive_option_reply, send_option,
};
use std::io;
use std::time::Duration;

/// Number of the command by this name on the wire.
pub const READ: u16 = 0;
/// Number of the command by this name on the wire.
pub const WRITE: u16 = 1;
/// Number of the command by this name on the wire.
pub const FLUSH: u16 = 3;
/// Number of the command by this name on the wire.
pub const TRIM: u16 = 4;
/// Number of the command by this name on the wire.
pub const CACHE: u16 = 5;
/// Number of the command by this name on the wire.
pub const ZEROES: u16 = 6;
/// Number of the command by this name on the wire.
pub const STATUS: u16 = 7;
/// A command that no server knows.
pub const UNKNOWN: u16 = 77;
/// Request flag of [`STATUS`]: one extent is enough.
pub const REQ_ONE: u16 = 1 << 3;
/// Request flag of [`ZEROES`]: only if that is faster than to write them.
pub const FAST_ZERO: u16 = 1 << 4;

/// Size of the volume that is flooded: more than a request of the old headers can name.
pub const SIZE: u64 = 8 << 30;
/// Where writes go, so that the image takes no more of the disk.
pub const WRITTEN: u64 = 256 << 20;
/// Where zeros go that are to take room in the image.
pub const ALLOCATED: u64 = 1 << 30;
/// What offsets are multiples of.
pub const BLOCK: u64 = 4096;

/// One request, with what follows it.
pub fn request(command: u16, flags: u16, offset: u64, length: u64) -> Vec<u8> {
    if command != WRITE {
        return extended_request(flags, command, offset, offset, length).to_vec();
    }
    let mut bytes = extended_request(flags | FLAG_PAYLOAD, command, offset, offset, length).to_vec();
    bytes.resize(bytes.len() + length as usize, 0x5a);
    bytes
}

/// Requests of one kind, at many places: as many as there can be in flight, or as a large payload leaves room for.
pub fn many(command: u16, flags: u16, length: u64) -> Vec<u8> {
    let (count, room) = match command {
        WRITE => ((32 << 20) / length.max(32 << 10), WRITTEN),
        ZEROES if flags & FLAG_NO_HOLE != 0 => (1024, ALLOCATED),
        // It names no place.
        FLUSH => (1024, 0),
        _ => (1024, SIZE),
    };
    let places = ((room - length) / BLOCK).max(1);
    // Not one behind the other, so that they cannot be merged.
    (0..count.max(1)).flat_map(|number| request(command, flags, number * 7919 % places * BLOCK, length)).collect()
}

/// A connection that may ask for everything: extended headers, and all that is told of blocks. Each word of the server is waited for
/// so long at most.
pub fn connect(target: &Target, patience: Duration) -> io::Result<Stream> {
    let mut stream = Stream::connect(&target.address)?;
    stream.set_read_timeout(Some(patience))?;
    greet(&mut stream, 3)?;
    let mut contexts = go_payload(&target.export)[..4 + target.export.len()].to_vec();
    let names = ["base:allocation", "forebay:dirty", "forebay:tier"];
    contexts.extend_from_slice(&(names.len() as u32).to_be_bytes());
    for name in names {
        contexts.extend_from_slice(&(name.len() as u32).to_be_bytes());
        contexts.extend_from_slice(name.as_bytes());
    }
    for (option, data) in [(11, &[][..]), (10, &contexts), (7, &go_payload(&target.export))] {
        agree(&mut stream, option, data)?;
    }
    Ok(stream)
}

/// Sends an option, and takes what is answered until it is acknowledged.
fn agree(stream: &mut Stream, option: u32, data: &[u8]) -> io::Result<()> {
    send_option(stream, option, data)?;
    loop {
        let reply = receive_option_reply(stream)?;
        match reply.kind {
            1 => return Ok(()),
            kind if kind & (1 << 31) != 0 => {
                return Err(io::Error::other(format!("option {option} is refused: {reply:?}")));
            }
            _ => {}
        }
    }
}
