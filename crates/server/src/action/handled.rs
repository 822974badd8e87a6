//! Requests of routes that do more than run their action.
//! In: a request and its route. Out: its action begun with the route's changes, or an error response.
//! Never: runs for a route that only has an action.
//! Invariant: the values for the edits of a response are rendered before the action begins, because the request's head
//! is gone when the response arrives.

use tidegate_config::model::{Action, RateExcess};
use tidegate_gate::access::Cause;
use tidegate_gate::basic::{CredentialKey, Credentials};
use tidegate_gate::changes::{Changes, HookChanges};
use tidegate_gate::client_places::Entry;
use tidegate_gate::cors::CrossOrigin;
use tidegate_gate::denial::Denial;
use tidegate_gate::handling::{Guard, Handlings, RouteHandling};
use tidegate_gate::identity::Identity;
use tidegate_gate::rate::Admission;
use tidegate_gate::rewrite::MatchedPath;
use tidegate_gate::scheme::Scheme;
use tidegate_gate::template::Values;
use tidegate_reactor::Reactor;
use tidegate_wire::message::RequestHead;

use crate::action::is_trusted;
use crate::action::proxy::authorization::PasswordCheck;
use crate::answer::Answer;
use crate::password_queue::Origin;
use crate::passwords::{Job, Ticket};
use crate::requester::Requester;
use crate::worker::Worker;

/// Why a request without a correct password is refused.
pub(super) const NO_PASSWORD: &str = "the user name or the password is missing or wrong";

/// The text of the response to an address with too many requests in progress, and the reason in the access log.
const TOO_MANY_CLIENTS: &str = "too many requests from this address are in progress";

/// The values for the edits of one response: that of the request whose action was begun last, or whose response begins
/// now.
#[derive(Default)]
pub(crate) struct ResponseValues {
    /// The requester whose response they belong to; `None` if there are no values.
    owner: Option<Requester>,
    /// The output of `Edits::render`.
    bytes: Vec<u8>,
}

impl ResponseValues {
    /// The values for the response to `to`; empty if there are none.
    pub(crate) fn of(&self, to: Requester) -> &[u8] {
        match self.owner == Some(to) {
            true => &self.bytes,
            false => &[],
        }
    }

    /// Takes the values for the response to `to` to keep them until it begins; empty if there are none.
    pub(crate) fn take(&mut self, to: Requester) -> Vec<u8> {
        match self.owner == Some(to) {
            true => {
                self.owner = None;
                core::mem::take(&mut self.bytes)
            }
            false => Vec::new(),
        }
    }

    /// Sets the values for the response to `to`. Returns the buffer of the values before.
    pub(crate) fn set(&mut self, to: Requester, bytes: Vec<u8>) -> Vec<u8> {
        self.owner = Some(to);
        core::mem::replace(&mut self.bytes, bytes)
    }
}

/// How far the conditions of a route were checked before.
#[derive(Clone, Copy)]
pub(super) enum Stage<'h> {
    /// None of them.
    New,
    /// All except the token or the password, which had to wait, with the random number of the request.
    Waited(u128),
    /// All, and the authentication server of the route has admitted the request; with the random number.
    Admitted(u128),
    /// All, and the hook of the route has admitted the request and changed this; with the random number.
    Hooked(HookChanges<'h>, u128),
}

/// The credentials of a request.
struct Claim {
    /// The name and the password of the request.
    credentials: Credentials,
    /// Their key.
    key: CredentialKey,
    /// They were verified recently.
    is_verified: bool,
}

impl Worker {
    /// Reads the credentials of a request to a route with `auth`.
    fn read_claim<R: Reactor>(
        &self,
        reactor: &R,
        head: &RequestHead<'_>,
        handling: &RouteHandling,
    ) -> Option<Claim> {
        let guard = handling.auth.as_ref()?;
        let credentials = Credentials::of(head)?;
        let key = credentials.key(&guard.users, &self.secret);
        let is_verified = self.passwords.verified.contains(key, reactor.now());
        Some(Claim { credentials, key, is_verified })
    }

