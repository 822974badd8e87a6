//! A vector: bytes to send, what the client must see, what the server behind may see.
//! In: rows of the tables. Out: vectors, each with the rule it stands for.
//! Invariant: a vector says all that is specific; what holds for every message is checked for all.

use crate::message::{Framing, Message};
use crate::origin::Play;

/// Which listeners a vector is sent to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Routes {
    Both,
    Proxy,
    Respond,
    Local,
}

/// What is to be true of a message.
#[derive(Clone, Copy, Debug)]
pub enum Check {
    /// The start line is this.
    Start(&'static str),
    /// Exactly one field of that name, with that value.
    Has(&'static str, &'static str),
    /// The field's lines, joined by ", ", are this.
    Joined(&'static str, &'static str),
    /// No field of that name.
    Lacks(&'static str),
    /// That many fields of that name.
    Count(&'static str, usize),
    Body(&'static str),
    BodyLength(usize),
    Framed(Framing),
    /// The trailer fields, as `name: value` joined by "|".
    Trailers(&'static str),
}

impl Check {
    pub fn judge(&self, message: &Message) -> Result<(), String> {
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
        if good { Ok(()) } else { Err(format!("not {self:?} in {shown:?}")) }
    }
}

/// What happens to the client's connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// It carries another request.
    Keeps,
    /// It is closed after the last answer, in order.
    Closes,
    /// The last answer is cut: the client can tell that it is not whole.
    Cut,
    /// Nothing is asked: either.
    Any,
}

/// One row.
#[derive(Clone, Debug)]
pub struct Vector {
    pub name: &'static str,
    /// Section and level: "9112 3.2 MUST".
    pub rule: &'static str,
    pub routes: Routes,
    pub send: Vec<u8>,
    /// Sent once the client has seen an interim answer.
    pub send_after_interim: Vec<u8>,
    pub half_close: bool,
    /// The statuses of the final answers, each one of these; empty: the connection just ends.
    pub statuses: Vec<Vec<u16>>,
    /// The statuses of all interim answers before the final ones; `None`: not looked at.
    pub interims: Option<Vec<u16>>,
    pub end: End,
    /// Requests that the origin sees whole; `None`: not looked at.
    pub seen: Option<usize>,
    pub origin: Vec<Check>,
    pub client: Vec<Check>,
    pub scripts: Vec<Vec<Play>>,
    /// The connection may also end without an answer.
    pub optional: bool,
    /// The fault lies in the body: a local answer may have gone out before it was seen.
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

    /// The final answers' statuses, one each.
    pub fn statuses(mut self, statuses: &[u16]) -> Self {
        self.statuses = statuses.iter().map(|&status| vec![status]).collect();
        self
    }

    /// The one final answer has one of these statuses.
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

    /// How many requests the origin sees is not looked at.
    pub fn seen_any(mut self) -> Self {
        self.seen = None;
        self
    }

    /// The origin must see this; for the proxied route alone.
    pub fn origin(mut self, checks: &[Check]) -> Self {
        self.origin = checks.to_vec();
        self.routes = Routes::Proxy;
        self
    }

    pub fn client(mut self, checks: &[Check]) -> Self {
        self.client = checks.to_vec();
        self
    }

    /// The origin answers like this; for the proxied route alone.
    pub fn plays(mut self, script: &[Play]) -> Self {
        self.scripts.push(script.to_vec());
        self.routes = Routes::Proxy;
        self
    }

    /// The origin answers like this, and with no other script.
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

/// The request is refused with one of these statuses, its connection ends, and nobody behind sees it.
pub fn refuse(
    name: &'static str,
    rule: &'static str,
    statuses: &[u16],
    send: impl Into<Vec<u8>>,
) -> Vector {
    Vector::new(name, rule, send).one_of(statuses).closes().seen(0)
}

/// The request is taken: 200, and the connection lives on.
pub fn take(name: &'static str, rule: &'static str, send: impl Into<Vec<u8>>) -> Vector {
    Vector::new(name, rule, send)
}

/// A plain GET that the origin answers with exactly `answer`, its connection staying open.
pub fn answer(name: &'static str, rule: &'static str, answer: impl Into<Vec<u8>>) -> Vector {
    Vector::new(name, rule, "GET /x HTTP/1.1\r\nHost: h\r\n\r\n")
        .plays(&[Play::Send(answer.into())])
}

/// The same, and then the origin ends the connection.
pub fn answer_and_end(
    name: &'static str,
    rule: &'static str,
    answer: impl Into<Vec<u8>>,
) -> Vector {
    Vector::new(name, rule, "GET /x HTTP/1.1\r\nHost: h\r\n\r\n")
        .plays(&[Play::Send(answer.into()), Play::Close])
}

/// A plain GET whose malformed answer becomes a 502 (or, once its head has been relayed, a cut).
pub fn bad_answer(name: &'static str, rule: &'static str, bytes: impl Into<Vec<u8>>) -> Vector {
    answer(name, rule, bytes).statuses(&[502]).ends(End::Any)
}
