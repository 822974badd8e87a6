//! A request of a VM and its response in progress.
//! In: the head and the body of a request; changes by a script. Out: parts of the request, the fields of the response.
//! Never: outlives its response, except for its buffers.
//! Limits: `FIELDS_BYTES_MAX` of response fields, those of `Overrides` and `OwnedHead`; buffers above `SPARE_BYTES_MAX` are not
//! kept.
//! Invariant: only a request of `on_access` has changes.

use core::net::IpAddr;
use core::ops::Range;
use std::borrow::Cow;
use std::sync::Arc;

use tidegate_base::Id;
use tidegate_wire::message::{CERTIFICATE_CLAIM, Overrides, OwnedHead, RequestHead, is_claim};

use crate::body::BodyFlow;
use crate::outgoing::METHOD_BYTES_MAX;
use crate::reply::ReplyHead;
use crate::schedule::TaskId;

/// Maximum number of bytes of the header fields of one response, and of one request to a server.
pub(crate) const FIELDS_BYTES_MAX: usize = 16 * 1024;
/// The largest buffer that is kept.
const SPARE_BYTES_MAX: usize = 16 * 1024;

const CONNECTION: &str = "describes the connection, which Tidegate controls";
const FRAMING: &str = "frames the message";

/// Fields that a script cannot set in a response, and why.
const ANSWER_REFUSED: [(&str, &str); 10] = [
    ("connection", CONNECTION),
    ("content-length", "is computed from the body"),
    ("date", "is added when the response is sent"),
    ("keep-alive", CONNECTION),
    ("proxy-connection", CONNECTION),
    ("server", "is set by `server-name` in [server]"),
    ("te", "is a request field"),
    ("trailer", "announces trailers, which a response of a script does not have"),
    ("transfer-encoding", "would contradict the computed length"),
    ("upgrade", CONNECTION),
];

/// Fields that `on_access` cannot set in a request, and why.
const REQUEST_REFUSED: [(&str, &str); 13] = [
    ("connection", CONNECTION),
    ("content-length", FRAMING),
    ("expect", "requests a 100 (Continue) response, which Tidegate controls"),
    ("host", "is set by request:set_host"),
    ("http2-settings", CONNECTION),
    ("keep-alive", CONNECTION),
    ("max-forwards", "is decremented by Tidegate"),
    ("proxy-connection", CONNECTION),
    ("te", CONNECTION),
    ("trailer", FRAMING),
    ("transfer-encoding", FRAMING),
    ("upgrade", CONNECTION),
    ("via", "protects against loops"),
];

/// Fields that a script cannot set in a request that it sends, and why.
const OUTGOING_REFUSED: [(&str, &str); 11] = [
    ("connection", CONNECTION),
    ("content-length", "is computed from the body"),
    ("expect", "would delay the request"),
    ("host", "is set by the option `host`"),
    ("http2-settings", CONNECTION),
    ("keep-alive", CONNECTION),
    ("proxy-connection", CONNECTION),
    ("te", CONNECTION),
    ("trailer", "announces trailers, which a request of a script does not have"),
    ("transfer-encoding", FRAMING),
    ("upgrade", CONNECTION),
];

/// Checks a field of a request that a script sends to a server.
pub(crate) fn check_outgoing_field(name: &[u8], value: &[u8]) -> Result<(), String> {
    check_field(name, Some(value), &OUTGOING_REFUSED)
}

/// Fields that `on_response` cannot set in a response, and why.
const REPLY_REFUSED: [(&str, &str); 8] = [
    ("connection", CONNECTION),
    ("content-length", FRAMING),
    ("keep-alive", CONNECTION),
    ("proxy-connection", CONNECTION),
    ("te", CONNECTION),
    ("trailer", FRAMING),
    ("transfer-encoding", FRAMING),
    ("upgrade", CONNECTION),
];

/// Checks a field that `on_response` sets or removes.
pub(crate) fn check_reply_field(name: &[u8], value: Option<&[u8]>) -> Result<(), String> {
    check_field(name, value, &REPLY_REFUSED)
}

/// The state of the response of an exchange.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Response {
    /// Nothing was sent.
    Expected,
    /// A server has responded. Nothing was sent, and the script changes that response instead of making one.
    Relayed,
    /// The head was sent.
    Begun,
    /// The response is complete.
    Ended,
}

