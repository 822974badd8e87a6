//! The PROXY protocol, versions 1 and 2: a header that names the client a proxy opened a connection for.
//! In: the bytes received on a connection so far. Out: a borrowed [`Header`] and its length, a request for
//! more bytes, or a `Fault`. Also encodes headers.
//! Never: guesses: input that cannot be a header is rejected at its first wrong byte.
//! Limits: `TEXT_BYTES_MAX` for version 1, `BINARY_BYTES_MAX` for version 2.
//! Invariant: an encoded header decodes to the same header; how the input is split changes nothing.
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

/// Bytes of the path in a unix socket address (section 2.2); shorter paths are padded with zeros.
pub const UNIX_PATH_BYTES: usize = 108;

/// The form of a header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Version {
    /// A line of text.
    V1,
    /// A binary block.
    V2,
}

/// The transport of the relayed connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Transport {
    /// TCP, or a unix stream.
    Stream,
    /// UDP, or unix datagrams.
    Datagram,
}

/// The endpoints of the connection that the sender relays.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Endpoints<'a> {
    /// The connection is the proxy's own, for example a health check. Its own addresses apply.
    Local,
    /// The sender does not know the client's addresses or cannot express them. The connection's own
    /// addresses apply.
    Unknown,
    /// A client over IP; both addresses have the same IP version.
    Ip {
        /// The address of the client.
        source: SocketAddr,
        /// The address that the client connected to.
        destination: SocketAddr,
        /// The transport of the client's connection.
        transport: Transport,
    },
    /// A client over a unix socket.
    Unix {
        /// The path of the client's socket, as received.
        source: &'a [u8; UNIX_PATH_BYTES],
        /// The path that the client connected to, as received.
        destination: &'a [u8; UNIX_PATH_BYTES],
        /// The transport of the client's connection.
        transport: Transport,
    },
}

/// A decoded header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header<'a> {
    /// The form of the header.
    pub version: Version,
    /// The endpoints of the relayed connection.
    pub endpoints: Endpoints<'a>,
    /// Further facts about the connection; always empty in version 1.
    pub extensions: Extensions<'a>,
}

/// Why bytes are not a valid header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// The bytes do not begin with a header.
    NoHeader,
    /// The line does not follow section 2.1.
    TextMalformed,
    /// The line does not end within `TEXT_BYTES_MAX`.
    TextTooLong,
    /// The version of the block is not 2.
    VersionUnknown,
    /// The command of the block is neither LOCAL nor PROXY.
    CommandUnknown,
    /// The address family or transport of the block is unassigned.
    FamilyUnknown,
    /// The block is too short for its addresses.
    TooShort,
    /// The block is longer than `BINARY_BYTES_MAX`.
    TooLong,
    /// The length of an extension does not match its content or the block, or a checksum is repeated.
    ExtensionMalformed,
    /// The checksum does not match the block.
    ChecksumWrong,
}

const _: () = assert!(TEXT_BYTES_MAX == 107 && BINARY_BYTES_MAX == 4096, "`text` names them");

impl Fault {
    /// What is wrong, for the log.
    #[must_use]
    pub const fn text(self) -> &'static str {
        match self {
            Self::NoHeader => "the connection does not begin with a PROXY header",
            Self::TextMalformed => "malformed PROXY header line",
            Self::TextTooLong => "the PROXY header line is longer than 107 bytes",
            Self::VersionUnknown => "unknown version of PROXY header",
            Self::CommandUnknown => "unknown command in PROXY header",
            Self::FamilyUnknown => "unknown address family in PROXY header",
            Self::TooShort => "the PROXY header is too short for its addresses",
            Self::TooLong => "the PROXY header is longer than 4096 bytes",
            Self::ExtensionMalformed => "malformed extension in PROXY header",
            Self::ChecksumWrong => "wrong checksum in PROXY header",
        }
    }
}

/// Decodes the header at the start of `bytes`, the first bytes of a connection. Returns `None` if more
/// bytes are needed. The next call must get all bytes again; they are few.
///
/// # Errors
/// The bytes cannot become a header, whatever follows.
pub fn decode(bytes: &[u8]) -> Result<Option<(Header<'_>, usize)>, Fault> {
    match bytes.first() {
        None => Ok(None),
        Some(&first) if first == binary::SIGNATURE[0] => binary::decode(bytes),
        Some(_) => text::decode(bytes),
    }
}
