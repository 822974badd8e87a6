//! Connections to servers that send nothing: requests use other connections then, if there are any.
//! In: the output that waits for a server; the window of the connection. Out: a note for the pool's `shared`.
//! Never: moves a request that a connection has got.

use tidegate_base::Moment;
use tidegate_base::limits::OUTPUT_PAUSE_BYTES;
use tidegate_gate::shared_connections::Stall;
use tidegate_reactor::SockId;

use crate::carrier::http2::server::Http2Server;
use crate::connection::ServerCarrier;
use crate::worker::Worker;

impl Http2Server {
    /// Since when nothing is sent, if `pending` bytes of output wait for the server.
    fn stall_with(&self, now: Moment, pending: usize) -> Stall {
        let since = |has_stalled: bool, at: Moment| match has_stalled {
            true => at.min(now),
            false => Moment::NEVER,
        };
        Stall {
            output_at: since(pending >= OUTPUT_PAUSE_BYTES, self.stall.output_at),
            window_at: since(self.connection.is_window_closed(), self.stall.window_at),
        }
    }
}

impl Worker {
    /// Notes how many bytes of output wait for a server that could take them.
    pub(super) fn note_server_output(&mut self, now: Moment, sock: SockId, pending: usize) {
        let Some(up) = self.conns.upstream(sock) else { return };
        let (pool, server) = (usize::from(up.pool), usize::from(up.server));
        let ServerCarrier::Http2(http2) = &mut up.carrier else { return };
        let stall = http2.stall_with(now, pending);
        if stall != http2.stall {
            http2.stall = stall;
            self.pools[pool].shared.note_stall(server, sock, stall);
        }
    }
}
