//! Tunnels over HTTP/2 to servers (RFC 8441): a WebSocket is a stream that an extended CONNECT opens.
//! In: stored requests to upgrade to a WebSocket; bytes and ends of their clients. Out: DATA of the stream; the bytes of the
//! server, for `action/proxy/tunnel.rs`.
//! Never: sends an extended CONNECT to a server that has not announced it (section 3); sends a key (section 5).
//! Limits: the data that waits for the server is bounded as a request body is; the data that waits for the client, by the
//! stream's window.
//! Invariant: after its head, a tunnel's stream carries only bytes of the tunnel, whatever the stored request says.

use tidegate_base::Id;
use tidegate_gate::websocket;
use tidegate_reactor::{Reactor, SockId};
use tidegate_wire::message::ResponseHead;

use crate::action::proxy::exchange::Exchange;
use crate::action::proxy::tunnel::Side;
use crate::carrier::http2::server_stream::ServerStream;
use crate::carrier::http2::servers::Lost;
use crate::worker::Worker;

/// Whether a stream belongs to a tunnel, and the progress of the tunnel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Connect {
    /// The stream carries a request and its response.
    No,
    /// The request is, or will be sent as, an extended CONNECT. The server has not agreed.
    Requested,
    /// Both directions carry bytes of the tunnel.
    Open,
    /// The client has ended its direction; its data may still wait.
    Finished,
}

/// Whether a server takes an extended CONNECT.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ConnectSupport {
    /// Its SETTINGS have not arrived.
    Unknown,
    /// It does not.
    Absent,
    /// It does.
    Announced,
}

impl ServerStream {
    /// Whether the request is, or will be sent as, an extended CONNECT.
    pub(super) fn is_connect(&self) -> bool {
        self.connect != Connect::No
    }

    /// Whether the stream carries bytes of a tunnel: its exchange is in `Stage::Tunnel`.
    pub(crate) fn is_tunnel(&self) -> bool {
        matches!(self.connect, Connect::Open | Connect::Finished)
    }
}

/// The beginning of a tunnel.
impl Worker {
    /// Whether the stored request of an exchange opens a WebSocket.
    pub(super) fn opens_websocket(&self, id: Id<Exchange>) -> bool {
        self.exchanges.find(id).is_some_and(|exchange| {
            exchange.facts.upgrades && websocket::is_requested(exchange.request.head())
        })
    }

    /// The server does not take the extended CONNECT of a stream that was not opened: the request goes over HTTP/1.1, if
    /// the pool may speak it, or fails.
    pub(super) fn refuse_connect<R: Reactor>(&mut self, reactor: &mut R, id: Id<ServerStream>) {
        if let Some(exchange) = self.http2_servers.exchange(id) {
            self.tunnel_unsupported(reactor, exchange);
        }
    }

    /// The head of a successful response to an extended CONNECT arrived.
    pub(super) fn open_server_tunnel<R: Reactor>(
        &mut self,
        reactor: &mut R,
        id: Id<ServerStream>,
        head: &ResponseHead<'_>,
        ends: bool,
    ) {
        let Some(exchange) = self.http2_servers.begin_tunnel(id) else { return };
        self.begin_tunnel(reactor, exchange, head);
        if ends {
            self.hand_over_tunnel(reactor, id, b"", true);
        }
    }
}

/// Bytes and ends.
impl Worker {
    /// Hands the tunnel bytes of the server, and the end of the server's direction if `ends`.
    pub(super) fn hand_over_tunnel<R: Reactor>(
        &mut self,
        reactor: &mut R,
        id: Id<ServerStream>,
        bytes: &[u8],
        ends: bool,
    ) {
        let Some(exchange) = self.http2_servers.exchange(id) else { return };
        if !bytes.is_empty() {
            self.tunnel_received(reactor, exchange, Side::Server, bytes);
        }
        let (servers, mut links) = self.server_streams(reactor);
        servers.release_window(&mut links, id);
        if !ends {
            return;
        }
        self.tunnel_finished(reactor, exchange, Side::Server);
        // Without the stream, nothing more of the client can be sent.
        if self.http2_servers.get(id).is_some_and(|stream| stream.is_gone) {
            self.tunnel_finished(reactor, exchange, Side::Client);
        }
    }

    /// The stream of a tunnel was reset, or its connection was lost. Bytes that the server sent before it ended its direction are
    /// still forwarded to the client.
    pub(super) fn lose_tunnel<R: Reactor>(&mut self, reactor: &mut R, lost: Lost) {
        let exchange_id = lost.exchange;
        let Some(exchange) = self.exchanges.get(exchange_id) else { return };
        match lost.is_response_done {
            true if exchange.ended.server => {
                self.tunnel_finished(reactor, exchange_id, Side::Client);
            }
            // The end of the server's direction ends the tunnel once the client has taken the bytes before it.
            true => {}
            false => self.tunnel_lost(reactor, exchange_id),
        }
    }

    /// Whether the server's SETTINGS allow extended CONNECT.
    pub(super) fn connect_support(&mut self, sock: SockId) -> ConnectSupport {
        match self.conns.http2_server(sock) {
            Some(http2) if http2.connection.has_peer_settings() => {
                match http2.connection.peer_settings().connect_protocol {
                    true => ConnectSupport::Announced,
                    false => ConnectSupport::Absent,
                }
            }
            _ => ConnectSupport::Unknown,
        }
    }
}
