//! Every reason to reject a message, with the status of the response (RFC 9110 section 15).
//! In: a `FaultKind`. Out: its status, a message for the peer, a name for logs and counters.
//! Never: a catch-all kind; a new reason gets its own row.

use core::fmt;

/// Why a message is rejected. Its connection must not be used any further.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fault {
    /// The reason.
    pub kind: FaultKind,
}

impl Fault {
    /// The status of the response to a request with this fault. A fault in a server's response
    /// becomes a 502 to the client, whatever this status is.
    #[must_use]
    pub const fn status(self) -> u16 {
        self.kind.status()
    }

    /// A short message for the peer that describes the error.
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
        /// The kind of a [`Fault`], with the status of the response and the message for the peer.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        pub enum FaultKind {
            $(#[doc = concat!($status, ": ", $reason, ".")] $name,)*
        }

        impl FaultKind {
            /// All kinds, in order of declaration.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// The name for logs and counters.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$name => stringify!($name),)* }
            }

            /// The status of the response to a request with this fault.
            #[must_use]
            pub const fn status(self) -> u16 {
                match self { $(Self::$name => $status,)* }
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
    // Lines and bytes (RFC 9112 section 2.2).
    BareCr 400 "CR not followed by LF",
    BareLf 400 "line ends with LF alone; lines must end with CRLF",
    ControlByte 400 "control character not allowed here",
    EmptyLine 400 "too many empty lines before the start line",
    // Start lines (RFC 9112 sections 2.3, 3 and 4).
    RequestLineMalformed 400 "malformed request line; expected method, target and version with single spaces",
    RequestLineTooLong 414 "the request line is longer than this server accepts",
    MethodInvalid 400 "the method is not a valid token",
    VersionInvalid 400 "the version must be HTTP/1.1 or HTTP/1.0",
    VersionUnsupported 505 "this server supports only HTTP/1.1 and HTTP/1.0",
    StatusLineMalformed 400 "malformed status line; expected version, status code and reason phrase",
    StatusInvalid 400 "the status code must be a number from 100 to 599",
    SwitchNotRequested 400 "101 response to a request without an upgrade",
    SwitchProtocolMissing 400 "101 response without an Upgrade field that names the protocol",
    // Request targets and hosts (RFC 9112 section 3.2).
    TargetInvalid 400 "the request target contains a character that is not allowed in a URI",
    TargetFormInvalid 400 "this form of request target is not allowed with this method",
    TargetSchemeUnsupported 400 "the request target must be a path or an http or https URI",
    TargetAuthorityInvalid 400 "the authority of the request target must be a host with an optional port",
    HostMissing 400 "an HTTP/1.1 request must have a Host field",
    HostRepeated 400 "the request has more than one Host field",
    HostInvalid 400 "the Host field must be a host with an optional port",
    HostTooLong 400 "the host is longer than this server accepts",
    // Fields (RFC 9112 section 5).
    FieldNameEmpty 400 "field line without a name",
    FieldNameInvalid 400 "a field name must be a token followed by a colon",
    SpaceBeforeColon 400 "whitespace between a field name and its colon is not allowed",
    ObsFold 400 "a field line must not begin with a space or a tab",
    TooManyFields 431 "the message has more fields than this server accepts",
    HeadTooLarge 431 "the message head is larger than this server accepts",
    // Body length (RFC 9112 section 6).
    ContentLengthInvalid 400 "Content-Length must be a single decimal number",
    ContentLengthsDiffer 400 "conflicting Content-Length values",
    ContentLengthRepeated 400 "Content-Length must not be repeated",
    ContentLengthWithTransferEncoding 400 "Content-Length and Transfer-Encoding must not be used together",
    TransferEncodingInvalid 400 "Transfer-Encoding must be exactly \"chunked\", without parameters",
    TransferEncodingNotChunked 400 "chunked must be the final transfer coding",
    TransferEncodingUnsupported 501 "chunked is the only supported transfer coding",
    TransferEncodingOnHttp10 400 "Transfer-Encoding is not allowed in HTTP/1.0",
    FramingFieldMisspelled 400 "Content_Length and Transfer_Encoding are not allowed; servers may read \"_\" as \"-\"",
    // Chunks (RFC 9112 section 7.1).
    ChunkSizeInvalid 400 "a chunk size must be a plain hexadecimal number",
    ChunkSizeTooLarge 400 "the chunk size is too large",
    ChunkEndMissing 400 "chunk data must be followed by CRLF",
    ChunkExtensionInvalid 400 "a chunk extension must be name or name=value after a semicolon",
    ChunkExtensionTooLong 400 "the chunk extensions are longer than this server accepts",
    TrailerTooLarge 431 "the trailer section is larger than this server accepts",
    BodyTruncated 400 "the connection ended before the message was complete",
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_an_error_status_and_a_one_line_message() {
        for &kind in FaultKind::ALL {
            assert!(matches!(kind.status(), 400 | 414 | 431 | 501 | 505), "{kind:?}");
            assert!(!kind.reason().ends_with('.') && kind.reason().len() < 100, "{kind:?}");
            assert_eq!(kind.name(), format!("{kind:?}"));
        }
    }
}
