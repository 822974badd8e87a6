//! Pending outputs: one buffer for each connection that has bytes to send, none for the others.
//! In: a connection takes a place with its first byte. Out: it gives the place back after its last byte.
//! Limits: `POOLED_BUFFERS_MAX` buffers are kept for reuse, `LARGE_POOLED_MAX` of them larger than 16 KiB.
//! Invariant: `sent <= bytes.len()`; a free place holds an empty buffer.

use tidegate_base::limits::{POOLED_BUFFERS_MAX, SMALL_BUFFER_BYTES};

/// A buffer with more capacity than this counts as large.
const LARGE_BUFFER_BYTES: usize = 4 * SMALL_BUFFER_BYTES;
/// Large buffers kept for reuse. The limit prevents a burst of long responses from occupying memory forever.
const LARGE_POOLED_MAX: usize = 16;
/// Sent bytes are removed from the front of a buffer once there are this many and they make up half of it.
const COMPACT_BYTES_MIN: usize = 16 * 1024;

/// The pending output of one connection.
pub(super) struct Output {
    pub(super) bytes: Vec<u8>,
    /// Bytes at the front that were already sent.
    sent: usize,
}

impl Output {
    /// The bytes that are not sent yet.
    pub(super) fn pending(&self) -> &[u8] {
        &self.bytes[self.sent.min(self.bytes.len())..]
    }

    /// Records that `count` pending bytes were sent.
    pub(super) fn consume(&mut self, count: usize) {
        self.sent += count;
        if self.sent >= self.bytes.len() {
            self.bytes.clear();
            self.sent = 0;
        } else if self.sent >= COMPACT_BYTES_MIN && self.sent * 2 >= self.bytes.len() {
            self.bytes.drain(..self.sent);
            self.sent = 0;
        }
    }
}

#[derive(Default)]
pub(super) struct Outputs {
    /// The outputs, indexed by place.
    outputs: Vec<Output>,
    /// Free places that own a buffer.
    warm: Vec<u32>,
    /// Free places without a buffer.
    cold: Vec<u32>,
    /// Places in `warm` whose buffer is large; at most `LARGE_POOLED_MAX`.
    large_pooled: usize,
}

impl Outputs {
    /// Takes a place that holds an empty buffer.
    pub(super) fn take(&mut self) -> u32 {
        if let Some(place) = self.warm.pop() {
            if self.at(place).bytes.capacity() > LARGE_BUFFER_BYTES {
                self.large_pooled -= 1;
            }
            return place;
        }
        let output = Output { bytes: Vec::with_capacity(SMALL_BUFFER_BYTES), sent: 0 };
        if let Some(place) = self.cold.pop() {
            *self.at(place) = output;
            return place;
        }
        self.outputs.push(output);
        (self.outputs.len() - 1) as u32
    }

    /// Gives a place back and discards its remaining bytes.
    pub(super) fn give_back(&mut self, place: u32) {
        let output = &mut self.outputs[place as usize];
        output.bytes.clear();
        output.sent = 0;
        let is_large = output.bytes.capacity() > LARGE_BUFFER_BYTES;
        if self.warm.len() >= POOLED_BUFFERS_MAX
            || (is_large && self.large_pooled >= LARGE_POOLED_MAX)
        {
            output.bytes = Vec::new();
            self.cold.push(place);
            return;
        }
        self.large_pooled += usize::from(is_large);
        self.warm.push(place);
    }

    pub(super) fn at(&mut self, place: u32) -> &mut Output {
        &mut self.outputs[place as usize]
    }

    /// The number of pending bytes at `place`; 0 if there is no such place.
    pub(super) fn pending_bytes(&self, place: u32) -> usize {
        self.outputs.get(place as usize).map_or(0, |output| output.pending().len())
    }

    /// The number of taken places.
    pub(super) fn taken(&self) -> usize {
        self.outputs.len() - self.warm.len() - self.cold.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Goal: an output behaves like a queue of bytes. Method: random appends and partial sends, compared
        /// with a queue.
        #[test]
        fn output_is_a_byte_queue(steps in prop::collection::vec((0_usize..40_000, any::<u16>()), 1..40)) {
            let mut outputs = Outputs::default();
            let place = outputs.take();
            let mut model = std::collections::VecDeque::new();
            for (append, share) in steps {
                let bytes: Vec<u8> = (0..append).map(|n| (n as u16 ^ share) as u8).collect();
                let output = outputs.at(place);
                output.bytes.extend_from_slice(&bytes);
                model.extend(bytes);
                let send = model.len() * usize::from(share) / usize::from(u16::MAX);
                prop_assert_eq!(&output.pending()[..send], &model.make_contiguous()[..send]);
                output.consume(send);
                model.drain(..send);
                prop_assert_eq!(outputs.pending_bytes(place), model.len());
                prop_assert!(outputs.at(place).bytes.len() <= 2 * model.len() + COMPACT_BYTES_MIN);
            }
        }
    }

    #[test]
    fn returned_place_is_empty_and_excess_large_buffers_are_freed() {
        let mut outputs = Outputs::default();
        let places: Vec<u32> = (0..LARGE_POOLED_MAX + 3).map(|_| outputs.take()).collect();
        for &place in &places {
            outputs.at(place).bytes.resize(LARGE_BUFFER_BYTES + 1, 7);
            outputs.at(place).consume(1);
        }
        for &place in &places {
            outputs.give_back(place);
        }
        assert_eq!((outputs.taken(), outputs.warm.len()), (0, LARGE_POOLED_MAX));
        let place = outputs.take();
        assert!(outputs.at(place).pending().is_empty());
        assert_eq!(outputs.large_pooled, LARGE_POOLED_MAX - 1);
    }

    #[test]
    fn sent_bytes_are_compacted() {
        let mut outputs = Outputs::default();
        let place = outputs.take();
        let output = outputs.at(place);
        output.bytes.extend((0..40_000_u32).map(|n| n as u8));
        output.consume(10_000);
        assert_eq!(
            output.bytes.len(),
            40_000,
            "compacted although moving the rest costs more than it frees"
        );
        output.consume(10_000);
        assert_eq!((output.bytes.len(), output.pending()[0]), (20_000, 20_000_u32 as u8));
        output.consume(20_000);
        assert!(output.bytes.is_empty());
    }
}
