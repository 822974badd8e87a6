//! Attacks that are more than one message: floods, slow senders, clients that disconnect at any byte, tunnels.
//! In: a probe. Out: the failures; memory and descriptors are checked when the probe finishes.
//! Invariant: whatever one side does, the next plain request is answered.

use std::io::{Read as _, Write as _};
use std::net::Shutdown;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::message::MessageReader;
use crate::origin::Play;
use crate::run::{Probe, connect, read_answer};

fn send(text: &str) -> Play {
    Play::Send(text.as_bytes().to_vec())
}

#[test]
fn tunnel_passes_bytes_both_ways_until_both_sides_end() {
    let mut probe = Probe::start();
    let switch = "HTTP/1.1 101 S\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n";
    probe.origin.set_scripts(vec![vec![send(switch), Play::Echo]]);
    let mut reader = MessageReader::new(connect(probe.gate.proxy).expect("the listener accepts"));
    let asks = "GET /x HTTP/1.1\r\nHost: h\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\nearly";
    reader.stream.write_all(asks.as_bytes()).expect("the request is sent");
    let answer = read_answer(&mut reader, false).expect("a response");
    assert_eq!(answer.status(), 101);
    let sent = "GET /smuggled HTTP/1.1\r\n\r\n".repeat(5000);
    let mut sender = reader.stream.try_clone().expect("the socket can be cloned");
    let bytes = sent.clone().into_bytes();
    let sending = std::thread::spawn(move || {
        sender.write_all(&bytes).and_then(|()| sender.shutdown(Shutdown::Write))
    });
    let mut echoed = reader.buffer;
    reader.stream.read_to_end(&mut echoed).expect("the connection ends cleanly");
    sending.join().expect("no panic").expect("everything is sent");
    assert_eq!(echoed.len(), 5 + sent.len());
    assert!(echoed == format!("early{sent}").into_bytes());
    probe.check_everywhere();
    probe.finish();
}

#[test]
fn endless_response_sections_are_cut_off() {
    let mut probe = Probe::start();
    let endless = [
        ("HTTP/1.1 200 OK\r\n", "X: y\r\n"),
        ("HTTP/1.1 200 OK\r\nX: ", "yyyyyyyyyyyyyyyy"),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3;", "a=b;"),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n", "X: y\r\n"),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", "0"),
        ("", "HTTP/1.1 "),
    ];
    for (start, rest) in endless {
        let flood = format!("{start}{}", rest.repeat(4_000_000 / rest.len()));
        probe.origin.set_scripts(vec![vec![send(&flood), Play::Hold]]);
        let mut stream = connect(probe.gate.proxy).expect("the listener accepts");
        stream.write_all(b"GET /x HTTP/1.1\r\nHost: h\r\n\r\n").expect("the request is sent");
        let mut seen = Vec::new();
        // Either a 502 arrives and the connection stays open, or the connection ends. Both happen before
        // the flood ends.
        while !seen.windows(12).any(|at| at == b"HTTP/1.1 502") {
            let mut piece = [0; 65536];
            match stream.read(&mut piece) {
                Ok(0) => break,
                Ok(count) => seen.extend_from_slice(&piece[..count]),
                Err(error) => {
                    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset, "{start:?}");
                    break;
                }
            }
        }
        assert!(
            seen.len() < 10_000,
            "{} bytes of the flood after {start:?} were relayed",
            seen.len()
        );
        probe.check_everywhere();
    }
    probe.finish();
}

#[test]
fn endless_interim_responses_use_no_memory() {
    let mut probe = Probe::start();
    let interim = "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n".repeat(100_000);
    let end = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
    probe.origin.set_scripts(vec![vec![send(&interim), send(end)]]);
    let mut reader = MessageReader::new(connect(probe.gate.proxy).expect("the listener accepts"));
    reader.stream.write_all(b"GET /x HTTP/1.1\r\nHost: h\r\n\r\n").expect("the request is sent");
    let mut count = 0;
    while read_answer(&mut reader, false).expect("a response arrives").status() == 103 {
        count += 1;
    }
    assert_eq!(count, 100_000);
    probe.check_everywhere();
    probe.finish();
}

#[test]
fn clients_that_disconnect_at_any_byte_leak_nothing() {
    let mut probe = Probe::start();
    let requests = [
        "GET /x HTTP/1.1\r\nHost: h\r\n\r\n".to_owned(),
        "POST /x HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nabcdefghij".to_owned(),
        "POST /x HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nX: y\r\n\r\n"
            .to_owned(),
        "GET /x HTTP/1.1\r\nHost: h\r\n\r\n".repeat(30),
    ];
    for request in &requests {
        for (at, resets) in (1..request.len()).step_by(3).zip([true, false].into_iter().cycle()) {
            for address in [probe.gate.proxy, probe.gate.respond] {
                let mut stream = connect(address).expect("the listener accepts");
                let _ = stream.write_all(&request.as_bytes()[..at]);
                if resets {
                    let zero = Some(Duration::ZERO);
                    let _ = rustix::net::sockopt::set_socket_linger(&stream, zero);
                }
            }
        }
    }
    probe.check_everywhere();
    probe.finish();
}

#[test]
fn pipeline_without_reading_responses_is_bounded() {
    let mut probe = Probe::start();
    for address in [probe.gate.proxy, probe.gate.respond] {
        let stream = connect(address).expect("the listener accepts");
        let mut sender = stream.try_clone().expect("the socket can be cloned");
        let stop = std::sync::Arc::new(AtomicBool::new(false));
        let stopped = std::sync::Arc::clone(&stop);
        let flood = std::thread::spawn(move || {
            let requests = "GET /x HTTP/1.1\r\nHost: h\r\n\r\n".repeat(1000);
            let mut sent = 0;
            while !stopped.load(Ordering::Relaxed) && sent < (256 << 20) {
                // Once Tidegate stops reading, the socket's write timeout ends the loop.
                match sender.write(requests.as_bytes()) {
                    Ok(count) => sent += count,
                    Err(_) => break,
                }
            }
            sent
        });
        for _ in 0..20 {
            probe.check_everywhere();
        }
        stop.store(true, Ordering::Relaxed);
        let _ = stream.shutdown(Shutdown::Both);
        let sent = flood.join().expect("no panic");
        assert!(
            sent < (64 << 20),
            "{sent} bytes of requests were accepted although no response was read"
        );
    }
    probe.finish();
}

#[test]
fn thousands_of_idle_connections_do_not_block_others() {
    let mut probe = Probe::start();
    let idle: Vec<_> =
        (0..2000).map(|_| connect(probe.gate.proxy).expect("the listener accepts")).collect();
    let dripping: Vec<_> = (0..500)
        .map(|_| {
            let mut stream = connect(probe.gate.respond).expect("the listener accepts");
            stream.write_all(b"GET / HTTP/1.1\r\nHos").expect("the bytes are sent");
            stream
        })
        .collect();
    probe.check_everywhere();
    drop((idle, dripping));
    for _ in 0..10_000 {
        drop(connect(probe.gate.proxy).expect("the listener accepts"));
    }
    probe.check_everywhere();
    probe.finish();
}
