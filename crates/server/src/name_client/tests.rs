//! Lookups over real sockets, with a small DNS server in the test.
//! In: answers that it gives to queries, in turn. Out: addresses or failures. Each test ends by the timeouts of the client.

use std::net::TcpListener;
use std::thread;

use super::*;

/// An A record of the queried name with this last byte and TTL; or another reply.
#[derive(Clone, Copy)]
enum Reply {
    /// Records, with a TTL of 60 s.
    Records(&'static [u8]),
    /// No record of this kind, or no name, by the code.
    Code(u8),
    /// The flag "truncated", and no record.
    Truncated,
    /// An answer with another id, then one to another question; then the true one.
    Forged(u8),
    /// Bytes that are no message of records.
    Malformed,
    /// Nothing.
    Silence,
}

/// The answer to `query` with these last bytes of addresses.
fn answer(query: &[u8], last: &[u8], flags: u16) -> Vec<u8> {
    // The question ends before the 11 bytes of the OPT record.
    let mut reply = query[..query.len() - 11].to_vec();
    reply[2..4].copy_from_slice(&(0x8180 | flags).to_be_bytes());
    reply[6..12].copy_from_slice(&[0, last.len() as u8, 0, 0, 0, 0]);
    for last in last {
        reply.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 10, 0, 0, *last]);
    }
    reply
}

/// A server that replies in turn, over TCP with 10.0.0.9. Returns its address, and a thread that ends with the queries.
fn serve(replies: &'static [Reply]) -> (SocketAddr, thread::JoinHandle<Vec<u16>>) {
    // One port for both protocols.
    let (socket, listener) = (0..100)
        .find_map(|_| {
            let socket = UdpSocket::bind(("127.0.0.1", 0)).ok()?;
            let listener = TcpListener::bind(socket.local_addr().ok()?).ok()?;
            Some((socket, listener))
        })
        .expect("a free port");
    let address = socket.local_addr().expect("it is bound");
    let work = move || {
        let (mut buffer, mut ports) = ([0; 2048], Vec::new());
        for reply in replies {
            let (count, from) = socket.recv_from(&mut buffer).expect("a query");
            ports.push(from.port());
            let query = buffer[..count].to_vec();
            let send = |bytes: &[u8]| {
                socket.send_to(bytes, from).expect("it is sent");
            };
            match reply {
                Reply::Records(last) => send(&answer(&query, last, 0)),
                Reply::Code(code) => send(&answer(&query, &[], u16::from(*code))),
                Reply::Malformed => send(&answer(&query, &[1], 0)[..query.len()]),
                Reply::Silence => {}
                Reply::Forged(last) => {
                    let mut other = answer(&query, &[66], 0);
                    other[0] ^= 1;
                    send(&other);
                    let mut other = answer(&query, &[67], 0);
                    other[13] ^= 1;
                    send(&other);
                    // Another source, which the kernel drops.
                    let stranger = UdpSocket::bind(("127.0.0.1", 0)).expect("a free port");
                    let _ = stranger.send_to(&answer(&query, &[68], 0), from);
                    send(&answer(&query, &[*last], 0));
                }
                Reply::Truncated => {
                    send(&answer(&query, &[], 0x0200));
                    let (mut stream, _) = listener.accept().expect("a connection");
                    let mut query = vec![0; 2];
                    stream.read_exact(&mut query).expect("a length");
                    query.resize(usize::from(u16::from_be_bytes([query[0], query[1]])), 0);
                    stream.read_exact(&mut query).expect("a query");
                    let bytes = answer(&query, &[9; 100], 0);
                    stream.write_all(&(bytes.len() as u16).to_be_bytes()).expect("it is sent");
                    // In two parts.
                    stream.write_all(&bytes[..20]).expect("it is sent");
                    stream.write_all(&bytes[20..]).expect("it is sent");
                }
            }
        }
        ports
    };
    (address, thread::spawn(work))
}

/// A lookup of "app.test" port 80 at these servers.
fn find(name_servers: &[SocketAddr]) -> LookedUp {
    let resolver = Resolver {
        name_servers: name_servers.to_vec(),
        families: Families::Ipv4,
        timeout: Duration::from_secs(2),
        ..Resolver::default()
    };
    by_queries(&resolver, &("app.test".to_owned(), 80))
}

fn found(last: &[u8]) -> LookedUp {
    let addresses = last.iter().map(|last| ([10, 0, 0, *last], 80).into()).collect();
    Ok(Addresses::of(addresses, Some(60)))
}

