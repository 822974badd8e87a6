//! The settings of request ids and traces.
//! In: nothing. Out: the sections `[server.request-id]` and `[server.trace]`.

use super::Preset::Value;
use super::Shape::{Boolean, Text, Word};
use super::{Section, key};
use crate::model::Keep;
use crate::words::Keyword as _;

/// `request-id = { ... }` of `[server]`.
pub static REQUEST_ID: Section = Section {
    path: "[server.request-id]",
    about: "An id for each request: servers get it in a field, and the access log contains it (`id`), so that the lines of \
             several programs about one request can be found. Placeholders use it as {id}. An id that Tidegate makes has 32 \
             hexadecimal digits. It is unique, but not secret.",
    keys: &[
        key(
            "field",
            Text("the name of a field, such as \"x-request-id\""),
            Value("\"x-request-id\""),
            "The field that contains the id for servers. A received field of this name is replaced, unless its id is kept. \
             Edits of a route and fields of a Lua hook take precedence.",
            "Most frameworks log this field without further settings.",
        ),
        key(
            "keep",
            Word(Keep::WORDS),
            Value("\"trusted\""),
            "Which received ids are kept: those of clients in `trusted` of the listener (\"trusted\"), of all clients \
             (\"all\"), or of no client (\"none\"). An id is replaced if it has characters other than letters, digits and \
             -_.:/+=@~, more than 128 bytes, or occurs twice.",
            "Otherwise a client could give many requests the same id, and so hide one of them in the log.",
        ),
        key(
            "response",
            Boolean,
            Value("false"),
            "Whether responses have the field, too, so that a user can report the id of a failed request. This includes \
             responses that Tidegate makes itself, except to malformed requests, which have no id.",
            "Most clients do not use it.",
        ),
    ],
    later: &[],
};

/// `trace = { ... }` of `[server]`.
pub static TRACE: Section = Section {
    path: "[server.trace]",
    about: "Each request belongs to a trace (W3C Trace Context): servers get the field traceparent, and the access log \
             contains the id of the trace (`trace_id`). A kept traceparent is passed on unchanged, with its tracestate: \
             servers continue the span of the client. With [traces], Tidegate records its own spans, and servers continue \
             those. If no traceparent is kept, Tidegate begins a trace; if Tidegate also made the id of the request, the trace \
             has the same id.",
    keys: &[
        key(
            "keep",
            Word(Keep::WORDS),
            Value("\"trusted\""),
            "Which traces are continued: those of clients in `trusted` of the listener (\"trusted\"), of all clients, such as \
             pages that begin traces in browsers (\"all\"), or of no client (\"none\"). An invalid or repeated traceparent is \
             replaced.",
            "Otherwise a client could make servers record all of its requests, or spoil the traces of other clients.",
        ),
        key(
            "sampled",
            Text("a percentage such as \"10%\""),
            Value("\"100%\""),
            "The share of the traces begun by Tidegate that are marked as sampled, which asks servers to record them; \
             chosen at random. Up to three decimals, such as \"0.1%\".",
            "Servers that obey the flag would otherwise record nothing. Busy services record a part.",
        ),
    ],
    later: &[],
};
