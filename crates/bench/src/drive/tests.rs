//! Tests of the load generator against sockets of their own.
//! In: plans. Out: outcomes, with what each server received.

use super::*;
use crate::floor::{Floor, JSON_BODY, Role};
use crate::target::{RequestOptions, Url};

fn job(address: std::net::SocketAddr, plan: Plan) -> Job {
    let url = Url::parse(&format!("http://{address}/json")).unwrap();
    Job {
        plan,
        mix: RequestMix::single(&url, &RequestOptions::default()).unwrap(),
        targets: vec![Target { address: url.resolve().unwrap(), is_secure: false }],
        tls: None,
        cpus: Vec::new(),
        reference: None,
        stops_at_error: false,
        server_pids: Vec::new(),
        server_cpus: Vec::new(),
    }
}

fn floor() -> std::net::SocketAddr {
    let role = Role::Answer { content_type: "application/json".to_owned(), body: JSON_BODY.into() };
    let floor = Floor::listen("127.0.0.1:0".parse().unwrap(), role).unwrap();
    let address = floor.address();
    thread::spawn(move || floor.serve());
    address
}

#[test]
fn planned_number_of_requests_is_sent_exactly() {
    let plan = Plan {
        connections: 7,
        threads: 3,
        requests: Some(1000),
        duration: None,
        ..Plan::default()
    };
    let outcome = run(&job(floor(), plan), &AtomicBool::new(false), &mut |_| {}).unwrap();
    assert_eq!(outcome.tally.requests, 1000);
    assert_eq!(outcome.tally.issued, 1000);
    assert_eq!(outcome.tally.errors.total(), 0);
    assert_eq!(outcome.tally.body_bytes, 27_000);
    assert_eq!(outcome.tally.connects, 7);
}

#[test]
fn pipelined_requests_are_all_answered() {
    let plan = Plan {
        connections: 3,
        requests: Some(5000),
        duration: None,
        pipeline: 16,
        ..Plan::default()
    };
    let outcome = run(&job(floor(), plan), &AtomicBool::new(false), &mut |_| {}).unwrap();
    assert_eq!((outcome.tally.requests, outcome.tally.errors.total()), (5000, 0));
}

#[test]
fn port_without_listener_gives_connect_errors() {
    let address = crate::process::free_address().unwrap();
    let plan =
        Plan { connections: 2, duration: Some(Duration::from_millis(300)), ..Plan::default() };
    let outcome = run(&job(address, plan), &AtomicBool::new(false), &mut |_| {}).unwrap();
    assert_eq!(outcome.tally.requests, 0);
    assert!(outcome.tally.errors.connect > 0);
    assert!(outcome.tally.notes[0].1.contains("refused"), "{:?}", outcome.tally.notes);
}

#[test]
fn connections_use_the_given_source_addresses() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let seen = thread::spawn(move || {
        let mut seen: Vec<IpAddr> = (0..4).map(|_| listener.accept().unwrap().1.ip()).collect();
        seen.sort();
        seen
    });
    let sources: Vec<IpAddr> = vec![[127, 0, 0, 8].into(), [127, 0, 0, 9].into()];
    let plan = Plan {
        connections: 4,
        duration: Some(Duration::from_millis(300)),
        sources: sources.clone(),
        timeout: Duration::from_millis(200),
        ..Plan::default()
    };
    let outcome = run(&job(address, plan), &AtomicBool::new(false), &mut |_| {}).unwrap();
    assert!(outcome.tally.connects >= 4);
    assert_eq!(seen.join().unwrap(), [sources[0], sources[0], sources[1], sources[1]]);
}

/// A server that answers so many requests of one connection, then ends: connections are refused.
fn server_that_ends(answered: usize) -> (std::net::SocketAddr, thread::JoinHandle<()>) {
    use std::io::{Read as _, Write as _};
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let server = thread::spawn(move || {
        let (mut connection, _) = listener.accept().unwrap();
        // Further connection attempts are refused. The client's threads have copies of the descriptor, so
        // closing it would not end the socket.
        rustix::net::shutdown(&listener, rustix::net::Shutdown::Both).unwrap();
        let mut request = [0; 4096];
        for _ in 0..answered {
            assert!(connection.read(&mut request).unwrap() > 0);
            connection.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").unwrap();
        }
        connection.shutdown(std::net::Shutdown::Both).unwrap();
    });
    (address, server)
}

#[test]
fn server_that_ends_does_not_count_as_client_saturation() {
    // The second server ends less than SILENCE_MIN before the end of the run.
    for (answered, duration) in [(20, SILENCE_MIN * 3), (130, SILENCE_MIN * 2)] {
        let (address, server) = server_that_ends(answered);
        let plan = Plan {
            connections: 1,
            duration: Some(duration),
            pace: Pace::Total { per_second: 100.0, arrivals: Arrivals::Constant },
            ..Plan::default()
        };
        let outcome = run(&job(address, plan), &AtomicBool::new(false), &mut |_| {}).unwrap();
        server.join().unwrap();
        assert!(outcome.silent_since.is_some(), "{answered}: {:?}", outcome.tally.errors);
        assert!(outcome.saturated.is_empty(), "{answered}: {:?}", outcome.saturated);
        assert!(outcome.blocked.is_empty(), "{answered}: {:?}", outcome.blocked);
    }
}

