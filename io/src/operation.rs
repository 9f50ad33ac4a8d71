//! One operation on a device as a sequence of system calls, the same for both modes of the reactor.
//!
//! Invariants: an operation owns the device and its memory to the end. A short read or write goes on where it
//! stopped; a read at the end of the file leaves zeros; an interrupted call is repeated; any other error ends it.

use crate::buffers::Buffers;
use crate::file::DeviceFile;
use crate::memory::AlignedBuffer;
use std::io;
use std::sync::{Arc, LazyLock};

/// Most iovecs in one system call (IOV_MAX).
pub const IOVECS_MAX: usize = 1024;
/// Bytes of zeros written by one iovec where a device cannot make zeros by itself.
const ZEROS_BYTES: usize = 256 << 10;
/// Bytes of zeros written by one system call then: bounded, so that one operation does not starve others.
const ZEROS_PER_CALL: u64 = 8 << 20;
/// Times in a row that a device may say EAGAIN before that is taken for an error.
const AGAIN_MAX: u32 = 1000;

static ZEROS: LazyLock<AlignedBuffer> = LazyLock::new(|| AlignedBuffer::new(ZEROS_BYTES));

/// What is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OperationKind {
    /// Fill the buffers from this byte on; past the end of the device they become zeros.
    Read {
        /// First byte of the device.
        offset: u64,
    },
    /// Write the buffers from this byte on.
    Write {
        /// First byte of the device.
        offset: u64,
    },
    /// Make every completed write durable (fdatasync).
    Sync,
    /// Make a range read as zeros.
    Zero {
        /// First byte of the device.
        offset: u64,
        /// Bytes from there on.
        length: u64,
        /// The device may deallocate the range instead of storing zeros.
        hole: bool,
    },
}

/// How zeros are made; each way that a device does not support is followed by the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ZeroWay {
    PunchHole,
    ZeroRange,
    Write,
    /// The zeros are there, and the device promises that a completed write is durable.
    Sync,
}

/// An operation on its way.
#[derive(Debug)]
pub struct Operation {
    file: Arc<DeviceFile>,
    kind: OperationKind,
    buffers: Buffers,
    /// Bytes of the operation that are done.
    done: u64,
    /// First iovec that is not done.
    iovec: usize,
    zero_way: ZeroWay,
    again: u32,
}

/// One system call. Its pointers are valid as long as the operation is, wherever the operation is moved to.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Call {
    Read { iovecs: *const libc::iovec, count: usize, offset: u64 },
    Write { iovecs: *const libc::iovec, count: usize, offset: u64, flags: i32 },
    DataSync,
    Allocate { mode: i32, offset: u64, length: u64 },
}

/// What follows from a system call's result.
#[derive(Debug)]
pub(crate) enum Progress {
    /// Another call is needed: see [`Operation::next_call`].
    Again,
    /// The operation has ended, and how.
    Finished(io::Result<()>),
}

impl Operation {
    /// An operation that owns its device and memory.
    pub fn new(file: Arc<DeviceFile>, kind: OperationKind, buffers: Buffers) -> Operation {
        let zero_way = match kind {
            OperationKind::Zero { hole: true, .. } => ZeroWay::PunchHole,
            OperationKind::Zero { hole: false, .. } => ZeroWay::ZeroRange,
            OperationKind::Read { .. } | OperationKind::Write { .. } | OperationKind::Sync => ZeroWay::Write,
        };
        match kind {
            OperationKind::Read { .. } | OperationKind::Write { .. } => {
                assert!(!buffers.is_empty(), "a read or write has memory");
            }
            OperationKind::Sync | OperationKind::Zero { .. } => {
                assert!(buffers.is_empty(), "a sync or zero has no memory");
            }
        }
        Operation { file, kind, buffers, done: 0, iovec: 0, zero_way, again: 0 }
    }

    /// The device that it is for.
    pub fn file(&self) -> &Arc<DeviceFile> {
        &self.file
    }

    /// Names the device among those that have an operation.
    pub(crate) fn device(&self) -> usize {
        Arc::as_ptr(&self.file) as usize
    }

    /// The owned buffer, if there is one, after the end.
    pub(crate) fn into_buffer(self) -> Option<AlignedBuffer> {
        self.buffers.owned
    }

