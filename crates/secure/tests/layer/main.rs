//! The layer by itself: records below, plain bytes above, on simulated sockets and virtual time.
//! In: seeds, versions, ends that behave or not. Out: what each test's name says; nothing left behind.

mod stage;

use tidegate_base::limits::OUTPUT_HIGH_BYTES;
use tidegate_base::{Prng, Span};
use tidegate_reactor::{CloseReason, Faults, Reactor};
use tidegate_secure::Event;
use tidegate_wire::tls::{Ending, Fault, PeerIdentity, Version};

use stage::{HANDSHAKE_TIMEOUT, Heard, Stage, front};

const VERSIONS: [Version; 2] = [Version::Tls12, Version::Tls13];
/// What the layer takes on of handshakes in one turn.
const HANDSHAKES_PER_TURN: usize = 8;
/// A record of application data, TLS 1.2 on the wire, of a length that none may have.
const OVERSIZED_RECORD: &[u8] = b"\x17\x03\x03\xff\xff";

fn bytes(count: usize) -> Vec<u8> {
    (0..count).map(|at| (at / 3) as u8).collect()
}

#[test]
fn any_split_of_the_records_brings_the_user_the_same_bytes() {
    for (at, version) in (0..40).zip(VERSIONS.into_iter().cycle()) {
        let mut prng = Prng::new(at);
        let mut stage = Stage::new(at, Faults::swarm_harmless(&mut prng), version);
        stage.above.echoes = true;
        let (mut end, sock) = stage.established();
        end.piece_bytes = [1, 2, 3, 5, 6, 100, 16_389, usize::MAX][prng.below(8) as usize];
        let said = bytes(if end.piece_bytes < 10 { 2_000 } else { 100_000 });
        said.chunks(1 + prng.below(30_000) as usize).for_each(|part| end.say(part));
        stage.until(&mut [&mut end], |_, ends| ends[0].heard.len() == said.len());
        assert_eq!(end.heard, said, "{version:?} {at}");
        assert_eq!(stage.above.of(sock).bytes, said, "{version:?} {at}");
        drop(end);
        stage.end();
    }
}

#[test]
fn an_end_that_was_said_is_an_end_and_one_that_was_not_is_a_reset() {
    for version in VERSIONS {
        let mut stage = Stage::calm(version);
        let (mut clean, of_clean) = stage.established();
        let (mut cut, of_cut) = stage.established();
        for end in [&mut clean, &mut cut] {
            end.say(b"last words");
        }
        clean.say_end();
        stage.until(&mut [&mut clean, &mut cut], |_, ends| {
            ends.iter().all(|end| end.out.is_empty())
        });
        clean.peer.finish();
        cut.peer.finish();
        stage.pass(Span::from_millis(1));
        for sock in [of_clean, of_cut] {
            assert_eq!(stage.above.of(sock).bytes, b"last words");
        }
        assert!(stage.above.of(of_clean).heard.ends_with(&[Heard::Finished]));
        let reset = Heard::Closed(CloseReason::Reset);
        assert!(stage.above.of(of_cut).heard.ends_with(&[reset]));
        assert!(!stage.above.of(of_cut).heard.contains(&Heard::Finished));
        assert_eq!(stage.notes.count_of(Event::Truncated), 1, "{version:?}");
        drop((clean, cut));
        stage.end();
    }
}

#[test]
fn each_side_says_its_end_and_may_still_be_spoken_to() {
    for version in VERSIONS {
        let mut stage = Stage::calm(version);
        let (mut end, sock) = stage.established();
        end.say_end();
        stage.until(&mut [&mut end], |above, _| above.of(sock).heard.contains(&Heard::Finished));
        stage.act(|view| view.send(sock, b"an answer"));
        stage.until(&mut [&mut end], |_, ends| !ends[0].heard.is_empty());
        assert!(!end.told_end);
        stage.act(|view| view.finish(sock));
        stage.until(&mut [&mut end], |_, ends| ends[0].told_end);
        assert_eq!((&end.heard[..], end.session.ending()), (&b"an answer"[..], Ending::Clean));

        // The other way round: this side first.
        let (mut end, sock) = stage.established();
        stage.act(|view| {
            view.send(sock, b"a last word");
            view.finish(sock);
            assert!(view.output(sock).is_none(), "there is nothing to say after the end");
        });
        stage.until(&mut [&mut end], |_, ends| ends[0].told_end);
        assert_eq!(end.heard, b"a last word");
        end.say(b"and yours");
        end.say_end();
        stage.until(&mut [&mut end], |above, _| above.of(sock).heard.contains(&Heard::Finished));
        assert_eq!(stage.above.of(sock).bytes, b"and yours");
        drop(end);
        stage.end();
    }
}

