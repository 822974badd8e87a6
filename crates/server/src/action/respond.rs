//! The action `respond`: the fixed response of a route, encoded when the configuration was loaded.
//! In: a request whose route has the action. Out: the response.
//! Never: keeps state after the call. A response whose bandwidth is limited is handed to `synthetic.rs`.

use tidegate_reactor::Reactor;
use tidegate_wire::message::{Method, RequestHead};

use crate::answer::Answer;
use crate::requester::Requester;
use crate::worker::Worker;

impl Worker {
    /// Sends the fixed response of `route`.
    pub(super) fn respond<R: Reactor>(
        &mut self,
        reactor: &mut R,
        to: Requester,
        head: &RequestHead<'_>,
        route: usize,
    ) {
        let snapshot = self.settings_of(to);
        if snapshot.handlings.of_route(route).is_some_and(|known| known.bandwidth.is_some())
            && self.begin_paced(reactor, to, matches!(head.method, Method::Head), route)
        {
            return;
        }
        match snapshot.answers.prepared(route) {
            Some(prepared) => self.answer(reactor, to, &Answer::Prepared(prepared), false),
            None => self.note_bug(reactor, to.sock),
        }
    }
}