    /// The system call to make now.
    pub(crate) fn next_call(&mut self) -> Call {
        match self.kind {
            OperationKind::Read { offset } => Call::Read {
                iovecs: self.buffers.iovecs[self.iovec..].as_ptr(),
                count: (self.buffers.iovecs.len() - self.iovec).min(IOVECS_MAX),
                offset: offset + self.done,
            },
            OperationKind::Write { offset } => Call::Write {
                iovecs: self.buffers.iovecs[self.iovec..].as_ptr(),
                count: (self.buffers.iovecs.len() - self.iovec).min(IOVECS_MAX),
                offset: offset + self.done,
                flags: self.write_flags(),
            },
            OperationKind::Sync => Call::DataSync,
            OperationKind::Zero { offset, length, .. } => {
                let left = length - self.done;
                let mode = match self.zero_way {
                    ZeroWay::PunchHole => libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE,
                    ZeroWay::ZeroRange => libc::FALLOC_FL_ZERO_RANGE | libc::FALLOC_FL_KEEP_SIZE,
                    ZeroWay::Write => return self.write_zeros(offset + self.done, left.min(ZEROS_PER_CALL)),
                    ZeroWay::Sync => return Call::DataSync,
                };
                Call::Allocate { mode, offset, length }
            }
        }
    }

    fn write_flags(&self) -> i32 {
        if self.file.stable_writes() { libc::RWF_DSYNC } else { 0 }
    }

    fn write_zeros(&mut self, offset: u64, bytes: u64) -> Call {
        self.buffers.iovecs.clear();
        let mut left = bytes as usize;
        while left > 0 {
            let piece = left.min(ZEROS_BYTES);
            self.buffers.iovecs.push(libc::iovec { iov_base: ZEROS.as_ptr().cast_mut().cast(), iov_len: piece });
            left -= piece;
        }
        let (iovecs, count) = (self.buffers.iovecs.as_ptr(), self.buffers.iovecs.len());
        Call::Write { iovecs, count, offset, flags: self.write_flags() }
    }

    /// Takes a call's result: bytes, or a negative errno.
    pub(crate) fn advance(&mut self, result: i64) -> Progress {
        if result < 0 {
            return self.failed(-result as i32);
        }
        self.again = 0;
        let result = result as u64;
        match self.kind {
            OperationKind::Sync => Progress::Finished(Ok(())),
            OperationKind::Zero { length, .. } => match self.zero_way {
                ZeroWay::Sync => Progress::Finished(Ok(())),
                ZeroWay::PunchHole | ZeroWay::ZeroRange => self.zeroed(),
                ZeroWay::Write => {
                    if result == 0 {
                        return Progress::Finished(Err(io::ErrorKind::WriteZero.into()));
                    }
                    self.done += result;
                    if self.done < length { Progress::Again } else { Progress::Finished(Ok(())) }
                }
            },
            OperationKind::Write { .. } => {
                if result == 0 {
                    return Progress::Finished(Err(io::ErrorKind::WriteZero.into()));
                }
                self.skip(result);
                if self.done < self.buffers.len() { Progress::Again } else { Progress::Finished(Ok(())) }
            }
            OperationKind::Read { offset } => {
                self.skip(result);
                if self.done == self.buffers.len() {
                    return Progress::Finished(Ok(()));
                }
                // The end of the device: nothing more came, or less than a sector, which O_DIRECT could not continue.
                if result == 0 || !(offset + self.done).is_multiple_of(512) {
                    return Progress::Finished(self.zero_rest(offset + self.done));
                }
                Progress::Again
            }
        }
    }

    fn failed(&mut self, errno: i32) -> Progress {
        match errno {
            libc::EINTR => return Progress::Again,
            libc::EAGAIN if self.again < AGAIN_MAX => {
                self.again += 1;
                return Progress::Again;
            }
            libc::EOPNOTSUPP | libc::ENOSYS | libc::EINVAL | libc::ENODEV => {
                if let OperationKind::Zero { .. } = self.kind {
                    // EINVAL: a device that does not take this alignment or mode; ENODEV: fallocate on a file
                    // system without it. Writing zeros tells a real error from an unsupported call.
                    match self.zero_way {
                        ZeroWay::PunchHole => {
                            self.zero_way = ZeroWay::ZeroRange;
                            return Progress::Again;
                        }
                        ZeroWay::ZeroRange => {
                            self.zero_way = ZeroWay::Write;
                            return Progress::Again;
                        }
                        ZeroWay::Write | ZeroWay::Sync => {}
                    }
                }
            }
            _ => {} // an errno is an open set
        }
        Progress::Finished(Err(io::Error::from_raw_os_error(errno)))
    }

    /// The range was zeroed by the device; fallocate has no flag to make that durable at once.
    fn zeroed(&mut self) -> Progress {
        if self.file.stable_writes() {
            self.zero_way = ZeroWay::Sync;
            Progress::Again
        } else {
            Progress::Finished(Ok(()))
        }
    }

