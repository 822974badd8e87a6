//! Revocation lists, stapled OCSP responses, and the bounds of chains.

use super::*;

#[test]
fn revocation_list_of_another_authority_is_refused() {
    let (one, two) = (Authority::new("one"), Authority::new("two"));
    let outcome = |lists: Vec<u8>| {
        let mut settings = settings(&one);
        settings.client_auth = ClientAuth::Required;
        settings.client_authorities_pem.clone_from(&one.pem);
        settings.client_revocations_pem = Some(lists);
        Acceptor::new(&settings, None, clock()).map(|_| ()).map_err(|fault| fault.kind)
    };
    let (own, foreign) = (revocations(&one, 1), revocations(&two, 1));
    assert_eq!(outcome(own.clone()), Ok(()));
    assert_eq!(outcome(foreign.clone()), Err(SetupKind::RevocationForeign));
    assert_eq!(outcome([own, foreign].concat()), Err(SetupKind::RevocationForeign));
}

#[test]
fn revocation_list_with_the_signature_of_another_key_is_refused() {
    // An authority that has changed its key: two certificates of one name.
    let (old, new) = (Authority::new("one"), Authority::new("one"));
    let outcome = |authorities: &[&Authority], lists: &[u8]| {
        let pem: Vec<u8> = authorities.iter().flat_map(|authority| authority.pem.clone()).collect();
        let mut settings = settings(&old);
        settings.client_auth = ClientAuth::Required;
        settings.client_authorities_pem.clone_from(&pem);
        settings.client_revocations_pem = Some(lists.to_vec());
        let client = Acceptor::new(&settings, None, clock()).map(|_| ());
        let settings = ConnectorSettings {
            revocations_pem: Some(lists.to_vec()),
            roots: Roots::Authorities(pem),
            ..ConnectorSettings::default()
        };
        let server = Connector::new(&settings, clock()).map(|_| ());
        [client, server].map(|outcome| outcome.map_err(|fault| (fault.kind, fault.detail)))
    };
    let forged = || Err((SetupKind::RevocationForged, "list 2 of 2".to_owned()));
    let (of_old, of_new) = (revocations(&old, 1), revocations(&new, 1));
    assert_eq!(outcome(&[&old], &of_old), [Ok(()), Ok(())]);
    assert_eq!(outcome(&[&old, &new], &of_new), [Ok(()), Ok(())]);
    let both = [of_old, of_new].concat();
    assert_eq!(outcome(&[&old], &both), [forged(), forged()]);
}

#[test]
fn newest_of_several_revocation_lists_of_an_authority_counts() {
    let authority = Authority::new("authority");
    let files = authority.client("client", 7);
    let (old, new) = (revocations_of(&authority, 1, 2025), revocations_of(&authority, 7, 2026));
    for lists in [[old.clone(), new.clone()], [new, old]] {
        let mut settings = settings(&authority);
        settings.client_auth = ClientAuth::Required;
        settings.client_authorities_pem.clone_from(&authority.pem);
        settings.client_revocations_pem = Some(lists.concat());
        let mut shows = connector(&authority);
        shows.client_certificate = Some(files.clone());
        let mut pair = Pair::new(connect(&shows), acceptor(&settings).accept().unwrap());
        pair.run(1 << 20);
        assert_eq!(pair.server.fault, Some(Fault::Certificate(CertificateFault::Revoked)));
    }
}

#[test]
fn chain_with_many_authorities_of_one_name_is_refused() {
    let authority = Authority::new("authority");
    let mut files = authority.client("client", 7);
    for serial in 0..3 {
        files.chain_pem.extend_from_slice(&authority.intermediate("one name", serial).pem);
    }
    let mut settings = settings(&authority);
    settings.client_auth = ClientAuth::Required;
    settings.client_authorities_pem.clone_from(&authority.pem);
    let mut shows = connector(&authority);
    shows.client_certificate = Some(files);
    let mut pair = Pair::new(connect(&shows), acceptor(&settings).accept().unwrap());
    pair.run(1 << 20);
    assert_eq!(pair.server.fault, Some(Fault::Certificate(CertificateFault::ChainTooLarge)));
}

