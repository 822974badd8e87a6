//! WebSocket connections that Tidegate serves itself: their settings, and the responses of the handshake.
//! In: the configuration; requests. Out: prepared settings; responses, given to the client's sink.
//! Never: knows the rules of the handshake (`wire::websocket`).
//! Limits: `WEBSOCKET_SETTINGS_MAX` routes with their own settings.

use tidegate_base::Span;
use tidegate_base::limits::WEBSOCKET_SETTINGS_MAX;
use tidegate_config::model::{Compression, Config, Route, WebSocket};
use tidegate_wire::http1::StoredHead;
use tidegate_wire::message::{Field, RequestHead, ResponseHead, ResponseSink};
use tidegate_wire::websocket::{
    ACCEPT_BYTES, Accept, DeflateSettings, Limits, Origins, Policy, Refusal, WEBSOCKET_VERSION,
    accept_key_of, is_key_accepted,
};

use crate::respond::{AnswerContext, encode_answer_fields, encode_text};

/// The protocol's name in Upgrade, and in the `:protocol` of an extended CONNECT.
pub const PROTOCOL: &str = "websocket";
/// The field with a client's key.
const KEY: &str = "Sec-WebSocket-Key";

/// The subprotocol of clients of push hubs that speak JSON. Most of them state none.
pub const HUB_JSON: &str = "centrifuge-json";
/// The subprotocol of clients of push hubs that speak Protocol Buffers.
pub const HUB_PROTOBUF: &str = "centrifuge-protobuf";

/// The settings of an endpoint, prepared for its connections.
#[derive(Debug)]
pub struct Endpoint {
    /// Which requests are accepted.
    pub policy: Policy,
    /// As `policy`, for clients of push hubs, with the subprotocols of their protocol.
    pub hub_policy: Policy,
    /// The limits of messages.
    pub limits: Limits,
    /// Time without a message, after which the connection is closed; `None`: unlimited.
    pub idle_timeout: Option<Span>,
    /// Time without a byte from the client, after which it gets a Ping; `None`: no Pings.
    pub ping_every: Option<Span>,
    /// Time without a byte from the client after a Ping or a Close frame.
    pub pong_timeout: Span,
}

/// The value of Sec-WebSocket-Accept.
pub type AcceptedKey = [u8; ACCEPT_BYTES];

/// Names an endpoint. Small, because each connection holds one.
pub type EndpointId = u16;

/// The endpoints of a configuration.
#[derive(Debug)]
pub struct Endpoints {
    /// Each with different settings: those of `[websocket]` and of single routes, and those of earlier
    /// configurations, which open connections may use.
    endpoints: Vec<(WebSocket, Endpoint)>,
    /// By route.
    of_routes: Vec<EndpointId>,
}

impl Endpoints {
    /// Prepares the settings of `config`.
    #[must_use]
    pub fn new(config: &Config) -> Self {
        Self::after(config, &[])
    }

    /// As [`Self::new`]. The settings in `earlier` keep their numbers, which open connections hold. If no number is
    /// left, all are given again, and open connections use the settings that have their numbers then.
    #[must_use]
    pub fn after(config: &Config, earlier: &[WebSocket]) -> Self {
        let of_route =
            |route: &Route| route.websocket.as_ref().unwrap_or(&config.websocket).clone();
        let room = usize::from(EndpointId::MAX) - WEBSOCKET_SETTINGS_MAX;
        let earlier = if earlier.len() < room { earlier } else { &[] };
        let earlier =
            if earlier.is_empty() { core::slice::from_ref(&config.websocket) } else { earlier };
        let mut endpoints: Vec<_> = earlier.iter().map(Endpoint::prepared).collect();
        let mut of_routes = Vec::with_capacity(config.routes.len());
        for route in &config.routes {
            let settings = of_route(route);
            let known = endpoints.iter().position(|(other, _)| *other == settings);
            let at = known.unwrap_or_else(|| {
                endpoints.push(Endpoint::prepared(&settings));
                endpoints.len() - 1
            });
            // In range: the reader of the configuration checks `WEBSOCKET_SETTINGS_MAX`.
            of_routes.push(at as EndpointId);
        }
        Self { endpoints, of_routes }
    }

