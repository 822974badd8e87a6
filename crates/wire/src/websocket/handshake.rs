//! The opening handshake of both roles (RFC 6455 section 4, RFC 8441).
//! In: the head of a request or response, a `Policy` or an `Offer`. Out: [`Accept`] or a [`Refusal`] with the
//! fields of the response; the client's [`Agreed`] or a [`BadResponse`].
//! Never: selects a subprotocol or an extension that the client did not offer.
//! Limits: those of the head.
//! Invariant: a response that this server encodes passes the check of a client that made the offer.

use aws_lc_rs::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};

use super::extension::{DeflateParameters, DeflateSettings};
use super::field::{Cursor, Malformed, lists_token};
use super::origin::Origins;
use crate::http1::encode_field;
use crate::message::{Method, RequestHead, ResponseHead, Version};

/// The version of the protocol (section 4.1).
pub const WEBSOCKET_VERSION: &str = "13";

/// Bytes of a key in base64.
const KEY_BYTES: usize = 24;
/// Bytes of an accept key in base64.
pub const ACCEPT_BYTES: usize = 28;
/// The string that a server appends to the key (section 1.3).
const GUID: &[u8] = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

const UPGRADE: &str = "Upgrade";
const CONNECTION: &str = "Connection";
const KEY: &str = "Sec-WebSocket-Key";
const ACCEPT: &str = "Sec-WebSocket-Accept";
const VERSION: &str = "Sec-WebSocket-Version";
const PROTOCOL: &str = "Sec-WebSocket-Protocol";
const EXTENSIONS: &str = "Sec-WebSocket-Extensions";
const ORIGIN: &str = "Origin";

/// The options that a server accepts.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Policy {
    /// The supported subprotocols. A client that offers none of them gets a connection without a subprotocol.
    pub subprotocols: Vec<String>,
    /// The web pages that may connect.
    pub origins: Origins,
    /// Settings of permessage-deflate; `None` if it is off.
    pub deflate: Option<DeflateSettings>,
}

/// An accepted request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Accept<'p> {
    /// The value of Sec-WebSocket-Accept; `None` for extended CONNECT.
    pub accept_key: Option<[u8; ACCEPT_BYTES]>,
    /// The selected subprotocol.
    pub subprotocol: Option<&'p str>,
    /// The parameters of permessage-deflate; `None` if it was not negotiated.
    pub deflate: Option<DeflateParameters>,
}

/// Why a request is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// The method is not GET.
    MethodInvalid,
    /// The request is not HTTP/1.1.
    HttpVersionTooOld,
    /// The request has a body.
    BodyPresent,
    /// The request does not ask for WebSocket.
    UpgradeMissing,
    /// The version is missing, repeated or not 13.
    VersionUnsupported,
    /// The key is missing, repeated or not 16 bytes in base64.
    KeyInvalid,
    /// The subprotocols are not a list of tokens.
    SubprotocolsInvalid,
    /// The extensions do not follow their grammar.
    ExtensionsInvalid,
    /// The origin is not allowed.
    OriginForbidden,
}

impl Refusal {
    /// The status of the response.
    #[must_use]
    pub const fn status(self) -> u16 {
        match self {
            Self::OriginForbidden => 403,
            Self::UpgradeMissing | Self::VersionUnsupported => 426,
            _ => 400,
        }
    }

    /// A short message for the client that describes the error.
    #[must_use]
    pub const fn reason(self) -> &'static str {
        match self {
            Self::MethodInvalid => "a WebSocket request must use GET",
            Self::HttpVersionTooOld => "a WebSocket request must use HTTP/1.1",
            Self::BodyPresent => "a WebSocket request must not have a body",
            Self::UpgradeMissing => "this resource needs a WebSocket connection",
            Self::VersionUnsupported => "Sec-WebSocket-Version must be 13",
            Self::KeyInvalid => "Sec-WebSocket-Key must be 16 bytes in base64",
            Self::SubprotocolsInvalid => "Sec-WebSocket-Protocol must be a list of tokens",
            Self::ExtensionsInvalid => "malformed Sec-WebSocket-Extensions",
            Self::OriginForbidden => "pages of this origin may not open a WebSocket here",
        }
    }

    /// Appends the fields that belong to the response: what a 426 must name (RFC 9110 section 15.5.22, RFC 6455
    /// section 4.4).
    pub fn encode_fields(self, out: &mut Vec<u8>) {
        if self.status() == 426 {
            encode_field(out, UPGRADE, b"websocket");
            encode_field(out, CONNECTION, UPGRADE.as_bytes());
            encode_field(out, VERSION, WEBSOCKET_VERSION.as_bytes());
        }
    }
}

