//! WebSocket clients of Lua applications.
//! In: connections, their messages and their end. Out: calls of callbacks; messages and Close frames.
//! Never: runs two handlers of a client at once; delivers its messages out of order; lets the output for a client that does not
//! read grow without bound.
//! Limits: `QUEUE_BYTES_MAX` bytes and the messages of one callback wait for a client; a client for which more bytes wait
//! when another callback sends it a message is closed with 1013. Messages that arrive while a handler of the client waits are
//! kept up to `BACKLOG_BYTES_MAX`; then nothing is read from the client.
//! Invariant: each client that a VM keeps has an entry in `LuaState::clients`, whose connection names the entry. A callback
//! that fails closes its own client with 1011, and no other.

use std::collections::VecDeque;

use tidegate_base::Id;
use tidegate_lua::{CallbackEnd, ClientId, Handler};
use tidegate_reactor::Reactor;
use tidegate_wire::message::RequestHead;
use tidegate_wire::websocket::{Close, CloseCode, Kind, Message};

use crate::action::service::Service;
use crate::action::websocket::{Outlet, WebSocket};
use crate::requester::Requester;
use crate::worker::Worker;

/// Maximum number of bytes that wait for a client that does not read.
const QUEUE_BYTES_MAX: usize = 1024 * 1024;
/// Bytes of messages that wait for a handler of the client, plus `BACKLOG_COST_BYTES` for each message. From this size on,
/// nothing is read from the client.
const BACKLOG_BYTES_MAX: usize = 64 * 1024;
const BACKLOG_COST_BYTES: usize = 64;
/// RFC 6455 section 7.1.5: the codes for the end of a connection without a Close frame, and for a Close frame without a code.
const ABNORMAL: u16 = 1006;
const NO_CODE: u16 = 1005;

/// A WebSocket connection that an application serves.
pub(crate) struct LuaClient {
    /// The index of the application.
    app: u16,
    /// A handler of the client waits.
    is_waiting: bool,
    /// The callback that has sent messages to the client last (`LuaState::callback`).
    sender: u32,
    /// The connection. `Id::NONE` while it is being opened.
    websocket: Id<WebSocket>,
    /// The VM's handle of the client; `Id::NONE` if the VM is gone or does not know the client yet.
    handle: ClientId,
    /// State that only few clients need.
    extra: Option<Box<Extra>>,
}

/// The state of a client that has sent or received a Close frame, or whose handler waits.
#[derive(Default)]
struct Extra {
    /// The code and the reason of the first Close frame.
    close: Option<(u16, String)>,
    /// Messages that arrived while a handler of the client waited: whether they are text, and their bytes.
    backlog: VecDeque<(bool, Vec<u8>)>,
    /// The size of `backlog`, with `BACKLOG_COST_BYTES` for each message.
    backlog_bytes: usize,
}

const _: () = assert!(size_of::<LuaClient>() <= 32);

impl LuaClient {
    /// Whether a VM keeps the client.
    pub(crate) fn is_in_vm(&self) -> bool {
        !self.handle.is_none()
    }

    /// The index of the application.
    pub(super) fn app(&self) -> usize {
        usize::from(self.app)
    }

    /// The VM with the index `from` now has the index `to`.
    pub(super) fn rename_app(&mut self, from: usize, to: usize) {
        if self.app() == from {
            self.app = to as u16;
        }
    }

    /// The VM's handle of the client.
    pub(super) fn handle(&self) -> ClientId {
        self.handle
    }

    /// No VM keeps the client any more.
    pub(super) fn forget_handle(&mut self) {
        self.handle = Id::NONE;
    }

    /// A handler of the client waits.
    pub(super) fn is_waiting(&self) -> bool {
        self.is_waiting
    }

    /// The tag by which a VM addresses the client with this id.
    pub(super) fn tag(&self, id: Id<Self>) -> u64 {
        tag_of(id)
    }

    /// The connection.
    pub(crate) fn websocket(&self) -> Id<WebSocket> {
        self.websocket
    }
}

