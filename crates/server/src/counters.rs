//! What a worker counts: written by it alone, summed by whoever shows them.
//! In: one `add` an event. Out: names and numbers. Never: a lock, a map, an allocation.

use tidegate_base::counters;
use tidegate_base::handlers::HandlerCounters;
use tidegate_secure::{Event, Ledger};
use tidegate_wire::tls::Fault;

counters! {
    /// A worker's counters; names ending in `_now` are gauges.
    pub struct WorkerCounters {
        /// Connections accepted.
        accepted,
        /// Downstream connections that exist.
        downstream_now,
        /// Upstream connections that exist, idle ones included.
        upstream_now,
        /// Exchanges with a server that are under way.
        exchanges_now,
        /// Times accepting paused for want of descriptors, memory or slots.
        accept_pauses,
        /// Request heads understood.
        requests,
        /// Requests refused because they were malformed or beyond a limit.
        requests_refused,
        /// Answers begun with status 1xx (relayed).
        answers_1xx,
        /// Answers with status 2xx.
        answers_2xx,
        /// Answers with status 3xx.
        answers_3xx,
        /// Answers with status 4xx.
        answers_4xx,
        /// Answers with status 5xx.
        answers_5xx,
        /// Connections to servers begun.
        upstream_connects,
        /// Connections to servers that could not be made.
        upstream_connect_failures,
        /// Requests sent over a connection that had carried one before.
        upstream_reuses,
        /// Idle connections that the server closed.
        upstream_idle_closes,
        /// Answers of servers that were malformed.
        upstream_faults,
        /// Answers that broke off after their head had been relayed.
        upstream_truncations,
        /// Requests tried again on another connection.
        retries,
        /// Requests that had to wait for a server.
        queued,
        /// Requests that waited for a server too long, or found the queue full.
        queue_refusals,
        /// Clients that left while their request was worked on.
        client_aborts,
        /// Heads that did not come in time.
        head_timeouts,
        /// Idle connections closed for their age.
        idle_timeouts,
        /// Idle connections of clients closed because few slots were free.
        idle_closes_for_room,
        /// Bodies or answers that stood still for too long.
        body_timeouts,
        /// Connections to servers that did not stand in time.
        connect_timeouts,
        /// Servers that did not answer in time.
        response_timeouts,
        /// Tunnels closed because nothing moved.
        tunnel_timeouts,
        /// Tunnels opened.
        tunnels,
        /// PROXY headers understood.
        proxy_headers,
        /// Connections closed because they did not begin with a PROXY header where they had to.
        proxy_header_faults,
        /// TLS sessions that exist, of clients and of servers.
        tls_sessions_now,
        /// TLS handshakes done, of both sides.
        tls_handshakes,
        /// Those of them that resumed an earlier session.
        tls_resumptions,
        /// Handshakes that did not come to their end: refused, malformed, left.
        tls_handshake_failures,
        /// Handshakes that took too long.
        tls_handshake_timeouts,
        /// Handshakes that waited for a later turn because this one had had enough of them.
        tls_handshakes_put_off,
        /// Plain HTTP that came in on a port for TLS.
        tls_plain_http,
        /// Certificates of clients or servers that were refused.
        tls_certificate_refusals,
        /// Peers that gave up with an alert.
        tls_alerts,
        /// Records that were damaged, oversized, malformed or out of place.
        tls_record_faults,
        /// Connections that ended without saying so: their last message may have been cut.
        tls_truncations,
        /// Connections closed because their keys may seal no more: those of TLS 1.2 cannot be renewed.
        tls_keys_used_up,
        /// Faults of our own: an invariant that did not hold, survived by closing.
        bugs,
    }
}

