//! Synthetic responses: the URL's query sets the size, status, delay, chunks and more, with httpterm's
//! argument names.
//! In: the query, random numbers. Out: a validated description (the order), the response head, any piece of
//! the body.
//! Never: sends a wrong length, holds a body in memory, waits (the worker's deadlines do that).
//! Limits: `SIZE_BYTES_MAX`, `DELAY_MAX`, `PIECE_BYTES_MAX`.
//! Invariant: a byte of a body depends only on its offset and the seed.

use tidegate_base::prng::mix64;
use tidegate_base::{Prng, Span};
use tidegate_wire::message::{BodyLength, ResponseSink, Version};

use crate::respond::{AnswerContext, encode_answer_fields, encode_content_length, encode_error};

/// Maximum size in bytes of a body: 1 TiB.
pub const SIZE_BYTES_MAX: u64 = 1 << 40;
/// The longest delay or pause.
pub const DELAY_MAX: Span = Span::from_secs(60);
/// Maximum size in bytes of one piece or chunk, and the default.
pub const PIECE_BYTES_MAX: usize = 64 * 1024;

/// The body of the response to `?h`.
pub const HELP: &str = "\
The query of the URL describes the response. Arguments, separated by any of & ? , ; /
  s=SIZE    bytes of the body (0)          r=STATUS  status, 200 to 599 (200)
  t=MS      delay before the response (0)  P=MS      pause after the response (0)
  k=N       send chunks of N bytes         p=N       send pieces of up to N bytes
  C=1       close the connection           K=1       keep the connection open
  c=0       forbid caching                 e=N       add the entity tag \"N\"
  R=1       send random bytes              v=1       add debugging fields X-Req, X-Rsp
  B=SIZE    bytes of the request body to read before the response
  b=0       omit Content-Length            w=MS      idle timeout of the connection
A number may end in k, m or g (times 1024) and in r (random, from 0 up to it).
Example: /synthetic?s=20k&t=700r&k=1k
";

/// The synthetic response that the URL requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Synthetic {
    /// The status code, 200 to 599.
    pub status: u16,
    /// Bytes of the body, up to [`SIZE_BYTES_MAX`].
    pub size: u64,
    /// The delay before the response.
    pub delay: Span,
    /// The pause after the response, before the next request on the connection.
    pub pause: Span,
    /// Send chunks of `piece_bytes`. For HTTP/1.0 clients, the body ends when the connection closes instead.
    pub chunked: bool,
    /// Bytes that are sent at once, 1 to [`PIECE_BYTES_MAX`].
    pub piece_bytes: usize,
    /// Send random bytes in place of the pattern.
    pub random: bool,
    /// Whether to keep (`K`) or close (`C`) the connection; `None` if the URL sets neither.
    pub keep_alive: Option<bool>,
    /// The idle timeout of the connection; `None` to use the listener's.
    pub keep_alive_time: Option<Span>,
    /// Send Content-Length. If false (`b=0`), the body ends when the connection closes.
    pub length_known: bool,
    /// If false, send `Cache-Control: no-cache`.
    pub cacheable: bool,
    /// The entity tag to send.
    pub etag: Option<u64>,
    /// Send fields that show how the query was understood.
    pub verbose: bool,
    /// Bytes of the request body to read before the response; `None` to read nothing first.
    pub body_read_max: Option<u64>,
    /// Send the help text instead.
    pub help: bool,
}

impl Default for Synthetic {
    fn default() -> Self {
        Self {
            status: 200,
            size: 0,
            delay: Span::ZERO,
            pause: Span::ZERO,
            chunked: false,
            piece_bytes: PIECE_BYTES_MAX,
            random: false,
            keep_alive: None,
            keep_alive_time: None,
            length_known: true,
            cacheable: true,
            etag: None,
            verbose: false,
            body_read_max: None,
            help: false,
        }
    }
}

impl Synthetic {
    /// The length of the body, as it is announced to the client: `Streamed` if the URL requests chunks,
    /// `UntilClose` if it omits the length. `None` for HEAD and for statuses without content (RFC 9110
    /// sections 9.3.2, 15.3.5, 15.3.6, 15.4.5).
    #[must_use]
    pub fn body_length(&self, is_head: bool) -> BodyLength {
        if !self.has_body(is_head) {
            BodyLength::None
        } else if self.chunked {
            BodyLength::Streamed
        } else if !self.length_known {
            BodyLength::UntilClose
        } else {
            BodyLength::Length(self.size)
        }
    }

