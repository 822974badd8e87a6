//! Cross-origin requests of web pages (Fetch standard, section 3.2).
//! In: the settings of a route, the head of a request. Out: whether the origin is allowed; the response to a preflight
//! request.
//! Never: refuses a request: the browser hides the response from a page whose origin is not allowed.

use tidegate_config::model::{Cors, FieldEdits, Placeholder, Template, TemplatePiece};
use tidegate_wire::message::{BodyLength, Method, RequestHead, ResponseSink};
use tidegate_wire::websocket::Origins;

use crate::respond::{AnswerContext, encode_answer_fields};

const ALLOW_ORIGIN: &str = "access-control-allow-origin";
const ALLOW_CREDENTIALS: &str = "access-control-allow-credentials";
const EXPOSE: &str = "access-control-expose-headers";
/// The methods that pages may use, unless the route lists others.
const METHODS: &str = "GET, HEAD, POST, PUT, PATCH, DELETE";

/// The settings of a route, prepared.
#[derive(Debug)]
pub struct CrossOrigin {
    /// The origins whose pages may use the route.
    origins: Origins,
    /// The value of Access-Control-Allow-Methods.
    methods: String,
    /// The value of Access-Control-Allow-Headers; empty: the permissions that the request asks for.
    headers: String,
    /// The value of Access-Control-Max-Age.
    max_age: u64,
}

impl CrossOrigin {
    /// Prepares `cors`.
    #[must_use]
    pub fn new(cors: &Cors) -> Self {
        let origins = Origins::parse(cors.origins.iter().map(String::as_str));
        debug_assert!(origins.is_ok(), "{origins:?}");
        let methods = match cors.methods.as_slice() {
            [] => METHODS.to_owned(),
            methods => methods.join(", "),
        };
        Self {
            origins: origins.unwrap_or_default(),
            methods,
            headers: cors.headers.join(", "),
            max_age: cors.max_age.as_secs(),
        }
    }

    /// The origin of the page that sent the request, if it is allowed.
    #[must_use]
    pub fn allowed<'h>(&self, head: &RequestHead<'h>) -> Option<&'h [u8]> {
        let mut origins = head.fields().filter(|field| field.name.eq_ignore_ascii_case("origin"));
        // Servers differ in which of two fields they take.
        let (Some(field), None) = (origins.next(), origins.next()) else { return None };
        let origin = field.value;
        self.origins.allows(Some(origin), None).then_some(origin)
    }

    /// Whether the request asks for permission before another request.
    #[must_use]
    pub fn is_preflight(head: &RequestHead<'_>) -> bool {
        matches!(head.method, Method::Options)
            && head.find_named("origin").is_some()
            && head.find_named("access-control-request-method").is_some()
    }

    /// Gives the sink the response to a preflight request. The filter of the route adds the allowed origin.
    pub fn encode_preflight(
        &self,
        sink: &mut impl ResponseSink,
        head: &RequestHead<'_>,
        context: &AnswerContext<'_>,
    ) {
        encode_answer_fields(sink, 204, context);
        sink.field("Access-Control-Allow-Methods", self.methods.as_bytes());
        let asked = head.find_named("access-control-request-headers");
        match (self.headers.as_str(), asked) {
            ("", Some(asked)) => sink.field("Access-Control-Allow-Headers", asked),
            ("", None) => {}
            (headers, _) => sink.field("Access-Control-Allow-Headers", headers.as_bytes()),
        }
        sink.field_u64("Access-Control-Max-Age", self.max_age);
        sink.length(BodyLength::None);
        sink.end();
    }
}

/// Adds the edits of responses that `cors` requires.
pub(crate) fn add_edits(cors: &Cors, edits: &mut FieldEdits) {
    let text = |text: &str| Template { pieces: vec![TemplatePiece::Text(text.to_owned())] };
    let mut set = |name: &str, template| edits.set.push((name.to_owned(), template));
    if cors.origins.iter().any(|origin| origin == "*") {
        set(ALLOW_ORIGIN, text("*"));
    } else {
        let origin = TemplatePiece::Value(Placeholder::AllowedOrigin);
        set(ALLOW_ORIGIN, Template { pieces: vec![origin] });
        edits.add.push(("vary".to_owned(), text("Origin")));
    }
    match cors.credentials {
        true => {
            let allowed = TemplatePiece::Value(Placeholder::CredentialsIfAllowed);
            edits.set.push((ALLOW_CREDENTIALS.to_owned(), Template { pieces: vec![allowed] }));
        }
        false => edits.remove.push(ALLOW_CREDENTIALS.to_owned()),
    }
    match cors.expose.as_slice() {
        [] => {}
        names => edits.set.push((EXPOSE.to_owned(), text(&names.join(", ")))),
    }
}
