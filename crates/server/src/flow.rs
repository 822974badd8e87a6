//! Read this file first. It shows the path of all data through a worker.
//!
//! A worker is one thread with one reactor. The reactor reports events of a socket as completions; [`Handler::handle`] below
//! calls the matching method of the worker. Each connection stays on one worker.
//!
//! ```text
//! bytes of a client (Received)
//!   -> carrier/http1/client.rs: decode the request head, then the body
//!      carrier/http2/client.rs: the same for the streams of a connection
//!      carrier/tcp.rs: without HTTP, choose the pool; then action/proxy/tcp.rs
//!   -> action/mod.rs: find the route (gate::router)
//!   -> action/handled.rs: what the route does in addition to its action: refuse the request, change its path and fields
//!   -> begin the action:
//!        action/respond.rs, redirect.rs   a complete response
//!        action/synthetic.rs              a response generated in pieces
//!        action/lua/                      a response of a Lua application
//!        action/websocket/, service.rs    101; the following bytes are messages for the action (take_switched_bytes)
//!        action/push/                     subscribe to a channel, publish; publications leave in `finish_push`
//!        action/proxy/                    pick a server, connect or reuse a connection, send the request
//!   -> carrier/client.rs: the messages of the response, for the requester
//!      carrier/internal_request.rs: a requester that is Tidegate itself: requests of Lua applications (tide.http)
//!   -> carrier/http1/response.rs, carrier/http2/response.rs: encode them into the client's output
//!
//! bytes of a server (Received)
//!   -> carrier/http1/server.rs: decode the response head and body
//!      carrier/http2/server.rs: the same for the streams of a connection
//!   -> action/proxy/response.rs: relay them to carrier/client.rs, as above
//!
//! datagrams (Datagram, DatagramFailed)
//!   -> action/lua/datagrams.rs: the socket of a script
//!      action/lua/lookups.rs: the answer of a name server
//!
//! the end of a connection (Closed, Finished) or of a deadline (Due)
//!   -> carrier/: what it means for the message in progress
//!   -> action/mod.rs (clients), action/proxy/response.rs (servers): cancel, retry, or send an error response
//!
//! mail of other workers (Woken)
//!   -> permits.rs: permits of servers; action/push/post.rs: subscriptions and publications
//!
//! pieces of files (Woken)
//!   -> action/lua/files.rs: the script that waits for them
//!
//! mail of other threads: start.rs takes it between two turns
//!   -> new settings (apply_settings.rs), TLS files, the state of a server, the verdict on a password, the stop
//! ```
//!
//! In: completions. Out: calls of the methods in the files named above. Never: decides anything about HTTP.

use tidegate_reactor::{Completion, Handler, Reactor, Room, Shortage, SockId};

use crate::counters::HandlerKind;
use crate::timers::WorkerTimer;
use crate::worker::{Work, Worker};

impl<R: Reactor> Handler<R> for Worker {
    fn handle(&mut self, reactor: &mut R, completion: Completion<'_>) {
        self.account_begin(reactor, &completion);
        let sock = self.mark_completion(&completion);
        match completion {
            Completion::Accepted { listener, sock, peer } => {
                self.accept(reactor, listener, sock, peer);
            }
            Completion::Received { sock, bytes } => {
                if self.conns.is_upstream(sock) {
                    self.upstream_received(reactor, sock, bytes);
                } else {
                    self.client_received(reactor, sock, bytes);
                }
            }
            Completion::Relayed { sock, count } => self.tcp_relayed(reactor, sock, count),
            Completion::Connected { sock } => self.upstream_connected(reactor, sock),
            Completion::Finished { sock } => {
                if self.conns.is_upstream(sock) {
                    self.upstream_finished(reactor, sock);
                } else {
                    self.client_finished(reactor, sock);
                }
            }
            Completion::HungUp { sock } => {
                // A server's response is still relayed to its end.
                if !self.conns.is_upstream(sock) {
                    self.client_hung_up(reactor, sock);
                }
            }
            Completion::Drained { sock } => {
                if self.conns.is_upstream(sock) {
                    self.upstream_drained(reactor, sock);
                } else {
                    self.client_output_drained(reactor, sock);
                }
            }
            Completion::Closed { sock, reason } => {
                if self.conns.is_upstream(sock) {
                    self.upstream_closed(reactor, sock, reason);
                } else {
                    self.client_closed(reactor, sock);
                }
            }
            Completion::Due { sock } => {
                if self.conns.is_upstream(sock) {
                    self.upstream_due(reactor, sock);
                } else {
                    self.client_due(reactor, sock);
                }
            }
            Completion::Datagram { socket, bytes } => {
                self.datagram_received(reactor, socket, bytes);
            }
            Completion::DatagramFailed { socket, fault } => {
                self.datagram_failed(reactor, socket, fault);
            }
            Completion::Timer { timer } => self.handle_timer(reactor, timer),
            Completion::Woken => {
                self.receive_permits(reactor);
                self.receive_push_mail(reactor);
                self.receive_lua_mail(reactor);
                self.receive_files();
            }
            Completion::AcceptPaused { .. } => self.accounts.counters.accept_pauses.add(1),
        }
        self.settle(reactor);
        self.mark_after_completion(sock);
        self.account_end(reactor);
    }

