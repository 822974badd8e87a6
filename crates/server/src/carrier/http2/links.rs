//! The parts of the worker through which streams reach their connections.
//! In: borrowed parts of the worker. Out: the protocol state and the output of a connection, its timeouts, its deadline.
//! Never: changes an action, an exchange or a record. The methods of streams return the steps that the worker must take with
//! these.

use tidegate_base::limits::OUTPUT_FLUSH_BYTES;
use tidegate_base::{Moment, Span};
use tidegate_reactor::{Reactor, SockId};

use crate::action::proxy::exchange::Exchange;
use crate::buffers::BufferPool;
use crate::carrier::http2::client::Http2Client;
use crate::carrier::http2::clients::Http2Clients;
use crate::carrier::http2::server::Http2Server;
use crate::carrier::http2::servers::Http2Servers;
use crate::carrier::output::is_blocked;
use crate::checked_slab::CheckedSlab;
use crate::connection::Connections;
use crate::settings::Settings;
use crate::worker::{Work, Worker};

/// Maximum number of bytes of a body that are put into the output at once. Then the output is sent, if it can be.
pub(super) const SEND_BYTES_MAX: usize = OUTPUT_FLUSH_BYTES;
/// Output of a connection is gathered up to this size. It is the content of one TLS record.
pub(super) const GATHERED_BYTES_MAX: usize = 16 << 10;

/// The parts of a worker that streams use.
pub(in crate::carrier) struct Links<'w, R> {
    /// The sockets.
    pub(super) reactor: &'w mut R,
    /// The connections of the streams.
    pub(super) conns: &'w mut Connections,
    /// The settings of the listeners and pools of the connections.
    pub(super) settings: &'w Settings,
    /// Spare buffers for the data that waits on the streams.
    pub(super) buffers: &'w mut BufferPool,
    /// The work that streams have queued for the end of the handler call.
    pub(super) work: &'w mut Vec<Work>,
    /// The requests that are sent to servers.
    pub(super) exchanges: &'w CheckedSlab<Exchange>,
}

impl Worker {
    /// The streams of clients, and the parts of the worker through which they reach their connections.
    pub(in crate::carrier) fn client_streams<'w, R>(
        &'w mut self,
        reactor: &'w mut R,
    ) -> (&'w mut Http2Clients, Links<'w, R>) {
        let (clients, _, links) = self.streams(reactor);
        (clients, links)
    }

    /// The streams to servers, and the parts of the worker through which they reach their connections.
    pub(in crate::carrier) fn server_streams<'w, R>(
        &'w mut self,
        reactor: &'w mut R,
    ) -> (&'w mut Http2Servers, Links<'w, R>) {
        let (_, servers, links) = self.streams(reactor);
        (servers, links)
    }

    fn streams<'w, R>(
        &'w mut self,
        reactor: &'w mut R,
    ) -> (&'w mut Http2Clients, &'w mut Http2Servers, Links<'w, R>) {
        let links = Links {
            reactor,
            conns: &mut self.conns,
            settings: &self.settings,
            buffers: &mut self.buffers,
            work: &mut self.work,
            exchanges: &self.exchanges,
        };
        (&mut self.http2_clients, &mut self.http2_servers, links)
    }
}

/// Connections of clients.
impl<R: Reactor> Links<'_, R> {
    /// The state and the output of a connection; `None` if the connection has been closed.
    pub(super) fn client(&mut self, sock: SockId) -> Option<(&mut Http2Client, &mut Vec<u8>)> {
        Some((self.conns.http2_client(sock)?, self.reactor.output(sock)?))
    }

    /// How long a client may take nothing, by `timeouts.body` of its listener.
    pub(super) fn client_patience(&mut self, sock: SockId) -> Option<Span> {
        let down = self.conns.downstream(sock)?;
        Some(self.settings.of(down.era()).listener(down.listener).timeouts.body)
    }

    /// Makes the deadline of a connection `at` if it is later.
    pub(super) fn hasten_client(&mut self, sock: SockId, at: Moment) {
        if let Some(http2) = self.conns.http2_client(sock)
            && at < http2.due_at
        {
            http2.due_at = at;
            self.reactor.set_deadline(sock, at);
        }
    }

    /// Makes the current handler call settle a connection.
    pub(super) fn settle_client_later(&mut self, sock: SockId) {
        settle_client_later(self.conns, self.work, sock);
    }

    /// Sends as much of `data` as the windows and the output admit. Returns how many bytes that were; all of them if
    /// the stream cannot send any more, because a head has ended it or the client has reset it.
    pub(super) fn admit_to_client(
        &mut self,
        sock: SockId,
        number: u32,
        data: &[u8],
        ends: bool,
    ) -> usize {
        let now = self.reactor.now();
        let mut admitted = 0;
        loop {
            let piece = &data[admitted..data.len().min(admitted + SEND_BYTES_MAX)];
            let is_last = admitted + piece.len() == data.len();
            let is_full = is_blocked(self.reactor, sock);
            let Some((http2, out)) = self.client(sock) else { return data.len() };
            if is_full && !piece.is_empty() {
                http2.connection.wait_writable(number);
                return admitted;
            }
            let sent = http2.connection.send_data(now, out, number, piece, ends && is_last);
            let Some(sent) = sent else { return data.len() };
            admitted += sent;
            if is_last || sent < piece.len() {
                return admitted;
            }
        }
    }
}

/// Connections to servers.
impl<R: Reactor> Links<'_, R> {
    /// The state and the output of a connection; `None` if the connection has been closed.
    pub(super) fn server(&mut self, sock: SockId) -> Option<(&mut Http2Server, &mut Vec<u8>)> {
        Some((self.conns.http2_server(sock)?, self.reactor.output(sock)?))
    }

    /// Whether a connection uses TLS.
    pub(super) fn is_server_secure(&mut self, sock: SockId) -> bool {
        let up = self.conns.upstream(sock);
        up.is_some_and(|up| self.settings.newest().pool(up.pool).tls.is_some())
    }

    /// Makes the deadline of a connection `at` if it is later.
    pub(super) fn hasten_server(&mut self, sock: SockId, at: Moment) {
        if let Some(http2) = self.conns.http2_server(sock)
            && at < http2.due_at
        {
            http2.due_at = at;
            self.reactor.set_deadline(sock, at);
        }
    }

    /// Makes the current handler call settle a connection.
    pub(super) fn settle_server_later(&mut self, sock: SockId) {
        settle_server_later(self.conns, self.work, sock);
    }
}

/// Makes the current handler call settle the connection of a client.
pub(super) fn settle_client_later(conns: &mut Connections, work: &mut Vec<Work>, sock: SockId) {
    if let Some(http2) = conns.http2_client(sock)
        && !core::mem::replace(&mut http2.is_settling, true)
    {
        work.push(Work::Settle(sock));
    }
}

/// Makes the current handler call settle the connection to a server.
pub(super) fn settle_server_later(conns: &mut Connections, work: &mut Vec<Work>, sock: SockId) {
    if let Some(http2) = conns.http2_server(sock)
        && !core::mem::replace(&mut http2.is_settling, true)
    {
        work.push(Work::Settle(sock));
    }
}
