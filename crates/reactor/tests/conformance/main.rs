//! What every driver guarantees, as named cases that run on each driver: `epoll::<case>` and `sim::<case>`.
//! In: the table at the end. Out: one test for each case and driver.

mod close;
mod datagrams;
mod guard;
mod relay;
mod rig;

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use rig::*;
use tidegate_base::limits::{ACCEPTS_PER_TURN_MAX, RECEIVE_BYTES_PER_TURN_MAX};
use tidegate_base::{Address, Moment, Span};
use tidegate_reactor::*;

mod cases {
    pub use super::close::*;
    pub use super::datagrams::*;
    pub use super::guard::*;
    pub use super::relay::*;
    use super::*;

    pub fn accepts_and_receives<H: Harness>() {
        let mut rig = Rig::<H>::new();
        let (listener, address) = rig.listen(&loopback());
        let (sock, mut far) = rig.dialled(&address);
        let peer = rig.recorder.seen.iter().find_map(|seen| match seen {
            Seen::Accepted(of, _, peer) if *of == listener => Some(*peer),
            _ => None,
        });
        assert!(matches!(peer, Some(Peer::Tcp(tcp)) if tcp.ip().is_loopback()));
        rig.far_sends(&mut far, b"hello");
        rig.until_received(sock, b"hello");
        assert_eq!(rig.reactor.sock_count(), 1);
    }

    pub fn connection_reports_its_local_address<H: Harness>() {
        let mut rig = Rig::<H>::new();
        let (_, address) = rig.listen(&loopback());
        let (sock, far) = rig.dialled(&address);
        assert_eq!(rig.reactor.local_address(sock).map(Address::Tcp), Some(address));
        rig.reactor.abort(sock);
        assert_eq!(rig.reactor.local_address(sock), None, "a closed connection has no address");
        drop(far);
    }

    pub fn listener_on_port_zero_reports_its_port<H: Harness>() {
        let mut rig = Rig::<H>::new();
        let (listener, address) = rig.listen(&loopback());
        assert!(matches!(address, Address::Tcp(tcp) if tcp.port() != 0));
        rig.reactor.stop_listening(listener);
        rig.settle();
        assert_eq!(rig.reactor.listener_address(listener), None);
    }

    pub fn address_in_use_is_reported<H: Harness>() {
        let mut rig = Rig::<H>::new();
        let (_, address) = rig.listen(&loopback());
        let error = rig.reactor.listen(&address, &OPTIONS).expect_err("the address is in use");
        assert_eq!(error.address, address);
        assert_eq!(error.cause.kind(), std::io::ErrorKind::AddrInUse);
    }

    pub fn listeners_of_a_group_share_an_address<H: Harness>() {
        let mut rig = Rig::<H>::new();
        let options = ListenOptions { reuse_port: true, steer_by_cpu_over: Some(2), ..OPTIONS };
        let first = rig.reactor.listen(&loopback(), &options).expect("a free port");
        let address = rig.reactor.listener_address(first).expect("the listener is open");
        rig.reactor.listen(&address, &options).expect("a group shares its address");
        let fars: Vec<_> = (0..8).map(|_| rig.harness.dial(&address)).collect();
        rig.until("all accepts", |rig| rig.accepts().len() == fars.len());
    }

    pub fn unix_listener_accepts_local_peers<H: Harness>() {
        let mut rig = Rig::<H>::new();
        let path = unix_path();
        let (listener, address) = rig.listen(&path);
        assert_eq!(address, path);
        let (sock, mut far) = rig.dialled(&address);
        rig.until_seen(&Seen::Accepted(listener, sock, Peer::Local));
        rig.far_sends(&mut far, b"local");
        rig.until_received(sock, b"local");
        rig.reactor.send(sock, b"answer");
        rig.until_far_got(&mut far, b"answer");
        if let Address::Unix(path) = path {
            let _ = std::fs::remove_file(path);
        }
    }

    pub fn many_connections_are_all_accepted<H: Harness>() {
        let mut rig = Rig::<H>::new();
        let (_, address) = rig.listen(&loopback());
        let count = ACCEPTS_PER_TURN_MAX + 20;
        let fars: Vec<_> = (0..count).map(|_| rig.harness.dial(&address)).collect();
        rig.until("all accepts", |rig| rig.accepts().len() == count);
        assert_eq!(rig.reactor.sock_count(), fars.len());
    }

