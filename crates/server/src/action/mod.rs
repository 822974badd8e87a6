//! Actions: each turns a request into a response. One file or folder for each action.
//!
//! - `respond.rs`, `redirect.rs`: complete responses, sent at once
//! - `synthetic.rs`: responses generated in pieces
//! - `push/`: messages of channels for their subscribers
//! - `echo.rs`: WebSocket messages sent back; `service.rs`, `websocket/`: the common parts of actions over WebSocket
//! - `lua/`: responses and WebSocket connections of Lua applications, their hooks on other requests, and their own
//!   requests and sockets
//! - `proxy/`: responses of a server
//!
//! Around them: `handled.rs`, `tarpit.rs`, `tokens.rs`, `unverified.rs`, `pacing.rs`: the handling by routes in addition to
//! their actions;
//! `intake.rs`: the minimum rate of request bodies.
//!
//! This file is the interface between carriers and actions: it finds the action of a request, and passes the
//! events of a requester to its running action. To add an action that continues after the call that begins
//! it, add a variant to [`Running`]; the compiler then names each decision that the action has to make.
//!
//! In: requests, pieces of their bodies, bytes of switched connections, events of requesters. Out: calls of actions.
//! Never: depends on the protocol that the client speaks; encodes anything.

mod echo;
pub(crate) mod handled;
pub(crate) mod intake;
pub(crate) mod lua;
mod pacing;
pub(crate) mod proxy;
pub(crate) mod push;
mod redirect;
mod respond;
pub(crate) mod service;
pub(crate) mod synthetic;
pub(crate) mod tarpit;
pub(crate) mod tokens;
pub(crate) mod unverified;
pub(crate) mod websocket;

use core::net::IpAddr;

use tidegate_base::Id;
use tidegate_config::model::{Action, HttpsRedirect, Listener};
use tidegate_gate::chain::client_address;
use tidegate_gate::changes::Changes;
use tidegate_gate::counting::RequestCounts;
use tidegate_gate::denial::Denial;
use tidegate_gate::handling::FilterId;
use tidegate_gate::router::{self, Client, Routed};
use tidegate_gate::scheme::{Scheme, request_scheme};
use tidegate_reactor::{Peer, Reactor};
use tidegate_wire::message::{BodyLength, Method, RequestHead};
use tidegate_wire::websocket::Close;

use crate::action::handled::Stage;
use crate::action::intake::Intake;
use crate::action::lua::ScriptedRequest;
use crate::action::proxy::exchange::Exchange;
use crate::action::proxy::tunnel::Side;
use crate::action::push::PushSession;
use crate::action::service::Service;
use crate::action::synthetic::SyntheticResponse;
use crate::action::tarpit::TarpitRequest;
use crate::action::unverified::UnverifiedRequest;
use crate::action::websocket::WebSocket;
use crate::connection::Downstream;
use crate::requester::Requester;
use crate::snapshot::Snapshot;
use crate::worker::Worker;

/// The action that serves a request. The requester's carrier holds it until the action has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Running {
    /// No action, or an action that ends in the call that begins it.
    None,
    /// A server responds.
    Proxy(Id<Exchange>),
    /// A synthetic response.
    Synthetic(Id<SyntheticResponse>),
    /// A Lua application responds.
    Lua(Id<ScriptedRequest>),
    /// A request whose token or password is being verified. Its action has not begun.
    Unverified(Id<UnverifiedRequest>),
    /// A request above a limit of `rate`, whose refusal is delayed (`tarpit`).
    Tarpit(Id<TarpitRequest>),
    /// A WebSocket connection that an action serves.
    WebSocket(Id<WebSocket>),
    /// A request to a push hub.
    Push(Id<PushSession>),
}

impl Running {
    /// Whether the action takes bytes from a client that does not read its response. A client may read the response
    /// only after it has sent the whole request, and the two directions of a tunnel are independent. Such an action
    /// itself decides when to pause the client.
    pub(crate) const fn is_duplex(self) -> bool {
        match self {
            Self::None
            | Self::Synthetic(_)
            | Self::Lua(_)
            | Self::Unverified(_)
            | Self::Tarpit(_)
            | Self::Push(_)
            | Self::WebSocket(_) => false,
            Self::Proxy(_) => true,
        }
    }
}