    /// The settings of all endpoints, by number.
    pub fn settings(&self) -> impl Iterator<Item = &WebSocket> {
        self.endpoints.iter().map(|(settings, _)| settings)
    }

    /// The endpoint of `route`.
    #[must_use]
    pub fn of_route(&self, route: usize) -> EndpointId {
        self.of_routes.get(route).copied().unwrap_or_default()
    }

    /// The settings of an endpoint.
    #[must_use]
    pub fn get(&self, id: EndpointId) -> &Endpoint {
        &self.endpoints[usize::from(id) % self.endpoints.len()].1
    }
}

const _: () = assert!(WEBSOCKET_SETTINGS_MAX < EndpointId::MAX as usize);

impl Endpoint {
    /// The settings, as written and as prepared.
    fn prepared(settings: &WebSocket) -> (WebSocket, Self) {
        (settings.clone(), Self::new(settings))
    }

    fn new(settings: &WebSocket) -> Self {
        // The reader of the configuration has checked the list; an invalid list would allow no page.
        let origins = Origins::parse(settings.origins.iter().map(String::as_str));
        debug_assert!(origins.is_ok(), "{origins:?}");
        let keeps = match settings.compression {
            Compression::Off => None,
            Compression::Shared => Some(false),
            Compression::Dedicated => Some(true),
        };
        let deflate = keeps.map(|keeps| DeflateSettings {
            keeps_context: keeps,
            peer_keeps_context: keeps,
            window_bits: settings.window_bits,
            peer_window_bits: settings.window_bits,
        });
        let policy = Policy {
            subprotocols: settings.subprotocols.clone(),
            origins: origins.unwrap_or_default(),
            deflate,
        };
        let subprotocols = [HUB_JSON, HUB_PROTOBUF].map(str::to_owned).to_vec();
        Self {
            hub_policy: Policy { subprotocols, ..policy.clone() },
            policy,
            limits: Limits {
                // A compressed message may be a little longer than the message.
                frame_bytes_max: settings.frame_bytes_max.unwrap_or(u32::MAX),
                message_bytes_max: settings.message_bytes_max,
                ..Limits::default()
            },
            idle_timeout: settings.idle_timeout,
            ping_every: settings.ping_every,
            pong_timeout: settings.pong_timeout,
        }
    }
}

/// Checks a request for a WebSocket, whatever its version of HTTP.
///
/// # Errors
/// Why the request is refused.
pub fn check_request<'p>(
    policy: &'p Policy,
    head: &RequestHead<'_>,
) -> Result<Accept<'p>, Refusal> {
    if head.protocol.is_some() {
        return policy
            .check_connect(head.fields().map(|field| (field.name, field.value)), head.host);
    }
    policy.check(head)
}

/// The value of the field `name` of the request whose head was encoded for a server.
fn stored_value<'r>(request: &'r [u8], name: &str) -> Option<&'r [u8]> {
    let mut fields = StoredHead::parse(request)?.fields();
    fields.find(|field| field.name.eq_ignore_ascii_case(name)).map(|field| field.value)
}

/// Whether a 101 response accepts the key of the request whose head was sent (RFC 6455 section 4.1).
#[must_use]
pub fn accepts_key(request: &[u8], head: &ResponseHead<'_>) -> bool {
    stored_value(request, KEY).is_some_and(|key| is_key_accepted(key, head))
}

/// Whether the request whose head was encoded for a server opens a WebSocket, so that it can be an extended CONNECT.
#[must_use]
pub fn is_requested(request: &[u8]) -> bool {
    let upgrade = stored_value(request, "Upgrade");
    // A server must not take a request of another method for a WebSocket (RFC 6455 section 4.1).
    request.starts_with(b"GET ")
        && upgrade.is_some_and(|protocol| protocol.eq_ignore_ascii_case(PROTOCOL.as_bytes()))
        && accepted_key(request).is_some()
}

/// The value that accepts the key of the request whose head was encoded for a server. `None` if there is no valid key.
#[must_use]
pub fn accepted_key(request: &[u8]) -> Option<AcceptedKey> {
    accept_key_of(stored_value(request, KEY)?)
}