    /// Moves the iovecs past bytes that are done.
    fn skip(&mut self, bytes: u64) {
        self.done += bytes;
        let mut left = bytes as usize;
        while left > 0 {
            let piece = &mut self.buffers.iovecs[self.iovec];
            if piece.iov_len <= left {
                left -= piece.iov_len;
                self.iovec += 1;
            } else {
                // SAFETY: `left` is less than the piece's length, so the new base lies within the same piece.
                piece.iov_base = unsafe { piece.iov_base.cast::<u8>().add(left) }.cast();
                piece.iov_len -= left;
                left = 0;
            }
        }
    }

    /// Zeros the memory that lies past the end of the device; an early stop before the end is an error.
    fn zero_rest(&mut self, stopped_at: u64) -> io::Result<()> {
        let size = self.file.size()?;
        if stopped_at < size {
            return Err(io::Error::other(format!("the read stopped at byte {stopped_at} of {size}")));
        }
        for piece in &self.buffers.iovecs[self.iovec..] {
            // SAFETY: the iovec points to `iov_len` bytes that this operation keeps alive, and core lets nobody else
            // touch them until it is done.
            unsafe { std::ptr::write_bytes(piece.iov_base.cast::<u8>(), 0, piece.iov_len) };
        }
        Ok(())
    }

    /// Does the whole operation in this thread.
    pub(crate) fn run(&mut self) -> io::Result<()> {
        loop {
            let call = self.next_call();
            let result = self.make(call);
            match self.advance(result) {
                Progress::Again => {
                    if result == -i64::from(libc::EAGAIN) {
                        std::thread::sleep(std::time::Duration::from_millis(1));
                    }
                }
                Progress::Finished(result) => return result,
            }
        }
    }

    fn make(&self, call: Call) -> i64 {
        let fd = self.file.raw();
        let result = match call {
            Call::Read { iovecs, count, offset } => {
                // SAFETY: the iovecs point into memory that `self` owns or keeps alive.
                unsafe { libc::preadv64(fd, iovecs, count as i32, offset as i64) as i64 }
            }
            Call::Write { iovecs, count, offset, flags: 0 } => {
                // SAFETY: as above.
                unsafe { libc::pwritev64(fd, iovecs, count as i32, offset as i64) as i64 }
            }
            Call::Write { iovecs, count, offset, flags } => {
                // SAFETY: as above.
                unsafe { libc::pwritev2(fd, iovecs, count as i32, offset as i64, flags) as i64 }
            }
            Call::DataSync => {
                // SAFETY: no memory is involved.
                i64::from(unsafe { libc::fdatasync(fd) })
            }
            Call::Allocate { mode, offset, length } => {
                // SAFETY: no memory is involved.
                i64::from(unsafe { libc::fallocate64(fd, mode, offset as i64, length as i64) })
            }
        };
        if result < 0 { -i64::from(io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO)) } else { result }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arena::Arena;
    use forebay_core::types::FrameId;

