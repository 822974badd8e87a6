//! The limit of streams that follows the load of the worker: when the limit is announced on a client connection.
//! In: the worker's connections and streams; connections that begin or on which something happened. Out: SETTINGS.
//! Never: examines a connection on which nothing happens. A client that was idle may therefore open as many streams as it was
//! told before, and learns of a lower limit with its first request.
//! Limits: those of `gate::elastic`; one SETTINGS frame is on its way at a time.

use tidegate_base::Moment;
use tidegate_base::limits::ELASTIC_STREAMS_MIN;
use tidegate_reactor::{Reactor, SockId};
use tidegate_wire::http2::bounds::STREAMS_DEFAULT;

use crate::carrier::http2::client::Http2Client;
use crate::carrier::http2::clients::LimitChange;
use crate::worker::Worker;

impl Http2Client {
    /// Checks that the load has not taken the limit beyond its bounds, nor let the client beyond the limit.
    pub(crate) fn check_streams_max(&self) {
        let streams_max = self.connection.config().streams_max;
        let bounds = ELASTIC_STREAMS_MIN..=STREAMS_DEFAULT;
        assert!(bounds.contains(&streams_max), "{streams_max} streams are allowed");
        let open = self.connection.open_streams();
        assert!(open <= STREAMS_DEFAULT as usize, "{open} streams are open");
    }
}

impl Worker {
    /// How many streams each connection may have at the current load of the worker.
    pub(super) fn streams_allowed(&mut self, now: Moment) -> u32 {
        let sockets = self.conns.downstream_count() + self.conns.upstream_count();
        let slots = self.slots_max();
        self.http2_clients.allowed(now, sockets, slots)
    }

    /// Tells the client how many streams it may have open, if that has changed.
    pub(super) fn tell_streams_allowed<R: Reactor>(&mut self, reactor: &mut R, sock: SockId) {
        let streams_max = self.streams_allowed(reactor.now());
        let (clients, mut links) = self.client_streams(reactor);
        match clients.tell_allowed(&mut links, sock, streams_max) {
            Some(LimitChange::Lowered) => self.accounts.counters.http2_limits_lowered.add(1),
            Some(LimitChange::Raised) => self.accounts.counters.http2_limits_raised.add(1),
            None => {}
        }
    }
}
