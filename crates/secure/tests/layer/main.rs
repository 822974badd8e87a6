//! Tests of the TLS layer by itself: records below, plain bytes above, on simulated sockets and virtual time.
//! In: seeds, versions, well-behaved and misbehaving peers. Out: what each test's name says, without leaks.

mod stage;

use tidegate_base::limits::OUTPUT_FLUSH_BYTES;
use tidegate_base::{CertificateChoice, Prng, Span};
use tidegate_reactor::{CloseReason, Faults, Reactor};
use tidegate_secure::Event;
use tidegate_wire::tls::{Ending, Fault, PeerIdentity, Version};

use stage::{HANDSHAKE_TIMEOUT, Seen, Stage, front};

const VERSIONS: [Version; 2] = [Version::Tls12, Version::Tls13];
/// The number of handshake steps that the layer performs in one turn.
const HANDSHAKES_PER_TURN: usize = 8;
/// A record of application data (TLS 1.2 on the wire) with a forbidden length.
const OVERSIZED_RECORD: &[u8] = b"\x17\x03\x03\xff\xff";

fn bytes(count: usize) -> Vec<u8> {
    (0..count).map(|at| (at / 3) as u8).collect()
}

#[test]
fn bytes_do_not_depend_on_how_records_are_split() {
    for (at, version) in (0..40).zip(VERSIONS.into_iter().cycle()) {
        let mut prng = Prng::new(at);
        let mut stage = Stage::new(at, Faults::swarm_harmless(&mut prng), version);
        stage.recorder.echoes = true;
        let (mut end, sock) = stage.established();
        end.piece_bytes = [1, 2, 3, 5, 6, 100, 16_389, usize::MAX][prng.below(8) as usize];
        let sent = bytes(if end.piece_bytes < 10 { 2_000 } else { 100_000 });
        sent.chunks(1 + prng.below(30_000) as usize).for_each(|part| end.send(part));
        stage.until(&mut [&mut end], |_, ends| ends[0].received.len() == sent.len());
        assert_eq!(end.received, sent, "{version:?} {at}");
        assert_eq!(stage.recorder.of(sock).bytes, sent, "{version:?} {at}");
        drop(end);
        stage.end();
    }
}

#[test]
fn close_notify_is_an_end_and_a_bare_fin_is_a_reset() {
    for version in VERSIONS {
        let mut stage = Stage::without_faults(version);
        let (mut clean, of_clean) = stage.established();
        let (mut cut, of_cut) = stage.established();
        for end in [&mut clean, &mut cut] {
            end.send(b"last words");
        }
        clean.send_close_notify();
        stage.until(&mut [&mut clean, &mut cut], |_, ends| {
            ends.iter().all(|end| end.out.is_empty())
        });
        clean.peer.finish();
        cut.peer.finish();
        stage.pass(Span::from_millis(1));
        for sock in [of_clean, of_cut] {
            assert_eq!(stage.recorder.of(sock).bytes, b"last words");
        }
        assert!(stage.recorder.of(of_clean).seen.ends_with(&[Seen::Finished]));
        let reset = Seen::Closed(CloseReason::Reset);
        assert!(stage.recorder.of(of_cut).seen.ends_with(&[reset]));
        assert!(!stage.recorder.of(of_cut).seen.contains(&Seen::Finished));
        assert_eq!(stage.notes.count_of(Event::Truncated), 1, "{version:?}");
        drop((clean, cut));
        stage.end();
    }
}

#[test]
fn each_side_can_receive_after_its_close_notify() {
    for version in VERSIONS {
        let mut stage = Stage::without_faults(version);
        let (mut end, sock) = stage.established();
        end.send_close_notify();
        stage
            .until(&mut [&mut end], |recorder, _| recorder.of(sock).seen.contains(&Seen::Finished));
        stage.act(|view| view.send(sock, b"an answer"));
        stage.until(&mut [&mut end], |_, ends| !ends[0].received.is_empty());
        assert!(!end.peer_closed);
        stage.act(|view| view.finish(sock));
        stage.until(&mut [&mut end], |_, ends| ends[0].peer_closed);
        assert_eq!((&end.received[..], end.session.ending()), (&b"an answer"[..], Ending::Clean));

        // The same with this side ending first.
        let (mut end, sock) = stage.established();
        stage.act(|view| {
            view.send(sock, b"a last word");
            view.finish(sock);
            assert!(view.output(sock).is_none(), "no output after finish");
        });
        stage.until(&mut [&mut end], |_, ends| ends[0].peer_closed);
        assert_eq!(end.received, b"a last word");
        end.send(b"and yours");
        end.send_close_notify();
        stage
            .until(&mut [&mut end], |recorder, _| recorder.of(sock).seen.contains(&Seen::Finished));
        assert_eq!(stage.recorder.of(sock).bytes, b"and yours");
        drop(end);
        stage.end();
    }
}