#[test]
fn the_end_waits_until_the_user_receives_again() {
    for version in VERSIONS {
        let mut stage = Stage::calm(version);
        stage.above.stops = true;
        let (mut end, sock) = stage.established();
        end.say(b"bytes");
        end.say_end();
        stage.until(&mut [&mut end], |above, _| !above.of(sock).bytes.is_empty());
        stage.pass(Span::from_secs(1));
        assert!(!stage.above.of(sock).heard.contains(&Heard::Finished));
        stage.act(|view| view.set_receiving(sock, true));
        assert!(stage.above.of(sock).heard.ends_with(&[Heard::Finished]));
        drop(end);
        stage.end();
    }
}

#[test]
fn a_user_that_does_not_receive_is_brought_nothing_and_no_byte_is_lost() {
    let mut stage = Stage::calm(Version::Tls13);
    stage.above.stops = true;
    let (mut end, sock) = stage.established();
    let said = bytes(600_000);
    end.say(&said);
    for _ in 0..1_000 {
        end.step();
        stage.turn();
        let before = stage.above.of(sock).bytes.len();
        stage.turn();
        assert_eq!(stage.above.of(sock).bytes.len(), before);
        stage.act(|view| view.set_receiving(sock, true));
        stage.net.advance_to_next_event();
    }
    assert_eq!(stage.above.of(sock).bytes, said);
    drop(end);
    stage.end();
}

