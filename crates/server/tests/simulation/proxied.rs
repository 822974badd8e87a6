//! The PROXY protocol on both sides of a worker: who is believed, who is not, and whose connection is whose.
//! In: one worker, clients and an origin moved by hand. Out: what each test's name says.

use tidegate_base::Span;
use tidegate_reactor::{Peer, SimPeer};
use tidegate_wire::proxy_protocol::{
    self, Endpoints, Extension, Tls, Transport, encode_binary, encode_text,
};

use crate::named::Stage;

const FRONT: &str = "10.9.0.1:4000";
const TRUSTING: &str = "proxy-protocol = { from = [\"10.9.0.0/16\"] }";
const GET: &[u8] = b"GET /p HTTP/1.1\r\nHost: a\r\n\r\n";
const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

fn dial_from(stage: &Stage, address: &str) -> SimPeer {
    let peer = Peer::Tcp(address.parse().expect("an address"));
    stage.net.dial_as(&stage.seat.bound[0], peer).expect("it listens")
}

fn hello(stage: &mut Stage, client: &SimPeer, sent: &[u8]) -> String {
    client.send(sent);
    let origin = stage.accept();
    let heard = stage.hear(&origin, "\r\n\r\n");
    origin.send(ANSWER);
    assert!(stage.hear(client, "ok").starts_with("HTTP/1.1 200 "));
    heard
}

/// What a front sends of a client that connected to its port 443.
fn endpoints() -> Endpoints<'static> {
    let address = |text: &str| text.parse().expect("an address");
    Endpoints::Ip {
        source: address("203.0.113.7:4660"),
        destination: address("10.0.0.1:443"),
        transport: Transport::Stream,
    }
}

fn header(extensions: &[Extension<'_>]) -> Vec<u8> {
    let mut header = Vec::new();
    encode_binary(&mut header, &endpoints(), extensions.iter().copied(), true);
    header
}

/// TLS with a certificate that was verified.
fn proven() -> Tls<'static> {
    Tls {
        in_use: true,
        certificate_here: true,
        certificate_in_session: true,
        verified: true,
        version: Some(b"TLSv1.3"),
        common_name: Some(b"bob"),
        cipher: Some(b"TLS_AES_128_GCM_SHA256"),
        signature_algorithm: Some(b"SHA256"),
        key_algorithm: Some(b"RSA2048"),
    }
}

fn until_closed(stage: &mut Stage, client: &SimPeer) {
    let over = |_: &Stage| (client.is_finished_by_other() || client.was_reset()).then_some(());
    stage.until(over);
}

#[test]
fn the_client_is_whom_a_trusted_proxy_names() {
    let inet = [
        &b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c"[..],
        &[203, 0, 113, 7, 10, 0, 0, 1, 0x12, 0x34, 0, 80],
    ]
    .concat();
    let local = b"\r\n\r\n\0\r\nQUIT\n\x20\0\0\0".to_vec();
    for (header, client) in [
        (b"PROXY TCP4 203.0.113.7 10.0.0.1 4660 80\r\n".to_vec(), "203.0.113.7"),
        (b"PROXY TCP6 ::ffff:203.0.113.7 ::1 4660 80\r\n".to_vec(), "203.0.113.7"),
        (inet, "203.0.113.7"),
        (b"PROXY UNKNOWN\r\n".to_vec(), "10.9.0.1"),
        (local, "10.9.0.1"),
    ] {
        let mut stage = Stage::new(TRUSTING, "reuse = { idle-max = 0 }");
        let whole = dial_from(&stage, FRONT);
        let heard = hello(&mut stage, &whole, &[&header, GET].concat());
        assert!(heard.contains(&format!("\r\nX-Forwarded-For: {client}\r\n")), "{heard}");
        let cut = dial_from(&stage, FRONT);
        for byte in &header {
            assert_eq!(cut.send(&[*byte]), 1);
            stage.turn();
            stage.net.advance_by(Span::from_millis(1));
        }
        let heard = hello(&mut stage, &cut, GET);
        assert!(heard.contains(&format!("\r\nForwarded: for={client};")), "{heard}");
        assert_eq!(stage.seat.accounts.counters.proxy_headers.load(), 2);
        drop((whole, cut));
        stage.end();
    }
}

