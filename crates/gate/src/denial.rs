//! Responses of routes that do not serve a request: too many requests, maintenance, a page for an error.
//! In: the reason. Out: complete responses, given to the client's sink.

use tidegate_config::model::Page;
use tidegate_wire::message::ResponseSink;

use crate::respond::{AnswerContext, encode_answer_fields, encode_content_length, encode_text};

/// Why a route does not serve a request.
#[derive(Clone, Copy, Debug)]
pub struct Denial<'a> {
    /// The status of the response.
    pub status: u16,
    /// The text of the response, if there is no page.
    pub text: &'a str,
    /// The page to send; `None`: the page in `errors` of the route for this status is sent, or `text` if there is none.
    pub page: Option<&'a Page>,
    /// The value of Retry-After, in seconds; 0: the field is omitted.
    pub retry_after: u64,
    /// The value of WWW-Authenticate; empty: the field is omitted.
    pub challenge: &'a str,
}

impl<'a> Denial<'a> {
    /// A denial with a message, without a page and without further fields.
    #[must_use]
    pub const fn new(status: u16, text: &'a str) -> Self {
        Self { status, text, page: None, retry_after: 0, challenge: "" }
    }
}

impl Denial<'_> {
    /// Gives the response to the sink. `page` is the page in `errors` of the route for this status.
    pub fn encode(
        &self,
        sink: &mut impl ResponseSink,
        page: Option<&Page>,
        context: &AnswerContext<'_>,
    ) {
        encode_answer_fields(sink, self.status, context);
        if self.retry_after > 0 {
            sink.field_u64("Retry-After", self.retry_after);
        }
        if !self.challenge.is_empty() {
            sink.field("WWW-Authenticate", self.challenge.as_bytes());
        }
        match self.page.or(page) {
            Some(page) => encode_page(sink, self.status, page, context),
            None => encode_text(sink, self.status, self.text, None, context),
        }
    }
}

/// Gives the sink the content of an error page, after the fields of the response.
fn encode_page(
    sink: &mut impl ResponseSink,
    status: u16,
    page: &Page,
    context: &AnswerContext<'_>,
) {
    sink.field("Content-Type", page.media_type.as_bytes());
    // A cached copy would hide that the route serves requests again.
    sink.field("Cache-Control", b"no-store");
    encode_content_length(sink, status, page.content.len() as u64, context.is_head);
    sink.end();
    if !page.content.is_empty() && !context.is_head {
        sink.content(&[&page.content]);
    }
}