    pub fn bytes_arrive_in_order<H: Harness>() {
        let mut rig = Rig::<H>::new();
        let (sock, mut far) = rig.accepted();
        let bytes = pattern(3 << 20);
        rig.far_sends(&mut far, &bytes);
        rig.until_received(sock, &bytes);
    }

    pub fn echo_returns_the_received_bytes<H: Harness>() {
        let mut rig = Rig::<H>::new();
        rig.hook(|reactor, completion| {
            if let Completion::Received { sock, bytes } = completion {
                bytes.make_ascii_uppercase();
                let output = reactor.output(*sock).expect("the connection is open");
                output.extend_from_slice(bytes);
            }
        });
        let (_, mut far) = rig.accepted();
        for _ in 0..3 {
            rig.far_sends(&mut far, b"ping");
            rig.until_far_got(&mut far, b"PING");
        }
    }

    pub fn output_and_send_keep_their_order<H: Harness>() {
        let mut rig = Rig::<H>::new();
        let (sock, mut far) = rig.accepted();
        let large = pattern(20_000);
        rig.reactor.output(sock).expect("the connection is open").extend_from_slice(b"head ");
        rig.reactor.send(sock, b"small ");
        rig.reactor.send(sock, &large);
        rig.reactor.send(sock, b" tail");
        rig.reactor.flush(sock);
        let wanted = [b"head small ".as_slice(), &large, b" tail"].concat();
        rig.until_far_got(&mut far, &wanted);
        assert_eq!(rig.reactor.output_pending(sock), 0);
    }

    pub fn send_larger_than_the_window_drains_once<H: Harness>() {
        let mut rig = Rig::<H>::new();
        let (sock, mut far) = rig.accepted();
        let bytes = pattern(24 << 20);
        rig.reactor.send(sock, &bytes);
        assert!(rig.reactor.output_pending(sock) > 0, "the kernel took everything at once");
        rig.settle();
        assert_eq!(
            rig.count(|seen| *seen == Seen::Drained(sock)),
            0,
            "Drained came although the peer reads nothing"
        );
        rig.until_far_got(&mut far, &bytes);
        rig.until_seen(&Seen::Drained(sock));
        assert_eq!(rig.reactor.output_pending(sock), 0);
        rig.settle();
        assert_eq!(rig.count(|seen| *seen == Seen::Drained(sock)), 1);
    }

    pub fn output_check_sees_what_the_peer_takes<H: Harness>() {
        let path = unix_path();
        for address in [loopback(), path.clone()] {
            let mut rig = Rig::<H>::new();
            let (_, address) = rig.listen(&address);
            let (sock, mut far) = rig.dialled(&address);
            assert_eq!(rig.reactor.check_output_progress(sock), OutputProgress::Idle);
            rig.reactor.send(sock, &pattern(24 << 20));
            let mut last = OutputProgress::Idle;
            rig.until("a peer whose buffers are full", |rig| {
                rig.settle();
                let look = rig.reactor.check_output_progress(sock);
                core::mem::replace(&mut last, look) == look
            });
            assert!(matches!(last, OutputProgress::Pending { .. }), "{last:?}");
            // Even if the peer takes too little for the kernel to report that there is room.
            far.receive();
            rig.until("a look that sees it", |rig| rig.reactor.check_output_progress(sock) != last);
            rig.until("a look that sees nothing pending", |rig| {
                far.receive();
                rig.reactor.check_output_progress(sock) == OutputProgress::Idle
            });
            rig.reactor.abort(sock);
            assert_eq!(rig.reactor.check_output_progress(sock), OutputProgress::Idle, "a stale id");
        }
        if let Address::Unix(path) = path {
            let _ = std::fs::remove_file(path);
        }
    }

    pub fn send_completed_at_once_reports_no_drained<H: Harness>() {
        let mut rig = Rig::<H>::new();
        let (sock, mut far) = rig.accepted();
        rig.reactor.send(sock, b"short");
        rig.until_far_got(&mut far, b"short");
        rig.settle();
        assert_eq!(rig.count(|seen| *seen == Seen::Drained(sock)), 0);
    }

