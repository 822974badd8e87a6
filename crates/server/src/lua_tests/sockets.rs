//! Sockets in a test: each socket of the application is joined to another one, with which a function of the test plays the
//! server.
//! In: what both sockets order. Out: bytes and ends for the other one.
//! Never: opens a connection; loses a byte that was sent before the end.
//! Invariant: a link is in the list exactly as long as the VM has a socket with its tag.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use tidegate_base::{Id, Moment, Span};
use tidegate_lua::{OperationId, SocketId};

use super::stage::Stage;

/// The number of the VM of a test.
const LIFE: u32 = 0;
/// The reason of the end of every socket.
const CLOSED: &str = "closed";

/// The sockets by tag.
pub(super) type Links = BTreeMap<u64, Link>;

/// One end of a connection.
pub(super) struct Link {
    socket: SocketId,
    /// The tag of the other end, once they are joined.
    peer: Option<u64>,
    /// When the socket closes, while the application keeps it for later.
    expires: Option<Moment>,
}

impl Stage {
    /// `Effect::Connect`: the socket is connected once it is joined.
    pub(super) fn connect_socket(&mut self, socket: SocketId) {
        let tag = self.take_tag();
        if self.vm.socket_begun(socket, tag) {
            self.links.insert(tag, Link { socket, peer: None, expires: None });
        }
    }

    /// Joins the socket of the application to the socket of the test.
    pub(super) fn join_sockets(
        &mut self,
        operation: OperationId,
        arguments: &Value,
    ) -> Result<(), String> {
        let [Some(one), Some(other)] = ["socket", "peer"].map(|name| self.tag_in(&arguments[name]))
        else {
            return Err("the application does not wait for the connection any more".to_owned());
        };
        for (tag, peer) in [(one, other), (other, one)] {
            if let Some(link) = self.links.get_mut(&tag) {
                link.peer = Some(peer);
                self.vm.socket_connected(LIFE, link.socket, false);
            }
        }
        self.complete(operation, &json!({}), b"");
        Ok(())
    }

    /// The tag of the socket with this index and generation.
    fn tag_in(&self, names: &Value) -> Option<u64> {
        let number = |at: usize| names[at].as_u64().and_then(|number| u32::try_from(number).ok());
        let socket = Id::new(number(0)?, number(1)?);
        self.links.iter().find(|(_, link)| link.socket == socket).map(|(tag, _)| *tag)
    }

    /// The other end of a socket.
    fn peer_of(&self, tag: u64) -> Option<SocketId> {
        let peer = self.links.get(&tag)?.peer?;
        self.links.get(&peer).map(|link| link.socket)
    }

    /// `Effect::SocketSend`.
    pub(super) fn send_over_socket(&mut self, tag: u64, data: &[u8]) {
        let Some(peer) = self.peer_of(tag) else { return };
        if !self.vm.socket_received(LIFE, peer, data)
            && let Some(link) = self.links.get(&tag)
        {
            self.vm.note_socket_blocked(LIFE, link.socket, true);
        }
    }

    /// `Effect::SocketResume`: the other end may send again.
    pub(super) fn resume_socket(&mut self, tag: u64) {
        if let Some(peer) = self.peer_of(tag) {
            self.vm.note_socket_blocked(LIFE, peer, false);
        }
    }

    /// `Effect::SocketIdle`.
    pub(super) fn keep_socket(&mut self, tag: u64, span: Option<Span>) {
        let expires = span.map(|span| self.now.after(span));
        if let Some(link) = self.links.get_mut(&tag) {
            link.expires = expires;
        }
    }

    /// When the first of the sockets that are kept closes.
    pub(super) fn next_expiry(&self) -> Option<Moment> {
        self.links.values().filter_map(|link| link.expires).min()
    }

    /// Closes the sockets that were kept up to now.
    pub(super) fn expire_sockets(&mut self) {
        let has_expired = |link: &Link| link.expires.is_some_and(|expires| expires <= self.now);
        let expired = self.links.iter().filter(|(_, link)| has_expired(link));
        let expired: Vec<u64> = expired.map(|(tag, _)| *tag).collect();
        for tag in expired {
            if let Some(link) = self.links.get(&tag) {
                self.vm.socket_ended(LIFE, link.socket, CLOSED);
            }
            self.end_link(tag);
        }
    }

    /// Ends the other ends of sockets that scripts have closed. Returns whether there were any.
    pub(super) fn end_closed_sockets(&mut self) -> bool {
        let mut has_ended = false;
        while let Some(tag) = self.vm.take_closed_socket() {
            self.end_link(tag);
            has_ended = true;
        }
        has_ended
    }

    fn end_link(&mut self, tag: u64) {
        let peer = self.links.remove(&tag).and_then(|link| link.peer);
        if let Some(peer) = peer.and_then(|peer| self.links.remove(&peer)) {
            self.vm.socket_ended(LIFE, peer.socket, CLOSED);
        }
    }
}