/// The effect of a handler's return on a response that the script has not completed.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) enum AtReturn {
    /// Nothing.
    #[default]
    Nothing,
    /// It completes the response.
    Completes,
    /// It completes the response if the script has used the response: a handler that sets a status and forgets `finish` refuses
    /// the request. Otherwise the request is forwarded.
    CompletesTouched,
}

/// A request and its response in progress.
#[derive(Debug)]
pub struct ScriptRequest {
    /// The worker's tag of the exchange.
    pub(crate) tag: u64,
    /// The head of the request.
    head: OwnedHead,
    /// Strings besides the head: the client's name, the user, the parameters of the path.
    text: Vec<u8>,
    /// The client's address. Few scripts read it, so it is formatted when one does.
    client: Address,
    user: Option<Range<usize>>,
    is_https: bool,
    /// Names and values of the path's parameters.
    params: Vec<(Range<usize>, Range<usize>)>,
    /// The body of the request.
    body: Vec<u8>,
    /// The number of servers among which `on_balance` chooses.
    pub(crate) servers: usize,
    /// The server that `on_balance` has chosen.
    pub(crate) choice: Option<usize>,
    /// The choices of `on_access`; `None` for other handlers.
    access: Option<Access>,
    /// The fields that `on_access` has set or removed.
    changes: Overrides,
    /// The fields of the response: `name: value` and a line feed each.
    pub(crate) answer_fields: Vec<u8>,
    /// The part of the body that was written and not yet sent.
    pub(crate) written: Vec<u8>,
    pub(crate) status: u16,
    pub(crate) response: Response,
    /// The script has set or written something of the response.
    pub(crate) is_touched: bool,
    /// The effect of the return of the handler that runs.
    pub(crate) at_return: AtReturn,
    /// The coroutine of its handler, while it waits.
    pub(crate) task: TaskId,
    /// The coroutines that wait until the client has read. Some may be stale.
    pub(crate) waiters: Vec<TaskId>,
    /// The head of the server's response, during `on_response` and `on_body`.
    pub(crate) reply: Option<Box<ReplyHead>>,
    /// The body of the server's response, during `on_body`.
    pub(crate) flow: Option<Box<BodyFlow>>,
}

/// A request that is forwarded once `on_access` has returned.
#[derive(Debug)]
struct Access {
    /// The names of the pools that may be chosen.
    pools: Arc<[String]>,
    /// The chosen pool, by its place in `pools`.
    pool: Option<usize>,
    /// The script has set the path.
    has_path: bool,
}

/// The worker's facts about a request besides its head.
#[derive(Clone, Copy, Debug)]
pub struct Origin<'a> {
    /// The worker's tag of the exchange.
    pub tag: u64,
    /// The client's address.
    pub client: ClientName<'a>,
    /// The user, if the request was authenticated.
    pub user: Option<&'a str>,
    /// The request was sent over https.
    pub is_https: bool,
    /// The parameters of the route's path.
    pub params: &'a [(String, String)],
    /// The pools that `on_access` may choose; `None` for other handlers.
    pub pools: Option<&'a Arc<[String]>>,
}

/// The address of a client, as scripts see it.
#[derive(Clone, Copy, Debug)]
pub enum ClientName<'a> {
    /// An IP address.
    Ip(IpAddr),
    /// Any other name; empty for clients of unix sockets.
    Text(&'a str),
}

impl From<Option<IpAddr>> for ClientName<'_> {
    fn from(address: Option<IpAddr>) -> Self {
        address.map_or(Self::Text(""), Self::Ip)
    }
}

/// A `ClientName` whose name is in `ScriptRequest::text`.
#[derive(Debug)]
enum Address {
    Ip(IpAddr),
    Text(Range<usize>),
}

/// A request after `on_access`.
#[derive(Default, Debug)]
pub struct Rewritten {
    /// The head, with the path and the query of the script if it has changed them.
    pub head: OwnedHead,
    /// The fields that the server gets in place of received ones.
    pub fields: Overrides,
    /// The script has set the path.
    pub has_path: bool,
    /// The chosen pool, by its place in `Origin::pools`.
    pub pool: Option<usize>,
}

/// A part of a request that scripts read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Part {
    Method,
    Path,
    Query,
    Host,
    Client,
    Version,
    Scheme,
    Body,
    User,
}