    pub fn paused_connection_receives_nothing_until_resumed<H: Harness>() {
        let mut rig = Rig::<H>::new();
        let (sock, mut far) = rig.accepted();
        rig.reactor.set_receiving(sock, false);
        rig.far_sends(&mut far, b"early");
        far.finish();
        rig.settle();
        assert!(rig.received(sock).is_empty());
        assert_eq!(
            rig.count(|seen| *seen == Seen::Finished(sock)),
            0,
            "Finished came during the pause"
        );
        assert_eq!(rig.count(|seen| *seen == Seen::HungUp(sock)), 1);
        assert!(rig.reactor.has_hung_up(sock));
        rig.reactor.set_receiving(sock, true);
        rig.until_received(sock, b"early");
        rig.until_seen(&Seen::Finished(sock));
    }

    pub fn hangup_before_the_pause_is_known<H: Harness>() {
        let mut rig = Rig::<H>::new();
        let (sock, mut far) = rig.accepted();
        assert!(!rig.reactor.has_hung_up(sock));
        rig.far_sends(&mut far, b"early");
        far.finish();
        rig.until_seen(&Seen::Finished(sock));
        rig.reactor.set_receiving(sock, false);
        assert!(rig.reactor.has_hung_up(sock));
        rig.settle();
        assert_eq!(rig.count(|seen| *seen == Seen::HungUp(sock)), 0, "Finished came already");
    }

    pub fn pause_within_a_turn_takes_effect_at_once<H: Harness>() {
        let mut rig = Rig::<H>::new();
        rig.hook(|reactor, completion| {
            if let Completion::Received { sock, .. } = completion {
                reactor.set_receiving(*sock, false);
            }
        });
        let (sock, mut far) = rig.accepted();
        let bytes = pattern(200_000);
        let mut sent = 0;
        rig.until("some bytes", |rig| {
            sent += far.send(&bytes[sent..]);
            !rig.received(sock).is_empty()
        });
        rig.settle();
        assert_eq!(rig.count(|seen| matches!(seen, Seen::Received(..))), 1);
        rig.recorder.hook = None;
        rig.reactor.set_receiving(sock, true);
        rig.until("the rest", |rig| {
            sent += far.send(&bytes[sent..]);
            rig.received(sock).len() == bytes.len()
        });
        assert!(rig.received(sock) == bytes);
    }

    pub fn greedy_peer_does_not_starve_another<H: Harness>() {
        let mut rig = Rig::<H>::new();
        let (_, address) = rig.listen(&loopback());
        let (greedy, mut greedy_far) = rig.dialled(&address);
        let (modest, mut modest_far) = rig.dialled(&address);
        rig.reactor.set_receiving(greedy, false);
        let bytes = pattern(RECEIVE_BYTES_PER_TURN_MAX * 2);
        let mut sent = greedy_far.send(&bytes);
        rig.settle();
        rig.far_sends(&mut modest_far, b"me too");
        rig.reactor.set_receiving(greedy, true);
        rig.until("the modest bytes", |rig| {
            sent += greedy_far.send(&bytes[sent..]);
            !rig.received(modest).is_empty()
        });
        // The modest connection was served after at most two turns of the greedy one.
        assert!(rig.received(greedy).len() <= 2 * RECEIVE_BYTES_PER_TURN_MAX);
        rig.until("the greedy bytes", |rig| {
            sent += greedy_far.send(&bytes[sent..]);
            rig.received(greedy).len() == bytes.len()
        });
    }

    pub fn peer_finishes_first<H: Harness>() {
        let mut rig = Rig::<H>::new();
        let (sock, mut far) = rig.accepted();
        rig.far_sends(&mut far, b"request");
        far.finish();
        rig.until_seen(&Seen::Finished(sock));
        assert_eq!(rig.received(sock), b"request", "Finished came before all bytes");
        rig.reactor.send(sock, b"answer");
        rig.until_far_got(&mut far, b"answer");
        rig.reactor.finish(sock);
        rig.until_seen(&Seen::Closed(sock, CloseReason::Ended));
        rig.until("the far end's end", |_| {
            far.receive();
            far.is_finished()
        });
        assert_eq!(rig.reactor.sock_count(), 0);
    }

    pub fn this_side_finishes_first<H: Harness>() {
        let mut rig = Rig::<H>::new();
        let (sock, mut far) = rig.accepted();
        rig.reactor.send(sock, b"all");
        rig.reactor.finish(sock);
        assert!(rig.reactor.output(sock).is_none(), "output is accepted after finish");
        rig.until_far_got(&mut far, b"all");
        rig.until("the far end's end", |_| {
            far.receive();
            far.is_finished()
        });
        rig.far_sends(&mut far, b"still receiving");
        rig.until_received(sock, b"still receiving");
        far.finish();
        rig.until_seen(&Seen::Closed(sock, CloseReason::Ended));
        let finished = rig.recorder.seen.iter().position(|seen| *seen == Seen::Finished(sock));
        let closed = rig.recorder.seen.iter().position(|seen| matches!(seen, Seen::Closed(..)));
        assert!(finished.is_some() && finished < closed);
    }

