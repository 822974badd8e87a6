//! What routes do in addition to their actions, prepared at start.
//! In: a configuration. Out: for each route with settings other than its action, their prepared form.
//! Never: holds anything for a route that only has an action: such a route has no entry.
//! Limits: `EDITED_ROUTES_MAX` different edits of responses (a limit of the configuration).

use core::net::IpAddr;
use std::collections::BTreeMap;
use std::sync::Arc;

use tidegate_config::model::{
    Action, Addresses, Bandwidth, BasicAuth, Config, ErrorPage, Handling, Hooks, Maintenance, Page,
    PathPattern, Placeholder, PoolChoice, Rate, Redirect, RequestIds, Route, RouteTimeouts,
    Template, TemplatePiece,
};

use tidegate_config::password_hash::HashCost;

use crate::ask::AuthRequestEncoder;
use crate::choice::PoolChooser;
use crate::conditions::AddressTest;
use crate::cors::{self, CrossOrigin};
use crate::denial::Denial;
use crate::edits::Edits;
use crate::filter::Filters;
use crate::hsts::{HstsPolicies, PolicyId};
use crate::jwt::TokenGuard;
use crate::live_map::MapReaders;
use crate::live_set::SetReaders;
use crate::location;
use crate::maintenance::Switch;
use crate::mirror::Mirroring;
use crate::process_state::ProcessState;
use crate::router::canonical_path;
use crate::scheme::Scheme;
use crate::template::{PlaceFault, Values};

/// What a route does in addition to its action.
#[derive(Debug)]
pub struct RouteHandling {
    /// Edits of the request's fields.
    pub request: Option<Edits>,
    /// Its edits of responses: the index in `Handlings::responses`.
    response: Option<usize>,
    /// The filters of its responses, by Strict-Transport-Security value. Empty without edits of responses.
    filters: Vec<(PolicyId, FilterId)>,
    /// The edits of responses depend on the request.
    pub renders_response: bool,
    /// Some edit of responses names the user.
    pub response_names_user: bool,
    /// The path patterns, in canonical form.
    pub paths: Vec<PathPattern>,
    /// Placeholders or the rewriting of the path need a [`crate::rewrite::MatchedPath`].
    pub needs_path: bool,
    /// The request needs an id: a placeholder is its id, or all requests have ids.
    pub needs_id: bool,
    /// Some placeholder is the server name of the TLS handshake.
    pub needs_server_name: bool,
    /// Which clients are served.
    access: Option<Access>,
    /// Requests get a 503 response.
    pub down: Option<Down>,
    /// Pages of other origins may use the route.
    pub cors: Option<CrossOrigin>,
    /// Only users with a password are served.
    pub auth: Option<Guard>,
    /// Only requests with a valid token are served.
    pub jwt: Option<TokenGuard>,
    /// Timeouts for servers in place of those of the pool.
    pub timeouts: Option<RouteTimeouts>,
    /// An authentication server decides about each request.
    pub ask: Option<AuthRequestEncoder>,
    /// How the pool of a request is chosen; `None` if all requests have the same, or no pool.
    pub pool: Option<PoolChooser>,
    /// Limits of the rate of requests; their tables are in `RateTables`.
    pub rates: Vec<Rate>,
    /// How many requests of one client address may be in progress.
    pub per_address_max: Option<u32>,
    /// How fast the bodies of a request are transferred.
    pub bandwidth: Option<Bandwidth>,
    /// Which requests are copied for another pool.
    pub mirror: Option<Mirroring>,
    /// The Lua application that decides about requests before they are forwarded.
    pub hooks: Option<RouteHooks>,
}

/// `hooks` of a route, prepared.
#[derive(Debug)]
pub struct RouteHooks {
    /// The index of the application.
    pub app: usize,
    /// The indexes of the pools that it may choose.
    pub pools: Vec<usize>,
    /// Their names.
    pub names: Arc<[String]>,
}

