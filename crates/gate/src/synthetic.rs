//! Answers made to the URL's order, with httpterm's argument names: size, status, delay, chunks, ...
//! In: the query, random numbers. Out: an order within its bounds, the head, any piece of the body.
//! Never: lies about a length, holds a body in memory, waits (the worker's deadlines do).
//! Limits: `SIZE_BYTES_MAX`, `DELAY_MAX`, `PIECE_BYTES_MAX`.
//! Invariant: a body's byte depends on its offset and the seed alone.

use tidegate_base::prng::mix64;
use tidegate_base::{Prng, Span};
use tidegate_wire::http1::{Version, encode_field_u64};

use crate::respond::{AnswerContext, encode_answer_fields, encode_connection, encode_error};

/// Bytes of a body at most: 1 TiB.
pub const SIZE_BYTES_MAX: u64 = 1 << 40;
/// Any delay at most.
pub const DELAY_MAX: Span = Span::from_secs(60);
/// Bytes of one piece (or chunk) at most, and where the URL says nothing.
pub const PIECE_BYTES_MAX: usize = 64 * 1024;

/// What `?h` answers.
pub const HELP: &str = "\
Answers made to the URL's order. Arguments, separated by any of & ? , ; /
  s=SIZE    bytes of the body (0)          r=STATUS  status, 200 to 599 (200)
  t=MS      delay before the answer (0)    P=MS      pause after it (0)
  k=N       in chunks of N bytes           p=N       in pieces of at most N bytes
  C=1       close the connection           K=1       keep it
  c=0       not to be cached               e=N       with the entity tag \"N\"
  R=1       random bytes                   v=1       the order in x-req and x-rsp fields
  B=SIZE    bytes of the request's body read before the answer
  b=0       without Content-Length         w=MS      how long the connection is kept idle
A number may end in k, m or g (times 1024) and in r (random, from 0 up to it).
Example: /synthetic?s=20k&t=700r&k=1k
";

/// What the URL ordered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Synthetic {
    /// 200 to 599.
    pub status: u16,
    /// Bytes of the body, [`SIZE_BYTES_MAX`] at most.
    pub size: u64,
    /// To wait before the answer.
    pub delay: Span,
    /// To wait after the answer, before the connection's next request.
    pub pause: Span,
    /// In chunks of `piece_bytes` (towards HTTP/1.0 clients: until close).
    pub chunked: bool,
    /// Bytes handed over at once, 1 to [`PIECE_BYTES_MAX`].
    pub piece_bytes: usize,
    /// Random bytes in place of the pattern.
    pub random: bool,
    /// Whether the connection is to be kept (`K`) or closed (`C`).
    pub keep_alive: Option<bool>,
    /// How long the connection is kept idle, where that is not the listener's own timeout.
    pub keep_alive_time: Option<Span>,
    /// Content-Length is sent; without it (`b=0`) the body ends with the connection.
    pub length_known: bool,
    /// Without it `Cache-Control: no-cache` is sent.
    pub cacheable: bool,
    /// The entity tag.
    pub etag: Option<u64>,
    /// Fields that tell what was understood.
    pub verbose: bool,
    /// Bytes of the request's body to read before the answer; `None`: none.
    pub body_read_max: Option<u64>,
    /// The help text is wanted; all else is as if nothing had been said.
    pub help: bool,
}

/// How a synthetic body is framed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyntheticFraming {
    /// There is none.
    None,
    /// By Content-Length.
    Length,
    /// In chunks.
    Chunked,
    /// Until the connection ends.
    UntilClose,
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
    /// How the body is framed towards the client of `context`. `None` for HEAD and for statuses
    /// without content (RFC 9110 sections 9.3.2, 15.3.5, 15.3.6, 15.4.5).
    #[must_use]
    pub fn framing(&self, context: &AnswerContext<'_>) -> SyntheticFraming {
        if context.is_head || !self.has_content() {
            SyntheticFraming::None
        } else if self.chunked && context.version == Version::Http11 {
            SyntheticFraming::Chunked
        } else if self.chunked || !self.length_known {
            SyntheticFraming::UntilClose
        } else {
            SyntheticFraming::Length
        }
    }

    /// Whether the connection ends with the answer: as the client or the server decided, or as the
    /// URL ordered; `K=1` cannot keep what must be closed.
    #[must_use]
    pub fn closes(&self, context: &AnswerContext<'_>) -> bool {
        context.close
            || self.keep_alive == Some(false)
            || self.framing(context) == SyntheticFraming::UntilClose
    }

    fn has_content(&self) -> bool {
        !matches!(self.status, 204 | 205 | 304)
    }
}

/// Understands the query of a synthetic route. `r` numbers are drawn from `prng` here and now.
///
/// # Errors
/// What is wrong and what is allowed, as a sentence for a 400.
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
    "an argument's value is digits, then any of k, m, g (times 1024) and r (random): s=20k";