#[test]
fn stapled_responses_must_be_successful_ocsp_responses() {
    let authority = Authority::new("authority");
    let outcome = |ocsp: &[u8]| {
        let mut settings = settings(&authority);
        settings.certificates[0].ocsp = Some(ocsp.to_vec());
        Acceptor::new(&settings, None, clock()).map(|_| ()).map_err(|fault| fault.kind)
    };
    // OCSPResponse: responseStatus successful, responseBytes.
    assert_eq!(outcome(&[0x30, 0x05, 0x0a, 0x01, 0x00, 0xa0, 0x00]), Ok(()));
    for broken in [
        &b""[..],
        b"text",
        &[0x30, 0x03, 0x0a, 0x01, 0x06],
        &[0x30, 0x05, 0x0a, 0x01, 0x00, 0xa0, 0x00, 0x00],
        &[0x30, 0x05, 0x0a, 0x01, 0x06, 0xa0, 0x00],
        &[
            &[0x30, 0x83, 0x01, 0x00, 0x00, 0x0a, 0x01, 0x00, 0xa0, 0x82, 0xff, 0xf9][..],
            &[0; 0xfff9],
        ]
        .concat(),
    ] {
        assert_eq!(outcome(broken), Err(SetupKind::OcspBroken), "{broken:?}");
    }
}

#[test]
fn certificates_below_a_revoked_authority_are_refused() {
    let root = Authority::new("root");
    let lists = revocations(&root, 21);
    let below = |serial| {
        let intermediate = root.intermediate("intermediate", serial);
        let mut files = intermediate.client("good client", 7);
        files.chain_pem.extend_from_slice(&intermediate.pem);
        files
    };
    let mut settings = settings(&root);
    settings.client_auth = ClientAuth::Required;
    settings.client_authorities_pem.clone_from(&root.pem);
    settings.client_revocations_pem = Some(lists.clone());
    let acceptor = acceptor(&settings);
    let revoked = Some(Fault::Certificate(CertificateFault::Revoked));
    for (serial, fault) in [(20, None), (21, revoked)] {
        let mut shows = connector(&root);
        shows.client_certificate = Some(below(serial));
        let mut pair = Pair::new(connect(&shows), acceptor.accept().unwrap());
        pair.run(1 << 20);
        assert_eq!(pair.server.fault, fault, "client below {serial}");
        let intermediate = root.intermediate("intermediate", serial);
        let mut own = intermediate.server(&["a.example"]);
        own.chain_pem.extend_from_slice(&intermediate.pem);
        let server = AcceptorSettings { certificates: vec![own], ..AcceptorSettings::default() };
        let mut verifies = connector(&root);
        verifies.revocations_pem = Some(lists.clone());
        let mut pair = Pair::new(connect(&verifies), self::acceptor(&server).accept().unwrap());
        pair.run(1 << 20);
        assert_eq!(pair.client.fault, fault, "server below {serial}");
    }
}

pub(super) fn revocations(authority: &Authority, serial: u64) -> Vec<u8> {
    revocations_of(authority, serial, 2025)
}

/// A revocation list that was issued at the beginning of `year`.
fn revocations_of(authority: &Authority, serial: u64, year: i32) -> Vec<u8> {
    let revoked = RevokedCertParams {
        serial_number: SerialNumber::from(serial),
        revocation_time: date_time_ymd(2025, 1, 1),
        reason_code: None,
        invalidity_date: None,
    };
    let list = CertificateRevocationListParams {
        this_update: date_time_ymd(year, 1, 1),
        next_update: date_time_ymd(2040, 1, 1),
        crl_number: SerialNumber::from(1u64),
        issuing_distribution_point: None,
        revoked_certs: vec![revoked],
        key_identifier_method: KeyIdMethod::Sha256,
    };
    list.signed_by(&authority.issuer).unwrap().pem().unwrap().into_bytes()
}
