//! The counters of a worker. Only the worker writes them; readers add up the counters of all workers.
//! In: one `add` for each event. Out: names and numbers. Never: a lock, a map, an allocation.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64};

use tidegate_base::counters;
use tidegate_base::handlers::HandlerCounters;
use tidegate_reactor::sampler::{self, Thread};
use tidegate_secure::{Event, TlsObserver};
use tidegate_wire::tls::Fault;

counters! {
    /// A worker's counters; names ending in `_now` are gauges.
    pub struct WorkerCounters {
        /// Turns that the worker has finished: at least one a second.
        turns,
        /// Connections accepted.
        accepted,
        /// Open downstream connections.
        downstream_now,
        /// Open upstream connections, including idle ones.
        upstream_now,
        /// Proxied requests in progress.
        exchanges_now,
        /// Times that accepting paused because no descriptor, memory or slot was left.
        accept_pauses,
        /// Request heads decoded.
        requests,
        /// Requests rejected because they were malformed or exceeded a limit.
        requests_refused,
        /// Harmless violations of HTTP by clients, which were accepted or ignored.
        glitches,
        /// Client connections that were closed gracefully because of too many harmless violations of HTTP.
        glitch_closes,
        /// Responses with status 1xx (relayed).
        answers_1xx,
        /// Responses with status 2xx.
        answers_2xx,
        /// Responses with status 3xx.
        answers_3xx,
        /// Responses with status 4xx.
        answers_4xx,
        /// Responses with status 5xx.
        answers_5xx,
        /// Connects to servers begun.
        upstream_connects,
        /// Times that a server was ejected because its requests failed.
        ejections,
        /// Connects to servers that failed.
        upstream_connect_failures,
        /// Requests sent over a connection that was used before.
        upstream_reuses,
        /// Idle connections that the server closed.
        upstream_idle_closes,
        /// Malformed responses of servers, and unsolicited bytes.
        upstream_faults,
        /// Responses that were cut off after their head had been relayed.
        upstream_truncations,
        /// Requests that were sent again on another connection.
        retries,
        /// Pauses of requests whose attempts had failed with every server.
        retry_pauses,
        /// Requests that went to another connection, because the server had closed the reused connection, or sent
        /// bytes on it, before a byte of the request was sent.
        unsent_requests,
        /// Requests that went to a fresh connection because they could not have been retried on an idle one.
        spared_requests,
        /// Requests that had to wait for a server.
        queued,
        /// Permits of limited servers that other workers gave to this worker.
        permits_received,
        /// Requests that were rejected because the queue was full or they had waited in it for too long.
        queue_refusals,
        /// Requests that may wait in the queue only for `queue-standing`, because the queue is a standing queue.
        queue_standing,
        /// Requests that were refused because the worker was overloaded.
        overload_refusals,
        /// Requests that were refused because more memory than `memory-max` was in use.
        memory_refusals,
        /// Intervals in which events that were ready always waited for longer than the target of `overload`.
        overload_intervals,
        /// Requests removed from the queue because their client had ended or reset its connection.
        queue_departures,
        /// Clients that disconnected while their request was in progress.
        client_aborts,
        /// Request heads that timed out.
        head_timeouts,
        /// Client connections closed by the idle timeout.
        idle_timeouts,
        /// HTTP/2 clients whose limit of streams was lowered, because the load of their worker had risen.
        http2_limits_lowered,
        /// HTTP/2 clients whose limit of streams was raised again.
        http2_limits_raised,
        /// Idle connections to servers closed to make room for another connection.
        evicted_upstream,
        /// Closed connections whose peers had not closed yet, and which were freed to make room.
        evicted_lingering,
        /// Client connections that had not sent a byte and were closed to make room.
        evicted_silent,
        /// Client connections whose first request or handshake was incomplete, and which were closed to make room.
        evicted_unfinished,
        /// Idle client connections closed to make room.
        evicted_idle,
        /// Tunnels that were reset to make room, because their clients had sent no byte in them.
        evicted_tunnels,
        /// Requests refused with 403, because their route does not serve the address of the client.
        denied_requests,
        /// Requests refused because they had no correct password or no valid token.
        unauthenticated_requests,
        /// Requests whose token could not be verified, because its keys were not fetched yet.
        keyless_requests,
        /// Passwords queued for verification, including those of clients that disconnected before it. Remembered passwords are not counted.
        password_checks,
        /// Tokens that were verified: of requests, and of push clients of hubs with `token-keys`. A remembered token of a
        /// request is not verified again.
        tokens_verified,
        /// Tokens that were verified in a later turn, because the time for tokens in the turn was used up.
        tokens_put_off,
        /// Requests that were refused because their tokens could not be verified in time.
        token_refusals,
        /// Requests about which a server decided (`auth` with `ask`).
        auth_requests,
        /// Requests that the server of `auth` with `ask` refused.
        auth_request_refusals,
        /// Requests that were refused because too many passwords, or too many of their address, waited for verification.
        auth_refusals,
        /// Requests above the limit of their route's rate.
        limited_requests,
        /// Requests above the limit of their route's rate that waited in a tarpit for their response.
        tarpitted_requests,
        /// Requests above the limit of their route's rate that got their response at once, because too many waited in the tarpit.
        tarpits_full,
        /// Clients that were closed to make room for new clients of their listener, which had as many as `connections-max`.
        evicted_for_listener,
        /// Connections that were reset because their listener had as many as its `connections-max`.
        connections_over_listener_max,
        /// Connections that were reset because their address had as many as `connections-per-address-max` of the listener.
        connections_over_address_max,
        /// Requests that were refused because their address had as many in progress as `connections-per-address-max` of the
        /// route.
        requests_over_address_max,
        /// Connections and requests that were not counted by their address, because too many addresses were counted already.
        clients_uncounted,
        /// How often a body, in either direction, had to wait for the `bandwidth` of its route.
        bandwidth_waits,
        /// Copies of requests that were sent to other pools (`mirror` of routes).
        mirrored_requests,
        /// Copies of requests (`mirror` of routes) that got no complete response.
        mirror_failures,
        /// Requests that were chosen for `mirror` and not copied: there was no room, no server was free, or the body was too
        /// large.
        mirrors_left_out,
        /// Keys of `sticky` that were moved to another server, because their server was down or the other server has set
        /// their cookie.
        sticky_moves,
        /// Keys of `sticky` that were evicted for new keys, because the table was full.
        sticky_evictions,
        /// Requests refused with 404, because the map of their route has no pool for them.
        unmapped_requests,
        /// Requests that had to wait for room for a connection to their server.
        slot_waits,
        /// Bodies, in either direction, that made no progress within the timeout.
        body_timeouts,
        /// Connects to servers that timed out.
        connect_timeouts,
        /// Responses of servers that timed out.
        response_timeouts,
        /// Tunnels closed because no byte was transferred within the timeout.
        tunnel_timeouts,
        /// Tunnels opened.
        tunnels,
        /// Forwarded WebSockets that got a Close frame of this process, because of a stop, an upgrade or a reload.
        tunnels_closed,
        /// Connections forwarded without HTTP that were assigned to a pool.
        tcp_connections,
        /// Connections closed because no pool is set for their server name.
        tcp_unmatched,
        /// Connections of listeners with `forward` that began with a malformed or oversized TLS handshake.
        tcp_hello_faults,
        /// WebSocket connections that this process serves itself and that are open now.
        websockets_now,
        /// WebSocket connections that this process has served itself.
        websockets,
        /// WebSocket requests that were refused, and other requests to routes that serve only WebSocket connections.
        websocket_refusals,
        /// WebSocket connections without compression, because the slots for dedicated compression contexts were used up.
        websocket_uncompressed,
        /// Messages received over WebSocket connections that this process serves itself.
        websocket_messages,
        /// WebSocket connections that this process closed because the client broke the protocol or a limit.
        websocket_faults,
        /// WebSocket connections that this process closed by a timeout: no message, no Pong or no Close frame.
        websocket_timeouts,
        /// Clients that speak the client protocol of push hubs and are connected now.
        push_clients_now,
        /// Subscriptions to channels of push hubs that exist now.
        push_subscriptions_now,
        /// Subscriptions to channels.
        push_subscriptions,
        /// Messages that were published through this worker.
        push_publications,
        /// Messages that were sent to subscribers.
        push_deliveries,
        /// Messages that were compressed, each of them once for all subscribers with the same encoding and window. Connections with
        /// `compression = "dedicated"` compress their own, which is not counted here.
        push_compressions,
        /// Messages that had to wait because their subscriber did not read.
        push_queued,
        /// Messages that were dropped because their subscriber did not read.
        push_dropped,
        /// Joins and leaves that were not reported, because too many messages of their channel were being delivered.
        push_unreported,
        /// Messages of channels with `conflate` that newer ones have replaced before they were delivered.
        push_conflated,
        /// Messages that were sent to a client as a patch of the previous message.
        push_patches,
        /// Messages of channels with `deltas` that could not be kept, because they were too long or there was no memory for them: the
        /// next message was sent whole.
        push_unkept_bases,
        /// Messages that were not sent to a client, because its filter does not admit them or because it has published them.
        push_left_out,
        /// Subscribers that were disconnected because they did not read.
        push_slow_closes,
        /// Connections of push clients that were ended because of `connection-age-max`, or because the token in their URL or cookie has
        /// expired.
        push_aged_closes,
        /// Messages of push clients that were refused because of `publish-rate`.
        push_over_rate,
        /// Requests with client commands that were refused, because too many were on their way to another worker.
        push_refused_commands,
        /// Events of push clients that were sent to their backend (`[push.NAME.backend]`).
        push_backend_calls,
        /// Events of push clients about which the backend did not decide: it was down, too slow or sent an invalid response,
        /// or too many events waited for it.
        push_backend_failures,
        /// Events of push clients about which the backend did not decide, because too many events waited for it.
        push_backend_refused,
        /// Events about clients that have left and channels without subscribers that the backend has not received.
        push_lost_events,
        /// Calls of the server API that failed.
        push_failures,
        /// Requests to a push hub that were refused, because the client had no permission or no valid key.
        push_refusals,
        /// Callbacks of Lua applications that ran.
        lua_callbacks,
        /// Callbacks of Lua applications that failed.
        lua_failures,
        /// Callbacks of Lua applications that exceeded their time or memory.
        lua_excesses,
        /// WebSocket clients of Lua applications that were closed because they did not read.
        lua_slow_clients,
        /// VMs of Lua applications that were discarded and started again, because they exceeded their memory or time budgets.
        lua_restarts,
        /// Reloads that have brought other code for a Lua application, counted by each worker.
        lua_reloads,
        /// Applications whose new code a worker has refused, because its top level or `on_start` failed: the reload is refused.
        lua_reload_failures,
        /// VMs of earlier code of Lua applications that were ended before they had finished.
        lua_reload_cuts,
        /// WebSocket clients of Lua applications that were handed over to new code after a reload.
        lua_handovers,
        /// WebSocket clients of Lua applications that were closed because a reload has replaced the code that served
        /// them.
        lua_drained_clients,
        /// Waiting handlers of Lua applications that were ended because they held the memory of the VM.
        lua_evictions,
        /// Waits, timers and threads of Lua applications that were refused because there were too many.
        lua_refusals,
        /// Messages of Lua applications for clients of another worker that were dropped, because that worker did not keep up.
        lua_mail_drops,
        /// Handlers that waited for too long: requests of `on_access` and `on_response` got a 504 response, responses of `on_body`
        /// were cut, and events of `on_push` failed.
        lua_late_hooks,
        /// Certificates of TLS handshakes that Lua applications have chosen (`on_certificate`).
        lua_certificates,
        /// Calls of `on_certificate` that have failed or have not chosen in time: the requested name has selected the certificate.
        lua_certificate_failures,
        /// Calls of `on_log` that were dropped, because too many waited.
        lua_log_drops,
        /// Requests that Lua applications have sent to servers.
        lua_requests,
        /// Connections of Lua applications to servers (`tide.tcp`) that were begun.
        lua_sockets,
        /// Sockets of Lua applications for datagrams (`tide.udp`) that were opened.
        lua_datagram_sockets,
        /// Lookups of names by Lua applications (`tide.dns`).
        lua_lookups,
        /// Pieces of files that Lua applications have read (`response:file`, `tide.files`).
        lua_file_reads,
        /// Queries to name servers.
        dns_queries,
        /// Datagrams for Lua applications that were dropped, because their scripts did not keep up.
        lua_lost_datagrams,
        /// Requests and connections of Lua applications that were refused, because too many were in progress or the process stops.
        lua_refused_requests,
        /// PROXY headers decoded.
        proxy_headers,
        /// Connections closed because they did not begin with the required PROXY header.
        proxy_header_faults,
        /// Open TLS sessions, with clients and with servers.
        tls_sessions_now,
        /// Completed TLS handshakes, with clients and with servers.
        tls_handshakes,
        /// Completed TLS handshakes that resumed an earlier session.
        tls_resumptions,
        /// TLS handshakes that failed: rejected, malformed or abandoned.
        tls_handshake_failures,
        /// TLS handshakes that timed out.
        tls_handshake_timeouts,
        /// TLS handshakes deferred to a later turn because the turn's budget for handshakes was used up.
        tls_handshakes_postponed,
        /// Plain HTTP requests on a port for TLS.
        tls_plain_http,
        /// Certificates of clients or servers that were rejected.
        tls_certificate_refusals,
        /// TLS connections that the peer ended with an alert.
        tls_alerts,
        /// TLS records that were damaged, oversized, malformed or unexpected.
        tls_record_faults,
        /// TLS connections that ended without close_notify; their last message may have been truncated.
        tls_truncations,
        /// TLS connections closed because their keys reached their usage limit. TLS 1.2 keys cannot be
        /// renewed.
        tls_keys_used_up,
        /// Changes of the settings that the worker has applied.
        settings_changes,
        /// Requests that had to continue with newer settings, because too many generations were in use.
        settings_adopted,
        /// Lines of the access log that were lost because the writer was too slow.
        access_lines_lost,
        /// Spans that the collector of traces has accepted.
        spans_exported,
        /// Spans that were lost because the collector did not accept them, or not fast enough.
        spans_lost,
        /// Broken invariants of this program, each handled by closing the connection.
        bugs,
    }
}