/// The refusal of an extended CONNECT.
const NO_WEBSOCKET: &str = "this route serves no WebSocket connections";

/// The refusal of a request on a connection that a reload has made outdated.
const OUTDATED: &str = "this listener has new rules for TLS and client certificates; connect again";

/// The refusal of a request because of overload.
const OVERLOADED: &str = "the server is overloaded";

/// Why a request is refused, if it is because of `memory-max`. Not shown to clients.
const MEMORY_EXCEEDED: &str = "the process uses more memory than memory-max";

/// How a request is answered.
enum Decision {
    /// An error response. `closes`: the rest of the connection cannot be trusted.
    Refused { status: u16, text: &'static str, closes: bool },
    /// A redirect to the same URL with https.
    Https(HttpsRedirect),
    /// The action of this route.
    Route(usize),
}

impl Worker {
    /// Finds the route of a request and begins its action. When this returns, the response is complete, or the carrier has
    /// recorded which action runs.
    pub(crate) fn begin_request<R: Reactor>(
        &mut self,
        reactor: &mut R,
        to: Requester,
        head: &RequestHead<'_>,
    ) {
        let snapshot = self.settings_of(to);
        let mut path_scratch = core::mem::take(&mut self.path_scratch);
        let Some(mut down) = self.conns.downstream(to.sock) else {
            return self.note_bug(reactor, to.sock);
        };
        if reactor.is_outdated(to.sock, down.listener) {
            self.path_scratch = path_scratch;
            return self.answer_error(reactor, to, 421, OUTDATED, true);
        }
        let listener = snapshot.listener(down.listener);
        let scheme = request_scheme(head, down.scheme, is_trusted(down.peer(), listener));
        if !listener.counting.is_empty() {
            self.count_request(reactor, to, head, &snapshot, &listener.counting);
            let Some(again) = self.conns.downstream(to.sock) else {
                return self.note_bug(reactor, to.sock);
            };
            down = again;
        }
        let request_counts = snapshot.router.tests_counts().then(|| {
            let scratch = core::mem::take(&mut self.piece);
            RequestCounts::new(&snapshot.process.tables, reactor.now(), scratch)
        });
        let counts = request_counts.as_ref();
        let (decision, filters) =
            decide(&snapshot, down, head, (scheme, counts), &mut path_scratch);
        if let Some(request_counts) = request_counts {
            self.piece = request_counts.into_scratch();
        }
        self.path_scratch = path_scratch;
        self.set_filters(to, filters);
        if let Decision::Route(route) = decision {
            self.count_request(reactor, to, head, &snapshot, &snapshot.route(route).counting);
        }
        match decision {
            Decision::Route(route)
                if self.is_overloaded(&snapshot) && self.sheds(&snapshot, route) =>
            {
                self.identify_refused(to, head, scheme);
                self.note_route(to, route);
                self.refuse_overload(reactor, to, snapshot.process.memory.is_exceeded());
            }
            Decision::Refused { status, text, closes } => {
                self.identify_refused(to, head, scheme);
                self.answer_error(reactor, to, status, text, closes);
            }
            Decision::Https(redirect) => {
                self.identify_refused(to, head, scheme);
                self.redirect_to_https(reactor, to, head, redirect);
            }
            Decision::Route(route) if snapshot.handlings.of_route(route).is_some() => {
                self.begin_handled(reactor, to, head, (route, scheme), Stage::New);
            }
            Decision::Route(route) => self.begin_action(reactor, to, head, route, scheme, None),
        }
    }

    /// Whether requests are refused because the worker is overloaded or the process uses too much memory.
    #[inline]
    fn is_overloaded(&self, snapshot: &Snapshot) -> bool {
        self.admission.is_refusing() || snapshot.process.memory.is_exceeded()
    }