    /// Begins the action of a request whose route does more than run the action.
    pub(super) fn begin_handled<R: Reactor>(
        &mut self,
        reactor: &mut R,
        to: Requester,
        head: &RequestHead<'_>,
        (route, scheme): (usize, Scheme),
        stage: Stage<'_>,
    ) {
        let snapshot = self.settings_of(to);
        let Some(handling) = snapshot.handlings.of_route(route) else {
            return self.note_bug(reactor, to.sock);
        };
        self.note_route(to, route);
        if matches!(snapshot.route(route).action, Action::Push(_)) {
            self.hide_token(to);
        }
        let random = match stage {
            Stage::Waited(random) | Stage::Admitted(random) | Stage::Hooked(_, random)
                if random != 0 =>
            {
                random
            }
            // New, or it began under settings without ids.
            Stage::New | Stage::Waited(_) | Stage::Admitted(_) | Stage::Hooked(..)
                if handling.needs_id =>
            {
                self.draw_id()
            }
            Stage::New | Stage::Waited(_) | Stage::Admitted(_) | Stage::Hooked(..) => 0,
        };
        let mut scratch = core::mem::take(&mut self.path_scratch);
        let path = match handling.needs_path {
            true => MatchedPath::new(head.path, &handling.paths, &mut scratch),
            false => MatchedPath::whole(head.path),
        };
        let Some(down) = self.conns.downstream(to.sock) else {
            return self.note_bug(reactor, to.sock);
        };
        let peer = down.peer().ip();
        let facts = down.facts.as_ref().filter(|_| handling.needs_server_name);
        let server_name: Option<Vec<u8>> =
            facts.and_then(|facts| facts.server_name()).map(<[u8]>::to_vec);
        let listener = snapshot.listener(down.listener);
        let (trusted, is_trusted) = (&listener.trusted, is_trusted(down.peer(), listener));
        let identity = match handling.needs_id {
            true => Identity::new(&snapshot.config.server, head, is_trusted, random),
            false => Identity::plain(0),
        };
        let server_name = server_name.as_deref();
        let allowed_origin = handling.cors.as_ref().and_then(|cors| cors.allowed(head));
        let claim = self.read_claim(reactor, head, handling);
        let verified = claim.as_ref().filter(|claim| claim.is_verified);
        let user = verified.map(|claim| claim.credentials.user.as_str());
        let (path, claims) = (&path, None);
        let values = Values {
            head,
            path,
            peer,
            trusted,
            scheme,
            server_name,
            allowed_origin,
            user,
            claims,
            identity,
        };
        if handling.needs_id {
            self.note_identity(to, &identity);
        }
        match stage {
            Stage::New => {
                let decides = (route, &snapshot.handlings, handling);
                self.begin_changed(reactor, to, decides, &values, claim.as_ref());
            }
            Stage::Waited(_) | Stage::Admitted(_) | Stage::Hooked(..) => {
                self.begin_again(reactor, to, (route, handling), &values, stage);
            }
        }
        self.path_scratch = scratch;
    }

    /// The random number of a request.
    fn draw_id(&mut self) -> u128 {
        u128::from(self.prng.next_u64()) << 64 | u128::from(self.prng.next_u64())
    }

    /// Identifies a request that reaches no route, if requests have ids.
    pub(super) fn identify_refused(
        &mut self,
        to: Requester,
        head: &RequestHead<'_>,
        scheme: Scheme,
    ) {
        let snapshot = self.settings_of(to);
        if !snapshot.handlings.identifies() {
            return;
        }
        let random = self.draw_id();
        let Some(down) = self.conns.downstream(to.sock) else {
            return self.note_absent(to.sock);
        };
        let listener = snapshot.listener(down.listener);
        let is_trusted = is_trusted(down.peer(), listener);
        let values = Values {
            head,
            path: &MatchedPath::whole(head.path),
            peer: down.peer().ip(),
            trusted: &listener.trusted,
            scheme,
            server_name: None,
            allowed_origin: None,
            user: None,
            claims: None,
            identity: Identity::new(&snapshot.config.server, head, is_trusted, random),
        };
        self.note_identity(to, &values.identity);
        let mut bytes = self.buffers.take();
        // An id can be placed in a field.
        let _ = snapshot.handlings.render_refusal(&mut bytes, &values);
        let before = self.values.set(to, bytes);
        self.buffers.put(before);
    }

    /// Makes the values that an action has kept those of the response that begins now.
    pub(crate) fn recall_values(&mut self, to: Requester, values: Vec<u8>) {
        if !values.is_empty() {
            let before = self.values.set(to, values);
            self.buffers.put(before);
        }
    }

    /// Refuses a request; `reason` is for the access log.
    pub(super) fn deny<R: Reactor>(
        &mut self,
        reactor: &mut R,
        to: Requester,
        denial: Denial<'_>,
        reason: &'static str,
        closes: bool,
    ) {
        self.blame(to, Cause::Refused, reason);
        self.answer(reactor, to, &Answer::Denied(denial), closes);
    }

