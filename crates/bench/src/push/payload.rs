//! The published messages: JSON of a fixed size that contains the number of the publication.
//! In: the number of a publication, received messages. Out: the data to publish, the number in a message.
//! Never: takes a message of another run for one of this run, except with a probability of 1 in `TAGS`.
//! Limits: `SIZE_MIN` to `SIZE_MAX` bytes; `NUMBER_MAX` publications.
//! Invariant: `decode` finds the number of a publication in the message, even if a server wraps the data in its own JSON.
//!
//! The publish time is not in the message: 13 bytes would round it to milliseconds. The client keeps it with
//! nanoseconds under the number.

use memchr::memmem;

/// Bytes of the shortest message, as in the C1000K test: a JSON number of 13 digits.
pub const SIZE_MIN: usize = DIGITS;
/// Bytes of the longest message.
pub const SIZE_MAX: usize = 64 * 1024;
/// The highest number of a publication.
pub const NUMBER_MAX: u32 = 999_999_999;
/// How many tags there are: runs with different tags do not count each other's messages.
pub const TAGS: u16 = 1000;

/// Digits of the mark at the start.
const MARK_DIGITS: usize = 4;
/// Digits of the mark and the number.
const DIGITS: usize = 13;

/// The messages of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Payload {
    /// The digits that each message of the run begins with.
    mark: [u8; MARK_DIGITS],
    /// Bytes of each message.
    size: usize,
}

impl Payload {
    /// Messages of `size` bytes with the tag `tag` (below `TAGS`).
    ///
    /// # Errors
    /// A message for the operator if the size is not possible.
    pub fn new(size: usize, tag: u16) -> Result<Self, String> {
        // A longer message is a JSON string, whose quotes take two bytes.
        if size != SIZE_MIN && !(SIZE_MIN + 2..=SIZE_MAX).contains(&size) {
            return Err(format!(
                "a message cannot have {size} bytes; allowed: {SIZE_MIN}, and {} to {SIZE_MAX}",
                SIZE_MIN + 2
            ));
        }
        let mut mark = [b'1'; MARK_DIGITS];
        mark[1..].copy_from_slice(format!("{:03}", tag % TAGS).as_bytes());
        Ok(Self { mark, size })
    }

    /// Bytes of each message.
    #[must_use]
    pub const fn size(&self) -> usize {
        self.size
    }

    /// The JSON data of publication `number`.
    #[must_use]
    pub fn encode(&self, number: u32) -> String {
        let mut digits: String = self.mark.iter().map(|digit| char::from(*digit)).collect();
        digits.push_str(&format!("{:09}", number.min(NUMBER_MAX)));
        if self.size == SIZE_MIN {
            return digits;
        }
        format!("\"{digits:x<width$}\"", width = self.size - 2)
    }

    /// The number in a received message; `None` if the message is not of this run.
    #[must_use]
    pub fn decode(&self, message: &[u8]) -> Option<u32> {
        let at =
            if message.starts_with(&self.mark) { 0 } else { memmem::find(message, &self.mark)? };
        let digits = message.get(at + MARK_DIGITS..at + DIGITS)?;
        digits.iter().try_fold(0_u32, |number, digit| {
            digit.is_ascii_digit().then(|| number * 10 + u32::from(digit - b'0'))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn number_is_found_in_messages_of_every_size() {
        for size in [13, 15, 16, 512, SIZE_MAX] {
            let payload = Payload::new(size, 42).unwrap();
            for number in [0, 7, 123_456_789, NUMBER_MAX] {
                let data = payload.encode(number);
                assert_eq!(data.len(), size);
                assert!(serde_json::from_str::<serde_json::Value>(&data).is_ok(), "{data}");
                assert_eq!(payload.decode(data.as_bytes()), Some(number));
                let wrapped = format!("{{\"push\":{{\"offset\":1,\"data\":{data}}}}}");
                assert_eq!(payload.decode(wrapped.as_bytes()), Some(number));
            }
        }
        assert_eq!(Payload::new(13, 42).unwrap().encode(5), "1042000000005");
    }

    #[test]
    fn messages_of_other_runs_and_other_sizes_are_refused() {
        let payload = Payload::new(13, 42).unwrap();
        for text in ["", "1042", "104200000000", "10420000x0005", "1043000000005", "hello"] {
            assert_eq!(payload.decode(text.as_bytes()), None, "{text}");
        }
        for size in [0, 12, 14, SIZE_MAX + 1] {
            assert!(Payload::new(size, 0).is_err(), "{size}");
        }
    }
}
