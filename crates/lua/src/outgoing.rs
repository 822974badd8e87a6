//! Requests that a script sends to servers (`tide.http.request`).
//! In: the parts of a request, from the prelude. Out: `Effect::Http`; the response continues the script.
//! Never: chooses a server, or an address: a request goes to a pool that the application may use.
//! Limits: `Bounds::requests_max` requests of a VM in progress; `TARGET_BYTES_MAX` of a path with its query, `HOST_BYTES_MAX`
//! of a host, and the bounds of fields (`exchange.rs`); `RESPONSE_BYTES_MAX` of the content of a response.
//! Invariant: a request that passes `Parts::check` is valid: none of its parts contains a line break.

use core::ops::Range;

use tidegate_base::Span;
use tidegate_base::limits::HOST_BYTES_MAX;

use crate::exchange::{FIELDS_BYTES_MAX, check_outgoing_field, is_token};
use crate::host::{Effect, Host};
use crate::operations::{OperationId, OperationKind};

/// Maximum number of bytes of a path with its query.
const TARGET_BYTES_MAX: usize = 8 * 1024;
/// Maximum number of bytes of a method.
pub(crate) const METHOD_BYTES_MAX: usize = 32;
/// Maximum value of `body_max`.
const RESPONSE_BYTES_MAX: usize = 16 * 1024 * 1024;

/// A request for a server. Ranges refer to `Outbox::bytes`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Outgoing {
    /// The pool, by its place in `Facts::pools`.
    pub pool: usize,
    /// The method.
    pub method: Range<usize>,
    /// The path and the query.
    pub target: Range<usize>,
    /// The Host field; if empty, the Host of the pool's server is used.
    pub host: Range<usize>,
    /// The fields: `name: value`, each followed by a line feed.
    pub fields: Range<usize>,
    /// The content; `None`: the request has none.
    pub body: Option<Range<usize>>,
    /// Maximum number of bytes of the response's content.
    pub body_bytes_max: usize,
    /// How long the script waits for the response.
    pub timeout: Span,
}

/// The response of a server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Response {
    /// The status.
    pub status: u16,
    /// The fields: `name: value`, each followed by a line feed; the names in lower case.
    pub fields: Vec<u8>,
    /// The content.
    pub body: Vec<u8>,
}

/// The parts of a request, as the prelude passes them.
pub(crate) struct Parts<'a> {
    pub(crate) pool: usize,
    pub(crate) method: &'a [u8],
    pub(crate) target: &'a [u8],
    pub(crate) host: &'a [u8],
    /// Each field has passed `check_outgoing_field`.
    pub(crate) fields: &'a [u8],
    pub(crate) body: Option<&'a [u8]>,
    pub(crate) body_bytes_max: f64,
    pub(crate) timeout: Span,
}

impl Parts<'_> {
    fn check(&self) -> Result<(), &'static str> {
        if !is_token(self.method) || self.method.len() > METHOD_BYTES_MAX {
            return Err("the method must be a token, such as \"POST\"");
        }
        if self.method.eq_ignore_ascii_case(b"CONNECT") {
            return Err("the method CONNECT is not supported");
        }
        if !self.target.starts_with(b"/") {
            return Err("the path must begin with a slash");
        }
        // "#" would begin a fragment, which is never sent (RFC 9110 section 4.2.5).
        let fits = |byte: &u8| byte.is_ascii_graphic() && *byte != b'#';
        if !self.target.iter().all(fits) {
            return Err("the path and the query must be percent-encoded");
        }
        if self.target.len() > TARGET_BYTES_MAX {
            return Err("the path and the query may have up to 8 KiB");
        }
        let fits = |byte: &u8| byte.is_ascii_alphanumeric() || b"-._~:[]".contains(byte);
        if !self.host.iter().all(fits) || self.host.len() > HOST_BYTES_MAX {
            return Err("the host must be a name or an address, with a port if one is needed");
        }
        match self.fields.len() > FIELDS_BYTES_MAX {
            true => Err("the header fields of the request exceed 16 KiB"),
            false => Ok(()),
        }
    }
}

impl Host {
    /// Checks a header field of a request.
    pub(crate) fn check_field(name: &[u8], value: &[u8]) -> Result<(), String> {
        check_outgoing_field(name, value)
    }

    /// Starts a request: checks it, and adds it to the outbox.
    pub(crate) fn start_request(&mut self, parts: &Parts<'_>) -> Result<OperationId, &'static str> {
        parts.check()?;
        if self.outgoing >= self.requests_max {
            self.schedule.refusals += 1;
            return Err("too many requests of the application are in progress");
        }
        let bytes = parts.target.len() + parts.fields.len() + parts.body.map_or(0, <[u8]>::len);
        let operation = self.start_operation(bytes, OperationKind::Request)?;
        self.outgoing += 1;
        let request = Outgoing {
            pool: parts.pool,
            method: self.outbox.push(parts.method),
            target: self.outbox.push(parts.target),
            host: self.outbox.push(parts.host),
            fields: self.outbox.push(parts.fields),
            body: parts.body.map(|body| self.outbox.push(body)),
            body_bytes_max: parts.body_bytes_max.clamp(0.0, RESPONSE_BYTES_MAX as f64) as usize,
            timeout: parts.timeout,
        };
        self.outbox.effects.push(Effect::Http { operation, request: Box::new(request) });
        Ok(operation)
    }
}
