//! A VM that takes the place of another one, after the script has changed.
//! In: the earlier VM; its clients, one after the other. Out: their states, and calls of `on_retire` and `on_handover`.
//! Never: hands over a value that refers to the earlier VM: a state is a copy of plain data.
//! Limits: `STATE_BYTES_MAX` of a client's state.
//! Invariant: a client keeps its id. While it belongs to the earlier VM, the later VM reserves its id.

use tidegate_base::{Id, Moment};

use crate::engine::{Argument, Entry};
use crate::host::{Client, ClientId, Host};
use crate::schedule::Owner;
use crate::sockets::Keeper;
use crate::vm::{CallbackEnd, Handler, Vm, numbers};

/// Maximum number of bytes of the state of a client that is handed over.
const STATE_BYTES_MAX: usize = 1024 * 1024;

/// Methods of the earlier VM.
impl Vm {
    /// Called when newer code has replaced the code of this VM. The VM ends at `by`: its jobs end, and `on_retire` runs.
    pub fn retire(&mut self, by: Moment) -> CallbackEnd {
        let host = self.engine.host();
        host.retires_at = Some(by);
        host.schedule.retire(by);
        host.forget_reserved();
        self.close_idle_sockets();
        self.forget_dropped();
        if !self.has(Handler::Retire) {
            return CallbackEnd::Done;
        }
        let seconds = Argument::Number(self.engine.peek().seconds_left().unwrap_or(0.0));
        self.run(Entry::Retire, (Owner::Application, "on_retire"), &[seconds])
    }

    /// Stores the state of a client in `state`, and forgets the client.
    pub fn release_client(&mut self, client: ClientId, state: &mut Option<Vec<u8>>) -> CallbackEnd {
        let [index, _] = numbers(client);
        let verdict = self.run(Entry::Release, (Owner::Application, "the handover"), &[index]);
        let host = self.engine.host();
        let handover_state = core::mem::take(&mut host.handover_state);
        if verdict == CallbackEnd::Done {
            host.end_sockets_of(Keeper::Client(client));
            host.clients.remove(client);
            *state = Some(handover_state);
        }
        verdict
    }

    /// Whether the VM has nothing left to do.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        let host = self.engine.peek();
        self.clients() == 0
            && host.exchanges.is_empty()
            && host.hellos.is_empty()
            && host.schedule.is_empty()
    }
}

/// Methods of the later VM.
impl Vm {
    /// Reserves the ids of the clients of `before`, and of those that `before` has reserved.
    pub fn reserve_clients_of(&mut self, before: &Self) {
        let reserved = |client: &Client| Client {
            tag: client.tag,
            is_open: false,
            is_reserved: true,
            task: Id::NONE,
            queued: 0,
            request: Id::NONE,
        };
        let clients = before.engine.peek().clients.with_same_ids(reserved);
        let host = self.engine.host();
        host.reserved = clients.len();
        host.clients = clients;
    }

    /// Frees the reserved id of a client of an earlier VM that has ended.
    pub fn free_reserved(&mut self, client: ClientId) {
        let host = self.engine.host();
        if host.clients.get(client).is_some_and(|client| client.is_reserved) {
            host.clients.remove(client);
            host.reserved -= 1;
        }
    }

    /// Takes over a client of an earlier VM, and runs `on_handover`. `None` if its id is not reserved.
    pub fn adopt_client(&mut self, id: ClientId, tag: u64, state: &[u8]) -> Option<CallbackEnd> {
        let host = self.engine.host();
        let client = host.clients.get_mut(id).filter(|client| client.is_reserved)?;
        (client.tag, client.is_open, client.is_reserved) = (tag, true, false);
        host.reserved -= 1;
        let [index, generation] = numbers(id);
        let arguments = [index, generation, Argument::Bytes(state)];
        Some(self.run(Entry::Adopt, (Owner::Client(id), "on_handover"), &arguments))
    }
}

impl Host {
    /// Keeps the state of the client that is handed over.
    pub(crate) fn set_handover_state(&mut self, state: &[u8]) -> Result<(), &'static str> {
        if state.len() > STATE_BYTES_MAX {
            return Err("the state of a client exceeds 1 MiB and cannot be handed over");
        }
        self.handover_state = state.to_vec();
        Ok(())
    }

    /// Seconds until the VM ends; `None` unless newer code has replaced its code, or the process stops.
    pub(crate) fn seconds_left(&self) -> Option<f64> {
        let by = self.retires_at.or(self.stops_at)?;
        Some(by.since(self.now()).as_nanos() as f64 / 1e9)
    }

    /// Removes the reserved ids: clients of earlier VMs will be handed over to the VM that replaces this one.
    fn forget_reserved(&mut self) {
        let reserved = self.clients.iter().filter(|(_, client)| client.is_reserved);
        let reserved: Vec<ClientId> = reserved.map(|(id, _)| id).collect();
        for id in reserved {
            self.clients.remove(id);
        }
        self.reserved = 0;
    }
}
