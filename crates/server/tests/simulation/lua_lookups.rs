//! Lookups of names by Lua applications.
//! In: name servers of the simulated network, with faults. Out: what scripts get; what a worker holds although nothing is
//! in progress.
//! Invariant: nothing is random except for the seed.

use core::net::SocketAddr;

use tidegate_base::{Prng, Span};
use tidegate_reactor::{SimDatagrams, SimNet, SimPeer};

use crate::lua::Process;
use crate::lua_datagrams::{begin, run_storm};
use crate::lua_reload::Reloaded;

const SEEDS: u64 = 30;

const FILE: &str = "[server]\nname-servers = [\"10.0.9.1\", \"10.0.9.2:5353\"]\n[[listener]]\nbind = \"10.0.0.1:80\"\n\
    [[route]]\npath = \"/proxied\"\nproxy = \"p\"\nhooks = \"d\"\n[[route]]\nlua = \"d\"\n[lua.d]\n\
    script = \"tests/scripts/lookups.lua\"\nudp = [\"10.0.0.0/8\"]\n[pool.p]\nservers = [\"10.0.1.2:8000\"]\n";

/// A name server.
struct NameServer {
    socket: SimDatagrams,
    /// Whether its answers to some names differ from those of the other server.
    is_first: bool,
    queries: usize,
}

impl NameServer {
    fn first(net: &SimNet) -> Self {
        Self::at(net, ([10, 0, 9, 1], 53).into(), true)
    }

    fn second(net: &SimNet) -> Self {
        Self::at(net, ([10, 0, 9, 2], 5353).into(), false)
    }

    fn at(net: &SimNet, address: SocketAddr, is_first: bool) -> Self {
        Self { socket: net.serve_datagrams(address).expect("a free address"), is_first, queries: 0 }
    }

    fn step(&mut self) {
        while let Some((from, query)) = self.socket.receive() {
            self.queries += 1;
            let name = name_of(&query);
            let kind = u16::from_be_bytes([query[query.len() - 15], query[query.len() - 14]]);
            let answer = |code, records: &[(u16, &[u8])]| answer(&query, code, records);
            let reply = match (&name[..], kind) {
                ("a.example", 1) => answer(0, &[(1, &[10, 1, 2, 3]), (1, &[10, 1, 2, 4])]),
                ("a.example", 28) => {
                    answer(0, &[(28, &[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9])])
                }
                ("_s._tcp.example", 33) => {
                    answer(0, &[(33, b"\x00\x01\x00\x02\x1f\x90\x04host\x07example\x00")])
                }
                ("a.example", 16) => answer(0, &[(16, b"\x05hello\x06 world")]),
                ("echo.example", 1) => answer(0, &[(1, &[10, 0, 1, 1])]),
                ("six.example", 28) => answer(0, &[(28, &[1; 16])]),
                ("none.example", _) => answer(3, &[]),
                ("fail.example", _) if self.is_first => answer(2, &[]),
                ("fail.example", _) => answer(0, &[(1, &[10, 1, 2, 5])]),
                ("broken.example", _) => answer(5, &[]),
                ("garbled.example", _) => answer(0, &[(1, &[1, 2])]),
                ("long.example", _) => {
                    let mut reply = answer(0, &[]);
                    reply[2] |= 2;
                    reply
                }
                ("forged.example", _) => {
                    let mut forged = answer(0, &[(1, &[6, 6, 6, 6])]);
                    forged[0] ^= 0x80;
                    self.socket.send(from, &forged);
                    answer(0, &[(1, &[10, 1, 2, 6])])
                }
                (name, _) if name.starts_with("silent") => continue,
                (name, 1) if name.starts_with('n') => {
                    let number = name[1..].split('.').next().expect("a label");
                    answer(0, &[(1, &[10, 0, 0, number.parse().expect("a number")])])
                }
                _ => answer(0, &[]),
            };
            self.socket.send(from, &reply);
        }
    }
}

/// The name of a query.
fn name_of(query: &[u8]) -> String {
    let (mut name, mut at) = (String::new(), 12);
    while query[at] > 0 {
        let end = at + 1 + usize::from(query[at]);
        name.push_str(core::str::from_utf8(&query[at + 1..end]).expect("a label"));
        name.push('.');
        at = end;
    }
    name.trim_end_matches('.').to_owned()
}