impl RouteHooks {
    fn new(hooks: &Hooks, config: &Config) -> Self {
        let name = |pool: &usize| config.pools[*pool].name.clone();
        let names = hooks.pools.iter().map(name).collect();
        Self { app: hooks.app, pools: hooks.pools.clone(), names }
    }
}

/// The changes of a route to its responses.
#[derive(Debug)]
pub struct ResponseRules {
    /// Edits of fields.
    pub edits: Edits,
    /// Pages for error responses, by status.
    pages: Vec<ErrorPage>,
}

impl ResponseRules {
    /// The page for error responses of this status.
    pub(crate) fn page(&self, status: u16) -> Option<&Page> {
        let at = self.pages.binary_search_by_key(&status, |error| error.status).ok()?;
        self.pages.get(at).map(|error| &error.page)
    }
}

/// The fields of `security-headers`.
const SECURITY_FIELDS: &[(&str, &str)] = &[
    ("X-Content-Type-Options", "nosniff"),
    ("X-Frame-Options", "SAMEORIGIN"),
    ("Referrer-Policy", "strict-origin-when-cross-origin"),
];

/// The route's changes to its responses; `None`: no changes.
fn response_rules(handling: &Handling, ids: Option<&RequestIds>) -> Option<ResponseRules> {
    let ids = ids.filter(|ids| ids.response);
    if !handling.changes_responses() && ids.is_none() {
        return None;
    }
    let mut edits = handling.response_headers.clone();
    let is_edited = |name: &String| {
        edits.remove.contains(name) || edits.written().any(|(written, _)| written == name)
    };
    if let Some(ids) = ids.filter(|ids| !is_edited(&ids.field)) {
        let pieces = vec![TemplatePiece::Value(Placeholder::RequestId)];
        edits.set.push((ids.field.clone(), Template { pieces }));
    }
    if let Some(cors) = &handling.cors {
        cors::add_edits(cors, &mut edits);
    }
    let mut defaults: &'static [(&str, &str)] = &[];
    if handling.security_headers {
        edits.remove.push("x-powered-by".to_owned());
        defaults = SECURITY_FIELDS;
    }
    let edits = Edits::with_defaults(&edits, defaults);
    Some(ResponseRules { edits, pages: handling.errors.clone() })
}

/// `auth` of a route, prepared.
#[derive(Debug)]
pub struct Guard {
    /// The users.
    pub users: BasicAuth,
    /// One hash of each cost in the file.
    decoys: Decoys,
    /// The value of WWW-Authenticate.
    challenge: String,
}

/// Hashes of different costs. A wrong password is verified against one of each cost, so that the time does not depend on
/// whether the user exists, nor on the cost of the user's own hash.
pub type Decoys = Arc<[(HashCost, String)]>;

/// Maximum number of costs of one file that wrong passwords are verified for: the highest ones of each algorithm's settings.
const DECOYS_MAX: usize = 8;

/// One hash of each cost.
fn decoys_of(users: &BasicAuth) -> Decoys {
    let costs = users.users.values().filter_map(|hash| Some((HashCost::of(hash).ok()?, hash)));
    let by_cost: BTreeMap<HashCost, &String> = costs.collect();
    let highest = by_cost.into_iter().rev().take(DECOYS_MAX);
    highest.map(|(cost, hash)| (cost, hash.clone())).collect()
}

impl Guard {
    fn new(users: &BasicAuth) -> Self {
        let challenge = format!("Basic realm=\"{}\", charset=\"UTF-8\"", users.realm);
        Self { users: users.clone(), decoys: decoys_of(users), challenge }
    }

    /// The response to a request without the name and the password of a user.
    #[must_use]
    pub fn denial(&self) -> Denial<'_> {
        let text = "this route requires a user name and a password";
        Denial { challenge: &self.challenge, ..Denial::new(401, text) }
    }

    /// The hash that the password of `user` must have; `None` if the user does not exist.
    #[must_use]
    pub fn hash_of(&self, user: &str) -> Option<&str> {
        self.users.users.get(user).map(String::as_str)
    }

    /// The hashes that a wrong password is verified against.
    #[must_use]
    pub const fn decoys(&self) -> &Decoys {
        &self.decoys
    }
}

