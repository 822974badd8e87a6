//! Every reason to end a stream or a connection, with the error code on the wire (RFC 9113 section 7).
//! In: a `FaultKind`. Out: its scope, its code, whose fault it is, a message, a name for logs and counters.
//! Never: a catch-all kind; a new reason gets its own row.

use core::fmt;

/// An error code (RFC 9113 section 7). Unknown codes have no special meaning.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ErrorCode(pub u32);

impl ErrorCode {
    /// No error: a graceful end.
    pub const NO_ERROR: Self = Self(0);
    /// The peer violated the protocol.
    pub const PROTOCOL_ERROR: Self = Self(1);
    /// This side failed.
    pub const INTERNAL_ERROR: Self = Self(2);
    /// The peer violated flow control.
    pub const FLOW_CONTROL_ERROR: Self = Self(3);
    /// SETTINGS were not acknowledged in time.
    pub const SETTINGS_TIMEOUT: Self = Self(4);
    /// A frame arrived for a stream that is closed for it.
    pub const STREAM_CLOSED: Self = Self(5);
    /// The length of a frame is invalid.
    pub const FRAME_SIZE_ERROR: Self = Self(6);
    /// The stream was refused before any processing; the request may be retried.
    pub const REFUSED_STREAM: Self = Self(7);
    /// The stream is no longer needed.
    pub const CANCEL: Self = Self(8);
    /// Header compression is out of step.
    pub const COMPRESSION_ERROR: Self = Self(9);
    /// The connection of a CONNECT request failed.
    pub const CONNECT_ERROR: Self = Self(10);
    /// The peer causes excessive load.
    pub const ENHANCE_YOUR_CALM: Self = Self(11);
    /// The transport is not secure enough.
    pub const INADEQUATE_SECURITY: Self = Self(12);
    /// The request needs HTTP/1.1.
    pub const HTTP_1_1_REQUIRED: Self = Self(13);
}

/// The scope of a fault: the connection or the stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scope {
    /// One stream: RST_STREAM. The connection continues.
    Stream,
    /// The connection: GOAWAY.
    Connection,
}

/// Whose fault it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Blame {
    /// The peer violated the protocol.
    Peer,
    /// The peer asked for something that is valid but not supported.
    Unsupported,
    /// The peer exceeded a limit of this side.
    Limit,
}

/// Why a stream or a connection ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fault {
    /// The reason.
    pub kind: FaultKind,
}

impl Fault {
    /// The error code on the wire.
    #[must_use]
    pub const fn code(self) -> ErrorCode {
        self.kind.code()
    }

    /// A short message that describes the error.
    #[must_use]
    pub const fn reason(self) -> &'static str {
        self.kind.reason()
    }

    /// Whether the peer sends so many frames that the rest of its input is not worth reading.
    #[must_use]
    pub const fn is_flood(self) -> bool {
        matches!(
            self.kind,
            FaultKind::ResetFlood
                | FaultKind::PingFlood
                | FaultKind::SettingsFlood
                | FaultKind::PriorityFlood
                | FaultKind::EmptyFrameFlood
                | FaultKind::WindowUpdateFlood
                | FaultKind::UnknownFrameFlood
                | FaultKind::GlitchFlood
        )
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
    ($($name:ident $scope:ident $blame:ident $code:ident $reason:literal,)*) => {
        /// The kind of a [`Fault`], with its scope, its error code and the message for logs.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        pub enum FaultKind {
            $(#[doc = concat!(stringify!($code), ": ", $reason, ".")] $name,)*
        }

        impl FaultKind {
            /// All kinds, in order of declaration.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// The name for logs and counters.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$name => stringify!($name),)* }
            }

            /// The scope of the fault.
            #[must_use]
            pub const fn scope(self) -> Scope {
                match self { $(Self::$name => Scope::$scope,)* }
            }

            /// Whose fault it is.
            #[must_use]
            pub const fn blame(self) -> Blame {
                match self { $(Self::$name => Blame::$blame,)* }
            }

            /// The error code on the wire.
            #[must_use]
            pub const fn code(self) -> ErrorCode {
                match self { $(Self::$name => ErrorCode::$code,)* }
            }

            /// A short message that describes the error.
            #[must_use]
            pub const fn reason(self) -> &'static str {
                match self { $(Self::$name => $reason,)* }
            }
        }
    };
}

