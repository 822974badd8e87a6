//! The WebSocket handshake of the load generator's connections (RFC 6455 section 4.1).
//! In: a URL, the received bytes. Out: the bytes of a request; whether the response accepts it.
//! Never: accepts a response whose head the strict decoder rejects.
//! Limits: `HEAD_BYTES_MAX` bytes of a response.
//! Invariant: all connections of a run use one key, so the request is the same for all of them. The key need not be
//! unpredictable here: it protects against caches that mistake a handshake for a request, and a load test has no cache.

use crate::target::Url;
use tidegate_base::Prng;
use tidegate_wire::http1::{HeadDecoder, ResponseLimits};
use tidegate_wire::message::{RequestKind, ResponseStorage};
use tidegate_wire::websocket::{Agreed, ClientKey, Offer};

/// Largest head of a response to a handshake.
const HEAD_BYTES_MAX: usize = 16 * 1024;

/// The handshake of a run.
#[derive(Clone, Debug)]
pub(crate) struct Handshake {
    key: ClientKey,
    offer: Offer,
    /// The request after its target.
    rest: Vec<u8>,
}

impl Handshake {
    /// A handshake with the server of `url`, with additional header fields (`name: value`).
    ///
    /// # Errors
    /// A message for the operator about a field.
    pub(crate) fn new(
        url: &Url,
        fields: &[String],
        offer: Offer,
        seed: u64,
    ) -> Result<Self, String> {
        let mut prng = Prng::new(seed);
        let mut random = [0; 16];
        for half in random.chunks_exact_mut(8) {
            half.copy_from_slice(&prng.next_u64().to_ne_bytes());
        }
        let key = ClientKey::from_random(random);
        let mut rest = format!(" HTTP/1.1\r\nHost: {}\r\n", url.authority).into_bytes();
        offer.encode_fields(&key, &mut rest);
        for field in fields {
            rest.extend_from_slice(check_field(field)?.as_bytes());
            rest.extend_from_slice(b"\r\n");
        }
        rest.extend_from_slice(b"\r\n");
        Ok(Self { key, offer, rest })
    }

    /// Appends the request for `target`.
    pub(crate) fn encode(&self, target: &str, out: &mut Vec<u8>) {
        out.extend_from_slice(b"GET ");
        out.extend_from_slice(target.as_bytes());
        out.extend_from_slice(&self.rest);
    }

    /// The length of the response's head in `input`, and the parameters that the server accepted; `None` if the head is
    /// incomplete.
    ///
    /// # Errors
    /// A message that says why the connection is not a WebSocket.
    pub(crate) fn check(&self, input: &[u8]) -> Result<Option<(usize, Agreed<'_>)>, String> {
        let mut storage = ResponseStorage::new();
        let limits = ResponseLimits { is_strict: true, ..ResponseLimits::default() };
        let kind = RequestKind { upgrade_asked: true, ..RequestKind::default() };
        let decoded = HeadDecoder::default()
            .decode_response(input, &limits, kind, &mut storage)
            .map_err(|fault| {
                // The decoder's messages speak of "this server".
                let reason = fault.reason().replace("this server", "this client");
                format!("the response to the handshake is malformed: {reason}")
            })?;
        let Some((head, length)) = decoded else {
            if input.len() > HEAD_BYTES_MAX {
                return Err("the response head of the handshake is too large".to_owned());
            }
            return Ok(None);
        };
        match self.offer.check(&self.key, &head) {
            Ok(agreed) => Ok(Some((length, agreed))),
            Err(why) => Err(format!("{} (status {})", why.text(), head.status)),
        }
    }
}

/// Parses the URL of a WebSocket, perhaps with TLS. In the result, `wss://` is `https://`.
///
/// # Errors
/// A message for the operator.
pub(crate) fn parse_url(text: &str) -> Result<Url, String> {
    let as_http = match text.split_once("://") {
        Some((scheme, rest)) if scheme.eq_ignore_ascii_case("ws") => format!("http://{rest}"),
        Some((scheme, rest)) if scheme.eq_ignore_ascii_case("wss") => format!("https://{rest}"),
        _ => text.to_owned(),
    };
    Url::parse(&as_http)
}

fn check_field(field: &str) -> Result<&str, String> {
    let is_name = |name: &str| {
        !name.is_empty()
            && name
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || b"-_.!#$%&'*+^`|~".contains(&byte))
    };
    match field.split_once(':') {
        Some((name, value)) if is_name(name) && !value.contains(['\r', '\n', '\0']) => Ok(field),
        _ => Err(format!("header field `{field}` is not of the form `name: value`")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_101_that_accepts_the_key_is_accepted() {
        let url = parse_url("ws://127.0.0.1:80/x").unwrap();
        let fields = ["Origin: http://a".to_owned()];
        let handshake = Handshake::new(&url, &fields, Offer::default(), 1).unwrap();
        let mut request = Vec::new();
        handshake.encode("/x", &mut request);
        let text = String::from_utf8(request).unwrap();
        assert!(text.starts_with("GET /x HTTP/1.1\r\nHost: 127.0.0.1:80\r\n"), "{text}");
        assert!(text.ends_with("Origin: http://a\r\n\r\n"), "{text}");
        assert!(matches!(handshake.check(b"HTTP/1.1 101 Switching"), Ok(None)));
        for response in [
            "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n",
            "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
             Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n",
            "not HTTP\r\n\r\n",
        ] {
            assert!(handshake.check(response.as_bytes()).is_err(), "{response}");
        }
        assert!(Handshake::new(&url, &["a b: c".to_owned()], Offer::default(), 1).is_err());
        assert!(parse_url("wss://localhost/").is_ok_and(|url| url.is_secure));
    }
}