/// `maintenance` of a route, prepared.
#[derive(Debug)]
pub struct Down {
    /// As configured.
    settings: Maintenance,
    /// The switch of its name; `None`: it has no name.
    switch: Option<Arc<Switch>>,
    /// The clients that are served as usual; used only if `settings` has `except`.
    except: AddressTest,
}

impl Down {
    /// The response to a request; `None` if the client is served as usual.
    fn denial(
        &self,
        sets: &SetReaders,
        client: impl FnOnce() -> Option<IpAddr>,
    ) -> Option<Denial<'_>> {
        let active = self.settings.active;
        if !self.switch.as_ref().map_or(active, |switch| switch.closes(active)) {
            return None;
        }
        if self.settings.except.is_some() && self.except.contains(client(), sets) {
            return None;
        }
        let retry_after = self.settings.retry_after.map_or(0, |span| span.as_secs().max(1));
        let (page, text) = (self.settings.page.as_ref(), "the service is down for maintenance");
        Some(Denial { page, retry_after, ..Denial::new(503, text) })
    }
}

/// Which clients a route serves.
#[derive(Debug)]
struct Access {
    /// The only clients that are served; `None`: all.
    allow: Option<AddressTest>,
    /// Clients that are not served, even if `allow` contains them; `None`: no client.
    deny: Option<AddressTest>,
}

/// What the routes of a configuration do in addition to their actions, and the filters of their responses.
pub struct Handlings {
    /// By route; `None` if the route only has an action.
    routes: Vec<Option<Box<RouteHandling>>>,
    /// The changes of routes to their responses, without repetitions.
    responses: Vec<ResponseRules>,
    /// The filters with edits: those with the number `hsts_count` and above.
    edited: Vec<(PolicyId, usize)>,
    /// The number of Strict-Transport-Security values. They are the first filters.
    hsts_count: FilterId,
    /// The Strict-Transport-Security values.
    hsts: HstsPolicies,
    /// The filters of responses that no route makes, by policy; empty if they are the policies alone.
    refusals: Vec<(PolicyId, FilterId)>,
    /// Each request has an id or belongs to a trace.
    identifies: bool,
    /// Some route needs the server name of TLS handshakes.
    needs_server_name: bool,
    /// The maps of pools.
    maps: MapReaders,
    /// The sets of addresses.
    sets: SetReaders,
}

/// The place of the rules for responses that no route makes, if there are any.
const REFUSAL_RULES: usize = 0;

/// Identifies the filters that apply to a response. 0 means none.
pub type FilterId = u16;

impl Handlings {
    /// Prepares the routes of `config` for a single worker.
    #[must_use]
    pub fn new(config: &Config) -> Self {
        Self::sharing(config, &ProcessState::new(config, 0))
    }

    /// Prepares the routes of `config`, with the state that all workers share.
    #[must_use]
    pub fn sharing(config: &Config, process: &ProcessState) -> Self {
        let hsts = HstsPolicies::new(config);
        let mut handlings = Self {
            routes: Vec::new(),
            responses: Vec::new(),
            edited: Vec::new(),
            hsts_count: hsts.count(),
            hsts,
            refusals: Vec::new(),
            identifies: config.server.identifies(),
            needs_server_name: false,
            maps: process.maps.readers(),
            sets: process.sets.readers(),
        };
        let (mut known, mut numbers) = (BTreeMap::new(), BTreeMap::new());
        let listeners = config.listeners.len();
        let ids = config.server.request_id.as_ref();
        if let Some(rules) = response_rules(&Handling::default(), ids) {
            handlings.refusals = handlings.refusals_of(rules, listeners, &mut numbers);
        }
        for (index, route) in config.routes.iter().enumerate() {
            let prepared = prepare((index, route), config, process).map(|mut handling| {
                if let Some(rules) = response_rules(&route.handling, ids) {
                    let settings = &route.handling;
                    let key = (&settings.response_headers, &settings.cors, &settings.errors);
                    let place = handlings.responses.len();
                    let place = *known.entry((key, settings.security_headers)).or_insert(place);
                    handling.renders_response = rules.edits.is_dynamic();
                    if place == handlings.responses.len() {
                        handlings.responses.push(rules);
                    }
                    handling.response = Some(place);
                    handling.filters = handlings.filters_of(index, place, listeners, &mut numbers);
                }
                handling
            });
            handlings.needs_server_name |=
                prepared.as_ref().is_some_and(|handling| handling.needs_server_name);
            handlings.routes.push(prepared);
        }
        handlings
    }

