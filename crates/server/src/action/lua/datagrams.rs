//! Datagrams of Lua applications (`tide.udp`).
//! In: `Effect::OpenDatagrams` and what follows it; datagrams and refusals. Out: operations on the reactor; datagrams for the
//! VM.
//! Never: talks to an address that is not in `udp` of the application; queues a datagram that the kernel does not take: the
//! script learns that.
//! Limits: `requests-max` of the application; those of `reactor/src/driver/datagrams.rs` and `lua/src/datagrams.rs`.
//! Invariant: between two turns, each socket of a VM that is open is one of `Worker::datagrams`, and the reverse.
//!
//! The reactor does the work, not a separate thread: a datagram is sent and received without blocking, a thread would add two
//! hops and a lock to each, and the simulated network covers this code with the rest of the worker.

use core::net::SocketAddr;

use tidegate_lua::{DatagramSocketId, OperationId};
use tidegate_reactor::{CloseReason, DatagramFault, DatagramId, DatagramSent, Reactor};

use crate::datagrams::{AppDatagrams, DatagramUser};
use crate::worker::Worker;

/// The error of sockets at the end of a stop.
const STOPPING: &str = "the process is stopping";
/// The error if no route leads to the peer.
const UNREACHABLE: &str = "the address is unreachable";

/// Effects that scripts request.
impl Worker {
    /// Carries out `Effect::OpenDatagrams`.
    pub(super) fn open_lua_datagrams<R: Reactor>(
        &mut self,
        reactor: &mut R,
        app: usize,
        (socket, peer): (DatagramSocketId, SocketAddr),
    ) {
        let life = self.lua.apps.life(app);
        let opened = self.try_open_datagrams(reactor, app, peer);
        let Some(vm) = self.lua.apps.present(app) else { return };
        match opened {
            Ok(id) if vm.datagrams_opened(life, socket, tag_of(id)) => {
                let user = DatagramUser::App(AppDatagrams { app: app as u16, life, socket });
                self.datagrams.insert(id, user);
                self.accounts.counters.lua_datagram_sockets.add(1);
            }
            // Its handler has ended since.
            Ok(id) => reactor.close_datagrams(id),
            Err(why) => {
                self.accounts.counters.lua_refused_requests.add(1);
                vm.datagrams_ended(life, socket, why);
            }
        }
    }

    fn try_open_datagrams<R: Reactor>(
        &mut self,
        reactor: &mut R,
        app: usize,
        peer: SocketAddr,
    ) -> Result<DatagramId, &'static str> {
        let settings = self.lua.apps.settings(app);
        let may_send = settings.is_some_and(|app| app.udp.iter().any(|of| of.contains(peer.ip())));
        if !may_send {
            return Err("the address is not among `udp` of the application");
        }
        if self.stopping && self.conns.downstream_count() == 0 {
            return Err(STOPPING);
        }
        reactor.open_datagrams(peer).map_err(|reason| match reason {
            CloseReason::ConnectShortage(_) => "the worker has no room for another socket",
            CloseReason::ConnectRefused
            | CloseReason::ConnectUnreachable
            | CloseReason::Reset
            | CloseReason::Ended
            | CloseReason::Unsent => UNREACHABLE,
        })
    }

    /// Carries out `Effect::SendDatagram`.
    pub(super) fn send_lua_datagram<R: Reactor>(
        &mut self,
        reactor: &mut R,
        app: usize,
        operation: OperationId,
        (tag, data): (u64, &[u8]),
    ) {
        let life = self.lua.apps.life(app);
        let result = match reactor.send_datagram(id_of(tag), data) {
            DatagramSent::Sent => Ok(&b""[..]),
            DatagramSent::Full => Err("the send buffer is full"),
            DatagramSent::TooLong => Err("the datagram is too long"),
            DatagramSent::Failed(fault) => Err(message_of(fault)),
            DatagramSent::Closed => Err("closed"),
        };
        self.lua.apps.complete(app, life, operation, result);
    }
}

/// Events of the network.
impl Worker {
    /// A datagram has arrived.
    pub(crate) fn datagram_received<R: Reactor>(
        &mut self,
        reactor: &mut R,
        socket: DatagramId,
        bytes: &[u8],
    ) {
        match self.datagrams.get(socket) {
            Some(DatagramUser::App(AppDatagrams { app, life, socket })) => {
                let vm = self.lua.apps.present(usize::from(app));
                let is_kept = vm.is_none_or(|vm| vm.datagram_received(life, socket, bytes));
                self.accounts.counters.lua_lost_datagrams.add(u64::from(!is_kept));
            }
            Some(DatagramUser::Lookup(id)) => self.take_dns_answer(reactor, id, bytes),
            None => self.note_stray_datagrams(reactor, socket),
        }
    }

