//! The id of a request, and the trace that it belongs to (W3C Trace Context, level 1).
//! In: the settings, the head of a request, whether its client is trusted, a random number. Out: the id, the trace, and
//! the fields that state them to servers.
//! Never: passes on an id or a traceparent of a client whose statements are not kept.
//! Limits: `ID_BYTES_MAX`; `TRACEPARENT_BYTES_MAX`.
//! Invariant: the same request and the same random number have the same identity, so that a request that had to wait
//! is identified again.

use core::fmt;
use std::io::Write as _;

use tidegate_base::prng::mix64;
use tidegate_config::model::{Keep, RequestIds, Server, Trace};
use tidegate_wire::http1::encode_field;
use tidegate_wire::message::{RequestHead, fold};

/// Maximum size in bytes of an id of a client that is kept.
pub const ID_BYTES_MAX: usize = 128;
/// Bytes of the number of a trace.
pub const TRACE_BYTES: usize = 32;
/// Maximum size in bytes of a traceparent that is kept. Later versions may be longer than the 55 bytes of version 00.
const TRACEPARENT_BYTES_MAX: usize = 256;
/// Bytes of a traceparent of version 00: version, trace, parent and flags with three hyphens.
const TRACEPARENT_BYTES: usize = 55;

/// The identity of a request.
#[derive(Clone, Copy, Debug)]
pub struct Identity<'a> {
    /// The id.
    id: RequestId<'a>,
    /// The name of the field with the id; `None`: only templates contain it.
    field: Option<&'a str>,
    /// The trace; `None` if there is none.
    trace: Option<TraceOf<'a>>,
    /// The random number that the identity was made of.
    random: u128,
}

/// The id of a request.
#[derive(Clone, Copy, Debug)]
enum RequestId<'a> {
    /// A random number.
    Made(u128),
    /// The id that the client sent.
    Received(&'a str),
}

/// The trace of a request.
#[derive(Clone, Copy, Debug)]
enum TraceOf<'a> {
    /// It begins here. `is_sampled`: servers are asked to record it.
    Begun { trace: u128, parent: u64, is_sampled: bool },
    /// The number of the client's trace, whose fields are passed on unchanged.
    Continued(&'a str),
    /// Tidegate records spans in the client's trace. `own` is the span that servers continue.
    Joined { parent: Parent<'a>, own: u64 },
}

/// The content of a valid traceparent.
#[derive(Clone, Copy, Debug)]
struct Parent<'a> {
    /// The number of the trace, in hexadecimal digits.
    trace: &'a str,
    /// The number of the span.
    span: u64,
    /// The flags that version 00 defines.
    flags: u8,
}

/// The numbers of the spans of a request whose trace is sampled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpanIds {
    /// The trace.
    pub trace: u128,
    /// The span of the client that the request belongs to; `None`: the trace begins here.
    pub parent: Option<u64>,
    /// The span of the request.
    pub request: u64,
    /// The span of the request at a server, which the server continues.
    pub upstream: u64,
}

/// Flag of a traceparent: the trace is sampled.
const SAMPLED: u8 = 1;
/// Flag of a traceparent: the last digits of the number of the trace are random (level 2).
const RANDOM: u8 = 2;

impl<'a> Identity<'a> {
    /// An identity that is only used in templates with `{id}`.
    #[must_use]
    pub const fn plain(random: u128) -> Self {
        Self { id: RequestId::Made(random), field: None, trace: None, random }
    }