    /// Numbers the filters of a route whose responses have the edits at `place`. `known`: those with a number.
    fn filters_of(
        &mut self,
        route: usize,
        place: usize,
        listeners: usize,
        known: &mut BTreeMap<(PolicyId, usize), FilterId>,
    ) -> Vec<(PolicyId, FilterId)> {
        let own = |listener| self.hsts.of_route(listener, route, Scheme::Https);
        let policies = (0..listeners).map(own).chain([0]).collect();
        self.number(policies, place, known)
    }

    /// Numbers the filters of responses that no route makes, which have these rules.
    fn refusals_of(
        &mut self,
        rules: ResponseRules,
        listeners: usize,
        known: &mut BTreeMap<(PolicyId, usize), FilterId>,
    ) -> Vec<(PolicyId, FilterId)> {
        self.responses.push(rules);
        let own = |listener| self.hsts.of_listener(listener, Scheme::Https);
        let policies = (0..listeners).map(own).chain([0]).collect();
        self.number(policies, REFUSAL_RULES, known)
    }

    /// Numbers the filters that combine each of `policies` with the edits at `place`. `known`: those with a number.
    fn number(
        &mut self,
        mut policies: Vec<PolicyId>,
        place: usize,
        known: &mut BTreeMap<(PolicyId, usize), FilterId>,
    ) -> Vec<(PolicyId, FilterId)> {
        policies.sort_unstable();
        policies.dedup();
        let number = |policy: PolicyId| {
            *known.entry((policy, place)).or_insert_with(|| {
                self.edited.push((policy, place));
                // The configuration limits their number so that it fits.
                let at = self.edited.len() - 1 + usize::from(self.hsts_count);
                FilterId::try_from(at).unwrap_or(policy)
            })
        };
        policies.iter().copied().zip(policies.iter().copied().map(number)).collect()
    }

    /// What `route` does in addition to its action.
    #[must_use]
    #[inline]
    pub fn of_route(&self, route: usize) -> Option<&RouteHandling> {
        self.routes.get(route)?.as_deref()
    }

    /// Whether the route serves the client. A client that its proxy does not name is on no list of allowed ones.
    #[must_use]
    pub fn admits(&self, handling: &RouteHandling, values: &Values<'_>) -> bool {
        let Some(access) = &handling.access else { return true };
        let is_in = |list: &AddressTest, client| list.contains(client, &self.sets);
        !access.deny.as_ref().is_some_and(|deny| is_in(deny, values.client()))
            && access.allow.as_ref().is_none_or(|allow| is_in(allow, values.named_client()))
    }

