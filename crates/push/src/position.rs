//! Positions in the history of a channel: an epoch and an offset.
//! In: random numbers, nodes; text of clients. Out: positions, and their text. Never: compares offsets of different epochs.

use crate::node::NodeId;

/// The name of one life of a channel's history, which a node keeps. Offsets of different epochs cannot be compared.
///
/// Its text is eight letters, for node 0, or these, a hyphen and the number of the node in decimal: `abcdefgh-12`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Epoch {
    /// The text; the rest is zero.
    text: [u8; EPOCH_BYTES_MAX],
    /// How many bytes the text has.
    length: u8,
}

/// The letters of an epoch.
const LETTERS: usize = 8;
/// Maximum size in bytes of the text of an epoch: letters, hyphen, and a number of 16 bits.
const EPOCH_BYTES_MAX: usize = LETTERS + "-65535".len();

/// A place in the history of a channel: after the publication with this offset.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Position {
    /// The life of the history.
    pub epoch: Epoch,
    /// The offset of the last publication before the place; 0 before the first one.
    pub offset: u64,
}

/// A position as a client sends it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Since {
    /// The epoch; `None` if the client accepts any.
    pub epoch: Option<Epoch>,
    /// The offset of the last publication that the client has.
    pub offset: u64,
}

impl Epoch {
    /// An epoch of this process that is made from random bits.
    #[must_use]
    pub fn from_random(random: u64) -> Self {
        Self::of_node(NodeId::OWN, random)
    }

    /// An epoch of a node that is made from random bits.
    #[must_use]
    pub fn of_node(node: NodeId, random: u64) -> Self {
        let mut letters = [0; LETTERS];
        for (letter, byte) in letters.iter_mut().zip(random.to_le_bytes()) {
            *letter = b'a' + byte % 26;
        }
        Self::new(letters, node)
    }

    fn new(letters: [u8; LETTERS], node: NodeId) -> Self {
        let mut text = [0; EPOCH_BYTES_MAX];
        text[..LETTERS].copy_from_slice(&letters);
        let mut length = LETTERS;
        if node != NodeId::OWN {
            let mut number = itoa::Buffer::new();
            for byte in core::iter::once(b'-').chain(number.format(node.0).bytes()) {
                text[length] = byte;
                length += 1;
            }
        }
        Self { text, length: length as u8 }
    }

    /// The epoch of this text; `None` if the text is not an epoch of this program.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (letters, node) = match text.split_once('-') {
            Some((letters, number)) => (letters, NodeId(number.parse().ok()?)),
            None => (text, NodeId::OWN),
        };
        let letters: [u8; LETTERS] = letters.as_bytes().try_into().ok()?;
        let epoch = Self::new(letters, node);
        // A number has one form: without zeros before it, and none for this process.
        (letters.iter().all(u8::is_ascii_lowercase) && epoch.as_str() == text).then_some(epoch)
    }

    /// The text of the epoch.
    #[must_use]
    pub fn as_str(&self) -> &str {
        // The text is ASCII.
        let text = self.text.get(..usize::from(self.length)).unwrap_or_default();
        core::str::from_utf8(text).unwrap_or_default()
    }

    /// The node that keeps the history.
    #[must_use]
    pub fn node(&self) -> NodeId {
        let number = self.as_str().split_once('-').and_then(|(_, number)| number.parse().ok());
        number.map_or(NodeId::OWN, NodeId)
    }
}

/// An epoch that no history has. It replaces an epoch of a client that is malformed.
const UNKNOWN_EPOCH: Epoch = Epoch { text: [0; EPOCH_BYTES_MAX], length: 0 };

impl Since {
    /// A position that no history has: what its client has missed is not known.
    pub const UNKNOWN: Self = Self { epoch: Some(UNKNOWN_EPOCH), offset: 0 };

    /// The position that a client sends. An empty epoch accepts any.
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
        out.extend_from_slice(self.epoch.as_str().as_bytes());
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

    #[test]
    fn epochs_name_the_node_of_their_history() {
        for (node, end) in [(0, ""), (7, "-7"), (65_535, "-65535")] {
            let epoch = Epoch::of_node(NodeId(node), 12345);
            assert_eq!(epoch.as_str(), format!("{}{end}", &epoch.as_str()[..8]));
            assert_eq!((Epoch::parse(epoch.as_str()), epoch.node()), (Some(epoch), NodeId(node)));
            let position = Position { epoch, offset: 3 };
            let mut id = Vec::new();
            position.encode_id(&mut id);
            let since = core::str::from_utf8(&id).ok().and_then(Since::parse_id);
            assert_eq!(since, Some(Since { epoch: Some(epoch), offset: 3 }));
        }
        assert_ne!(
            Epoch::of_node(NodeId(1), 5),
            Epoch::of_node(NodeId(2), 5),
            "lives of other nodes"
        );
        for wrong in
            ["abcdefgh-", "abcdefgh-0", "abcdefgh-07", "abcdefgh--1", "abcdefgh-65536", "abc-1"]
        {
            assert_eq!(Epoch::parse(wrong), None, "{wrong}");
        }
    }
}