impl Part {
    pub(crate) fn of(number: u32) -> Option<Self> {
        const ALL: [Part; 9] = [
            Part::Method,
            Part::Path,
            Part::Query,
            Part::Host,
            Part::Client,
            Part::Version,
            Part::Scheme,
            Part::Body,
            Part::User,
        ];
        ALL.get(number as usize).copied()
    }
}

impl Default for ScriptRequest {
    fn default() -> Self {
        Self {
            tag: 0,
            head: OwnedHead::default(),
            text: Vec::new(),
            client: Address::Text(0..0),
            user: None,
            is_https: false,
            params: Vec::new(),
            body: Vec::new(),
            access: None,
            changes: Overrides::default(),
            answer_fields: Vec::new(),
            written: Vec::new(),
            status: 200,
            servers: 0,
            choice: None,
            response: Response::Expected,
            is_touched: false,
            at_return: AtReturn::Nothing,
            task: Id::NONE,
            waiters: Vec::new(),
            reply: None,
            flow: None,
        }
    }
}

/// The request.
impl ScriptRequest {
    pub(crate) fn set(&mut self, head: &RequestHead<'_>, origin: &Origin<'_>) {
        self.tag = origin.tag;
        self.head.keep(head);
        self.client = match origin.client {
            ClientName::Ip(address) => Address::Ip(address),
            ClientName::Text(name) => Address::Text(self.put(name.as_bytes())),
        };
        self.user = origin.user.map(|user| self.put(user.as_bytes()));
        self.is_https = origin.is_https;
        for (name, value) in origin.params {
            let pair = (self.put(name.as_bytes()), self.put(value.as_bytes()));
            self.params.push(pair);
        }
        self.access = origin.pools.map(|pools| Access {
            pools: Arc::clone(pools),
            pool: None,
            has_path: false,
        });
    }

    /// Forgets everything except buffers of a usual size.
    pub(crate) fn clear(&mut self) {
        for buffer in [&mut self.text, &mut self.body, &mut self.answer_fields, &mut self.written] {
            match buffer.capacity() > SPARE_BYTES_MAX {
                true => *buffer = Vec::new(),
                false => buffer.clear(),
            }
        }
        self.head.clear(SPARE_BYTES_MAX);
        self.params.clear();
        self.user = None;
        self.access = None;
        self.changes.clear();
        self.status = 200;
        self.response = Response::Expected;
        self.is_touched = false;
        self.at_return = AtReturn::Nothing;
        self.task = Id::NONE;
        self.waiters.clear();
        self.reply = None;
        self.flow = None;
        (self.servers, self.choice) = (0, None);
    }

    fn put(&mut self, bytes: &[u8]) -> Range<usize> {
        let start = self.text.len();
        self.text.extend_from_slice(bytes);
        start..self.text.len()
    }

    fn get(&self, range: &Range<usize>) -> &[u8] {
        self.text.get(range.clone()).unwrap_or_default()
    }

    /// A part of the request; `None` if the request lacks it.
    pub(crate) fn part(&self, part: Part) -> Option<Cow<'_, [u8]>> {
        let bytes = match part {
            Part::Method => self.head.routed_method().as_bytes(),
            Part::Path => self.head.path().as_bytes(),
            Part::Query => self.head.query()?.as_bytes(),
            Part::Host => self.head.host()?.as_bytes(),
            Part::Client => match &self.client {
                Address::Ip(address) => return Some(address.to_string().into_bytes().into()),
                Address::Text(name) => self.get(name),
            },
            Part::Version => self.head.version().number().as_bytes(),
            Part::Scheme => match self.is_https {
                true => b"https" as &[u8],
                false => b"http",
            },
            Part::Body => &self.body,
            Part::User => self.get(self.user.as_ref()?),
        };
        Some(Cow::Borrowed(bytes))
    }

    /// The fields of the request, as changed: names in any case, and values.
    pub(crate) fn fields(&self) -> impl Iterator<Item = (&str, &[u8])> {
        let received = self.head.fields().filter(|(name, _)| !self.changes.drops(name));
        received.chain(self.changes.written())
    }

    /// The parameters of the route's path.
    pub(crate) fn params(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.params.iter().map(|(name, value)| (self.get(name), self.get(value)))
    }

    /// Appends to the body of the request. Returns the size of the body.
    pub(crate) fn add_body(&mut self, data: &[u8]) -> usize {
        self.body.extend_from_slice(data);
        self.body.len()
    }
}

