//! The names of clients of the client protocol: UUIDs (RFC 9562).
//! In: random bits; text of requests. Out: names, and their text.
//! Invariant: a name takes 16 bytes and no memory elsewhere, because there may be a million clients.

use core::fmt;
use core::ops::Deref;

/// The length of the text of a name.
const TEXT_BYTES: usize = 36;
/// Where the text has hyphens.
const HYPHENS: [usize; 4] = [8, 13, 18, 23];

/// The name of a client, which other clients see.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct ClientName([u8; 16]);

/// The text of a name.
#[derive(Clone, Copy)]
pub struct NameText([u8; TEXT_BYTES]);

impl ClientName {
    /// The name before all others.
    pub const FIRST: Self = Self([0; 16]);

    /// A name in the form of a version 4 UUID that is made from random bits.
    #[must_use]
    pub fn from_random([high, low]: [u64; 2]) -> Self {
        let version = high & !0xf000 | 0x4000;
        let variant = low & (u64::MAX >> 2) | 1 << 63;
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&version.to_be_bytes());
        bytes[8..].copy_from_slice(&variant.to_be_bytes());
        Self(bytes)
    }

    /// The name of this text; `None` if no client has such a name.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let digits = text.bytes().filter(|byte| *byte != b'-');
        let mut bytes = [0; 16];
        for (at, digit) in digits.take(32).enumerate() {
            let value = char::from(digit).to_digit(16)? as u8;
            bytes[at / 2] = bytes[at / 2] << 4 | value;
        }
        let name = Self(bytes);
        // A name has one text.
        (*name.text() == *text).then_some(name)
    }

    /// The text of the name.
    #[must_use]
    pub fn text(&self) -> NameText {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let mut text = [b'-'; TEXT_BYTES];
        let digits = self.0.iter().flat_map(|byte| [byte >> 4, byte & 0xf]);
        let places = (0..TEXT_BYTES).filter(|at| !HYPHENS.contains(at));
        for (at, digit) in places.zip(digits) {
            text[at] = DIGITS[usize::from(digit)];
        }
        NameText(text)
    }
}

impl Deref for NameText {
    type Target = str;

    fn deref(&self) -> &str {
        // The text is ASCII.
        core::str::from_utf8(&self.0).unwrap_or_default()
    }
}

impl fmt::Debug for NameText {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self, out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_survive_a_round_trip_and_have_the_form_of_a_uuid() {
        for (random, expected) in [
            ([0, 0], "00000000-0000-4000-8000-000000000000"),
            ([u64::MAX; 2], "ffffffff-ffff-4fff-bfff-ffffffffffff"),
            (
                [0x0123_4567_89ab_cdef, 0xfedc_ba98_7654_3210],
                "01234567-89ab-4def-bedc-ba9876543210",
            ),
        ] {
            let name = ClientName::from_random(random);
            assert_eq!(&*name.text(), expected);
            assert_eq!(ClientName::parse(expected), Some(name));
            let upper = expected.to_uppercase();
            let wrong = [&expected[1..], &expected.replace('-', ""), "", "c1"];
            assert!(wrong.iter().all(|text| ClientName::parse(text).is_none()));
            assert!(upper == expected || ClientName::parse(&upper).is_none());
            assert_eq!(ClientName::parse(&format!("{expected}0")), None);
        }
    }
}