    fn note_next(&mut self, sock: Option<SockId>) {
        self.mark_sock(sock);
    }

    fn has_room(&self, reactor: &R) -> bool {
        self.has_room_for_client(reactor)
    }

    fn make_room(&mut self, reactor: &mut R, shortage: Shortage) -> Room {
        let room = self.make_room_for_client(reactor, shortage);
        self.settle(reactor);
        room
    }
}

impl Worker {
    /// A timer of the worker has expired.
    fn handle_timer<R: Reactor>(&mut self, reactor: &mut R, number: u32) {
        match WorkerTimer::of(number) {
            Some(WorkerTimer::Grace) => self.end_grace(reactor),
            Some(WorkerTimer::Idle) => self.close_idle(reactor),
            Some(WorkerTimer::Listeners) => self.close_listeners(reactor),
            Some(WorkerTimer::Permits) => self.send_permits_again(reactor),
            Some(WorkerTimer::Slots) => self.retry_short_pools(reactor),
            Some(WorkerTimer::RemovedListeners) => self.close_idle_of_removed(reactor),
            Some(WorkerTimer::Push) => self.send_push_mail(reactor),
            // `finish_push` publishes what is due, and sets the timer again.
            Some(WorkerTimer::Conflation) => self.push.forget_due(),
            Some(WorkerTimer::Lua) => self.collect_due_apps(reactor),
            Some(WorkerTimer::OwnRequests) => self.own_due(reactor),
            Some(WorkerTimer::Bandwidth) => self.resume_paced(reactor),
            Some(WorkerTimer::Names) => self.lookups_due(reactor),
            Some(WorkerTimer::Avoidance) => self.avoidance_ended(reactor),
            // Timers of a layer between the reactor and the worker.
            None => {}
        }
    }

    /// Does the work that handlers queued, until the queue is empty.
    pub(crate) fn settle<R: Reactor>(&mut self, reactor: &mut R) {
        loop {
            while let Some(work) = self.work.pop() {
                self.mark_work(&work);
                match work {
                    Work::Resume(to) => self.resume_client(reactor, to),
                    Work::Drained(to) => self.stream_drained(reactor, to),
                    Work::Settle(sock) if self.conns.is_upstream(sock) => {
                        self.settle_http2_server(reactor, sock);
                    }
                    Work::Settle(sock) => self.settle_http2(reactor, sock),
                    Work::ResumeServer(up) => self.resume_response(reactor, up),
                    Work::ServeQueue(pool) => self.serve_queue(reactor, pool),
                }
            }
            self.unmark();
            let has_ended = self.end_lua_clients(reactor) | self.end_hooked_tunnels(reactor);
            if !self.serve_waiting(reactor) && !has_ended {
                break;
            }
        }
    }

    /// Counts the handler call. For one call in `SAMPLE_EVERY`, records when it began.
    fn account_begin<R: Reactor>(&mut self, reactor: &R, completion: &Completion<'_>) {
        let kind = match completion {
            Completion::Accepted { .. } | Completion::AcceptPaused { .. } => HandlerKind::Accept,
            Completion::Received { sock, .. } | Completion::Relayed { sock, .. } => {
                if self.conns.is_upstream(*sock) {
                    HandlerKind::UpstreamReceive
                } else {
                    HandlerKind::DownstreamReceive
                }
            }
            Completion::Datagram { .. } | Completion::DatagramFailed { .. } => {
                HandlerKind::UpstreamReceive
            }
            Completion::Connected { .. } => HandlerKind::Connect,
            Completion::Drained { .. } => HandlerKind::Drain,
            Completion::Finished { .. } | Completion::HungUp { .. } | Completion::Closed { .. } => {
                HandlerKind::Close
            }
            Completion::Due { .. } | Completion::Timer { .. } => HandlerKind::Due,
            Completion::Woken => HandlerKind::Mail,
        };
        self.accounts.handlers[kind as usize].calls.add(1);
        self.sampler.begin(reactor, kind);
    }

    /// Records how long the sampled call took.
    fn account_end<R: Reactor>(&mut self, reactor: &R) {
        if let Some((kind, wait_ns, busy_ns)) = self.sampler.end(reactor) {
            self.accounts.handlers[kind as usize].add_sample(wait_ns, busy_ns);
        }
    }
}