fault_kinds! {
    // Connection: preface and frames (RFC 9113 sections 3.4 and 4).
    PrefaceInvalid Connection Peer PROTOCOL_ERROR "the connection does not begin with the HTTP/2 preface",
    SettingsMissing Connection Peer PROTOCOL_ERROR "the first frame must be SETTINGS",
    FrameTooLarge Connection Peer FRAME_SIZE_ERROR "the frame is larger than SETTINGS_MAX_FRAME_SIZE",
    FrameLengthInvalid Connection Peer FRAME_SIZE_ERROR "the length of the frame does not fit its type",
    PaddingInvalid Connection Peer PROTOCOL_ERROR "the padding is longer than the frame",
    StreamIdMissing Connection Peer PROTOCOL_ERROR "this type of frame must name a stream",
    StreamIdUnexpected Connection Peer PROTOCOL_ERROR "this type of frame must not name a stream",
    StreamIdInvalid Connection Peer PROTOCOL_ERROR "the stream id is not one that the peer may open",
    StreamIdle Connection Peer PROTOCOL_ERROR "a frame for a stream that was never opened",
    ContinuationExpected Connection Peer PROTOCOL_ERROR "a header block must be continued before any other frame",
    ContinuationUnexpected Connection Peer PROTOCOL_ERROR "CONTINUATION without a header block to continue",
    HeadersOnClosedStream Connection Peer STREAM_CLOSED "HEADERS for a closed stream",
    PushNotAllowed Connection Peer PROTOCOL_ERROR "PUSH_PROMISE although push is disabled",
    PriorityUpdateInvalid Connection Peer PROTOCOL_ERROR "PRIORITY_UPDATE is not allowed here",
    CompressionFailed Connection Peer COMPRESSION_ERROR "the header block cannot be decoded",
    // Connection: settings and windows (RFC 9113 sections 6.5 and 6.9).
    SettingInvalid Connection Peer PROTOCOL_ERROR "the value of a setting is out of range",
    InitialWindowInvalid Connection Peer FLOW_CONTROL_ERROR "SETTINGS_INITIAL_WINDOW_SIZE is too large",
    ConnectionWindowOverflow Connection Peer FLOW_CONTROL_ERROR "the window of the connection exceeds 2^31-1",
    StreamWindowsOverflow Connection Peer FLOW_CONTROL_ERROR "SETTINGS_INITIAL_WINDOW_SIZE makes a window exceed 2^31-1",
    ConnectionWindowExceeded Connection Peer FLOW_CONTROL_ERROR "more DATA than the window of the connection allows",
    ConnectionWindowIncrementZero Connection Peer PROTOCOL_ERROR "WINDOW_UPDATE of the connection by 0",
    GoAwayIdIncreased Connection Peer PROTOCOL_ERROR "GOAWAY with a larger stream id than before",
    // Connection: attacks.
    HeaderBlockTooLarge Connection Limit ENHANCE_YOUR_CALM "the header block is far larger than this side accepts",
    TooManyContinuations Connection Limit ENHANCE_YOUR_CALM "too many CONTINUATION frames in a header block",
    TooManySettings Connection Limit ENHANCE_YOUR_CALM "too many entries in a SETTINGS frame",
    TooManyReplies Connection Limit ENHANCE_YOUR_CALM "the peer causes replies, but does not read the replies",
    ResetFlood Connection Limit ENHANCE_YOUR_CALM "too many streams were reset",
    PingFlood Connection Limit ENHANCE_YOUR_CALM "too many PING frames",
    SettingsFlood Connection Limit ENHANCE_YOUR_CALM "too many SETTINGS frames",
    PriorityFlood Connection Limit ENHANCE_YOUR_CALM "too many PRIORITY or PRIORITY_UPDATE frames",
    EmptyFrameFlood Connection Limit ENHANCE_YOUR_CALM "too many empty frames",
    WindowUpdateFlood Connection Limit ENHANCE_YOUR_CALM "too many WINDOW_UPDATE frames",
    UnknownFrameFlood Connection Limit ENHANCE_YOUR_CALM "too many frames of unknown types",
    GlitchFlood Connection Limit ENHANCE_YOUR_CALM "too many protocol violations",
    // Stream: frames and windows.
    StreamRefused Stream Limit REFUSED_STREAM "more streams than SETTINGS_MAX_CONCURRENT_STREAMS",
    FrameOnClosedStream Stream Peer STREAM_CLOSED "DATA or HEADERS after the end of the stream",
    StreamWindowExceeded Stream Peer FLOW_CONTROL_ERROR "more DATA than the window of the stream allows",
    StreamWindowOverflow Stream Peer FLOW_CONTROL_ERROR "the window of the stream exceeds 2^31-1",
    StreamWindowIncrementZero Stream Peer PROTOCOL_ERROR "WINDOW_UPDATE of a stream by 0",
    PriorityLengthInvalid Stream Peer FRAME_SIZE_ERROR "PRIORITY must have 5 bytes",
    // Stream: malformed messages (RFC 9113 section 8.1.1).
    PseudoFieldUnknown Stream Peer PROTOCOL_ERROR "an unknown pseudo-header field, or one not allowed here",
    PseudoFieldRepeated Stream Peer PROTOCOL_ERROR "a repeated pseudo-header field",
    PseudoFieldMisplaced Stream Peer PROTOCOL_ERROR "a pseudo-header field after a field, or in trailers",
    PseudoFieldMissing Stream Peer PROTOCOL_ERROR "a required pseudo-header field is missing",
    FieldNameInvalid Stream Peer PROTOCOL_ERROR "a field name must be a token in lower case",
    FieldValueInvalid Stream Peer PROTOCOL_ERROR "a field value contains a control character, or begins or ends with whitespace",
    ConnectionField Stream Peer PROTOCOL_ERROR "a connection-specific field is not allowed in HTTP/2",
    TeInvalid Stream Peer PROTOCOL_ERROR "TE may only be \"trailers\" in HTTP/2",
    FramingFieldMisspelled Stream Peer PROTOCOL_ERROR
        "Content_Length and Transfer_Encoding are not allowed; servers may read \"_\" as \"-\"",
    MethodInvalid Stream Peer PROTOCOL_ERROR "the method is not a valid token",
    SchemeInvalid Stream Peer PROTOCOL_ERROR "the scheme must be http or https",
    PathInvalid Stream Peer PROTOCOL_ERROR "the path must begin with a slash, or be * for OPTIONS",
    AuthorityInvalid Stream Peer PROTOCOL_ERROR "the authority must be a host with an optional port",
    HostRepeated Stream Peer PROTOCOL_ERROR "the request has more than one Host field",
    HostDiffers Stream Peer PROTOCOL_ERROR "the Host field differs from :authority",
    ConnectUnsupported Stream Unsupported HTTP_1_1_REQUIRED "CONNECT is not supported over HTTP/2",
    ProtocolNotEnabled Stream Peer PROTOCOL_ERROR "extended CONNECT was not enabled",
    ContentLengthInvalid Stream Peer PROTOCOL_ERROR "Content-Length must be a single decimal number",
    ContentLengthMismatch Stream Peer PROTOCOL_ERROR "the length of the body differs from Content-Length",
    StatusInvalid Stream Peer PROTOCOL_ERROR "the status code must be a number from 100 to 999, and not 101",
    InterimEndsStream Stream Peer PROTOCOL_ERROR "an interim response must not end the stream",
    TooManyInterims Stream Limit ENHANCE_YOUR_CALM "too many interim responses",
    DataBeforeHead Stream Peer PROTOCOL_ERROR "DATA before the head of the response",
    DataWithoutBody Stream Peer PROTOCOL_ERROR "DATA in a response that has no body",
    TrailersOfConnect Stream Peer PROTOCOL_ERROR "only DATA may follow CONNECT",
    TrailersWithoutEnd Stream Peer PROTOCOL_ERROR "trailers must end the stream",
    ResponseTooLarge Stream Limit ENHANCE_YOUR_CALM "the response head is larger than this side accepts",
    TrailersTooLarge Stream Limit ENHANCE_YOUR_CALM "the trailers are larger than this side accepts",
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_an_error_code_and_a_one_line_message() {
        for &kind in FaultKind::ALL {
            assert!((1..=13).contains(&kind.code().0), "{kind:?}");
            assert!(!kind.reason().ends_with('.') && kind.reason().len() < 100, "{kind:?}");
            assert_eq!(kind.name(), format!("{kind:?}"));
            let calm = kind.code() == ErrorCode::ENHANCE_YOUR_CALM;
            assert!(!calm || kind.blame() == Blame::Limit, "{kind:?}");
        }
    }
}
