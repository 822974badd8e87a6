//! Responses of scripts.
//! In: the status, the fields and the content that a script has set. Out: the response, given to the client's sink.
//! Never: checks names and values again: `lua` refuses those that do not fit a head, or that frame the message.
//! Invariant: every response has exactly one length. Date and Server are Tidegate's.

use tidegate_wire::message::{BodyLength, ResponseSink};

use crate::respond::{AnswerContext, allows_content, encode_answer_fields, encode_content_length};

/// Gives a complete response to a sink.
pub fn encode_scripted<'f>(
    sink: &mut impl ResponseSink,
    status: u16,
    fields: impl Iterator<Item = (&'f str, &'f [u8])>,
    content: &[u8],
    context: &AnswerContext<'_>,
) {
    let content = if allows_content(status) { content } else { b"" };
    encode_answer_fields(sink, status, context);
    fields.for_each(|(name, value)| sink.field(name, value));
    encode_content_length(sink, status, content.len() as u64, context.is_head);
    sink.end();
    if !content.is_empty() && !context.is_head {
        sink.content(&[content]);
    }
}

/// Gives the head of a response to a sink whose body follows in pieces.
pub fn encode_scripted_head<'f>(
    sink: &mut impl ResponseSink,
    status: u16,
    fields: impl Iterator<Item = (&'f str, &'f [u8])>,
    context: &AnswerContext<'_>,
) {
    encode_answer_fields(sink, status, context);
    fields.for_each(|(name, value)| sink.field(name, value));
    sink.length(scripted_length(status, context.is_head));
    sink.end();
}

/// How the body of such a response is delimited.
#[must_use]
pub fn scripted_length(status: u16, is_head: bool) -> BodyLength {
    if is_head || !allows_content(status) { BodyLength::None } else { BodyLength::Streamed }
}
