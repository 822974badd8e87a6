//! Every reason to fail a WebSocket connection, with its close code (RFC 6455 section 7.4.1).
//! In: a `FaultKind`. Out: its close code, whose fault it is, a message for the peer, a name for counters.
//! Never: a catch-all kind; a new reason gets its own row.

use core::fmt;

use super::close::{Close, CloseCode};

/// Why a connection failed. Send [`Fault::close`], then close the connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fault {
    /// The reason.
    pub kind: FaultKind,
}

/// Whose fault it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Blame {
    /// The peer broke the protocol.
    Peer,
    /// The peer kept to the protocol and reached a limit of this endpoint.
    Limit,
    /// A bug of this endpoint.
    Bug,
}

impl Fault {
    /// The body of the Close frame that reports this fault to the peer.
    #[must_use]
    pub const fn close(self) -> Close<'static> {
        Close { code: self.kind.code(), reason: self.kind.reason() }
    }
}

impl From<FaultKind> for Fault {
    fn from(kind: FaultKind) -> Self {
        Self { kind }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.kind.reason())
    }
}

impl core::error::Error for Fault {}

macro_rules! fault_kinds {
    ($($name:ident $code:ident $blame:ident $reason:literal,)*) => {
        /// The kind of a [`Fault`].
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        pub enum FaultKind {
            $(#[doc = concat!($reason, ".")] $name,)*
        }

        impl FaultKind {
            /// All kinds, in order of declaration.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// The name for logs and counters.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$name => stringify!($name),)* }
            }

            /// The close code for the peer.
            #[must_use]
            pub const fn code(self) -> CloseCode {
                match self { $(Self::$name => CloseCode::$code,)* }
            }

            /// Whose fault it is.
            #[must_use]
            pub const fn blame(self) -> Blame {
                match self { $(Self::$name => Blame::$blame,)* }
            }

            /// A short message for the peer that describes the error.
            #[must_use]
            pub const fn reason(self) -> &'static str {
                match self { $(Self::$name => $reason,)* }
            }
        }
    };
}

fault_kinds! {
    // Frames (RFC 6455 section 5.2; RFC 7692 section 6).
    ReservedBit PROTOCOL_ERROR Peer "a reserved bit is set, but no negotiated extension defines it",
    CompressionMisplaced PROTOCOL_ERROR Peer "only the first frame of a message may have the compression bit",
    OpcodeReserved PROTOCOL_ERROR Peer "the opcode is reserved",
    LengthNotMinimal PROTOCOL_ERROR Peer "the length must be encoded in the fewest bytes",
    LengthInvalid PROTOCOL_ERROR Peer "the highest bit of a 64-bit length must be 0",
    MaskMissing PROTOCOL_ERROR Peer "a client must mask its frames",
    MaskUnexpected PROTOCOL_ERROR Peer "a server must not mask its frames",
    // Control frames (section 5.5).
    ControlFragmented PROTOCOL_ERROR Peer "a control frame must not be fragmented",
    ControlTooLong PROTOCOL_ERROR Peer "a control frame must not have more than 125 bytes of payload",
    CloseTruncated PROTOCOL_ERROR Peer "the body of a Close frame must begin with a code of two bytes",
    CloseCodeInvalid PROTOCOL_ERROR Peer "the code of the Close frame must not be sent",
    CloseReasonInvalid INVALID_DATA Peer "the reason of the Close frame is not valid UTF-8",
    // Messages (sections 5.4 and 5.6).
    ContinuationUnexpected PROTOCOL_ERROR Peer "continuation frame, but no message is in progress",
    MessageInterrupted PROTOCOL_ERROR Peer "a new message begins before the last one has ended",
    TextInvalid INVALID_DATA Peer "a text message is not valid UTF-8",
    FrameTooLarge TOO_LARGE Limit "the frame is larger than this endpoint accepts",
    MessageTooLarge TOO_LARGE Limit "the message is larger than this endpoint accepts",
    TooManyFragments TOO_LARGE Limit "the message has more fragments than this endpoint accepts",
    // Compression (RFC 7692 section 7.2).
    InflateInvalid INVALID_DATA Peer "the compressed data is invalid or incomplete",
    InflateRatioTooHigh TOO_LARGE Limit "the message is compressed more than this endpoint accepts",
    InflaterMissing INTERNAL_ERROR Bug "no decompressor was given for a compressed message",
    DeflateFailed INTERNAL_ERROR Bug "the compressor failed",
}

#[cfg(test)]
mod tests {
    use super::super::close::REASON_BYTES_MAX;
    use super::*;

    #[test]
    fn every_kind_has_a_code_and_a_message_that_fits_into_a_close_frame() {
        for &kind in FaultKind::ALL {
            assert_eq!(CloseCode::new(kind.code().get()), Some(kind.code()));
            assert!(!kind.reason().ends_with('.') && kind.reason().len() <= REASON_BYTES_MAX);
            assert_eq!(kind.name(), format!("{kind:?}"));
            let blamed = match kind.code().get() {
                1009 => Blame::Limit,
                1011 => Blame::Bug,
                _ => Blame::Peer,
            };
            assert_eq!(kind.blame(), blamed, "{kind:?}");
        }
    }
}