impl Extra {
    /// Keeps a message.
    fn keep(&mut self, is_text: bool, data: &[u8]) {
        self.backlog_bytes += data.len() + BACKLOG_COST_BYTES;
        self.backlog.push_back((is_text, data.to_vec()));
    }

    /// Takes the message that has waited longest.
    fn take(&mut self) -> Option<(bool, Vec<u8>)> {
        let (is_text, data) = self.backlog.pop_front()?;
        self.backlog_bytes -= data.len() + BACKLOG_COST_BYTES;
        Some((is_text, data))
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
        sender: (bool, Option<&str>),
    ) {
        let (websocket, handle) = (Id::NONE, Id::NONE);
        let client = LuaClient {
            app: app as u16,
            is_waiting: false,
            sender: 0,
            websocket,
            handle,
            extra: None,
        };
        let Ok(client) = self.lua.clients.insert(client) else {
            let text = "the proxy is handling too many requests";
            return self.answer_error(reactor, to, 503, text, true);
        };
        let service = Service::Lua(client);
        let Some(websocket) = self.open_websocket(reactor, to, head, route, service) else {
            self.lua.clients.remove(client);
            return;
        };
        // `u64::MAX`: the request has no response object.
        let request = self.open_in_vm(to, head, (route, app), sender, u64::MAX);
        let handle = request.and_then(|request| {
            let vm = self.lua.apps.present(app)?;
            let handle = vm.open_client(tag_of(client));
            if handle.is_none() {
                vm.close_request(request);
            }
            handle
        });
        let Some(entry) = self.lua.clients.find_mut(client) else { return };
        entry.websocket = websocket;
        let (Some(handle), Some(request)) = (handle, request) else {
            return self.close_lua_client(reactor, client, 1013, "too many clients");
        };
        entry.handle = handle;
        let verdict = self.call_app(reactor, app, "on_open", None, |vm| vm.opened(handle, request));
        self.note_handler_turn(reactor, client, verdict);
    }

    /// Delivers a message to the application.
    pub(in crate::action) fn lua_message<R: Reactor>(
        &mut self,
        reactor: &mut R,
        client: Id<LuaClient>,
        mut outlet: Outlet<'_>,
        message: &Message<'_>,
    ) {
        let Some(entry) = self.lua.clients.get_mut(client) else { return };
        let (app, handle) = (usize::from(entry.app), entry.handle);
        if handle.is_none() {
            return;
        }
        let (data, is_text) = (message.bytes(), message.kind() == Kind::Text);
        if entry.is_waiting {
            return entry.extra.get_or_insert_default().keep(is_text, data);
        }
        let reply = Some((client, &mut outlet));
        let verdict = self
            .call_app(reactor, app, "on_message", reply, |vm| vm.message(handle, data, is_text));
        self.note_handler_turn(reactor, client, verdict);
    }

    /// Whether nothing more is read from the client of a connection, because messages wait for its handler.
    pub(in crate::action) fn is_lua_full(&self, client: Id<LuaClient>) -> bool {
        let extra = self.lua.clients.find(client).and_then(|entry| entry.extra.as_ref());
        extra.is_some_and(|extra| extra.backlog_bytes >= BACKLOG_BYTES_MAX)
    }

    /// A handler of the client with this tag has continued.
    pub(super) fn note_client_turn<R: Reactor>(
        &mut self,
        reactor: &mut R,
        tag: u64,
        verdict: CallbackEnd,
    ) {
        let client = id_of(tag);
        self.note_handler_turn(reactor, client, Some(verdict));
        self.hand_over_client(reactor, client);
        let was_full = self.is_lua_full(client);
        self.serve_backlog(reactor, client);
        if was_full && let Some(to) = self.requester_of_client(tag) {
            self.resume_request(to);
        }
    }

    /// The requester whose connection a client uses.
    pub(super) fn requester_of_client(&self, tag: u64) -> Option<Requester> {
        let entry = self.lua.clients.find(id_of(tag))?;
        self.websockets.sessions.find(entry.websocket).map(|socket| socket.requester())
    }