#[test]
fn finished_waits_until_receiving_resumes() {
    for version in VERSIONS {
        let mut stage = Stage::without_faults(version);
        stage.recorder.pauses = true;
        let (mut end, sock) = stage.established();
        end.send(b"bytes");
        end.send_close_notify();
        stage.until(&mut [&mut end], |recorder, _| !recorder.of(sock).bytes.is_empty());
        stage.pass(Span::from_secs(1));
        assert!(!stage.recorder.of(sock).seen.contains(&Seen::Finished));
        stage.act(|view| view.set_receiving(sock, true));
        assert!(stage.recorder.of(sock).seen.ends_with(&[Seen::Finished]));
        drop(end);
        stage.end();
    }
}

#[test]
fn connection_closed_right_after_receiving_resumes_is_not_finished() {
    for resets in [false, true] {
        let mut stage = Stage::without_faults(Version::Tls13);
        stage.recorder.pauses = true;
        let (mut end, sock) = stage.established();
        end.send(b"bytes");
        end.send_close_notify();
        stage.until(&mut [&mut end], |recorder, _| !recorder.of(sock).bytes.is_empty());
        stage.pass(Span::from_secs(1));
        stage.act(|view| {
            view.set_receiving(sock, true);
            if resets { view.abort(sock) } else { view.close(sock) }
        });
        assert!(!stage.recorder.of(sock).seen.contains(&Seen::Finished));
        drop(end);
        stage.end();
    }
}

#[test]
fn paused_handler_gets_no_bytes_and_none_are_lost() {
    let mut stage = Stage::without_faults(Version::Tls13);
    stage.recorder.pauses = true;
    let (mut end, sock) = stage.established();
    let sent = bytes(600_000);
    end.send(&sent);
    for _ in 0..1_000 {
        end.step();
        stage.turn();
        let before = stage.recorder.of(sock).bytes.len();
        stage.turn();
        assert_eq!(stage.recorder.of(sock).bytes.len(), before);
        stage.act(|view| view.set_receiving(sock, true));
        stage.net.advance_to_next_event();
    }
    assert_eq!(stage.recorder.of(sock).bytes, sent);
    drop(end);
    stage.end();
}

