//! The action `echo`: sends each WebSocket message back.
//! In: messages of a WebSocket connection. Out: the same messages. Never: keeps anything.

use tidegate_reactor::Reactor;
use tidegate_wire::websocket::Message;

use crate::action::websocket::Outlet;
use crate::worker::Worker;

impl Worker {
    /// Sends a message back.
    pub(super) fn echo_message<R: Reactor>(
        &mut self,
        reactor: &mut R,
        outlet: Outlet<'_>,
        message: &Message<'_>,
    ) {
        self.send_message(reactor, outlet, message.kind(), message.bytes());
    }
}
