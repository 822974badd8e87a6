//! Cases of `Reactor::guard_send`: bytes that have arrived on a connection are handed over before its guarded output is sent.
//! In: the table in main.rs. Out: the cases, for each driver.

use tidegate_reactor::*;

use crate::rig::*;

pub fn guarded_output_is_sent_if_nothing_waits<H: Harness>() {
    for request in [b"request".to_vec(), pattern(100_000)] {
        let mut rig = Rig::<H>::new();
        let (sock, mut far) = rig.connected();
        rig.settle();
        assert!(!rig.reactor.is_guarded(sock));
        assert!(rig.reactor.guard_send(sock));
        assert!(rig.reactor.is_guarded(sock));
        rig.reactor.send(sock, &request);
        rig.until_far_got(&mut far, &request);
        assert!(!rig.reactor.is_guarded(sock), "the connection stays guarded after its output");
        rig.far_sends(&mut far, b"response");
        rig.until_received(sock, b"response");
    }
}

pub fn waiting_bytes_come_before_guarded_output<H: Harness>() {
    for request in [b"request".to_vec(), pattern(100_000)] {
        let mut rig = Rig::<H>::new();
        let (sock, mut far) = rig.connected_locally();
        rig.settle();
        far.send(b"early");
        rig.harness.deliver();
        assert!(rig.reactor.guard_send(sock));
        rig.reactor.send(sock, &request);
        rig.hook(|reactor, completion| {
            if let Completion::Received { sock, .. } = completion {
                assert!(
                    reactor.is_guarded(*sock),
                    "the request was sent before the bytes were handed over"
                );
            }
        });
        rig.until_received(sock, b"early");
        // The handler kept the connection, so the request follows.
        rig.until_far_got(&mut far, &request);
        assert!(!rig.reactor.is_guarded(sock));
    }
}

pub fn abort_drops_guarded_output<H: Harness>() {
    let mut rig = Rig::<H>::new();
    let (sock, mut far) = rig.connected_locally();
    rig.settle();
    far.send(b"early");
    rig.harness.deliver();
    assert!(rig.reactor.guard_send(sock));
    rig.reactor.send(sock, b"request");
    rig.hook(|reactor, completion| {
        if let Completion::Received { sock, .. } = completion {
            reactor.abort(*sock);
        }
    });
    rig.until("the abort", |rig| !rig.reactor.is_live(sock));
    rig.settle();
    assert!(far.receive().is_empty(), "the request was sent");
}

pub fn waiting_end_comes_before_guarded_output<H: Harness>() {
    for request in [b"request".to_vec(), pattern(100_000)] {
        let mut rig = Rig::<H>::new();
        let (sock, mut far) = rig.connected_locally();
        rig.settle();
        far.finish();
        rig.harness.deliver();
        assert!(rig.reactor.guard_send(sock));
        rig.reactor.send(sock, &request);
        rig.hook(|reactor, completion| {
            if let Completion::Finished { sock } = completion {
                assert!(
                    reactor.is_guarded(*sock),
                    "the request was sent before the end was handed over"
                );
            }
        });
        rig.until_seen(&Seen::Finished(sock));
        assert!(!rig.reactor.guard_send(sock), "the peer's end was handed over");
        // The handler kept the connection: a half-closed peer may still read.
        rig.until_far_got(&mut far, &request);
    }
}

pub fn waiting_reset_leaves_guarded_output_unsent<H: Harness>() {
    let mut rig = Rig::<H>::new();
    let (sock, mut far) = rig.connected();
    rig.settle();
    far.reset();
    rig.harness.deliver();
    if rig.reactor.guard_send(sock) {
        rig.reactor.send(sock, &pattern(100_000));
    }
    rig.until_seen(&Seen::Closed(sock, CloseReason::Unsent));
}

pub fn guarded_output_waits_for_a_paused_connection<H: Harness>() {
    let mut rig = Rig::<H>::new();
    let (sock, mut far) = rig.connected_locally();
    rig.reactor.set_receiving(sock, false);
    far.send(b"early");
    rig.settle();
    assert!(rig.reactor.guard_send(sock));
    rig.reactor.send(sock, b"request");
    rig.reactor.flush(sock);
    rig.settle();
    assert!(far.receive().is_empty(), "the request was sent during the pause");
    rig.reactor.set_receiving(sock, true);
    rig.until_received(sock, b"early");
    rig.until_far_got(&mut far, b"request");
    rig.until_seen(&Seen::Drained(sock));
}

pub fn close_drops_guarded_output<H: Harness>() {
    let mut rig = Rig::<H>::new();
    let (sock, mut far) = rig.connected();
    rig.settle();
    assert!(rig.reactor.guard_send(sock));
    rig.reactor.send(sock, b"request");
    rig.reactor.close(sock);
    let mut got = Vec::new();
    rig.until("the end", |_| {
        got.extend(far.receive());
        far.is_finished()
    });
    assert!(got.is_empty(), "the request was sent");
}