    pub fn room_is_made_only_for_a_waiting_connection<H: Harness>() {
        let mut rig = Rig::<H>::new();
        let (_, address) = rig.listen(&loopback());
        let asked: Rc<Cell<u32>> = Rc::default();
        let count = Rc::clone(&asked);
        rig.recorder.room = Some(Box::new(move |_, shortage| {
            assert_eq!(shortage, Shortage::Slots);
            count.set(count.get() + 1);
            if count.get() == 1 { Room::Soon } else { Room::Made }
        }));
        let _far = rig.harness.dial(&address);
        rig.until("the accept", |rig| rig.accepts().len() == 1);
        rig.settle();
        assert_eq!(asked.get(), 2);
        assert_eq!(rig.count(|seen| matches!(seen, Seen::AcceptPaused(..))), 0);
    }

    pub fn listeners_take_turns_in_a_shortage<H: Harness>() {
        let mut rig = Rig::<H>::new();
        let (_, first) = rig.listen(&loopback());
        let (last, other) = rig.listen(&loopback());
        let mut calls = 0;
        rig.recorder.room = Some(Box::new(move |_, _| {
            calls += 1;
            if calls % 2 == 0 { Room::Soon } else { Room::Made }
        }));
        let mut fars: Vec<_> = (0..10).map(|_| rig.harness.dial(&first)).collect();
        fars.push(rig.harness.dial(&other));
        rig.until("all accepts", |rig| rig.accepts().len() == fars.len());
        let accepted = rig.recorder.seen.iter().filter_map(|seen| match seen {
            Seen::Accepted(listener, ..) => Some(*listener),
            _ => None,
        });
        let before = accepted.take_while(|listener| *listener != last).count();
        assert!(
            before <= 2,
            "{before} connections of one listener were accepted before the other's"
        );
    }

    pub fn abort_resets<H: Harness>() {
        let mut rig = Rig::<H>::new();
        let (sock, mut far) = rig.accepted();
        rig.reactor.abort(sock);
        assert!(!rig.reactor.is_live(sock));
        assert_eq!(rig.reactor.sock_count(), 0);
        rig.until("the reset", |_| {
            far.receive();
            far.was_reset()
        });
        rig.settle();
        assert_eq!(rig.count(|seen| matches!(seen, Seen::Closed(..))), 0);
    }

    pub fn reset_is_reported_while_paused<H: Harness>() {
        let mut rig = Rig::<H>::new();
        let (sock, mut far) = rig.accepted();
        rig.reactor.set_receiving(sock, false);
        rig.settle();
        far.reset();
        rig.until_seen(&Seen::Closed(sock, CloseReason::Reset));
        assert_eq!(rig.reactor.sock_count(), 0);
    }

    pub fn early_response_arrives_before_the_reset<H: Harness>() {
        let mut rig = Rig::<H>::new();
        let (sock, mut far) = rig.connected();
        rig.far_sends(&mut far, b"too large");
        far.reset();
        let request = pattern(100_000);
        rig.until("the end", |rig| {
            if rig.reactor.is_live(sock) {
                rig.reactor.send(sock, &request);
            }
            !rig.reactor.is_live(sock)
        });
        assert_eq!(rig.received(sock), b"too large");
        rig.until_seen(&Seen::Closed(sock, CloseReason::Reset));
        assert_eq!(
            rig.count(|seen| *seen == Seen::Finished(sock)),
            0,
            "a reset was reported as an orderly end"
        );
    }

    pub fn connect_sends_and_receives<H: Harness>() {
        let mut rig = Rig::<H>::new();
        let (sock, mut far) = rig.connected();
        rig.reactor.send(sock, b"request");
        rig.until_far_got(&mut far, b"request");
        rig.far_sends(&mut far, b"answer");
        rig.until_received(sock, b"answer");
    }

