//! The PROXY protocol: tables from its specification, and properties over generated headers.

use core::net::SocketAddr;

use proptest::collection::vec;
use proptest::prelude::*;
use tidegate_wire::fuzz::fuzz_proxy_header;
use tidegate_wire::proxy_protocol::{
    BINARY_BYTES_MAX, Endpoints, Extension, Fault, Header, TEXT_BYTES_MAX, Tls, Transport, Version,
    decode, encode_binary, encode_text,
};

const SIGNATURE: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";

fn tcp(source: &str, destination: &str) -> Endpoints<'static> {
    Endpoints::Ip {
        source: source.parse().unwrap(),
        destination: destination.parse().unwrap(),
        transport: Transport::Stream,
    }
}

/// Decodes a complete header that is followed by `following` other bytes.
fn whole(bytes: &[u8], following: usize) -> Header<'_> {
    let (header, consumed) = decode(bytes).expect("well-formed").expect("complete");
    assert_eq!(consumed, bytes.len() - following);
    header
}

/// A block with this command and family.
fn block(command: u8, family: u8, body: &[u8]) -> Vec<u8> {
    let mut bytes = SIGNATURE.to_vec();
    bytes.extend([command, family]);
    bytes.extend((body.len() as u16).to_be_bytes());
    bytes.extend(body);
    bytes
}

const INET: [u8; 12] = [192, 0, 2, 1, 198, 51, 100, 2, 0xdc, 0x04, 0x01, 0xbb];

#[test]
fn valid_version_1_lines_are_decoded() {
    for (line, endpoints) in [
        (
            "PROXY TCP4 255.255.255.255 255.255.255.255 65535 65535",
            tcp("255.255.255.255:65535", "255.255.255.255:65535"),
        ),
        (
            "PROXY TCP4 192.168.0.1 192.168.0.11 56324 443",
            tcp("192.168.0.1:56324", "192.168.0.11:443"),
        ),
        ("PROXY TCP4 0.0.0.0 0.0.0.0 0 0", tcp("0.0.0.0:0", "0.0.0.0:0")),
        ("PROXY TCP6 2001:DB8::1 ::1 1 80", tcp("[2001:db8::1]:1", "[::1]:80")),
        (
            "PROXY TCP6 ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff 65535 65535",
            tcp(
                "[ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff]:65535",
                "[ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff]:65535",
            ),
        ),
        ("PROXY UNKNOWN", Endpoints::Unknown),
        ("PROXY UNKNOWN whatever is said here", Endpoints::Unknown),
    ] {
        let bytes = format!("{line}\r\nGET");
        let header = whole(bytes.as_bytes(), 3);
        assert_eq!((header.version, header.endpoints), (Version::V1, endpoints), "{line}");
        assert_eq!(header.extensions.count(), 0);
    }
}

#[test]
fn malformed_version_1_lines_are_rejected() {
    for line in [
        "PROXY \r\n",
        "PROXY TCP4\r\n",
        "PROXY tcp4 1.2.3.4 1.2.3.4 1 1\r\n",
        "PROXY TCP5 1.2.3.4 1.2.3.4 1 1\r\n",
        "PROXY TCP4  1.2.3.4 1.2.3.4 1 1\r\n",
        "PROXY TCP4 1.2.3.4 1.2.3.4 1 1 \r\n",
        "PROXY TCP4 1.2.3.4 1.2.3.4 1\r\n",
        "PROXY TCP4 1.2.3.4 1.2.3.4 1 1 1\r\n",
        "PROXY TCP4 1.2.3.4\t1.2.3.4 1 1\r\n",
        "PROXY TCP4 1.2.3 1.2.3.4 1 1\r\n",
        "PROXY TCP4 01.2.3.4 1.2.3.4 1 1\r\n",
        "PROXY TCP4 1.2.3.256 1.2.3.4 1 1\r\n",
        "PROXY TCP4 ::1 ::1 1 1\r\n",
        "PROXY TCP6 1.2.3.4 1.2.3.4 1 1\r\n",
        "PROXY TCP6 ::1%eth0 ::1 1 1\r\n",
        "PROXY TCP6 ::1::2 ::1 1 1\r\n",
        "PROXY TCP4 1.2.3.4 1.2.3.4 01 1\r\n",
        "PROXY TCP4 1.2.3.4 1.2.3.4 00 1\r\n",
        "PROXY TCP4 1.2.3.4 1.2.3.4 +1 1\r\n",
        "PROXY TCP4 1.2.3.4 1.2.3.4 -1 1\r\n",
        "PROXY TCP4 1.2.3.4 1.2.3.4 65536 1\r\n",
        "PROXY TCP4 1.2.3.4 1.2.3.4 1 99999999999999999999\r\n",
        "PROXY UNKNOWNS\r\n",
        "PROXY UNKNOWN\n",
        "PROXY UNKNOWN\r\r\n",
        "PROXY UNKNOWN \rx\r\n",
        "PROXY TCP4 1.2.3.4 1.2.3.4 1 1\n",
        "PROXY TCP4 1.2.3.4 1.2.3.\u{664} 1 1\r\n",
    ] {
        assert_eq!(decode(line.as_bytes()), Err(Fault::TextMalformed), "{line:?}");
    }
}

