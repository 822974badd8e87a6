//! Runs a connection on given bytes and writes down what happens.
//! In: bytes, in pieces of any size. Out: events and the frames of the output, as text.

use tidegate_base::Moment;
use tidegate_wire::http2::frame::{FRAME_HEAD_BYTES, FrameHead, FrameKind, PREFACE};
use tidegate_wire::http2::{
    Config, Connection, ErrorCode, Event, RequestLine, ResetCause, Scratch,
};

/// A connection under test, its output and what has happened.
pub struct Watch {
    pub connection: Connection,
    pub scratch: Scratch,
    pub out: Vec<u8>,
    pub now: Moment,
    /// The events so far; the data of one stream in a row is one event.
    pub events: Vec<String>,
    /// Whether data is released at once.
    pub releases: bool,
}

impl Watch {
    pub fn new(config: Config) -> Self {
        let mut connection = Connection::new(config, Moment::ZERO);
        let mut out = Vec::new();
        connection.start(&mut out);
        out.clear();
        Self {
            connection,
            scratch: Scratch::new(),
            out,
            now: Moment::ZERO,
            events: Vec::new(),
            releases: false,
        }
    }

    /// A client that has sent a request for each of `methods`, on streams 1, 3 and so on.
    pub fn client(methods: &[&str]) -> Self {
        let mut watch = Self::new(Config::client());
        for (index, method) in methods.iter().enumerate() {
            let line =
                RequestLine { method, scheme: "http", authority: "a", path: "/", protocol: None };
            let ends = *method != "POST";
            let opened = watch.connection.send_request(
                &mut watch.out,
                70 + index as u64,
                &line,
                ends,
                |_| {},
            );
            assert_eq!(opened, Ok(2 * index as u32 + 1));
        }
        watch.out.clear();
        watch
    }

    /// Gives all bytes to the connection, in pieces of `step`. False after a fault.
    pub fn feed(&mut self, bytes: &[u8], step: usize) -> bool {
        bytes.chunks(step.max(1)).all(|piece| self.feed_piece(piece))
    }

    fn feed_piece(&mut self, piece: &[u8]) -> bool {
        let mut input = piece;
        loop {
            let event = match self.connection.receive(
                self.now,
                &mut input,
                &mut self.scratch,
                &mut self.out,
            ) {
                Ok(Some(event)) => event,
                Ok(None) => {
                    assert!(input.is_empty(), "all input must be taken");
                    return true;
                }
                Err(fault) => {
                    self.events.push(format!("fault {}", fault.kind.name()));
                    return false;
                }
            };
            let released = match &event {
                Event::Data { stream, bytes, .. } if self.releases => Some((*stream, bytes.len())),
                _ => None,
            };
            let text = describe(&event);
            if let Some((stream, bytes)) = released {
                self.connection.release(&mut self.out, stream, bytes);
            }
            self.note(text);
        }
    }

    /// Writes an event down; joins data.
    fn note(&mut self, text: String) {
        if let Some((head, data)) = text.split_once(':')
            && text.starts_with("data")
            && let Some(last) = self.events.last_mut()
            && last.split_once(':').is_some_and(|(last_head, _)| last_head == head)
            && !last.ends_with("end")
        {
            last.push_str(data);
            return;
        }
        self.events.push(text);
    }

    /// The frames of the output, without WINDOW_UPDATE and acknowledgements of SETTINGS; empties it.
    pub fn sent(&mut self) -> Vec<String> {
        let out = core::mem::take(&mut self.out);
        let hidden = |text: &String| text == "settings-ack" || text.starts_with("window");
        frames(&out).into_iter().filter(|text| !hidden(text)).collect()
    }
}

