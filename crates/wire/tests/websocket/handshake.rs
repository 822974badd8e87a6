//! The opening handshake (RFC 6455 section 4, RFC 8441): requests, refusals, responses, in tables.

use tidegate_wire::http1::{HeadDecoder, HeadLimits, ResponseLimits};
use tidegate_wire::message::{FieldStorage, RequestHead, RequestKind, ResponseStorage};
use tidegate_wire::websocket::{
    Accept, BadResponse, ClientKey, DeflateSettings, Offer, Origins, Policy, Refusal, Role,
};

const KEY: &str = "dGhlIHNhbXBsZSBub25jZQ==";

fn policy() -> Policy {
    Policy {
        subprotocols: vec!["chat".to_owned(), "json".to_owned()],
        origins: Origins::parse(["https://a.example"]).unwrap(),
        deflate: Some(DeflateSettings::default()),
    }
}

fn with_request<T>(text: &str, body: impl FnOnce(&RequestHead<'_>) -> T) -> T {
    let mut storage = FieldStorage::new();
    let mut decoder = HeadDecoder::default();
    let head = decoder.decode_request(text.as_bytes(), &HeadLimits::default(), &mut storage);
    body(&head.unwrap().unwrap().0)
}

/// A valid request in which each line of `changes` replaces the field with its name, or is added; a line without a
/// value removes the field.
fn request(line: &str, changes: &[&str]) -> String {
    let mut fields = vec![
        "Host: h".to_owned(),
        "Upgrade: websocket".to_owned(),
        "Connection: Upgrade".to_owned(),
        format!("Sec-WebSocket-Key: {KEY}"),
        "Sec-WebSocket-Version: 13".to_owned(),
    ];
    for change in changes {
        let (name, value) = change.split_once(':').unwrap();
        if let Some(name) = name.strip_prefix('+') {
            fields.push(format!("{name}:{value}"));
            continue;
        }
        fields.retain(|field| !field.starts_with(&format!("{name}:")));
        if !value.is_empty() {
            fields.push((*change).to_owned());
        }
    }
    format!("{line}\r\n{}\r\n\r\n", fields.join("\r\n"))
}

fn show(result: Result<Accept<'_>, Refusal>) -> String {
    match result {
        Ok(accept) => {
            assert_eq!(
                accept.accept_key.map(|key| key.to_vec()),
                Some(b"s3pPLMBiTxaQ9kYGzzhZRbK+xOo=".to_vec())
            );
            let deflate = if accept.deflate.is_some() { " deflate" } else { "" };
            format!("{}{deflate}", accept.subprotocol.unwrap_or("-"))
        }
        Err(refusal) => format!("{} {refusal:?}", refusal.status()),
    }
}

#[test]
fn requests_are_checked() {
    for (changes, wanted) in [
        (&[][..], "-"),
        (&["Upgrade: WebSocket", "Connection: keep-alive, upgrade"], "-"),
        (&["Upgrade: h2c, websocket"], "-"),
        (&["Upgrade:"], "426 UpgradeMissing"),
        (&["Upgrade: h2c"], "426 UpgradeMissing"),
        (&["Connection:"], "426 UpgradeMissing"),
        (&["Connection: keep-alive"], "426 UpgradeMissing"),
        (&["Sec-WebSocket-Version:"], "426 VersionUnsupported"),
        (&["Sec-WebSocket-Version: 8"], "426 VersionUnsupported"),
        (&["Sec-WebSocket-Version: 14"], "426 VersionUnsupported"),
        (&["Sec-WebSocket-Version: 13, 8"], "426 VersionUnsupported"),
        (&["+Sec-WebSocket-Version: 8"], "426 VersionUnsupported"),
        (&["Sec-WebSocket-Key:"], "400 KeyInvalid"),
        (&["Sec-WebSocket-Key: short=="], "400 KeyInvalid"),
        (&["Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=a"], "400 KeyInvalid"),
        (&["Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25j-Q=="], "400 KeyInvalid"),
        (&["Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQaaa=="], "400 KeyInvalid"),
        (&["+Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=="], "400 KeyInvalid"),
        (&["Content-Length: 1"], "400 BodyPresent"),
        (&["Transfer-Encoding: chunked"], "400 BodyPresent"),
        (&["Content-Length: 0"], "-"),
        (&["Sec-WebSocket-Protocol: json, chat"], "json"),
        (&["Sec-WebSocket-Protocol: xml", "+Sec-WebSocket-Protocol: chat"], "chat"),
        (&["Sec-WebSocket-Protocol: xml"], "-"),
        (&["Sec-WebSocket-Protocol: CHAT"], "-"),
        (&["Sec-WebSocket-Protocol: a b"], "400 SubprotocolsInvalid"),
        (&["Sec-WebSocket-Protocol: chat;q=1"], "400 SubprotocolsInvalid"),
        (&["Sec-WebSocket-Extensions: permessage-deflate"], "- deflate"),
        (&["Sec-WebSocket-Extensions: x-other"], "-"),
        (&["Sec-WebSocket-Extensions: permessage-deflate;;"], "400 ExtensionsInvalid"),
        (&["Origin: https://a.example"], "-"),
        (&["Origin: https://evil.example"], "403 OriginForbidden"),
        (&["Origin: https://a.example", "+Origin: https://a.example"], "403 OriginForbidden"),
    ] {
        let text = request("GET / HTTP/1.1", changes);
        with_request(&text, |head| assert_eq!(show(policy().check(head)), wanted, "{changes:?}"));
    }
    for (line, wanted) in [
        ("POST / HTTP/1.1", "400 MethodInvalid"),
        ("HEAD / HTTP/1.1", "400 MethodInvalid"),
        ("GET / HTTP/1.0", "400 HttpVersionTooOld"),
    ] {
        with_request(&request(line, &[]), |head| {
            assert_eq!(show(policy().check(head)), wanted, "{line}");
        });
    }
}

#[test]
fn extensions_that_are_off_are_still_checked() {
    let policy = Policy { deflate: None, ..policy() };
    for (value, wanted) in [("permessage-deflate", "-"), ("a b", "400 ExtensionsInvalid")] {
        let text = request("GET / HTTP/1.1", &[&format!("Sec-WebSocket-Extensions: {value}")]);
        with_request(&text, |head| assert_eq!(show(policy.check(head)), wanted));
    }
}

#[test]
fn refusals_with_426_name_what_to_upgrade_to() {
    for refusal in [Refusal::UpgradeMissing, Refusal::VersionUnsupported] {
        let mut fields = Vec::new();
        refusal.encode_fields(&mut fields);
        assert_eq!(
            String::from_utf8(fields).unwrap().to_ascii_lowercase(),
            "upgrade: websocket\r\nconnection: upgrade\r\nsec-websocket-version: 13\r\n"
        );
    }
    for refusal in [Refusal::KeyInvalid, Refusal::OriginForbidden] {
        let mut fields = Vec::new();
        refusal.encode_fields(&mut fields);
        assert!(fields.is_empty() && !refusal.reason().is_empty());
    }
}

#[test]
fn extended_connect_has_no_key() {
    let policy = policy();
    let field = |name: &'static str, value: &'static str| (name, value.as_bytes());
    let fields = [
        field("sec-websocket-version", "13"),
        field("sec-websocket-protocol", "chat"),
        field("sec-websocket-extensions", "permessage-deflate"),
        field("origin", "https://a.example"),
    ];
    let accept = policy.check_connect(fields.into_iter(), None).unwrap();
    assert_eq!((accept.accept_key, accept.subprotocol), (None, Some("chat")));
    let mut out = Vec::new();
    accept.encode_fields(&mut out);
    let text = String::from_utf8(out).unwrap().to_ascii_lowercase();
    assert!(!text.contains("upgrade") && !text.contains("accept"), "{text}");
    assert_eq!(
        policy.check_connect(fields[1..].iter().copied(), None),
        Err(Refusal::VersionUnsupported)
    );
    let evil = [fields[0], field("origin", "https://evil.example")];
    assert_eq!(policy.check_connect(evil.into_iter(), None), Err(Refusal::OriginForbidden));
}

fn check_response(offer: &Offer, text: &str) -> Result<String, BadResponse> {
    let key = ClientKey::from_random(*b"the sample nonce");
    let mut storage = ResponseStorage::new();
    let kind = RequestKind::new(&tidegate_wire::message::Method::Get, true);
    let (head, _) = HeadDecoder::default()
        .decode_response(text.as_bytes(), &ResponseLimits::default(), kind, &mut storage)
        .unwrap()
        .unwrap();
    offer.check(&key, &head).map(|agreed| {
        let deflate = if agreed.deflate.is_some() { " deflate" } else { "" };
        format!("{}{deflate}", agreed.subprotocol.unwrap_or("-"))
    })
}

#[test]
fn client_checks_each_part_of_the_response() {
    let offer = Offer {
        subprotocols: vec!["json".to_owned()],
        deflate: Some(DeflateSettings { peer_keeps_context: true, ..DeflateSettings::default() }),
    };
    let plain = Offer::default();
    let good = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: WebSocket\r\nConnection: upgrade\r\n\
        Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n";
    let with = |fields: &str| format!("{good}{fields}\r\n");
    let deflate = "Sec-WebSocket-Extensions: permessage-deflate\r\n";
    for (offer, text, wanted) in [
        (&offer, with(""), Ok("-")),
        (&offer, with("Sec-WebSocket-Protocol: json\r\n"), Ok("json")),
        (&offer, with(deflate), Ok("- deflate")),
        (&plain, with(deflate), Err(BadResponse::ExtensionsInvalid)),
        (&offer, with(&deflate.repeat(2)), Err(BadResponse::ExtensionsInvalid)),
        (&offer, with("Sec-WebSocket-Protocol: xml\r\n"), Err(BadResponse::SubprotocolInvalid)),
        (&plain, with("Sec-WebSocket-Protocol: json\r\n"), Err(BadResponse::SubprotocolInvalid)),
        (
            &offer,
            with("Sec-WebSocket-Protocol: json\r\nSec-WebSocket-Protocol: json\r\n"),
            Err(BadResponse::SubprotocolInvalid),
        ),
        (&offer, with("").replace("xOo=", "xOo+"), Err(BadResponse::AcceptInvalid)),
        (
            &offer,
            with("Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n"),
            Err(BadResponse::AcceptInvalid),
        ),
        (&offer, with("").replace(": WebSocket", ": h2c"), Err(BadResponse::UpgradeMissing)),
        (&offer, with("").replace(": upgrade", ": close"), Err(BadResponse::UpgradeMissing)),
        (
            &offer,
            "HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n".to_owned(),
            Err(BadResponse::Refused { status: 403 }),
        ),
    ] {
        assert_eq!(check_response(offer, &text), wanted.map(str::to_owned), "{text}");
        let failed = wanted.err().map(|bad: BadResponse| bad.text().len());
        assert!(failed.is_none_or(|length| length > 10));
    }
}

#[test]
fn own_server_and_own_client_accept_each_others_handshake() {
    let key = ClientKey::from_random([7; 16]);
    let offer = Offer {
        subprotocols: vec!["xml".to_owned(), "json".to_owned()],
        deflate: Some(DeflateSettings { window_bits: 10, ..DeflateSettings::default() }),
    };
    let mut request = b"GET / HTTP/1.1\r\nHost: h\r\n".to_vec();
    offer.encode_fields(&key, &mut request);
    request.extend_from_slice(b"\r\n");
    let request = String::from_utf8(request).unwrap();
    let policy = policy();
    let (response, deflate) = with_request(&request, |head| {
        let accept = policy.check(head).unwrap();
        let mut response = b"HTTP/1.1 101 Switching Protocols\r\n".to_vec();
        accept.encode_fields(&mut response);
        response.extend_from_slice(b"\r\n");
        (response, accept.deflate.unwrap())
    });
    let mut storage = ResponseStorage::new();
    let kind = RequestKind::new(&tidegate_wire::message::Method::Get, true);
    let (head, _) = HeadDecoder::default()
        .decode_response(&response, &ResponseLimits::default(), kind, &mut storage)
        .unwrap()
        .unwrap();
    let agreed = offer.check(&key, &head).unwrap();
    assert_eq!(agreed.subprotocol, Some("json"));
    let agreed = agreed.deflate.unwrap();
    for role in [Role::Server, Role::Client] {
        assert_eq!(agreed.keeps_context(role), deflate.keeps_context(role));
        assert_eq!(agreed.window_bits(role), deflate.window_bits(role));
    }
    assert_eq!(agreed.window_bits(Role::Client), 10);
}