/// Changes of the request.
impl ScriptRequest {
    /// The request, if it can still be changed.
    fn changeable(&mut self) -> Result<&mut Access, &'static str> {
        match self.response {
            Response::Expected | Response::Relayed => {
                self.access.as_mut().ok_or("only on_access can change a request")
            }
            Response::Begun | Response::Ended => Err("the request already has a response"),
        }
    }

    /// Removes the fields that request a part of the content, because `on_body` could not see the content before that part. The
    /// changes of a new request have room.
    pub(crate) fn remove_ranges(&mut self) {
        for name in ["range", "if-range"] {
            let _ = self.changes.remove(name);
        }
    }

    /// Replaces the method.
    pub(crate) fn set_method(&mut self, method: &[u8]) -> Result<(), &'static str> {
        self.changeable()?;
        if !is_token(method) || method.len() > METHOD_BYTES_MAX {
            return Err("the method must be a token, such as \"POST\"");
        }
        self.head.set_method(text_of(method)?)
    }

    /// Replaces the host.
    pub(crate) fn set_host(&mut self, host: &[u8]) -> Result<(), &'static str> {
        self.changeable()?;
        self.head.set_host(text_of(host)?)
    }

    /// Replaces the path.
    pub(crate) fn set_path(&mut self, path: &[u8]) -> Result<(), &'static str> {
        self.changeable()?;
        self.head.set_path(text_of(path)?)?;
        self.changeable()?.has_path = true;
        Ok(())
    }

    /// Replaces or removes the query.
    pub(crate) fn set_query(&mut self, query: Option<&[u8]>) -> Result<(), &'static str> {
        self.changeable()?;
        self.head.set_query(query.map(text_of).transpose()?)
    }

    /// Removes the request's fields of this name, or adds one, in place of those of this name if `replaces`.
    pub(crate) fn change_field(
        &mut self,
        name: &[u8],
        value: Option<&[u8]>,
        replaces: bool,
    ) -> Result<(), String> {
        self.changeable()?;
        check_name(name, &REQUEST_REFUSED)?;
        let checked = check_value(value.unwrap_or_default());
        let name = text_of(name)?;
        if is_claim(name, CERTIFICATE_CLAIM) {
            return Err(format!("{name} describes the client certificate that Tidegate verified"));
        }
        if let (true, Err(_)) = (replaces, &checked) {
            // The received field must not be forwarded in place of the refused value, even if the script ignores the error.
            self.changes.remove(name)?;
        }
        checked?;
        match value {
            None => self.changes.remove(name)?,
            Some(value) if replaces => self.changes.replace(name, value.trim_ascii())?,
            Some(value) => self.changes.add(name, value.trim_ascii())?,
        }
        Ok(())
    }

    /// Chooses a pool by its name.
    pub(crate) fn choose_pool(&mut self, name: &[u8]) -> Result<(), String> {
        let access = self.changeable()?;
        let found = access.pools.iter().position(|pool| pool.as_bytes() == name);
        if found.is_none() {
            let name = String::from_utf8_lossy(name).into_owned();
            return Err(format!("the pool {name:?} is not among `pools` in `hooks` of the route"));
        }
        access.pool = found;
        Ok(())
    }

    /// Copies a request that was taken.
    pub(crate) fn copy(&mut self, from: &Rewritten) {
        self.head.keep(&from.head.lend());
        self.changes.clone_from(&from.fields);
    }

    /// Swaps the changed request with `into`, which provides buffers.
    pub(crate) fn take(&mut self, into: &mut Rewritten) {
        core::mem::swap(&mut self.head, &mut into.head);
        core::mem::swap(&mut self.changes, &mut into.fields);
        let access = self.access.as_ref();
        into.pool = access.and_then(|access| access.pool);
        into.has_path = access.is_some_and(|access| access.has_path);
    }
}

/// The response.
impl ScriptRequest {
    /// Removes the response's fields of this name, and adds one if there is a value.
    pub(crate) fn set_answer_field(
        &mut self,
        name: &[u8],
        value: Option<&[u8]>,
        replaces: bool,
    ) -> Result<(), String> {
        if self.response != Response::Expected {
            return Err("the head of the response has been sent".to_owned());
        }
        check_field(name, value, &ANSWER_REFUSED)?;
        self.is_touched = true;
        if replaces {
            self.remove_field(name);
        }
        let Some(value) = value else { return Ok(()) };
        if self.answer_fields.len() + name.len() + value.len() > FIELDS_BYTES_MAX {
            return Err("the header fields of the response exceed 16 KiB".to_owned());
        }
        let fields = &mut self.answer_fields;
        fields.extend_from_slice(name);
        fields.extend_from_slice(b": ");
        fields.extend_from_slice(value.trim_ascii());
        fields.push(b'\n');
        Ok(())
    }

