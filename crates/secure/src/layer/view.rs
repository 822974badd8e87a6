//! The reactor as the handler above the layer sees it.
//! In: operations of the handler. Out: the same operations, with records in place of the plain bytes of secured connections.
//! Never: changes the calls for a connection without TLS, a listener or a socket for datagrams.
//! Invariant: that of `layer.rs`.

use core::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use tidegate_base::limits::{OUTPUT_FLUSH_BYTES, SMALL_BUFFER_BYTES};
use tidegate_base::{Address, CertificateChoice, Moment, Span};
use tidegate_reactor::{
    CloseReason, DatagramId, DatagramSent, LastWait, LeavingListeners, ListenError, ListenOptions,
    ListenerId, OutputProgress, Reactor, ServerKey, Shortage, SockId,
};

use super::{GATHERED_BYTES_MAX, PeerEnd, SecureView, Secured, TlsLayer};
use crate::handler::{Event, TlsObserver};

impl<R: Reactor, O: TlsObserver> Reactor for SecureView<'_, R, O> {
    fn now(&self) -> Moment {
        self.inner.now()
    }

    fn unix_millis(&self) -> u64 {
        self.inner.unix_millis()
    }

    fn read_clock(&self) -> Moment {
        self.inner.read_clock()
    }

    fn last_wait(&self) -> LastWait {
        self.inner.last_wait()
    }

    fn listen(
        &mut self,
        address: &Address,
        options: &ListenOptions,
    ) -> Result<ListenerId, ListenError> {
        self.inner.listen(address, options)
    }

    fn listener_address(&self, listener: ListenerId) -> Option<Address> {
        self.inner.listener_address(listener)
    }

    fn stop_listening(&mut self, listener: ListenerId) {
        self.inner.stop_listening(listener);
    }

    fn steer_away(&mut self, listener: ListenerId, own: &Arc<LeavingListeners>) {
        self.inner.steer_away(listener, own);
    }

    fn listener_count(&self) -> usize {
        self.inner.listener_count()
    }

    fn connect(&mut self, address: &Address) -> Result<SockId, Shortage> {
        self.inner.connect(address)
    }

    fn connect_from(
        &mut self,
        address: &Address,
        source: Option<IpAddr>,
    ) -> Result<SockId, Shortage> {
        self.inner.connect_from(address, source)
    }

    fn connect_secured_from(
        &mut self,
        address: &Address,
        source: Option<IpAddr>,
        server: ServerKey,
    ) -> Result<SockId, Shortage> {
        // An invalid server name was already rejected at start.
        let begun = self.layer.connector(server).map(|(pool, plan)| {
            let session = match server.http1_only {
                true => pool.connector.with_http1_only().connect(&plan.name),
                false => pool.connector.connect(&plan.name),
            };
            (session, pool.connector.trust())
        });
        let Some((Ok(session), trust)) = begun else {
            self.layer.observer.count(Event::Bug);
            // Of the shortages, only this one concerns this server alone: another one may be tried, and no connection
            // is closed to make room.
            return Err(Shortage::Ports);
        };
        let sock = self.inner.connect_from(address, source)?;
        self.layer.insert(sock, session, Secured::Outgoing { server, trust });
        Ok(sock)
    }

    fn choose_certificate(&mut self, sock: SockId, choice: CertificateChoice) {
        self.layer.note_choice(sock, choice);
    }

    fn output(&mut self, sock: SockId) -> Option<&mut Vec<u8>> {
        if !self.layer.is_secure(sock) {
            return self.inner.output(sock);
        }
        let TlsLayer { slots, dirty, spare, .. } = &mut *self.layer;
        let conn = slots.get_mut(sock.index as usize)?.conn.as_deref_mut()?;
        if conn.write_ended {
            return None;
        }
        if conn.output.is_empty() {
            dirty.push(sock);
            if conn.output.capacity() == 0 {
                conn.output = spare.pop().unwrap_or_else(|| Vec::with_capacity(SMALL_BUFFER_BYTES));
            }
        }
        Some(&mut conn.output)
    }

    fn send(&mut self, sock: SockId, bytes: &[u8]) {
        if !self.layer.is_secure(sock) {
            return self.inner.send(sock, bytes);
        }
        let Some(conn) = self.layer.conn(sock) else { return };
        let gather =
            !conn.session.is_established() || conn.output.len() + bytes.len() <= GATHERED_BYTES_MAX;
        if gather || conn.write_ended {
            if let Some(out) = self.output(sock) {
                out.extend_from_slice(bytes);
            }
            return;
        }
        self.layer.seal(self.inner, sock);
        self.layer.seal_bytes(self.inner, sock, bytes);
        if self.inner.output_pending(sock) >= OUTPUT_FLUSH_BYTES {
            self.inner.flush(sock);
        }
    }

    fn flush(&mut self, sock: SockId) {
        self.layer.seal(self.inner, sock);
        if let Some(conn) = self.layer.conn(sock)
            && !conn.output.is_empty()
        {
            conn.owes_drained = true;
        }
        self.inner.flush(sock);
    }

    fn guard_send(&mut self, sock: SockId) -> bool {
        // The rest of a record that began to arrive may be application data, which the handler did not request.
        let usable = self.layer.conn(sock).is_none_or(|conn| {
            conn.session.is_established()
                && !conn.holds_part()
                && conn.peer_end == PeerEnd::Open
                && conn.output.is_empty()
        });
        usable && self.inner.guard_send(sock)
    }

    fn is_guarded(&self, sock: SockId) -> bool {
        self.inner.is_guarded(sock)
    }

    fn output_pending(&self, sock: SockId) -> usize {
        let slot = self.layer.slots.get(sock.index as usize);
        let conn = slot.filter(|slot| slot.generation == sock.generation);
        let unsealed = conn.and_then(|slot| slot.conn.as_ref()).map_or(0, |conn| conn.output.len());
        self.inner.output_pending(sock) + unsealed
    }

    fn check_output_progress(&mut self, sock: SockId) -> OutputProgress {
        self.inner.check_output_progress(sock)
    }

    fn set_receiving(&mut self, sock: SockId, receiving: bool) {
        let Some(conn) = self.layer.conn(sock) else {
            return self.inner.set_receiving(sock, receiving);
        };
        conn.receiving = receiving;
        if !conn.session.is_established() {
            return;
        }
        if receiving && conn.peer_end == PeerEnd::Held {
            conn.peer_end = PeerEnd::Delivered;
            self.layer.ended.push(sock);
        }
        self.inner.set_receiving(sock, receiving);
    }

    fn relay_to(&mut self, from: SockId, to: Option<SockId>) {
        // The bytes of secured connections pass through their sessions.
        let is_secure = self.layer.is_secure(from) || to.is_some_and(|to| self.layer.is_secure(to));
        self.inner.relay_to(from, to.filter(|_| !is_secure));
    }

    fn is_outdated(&self, sock: SockId, listener: u16) -> bool {
        self.layer.is_outdated(sock, listener)
    }

    fn is_server_outdated(&self, sock: SockId) -> bool {
        self.layer.is_server_outdated(sock)
    }

    fn has_hung_up(&self, sock: SockId) -> bool {
        let slot = self.layer.slots.get(sock.index as usize);
        let slot = slot.filter(|slot| slot.generation == sock.generation);
        let conn = slot.and_then(|slot| slot.conn.as_ref());
        self.inner.has_hung_up(sock) || conn.is_some_and(|conn| conn.peer_end == PeerEnd::Held)
    }

    fn finish(&mut self, sock: SockId) {
        self.layer.seal(self.inner, sock);
        match self.layer.conn(sock) {
            None => self.inner.finish(sock),
            Some(conn) => {
                conn.write_ended = true;
                self.layer.end_writing(self.inner, sock);
            }
        }
    }

    fn close(&mut self, sock: SockId) {
        self.layer.end_session(self.inner, sock);
        self.inner.close(sock);
    }

    fn close_unread(&mut self, sock: SockId) {
        self.layer.end_session(self.inner, sock);
        self.inner.close_unread(sock);
    }

    fn abort(&mut self, sock: SockId) {
        self.layer.remove(sock);
        self.inner.abort(sock);
    }

    fn close_at_once(&mut self, sock: SockId) {
        self.layer.end_session(self.inner, sock);
        self.inner.close_at_once(sock);
    }

    fn free_lingering(&mut self, kept: usize) -> bool {
        self.inner.free_lingering(kept)
    }

    fn set_deadline(&mut self, sock: SockId, at: Moment) {
        let now = self.inner.now();
        match self.layer.conn(sock) {
            // Until the handshake is done, the handshake's own deadline is in force.
            Some(conn) if conn.server_key.is_none() && !conn.session.is_established() => {
                conn.deadline_span = if at == Moment::NEVER { Span::MAX } else { at.since(now) };
            }
            _ => self.inner.set_deadline(sock, at),
        }
    }

    fn set_timer(&mut self, timer: u32, at: Moment) {
        self.inner.set_timer(timer, at);
    }

    fn open_datagrams(&mut self, peer: SocketAddr) -> Result<DatagramId, CloseReason> {
        self.inner.open_datagrams(peer)
    }

    fn send_datagram(&mut self, socket: DatagramId, bytes: &[u8]) -> DatagramSent {
        self.inner.send_datagram(socket, bytes)
    }

    fn close_datagrams(&mut self, socket: DatagramId) {
        self.inner.close_datagrams(socket);
    }

    fn datagram_socket_count(&self) -> usize {
        self.inner.datagram_socket_count()
    }

    fn sock_count(&self) -> usize {
        self.inner.sock_count()
    }

    fn local_address(&self, sock: SockId) -> Option<SocketAddr> {
        self.inner.local_address(sock)
    }

    fn send_bare(&mut self, sock: SockId, bytes: &[u8]) {
        self.inner.send_bare(sock, bytes);
    }

    fn is_live(&self, sock: SockId) -> bool {
        self.inner.is_live(sock)
    }

    fn deadline(&self, sock: SockId) -> Moment {
        self.inner.deadline(sock)
    }
}