#[test]
fn slow_server_does_not_count_as_client_saturation() {
    use std::io::{Read as _, Write as _};
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let server = thread::spawn(move || {
        let (mut connection, _) = listener.accept().unwrap();
        let mut request = [0; 4096];
        while connection.read(&mut request).is_ok_and(|count| count > 0) {
            thread::sleep(Duration::from_millis(100));
            if connection.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").is_err() {
                return;
            }
        }
    });
    let plan = Plan {
        connections: 1,
        duration: Some(Duration::from_secs(1)),
        pace: Pace::Total { per_second: 100.0, arrivals: Arrivals::Constant },
        ..Plan::default()
    };
    let outcome = run(&job(address, plan), &AtomicBool::new(false), &mut |_| {}).unwrap();
    server.join().unwrap();
    assert!(outcome.saturated.is_empty(), "{:?}", outcome.saturated);
    assert!(outcome.blocked[0].contains("all connections waited"), "{:?}", outcome.blocked);
}

#[test]
fn server_that_hangs_is_silent_before_the_timeout() {
    use std::io::{Read as _, Write as _};
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let server = thread::spawn(move || {
        let (mut connection, _) = listener.accept().unwrap();
        let mut request = [0; 4096];
        for _ in 0..20 {
            assert!(connection.read(&mut request).unwrap() > 0);
            connection.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").unwrap();
        }
        // Reads the next request, and keeps the connection open until the client ends.
        while connection.read(&mut request).is_ok_and(|count| count > 0) {}
    });
    let plan = Plan {
        connections: 1,
        duration: Some(SILENCE_MIN * 4),
        timeout: Duration::from_secs(3600),
        ..Plan::default()
    };
    let outcome = run(&job(address, plan), &AtomicBool::new(false), &mut |_| {}).unwrap();
    server.join().unwrap();
    assert!(outcome.silent_since.is_some(), "unanswered: {}", outcome.tally.unanswered);
}

#[test]
fn first_error_ends_the_run_if_requested() {
    let plan = Plan { duration: Some(Duration::from_secs(60)), ..Plan::default() };
    let address = crate::process::free_address().unwrap();
    let job = Job { stops_at_error: true, ..job(address, plan) };
    let outcome = run(&job, &AtomicBool::new(false), &mut |_| {}).unwrap();
    assert!(outcome.was_stopped && outcome.tally.errors.connect > 0);
}

/// Starts a server that responds to every request with 404.
fn server_of_404() -> std::net::SocketAddr {
    use std::io::{Read as _, Write as _};
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        while let Ok((mut connection, _)) = listener.accept() {
            thread::spawn(move || {
                let mut request = [0; 4096];
                while connection.read(&mut request).is_ok_and(|count| count > 0) {
                    let answer = b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n";
                    if connection.write_all(answer).is_err() {
                        break;
                    }
                }
            });
        }
    });
    address
}

#[test]
fn no_request_is_sent_after_the_first_error() {
    const CONNECTIONS: u32 = 6;
    let arrivals = Arrivals::Constant;
    for (requests, pace) in [
        (Some(10_000), Pace::Closed),
        (None, Pace::Closed),
        (None, Pace::Total { per_second: 2000.0, arrivals }),
        (None, Pace::PerConnection { per_second: 500.0, arrivals }),
    ] {
        let plan = Plan {
            connections: CONNECTIONS,
            threads: 2,
            requests,
            duration: requests.is_none().then_some(Duration::from_secs(60)),
            pace,
            ..Plan::default()
        };
        let job = Job { stops_at_error: true, ..job(server_of_404(), plan) };
        let outcome = run(&job, &AtomicBool::new(false), &mut |_| {}).unwrap();
        let (issued, errors) = (outcome.tally.issued, outcome.tally.errors.status);
        assert!(outcome.was_stopped && outcome.had_fatal_error, "{pace:?}");
        // A connection sends its second request after the response to its first one, which is an error.
        assert!(issued >= 1 && issued <= u64::from(CONNECTIONS), "{pace:?}: {issued} requests");
        assert!(errors >= 1 && errors <= issued, "{pace:?}: {errors} errors of {issued}");
    }
}

#[test]
fn foreign_source_address_is_rejected_before_the_run() {
    for source in ["203.0.113.7", "::1"] {
        let plan = Plan { sources: vec![source.parse().unwrap()], ..Plan::default() };
        let address = crate::process::free_address().unwrap();
        let error = run(&job(address, plan), &AtomicBool::new(false), &mut |_| {}).unwrap_err();
        assert!(error.contains(&format!("--source {source}: ")), "{error}");
    }
}

#[test]
fn proposed_arguments_fit_the_descriptor_limit() {
    let plan = Plan { connections: 100_000, threads: 2, ..Plan::default() };
    for (limit, words) in
        [(1064, "use --threads 100 or "), (164, "use --connections 200 or "), (64, ""), (8, "")]
    {
        assert_eq!(within_limit(&plan, limit), words, "{limit}");
    }
}

#[test]
fn too_many_connections_are_rejected_with_a_number_that_fits() {
    let plan = Plan { connections: 3_000_000, ..Plan::default() };
    let address = crate::process::free_address().unwrap();
    let error = run(&job(address, plan), &AtomicBool::new(false), &mut |_| {}).unwrap_err();
    assert!(error.contains("use --"), "{error}");
}