#[test]
fn version_1_lines_longer_than_107_bytes_are_rejected() {
    let line = |bytes: usize| format!("PROXY UNKNOWN {:x<1$}\r\n", "", bytes - 16);
    assert_eq!(line(TEXT_BYTES_MAX).len(), TEXT_BYTES_MAX);
    assert_eq!(whole(line(TEXT_BYTES_MAX).as_bytes(), 0).endpoints, Endpoints::Unknown);
    for bytes in TEXT_BYTES_MAX + 1..TEXT_BYTES_MAX + 4 {
        assert_eq!(decode(line(bytes).as_bytes()), Err(Fault::TextTooLong));
    }
    let endless = &line(500).into_bytes()[..TEXT_BYTES_MAX];
    assert_eq!(decode(&endless[..TEXT_BYTES_MAX - 1]), Ok(None));
    assert_eq!(decode(endless), Err(Fault::TextTooLong));
}

#[test]
fn other_input_is_rejected_at_its_first_wrong_byte() {
    assert_eq!(decode(b""), Ok(None));
    for bytes in
        [&b"G"[..], b"POST", b"PROXY\t", b"\x16\x03\x01", b"proxy", b"\r\n\r\n\0\r\nQUIT\r"]
    {
        assert_eq!(decode(bytes), Err(Fault::NoHeader), "{bytes:?}");
        let before = &bytes[..bytes.len() - 1];
        if bytes[0] == b'P' || bytes[0] == b'\r' {
            assert!(
                decode(before).is_ok_and(|more| more.is_none()) || before == b"POS",
                "{before:?}"
            );
        }
    }
}

#[test]
fn valid_version_2_blocks_are_decoded() {
    let header =
        |bytes: &[u8]| whole(bytes, 0).endpoints == tcp("192.0.2.1:56324", "198.51.100.2:443");
    assert!(header(&block(0x21, 0x11, &INET)));
    let mut inet6 = vec![0; 36];
    inet6[15] = 1;
    inet6[16..20].copy_from_slice(&[0x20, 0x01, 0x0d, 0xb8]);
    inet6[33] = 7;
    inet6[35] = 80;
    let six = block(0x21, 0x21, &inet6);
    assert_eq!(whole(&six, 0).endpoints, tcp("[::1]:7", "[2001:db8::]:80"));
    let datagrams = block(0x21, 0x12, &INET);
    let Endpoints::Ip { transport, .. } = whole(&datagrams, 0).endpoints else { panic!("an IP") };
    assert_eq!(transport, Transport::Datagram);
    let mut paths = [0; 216];
    paths[..6].copy_from_slice(b"/run/a");
    paths[108..114].copy_from_slice(b"/run/b");
    let unix = block(0x21, 0x31, &paths);
    let Endpoints::Unix { source, destination, .. } = whole(&unix, 0).endpoints else {
        panic!("a unix socket")
    };
    assert!(source.starts_with(b"/run/a\0") && destination.starts_with(b"/run/b\0"));
    // Receivers must accept LOCAL and discard the rest of the block, whatever it is.
    for family in [0x00, 0x11, 0x99] {
        let local = block(0x20, family, &[3, 0, 1]);
        let header = whole(&local, 0);
        assert_eq!((header.endpoints, header.extensions.count()), (Endpoints::Local, 0));
    }
    let unspecified = block(0x21, 0x00, &[1, 2, 3]);
    assert_eq!(whole(&unspecified, 0).endpoints, Endpoints::Unknown);
}

