//! Negotiates permessage-deflate (RFC 7692 sections 5 and 7.1; RFC 6455 section 9.1).
//! In: the values of Sec-WebSocket-Extensions fields, [`DeflateSettings`]. Out: [`DeflateParameters`], the field
//! value for the peer.
//! Never: accepts an offer with an unknown, repeated or invalid parameter; a client fails the handshake instead.
//! Limits: none of its own; the head that contains the fields is bounded.
//! Invariant: both roles derive the same parameters from a response.

use core::fmt::Write as _;

use super::field::{Cursor, Malformed};
use super::frame::Role;

/// Bits of the smallest window that can be negotiated.
pub const WINDOW_BITS_MIN: u8 = 8;
/// Bits of the largest window, which is the default.
pub const WINDOW_BITS_MAX: u8 = 15;
/// Bits of the smallest window that a compressor supports.
pub const COMPRESSOR_BITS_MIN: u8 = 9;

const NAME: &[u8] = b"permessage-deflate";
const SERVER_NO_CONTEXT: &[u8] = b"server_no_context_takeover";
const CLIENT_NO_CONTEXT: &[u8] = b"client_no_context_takeover";
const SERVER_BITS: &[u8] = b"server_max_window_bits";
const CLIENT_BITS: &[u8] = b"client_max_window_bits";

/// The parameters that this endpoint wants. By default no side keeps its context, so that connections need no compressor and no
/// window of their own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DeflateSettings {
    /// Whether this endpoint may keep the context of its compressor between messages.
    pub keeps_context: bool,
    /// Whether the peer may keep its context.
    pub peer_keeps_context: bool,
    /// The largest window of this endpoint's compressor, in bits.
    pub window_bits: u8,
    /// The largest window that the peer may use, in bits. A client that did not offer a limit cannot be limited.
    pub peer_window_bits: u8,
}

impl Default for DeflateSettings {
    fn default() -> Self {
        Self {
            keeps_context: false,
            peer_keeps_context: false,
            window_bits: WINDOW_BITS_MAX,
            peer_window_bits: WINDOW_BITS_MAX,
        }
    }
}

/// The parameters on which the two endpoints have agreed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DeflateParameters {
    /// Whether the server keeps the context of its compressor between messages.
    pub server_keeps_context: bool,
    /// Whether the client keeps the context of its compressor between messages.
    pub client_keeps_context: bool,
    /// Bits of the server's largest window.
    pub server_window_bits: u8,
    /// Bits of the client's largest window; `None` if the client did not offer to limit it, so it has 15.
    pub client_window_bits: Option<u8>,
}

impl DeflateParameters {
    /// Whether the endpoint with this role keeps the context of its compressor.
    #[must_use]
    pub const fn keeps_context(&self, role: Role) -> bool {
        match role {
            Role::Server => self.server_keeps_context,
            Role::Client => self.client_keeps_context,
        }
    }

    /// Bits of the largest window of the endpoint with this role.
    #[must_use]
    pub const fn window_bits(&self, role: Role) -> u8 {
        match (role, self.client_window_bits) {
            (Role::Server, _) => self.server_window_bits,
            (Role::Client, Some(bits)) => bits,
            (Role::Client, None) => WINDOW_BITS_MAX,
        }
    }

    /// Bits of the window of the shared compressor with which the endpoint with this role compresses a message of this many
    /// bytes; `None` if no compressor has a window that is small enough. No reference reaches further back than the
    /// message's first byte, so a message that fits the negotiated window is compressed with the largest one.
    #[must_use]
    pub const fn shared_window_bits(&self, role: Role, message_bytes: usize) -> Option<u8> {
        match self.window_bits(role) {
            bits if message_bytes <= 1 << bits => Some(WINDOW_BITS_MAX),
            bits if bits < COMPRESSOR_BITS_MIN => None,
            bits => Some(bits),
        }
    }

    /// Appends the value of the response's Sec-WebSocket-Extensions field.
    pub(super) fn encode_response(&self, out: &mut String) {
        out.push_str("permessage-deflate");
        if !self.server_keeps_context {
            out.push_str("; server_no_context_takeover");
        }
        if !self.client_keeps_context {
            out.push_str("; client_no_context_takeover");
        }
        if self.server_window_bits < WINDOW_BITS_MAX {
            push_bits(out, SERVER_BITS, self.server_window_bits);
        }
        if let Some(bits) = self.client_window_bits
            && bits < WINDOW_BITS_MAX
        {
            push_bits(out, CLIENT_BITS, bits);
        }
    }
}

impl DeflateSettings {
    /// The settings with windows that exist.
    const fn checked(self) -> Self {
        Self {
            window_bits: clamp_bits(self.window_bits),
            peer_window_bits: clamp_bits(self.peer_window_bits),
            ..self
        }
    }