impl WorkerCounters {
    /// Counts what ended a TLS connection.
    fn count_tls_fault(&self, fault: Fault) {
        match fault {
            Fault::PlainHttp => self.tls_plain_http.add(1),
            Fault::Certificate(_) => self.tls_certificate_refusals.add(1),
            Fault::Alert(_) => self.tls_alerts.add(1),
            Fault::Oversized | Fault::Malformed | Fault::Misbehaved | Fault::Decrypt => {
                self.tls_record_faults.add(1);
            }
            Fault::NotTls | Fault::Incompatible | Fault::NoProtocol | Fault::NameUnknown => {
                self.tls_handshake_failures.add(1);
            }
            Fault::Exhausted => self.tls_keys_used_up.add(1),
            Fault::Bug => self.bugs.add(1),
        }
    }

    /// Counts an answer by its class.
    pub(crate) fn count_answer(&self, status: u16) {
        match status / 100 {
            1 => self.answers_1xx.add(1),
            2 => self.answers_2xx.add(1),
            3 => self.answers_3xx.add(1),
            4 => self.answers_4xx.add(1),
            _ => self.answers_5xx.add(1),
        }
    }
}

/// The kinds of handler whose calls are accounted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HandlerKind {
    /// A connection came in.
    Accept,
    /// A client sent bytes.
    DownstreamReceive,
    /// A server sent bytes.
    UpstreamReceive,
    /// A connection to a server stands.
    Connect,
    /// Output left that had been stuck.
    Drain,
    /// A connection ended.
    Close,
    /// A deadline or timer came.
    Due,
    /// Mail.
    Mail,
}

impl HandlerKind {
    /// Every kind, in display order.
    pub const ALL: [Self; 8] = [
        Self::Accept,
        Self::DownstreamReceive,
        Self::UpstreamReceive,
        Self::Connect,
        Self::Drain,
        Self::Close,
        Self::Due,
        Self::Mail,
    ];

    /// Its name, as `show profiling` prints it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Accept => "accept",
            Self::DownstreamReceive => "downstream_receive",
            Self::UpstreamReceive => "upstream_receive",
            Self::Connect => "connect",
            Self::Drain => "drain",
            Self::Close => "close",
            Self::Due => "due",
            Self::Mail => "mail",
        }
    }
}

/// All that one worker counts.
#[derive(Default, Debug)]
pub struct Accounts {
    /// Events.
    pub counters: WorkerCounters,
    /// Calls, CPU time and queueing latency, by `HandlerKind`.
    pub handlers: [HandlerCounters; HandlerKind::ALL.len()],
}

impl Ledger for Accounts {
    fn count(&self, event: Event) {
        let counters = &self.counters;
        match event {
            Event::SessionBegun => counters.tls_sessions_now.add(1),
            Event::SessionGone => counters.tls_sessions_now.sub(1),
            Event::HandshakeDone { resumed } => {
                counters.tls_handshakes.add(1);
                counters.tls_resumptions.add(u64::from(resumed));
            }
            Event::HandshakeLeft => counters.tls_handshake_failures.add(1),
            Event::HandshakeTimedOut => counters.tls_handshake_timeouts.add(1),
            Event::HandshakePutOff => counters.tls_handshakes_put_off.add(1),
            Event::Truncated => counters.tls_truncations.add(1),
            Event::Failed(fault) => counters.count_tls_fault(fault),
            Event::Bug => counters.bugs.add(1),
        }
    }

    fn log(&self, line: core::fmt::Arguments<'_>) {
        eprintln!("tidegate: {line}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_that_are_used_up_are_no_bug() {
        let counters = WorkerCounters::default();
        counters.count_tls_fault(Fault::Exhausted);
        counters.count_tls_fault(Fault::Bug);
        assert_eq!((counters.tls_keys_used_up.load(), counters.bugs.load()), (1, 1));
    }

    #[test]
    fn handler_kinds_index_their_own_row() {
        for (index, kind) in HandlerKind::ALL.iter().enumerate() {
            assert_eq!(*kind as usize, index, "{}", kind.name());
        }
    }
}
