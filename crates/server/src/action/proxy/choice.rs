//! Requests of routes that choose the pool of each request.
//! In: a request, and how its route chooses. Out: its exchange with the chosen pool begun, or an error response.
//! Never: runs for a route with one pool.

use tidegate_gate::changes::Changes;
use tidegate_reactor::Reactor;
use tidegate_wire::message::RequestHead;

use tidegate_config::model::Proxy;

use crate::requester::Requester;
use crate::worker::Worker;

impl Worker {
    /// Begins to proxy a request to the pool that `proxy` of its route chooses.
    pub(in crate::action) fn begin_choosing<R: Reactor>(
        &mut self,
        reactor: &mut R,
        to: Requester,
        head: &RequestHead<'_>,
        (route, proxy): (usize, &Proxy),
        changes: Option<Changes<'_>>,
    ) {
        let snapshot = self.settings_of(to);
        let handlings = &snapshot.handlings;
        let chooser = handlings.of_route(route).and_then(|handling| handling.pool.as_ref());
        let (Some(chooser), Some(Changes { values, .. })) = (chooser, changes) else {
            return self.note_bug(reactor, to.sock);
        };
        let random = || self.prng.next_u64();
        let chooser = (chooser, |pool| snapshot.has_pool(pool));
        match handlings.choose_pool(chooser, values, random, &mut self.piece) {
            Some(pool) => {
                self.begin_exchange(reactor, to, head, (proxy, (route, pool)), changes);
            }
            None => {
                self.accounts.counters.unmapped_requests.add(1);
                let text = "no pool is set for this request";
                self.answer_error(reactor, to, 404, text, false);
            }
        }
    }
}