    pub fn output_queued_before_connected_is_sent<H: Harness>() {
        let mut rig = Rig::<H>::new();
        let (server, address) = rig.harness.serve(&loopback());
        let sock = rig.reactor.connect(&address).expect("no shortage");
        let large = pattern(10_000);
        rig.reactor
            .output(sock)
            .expect("output may be queued before Connected")
            .extend_from_slice(b"early ");
        rig.reactor.send(sock, &large);
        let mut far = None;
        rig.until("the far accept", |rig| {
            far = rig.harness.accept(&server);
            far.is_some()
        });
        let mut far = far.expect("accepted above");
        rig.until_far_got(&mut far, &[b"early ".as_slice(), &large].concat());
        rig.until_seen(&Seen::Connected(sock));
    }

    pub fn refused_connect_is_reported<H: Harness>() {
        let mut rig = Rig::<H>::new();
        let (listener, address) = rig.listen(&loopback());
        rig.reactor.stop_listening(listener);
        rig.until("the listener's end", |rig| rig.reactor.listener_address(listener).is_none());
        let sock = rig.reactor.connect(&address).expect("no shortage");
        rig.until_seen(&Seen::Closed(sock, CloseReason::ConnectRefused));
        assert_eq!(rig.reactor.sock_count(), 0);
    }

    pub fn unreachable_connect_is_reported<H: Harness>() {
        let mut rig = Rig::<H>::new();
        let sock = rig.reactor.connect(&unix_path()).expect("no shortage");
        assert!(rig.reactor.is_live(sock), "the outcome must come as a completion");
        rig.until_seen(&Seen::Closed(sock, CloseReason::ConnectUnreachable));
        assert_eq!(rig.reactor.sock_count(), 0);
    }

    pub fn connect_uses_the_given_source_address<H: Harness>() {
        let mut rig = Rig::<H>::new();
        let (listener, address) = rig.listen(&loopback());
        let source = core::net::IpAddr::from([127, 0, 0, 7]);
        let sock = rig.reactor.connect_from(&address, Some(source)).expect("no shortage");
        rig.until_seen(&Seen::Connected(sock));
        rig.until("the accept", |rig| !rig.accepts().is_empty());
        let has_that_peer = |seen: &Seen| {
            matches!(seen, Seen::Accepted(of, _, Peer::Tcp(peer))
                if *of == listener && peer.ip() == source)
        };
        assert_eq!(rig.count(has_that_peer), 1);
    }

    pub fn unix_connect_sends_and_receives<H: Harness>() {
        let mut rig = Rig::<H>::new();
        let (server, address) = rig.harness.serve(&unix_path());
        let sock = rig.reactor.connect(&address).expect("no shortage");
        rig.until_seen(&Seen::Connected(sock));
        let mut far = rig.harness.accept(&server).expect("the connection is open");
        rig.reactor.send(sock, b"request");
        rig.until_far_got(&mut far, b"request");
        far.send(b"answer");
        drop(far);
        rig.until_received(sock, b"answer");
        rig.until_seen(&Seen::Finished(sock));
        if let Address::Unix(path) = address {
            let _ = std::fs::remove_file(path);
        }
    }

    pub fn cancelled_connect_reports_nothing<H: Harness>() {
        let mut rig = Rig::<H>::new();
        let (_server, address) = rig.harness.serve(&loopback());
        for abort in [true, false] {
            let sock = rig.reactor.connect(&address).expect("no shortage");
            if abort { rig.reactor.abort(sock) } else { rig.reactor.close(sock) }
        }
        let failed = rig.reactor.connect(&unix_path()).expect("no shortage");
        rig.reactor.close(failed);
        rig.settle();
        assert!(rig.recorder.seen.is_empty(), "{:?}", rig.recorder.seen);
        assert_eq!(rig.reactor.sock_count(), 0);
    }

    pub fn stale_ids_do_nothing<H: Harness>() {
        let mut rig = Rig::<H>::new();
        let (_, address) = rig.listen(&loopback());
        let (stale, mut far) = rig.dialled(&address);
        far.reset();
        rig.until_seen(&Seen::Closed(stale, CloseReason::Reset));
        let (fresh, mut far) = rig.dialled(&address);
        assert_eq!(fresh.index, stale.index, "the slot was not reused");
        assert_ne!(fresh, stale);
        rig.reactor.send(stale, b"lost");
        rig.reactor.send(stale, &pattern(10_000));
        rig.reactor.flush(stale);
        rig.reactor.set_receiving(stale, false);
        rig.reactor.set_deadline(stale, rig.reactor.now());
        rig.reactor.finish(stale);
        rig.reactor.close(stale);
        rig.reactor.abort(stale);
        assert!(rig.reactor.output(stale).is_none());
        assert_eq!(rig.reactor.output_pending(stale), 0);
        rig.far_sends(&mut far, b"fresh");
        rig.until_received(fresh, b"fresh");
        rig.reactor.send(fresh, b"answer");
        rig.until_far_got(&mut far, b"answer");
        assert_eq!(rig.count(|seen| matches!(seen, Seen::Due(_))), 0);
    }