    /// Whether the next request of a route is refused because of overload. Routes whose responses cost no more than a refusal
    /// refuse none.
    fn sheds(&mut self, snapshot: &Snapshot, route: usize) -> bool {
        let route = snapshot.route(route);
        let is_cheap = matches!(route.action, Action::Respond(_) | Action::Redirect(_));
        let is_exceeded = snapshot.process.memory.is_exceeded();
        route.shed && !is_cheap && (is_exceeded || !self.admission.admits())
    }

    /// Refuses a request because of overload. `is_memory`: the process uses too much memory.
    fn refuse_overload<R: Reactor>(&mut self, reactor: &mut R, to: Requester, is_memory: bool) {
        let counters = &self.accounts.counters;
        let (refusals, reason) = match is_memory {
            true => (&counters.memory_refusals, MEMORY_EXCEEDED),
            false => (&counters.overload_refusals, OVERLOADED),
        };
        refusals.add(1);
        // The clients do not all come back at once.
        let retry_after = 1 + refusals.load() % 3;
        let denial = Denial { retry_after, ..Denial::new(503, OVERLOADED) };
        self.deny(reactor, to, denial, reason, false);
    }

    /// Begins the action of a route. `changes`: the changes of the route to the request.
    fn begin_action<R: Reactor>(
        &mut self,
        reactor: &mut R,
        to: Requester,
        head: &RequestHead<'_>,
        route: usize,
        scheme: Scheme,
        changes: Option<Changes<'_>>,
    ) {
        let snapshot = self.settings_of(to);
        self.note_route(to, route);
        match &snapshot.route(route).action {
            // A response of 2xx would open the WebSocket (RFC 9110 section 9.3.6).
            Action::Respond(_) | Action::Synthetic if head.protocol.is_some() => {
                self.answer_error(reactor, to, 501, NO_WEBSOCKET, false);
            }
            Action::Respond(_) => self.respond(reactor, to, head, route),
            Action::Redirect(redirect) => {
                let values = changes.map(|changes| changes.values);
                self.redirect(reactor, to, head, redirect, (scheme, values));
            }
            Action::Synthetic => self.begin_synthetic(reactor, to, head, route),
            Action::Echo => {
                self.open_websocket(reactor, to, head, route, Service::Echo);
            }
            Action::Push(push) => self.begin_push(reactor, to, head, route, push),
            Action::Lua(app) => {
                let user = changes.and_then(|changes| changes.values.user);
                self.begin_lua(reactor, to, head, (route, *app), (scheme, user));
            }
            Action::Proxy(proxy) => match pool_of_hook(changes).or(proxy.pool.only()) {
                Some(pool) => {
                    let place = (route, pool as u16);
                    self.begin_exchange(reactor, to, head, (proxy, place), changes);
                }
                None => self.begin_choosing(reactor, to, head, (route, proxy), changes),
            },
        }
    }

    /// How many bytes of the framed request body the action takes now.
    pub(crate) fn body_room<R: Reactor>(&mut self, reactor: &mut R, running: Running) -> usize {
        match running {
            Running::None | Running::Unverified(_) | Running::Tarpit(_) | Running::WebSocket(_) => {
                0
            }
            Running::Proxy(id) => self.exchange_body_room(reactor, id),
            Running::Synthetic(_) | Running::Push(_) => usize::MAX,
            Running::Lua(id) => self.lua_body_room(id),
        }
    }

    /// Hands bytes of the request body to the action; `end` contains the trailers once the body is complete.
    pub(crate) fn take_body<R: Reactor>(
        &mut self,
        reactor: &mut R,
        running: Running,
        data: &[u8],
        end: Option<&[u8]>,
    ) {
        match running {
            Running::None | Running::Unverified(_) | Running::Tarpit(_) | Running::WebSocket(_) => {
            }
            Running::Proxy(id) => self.forward_body(reactor, id, data, end),
            Running::Synthetic(id) => self.feed_synthetic(reactor, id, data, end.is_some()),
            Running::Push(id) => self.feed_request(reactor, id, data, end.is_some()),
            Running::Lua(id) => self.feed_lua(reactor, id, data, end.is_some()),
        }
    }