/// An answer whose records may be kept for 60 s, and the absence of records for 30 s.
fn answer(query: &[u8], code: u8, records: &[(u16, &[u8])]) -> Vec<u8> {
    let mut reply = query[..query.len() - 11].to_vec();
    let authorities = u8::from(records.is_empty());
    reply[2..4].copy_from_slice(&[0x81, 0x80 | code]);
    reply[6..12].copy_from_slice(&[0, records.len() as u8, 0, authorities, 0, 0]);
    let soa = [&[0, 0][..], &[0; 16], &[0, 0, 0, 30]].concat();
    let authority = records.is_empty().then_some((6, &soa[..]));
    for (kind, data) in records.iter().copied().chain(authority) {
        reply.extend([0xc0, 12]);
        reply.extend([kind.to_be_bytes(), [0, 1], [0, 0], [0, 60]].concat());
        reply.extend((data.len() as u16).to_be_bytes());
        reply.extend(data);
    }
    reply
}

/// Lets `span` pass, in turns of 2 ms.
fn pass(process: &mut Process, servers: &mut [NameServer], span: Span) {
    for _ in 0..span.as_millis() / 2 {
        process.turns(1);
        servers.iter_mut().for_each(NameServer::step);
        process.turns(1);
        process.net.advance_by(Span::from_micros(1800));
    }
}

fn get(process: &mut Process, servers: &mut [NameServer], target: &str) -> String {
    let peer = begin(process, target);
    let mut response = String::new();
    for _ in 0..200 {
        pass(process, servers, Span::from_millis(50));
        response.push_str(&String::from_utf8_lossy(&peer.receive()));
        if peer.is_finished_by_other() {
            break;
        }
    }
    response.split_once("\r\n\r\n").map(|(_, body)| body.to_owned()).unwrap_or(response)
}

#[test]
fn scripts_look_names_up() {
    let mut process = Process::of(FILE, 1);
    let mut servers = [NameServer::first(&process.net), NameServer::second(&process.net)];
    for (target, expected) in [
        ("/a.example", "10.1.2.3,10.1.2.4 "),
        ("/A.EXAMPLE./A", "10.1.2.3,10.1.2.4 "),
        ("/a.example/AAAA", "::9 "),
        ("/_s._tcp.example/SRV", "1 2 8080 host.example "),
        ("/a.example/TXT", "hello world "),
        ("/localhost", "127.0.0.1 3600"),
        ("/x.localhost/AAAA", "::1 3600"),
        ("/forged.example", "10.1.2.6 "),
        ("/fail.example", "10.1.2.5 "),
        ("/none.example", "error: the name does not exist"),
        ("/none.example/AAAA", "error: the name does not exist"),
        ("/six.example", "error: the name has no such records"),
        ("/long.example", "error: the answer does not fit a datagram"),
        ("/broken.example", "error: the name servers cannot answer"),
        ("/garbled.example", "error: the name servers cannot answer"),
        ("/silent.example", "error: timeout"),
        ("/a..b", "error: not a valid DNS name"),
        ("/a%20b", "error: not a valid DNS name"),
    ] {
        let response = get(&mut process, &mut servers, target);
        assert!(response.starts_with(expected), "{target}: {response}");
    }
    let many = get(&mut process, &mut servers, "/many");
    assert_eq!(many, "128 72", "the lookups of one application");
    process.workers[0].stop(Span::ZERO);
    pass(&mut process, &mut servers, Span::from_secs(1));
    process.finish(Vec::new());
}

#[test]
fn records_are_kept_for_as_long_as_they_may_be() {
    let mut process = Process::of(FILE, 1);
    let mut servers = [NameServer::first(&process.net), NameServer::second(&process.net)];
    let seconds = |text: &str| -> u64 {
        text.rsplit(' ').next().and_then(|number| number.parse().ok()).expect("a number")
    };
    let first = seconds(&get(&mut process, &mut servers, "/a.example"));
    assert!((59..=60).contains(&first), "{first}");
    assert_eq!(get(&mut process, &mut servers, "/none.example"), "error: the name does not exist");
    process.net.advance_by(Span::from_secs(25));
    let later = seconds(&get(&mut process, &mut servers, "/a.example"));
    assert!((30..=36).contains(&later), "{later}");
    get(&mut process, &mut servers, "/none.example");
    assert_eq!(servers[0].queries, 2, "both results were kept");
    process.net.advance_by(Span::from_secs(10));
    get(&mut process, &mut servers, "/none.example");
    assert_eq!(servers[0].queries, 3, "that there is nothing is kept for 30 s");
    process.net.advance_by(Span::from_secs(30));
    get(&mut process, &mut servers, "/a.example");
    assert_eq!(servers[0].queries, 4);
    assert_eq!((process.sum("lua_lookups"), process.sum("dns_queries")), (6, 4));
    // All that ask at once share a query.
    let clients: Vec<SimPeer> = (0..9).map(|_| begin(&process, "/n7.example")).collect();
    pass(&mut process, &mut servers, Span::from_millis(100));
    for client in clients {
        assert!(String::from_utf8_lossy(&client.receive()).contains("10.0.0.7 "));
    }
    assert_eq!(process.sum("dns_queries"), 5);
    process.workers[0].stop(Span::ZERO);
    pass(&mut process, &mut servers, Span::from_secs(1));
    process.finish(Vec::new());
}