#[test]
fn whom_a_proxy_names_is_trusted_or_not_as_any_client() {
    let listener = format!("{TRUSTING}\ntrusted = [\"203.0.113.0/24\"]");
    let mut stage = Stage::new(&listener, "");
    let sent = |client: &str| {
        format!(
            "PROXY TCP4 {client} 10.0.0.1 1 80\r\nGET /p HTTP/1.1\r\nHost: a\r\n\
             X-Forwarded-For: 192.0.2.9\r\nConnection: close\r\n\r\n"
        )
    };
    let believed = dial_from(&stage, FRONT);
    let heard = hello(&mut stage, &believed, sent("203.0.113.7").as_bytes());
    assert!(heard.contains("X-Forwarded-For: 192.0.2.9, 203.0.113.7\r\n"), "{heard}");
    drop(believed);
    let other = dial_from(&stage, FRONT);
    let heard = hello(&mut stage, &other, sent("198.51.100.7").as_bytes());
    assert!(heard.contains("X-Forwarded-For: 198.51.100.7\r\n"), "{heard}");
    drop(other);
    stage.end();
}

#[test]
fn a_header_from_anybody_else_is_a_malformed_request() {
    for header in
        [&b"PROXY TCP4 203.0.113.7 10.0.0.1 4660 80\r\n"[..], b"\r\n\r\n\0\r\nQUIT\n\x20\0\0\0"]
    {
        let mut stage = Stage::new(TRUSTING, "");
        let client = dial_from(&stage, "10.10.0.1:4000");
        client.send(&[header, GET].concat());
        let answer = stage.hear(&client, "\r\n\r\n");
        assert!(answer.starts_with("HTTP/1.1 400 "), "{answer}");
        let plain = dial_from(&stage, "10.10.0.1:4001");
        let heard = hello(&mut stage, &plain, GET);
        assert!(heard.contains("X-Forwarded-For: 10.10.0.1\r\n"), "{heard}");
        assert_eq!(stage.seat.accounts.counters.proxy_headers.load(), 0);
        drop((client, plain));
        stage.end();
    }
}

#[test]
fn a_trusted_proxy_without_its_header_is_closed_and_counted() {
    for sent in [GET, b"\x16\x03\x01\x02\0\x01", b"PROXY TCP4 1.2.3.4\r\n", &[b'P'; 5000]] {
        let mut stage = Stage::new(TRUSTING, "");
        let client = dial_from(&stage, FRONT);
        client.send(sent);
        until_closed(&mut stage, &client);
        assert!(client.receive().is_empty(), "who is not understood is told nothing");
        assert_eq!(stage.seat.accounts.counters.proxy_header_faults.load(), 1);
        assert_eq!(stage.seat.accounts.counters.requests.load(), 0);
        drop(client);
        stage.end();
    }
}

#[test]
fn a_header_that_does_not_end_costs_no_more_than_the_heads_time() {
    let listener = format!("{TRUSTING}\ntimeouts = {{ head = \"2s\" }}");
    let mut stage = Stage::new(&listener, "");
    let began = stage.net.now();
    let client = dial_from(&stage, FRONT);
    for byte in b"PROXY " {
        client.send(&[*byte]);
        stage.turn();
        stage.net.advance_by(Span::from_millis(100));
    }
    until_closed(&mut stage, &client);
    let took = stage.net.now().since(began);
    assert!(took >= Span::from_secs(2) && took < Span::from_secs(3), "{took:?}");
    assert_eq!(stage.seat.accounts.counters.head_timeouts.load(), 1);
    drop(client);
    stage.end();
}

