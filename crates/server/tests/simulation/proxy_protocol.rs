//! The PROXY protocol on both sides of a worker: which clients' headers are trusted, what servers are sent,
//! and which client an upstream connection belongs to.
//! In: one worker, with clients and an origin that the test drives step by step. Out: what each test's name
//! states.

use tidegate_base::Span;
use tidegate_reactor::{Peer, SimPeer};
use tidegate_wire::proxy_protocol::{
    self, Endpoints, Extension, Tls, Transport, encode_binary, encode_text,
};

use crate::stage::{OK, Stage};

const FRONT: &str = "10.9.0.1:4000";
const TRUSTING: &str = "proxy-protocol = { from = [\"10.9.0.0/16\"] }";
const GET: &[u8] = b"GET /p HTTP/1.1\r\nHost: a\r\n\r\n";

fn dial_from(stage: &Stage, address: &str) -> SimPeer {
    let peer = Peer::Tcp(address.parse().expect("an address"));
    stage.net.dial_as(&stage.harness.bound[0], peer).expect("the worker listens")
}

/// Sends a request that the origin answers; returns what the origin received.
fn exchange(stage: &mut Stage, client: &SimPeer, sent: &[u8]) -> String {
    client.send(sent);
    let origin = stage.accept();
    let forwarded = stage.receive_until(&origin, "\r\n\r\n");
    origin.send(OK);
    assert!(stage.receive_until(client, "ok").starts_with("HTTP/1.1 200 "));
    forwarded
}

/// The addresses that the proxy in front states for a client that connected to its port 443.
fn endpoints() -> Endpoints<'static> {
    let address = |text: &str| text.parse().expect("an address");
    Endpoints::Ip {
        source: address("203.0.113.7:4660"),
        destination: address("10.0.0.1:443"),
        transport: Transport::Stream,
    }
}

/// A PROXY header of version 2 with these extensions.
fn header(extensions: &[Extension<'_>]) -> Vec<u8> {
    let mut header = Vec::new();
    encode_binary(&mut header, &endpoints(), extensions.iter().copied(), true);
    header
}

/// The TLS extension for a client with a verified certificate.
fn verified_tls() -> Tls<'static> {
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

/// Waits until the worker has closed or reset the connection.
fn wait_closed(stage: &mut Stage, client: &SimPeer) {
    let over = |_: &Stage| (client.is_finished_by_other() || client.was_reset()).then_some(());
    stage.until(over);
}

#[test]
fn header_of_a_trusted_proxy_names_the_client() {
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
        let forwarded = exchange(&mut stage, &whole, &[&header, GET].concat());
        assert!(forwarded.contains(&format!("\r\nX-Forwarded-For: {client}\r\n")), "{forwarded}");
        let cut = dial_from(&stage, FRONT);
        for byte in &header {
            assert_eq!(cut.send(&[*byte]), 1);
            stage.turn();
            stage.net.advance_by(Span::from_millis(1));
        }
        let forwarded = exchange(&mut stage, &cut, GET);
        assert!(forwarded.contains(&format!("\r\nForwarded: for={client};")), "{forwarded}");
        assert_eq!(stage.counters().proxy_headers.load(), 2);
        drop((whole, cut));
        stage.end();
    }
}

#[test]
fn trusted_setting_applies_to_the_client_that_a_header_names() {
    let listener = format!("{TRUSTING}\ntrusted = [\"203.0.113.0/24\"]");
    let mut stage = Stage::new(&listener, "");
    let sent = |client: &str| {
        format!(
            "PROXY TCP4 {client} 10.0.0.1 1 80\r\nGET /p HTTP/1.1\r\nHost: a\r\n\
             X-Forwarded-For: 192.0.2.9\r\nConnection: close\r\n\r\n"
        )
    };
    let trusted_client = dial_from(&stage, FRONT);
    let forwarded = exchange(&mut stage, &trusted_client, sent("203.0.113.7").as_bytes());
    assert!(forwarded.contains("X-Forwarded-For: 192.0.2.9, 203.0.113.7\r\n"), "{forwarded}");
    drop(trusted_client);
    let other = dial_from(&stage, FRONT);
    let forwarded = exchange(&mut stage, &other, sent("198.51.100.7").as_bytes());
    assert!(forwarded.contains("X-Forwarded-For: 198.51.100.7\r\n"), "{forwarded}");
    drop(other);
    stage.end();
}