    fn device(stable: bool) -> (tempfile::TempDir, Arc<DeviceFile>) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("device");
        let file = std::fs::File::options().read(true).write(true).create_new(true).open(&path).unwrap();
        file.set_len(64 << 20).unwrap();
        let file = DeviceFile::buffered(file, &path, "a test").unwrap();
        (folder, Arc::new(if stable { file.with_stable_writes() } else { file }))
    }

    fn pieces(arena: &Arena, frames: &[u32]) -> Buffers {
        let mut buffers = Buffers::none();
        for &frame in frames {
            buffers.push_frame(arena, FrameId(frame), 0, 4096);
        }
        buffers
    }

    fn shape(call: Call) -> (u64, usize, usize) {
        match call {
            Call::Read { iovecs, count, offset } | Call::Write { iovecs, count, offset, .. } => {
                // SAFETY: the iovecs belong to an operation that the test still holds.
                let length = unsafe { (0..count).map(|i| (*iovecs.add(i)).iov_len).sum() };
                (offset, count, length)
            }
            Call::DataSync | Call::Allocate { .. } => panic!("{call:?}"),
        }
    }

    #[test]
    fn a_short_write_goes_on_where_it_stopped() {
        let (_folder, file) = device(false);
        let arena = Arena::anonymous(8, false).unwrap();
        let mut write = Operation::new(file, OperationKind::Write { offset: 512 }, pieces(&arena, &[6, 4, 2]));
        assert_eq!(shape(write.next_call()), (512, 3, 12288));
        assert!(matches!(write.advance(4096 + 1024), Progress::Again));
        assert_eq!(shape(write.next_call()), (512 + 5120, 2, 7168));
        for errno in [libc::EINTR, libc::EAGAIN] {
            assert!(matches!(write.advance(-i64::from(errno)), Progress::Again));
            assert_eq!(shape(write.next_call()), (512 + 5120, 2, 7168));
        }
        assert!(matches!(write.advance(7168), Progress::Finished(Ok(()))));
    }

    #[test]
    fn a_write_that_takes_nothing_and_endless_eagain_are_errors() {
        let (_folder, file) = device(false);
        let arena = Arena::anonymous(1, false).unwrap();
        let write = || Operation::new(file.clone(), OperationKind::Write { offset: 0 }, pieces(&arena, &[0]));
        assert!(matches!(write().advance(0), Progress::Finished(Err(_))));
        let mut busy = write();
        let ended = (0..=AGAIN_MAX).find_map(|_| match busy.advance(-i64::from(libc::EAGAIN)) {
            Progress::Again => None,
            Progress::Finished(result) => Some(result),
        });
        assert_eq!(ended.unwrap().unwrap_err().raw_os_error(), Some(libc::EAGAIN));
    }

    #[test]
    fn a_read_that_stops_before_the_end_is_an_error_and_no_zeros() {
        let (_folder, file) = device(false);
        let mut arena = Arena::anonymous(1, false).unwrap();
        arena.bytes_mut(FrameId(0)).fill(0xee);
        let mut read = Operation::new(file, OperationKind::Read { offset: 0 }, pieces(&arena, &[0]));
        assert!(matches!(read.advance(512), Progress::Again));
        assert!(matches!(read.advance(0), Progress::Finished(Err(_))));
        assert!(arena.bytes(FrameId(0)).iter().all(|&b| b == 0xee));
    }

    #[test]
    fn zeros_step_down_from_hole_to_range_to_writing() {
        let (_folder, file) = device(true);
        let length = ZEROS_PER_CALL + 4096;
        let kind = OperationKind::Zero { offset: 8192, length, hole: true };
        let mut zero = Operation::new(file, kind, Buffers::none());
        let punch = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
        assert!(matches!(zero.next_call(), Call::Allocate { mode, offset: 8192, .. } if mode == punch));
        assert!(matches!(zero.advance(-i64::from(libc::EOPNOTSUPP)), Progress::Again));
        let range = libc::FALLOC_FL_ZERO_RANGE | libc::FALLOC_FL_KEEP_SIZE;
        assert!(matches!(zero.next_call(), Call::Allocate { mode, .. } if mode == range));
        assert!(matches!(zero.advance(-i64::from(libc::EOPNOTSUPP)), Progress::Again));
        let call = zero.next_call();
        assert!(matches!(call, Call::Write { flags: libc::RWF_DSYNC, .. }), "{call:?}");
        assert_eq!(shape(call), (8192, (ZEROS_PER_CALL as usize) / ZEROS_BYTES, ZEROS_PER_CALL as usize));
        assert!(matches!(zero.advance(ZEROS_PER_CALL as i64 - 512), Progress::Again));
        assert_eq!(shape(zero.next_call()), (8192 + ZEROS_PER_CALL - 512, 1, 4608));
        assert!(matches!(zero.advance(4608), Progress::Finished(Ok(()))));
    }

    #[test]
    fn a_real_error_of_a_hole_is_told_and_stable_zeros_are_synced() {
        let (_folder, file) = device(true);
        let kind = OperationKind::Zero { offset: 0, length: 4096, hole: false };
        let zero = || Operation::new(file.clone(), kind, Buffers::none());
        let Progress::Finished(Err(error)) = zero().advance(-i64::from(libc::ENOSPC)) else { panic!() };
        assert_eq!(error.raw_os_error(), Some(libc::ENOSPC));
        let mut stable = zero();
        assert!(matches!(stable.advance(0), Progress::Again));
        assert!(matches!(stable.next_call(), Call::DataSync));
        assert!(matches!(stable.advance(0), Progress::Finished(Ok(()))));
    }

    #[test]
    fn zeros_by_writing_leave_zeros() {
        let (_folder, file) = device(false);
        std::os::unix::fs::FileExt::write_all_at(file.file(), &[0xee; 65536], 0).unwrap();
        let kind = OperationKind::Zero { offset: 4096, length: 40960, hole: true };
        let mut zero = Operation::new(file.clone(), kind, Buffers::none());
        zero.zero_way = ZeroWay::Write;
        zero.run().unwrap();
        let bytes = std::fs::read(file.path()).unwrap();
        assert!(bytes[4096..45056].iter().all(|&b| b == 0));
        assert!(bytes[..4096].iter().chain(&bytes[45056..65536]).all(|&b| b == 0xee));
    }
}