#[test]
fn servers_are_told_whom_a_connection_is_for() {
    let mut stage = Stage::new("", "proxy-protocol = \"v1\"");
    let client = dial_from(&stage, "192.0.2.1:5000");
    let heard = hello(&mut stage, &client, GET);
    let line = "PROXY TCP4 192.0.2.1 10.0.0.1 5000 80\r\nGET /p HTTP/1.1\r\n";
    assert!(heard.starts_with(line), "{heard}");
    drop(client);
    stage.end();
    let mut stage = Stage::new(TRUSTING, "proxy-protocol = \"v1\"");
    let client = dial_from(&stage, FRONT);
    let sent = [b"PROXY TCP6 2001:db8::1 2001:db8::2 5000 443\r\n", GET].concat();
    let heard = hello(&mut stage, &client, &sent);
    assert!(heard.starts_with("PROXY TCP6 2001:db8::1 2001:db8::2 5000 443\r\nGET"), "{heard}");
    drop(client);
    stage.end();
}

#[test]
fn a_told_connection_serves_its_client_again_and_nobody_else() {
    let mut stage = Stage::new("", "proxy-protocol = \"v1\"");
    let (first, second) = (dial_from(&stage, "192.0.2.1:1"), dial_from(&stage, "192.0.2.2:2"));
    first.send(GET);
    let of_first = stage.accept();
    assert!(stage.hear(&of_first, "\r\n\r\n").starts_with("PROXY TCP4 192.0.2.1 "));
    of_first.send(ANSWER);
    stage.hear(&first, "ok");

    second.send(GET);
    let of_second = stage.accept();
    assert!(stage.hear(&of_second, "\r\n\r\n").starts_with("PROXY TCP4 192.0.2.2 "));
    of_second.send(ANSWER);
    stage.hear(&second, "ok");

    first.send(GET);
    assert!(stage.hear(&of_first, "\r\n\r\n").starts_with("GET /p "), "one header a connection");
    of_first.send(ANSWER);
    stage.hear(&first, "ok");
    let counters = &stage.seat.accounts.counters;
    assert_eq!((counters.upstream_connects.load(), counters.upstream_reuses.load()), (2, 1));
    assert_eq!(stage.seat.worker.leftovers().idle, 0, "nobody else may find them");

    drop(first);
    until_closed(&mut stage, &of_first);
    assert!(!of_second.is_finished_by_other());
    // The server closes what was kept: the client's next request goes over a connection of its own.
    drop(of_second);
    stage.until(|stage| {
        let closes = stage.seat.accounts.counters.upstream_idle_closes.load();
        (closes > 0).then_some(())
    });
    let heard = hello(&mut stage, &second, GET);
    assert!(heard.starts_with("PROXY TCP4 192.0.2.2 "), "{heard}");
    drop((second, of_first));
    stage.end();
}

#[test]
fn what_is_kept_for_a_client_ages_as_any_idle_connection() {
    let mut stage = Stage::new("", "proxy-protocol = \"v2\"\nreuse = { idle-timeout = \"1s\" }");
    let client = dial_from(&stage, "192.0.2.1:1");
    client.send(GET);
    let origin = stage.accept();
    stage.hear(&origin, "HTTP/1.1\r\n");
    origin.send(ANSWER);
    stage.hear(&client, "ok");
    until_closed(&mut stage, &origin);
    assert!(client.is_up() && !client.is_finished_by_other(), "the client's own stays");
    client.send(GET);
    let origin = stage.accept();
    stage.hear(&origin, "HTTP/1.1\r\n");
    drop((client, origin));
    stage.end();
}

