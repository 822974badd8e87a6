//! Carries out the application's instructions (server API) for clients at the end of a turn.
//! In: the hub's instructions. Out: pushes; Close frames. Never: decides which clients an instruction concerns.
//! Limits: `CLIENTS_PER_TURN_MAX`.

use tidegate_push::instruction::{ClientChange, Instruction};
use tidegate_reactor::Reactor;

use crate::action::push::{Key, PushSession, Receiver};
use crate::worker::Worker;

/// Maximum number of clients that get an instruction before the worker serves its other connections again.
const CLIENTS_PER_TURN_MAX: usize = 64;

impl Worker {
    /// Continues the first of the instructions.
    pub(super) fn continue_instruction<R: Reactor>(&mut self, reactor: &mut R) {
        let mut keys = core::mem::take(&mut self.push.keys);
        if let Some(instruction) = self.push.hub.instruct(CLIENTS_PER_TURN_MAX, &mut keys) {
            for key in keys.drain(..) {
                self.instruct(reactor, key, &instruction);
            }
        }
        self.push.keys = keys;
        self.settle(reactor);
    }

    fn instruct<R: Reactor>(&mut self, reactor: &mut R, key: Key, instruction: &Instruction) {
        let Receiver::Session(id) = key.receiver() else { return };
        // An earlier client of the slice may have ended the connection.
        let is_concerned = |session: &PushSession| session.is_concerned(&instruction.session);
        if !self.push.sessions.find(id).is_some_and(is_concerned) {
            return;
        }
        match &instruction.what {
            ClientChange::Subscribe(addition) => {
                self.tell_client(reactor, id, |connection, context, out| {
                    connection.add_subscription(context, addition, out);
                });
            }
            ClientChange::Unsubscribe { channel } => {
                self.tell_client(reactor, id, |connection, context, out| {
                    connection.end_subscription(context, channel, out);
                });
            }
            ClientChange::Refresh { expires_at, info } => {
                self.tell_client(reactor, id, |connection, context, out| {
                    connection.change_end(context, (*expires_at, info.as_deref()), out);
                });
            }
            ClientChange::Disconnect { code, reason } => {
                self.close_push_client(reactor, id, *code, reason);
            }
        }
    }
}
