//! WebSocket connections of scripts to servers (`tide.websocket`): the client's side of RFC 6455 over a socket.
//! In: the parts of a handshake and the messages of scripts; the bytes of a socket. Out: bytes for the server; messages.
//! Never: negotiates an extension; sends a frame without a mask, except as the peer in a test.
//! Limits: `message_bytes_max` of each connection, `TARGET_BYTES_MAX` of a path, those of a response head (`ResponseLimits`)
//! and those of `sockets.rs`.
//! Invariant: the keys of frames cannot be guessed from earlier keys (section 5.3): each one is part of a digest of the VM's
//! seed and a number.

use aws_lc_rs::digest;
use tidegate_base::limits::{HOST_BYTES_MAX, WEBSOCKET_MESSAGE_BYTES_CEILING};
use tidegate_wire::http1::{HeadDecoder, ResponseLimits};
use tidegate_wire::message::{RequestKind, ResponseStorage};
use tidegate_wire::websocket::{
    ClientKey, Close, CloseCode, Decoder, FrameRules, Incoming, Kind, Limits, MaskKey, Message,
    Offer, Role, accept_key_of, encode_close, encode_message, encode_pong,
};

use crate::exchange::is_token;
use crate::host::{Effect, Host, OUTPUT_BYTES_MAX, TOO_MUCH};
use crate::sockets::{CLOSED, SocketId};

/// Maximum number of bytes of a path with its query.
const TARGET_BYTES_MAX: usize = 8 * 1024;
/// The error of a socket without a handshake.
const NOT_A_WEBSOCKET: &str = "the socket is not a WebSocket connection";

/// The state of a WebSocket connection.
pub(crate) struct ServerWebSocket {
    /// The offer to the server, and the key; `None` once the handshake is complete.
    handshake: Option<(Offer, ClientKey)>,
    /// The side of the script: the client, except for the peers of tests.
    role: Role,
    decoder: Decoder,
    limits: Limits,
    /// The part of a message that has arrived.
    message: Vec<u8>,
}

/// The parts of a handshake, from the prelude.
pub(crate) struct Opening<'a> {
    pub(crate) target: &'a [u8],
    pub(crate) host: &'a [u8],
    /// Lines, each of which has passed `check_outgoing_field`.
    pub(crate) fields: &'a [u8],
    /// The subprotocols, separated by commas.
    pub(crate) protocols: &'a [u8],
    pub(crate) message_bytes_max: f64,
}