#[test]
fn no_more_is_kept_for_clients_than_a_server_may_have_idle() {
    let mut stage = Stage::new("", "proxy-protocol = \"v1\"\nreuse = { idle-max = 2 }");
    let mut held = Vec::new();
    for port in 1..=4 {
        let client = dial_from(&stage, &format!("192.0.2.1:{port}"));
        client.send(GET);
        let origin = stage.accept();
        stage.hear(&origin, "\r\n\r\n");
        origin.send(ANSWER);
        stage.hear(&client, "ok");
        if port > 2 {
            until_closed(&mut stage, &origin);
        }
        assert_eq!(stage.seat.worker.leftovers().kept, port.min(2));
        held.push((client, origin));
    }
    // One in use is not idle, and is again after its answer.
    let (client, origin) = &held[0];
    client.send(GET);
    stage.hear(origin, "\r\n\r\n");
    assert_eq!(stage.seat.worker.leftovers().kept, 1);
    origin.send(ANSWER);
    stage.hear(client, "ok");
    assert_eq!(stage.seat.worker.leftovers().kept, 2);
    // One whose client leaves makes room.
    let (client, origin) = held.remove(1);
    drop(client);
    until_closed(&mut stage, &origin);
    let (client, _) = &held[2];
    client.send(GET);
    let origin = stage.accept();
    stage.hear(&origin, "\r\n\r\n");
    origin.send(ANSWER);
    stage.hear(client, "ok");
    assert!(!origin.is_finished_by_other());
    assert_eq!(stage.seat.worker.leftovers().kept, 2);
    drop((held, origin));
    stage.end();
}

const HTTPS_ALONE: &str = "redirect-to-https = true\nhsts = \"9s\"";
const HSTS: &str = "\r\nStrict-Transport-Security: max-age=9\r\n";

/// Sends a request; returns what the origin hears and what the client does; nothing is heard where it is
/// redirected.
fn ask(stage: &mut Stage, client: &SimPeer, sent: &[u8]) -> (String, String) {
    client.send(sent);
    let mut said = Vec::new();
    let origin = stage.until(|stage| {
        said.extend(client.receive());
        let origin = stage.origin_connection();
        (origin.is_some() || said.ends_with(b"see Location\n")).then_some(origin)
    });
    let Some(origin) = origin else {
        return (String::new(), String::from_utf8(said).expect("text"));
    };
    let heard = stage.hear(&origin, "\r\n\r\n");
    origin.send(ANSWER);
    (heard, stage.hear(client, "\r\n\r\nok"))
}

#[test]
fn a_client_that_speaks_tls_with_a_trusted_proxy_comes_by_https() {
    let mut v1 = Vec::new();
    encode_text(&mut v1, &endpoints());
    let plain = Tls { in_use: false, ..proven() };
    for (header, is_https) in [
        (header(&[Extension::Tls(proven())]), true),
        (header(&[Extension::Tls(Tls { in_use: true, ..Tls::default() })]), true),
        (header(&[Extension::Alpn(b"http/1.1"), Extension::Tls(plain)]), false),
        // Ports mean nothing, nor does a name that was asked for.
        (header(&[Extension::Authority(b"a.example")]), false),
        (header(&[]), false),
        (v1, false),
    ] {
        let mut stage = Stage::new(&format!("{TRUSTING}\n{HTTPS_ALONE}"), "");
        let client = dial_from(&stage, FRONT);
        let (heard, said) = ask(&mut stage, &client, &[&header, GET].concat());
        if is_https {
            assert!(heard.contains("\r\nX-Forwarded-Proto: https\r\n"), "{heard}");
            assert!(heard.contains("host=\"a\";proto=https\r\n"), "{heard}");
            assert!(said.starts_with("HTTP/1.1 200 ") && said.contains(HSTS), "{said}");
        } else {
            assert!(said.starts_with("HTTP/1.1 301 ") && !said.contains("Strict"), "{said}");
            assert!(said.contains("\r\nLocation: https://a/p\r\n"), "{said}");
        }
        // What cannot be read as a request is answered by the same rule.
        client.send(b"GET /\x01 HTTP/1.1\r\n\r\n");
        let said = stage.hear(&client, "\r\n\r\n");
        assert!(said.starts_with("HTTP/1.1 400 "), "{said}");
        assert_eq!(said.contains(HSTS), is_https, "{said}");
        drop(client);
        stage.end();
    }
}