    /// The response to a request of a route that is closed for maintenance; `None` if the client is served as usual.
    #[must_use]
    pub fn closed<'h>(
        &self,
        handling: &'h RouteHandling,
        values: &Values<'_>,
    ) -> Option<Denial<'h>> {
        handling.down.as_ref()?.denial(&self.sets, || values.named_client())
    }

    /// The pool of a request; `None` if the map has none for it. `is_present`: whether the configuration of the request has
    /// the pool with this index. `random` makes a random number. `scratch` is overwritten.
    #[must_use]
    pub fn choose_pool(
        &self,
        (chooser, is_present): (&PoolChooser, impl FnOnce(u16) -> bool),
        values: &Values<'_>,
        random: impl FnOnce() -> u64,
        scratch: &mut Vec<u8>,
    ) -> Option<u16> {
        chooser.choose(values, (&self.maps, is_present), random, scratch)
    }

    /// Whether some route needs the server name of TLS handshakes.
    #[must_use]
    pub const fn needs_server_name(&self) -> bool {
        self.needs_server_name
    }

    /// The filters for responses on this listener that no route makes.
    #[must_use]
    pub fn listener_filters(&self, listener: usize, scheme: Scheme) -> FilterId {
        self.hsts.of_listener(listener, scheme)
    }

    /// The filters for refusals of requests whose head is valid, but that reach no route. Their values are those of
    /// [`Self::render_refusal`].
    #[must_use]
    pub fn refusal_filters(&self, listener: usize, scheme: Scheme) -> FilterId {
        let hsts = self.hsts.of_listener(listener, scheme);
        let composed = self.refusals.iter().find(|(policy, _)| *policy == hsts);
        composed.map_or(hsts, |(_, filters)| *filters)
    }

    /// Whether each request has an id or belongs to a trace.
    #[must_use]
    pub const fn identifies(&self) -> bool {
        self.identifies
    }

    /// Appends the values of a response that no route makes.
    ///
    /// # Errors
    /// A value cannot be placed.
    pub fn render_refusal(&self, out: &mut Vec<u8>, values: &Values<'_>) -> Result<(), PlaceFault> {
        match self.responses.get(REFUSAL_RULES).filter(|_| !self.refusals.is_empty()) {
            Some(rules) => rules.edits.render(out, values),
            None => Ok(()),
        }
    }

    /// The filters for responses of this route on this listener.
    #[must_use]
    pub fn route_filters(&self, listener: usize, route: usize, scheme: Scheme) -> FilterId {
        let hsts = self.hsts.of_route(listener, route, scheme);
        let Some(handling) = self.of_route(route) else { return hsts };
        let composed = handling.filters.iter().find(|(policy, _)| *policy == hsts);
        composed.map_or(hsts, |(_, filters)| *filters)
    }

    /// The filters with this number. `values` are the rendered values of the request, if there are any.
    #[must_use]
    pub fn filters<'a>(&'a self, id: FilterId, values: &'a [u8]) -> Filters<'a> {
        let at = id.checked_sub(self.hsts_count);
        match at.and_then(|at| self.edited.get(usize::from(at))) {
            None => Filters::policy(self.hsts.value(id)),
            Some(&(policy, place)) => {
                let rules = self.responses.get(place).map(|rules| (rules, values));
                Filters { hsts: self.hsts.value(policy), rules }
            }
        }
    }

    /// Appends the values of the response's edits that depend on the request.
    ///
    /// # Errors
    /// A value cannot be placed.
    pub fn render_response(
        &self,
        handling: &RouteHandling,
        out: &mut Vec<u8>,
        values: &Values<'_>,
    ) -> Result<(), PlaceFault> {
        match handling.response.and_then(|at| self.responses.get(at)) {
            Some(rules) => rules.edits.render(out, values),
            None => Ok(()),
        }
    }
}

/// Whether some route of `config` uses the server name of TLS handshakes, which connections keep only if it is needed.
#[must_use]
pub fn needs_server_name(config: &Config) -> bool {
    let names = |placeholder: &Placeholder| matches!(placeholder, Placeholder::ServerName);
    config.routes.iter().any(|route| placeholders(route).into_iter().any(names))
}

/// The path and the choice of the pool, if the action is `proxy`.
const fn forwarding(route: &Route) -> (Option<&Template>, Option<&PoolChoice>) {
    match &route.action {
        Action::Proxy(proxy) => (proxy.path.as_ref(), Some(&proxy.pool)),
        Action::Respond(_)
        | Action::Redirect(_)
        | Action::Synthetic
        | Action::Echo
        | Action::Push(_)
        | Action::Lua(_) => (None, None),
    }
}

