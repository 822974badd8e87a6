//! WebSocket clients of Lua applications.
//! In: connections, their messages and their end. Out: calls of callbacks; messages and Close frames.
//! Never: keeps a message; lets a client that does not read grow in memory.
//! Limits: `QUEUE_BYTES_MAX` bytes wait for a client; one that exceeds it is closed with 1013.
//! Invariant: each client that a VM keeps has an entry in `Worker::lua_clients`, whose connection names the entry.
//! A client whose callback fails is closed with 1011, and only that one.

use tidegate_base::Id;
use tidegate_lua::{ClientId, Verdict};
use tidegate_reactor::Reactor;
use tidegate_wire::message::RequestHead;
use tidegate_wire::websocket::{Close, CloseCode, Kind, Message};

use crate::action::service::Service;
use crate::action::websocket::{Outlet, WebSocket};
use crate::requester::Requester;
use crate::worker::Worker;

/// Bytes that wait for a client that does not read.
const QUEUE_BYTES_MAX: usize = 1024 * 1024;
/// RFC 6455 section 7.1.5: the end of a connection without a Close frame, and a Close frame without a code.
const ABNORMAL: u16 = 1006;
const NO_CODE: u16 = 1005;

/// A WebSocket connection that an application serves.
pub(crate) struct LuaClient {
    /// The index of the application.
    app: u16,
    /// The connection. `Id::NONE` while it is being opened.
    websocket: Id<WebSocket>,
    /// The VM's name of the client; `Id::NONE` if the VM is gone or does not know the client yet.
    handle: ClientId,
    /// The code and the reason of the first Close frame.
    close: Option<Box<(u16, String)>>,
}

const _: () = assert!(size_of::<LuaClient>() <= 32);

impl LuaClient {
    /// Whether a VM keeps the client.
    pub(crate) fn is_in_vm(&self) -> bool {
        !self.handle.is_none()
    }

    /// The connection.
    pub(crate) fn websocket(&self) -> Id<WebSocket> {
        self.websocket
    }
}

impl Worker {
    /// Opens a WebSocket for the application `app`, or refuses the request.
    pub(super) fn begin_lua_socket<R: Reactor>(
        &mut self,
        reactor: &mut R,
        to: Requester,
        head: &RequestHead<'_>,
        (route, app): (usize, usize),
        is_https: bool,
    ) {
        let (websocket, handle) = (Id::NONE, Id::NONE);
        let client = LuaClient { app: app as u16, websocket, handle, close: None };
        let Ok(client) = self.lua_clients.insert(client) else {
            let text = "the proxy is handling too many requests";
            return self.answer_error(reactor, to, 503, text, true);
        };
        let service = Service::Lua(client);
        let Some(websocket) = self.open_websocket(reactor, to, head, route, service) else {
            self.lua_clients.remove(client);
            return;
        };
        // No response belongs to the request.
        let request = self.open_in_vm(to, head, (route, app), is_https, u64::MAX);
        let handle = self.apps.present(app).and_then(|vm| vm.open_client(tag_of(client)));
        let Some(entry) = self.lua_clients.find_mut(client) else { return };
        entry.websocket = websocket;
        let (Some(handle), Some(request)) = (handle, request) else {
            return self.close_lua_client(reactor, client, 1013, "too many clients");
        };
        entry.handle = handle;
        let verdict = self.call_app(reactor, app, "on_open", None, |vm| vm.opened(handle, request));
        if let Some(vm) = self.apps.present(app) {
            vm.close_request(request);
        }
        self.fail_lua_client(reactor, client, verdict);
    }

    /// Hands a message to the application.
    pub(super) fn lua_message<R: Reactor>(
        &mut self,
        reactor: &mut R,
        client: Id<LuaClient>,
        mut outlet: Outlet<'_>,
        message: &Message<'_>,
    ) {
        let Some(entry) = self.lua_clients.get(client) else { return };
        let (app, handle) = (usize::from(entry.app), entry.handle);
        if handle.is_none() {
            return;
        }
        let (data, is_text) = (message.bytes(), message.kind() == Kind::Text);
        let reply = Some((client, &mut outlet));
        let verdict = self
            .call_app(reactor, app, "on_message", reply, |vm| vm.message(handle, data, is_text));
        self.fail_lua_client(reactor, client, verdict);
    }