#[test]
fn a_certificate_that_the_proxy_did_not_find_good_names_nobody() {
    let unshown = Tls { certificate_here: false, certificate_in_session: false, ..proven() };
    for (tls, told) in [
        (proven(), "\r\nX-Client-Cert-Cn: bob\r\n"),
        (Tls { certificate_here: false, ..proven() }, "\r\nX-Client-Cert-Cn: bob\r\n"),
        (
            Tls { common_name: Some(b"b\r\nob"), ..proven() },
            "\r\nX-Client-Cert-Cn: b\\0d\\0aob\r\n",
        ),
        (Tls { verified: false, ..proven() }, ""),
        (Tls { common_name: None, ..proven() }, ""),
        (Tls { common_name: Some(&[b'a'; 300]), ..proven() }, ""),
        (Tls { in_use: false, ..proven() }, ""),
        (unshown, ""),
    ] {
        let mut stage = Stage::new(TRUSTING, "");
        let client = dial_from(&stage, FRONT);
        let claimed = b"GET /p HTTP/1.1\r\nHost: a\r\nX-Client-Cert-Cn: eve\r\n\r\n";
        let sent = [&header(&[Extension::Tls(tls)]), &claimed[..]].concat();
        let heard = hello(&mut stage, &client, &sent);
        assert!(!heard.contains("eve"), "{heard}");
        assert_eq!(heard.contains("X-Client-Cert-"), !told.is_empty(), "{heard}");
        assert!(heard.contains(told), "{heard}");
        drop(client);
        stage.end();
    }
}

#[test]
fn servers_are_told_of_the_tls_that_a_proxy_tells_of() {
    let mut stage = Stage::new(TRUSTING, "proxy-protocol = \"v2\"");
    let client = dial_from(&stage, FRONT);
    let tls = Tls { verified: false, ..proven() };
    let said = [Extension::Authority(b"a.example"), Extension::Alpn(b"h2"), Extension::Tls(tls)];
    client.send(&[&header(&said), GET].concat());
    let origin = stage.accept();
    let mut heard = Vec::new();
    stage.until(|_| {
        heard.extend(origin.receive());
        heard.ends_with(b"\r\n\r\n").then_some(())
    });
    let (header, _) = proxy_protocol::decode(&heard).expect("a header").expect("a whole one");
    assert_eq!(header.endpoints, endpoints());
    let told: Vec<_> = header.extensions.collect();
    assert_eq!(
        told,
        [Extension::Alpn(b"h2"), Extension::Authority(b"a.example"), Extension::Tls(tls)]
    );
    drop((client, origin));
    stage.end();
}

#[test]
fn the_scheme_that_a_trusted_proxy_names_decides_about_redirects_and_hsts() {
    let listener = format!("trusted = [\"10.9.0.0/16\"]\n{HTTPS_ALONE}");
    let by =
        |proto: &str| format!("GET /p HTTP/1.1\r\nHost: a\r\nX-Forwarded-Proto: {proto}\r\n\r\n");
    for (peer, proto, is_https) in
        [(FRONT, "https", true), (FRONT, "http", false), ("10.10.0.1:4000", "https", false)]
    {
        let mut stage = Stage::new(&listener, "");
        let client = dial_from(&stage, peer);
        let (heard, said) = ask(&mut stage, &client, by(proto).as_bytes());
        assert_eq!(heard.contains("\r\nX-Forwarded-Proto: https\r\n"), is_https, "{heard}");
        assert_eq!(said.contains(HSTS), is_https, "{said}");
        assert_eq!(said.starts_with("HTTP/1.1 301 "), !is_https, "{said}");
        // The next request of the connection may have come otherwise.
        let (_, said) = ask(&mut stage, &client, by("http").as_bytes());
        assert!(said.starts_with("HTTP/1.1 301 ") && !said.contains(HSTS), "{said}");
        drop(client);
        stage.end();
    }
}
