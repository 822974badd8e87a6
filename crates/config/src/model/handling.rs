//! What a route does to requests and responses in addition to its action: path rewriting, edits of header fields, access.
//! In: the reader of routes. Out: plain data.
//! Invariant: every template was checked for the place where it is used; no edit names a field that frames a message or
//! describes a connection.

use super::{
    Action, Addresses, AskAuth, Bandwidth, BasicAuth, Cors, ErrorPage, JwtAuth, Maintenance,
    Mirror, Rate, Route, RouteTimeouts,
};

/// Everything that a route does to its requests and responses in addition to its action.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Handling {
    /// `request-headers`: edits of the fields that the server receives. Only with the action `proxy`.
    pub request_headers: FieldEdits,
    /// `response-headers`: edits of the fields that the client receives.
    pub response_headers: FieldEdits,
    /// `allow`: the only addresses whose requests are served; `None`: all.
    pub allow: Option<Addresses>,
    /// `deny`: addresses whose requests get a 403 response.
    pub deny: Option<Addresses>,
    /// `rate`: limits that all must admit a request.
    pub rates: Vec<Rate>,
    /// `connections-per-address-max`: requests of one client address in progress; `None`: unlimited.
    pub per_address_max: Option<u32>,
    /// `bandwidth`: how fast the bodies of a request are transferred; `None`: unlimited.
    pub bandwidth: Option<Bandwidth>,
    /// `auth`: only users with a password are served.
    pub auth: Option<BasicAuth>,
    /// `auth = { jwt = ... }`: only requests with a valid token are served.
    pub jwt: Option<JwtAuth>,
    /// `auth = { ask = ... }`: only requests that another server grants are served.
    pub ask: Option<AskAuth>,
    /// `timeouts`: for servers, in place of those of the pool. Only with the action `proxy`.
    pub timeouts: Option<RouteTimeouts>,
    /// `maintenance`: requests get a 503 response; `None`: the route is in service.
    pub maintenance: Option<Maintenance>,
    /// `cors`: pages of other origins may use the route.
    pub cors: Option<Cors>,
    /// `errors`: pages for error responses by Tidegate, by status.
    pub errors: Vec<ErrorPage>,
    /// `security-headers`: fields that protect browsers are added to responses.
    pub security_headers: bool,
    /// `mirror`: copies of requests are sent to another pool. Only with the action `proxy`.
    pub mirror: Option<Mirror>,
    /// `hooks`: a Lua application decides about requests before they are forwarded. Only with the action `proxy`.
    pub hooks: Option<Hooks>,
}

/// `hooks` of a route.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Hooks {
    /// Index of the application.
    pub app: usize,
    /// Indexes of the pools that the hook may choose instead of the pool of `proxy`.
    pub pools: Vec<usize>,
}

impl Handling {
    /// Whether responses are changed.
    #[must_use]
    pub fn changes_responses(&self) -> bool {
        !self.response_headers.is_empty()
            || self.cors.is_some()
            || !self.errors.is_empty()
            || self.security_headers
    }
}

impl Route {
    /// The pools that requests of the route may be sent to, if they are known before files are read.
    pub fn pools(&self) -> impl Iterator<Item = usize> {
        let own = match &self.action {
            Action::Proxy(proxy) => Some(proxy.pool.pools()),
            _ => None,
        };
        let chosen = self.handling.hooks.iter().flat_map(|hooks| hooks.pools.iter().copied());
        own.into_iter().flatten().chain(chosen)
    }

    /// The pools that authorize the route's requests (`ask`), and those that get copies of them.
    pub fn also_used(&self) -> impl Iterator<Item = usize> {
        let asked = self.handling.ask.as_ref().map(|ask| ask.pool);
        asked.into_iter().chain(self.handling.mirror.as_ref().map(|mirror| mirror.pool))
    }

    /// Replaces the index of each pool.
    pub fn map_pools(&mut self, index_of: impl Fn(usize) -> usize) {
        if let Action::Proxy(proxy) = &mut self.action {
            proxy.pool.map_pools(&index_of);
        }
        let handling = &mut self.handling;
        let asked = handling.ask.iter_mut().map(|ask| &mut ask.pool);
        let copied = handling.mirror.iter_mut().map(|mirror| &mut mirror.pool);
        let chosen = handling.hooks.iter_mut().flat_map(|hooks| &mut hooks.pools);
        asked.chain(copied).chain(chosen).for_each(|pool| *pool = index_of(*pool));
    }
}

/// Edits of header fields. Names are in lower case.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct FieldEdits {
    /// Fields that take the place of all received fields of the same name.
    pub set: Vec<(String, Template)>,
    /// Fields that are added to received fields of the same name.
    pub add: Vec<(String, Template)>,
    /// Names of fields that are removed.
    pub remove: Vec<String>,
}

impl FieldEdits {
    /// Whether there are no edits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.set.is_empty() && self.add.is_empty() && self.remove.is_empty()
    }

    /// The fields with a value, in the order in which they are written: `set`, then `add`.
    pub fn written(&self) -> impl Iterator<Item = &(String, Template)> {
        self.set.iter().chain(&self.add)
    }
}

/// A string with placeholders, in pieces that are joined.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Template {
    /// The pieces, in order. No two texts are neighbours.
    pub pieces: Vec<TemplatePiece>,
}

impl Template {
    /// The text, if the template has no placeholders.
    #[must_use]
    pub fn literal(&self) -> Option<&str> {
        match self.pieces.as_slice() {
            [] => Some(""),
            [TemplatePiece::Text(text)] => Some(text),
            _ => None,
        }
    }

    /// The placeholders, in order.
    pub fn placeholders(&self) -> impl Iterator<Item = &Placeholder> {
        self.pieces.iter().filter_map(|piece| match piece {
            TemplatePiece::Text(_) => None,
            TemplatePiece::Value(placeholder) => Some(placeholder),
        })
    }
}

/// A piece of a template.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum TemplatePiece {
    /// Text that is copied as written.
    Text(String),
    /// A value of the request.
    Value(Placeholder),
}

/// A value of a request. A request without the value gives an empty text.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Placeholder {
    /// `{client}`: the client's address, behind trusted proxies.
    Client,
    /// `{host}`: the host with its port.
    Host,
    /// `{method}`: the method.
    Method,
    /// `{scheme}`: `http` or `https`.
    Scheme,
    /// `{path}`: the path, without the query.
    Path,
    /// `{rest}`: the part that `*` at the end of the route's path matches.
    Rest,
    /// `{query}`: the query with its question mark; empty if there is none.
    Query,
    /// `{query:NAME}`: the decoded value of the first parameter of this name.
    QueryValue(String),
    /// `{header:NAME}`: the value of the first field of this name, in lower case here.
    Header(String),
    /// `{cookie:NAME}`: the value of the first cookie of this name.
    Cookie(String),
    /// `{NAME}`: the segment of the path that the route's `path` gives this name.
    Segment(String),
    /// `{tls:sni}`: the server name that the client requested in its TLS handshake.
    ServerName,
    /// The Origin field, if `cors` of the route allows it. Files cannot name this value.
    AllowedOrigin,
    /// "true" if `cors` of the route allows the request's origin. Files cannot name this value.
    CredentialsIfAllowed,
    /// `{user}`: the name of the user that `auth` of the route has verified.
    User,
    /// `{claim:NAME}`: the claim of this name in the token that `auth` of the route has verified.
    Claim(String),
    /// `{id}`: the id of this request: a random number of 32 hexadecimal digits, or that of a trusted client.
    RequestId,
}
