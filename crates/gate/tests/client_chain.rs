//! The chain of clients and proxies: X-Forwarded-For and Forwarded of a forwarded request name the same one, and
//! the client is the last address in it that is not trusted.

use core::net::IpAddr;

use proptest::prelude::*;
use tidegate_config::model::{Network, UpstreamHost};
use tidegate_gate::chain::{
    Node, client_address, forwarded_nodes, list_nodes, named_client_address,
};
use tidegate_gate::client_fields::ClientAddressFields;
use tidegate_gate::forward::{RequestContext, encode_upstream_request};
use tidegate_gate::scheme::Scheme;
use tidegate_wire::http1::{HeadDecoder, HeadLimits};
use tidegate_wire::message::{FieldStorage, RequestHead};

fn with_head<T>(bytes: &[u8], run: impl FnOnce(&RequestHead<'_>) -> T) -> T {
    let mut storage = FieldStorage::new();
    let decoded =
        HeadDecoder::default().decode_request(bytes, &HeadLimits::default(), &mut storage);
    match decoded {
        Ok(Some((head, _))) => run(&head),
        other => panic!("{other:?}: {}", String::from_utf8_lossy(bytes)),
    }
}

fn request(fields: &str) -> Vec<u8> {
    format!("GET / HTTP/1.1\r\nHost: h\r\n{}\r\n", fields.replace('\n', "\r\n")).into_bytes()
}

/// The request with `fields` as it is forwarded from a trusted proxy at 10.0.0.1.
fn forward(fields: &str) -> Vec<u8> {
    let host = UpstreamHost::Keep;
    let client_address_fields = ClientAddressFields::default();
    let context = RequestContext {
        peer: Some(IpAddr::from([10, 0, 0, 1])),
        trusted: true,
        client_address_fields: &client_address_fields,
        scheme: Scheme::Http,
        client_certificate: None,
        via: "gate",
        host: &host,
        trailers: false,
        close: false,
        websocket_key: None,
        changes: None,
    };
    with_head(&request(fields), |head| {
        let mut out = Vec::new();
        encode_upstream_request(&mut out, head, &context).expect("forwarded");
        out
    })
}

#[test]
fn field_that_is_missing_or_contradicts_is_built_from_the_other_one() {
    let own = "for=10.0.0.1;host=\"h\";proto=http";
    for (fields, list, host, proto, forwarded) in [
        ("", "", "h", "http", ""),
        ("X-Forwarded-For: 1.1.1.1\n", "1.1.1.1, ", "h", "http", "for=1.1.1.1, "),
        (
            "X-Forwarded-For: 1.1.1.1, 2001:db8::1\nX-Forwarded-For: 2.2.2.2:80\n\
             X-Forwarded-Proto: https\nX-Forwarded-Host: public:8443\n",
            "1.1.1.1, 2001:db8::1, 2.2.2.2:80, ",
            "public:8443",
            "https",
            "for=1.1.1.1;host=\"public:8443\";proto=https, for=\"[2001:db8::1]\", for=2.2.2.2, ",
        ),
        (
            "X-Forwarded-For: unknown, _x, a b\n",
            "unknown, _x, a b, ",
            "h",
            "http",
            "for=unknown, for=unknown, for=unknown, ",
        ),
        (
            "Forwarded: for=1.1.1.1;proto=https;host=\"a,b\", For=\"[2001:db8::1]:80\";by=_p\n\
             Forwarded: for=_hidden, proto=http, for=\"3.3.3.3:9\"\n",
            "1.1.1.1, 2001:db8::1, unknown, unknown, 3.3.3.3, ",
            "a,b",
            "https",
            "for=1.1.1.1;proto=https;host=\"a,b\", For=\"[2001:db8::1]:80\";by=_p, for=_hidden, \
             proto=http, for=\"3.3.3.3:9\", ",
        ),
        // The same chain: both are kept as they are.
        (
            "X-Forwarded-For: 1.1.1.1,unknown\nForwarded: for=\"1.1.1.1:5\";by=_p, for=_x\n",
            "1.1.1.1,unknown, ",
            "h",
            "http",
            "for=\"1.1.1.1:5\";by=_p, for=_x, ",
        ),
        // A contradiction: X-Forwarded-* counts.
        (
            "Forwarded: for=9.9.9.9\nX-Forwarded-For: 1.1.1.1\n",
            "1.1.1.1, ",
            "h",
            "http",
            "for=1.1.1.1, ",
        ),
        (
            "Forwarded: for=1.1.1.1;proto=http\nX-Forwarded-For: 1.1.1.1\nX-Forwarded-Proto: https, http\n",
            "1.1.1.1, ",
            "h",
            "https, http",
            "for=1.1.1.1;proto=https, ",
        ),
        // Quotes that do not end would swallow what is appended.
        ("Forwarded: for=\"9.9.9.9\n", "", "h", "http", ""),
        ("Forwarded: for=9.9.9.9;x=\"\\\"\n", "", "h", "http", ""),
        ("Forwarded: for=9.9.9.9 proto=https\n", "", "h", "http", ""),
        ("Forwarded: ,\nX-Forwarded-For: ,\n", "", "h", "http", ""),
    ] {
        let text = String::from_utf8(forward(fields)).expect("text");
        let wanted = format!(
            "X-Forwarded-For: {list}10.0.0.1\r\nX-Forwarded-Host: {host}\r\n\
             X-Forwarded-Proto: {proto}\r\nForwarded: {forwarded}{own}\r\n\r\n"
        );
        assert!(text.ends_with(&wanted), "{fields}\n{text}\nwanted {wanted}");
    }
    // Without a chain, the proxy in front is the client, and it describes how it received the request.
    let text = String::from_utf8(forward("X-Forwarded-Proto: https\nX-Forwarded-Host: public\n"));
    let wanted = "Forwarded: for=10.0.0.1;host=\"public\";proto=https\r\n\r\n";
    assert!(text.expect("text").ends_with(wanted));
}

#[test]
fn client_is_the_last_address_that_is_not_trusted() {
    let network = |a, prefix_bits| Network { address: IpAddr::from([a, 0, 0, 0]), prefix_bits };
    let trusted = [network(10, 8), network(11, 8)];
    for (fields, peer, wanted) in [
        ("", "10.0.0.1", "10.0.0.1"),
        ("X-Forwarded-For: 1.1.1.1\n", "10.0.0.1", "1.1.1.1"),
        ("X-Forwarded-For: 1.1.1.1\n", "::ffff:10.0.0.1", "1.1.1.1"),
        ("X-Forwarded-For: 1.1.1.1\n", "9.0.0.1", "9.0.0.1"),
        ("X-Forwarded-For: 7.7.7.7, 1.1.1.1, 10.0.0.2, 11.0.0.3\n", "10.0.0.1", "1.1.1.1"),
        ("X-Forwarded-For: 7.7.7.7\nX-Forwarded-For: ::ffff:1.1.1.1\n", "10.0.0.1", "1.1.1.1"),
        ("X-Forwarded-For: 10.0.0.9, 10.0.0.8\n", "10.0.0.1", "10.0.0.9"),
        ("X-Forwarded-For: 1.1.1.1, unknown, 10.0.0.8\n", "10.0.0.1", "10.0.0.8"),
        ("X-Forwarded-For: 1.1.1.1, garbage\n", "10.0.0.1", "10.0.0.1"),
        ("Forwarded: for=1.1.1.1;by=_a, for=\"10.0.0.2:80\"\n", "10.0.0.1", "1.1.1.1"),
        ("Forwarded: for=\"[2001:db8::1]:80\"\n", "10.0.0.1", "2001:db8::1"),
        ("X-Forwarded-For: 1.1.1.1\nForwarded: for=2.2.2.2\n", "10.0.0.1", "1.1.1.1"),
        ("Forwarded: for=\"2.2.2.2\n", "10.0.0.1", "10.0.0.1"),
    ] {
        let peer = Some(peer.parse().expect("an address"));
        let found = with_head(&request(fields), |head| client_address(head, peer, &trusted));
        assert_eq!(found, Some(wanted.parse().expect("an address")), "{fields}");
    }
    let found = with_head(&request(""), |head| client_address(head, None, &trusted));
    assert_eq!(found, None, "a unix socket has no address");
}

#[test]
fn client_that_a_proxy_does_not_name_has_no_address() {
    let network = |a, prefix_bits| Network { address: IpAddr::from([a, 0, 0, 0]), prefix_bits };
    let trusted = [network(10, 8), network(11, 8)];
    for (fields, wanted) in [
        ("", Some("10.0.0.1")),
        ("X-Forwarded-For: \n", Some("10.0.0.1")),
        ("X-Forwarded-For: 1.1.1.1\n", Some("1.1.1.1")),
        ("X-Forwarded-For: unknown, 1.1.1.1, 10.0.0.8\n", Some("1.1.1.1")),
        ("X-Forwarded-For: 10.0.0.9, 10.0.0.8\n", Some("10.0.0.9")),
        ("X-Forwarded-For: 1.1.1.1, unknown\n", None),
        ("X-Forwarded-For: 1.1.1.1, unknown, 10.0.0.8\n", None),
        ("X-Forwarded-For: unix:\n", None),
        ("X-Forwarded-For: fe80::1%eth0\n", None),
        ("X-Forwarded-For: \"1.1.1.1\"\n", None),
        ("Forwarded: for=_hidden\n", None),
        ("Forwarded: for=unknown, for=11.0.0.1\n", None),
        ("Forwarded: for=\"2.2.2.2\n", None),
    ] {
        let peer = Some("10.0.0.1".parse().expect("an address"));
        let found = with_head(&request(fields), |head| named_client_address(head, peer, &trusted));
        assert_eq!(found, wanted.map(|text| text.parse().expect("an address")), "{fields}");
    }
}

fn element() -> impl Strategy<Value = String> {
    prop_oneof![
        4 => any::<[u8; 4]>().prop_map(|octets| IpAddr::from(octets).to_string()),
        1 => any::<[u16; 8]>().prop_map(|parts| IpAddr::from(parts).to_string()),
        1 => any::<[u16; 8]>().prop_map(|parts| format!("[{}]:80", IpAddr::from(parts))),
        2 => prop::sample::select(vec![
            "unknown", "_x", "1.1.1.1:80", "", "1.1.1", "::1", "::ffff:1.2.3.4", "a b", "\"", "\"1.1.1.1\"",
        ]).prop_map(str::to_owned),
    ]
}

fn field() -> impl Strategy<Value = String> {
    let list = prop::collection::vec(element(), 0..4)
        .prop_map(|nodes| format!("X-Forwarded-For: {}\n", nodes.join(", ").trim()));
    let part = prop_oneof![
        6 => element().prop_map(|node| format!("for={node}")),
        3 => element().prop_map(|node| format!("for=\"{node}\"")),
        3 => element().prop_map(|node| format!("For=\"[{node}]\";proto=https")),
        2 => prop::sample::select(vec![
            "proto=https", "by=_p;for=1.1.1.1", "host=\"a;b,c\"", "x=\"\\\"\"", "for", "=", ";", "x=\"", "for=\"a\\\"",
        ]).prop_map(str::to_owned),
    ];
    let forwarded = prop::collection::vec(part, 0..4)
        .prop_map(|parts| format!("Forwarded: {}\n", parts.join(", ").trim()));
    prop_oneof![list, forwarded]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn both_fields_of_a_forwarded_request_name_the_same_chain(
        fields in prop::collection::vec(field(), 0..4).prop_map(|fields| fields.concat()),
    ) {
        let given: Vec<Node> = with_head(&request(&fields), |head| list_nodes(head).collect());
        with_head(&forward(&fields), |head| {
            let list: Vec<Node> = list_nodes(head).collect();
            let forwarded: Vec<Node> = forwarded_nodes(head).collect();
            assert_eq!(list, forwarded, "{fields}");
            assert_eq!(list.last(), Some(&Node::Address(IpAddr::from([10, 0, 0, 1]))), "{fields}");
            assert!(given.is_empty() || list[..list.len() - 1] == given, "{fields}");
            let fields = head.fields().filter(|field| field.name == "Forwarded");
            assert_eq!(fields.count(), 1);
        });
    }
}
