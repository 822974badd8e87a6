//! The choice of a server by a script (`on_balance`).
//! In: the request, the servers of its pool, the number of the attempt. Out: the index of a server, or none.
//! Never: waits; knows what makes a server free.

use crate::engine::{Argument, Entry};
use crate::exchange::{AtReturn, Rewritten};
use crate::host::{Host, ScriptRequestId};
use crate::schedule::Owner;
use crate::vm::{CallbackEnd, Vm, numbers};

/// An attempt to find a server for a request.
#[derive(Clone, Copy, Debug)]
pub struct BalanceParts<'a> {
    /// The name of the pool.
    pub pool: &'a str,
    /// The number of the attempt, from 1.
    pub number: u32,
    /// For each server: its name, a tab, and two digits: whether it is free, whether it was tried. A line feed ends it.
    pub servers: &'a [u8],
    /// The number of servers.
    pub count: usize,
}

impl Host {
    /// The script chooses a server by its number, from 1.
    pub(crate) fn choose_server(&mut self, id: ScriptRequestId, number: f64) -> Result<(), String> {
        let exchange = self.exchange(id)?;
        if number.fract() != 0.0 || number < 1.0 || number > exchange.servers as f64 {
            return Err(format!("the pool has no server {number}; it has {}", exchange.servers));
        }
        exchange.choice = Some(number as usize - 1);
        Ok(())
    }
}

impl Vm {
    /// Runs `on_balance` for a request that is about to be sent to a server. It cannot wait.
    pub fn balance(&mut self, id: ScriptRequestId, parts: &BalanceParts<'_>) -> CallbackEnd {
        let host = self.engine.host();
        host.note_handler(id, AtReturn::Nothing);
        if let Ok(exchange) = host.exchange(id) {
            (exchange.servers, exchange.choice) = (parts.count, None);
        }
        let [index, generation] = numbers(id);
        let arguments = [
            index,
            generation,
            Argument::Bytes(parts.pool.as_bytes()),
            Argument::Number(f64::from(parts.number)),
            Argument::Bytes(parts.servers),
        ];
        self.run_at_once(Entry::Balance, (Owner::Request(id), "on_balance"), &arguments)
    }

    /// Takes the index of the server that `on_balance` has chosen; `None` if it has chosen none.
    pub fn take_choice(&mut self, id: ScriptRequestId) -> Option<usize> {
        self.engine.host().exchange(id).ok()?.choice.take()
    }

    /// Lets scripts read a request that `take_request` has taken and not put back.
    pub fn copy_request(&mut self, id: ScriptRequestId, from: &Rewritten) {
        if let Ok(exchange) = self.engine.host().exchange(id) {
            exchange.copy(from);
        }
    }
}
