//! The PROXY protocol, versions 1 and 2: the line or block that says whom a connection is made for.
//! In: a connection's first bytes, all of them so far. Out: a borrowed [`Header`] and its length, more
//! bytes wanted, or a `Fault`; and the reverse.
//! Never: guesses: what does not begin as a header must is refused at its first wrong byte.
//! Limits: `TEXT_BYTES_MAX` for version 1, `BINARY_BYTES_MAX` for version 2.
//! Invariant: what is encoded decodes to the same; the split of the input changes nothing.
//!
//! The specification is HAProxy's `proxy-protocol.txt` (2.x), sections 2.1 and 2.2.

mod binary;
mod checksum;
mod extension;
mod text;

use core::net::SocketAddr;

pub use binary::{BINARY_BYTES_MAX, encode_binary};
pub use extension::{Extension, Extensions, Tls};
pub use text::{TEXT_BYTES_MAX, encode_text};

/// Bytes of a path of a unix socket's address (section 2.2); shorter ones are filled up with zeros.
pub const UNIX_PATH_BYTES: usize = 108;

/// Which form a header has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Version {
    /// A line of text.
    V1,
    /// A block of bytes.
    V2,
}

/// What the relayed connection is made of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Transport {
    /// TCP, or a unix stream.
    Stream,
    /// UDP, or unix datagrams.
    Datagram,
}

/// Whom a connection is made for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Endpoints<'a> {
    /// The proxy itself, for a health check: the connection's own addresses are the true ones.
    Local,
    /// Somebody whose addresses the sender does not know or cannot say: the connection's own stand.
    Unknown,
    /// A client by IP; both addresses are of one version.
    Ip {
        /// The client.
        source: SocketAddr,
        /// Where it connected to.
        destination: SocketAddr,
        /// How.
        transport: Transport,
    },
    /// A client by unix socket.
    Unix {
        /// Its path, as it came.
        source: &'a [u8; UNIX_PATH_BYTES],
        /// The path it connected to, as it came.
        destination: &'a [u8; UNIX_PATH_BYTES],
        /// How.
        transport: Transport,
    },
}

/// A decoded header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header<'a> {
    /// Which form it had.
    pub version: Version,
    /// Whom the connection is made for.
    pub endpoints: Endpoints<'a>,
    /// What else is said of it; version 1 says nothing else.
    pub extensions: Extensions<'a>,
}

/// Why bytes are no header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// They begin otherwise than a header does.
    NoHeader,
    /// A line that is not made as section 2.1 says.
    TextMalformed,
    /// A line whose end has not come within `TEXT_BYTES_MAX`.
    TextTooLong,
    /// A block of another version than 2.
    VersionUnknown,
    /// A block whose command is neither LOCAL nor PROXY.
    CommandUnknown,
    /// A block whose address family or transport is unassigned.
    FamilyUnknown,
    /// A block that is too short for its addresses.
    TooShort,
    /// A block that is longer than `BINARY_BYTES_MAX`.
    TooLong,
    /// An extension that does not fill its place.
    ExtensionMalformed,
    /// A checksum that does not agree with the bytes.
    ChecksumWrong,
}

impl Fault {
    /// What is wrong, for a log.
    #[must_use]
    pub const fn text(self) -> &'static str {
        match self {
            Self::NoHeader => "there is no PROXY header",
            Self::TextMalformed => "the PROXY line is malformed",
            Self::TextTooLong => "the PROXY line does not end",
            Self::VersionUnknown => "the PROXY header is of an unknown version",
            Self::CommandUnknown => "the PROXY header has an unknown command",
            Self::FamilyUnknown => "the PROXY header has an unknown address family",
            Self::TooShort => "the PROXY header is too short for its addresses",
            Self::TooLong => "the PROXY header is too long",
            Self::ExtensionMalformed => "an extension of the PROXY header is malformed",
            Self::ChecksumWrong => "the PROXY header's checksum is wrong",
        }
    }
}

/// Decodes the header that `bytes`, a connection's first ones, begin with. `None`: more must come, and
/// then all are to be given again (they are few).
///
/// # Errors
/// When these bytes cannot become a header, whatever follows.
pub fn decode(bytes: &[u8]) -> Result<Option<(Header<'_>, usize)>, Fault> {
    match bytes.first() {
        None => Ok(None),
        Some(&first) if first == binary::SIGNATURE[0] => binary::decode(bytes),
        Some(_) => text::decode(bytes),
    }
}