/// A frame, or the response to the handshake.
pub(crate) enum Received<'a> {
    /// No complete frame yet.
    More,
    /// The response to the handshake, with the subprotocol.
    Open(Option<&'a str>),
    Text(&'a [u8]),
    Binary(&'a [u8]),
    Ping(&'a [u8]),
    Pong,
    Close(Option<Close<'a>>),
}

/// A frame that a script sends.
pub(crate) enum Sent<'a> {
    Text(&'a [u8]),
    Binary(&'a [u8]),
    Pong(&'a [u8]),
    /// A code and a reason.
    Close(u32, &'a [u8]),
}

impl Opening<'_> {
    fn check(&self) -> Result<(), &'static str> {
        let fits = |byte: &u8| byte.is_ascii_graphic() && *byte != b'#';
        if !self.target.starts_with(b"/") || !self.target.iter().all(fits) {
            return Err("the path must begin with a slash and be percent-encoded");
        }
        if self.target.len() > TARGET_BYTES_MAX {
            return Err("the path and the query may have up to 8 KiB");
        }
        let fits = |byte: &u8| byte.is_ascii_alphanumeric() || b"-._~:[]".contains(byte);
        if !self.host.iter().all(fits) || self.host.is_empty() || self.host.len() > HOST_BYTES_MAX {
            return Err("the host must be a name or an address, with a port if one is needed");
        }
        let is_own = |line: &[u8]| {
            line.get(..14).is_some_and(|start| start.eq_ignore_ascii_case(b"sec-websocket-"))
        };
        if self.fields.split(|byte| *byte == b'\n').any(is_own) {
            return Err(
                "fields Sec-WebSocket-* cannot be set; use the option `protocols` for subprotocols",
            );
        }
        let protocols = self.protocols.split(|byte| *byte == b',');
        match self.protocols.is_empty() || protocols.clone().all(is_token) {
            true => Ok(()),
            false => Err("a subprotocol must be a token, such as \"chat\""),
        }
    }

    fn offer(&self) -> Offer {
        let names = self.protocols.split(|byte| *byte == b',').filter(|name| !name.is_empty());
        let names = names.map(|name| String::from_utf8_lossy(name).into_owned());
        Offer { subprotocols: names.collect(), deflate: None }
    }
}

impl ServerWebSocket {
    fn new(handshake: Option<(Offer, ClientKey)>, role: Role, message_bytes_max: f64) -> Self {
        let most = message_bytes_max.clamp(1.0, WEBSOCKET_MESSAGE_BYTES_CEILING as f64) as u32;
        let limits = Limits { message_bytes_max: most, frame_bytes_max: most, ..Limits::default() };
        let decoder = Decoder::new(FrameRules { role, allows_deflate: false });
        Self { handshake, role, decoder, limits, message: Vec::new() }
    }

    /// The length of the head of the response, and the subprotocol; `None` if the head is incomplete.
    fn check<'o>(
        (offer, key): &'o (Offer, ClientKey),
        input: &[u8],
    ) -> Result<Option<(usize, Option<&'o str>)>, String> {
        let mut storage = ResponseStorage::new();
        let limits = ResponseLimits { is_strict: true, ..ResponseLimits::default() };
        let kind = RequestKind { upgrade_asked: true, ..RequestKind::default() };
        let decoded = HeadDecoder::default()
            .decode_response(input, &limits, kind, &mut storage)
            .map_err(|_| "the response to the handshake is malformed")?;
        let Some((head, length)) = decoded else { return Ok(None) };
        match offer.check(key, &head) {
            Ok(agreed) => Ok(Some((length, agreed.subprotocol))),
            Err(why) => Err(format!("{} (status {})", why.text(), head.status)),
        }
    }
}

impl Host {
    /// Sends the request of a handshake over a socket.
    pub(crate) fn open_websocket(
        &mut self,
        id: SocketId,
        opening: &Opening<'_>,
    ) -> Result<(), String> {
        opening.check()?;
        let mut random = [0; 16];
        random.copy_from_slice(&self.unpredictable()[..16]);
        let (key, offer) = (ClientKey::from_random(random), opening.offer());
        let mut request = [b"GET ", opening.target, b" HTTP/1.1\r\nHost: ", opening.host].concat();
        request.extend_from_slice(b"\r\n");
        offer.encode_fields(&key, &mut request);
        for line in opening.fields.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
            request.extend_from_slice(line);
            request.extend_from_slice(b"\r\n");
        }
        request.extend_from_slice(b"\r\n");
        self.send_socket(id, &request)?;
        let websocket =
            ServerWebSocket::new(Some((offer, key)), Role::Client, opening.message_bytes_max);
        let socket = self.sockets.get_mut(id).ok_or(CLOSED)?;
        socket.websocket = Some(Box::new(websocket));
        Ok(())
    }

    /// Makes the socket the server's side of a connection. Returns Sec-WebSocket-Accept for the response to a client with this
    /// key. Only in the VMs of tests.
    pub(crate) fn accept_websocket(
        &mut self,
        id: SocketId,
        key: &[u8],
    ) -> Result<String, &'static str> {
        let accept = accept_key_of(key).ok_or("the key of the handshake is malformed")?;
        let websocket =
            ServerWebSocket::new(None, Role::Server, WEBSOCKET_MESSAGE_BYTES_CEILING as f64);
        self.sockets.get_mut(id).ok_or(CLOSED)?.websocket = Some(Box::new(websocket));
        Ok(String::from_utf8_lossy(&accept).into_owned())
    }

    /// Passes the next frame of the server to `show`.
    pub(crate) fn receive_frame<T>(
        &mut self,
        id: SocketId,
        show: impl FnOnce(Received<'_>) -> T,
    ) -> Result<T, String> {
        let socket = self.sockets.get_mut(id).ok_or(CLOSED)?;
        let ended = socket.ended().map(str::to_owned);
        let (input, websocket) = socket.received();
        let websocket = websocket.ok_or(NOT_A_WEBSOCKET)?;
        let (mut at, length) = (0, input.len());
        if let Some(handshake) = &websocket.handshake {
            let opened = ServerWebSocket::check(handshake, input)?;
            let Some((head, protocol)) = opened else {
                return ended.map_or_else(|| Ok(show(Received::More)), Err);
            };
            let shown = show(Received::Open(protocol));
            websocket.handshake = None;
            self.consume_bytes(id, head);
            return Ok(shown);
        }
        let mut show = Some(show);
        let mut shown = None;
        let mut fault = None;
        while at < length && shown.is_none() {
            let ServerWebSocket { decoder, limits, message, .. } = &mut *websocket;
            let rest = input.get_mut(at..).unwrap_or_default();
            match decoder.decode_message(rest, limits, message, None) {
                Ok(step) => {
                    at += step.consumed;
                    let received = step.incoming.map(received_of);
                    shown = received.and_then(|received| show.take().map(|show| show(received)));
                    if step.consumed == 0 {
                        break;
                    }
                }
                Err(found) => {
                    fault = Some(found);
                    break;
                }
            }
        }
        if fault.is_some() {
            websocket.decoder.fail();
        }
        websocket.decoder.release();
        if !websocket.decoder.is_in_message() {
            websocket.message = Vec::new();
        }
        self.consume_bytes(id, at);
        if let Some(fault) = fault {
            let close = fault.close();
            let sent = Sent::Close(u32::from(close.code.get()), close.reason.as_bytes());
            let _ = self.send_frame(id, &sent);
            return Err(format!("the server violated the protocol: {}", close.reason));
        }
        match (shown, ended, show) {
            (Some(shown), _, _) => Ok(shown),
            (None, Some(reason), _) => Err(reason),
            (None, None, Some(show)) => Ok(show(Received::More)),
            (None, None, None) => Err(CLOSED.to_owned()),
        }
    }

    /// Sends a message or a control frame.
    pub(crate) fn send_frame(&mut self, id: SocketId, sent: &Sent<'_>) -> Result<(), String> {
        let key = self.mask_key();
        let socket = self.sockets.get_mut(id).ok_or(CLOSED)?;
        let role = socket.websocket.as_ref().ok_or(NOT_A_WEBSOCKET)?.role;
        // RFC 6455 section 5.1: a server masks nothing.
        let key = (role == Role::Client).then_some(key);
        let tag = socket.open_tag()?;
        let outbox = &mut self.outbox;
        let start = outbox.bytes.len();
        let (Sent::Text(data) | Sent::Binary(data) | Sent::Pong(data) | Sent::Close(_, data)) =
            *sent;
        if start + data.len() > OUTPUT_BYTES_MAX {
            return Err(TOO_MUCH.to_owned());
        }
        match sent {
            Sent::Text(text) if core::str::from_utf8(text).is_err() => {
                return Err("a text message must be UTF-8; send it as \"binary\"".to_owned());
            }
            Sent::Text(text) => encode_message(&mut outbox.bytes, Kind::Text, text, key),
            Sent::Binary(data) => encode_message(&mut outbox.bytes, Kind::Binary, data, key),
            Sent::Pong(data) => encode_pong(&mut outbox.bytes, data, key)
                .map_err(|_| "a pong may have up to 125 bytes")?,
            Sent::Close(code, reason) => {
                let code = u16::try_from(*code).ok().and_then(CloseCode::new);
                let code =
                    code.ok_or("the code must be 1000 to 1003, 1007 to 1014 or 3000 to 4999")?;
                let reason =
                    core::str::from_utf8(reason).map_err(|_| "the reason must be UTF-8")?;
                encode_close(&mut outbox.bytes, Some(Close { code, reason }), key);
            }
        }
        let data = start..outbox.bytes.len();
        outbox.effects.push(Effect::SocketSend { tag, data });
        Ok(())
    }

    /// The key of a frame. One digest provides several keys.
    pub(crate) fn mask_key(&mut self) -> MaskKey {
        if self.mask_keys.is_empty() {
            let bytes = self.unpredictable();
            self.mask_keys.extend(bytes.as_chunks::<4>().0);
        }
        self.mask_keys.pop().unwrap_or_default()
    }

    /// Bytes that cannot be guessed from earlier ones.
    fn unpredictable(&mut self) -> [u8; 32] {
        self.drawn += 1;
        let facts = &self.facts;
        let mut context = digest::Context::new(&digest::SHA256);
        for number in [facts.seed, u64::from(facts.worker), u64::from(facts.life), self.drawn] {
            context.update(&number.to_le_bytes());
        }
        context.update(facts.app.as_bytes());
        let mut bytes = [0; 32];
        bytes.copy_from_slice(context.finish().as_ref());
        bytes
    }
}

fn received_of(incoming: Incoming<'_>) -> Received<'_> {
    match incoming {
        Incoming::Message(Message::Text(text)) => Received::Text(text.as_bytes()),
        Incoming::Message(Message::Binary(data)) => Received::Binary(data),
        Incoming::Ping(data) => Received::Ping(data),
        Incoming::Pong(_) => Received::Pong,
        Incoming::Close(close) => Received::Close(close),
    }
}
