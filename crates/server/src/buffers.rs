//! Buffers that outlive one read: input that cannot be processed yet, and requests kept for a retry.
//! In: bytes. Out: the same bytes, in order. Never: holds memory for an idle connection: an empty `Input`
//! has no buffer, and emptied buffers return to the worker's pool.
//! Limits: the pool keeps up to `POOLED_BUFFERS_MAX` buffers, none larger than `KEPT_BYTES_MAX`.

use tidegate_base::limits::{POOLED_BUFFERS_MAX, SMALL_BUFFER_BYTES};

/// The largest capacity of a buffer that the pool keeps.
const KEPT_BYTES_MAX: usize = 4 * SMALL_BUFFER_BYTES;

/// The worker's spare buffers.
#[derive(Default)]
pub(crate) struct BufferPool {
    /// Empty buffers with capacity. At most `POOLED_BUFFERS_MAX`.
    spare: Vec<Vec<u8>>,
}

impl BufferPool {
    /// Returns an empty buffer, from the pool if it has one.
    pub(crate) fn take(&mut self) -> Vec<u8> {
        self.spare.pop().unwrap_or_else(|| Vec::with_capacity(SMALL_BUFFER_BYTES))
    }

    /// Returns a buffer to the pool; frees it if it is too large or the pool is full.
    pub(crate) fn put(&mut self, mut buffer: Vec<u8>) {
        let capacity = buffer.capacity();
        if capacity == 0 || capacity > KEPT_BYTES_MAX || self.spare.len() >= POOLED_BUFFERS_MAX {
            return;
        }
        buffer.clear();
        self.spare.push(buffer);
    }
}

/// Bytes that were received but not processed yet.
#[derive(Default)]
pub(crate) struct Input {
    /// The buffer. It has no capacity while the input is empty.
    bytes: Vec<u8>,
    /// Bytes before this index have been processed. Invariant: `start <= bytes.len()`.
    start: u32,
}

impl Input {
    pub(crate) fn len(&self) -> usize {
        self.bytes.len() - self.start as usize
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(crate) fn as_slice(&self) -> &[u8] {
        &self.bytes[self.start as usize..]
    }

    pub(crate) fn as_mut_slice(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start as usize..]
    }

    /// Marks the first `count` bytes as processed.
    pub(crate) fn consume(&mut self, count: usize) {
        self.start += count.min(self.len()) as u32;
    }

    /// Appends `bytes`; takes a buffer from the pool if the input has none.
    pub(crate) fn push(&mut self, bytes: &[u8], pool: &mut BufferPool) {
        if self.bytes.capacity() == 0 {
            self.bytes = pool.take();
        } else if self.start > 0 {
            self.bytes.drain(..self.start as usize);
            self.start = 0;
        }
        self.bytes.extend_from_slice(bytes);
    }

    /// Returns the buffer to the pool and discards its contents.
    pub(crate) fn release(&mut self, pool: &mut BufferPool) {
        self.start = 0;
        pool.put(core::mem::take(&mut self.bytes));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn input_returns_bytes_in_order() {
        let mut pool = BufferPool::default();
        let mut input = Input::default();
        input.push(b"abc", &mut pool);
        input.consume(2);
        input.push(b"de", &mut pool);
        assert_eq!(input.as_slice(), b"cde");
        input.consume(99);
        assert!(input.is_empty());
        input.release(&mut pool);
        assert_eq!(pool.spare.len(), 1);
        assert_eq!(input.bytes.capacity(), 0, "an idle connection holds no buffer");
    }

    #[test]
    fn large_buffer_is_not_pooled() {
        let mut pool = BufferPool::default();
        pool.put(Vec::with_capacity(KEPT_BYTES_MAX + 1));
        assert!(pool.spare.is_empty());
    }
}