    /// The identity of a request. `is_trusted`: its client is in `trusted` of the listener.
    #[must_use]
    pub fn new(server: &'a Server, head: &RequestHead<'a>, is_trusted: bool, random: u128) -> Self {
        let mut identity = Self::plain(random);
        if let Some(RequestIds { field, keep, .. }) = &server.request_id {
            identity.field = Some(field);
            if keeps(*keep, is_trusted)
                && let Some(id) = only(head, field).and_then(known_id)
            {
                identity.id = RequestId::Received(id);
            }
        }
        if let Some(Trace { keep, sampled, is_recorded }) = &server.trace {
            let kept = match keeps(*keep, is_trusted) {
                true => only(head, "traceparent").and_then(known_trace),
                false => None,
            };
            identity.trace = Some(match kept {
                Some(parent) if *is_recorded => {
                    TraceOf::Joined { parent, own: upstream_span(random) }
                }
                Some(parent) => TraceOf::Continued(parent.trace),
                None => TraceOf::begin(random, *sampled),
            });
        }
        identity
    }

    /// The random number that the identity was made of.
    #[must_use]
    pub const fn random(&self) -> u128 {
        self.random
    }

    /// The number of the trace; `None` if there is no trace.
    #[must_use]
    pub fn trace(&self) -> Option<impl fmt::Display + use<'a>> {
        self.trace
    }

    /// The numbers of the spans of the request; `None` if its trace is not sampled, or is another program's.
    #[must_use]
    pub fn spans(&self) -> Option<SpanIds> {
        let (trace, parent, upstream) = match self.trace? {
            TraceOf::Begun { trace, parent, is_sampled: true } => (trace, None, parent),
            TraceOf::Joined { parent, own } if parent.flags & SAMPLED != 0 => {
                (u128::from_str_radix(parent.trace, 16).ok()?, Some(parent.span), own)
            }
            TraceOf::Begun { .. } | TraceOf::Joined { .. } | TraceOf::Continued(_) => return None,
        };
        Some(SpanIds { trace, parent, request: request_span(self.random), upstream })
    }

    /// Whether fields state the identity to servers.
    #[must_use]
    pub const fn states_fields(&self) -> bool {
        self.field.is_some() || self.states_trace()
    }

    /// Whether a field contains a trace other than that of the client.
    const fn states_trace(&self) -> bool {
        matches!(self.trace, Some(TraceOf::Begun { .. } | TraceOf::Joined { .. }))
    }

    /// Whether a received field of this name is dropped.
    #[must_use]
    pub fn drops(&self, name: &str) -> bool {
        self.field.is_some_and(|field| is_same(name, field))
            || self.states_trace() && is_same(name, "traceparent")
            // The state of a joined trace is that of other programs in it.
            || matches!(self.trace, Some(TraceOf::Begun { .. })) && is_same(name, "tracestate")
    }

    /// Appends the fields with the identity to a server, except those that `is_stated`: something else states them.
    pub fn encode_fields(&self, out: &mut Vec<u8>, is_stated: impl Fn(&str) -> bool) {
        if let Some(field) = self.field.filter(|field| !is_stated(field)) {
            match self.id {
                RequestId::Received(id) => encode_field(out, field, id.as_bytes()),
                RequestId::Made(number) => encode_field(out, field, &digits(number)),
            }
        }
        let Some(trace) = self.trace.filter(|_| self.states_trace() && !is_stated("traceparent"))
        else {
            return;
        };
        let (span, flags) = match trace {
            TraceOf::Begun { parent, is_sampled, .. } => (parent, u8::from(is_sampled)),
            TraceOf::Joined { parent, own } => (own, parent.flags),
            TraceOf::Continued(_) => return,
        };
        let mut value = [0; TRACEPARENT_BYTES];
        // The array has room for exactly these bytes.
        let _ = write!(&mut value[..], "00-{trace}-{span:016x}-{flags:02x}");
        encode_field(out, "traceparent", &value);
    }
}

impl fmt::Display for Identity<'_> {
    /// The id of the request.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.id {
            RequestId::Made(number) => write!(f, "{number:032x}"),
            RequestId::Received(id) => f.write_str(id),
        }
    }
}

impl fmt::Display for TraceOf<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Begun { trace, .. } => write!(f, "{trace:032x}"),
            Self::Continued(trace) | Self::Joined { parent: Parent { trace, .. }, .. } => {
                f.write_str(trace)
            }
        }
    }
}