    /// Whether the response has a body.
    #[must_use]
    pub const fn has_body(&self, is_head: bool) -> bool {
        !is_head && self.has_content()
    }

    /// Whether the head contains the length of the body.
    #[must_use]
    pub const fn states_length(&self) -> bool {
        !self.chunked && self.length_known
    }

    /// Whether the URL requests a close after the response. `K=1` cannot keep a connection that
    /// must be closed.
    #[must_use]
    pub fn asks_to_close(&self) -> bool {
        self.keep_alive == Some(false)
    }

    const fn has_content(&self) -> bool {
        !matches!(self.status, 204 | 205 | 304)
    }
}

/// Parses the query of a request on a synthetic route. Random numbers (`r`) are drawn from `prng`.
///
/// # Errors
/// What is wrong and what is allowed, as the text of a 400 response.
pub fn parse(query: Option<&str>, prng: &mut Prng) -> Result<Synthetic, &'static str> {
    let mut order = Synthetic::default();
    let Some(query) = query else { return Ok(order) };
    if query.is_empty() {
        order.help = true;
    }
    let arguments = query.split(['&', '?', ',', ';', '/']);
    for argument in arguments.filter(|argument| !argument.is_empty()) {
        let (name, value) = argument.split_once('=').unwrap_or((argument, ""));
        if name == "h" {
            order.help = true;
            continue;
        }
        let value = parse_number(value, prng).ok_or(BAD_NUMBER)?;
        order.set(name, value)?;
    }
    Ok(order)
}

const BAD_NUMBER: &str =
    "a value must be digits followed by any of k, m, g (times 1024) and r (random), such as s=20k";

impl Synthetic {
    fn set(&mut self, name: &str, value: i64) -> Result<(), &'static str> {
        let positive = value > 0;
        let count = value.unsigned_abs();
        match name {
            "s" => self.size = bounded(value, SIZE_BYTES_MAX).ok_or("s must be 0 to 1 TiB")?,
            "r" => {
                let status = u16::try_from(value).ok().filter(|s| (200..=599).contains(s));
                self.status = status.ok_or("r must be a final status: 200 to 599")?;
            }
            "t" => self.delay = delay(value).ok_or("t must be 0 to 60000 milliseconds")?,
            "P" => self.pause = delay(value).ok_or("P must be 0 to 60000 milliseconds")?,
            "w" => {
                self.keep_alive_time =
                    Some(delay(value).ok_or("w must be 0 to 60000 milliseconds")?);
            }
            "k" => {
                self.chunked = positive;
                if positive {
                    self.piece_bytes = self.piece_bytes.min(pieces(value));
                }
            }
            "p" if positive => self.piece_bytes = self.piece_bytes.min(pieces(value)),
            "p" => return Err("p must be at least 1"),
            "b" if positive => return Err("b must not be positive; b=0 omits Content-Length"),
            "b" => self.length_known = value < 0,
            "B" => {
                self.body_read_max = Some(bounded(value, u64::MAX).ok_or("B must be at least 0")?)
            }
            "c" => self.cacheable = positive,
            "C" if positive => self.keep_alive = Some(false),
            "K" if positive => self.keep_alive = Some(true),
            // `S` controls splicing in httpterm. It has no effect here.
            "C" | "K" | "S" => {}
            "e" => self.etag = Some(count),
            "v" => self.verbose = positive,
            "R" => self.random = positive,
            _ => return Err("unknown argument; ?h lists the known ones"),
        }
        Ok(())
    }
}

fn bounded(value: i64, most: u64) -> Option<u64> {
    u64::try_from(value).ok().filter(|&value| value <= most)
}

fn delay(value: i64) -> Option<Span> {
    bounded(value, DELAY_MAX.as_millis() as u64).map(Span::from_millis)
}

fn pieces(value: i64) -> usize {
    usize::try_from(value).unwrap_or(usize::MAX).clamp(1, PIECE_BYTES_MAX)
}

/// Parses `-`, digits, then letters that multiply or draw a random number. An empty value counts as 1 (`?C`
/// is `?C=1`).
fn parse_number(text: &str, prng: &mut Prng) -> Option<i64> {
    if text.is_empty() {
        return Some(1);
    }
    let (negative, text) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text),
    };
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (digits, letters) = text.split_at(digits);
    let mut number: i64 = digits.parse().ok()?;
    for letter in letters.bytes() {
        number = match letter {
            b'k' => number.checked_mul(1 << 10)?,
            b'm' => number.checked_mul(1 << 20)?,
            b'g' => number.checked_mul(1 << 30)?,
            // `number` is not negative, so a random number below `number` + 1 fits into an i64.
            b'r' => prng.below((number as u64).saturating_add(1)) as i64,
            _ => return None,
        };
    }
    Some(if negative { -number } else { number })
}

