//! A health check by WebSocket: a handshake, and a closing handshake right after it.
//! In: a path; bytes of the server. Out: the request, a Close frame; whether the server has answered both.
//! Never: reads the messages of the server.
//! Limits: `HEAD_BYTES_MAX` bytes of the response's head; `BYTES_MAX` bytes before the server's Close frame.

use tidegate_config::model::WebSocketCheck;
use tidegate_wire::http1::{HeadDecoder, ResponseLimits, encode_field, encode_request_line};
use tidegate_wire::message::{RequestKind, ResponseStorage};
use tidegate_wire::websocket::{
    BadResponse, ClientKey, Close, CloseCode, Decoder, Event, FrameRules, Limits, Offer, Role,
    encode_close,
};

use super::USER_AGENT;
use super::talk::TalkStart;
use crate::health::{Outcome, Stage};

/// Bytes of messages that the server may send before it closes.
const BYTES_MAX: usize = 64 * 1024;

/// The connection of a check.
#[derive(Debug)]
pub struct WebSocketTalk {
    key: ClientKey,
    /// Masks the Close frame.
    mask: [u8; 4],
    /// Decodes the response to the handshake; `None` after it.
    heads: Option<HeadDecoder>,
    /// The beginning of a head or frame that is not complete.
    held: Vec<u8>,
    /// Decodes the frames of the server.
    frames: Decoder,
    /// How many bytes of frames the server may still send.
    left: usize,
}

impl WebSocketTalk {
    /// Begins the connection, and appends the request.
    pub(super) fn begin(check: &WebSocketCheck, start: &TalkStart<'_>, out: &mut Vec<u8>) -> Self {
        let mut random = [0; 16];
        random[..8].copy_from_slice(&start.random[0].to_le_bytes());
        random[8..].copy_from_slice(&start.random[1].to_le_bytes());
        let key = ClientKey::from_random(random);
        encode_request_line(out, "GET", &check.target);
        encode_field(out, "Host", start.host.as_bytes());
        encode_field(out, "User-Agent", USER_AGENT);
        Offer::default().encode_fields(&key, out);
        out.extend_from_slice(b"\r\n");
        let rules = FrameRules { role: Role::Client, allows_deflate: false };
        let mask = [random[3], random[6], random[9], random[12]];
        let heads = Some(HeadDecoder::default());
        Self { key, mask, heads, held: Vec::new(), frames: Decoder::new(rules), left: BYTES_MAX }
    }

    pub(super) fn read(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> Option<Outcome> {
        self.held.extend_from_slice(bytes);
        if self.heads.is_some() {
            if let Some(outcome) = self.read_head()? {
                return Some(outcome);
            }
            let close = Close::new(CloseCode::NORMAL);
            encode_close(out, Some(close), Some(self.mask));
        }
        self.read_frames()
    }

    /// The result if the server ends the connection now.
    pub(super) fn ended(&self) -> Outcome {
        match self.heads {
            Some(_) => Outcome::Closed(Stage::Response),
            None => Outcome::NotClosed,
        }
    }

    /// Reads the response to the handshake. Returns the result if it fails; the outer `None`: the head is not complete.
    fn read_head(&mut self) -> Option<Option<Outcome>> {
        let kind = RequestKind { is_head: false, is_connect: false, upgrade_asked: true };
        let (heads, key) = (self.heads.as_mut()?, self.key);
        loop {
            let mut storage = ResponseStorage::new();
            let limits = ResponseLimits::default();
            let (used, is_interim, result) =
                match heads.decode_response(&self.held, &limits, kind, &mut storage) {
                    Ok(None) => return None,
                    Ok(Some((head, length))) => {
                        let is_interim = head.is_interim();
                        (length, is_interim, Offer::default().check(&key, &head).map(|_| ()))
                    }
                    Err(_) => return Some(Some(Outcome::Malformed)),
                };
            self.held.drain(..used);
            match result {
                _ if is_interim => {}
                Ok(()) => {
                    self.heads = None;
                    return Some(None);
                }
                Err(BadResponse::Refused { status }) => return Some(Some(Outcome::Status(status))),
                Err(
                    BadResponse::UpgradeMissing
                    | BadResponse::AcceptInvalid
                    | BadResponse::SubprotocolInvalid
                    | BadResponse::ExtensionsInvalid,
                ) => return Some(Some(Outcome::BadHandshake)),
            }
        }
    }

    /// Reads frames up to the server's Close frame.
    fn read_frames(&mut self) -> Option<Outcome> {
        let mut used = 0;
        let outcome = loop {
            let rest = self.held.get_mut(used..).unwrap_or_default();
            match self.frames.decode(rest, &Limits::default()) {
                Err(_) => break Some(Outcome::NotClosed),
                Ok(step) if matches!(step.event, Some(Event::Close(_))) => {
                    break Some(Outcome::Passed(101));
                }
                Ok(step) if step.consumed == 0 => break None,
                Ok(step) => used += step.consumed,
            }
        };
        self.held.drain(..used);
        self.left = self.left.saturating_sub(used);
        if self.left == 0 { Some(outcome.unwrap_or(Outcome::NotClosed)) } else { outcome }
    }
}