#[test]
fn server_that_is_gone_gives_way_to_the_next_one_at_once() {
    let mut process = Process::of(FILE, 1);
    let mut servers = [NameServer::second(&process.net)];
    let began = process.net.now();
    let client = begin(&process, "/a.example");
    pass(&mut process, &mut servers, Span::from_millis(100));
    assert!(String::from_utf8_lossy(&client.receive()).contains("10.1.2.3"));
    assert!(process.net.now().since(began) < Span::from_secs(1));
    drop(servers);
    let response = get(&mut process, &mut [], "/b.example");
    assert_eq!(response, "error: the name servers cannot answer", "no server is there");
}

#[test]
fn hooks_and_sockets_use_names() {
    let mut process = Process::of(FILE, 1);
    let mut servers = [NameServer::first(&process.net)];
    let echo = process.net.serve_datagrams(([10, 0, 1, 1], 9000).into()).expect("a free address");
    let client = begin(&process, "/udp");
    for _ in 0..20 {
        pass(&mut process, &mut servers, Span::from_millis(10));
        while let Some((from, bytes)) = echo.receive() {
            echo.send(from, &bytes);
        }
    }
    assert!(client.receive().ends_with(b"hello"));
    let server = process.net.serve(&tidegate_base::Address::Tcp(([10, 0, 1, 2], 8000).into()));
    let server = server.expect("a free address");
    let client = begin(&process, "/proxied");
    pass(&mut process, &mut servers, Span::from_millis(100));
    let origin = server.accept().expect("the request is forwarded");
    let request = String::from_utf8_lossy(&origin.receive()).into_owned();
    assert!(request.contains("\r\nX-Address: 10.1.2.3,10.1.2.4 "), "{request}");
    drop((client, origin, server));
}

#[test]
fn lookup_of_earlier_code_gets_its_result() {
    let mut run = Reloaded::of(FILE, 1);
    let client = begin(&run.process, "/n5.example");
    // Its query waits in the socket of a server that is slow.
    let mut servers = [NameServer::first(&run.process.net)];
    pass(&mut run.process, &mut [], Span::from_millis(10));
    assert_eq!(run.reload(&FILE.replace("[lua.d]\n", "[lua.d]\ntimers-max = 9\n")), Ok(()));
    pass(&mut run.process, &mut servers, Span::from_millis(100));
    assert!(String::from_utf8_lossy(&client.receive()).contains("10.0.0.5 "));
    drop(client);
    // A stop ends the lookups that nothing answers.
    let client = begin(&run.process, "/silent.example");
    pass(&mut run.process, &mut servers, Span::from_millis(100));
    assert_eq!(run.process.workers[0].worker.leftovers().lookups, 1);
    drop(client);
    run.process.workers[0].stop(Span::ZERO);
    pass(&mut run.process, &mut servers, Span::from_secs(1));
    run.process.finish(Vec::new());
}

#[test]
fn lookups_end_and_never_mix_whatever_the_network_does() {
    let (mut found, mut failed) = (0, 0);
    for seed in 0..SEEDS {
        for response in storm(seed) {
            assert!(!response.ends_with("mixed"), "seed {seed}: {response}");
            found += usize::from(response.ends_with("found"));
            failed += usize::from(!response.ends_with("found"));
        }
    }
    assert!(found > 500 && failed > 5, "{found} found, {failed} not");
}

/// Runs one seed. Returns the responses.
fn storm(seed: u64) -> Vec<String> {
    let mut prng = Prng::new(seed ^ 0x6e61_6d65);
    let process = Process::of(FILE, 1);
    let mut servers = [NameServer::first(&process.net), NameServer::second(&process.net)];
    let latency_us_max = prng.below(900_000) as u32;
    let step = || servers.iter_mut().for_each(NameServer::step);
    run_storm(process, (seed, &mut prng), (latency_us_max, 400), step)
}
