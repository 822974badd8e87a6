//! A list of numbered places that grows without copying: the subscribers of a channel, of which there may be millions.
//! In: values. Out: the values by place. Never: moves a value.
//! Limits: after its first chunk, a list has allocated room for at most `CHUNK - 1` values more than it holds.
//! Invariant: all chunks but the last one are full.

/// How many places a chunk has.
const CHUNK: usize = 1024;

/// A list of places.
#[derive(Debug)]
pub(crate) struct ChunkedList<T> {
    /// The places, in chunks of `CHUNK`.
    chunks: Vec<Vec<T>>,
}

impl<T> ChunkedList<T> {
    /// No places.
    pub(crate) const fn new() -> Self {
        Self { chunks: Vec::new() }
    }

    /// The number of places.
    pub(crate) fn len(&self) -> usize {
        self.chunks.last().map_or(0, |last| (self.chunks.len() - 1) * CHUNK + last.len())
    }

    /// Appends a place.
    pub(crate) fn push(&mut self, value: T) {
        match self.chunks.last_mut() {
            Some(last) if last.len() < CHUNK => last.push(value),
            // The first chunk grows with its channel: most channels are small.
            None => self.chunks.push(vec![value]),
            Some(_) => {
                let mut chunk = Vec::with_capacity(CHUNK);
                chunk.push(value);
                self.chunks.push(chunk);
            }
        }
    }

    /// Removes the last place.
    pub(crate) fn pop(&mut self) -> Option<T> {
        let last = self.chunks.last_mut()?;
        let value = last.pop();
        if last.is_empty() {
            self.chunks.pop();
        }
        value
    }

    /// The value at a place.
    pub(crate) fn get(&self, at: usize) -> Option<&T> {
        self.chunks.get(at / CHUNK)?.get(at % CHUNK)
    }

    /// The value at a place, mutably.
    pub(crate) fn get_mut(&mut self, at: usize) -> Option<&mut T> {
        self.chunks.get_mut(at / CHUNK)?.get_mut(at % CHUNK)
    }

    /// The last value.
    pub(crate) fn last(&self) -> Option<&T> {
        self.chunks.last()?.last()
    }

    /// The values from a place on.
    pub(crate) fn iter_from(&self, at: usize) -> impl Iterator<Item = &T> {
        let mut chunks = self.chunks.iter().skip(at / CHUNK);
        let first = chunks.next().and_then(|chunk| chunk.get(at % CHUNK..)).unwrap_or_default();
        first.iter().chain(chunks.flatten())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_behave_like_a_vec_across_chunks() {
        let mut places = ChunkedList::new();
        assert_eq!((places.len(), places.pop(), places.last()), (0, None, None));
        let all: Vec<usize> = (0..2 * CHUNK + 5).collect();
        all.iter().for_each(|value| places.push(*value));
        assert_eq!((places.len(), places.last()), (all.len(), all.last()));
        for from in [0, 1, CHUNK - 1, CHUNK, CHUNK + 1, 2 * CHUNK, all.len() - 1, all.len(), 9999] {
            assert!(places.iter_from(from).eq(all.get(from..).unwrap_or_default()), "from {from}");
            assert_eq!(places.get(from), all.get(from));
        }
        *places.get_mut(CHUNK).unwrap() = 7;
        assert_eq!(places.get(CHUNK), Some(&7));
        for length in (0..all.len()).rev() {
            assert!(places.pop().is_some());
            assert_eq!(places.len(), length);
        }
        assert_eq!(places.pop(), None);
    }
}