    /// Begins the action, unless the route answers by itself.
    fn begin_changed<R: Reactor>(
        &mut self,
        reactor: &mut R,
        to: Requester,
        (route, handlings, handling): (usize, &Handlings, &RouteHandling),
        values: &Values<'_>,
        claim: Option<&Claim>,
    ) {
        if !self.render_values(reactor, to, handling, values) {
            return;
        }
        if let Some(denial) = handlings.closed(handling, values) {
            return self.deny(reactor, to, denial, "the route is closed for maintenance", false);
        }
        if !handlings.admits(handling, values) {
            self.accounts.counters.denied_requests.add(1);
            let text = "requests from this address are not served";
            return self.answer_error(reactor, to, 403, text, false);
        }
        if let Some(cors) = &handling.cors
            && CrossOrigin::is_preflight(values.head)
        {
            let head = values.head;
            return self.answer(reactor, to, &Answer::CorsPreflight { cors, head }, false);
        }
        if !self.admit_rate(reactor, to, (route, handling), values)
            || !self.admit_client(reactor, to, (route, handling), values)
        {
            return;
        }
        if let Some(guard) = &handling.jwt {
            return self.begin_with_token(
                reactor,
                to,
                (route, handling),
                guard,
                values,
                Stage::New,
            );
        }
        let Some(guard) = &handling.auth else {
            return self.begin_admitted(reactor, to, (route, handling), values, Stage::New);
        };
        self.begin_guarded(reactor, to, (route, handling, guard), values, claim);
    }

    /// Begins the action of a request whose other conditions were met before: its token or its password has waited, or the hook
    /// of its route has admitted it, and the claims of its token are needed again.
    fn begin_again<R: Reactor>(
        &mut self,
        reactor: &mut R,
        to: Requester,
        (route, handling): (usize, &RouteHandling),
        values: &Values<'_>,
        stage: Stage<'_>,
    ) {
        if let Some(guard) = &handling.jwt {
            return self.begin_with_token(reactor, to, (route, handling), guard, values, stage);
        }
        if let Some(guard) = handling.auth.as_ref().filter(|_| values.user.is_none()) {
            // The verification has been forgotten already.
            self.accounts.counters.unauthenticated_requests.add(1);
            return self.deny(reactor, to, guard.denial(), NO_PASSWORD, false);
        }
        if self.render_values(reactor, to, handling, values) {
            self.begin_admitted(reactor, to, (route, handling), values, stage);
        }
    }

    /// Begins the action of a request that meets the conditions of its route, or calls its hook or its authentication server first.
    pub(super) fn begin_admitted<R: Reactor>(
        &mut self,
        reactor: &mut R,
        to: Requester,
        (route, handling): (usize, &RouteHandling),
        values: &Values<'_>,
        stage: Stage<'_>,
    ) {
        let (is_asked, hook) = match stage {
            Stage::New | Stage::Waited(_) => (false, None),
            Stage::Admitted(_) => (true, None),
            Stage::Hooked(changes, _) => (true, Some(changes)),
        };
        // Requests for `proxy` are sent to the authentication server by their own exchange.
        if let Some(asker) = handling.ask.as_ref().filter(|_| !is_asked)
            && !matches!(self.settings_of(to).route(route).action, Action::Proxy(_))
        {
            return self.ask_before_action(reactor, to, asker, values);
        }
        if let Some(hooks) = handling.hooks.as_ref().filter(|_| hook.is_none()) {
            return self.begin_access(reactor, to, (route, hooks), values);
        }
        let edits = handling.request.as_ref();
        let ask = handling.ask.as_ref();
        let changes = Changes { path: None, edits, values, waits: false, hook, ask };
        self.begin_action(reactor, to, values.head, route, values.scheme, Some(changes));
    }

    /// Renders the values for the edits of the response. Returns whether that succeeded; otherwise the request has been
    /// answered.
    pub(super) fn render_values<R: Reactor>(
        &mut self,
        reactor: &mut R,
        to: Requester,
        handling: &RouteHandling,
        values: &Values<'_>,
    ) -> bool {
        if !handling.renders_response {
            return true;
        }
        let snapshot = self.settings_of(to);
        let mut bytes = self.buffers.take();
        let rendered = snapshot.handlings.render_response(handling, &mut bytes, values);
        let before = self.values.set(to, bytes);
        self.buffers.put(before);
        if let Err(fault) = rendered {
            // An error response has the fields whose values could be rendered.
            self.answer_error(reactor, to, fault.status(), fault.text(), false);
            return false;
        }
        true
    }