/// Gives the sink the response head. The body follows; [`fill`] generates it. `version` is that of the
/// request.
pub fn encode_synthetic_head(
    sink: &mut impl ResponseSink,
    order: &Synthetic,
    version: Version,
    context: &AnswerContext<'_>,
) {
    encode_answer_fields(sink, order.status, context);
    if order.has_content() {
        sink.field("Content-Type", b"application/octet-stream");
    }
    if !order.cacheable {
        sink.field("Cache-Control", b"no-cache");
    }
    if let Some(etag) = order.etag {
        sink.field_with("ETag", |out| {
            out.push(b'"');
            out.extend_from_slice(itoa::Buffer::new().format(etag).as_bytes());
            out.push(b'"');
        });
    }
    if order.verbose {
        encode_verbose(sink, order, version, context);
    }
    let length = order.body_length(context.is_head);
    // Content-Length is what the response to GET would have (RFC 9110 section 8.6); 205 requires 0.
    match (length, order.body_length(false)) {
        (BodyLength::None, _) if order.status == 205 => sink.field_u64("Content-Length", 0),
        (BodyLength::None, BodyLength::Length(size)) => sink.field_u64("Content-Length", size),
        _ => {}
    }
    sink.length(length);
    sink.end();
}

fn encode_verbose(
    sink: &mut impl ResponseSink,
    order: &Synthetic,
    version: Version,
    context: &AnswerContext<'_>,
) {
    sink.field_with("X-Req", |out| {
        out.extend_from_slice(b"version=");
        out.extend_from_slice(version.number().as_bytes());
        out.extend_from_slice(if context.is_head { b", head=1" } else { b", head=0" });
    });
    sink.field_with("X-Rsp", |out| {
        let mut number = itoa::Buffer::new();
        out.extend_from_slice(b"status=");
        out.extend_from_slice(number.format(order.status).as_bytes());
        out.extend_from_slice(b", size=");
        out.extend_from_slice(number.format(order.size).as_bytes());
        out.extend_from_slice(b", delay-ms=");
        out.extend_from_slice(number.format(order.delay.as_millis()).as_bytes());
    });
}

/// Gives the sink the complete response to `?h`.
pub fn encode_help(sink: &mut impl ResponseSink, context: &AnswerContext<'_>) {
    encode_answer_fields(sink, 200, context);
    sink.field("Content-Type", b"text/plain; charset=utf-8");
    encode_content_length(sink, 200, HELP.len() as u64, context.is_head);
    sink.end();
    if !context.is_head {
        sink.content(&[HELP.as_bytes()]);
    }
}

/// Gives the sink the complete response to a query that [`parse`] rejected with `text`.
pub fn encode_refusal(sink: &mut impl ResponseSink, text: &str, context: &AnswerContext<'_>) {
    encode_error(sink, 400, text, context);
}

const PATTERN_BYTES: usize = 4096;
const LINE: &[u8; 64] = b"Tidegate 0123456789 abcdefghijklmnopqrstuvwxyz ABCDEFGHIJKLMNOP\n";

/// Lines of 64 bytes, so that a body is readable.
static PATTERN: [u8; PATTERN_BYTES] = {
    let mut pattern = [0; PATTERN_BYTES];
    let mut at = 0;
    while at < PATTERN_BYTES {
        pattern[at] = LINE[at % LINE.len()];
        at += 1;
    }
    pattern
};

/// Appends `amount` bytes of a body from `offset` on: the pattern, or with a seed random bytes
/// (incompressible, and equal for equal seeds).
pub fn fill(out: &mut Vec<u8>, offset: u64, amount: usize, seed: Option<u64>) {
    out.reserve(amount);
    let end = out.len() + amount;
    let mut offset = offset;
    while out.len() < end {
        let left = end - out.len();
        let before = out.len();
        match seed {
            None => {
                let skip = (offset % PATTERN_BYTES as u64) as usize;
                let piece = &PATTERN[skip..];
                out.extend_from_slice(&piece[..piece.len().min(left)]);
            }
            Some(seed) => {
                let word = mix64(seed ^ mix64((offset / 8).wrapping_add(1))).to_le_bytes();
                let skip = (offset % 8) as usize;
                out.extend_from_slice(&word[skip..(skip + left).min(8)]);
            }
        }
        offset = offset.wrapping_add((out.len() - before) as u64);
    }
}
