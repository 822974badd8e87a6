//! The request body on its way to the server.
//! In: pieces of the body from the requester's carrier. Out: the same pieces for the server's carrier, and in the
//! store as long as the request may have to be sent again.
//! Never: takes more than the server's output or the store has room for.
//! Invariant: while a request has no server, or no byte of it was sent, all of it is in the store.

use tidegate_base::Id;
use tidegate_reactor::Reactor;

use crate::action::proxy::exchange::{Exchange, Stage};
use crate::action::proxy::stored::WAITING_PIECE_BYTES_MAX;
use crate::paces::BodyDirection;
use crate::worker::Worker;

impl Worker {
    /// How many bytes of the framed request body the exchange takes now.
    pub(in crate::action) fn exchange_body_room<R: Reactor>(
        &mut self,
        reactor: &mut R,
        id: Id<Exchange>,
    ) -> usize {
        let room = self.unpaced_body_room(reactor, id);
        if room == 0 { 0 } else { room.min(self.request_room(reactor, id)) }
    }

    /// How many bytes the exchange takes, without regard to the bandwidth limit of its route.
    fn unpaced_body_room<R: Reactor>(&mut self, reactor: &mut R, id: Id<Exchange>) -> usize {
        let Some(exchange) = self.exchanges.get(id) else { return 0 };
        if let Some(auth_request) = &exchange.auth_request {
            return auth_request.body_room();
        }
        let (up, fits) = (exchange.attempt.up, exchange.request.has_waiting_room());
        if !exchange.has_server() {
            return if fits { WAITING_PIECE_BYTES_MAX } else { 0 };
        }
        if !fits && self.is_request_unsent(reactor, up) {
            // As long as nothing was sent, the request may have to go to another connection. `Drained`, the failure of
            // the attempt or a stream that opens resumes the body.
            reactor.flush(up.sock);
            if self.is_request_unsent(reactor, up) {
                return 0;
            }
        }
        match self.is_request_unsent(reactor, up) {
            _ if self.is_server_blocked(reactor, up) => 0,
            true => WAITING_PIECE_BYTES_MAX,
            false => usize::MAX,
        }
    }

    /// Forwards a piece of the request body; `end` contains the trailers once the body is complete.
    pub(in crate::action) fn forward_body<R: Reactor>(
        &mut self,
        reactor: &mut R,
        id: Id<Exchange>,
        data: &[u8],
        end: Option<&[u8]>,
    ) {
        let Some(exchange) = self.exchanges.get_mut(id) else { return };
        if let Some(pace) = &mut exchange.pace {
            pace.spend(BodyDirection::Up, reactor.now(), data.len());
        }
        let listener = exchange.listener;
        let copy = match exchange.copy {
            None => None,
            Some(_) => self.copy_body(id, data, end),
        };
        self.forward_own_body(reactor, id, data, end);
        if let Some(copy) = copy {
            self.send_copy(reactor, listener, *copy);
        }
    }

    /// Forwards a piece of the request body to the request's own server.
    fn forward_own_body<R: Reactor>(
        &mut self,
        reactor: &mut R,
        id: Id<Exchange>,
        data: &[u8],
        end: Option<&[u8]>,
    ) {
        let Some(exchange) = self.exchanges.get_mut(id) else { return };
        if let Some(auth_request) = &mut exchange.auth_request {
            return auth_request.take_body(data, end);
        }
        exchange.request.push(data);
        if let Some(trailers) = end {
            exchange.request.end(if exchange.facts.drops_trailers { b"" } else { trailers });
        }
        match exchange.stage {
            Stage::Authorizing | Stage::Queued | Stage::Paused => {}
            Stage::Buffering => self.dispatch_buffered(reactor, id),
            Stage::ExpectRequestEnd if end.is_some() => {
                let up = exchange.attempt.up;
                self.send_request_body(reactor, id, data);
                // A stream sends the rest later, when the flow-control window of the server opens.
                if !up.is_stream() || !self.is_server_behind(reactor, up) {
                    self.end_exchange(reactor, id, false);
                }
            }
            Stage::Connecting
            | Stage::ExpectResponse
            | Stage::ExpectBody
            | Stage::ExpectRequestEnd
            | Stage::Tunnel => {
                self.send_request_body(reactor, id, data);
                self.arm_upstream(reactor, id);
            }
        }
    }

    /// Dispatches a request once enough of its body has arrived.
    pub(super) fn dispatch_buffered<R: Reactor>(&mut self, reactor: &mut R, id: Id<Exchange>) {
        let Some(exchange) = self.exchanges.get_mut(id) else { return };
        let wanted = self.settings.of(exchange.era).pool(exchange.pool).request_buffer_bytes as u64;
        let request = &exchange.request;
        if !exchange.facts.buffers
            || request.is_done()
            || exchange.intake.bytes >= wanted
            || !request.has_waiting_room()
        {
            // Requests that became ready in the meantime are before this one.
            self.arrivals += 1;
            exchange.arrival = self.arrivals;
            exchange.stage = Stage::Queued;
            self.dispatch_new(reactor, id);
        }
    }

    /// Whether the exchange waits for the rest of the request body rather than for a server.
    pub(in crate::action) fn exchange_expects_body(&self, id: Id<Exchange>) -> bool {
        let exchange = self.exchanges.get(id);
        exchange.is_some_and(|exchange| {
            !matches!(exchange.stage, Stage::Authorizing | Stage::Queued | Stage::Paused)
                && exchange.auth_request.as_ref().is_none_or(|request| request.takes_body())
        })
    }

    /// Whether the server does not take the part of the request body that has arrived.
    pub(in crate::action) fn is_exchange_body_stuck<R: Reactor>(
        &self,
        reactor: &R,
        id: Id<Exchange>,
    ) -> bool {
        let exchange = self.exchanges.get(id);
        exchange.is_some_and(|exchange| self.request_pending(reactor, exchange.attempt.up) > 0)
    }
}
