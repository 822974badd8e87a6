//! Requests to an authentication server, which decides whether a request may be served (`auth = { ask = ... }`).
//! In: the head of a client's request; the head of the server's response. Out: the head of the request to the
//! authentication server; the client's request with the fields that are copied from the response.
//! Never: passes on fields of the client that the response supplies (`copy`); sends a body, a condition or a range, because
//! the response would then depend on it.
//! Limits: `COPIED_BYTES_MAX` for the fields of a response.

use tidegate_base::limits::HEAD_BYTES_MAX;
use tidegate_config::model::{
    AskAuth, FieldEdits, Placeholder, Template, TemplatePiece, UpstreamHost,
};
use tidegate_wire::http1::encode_field;
use tidegate_wire::message::{
    BodyLength, Method, OwnedHead, RequestHead, ResponseHead, TargetForm,
};

use crate::changes::Changes;
use crate::edits::Edits;
use crate::forward::{ForwardFault, RequestContext, encode_upstream_request};
use crate::name_set::is_same_name;

/// Maximum size in bytes of the field lines that are copied from a response into the client's request.
pub const COPIED_BYTES_MAX: usize = HEAD_BYTES_MAX;

/// Fields of the client's request that the authentication request omits.
const OMITTED: [&str; 7] = [
    "expect",
    "if-match",
    "if-modified-since",
    "if-none-match",
    "if-range",
    "if-unmodified-since",
    "range",
];

/// How a route sends requests to its authentication server.
#[derive(Debug)]
pub struct AuthRequestEncoder {
    /// The index of the route.
    route: usize,
    /// The index of the pool of authentication servers.
    pool: u16,
    /// The target of authentication requests.
    target: String,
    /// The Host field of authentication requests.
    host: UpstreamHost,
    /// The edits that turn the fields of the client's request into those of the authentication request.
    edits: Edits,
    /// The fields that are copied from the response into the client's request, in lower case.
    copy: Vec<String>,
}

impl AuthRequestEncoder {
    /// Prepares `ask` of a route.
    #[must_use]
    pub fn new(route: usize, ask: &AskAuth) -> Self {
        let of = |name: &str, placeholders: Vec<Placeholder>| {
            let pieces = placeholders.into_iter().map(TemplatePiece::Value).collect();
            (name.to_owned(), Template { pieces })
        };
        let edits = FieldEdits {
            set: vec![
                of("X-Forwarded-Method", vec![Placeholder::Method]),
                of("X-Forwarded-Uri", vec![Placeholder::Path, Placeholder::Query]),
            ],
            add: Vec::new(),
            remove: OMITTED.map(str::to_owned).to_vec(),
        };
        Self {
            route,
            pool: ask.pool as u16,
            target: ask.target.clone(),
            host: ask.host.clone(),
            edits: Edits::with_defaults(&edits, &[]),
            copy: ask.copy.clone(),
        }
    }

    /// The index of the route.
    #[must_use]
    pub const fn route(&self) -> usize {
        self.route
    }

    /// The index of the pool of the authentication servers.
    #[must_use]
    pub const fn pool(&self) -> u16 {
        self.pool
    }

    /// Appends the head of the authentication request about the request `head`, which is forwarded with this `context`. The
    /// method is GET. For a HEAD request it is HEAD, because a response that refuses the request is sent to the client, and must
    /// have no body.
    ///
    /// # Errors
    /// The request must not be forwarded, or a value of it cannot be placed.
    pub fn encode(
        &self,
        out: &mut Vec<u8>,
        head: &RequestHead<'_>,
        context: &RequestContext<'_>,
        changes: &Changes<'_>,
    ) -> Result<(), ForwardFault> {
        let mut auth_request = head.clone();
        auth_request.method = match head.method {
            Method::Head => Method::Head,
            _ => Method::Get,
        };
        auth_request.form = TargetForm::Origin;
        auth_request.target = &self.target;
        let (path, query) = match self.target.split_once('?') {
            Some((path, query)) => (path, Some(query)),
            None => (self.target.as_str(), None),
        };
        (auth_request.path, auth_request.query) = (path, query);
        auth_request.length = BodyLength::None;
        (auth_request.expect_continue, auth_request.upgrade, auth_request.protocol) =
            (false, false, None);
        let edits = Some(&self.edits);
        let changes = Changes { path: None, edits, waits: false, ask: None, ..*changes };
        let context = RequestContext {
            host: &self.host,
            trailers: false,
            close: false,
            websocket_key: None,
            changes: Some(changes),
            ..*context
        };
        encode_upstream_request(out, &auth_request, &context)
    }

    /// Appends the lines of the fields that are copied from the admitting response `answer` into the request. Returns whether
    /// they are within `COPIED_BYTES_MAX`.
    #[must_use]
    pub fn copy_fields(&self, answer: &ResponseHead<'_>, out: &mut Vec<u8>) -> bool {
        let start = out.len();
        for name in &self.copy {
            for field in answer.fields().filter(|field| field.name.eq_ignore_ascii_case(name)) {
                encode_field(out, name, field.value);
            }
        }
        out.len() - start <= COPIED_BYTES_MAX
    }

    /// Replaces the fields of the request `head` that are copied from the admitting response `answer`. Returns whether the copied
    /// fields are within `COPIED_BYTES_MAX`.
    #[must_use]
    pub fn replace_fields(&self, answer: &ResponseHead<'_>, head: &mut OwnedHead) -> bool {
        let mut room = COPIED_BYTES_MAX;
        for name in &self.copy {
            head.remove_fields(|other| is_same_name(other, name));
            for field in answer.fields().filter(|field| field.name.eq_ignore_ascii_case(name)) {
                let Some(left) = room.checked_sub(name.len() + field.value.len()) else {
                    return false;
                };
                room = left;
                head.add_field(name, field.value);
            }
        }
        true
    }
}
