//! Positions in the history of a channel: an epoch and an offset.
//! In: random numbers; text of clients. Out: positions, and their text. Never: compares offsets of different epochs.

/// The name of one life of a channel's history. Offsets of different epochs cannot be compared.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Epoch([u8; 8]);

/// A place in the history of a channel: after the publication with this offset.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Position {
    /// The life of the history.
    pub epoch: Epoch,
    /// The offset of the last publication before the place; 0 before the first one.
    pub offset: u64,
}

/// A position as a client states it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Since {
    /// The epoch; `None` if the client accepts any.
    pub epoch: Option<Epoch>,
    /// The offset of the last publication that the client has.
    pub offset: u64,
}

impl Epoch {
    /// An epoch that is made from random bits.
    #[must_use]
    pub fn from_random(random: u64) -> Self {
        let mut letters = [0; 8];
        for (letter, byte) in letters.iter_mut().zip(random.to_le_bytes()) {
            *letter = b'a' + byte % 26;
        }
        Self(letters)
    }

    /// The epoch of this text; `None` if the text is not an epoch of this program.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let letters: [u8; 8] = text.as_bytes().try_into().ok()?;
        letters.iter().all(u8::is_ascii_lowercase).then_some(Self(letters))
    }

    /// The text of the epoch.
    #[must_use]
    pub fn as_str(&self) -> &str {
        // The letters are ASCII.
        core::str::from_utf8(&self.0).unwrap_or_default()
    }
}

/// An epoch that no history has. It replaces an epoch of a client that is malformed.
const UNKNOWN_EPOCH: Epoch = Epoch([0; 8]);

impl Since {
    /// The position that a client states. An empty epoch accepts any.
    #[must_use]
    pub fn new(epoch: &str, offset: u64) -> Self {
        let epoch = match epoch {
            "" => None,
            text => Some(Epoch::parse(text).unwrap_or(UNKNOWN_EPOCH)),
        };
        Self { epoch, offset }
    }

    /// Parses `EPOCH:OFFSET`, the id of an event.
    #[must_use]
    pub fn parse_id(text: &str) -> Option<Self> {
        let (epoch, offset) = text.split_once(':')?;
        Some(Self::new(epoch, offset.parse().ok()?))
    }
}

impl Position {
    /// Appends `EPOCH:OFFSET`, the id of an event.
    pub fn encode_id(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.epoch.0);
        out.push(b':');
        out.extend_from_slice(itoa::Buffer::new().format(self.offset).as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_of_events_survive_a_round_trip() {
        let position = Position { epoch: Epoch::from_random(12345), offset: 77 };
        let mut id = Vec::new();
        position.encode_id(&mut id);
        let text = core::str::from_utf8(&id).expect("ASCII");
        let since = Since::parse_id(text).expect("an id");
        assert_eq!(since, Since { epoch: Some(position.epoch), offset: 77 });
        assert_eq!(Since::parse_id(":5"), Some(Since { epoch: None, offset: 5 }));
        for wrong in ["", "abc", "abcdefgh", "abcdefgh:", "abcdefgh:-1", "abcdefgh:1:2"] {
            assert_eq!(Since::parse_id(wrong), None, "{wrong}");
        }
        let foreign = Since::parse_id("ABC:1").expect("a position");
        assert!(foreign.epoch.is_some_and(|epoch| Epoch::parse(epoch.as_str()).is_none()));
    }
}
