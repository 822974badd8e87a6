//! Responses that Tidegate makes by itself, in the form in which an action hands them to a carrier.
//! In: an action's decision. Out: the head and the content, given to the carrier's sink.
//! Never: knows a connection; the carrier adds the version and the persistence of the connection.

use tidegate_config::model::{HttpsRedirect, Redirect};
use tidegate_gate::cors::CrossOrigin;
use tidegate_gate::denial::Denial;
use tidegate_gate::filter::{Filtered, Filters};
use tidegate_gate::forward::{self, ResponseContext};
use tidegate_gate::grpc;
use tidegate_gate::push;
use tidegate_gate::respond::{self, AnswerContext, Prepared};
use tidegate_gate::scheme::Scheme;
use tidegate_gate::scripted;
use tidegate_gate::synthetic::{self, Synthetic};
use tidegate_gate::template::Values;
use tidegate_gate::websocket::{self, AcceptedKey};
use tidegate_lua::fields_of;
use tidegate_wire::message::{BodyLength, RequestHead, ResponseHead, ResponseSink, Version};
use tidegate_wire::websocket::{Accept, Refusal};

/// A complete response. The action that sends it has ended.
pub(crate) enum Answer<'a> {
    /// The fixed response of a route.
    Prepared(&'a Prepared),
    /// A redirect that a route configures.
    /// `values`: the values of the placeholders in its target; `None` if it has no placeholders.
    Redirect {
        redirect: &'a Redirect,
        head: &'a RequestHead<'a>,
        scheme: Scheme,
        values: Option<&'a Values<'a>>,
    },
    /// A redirect of a plain request to the same URL by https.
    HttpsRedirect { redirect: HttpsRedirect, head: &'a RequestHead<'a> },
    /// The response to OPTIONS or TRACE with Max-Forwards 0, whose final recipient is Tidegate.
    Recipient(&'a RequestHead<'a>),
    /// A status with a short text; without content if the text is empty.
    Error { status: u16, text: &'a str },
    /// An error response to a gRPC call.
    CallError { status: u16, text: &'a str, retry_after: u64 },
    /// A route does not serve the request.
    Denied(Denial<'a>),
    /// The response to a preflight request, by the `cors` settings of a route.
    CorsPreflight { cors: &'a CrossOrigin, head: &'a RequestHead<'a> },
    /// A synthetic response that fits into one piece.
    Synthetic { order: &'a Synthetic, seed: Option<u64> },
    /// The help text of the action `synthetic`.
    SyntheticHelp,
    /// The response of a script; `fields` as in `tidegate_lua::Effect`.
    Scripted { status: u16, fields: &'a [u8], body: &'a [u8] },
    /// The refusal of a request for a WebSocket.
    WebSocketRefusal(Refusal),
    /// A response of a push hub. `origin`: the page that may read it.
    Json { status: u16, body: &'a [u8], origin: Option<&'a str> },
    /// The response of a push hub to a preflight request of a page, which requests permission to send the header fields
    /// `headers`.
    Preflight { origin: Option<&'a str>, headers: &'a [u8] },
}

impl Answer<'_> {
    /// Gives the response to the sink of a carrier, with its filters. Returns the status. `version` is that of
    /// the request.
    pub(crate) fn encode(
        &self,
        sink: &mut impl ResponseSink,
        version: Version,
        filters: Filters<'_>,
        context: &AnswerContext<'_>,
    ) -> u16 {
        let sink = &mut Filtered::new(sink, self.filters(filters));
        match *self {
            Answer::Prepared(prepared) => {
                respond::encode_respond_parts(sink, prepared, context);
                prepared.status()
            }
            Answer::Redirect { redirect, head, scheme, values } => {
                respond::encode_redirect(sink, redirect, (head, scheme), values, context)
            }
            Answer::HttpsRedirect { redirect, head } => {
                respond::encode_https_redirect(sink, redirect, head, context)
            }
            Answer::Recipient(head) => {
                respond::encode_final_recipient(sink, head, context);
                200
            }
            Answer::Error { status, text } => match filters.page(status) {
                None => {
                    respond::encode_error(sink, status, text, context);
                    status
                }
                page => {
                    Denial::new(status, text).encode(sink, page, context);
                    status
                }
            },
            Answer::Denied(denial) => {
                denial.encode(sink, filters.page(denial.status), context);
                denial.status
            }
            Answer::CorsPreflight { cors, head } => {
                cors.encode_preflight(sink, head, context);
                204
            }
            Answer::CallError { status, text, retry_after } => {
                grpc::encode_error(sink, (status, text), retry_after, context)
            }
            Answer::Synthetic { order, seed } => {
                synthetic::encode_synthetic_head(sink, order, version, context);
                if order.has_body(context.is_head) && order.size > 0 {
                    sink.content_with(|out| synthetic::fill(out, 0, order.size as usize, seed));
                }
                order.status
            }
            Answer::SyntheticHelp => {
                synthetic::encode_help(sink, context);
                200
            }
            Answer::Scripted { status, fields, body } => {
                scripted::encode_scripted(sink, status, fields_of(fields), body, context);
                status
            }
            Answer::WebSocketRefusal(refusal) => websocket::encode_refusal(sink, refusal, context),
            Answer::Json { status, body, origin } => {
                push::encode_json(sink, status, body, origin, context);
                status
            }
            Answer::Preflight { origin, headers } => {
                push::encode_preflight(sink, origin, headers, context);
                204
            }
        }
    }

    /// The filters of the response. A route's own Strict-Transport-Security takes the place of the policy's.
    pub(crate) fn filters<'f>(&self, filters: Filters<'f>) -> Filters<'f> {
        match self {
            Answer::Prepared(prepared) if prepared.has_hsts() => Filters { hsts: "", ..filters },
            _ => filters,
        }
    }

    /// Whether the connection must close after the response.
    pub(crate) fn closes(&self) -> bool {
        matches!(self, Answer::Synthetic { order, .. } if order.asks_to_close())
    }
}

/// The response after which the connection belongs to the action.
pub(crate) enum Switch<'a> {
    /// The 101 (Switching Protocols) of a server.
    Relayed(&'a ResponseHead<'a>),
    /// The response of a server to an extended CONNECT for a WebSocket (RFC 8441), and the value that accepts the key of a
    /// client of HTTP/1.1.
    Connected(&'a ResponseHead<'a>, &'a AcceptedKey),
    /// A WebSocket that the action itself serves.
    WebSocket(&'a Accept<'a>),
}

/// The head of a response whose body follows in pieces.
pub(crate) enum Head<'a> {
    /// The final response of a server, and the value of a Set-Cookie field to add to it (empty: none).
    Relayed(&'a ResponseHead<'a>, &'a str),
    /// A synthetic response.
    Synthetic(&'a Synthetic),
    /// The fixed response of a route.
    Prepared(&'a Prepared),
    /// A stream of events. `origin`: the page that may read it.
    Events { origin: Option<&'a str> },
    /// The endless response of a client of a push hub without WebSocket.
    Stream { content_type: &'static str, origin: Option<&'a str> },
    /// The response of a script; `fields` as in `tidegate_lua::Effect`.
    Scripted { status: u16, fields: &'a [u8] },
}

impl Head<'_> {
    /// The length of the body, as it is announced to the client.
    pub(crate) fn length(&self, is_head: bool) -> BodyLength {
        match self {
            Head::Relayed(head, _) => forward::downstream_length(head, is_head),
            Head::Synthetic(order) => order.body_length(is_head),
            Head::Prepared(prepared) => respond::prepared_length(prepared, is_head),
            Head::Events { .. } | Head::Stream { .. } => push::events_length(is_head),
            Head::Scripted { status, .. } => scripted::scripted_length(*status, is_head),
        }
    }

    /// The status.
    pub(crate) fn status(&self) -> u16 {
        match self {
            Head::Relayed(head, _) => head.status,
            Head::Synthetic(order) => order.status,
            Head::Prepared(prepared) => prepared.status(),
            Head::Events { .. } | Head::Stream { .. } => 200,
            Head::Scripted { status, .. } => *status,
        }
    }

    /// Gives the head to the sink of a carrier, with its filters. `version` is that of the request.
    pub(crate) fn encode(
        &self,
        sink: &mut impl ResponseSink,
        version: Version,
        filters: Filters<'_>,
        context: &AnswerContext<'_>,
        forwarding: &ResponseContext<'_>,
    ) {
        match self {
            Head::Relayed(head, cookie) if filters.is_empty() => {
                let forwarding = &ResponseContext { cookie, ..*forwarding };
                forward::encode_downstream_response(sink, head, forwarding);
            }
            Head::Relayed(head, cookie) => {
                let forwarding = &ResponseContext { cookie, ..*forwarding };
                let sink = &mut Filtered::new(sink, filters);
                forward::encode_downstream_response(sink, head, forwarding);
            }
            Head::Synthetic(order) => {
                let sink = &mut Filtered::new(sink, filters);
                synthetic::encode_synthetic_head(sink, order, version, context);
            }
            Head::Prepared(prepared) => {
                // Its own Strict-Transport-Security takes the place of the policy's.
                let hsts = if prepared.has_hsts() { "" } else { filters.hsts };
                let sink = &mut Filtered::new(sink, Filters { hsts, ..filters });
                respond::encode_respond_head(sink, prepared, context);
            }
            Head::Events { origin } => {
                let sink = &mut Filtered::new(sink, filters);
                push::encode_stream_head(sink, "text/event-stream", *origin, context);
            }
            Head::Stream { content_type, origin } => {
                let sink = &mut Filtered::new(sink, filters);
                push::encode_stream_head(sink, content_type, *origin, context);
            }
            Head::Scripted { status, fields } => {
                let sink = &mut Filtered::new(sink, filters);
                scripted::encode_scripted_head(sink, *status, fields_of(fields), context);
            }
        }
    }

    /// Whether the connection must close after the response.
    pub(crate) fn closes(&self) -> bool {
        match self {
            Head::Relayed(..)
            | Head::Prepared(_)
            | Head::Events { .. }
            | Head::Stream { .. }
            | Head::Scripted { .. } => false,
            Head::Synthetic(order) => order.asks_to_close(),
        }
    }
}