impl WorkerCounters {
    /// Counts the fault that ended a TLS connection.
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

    /// Counts a response by the class of its status.
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

/// The kinds of handlers whose calls are counted and timed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HandlerKind {
    /// A connection was accepted.
    Accept,
    /// A client sent bytes.
    DownstreamReceive,
    /// A server sent bytes.
    UpstreamReceive,
    /// A connection to a server was established.
    Connect,
    /// Output that had been blocked has drained.
    Drain,
    /// A connection ended.
    Close,
    /// A deadline or a timer expired.
    Due,
    /// Mail.
    Mail,
}

impl HandlerKind {
    /// All kinds, in display order.
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

    /// The name of the kind.
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

counters! {
    /// Counts of messages of one push hub for clients of one worker that do not read.
    pub struct HubCounters {
        /// Messages that had to wait because a client did not read.
        queued,
        /// Messages that were dropped because too many waited.
        dropped,
        /// Clients that were disconnected because they did not read.
        slow_closes,
    }
}

/// All counters of one worker.
#[derive(Default, Debug)]
pub struct Accounts {
    /// Events.
    pub counters: WorkerCounters,
    /// Calls, CPU time and queueing delay, by `HandlerKind`.
    pub handlers: [HandlerCounters; HandlerKind::ALL.len()],
    /// By push hub of the process; empty until the worker has started.
    hubs: OnceLock<Box<[HubCounters]>>,
    /// The worker serves no more.
    pub(crate) has_stopped: AtomicBool,
    /// The worker has not finished its turn for a long time.
    pub(crate) is_stuck: AtomicBool,
    /// The number of the profile that is limited to a route, for which the worker marks its thread; 0: none is taken.
    pub(crate) marks_route: AtomicU64,
    /// The worker's thread, for profiles; empty until it has started, and if it is unknown.
    pub thread: OnceLock<Thread>,
}

impl Accounts {
    /// The worker has this many push hubs. Only the first call has an effect: the hubs of a process stay the same.
    pub(crate) fn set_hubs(&self, count: usize) {
        let _ = self.hubs.set((0..count).map(|_| HubCounters::default()).collect());
    }

