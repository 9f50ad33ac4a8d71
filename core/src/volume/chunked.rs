//! A table of fixed length whose memory appears in chunks when first used: a 16 GiB tier that is nearly empty costs
//! nearly nothing. Chunks are never given back, so after warm-up nothing is allocated.

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;

const CHUNK: usize = 1024;

/// See the module.
pub struct Chunked<T> {
    chunks: Vec<Option<Box<[T]>>>,
    empty: T,
    len: usize,
}

impl<T: Copy> Chunked<T> {
    /// A table of `len` entries, each `empty` until written.
    pub fn new(len: usize, empty: T) -> Chunked<T> {
        let mut chunks = Vec::new();
        chunks.resize_with(len.div_ceil(CHUNK), || None);
        Chunked { chunks, empty, len }
    }

    /// Chunks that have memory.
    #[cfg(test)]
    pub fn chunks_used(&self) -> usize {
        self.chunks.iter().flatten().count()
    }

    /// Reads an entry.
    pub fn get(&self, index: u32) -> &T {
        assert!((index as usize) < self.len);
        match &self.chunks[index as usize / CHUNK] {
            Some(chunk) => &chunk[index as usize % CHUNK],
            None => &self.empty,
        }
    }

    /// An entry to be changed.
    pub fn get_mut(&mut self, index: u32) -> &mut T {
        assert!((index as usize) < self.len);
        let empty = self.empty;
        let chunk = self.chunks[index as usize / CHUNK].get_or_insert_with(|| vec![empty; CHUNK].into_boxed_slice());
        &mut chunk[index as usize % CHUNK]
    }
}