    /// Notes the Close frame of a client.
    pub(super) fn note_lua_close(&mut self, client: Id<LuaClient>, close: Option<Close<'_>>) {
        if let Some(entry) = self.lua_clients.find_mut(client) {
            let (code, reason) =
                close.map_or((NO_CODE, ""), |close| (close.code.get(), close.reason));
            entry.close.get_or_insert_with(|| Box::new((code, reason.to_owned())));
        }
    }

    /// Runs `on_close` for the connections that have ended. Returns whether there were any.
    pub(crate) fn end_lua_clients<R: Reactor>(&mut self, reactor: &mut R) -> bool {
        let mut has_ended = false;
        while let Some(client) = self.lua_ended.pop() {
            has_ended = true;
            let Some(entry) = self.lua_clients.remove(client) else { continue };
            let (app, handle) = (usize::from(entry.app), entry.handle);
            if handle.is_none() {
                continue;
            }
            let (code, reason) = entry.close.map_or((ABNORMAL, String::new()), |close| *close);
            self.call_app(reactor, app, "on_close", None, |vm| vm.closed(handle, code, &reason));
        }
        has_ended
    }

    /// The VM of an application is gone: its clients are closed.
    pub(super) fn abandon_lua_clients<R: Reactor>(&mut self, reactor: &mut R, app: usize) {
        let of_app = |(id, entry): (Id<LuaClient>, &LuaClient)| {
            (usize::from(entry.app) == app && entry.is_in_vm()).then_some(id)
        };
        let clients: Vec<_> = self.lua_clients.iter().filter_map(of_app).collect();
        for client in clients {
            if let Some(entry) = self.lua_clients.find_mut(client) {
                entry.handle = Id::NONE;
            }
            self.close_lua_client(reactor, client, CloseCode::INTERNAL_ERROR.get(), "");
        }
    }

    /// Carries out `Effect::Send`. `reply`: the client whose message is being handled, and its outlet.
    pub(super) fn send_lua_message<R: Reactor>(
        &mut self,
        reactor: &mut R,
        tag: u64,
        (is_text, data): (bool, &[u8]),
        reply: Option<&mut (Id<LuaClient>, &mut Outlet<'_>)>,
    ) {
        let client = id_of(tag);
        let Some(entry) = self.lua_clients.find(client) else { return };
        let websocket = entry.websocket;
        let kind = if is_text { Kind::Text } else { Kind::Binary };
        let Some(socket) = self.websockets.find(websocket) else { return };
        if reactor.output_pending(socket.requester().sock) > QUEUE_BYTES_MAX {
            self.accounts.counters.lua_slow_clients.add(1);
            return self.close_lua_client(reactor, client, 1013, "the client does not read");
        }
        match reply {
            Some((to, outlet)) if *to == client && !socket.is_closing() => {
                self.send_message(reactor, outlet.reborrow(), kind, data);
            }
            _ => self.notify_websocket(reactor, websocket, kind, data),
        }
    }

    /// Carries out `Effect::Close`.
    pub(super) fn close_by_lua<R: Reactor>(
        &mut self,
        reactor: &mut R,
        tag: u64,
        code: u16,
        reason: &[u8],
    ) {
        let reason = core::str::from_utf8(reason).unwrap_or_default();
        self.close_lua_client(reactor, id_of(tag), code, reason);
    }

    /// Sends a Close frame.
    fn close_lua_client<R: Reactor>(
        &mut self,
        reactor: &mut R,
        client: Id<LuaClient>,
        code: u16,
        reason: &str,
    ) {
        let Some(code) = CloseCode::new(code) else { return };
        let close = Close { code, reason };
        self.note_lua_close(client, Some(close));
        if let Some(entry) = self.lua_clients.find(client)
            && self.websockets.find(entry.websocket).is_some()
        {
            let websocket = entry.websocket;
            self.close_websocket(reactor, websocket, close);
        }
    }

    /// Closes a client whose callback has failed.
    fn fail_lua_client<R: Reactor>(
        &mut self,
        reactor: &mut R,
        client: Id<LuaClient>,
        verdict: Option<Verdict>,
    ) {
        match verdict {
            Some(Verdict::Done) => {}
            Some(Verdict::Failed(_)) | None => {
                self.close_lua_client(reactor, client, CloseCode::INTERNAL_ERROR.get(), "");
            }
        }
    }
}

/// The name by which a VM addresses a client.
fn tag_of(id: Id<LuaClient>) -> u64 {
    u64::from(id.generation) << 32 | u64::from(id.index)
}

fn id_of(tag: u64) -> Id<LuaClient> {
    Id::new(tag as u32, (tag >> 32) as u32)
}
