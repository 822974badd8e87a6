//! Close codes and the body of a Close frame (RFC 6455 sections 5.5.1 and 7.4).
//! In: the payload of a Close frame, or a number. Out: [`Close`], or the fault.
//! Never: holds a code that must not be sent, such as 1005 or 1006.
//! Limits: a reason has at most `REASON_BYTES_MAX` bytes.
//! Invariant: every `CloseCode` may be sent and may be received.

use super::fault::FaultKind;
use super::frame::CONTROL_BYTES_MAX;

/// Bytes of the longest reason: a control frame less its code.
pub const REASON_BYTES_MAX: usize = CONTROL_BYTES_MAX - 2;

/// The status code of a Close frame (RFC 6455 section 7.4, and IANA's registry for 1012 to 1014).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct CloseCode(u16);

impl CloseCode {
    /// The purpose of the connection is fulfilled.
    pub const NORMAL: Self = Self(1000);
    /// The endpoint is going away: a server stops, or a browser leaves the page.
    pub const GOING_AWAY: Self = Self(1001);
    /// The peer broke the protocol.
    pub const PROTOCOL_ERROR: Self = Self(1002);
    /// The endpoint cannot accept this type of data.
    pub const UNSUPPORTED_DATA: Self = Self(1003);
    /// The data of a message does not match its type, for example a text message that is not UTF-8.
    pub const INVALID_DATA: Self = Self(1007);
    /// The peer broke a rule of the endpoint.
    pub const POLICY_VIOLATION: Self = Self(1008);
    /// A message is too large.
    pub const TOO_LARGE: Self = Self(1009);
    /// The server did not negotiate an extension that the client needs.
    pub const EXTENSION_MISSING: Self = Self(1010);
    /// An unexpected condition in the endpoint.
    pub const INTERNAL_ERROR: Self = Self(1011);
    /// The service restarts.
    pub const SERVICE_RESTART: Self = Self(1012);
    /// The service is overloaded.
    pub const TRY_AGAIN_LATER: Self = Self(1013);
    /// The endpoint is a gateway, and its server sent an invalid response.
    pub const BAD_GATEWAY: Self = Self(1014);

    /// The code with this number; `None` if a Close frame must not contain the number.
    #[must_use]
    pub const fn new(code: u16) -> Option<Self> {
        match code {
            1000..=1003 | 1007..=1014 | 3000..=4999 => Some(Self(code)),
            _ => None,
        }
    }

    /// The number.
    #[must_use]
    pub const fn get(self) -> u16 {
        self.0
    }
}

/// The body of a Close frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Close<'a> {
    /// Why the connection closes.
    pub code: CloseCode,
    /// A message for logs; often empty.
    pub reason: &'a str,
}

impl<'a> Close<'a> {
    /// A body with this code and no reason.
    #[must_use]
    pub const fn new(code: CloseCode) -> Self {
        Self { code, reason: "" }
    }

    /// Reads the payload of a Close frame. An empty payload has no body.
    pub(super) fn decode(payload: &'a [u8]) -> Result<Option<Self>, FaultKind> {
        let (code, reason) = match payload {
            [] => return Ok(None),
            [_] => return Err(FaultKind::CloseTruncated),
            [high, low, reason @ ..] => (u16::from_be_bytes([*high, *low]), reason),
        };
        let code = CloseCode::new(code).ok_or(FaultKind::CloseCodeInvalid)?;
        let reason = core::str::from_utf8(reason).map_err(|_| FaultKind::CloseReasonInvalid)?;
        Ok(Some(Self { code, reason }))
    }

    /// The reason, cut at a character so that it fits into a control frame.
    pub(super) fn short_reason(&self) -> &'a str {
        let mut end = self.reason.len().min(REASON_BYTES_MAX);
        while !self.reason.is_char_boundary(end) {
            end -= 1;
        }
        &self.reason[..end]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_codes_that_a_frame_may_contain_exist() {
        let valid =
            |code: u16| matches!(code, 1000..=1003 | 1007..=1014) || (3000..5000).contains(&code);
        for code in 0..=u16::MAX {
            assert_eq!(CloseCode::new(code).map(CloseCode::get), valid(code).then_some(code));
        }
    }

    #[test]
    fn long_reason_is_cut_at_a_character() {
        let reason = "é".repeat(100);
        let close = Close { code: CloseCode::NORMAL, reason: &reason };
        assert_eq!(close.short_reason().len(), REASON_BYTES_MAX - 1);
        assert_eq!(Close::new(CloseCode::NORMAL).short_reason(), "");
    }
}
