//! Requests of routes that do something besides their action.
//! In: a request and its route. Out: its action begun with the route's changes, or an error response.
//! Never: runs for a route that only has an action.
//! Invariant: the values for the edits of a response are rendered before the action begins, because the request's head
//! is gone when the response comes.

use tidegate_config::model::RateExcess;
use tidegate_gate::access::Cause;
use tidegate_gate::basic::Credentials;
use tidegate_gate::cors::CrossOrigin;
use tidegate_gate::denial::Denial;
use tidegate_gate::forward::Changes;
use tidegate_gate::handling::{Guard, RouteHandling};
use tidegate_gate::rate::Admission;
use tidegate_gate::rewrite::MatchedPath;
use tidegate_gate::scheme::Scheme;
use tidegate_gate::template::Values;
use tidegate_reactor::Reactor;
use tidegate_wire::message::RequestHead;

use crate::answer::Answer;
use crate::passwords::Job;
use crate::requester::Requester;
use crate::worker::Worker;

/// The values for the edits of one response: that of the request whose action was begun last, or whose response begins
/// now.
#[derive(Default)]
pub(crate) struct ResponseValues {
    /// The requester whose response they belong to; `None` if there are no values.
    owner: Option<Requester>,
    /// What `Edits::render` appended.
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

impl Worker {
    /// Begins the action of a request whose route does something besides it.
    pub(super) fn begin_handled<R: Reactor>(
        &mut self,
        reactor: &mut R,
        to: Requester,
        head: &RequestHead<'_>,
        route: usize,
        scheme: Scheme,
    ) {
        let snapshot = self.settings_of(to);
        let Some(handling) = snapshot.handlings.of_route(route) else {
            return self.note_bug(reactor, to.sock);
        };
        let id = match handling.needs_id {
            true => u128::from(self.prng.next_u64()) << 64 | u128::from(self.prng.next_u64()),
            false => 0,
        };
        let mut scratch = core::mem::take(&mut self.path_scratch);
        let path = match handling.needs_path {
            true => MatchedPath::new(head.path, &handling.paths, &mut scratch),
            false => MatchedPath::whole(head.path),
        };
        let Some(down) = self.conns.downstream(to.sock) else {
            return self.note_bug(reactor, to.sock);
        };
        let peer = down.peer.ip();
        let facts = down.facts.as_ref().filter(|_| handling.needs_server_name);
        let server_name: Option<Vec<u8>> =
            facts.and_then(|facts| facts.server_name()).map(<[u8]>::to_vec);
        let trusted = &snapshot.listener(down.listener).trusted;
        let server_name = server_name.as_deref();
        let allowed_origin = handling.cors.as_ref().and_then(|cors| cors.allowed(head));
        let credentials = handling.auth.as_ref().and_then(|_| Credentials::of(head));
        let user = credentials.as_ref().map(|known| known.user.as_str());
        let path = &path;
        let values =
            Values { head, path, peer, trusted, scheme, server_name, allowed_origin, user, id };
        self.begin_changed(reactor, to, (route, handling), &values, credentials.as_ref());
        self.path_scratch = scratch;
    }

    /// Makes the values that an action has kept those of the response that begins now.
    pub(crate) fn recall_values(&mut self, to: Requester, values: Vec<u8>) {
        if !values.is_empty() {
            let before = self.values.set(to, values);
            self.buffers.put(before);
        }
    }

    /// Begins the action, unless the route answers by itself.
    fn begin_changed<R: Reactor>(
        &mut self,
        reactor: &mut R,
        to: Requester,
        (route, handling): (usize, &RouteHandling),
        values: &Values<'_>,
        credentials: Option<&Credentials>,
    ) {
        let snapshot = self.settings_of(to);
        if handling.renders_response {
            let mut bytes = self.buffers.take();
            let rendered = snapshot.handlings.render_response(handling, &mut bytes, values);
            let before = self.values.set(to, bytes);
            self.buffers.put(before);
            if let Err(fault) = rendered {
                // An error response has the fields whose values could be rendered.
                return self.answer_error(reactor, to, fault.status(), fault.text(), false);
            }
        }
        if let Some(down) = &handling.down
            && let Some(denial) = down.denial(|| values.client())
        {
            return self.answer(reactor, to, &Answer::Denied(denial), false);
        }
        if !handling.admits(|| values.client()) {
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
        if !self.admit_rate(reactor, to, route, handling, values) {
            return;
        }
        let edits = handling.request.as_ref();
        let changes = Changes { path: None, edits, values, waits: false };
        let Some(guard) = &handling.auth else {
            let (head, scheme) = (values.head, values.scheme);
            return self.begin_action(reactor, to, head, route, scheme, Some(changes));
        };
        self.begin_guarded(reactor, to, (route, guard), changes, credentials);
    }

    /// Begins the action of a request whose user was verified lately, or makes it wait for the verdict.
    fn begin_guarded<R: Reactor>(
        &mut self,
        reactor: &mut R,
        to: Requester,
        (route, guard): (usize, &Guard),
        changes: Changes<'_>,
        credentials: Option<&Credentials>,
    ) {
        let (head, scheme) = (changes.values.head, changes.values.scheme);
        let hash = credentials.and_then(|credentials| guard.hash_of(&credentials.user));
        let (Some(credentials), Some((hash, is_known))) = (credentials, hash) else {
            self.accounts.counters.unauthenticated_requests.add(1);
            return self.answer(reactor, to, &Answer::Denied(guard.denial()), false);
        };
        let key = credentials.key(&guard.users, self.secret);
        if self.passwords.verified.contains(key, reactor.now()) {
            return self.begin_action(reactor, to, head, route, scheme, Some(changes));
        }
        let changes = Changes { waits: true, ..changes };
        self.begin_action(reactor, to, head, route, scheme, Some(changes));
        // The action may have refused the request.
        let Some(ticket) = self.waiting_exchange(to) else { return };
        let (hash, password) = (hash.to_owned(), credentials.password.clone());
        let job = Job { hash, password, is_known, ticket };
        self.await_verdict(reactor, ticket, (route, key), job);
    }

    /// Counts the request in the limits of its route. Returns whether it is admitted; otherwise it has been answered.
    fn admit_rate<R: Reactor>(
        &mut self,
        reactor: &mut R,
        to: Requester,
        route: usize,
        handling: &RouteHandling,
        values: &Values<'_>,
    ) -> bool {
        if handling.rates.is_empty() {
            return true;
        }
        let snapshot = self.settings_of(to);
        let tables = snapshot.rates.of_route(route);
        let mut refused = None;
        for (rate, table) in handling.rates.iter().zip(tables) {
            let hash = table.key_of(rate, values, &mut self.piece);
            if let Admission::Refused(wait) = table.admit(hash, reactor.now()) {
                refused = Some((rate.then, wait));
                break;
            }
        }
        let Some((then, wait)) = refused else { return true };
        self.accounts.counters.limited_requests.add(1);
        match then {
            RateExcess::Deny => {
                let (text, retry_after) =
                    ("too many requests", wait.as_millis().div_ceil(1000) as u64);
                let denial = Denial { retry_after, ..Denial::new(429, text) };
                self.answer(reactor, to, &Answer::Denied(denial), false);
            }
            RateExcess::Drop => {
                self.abandon_client(reactor, to, Cause::Refused, "the rate limit was exceeded");
            }
        }
        false
    }
}
