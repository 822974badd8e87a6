//! A client of HTTP/2 for named cases: it sends what a test asks for, and collects what comes on each stream.
//! In: requests, or raw frames. Out: status, body length and end of each stream; the GOAWAY.
//! Never: waits; the test turns the worker.

use std::collections::BTreeMap;

use tidegate_base::Moment;
use tidegate_reactor::SimPeer;
use tidegate_wire::http2::frame::{END_HEADERS, END_STREAM, FrameHead, FrameKind, decode_u32};
use tidegate_wire::http2::hpack::{Encoder, Indexing};
use tidegate_wire::http2::{
    Config, Connection, ErrorCode, Event, FieldWriter, RequestLine, ResetCause, Scratch,
};

use crate::stage::Stage;

/// What came on a stream.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Response {
    /// The status of the final head; 0 before it.
    pub status: u16,
    /// The fields of the final head, one `name: value` in a line.
    pub fields: String,
    pub body: Vec<u8>,
    pub has_ended: bool,
    /// The code of RST_STREAM.
    pub reset: Option<ErrorCode>,
}

/// The client's end of a connection.
pub struct Speaker {
    pub peer: SimPeer,
    connection: Connection,
    /// Frames that wait to be sent. Tests may append raw ones.
    pub out: Vec<u8>,
    pub responses: BTreeMap<u32, Response>,
    pub goaway: Option<ErrorCode>,
    pub pongs: u64,
    /// Streams whose windows are not updated.
    pub unread: Vec<u32>,
    /// What a client that only sends raw frames has received and not looked at.
    received: Vec<u8>,
    /// To such a client: kind and stream of each frame, and the first byte of its payload.
    pub frames: Vec<(FrameKind, u32, u8)>,
    is_raw: bool,
}

/// Appends a header block in one HEADERS frame. It need not be valid.
pub fn encode_headers(out: &mut Vec<u8>, stream: u32, fields: &[(&[u8], &[u8])], flags: u8) {
    let start = out.len();
    out.extend_from_slice(&[0; 9]);
    let mut encoder = Encoder::new(0);
    let mut block = encoder.begin(out);
    for (name, value) in fields {
        block.encode_field(name, value, Indexing::Never);
    }
    let length = (out.len() - start - 9) as u32;
    let head = FrameHead { length, kind: FrameKind::Headers, flags, stream };
    out[start..start + 9].copy_from_slice(&head.encode());
}

/// Appends any frame.
pub fn encode_frame(out: &mut Vec<u8>, kind: FrameKind, flags: u8, stream: u32, payload: &[u8]) {
    let head = FrameHead { length: payload.len() as u32, kind, flags, stream };
    out.extend_from_slice(&head.encode());
    out.extend_from_slice(payload);
}

/// The head of a GET for `/hello`.
pub fn encode_hello(out: &mut Vec<u8>, stream: u32) {
    let fields: [(&[u8], &[u8]); 4] =
        [(b":method", b"GET"), (b":scheme", b"http"), (b":authority", b"a"), (b":path", b"/hello")];
    encode_headers(out, stream, &fields, END_HEADERS | END_STREAM);
}

impl Speaker {
    /// Connects; the preface waits in `out`.
    pub fn new(stage: &Stage) -> Self {
        let mut connection = Connection::new(Config::client(), stage.net.now());
        let mut out = Vec::new();
        connection.start(&mut out);
        Self {
            peer: stage.dial(),
            connection,
            out,
            responses: BTreeMap::new(),
            goaway: None,
            pongs: 0,
            unread: Vec::new(),
            received: Vec::new(),
            frames: Vec::new(),
            is_raw: false,
        }
    }

    /// A client that sends raw frames, and looks for GOAWAY only.
    pub fn raw(stage: &Stage) -> Self {
        Self { is_raw: true, ..Self::new(stage) }
    }

    fn take_raw(&mut self, bytes: &[u8]) {
        self.received.extend_from_slice(bytes);
        while let Some(head) = self.received.first_chunk::<9>() {
            let head = FrameHead::decode(head);
            let end = 9 + head.length as usize;
            let Some(payload) = self.received.get(9..end) else { return };
            self.frames.push((head.kind, head.stream, payload.first().copied().unwrap_or(0)));
            if head.kind == FrameKind::GoAway {
                self.goaway = Some(ErrorCode(decode_u32(&payload[4..])));
            }
            self.received.drain(..end);
        }
    }

    /// How many streams the worker allows, as it has stated.
    pub fn streams_max(&self) -> Option<u32> {
        self.connection.peer_settings().streams_max
    }

