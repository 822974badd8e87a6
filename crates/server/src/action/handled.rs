//! Requests of routes that do something besides their action.
//! In: a request and its route. Out: its action begun with the route's changes, or an error response.
//! Never: runs for a route that only has an action.
//! Invariant: the values for the edits of a response are rendered before the action begins, because the request's head
//! is gone when the response comes.

use tidegate_gate::forward::Changes;
use tidegate_gate::handling::RouteHandling;
use tidegate_gate::rewrite::MatchedPath;
use tidegate_gate::scheme::Scheme;
use tidegate_gate::template::Values;
use tidegate_reactor::{Peer, Reactor};
use tidegate_wire::message::RequestHead;

use crate::requester::Requester;
use crate::worker::Worker;

/// The values for the edits of one response: that of the request whose action was begun last, or whose response begins
/// now.
#[derive(Default)]
pub(crate) struct ResponseValues {
    /// Whose response they belong to; `None` if there are none.
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
        let peer = match down.peer {
            Peer::Tcp(address) => Some(address.ip()),
            Peer::Local => None,
        };
        let facts = down.facts.as_ref().filter(|_| handling.needs_server_name);
        let server_name: Option<Vec<u8>> =
            facts.and_then(|facts| facts.server_name()).map(<[u8]>::to_vec);
        let trusted = &snapshot.listener(down.listener).trusted;
        let server_name = server_name.as_deref();
        let values = Values { head, path: &path, peer, trusted, scheme, server_name, id };
        self.begin_changed(reactor, to, route, handling, &values);
        self.path_scratch = scratch;
    }

    /// Makes the values that an action has kept those of the response that begins now.
    pub(crate) fn recall_values(&mut self, to: Requester, values: Vec<u8>) {
        if !values.is_empty() {
            let before = self.values.set(to, values);
            self.buffers.put(before);
        }
    }

    fn begin_changed<R: Reactor>(
        &mut self,
        reactor: &mut R,
        to: Requester,
        route: usize,
        handling: &RouteHandling,
        values: &Values<'_>,
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
        let changes = Changes { path: None, edits: handling.request.as_ref(), values };
        self.begin_action(reactor, to, values.head, route, values.scheme, Some(changes));
    }
}