    /// Begins the action of a request whose user was verified recently, or makes it wait for the verdict.
    fn begin_guarded<R: Reactor>(
        &mut self,
        reactor: &mut R,
        to: Requester,
        (route, handling, guard): (usize, &RouteHandling, &Guard),
        values: &Values<'_>,
        claim: Option<&Claim>,
    ) {
        let (head, scheme) = (values.head, values.scheme);
        let Some(claim) = claim else {
            self.accounts.counters.unauthenticated_requests.add(1);
            return self.deny(reactor, to, guard.denial(), NO_PASSWORD, false);
        };
        let user = claim.credentials.user.as_str();
        let job = |ticket| Job {
            hash: guard.hash_of(user).map(str::to_owned),
            decoys: guard.decoys().clone(),
            password: claim.credentials.password.clone(),
            ticket,
        };
        let is_proxied = matches!(self.settings_of(to).route(route).action, Action::Proxy(_));
        if !claim.is_verified && !is_proxied {
            return self.await_password(reactor, (to, route), values, claim.key, job);
        }
        // The server gets the request only once the user is verified.
        let values = &Values { user: Some(user), ..*values };
        let edits = handling.request.as_ref();
        let changes =
            Changes { path: None, edits, values, waits: !claim.is_verified, hook: None, ask: None };
        self.begin_action(reactor, to, head, route, scheme, Some(changes));
        if claim.is_verified {
            return;
        }
        // The action may have refused the request.
        let Some(id) = self.waiting_exchange(to) else { return };
        let question = PasswordCheck {
            route,
            key: claim.key,
            origin: Origin::of(values.client()),
            values: self.render_with_user(to, handling, values),
        };
        self.await_verdict(reactor, id, question, job(Ticket::Exchange(id)));
    }

    /// The values for the edits of the response to a verified user, if they name the user.
    fn render_with_user(
        &mut self,
        to: Requester,
        handling: &RouteHandling,
        values: &Values<'_>,
    ) -> Option<Vec<u8>> {
        if !handling.response_names_user {
            return None;
        }
        let snapshot = self.settings_of(to);
        let mut bytes = self.buffers.take();
        let rendered = snapshot.handlings.render_response(handling, &mut bytes, values);
        match rendered {
            Ok(()) => Some(bytes),
            // Too long with the name: the response gets the fields without it.
            Err(_) => {
                self.buffers.put(bytes);
                None
            }
        }
    }

    /// Takes a place for the request among those of its address. Returns whether it is admitted; otherwise it has been
    /// answered.
    fn admit_client<R: Reactor>(
        &mut self,
        reactor: &mut R,
        to: Requester,
        (route, handling): (usize, &RouteHandling),
        values: &Values<'_>,
    ) -> bool {
        let (Some(most), Some(address)) = (handling.per_address_max, values.client()) else {
            return true;
        };
        let snapshot = self.settings_of(to);
        let Some(places) = snapshot.process.rates.clients.route(route) else { return true };
        match places.take(address, most) {
            Entry::Taken(place) => self.hold_place(to, place),
            Entry::Uncounted => self.accounts.counters.clients_uncounted.add(1),
            Entry::Refused => {
                self.accounts.counters.requests_over_address_max.add(1);
                self.deny(reactor, to, Denial::new(429, TOO_MANY_CLIENTS), TOO_MANY_CLIENTS, false);
                return false;
            }
        }
        true
    }

    /// Counts the request in those limits of its route that depend on claims, if `values` has claims, and otherwise in the
    /// others. Returns whether it is admitted; otherwise it has been answered.
    pub(super) fn admit_rate<R: Reactor>(
        &mut self,
        reactor: &mut R,
        to: Requester,
        (route, handling): (usize, &RouteHandling),
        values: &Values<'_>,
    ) -> bool {
        if handling.rates.is_empty() {
            return true;
        }
        let snapshot = self.settings_of(to);
        let tables = snapshot.process.rates.of_route(route);
        let mut refused = None;
        let has_token = values.claims.is_some();
        let limits = || {
            let limits = handling.rates.iter().zip(tables);
            limits.filter(|(rate, _)| rate.needs_token() == has_token)
        };
        // A request that one of several limits refuses counts for none of them: first look, then count.
        let counts_at_once = limits().nth(1).is_none();
        for is_counting in [counts_at_once, true] {
            for (rate, table) in limits() {
                let hash = table.key_of(rate, values, &mut self.piece);
                let now = reactor.now();
                let admission =
                    if is_counting { table.admit(hash, now) } else { table.look(hash, now) };
                if let Admission::Refused(wait) = admission {
                    refused = Some((rate, table, wait));
                    break;
                }
            }
            if is_counting && counts_at_once || refused.is_some() {
                break;
            }
        }
        let Some((rate, table, until_next)) = refused else { return true };
        self.accounts.counters.limited_requests.add(1);
        match rate.then {
            RateExcess::Deny => self.deny_rate(reactor, to, until_next),
            RateExcess::Tarpit => self.tarpit(reactor, to, table, (rate.wait, until_next)),
            RateExcess::Drop => {
                self.abandon_client(reactor, to, Cause::Refused, "the rate limit was exceeded");
            }
        }
        false
    }
}