impl Synthetic {
    fn set(&mut self, name: &str, value: i64) -> Result<(), &'static str> {
        let positive = value > 0;
        let count = value.unsigned_abs();
        match name {
            "s" => self.size = bounded(value, SIZE_BYTES_MAX).ok_or("s is 0 to 1 TiB")?,
            "r" => {
                let status = u16::try_from(value).ok().filter(|s| (200..=599).contains(s));
                self.status = status.ok_or("r is a final status: 200 to 599")?;
            }
            "t" => self.delay = delay(value).ok_or("t is 0 to 60000 milliseconds")?,
            "P" => self.pause = delay(value).ok_or("P is 0 to 60000 milliseconds")?,
            "w" => {
                self.keep_alive_time = Some(delay(value).ok_or("w is 0 to 60000 milliseconds")?);
            }
            "k" => {
                self.chunked = positive;
                if positive {
                    self.piece_bytes = self.piece_bytes.min(pieces(value));
                }
            }
            "p" if positive => self.piece_bytes = self.piece_bytes.min(pieces(value)),
            "p" => return Err("p is at least 1"),
            "b" if positive => return Err("b cannot lie here: b=0 leaves Content-Length out"),
            "b" => self.length_known = value < 0,
            "B" => self.body_read_max = Some(bounded(value, u64::MAX).ok_or("B is 0 or more")?),
            "c" => self.cacheable = positive,
            "C" if positive => self.keep_alive = Some(false),
            "K" if positive => self.keep_alive = Some(true),
            // `S` switched splicing in httpterm; here there is nothing to switch.
            "C" | "K" | "S" => {}
            "e" => self.etag = Some(count),
            "v" => self.verbose = positive,
            "R" => self.random = positive,
            _ => return Err("unknown argument: ask ?h for those there are"),
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

/// `-`, digits, then letters that multiply or draw; nothing at all counts as 1 (`?C` is `?C=1`).
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
            // `number` is not negative, so what is drawn below number + 1 is an i64 again.
            b'r' => prng.below((number as u64).saturating_add(1)) as i64,
            _ => return None,
        };
    }
    Some(if negative { -number } else { number })
}

/// Appends the answer's head, its empty line included; the body follows as
/// [`Synthetic::framing`] says, out of [`fill`].
pub fn encode_synthetic_head(out: &mut Vec<u8>, order: &Synthetic, context: &AnswerContext<'_>) {
    encode_answer_fields(out, order.status, context);
    if order.has_content() {
        out.extend_from_slice(b"Content-Type: application/octet-stream\r\n");
    }
    if !order.cacheable {
        out.extend_from_slice(b"Cache-Control: no-cache\r\n");
    }
    if let Some(etag) = order.etag {
        out.extend_from_slice(b"ETag: \"");
        out.extend_from_slice(itoa::Buffer::new().format(etag).as_bytes());
        out.extend_from_slice(b"\"\r\n");
    }
    if order.verbose {
        encode_verbose(out, order, context);
    }
    match order.framing(context) {
        SyntheticFraming::Chunked => out.extend_from_slice(b"Transfer-Encoding: chunked\r\n"),
        SyntheticFraming::UntilClose => {}
        SyntheticFraming::Length => encode_field_u64(out, "Content-Length", order.size),
        // What GET would have said (RFC 9110 section 8.6); 205 says that nothing comes.
        SyntheticFraming::None if order.status == 205 => {
            encode_field_u64(out, "Content-Length", 0);
        }
        SyntheticFraming::None if order.has_content() && !order.chunked && order.length_known => {
            encode_field_u64(out, "Content-Length", order.size);
        }
        SyntheticFraming::None => {}
    }
    encode_connection(out, context.version, order.closes(context));
    out.extend_from_slice(b"\r\n");
}

fn encode_verbose(out: &mut Vec<u8>, order: &Synthetic, context: &AnswerContext<'_>) {
    let mut number = itoa::Buffer::new();
    out.extend_from_slice(b"X-Req: version=1.");
    out.push(if context.version == Version::Http11 { b'1' } else { b'0' });
    out.extend_from_slice(if context.is_head { b", head=1\r\n" } else { b", head=0\r\n" });
    out.extend_from_slice(b"X-Rsp: status=");
    out.extend_from_slice(number.format(order.status).as_bytes());
    out.extend_from_slice(b", size=");
    out.extend_from_slice(number.format(order.size).as_bytes());
    out.extend_from_slice(b", delay-ms=");
    out.extend_from_slice(number.format(order.delay.as_millis()).as_bytes());
    out.extend_from_slice(b"\r\n");
}

/// Appends the whole answer to `?h`.
pub fn encode_help(out: &mut Vec<u8>, context: &AnswerContext<'_>) {
    encode_answer_fields(out, 200, context);
    out.extend_from_slice(b"Content-Type: text/plain; charset=utf-8\r\n");
    encode_field_u64(out, "Content-Length", HELP.len() as u64);
    encode_connection(out, context.version, context.close);
    out.extend_from_slice(b"\r\n");
    if !context.is_head {
        out.extend_from_slice(HELP.as_bytes());
    }
}

/// Appends the whole answer to an order that [`parse`] refused with `text`.
pub fn encode_refusal(out: &mut Vec<u8>, text: &str, context: &AnswerContext<'_>) {
    encode_error(out, 400, text, context);
}

const PATTERN_BYTES: usize = 4096;
const LINE: &[u8; 64] = b"Tidegate 0123456789 abcdefghijklmnopqrstuvwxyz ABCDEFGHIJKLMNOP\n";

/// Lines of 64 bytes, so that a body can be read by eye.
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
/// (incompressible, and the same for the same seed).
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
