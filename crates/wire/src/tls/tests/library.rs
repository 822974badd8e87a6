//! Sessions against a plain rustls client, which supports features that Tidegate's sessions never use: it requests key updates
//! and exports its keys, so that tests can forge records that no correct peer sends.

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime, pem::PemObject};
use rustls::{
    ClientConfig, ClientConnection, ConnectionTrafficSecrets, DigitallySignedStruct, RootCertStore,
    SignatureScheme,
};

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

/// Seals records with any content, as the client would after its handshake; opens the records of the server.
struct Forger {
    sealing: (u64, LessSafeKey, [u8; 12]),
    opening: (u64, LessSafeKey, [u8; 12]),
}

impl Forger {
    fn new(client: ClientConnection) -> Self {
        let secrets = client.dangerous_extract_secrets().unwrap();
        let direction = |(number, secrets)| {
            let ConnectionTrafficSecrets::Aes256Gcm { key, iv } = secrets else {
                panic!("another cipher suite")
            };
            let key = LessSafeKey::new(UnboundKey::new(&AES_256_GCM, key.as_ref()).unwrap());
            (number, key, iv.as_ref().try_into().unwrap())
        };
        Self { sealing: direction(secrets.tx), opening: direction(secrets.rx) }
    }

    fn nonce(iv: [u8; 12], number: u64) -> Nonce {
        let mut nonce = iv;
        nonce[4..].iter_mut().zip(number.to_be_bytes()).for_each(|(a, b)| *a ^= b);
        Nonce::assume_unique_for_key(nonce)
    }

    /// A record with this TLSInnerPlaintext: content, content type, padding (RFC 8446 section 5.2).
    fn seal(&mut self, inner: &[u8]) -> Vec<u8> {
        let (number, key, iv) = &mut self.sealing;
        let mut record = inner.to_vec();
        let length = (record.len() as u16 + 16).to_be_bytes();
        let header = [23, 3, 3, length[0], length[1]];
        key.seal_in_place_append_tag(Self::nonce(*iv, *number), Aad::from(header), &mut record)
            .unwrap();
        *number += 1;
        [&header[..], &record].concat()
    }

    /// The TLSInnerPlaintext of the only record in `out`.
    fn open(&mut self, out: &[u8]) -> Vec<u8> {
        let (number, key, iv) = &mut self.opening;
        let (header, record) = out.split_at(5);
        let mut record = record.to_vec();
        let aad = Aad::from(header);
        let inner = key.open_in_place(Self::nonce(*iv, *number), aad, &mut record).unwrap();
        *number += 1;
        inner.to_vec()
    }
}

#[test]
fn protected_record_without_content_type_or_too_long_gets_its_alert() {
    const ALERT: u8 = 21;
    let authority = Authority::new("authority");
    let overlong = || {
        let mut record = vec![7; 5 + 16_384 + 257];
        record[..5].copy_from_slice(&[23, 3, 3, 0x41, 0x01]);
        record
    };
    type Forge<'a> = &'a dyn Fn(&mut Forger) -> Vec<u8>;
    let cases: [(Forge<'_>, Fault, u8); 5] = [
        (&|forger| forger.seal(&[0]), Fault::Misbehaved, 10),
        (&|forger| forger.seal(&[0; 16_385]), Fault::Misbehaved, 10),
        (&|forger| forger.seal(&[1, 20, 0, 0]), Fault::Misbehaved, 10),
        (&|forger| forger.seal(&[0; 16_386]), Fault::Oversized, 22),
        (&|_| overlong(), Fault::Oversized, 22),
    ];
    for (at, (record, fault, alert)) in cases.into_iter().enumerate() {
        let (client, mut server) = established(&authority);
        let mut forger = Forger::new(client);
        server.receive(&mut forger.seal(b"plain\x17"));
        server.receive(&mut record(&mut forger));
        assert_eq!((server.plain.as_slice(), server.fault), (&b"plain"[..], Some(fault)), "{at}");
        assert_eq!(forger.open(&server.out), [2, alert, ALERT], "case {at}");
    }
}

#[test]
fn message_split_over_records_is_not_processed_byte_by_byte() {
    let authority = Authority::new("authority");
    let (client, mut server) = established(&authority);
    let mut forger = Forger::new(client);
    // A KeyUpdate of 60,000 bytes.
    let message = [&[24, 0, 0xea, 0x60][..], &[0; 60_000]].concat();
    let mut records = Vec::new();
    for content in message.chunks(10_000) {
        records.extend(forger.seal(&[content, &[22]].concat()));
    }
    let (first, rest) = records.split_at_mut(15_000);
    server.receive(first);
    assert_eq!(server.session.wanted_bytes(), usize::MAX);
    server.receive(rest);
    assert_eq!(server.fault, Some(Fault::Malformed));
}

/// Accepts every certificate, but only one signature scheme.
#[derive(Debug)]
struct OneScheme(SignatureScheme);

impl ServerCertVerifier for OneScheme {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![self.0]
    }
}

#[test]
fn tls_1_2_client_that_cannot_verify_the_key_gets_handshake_failure() {
    let authority = Authority::new("authority");
    let acceptor = acceptor(&settings(&authority));
    for (scheme, fault) in [
        (SignatureScheme::ECDSA_NISTP256_SHA256, None),
        (SignatureScheme::ECDSA_NISTP521_SHA512, Some(Fault::Incompatible)),
    ] {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS12])
            .unwrap()
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(OneScheme(scheme)))
            .with_no_client_auth();
        let name = ServerName::try_from("a.example").unwrap();
        let mut client = ClientConnection::new(Arc::new(config), name).unwrap();
        let mut server = End::new(acceptor.accept().unwrap());
        let mut hello = Vec::new();
        client.write_tls(&mut hello).unwrap();
        server.receive(&mut hello);
        assert_eq!(server.fault, fault, "{scheme:?}");
        if fault.is_some() {
            assert_eq!(server.out, [21, 3, 3, 0, 2, 2, 40], "{scheme:?}");
        }
    }
}
