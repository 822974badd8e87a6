//! Every reason to refuse a message, with the status that answers it (RFC 9110 section 15).
//! In: a `FaultKind`. Out: status, a sentence for the peer, a name for logs and counters.
//! Never: a catch-all; whoever finds a new reason adds a row.

use core::fmt;

/// Why a message is refused. The connection it came on must not be used further.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fault {
    /// The reason.
    pub kind: FaultKind,
}

impl Fault {
    /// The status that answers it when a request is at fault. A fault of a response is a 502 to
    /// the client, whatever this says.
    #[must_use]
    pub const fn status(self) -> u16 {
        self.kind.status()
    }

    /// A short sentence for the peer: what was wrong.
    #[must_use]
    pub const fn reason(self) -> &'static str {
        self.kind.reason()
    }
}

impl From<FaultKind> for Fault {
    fn from(kind: FaultKind) -> Self {
        Self { kind }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.reason())
    }
}

impl core::error::Error for Fault {}

macro_rules! fault_kinds {
    ($($name:ident $status:literal $reason:literal,)*) => {
        /// The reasons, one by one.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        pub enum FaultKind {
            $(#[doc = $reason] $name,)*
        }

        impl FaultKind {
            /// All reasons, in order of declaration.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// The name for logs and counters.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$name => stringify!($name),)* }
            }

            /// The status that answers a request with this fault.
            #[must_use]
            pub const fn status(self) -> u16 {
                match self { $(Self::$name => $status,)* }
            }

            /// A short sentence for the peer: what was wrong.
            #[must_use]
            pub const fn reason(self) -> &'static str {
                match self { $(Self::$name => $reason,)* }
            }
        }
    };
}

fault_kinds! {
    // Lines and bytes (RFC 9112 section 2.2).
    BareCr 400 "A CR must be followed by an LF.",
    BareLf 400 "A line must end with CR and LF, not with LF alone.",
    ControlByte 400 "A control character stands where none may.",
    EmptyLine 400 "Too many empty lines stand before the message.",
    // Start lines (RFC 9112 sections 2.3, 3 and 4).
    RequestLineMalformed 400 "The request line must be method, target and version with one space between.",
    RequestLineTooLong 414 "The request line is longer than this server accepts.",
    MethodInvalid 400 "The method must be a token.",
    VersionInvalid 400 "The version must read HTTP/1.1 or HTTP/1.0.",
    VersionUnsupported 505 "This connection speaks HTTP/1.1 and HTTP/1.0 only.",
    StatusLineMalformed 400 "The status line must be version, status and reason.",
    StatusInvalid 400 "The status must be a number from 100 to 599.",
    SwitchNotAsked 400 "A 101 came though the request asked for no upgrade.",
    SwitchUnnamed 400 "A 101 must say in Upgrade to which protocol it switches.",
    // Request targets and hosts (RFC 9112 section 3.2).
    TargetInvalid 400 "The request target has a character that no URI may have.",
    TargetFormInvalid 400 "The request target has a form that this method does not allow.",
    TargetSchemeUnsupported 400 "The request target must be a path or an http or https URI.",
    TargetAuthorityInvalid 400 "The request target's authority must be a host with an optional port.",
    HostMissing 400 "An HTTP/1.1 request must have a Host field.",
    HostRepeated 400 "A request must have one Host field only.",
    HostInvalid 400 "The Host field must be a host with an optional port.",
    HostTooLong 400 "The request's host is longer than this server accepts.",
    // Fields (RFC 9112 section 5).
    FieldNameEmpty 400 "A field has no name.",
    FieldNameInvalid 400 "A field name must be a token with a colon right after it.",
    SpaceBeforeColon 400 "No space may stand between a field name and its colon.",
    ObsFold 400 "A field line must not begin with a space or a tab.",
    TooManyFields 431 "The message has more fields than this server accepts.",
    HeadTooLarge 431 "The message head is larger than this server accepts.",
    // Body length (RFC 9112 section 6).
    ContentLengthInvalid 400 "Content-Length must be one decimal number.",
    ContentLengthsDiffer 400 "Content-Length is given with different values.",
    ContentLengthRepeated 400 "Content-Length must be given once.",
    ContentLengthWithTransferEncoding 400 "Content-Length and Transfer-Encoding must not come together.",
    TransferEncodingInvalid 400 "Transfer-Encoding must be chunked, once and without parameters.",
    TransferEncodingNotChunked 400 "Transfer-Encoding must end with chunked.",
    TransferEncodingUnsupported 501 "No transfer coding but chunked is supported.",
    TransferEncodingOnHttp10 400 "HTTP/1.0 has no Transfer-Encoding.",
    // Chunks (RFC 9112 section 7.1).
    ChunkSizeInvalid 400 "A chunk size must be a plain hexadecimal number.",
    ChunkSizeTooLarge 400 "A chunk size is too large.",
    ChunkEndMissing 400 "Chunk data must be followed by CR and LF.",
    ChunkExtensionInvalid 400 "A chunk extension must be name or name=value after a semicolon.",
    ChunkExtensionTooLong 400 "A chunk extension is longer than this server accepts.",
    TrailerTooLarge 431 "The trailer section is larger than this server accepts.",
    BodyTruncated 400 "The connection ended before the message did.",
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_is_a_sentence_with_an_error_status() {
        for &kind in FaultKind::ALL {
            assert!(matches!(kind.status(), 400 | 414 | 431 | 501 | 505), "{kind:?}");
            assert!(kind.reason().ends_with('.') && kind.reason().len() < 100, "{kind:?}");
            assert_eq!(kind.name(), format!("{kind:?}"));
        }
    }
}