    pub fn no_completion_after_own_close<H: Harness>() {
        let mut rig = Rig::<H>::new();
        let closed: Rc<RefCell<Vec<SockId>>> = Rc::default();
        let seen_closed = Rc::clone(&closed);
        rig.hook(move |reactor, completion| {
            if let Completion::Received { sock, .. } = completion {
                assert!(!seen_closed.borrow().contains(sock), "a completion after close");
                reactor.set_deadline(*sock, reactor.now());
                if sock.index % 2 == 0 {
                    reactor.close(*sock)
                } else {
                    reactor.abort(*sock)
                }
                seen_closed.borrow_mut().push(*sock);
            }
        });
        let (_, address) = rig.listen(&loopback());
        let mut fars = Vec::new();
        for _ in 0..10 {
            let (_, mut far) = rig.dialled(&address);
            far.send(&pattern(150_000));
            far.send(b"more");
            fars.push(far);
        }
        rig.until("all closed", |_| closed.borrow().len() == 10);
        drop(fars);
        rig.until("all slots' end", |rig| rig.reactor.sock_count() == 0);
        assert_eq!(rig.count(|seen| matches!(seen, Seen::Due(_) | Seen::Closed(..))), 0);
    }

    pub fn deadline_fires_once_and_never_early<H: Harness>() {
        let mut rig = Rig::<H>::new();
        let (sock, _far) = rig.accepted();
        let at = rig.reactor.now().after(Span::from_millis(30));
        rig.reactor.set_deadline(sock, at);
        rig.until_seen(&Seen::Due(sock));
        assert!(rig.reactor.now() >= at);
        let later = rig.reactor.now().after(Span::from_millis(60));
        rig.until("later", |rig| rig.reactor.now() > later);
        assert_eq!(rig.count(|seen| *seen == Seen::Due(sock)), 1);
        assert!(rig.reactor.is_live(sock), "a deadline must not close the connection");
    }

    pub fn deadline_can_be_moved_and_cleared<H: Harness>() {
        let mut rig = Rig::<H>::new();
        let (_, address) = rig.listen(&loopback());
        let (moved_later, _a) = rig.dialled(&address);
        let (moved_earlier, _b) = rig.dialled(&address);
        let (cleared, _c) = rig.dialled(&address);
        let start = rig.reactor.now();
        let at = |ms| start.after(Span::from_millis(ms));
        rig.reactor.set_deadline(moved_later, at(20));
        rig.reactor.set_deadline(moved_later, at(120));
        rig.reactor.set_deadline(moved_earlier, at(1_000_000));
        rig.reactor.set_deadline(moved_earlier, at(40));
        rig.reactor.set_deadline(cleared, at(30));
        rig.reactor.set_deadline(cleared, Moment::NEVER);
        rig.until_seen(&Seen::Due(moved_earlier));
        rig.until_seen(&Seen::Due(moved_later));
        assert!(rig.reactor.now() >= at(120));
        assert_eq!(rig.count(|seen| *seen == Seen::Due(cleared)), 0);
    }

    pub fn reused_slot_does_not_inherit_a_deadline<H: Harness>() {
        let mut rig = Rig::<H>::new();
        let (_, address) = rig.listen(&loopback());
        let (first, _far) = rig.dialled(&address);
        let at = rig.reactor.now().after(Span::from_millis(40));
        rig.reactor.set_deadline(first, at);
        rig.reactor.abort(first);
        let (second, _far) = rig.dialled(&address);
        assert_eq!(first.index, second.index);
        let later = at.after(Span::from_millis(60));
        rig.until("later", |rig| rig.reactor.now() > later);
        assert_eq!(rig.count(|seen| matches!(seen, Seen::Due(_))), 0);
        rig.reactor.set_deadline(second, later);
        rig.until_seen(&Seen::Due(second));
    }

