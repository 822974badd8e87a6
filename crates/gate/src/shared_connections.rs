//! Connections to servers that carry several requests at a time (HTTP/2), by server: which of them takes the next
//! request, and when another one is opened.
//! In: connections that open, end, stall, or change how many requests they take. Out: a connection, the advice to open one,
//! or the advice to wait.
//! Never: owns a socket; names a connection that takes no more requests (GOAWAY).
//! Limits: `connections_max` connections to each server; `streams_max` requests on each.
//! Invariant: a connection is in one list, once, from its connect until it takes no more requests.
//!
//! The connection with the fewest requests is next, and of several the oldest: in quiet times, the younger ones become idle and
//! close. Another one is opened only if all have as many requests as they take, because each costs the server memory and a
//! handshake. Until a server has announced its limit on a connection, the limit is assumed to be the last one that it announced.
//! A connection that has stalled gets requests only if there is no other one and no other one may be opened: one request whose
//! handler reads nothing must not hold up the others.

use tidegate_base::{Moment, Span};

use crate::permits;

/// A connection that sends nothing for this long has stalled. A connection that only sends as fast as its peer reads has not.
pub const STALL_SPAN: Span = Span::from_millis(250);

/// Since when a connection sends nothing; `Moment::NEVER` while it sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stall {
    /// The server does not take the output, whatever it contains.
    pub output_at: Moment,
    /// The window of the connection is used up, so bodies must wait.
    pub window_at: Moment,
}

impl Stall {
    /// The connection sends.
    pub const NONE: Self = Self { output_at: Moment::NEVER, window_at: Moment::NEVER };
}

/// What the connection of a request must allow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Demand {
    /// An attempt of the request failed then, so it is sent only over a connection whose server has responded since, or that is
    /// being opened, if there is such a connection or another one may be opened.
    pub since: Moment,
    /// The current time.
    pub now: Moment,
    /// The request has a body, which needs the window of the connection.
    pub has_body: bool,
}

/// One connection.
struct Connection<T> {
    id: T,
    /// Requests on the connection, and those that wait until it is established.
    streams: u32,
    /// Maximum number of requests that the connection takes.
    streams_max: u32,
    /// When bytes of the server last arrived; `Moment::NEVER` until the connection is established.
    last_byte_at: Moment,
    /// Since when the connection sends nothing.
    stall: Stall,
}

impl<T> Connection<T> {
    fn has_room(&self) -> bool {
        self.streams < self.streams_max
    }

    /// Whether the request would wait for other requests.
    fn has_stalled(&self, demand: &Demand) -> bool {
        let has_passed = |at: Moment| at.after(STALL_SPAN) <= demand.now;
        has_passed(self.stall.output_at) || demand.has_body && has_passed(self.stall.window_at)
    }
}

/// One server.
struct Server<T> {
    /// In the order of their connects.
    connections: Vec<Connection<T>>,
    /// The limit that the server announced last.
    streams_max: u32,
    /// The server chose HTTP/1.1 last.
    speaks_http1: bool,
}

/// The connection for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SharedChoice<T> {
    /// To this connection.
    On(T),
    /// To a connection that must be opened.
    New,
    /// To no connection now: all of them are full, and no other one may be opened.
    Full,
}

/// The shared connections of one pool and one worker.
pub struct SharedConnections<T> {
    servers: Vec<Server<T>>,
    /// Maximum number of connections to a server.
    connections_max: usize,
    /// Maximum number of requests on a connection, whatever the server allows.
    streams_max: u32,
}

impl<T: Copy + PartialEq> SharedConnections<T> {
    /// Creates empty lists for `servers` servers.
    #[must_use]
    pub fn new(servers: usize, connections_max: usize, streams_max: u32) -> Self {
        let server = || Server { connections: Vec::new(), streams_max, speaks_http1: false };
        let servers = core::iter::repeat_with(server).take(servers).collect();
        Self { servers, connections_max, streams_max }
    }

    /// Has lists for `servers` servers from now on, with other limits for connections that are opened from now on.
    pub fn change(&mut self, servers: usize, connections_max: usize, streams_max: u32) {
        let server = || Server { connections: Vec::new(), streams_max, speaks_http1: false };
        let used = self.servers.iter().rposition(|server| !server.connections.is_empty());
        self.servers.resize_with(servers.max(used.map_or(0, |last| last + 1)), server);
        for server in &mut self.servers {
            server.streams_max = server.streams_max.min(streams_max);
        }
        (self.connections_max, self.streams_max) = (connections_max, streams_max);
    }

    /// Leaves worker `own` of `workers` with its share of the limit: at least one connection to each server, because workers do not
    /// lend each other connections.
    pub fn share(&mut self, own: usize, workers: usize) {
        let most = u32::try_from(self.connections_max).unwrap_or(u32::MAX);
        self.connections_max = permits::share(most, own, workers, 0).max(1) as usize;
    }

    /// Forgets the history of `server`: the index names another one now, or connections are set up in another way.
    pub fn forget(&mut self, server: usize) {
        let streams_max = self.streams_max;
        if let Some(server) = self.servers.get_mut(server) {
            (server.streams_max, server.speaks_http1) = (streams_max, false);
        }
    }