    /// The address of the client of a request, behind trusted proxies.
    pub(in crate::action) fn client_ip(
        &mut self,
        to: Requester,
        head: &RequestHead<'_>,
    ) -> Option<IpAddr> {
        let snapshot = self.settings_of(to);
        let down = self.conns.downstream(to.sock)?;
        client_address(head, down.peer().ip(), &snapshot.listener(down.listener).trusted)
    }

    /// Counts bytes of a request body. Returns whether the body is within the listener's limit.
    pub(crate) fn admit_body(
        &mut self,
        to: Requester,
        running: Running,
        framed_bytes: usize,
        data_bytes: usize,
    ) -> bool {
        let Some(down) = self.conns.downstream(to.sock) else {
            self.note_absent(to.sock);
            return true;
        };
        let limits = &self.settings.of(down.era()).listener(down.listener).limits;
        let (rate_min, most) = (limits.body_rate_min, limits.body_bytes_max);
        self.note_bytes_in(to, data_bytes);
        // An action that has ended takes no body.
        let Some(intake) = self.intake(running) else { return true };
        intake.note(framed_bytes, data_bytes, rate_min);
        most.is_none_or(|most| intake.bytes <= most)
    }

    /// The progress of the request body.
    pub(crate) fn intake(&mut self, running: Running) -> Option<&mut Intake> {
        match running {
            Running::None | Running::WebSocket(_) => None,
            Running::Proxy(id) => self.exchanges.get_mut(id).map(|exchange| &mut exchange.intake),
            Running::Synthetic(id) => {
                self.synthetics.get_mut(id).map(|response| &mut response.intake)
            }
            Running::Push(id) => self.push.sessions.get_mut(id).map(|session| &mut session.intake),
            Running::Lua(id) => self.lua.requests.get_mut(id).map(|request| &mut request.intake),
            Running::Unverified(id) => self.unverified.get_mut(id).map(UnverifiedRequest::intake),
            Running::Tarpit(id) => self.tarpits.get_mut(id).map(TarpitRequest::intake),
        }
    }

    /// Whether the action is waiting for the request body, so that the client must send it within `timeouts.body`. Otherwise the
    /// action has its own deadline (`set_action_deadline`).
    pub(crate) fn expects_body(&self, running: Running) -> bool {
        match running {
            Running::None | Running::Unverified(_) | Running::Tarpit(_) | Running::WebSocket(_) => {
                false
            }
            Running::Proxy(id) => self.exchange_expects_body(id),
            Running::Synthetic(id) => self.synthetic_expects_body(id),
            Running::Push(id) => self.session_expects_body(id),
            Running::Lua(id) => self.lua_expects_body(id),
        }
    }

    /// Whether the action cannot complete its response without the whole request body.
    pub(crate) fn needs_whole_body(&self, running: Running) -> bool {
        match running {
            Running::None | Running::Tarpit(_) | Running::WebSocket(_) => false,
            Running::Proxy(_) | Running::Unverified(_) => true,
            Running::Synthetic(id) => self.synthetic_expects_body(id),
            Running::Push(id) => self.session_expects_body(id),
            Running::Lua(id) => self.lua_needs_body(id),
        }
    }

    /// Whether bytes of the request body that the action has taken still wait to be processed.
    pub(crate) fn is_body_stuck<R: Reactor>(&self, reactor: &R, running: Running) -> bool {
        match running {
            Running::None
            | Running::Synthetic(_)
            | Running::Lua(_)
            | Running::Unverified(_)
            | Running::Tarpit(_)
            | Running::Push(_)
            | Running::WebSocket(_) => false,
            Running::Proxy(id) => self.is_exchange_body_stuck(reactor, id),
        }
    }

    /// The deadline that the action has set has passed.
    pub(crate) fn action_due<R: Reactor>(&mut self, reactor: &mut R, running: Running) {
        match running {
            Running::None => {}
            Running::Lua(id) => self.hook_due(reactor, id),
            Running::Unverified(id) => self.verification_due(reactor, id),
            Running::Tarpit(id) => self.tarpit_due(reactor, id),
            Running::Proxy(id) => self.exchange_due(reactor, id),
            Running::Synthetic(id) => self.pump(reactor, id),
            Running::WebSocket(id) => self.websocket_due(reactor, id),
            Running::Push(id) => self.session_due(reactor, id),
        }
    }