impl Policy {
    /// Checks a request of HTTP/1.1 (section 4.2.1). The decoder of the head has checked Host.
    ///
    /// # Errors
    /// Why the request is refused.
    pub fn check(&self, head: &RequestHead<'_>) -> Result<Accept<'_>, Refusal> {
        let fields = head.fields().map(|field| (field.name, field.value));
        let names_websocket = all(fields.clone(), UPGRADE).any(|v| lists_token(v, "websocket"));
        if !names_websocket || !head.is_nominated("upgrade") {
            return Err(Refusal::UpgradeMissing);
        }
        if head.method != Method::Get {
            return Err(Refusal::MethodInvalid);
        }
        if head.version != Version::Http11 {
            return Err(Refusal::HttpVersionTooOld);
        }
        if !head.upgrade {
            return Err(Refusal::BodyPresent);
        }
        check_version(fields.clone())?;
        let key = single(fields.clone(), KEY).ok_or(Refusal::KeyInvalid)?;
        if !is_key(key) {
            return Err(Refusal::KeyInvalid);
        }
        let accept = self.check_offers(fields, head.host)?;
        Ok(Accept { accept_key: Some(accept_key(key)), ..accept })
    }

    /// Checks an extended CONNECT with the protocol `websocket` (RFC 8441 section 5), which has no key and no
    /// Upgrade; `authority` is its host. The response has the status 200.
    ///
    /// # Errors
    /// Why the request is refused.
    pub fn check_connect<'f>(
        &self,
        fields: impl Iterator<Item = (&'f str, &'f [u8])> + Clone,
        authority: Option<&str>,
    ) -> Result<Accept<'_>, Refusal> {
        check_version(fields.clone())?;
        self.check_offers(fields, authority)
    }

    /// Checks the fields that both kinds of request have.
    fn check_offers<'f>(
        &self,
        fields: impl Iterator<Item = (&'f str, &'f [u8])> + Clone,
        host: Option<&str>,
    ) -> Result<Accept<'_>, Refusal> {
        let origin = single(fields.clone(), ORIGIN);
        if all(fields.clone(), ORIGIN).count() > 1 || !self.origins.allows(origin, host) {
            return Err(Refusal::OriginForbidden);
        }
        let subprotocol = self
            .select_subprotocol(all(fields.clone(), PROTOCOL))
            .map_err(|Malformed| Refusal::SubprotocolsInvalid)?;
        let offers = all(fields, EXTENSIONS);
        let deflate = match self.deflate {
            Some(settings) => settings.accept(offers),
            None => DeflateSettings::default().accept(offers).map(|_| None),
        };
        let deflate = deflate.map_err(|Malformed| Refusal::ExtensionsInvalid)?;
        Ok(Accept { accept_key: None, subprotocol, deflate })
    }

    /// The first subprotocol that the client offers, in its order of preference, and this server supports.
    fn select_subprotocol<'f>(
        &self,
        offers: impl Iterator<Item = &'f [u8]>,
    ) -> Result<Option<&str>, Malformed> {
        let mut selected = None;
        for value in offers {
            let mut cursor = Cursor::new(value);
            while let Some(offer) = cursor.next_element()? {
                if cursor.next_parameter()?.is_some() {
                    return Err(Malformed);
                }
                let supported = self.subprotocols.iter().find(|name| name.as_bytes() == offer);
                selected = selected.or(supported);
            }
        }
        Ok(selected.map(String::as_str))
    }
}

impl Accept<'_> {
    /// Appends the fields of the response. The caller writes the status line, 101 or for extended CONNECT 200.
    pub fn encode_fields(&self, out: &mut Vec<u8>) {
        if let Some(accept_key) = &self.accept_key {
            encode_field(out, UPGRADE, b"websocket");
            encode_field(out, CONNECTION, UPGRADE.as_bytes());
            encode_field(out, ACCEPT, accept_key);
        }
        if let Some(subprotocol) = self.subprotocol {
            encode_field(out, PROTOCOL, subprotocol.as_bytes());
        }
        if let Some(value) = self.extension_value() {
            encode_field(out, EXTENSIONS, value.as_bytes());
        }
    }

    /// The value of Sec-WebSocket-Extensions, if an extension was negotiated.
    #[must_use]
    pub fn extension_value(&self) -> Option<String> {
        self.deflate.map(|parameters| {
            let mut value = String::new();
            parameters.encode_response(&mut value);
            value
        })
    }
}