    /// Whether the response has a field of this name.
    pub(crate) fn has_answer_field(&self, name: &[u8]) -> bool {
        lines(&self.answer_fields).any(|line| is_field(line, name))
    }

    /// Sets Content-Type, unless the script has set it.
    pub(crate) fn set_default_type(&mut self, media_type: &[u8]) {
        if self.response == Response::Expected && !self.has_answer_field(b"content-type") {
            self.answer_fields.extend_from_slice(b"Content-Type: ");
            self.answer_fields.extend_from_slice(media_type);
            self.answer_fields.push(b'\n');
        }
    }

    fn remove_field(&mut self, name: &[u8]) {
        if self.has_answer_field(name) {
            let fields = core::mem::take(&mut self.answer_fields);
            for line in lines(&fields).filter(|line| !is_field(line, name)) {
                self.answer_fields.extend_from_slice(line);
            }
        }
    }
}

/// Checks a field that a script sets or removes.
fn check_field(name: &[u8], value: Option<&[u8]>, refused: &[(&str, &str)]) -> Result<(), String> {
    check_name(name, refused)?;
    check_value(value.unwrap_or_default())?;
    Ok(())
}

fn check_name(name: &[u8], refused: &[(&str, &str)]) -> Result<(), String> {
    if !is_token(name) {
        return Err("not a valid name of a header field".to_owned());
    }
    // Some programs behind a proxy treat `_` as `-`.
    let is_same = |(one, other): (&u8, u8)| match one {
        b'_' => other == b'-',
        one => one.to_ascii_lowercase() == other,
    };
    let of_name = |(known, _): &&(&str, &str)| {
        known.len() == name.len() && name.iter().zip(known.bytes()).all(is_same)
    };
    if let Some((_, reason)) = refused.iter().find(of_name) {
        return Err(format!("{} {reason}", String::from_utf8_lossy(name)));
    }
    Ok(())
}

fn check_value(value: &[u8]) -> Result<(), &'static str> {
    // No early exit, so that the compiler compares many bytes at once.
    let is_control = |byte: &u8| matches!(byte, 0..=8 | 10..=31 | 127);
    match value.iter().fold(false, |found, byte| found | is_control(byte)) {
        true => Err("the value of a header field contains a control character"),
        false => Ok(()),
    }
}

fn text_of(bytes: &[u8]) -> Result<&str, &'static str> {
    core::str::from_utf8(bytes).map_err(|_| "the path and the query must be ASCII")
}

/// The fields of a response, as names and values.
pub fn fields_of(fields: &[u8]) -> impl Iterator<Item = (&str, &[u8])> {
    lines(fields).filter_map(|line| {
        let colon = memchr::memchr(b':', line)?;
        let name = core::str::from_utf8(&line[..colon]).ok()?;
        Some((name, line[colon + 1..].trim_ascii()))
    })
}

fn lines(fields: &[u8]) -> impl Iterator<Item = &[u8]> {
    fields.split_inclusive(|byte| *byte == b'\n')
}

fn is_field(line: &[u8], name: &[u8]) -> bool {
    line.get(name.len()) == Some(&b':') && line[..name.len()].eq_ignore_ascii_case(name)
}

/// Whether a byte may occur in a token, by its value.
const IS_TOKEN: [bool; 256] = {
    let mut table = [false; 256];
    let mut byte = 0_u8;
    while byte < 128 {
        table[byte as usize] = byte.is_ascii_alphanumeric()
            || matches!(
                byte,
                b'!' | b'#'..=b'\'' | b'*' | b'+' | b'-' | b'.' | b'^'..=b'`' | b'|' | b'~'
            );
        byte += 1;
    }
    table
};

/// Whether the bytes are a token (RFC 9110 section 5.6.2).
pub(crate) fn is_token(name: &[u8]) -> bool {
    !name.is_empty() && name.iter().all(|byte| IS_TOKEN[usize::from(*byte)])
}
