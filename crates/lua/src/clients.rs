//! The WebSocket clients of a VM.
//! In: clients that connect and leave, what scripts send. Out: effects, in order.
//! Never: sends a byte; delivers a message to a later client with the index of an earlier one.
//! Limits: `OUTPUT_BYTES_MAX` of messages between two waits; `CLOSE_REASON_BYTES_MAX` of a reason.
//! Invariant: a client keeps the request that opened it exactly until `on_open` has ended.

use tidegate_base::Id;

use crate::host::{
    Client, ClientId, Effect, Host, OUTPUT_BYTES_MAX, RemoteClient, ScriptRequestId, TOO_MUCH,
};

/// Maximum number of bytes of the reason in a Close frame (RFC 6455 section 5.5).
const CLOSE_REASON_BYTES_MAX: usize = 123;

impl Host {
    /// Takes over a client.
    pub(crate) fn open_client(&mut self, tag: u64) -> Option<ClientId> {
        let (task, request) = (Id::NONE, Id::NONE);
        let client = Client { tag, is_open: true, is_reserved: false, task, queued: 0, request };
        self.clients.insert(client).ok()
    }

    /// `on_open` of a client begins, with this request.
    pub(crate) fn begin_opening(&mut self, id: ClientId, request: ScriptRequestId) {
        if let Some(client) = self.clients.get_mut(id) {
            client.request = request;
            self.opening += 1;
        }
    }

    /// `on_open` of a client has ended. Does nothing if it had ended before.
    pub(crate) fn end_opening(&mut self, id: ClientId) {
        if let Some(client) = self.clients.get_mut(id)
            && !client.request.is_none()
        {
            let request = core::mem::replace(&mut client.request, Id::NONE);
            self.opening -= 1;
            self.close(request);
        }
    }

    /// The connection of a client has ended: its handler is cancelled if it waits.
    pub(crate) fn cancel_handler(&mut self, id: ClientId) {
        self.end_opening(id);
        if let Some(client) = self.clients.get_mut(id) {
            let task = core::mem::replace(&mut client.task, Id::NONE);
            self.schedule.cancel(task);
        }
    }

    /// The worker's tag of a client whose connection is open.
    pub(crate) fn client(&self, id: ClientId) -> Result<u64, &'static str> {
        match self.clients.get(id) {
            Some(client) if client.is_open => Ok(client.tag),
            _ => Err("the connection is closed"),
        }
    }

    /// Sends a message.
    pub(crate) fn send(
        &mut self,
        id: ClientId,
        data: &[u8],
        is_text: bool,
    ) -> Result<(), &'static str> {
        let tag = self.client(id)?;
        self.check_message(data, is_text)?;
        if let Some(client) = self.clients.get_mut(id) {
            client.queued += data.len();
        }
        let data = self.outbox.push(data);
        self.outbox.effects.push(Effect::Send { tag, is_text, data });
        Ok(())
    }

    pub(crate) fn check_message(&self, data: &[u8], is_text: bool) -> Result<(), &'static str> {
        if is_text && core::str::from_utf8(data).is_err() {
            return Err("a text message must be UTF-8; send it as \"binary\"");
        }
        match self.outbox.bytes.len() + data.len() > OUTPUT_BYTES_MAX {
            true => Err(TOO_MUCH),
            false => Ok(()),
        }
    }

    /// Whether another VM of the application on the same worker may have clients: a VM with earlier or with later code.
    pub(crate) fn has_other_vms(&self) -> bool {
        self.retires_at.is_some() || self.reserved > 0
    }

    /// Sends a message to a client of another VM.
    pub(crate) fn send_remote(
        &mut self,
        to: RemoteClient,
        data: &[u8],
        is_text: bool,
    ) -> Result<(), &'static str> {
        self.check_message(data, is_text)?;
        let data = self.outbox.push(data);
        self.outbox.effects.push(Effect::SendRemote { to, is_text, data });
        Ok(())
    }

    /// Sends a message to the subscribers of a channel, in all VMs.
    pub(crate) fn broadcast(&mut self, channel: &[u8], data: &[u8]) -> Result<(), &'static str> {
        self.check_message(data, false)?;
        let (channel, data) = (self.outbox.push(channel), self.outbox.push(data));
        self.outbox.effects.push(Effect::Broadcast { channel, data });
        Ok(())
    }

    /// Sends a message to the subscribers of a channel of the application, in all workers. The client with the id `sender` does
    /// not get it.
    pub(crate) fn publish(
        &mut self,
        channel: &[u8],
        data: &[u8],
        is_text: bool,
        sender: &[u8],
    ) -> Result<(), &'static str> {
        self.check_message(data, is_text)?;
        if core::str::from_utf8(channel).is_err() {
            return Err("the name of a channel must be UTF-8");
        }
        let Ok(length) = u8::try_from(sender.len()) else { return Err("not the id of a client") };
        let start = self.outbox.bytes.len();
        let bytes = &mut self.outbox.bytes;
        for part in [b"t:", self.facts.app.as_bytes(), b":", channel] {
            bytes.extend_from_slice(part);
        }
        let channel = start..bytes.len();
        bytes.extend([if is_text { b't' } else { b'b' }, length]);
        bytes.extend_from_slice(sender);
        bytes.extend_from_slice(data);
        let data = channel.end..bytes.len();
        self.outbox.effects.push(Effect::Broadcast { channel, data });
        Ok(())
    }

    /// Ends a connection of a client of another VM.
    pub(crate) fn close_remote(
        &mut self,
        to: RemoteClient,
        code: u32,
        reason: &[u8],
    ) -> Result<(), &'static str> {
        check_close(code, reason)?;
        let reason = self.outbox.push(reason);
        self.outbox.effects.push(Effect::CloseRemote { to, code: code as u16, reason });
        Ok(())
    }

    /// Ends a connection.
    pub(crate) fn close_connection(
        &mut self,
        id: ClientId,
        code: u32,
        reason: &[u8],
    ) -> Result<(), &'static str> {
        let tag = self.client(id)?;
        check_close(code, reason)?;
        self.note_closed(id);
        let reason = self.outbox.push(reason);
        self.outbox.effects.push(Effect::Close { tag, code: code as u16, reason });
        Ok(())
    }

    /// No more messages are delivered to a client.
    pub(crate) fn note_closed(&mut self, id: ClientId) {
        if let Some(client) = self.clients.get_mut(id) {
            client.is_open = false;
        }
    }
}

/// Checks the contents of a Close frame.
pub(crate) fn check_close(code: u32, reason: &[u8]) -> Result<(), &'static str> {
    // RFC 6455 section 7.4: codes that an endpoint may send.
    if !matches!(code, 1000 | 1001 | 1003 | 1007..=1014 | 3000..=4999) {
        return Err("the code must be 1000, 1001, 1003, 1007 to 1014 or 3000 to 4999");
    }
    if reason.len() > CLOSE_REASON_BYTES_MAX || core::str::from_utf8(reason).is_err() {
        return Err("the reason must be UTF-8 of up to 123 bytes");
    }
    Ok(())
}