fn describe(event: &Event<'_>) -> String {
    let end = |ends: &bool| if *ends { " end" } else { "" };
    match event {
        Event::Request { stream, request, ends } => {
            let head = &request.head;
            let fields: String =
                head.fields().map(|f| format!(" {}={}", f.name, f.value.escape_ascii())).collect();
            format!(
                "request {stream} {} {}{fields}{}",
                head.method.as_str(),
                head.target,
                end(ends)
            )
        }
        Event::RequestTooLarge { stream, status } => format!("too-large {stream} {status}"),
        Event::Response { stream, token, head, ends } => {
            format!("response {stream} {token} {}{}", head.status, end(ends))
        }
        Event::Data { stream, bytes, ends, .. } => {
            format!("data {stream}:{}{}", bytes.escape_ascii(), end(ends))
        }
        Event::Trailers { stream, fields, .. } => {
            let names: Vec<_> = fields.clone().map(|field| field.name.to_owned()).collect();
            format!("trailers {stream} {}", names.join(","))
        }
        Event::Reset { stream, cause, .. } => match cause {
            ResetCause::Peer(code) => format!("reset {stream} by peer {}", name(*code)),
            ResetCause::Fault(fault) => format!("reset {stream} {}", fault.kind.name()),
            ResetCause::GoneAway => format!("reset {stream} gone away"),
        },
        Event::Rejected { stream, fault } => format!("rejected {stream} {}", fault.kind.name()),
        Event::GoAway { last_stream, code } => format!("goaway {last_stream} {}", name(*code)),
        Event::Settings => "settings".to_owned(),
        Event::Pong { .. } => "pong".to_owned(),
    }
}

fn name(code: ErrorCode) -> String {
    let names = [
        "NO_ERROR",
        "PROTOCOL_ERROR",
        "INTERNAL_ERROR",
        "FLOW_CONTROL_ERROR",
        "SETTINGS_TIMEOUT",
        "STREAM_CLOSED",
        "FRAME_SIZE_ERROR",
        "REFUSED_STREAM",
        "CANCEL",
        "COMPRESSION_ERROR",
        "CONNECT_ERROR",
        "ENHANCE_YOUR_CALM",
        "INADEQUATE_SECURITY",
        "HTTP_1_1_REQUIRED",
    ];
    names.get(code.0 as usize).map_or_else(|| code.0.to_string(), |name| (*name).to_owned())
}

/// The frames in `bytes` as text.
pub fn frames(mut bytes: &[u8]) -> Vec<String> {
    let mut frames = Vec::new();
    bytes = bytes.strip_prefix(PREFACE).unwrap_or(bytes);
    while let Some((head, rest)) = bytes.split_first_chunk::<FRAME_HEAD_BYTES>() {
        let head = FrameHead::decode(head);
        let (payload, rest) = rest.split_at(head.length as usize);
        bytes = rest;
        let number = |at: usize| u32::from_be_bytes(payload[at..at + 4].try_into().unwrap());
        let end = if head.has(1) { " end" } else { "" };
        let stream = head.stream;
        frames.push(match head.kind {
            FrameKind::Data => format!("data {stream} {}{end}", payload.len()),
            FrameKind::Headers => format!("headers {stream}{end}"),
            FrameKind::Continuation => format!("continuation {stream}"),
            FrameKind::RstStream => format!("rst {stream} {}", name(ErrorCode(number(0)))),
            FrameKind::Settings if head.has(1) => "settings-ack".to_owned(),
            FrameKind::Ping if head.has(1) => "ping-ack".to_owned(),
            FrameKind::GoAway => format!("goaway {} {}", number(0), name(ErrorCode(number(4)))),
            FrameKind::WindowUpdate => format!("window {stream} {}", number(0)),
            other => format!("{other:?}").to_lowercase(),
        });
    }
    assert!(bytes.is_empty(), "the output must consist of whole frames");
    frames
}

/// Feeds `bytes` to a new connection whole and in pieces, checks that nothing differs, and returns the events
/// and the output.
pub fn outcome(make: &dyn Fn() -> Watch, bytes: &[u8]) -> (Vec<String>, Vec<String>) {
    let mut whole = make();
    whole.feed(bytes, bytes.len());
    let wanted = (whole.events.clone(), whole.sent());
    for step in [1, 2, 7, 50] {
        let mut cut = make();
        cut.feed(bytes, step);
        assert_eq!((cut.events.clone(), cut.sent()), wanted, "pieces of {step} bytes");
    }
    wanted
}

pub fn server() -> Watch {
    Watch::new(Config::server())
}