#[test]
fn what_is_no_tls_is_refused_and_counted_and_plain_http_is_told_why() {
    for (sent, fault) in [
        (&b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"[..], Fault::PlainHttp),
        (b"\x80\x2e\x01\x00\x02", Fault::NotTls),
        (b"\0", Fault::NotTls),
        (b"\x16\x03\x01\xff\xff\x01", Fault::Oversized),
        (b"\x16\x09\x09\x00\x01\x01", Fault::NotTls),
        (b"\x16\x03\x01\x00\x04\x05\x00\x00\x00", Fault::Misbehaved),
    ] {
        let mut stage = Stage::calm(Version::Tls13);
        let peer = stage.net.dial(&front()).unwrap();
        peer.send(sent);
        stage.pass(Span::from_millis(1));
        assert_eq!(stage.notes.faults(), [fault], "{sent:?}");
        let sock = stage.above.accepted[0];
        let heard = &stage.above.of(sock).heard;
        assert_eq!(heard[1], Heard::Faulted(fault));
        assert!(matches!(heard[2..], [Heard::Closed(_)]), "{heard:?}");
        let answer = peer.receive();
        let told = answer.starts_with(b"HTTP/1.1 400 ");
        assert_eq!(told, fault == Fault::PlainHttp, "{sent:?}: {answer:?}");
        assert!(peer.is_finished_by_other() || peer.was_reset());
        drop(peer);
        stage.end();
    }
}

#[test]
fn records_that_may_not_come_end_the_connection_and_what_came_before_counts() {
    for version in VERSIONS {
        // Too large; a new handshake in the clear; an unknown kind; a forged record.
        for sent in [
            OVERSIZED_RECORD,
            b"\x16\x03\x03\x00\x04\x01\x00\x00\x00",
            b"\x63\x03\x03\x00\x01\x00",
            b"\x17\x03\x03\x00\x20abcdefghijklmnopqrstuvwxyzabcdef",
        ] {
            let mut stage = Stage::calm(version);
            let (mut end, sock) = stage.established();
            end.say(b"before");
            end.out.extend_from_slice(sent);
            stage.until(&mut [&mut end], |above, _| above.of(sock).heard.len() > 2);
            assert_eq!(stage.above.of(sock).bytes, b"before");
            let faults = stage.notes.faults();
            let heard = &stage.above.of(sock).heard;
            assert_eq!(heard[2..3], [Heard::Faulted(faults[0])], "{version:?} {sent:?}");
            assert!(matches!(heard[3..], [Heard::Closed(_)]), "{heard:?}");
            stage.until(&mut [&mut end], |_, ends| ends[0].fault.is_some());
            assert!(matches!(end.fault, Some(Fault::Alert(_))), "it is told: {:?}", end.fault);
            drop(end);
            stage.end();
        }
    }
}

#[test]
fn a_fault_in_the_bytes_that_end_the_handshake_hides_neither_it_nor_what_came_between() {
    let mut stage = Stage::calm(Version::Tls13);
    let mut end = stage.dial();
    stage.turn();
    end.step();
    stage.turn();
    end.hear();
    end.say(b"between");
    end.out.extend_from_slice(OVERSIZED_RECORD);
    end.step();
    stage.turn();
    let known = stage.above.of(stage.above.accepted[0]);
    assert_eq!(known.bytes, b"between");
    let fault = Heard::Faulted(Fault::Oversized);
    assert_eq!(known.heard[..3], [Heard::Accepted, Heard::Established, fault]);
    assert_eq!(stage.notes.count_of(Event::HandshakeDone { resumed: false }), 1);
    drop(end);
    stage.end();
}

#[test]
fn a_connection_on_which_nothing_can_be_sealed_any_more_ends() {
    for (version, count) in
        VERSIONS.into_iter().flat_map(|version| [(version, 5), (version, 100_000)])
    {
        let mut stage = Stage::calm(version);
        stage.above.spoils = true;
        let (mut end, sock) = stage.established();
        stage.act(|view| view.send(sock, &bytes(count)));
        stage.until(&mut [&mut end], |_, ends| ends[0].is_over());
        let closed = Heard::Closed(CloseReason::ConnectUnreachable);
        let expected = [Heard::Accepted, Heard::Established, Heard::Faulted(Fault::Bug), closed];
        assert_eq!(stage.above.of(sock).heard, expected, "{version:?}, {count} bytes");
        assert_eq!(stage.notes.faults(), [Fault::Bug]);
        assert!(end.heard.is_empty());
        drop(end);
        stage.end();
    }
}

#[test]
fn what_is_said_before_the_handshake_is_done_comes_after_it() {
    for version in VERSIONS {
        let mut stage = Stage::calm(version);
        let mut end = stage.dial();
        stage.turn();
        let sock = stage.above.accepted[0];
        stage.act(|view| {
            view.send(sock, b"welcome");
            view.flush(sock);
            assert_eq!(view.output_pending(sock), b"welcome".len());
        });
        stage.until(&mut [&mut end], |_, ends| !ends[0].heard.is_empty());
        assert_eq!(end.heard, b"welcome", "{version:?}");
        stage.until(&mut [&mut end], |above, _| above.of(sock).heard.contains(&Heard::Drained));
        drop(end);
        stage.end();
    }
}

#[test]
fn a_turn_takes_on_so_many_handshakes_and_serves_who_is_through() {
    for version in VERSIONS {
        let mut stage = Stage::calm(version);
        stage.above.echoes = true;
        let (mut through, sock) = stage.established();
        let mut crowd: Vec<_> = (0..20).map(|_| stage.dial()).collect();
        stage.turn();
        crowd.iter_mut().for_each(|end| assert!(end.step()));
        through.say(b"served");
        through.step();
        stage.turn();
        assert_eq!(stage.above.of(sock).bytes, b"served", "behind a crowd");
        let answered = crowd.iter().filter(|end| end.peer.arrived_bytes() > 0).count();
        assert_eq!(answered, HANDSHAKES_PER_TURN);
        let put_off = stage.notes.count_of(Event::HandshakePutOff);
        assert_eq!(put_off, crowd.len() - HANDSHAKES_PER_TURN);
        let mut ends: Vec<_> = crowd.iter_mut().collect();
        stage.until(&mut ends, |_, ends| ends.iter().all(|end| end.session.is_established()));
        drop((through, crowd));
        stage.end();
    }
}

#[test]
fn a_handshake_has_its_time_however_it_drips() {
    for version in VERSIONS {
        let mut stage = Stage::calm(version);
        let mut end = stage.dial();
        end.piece_bytes = 1;
        let began = stage.net.now();
        stage.turn();
        while !end.is_over() {
            end.step();
            stage.pass(Span::from_millis(500));
        }
        let took = stage.net.now().since(began);
        let most = HANDSHAKE_TIMEOUT + Span::from_secs(1);
        assert!(took >= HANDSHAKE_TIMEOUT && took <= most, "{took:?}");
        assert_eq!(stage.notes.count_of(Event::HandshakeTimedOut), 1);
        let reset = Heard::Closed(CloseReason::Reset);
        assert_eq!(stage.above.of(stage.above.accepted[0]).heard, [Heard::Accepted, reset]);
        drop(end);
        stage.end();
    }
}

#[test]
fn the_users_deadline_runs_from_the_end_of_the_handshake() {
    let mut stage = Stage::calm(Version::Tls13);
    let mut end = stage.dial();
    stage.turn();
    let sock = stage.above.accepted[0];
    let at = stage.net.now().after(Span::from_secs(3));
    stage.act(|view| view.set_deadline(sock, at));
    stage.pass(Span::from_secs(4));
    assert_eq!(stage.above.of(sock).heard, [Heard::Accepted], "it runs not yet");
    stage.until(&mut [&mut end], |_, ends| ends[0].session.is_established());
    assert_eq!(stage.notes.count_of(Event::HandshakeTimedOut), 0);
    drop(end);
    stage.end();
}

#[test]
fn a_peer_that_never_reads_costs_what_its_user_lets_it() {
    for version in VERSIONS {
        let mut stage = Stage::calm(version);
        let (mut end, sock) = stage.established();
        end.reads = false;
        let mut sent = 0;
        let piece = bytes(10_000);
        // As a producer does: until enough waits, then not before it has drained.
        for _ in 0..1_000 {
            let held = stage.act(|view| {
                if view.output_pending(sock) < OUTPUT_HIGH_BYTES {
                    view.send(sock, &piece);
                    sent += piece.len();
                    view.flush(sock);
                }
                view.output_pending(sock)
            });
            assert!(held < OUTPUT_HIGH_BYTES + 2 * piece.len(), "{held}");
            stage.turn();
        }
        assert!(!stage.above.of(sock).heard.contains(&Heard::Drained));
        end.reads = true;
        stage.until(&mut [&mut end], |above, _| above.of(sock).heard.ends_with(&[Heard::Drained]));
        stage.until(&mut [&mut end], |_, ends| ends[0].heard.len() == sent);
        drop(end);
        stage.end();
    }
}

#[test]
fn to_a_server_the_handshake_comes_before_connected_and_early_output_after_it() {
    for version in VERSIONS {
        let mut stage = Stage::calm(version);
        let server = stage.serve();
        let sock = stage.connect();
        stage.act(|view| view.send(sock, b"a request"));
        let mut end = stage.accept(&server);
        assert!(!stage.above.known.contains_key(&(sock.index, sock.generation)));
        stage.until(&mut [&mut end], |_, ends| !ends[0].heard.is_empty());
        assert_eq!(stage.above.of(sock).heard, [Heard::Established, Heard::Connected]);
        assert_eq!(end.heard, b"a request");
        end.say(b"an answer");
        end.say_end();
        stage.until(&mut [&mut end], |above, _| above.of(sock).heard.contains(&Heard::Finished));
        assert_eq!(stage.above.of(sock).bytes, b"an answer");
        stage.act(|view| view.close(sock));
        stage.until(&mut [&mut end], |_, ends| ends[0].told_end);
        drop((end, server));
        stage.end();
    }
}

#[test]
fn an_end_that_is_said_before_the_handshake_is_done_comes_after_the_output() {
    for version in VERSIONS {
        let mut stage = Stage::calm(version);
        let server = stage.serve();
        let sock = stage.connect();
        stage.act(|view| {
            view.send(sock, b"all there is");
            view.finish(sock);
        });
        let mut end = stage.accept(&server);
        stage.until(&mut [&mut end], |_, ends| ends[0].told_end);
        assert_eq!(end.heard, b"all there is", "{version:?}");
        end.say(b"thanks");
        stage.until(&mut [&mut end], |above, _| above.of(sock).bytes == b"thanks");
        stage.act(|view| view.close(sock));
        drop((end, server));
        stage.end();
    }
}

#[test]
fn a_server_that_speaks_no_tls_or_leaves_is_never_connected() {
    for said in [&b"HTTP/1.1 400 Bad Request\r\n\r\n"[..], b"\0\0\0\0\0\0", b""] {
        let mut stage = Stage::calm(Version::Tls13);
        let server = stage.serve();
        let sock = stage.connect();
        let end = stage.accept(&server);
        end.peer.send(said);
        end.peer.finish();
        stage.pass(Span::from_secs(1));
        let heard = &stage.above.of(sock).heard;
        assert!(matches!(heard.last(), Some(Heard::Closed(_))), "{heard:?}");
        assert!(!heard.contains(&Heard::Connected) && !heard.contains(&Heard::Established));
        let counted = stage.notes.faults().len() + stage.notes.count_of(Event::HandshakeLeft);
        assert_eq!(counted, 1, "{said:?}");
        let told = end.peer.receive();
        assert!(!told.starts_with(b"HTTP/"), "a server is told nothing of https://");
        drop((end, server));
        stage.end();
    }
}

#[test]
fn whatever_peers_and_the_net_do_nothing_is_left() {
    let mut through = 0;
    for (seed, version) in (0..200).zip(VERSIONS.into_iter().cycle()) {
        let mut prng = Prng::new(seed);
        let mut stage = Stage::new(seed, Faults::swarm(&mut prng), version);
        stage.above.echoes = prng.below(2) == 0;
        stage.above.leaves = prng.below(4) > 0;
        stage.above.stops = prng.below(4) == 0;
        let mut ends: Vec<_> = (0..20).map(|_| stage.dial()).collect();
        for _ in 0..300 {
            if ends.is_empty() {
                break;
            }
            let at = prng.below(ends.len() as u64) as usize;
            let end = &mut ends[at];
            match prng.below(40) {
                0 => end.peer.finish(),
                1 => end.peer.reset(),
                2 => drop(ends.remove(at)),
                3 => end.out.push(prng.next_u64() as u8),
                4 => end.out.truncate(prng.below(1 + end.out.len() as u64) as usize),
                5 => end.say_end(),
                6 => end.reads = !end.reads,
                7 => end.piece_bytes = 1 + prng.below(2_000) as usize,
                8..20 if end.session.is_established() && end.out.len() < 100_000 => {
                    // One that said its end, or met a fault, seals no more.
                    let _ = end.session.seal(&bytes(prng.below(20_000) as usize), &mut end.out);
                }
                _ => {
                    end.step();
                }
            }
            stage.turn();
            if prng.below(3) == 0 {
                stage.net.advance_to_next_event();
            }
        }
        through += stage.notes.count_of(Event::HandshakeDone { resumed: false });
        drop(ends);
        stage.end();
    }
    assert!(through > 200, "{through} handshakes done");
}

#[test]
fn a_refused_client_is_logged_and_many_are_counted() {
    let own = include_bytes!("../../../../fuzz/records/certificate.pem");
    // Simulated time begins before its.
    let shown = PeerIdentity::of_pem(own).unwrap();
    let told = format!(
        "listener front: client 192.0.2.7:4711: the peer's certificate is not valid yet: \
         subject \"{}\", SHA-256 {}",
        shown.subject,
        shown.fingerprint_hex()
    );
    let absent = "listener front: client 192.0.2.7:4711: the peer presented no certificate";
    for version in VERSIONS {
        let mut stage = Stage::requiring(version, own.to_vec());
        let refuse = |stage: &mut Stage, mut end: stage::End| {
            let before = stage.notes.faults().len();
            let notes = stage.notes.clone();
            stage.until(&mut [&mut end], |_, _| notes.faults().len() > before);
        };
        let end = stage.dial_showing(version);
        refuse(&mut stage, end);
        assert_eq!(stage.notes.lines(), std::slice::from_ref(&told), "{version:?}");
        for _ in 0..20 {
            let end = stage.dial();
            refuse(&mut stage, end);
        }
        assert_eq!(stage.notes.lines().len(), 1, "{version:?}");
        stage.pass(Span::from_secs(2));
        let end = stage.dial();
        refuse(&mut stage, end);
        stage.pass(Span::from_secs(2));
        let end = stage.dial();
        refuse(&mut stage, end);
        let counted = format!("{absent} (20 refused since the last line are not shown)");
        assert_eq!(stage.notes.lines(), [told.clone(), counted, absent.to_owned()]);
        stage.end();
    }
}

#[test]
fn what_is_no_certificate_is_not_logged_of_clients() {
    let mut stage = Stage::calm(Version::Tls13);
    let peer = stage.net.dial(&front()).unwrap();
    peer.send(b"GET / HTTP/1.1\r\n\r\n");
    stage.pass(Span::from_secs(1));
    assert_eq!((stage.notes.faults(), stage.notes.lines()), (vec![Fault::PlainHttp], Vec::new()));
    drop(peer);
    stage.end();
}