#[test]
fn header_from_an_untrusted_client_is_a_malformed_request() {
    for header in
        [&b"PROXY TCP4 203.0.113.7 10.0.0.1 4660 80\r\n"[..], b"\r\n\r\n\0\r\nQUIT\n\x20\0\0\0"]
    {
        let mut stage = Stage::new(TRUSTING, "");
        let client = dial_from(&stage, "10.10.0.1:4000");
        client.send(&[header, GET].concat());
        let answer = stage.receive_until(&client, "\r\n\r\n");
        assert!(answer.starts_with("HTTP/1.1 400 "), "{answer}");
        let plain = dial_from(&stage, "10.10.0.1:4001");
        let forwarded = exchange(&mut stage, &plain, GET);
        assert!(forwarded.contains("X-Forwarded-For: 10.10.0.1\r\n"), "{forwarded}");
        assert_eq!(stage.counters().proxy_headers.load(), 0);
        drop((client, plain));
        stage.end();
    }
}

#[test]
fn connection_of_a_trusted_proxy_without_a_valid_header_is_closed_and_counted() {
    for sent in [GET, b"\x16\x03\x01\x02\0\x01", b"PROXY TCP4 1.2.3.4\r\n", &[b'P'; 5000]] {
        let mut stage = Stage::new(TRUSTING, "");
        let client = dial_from(&stage, FRONT);
        client.send(sent);
        wait_closed(&mut stage, &client);
        assert!(client.receive().is_empty(), "an invalid header gets no response");
        assert_eq!(stage.counters().proxy_header_faults.load(), 1);
        assert_eq!(stage.counters().requests.load(), 0);
        drop(client);
        stage.end();
    }
}

#[test]
fn connection_with_an_incomplete_header_ends_after_the_head_timeout() {
    let listener = format!("{TRUSTING}\ntimeouts = {{ head = \"2s\" }}");
    let mut stage = Stage::new(&listener, "");
    let began = stage.net.now();
    let client = dial_from(&stage, FRONT);
    for byte in b"PROXY " {
        client.send(&[*byte]);
        stage.turn();
        stage.net.advance_by(Span::from_millis(100));
    }
    wait_closed(&mut stage, &client);
    let took = stage.net.now().since(began);
    assert!(took >= Span::from_secs(2) && took < Span::from_secs(3), "{took:?}");
    assert_eq!(stage.counters().head_timeouts.load(), 1);
    drop(client);
    stage.end();
}

#[test]
fn servers_receive_a_header_that_names_the_client() {
    let mut stage = Stage::new("", "proxy-protocol = \"v1\"");
    let client = dial_from(&stage, "192.0.2.1:5000");
    let forwarded = exchange(&mut stage, &client, GET);
    let line = "PROXY TCP4 192.0.2.1 10.0.0.1 5000 80\r\nGET /p HTTP/1.1\r\n";
    assert!(forwarded.starts_with(line), "{forwarded}");
    drop(client);
    stage.end();
    let mut stage = Stage::new(TRUSTING, "proxy-protocol = \"v1\"");
    let client = dial_from(&stage, FRONT);
    let sent = [b"PROXY TCP6 2001:db8::1 2001:db8::2 5000 443\r\n", GET].concat();
    let forwarded = exchange(&mut stage, &client, &sent);
    assert!(
        forwarded.starts_with("PROXY TCP6 2001:db8::1 2001:db8::2 5000 443\r\nGET"),
        "{forwarded}"
    );
    drop(client);
    stage.end();
}

#[test]
fn connection_with_a_header_is_reused_for_its_client_only() {
    let mut stage = Stage::new("", "proxy-protocol = \"v1\"");
    let (first, second) = (dial_from(&stage, "192.0.2.1:1"), dial_from(&stage, "192.0.2.2:2"));
    first.send(GET);
    let of_first = stage.accept();
    assert!(stage.receive_until(&of_first, "\r\n\r\n").starts_with("PROXY TCP4 192.0.2.1 "));
    stage.respond(&of_first, &first);

    second.send(GET);
    let of_second = stage.accept();
    assert!(stage.receive_until(&of_second, "\r\n\r\n").starts_with("PROXY TCP4 192.0.2.2 "));
    stage.respond(&of_second, &second);

    first.send(GET);
    assert!(
        stage.receive_until(&of_first, "\r\n\r\n").starts_with("GET /p "),
        "one header per connection"
    );
    stage.respond(&of_first, &first);
    let counters = stage.counters();
    assert_eq!((counters.upstream_connects.load(), counters.upstream_reuses.load()), (2, 1));
    assert_eq!(
        stage.harness.worker.leftovers().idle,
        0,
        "these connections are not in the shared idle list"
    );

    drop(first);
    wait_closed(&mut stage, &of_first);
    assert!(!of_second.is_finished_by_other());
    // The server closes the kept connection, so the client's next request opens a new one.
    drop(of_second);
    stage.until(|stage| {
        let closes = stage.counters().upstream_idle_closes.load();
        (closes > 0).then_some(())
    });
    let forwarded = exchange(&mut stage, &second, GET);
    assert!(forwarded.starts_with("PROXY TCP4 192.0.2.2 "), "{forwarded}");
    drop((second, of_first));
    stage.end();
}

