//! Requests that Tidegate sends for itself to a server of a pool, and sockets of applications.
//! In: a request or a socket, and its pool. Out: its exchange, which has the queue, timeouts, retries, health and counters of the pool.
//! Never: knows which part of Tidegate sends the request.

use tidegate_base::Id;
use tidegate_gate::internal_request;
use tidegate_reactor::Reactor;
use tidegate_wire::message::{BodyLength, Method};

use crate::action::proxy::exchange::{Exchange, RequestFacts};
use crate::action::proxy::stored::StoredRequest;
use crate::carrier::internal_request::InternalRequest;
use crate::requester::Requester;
use crate::worker::Worker;

impl Worker {
    /// Begins the exchange of a request of Tidegate itself with the pool `pool_index`. The request may have ended when this returns.
    pub(in crate::action) fn begin_own_exchange<R: Reactor>(
        &mut self,
        reactor: &mut R,
        id: Id<InternalRequest>,
        request: &internal_request::InternalRequest<'_>,
        pool_index: u16,
    ) {
        let pool = self.settings.newest().pool(pool_index);
        let mut encoded = self.buffers.take();
        request.encode(&mut encoded, pool);
        let method = request.method();
        let facts = RequestFacts {
            is_head: matches!(method, Method::Head),
            is_idempotent: method.is_idempotent(),
            is_reusable: true,
            authenticates: request.authenticates(),
            drops_trailers: true,
            key_hash: request.hash_key(&pool.balance),
            ..RequestFacts::NONE
        };
        let stored = StoredRequest::new(encoded, request.length());
        self.arrivals += 1;
        let (to, era) = (Requester::own(id), self.settings.era());
        // Listener 0: a listener only selects the client fields to remove, and this request has no such fields.
        let exchange = Exchange::new(to, era, (0, pool_index), self.arrivals, facts, stored);
        let earlier = self.current_mark();
        self.unmark();
        self.insert_exchange(reactor, exchange);
        self.restore_mark(earlier);
        self.resume_request(to);
    }

    /// Begins the exchange of an application's socket, which has no request, with the pool `pool_index`. The socket may have
    /// ended when this function returns.
    pub(in crate::action) fn begin_socket_exchange<R: Reactor>(
        &mut self,
        reactor: &mut R,
        id: Id<InternalRequest>,
        pool_index: u16,
    ) {
        self.arrivals += 1;
        let facts = RequestFacts { is_tcp: true, ..RequestFacts::NONE };
        let stored = StoredRequest::new(Vec::new(), BodyLength::None);
        let (to, era) = (Requester::own(id), self.settings.era());
        let exchange = Exchange::new(to, era, (0, pool_index), self.arrivals, facts, stored);
        let earlier = self.current_mark();
        self.unmark();
        self.insert_exchange(reactor, exchange);
        self.restore_mark(earlier);
    }
}
