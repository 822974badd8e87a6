//! Sessions against a plain rustls client, which can do what Tidegate's sessions never do: it requests key
//! updates and exports its keys, so that tests can forge records that no correct peer sends.

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use rustls::pki_types::{CertificateDer, ServerName, pem::PemObject};
use rustls::{ClientConfig, ClientConnection, ConnectionTrafficSecrets, RootCertStore};

use super::*;

/// A rustls client and one of our server sessions, after their handshake.
fn established(authority: &Authority) -> (ClientConnection, End) {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(&authority.pem).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.enable_secret_extraction = true;
    let name = ServerName::try_from("a.example").unwrap();
    let mut client = ClientConnection::new(Arc::new(config), name).unwrap();
    let mut server = End::new(acceptor(&settings(authority)).accept().unwrap());
    while client.wants_write() || !server.out.is_empty() {
        pass(&mut client, &mut server);
    }
    assert!(server.session.is_established() && !client.is_handshaking());
    (client, server)
}

/// Delivers the pending bytes of both ends; returns the plain bytes that the client received.
fn pass(client: &mut ClientConnection, server: &mut End) -> Vec<u8> {
    use std::io::Read;
    let mut to_server = Vec::new();
    while client.wants_write() {
        client.write_tls(&mut to_server).unwrap();
    }
    let to_client = core::mem::take(&mut server.out);
    server.receive(&mut to_server);
    let (mut unread, mut plain) = (to_client.as_slice(), Vec::new());
    while !unread.is_empty() {
        client.read_tls(&mut unread).unwrap();
        client.process_new_packets().unwrap();
        // The error means only that all bytes so far have been read, not that the connection has ended.
        let _ = client.reader().read_to_end(&mut plain);
    }
    plain
}

#[test]
fn requested_key_update_is_sent_with_the_next_bytes() {
    let authority = Authority::new("authority");
    let (mut client, mut server) = established(&authority);
    for bytes in [1, 1000, 16_383, 16_384, 16_385, 40_000] {
        client.refresh_traffic_keys().unwrap();
        pass(&mut client, &mut server);
        assert_eq!(server.fault, None);
        let sealed = server.session.seal(&vec![7; bytes], &mut server.out);
        assert_eq!(sealed, Ok(()), "{bytes} bytes after the response to a key update");
        assert_eq!(pass(&mut client, &mut server), vec![7; bytes]);
    }
    client.refresh_traffic_keys().unwrap();
    pass(&mut client, &mut server);
    server.session.close_notify(&mut server.out);
    let mut to_client = server.out.as_slice();
    client.read_tls(&mut to_client).unwrap();
    assert!(client.process_new_packets().unwrap().peer_has_closed());
}

#[test]
fn message_split_over_records_is_not_processed_byte_by_byte() {
    let authority = Authority::new("authority");
    let (client, mut server) = established(&authority);
    let secrets = client.dangerous_extract_secrets().unwrap();
    let (number, ConnectionTrafficSecrets::Aes256Gcm { key, iv }) = secrets.tx else {
        panic!("another cipher suite")
    };
    let key = LessSafeKey::new(UnboundKey::new(&AES_256_GCM, key.as_ref()).unwrap());
    // A KeyUpdate of 60,000 bytes.
    let message = [&[24, 0, 0xea, 0x60][..], &[0; 60_000]].concat();
    let mut records = Vec::new();
    for (number, content) in (number..).zip(message.chunks(10_000)) {
        let mut record = [content, &[22]].concat();
        let mut nonce: [u8; 12] = iv.as_ref().try_into().unwrap();
        nonce[4..].iter_mut().zip(number.to_be_bytes()).for_each(|(a, b)| *a ^= b);
        let length = (record.len() as u16 + 16).to_be_bytes();
        let header = [23, 3, 3, length[0], length[1]];
        let (nonce, aad) = (Nonce::assume_unique_for_key(nonce), Aad::from(header));
        key.seal_in_place_append_tag(nonce, aad, &mut record).unwrap();
        records.extend([&header[..], &record].concat());
    }
    let (first, rest) = records.split_at_mut(15_000);
    server.receive(first);
    assert_eq!(server.session.wanted_bytes(), usize::MAX);
    server.receive(rest);
    assert_eq!(server.fault, Some(Fault::Malformed));
}
