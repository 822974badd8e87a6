//! A vector: the bytes to send, what the client must see, and what the origin may see.
//! In: rows of the tables. Out: vectors, each with the rule that it tests.
//! Invariant: a vector states only what is specific to it; the rules for all messages are always checked.

use crate::message::{Framing, Message};
use crate::origin::Play;

/// The listeners that a vector is sent to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Routes {
    /// `Proxy` and `Respond`.
    Both,
    Proxy,
    Respond,
    Local,
}

/// A condition that a message must meet.
#[derive(Clone, Copy, Debug)]
pub enum Check {
    /// The start line is exactly this.
    Start(&'static str),
    /// There is exactly one field with this name, and it has this value.
    Has(&'static str, &'static str),
    /// The values of the field's lines, joined by ", ", are exactly this.
    Joined(&'static str, &'static str),
    /// There is no field with this name.
    Lacks(&'static str),
    /// There are this many fields with this name.
    Count(&'static str, usize),
    Body(&'static str),
    BodyLength(usize),
    Framed(Framing),
    /// The trailer fields, each written `name: value` and joined by "|", are exactly this.
    Trailers(&'static str),
}

impl Check {
    pub fn verify(&self, message: &Message) -> Result<(), String> {
        let good = match *self {
            Self::Start(line) => message.start == line,
            Self::Has(name, value) => message.values(name) == [value],
            Self::Joined(name, value) => message.values(name).join(", ") == value,
            Self::Lacks(name) => message.values(name).is_empty(),
            Self::Count(name, count) => message.values(name).len() == count,
            Self::Body(body) => message.body == body.as_bytes(),
            Self::BodyLength(length) => message.body.len() == length,
            Self::Framed(framing) => message.framing == framing,
            Self::Trailers(lines) => {
                let lines_of = message.trailers.iter().map(|(n, v)| format!("{n}: {v}"));
                lines_of.collect::<Vec<_>>().join("|") == lines
            }
        };
        let mut shown = message.clone();
        shown.body.truncate(200);
        if good { Ok(()) } else { Err(format!("{self:?} does not hold for {shown:?}")) }
    }
}

/// What must happen to the client's connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// It stays open and carries another request.
    Keeps,
    /// It is closed cleanly after the last response.
    Closes,
    /// It ends in the middle of the last response, and the client can tell that the response is incomplete.
    Cut,
    /// Not checked.
    Any,
}

/// One row of a table.
#[derive(Clone, Debug)]
pub struct Vector {
    pub name: &'static str,
    /// RFC, section and requirement level, such as "9112 3.2 MUST".
    pub rule: &'static str,
    pub routes: Routes,
    /// What the client sends.
    pub send: Vec<u8>,
    /// What the client sends after it has received an interim response.
    pub send_after_interim: Vec<u8>,
    /// The client ends its sending side after `send`.
    pub half_close: bool,
    /// For each final response the allowed statuses. If empty, the connection ends without a response.
    pub statuses: Vec<Vec<u16>>,
    /// The statuses of all interim responses, in order; `None`: not checked.
    pub interims: Option<Vec<u16>>,
    pub end: End,
    /// The number of complete requests that the origin sees; `None`: not checked.
    pub seen: Option<usize>,
    /// Conditions for the last request that the origin sees.
    pub origin: Vec<Check>,
    /// Conditions for the last response that the client sees.
    pub client: Vec<Check>,
    /// The origin's responses to the next requests, one script each.
    pub scripts: Vec<Vec<Play>>,
    /// The connection may also end without a response.
    pub optional: bool,
    /// The fault is in the body, so a local response may have been sent before Tidegate saw the fault.
    pub broken_body: bool,
}

impl Vector {
    fn new(name: &'static str, rule: &'static str, send: impl Into<Vec<u8>>) -> Self {
        Self {
            name,
            rule,
            routes: Routes::Both,
            send: send.into(),
            send_after_interim: Vec::new(),
            half_close: false,
            statuses: vec![vec![200]],
            interims: None,
            end: End::Keeps,
            seen: Some(1),
            origin: Vec::new(),
            client: Vec::new(),
            scripts: Vec::new(),
            optional: false,
            broken_body: false,
        }
    }

    pub fn to(mut self, routes: Routes) -> Self {
        self.routes = routes;
        self
    }

    pub fn closes(mut self) -> Self {
        self.end = End::Closes;
        self
    }

    pub fn ends(mut self, end: End) -> Self {
        self.end = end;
        self
    }

    /// Sets the statuses of the final responses, one each.
    pub fn statuses(mut self, statuses: &[u16]) -> Self {
        self.statuses = statuses.iter().map(|&status| vec![status]).collect();
        self
    }

    /// Expects a single final response with one of these statuses.
    pub fn one_of(mut self, statuses: &[u16]) -> Self {
        self.statuses = vec![statuses.to_vec()];
        self
    }

    pub fn interims(mut self, statuses: &[u16]) -> Self {
        self.interims = Some(statuses.to_vec());
        self
    }

    pub fn seen(mut self, count: usize) -> Self {
        self.seen = Some(count);
        self
    }

    /// Does not check how many requests the origin sees.
    pub fn seen_any(mut self) -> Self {
        self.seen = None;
        self
    }

    /// Sets what the origin must see. Restricts the vector to the proxied route.
    pub fn origin(mut self, checks: &[Check]) -> Self {
        self.origin = checks.to_vec();
        self.routes = Routes::Proxy;
        self
    }

    pub fn client(mut self, checks: &[Check]) -> Self {
        self.client = checks.to_vec();
        self
    }

    /// Adds a script for the origin's next response. Restricts the vector to the proxied route.
    pub fn plays(mut self, script: &[Play]) -> Self {
        self.scripts.push(script.to_vec());
        self.routes = Routes::Proxy;
        self
    }

    /// Replaces all scripts of the origin with this one.
    pub fn with_script(mut self, script: &[Play]) -> Self {
        self.scripts = vec![script.to_vec()];
        self
    }

    pub fn after_interim(mut self, bytes: &str) -> Self {
        self.send_after_interim = bytes.into();
        self
    }

    pub fn half_closed(mut self) -> Self {
        self.half_close = true;
        self
    }

    pub fn optional(mut self) -> Self {
        self.optional = true;
        self
    }

    pub fn broken_body(mut self) -> Self {
        self.broken_body = true;
        self
    }

    pub fn is_head(&self) -> bool {
        self.send.starts_with(b"HEAD ")
    }
}

/// Expects that the request is refused with one of these statuses, that its connection ends, and that the
/// origin does not see the request.
pub fn refuse(
    name: &'static str,
    rule: &'static str,
    statuses: &[u16],
    send: impl Into<Vec<u8>>,
) -> Vector {
    Vector::new(name, rule, send).one_of(statuses).closes().seen(0)
}

/// Expects that the request is accepted: the status is 200, and the connection stays open.
pub fn accept(name: &'static str, rule: &'static str, send: impl Into<Vec<u8>>) -> Vector {
    Vector::new(name, rule, send)
}

/// A plain GET to which the origin responds with exactly the bytes of `answer`, keeping its connection open.
pub fn answer(name: &'static str, rule: &'static str, answer: impl Into<Vec<u8>>) -> Vector {
    Vector::new(name, rule, "GET /x HTTP/1.1\r\nHost: h\r\n\r\n")
        .plays(&[Play::Send(answer.into())])
}

/// Like `answer`, but the origin then closes the connection.
pub fn answer_and_end(
    name: &'static str,
    rule: &'static str,
    answer: impl Into<Vec<u8>>,
) -> Vector {
    Vector::new(name, rule, "GET /x HTTP/1.1\r\nHost: h\r\n\r\n")
        .plays(&[Play::Send(answer.into()), Play::Close])
}

/// A plain GET to which the origin sends a malformed response: expects 502, whatever happens to the
/// connection.
pub fn bad_answer(name: &'static str, rule: &'static str, bytes: impl Into<Vec<u8>>) -> Vector {
    answer(name, rule, bytes).statuses(&[502]).ends(End::Any)
}