    /// A datagram has not arrived.
    pub(crate) fn datagram_failed<R: Reactor>(
        &mut self,
        reactor: &mut R,
        socket: DatagramId,
        fault: DatagramFault,
    ) {
        match self.datagrams.get(socket) {
            Some(DatagramUser::App(AppDatagrams { app, life, socket })) => {
                if let Some(vm) = self.lua.apps.present(usize::from(app)) {
                    vm.datagram_failed(life, socket, message_of(fault));
                }
            }
            Some(DatagramUser::Lookup(id)) => self.dns_query_refused(reactor, id),
            None => self.note_stray_datagrams(reactor, socket),
        }
    }
}

/// The end of sockets.
impl Worker {
    /// Closes the sockets that scripts have closed. At the end of a stop, closes all sockets.
    pub(crate) fn end_unwanted_datagrams<R: Reactor>(&mut self, reactor: &mut R) {
        if self.datagrams.len() == 0 {
            return;
        }
        for place in 0..self.lua.apps.len() {
            let app = self.lua.apps.index_at(place);
            while let Some(tag) =
                self.lua.apps.present(app).and_then(|vm| vm.take_closed_datagrams())
            {
                self.close_datagram_socket(reactor, id_of(tag));
            }
        }
        if self.stopping && self.conns.downstream_count() == 0 {
            self.end_datagrams(reactor, STOPPING, |_| true);
            self.end_lookups(reactor);
        }
    }

    /// Ends the sockets of an application whose VM is gone.
    pub(super) fn end_datagrams_of<R: Reactor>(&mut self, reactor: &mut R, app: usize) {
        self.end_datagrams(reactor, "closed", |of| usize::from(of.app) == app);
    }

    fn end_datagrams<R: Reactor>(
        &mut self,
        reactor: &mut R,
        why: &'static str,
        ends: impl Fn(AppDatagrams) -> bool,
    ) {
        let of_app = |(id, user): (DatagramId, DatagramUser)| match user {
            DatagramUser::App(of) => ends(of).then_some((id, of)),
            DatagramUser::Lookup(_) => None,
        };
        let sockets: Vec<_> = self.datagrams.iter().filter_map(of_app).collect();
        for (id, AppDatagrams { app, life, socket }) in sockets {
            self.close_datagram_socket(reactor, id);
            if let Some(vm) = self.lua.apps.present(usize::from(app)) {
                vm.datagrams_ended(life, socket, why);
            }
        }
    }

    /// A socket without a user has received something, which cannot happen.
    fn note_stray_datagrams<R: Reactor>(&mut self, reactor: &mut R, socket: DatagramId) {
        self.accounts.counters.bugs.add(1);
        reactor.close_datagrams(socket);
        debug_assert!(false, "a socket for datagrams without a user: {socket:?}");
    }

    pub(super) fn close_datagram_socket<R: Reactor>(&mut self, reactor: &mut R, id: DatagramId) {
        // The VM may name a socket that the worker has ended since.
        if self.datagrams.remove(id) {
            reactor.close_datagrams(id);
        }
    }
}

/// The message for scripts that says why a datagram has not arrived.
const fn message_of(fault: DatagramFault) -> &'static str {
    match fault {
        DatagramFault::Refused => "connection refused",
        DatagramFault::Unreachable => UNREACHABLE,
        DatagramFault::Rejected => "this host does not permit the datagram",
    }
}

/// The name by which a VM addresses a socket.
fn tag_of(id: DatagramId) -> u64 {
    u64::from(id.generation) << 32 | u64::from(id.index)
}

/// The socket that a VM addresses by this name.
fn id_of(tag: u64) -> DatagramId {
    DatagramId::new(tag as u32, (tag >> 32) as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_fault_has_a_message_of_its_own() {
        use DatagramFault::{Refused, Rejected, Unreachable};
        let messages = [Refused, Unreachable, Rejected].map(message_of);
        assert_eq!(messages[0], "connection refused");
        assert!(
            messages[1] != messages[0] && messages[2] != messages[0] && messages[1] != messages[2]
        );
    }
}
