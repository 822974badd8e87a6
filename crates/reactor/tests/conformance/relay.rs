//! Cases of `Reactor::relay_to`: bytes go from one connection to another inside the kernel.
//! In: the table in main.rs. Out: the cases, for each driver.

use tidegate_base::Span;
use tidegate_reactor::*;

use crate::rig::*;

/// Forwards what is received in place of relayed, and pauses while the target does not take its output.
fn forward<H: Harness>(rig: &mut Rig<H>, from: SockId, to: SockId) {
    rig.hook(move |reactor, completion| match completion {
        Completion::Received { sock, bytes } if *sock == from => {
            reactor.send(to, bytes);
            reactor.set_receiving(from, reactor.output_pending(to) == 0);
        }
        Completion::Relayed { sock, .. } if *sock == from => {
            reactor.set_receiving(from, reactor.output_pending(to) == 0);
        }
        Completion::Drained { sock } if *sock == to => reactor.set_receiving(from, true),
        _ => {}
    });
    rig.reactor.relay_to(from, Some(to));
}

fn relayed<H: Harness>(rig: &Rig<H>, sock: SockId) -> usize {
    let count = |seen: &Seen| match seen {
        Seen::Relayed(of, count) if *of == sock => *count,
        _ => 0,
    };
    rig.recorder.seen.iter().map(count).sum()
}

pub fn relayed_bytes_arrive_in_order<H: Harness>() {
    let mut rig = Rig::<H>::new();
    let (from, mut client) = rig.accepted();
    let (to, mut server) = rig.connected();
    rig.reactor.send(to, b"before ");
    rig.settle();
    forward(&mut rig, from, to);
    let bytes = pattern(300_000);
    let (mut sent, mut got) = (0, Vec::new());
    rig.until("the bytes at the server", |_| {
        sent += client.send(&bytes[sent..]);
        got.extend(server.receive());
        got.len() >= 7 + bytes.len()
    });
    assert!(got == [b"before ", &bytes[..]].concat(), "the server got wrong bytes");
    assert_eq!(relayed(&rig, from) + rig.received(from).len(), bytes.len());
    assert!(relayed(&rig, from) > 0, "nothing was relayed");
    // Without the relay the handler gets the bytes.
    rig.reactor.relay_to(from, None);
    let before = rig.received(from).len();
    rig.far_sends(&mut client, b"after");
    rig.until("the bytes in the handler", |rig| rig.received(from).len() == before + 5);
    rig.until_far_got(&mut server, b"after");
}

pub fn relayed_bytes_wait_for_a_target_that_does_not_read<H: Harness>() {
    let mut rig = Rig::<H>::new();
    let (from, mut client) = rig.accepted();
    let (to, mut server) = rig.connected();
    forward(&mut rig, from, to);
    let bytes = pattern(30_000_000);
    let mut sent = 0;
    // Until the windows of both connections are full.
    let mut idle = 0;
    rig.until("full windows", |rig| {
        let before = (sent, relayed(rig, from));
        sent += client.send(&bytes[sent..]);
        idle = if before == (sent, relayed(rig, from)) { idle + 1 } else { 0 };
        idle > 20
    });
    assert!(rig.reactor.output_pending(to) <= 65_536, "{}", rig.reactor.output_pending(to));
    let mut got = Vec::new();
    rig.until("all bytes", |_| {
        sent += client.send(&bytes[sent..]);
        got.extend(server.receive());
        got.len() >= bytes.len()
    });
    assert!(got == bytes, "the server got wrong bytes");
    assert_eq!(relayed(&rig, from) + rig.received(from).len(), bytes.len());
}

pub fn end_of_a_relayed_stream_comes_after_its_bytes<H: Harness>() {
    for is_reset in [false, true] {
        let mut rig = Rig::<H>::new();
        let (from, mut client) = rig.accepted();
        let (to, mut server) = rig.connected();
        forward(&mut rig, from, to);
        rig.far_sends(&mut client, &pattern(100_000));
        rig.until_far_got(&mut server, &pattern(100_000));
        if is_reset {
            client.reset();
            rig.until_seen(&Seen::Closed(from, CloseReason::Reset));
        } else {
            client.finish();
            rig.until_seen(&Seen::Finished(from));
        }
        assert!(rig.reactor.is_live(to));
    }
}