    /// Delivers the waiting messages, until the handler of one of them waits.
    fn serve_backlog<R: Reactor>(&mut self, reactor: &mut R, client: Id<LuaClient>) {
        while let Some(entry) = self.lua.clients.find_mut(client)
            && !entry.is_waiting
            && let Some((is_text, data)) = entry.extra.as_mut().and_then(|extra| extra.take())
        {
            let (app, handle, websocket) = (usize::from(entry.app), entry.handle, entry.websocket);
            let is_closing =
                self.websockets.sessions.find(websocket).is_none_or(WebSocket::is_closing);
            if handle.is_none() || is_closing {
                continue;
            }
            let verdict = self.call_app(reactor, app, "on_message", None, |vm| {
                vm.message(handle, &data, is_text)
            });
            self.note_handler_turn(reactor, client, verdict);
        }
    }

    /// Notes the Close frame of a client.
    pub(in crate::action) fn note_lua_close(
        &mut self,
        client: Id<LuaClient>,
        close: Option<Close<'_>>,
    ) {
        if let Some(entry) = self.lua.clients.find_mut(client) {
            let (code, reason) =
                close.map_or((NO_CODE, ""), |close| (close.code.get(), close.reason));
            let extra = entry.extra.get_or_insert_default();
            extra.close.get_or_insert_with(|| (code, reason.to_owned()));
        }
    }

    /// A Close frame was sent to a client: `send` of the script fails from now on, also while the connection lasts because the client does
    /// not read.
    pub(in crate::action) fn note_lua_closing(&mut self, client: Id<LuaClient>) {
        let Some(entry) = self.lua.clients.find(client) else { return };
        let (app, handle) = (usize::from(entry.app), entry.handle);
        if let Some(vm) = self.lua.apps.present(app) {
            vm.note_closing(handle);
        }
    }

    /// Runs `on_close` for the connections that have ended. Returns whether there were any.
    pub(crate) fn end_lua_clients<R: Reactor>(&mut self, reactor: &mut R) -> bool {
        let mut has_ended = false;
        while let Some(client) = self.lua.ended.pop() {
            has_ended = true;
            // A missing entry was counted when it was noticed.
            if self.lua.clients.find(client).is_none() {
                continue;
            }
            let Some(entry) = self.lua.clients.remove(client) else { continue };
            let (app, handle) = (usize::from(entry.app), entry.handle);
            if handle.is_none() {
                continue;
            }
            self.free_reserved_handle(app, handle);
            let close = entry.extra.and_then(|extra| extra.close);
            let (code, reason) = close.unwrap_or((ABNORMAL, String::new()));
            self.call_app(reactor, app, "on_close", None, |vm| vm.closed(handle, code, &reason));
        }
        has_ended
    }

    /// The VM of an application is gone: its clients are closed.
    pub(super) fn abandon_lua_clients<R: Reactor>(&mut self, reactor: &mut R, app: usize) {
        let of_app = |(id, entry): (Id<LuaClient>, &LuaClient)| {
            (usize::from(entry.app) == app && entry.is_in_vm()).then_some(id)
        };
        let clients: Vec<_> = self.lua.clients.iter().filter_map(of_app).collect();
        for client in clients {
            self.free_reserved(app, client);
            if let Some(entry) = self.lua.clients.find_mut(client) {
                entry.handle = Id::NONE;
            }
            self.close_lua_client(reactor, client, CloseCode::INTERNAL_ERROR.get(), "");
        }
    }