    /// Begins a request; returns its stream.
    pub fn request(
        &mut self,
        method: &str,
        path: &str,
        ends: bool,
        write: impl FnOnce(&mut FieldWriter<'_>),
    ) -> u32 {
        self.request_for(None, method, path, ends, write)
    }

    /// Begins an extended CONNECT for a protocol (RFC 8441).
    pub fn connect(&mut self, protocol: &str, path: &str, ends: bool) -> u32 {
        self.request_for(Some(protocol), "CONNECT", path, ends, |fields| {
            fields.field("sec-websocket-version", b"13");
        })
    }

    /// As `connect`, to `/echo`, with an offer to compress messages.
    pub fn connect_compressed(&mut self) -> u32 {
        self.request_for(Some("websocket"), "CONNECT", "/echo", false, |fields| {
            fields.field("sec-websocket-version", b"13");
            fields.field("sec-websocket-extensions", b"permessage-deflate");
        })
    }

    fn request_for(
        &mut self,
        protocol: Option<&str>,
        method: &str,
        path: &str,
        ends: bool,
        write: impl FnOnce(&mut FieldWriter<'_>),
    ) -> u32 {
        let line = RequestLine { method, scheme: "http", authority: "a", path, protocol };
        let sent = self.connection.send_request(&mut self.out, 0, &line, ends, write);
        let stream = sent.expect("the connection takes a request");
        self.responses.insert(stream, Response::default());
        stream
    }

    pub fn get(&mut self, path: &str) -> u32 {
        self.request("GET", path, true, |_| {})
    }

    pub fn data(&mut self, now: Moment, stream: u32, bytes: &[u8], ends: bool) {
        let sent = self.connection.send_data(now, &mut self.out, stream, bytes, ends);
        assert_eq!(sent, Some(bytes.len()), "the window admits the data");
    }

    /// Sends as much of `bytes` as the window admits, and the end of the request after them; returns how much that was.
    pub fn data_some(&mut self, now: Moment, stream: u32, bytes: &[u8], ends: bool) -> usize {
        if bytes.is_empty() {
            return 0;
        }
        let sent = self.connection.send_data(now, &mut self.out, stream, bytes, ends);
        sent.unwrap_or_default()
    }

    pub fn trailers(&mut self, stream: u32, name: &str, value: &str) {
        let write = |fields: &mut FieldWriter<'_>| fields.field(name, value.as_bytes());
        assert!(self.connection.send_trailers(&mut self.out, stream, write));
    }

    /// Credits bytes that were received on a stream in `unread`.
    pub fn credit(&mut self, stream: u32, bytes: usize) {
        self.connection.release(&mut self.out, stream, bytes);
    }

    pub fn reset(&mut self, stream: u32) {
        self.connection.reset(&mut self.out, stream, ErrorCode::CANCEL);
    }

    pub fn ping(&mut self) {
        self.connection.ping(&mut self.out, [1; 8]);
    }

    /// Whether the worker has ended the connection.
    pub fn is_over(&self) -> bool {
        self.peer.was_reset() || self.peer.is_finished_by_other()
    }

    /// Sends and receives what is possible now.
    pub fn pump(&mut self, now: Moment) {
        let sent = self.peer.send(&self.out);
        self.out.drain(..sent);
        let bytes = self.peer.receive();
        if self.is_raw {
            return self.take_raw(&bytes);
        }
        let (mut input, mut scratch) = (&bytes[..], Scratch::default());
        loop {
            let out = &mut self.out;
            match self.connection.receive(now, &mut input, &mut scratch, out) {
                Ok(Some(event)) => self.take(event),
                Ok(None) => break,
                Err(fault) => panic!("the worker violates the protocol: {fault:?}"),
            }
        }
        let sent = self.peer.send(&self.out);
        self.out.drain(..sent);
        if self.out.is_empty() {
            self.connection.output_drained();
        }
    }

    fn take(&mut self, event: Event<'_>) {
        match event {
            Event::Response { stream, head, ends, .. } => {
                let response = self.responses.entry(stream).or_default();
                if !head.is_interim() {
                    response.status = head.status;
                    for field in head.fields() {
                        let value = String::from_utf8_lossy(field.value);
                        response.fields.push_str(&format!("{}: {value}\n", field.name));
                    }
                    response.has_ended |= ends;
                }
            }
            Event::Data { stream, bytes, ends, .. } => {
                if !self.unread.contains(&stream) {
                    self.connection.release(&mut self.out, stream, bytes.len());
                }
                let response = self.responses.entry(stream).or_default();
                response.body.extend_from_slice(bytes);
                response.has_ended |= ends;
            }
            Event::Trailers { stream, .. } => {
                self.responses.entry(stream).or_default().has_ended = true;
            }
            Event::Reset { stream, cause, .. } => {
                let code = match cause {
                    ResetCause::Peer(code) => code,
                    ResetCause::GoneAway => ErrorCode::NO_ERROR,
                    ResetCause::Fault(fault) => panic!("the worker's stream has {fault:?}"),
                };
                self.responses.entry(stream).or_default().reset = Some(code);
            }
            Event::GoAway { code, .. } => self.goaway = Some(code),
            Event::Pong { .. } => self.pongs += 1,
            _ => {}
        }
    }

    /// Turns the worker until the response on `stream` is complete.
    pub fn wait(&mut self, stage: &mut Stage, stream: u32) -> Response {
        stage.until(|stage| {
            self.pump(stage.net.now());
            let response = &self.responses[&stream];
            assert!(!self.is_over() || response.has_ended, "the connection ended: {response:?}");
            (response.has_ended || response.reset.is_some()).then(|| response.clone())
        })
    }

    /// A whole exchange with a local response.
    pub fn hello(&mut self, stage: &mut Stage) {
        let stream = self.get("/hello");
        let response = self.wait(stage, stream);
        assert_eq!((response.status, &response.body[..]), (200, &b"hello"[..]));
    }
}