#[test]
fn one_kind_of_record_is_enough() {
    const RECORD: Reply = Reply::Records(&[1]);
    let of_ipv4 = |unanswered| {
        let addresses = Addresses::of(vec![([10, 0, 0, 1], 80).into()], Some(60));
        Ok(Addresses { unanswered, ..addresses })
    };
    // The reply to the query for A, then to that for AAAA.
    let cases: [(&[Reply], LookedUp); 7] = [
        (&[RECORD, Reply::Code(0)], of_ipv4(None)),
        (&[RECORD, Reply::Code(3)], of_ipv4(None)),
        (&[RECORD, Reply::Code(2)], of_ipv4(Some(Families::Ipv6))),
        (&[Reply::Code(3), Reply::Code(3)], Err(Failure::UnknownName)),
        (&[Reply::Code(0), Reply::Code(3)], Err(Failure::NoAddress)),
        (&[Reply::Code(3), Reply::Code(0)], Err(Failure::NoAddress)),
        (&[Reply::Code(2), Reply::Code(3)], Err(Failure::ServerFailed)),
    ];
    for (number, (replies, expected)) in cases.into_iter().enumerate() {
        let (server, thread) = serve(replies);
        let resolver = Resolver {
            name_servers: vec![server],
            timeout: Duration::from_secs(2),
            attempts: 1,
            ..Resolver::default()
        };
        let found = by_queries(&resolver, &("app.test".to_owned(), 80));
        assert_eq!(found, expected, "case {number}");
        thread.join().expect("no panic");
    }
}

#[test]
fn answers_are_taken_from_new_ports() {
    const TIMES: usize = 8;
    let (server, thread) = serve(&[Reply::Records(&[1, 2]); TIMES]);
    for _ in 0..TIMES {
        assert_eq!(find(&[server]), found(&[1, 2]));
    }
    let mut ports = thread.join().expect("the server ends");
    ports.sort_unstable();
    ports.dedup();
    assert!(ports.len() > TIMES / 2, "{ports:?}");
}

#[test]
fn forged_answers_are_ignored() {
    let (server, thread) = serve(&[Reply::Forged(3)]);
    assert_eq!(find(&[server]), found(&[3]));
    thread.join().expect("the server ends");
}

#[test]
fn truncated_answer_is_fetched_over_tcp() {
    let (server, thread) = serve(&[Reply::Truncated]);
    let found = find(&[server]).expect("100 records");
    assert_eq!((found.addresses.len(), found.seconds), (100, Some(60)));
    thread.join().expect("the server ends");
}

#[test]
fn errors_lead_to_the_next_server_and_absence_does_not() {
    let (broken, first) = serve(&[Reply::Code(2), Reply::Malformed, Reply::Code(5)]);
    // An earlier test may have used the port.
    let before = known_servers().counts(broken);
    let (good, second) = serve(&[Reply::Records(&[4]), Reply::Records(&[5]), Reply::Code(3)]);
    assert_eq!(find(&[broken, good]), found(&[4]), "SERVFAIL");
    assert_eq!(find(&[broken, good]), found(&[5]), "malformed");
    assert_eq!(find(&[broken, good]), Err(Failure::UnknownName), "REFUSED, then NXDOMAIN");
    for end in [QueryEnd::Failed, QueryEnd::Malformed, QueryEnd::Refused] {
        let count = |counts: &QueryCounts| counts.get(&end).copied().unwrap_or(0);
        assert_eq!(count(&known_servers().counts(broken)), count(&before) + 1, "{end:?}");
    }
    first.join().expect("the server ends");
    second.join().expect("the server ends");
    let (server, thread) = serve(&[Reply::Code(0)]);
    assert_eq!(find(&[server]), Err(Failure::NoAddress));
    thread.join().expect("the server ends");
}

#[test]
fn silent_servers_are_asked_again_and_then_given_up() {
    let (server, thread) = serve(&[Reply::Silence, Reply::Records(&[6])]);
    assert_eq!(find(&[server]), found(&[6]), "a lost datagram");
    thread.join().expect("the server ends");
    let (server, thread) = serve(&[Reply::Silence, Reply::Silence]);
    assert_eq!(find(&[server]), Err(Failure::Timeout));
    thread.join().expect("the server ends");
    // Nothing receives at the port any more.
    assert_eq!(find(&[server]), Err(Failure::ServerFailed));
}

#[test]
fn server_that_does_not_answer_is_not_asked_first_again() {
    // It would answer the second time.
    let (silent, first) = serve(&[Reply::Silence, Reply::Records(&[1])]);
    let (good, second) = serve(&[Reply::Records(&[2]), Reply::Records(&[3]), Reply::Code(2)]);
    for last in [2, 3] {
        assert_eq!(
            find(&[silent, good]),
            found(match last {
                2 => &[2],
                _ => &[3],
            })
        );
    }
    assert_eq!(find(&[silent, good]), found(&[1]), "it is still asked when the others fail");
    first.join().expect("the server ends");
    second.join().expect("the server ends");
}

#[test]
fn hosts_file_is_read() {
    let text = "# 10.0.0.1 app\n10.0.0.2\tapp app.test # other\n::1 localhost\n10.0.0.3 APP.test\n10.0.0.2 app.test\nbad app.test\n";
    let of = |name, families| -> Vec<String> {
        hosts_of(text, name, families).iter().map(ToString::to_string).collect()
    };
    assert_eq!(of("app.test", Families::Both), ["10.0.0.2", "10.0.0.3"]);
    assert_eq!(of("localhost", Families::Both), ["::1"]);
    assert!(of("localhost", Families::Ipv4).is_empty() && of("other", Families::Both).is_empty());
}
