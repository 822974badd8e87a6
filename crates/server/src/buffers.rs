//! Buffers that outlive one read: what a peer sent before it can be used, what may be sent again.
//! In: bytes. Out: the same bytes, in order. Never: grows on an idle connection: an empty `Input`
//! holds no memory, and emptied buffers go back to the worker's pool.
//! Limits: `POOLED_BUFFERS_MAX` buffers are kept, none above `KEPT_BYTES_MAX`.

use tidegate_base::limits::{POOLED_BUFFERS_MAX, SMALL_BUFFER_BYTES};

const KEPT_BYTES_MAX: usize = 4 * SMALL_BUFFER_BYTES;

/// The worker's spare buffers.
#[derive(Default)]
pub(crate) struct BufferPool {
    spare: Vec<Vec<u8>>,
}

impl BufferPool {
    /// An empty buffer, with room when one was spare.
    pub(crate) fn take(&mut self) -> Vec<u8> {
        self.spare.pop().unwrap_or_else(|| Vec::with_capacity(SMALL_BUFFER_BYTES))
    }

    /// Gives a buffer back.
    pub(crate) fn put(&mut self, mut buffer: Vec<u8>) {
        let capacity = buffer.capacity();
        if capacity == 0 || capacity > KEPT_BYTES_MAX || self.spare.len() >= POOLED_BUFFERS_MAX {
            return;
        }
        buffer.clear();
        self.spare.push(buffer);
    }
}

/// Bytes received but not used yet.
#[derive(Default)]
pub(crate) struct Input {
    bytes: Vec<u8>,
    /// INVARIANT: start <= bytes.len(); bytes before it are used up.
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

    /// Marks the first `count` bytes as used.
    pub(crate) fn consume(&mut self, count: usize) {
        self.start += count.min(self.len()) as u32;
    }

    /// Appends `bytes`, in a buffer of the pool's when it held none.
    pub(crate) fn push(&mut self, bytes: &[u8], pool: &mut BufferPool) {
        if self.bytes.capacity() == 0 {
            self.bytes = pool.take();
        } else if self.start > 0 {
            self.bytes.drain(..self.start as usize);
            self.start = 0;
        }
        self.bytes.extend_from_slice(bytes);
    }

    /// Gives the buffer back to the pool, with whatever is in it.
    pub(crate) fn release(&mut self, pool: &mut BufferPool) {
        self.start = 0;
        pool.put(core::mem::take(&mut self.bytes));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_input_gives_back_what_was_pushed_in_order() {
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
    fn a_buffer_that_grew_large_is_not_kept() {
        let mut pool = BufferPool::default();
        pool.put(Vec::with_capacity(KEPT_BYTES_MAX + 1));
        assert!(pool.spare.is_empty());
    }
}