pub fn relay_to_a_connection_that_has_ended_is_received<H: Harness>() {
    let mut rig = Rig::<H>::new();
    let (from, mut client) = rig.accepted();
    let (to, mut server) = rig.connected();
    rig.reactor.relay_to(from, Some(to));
    rig.far_sends(&mut client, b"first");
    rig.until_far_got(&mut server, b"first");
    rig.reactor.abort(to);
    rig.far_sends(&mut client, b"second");
    rig.until_received(from, b"second");
    // Another connection in the same slot gets nothing of it.
    let (other, mut other_far) = rig.connected();
    assert_eq!(other.index, to.index, "the slot is reused");
    rig.far_sends(&mut client, b" third");
    rig.until_received(from, b"second third");
    assert!(other_far.receive().is_empty());
    // A new connection in the slot of one that relayed does not relay.
    rig.reactor.relay_to(from, Some(other));
    rig.reactor.abort(from);
    let (next, mut next_far) = rig.accepted();
    assert_eq!(next.index, from.index, "the slot is reused");
    rig.far_sends(&mut next_far, b"own");
    rig.until_received(next, b"own");
}

pub fn broken_target_closes_and_the_source_goes_on<H: Harness>() {
    let mut rig = Rig::<H>::new();
    let (from, mut client) = rig.accepted();
    let (to, mut server) = rig.connected();
    rig.reactor.relay_to(from, Some(to));
    server.reset();
    let bytes = pattern(100_000);
    let mut sent = 0;
    rig.until("the end of the target", |rig| {
        sent += client.send(&bytes[sent..]);
        rig.recorder.seen.contains(&Seen::Closed(to, CloseReason::Reset))
    });
    rig.until("all bytes", |rig| {
        sent += client.send(&bytes[sent..]);
        relayed(rig, from) + rig.received(from).len() == bytes.len()
    });
    assert!(rig.reactor.is_live(from));
}

/// Relays pieces one after the other until the kernel watches the connection by level.
fn relay_pieces<H: Harness>(rig: &mut Rig<H>, client: &mut H::Far, server: &mut H::Far) {
    for piece in 0..40_u8 {
        rig.far_sends(client, &[piece; 100]);
        rig.until_far_got(server, &[piece; 100]);
    }
}

pub fn paused_relay_is_not_reported_again_and_again<H: Harness>() {
    let mut rig = Rig::<H>::new();
    let (from, mut client) = rig.accepted();
    let (to, mut server) = rig.connected();
    forward(&mut rig, from, to);
    relay_pieces::<H>(&mut rig, &mut client, &mut server);
    for round in 0..3 {
        rig.reactor.set_receiving(from, false);
        rig.far_sends(&mut client, b"paused");
        rig.settle();
        let (before, wait_max) = (rig.reactor.now(), Span::from_millis(50));
        rig.reactor.turn(&mut rig.recorder, wait_max);
        // A report that comes with each wait would have ended this one at once.
        assert!(rig.reactor.now().since(before) >= wait_max, "round {round}");
        assert!(server.receive().is_empty(), "round {round}");
        rig.reactor.set_receiving(from, true);
        rig.until_far_got(&mut server, b"paused");
        relay_pieces::<H>(&mut rig, &mut client, &mut server);
    }
    client.finish();
    rig.until_seen(&Seen::Finished(from));
}

pub fn connection_that_relays_learns_of_room_for_its_own_output<H: Harness>() {
    let mut rig = Rig::<H>::new();
    let (from, mut client) = rig.accepted();
    let (to, mut server) = rig.connected();
    forward(&mut rig, from, to);
    relay_pieces::<H>(&mut rig, &mut client, &mut server);
    let bytes = pattern(20_000_000);
    rig.reactor.send(from, &bytes);
    rig.settle();
    assert!(rig.reactor.output_pending(from) > 0, "the windows hold everything");
    relay_pieces::<H>(&mut rig, &mut client, &mut server);
    rig.until_far_got(&mut client, &bytes);
    rig.until("no pending output", |rig| rig.reactor.output_pending(from) == 0);
}

pub fn pieces_of_one_byte_are_all_relayed<H: Harness>() {
    let mut rig = Rig::<H>::new();
    let (from, mut client) = rig.accepted();
    let (to, mut server) = rig.connected();
    forward(&mut rig, from, to);
    relay_pieces::<H>(&mut rig, &mut client, &mut server);
    // More packets than the pipe of a relay has places, and no packet after them.
    let bytes = pattern(2000);
    for at in 0..bytes.len() {
        assert_eq!(client.send(&bytes[at..=at]), 1);
    }
    rig.until_far_got(&mut server, &bytes);
}