#[test]
fn malformed_version_2_blocks_are_rejected_by_their_first_16_bytes() {
    for (bytes, fault) in [
        (block(0x11, 0x11, &INET), Fault::VersionUnknown),
        (block(0x31, 0x11, &INET), Fault::VersionUnknown),
        (block(0x22, 0x11, &INET), Fault::CommandUnknown),
        (block(0x2f, 0x11, &INET), Fault::CommandUnknown),
        (block(0x21, 0x13, &INET), Fault::FamilyUnknown),
        (block(0x21, 0x10, &INET), Fault::FamilyUnknown),
        (block(0x21, 0x41, &INET), Fault::FamilyUnknown),
        (block(0x21, 0x01, &INET), Fault::FamilyUnknown),
        (block(0x21, 0x11, &INET[..11]), Fault::TooShort),
        (block(0x21, 0x21, &INET), Fault::TooShort),
        (block(0x21, 0x31, &[0; 215]), Fault::TooShort),
    ] {
        assert_eq!(decode(&bytes), Err(fault));
        assert_eq!(decode(&bytes[..16]), Err(fault), "the first 16 bytes must be enough");
    }
    let most = BINARY_BYTES_MAX - 16;
    let mut body = INET.to_vec();
    body.extend([4, ((most - 15) >> 8) as u8, (most - 15) as u8]);
    body.resize(most, 0);
    whole(&block(0x21, 0x11, &body), 0);
    body.push(0);
    assert_eq!(decode(&block(0x21, 0x11, &body)[..16]), Err(Fault::TooLong));
}

#[test]
fn extensions_with_wrong_lengths_are_rejected() {
    for bad in [
        &[1][..],
        &[1, 0],
        &[1, 0, 3, b'h', b'2'],
        &[3, 0, 3, 0, 0, 0],
        &[3, 0, 5, 0, 0, 0, 0, 0],
        &[0x20, 0, 4, 1, 0, 0, 0],
        &[0x20, 0, 7, 1, 0, 0, 0, 0, 0x21, 0],
        &[0x20, 0, 8, 1, 0, 0, 0, 0, 0x21, 0, 1],
    ] {
        let bytes = block(0x21, 0x11, &[&INET[..], bad].concat());
        assert_eq!(decode(&bytes), Err(Fault::ExtensionMalformed), "{bad:?}");
    }
    let id = [&INET[..], &[5, 0, 129], &[b'x'; 129]].concat();
    assert_eq!(decode(&block(0x21, 0x11, &id)), Err(Fault::ExtensionMalformed));
}

#[test]
fn tls_extension_is_decoded_with_its_parts() {
    let mut tls = vec![0x20, 0, 0, 0x05, 0, 0, 0, 0];
    for (kind, value) in [
        (0x21, "TLSv1.2"),
        (0x99, "?"),
        (0x22, "client"),
        (0x23, "AES"),
        (0x24, "SHA256"),
        (0x25, "EC256"),
    ] {
        tls.extend([kind, 0, value.len() as u8]);
        tls.extend(value.bytes());
    }
    tls[2] = (tls.len() - 3) as u8;
    let bytes = block(0x21, 0x11, &[&INET[..], &tls, &[2, 0, 1, b'a']].concat());
    let extensions: Vec<_> = whole(&bytes, 0).extensions.collect();
    let described = Tls {
        in_use: true,
        certificate_here: false,
        certificate_in_session: true,
        verified: true,
        version: Some(b"TLSv1.2"),
        common_name: Some(b"client"),
        cipher: Some(b"AES"),
        signature_algorithm: Some(b"SHA256"),
        key_algorithm: Some(b"EC256"),
    };
    assert_eq!(extensions, [Extension::Tls(described), Extension::Authority(b"a")]);
}

#[test]
fn checksum_is_verified_if_present() {
    let mut bytes = Vec::new();
    let extensions = [Extension::Authority(b"a.example")];
    encode_binary(&mut bytes, &tcp("192.0.2.1:56324", "198.51.100.2:443"), extensions, true);
    // This file was written by an independent implementation.
    let expected = include_bytes!("../../../fuzz/corpus/proxy_header/inet-checksum");
    assert_eq!(whole(expected, 0).extensions.count(), 2);
    whole(&bytes, 0);
    let type_at = bytes.len() - 7;
    for at in (16..bytes.len()).filter(|at| *at != type_at) {
        let mut damaged = bytes.clone();
        damaged[at] ^= 0x40;
        let fault = decode(&damaged).expect_err("damaged");
        assert!(matches!(fault, Fault::ChecksumWrong | Fault::ExtensionMalformed), "byte {at}");
    }
    let twice = [&INET[..], &[3, 0, 4, 0, 0, 0, 0, 3, 0, 4, 0, 0, 0, 0]].concat();
    assert_eq!(decode(&block(0x21, 0x11, &twice)), Err(Fault::ExtensionMalformed));
}