/// The redirect, if it is the action.
const fn redirect_of(route: &Route) -> Option<&Redirect> {
    match &route.action {
        Action::Redirect(redirect) => Some(redirect),
        Action::Respond(_)
        | Action::Synthetic
        | Action::Echo
        | Action::Push(_)
        | Action::Lua(_)
        | Action::Proxy(_) => None,
    }
}

/// The placeholders in all templates of a route.
fn placeholders(route: &Route) -> Vec<&Placeholder> {
    let (path, choice) = forwarding(route);
    let handling = &route.handling;
    let of_edits = handling.request_headers.written().chain(handling.response_headers.written());
    let of_map = choice.and_then(PoolChoice::map_key);
    let templates = path.into_iter().chain(of_map).chain(of_edits.map(|(_, template)| template));
    let of_redirect = redirect_of(route).into_iter().flat_map(location::values_of);
    templates.flat_map(Template::placeholders).chain(of_redirect).collect()
}

fn prepare(
    (index, route): (usize, &Route),
    config: &Config,
    process: &ProcessState,
) -> Option<Box<RouteHandling>> {
    let (path, choice) = forwarding(route);
    let handling = &route.handling;
    let pool = choice.and_then(|choice| PoolChooser::new(choice, config));
    let has_values = redirect_of(route).is_some_and(location::has_values);
    let is_plain = path.is_none() && pool.is_none() && !has_values && !config.server.identifies();
    if is_plain && *handling == Handling::default() {
        return None;
    }
    let placeholders = placeholders(route);
    let has = |test: fn(&Placeholder) -> bool| placeholders.iter().any(|known| test(known));
    let test = |list: &Option<Addresses>| list.as_ref().map(AddressTest::new);
    let mut request_headers = handling.request_headers.clone();
    if let Some(ask) = &handling.ask {
        // Only the answer may state these fields.
        request_headers.remove.extend(ask.copy.iter().cloned());
    }
    let has_access = handling.allow.is_some() || handling.deny.is_some();
    let access =
        has_access.then(|| Access { allow: test(&handling.allow), deny: test(&handling.deny) });
    Some(Box::new(RouteHandling {
        request: Edits::new(&request_headers),
        response: None,
        filters: Vec::new(),
        renders_response: false,
        response_names_user: handling
            .response_headers
            .written()
            .flat_map(|(_, template)| template.placeholders())
            .any(|placeholder| matches!(placeholder, Placeholder::User)),
        paths: route.paths.iter().map(canonical_path).collect(),
        needs_path: path.is_some()
            || has(|known| matches!(known, Placeholder::Rest | Placeholder::Segment(_))),
        needs_id: config.server.identifies()
            || has(|known| matches!(known, Placeholder::RequestId)),
        needs_server_name: has(|known| matches!(known, Placeholder::ServerName)),
        access,
        down: handling.maintenance.as_ref().map(|settings| Down {
            except: test(&settings.except).unwrap_or_default(),
            settings: settings.clone(),
            switch: settings.name.as_ref().and_then(|name| process.switches.find(name)).cloned(),
        }),
        cors: handling.cors.as_ref().map(CrossOrigin::new),
        auth: handling.auth.as_ref().map(Guard::new),
        jwt: handling.jwt.as_ref().map(|jwt| TokenGuard::new(jwt, &process.keys)),
        timeouts: handling.timeouts,
        ask: handling.ask.as_ref().map(|ask| AuthRequestEncoder::new(index, ask)),
        pool,
        rates: handling.rates.clone(),
        per_address_max: handling.per_address_max,
        bandwidth: handling.bandwidth,
        mirror: handling.mirror.as_ref().map(|mirror| Mirroring::new(mirror, config)),
        hooks: handling.hooks.as_ref().map(|hooks| RouteHooks::new(hooks, config)),
    }))
}
