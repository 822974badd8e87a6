//! Buffers that outlive one read: input that cannot be processed yet, and requests kept for a retry.
//! In: bytes. Out: the same bytes, in order. Never: holds memory for an idle connection: an empty `Input`
//! has no buffer, and emptied buffers return to the worker's pool.
//! Limits: the pool keeps up to `POOLED_BUFFERS_MAX` buffers, none larger than `KEPT_BYTES_MAX`, and as many spare `Held`.

use tidegate_base::limits::{POOLED_BUFFERS_MAX, SMALL_BUFFER_BYTES};

/// The largest capacity of a buffer that the pool keeps.
const KEPT_BYTES_MAX: usize = 4 * SMALL_BUFFER_BYTES;

/// The worker's spare buffers.
#[derive(Default)]
pub(crate) struct BufferPool {
    /// Empty buffers with capacity. At most `POOLED_BUFFERS_MAX`.
    spare: Vec<Vec<u8>>,
    /// Spare shells of inputs, each without a buffer. At most `POOLED_BUFFERS_MAX`.
    #[expect(clippy::vec_box, reason = "an input takes the box itself, without an allocation")]
    shells: Vec<Box<Held>>,
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

/// Bytes that were received but not processed yet. A pointer, because every connection has an input and few hold bytes.
#[derive(Default)]
pub(crate) struct Input {
    /// `None` from `release` until the next `push`.
    held: Option<Box<Held>>,
}

const _: () = assert!(size_of::<Input>() <= 8);

/// The bytes of an input.
#[derive(Default)]
struct Held {
    bytes: Vec<u8>,
    /// Bytes before this index have been processed. Invariant: `start <= bytes.len()`.
    start: usize,
}

impl Input {
    pub(crate) fn len(&self) -> usize {
        self.as_slice().len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(crate) fn as_slice(&self) -> &[u8] {
        self.held.as_ref().map_or(&[], |held| &held.bytes[held.start..])
    }

    pub(crate) fn as_mut_slice(&mut self) -> &mut [u8] {
        self.held.as_mut().map_or(&mut [], |held| &mut held.bytes[held.start..])
    }

    /// Marks the first `count` bytes as processed.
    pub(crate) fn consume(&mut self, count: usize) {
        if let Some(held) = &mut self.held {
            held.start += count.min(held.bytes.len() - held.start);
        }
    }

    /// Appends `bytes`; takes a buffer from the pool if the input has none.
    pub(crate) fn push(&mut self, bytes: &[u8], pool: &mut BufferPool) {
        let held = self.held.get_or_insert_with(|| {
            let mut held = pool.shells.pop().unwrap_or_default();
            held.bytes = pool.take();
            held
        });
        held.bytes.drain(..core::mem::take(&mut held.start));
        held.bytes.extend_from_slice(bytes);
    }

    /// Returns the buffer to the pool and discards its contents.
    pub(crate) fn release(&mut self, pool: &mut BufferPool) {
        let Some(mut held) = self.held.take() else { return };
        pool.put(core::mem::take(&mut held.bytes));
        held.start = 0;
        if pool.shells.len() < POOLED_BUFFERS_MAX {
            pool.shells.push(held);
        }
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
        assert!(input.held.is_none(), "an idle connection holds no buffer");
        assert!(input.is_empty() && input.as_mut_slice().is_empty());
        input.push(b"f", &mut pool);
        assert_eq!(input.as_slice(), b"f", "the shell was used again");
        assert!(pool.spare.is_empty() && pool.shells.is_empty());
    }

    #[test]
    fn large_buffer_is_not_pooled() {
        let mut pool = BufferPool::default();
        pool.put(Vec::with_capacity(KEPT_BYTES_MAX + 1));
        assert!(pool.spare.is_empty());
    }
}
