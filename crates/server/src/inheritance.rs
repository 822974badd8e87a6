//! The listening sockets that the process inherits from a service manager or from the process that it replaces, and which
//! worker listens on which of them.
//! In: sockets with their addresses, the configuration. Out: for each worker the sockets that it takes; the process that is
//! replaced.
//! Never: listens on an address that no `[[listener]]` names: such a socket is closed, with a warning.
//! Invariant: every inherited socket with a listener is taken by at least one worker, so that no connection in its queue
//! waits forever.

use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use tidegate_base::Address;
use tidegate_config::model::{Bind, Config};
use tidegate_reactor::inherited::{Inherited, InheritedSocket};

use crate::log;
use crate::predecessor::Predecessor;

/// See above.
#[derive(Default)]
pub(crate) struct Inheritance {
    /// The sockets of listeners, each with the index of its listener.
    sockets: Vec<(usize, InheritedSocket)>,
    /// The socket of the admin interface.
    admin: Option<OwnedFd>,
    /// The channel to the process that is replaced.
    channel: Option<OwnedFd>,
    /// Another process is to be replaced.
    replaces: bool,
}

impl Inheritance {
    /// Takes the sockets that the process has inherited, and closes those that `config` does not use.
    pub(crate) fn take(config: &Config) -> Self {
        let Inherited { sockets, unusable, channel } = Inherited::take();
        if unusable > 0 {
            log::warning(format_args!(
                "{unusable} inherited descriptors are not listening stream sockets and are closed"
            ));
        }
        Self { replaces: channel.is_some(), channel, ..Self::assign(sockets, config) }
    }

    /// Finds the listener of each socket.
    fn assign(sockets: Vec<InheritedSocket>, config: &Config) -> Self {
        let mut found = Self::default();
        let addresses: Vec<Address> = sockets.iter().map(|socket| socket.address.clone()).collect();
        let places = places(&addresses, config);
        for (socket, place) in sockets.into_iter().zip(places) {
            let is_admin = config.admin.as_ref().is_some_and(|of| is_at(&of.bind, &socket.address));
            match place {
                Some(place) => found.sockets.push((place, socket)),
                None if is_admin => found.admin = Some(socket.socket),
                None => log::warning(format_args!(
                    "no [[listener]] has the address {} of an inherited socket; the socket is closed",
                    socket.address
                )),
            }
        }
        found
    }

    /// Whether the listener has an inherited socket.
    pub(crate) fn has(&self, place: usize) -> bool {
        self.sockets.iter().any(|(of, _)| *of == place)
    }

    /// Whether another process is to be replaced.
    pub(crate) fn replaces(&self) -> bool {
        self.replaces
    }

    /// Whether the sockets are those of a service manager, which also has the files of unix sockets and keeps them.
    pub(crate) fn is_of_manager(&self) -> bool {
        !self.replaces() && (!self.sockets.is_empty() || self.admin.is_some())
    }

    /// Takes the socket of the admin interface.
    pub(crate) fn take_admin(&mut self) -> Option<OwnedFd> {
        self.admin.take()
    }

    /// The addresses of listeners whose sockets a service manager has, too: they remain open when this process closes them.
    pub(crate) fn managed(&self) -> Vec<Address> {
        let managed = self.sockets.iter().filter(|(_, socket)| socket.is_managed);
        let mut addresses: Vec<Address> =
            managed.map(|(_, socket)| socket.address.clone()).collect();
        addresses.dedup();
        addresses
    }

    /// The descriptors of the sockets.
    pub(crate) fn numbers(&self) -> Vec<RawFd> {
        self.sockets.iter().map(|(_, socket)| socket.socket.as_raw_fd()).collect()
    }

    /// By socket: its listener, if the worker `own` of `workers` takes it. Sockets of an earlier process that share their
    /// address with others are dealt out, so that a worker without one opens its own. All workers share any other socket: a
    /// worker of another user than the service manager could not open another one on the same address.
    pub(crate) fn share_of(&self, own: usize, workers: usize) -> Vec<Option<usize>> {
        let share = |(at, (place, socket)): (usize, &(usize, InheritedSocket))| {
            let earlier = self.sockets[..at].iter().filter(|(of, _)| of == place).count();
            let is_shared = socket.is_shared && self.replaces();
            (!is_shared || earlier % workers.max(1) == own).then_some(*place)
        };
        self.sockets.iter().enumerate().map(share).collect()
    }

    /// Closes this thread's copies of the sockets, after every worker has taken its own.
    pub(crate) fn release(&mut self) {
        self.sockets.clear();
    }

