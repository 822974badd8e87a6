//! The purposes of WebSocket connections: each belongs to an action, which gets its messages and events.
//! In: messages and events of a WebSocket connection. Out: calls of the action that it belongs to.
//! Never: handles a frame (`websocket/` does).
//!
//! To add an action over WebSocket, add a variant to [`Service`]. The action begins its connections with
//! `open_websocket`, sends with `send_message` (in response to a message) or `notify_websocket` (at any time), and
//! closes with `close_websocket`. It may call these in any of the methods below, except in `end_service`, after which
//! the id is stale.

use tidegate_base::Id;
use tidegate_push::local::SubscriptionId;
use tidegate_reactor::Reactor;
use tidegate_wire::websocket::{Close, Message};

use crate::action::lua::socket::LuaClient;
use crate::action::push::PushSession;
use crate::action::websocket::{Outlet, WebSocket};
use crate::worker::Worker;

/// The action that a WebSocket connection belongs to, and the connection's place in the tables of that action.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Service {
    /// Each message is sent back.
    Echo,
    /// A Lua application.
    Lua(Id<LuaClient>),
    /// The client gets the messages of a channel, where it has this place; `None` if it is not subscribed.
    Raw(Option<SubscriptionId>),
    /// The client speaks the client protocol of push hubs.
    Client(Id<PushSession>),
}

impl Worker {
    /// A message is complete.
    pub(super) fn serve_message<R: Reactor>(
        &mut self,
        reactor: &mut R,
        id: Id<WebSocket>,
        service: Service,
        outlet: Outlet<'_>,
        message: &Message<'_>,
    ) {
        match service {
            Service::Echo => self.echo_message(reactor, outlet, message),
            Service::Lua(client) => self.lua_message(reactor, client, outlet, message),
            // Clients in raw mode only receive.
            Service::Raw(_) => {}
            Service::Client(session) => {
                self.client_message(reactor, (id, session), outlet, message);
            }
        }
    }

    /// Whether the action takes no more messages until it calls `resume_request`.
    pub(super) fn is_service_full(&self, service: Service) -> bool {
        match service {
            Service::Echo | Service::Raw(_) => false,
            Service::Client(session) => self.is_client_waiting(session),
            Service::Lua(client) => self.is_lua_full(client),
        }
    }

    /// Whether the connection must wait for the next turn, because the share of this turn is used up. `effort_before`:
    /// `PushState::effort` when the connection began to be served in this turn.
    pub(super) fn must_service_yield(&self, service: Service, effort_before: u32) -> bool {
        match service {
            Service::Echo | Service::Raw(_) => false,
            Service::Lua(_) => self.lua.share.is_used_up(),
            Service::Client(_) => self.push.must_yield(effort_before),
        }
    }

    /// The client reads again: output that was suspended since `is_websocket_held` may continue.
    pub(super) fn resume_service<R: Reactor>(
        &mut self,
        reactor: &mut R,
        id: Id<WebSocket>,
        service: Service,
    ) {
        match service {
            Service::Echo => {}
            Service::Lua(client) => self.lua_client_drained(reactor, client),
            Service::Raw(_) => self.resume_raw(reactor, id),
            Service::Client(session) => self.resume_client_session(reactor, id, session),
        }
    }

    /// The client has sent its Close frame. The end of the connection follows.
    pub(super) fn note_service_close(&mut self, service: Service, close: Option<Close<'_>>) {
        match service {
            Service::Echo | Service::Raw(_) | Service::Client(_) => {}
            Service::Lua(client) => self.note_lua_close(client, close),
        }
    }

    /// The connection has ended, for any reason: the action releases the resources that it holds for the connection.
    pub(super) fn end_service(&mut self, id: Id<WebSocket>, service: Service) {
        match service {
            Service::Echo => {}
            Service::Lua(client) => self.lua.ended.push(client),
            Service::Raw(place) => self.end_raw(id, place),
            Service::Client(session) if session.is_none() => {}
            Service::Client(session) => self.forget_session(session),
        }
    }
}