    /// The connections to `server`.
    #[must_use]
    pub fn connection_count(&self, server: usize) -> usize {
        self.servers.get(server).map_or(0, |server| server.connections.len())
    }

    /// The connection for the next request to `server`.
    #[must_use]
    pub fn choose(&self, server: usize, demand: &Demand) -> SharedChoice<T> {
        let Some(server) = self.servers.get(server) else { return SharedChoice::New };
        if server.speaks_http1 {
            return SharedChoice::New;
        }
        let roomy = || server.connections.iter().filter(|open| open.has_room());
        let fitting = roomy()
            .filter(|open| open.last_byte_at >= demand.since && !open.has_stalled(demand))
            .min_by_key(|open| open.streams);
        if let Some(open) = fitting {
            return SharedChoice::On(open.id);
        }
        if server.connections.len() < self.connections_max {
            return SharedChoice::New;
        }
        let any = roomy().min_by_key(|open| (open.has_stalled(demand), open.streams));
        any.map_or(SharedChoice::Full, |open| SharedChoice::On(open.id))
    }

    /// Adds a connection whose connect was begun.
    pub fn add(&mut self, server: usize, id: T) {
        if let Some(server) = self.servers.get_mut(server) {
            let streams_max = server.streams_max;
            let (last_byte_at, stall) = (Moment::NEVER, Stall::NONE);
            let open = Connection { id, streams: 0, streams_max, last_byte_at, stall };
            server.connections.push(open);
        }
    }

    /// Removes a connection that takes no more requests. Returns whether it was there.
    pub fn remove(&mut self, server: usize, id: T) -> bool {
        let Some(server) = self.servers.get_mut(server) else { return false };
        let before = server.connections.len();
        server.connections.retain(|open| open.id != id);
        server.connections.len() < before
    }

    /// Records that a request is sent over the connection.
    pub fn note_start(&mut self, server: usize, id: T) {
        if let Some(open) = self.find(server, id) {
            open.streams += 1;
        }
    }

    /// Records that a request has left the connection.
    pub fn note_end(&mut self, server: usize, id: T) {
        if let Some(open) = self.find(server, id) {
            debug_assert!(open.streams > 0, "a request ended that never began");
            open.streams = open.streams.saturating_sub(1);
        }
    }

    /// Records that bytes of the server have arrived on the connection.
    pub fn note_heard(&mut self, server: usize, id: T, now: Moment) {
        if let Some(open) = self.find(server, id) {
            open.last_byte_at = now;
        }
    }

    /// Records since when the connection sends nothing.
    pub fn note_stall(&mut self, server: usize, id: T, stall: Stall) {
        if let Some(open) = self.find(server, id) {
            open.stall = stall;
        }
    }

    /// Records how many requests the server takes on the connection; `None` if it announces no limit.
    pub fn note_limit(&mut self, server: usize, id: T, streams_max: Option<u32>) {
        let most = streams_max.unwrap_or(u32::MAX).min(self.streams_max);
        if let Some(open) = self.find(server, id) {
            open.streams_max = most;
        }
        if let Some(server) = self.servers.get_mut(server) {
            // A server that takes no request for a moment will take some on its next connection.
            server.streams_max = most.max(1);
        }
    }

    /// Records which protocol the server has chosen.
    pub fn note_protocol(&mut self, server: usize, is_http1: bool) {
        if let Some(server) = self.servers.get_mut(server) {
            server.speaks_http1 = is_http1;
        }
    }

    /// Whether no connection to `server` takes another request and no other connection may be opened.
    #[must_use]
    pub fn is_full(&self, server: usize) -> bool {
        let Some(server) = self.servers.get(server) else { return false };
        let may_open = server.speaks_http1 || server.connections.len() < self.connections_max;
        !may_open && !server.connections.iter().any(Connection::has_room)
    }

    /// The connections to `server`, with the number of their requests. For tests.
    pub fn connections(&self, server: usize) -> impl Iterator<Item = (T, u32)> {
        let connections = self.servers.get(server).map(|server| &server.connections[..]);
        connections.unwrap_or_default().iter().map(|open| (open.id, open.streams))
    }