    /// Makes the VMs forget a client whose entry is missing.
    pub(crate) fn abandon_in_vms(&mut self, client: Id<LuaClient>) {
        for place in 0..self.lua.apps.len() {
            if let Some(vm) = self.lua.apps.present(self.lua.apps.index_at(place)) {
                vm.abandon_client(tag_of(client));
            }
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
        let callback = self.lua.callback;
        let Some(entry) = self.lua.clients.find_mut(client) else { return };
        let websocket = entry.websocket;
        let kind = if is_text { Kind::Text } else { Kind::Binary };
        let Some(socket) = self.websockets.sessions.find(websocket) else { return };
        // What the same callback has sent before waits only because the client had no time to read it.
        let is_first = callback == 0 || core::mem::replace(&mut entry.sender, callback) != callback;
        if is_first && self.client_pending(reactor, socket.requester()) > QUEUE_BYTES_MAX {
            self.accounts.counters.lua_slow_clients.add(1);
            return self.close_lua_client(reactor, client, 1013, "the client does not read");
        }
        match reply {
            Some((to, outlet)) if *to == client && !socket.is_closing() => {
                self.send_message(reactor, outlet.reborrow(), kind, data);
            }
            _ => self.notify_websocket(reactor, websocket, kind, data),
        }
        self.note_lua_queue(reactor, client);
    }

    /// Tells the VM how many bytes wait for a client. While the client does not read, nothing is read from it.
    pub(super) fn note_lua_queue<R: Reactor>(&mut self, reactor: &mut R, client: Id<LuaClient>) {
        let Some(entry) = self.lua.clients.find(client) else { return };
        let (app, handle, websocket) = (usize::from(entry.app), entry.handle, entry.websocket);
        let Some(socket) = self.websockets.sessions.find(websocket) else { return };
        let to = socket.requester();
        let queued = match self.is_client_blocked(reactor, to) {
            true => self.client_pending(reactor, to),
            false => 0,
        };
        if queued > 0 && !self.is_client_held(to) {
            self.hold_client(reactor, to);
        }
        if let Some(vm) = self.lua.apps.present(app) {
            vm.note_queued(handle, queued);
        }
    }

    /// The client reads again.
    pub(in crate::action) fn lua_client_drained<R: Reactor>(
        &mut self,
        reactor: &mut R,
        client: Id<LuaClient>,
    ) {
        let Some(entry) = self.lua.clients.find(client) else { return };
        let (app, handle) = (usize::from(entry.app), entry.handle);
        let Some(vm) = self.lua.apps.present(app) else { return };
        vm.note_queued(handle, 0);
        if handle.is_none() || !vm.has(Handler::Drain) {
            return;
        }
        let verdict = self.call_app(reactor, app, "on_drain", None, |vm| vm.drained(handle));
        if let Some(CallbackEnd::Failed(_)) | None = verdict {
            self.close_lua_client(reactor, client, CloseCode::INTERNAL_ERROR.get(), "");
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
    pub(super) fn close_lua_client<R: Reactor>(
        &mut self,
        reactor: &mut R,
        client: Id<LuaClient>,
        code: u16,
        reason: &str,
    ) {
        let Some(code) = CloseCode::new(code) else { return };
        let close = Close { code, reason };
        self.note_lua_close(client, Some(close));
        if let Some(entry) = self.lua.clients.find(client)
            && self.websockets.sessions.find(entry.websocket).is_some()
        {
            self.close_websocket(reactor, entry.websocket, close);
        }
    }

    /// A handler of a client has ended or waits. A client whose handler has failed is closed.
    pub(super) fn note_handler_turn<R: Reactor>(
        &mut self,
        reactor: &mut R,
        client: Id<LuaClient>,
        verdict: Option<CallbackEnd>,
    ) {
        if let Some(entry) = self.lua.clients.find_mut(client) {
            entry.is_waiting = verdict == Some(CallbackEnd::Waiting);
        }
        match verdict {
            Some(CallbackEnd::Done | CallbackEnd::Waiting) => {}
            Some(CallbackEnd::Failed(_)) | None => {
                self.close_lua_client(reactor, client, CloseCode::INTERNAL_ERROR.get(), "");
            }
        }
    }
}

/// The tag by which a VM addresses a client.
fn tag_of(id: Id<LuaClient>) -> u64 {
    u64::from(id.generation) << 32 | u64::from(id.index)
}

fn id_of(tag: u64) -> Id<LuaClient> {
    Id::new(tag as u32, (tag >> 32) as u32)
}