#[test]
fn non_tls_bytes_are_counted_and_plain_http_gets_400() {
    for (sent, fault) in [
        (&b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"[..], Fault::PlainHttp),
        (b"\x80\x2e\x01\x00\x02", Fault::NotTls),
        (b"\0", Fault::NotTls),
        (b"\x16\x03\x01\xff\xff\x01", Fault::Oversized),
        (b"\x16\x09\x09\x00\x01\x01", Fault::NotTls),
        (b"\x16\x03\x01\x00\x04\x05\x00\x00\x00", Fault::Misbehaved),
    ] {
        let mut stage = Stage::without_faults(Version::Tls13);
        let peer = stage.net.dial(&front()).unwrap();
        peer.send(sent);
        stage.pass(Span::from_millis(1));
        assert_eq!(stage.notes.faults(), [fault], "{sent:?}");
        let sock = stage.recorder.accepted[0];
        let seen = &stage.recorder.of(sock).seen;
        assert_eq!(seen[1], Seen::Faulted(fault));
        assert!(matches!(seen[2..], [Seen::Closed(_)]), "{seen:?}");
        let response = peer.receive();
        let is_400 = response.starts_with(b"HTTP/1.1 400 ");
        assert_eq!(is_400, fault == Fault::PlainHttp, "{sent:?}: {response:?}");
        assert!(peer.is_finished_by_other() || peer.was_reset());
        drop(peer);
        stage.end();
    }
}

#[test]
fn forbidden_record_ends_the_connection_after_earlier_bytes() {
    for version in VERSIONS {
        // A record that is too large; a new handshake in plaintext; an unknown type; a forged record.
        for sent in [
            OVERSIZED_RECORD,
            b"\x16\x03\x03\x00\x04\x01\x00\x00\x00",
            b"\x63\x03\x03\x00\x01\x00",
            b"\x17\x03\x03\x00\x20abcdefghijklmnopqrstuvwxyzabcdef",
        ] {
            let mut stage = Stage::without_faults(version);
            let (mut end, sock) = stage.established();
            end.send(b"before");
            end.out.extend_from_slice(sent);
            stage.until(&mut [&mut end], |recorder, _| recorder.of(sock).seen.len() > 2);
            assert_eq!(stage.recorder.of(sock).bytes, b"before");
            let faults = stage.notes.faults();
            let seen = &stage.recorder.of(sock).seen;
            assert_eq!(seen[2..3], [Seen::Faulted(faults[0])], "{version:?} {sent:?}");
            assert!(matches!(seen[3..], [Seen::Closed(_)]), "{seen:?}");
            stage.until(&mut [&mut end], |_, ends| ends[0].fault.is_some());
            assert!(
                matches!(end.fault, Some(Fault::Alert(_))),
                "the peer must get an alert: {:?}",
                end.fault
            );
            drop(end);
            stage.end();
        }
    }
}

#[test]
fn fault_right_after_the_handshake_hides_neither_handshake_nor_bytes() {
    let mut stage = Stage::without_faults(Version::Tls13);
    let mut end = stage.dial();
    stage.turn();
    end.step();
    stage.turn();
    end.receive();
    end.send(b"between");
    end.out.extend_from_slice(OVERSIZED_RECORD);
    end.step();
    stage.turn();
    let conn = stage.recorder.of(stage.recorder.accepted[0]);
    assert_eq!(conn.bytes, b"between");
    let fault = Seen::Faulted(Fault::Oversized);
    assert_eq!(conn.seen[..3], [Seen::Accepted, Seen::Established, fault]);
    assert_eq!(stage.notes.count_of(Event::HandshakeDone { resumed: false }), 1);
    drop(end);
    stage.end();
}

#[test]
fn connection_that_cannot_seal_is_closed() {
    for (version, count) in
        VERSIONS.into_iter().flat_map(|version| [(version, 5), (version, 100_000)])
    {
        let mut stage = Stage::without_faults(version);
        stage.recorder.breaks_sealing = true;
        let (mut end, sock) = stage.established();
        stage.act(|view| view.send(sock, &bytes(count)));
        stage.until(&mut [&mut end], |_, ends| ends[0].is_over());
        let closed = Seen::Closed(CloseReason::ConnectUnreachable);
        let expected = [Seen::Accepted, Seen::Established, Seen::Faulted(Fault::Bug), closed];
        assert_eq!(stage.recorder.of(sock).seen, expected, "{version:?}, {count} bytes");
        assert_eq!(stage.notes.faults(), [Fault::Bug]);
        assert!(end.received.is_empty());
        drop(end);
        stage.end();
    }
}

#[test]
fn early_output_is_sent_after_the_handshake() {
    for version in VERSIONS {
        let mut stage = Stage::without_faults(version);
        let mut end = stage.dial();
        stage.turn();
        let sock = stage.recorder.accepted[0];
        stage.act(|view| {
            view.send(sock, b"welcome");
            view.flush(sock);
            assert_eq!(view.output_pending(sock), b"welcome".len());
        });
        stage.until(&mut [&mut end], |_, ends| !ends[0].received.is_empty());
        assert_eq!(end.received, b"welcome", "{version:?}");
        stage.until(&mut [&mut end], |recorder, _| recorder.of(sock).seen.contains(&Seen::Drained));
        drop(end);
        stage.end();
    }
}

#[test]
fn handshakes_per_turn_are_limited_and_established_connections_are_served() {
    for version in VERSIONS {
        let mut stage = Stage::without_faults(version);
        stage.recorder.echoes = true;
        let (mut established, sock) = stage.established();
        let mut crowd: Vec<_> = (0..20).map(|_| stage.dial()).collect();
        stage.turn();
        crowd.iter_mut().for_each(|end| assert!(end.step()));
        established.send(b"served");
        established.step();
        stage.turn();
        assert_eq!(stage.recorder.of(sock).bytes, b"served", "not served while handshakes wait");
        let answered = crowd.iter().filter(|end| end.peer.arrived_bytes() > 0).count();
        assert_eq!(answered, HANDSHAKES_PER_TURN);
        let put_off = stage.notes.count_of(Event::HandshakePostponed);
        assert_eq!(put_off, crowd.len() - HANDSHAKES_PER_TURN);
        let mut ends: Vec<_> = crowd.iter_mut().collect();
        stage.until(&mut ends, |_, ends| ends.iter().all(|end| end.session.is_established()));
        drop((established, crowd));
        stage.end();
    }
}

#[test]
fn slow_handshake_times_out() {
    for version in VERSIONS {
        let mut stage = Stage::without_faults(version);
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
        let reset = Seen::Closed(CloseReason::Reset);
        assert_eq!(stage.recorder.of(stage.recorder.accepted[0]).seen, [Seen::Accepted, reset]);
        drop(end);
        stage.end();
    }
}

#[test]
fn deadline_set_early_runs_from_the_end_of_the_handshake() {
    let mut stage = Stage::without_faults(Version::Tls13);
    let mut end = stage.dial();
    stage.turn();
    let sock = stage.recorder.accepted[0];
    let at = stage.net.now().after(Span::from_secs(3));
    stage.act(|view| view.set_deadline(sock, at));
    stage.pass(Span::from_secs(4));
    assert_eq!(
        stage.recorder.of(sock).seen,
        [Seen::Accepted],
        "the deadline must not run during the handshake"
    );
    stage.until(&mut [&mut end], |_, ends| ends[0].session.is_established());
    assert_eq!(stage.notes.count_of(Event::HandshakeTimedOut), 0);
    drop(end);
    stage.end();
}

#[test]
fn output_for_a_peer_that_never_reads_is_bounded() {
    for version in VERSIONS {
        let mut stage = Stage::without_faults(version);
        let (mut end, sock) = stage.established();
        end.reads = false;
        let mut sent = 0;
        let piece = bytes(10_000);
        // Like a producer: send until enough output is pending, then wait until it has drained.
        for _ in 0..1_000 {
            let held = stage.act(|view| {
                if view.output_pending(sock) < OUTPUT_FLUSH_BYTES {
                    view.send(sock, &piece);
                    sent += piece.len();
                    view.flush(sock);
                }
                view.output_pending(sock)
            });
            assert!(held < OUTPUT_FLUSH_BYTES + 2 * piece.len(), "{held}");
            stage.turn();
        }
        assert!(!stage.recorder.of(sock).seen.contains(&Seen::Drained));
        end.reads = true;
        stage.until(&mut [&mut end], |recorder, _| {
            recorder.of(sock).seen.ends_with(&[Seen::Drained])
        });
        stage.until(&mut [&mut end], |_, ends| ends[0].received.len() == sent);
        drop(end);
        stage.end();
    }
}

#[test]
fn outgoing_handshake_precedes_connected_and_early_output_follows() {
    for version in VERSIONS {
        let mut stage = Stage::without_faults(version);
        let server = stage.serve();
        let sock = stage.connect();
        stage.act(|view| view.send(sock, b"a request"));
        let mut end = stage.accept(&server);
        assert!(!stage.recorder.conns.contains_key(&(sock.index, sock.generation)));
        stage.until(&mut [&mut end], |_, ends| !ends[0].received.is_empty());
        assert_eq!(stage.recorder.of(sock).seen, [Seen::Established, Seen::Connected]);
        assert_eq!(end.received, b"a request");
        end.send(b"an answer");
        end.send_close_notify();
        stage
            .until(&mut [&mut end], |recorder, _| recorder.of(sock).seen.contains(&Seen::Finished));
        assert_eq!(stage.recorder.of(sock).bytes, b"an answer");
        stage.act(|view| view.close(sock));
        stage.until(&mut [&mut end], |_, ends| ends[0].peer_closed);
        drop((end, server));
        stage.end();
    }
}

#[test]
fn early_finish_is_sent_after_early_output() {
    for version in VERSIONS {
        let mut stage = Stage::without_faults(version);
        let server = stage.serve();
        let sock = stage.connect();
        stage.act(|view| {
            view.send(sock, b"all there is");
            view.finish(sock);
        });
        let mut end = stage.accept(&server);
        stage.until(&mut [&mut end], |_, ends| ends[0].peer_closed);
        assert_eq!(end.received, b"all there is", "{version:?}");
        end.send(b"thanks");
        stage.until(&mut [&mut end], |recorder, _| recorder.of(sock).bytes == b"thanks");
        stage.act(|view| view.close(sock));
        drop((end, server));
        stage.end();
    }
}

#[test]
fn server_that_does_not_speak_tls_or_disconnects_is_never_connected() {
    for sent in [&b"HTTP/1.1 400 Bad Request\r\n\r\n"[..], b"\0\0\0\0\0\0", b""] {
        let mut stage = Stage::without_faults(Version::Tls13);
        let server = stage.serve();
        let sock = stage.connect();
        let end = stage.accept(&server);
        end.peer.send(sent);
        end.peer.finish();
        stage.pass(Span::from_secs(1));
        let seen = &stage.recorder.of(sock).seen;
        assert!(matches!(seen.last(), Some(Seen::Closed(_))), "{seen:?}");
        assert!(!seen.contains(&Seen::Connected) && !seen.contains(&Seen::Established));
        let counted = stage.notes.faults().len() + stage.notes.count_of(Event::HandshakeLeft);
        assert_eq!(counted, 1, "{sent:?}");
        let reply = end.peer.receive();
        assert!(!reply.starts_with(b"HTTP/"), "a server must not get an HTTP response");
        drop((end, server));
        stage.end();
    }
}

#[test]
fn nothing_leaks_under_random_peers_and_faults() {
    let mut handshakes = 0;
    for (seed, version) in (0..200).zip(VERSIONS.into_iter().cycle()) {
        let mut prng = Prng::new(seed);
        let mut stage = Stage::new(seed, Faults::swarm(&mut prng), version);
        stage.recorder.echoes = prng.below(2) == 0;
        stage.recorder.closes = prng.below(4) > 0;
        stage.recorder.pauses = prng.below(4) == 0;
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
                5 => end.send_close_notify(),
                6 => end.reads = !end.reads,
                7 => end.piece_bytes = 1 + prng.below(2_000) as usize,
                8..20 if end.session.is_established() && end.out.len() < 100_000 => {
                    // A session that sent close_notify or had a fault cannot seal.
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
        handshakes += stage.notes.count_of(Event::HandshakeDone { resumed: false });
        drop(ends);
        stage.end();
    }
    assert!(handshakes > 200, "{handshakes} handshakes done");
}

#[test]
fn refused_clients_are_logged_and_rate_limited() {
    let own = include_bytes!("../../../../fuzz/records/certificate.pem");
    // Simulated time begins before the certificate is valid.
    let shown = PeerIdentity::of_pem(own).unwrap();
    let expected = format!(
        "listener front: client 192.0.2.7:4711: the peer's certificate is not valid yet: \
         subject \"{}\", SHA-256 {}",
        shown.subject,
        shown.fingerprint_hex()
    );
    let absent = "listener front: client 192.0.2.7:4711: the peer presented no certificate";
    for version in VERSIONS {
        let mut stage = Stage::requiring_client_certificates(version, own.to_vec());
        let refuse = |stage: &mut Stage, mut end: stage::TlsPeer| {
            let before = stage.notes.faults().len();
            let notes = stage.notes.clone();
            stage.until(&mut [&mut end], |_, _| notes.faults().len() > before);
        };
        let end = stage.dial_with_certificate(version);
        refuse(&mut stage, end);
        assert_eq!(stage.notes.lines(), std::slice::from_ref(&expected), "{version:?}");
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
        let counted = format!("{absent} (refused clients not logged since the last line: 20)");
        assert_eq!(stage.notes.lines(), [expected.clone(), counted, absent.to_owned()]);
        stage.end();
    }
}

#[test]
fn client_faults_other_than_certificates_are_not_logged() {
    let mut stage = Stage::without_faults(Version::Tls13);
    let peer = stage.net.dial(&front()).unwrap();
    peer.send(b"GET / HTTP/1.1\r\n\r\n");
    stage.pass(Span::from_secs(1));
    assert_eq!((stage.notes.faults(), stage.notes.lines()), (vec![Fault::PlainHttp], Vec::new()));
    drop(peer);
    stage.end();
}

#[test]
fn handler_chooses_the_certificate_at_once_or_later() {
    for (at, version) in (0..40).zip(VERSIONS.into_iter().cycle()) {
        let mut prng = Prng::new(at);
        let mut stage = Stage::choosing(at, Faults::swarm_harmless(&mut prng), version);
        stage.recorder.echoes = true;
        let is_later = prng.below(2) == 0;
        stage.recorder.choice = (!is_later).then_some(CertificateChoice::Index(0));
        let mut end = stage.dial();
        end.piece_bytes = [1, 7, usize::MAX][prng.below(3) as usize];
        if is_later {
            stage.until(&mut [&mut end], |recorder, _| !recorder.asked.is_empty());
            stage.pass(Span::from_secs(1));
            let (sock, _) = stage.recorder.asked[0];
            assert_eq!(stage.recorder.of(sock).seen, [Seen::Accepted], "the handshake waits");
            stage.act(|view| view.choose_certificate(sock, CertificateChoice::Requested));
            // A second choice has no effect.
            stage.act(|view| view.choose_certificate(sock, CertificateChoice::Refused));
        }
        stage.until(&mut [&mut end], |_, ends| ends[0].session.is_established());
        end.send(b"hello");
        stage.until(&mut [&mut end], |_, ends| ends[0].received == b"hello");
        let names: Vec<_> = stage.recorder.asked.iter().map(|(_, name)| name.as_deref()).collect();
        assert_eq!(names, [Some("a.example")], "{version:?} {at}");
        drop(end);
        stage.end();
    }
}

#[test]
fn refused_choice_is_a_fault() {
    for version in VERSIONS {
        let mut stage = Stage::choosing(1, Faults::none(), version);
        stage.recorder.choice = Some(CertificateChoice::Refused);
        let mut end = stage.dial();
        stage.until(&mut [&mut end], |_, ends| ends[0].fault.is_some());
        assert_eq!(stage.notes.faults(), [Fault::NameUnknown]);
        drop(end);
        stage.end();
    }
}

#[test]
fn handshake_without_a_choice_times_out_or_ends_with_its_client() {
    let mut stage = Stage::choosing(1, Faults::none(), Version::Tls13);
    let (mut silent, mut leaving) = (stage.dial(), stage.dial());
    stage.until(&mut [&mut silent, &mut leaving], |recorder, _| recorder.asked.len() == 2);
    leaving.peer.reset();
    stage.pass(Span::from_millis(100));
    let closed = |stage: &Stage| {
        let all = stage.recorder.accepted.iter();
        let is_closed = |seen: &Seen| matches!(seen, Seen::Closed(_));
        all.filter(|sock| stage.recorder.of(**sock).seen.iter().any(is_closed)).count()
    };
    assert_eq!(closed(&stage), 1);
    stage.pass(HANDSHAKE_TIMEOUT);
    assert_eq!(closed(&stage), 2);
    assert_eq!(stage.notes.count_of(Event::HandshakeTimedOut), 1);
    // Choices that come too late have no effect.
    let asked: Vec<_> = stage.recorder.asked.iter().map(|(sock, _)| *sock).collect();
    for sock in asked {
        stage.act(|view| view.choose_certificate(sock, CertificateChoice::Requested));
    }
    drop((silent, leaving));
    stage.end();
}

#[test]
fn chosen_handshakes_keep_to_the_limit_of_a_turn() {
    let mut stage = Stage::choosing(1, Faults::none(), Version::Tls13);
    let mut ends: Vec<_> = (0..3 * HANDSHAKES_PER_TURN).map(|_| stage.dial()).collect();
    let all = ends.len();
    let mut refs: Vec<_> = ends.iter_mut().collect();
    stage.until(&mut refs, |recorder, _| recorder.asked.len() == all);
    let asked: Vec<_> = stage.recorder.asked.iter().map(|(sock, _)| *sock).collect();
    stage.act(|view| {
        for sock in &asked {
            view.choose_certificate(*sock, CertificateChoice::Requested);
        }
    });
    assert!(stage.notes.count_of(Event::HandshakePostponed) >= 2 * HANDSHAKES_PER_TURN);
    stage.until(&mut refs, |_, ends| ends.iter().all(|end| end.session.is_established()));
    drop(ends);
    stage.end();
}