impl TraceOf<'_> {
    /// A trace that begins here. Its number is `random`; its parent and whether it is sampled follow from it.
    const fn begin(random: u128, sampled: u32) -> Self {
        let draw = mix64(random as u64);
        let share = (draw as u128 * 1_000_000) >> 64;
        Self::Begun {
            trace: if random == 0 { 1 } else { random },
            parent: upstream_span(random),
            is_sampled: share < sampled as u128,
        }
    }
}

/// The number of the span that servers continue.
const fn upstream_span(random: u128) -> u64 {
    let (high, low) = ((random >> 64) as u64, random as u64);
    not_zero(mix64(high ^ low.rotate_left(32)))
}

/// The number of the span of the request. Another rotation makes it another number.
const fn request_span(random: u128) -> u64 {
    let (high, low) = ((random >> 64) as u64, random as u64);
    not_zero(mix64(high ^ low.rotate_left(16)))
}

/// Numbers of 0 are invalid.
const fn not_zero(number: u64) -> u64 {
    if number == 0 { 1 } else { number }
}

/// Whether two names of fields are the same for all servers: `_` and `-` are, because gateway interfaces such as CGI map
/// both to the same variable.
fn is_same(name: &str, other: &str) -> bool {
    name.len() == other.len() && name.bytes().map(fold).eq(other.bytes().map(fold))
}

const fn keeps(keep: Keep, is_trusted: bool) -> bool {
    match keep {
        Keep::Trusted => is_trusted,
        Keep::All => true,
        Keep::None => false,
    }
}

/// The value of a field that occurs once.
fn only<'a>(head: &RequestHead<'a>, name: &str) -> Option<&'a [u8]> {
    let mut values = head.fields().filter(|field| is_same(field.name, name));
    let first = values.next()?.value;
    values.next().is_none().then_some(first)
}

/// The id, if logs and other programs can contain it without doubt about its end.
fn known_id(value: &[u8]) -> Option<&str> {
    let is_known = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_.:/+=@~".contains(byte);
    let is_id = !value.is_empty() && value.len() <= ID_BYTES_MAX && value.iter().all(is_known);
    core::str::from_utf8(value).ok().filter(|_| is_id)
}

/// The content of a valid traceparent (W3C Trace Context section 3.2.2).
fn known_trace(value: &[u8]) -> Option<Parent<'_>> {
    let is_hex = |text: &[u8]| text.iter().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    let is_zero = |text: &[u8]| text.iter().all(|byte| *byte == b'0');
    let (first, rest) = value.split_at_checked(TRACEPARENT_BYTES)?;
    let (version, trace) = (first.get(..2)?, first.get(3..35)?);
    let (parent, flags) = (first.get(36..52)?, first.get(53..)?);
    let is_separated = [2, 35, 52].iter().all(|at| first.get(*at) == Some(&b'-'));
    // A later version may have more parts.
    let is_complete = rest.is_empty() || rest.first() == Some(&b'-') && version != b"00";
    let is_valid = is_separated
        && is_complete
        && value.len() <= TRACEPARENT_BYTES_MAX
        && rest.iter().all(u8::is_ascii_graphic)
        && [version, trace, parent, flags].into_iter().all(is_hex)
        && version != b"ff"
        && !is_zero(trace)
        && !is_zero(parent);
    let text = |part| core::str::from_utf8(part).ok().filter(|_| is_valid);
    let span = u64::from_str_radix(text(parent)?, 16).ok()?;
    let flags = u8::from_str_radix(text(flags)?, 16).ok()? & (SAMPLED | RANDOM);
    Some(Parent { trace: text(trace)?, span, flags })
}

/// The 32 hexadecimal digits of a number.
fn digits(number: u128) -> [u8; 32] {
    let mut digits = [0; 32];
    // The array has room for exactly these bytes.
    let _ = write!(&mut digits[..], "{number:032x}");
    digits
}
