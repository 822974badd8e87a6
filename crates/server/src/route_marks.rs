//! Marks the thread of a worker while it acts for requests of the route that a profile is limited to.
//! In: the connections and requesters that the worker acts for. Out: the mark of the thread, which the sampler reads.
//! Never: costs anything but a test of a flag without such a profile; changes what the worker does.
//! Limits: a byte for each connection, as long as such a profile is taken.
//! Invariants: what begins a piece of work sets the mark, and what acts for another requester in the middle of it restores the
//! mark. Work that sets none is not marked. Work of a connection whose request has no route yet, or has ended, has the mark of
//! its last request with a route.

#[cfg(test)]
mod tests;

use std::sync::atomic::Ordering;

use tidegate_base::Id;
use tidegate_reactor::sampler::{is_thread_marked, mark_thread};
use tidegate_reactor::{Completion, SockId};

use crate::action::proxy::exchange::Exchange;
use crate::action::push::PushSession;
use crate::carrier::http2::server_stream::ServerStream;
use crate::requester::Requester;
use crate::worker::{Work, Worker};

/// The marks of a worker's connections.
#[derive(Default)]
pub(crate) struct RouteMarks {
    /// The number of the profile that is limited to a route; 0: none is taken.
    profile: u64,
    /// By index of the socket: the last request of the connection belongs to the route.
    of_socks: Vec<bool>,
    /// What the thread's mark was set to, in order.
    #[cfg(test)]
    trail: Vec<bool>,
}

impl RouteMarks {
    /// Whether a profile is limited to a route.
    #[inline]
    pub(crate) fn are_on(&self) -> bool {
        self.profile != 0
    }

    /// Begins the marks of a profile, or ends them. Those of an earlier profile are forgotten.
    fn switch(&mut self, profile: u64) {
        self.profile = profile;
        self.of_socks = Vec::new();
        self.mark(false);
    }

    fn mark(&mut self, is_marked: bool) {
        mark_thread(is_marked);
        #[cfg(test)]
        self.trail.push(is_marked);
    }

    fn of(&self, sock: SockId) -> bool {
        self.of_socks.get(sock.index as usize).copied().unwrap_or(false)
    }

    fn set(&mut self, sock: SockId, is_marked: bool) {
        let index = sock.index as usize;
        if is_marked && index >= self.of_socks.len() {
            self.of_socks.resize(index + 1, false);
        }
        if let Some(mark) = self.of_socks.get_mut(index) {
            *mark = is_marked;
        }
    }

    /// The worker acts for a request. `is_marked`: whether its route is that of the profile; `None`: it has no route yet.
    pub(crate) fn note_request(&mut self, to: Requester, is_marked: Option<bool>) {
        let is_own = to.as_own().is_some();
        let is_marked = is_marked.unwrap_or_else(|| !is_own && self.of(to.sock));
        if !is_own {
            self.set(to.sock, is_marked);
        }
        self.mark(is_marked);
    }
}

impl Worker {
    /// The worker is about to act for a connection, or for none.
    #[inline]
    pub(crate) fn mark_sock(&mut self, sock: Option<SockId>) {
        let profile = self.accounts.marks_route.load(Ordering::Relaxed);
        if profile != self.route_marks.profile {
            self.route_marks.switch(profile);
        }
        if profile != 0 {
            self.mark_sock_now(sock);
        }
    }

    /// The worker is about to act for a completion. Returns the connection with which the reactor goes on after it.
    #[inline]
    pub(crate) fn mark_completion(&mut self, completion: &Completion<'_>) -> Option<SockId> {
        if !self.route_marks.are_on() {
            return None;
        }
        let (sock, goes_on) = match completion {
            Completion::Accepted { sock, .. } => {
                self.route_marks.set(*sock, false);
                (None, false)
            }
            Completion::Received { sock, .. }
            | Completion::Relayed { sock, .. }
            | Completion::Connected { sock }
            | Completion::Finished { sock }
            | Completion::HungUp { sock }
            | Completion::Drained { sock } => (Some(*sock), true),
            Completion::Closed { sock, .. } | Completion::Due { sock } => (Some(*sock), false),
            Completion::Datagram { .. }
            | Completion::DatagramFailed { .. }
            | Completion::Timer { .. }
            | Completion::Woken
            | Completion::AcceptPaused { .. } => (None, false),
        };
        self.mark_sock_now(sock);
        sock.filter(|_| goes_on)
    }