    pub fn timers_fire_in_order<H: Harness>() {
        let mut rig = Rig::<H>::new();
        let now = rig.reactor.now();
        rig.reactor.set_timer(0, now.after(Span::from_millis(80)));
        rig.reactor.set_timer(7, now.after(Span::from_millis(20)));
        rig.reactor.set_timer(3, now.after(Span::from_millis(30)));
        rig.reactor.set_timer(3, Moment::NEVER);
        rig.until_seen(&Seen::Timer(0));
        assert_eq!(rig.recorder.seen, [Seen::Timer(7), Seen::Timer(0)]);
    }

    pub fn wake_up_is_reported_once<H: Harness>() {
        let mut rig = Rig::<H>::new();
        let waker = H::waker(&rig.reactor);
        waker.wake();
        waker.clone().wake();
        rig.until_seen(&Seen::Woken);
        rig.settle();
        assert_eq!(rig.recorder.seen, [Seen::Woken]);
    }

    pub fn messages_arrive_in_order<H: Harness>() {
        let mut rig = Rig::<H>::new();
        let mailbox = Mailbox::new(8, H::waker(&rig.reactor));
        let sender = mailbox.sender();
        let got: Rc<RefCell<Vec<u32>>> = Rc::default();
        let into = Rc::clone(&got);
        rig.hook(move |_, completion| {
            if matches!(completion, Completion::Woken)
                && let Some(mail) = mailbox.take()
            {
                into.borrow_mut().push(mail);
                if !mailbox.is_empty() {
                    mailbox.ring_again();
                }
            }
        });
        for mail in 0..5 {
            sender.send(mail).expect("the mailbox is not full");
        }
        rig.until("the mail", |_| got.borrow().len() == 5);
        assert_eq!(*got.borrow(), [0, 1, 2, 3, 4]);
    }

    pub fn full_slots_pause_accepting_until_one_is_freed<H: Harness>() {
        let mut rig = Rig::<H>::with_socks_max(2);
        let (listener, address) = rig.listen(&loopback());
        let fars: Vec<_> = (0..3).map(|_| rig.harness.dial(&address)).collect();
        rig.until_seen(&Seen::AcceptPaused(listener, Shortage::Slots));
        assert_eq!(rig.accepts().len(), 2);
        assert_eq!(rig.reactor.connect(&address), Err(Shortage::Slots));
        let first = rig.accepts()[0];
        rig.reactor.abort(first);
        rig.until("the third accept", |rig| rig.accepts().len() == 3);
        assert_eq!(rig.reactor.sock_count(), 2);
        drop(fars);
    }

    pub fn stop_listening_accepts_the_backlog<H: Harness>() {
        let mut rig = Rig::<H>::new();
        let (listener, address) = rig.listen(&loopback());
        let mut fars: Vec<_> = (0..5).map(|_| rig.harness.dial(&address)).collect();
        fars[4].send(b"waiting");
        rig.reactor.stop_listening(listener);
        rig.until("all accepts", |rig| rig.accepts().len() == 5);
        rig.until("the listener's end", |rig| rig.reactor.listener_address(listener).is_none());
        rig.until("the waiting bytes", |rig| {
            rig.accepts().iter().any(|&sock| rig.received(sock) == b"waiting")
        });
    }

    pub fn dropped_reactor_closes_its_connections<H: Harness>() {
        let mut rig = Rig::<H>::new();
        let (_, mut far) = rig.accepted();
        let Rig { reactor, .. } = rig;
        drop(reactor);
        let mut looks = 0;
        while !far.is_finished() && !far.was_reset() {
            far.receive();
            looks += 1;
            assert!(looks < 100_000_000, "the far end saw neither end nor reset");
        }
    }