#[test]
fn connection_kept_for_a_client_ends_after_the_idle_timeout() {
    let mut stage = Stage::new("", "proxy-protocol = \"v2\"\nreuse = { idle-timeout = \"1s\" }");
    let client = dial_from(&stage, "192.0.2.1:1");
    client.send(GET);
    let origin = stage.accept();
    stage.receive_until(&origin, "HTTP/1.1\r\n");
    stage.respond(&origin, &client);
    wait_closed(&mut stage, &origin);
    assert!(client.is_up() && !client.is_finished_by_other(), "the client's connection stays open");
    client.send(GET);
    let origin = stage.accept();
    stage.receive_until(&origin, "HTTP/1.1\r\n");
    drop((client, origin));
    stage.end();
}

#[test]
fn connections_kept_for_clients_count_towards_idle_max() {
    let mut stage = Stage::new("", "proxy-protocol = \"v1\"\nreuse = { idle-max = 2 }");
    let mut held = Vec::new();
    for port in 1..=4 {
        let client = dial_from(&stage, &format!("192.0.2.1:{port}"));
        client.send(GET);
        let origin = stage.accept();
        stage.receive_until(&origin, "\r\n\r\n");
        stage.respond(&origin, &client);
        if port > 2 {
            wait_closed(&mut stage, &origin);
        }
        assert_eq!(stage.harness.worker.leftovers().kept, port.min(2));
        held.push((client, origin));
    }
    // A connection in use is not idle; after its response it is idle again.
    let (client, origin) = &held[0];
    client.send(GET);
    stage.receive_until(origin, "\r\n\r\n");
    assert_eq!(stage.harness.worker.leftovers().kept, 1);
    stage.respond(origin, client);
    assert_eq!(stage.harness.worker.leftovers().kept, 2);
    // When a client leaves, its connection makes room for another one.
    let (client, origin) = held.remove(1);
    drop(client);
    wait_closed(&mut stage, &origin);
    let (client, _) = &held[2];
    client.send(GET);
    let origin = stage.accept();
    stage.receive_until(&origin, "\r\n\r\n");
    stage.respond(&origin, client);
    assert!(!origin.is_finished_by_other());
    assert_eq!(stage.harness.worker.leftovers().kept, 2);
    drop((held, origin));
    stage.end();
}

const HTTPS_ONLY: &str = "redirect-to-https = true\nhsts = \"9s\"";
const HSTS: &str = "\r\nStrict-Transport-Security: max-age=9\r\n";

/// Sends a request; returns what the origin received and the response. If the request is redirected, the
/// origin receives nothing.
fn request(stage: &mut Stage, client: &SimPeer, sent: &[u8]) -> (String, String) {
    client.send(sent);
    let mut response = Vec::new();
    let origin = stage.until(|stage| {
        response.extend(client.receive());
        let origin = stage.try_accept();
        (origin.is_some() || response.ends_with(b"see Location\n")).then_some(origin)
    });
    let Some(origin) = origin else {
        return (String::new(), String::from_utf8(response).expect("text"));
    };
    let forwarded = stage.receive_until(&origin, "\r\n\r\n");
    origin.send(OK);
    (forwarded, stage.receive_until(client, "\r\n\r\nok"))
}

#[test]
fn client_with_tls_to_a_trusted_proxy_counts_as_https() {
    let mut v1 = Vec::new();
    encode_text(&mut v1, &endpoints());
    let plain = Tls { in_use: false, ..verified_tls() };
    for (header, is_https) in [
        (header(&[Extension::Tls(verified_tls())]), true),
        (header(&[Extension::Tls(Tls { in_use: true, ..Tls::default() })]), true),
        (header(&[Extension::Alpn(b"http/1.1"), Extension::Tls(plain)]), false),
        // Neither the port nor a requested server name means TLS.
        (header(&[Extension::Authority(b"a.example")]), false),
        (header(&[]), false),
        (v1, false),
    ] {
        let mut stage = Stage::new(&format!("{TRUSTING}\n{HTTPS_ONLY}"), "");
        let client = dial_from(&stage, FRONT);
        let (forwarded, response) = request(&mut stage, &client, &[&header, GET].concat());
        if is_https {
            assert!(forwarded.contains("\r\nX-Forwarded-Proto: https\r\n"), "{forwarded}");
            assert!(forwarded.contains("host=\"a\";proto=https\r\n"), "{forwarded}");
            assert!(response.starts_with("HTTP/1.1 200 ") && response.contains(HSTS), "{response}");
        } else {
            assert!(
                response.starts_with("HTTP/1.1 301 ") && !response.contains("Strict"),
                "{response}"
            );
            assert!(response.contains("\r\nLocation: https://a/p\r\n"), "{response}");
        }
        // The response to a malformed request follows the same rule.
        client.send(b"GET /\x01 HTTP/1.1\r\n\r\n");
        let response = stage.receive_until(&client, "\r\n\r\n");
        assert!(response.starts_with("HTTP/1.1 400 "), "{response}");
        assert_eq!(response.contains(HSTS), is_https, "{response}");
        drop(client);
        stage.end();
    }
}

