//! Responses of push hubs: JSON, event streams, and the CORS fields that let pages of other origins read them.
//! In: a body, the origin of the requesting page. Out: responses, given to the client's sink. Never: decides whether a page may read.

use tidegate_wire::message::{BodyLength, ResponseSink};

use crate::respond::{AnswerContext, encode_answer_fields, encode_content_length};

/// How long a browser remembers the response to a preflight request, in seconds.
const PREFLIGHT_SECONDS: u64 = 300;

/// Gives a complete response to a sink. `origin`: the page that may read it.
pub fn encode_json(
    sink: &mut impl ResponseSink,
    status: u16,
    body: &[u8],
    origin: Option<&str>,
    context: &AnswerContext<'_>,
) {
    encode_answer_fields(sink, status, context);
    encode_origin(sink, origin);
    sink.field("Cache-Control", b"no-store");
    if !body.is_empty() {
        sink.field("Content-Type", b"application/json");
    }
    encode_content_length(sink, status, body.len() as u64, context.is_head);
    sink.end();
    if !body.is_empty() && !context.is_head {
        sink.content(&[body]);
    }
}

/// Gives the head of an endless response of this type to a sink.
pub fn encode_stream_head(
    sink: &mut impl ResponseSink,
    content_type: &str,
    origin: Option<&str>,
    context: &AnswerContext<'_>,
) {
    encode_answer_fields(sink, 200, context);
    encode_origin(sink, origin);
    sink.field("Content-Type", content_type.as_bytes());
    // The pieces must not wait in caches and buffers of proxies.
    sink.field("Cache-Control", b"no-cache, no-transform");
    sink.field("X-Accel-Buffering", b"no");
    sink.length(events_length(context.is_head));
    sink.end();
}

/// The length of a stream of events.
#[must_use]
pub const fn events_length(is_head: bool) -> BodyLength {
    if is_head { BodyLength::None } else { BodyLength::Streamed }
}

/// Gives the response to a preflight request to a sink (WHATWG Fetch, section 3.3.2). `headers`: the fields that the page will
/// send.
pub fn encode_preflight(
    sink: &mut impl ResponseSink,
    origin: Option<&str>,
    headers: &[u8],
    context: &AnswerContext<'_>,
) {
    encode_answer_fields(sink, 204, context);
    encode_origin(sink, origin);
    if origin.is_some() {
        sink.field("Access-Control-Allow-Methods", b"GET, POST, OPTIONS");
        if !headers.is_empty() {
            sink.field("Access-Control-Allow-Headers", headers);
        }
        sink.field_u64("Access-Control-Max-Age", PREFLIGHT_SECONDS);
    }
    sink.length(BodyLength::None);
    sink.end();
}

fn encode_origin(sink: &mut impl ResponseSink, origin: Option<&str>) {
    if let Some(origin) = origin {
        sink.field("Access-Control-Allow-Origin", origin.as_bytes());
        sink.field("Access-Control-Allow-Credentials", b"true");
        sink.field("Vary", b"Origin");
    }
}
