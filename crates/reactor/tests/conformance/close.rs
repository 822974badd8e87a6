//! Cases of `close` and `close_at_once`: the end arrives after the bytes, and peers that never close are given up.
//! In: the table in main.rs. Out: the cases, for each driver.

use tidegate_reactor::*;

use crate::rig::*;

pub fn close_delivers_all_bytes_then_the_end<H: Harness>() {
    let mut rig = Rig::<H>::new();
    let (sock, mut far) = rig.accepted();
    let bytes = pattern(12 << 20);
    rig.reactor.send(sock, &bytes);
    rig.reactor.close(sock);
    assert!(!rig.reactor.is_live(sock));
    rig.until_far_got(&mut far, &bytes);
    rig.until("the far end's end", |_| {
        far.receive();
        far.is_finished()
    });
    drop(far);
    rig.until("the slot's end", |rig| rig.reactor.sock_count() == 0);
    assert_eq!(
        rig.count(|seen| matches!(seen, Seen::Closed(..))),
        0,
        "Closed came for our own close"
    );
}

pub fn close_survives_late_bytes_from_the_peer<H: Harness>() {
    let mut rig = Rig::<H>::new();
    let (sock, mut far) = rig.accepted();
    rig.reactor.send(sock, b"last answer");
    rig.reactor.close(sock);
    rig.settle();
    rig.far_sends(&mut far, &pattern(100_000));
    rig.settle();
    rig.until_far_got(&mut far, b"last answer");
    rig.until("the far end's end", |_| {
        far.receive();
        far.is_finished()
    });
    assert!(!far.was_reset());
    assert!(rig.received(sock).is_empty(), "late bytes were handed over");
    drop(far);
    rig.until("the slot's end", |rig| rig.reactor.sock_count() == 0);
}

pub fn close_unblocks_a_blocked_peer<H: Harness>() {
    let mut rig = Rig::<H>::new();
    let (sock, mut far) = rig.accepted();
    rig.reactor.set_receiving(sock, false);
    let bytes = pattern(1 << 20);
    rig.until("a full window", |_| far.send(&bytes) == 0);
    rig.reactor.send(sock, b"too large");
    rig.reactor.close(sock);
    rig.far_sends(&mut far, b"the end");
    rig.until_far_got(&mut far, b"too large");
    rig.until("the far end's end", |_| {
        far.receive();
        far.is_finished()
    });
}

pub fn close_unread_leaves_a_flooding_peer_waiting<H: Harness>() {
    let mut rig = Rig::<H>::new();
    let (sock, mut far) = rig.accepted();
    rig.reactor.send(sock, b"go away");
    rig.reactor.close_unread(sock);
    assert!(!rig.reactor.is_live(sock));
    let bytes = pattern(1 << 20);
    rig.until("a full window", |_| far.send(&bytes) == 0);
    rig.turn();
    rig.turn();
    assert_eq!(far.send(&bytes), 0, "what the peer sends is read");
    rig.until_far_got(&mut far, b"go away");
    rig.until("the far end's end", |_| {
        far.receive();
        far.is_finished()
    });
    rig.until("the slot's end", |rig| rig.reactor.sock_count() == 0);
    assert!(rig.received(sock).is_empty(), "bytes were handed over");
}

pub fn close_gives_up_on_a_peer_that_never_closes<H: Harness>() {
    let mut rig = Rig::<H>::new();
    let (sock, _far) = rig.accepted();
    rig.reactor.close(sock);
    rig.until("the slot's end", |rig| rig.reactor.sock_count() == 0);
}

pub fn close_at_once_sends_the_output_and_frees_the_slot<H: Harness>() {
    let mut rig = Rig::<H>::new();
    let (sock, mut far) = rig.accepted();
    rig.reactor.send(sock, b"last");
    rig.reactor.close_at_once(sock);
    assert!(!rig.reactor.is_live(sock));
    assert_eq!(rig.reactor.sock_count(), 0);
    rig.until_far_got(&mut far, b"last");
    rig.until("the end", |_| {
        far.receive();
        far.is_finished()
    });
    rig.settle();
    assert_eq!(rig.count(|seen| matches!(seen, Seen::Closed(..))), 0);
}

pub fn longest_lingering_connections_are_freed<H: Harness>() {
    let mut rig = Rig::<H>::new();
    let (first, mut far) = rig.accepted();
    let (second, mut other) = rig.accepted();
    assert!(!rig.reactor.free_lingering(0), "open connections do not linger");
    for sock in [first, second] {
        rig.reactor.close(sock);
        rig.turn();
    }
    assert!(!rig.reactor.free_lingering(2));
    assert!(rig.reactor.free_lingering(1));
    assert_eq!(rig.reactor.sock_count(), 1);
    rig.until("the first end", |_| {
        far.receive();
        far.is_finished()
    });
    other.finish();
    rig.until("the second end", |rig| rig.reactor.sock_count() == 0);
    assert!(!rig.reactor.free_lingering(0));
}