    /// The work for a completion has ended. The reactor may receive more from `sock`.
    #[inline]
    pub(crate) fn mark_after_completion(&mut self, sock: Option<SockId>) {
        if self.route_marks.are_on() {
            self.mark_sock_now(sock);
        }
    }

    /// The worker is about to send what it has gathered for a connection.
    #[inline]
    pub(crate) fn mark_gathered(&mut self, sock: SockId) {
        if self.route_marks.are_on() {
            self.mark_sock_now(Some(sock));
        }
    }

    /// The worker acts for no connection and no requester any more.
    #[inline]
    pub(crate) fn unmark(&mut self) {
        if self.route_marks.are_on() {
            self.route_marks.mark(false);
        }
    }

    /// Whether the current work is marked, for `restore_mark` after work for another requester in the middle of it.
    #[inline]
    pub(crate) fn current_mark(&self) -> bool {
        self.route_marks.are_on() && is_thread_marked()
    }

    /// Work for another requester has ended, and the work goes on that had the mark `earlier`.
    #[inline]
    pub(crate) fn restore_mark(&mut self, earlier: bool) {
        if self.route_marks.are_on() {
            self.route_marks.mark(earlier);
        }
    }

    /// The worker is about to do this work.
    #[inline]
    pub(crate) fn mark_work(&mut self, work: &Work) {
        if !self.route_marks.are_on() {
            return;
        }
        match work {
            Work::Resume(to) | Work::Drained(to) => self.mark_requester(*to),
            Work::Settle(sock) => self.mark_sock_now(Some(*sock)),
            Work::ResumeServer(up) if up.is_stream() => self.mark_server_stream(up.stream),
            Work::ResumeServer(up) => self.mark_sock_now(Some(up.sock)),
            // Each exchange of the queue that gets a server marks its own route.
            Work::ServeQueue(_) => self.route_marks.mark(false),
        }
    }

    /// The worker is about to act for a requester.
    #[inline]
    pub(crate) fn mark_requester(&mut self, to: Requester) {
        if self.route_marks.are_on() {
            let is_marked = self.is_of_marked_route(to);
            self.route_marks.note_request(to, is_marked);
        }
    }

    /// The worker is about to act for an exchange.
    #[inline]
    pub(crate) fn mark_exchange(&mut self, id: Id<Exchange>) {
        if self.route_marks.are_on()
            && let Some(exchange) = self.exchanges.find(id)
        {
            let to = exchange.requester;
            self.mark_requester(to);
        }
    }

    /// The worker is about to act for the exchange of a stream to a server.
    #[inline]
    pub(crate) fn mark_server_stream(&mut self, id: Id<ServerStream>) {
        if self.route_marks.are_on()
            && let Some(exchange) = self.http2_servers.exchange(id)
        {
            self.mark_exchange(exchange);
        }
    }

    /// The worker is about to act for a session of a push hub.
    #[inline]
    pub(crate) fn mark_session(&mut self, id: Id<PushSession>) {
        if self.route_marks.are_on()
            && let Some(session) = self.push.sessions.find(id)
        {
            let to = session.requester();
            self.mark_requester(to);
        }
    }

    /// A request is sent over this connection to a server.
    #[inline]
    pub(crate) fn mark_server(&mut self, sock: SockId, to: Requester) {
        if self.route_marks.are_on() {
            let is_marked = self.is_of_marked_route(to).unwrap_or(false);
            self.route_marks.set(sock, is_marked);
        }
    }

    fn mark_sock_now(&mut self, sock: Option<SockId>) {
        let Some(sock) = sock else { return self.route_marks.mark(false) };
        let exchange = self.conns.upstream(sock).map(|up| up.exchange);
        let to = match exchange {
            None => Some(Requester::connection(sock)),
            // No exchange, or a connection that several exchanges share.
            Some(id) => self.exchanges.find(id).map(|exchange| exchange.requester),
        };
        if let Some(is_marked) = to.and_then(|to| self.is_of_marked_route(to)) {
            self.route_marks.set(sock, is_marked);
        }
        let is_marked = self.route_marks.of(sock);
        self.route_marks.mark(is_marked);
    }
}