/// The key of a client's request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ClientKey([u8; KEY_BYTES]);

impl ClientKey {
    /// The key of these random bytes, which must be new for each connection (section 4.1).
    #[must_use]
    pub fn from_random(random: [u8; 16]) -> Self {
        let mut key = [0; KEY_BYTES];
        encode_base64(&random, &mut key);
        Self(key)
    }

    /// The value of Sec-WebSocket-Key.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; KEY_BYTES] {
        &self.0
    }
}

/// The options that a client offers.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Offer {
    /// Subprotocols in order of preference, each of them once.
    pub subprotocols: Vec<String>,
    /// Settings of permessage-deflate; `None` to offer no extension.
    pub deflate: Option<DeflateSettings>,
}

/// The options that a server has accepted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Agreed<'o> {
    /// The selected subprotocol.
    pub subprotocol: Option<&'o str>,
    /// The parameters of permessage-deflate; `None` if it was not negotiated.
    pub deflate: Option<DeflateParameters>,
}

/// Why a server's response does not establish a WebSocket connection. The client must close the connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BadResponse {
    /// The status is not 101: the server refuses.
    Refused {
        /// The status.
        status: u16,
    },
    /// The response does not switch to WebSocket.
    UpgradeMissing,
    /// The accept key is missing, repeated or not that of the request.
    AcceptInvalid,
    /// The subprotocol was not offered, or more than one was selected.
    SubprotocolInvalid,
    /// The extensions do not fit the offer.
    ExtensionsInvalid,
}

impl BadResponse {
    /// One line for the log.
    #[must_use]
    pub const fn text(self) -> &'static str {
        match self {
            Self::Refused { .. } => "the server refused the WebSocket handshake",
            Self::UpgradeMissing => "the server's 101 response does not switch to WebSocket",
            Self::AcceptInvalid => "the server's Sec-WebSocket-Accept does not match the key",
            Self::SubprotocolInvalid => "the server selected a subprotocol that was not offered",
            Self::ExtensionsInvalid => "the server's extensions do not fit the offer",
        }
    }
}

impl Offer {
    /// Appends the fields of the request, except Host.
    pub fn encode_fields(&self, key: &ClientKey, out: &mut Vec<u8>) {
        encode_field(out, UPGRADE, b"websocket");
        encode_field(out, CONNECTION, UPGRADE.as_bytes());
        encode_field(out, KEY, key.as_bytes());
        self.encode_offers(out);
    }

    /// Appends the fields that an extended CONNECT has too.
    fn encode_offers(&self, out: &mut Vec<u8>) {
        encode_field(out, VERSION, WEBSOCKET_VERSION.as_bytes());
        if !self.subprotocols.is_empty() {
            encode_field(out, PROTOCOL, self.subprotocols.join(", ").as_bytes());
        }
        if let Some(settings) = self.deflate {
            let mut value = String::new();
            settings.encode_offer(&mut value);
            encode_field(out, EXTENSIONS, value.as_bytes());
        }
    }

    /// Checks the response of HTTP/1.1 (section 4.1).
    ///
    /// # Errors
    /// Why there is no connection.
    pub fn check(
        &self,
        key: &ClientKey,
        head: &ResponseHead<'_>,
    ) -> Result<Agreed<'_>, BadResponse> {
        if head.status != 101 {
            return Err(BadResponse::Refused { status: head.status });
        }
        let fields = head.fields().map(|field| (field.name, field.value));
        let switches = |value: &[u8]| value.eq_ignore_ascii_case(b"websocket");
        if !single(fields.clone(), UPGRADE).is_some_and(switches) || !head.is_nominated("upgrade") {
            return Err(BadResponse::UpgradeMissing);
        }
        if single(fields.clone(), ACCEPT) != Some(&accept_key(key.as_bytes())) {
            return Err(BadResponse::AcceptInvalid);
        }
        self.check_selection(fields)
    }

    /// Checks the selection of the server; this is all that a response to an extended CONNECT states.
    ///
    /// # Errors
    /// A subprotocol or an extension that does not fit the offer.
    pub fn check_selection<'f>(
        &self,
        fields: impl Iterator<Item = (&'f str, &'f [u8])> + Clone,
    ) -> Result<Agreed<'_>, BadResponse> {
        let mut selected = all(fields.clone(), PROTOCOL);
        let subprotocol = match (selected.next(), selected.next()) {
            (None, _) => None,
            (Some(name), None) => {
                let offered = self.subprotocols.iter().find(|offer| offer.as_bytes() == name);
                Some(offered.ok_or(BadResponse::SubprotocolInvalid)?.as_str())
            }
            (Some(_), Some(_)) => return Err(BadResponse::SubprotocolInvalid),
        };
        let deflate = DeflateSettings::check_response(self.deflate, all(fields, EXTENSIONS))
            .map_err(|Malformed| BadResponse::ExtensionsInvalid)?;
        Ok(Agreed { subprotocol, deflate })
    }
}