    /// The output of a requester that was blocked has drained.
    pub(crate) fn client_drained<R: Reactor>(&mut self, reactor: &mut R, running: Running) {
        match running {
            Running::None | Running::Unverified(_) | Running::Tarpit(_) => {}
            Running::Lua(id) => self.lua_drained(id),
            Running::Proxy(id) => self.resume_server(reactor, id),
            // The response continues after the turn: a client that takes everything at once gets no more than its
            // share of a turn.
            Running::Synthetic(_) => self.yielded.push(running),
            Running::WebSocket(id) => self.websocket_drained(reactor, id),
            Running::Push(id) => self.resume_session(reactor, id),
        }
    }

    /// The client has sent its whole request and ended its direction of the connection. It may still read the
    /// response.
    pub(crate) fn client_half_closed<R: Reactor>(&mut self, reactor: &mut R, running: Running) {
        match running {
            Running::None
            | Running::Synthetic(_)
            | Running::Lua(_)
            | Running::Tarpit(_)
            | Running::WebSocket(_) => {}
            Running::Proxy(id) => self.leave_queue(reactor, id),
            Running::Unverified(id) => self.leave_verification(reactor, id),
            Running::Push(id) => self.session_half_closed(reactor, id),
        }
    }

    /// The requester is leaving, and `cancel` follows.
    pub(crate) fn note_departure(&mut self, running: Running) {
        match running {
            Running::None
            | Running::Synthetic(_)
            | Running::Lua(_)
            | Running::Unverified(_)
            | Running::Tarpit(_)
            | Running::Push(_)
            | Running::WebSocket(_) => {}
            Running::Proxy(id) => self.note_queue_departure(id),
        }
    }

    /// The requester is gone or no longer served: the action gives back everything that it holds.
    pub(crate) fn cancel<R: Reactor>(&mut self, reactor: &mut R, running: Running) {
        match running {
            Running::None => {}
            Running::Proxy(id) => self.cancel_exchange(reactor, id),
            Running::Synthetic(id) => self.forget_synthetic(id),
            Running::Lua(id) => self.forget_scripted(id),
            Running::Unverified(id) => {
                self.unverified.remove(id);
            }
            Running::Tarpit(id) => {
                self.tarpits.remove(id);
            }
            Running::WebSocket(id) => self.forget_websocket(id),
            Running::Push(id) => self.forget_session(id),
        }
    }

    /// Continues the actions that had used up their share of the turn.
    pub(crate) fn continue_yielded<R: Reactor>(&mut self, reactor: &mut R) {
        for running in core::mem::take(&mut self.yielded) {
            match running {
                Running::None
                | Running::Proxy(_)
                | Running::Lua(_)
                | Running::Unverified(_)
                | Running::Tarpit(_)
                | Running::Push(_) => {}
                Running::Synthetic(id) => {
                    // The client may have disconnected since.
                    let Some(response) = self.synthetics.find(id) else { continue };
                    self.mark_requester(response.requester());
                    self.pump(reactor, id);
                }
                Running::WebSocket(id) => self.continue_websocket(id),
            }
        }
        self.settle(reactor);
    }
}

/// A switched connection: its bytes belong to the action (`switch_client`).
impl Worker {
    /// Hands over bytes of the client, which the action may change in place. Returns how many it has taken. The
    /// action gets the remaining bytes again after it has called `resume_request`, or after the client's output has drained.
    pub(crate) fn take_switched_bytes<R: Reactor>(
        &mut self,
        reactor: &mut R,
        running: Running,
        bytes: &mut [u8],
    ) -> usize {
        match running {
            // The server gets the bytes once the hook has decided.
            Running::Lua(id) if self.is_hook(id) => 0,
            Running::Unverified(_) | Running::Tarpit(_) => 0,
            Running::None | Running::Synthetic(_) | Running::Lua(_) | Running::Push(_) => {
                bytes.len()
            }
            Running::Proxy(id) => self.tunnel_received(reactor, id, Side::Client, bytes),
            Running::WebSocket(id) => self.websocket_received(reactor, id, bytes),
        }
    }

