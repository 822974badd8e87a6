//! A server of HTTP/2 for named cases: it collects the requests on each stream, and sends what a test asks for.
//! In: a connection of the worker. Out: requests with their bodies and trailers, resets, GOAWAY.
//! Never: waits; the test turns the worker. Never acknowledges or responds on its own, except for frames that the
//! protocol answers.

use std::collections::BTreeMap;

use tidegate_base::Moment;
use tidegate_reactor::SimPeer;
use tidegate_wire::http2::{
    Config, Connection, ErrorCode, Event, FieldWriter, ResetCause, Scratch,
};

use crate::stage::Stage;

/// A request on a stream.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Call {
    /// Method and path.
    pub line: String,
    pub authority: String,
    /// The fields, as lines without CRLF.
    pub fields: Vec<String>,
    pub body: Vec<u8>,
    pub trailers: Vec<String>,
    pub has_ended: bool,
    /// The code of RST_STREAM.
    pub reset: Option<ErrorCode>,
}

/// The server's end of a connection.
pub struct Host {
    pub peer: SimPeer,
    pub connection: Connection,
    /// Frames that wait to be sent. Tests may append raw ones.
    pub out: Vec<u8>,
    pub calls: BTreeMap<u32, Call>,
    pub goaway: Option<ErrorCode>,
    /// Bytes of requests are not credited.
    pub is_slow: bool,
    /// Nothing of `out` is sent.
    pub is_mute: bool,
    /// The time of the last `pump`.
    now: Moment,
}

impl Host {
    /// Takes the next connection of the worker. SETTINGS wait in `out`.
    pub fn accept(stage: &mut Stage, config: Config) -> Self {
        let peer = stage.accept();
        Self::new(peer, config, stage.net.now())
    }

    /// Takes the worker's connection `peer`.
    pub fn new(peer: SimPeer, config: Config, now: Moment) -> Self {
        let mut connection = Connection::new(config, now);
        let mut out = Vec::new();
        connection.start(&mut out);
        let calls = BTreeMap::new();
        Self { peer, connection, out, calls, goaway: None, is_slow: false, is_mute: false, now }
    }

    /// Sends and receives what is possible now.
    pub fn pump(&mut self, now: Moment) {
        self.now = now;
        let bytes = self.peer.receive();
        let (mut input, mut scratch) = (&bytes[..], Scratch::default());
        loop {
            match self.connection.receive(now, &mut input, &mut scratch, &mut self.out) {
                Ok(Some(event)) => self.take(event),
                Ok(None) => break,
                Err(fault) => panic!("the worker violates the protocol: {fault:?}"),
            }
        }
        if self.is_mute {
            return;
        }
        let sent = self.peer.send(&self.out);
        self.out.drain(..sent);
        if self.out.is_empty() {
            self.connection.output_drained();
        }
    }

    fn take(&mut self, event: Event<'_>) {
        match event {
            Event::Request { stream, request, ends } => {
                let head = &request.head;
                let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
                let fields = head.fields();
                let call = Call {
                    line: format!("{} {}", head.method.as_str(), head.target),
                    authority: head.host.unwrap_or_default().to_owned(),
                    fields: fields.map(|f| format!("{}: {}", f.name, text(f.value))).collect(),
                    has_ended: ends,
                    ..Call::default()
                };
                self.calls.insert(stream, call);
            }
            Event::Data { stream, bytes, ends, .. } => {
                if !self.is_slow {
                    self.connection.release(&mut self.out, stream, bytes.len());
                }
                let call = self.calls.entry(stream).or_default();
                call.body.extend_from_slice(bytes);
                call.has_ended |= ends;
            }
            Event::Trailers { stream, fields, .. } => {
                let call = self.calls.entry(stream).or_default();
                let line = |name: &str, value: &[u8]| {
                    format!("{name}: {}", String::from_utf8_lossy(value))
                };
                call.trailers = fields.map(|field| line(field.name, field.value)).collect();
                call.has_ended = true;
            }
            Event::Reset { stream, cause: ResetCause::Peer(code), .. } => {
                self.calls.entry(stream).or_default().reset = Some(code);
            }
            Event::Reset { cause, .. } => panic!("the worker's stream ends with {cause:?}"),
            Event::GoAway { code, .. } => self.goaway = Some(code),
            Event::Rejected { fault, .. } => panic!("the worker's request has {fault:?}"),
            _ => {}
        }
    }

    /// Sends a head.
    pub fn head(
        &mut self,
        stream: u32,
        status: u16,
        ends: bool,
        write: impl FnOnce(&mut FieldWriter<'_>),
    ) {
        assert!(self.connection.send_response(&mut self.out, stream, status, ends, write));
    }

    /// Sends as much of a body as the worker's windows admit; returns how much that was.
    pub fn data(&mut self, now: Moment, stream: u32, bytes: &[u8], ends: bool) -> usize {
        let sent = self.connection.send_data(now, &mut self.out, stream, bytes, ends);
        sent.expect("the stream is open")
    }

    /// Responds with 200 and a body.
    pub fn respond(&mut self, now: Moment, stream: u32, body: &[u8]) {
        self.respond_with(now, stream, 200, body);
    }

    /// Responds with a status and a body.
    pub fn respond_with(&mut self, now: Moment, stream: u32, status: u16, body: &[u8]) {
        self.head(stream, status, false, |_| {});
        assert_eq!(self.data(now, stream, body, true), body.len(), "the window admits the body");
    }

    /// Turns the worker until `look` returns something.
    pub fn until<T>(
        &mut self,
        stage: &mut Stage,
        mut look: impl FnMut(&mut Self) -> Option<T>,
    ) -> T {
        stage.until(|stage| {
            self.pump(stage.net.now());
            look(self)
        })
    }

    /// Turns the worker until the request on `stream` is complete.
    pub fn wait_call(&mut self, stage: &mut Stage, stream: u32) -> Call {
        self.until(stage, |host| host.calls.get(&stream).filter(|call| call.has_ended).cloned())
    }

    /// Turns the worker until `stream` is reset.
    pub fn wait_reset(&mut self, stage: &mut Stage, stream: u32) -> ErrorCode {
        self.until(stage, |host| host.calls.get(&stream).and_then(|call| call.reset))
    }

    /// The time of the last `pump`.
    pub fn now(&self) -> Moment {
        self.now
    }

    /// Whether the worker has ended the connection.
    pub fn is_over(&self) -> bool {
        self.peer.was_reset() || self.peer.is_finished_by_other()
    }
}