    fn find(&mut self, server: usize, id: T) -> Option<&mut Connection<T>> {
        self.servers.get_mut(server)?.connections.iter_mut().find(|open| open.id == id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(seconds: u64) -> Moment {
        Moment::from_nanos(seconds * 1_000_000_000)
    }

    const fn demand(since: Moment) -> Demand {
        Demand { since, now: at(10), has_body: false }
    }

    fn opened(connections: &[(u32, u32)]) -> SharedConnections<u32> {
        let mut shared = SharedConnections::new(1, 3, 10);
        for &(id, streams) in connections {
            shared.add(0, id);
            shared.note_heard(0, id, at(5));
            (0..streams).for_each(|_| shared.note_start(0, id));
        }
        shared
    }

    #[test]
    fn least_loaded_connection_is_next_and_the_oldest_of_several() {
        for (connections, expected) in [
            (&[][..], SharedChoice::New),
            (&[(1, 0)], SharedChoice::On(1)),
            (&[(1, 3), (2, 3)], SharedChoice::On(1)),
            (&[(1, 4), (2, 3)], SharedChoice::On(2)),
            (&[(1, 10), (2, 9)], SharedChoice::On(2)),
            (&[(1, 10), (2, 10)], SharedChoice::New),
            (&[(1, 10), (2, 10), (3, 10)], SharedChoice::Full),
        ] {
            let shared = opened(connections);
            assert_eq!(shared.choose(0, &demand(Moment::ZERO)), expected, "{connections:?}");
            assert_eq!(shared.is_full(0), expected == SharedChoice::Full);
        }
    }

    #[test]
    fn request_whose_attempt_failed_avoids_connections_not_heard_since() {
        let mut shared = opened(&[(1, 0), (2, 5)]);
        assert_eq!(shared.choose(0, &demand(at(5))), SharedChoice::On(1));
        assert_eq!(shared.choose(0, &demand(at(6))), SharedChoice::New);
        shared.note_heard(0, 2, at(7));
        assert_eq!(shared.choose(0, &demand(at(6))), SharedChoice::On(2));
        shared.add(0, 3);
        assert_eq!(shared.choose(0, &demand(at(8))), SharedChoice::On(3), "it is being opened");
        assert!(shared.remove(0, 3) && !shared.remove(0, 3));
        let shared = opened(&[(1, 0), (2, 5), (3, 1)]);
        assert_eq!(
            shared.choose(0, &demand(at(6))),
            SharedChoice::On(1),
            "no other connection may be opened"
        );
    }

    #[test]
    fn stalled_connection_gets_a_request_only_if_there_is_no_other() {
        let output = Stall { output_at: at(9), ..Stall::NONE };
        let window = Stall { window_at: at(9), ..Stall::NONE };
        let moment = Stall { output_at: at(10), window_at: at(10) };
        let (get, post) = (demand(Moment::ZERO), Demand { has_body: true, ..demand(Moment::ZERO) });
        for (connections, stall, demand, expected) in [
            (&[(1, 0), (2, 5)][..], output, get, SharedChoice::On(2)),
            (&[(1, 0), (2, 5)], window, get, SharedChoice::On(1)),
            (&[(1, 0), (2, 5)], window, post, SharedChoice::On(2)),
            (&[(1, 0), (2, 5)], moment, post, SharedChoice::On(1)),
            (&[(1, 0)], output, get, SharedChoice::New),
            (&[(1, 0), (2, 10)], output, get, SharedChoice::New),
            (&[(1, 0), (2, 10), (3, 10)], output, get, SharedChoice::On(1)),
            (&[(1, 0), (2, 9), (3, 10)], output, get, SharedChoice::On(2)),
        ] {
            let mut shared = opened(connections);
            shared.note_stall(0, 1, stall);
            assert_eq!(shared.choose(0, &demand), expected, "{connections:?} {stall:?}");
            assert!(!shared.is_full(0));
            shared.note_stall(0, 1, Stall::NONE);
            assert_eq!(shared.choose(0, &demand), SharedChoice::On(1));
        }
    }

    #[test]
    fn stated_limit_holds_at_once_and_for_later_connections() {
        let mut shared = opened(&[(1, 2)]);
        shared.note_limit(0, 1, Some(2));
        assert_eq!(shared.choose(0, &demand(Moment::ZERO)), SharedChoice::New);
        shared.add(0, 2);
        (0..2).for_each(|_| shared.note_start(0, 2));
        assert_eq!(
            shared.choose(0, &demand(Moment::ZERO)),
            SharedChoice::New,
            "the limit is assumed"
        );
        shared.note_limit(0, 2, None);
        shared.note_end(0, 1);
        assert_eq!(shared.choose(0, &demand(Moment::ZERO)), SharedChoice::On(1));
        shared.note_limit(0, 1, Some(0));
        assert_eq!(shared.choose(0, &demand(Moment::ZERO)), SharedChoice::On(2));
        assert_eq!(shared.connections(0).collect::<Vec<_>>(), [(1, 1), (2, 2)]);
    }

    #[test]
    fn workers_share_the_limit_and_have_one_connection_at_least() {
        for (connections_max, workers, expected) in
            [(10, 4, [3, 3, 2, 2].as_slice()), (2, 3, &[1, 1, 1]), (7, 1, &[7])]
        {
            let shares: Vec<usize> = (0..workers)
                .map(|own| {
                    let mut shared = SharedConnections::<u32>::new(1, connections_max, 1);
                    shared.share(own, workers);
                    shared.connections_max
                })
                .collect();
            assert_eq!(shares, expected);
        }
    }

    #[test]
    fn server_that_chose_http1_gets_a_connection_for_each_request() {
        let mut shared = opened(&[(1, 0)]);
        shared.note_protocol(0, true);
        assert_eq!(shared.choose(0, &demand(Moment::ZERO)), SharedChoice::New);
        shared.note_protocol(0, false);
        assert_eq!(shared.choose(0, &demand(Moment::ZERO)), SharedChoice::On(1));
    }
}
