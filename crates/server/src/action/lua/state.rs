//! The state of the Lua applications of one worker.
//! In: the requests, clients and calls that the other files of this folder begin. Out: their entries, until they end.
//! Invariant: each request and each client that a VM keeps has an entry here, and the reverse.

use std::collections::VecDeque;

use tidegate_base::{Id, Slab};
use tidegate_lua::Rewritten;

use crate::action::lua::ScriptedRequest;
use crate::action::lua::certificate::LuaChoice;
use crate::action::lua::files::LuaFile;
use crate::action::lua::frames::EndedTunnel;
use crate::action::lua::mail::LuaPost;
use crate::action::lua::response::{LogHooks, ResponseHook};
use crate::action::lua::socket::LuaClient;
use crate::action::proxy::exchange::Exchange;
use crate::action::push::{LuaCall, LuaEvent};
use crate::apps::Apps;
use crate::checked_slab::CheckedSlab;
use crate::file_reader::{FileDoor, WORKER_JOBS_MAX};
use crate::turn_share::{LUA_SPAN_MAX, TurnShare};

/// The Lua applications of a worker, with the requests, clients and calls that they have begun.
pub(crate) struct LuaState {
    /// The applications and their VMs.
    pub(crate) apps: Apps,
    /// The requests that applications answer or change. Each one belongs to exactly one requester.
    pub(crate) requests: CheckedSlab<ScriptedRequest>,
    /// The WebSocket connections that applications serve.
    pub(crate) clients: CheckedSlab<LuaClient>,
    /// The entries of `clients` that have ended and whose `on_close` has not run. Empty between two completions.
    pub(crate) ended: Vec<Id<LuaClient>>,
    /// The tunnels with `on_frame` that have ended and whose VMs were not told. Empty between two completions.
    pub(crate) ended_tunnels: Vec<EndedTunnel>,
    /// The tunnels whose messages wait for the next share of a turn. Some may have ended.
    pub(crate) put_off_tunnels: VecDeque<Id<Exchange>>,
    /// Mail of the applications from and for other workers; `None` if this is the only worker.
    pub(crate) post: Option<LuaPost>,
    /// Events of push hubs about which applications decide.
    pub(crate) events: Slab<LuaEvent>,
    /// The handshakes for which applications choose certificates.
    pub(crate) choices: Slab<LuaChoice>,
    /// The handshakes whose callbacks wait for the next share of a turn. Some may have ended.
    pub(crate) put_off_choices: VecDeque<Id<LuaChoice>>,
    /// Calls of applications to push hubs.
    pub(crate) calls: Slab<LuaCall>,
    /// Reads of files in progress.
    pub(crate) files: Slab<LuaFile>,
    /// The threads that read files.
    pub(crate) file_door: FileDoor,
    /// The current request as its hook has changed it. Meaningless between two requests.
    pub(crate) rewritten: Rewritten,
    /// The hook on the response to the request that is forwarded now. `None` between two requests.
    pub(crate) response_hook: Option<ResponseHook>,
    /// The records that wait for `on_log`.
    pub(crate) log_hooks: LogHooks,
    /// The rest of the time that callbacks may take in this turn, and the requests that wait for the next turn.
    pub(crate) share: TurnShare<ScriptedRequest>,
    /// The number of the callback whose effects are carried out; 0 if there is none.
    pub(crate) callback: u32,
    /// The number of the last callback.
    pub(crate) last_callback: u32,
    /// The place of the application whose coroutine continues next.
    pub(crate) next_ready: usize,
    /// The place of the application that gets a broadcast next.
    pub(crate) next_broadcast: usize,
}

impl LuaState {
    /// The state without applications. It holds at most `requests_max` requests, clients and calls each.
    pub(crate) fn new(requests_max: usize) -> Self {
        Self {
            apps: Apps::default(),
            requests: CheckedSlab::new(requests_max),
            clients: CheckedSlab::new(requests_max),
            ended: Vec::new(),
            ended_tunnels: Vec::new(),
            put_off_tunnels: VecDeque::new(),
            post: None,
            events: Slab::new(requests_max),
            choices: Slab::new(requests_max),
            put_off_choices: VecDeque::new(),
            calls: Slab::new(requests_max),
            files: Slab::new(WORKER_JOBS_MAX),
            file_door: FileDoor::default(),
            rewritten: Rewritten::default(),
            response_hook: None,
            log_hooks: LogHooks::default(),
            share: TurnShare::new(LUA_SPAN_MAX),
            callback: 0,
            last_callback: 0,
            next_ready: 0,
            next_broadcast: 0,
        }
    }

    /// Whether an application has work that does not wait for an event.
    pub(crate) fn has_work(&self) -> bool {
        self.apps.has_ready()
            || self.apps.has_handovers()
            || self.apps.has_broadcasts()
            || self.share.has_waiting()
            || self.log_hooks.len() > 0
            || !self.put_off_tunnels.is_empty()
            || !self.put_off_choices.is_empty()
    }
}