    /// The client has ended its direction of the connection.
    pub(crate) fn switched_finished<R: Reactor>(&mut self, reactor: &mut R, running: Running) {
        match running {
            Running::None
            | Running::Synthetic(_)
            | Running::Lua(_)
            | Running::Unverified(_)
            | Running::Tarpit(_)
            | Running::Push(_) => {}
            Running::Proxy(id) => self.tunnel_finished(reactor, id, Side::Client),
            Running::WebSocket(id) => self.websocket_finished(reactor, id),
        }
    }

    /// The process or the listener stops, or the server was removed. A connection that is still open at the end of the grace
    /// period of the process is reset. `close`: the Close frame that a forwarded WebSocket gets.
    pub(crate) fn stop_switched<R: Reactor>(
        &mut self,
        reactor: &mut R,
        running: Running,
        close: Close<'static>,
    ) {
        match running {
            Running::None
            | Running::Synthetic(_)
            | Running::Lua(_)
            | Running::Unverified(_)
            | Running::Tarpit(_)
            | Running::Push(_) => {}
            Running::Proxy(id) => self.stop_tunnel(reactor, id, close),
            Running::WebSocket(id) => self.stop_websocket(reactor, id),
        }
    }
}

/// The pool that a hook has chosen.
fn pool_of_hook(changes: Option<Changes<'_>>) -> Option<usize> {
    changes?.hook?.pool
}

/// Decides how a request is answered, and the filters of its response.
fn decide(
    snapshot: &Snapshot,
    down: &Downstream,
    head: &RequestHead<'_>,
    (scheme, counts): (Scheme, Option<&RequestCounts<'_>>),
    path_scratch: &mut Vec<u8>,
) -> (Decision, FilterId) {
    let index = usize::from(down.listener);
    let listener = snapshot.listener(down.listener);
    let refused = |status, text, closes| Decision::Refused { status, text, closes };
    let of_listener = snapshot.handlings.refusal_filters(index, scheme);
    if matches!(head.method, Method::Connect) && !head.connects_websocket() {
        return (refused(501, "the CONNECT method is not supported", true), of_listener);
    }
    if head.connects_websocket() && !head.upgrade {
        let text = "an extended CONNECT must not end its stream";
        return (refused(400, text, false), of_listener);
    }
    if router::is_misdirected(head, scheme) && !is_trusted(down.peer(), listener) {
        let text = "an https URI requires an encrypted connection";
        return (refused(421, text, false), of_listener);
    }
    if let (BodyLength::Length(length), Some(most)) = (head.length, listener.limits.body_bytes_max)
        && length > most
    {
        let text = "the request body exceeds this listener's limit";
        return (refused(413, text, true), of_listener);
    }
    if scheme == Scheme::Http
        && let Some(redirect) = listener.redirect_to_https
    {
        return (Decision::Https(redirect), of_listener);
    }
    let client = Client {
        certificate: down.facts.as_ref().and_then(|facts| facts.certificate()),
        peer: down.peer().ip(),
        trusted: &listener.trusted,
        counts,
    };
    match snapshot.router.route(index, head, &client, path_scratch) {
        Routed::Route(route) => {
            (Decision::Route(route), snapshot.handlings.route_filters(index, route, scheme))
        }
        // RFC 9110 section 9.3.7: OPTIONS * applies to the server as a whole.
        Routed::NoRoute if head.path == "*" => (refused(200, "", false), of_listener),
        Routed::NoRoute => (refused(404, "no route matches this request", false), of_listener),
        Routed::Refused(text) => (refused(400, text, false), of_listener),
    }
}

/// Whether the listener trusts the forwarding fields (such as X-Forwarded-Proto) of this client.
fn is_trusted(peer: Peer, listener: &Listener) -> bool {
    match peer {
        Peer::Tcp(address) => listener.trusted.iter().any(|net| net.contains(address.ip())),
        Peer::Local => false,
    }
}