    /// Server: accepts the first acceptable offer among the extension fields of a request.
    ///
    /// # Errors
    /// A field that does not follow the grammar.
    pub fn accept<'v>(
        self,
        values: impl Iterator<Item = &'v [u8]>,
    ) -> Result<Option<DeflateParameters>, Malformed> {
        let mut accepted = None;
        for value in values {
            let mut cursor = Cursor::new(value);
            while let Some(name) = cursor.next_element()? {
                let parameters = Parameters::read(&mut cursor, Direction::Offer)?;
                if accepted.is_none() && name.eq_ignore_ascii_case(NAME) {
                    accepted = parameters.map(|offer| self.checked().answer(&offer));
                }
            }
        }
        Ok(accepted)
    }

    /// Server: the parameters that answer an offer (section 7.1).
    fn answer(self, offer: &Parameters) -> DeflateParameters {
        let server_bits = offer.server_bits.unwrap_or(WINDOW_BITS_MAX);
        DeflateParameters {
            server_keeps_context: self.keeps_context && !offer.server_no_context,
            client_keeps_context: self.peer_keeps_context && !offer.client_no_context,
            server_window_bits: self.window_bits.min(server_bits),
            client_window_bits: offer.client_bits.map(|bits| bits.min(self.peer_window_bits)),
        }
    }

    /// Client: appends the value of the request's Sec-WebSocket-Extensions field.
    pub fn encode_offer(self, out: &mut String) {
        let settings = self.checked();
        out.push_str("permessage-deflate");
        if !settings.peer_keeps_context {
            out.push_str("; server_no_context_takeover");
        }
        if !settings.keeps_context {
            out.push_str("; client_no_context_takeover");
        }
        if settings.peer_window_bits < WINDOW_BITS_MAX {
            push_bits(out, SERVER_BITS, settings.peer_window_bits);
        }
        if settings.window_bits < WINDOW_BITS_MAX {
            push_bits(out, CLIENT_BITS, settings.window_bits);
        } else {
            out.push_str("; client_max_window_bits");
        }
    }

    /// Client: checks the extension fields of a response to the offer of these settings. `offered` is `None` if
    /// no extension was offered.
    ///
    /// # Errors
    /// A response that does not follow the grammar, names an extension that was not offered or one twice, or does
    /// not fit the offer.
    pub fn check_response<'v>(
        offered: Option<Self>,
        values: impl Iterator<Item = &'v [u8]>,
    ) -> Result<Option<DeflateParameters>, Malformed> {
        let mut agreed = None;
        for value in values {
            let mut cursor = Cursor::new(value);
            while let Some(name) = cursor.next_element()? {
                let parameters = Parameters::read(&mut cursor, Direction::Response)?;
                let is_known = name.eq_ignore_ascii_case(NAME) && agreed.is_none();
                let (true, Some(settings), Some(answer)) = (is_known, offered, parameters) else {
                    return Err(Malformed);
                };
                agreed = Some(settings.checked().agree(&answer)?);
            }
        }
        Ok(agreed)
    }

    /// Client: the parameters that follow from a response to the offer of these settings.
    fn agree(self, answer: &Parameters) -> Result<DeflateParameters, Malformed> {
        let server_window_bits = answer.server_bits.unwrap_or(WINDOW_BITS_MAX);
        if !self.peer_keeps_context && !answer.server_no_context
            || server_window_bits > self.peer_window_bits
        {
            return Err(Malformed);
        }
        let client_bits = answer.client_bits.unwrap_or(WINDOW_BITS_MAX).min(self.window_bits);
        Ok(DeflateParameters {
            server_keeps_context: !answer.server_no_context,
            client_keeps_context: self.keeps_context && !answer.client_no_context,
            server_window_bits,
            client_window_bits: Some(client_bits),
        })
    }
}

/// Which of the two messages of the handshake contains the parameters.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Direction {
    Offer,
    Response,
}

/// The parameters of one element.
#[derive(Clone, Copy, Default, Debug)]
struct Parameters {
    server_no_context: bool,
    client_no_context: bool,
    server_bits: Option<u8>,
    /// `client_max_window_bits`; 15 if an offer gives no value.
    client_bits: Option<u8>,
}

impl Parameters {
    /// Reads the parameters of an element. `None` if one of them is unknown, repeated or invalid.
    fn read(cursor: &mut Cursor<'_>, direction: Direction) -> Result<Option<Self>, Malformed> {
        let mut read = Self::default();
        let mut is_valid = true;
        while let Some((name, value)) = cursor.next_parameter()? {
            is_valid &= read.add(name, value, direction).is_some();
        }
        Ok(is_valid.then_some(read))
    }

    fn add(&mut self, name: &[u8], value: Option<&[u8]>, direction: Direction) -> Option<()> {
        if name.eq_ignore_ascii_case(SERVER_NO_CONTEXT) {
            return set_flag(&mut self.server_no_context, value);
        }
        if name.eq_ignore_ascii_case(CLIENT_NO_CONTEXT) {
            return set_flag(&mut self.client_no_context, value);
        }
        let (place, bits) = if name.eq_ignore_ascii_case(SERVER_BITS) {
            (&mut self.server_bits, parse_bits(value?)?)
        } else if name.eq_ignore_ascii_case(CLIENT_BITS) {
            let bits = match value {
                None if direction == Direction::Offer => WINDOW_BITS_MAX,
                value => parse_bits(value?)?,
            };
            (&mut self.client_bits, bits)
        } else {
            return None;
        };
        place.replace(bits).is_none().then_some(())
    }
}

/// Sets a parameter without a value, which must not be set already.
fn set_flag(flag: &mut bool, value: Option<&[u8]>) -> Option<()> {
    (value.is_none() && !core::mem::replace(flag, true)).then_some(())
}

/// A decimal number from 8 to 15 without leading zeros (section 7.1.2.1).
const fn parse_bits(value: &[u8]) -> Option<u8> {
    match value {
        [digit @ b'8'..=b'9'] => Some(*digit - b'0'),
        [b'1', digit @ b'0'..=b'5'] => Some(10 + *digit - b'0'),
        _ => None,
    }
}

const fn clamp_bits(bits: u8) -> u8 {
    match bits {
        0..=WINDOW_BITS_MIN => WINDOW_BITS_MIN,
        9..WINDOW_BITS_MAX => bits,
        _ => WINDOW_BITS_MAX,
    }
}

fn push_bits(out: &mut String, name: &[u8], bits: u8) {
    let name = core::str::from_utf8(name).unwrap_or_default();
    // Writing to a string cannot fail.
    let _ = write!(out, "; {name}={bits}");
}