#[test]
fn endpoints_that_version_1_cannot_express_become_unknown() {
    let path = [0; 108];
    let transport = Transport::Datagram;
    for endpoints in [
        Endpoints::Local,
        Endpoints::Unknown,
        Endpoints::Unix { source: &path, destination: &path, transport },
        tcp("192.0.2.1:1", "[::1]:1"),
    ] {
        let mut line = Vec::new();
        encode_text(&mut line, &endpoints);
        assert_eq!(line, b"PROXY UNKNOWN\r\n");
    }
}

#[test]
fn extensions_that_do_not_fit_are_left_out() {
    let long = vec![b'x'; BINARY_BYTES_MAX];
    let longest = vec![b'x'; usize::from(u16::MAX) + 1];
    for over in [&long, &longest] {
        let tls = Tls { common_name: Some(over), ..Tls::default() };
        let extensions = [Extension::Tls(tls), Extension::Noop(over), Extension::Alpn(b"h2")];
        let mut bytes = b"before".to_vec();
        encode_binary(&mut bytes, &tcp("192.0.2.1:1", "192.0.2.2:2"), extensions, true);
        let kept: Vec<_> = whole(&bytes[6..], 0).extensions.collect();
        assert_eq!(kept.len(), 2);
        assert_eq!(kept[0], Extension::Alpn(b"h2"));
    }
}

fn endpoints() -> impl Strategy<Value = Endpoints<'static>> {
    let transport = prop_oneof![Just(Transport::Stream), Just(Transport::Datagram)];
    let pair = prop_oneof![
        any::<([u8; 4], u16, [u8; 4], u16)>()
            .prop_map(|(a, p, b, q)| (SocketAddr::from((a, p)), SocketAddr::from((b, q)))),
        any::<([u8; 16], u16, [u8; 16], u16)>()
            .prop_map(|(a, p, b, q)| (SocketAddr::from((a, p)), SocketAddr::from((b, q)))),
    ];
    prop_oneof![
        Just(Endpoints::Local),
        Just(Endpoints::Unknown),
        (pair, transport).prop_map(|((source, destination), transport)| Endpoints::Ip {
            source,
            destination,
            transport
        }),
    ]
}

proptest! {
    #[test]
    fn encoded_headers_decode_to_the_same_header(
        endpoints in endpoints(),
        values in vec((any::<u8>(), vec(any::<u8>(), 0..200)), 0..8),
        checksummed in any::<bool>(),
    ) {
        // Types with their own format have separate tests.
        let plain = |kind: u8| !matches!(kind, 1..=5 | 0x20 | 0x30);
        let extensions: Vec<_> = values
            .iter()
            .map(|(kind, value)| match plain(*kind) {
                true => Extension::Other(*kind, value),
                false => Extension::Authority(value),
            })
            .collect();
        let mut bytes = Vec::new();
        encode_binary(&mut bytes, &endpoints, extensions.clone(), checksummed);
        fuzz_proxy_header(&bytes);
        let (header, consumed) = decode(&bytes).unwrap().unwrap();
        prop_assert_eq!(consumed, bytes.len());
        prop_assert_eq!(header.endpoints, endpoints);
        let silent = matches!(endpoints, Endpoints::Local | Endpoints::Unknown);
        let own = |extension: &Extension<'_>| !matches!(extension, Extension::Checksum(_));
        let kept: Vec<_> = header.extensions.filter(own).collect();
        prop_assert_eq!(kept, if silent { Vec::new() } else { extensions });

        let mut line = Vec::new();
        encode_text(&mut line, &endpoints);
        fuzz_proxy_header(&line);
        if let Endpoints::Ip { transport: Transport::Stream, .. } = endpoints {
            prop_assert_eq!(decode(&line).unwrap().unwrap().0.endpoints, endpoints);
        }
    }

    #[test]
    fn nearly_valid_bytes_pass_the_fuzz_checks(
        start in prop_oneof![Just(&b""[..]), Just(SIGNATURE), Just(&b"PROXY TCP4 "[..]), Just(&b"PROXY UNKNOWN"[..])],
        command in prop_oneof![Just(0x20), Just(0x21), any::<u8>()],
        family in prop_oneof![Just(0x11), Just(0x21), Just(0x31), any::<u8>()],
        rest in vec(any::<u8>(), 0..400),
    ) {
        let mut bytes = start.to_vec();
        if start == SIGNATURE {
            bytes.extend([command, family]);
            bytes.extend((rest.len() as u16).to_be_bytes());
        }
        bytes.extend(rest);
        fuzz_proxy_header(&bytes);
    }
}