    pub fn operations_within_completions_are_allowed<H: Harness>() {
        let mut rig = Rig::<H>::new();
        let (server, upstream) = rig.harness.serve(&loopback());
        let pair: Rc<Cell<Option<(SockId, SockId)>>> = Rc::default();
        let shared = Rc::clone(&pair);
        rig.hook(move |reactor, completion| match completion {
            Completion::Accepted { sock, .. } => {
                let up = reactor.connect(&upstream).expect("no shortage");
                shared.set(Some((*sock, up)));
            }
            Completion::Received { sock, bytes } => {
                let (down, up) = shared.get().expect("accepted before");
                let to = if *sock == down { up } else { down };
                reactor.send(to, bytes);
                reactor.flush(to);
            }
            Completion::Finished { sock } => {
                let (down, up) = shared.get().expect("accepted before");
                reactor.finish(if *sock == down { up } else { down });
            }
            _ => {}
        });
        let (_, mut client) = rig.accepted();
        let mut origin = None;
        rig.until("the far accept", |rig| {
            origin = rig.harness.accept(&server);
            origin.is_some()
        });
        let mut origin = origin.expect("accepted above");
        rig.far_sends(&mut client, b"there");
        client.finish();
        rig.until_far_got(&mut origin, b"there");
        rig.far_sends(&mut origin, b"and back");
        origin.finish();
        rig.until_far_got(&mut client, b"and back");
        rig.until("both ends", |rig| rig.reactor.sock_count() == 0);
        assert_eq!(rig.count(|seen| matches!(seen, Seen::Closed(_, CloseReason::Ended))), 2);
    }
}

/// One test for each case and driver.
macro_rules! conformance {
    ($($case:ident,)*) => {
        mod epoll {
            $(#[test]
            fn $case() {
                super::cases::$case::<super::Real>();
            })*
        }
        mod sim {
            $(#[test]
            fn $case() {
                super::cases::$case::<super::Simulated>();
            })*
        }
    };
}

conformance! {
    accepts_and_receives,
    connection_reports_its_local_address,
    listener_on_port_zero_reports_its_port,
    address_in_use_is_reported,
    listeners_of_a_group_share_an_address,
    unix_listener_accepts_local_peers,
    many_connections_are_all_accepted,
    bytes_arrive_in_order,
    echo_returns_the_received_bytes,
    output_and_send_keep_their_order,
    send_larger_than_the_window_drains_once,
    output_check_sees_what_the_peer_takes,
    send_completed_at_once_reports_no_drained,
    paused_connection_receives_nothing_until_resumed,
    hangup_before_the_pause_is_known,
    pause_within_a_turn_takes_effect_at_once,
    greedy_peer_does_not_starve_another,
    peer_finishes_first,
    this_side_finishes_first,
    close_delivers_all_bytes_then_the_end,
    close_survives_late_bytes_from_the_peer,
    close_unblocks_a_blocked_peer,
    close_unread_leaves_a_flooding_peer_waiting,
    close_gives_up_on_a_peer_that_never_closes,
    close_at_once_sends_the_output_and_frees_the_slot,
    longest_lingering_connections_are_freed,
    room_is_made_only_for_a_waiting_connection,
    listeners_take_turns_in_a_shortage,
    abort_resets,
    reset_is_reported_while_paused,
    early_response_arrives_before_the_reset,
    connect_sends_and_receives,
    output_queued_before_connected_is_sent,
    guarded_output_is_sent_if_nothing_waits,
    waiting_bytes_come_before_guarded_output,
    abort_drops_guarded_output,
    waiting_end_comes_before_guarded_output,
    waiting_reset_leaves_guarded_output_unsent,
    guarded_output_waits_for_a_paused_connection,
    close_drops_guarded_output,
    refused_connect_is_reported,
    unreachable_connect_is_reported,
    connect_uses_the_given_source_address,
    unix_connect_sends_and_receives,
    cancelled_connect_reports_nothing,
    stale_ids_do_nothing,
    no_completion_after_own_close,
    deadline_fires_once_and_never_early,
    deadline_can_be_moved_and_cleared,
    reused_slot_does_not_inherit_a_deadline,
    timers_fire_in_order,
    wake_up_is_reported_once,
    messages_arrive_in_order,
    full_slots_pause_accepting_until_one_is_freed,
    stop_listening_accepts_the_backlog,
    dropped_reactor_closes_its_connections,
    operations_within_completions_are_allowed,
    relayed_bytes_arrive_in_order,
    relayed_bytes_wait_for_a_target_that_does_not_read,
    end_of_a_relayed_stream_comes_after_its_bytes,
    relay_to_a_connection_that_has_ended_is_received,
    broken_target_closes_and_the_source_goes_on,
    paused_relay_is_not_reported_again_and_again,
    pieces_of_one_byte_are_all_relayed,
    connection_that_relays_learns_of_room_for_its_own_output,
    datagrams_keep_their_bounds,
    datagram_of_another_sender_is_not_received,
    refusal_is_reported_and_the_socket_remains,
    datagram_that_is_too_long_is_not_sent,
    flood_of_datagrams_is_handed_over_in_several_turns,
    closed_datagram_socket_reports_nothing,
}
