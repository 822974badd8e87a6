//! What coroutines of a VM wait for: requests, clients, jobs, sockets and times.
//! In: coroutines that have yielded, events. Out: entries of the schedule, and their owners' references to them.
//! Never: runs code.
//! Invariant: an exchange, a client, an event of a hub, a tunnel and a handshake name the task of their handler exactly while it waits.

use tidegate_base::{Id, Moment};

use crate::engine::Coroutine;
use crate::host::{Effect, Host, ScriptRequestId};
use crate::schedule::{Owner, Wait, Wake};
use crate::vm::CallbackOwner;

impl Host {
    /// Keeps a coroutine that waits for `self.wait`. Returns false if it waits for nothing; then it is cancelled.
    pub(crate) fn suspend(
        &mut self,
        coroutine: Coroutine,
        owner: Owner,
        what: &'static str,
    ) -> bool {
        let wait = core::mem::replace(&mut self.wait, Wait::Nothing);
        let due = match wait {
            Wait::Nothing | Wait::End => Moment::NEVER,
            Wait::Until(at) | Wait::Job(_, at) => at,
            Wait::Socket(_, _, at) | Wait::Datagram(_, at) | Wait::Queue(_, at) => at,
            Wait::Drain(_) | Wait::Body(_) | Wait::Operation(_) => Moment::NEVER,
        };
        let at_due = if matches!(wait, Wait::Until(_)) { Wake::Slept } else { Wake::Due };
        let due = match self.hook_deadline(owner, wait) {
            Some(deadline) if deadline < due => (deadline, Wake::Overdue),
            Some(_) | None => (due, at_due),
        };
        let Some(task) = self.schedule.suspend(coroutine, (owner, what), due) else { return false };
        match wait {
            Wait::Nothing | Wait::End => {
                self.schedule.cancel(task);
                return false;
            }
            Wait::Until(_) => {}
            Wait::Operation(operation) => self.await_operation(operation, task),
            Wait::Socket(socket, is_read, _) => self.await_socket(socket, is_read, task),
            Wait::Datagram(socket, _) => self.await_datagram(socket, task),
            Wait::Queue(queue, _) => self.await_queue(queue, task),
            Wait::Job(job, _) => {
                if !self.schedule.await_job(task, job) {
                    self.schedule.wake(task, Wake::Done);
                }
            }
            Wait::Body(exchange) => self.suspend_for_body(exchange, task),
            Wait::Drain(exchange) => match self.exchanges.get_mut(exchange) {
                Some(exchange) => self.schedule.add_waiter(&mut exchange.waiters, task),
                None => self.schedule.wake(task, Wake::Ended),
            },
        }
        match owner {
            Owner::Request(exchange) => {
                if let Some(exchange) = self.exchanges.get_mut(exchange) {
                    exchange.task = task;
                }
            }
            Owner::Client(client) => {
                if let Some(client) = self.clients.get_mut(client) {
                    client.task = task;
                }
            }
            Owner::Event(event) => {
                if let Some(event) = self.events.get_mut(event) {
                    event.task = task;
                }
            }
            Owner::Tunnel(tunnel) => {
                if let Some(tunnel) = self.tunnels.get_mut(tunnel) {
                    tunnel.task = task;
                }
            }
            Owner::Hello(hello) => {
                if let Some(hello) = self.hellos.get_mut(hello) {
                    hello.task = task;
                }
            }
            Owner::Broadcast => self.broadcast = task,
            Owner::Log => self.waiting_logs += 1,
            Owner::Job(_) | Owner::Application => {}
        }
        true
    }

    /// The coroutine of a handler continues.
    pub(crate) fn note_resumed(&mut self, owner: Owner) {
        match owner {
            Owner::Request(exchange) => {
                self.note_hook_resumed(exchange);
                if let Some(exchange) = self.exchanges.get_mut(exchange) {
                    exchange.task = Id::NONE;
                }
            }
            Owner::Client(client) => {
                if let Some(client) = self.clients.get_mut(client) {
                    client.task = Id::NONE;
                }
            }
            Owner::Event(event) => {
                if let Some(event) = self.events.get_mut(event) {
                    event.task = Id::NONE;
                }
            }
            Owner::Tunnel(tunnel) => {
                if let Some(tunnel) = self.tunnels.get_mut(tunnel) {
                    tunnel.task = Id::NONE;
                }
            }
            Owner::Hello(hello) => {
                if let Some(hello) = self.hellos.get_mut(hello) {
                    hello.task = Id::NONE;
                }
            }
            Owner::Broadcast => self.broadcast = Id::NONE,
            Owner::Log => self.waiting_logs -= 1,
            Owner::Job(_) | Owner::Application => {}
        }
    }

    /// The owner of a coroutine, with the worker's tag.
    pub(crate) fn callback_owner(&self, owner: Owner) -> CallbackOwner {
        match owner {
            Owner::Request(id) => match self.exchanges.get(id) {
                Some(exchange) => CallbackOwner::Request { tag: exchange.tag },
                None => CallbackOwner::Application,
            },
            Owner::Client(id) => match self.clients.get(id) {
                Some(client) => CallbackOwner::Client { tag: client.tag },
                None => CallbackOwner::Application,
            },
            Owner::Event(id) => match self.events.get(id) {
                Some(event) => CallbackOwner::Event { tag: event.tag },
                None => CallbackOwner::Application,
            },
            Owner::Tunnel(id) => match self.tunnels.get(id) {
                Some(tunnel) => CallbackOwner::Tunnel { tag: tunnel.tag() },
                None => CallbackOwner::Application,
            },
            Owner::Hello(id) => match self.hellos.get(id) {
                Some(hello) => CallbackOwner::Hello { tag: hello.tag() },
                None => CallbackOwner::Application,
            },
            Owner::Job(_) | Owner::Broadcast | Owner::Log | Owner::Application => {
                CallbackOwner::Application
            }
        }
    }

    /// Requests a report when the client of a begun response has read what was sent.
    pub(crate) fn request_drain(&mut self, id: ScriptRequestId) {
        if let Some(exchange) = self.exchanges.get(id) {
            self.outbox.effects.push(Effect::AwaitDrain { tag: exchange.tag });
        }
    }

    /// The client of a response has read what was sent.
    pub(crate) fn note_drained(&mut self, id: ScriptRequestId) {
        if let Some(exchange) = self.exchanges.get_mut(id) {
            let waiters = core::mem::take(&mut exchange.waiters);
            self.schedule.wake_all(&waiters, Wake::Done);
        }
    }
}
