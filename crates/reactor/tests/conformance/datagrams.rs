//! Cases of sockets for datagrams.
//! In: the table in main.rs. Out: the cases, for each driver.

use std::net::SocketAddr;

use tidegate_reactor::*;

use crate::rig::*;

/// The longest datagram over IPv4.
const BYTES_MAX: usize = 65_507;

impl<H: Harness> Rig<H> {
    /// A socket of the reactor, its far end, and the address at which the far end sees it.
    fn datagrams(&mut self) -> (DatagramId, H::Datagrams, SocketAddr) {
        let (far, address) = self.harness.serve_datagrams();
        let socket = self.reactor.open_datagrams(address).expect("no shortage");
        assert_eq!(self.reactor.send_datagram(socket, b"hello"), DatagramSent::Sent);
        let (from, bytes) = self.far_datagram(&far);
        assert_eq!(bytes, b"hello");
        (socket, far, from)
    }

    fn far_datagram(&mut self, far: &H::Datagrams) -> (SocketAddr, Vec<u8>) {
        let mut found = None;
        self.until("a datagram at the far end", |_| {
            found = far.receive();
            found.is_some()
        });
        found.expect("found above")
    }

    fn datagrams_of(&self, socket: DatagramId) -> Vec<Vec<u8>> {
        let of_socket = |seen: &Seen| match seen {
            Seen::Datagram(of, bytes) if *of == socket => Some(bytes.clone()),
            _ => None,
        };
        self.recorder.seen.iter().filter_map(of_socket).collect()
    }
}

pub fn datagrams_keep_their_bounds<H: Harness>() {
    let mut rig = Rig::<H>::new();
    let (socket, far, near) = rig.datagrams();
    for bytes in [pattern(0), pattern(1), pattern(BYTES_MAX)] {
        assert_eq!(rig.reactor.send_datagram(socket, &bytes), DatagramSent::Sent);
        assert!(rig.far_datagram(&far) == (near, bytes.clone()), "{} bytes", bytes.len());
        let before = rig.datagrams_of(socket).len();
        far.send(near, &bytes);
        rig.until("the datagram", |rig| rig.datagrams_of(socket).len() > before);
        assert!(rig.datagrams_of(socket).last() == Some(&bytes), "{} bytes", bytes.len());
    }
    assert_eq!((rig.reactor.datagram_socket_count(), rig.reactor.sock_count()), (1, 0));
}

pub fn datagram_of_another_sender_is_not_received<H: Harness>() {
    let mut rig = Rig::<H>::new();
    let (socket, far, near) = rig.datagrams();
    let (stranger, _) = rig.harness.serve_datagrams();
    stranger.send(near, b"forged");
    rig.settle();
    far.send(near, b"true");
    rig.until("the datagram", |rig| !rig.datagrams_of(socket).is_empty());
    assert_eq!(rig.datagrams_of(socket), [b"true"]);
}

pub fn refusal_is_reported_and_the_socket_remains<H: Harness>() {
    let mut rig = Rig::<H>::new();
    let (socket, far, _) = rig.datagrams();
    drop(far);
    for count in 1..=2 {
        rig.until("the send", |rig| {
            rig.reactor.send_datagram(socket, b"lost") == DatagramSent::Sent
        });
        rig.until("the refusal", |rig| {
            rig.count(|seen| *seen == Seen::DatagramFailed(socket, DatagramFault::Refused)) >= count
        });
    }
    assert_eq!(rig.reactor.datagram_socket_count(), 1);
}

pub fn datagram_that_is_too_long_is_not_sent<H: Harness>() {
    let mut rig = Rig::<H>::new();
    let (socket, far, _) = rig.datagrams();
    assert_eq!(rig.reactor.send_datagram(socket, &pattern(70_000)), DatagramSent::TooLong);
    assert_eq!(rig.reactor.send_datagram(socket, b"short"), DatagramSent::Sent);
    assert_eq!(rig.far_datagram(&far).1, b"short");
}

pub fn flood_of_datagrams_is_handed_over_in_several_turns<H: Harness>() {
    const FLOOD: usize = 150;
    let mut rig = Rig::<H>::new();
    let (socket, far, near) = rig.datagrams();
    for number in 0..FLOOD {
        far.send(near, &number.to_be_bytes());
    }
    rig.harness.deliver();
    rig.turn();
    assert!(rig.datagrams_of(socket).len() <= 64, "one turn hands over a part");
    rig.until("the others", |rig| rig.datagrams_of(socket).len() == FLOOD);
    let expected: Vec<_> = (0..FLOOD).map(|number| number.to_be_bytes().to_vec()).collect();
    assert_eq!(rig.datagrams_of(socket), expected);
}

pub fn closed_datagram_socket_reports_nothing<H: Harness>() {
    let mut rig = Rig::<H>::new();
    let (socket, far, near) = rig.datagrams();
    for _ in 0..3 {
        far.send(near, b"late");
    }
    rig.harness.deliver();
    // The first of them closes it, so the others have no handler.
    rig.hook(move |reactor, completion| {
        if let Completion::Datagram { socket, .. } = completion {
            reactor.close_datagrams(*socket);
        }
    });
    rig.until("the first", |rig| !rig.datagrams_of(socket).is_empty());
    rig.settle();
    assert_eq!(rig.datagrams_of(socket).len(), 1);
    assert_eq!(rig.reactor.send_datagram(socket, b"stale"), DatagramSent::Closed);
    assert_eq!(rig.reactor.datagram_socket_count(), 0);
    let (next, _, _) = rig.datagrams();
    rig.reactor.close_datagrams(socket);
    assert_eq!(rig.reactor.send_datagram(next, b"open"), DatagramSent::Sent);
}