    /// The counters of a push hub.
    #[must_use]
    pub fn hub(&self, hub: u16) -> Option<&HubCounters> {
        self.hubs.get()?.get(usize::from(hub))
    }

    /// The calling thread is that of the worker.
    pub(crate) fn set_thread(&self) {
        if let Ok(thread) = sampler::this_thread() {
            // It is the same thread if it was set before.
            let _ = self.thread.set(thread);
        }
    }
}

impl TlsObserver for Accounts {
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
            Event::HandshakePostponed => counters.tls_handshakes_postponed.add(1),
            Event::Truncated => counters.tls_truncations.add(1),
            Event::Failed(fault) => counters.count_tls_fault(fault),
            Event::Bug => counters.bugs.add(1),
        }
    }

    fn log(&self, line: core::fmt::Arguments<'_>) {
        crate::log::warning(line);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exhausted_keys_are_not_counted_as_a_bug() {
        let counters = WorkerCounters::default();
        counters.count_tls_fault(Fault::Exhausted);
        counters.count_tls_fault(Fault::Bug);
        assert_eq!((counters.tls_keys_used_up.load(), counters.bugs.load()), (1, 1));
    }

    #[test]
    fn all_lists_each_handler_kind_at_its_index() {
        for (index, kind) in HandlerKind::ALL.iter().enumerate() {
            assert_eq!(*kind as usize, index, "{}", kind.name());
        }
    }
}