/// Whether a field has the client's key, which an extended CONNECT does not have (RFC 8441 section 5).
#[must_use]
pub fn is_key(field: &Field<'_>) -> bool {
    field.name.eq_ignore_ascii_case(KEY)
}

/// Gives the response to an accepted request to a sink.
pub fn encode_switch(
    sink: &mut impl ResponseSink,
    accept: &Accept<'_>,
    context: &AnswerContext<'_>,
) {
    // The response to an extended CONNECT is 200 (RFC 8441 section 5).
    let status = if accept.accept_key.is_some() { 101 } else { 200 };
    encode_answer_fields(sink, status, context);
    if let Some(key) = &accept.accept_key {
        sink.field("Sec-WebSocket-Accept", key);
    }
    if let Some(subprotocol) = accept.subprotocol {
        sink.field("Sec-WebSocket-Protocol", subprotocol.as_bytes());
    }
    if let Some(value) = accept.extension_value() {
        sink.field("Sec-WebSocket-Extensions", value.as_bytes());
    }
    sink.switch(core::iter::once(PROTOCOL.as_bytes()));
    sink.end();
}

/// Gives the response to a refused request to a sink. Returns its status.
pub fn encode_refusal(
    sink: &mut impl ResponseSink,
    refusal: Refusal,
    context: &AnswerContext<'_>,
) -> u16 {
    let status = refusal.status();
    encode_answer_fields(sink, status, context);
    // RFC 9110 section 15.5.22, RFC 6455 section 4.4.
    let upgrade = (status == 426).then_some(PROTOCOL.as_bytes());
    if upgrade.is_some() {
        sink.field("Sec-WebSocket-Version", WEBSOCKET_VERSION.as_bytes());
    }
    encode_text(sink, status, refusal.reason(), upgrade, context);
    status
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_get_request_opens_a_websocket() {
        for (method, wanted) in [("GET", true), ("POST", false), ("DELETE", false), ("HEAD", false)]
        {
            let request = format!(
                "{method} / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\
                 Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
            );
            assert_eq!(is_requested(request.as_bytes()), wanted, "{method}");
        }
    }

    /// Origins have two readers: `config` reports errors at their place, `wire` compares.
    #[test]
    fn every_form_of_origin_that_the_configuration_accepts_is_effective() {
        for (entry, origin, host) in [
            ("same-origin", "https://a.example", "a.example"),
            ("*", "https://b.example", "a.example"),
            ("null", "null", "a.example"),
            ("https://*.b.example:8443", "https://c.b.example:8443", "a.example"),
            ("HTTP://[::1]", "http://[::1]", "a.example"),
            ("app+x://page", "app+x://page", "a.example"),
        ] {
            let file = format!(
                "[websocket]\norigins = [{entry:?}]\n[[listener]]\nbind = \"127.0.0.1:80\"\n"
            );
            let config = tidegate_config::parse(&file, "the test").expect("a valid file");
            let endpoints = Endpoints::new(&config);
            let origins = &endpoints.get(0).policy.origins;
            assert!(origins.allows(Some(origin.as_bytes()), Some(host)), "{entry}");
            assert_eq!(origins.allows(Some(b"https://evil.example"), Some(host)), entry == "*");
        }
    }

    #[test]
    fn routes_use_their_own_settings_or_the_general_ones() {
        let file = "[websocket]\nmessage-max = \"2KiB\"\n[[listener]]\nbind = \"127.0.0.1:80\"\n\
                    [[route]]\npath = \"/a\"\necho = true\nwebsocket = { ping-every = \"off\" }\n\
                    [[route]]\necho = true\n";
        let endpoints = Endpoints::new(&tidegate_config::parse(file, "the test").expect("valid"));
        let (first, second) = (endpoints.of_route(0), endpoints.of_route(1));
        assert_eq!((first, second), (1, 0));
        assert_eq!(endpoints.get(first).limits.message_bytes_max, 2048);
        assert_eq!(endpoints.get(first).ping_every, None);
        assert_eq!(endpoints.get(second).ping_every, Some(Span::from_secs(30)));
    }
}
