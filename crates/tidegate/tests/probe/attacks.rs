//! Attacks that are no single message: floods, drips, leaving at any moment, tunnels.
//! In: a probe. Out: what went wrong; memory and descriptors are judged when the probe finishes.
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
fn a_tunnel_passes_bytes_both_ways_until_both_ends() {
    let mut probe = Probe::start();
    let switch = "HTTP/1.1 101 S\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n";
    probe.origin.set_scripts(vec![vec![send(switch), Play::Echo]]);
    let mut reader = MessageReader::new(connect(probe.gate.proxy).expect("it listens"));
    let asks = "GET /x HTTP/1.1\r\nHost: h\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\nearly";
    reader.stream.write_all(asks.as_bytes()).expect("it takes a request");
    let answer = read_answer(&mut reader, false).expect("it answers");
    assert_eq!(answer.status(), 101);
    let sent = "GET /smuggled HTTP/1.1\r\n\r\n".repeat(5000);
    let mut sender = reader.stream.try_clone().expect("a copy");
    let bytes = sent.clone().into_bytes();
    let sending = std::thread::spawn(move || {
        sender.write_all(&bytes).and_then(|()| sender.shutdown(Shutdown::Write))
    });
    let mut echoed = reader.buffer;
    reader.stream.read_to_end(&mut echoed).expect("it ends in order");
    sending.join().expect("no panic").expect("it takes all");
    assert_eq!(echoed.len(), 5 + sent.len());
    assert!(echoed == format!("early{sent}").into_bytes());
    probe.check_everywhere();
    probe.finish();
}

#[test]
fn an_origin_that_never_ends_a_section_is_cut_off() {
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
        let mut stream = connect(probe.gate.proxy).expect("it listens");
        stream.write_all(b"GET /x HTTP/1.1\r\nHost: h\r\n\r\n").expect("it takes a request");
        let mut seen = Vec::new();
        // A refusal keeps the connection; a cut ends it. Either comes without the flood's end.
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
        assert!(seen.len() < 10_000, "{} bytes of {start:?} went through", seen.len());
        probe.check_everywhere();
    }
    probe.finish();
}

#[test]
fn endless_interim_answers_hold_no_memory() {
    let mut probe = Probe::start();
    let interim = "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n".repeat(100_000);
    let end = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
    probe.origin.set_scripts(vec![vec![send(&interim), send(end)]]);
    let mut reader = MessageReader::new(connect(probe.gate.proxy).expect("it listens"));
    reader.stream.write_all(b"GET /x HTTP/1.1\r\nHost: h\r\n\r\n").expect("it takes a request");
    let mut count = 0;
    while read_answer(&mut reader, false).expect("answers come").status() == 103 {
        count += 1;
    }
    assert_eq!(count, 100_000);
    probe.check_everywhere();
    probe.finish();
}

#[test]
fn clients_that_leave_at_any_byte_leave_nothing_behind() {
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
                let mut stream = connect(address).expect("it listens");
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
fn a_pipeline_that_nobody_reads_is_bounded() {
    let mut probe = Probe::start();
    for address in [probe.gate.proxy, probe.gate.respond] {
        let stream = connect(address).expect("it listens");
        let mut sender = stream.try_clone().expect("a copy");
        let stop = std::sync::Arc::new(AtomicBool::new(false));
        let stopped = std::sync::Arc::clone(&stop);
        let flood = std::thread::spawn(move || {
            let requests = "GET /x HTTP/1.1\r\nHost: h\r\n\r\n".repeat(1000);
            let mut sent = 0;
            while !stopped.load(Ordering::Relaxed) && sent < (256 << 20) {
                // It ends by the write's time limit once nothing is taken any more.
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
        assert!(sent < (64 << 20), "{sent} bytes of requests were taken with no answer read");
    }
    probe.finish();
}

#[test]
fn thousands_of_connections_that_say_nothing_are_no_burden() {
    let mut probe = Probe::start();
    let idle: Vec<_> = (0..2000).map(|_| connect(probe.gate.proxy).expect("it listens")).collect();
    let dripping: Vec<_> = (0..500)
        .map(|_| {
            let mut stream = connect(probe.gate.respond).expect("it listens");
            stream.write_all(b"GET / HTTP/1.1\r\nHos").expect("it takes bytes");
            stream
        })
        .collect();
    probe.check_everywhere();
    drop((idle, dripping));
    for _ in 0..10_000 {
        drop(connect(probe.gate.proxy).expect("it listens"));
    }
    probe.check_everywhere();
    probe.finish();
}