    /// Takes the channel to the process that is to be replaced; `None` on a second call, and if there is none.
    pub(crate) fn take_predecessor(&mut self) -> Option<Predecessor> {
        self.channel.take().map(Predecessor::new)
    }
}

/// By address: the listener that it belongs to. A listener on port 0 gets the sockets on one port of its IP address that
/// no other listener names.
fn places(addresses: &[Address], config: &Config) -> Vec<Option<usize>> {
    let exact = |address: &Address| {
        config.listeners.iter().position(|listener| is_at(&listener.bind, address))
    };
    let mut places: Vec<Option<usize>> = addresses.iter().map(exact).collect();
    for (at, listener) in config.listeners.iter().enumerate() {
        let Bind::Tcp(bind) = listener.bind else { continue };
        if bind.port() != 0 {
            continue;
        }
        let fits = |(address, place): (&Address, &Option<usize>)| match address {
            Address::Tcp(address) if place.is_none() && address.ip() == bind.ip() => {
                let is_admin = |of: &tidegate_config::model::Admin| of.bind == Bind::Tcp(*address);
                (!config.admin.as_ref().is_some_and(is_admin)).then_some(*address)
            }
            Address::Tcp(_) | Address::Unix(_) => None,
        };
        let Some(found) = addresses.iter().zip(&places).find_map(fits) else { continue };
        for (address, place) in addresses.iter().zip(&mut places) {
            if place.is_none() && *address == Address::Tcp(found) {
                *place = Some(at);
            }
        }
    }
    places
}

pub(crate) fn is_at(bind: &Bind, address: &Address) -> bool {
    match (bind, address) {
        (Bind::Tcp(bind), Address::Tcp(address)) => bind == address,
        (Bind::Unix(bind), Address::Unix(path)) => bind == path,
        (Bind::Tcp(_), Address::Unix(_)) | (Bind::Unix(_), Address::Tcp(_)) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(binds: &[&str]) -> Config {
        let listeners: String =
            binds.iter().map(|bind| format!("[[listener]]\nbind = \"{bind}\"\n")).collect();
        let text =
            format!("{listeners}[[route]]\nrespond = {{}}\n[admin]\nbind = \"127.0.0.1:9\"\n");
        tidegate_config::parse(&text, "the test").unwrap_or_else(|errors| panic!("{errors}"))
    }

    fn tcp(text: &str) -> Address {
        Address::Tcp(text.parse().expect("an address"))
    }

    #[test]
    fn sockets_find_their_listeners_by_address() {
        let config = config(&["127.0.0.1:80", "unix:/run/a", "127.0.0.1:0", "127.0.0.1:0"]);
        let addresses = [
            tcp("127.0.0.1:5001"),
            tcp("127.0.0.1:80"),
            Address::Unix("/run/a".to_owned()),
            tcp("127.0.0.1:5001"),
            tcp("127.0.0.1:9"),
            tcp("127.0.0.1:5002"),
            tcp("127.0.0.1:80"),
            tcp("10.0.0.1:80"),
            Address::Unix("/run/b".to_owned()),
            tcp("127.0.0.1:5003"),
        ];
        let expected =
            [Some(2), Some(0), Some(1), Some(2), None, Some(3), Some(0), None, None, None];
        assert_eq!(places(&addresses, &config), expected);
    }

    #[test]
    fn every_socket_has_a_worker_whatever_their_numbers() {
        let config = config(&["127.0.0.1:80"]);
        for (sockets, workers, is_shared, replaces) in [
            (1, 4, false, true),
            (1, 4, true, true),
            (4, 4, true, true),
            (5, 2, true, true),
            (2, 5, true, true),
            (3, 1, false, true),
            (1, 4, false, false),
            (1, 4, true, false),
        ] {
            let socket = |_| {
                let socket = std::net::UdpSocket::bind("127.0.0.1:0").expect("a descriptor").into();
                let is_managed = !replaces;
                InheritedSocket { socket, address: tcp("127.0.0.1:80"), is_shared, is_managed }
            };
            let mut found = Inheritance::assign((0..sockets).map(socket).collect(), &config);
            found.replaces = replaces;
            assert!(found.has(0) && !found.has(1));
            assert_eq!(
                (found.is_of_manager(), found.managed().len()),
                (!replaces, usize::from(!replaces))
            );
            let mut takers = vec![0; sockets];
            for worker in 0..workers {
                for (at, place) in found.share_of(worker, workers).into_iter().enumerate() {
                    takers[at] += usize::from(place == Some(0));
                }
            }
            let expected = if is_shared && replaces { 1 } else { workers };
            assert!(takers.iter().all(|count| *count == expected), "{sockets} for {workers}");
        }
    }
}