#[test]
fn only_a_certificate_that_the_proxy_verified_is_forwarded() {
    let without_certificate =
        Tls { certificate_here: false, certificate_in_session: false, ..verified_tls() };
    for (tls, expected) in [
        (verified_tls(), "\r\nX-Client-Cert-Cn: bob\r\n"),
        (Tls { certificate_here: false, ..verified_tls() }, "\r\nX-Client-Cert-Cn: bob\r\n"),
        (
            Tls { common_name: Some(b"b\r\nob"), ..verified_tls() },
            "\r\nX-Client-Cert-Cn: b\\0d\\0aob\r\n",
        ),
        (Tls { verified: false, ..verified_tls() }, ""),
        (Tls { common_name: None, ..verified_tls() }, ""),
        (Tls { common_name: Some(&[b'a'; 300]), ..verified_tls() }, ""),
        (Tls { in_use: false, ..verified_tls() }, ""),
        (without_certificate, ""),
    ] {
        let mut stage = Stage::new(TRUSTING, "");
        let client = dial_from(&stage, FRONT);
        let claimed = b"GET /p HTTP/1.1\r\nHost: a\r\nX-Client-Cert-Cn: eve\r\n\r\n";
        let sent = [&header(&[Extension::Tls(tls)]), &claimed[..]].concat();
        let forwarded = exchange(&mut stage, &client, &sent);
        assert!(!forwarded.contains("eve"), "{forwarded}");
        assert_eq!(forwarded.contains("X-Client-Cert-"), !expected.is_empty(), "{forwarded}");
        assert!(forwarded.contains(expected), "{forwarded}");
        drop(client);
        stage.end();
    }
}

#[test]
fn tls_extensions_of_a_trusted_proxy_are_forwarded_to_servers() {
    let mut stage = Stage::new(TRUSTING, "proxy-protocol = \"v2\"");
    let client = dial_from(&stage, FRONT);
    let tls = Tls { verified: false, ..verified_tls() };
    let stated = [Extension::Authority(b"a.example"), Extension::Alpn(b"h2"), Extension::Tls(tls)];
    client.send(&[&header(&stated), GET].concat());
    let origin = stage.accept();
    let mut forwarded = Vec::new();
    stage.until(|_| {
        forwarded.extend(origin.receive());
        forwarded.ends_with(b"\r\n\r\n").then_some(())
    });
    let (header, _) = proxy_protocol::decode(&forwarded).expect("a header").expect("complete");
    assert_eq!(header.endpoints, endpoints());
    let extensions: Vec<_> = header.extensions.collect();
    assert_eq!(
        extensions,
        [Extension::Alpn(b"h2"), Extension::Authority(b"a.example"), Extension::Tls(tls)]
    );
    drop((client, origin));
    stage.end();
}

#[test]
fn x_forwarded_proto_of_a_trusted_proxy_decides_redirects_and_hsts() {
    let listener = format!("trusted = [\"10.9.0.0/16\"]\n{HTTPS_ONLY}");
    let by =
        |proto: &str| format!("GET /p HTTP/1.1\r\nHost: a\r\nX-Forwarded-Proto: {proto}\r\n\r\n");
    for (peer, proto, is_https) in
        [(FRONT, "https", true), (FRONT, "http", false), ("10.10.0.1:4000", "https", false)]
    {
        let mut stage = Stage::new(&listener, "");
        let client = dial_from(&stage, peer);
        let (forwarded, response) = request(&mut stage, &client, by(proto).as_bytes());
        assert_eq!(forwarded.contains("\r\nX-Forwarded-Proto: https\r\n"), is_https, "{forwarded}");
        assert_eq!(response.contains(HSTS), is_https, "{response}");
        assert_eq!(response.starts_with("HTTP/1.1 301 "), !is_https, "{response}");
        // The next request on the connection may have another scheme.
        let (_, response) = request(&mut stage, &client, by("http").as_bytes());
        assert!(response.starts_with("HTTP/1.1 301 ") && !response.contains(HSTS), "{response}");
        drop(client);
        stage.end();
    }
}