/// The values of all fields with this name.
fn all<'f>(
    fields: impl Iterator<Item = (&'f str, &'f [u8])>,
    name: &str,
) -> impl Iterator<Item = &'f [u8]> {
    fields.filter(move |(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, value)| value)
}

/// The value of the only field with this name.
fn single<'f>(fields: impl Iterator<Item = (&'f str, &'f [u8])>, name: &str) -> Option<&'f [u8]> {
    let mut values = all(fields, name);
    values.next().filter(|_| values.next().is_none())
}

fn check_version<'f>(fields: impl Iterator<Item = (&'f str, &'f [u8])>) -> Result<(), Refusal> {
    match single(fields, VERSION) {
        Some(version) if version == WEBSOCKET_VERSION.as_bytes() => Ok(()),
        _ => Err(Refusal::VersionUnsupported),
    }
}

/// Whether a response accepts `key` (section 4.1, step 4).
#[must_use]
pub fn is_key_accepted(key: &[u8], head: &ResponseHead<'_>) -> bool {
    let fields = head.fields().map(|field| (field.name, field.value));
    single(fields, ACCEPT) == Some(&accept_key(key))
}

/// The value that accepts `key` (section 4.2.2, step 5.4). `None` if the key is not valid.
#[must_use]
pub fn accept_key_of(key: &[u8]) -> Option<[u8; ACCEPT_BYTES]> {
    is_key(key).then(|| accept_key(key))
}

/// Whether `key` is the base64 form of 16 bytes. The unused bits of the last digit may have any value.
fn is_key(key: &[u8]) -> bool {
    let is_digit = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/');
    key.len() == KEY_BYTES
        && key.strip_suffix(b"==").is_some_and(|digits| digits.iter().all(is_digit))
}

/// The response to a key (section 4.2.2, step 5.4).
fn accept_key(key: &[u8]) -> [u8; ACCEPT_BYTES] {
    let mut input = [0; KEY_BYTES + GUID.len()];
    for (place, byte) in input.iter_mut().zip(key.iter().chain(GUID)) {
        *place = *byte;
    }
    let mut accept = [0; ACCEPT_BYTES];
    encode_base64(digest(&SHA1_FOR_LEGACY_USE_ONLY, &input).as_ref(), &mut accept);
    accept
}

/// Writes `bytes` in base64, padded, to `out`, which must have the right length.
fn encode_base64(bytes: &[u8], out: &mut [u8]) {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for (group, place) in bytes.chunks(3).zip(out.chunks_mut(4)) {
        let byte = |index: usize| group.get(index).copied().map_or(0, u32::from);
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for (index, digit) in place.iter_mut().enumerate() {
            let value = bits >> (18 - 6 * index) & 0x3f;
            *digit = if index <= group.len() { DIGITS[value as usize] } else { b'=' };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accept_key_matches_the_example_in_section_1_3() {
        let key = b"dGhlIHNhbXBsZSBub25jZQ==";
        assert_eq!(&accept_key(key), b"s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
        assert_eq!(ClientKey::from_random(*b"the sample nonce").as_bytes(), key);
    }

    #[test]
    fn base64_is_padded() {
        for (bytes, wanted) in
            [("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foob", "Zm9vYg==")]
        {
            let mut out = vec![0; wanted.len()];
            encode_base64(bytes.as_bytes(), &mut out);
            assert_eq!(out, wanted.as_bytes());
        }
    }
}
