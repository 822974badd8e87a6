//! Client and server sessions connected in memory.

mod choices;
mod library;
mod revocation;

use std::sync::Arc;

use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, DistinguishedName,
    DnType, DnValue, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyIdMethod, KeyPair, KeyUsagePurpose,
    RevokedCertParams, SerialNumber, date_time_ymd,
};

use self::revocation::revocations;
use super::*;

/// 2026-01-01, when the test certificates are valid.
const NOW: u64 = 1_767_225_600;

struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: Vec<u8>,
}

impl Authority {
    fn new(name: &str) -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        params.distinguished_name = subject(name);
        let certificate = params.self_signed(&key).unwrap();
        Self { pem: certificate.pem().into_bytes(), issuer: Issuer::new(params, key) }
    }

    fn issue(&self, params: CertificateParams) -> CertificateFiles {
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        CertificateFiles {
            chain_pem: certificate.pem().into_bytes(),
            key_pem: key.serialize_pem().into_bytes(),
            ocsp: None,
        }
    }

    /// An authority below this one, and its certificate.
    fn intermediate(&self, name: &str, serial: u64) -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        params.distinguished_name = subject(name);
        params.serial_number = Some(SerialNumber::from(serial));
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        Self { pem: certificate.pem().into_bytes(), issuer: Issuer::new(params, key) }
    }

    fn server(&self, names: &[&str]) -> CertificateFiles {
        self.issue(server_params(names))
    }

    fn client(&self, name: &str, serial: u64) -> CertificateFiles {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name = subject(name);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        params.serial_number = Some(SerialNumber::from(serial));
        self.issue(params)
    }
}

fn subject(name: &str) -> DistinguishedName {
    let mut subject = DistinguishedName::new();
    subject.push(DnType::CommonName, name);
    subject
}

fn server_params(names: &[&str]) -> CertificateParams {
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    let mut params = CertificateParams::new(names).unwrap();
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    params
}

fn clock() -> TlsClock {
    let clock = TlsClock::default();
    clock.set(NOW);
    clock
}

fn acceptor(settings: &AcceptorSettings) -> Acceptor {
    let tickets = Arc::new(TicketKeys::random(NOW).unwrap());
    Acceptor::new(settings, Some(tickets), clock()).unwrap()
}

fn connector(authority: &Authority) -> ConnectorSettings {
    let roots = Roots::Authorities(authority.pem.clone());
    ConnectorSettings { roots, ..ConnectorSettings::default() }
}

fn connect(settings: &ConnectorSettings) -> TlsSession {
    Connector::new(settings, clock()).unwrap().connect("a.example").unwrap()
}

/// One end of a connection.
struct End {
    session: TlsSession,
    /// Plain bytes received so far.
    plain: Vec<u8>,
    /// Bytes to send.
    out: Vec<u8>,
    /// The last fault.
    fault: Option<Fault>,
    /// The peer's close_notify was received.
    closed: bool,
}

impl End {
    fn new(session: TlsSession) -> Self {
        Self { session, plain: Vec::new(), out: Vec::new(), fault: None, closed: false }
    }

    fn receive(&mut self, bytes: &mut [u8]) {
        match self.session.handle_bytes(bytes, &mut self.plain, &mut self.out) {
            Ok(progress) => self.closed |= progress.peer_closed,
            Err(fault) => self.fault = Some(fault),
        }
    }

    fn seal(&mut self, plain: &[u8]) {
        self.session.seal(plain, &mut self.out).unwrap();
    }
}

struct Pair {
    client: End,
    server: End,
}

impl Pair {
    fn new(client: TlsSession, server: TlsSession) -> Self {
        let mut pair = Self { client: End::new(client), server: End::new(server) };
        pair.client.receive(&mut []);
        pair
    }

    /// Delivers bytes in both directions, in pieces of `size`, until neither end has any to send.
    fn run(&mut self, size: usize) {
        loop {
            let to_server = core::mem::take(&mut self.client.out);
            let to_client = core::mem::take(&mut self.server.out);
            if to_server.is_empty() && to_client.is_empty() {
                return;
            }
            to_server.chunks(size).for_each(|part| self.server.receive(&mut part.to_vec()));
            to_client.chunks(size).for_each(|part| self.client.receive(&mut part.to_vec()));
        }
    }

    fn is_established(&self) -> bool {
        self.client.session.is_established() && self.server.session.is_established()
    }
}

fn settings(authority: &Authority) -> AcceptorSettings {
    AcceptorSettings {
        certificates: vec![authority.server(&["a.example"])],
        ..AcceptorSettings::default()
    }
}

#[test]
fn text_about_a_broken_key_contains_nothing_of_the_key() {
    let mut files = Authority::new("a").server(&["a.example"]);
    files.key_pem = b"-----BEGIN PRIVATE KEY----- c2VjcmV0\n".to_vec();
    let settings = AcceptorSettings { certificates: vec![files], ..AcceptorSettings::default() };
    let fault = Acceptor::new(&settings, None, TlsClock::default()).unwrap_err();
    let text = fault.to_string();
    assert_eq!(fault.kind, SetupKind::KeyBroken);
    assert!(text.contains("five hyphens") && !text.contains("99, 50") && !text.contains("c2V"));
}

#[test]
fn splitting_the_bytes_does_not_change_the_plain_bytes() {
    let authority = Authority::new("authority");
    let acceptor = acceptor(&settings(&authority));
    let body: Vec<u8> = (0..40_000u32).map(|n| n as u8).collect();
    for version in [Version::Tls12, Version::Tls13] {
        for size in [1, 2, 3, 5, 7, 63, 1000, 16_389, 1 << 20] {
            let settings = ConnectorSettings { version_max: version, ..connector(&authority) };
            let mut pair = Pair::new(connect(&settings), acceptor.accept().unwrap());
            pair.run(size);
            assert!(pair.is_established(), "{version:?} {size}: {:?}", pair.client.fault);
            pair.client.seal(b"request");
            pair.server.seal(&body);
            pair.client.seal(b" and more");
            pair.run(size);
            assert_eq!(pair.server.plain, b"request and more", "{version:?} {size}");
            assert_eq!(pair.client.plain, body, "{version:?} {size}");
            let facts = pair.server.session.facts().unwrap();
            assert_eq!(facts.version, version);
            assert_ne!(facts.cipher, "unknown");
            assert_eq!(pair.server.session.held_bytes(), 0);
            pair.client.session.close_notify(&mut pair.client.out);
            assert_eq!(pair.server.session.ending(), Ending::Truncated);
            pair.run(size);
            assert!(pair.server.closed);
            assert_eq!(pair.server.session.ending(), Ending::Clean);
            pair.server.seal(b"last words");
            pair.run(size);
            assert!(pair.client.plain.ends_with(b"last words"), "half-closed");
        }
    }
}

#[test]
fn records_split_at_any_offset_are_reassembled() {
    let authority = Authority::new("authority");
    let acceptor = acceptor(&settings(&authority));
    for version_max in [Version::Tls12, Version::Tls13] {
        let settings = ConnectorSettings { version_max, ..connector(&authority) };
        let mut pair = Pair::new(connect(&settings), acceptor.accept().unwrap());
        pair.run(1 << 20);
        for cut in 0.. {
            pair.client.seal(b"first");
            pair.client.seal(b"second");
            let mut bytes = core::mem::take(&mut pair.client.out);
            let Some((first, second)) = bytes.split_at_mut_checked(cut) else { break };
            pair.server.receive(first);
            pair.server.receive(second);
            assert_eq!(pair.server.fault, None);
            let plain = core::mem::take(&mut pair.server.plain);
            assert_eq!(plain, b"firstsecond", "{version_max:?}: split at {cut}");
            assert_eq!(pair.server.session.held_bytes(), 0);
        }
    }
}

#[test]
fn only_incomplete_records_are_held() {
    let authority = Authority::new("authority");
    let mut pair = Pair::new(
        connect(&connector(&authority)),
        acceptor(&settings(&authority)).accept().unwrap(),
    );
    pair.run(1 << 20);
    pair.client.seal(&[7; 1000]);
    let mut bytes = core::mem::take(&mut pair.client.out);
    let (first, rest) = bytes.split_at_mut(100);
    pair.server.receive(first);
    assert_eq!(pair.server.session.held_bytes(), 100);
    assert!(pair.server.plain.is_empty());
    pair.server.seal(b"while a record is held");
    pair.run(1 << 20);
    assert_eq!(pair.client.plain, b"while a record is held");
    pair.server.receive(rest);
    assert_eq!(pair.server.plain, [7; 1000]);
    assert_eq!(pair.server.session.held_bytes(), 0);
}

#[test]
fn sessions_resume_with_any_acceptor_with_the_same_ticket_keys() {
    let authority = Authority::new("authority");
    let settings = settings(&authority);
    let tickets = Arc::new(TicketKeys::random(NOW).unwrap());
    let one = Acceptor::new(&settings, Some(Arc::clone(&tickets)), clock()).unwrap();
    let two = Acceptor::new(&settings, Some(tickets), clock()).unwrap();
    for version in [Version::Tls12, Version::Tls13] {
        let settings = ConnectorSettings { version_max: version, ..connector(&authority) };
        let connector = Connector::new(&settings, clock()).unwrap();
        for (round, acceptor) in [&one, &two, &one].into_iter().enumerate() {
            let client = connector.connect("a.example").unwrap();
            let mut pair = Pair::new(client, acceptor.accept().unwrap());
            pair.run(1 << 20);
            assert!(pair.is_established());
            let facts = pair.server.session.facts().unwrap();
            assert_eq!(facts.resumed, round > 0, "{version:?} {round}");
        }
    }
}

/// How many of `count` connections, all open at the same time, resume the session of an earlier one.
fn resumed(connector: &Connector, acceptor: &Acceptor, count: usize) -> usize {
    let open: Vec<Pair> = (0..count)
        .map(|_| {
            let client = connector.connect("a.example").unwrap();
            let mut pair = Pair::new(client, acceptor.accept().unwrap());
            pair.run(1 << 20);
            assert!(pair.is_established());
            pair
        })
        .collect();
    open.iter().filter(|pair| pair.client.session.facts().unwrap().resumed).count()
}

#[test]
fn resumption_can_be_disabled() {
    let authority = Authority::new("authority");
    let acceptor = acceptor(&settings(&authority));
    for (resume, expected) in [(true, 2), (false, 0)] {
        let settings = ConnectorSettings { resume, ..connector(&authority) };
        let own = Connector::new(&settings, clock()).unwrap().with_own_sessions();
        assert_eq!(resumed(&own, &acceptor, 3), expected, "resume = {resume}");
    }
}

#[test]
fn resumption_does_not_postpone_the_next_verification() {
    let authority = Authority::new("authority");
    let mut params = server_params(&["a.example"]);
    params.not_after = date_time_ymd(2026, 1, 3);
    let settings =
        AcceptorSettings { certificates: vec![authority.issue(params)], ..Default::default() };
    for version_max in [Version::Tls12, Version::Tls13] {
        let clock = clock();
        let tickets = Arc::new(TicketKeys::random(NOW).unwrap());
        let acceptor = Acceptor::new(&settings, Some(tickets), clock.clone()).unwrap();
        let verifying = ConnectorSettings { version_max, ..connector(&authority) };
        let unverified = ConnectorSettings { roots: Roots::Unverified, ..verifying.clone() };
        let [verifying, unverified] = [verifying, unverified]
            .map(|settings| Connector::new(&settings, clock.clone()).unwrap());
        // Each connection brings a ticket for the next one, valid for 16 hours. The certificate is valid for
        // two days.
        for (hours, resumed) in [
            (0, Some(false)),
            (12, Some(true)),
            (23, Some(true)),
            (25, Some(false)),
            (40, Some(true)),
            (49, None),
        ] {
            clock.set(NOW + hours * 3600);
            let mut pair =
                Pair::new(verifying.connect("a.example").unwrap(), acceptor.accept().unwrap());
            pair.run(1 << 20);
            let expired = Fault::Certificate(CertificateFault::Expired);
            assert_eq!(pair.client.fault, resumed.is_none().then_some(expired), "{hours} h");
            let facts = pair.client.session.facts();
            assert_eq!(facts.map(|facts| facts.resumed), resumed, "{version_max:?} {hours} h");
            let mut pair =
                Pair::new(unverified.connect("a.example").unwrap(), acceptor.accept().unwrap());
            pair.run(1 << 20);
            let facts = pair.client.session.facts().unwrap();
            assert_eq!(facts.resumed, hours > 0, "{version_max:?} {hours} h, unverified");
        }
    }
}

#[test]
fn tickets_max_limits_the_tickets_kept() {
    let authority = Authority::new("authority");
    let mut settings = settings(&authority);
    settings.tickets_per_handshake = 3;
    let acceptor = acceptor(&settings);
    for (tickets_max, most) in [(20, 20), (2, 2)] {
        let settings =
            ConnectorSettings { tickets_max: Some(tickets_max), ..connector(&authority) };
        let connector = Connector::new(&settings, clock()).unwrap().with_own_sessions();
        assert_eq!(resumed(&connector, &acceptor, 10), 9);
        let waiting: Vec<TlsSession> =
            (0..30).map(|_| connector.connect("a.example").unwrap()).collect();
        let pairs = waiting.into_iter().map(|client| {
            let mut pair = Pair::new(client, acceptor.accept().unwrap());
            pair.run(1 << 20);
            pair
        });
        let pairs: Vec<Pair> = pairs.collect();
        let resumed = pairs.iter().filter(|p| p.client.session.facts().unwrap().resumed).count();
        assert_eq!(resumed, most, "each ticket must be used once");
    }
}

#[test]
fn certificate_is_chosen_by_name_and_strict_names_reject_unknown_names() {
    let authority = Authority::new("authority");
    let mut settings = AcceptorSettings {
        certificates: vec![
            authority.server(&["first.example"]),
            authority.server(&["*.a.example"]),
            authority.server(&["x.a.example"]),
        ],
        ..AcceptorSettings::default()
    };
    let wanted = Connector::new(&connector(&authority), clock()).unwrap();
    let mut outcome = |strict: bool, name: &str| {
        settings.strict_names = strict;
        let acceptor = acceptor(&settings);
        let mut pair = Pair::new(wanted.connect(name).unwrap(), acceptor.accept().unwrap());
        pair.run(1 << 20);
        (pair.client.fault, pair.server.fault)
    };
    for name in ["first.example", "x.a.example", "y.a.example", "Y.A.Example"] {
        assert_eq!(outcome(true, name), (None, None), "{name}");
    }
    let wrong = Some(Fault::Certificate(CertificateFault::WrongName));
    for name in ["other.example", "a.example", "z.y.a.example"] {
        assert_eq!(outcome(false, name).0, wrong, "{name} gets the first certificate");
        assert_eq!(outcome(true, name).1, Some(Fault::NameUnknown), "{name}");
    }
}

#[test]
fn server_chooses_the_alpn_protocol_and_rejects_unknown_ones() {
    let authority = Authority::new("authority");
    let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    let settings =
        AcceptorSettings { alpn: names(&["h2", "http/1.1", "http/1.0"]), ..settings(&authority) };
    let acceptor = acceptor(&settings);
    for (asked, chosen) in [
        (names(&["http/1.1", "h2"]), Ok(Some("h2"))),
        (names(&["http/1.0", "http/1.1"]), Ok(Some("http/1.1"))),
        (names(&["smtp", "http/1.0"]), Ok(Some("http/1.0"))),
        (Vec::new(), Ok(None)),
        (names(&["smtp"]), Err(Fault::NoProtocol)),
    ] {
        let asks = ConnectorSettings { alpn: asked, ..connector(&authority) };
        let mut pair = Pair::new(connect(&asks), acceptor.accept().unwrap());
        pair.run(1 << 20);
        match chosen {
            Ok(chosen) => {
                let facts = pair.client.session.facts().unwrap();
                assert_eq!(facts.alpn, chosen.map(str::as_bytes));
            }
            Err(fault) => {
                assert_eq!(pair.server.fault, Some(fault));
                assert_eq!(pair.client.fault, Some(Fault::Alert(120)));
            }
        }
    }
}

#[test]
fn server_certificate_faults_are_distinguished() {
    let authority = Authority::new("authority");
    let mut expired = server_params(&["a.example"]);
    expired.not_before = date_time_ymd(2020, 1, 1);
    expired.not_after = date_time_ymd(2021, 1, 1);
    let mut later = server_params(&["a.example"]);
    later.not_before = date_time_ymd(2050, 1, 1);
    let mut purpose = server_params(&["a.example"]);
    purpose.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    let mut is_authority = server_params(&["a.example"]);
    is_authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let cases = [
        (authority.issue(expired), CertificateFault::Expired),
        (authority.issue(later), CertificateFault::NotYetValid),
        (authority.issue(purpose), CertificateFault::WrongPurpose),
        (authority.issue(is_authority), CertificateFault::IsAuthority),
        (authority.server(&["b.example"]), CertificateFault::WrongName),
        (Authority::new("other").server(&["a.example"]), CertificateFault::UnknownIssuer),
    ];
    for (files, fault) in cases {
        let settings =
            AcceptorSettings { certificates: vec![files], ..AcceptorSettings::default() };
        let acceptor = acceptor(&settings);
        let mut pair = Pair::new(connect(&connector(&authority)), acceptor.accept().unwrap());
        pair.run(1 << 20);
        assert_eq!(pair.client.fault, Some(Fault::Certificate(fault)));
        assert!(matches!(pair.server.fault, Some(Fault::Alert(_))), "{:?}", pair.server.fault);
        let unverified =
            ConnectorSettings { roots: Roots::Unverified, ..ConnectorSettings::default() };
        let mut pair = Pair::new(connect(&unverified), acceptor.accept().unwrap());
        pair.run(1 << 20);
        assert!(pair.is_established(), "unverified certificates must be accepted: {fault:?}");
    }
}

/// A self-signed certificate with CA:TRUE, as `openssl req -x509` makes it.
fn self_signed(names: &[&str], expired: bool) -> CertificateFiles {
    let mut params = server_params(names);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.distinguished_name = subject("self");
    if expired {
        params.not_before = date_time_ymd(2020, 1, 1);
        params.not_after = date_time_ymd(2021, 1, 1);
    }
    let key = KeyPair::generate().unwrap();
    let certificate = params.self_signed(&key).unwrap();
    CertificateFiles {
        chain_pem: certificate.pem().into_bytes(),
        key_pem: key.serialize_pem().into_bytes(),
        ocsp: None,
    }
}

#[test]
fn certificate_of_an_authority_is_accepted_only_if_it_is_named_itself() {
    let (own, other) = (self_signed(&["a.example"], false), self_signed(&["a.example"], false));
    let (name, old) = (self_signed(&["b.example"], false), self_signed(&["a.example"], true));
    let cases = [
        (&own, &own, None),
        (&other, &own, Some(CertificateFault::IsAuthority)),
        (&name, &name, Some(CertificateFault::WrongName)),
        (&old, &old, Some(CertificateFault::Expired)),
    ];
    for (shown, named, fault) in cases {
        let acceptor = acceptor(&AcceptorSettings {
            certificates: vec![shown.clone()],
            ..AcceptorSettings::default()
        });
        let roots = Roots::Authorities(named.chain_pem.clone());
        let client = connect(&ConnectorSettings { roots, ..ConnectorSettings::default() });
        let mut pair = Pair::new(client, acceptor.accept().unwrap());
        pair.run(1 << 20);
        assert_eq!(pair.client.fault, fault.map(Fault::Certificate));
        assert_eq!(pair.is_established(), fault.is_none());
    }
    let listed = ConnectorSettings {
        revocations_pem: Some(revocations(&Authority::new("another"), 1)),
        roots: Roots::Authorities(own.chain_pem.clone()),
        ..ConnectorSettings::default()
    };
    let settings = AcceptorSettings { certificates: vec![own], ..AcceptorSettings::default() };
    let mut pair = Pair::new(connect(&listed), acceptor(&settings).accept().unwrap());
    pair.run(1 << 20);
    assert_eq!(pair.client.fault, Some(Fault::Certificate(CertificateFault::IsAuthority)));
}

#[test]
fn client_certificates_are_requested_verified_and_reported() {
    let authority = Authority::new("authority");
    let mut settings = settings(&authority);
    settings.client_authorities_pem.clone_from(&authority.pem);
    settings.client_revocations_pem = Some(revocations(&authority, 13));
    let good = authority.client("good client", 7);
    let revoked = authority.client("revoked", 13);
    let foreign = Authority::new("other").client("foreign", 7);
    let mut outcome = |auth: ClientAuth, shown: Option<&CertificateFiles>| {
        settings.client_auth = auth;
        let acceptor = acceptor(&settings);
        let mut shows = connector(&authority);
        shows.client_certificate = shown.cloned();
        let mut pair = Pair::new(connect(&shows), acceptor.accept().unwrap());
        pair.run(1 << 20);
        match pair.server.fault {
            Some(fault) => Err(fault),
            None => Ok(pair.server.session.peer_identity().map(|peer| peer.subject)),
        }
    };
    let subject = Some("CN=good client".to_owned());
    let refused = |fault| Err(Fault::Certificate(fault));
    assert_eq!(outcome(ClientAuth::Off, Some(&good)), Ok(None));
    assert_eq!(outcome(ClientAuth::Optional, None), Ok(None));
    assert_eq!(outcome(ClientAuth::Optional, Some(&good)), Ok(subject.clone()));
    assert_eq!(outcome(ClientAuth::Required, Some(&good)), Ok(subject));
    assert_eq!(outcome(ClientAuth::Required, None), refused(CertificateFault::Absent));
    for auth in [ClientAuth::Optional, ClientAuth::Required] {
        assert_eq!(outcome(auth, Some(&revoked)), refused(CertificateFault::Revoked));
        assert_eq!(outcome(auth, Some(&foreign)), refused(CertificateFault::UnknownIssuer));
    }
}

#[test]
fn names_of_a_certificate_are_its_common_names_and_dns_names() {
    let authority = Authority::new("authority");
    let mut settings = settings(&authority);
    settings.client_auth = ClientAuth::Required;
    settings.client_authorities_pem.clone_from(&authority.pem);
    let acceptor = acceptor(&settings);
    let names_of = |common: Option<DnValue>, dns: &[&str]| {
        let mut params = server_params(dns);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        params.distinguished_name = DistinguishedName::new();
        if let Some(common) = common {
            params.distinguished_name.push(DnType::CommonName, common);
        }
        let mut shows = connector(&authority);
        shows.client_certificate = Some(authority.issue(params));
        let mut pair = Pair::new(connect(&shows), acceptor.accept().unwrap());
        pair.run(1 << 20);
        assert!(pair.server.session.peer_identity().is_some());
        pair.server.session.peer_names()
    };
    let text = |text: &str| Some(DnValue::Utf8String(text.to_owned()));
    let whole = |names: &[&str]| Some(names.iter().map(|name| (*name).to_owned()).collect());
    assert_eq!(names_of(text("bob"), &[]), whole(&["bob"]));
    assert_eq!(names_of(text("caf\u{e9}"), &["a.example"]), whole(&["caf\u{e9}", "a.example"]));
    assert_eq!(names_of(None, &["a.example", "*.b.example"]), whole(&["a.example", "*.b.example"]));
    let printable = rcgen::string::PrintableString::try_from("bob").unwrap();
    assert_eq!(names_of(Some(DnValue::PrintableString(printable)), &[]), whole(&["bob"]));
    // As UTF-8, these are strings with NUL.
    let broad = rcgen::string::BmpString::try_from("bob").unwrap();
    assert_eq!(names_of(Some(DnValue::BmpString(broad)), &["a.example"]), None);
    let broad = rcgen::string::UniversalString::try_from("bob").unwrap();
    assert_eq!(names_of(Some(DnValue::UniversalString(broad)), &["a.example"]), None);
    assert_eq!(names_of(text("bob"), &["a.example", "not a name", "b.example"]), None);
    assert_eq!(names_of(text("bob"), &["a.example."]), whole(&["bob", "a.example"]));
}

#[test]
fn rejected_certificate_is_reported_once_and_only_by_its_session() {
    let (authority, other) = (Authority::new("authority"), Authority::new("other"));
    let mut settings = settings(&authority);
    settings.client_auth = ClientAuth::Required;
    settings.client_authorities_pem.clone_from(&authority.pem);
    settings.client_revocations_pem = Some(revocations(&authority, 13));
    let acceptor = acceptor(&settings);
    let own = acceptor.with_own_refusals();
    let meet = |acceptor: &Acceptor, version: Version, shown: Option<&CertificateFiles>| {
        let mut shows = connector(&authority);
        shows.version_max = version;
        shows.client_certificate = shown.cloned();
        let mut pair = Pair::new(connect(&shows), acceptor.accept().unwrap());
        pair.run(1 << 20);
        pair.server.session
    };
    let good = authority.client("good", 7);
    let mut purpose = server_params(&["a.example"]);
    purpose.distinguished_name = subject("server");
    for version in [Version::Tls12, Version::Tls13] {
        for (name, files) in [
            ("revoked", authority.client("revoked", 13)),
            ("foreign", other.client("foreign", 7)),
            ("server", authority.issue(purpose.clone())),
        ] {
            let mut refused = meet(&own, version, Some(&files));
            let wanted = PeerIdentity::of_pem(&files.chain_pem).unwrap();
            assert_eq!(wanted.subject, format!("CN={name}"));
            // The acceptor that `own` was made from has rejected no certificate.
            let mut without = meet(&acceptor, version, None);
            assert_eq!(without.take_refused(), None);
            assert_eq!(refused.take_refused(), Some(wanted), "{version:?}");
            assert_eq!(refused.take_refused(), None, "it must be reported once");
        }
        // A rejected certificate that was not taken must not be reported by the next session.
        let _ = meet(&own, version, Some(&other.client("foreign", 7)));
        let mut accepted = meet(&own, version, Some(&good));
        assert!(accepted.is_established() && accepted.take_refused().is_none());
        assert_eq!(accepted.peer_identity().unwrap().subject, "CN=good");
    }
}

#[test]
fn revoked_server_certificate_is_rejected() {
    let authority = Authority::new("authority");
    let mut params = server_params(&["a.example"]);
    params.serial_number = Some(SerialNumber::from(13u64));
    let mut settings = settings(&authority);
    settings.certificates = vec![authority.issue(params)];
    let acceptor = acceptor(&settings);
    let outcome = |revoked: Option<u64>| {
        let mut asks = connector(&authority);
        asks.revocations_pem = revoked.map(|serial| revocations(&authority, serial));
        let mut pair = Pair::new(connect(&asks), acceptor.accept().unwrap());
        pair.run(1 << 20);
        (pair.client.fault, pair.is_established())
    };
    assert_eq!(outcome(None), (None, true));
    assert_eq!(outcome(Some(7)), (None, true), "another certificate was revoked");
    let refused = Fault::Certificate(CertificateFault::Revoked);
    assert_eq!(outcome(Some(13)), (Some(refused), false));
}

#[test]
fn plain_http_garbage_and_oversized_records_are_distinguished() {
    let authority = Authority::new("authority");
    let acceptor = acceptor(&settings(&authority));
    let first = |bytes: &[u8]| {
        let mut server = End::new(acceptor.accept().unwrap());
        server.receive(&mut bytes.to_vec());
        assert_eq!(server.session.held_bytes(), 0);
        server.receive(&mut b"more".to_vec());
        server.fault
    };
    assert_eq!(first(b"GET / HTTP/1.1\r\n"), Some(Fault::PlainHttp));
    assert_eq!(first(b"G"), Some(Fault::PlainHttp), "one byte is enough");
    assert_eq!(first(b"\x80\x2e\x01\x00\x02"), Some(Fault::NotTls), "SSL 2.0");
    assert_eq!(first(b"\0\0\0\0"), Some(Fault::NotTls));
    assert_eq!(first(b"\x16\x03\x01\xff\xff\x01"), Some(Fault::Oversized));
    assert_eq!(first(b"\x16\x09\x09\x00\x05aaaaa"), Some(Fault::NotTls));
    assert_eq!(first(b"\x16\x03\x01\x00\x06\x01\0\0\x02\x03\x03"), Some(Fault::Malformed));
}

#[test]
fn handshake_fault_has_exactly_one_alert() {
    let authority = Authority::new("authority");
    let acceptor = acceptor(&settings(&authority));
    let overlong = [&b"\x16\x03\x01\x40\x01\x01\0\x3f\xfd\x03\x03"[..], &[0; 16_379]].concat();
    for (records, fault, alert) in [
        // Records that rustls rejects without an alert: a handshake message that is interrupted by another
        // record, or longer than 64 KiB.
        (&b"\x16\x03\x01\0\x02\x01\0\x14\x03\x03\0\x01\x01"[..], Fault::Misbehaved, 10),
        (b"\x16\x03\x01\0\x04\x01\x01\0\0", Fault::Oversized, 50),
        // A record that rustls accepts: longer than 2^14 bytes, without protection.
        (&overlong, Fault::Oversized, 22),
        // A ClientHello that ends early.
        (b"\x16\x03\x01\0\x06\x01\0\0\x02\x03\x03", Fault::Malformed, 50),
    ] {
        for size in [1, 5, records.len()] {
            let mut server = End::new(acceptor.accept().unwrap());
            records.chunks(size).for_each(|part| server.receive(&mut part.to_vec()));
            assert_eq!(server.fault, Some(fault), "{alert}, in pieces of {size}");
            assert_eq!(server.out.len(), 7, "{alert}, in pieces of {size}: {:?}", server.out);
            assert_eq!((server.out[0], &server.out[3..]), (21, &[0, 2, 2, alert][..]));
        }
    }
}

#[test]
fn hello_split_over_records_of_one_byte_is_accepted() {
    let authority = Authority::new("authority");
    let acceptor = acceptor(&AcceptorSettings { keeps_names: true, ..settings(&authority) });
    for size in [1, 7, 1 << 20] {
        let mut pair = Pair::new(connect(&connector(&authority)), acceptor.accept().unwrap());
        let hello = core::mem::take(&mut pair.client.out);
        for byte in &hello[5..] {
            pair.client.out.extend([22, 3, 1, 0, 1, *byte]);
        }
        pair.run(size);
        assert_eq!(pair.server.fault, None, "pieces of {size}");
        assert!(pair.is_established(), "pieces of {size}");
        let name = pair.server.session.take_asked_name();
        assert_eq!(name.as_deref(), Some("a.example"), "pieces of {size}");
    }
}

#[test]
fn damaged_record_ends_the_session() {
    let authority = Authority::new("authority");
    let acceptor = acceptor(&settings(&authority));
    let mut pair = Pair::new(connect(&connector(&authority)), acceptor.accept().unwrap());
    pair.run(1 << 20);
    pair.client.seal(b"whole");
    pair.run(1 << 20);
    pair.client.seal(b"damaged");
    *pair.client.out.last_mut().unwrap() ^= 1;
    pair.run(1 << 20);
    assert_eq!(pair.server.plain, b"whole");
    assert_eq!(pair.server.fault, Some(Fault::Decrypt));
    assert!(matches!(pair.client.fault, Some(Fault::Alert(_))), "{:?}", pair.client.fault);
    assert_eq!(pair.server.session.seal(b"x", &mut Vec::new()), Err(Fault::Decrypt));
}

#[test]
fn random_bytes_never_panic_or_exceed_the_held_bytes_limit() {
    let authority = Authority::new("authority");
    let acceptor = acceptor(&settings(&authority));
    let connector = Connector::new(&connector(&authority), clock()).unwrap();
    let mut random = tidegate_base::Prng::new(42);
    for round in 0..300 {
        let client = connector.connect("a.example").unwrap();
        let mut pair = Pair::new(client, acceptor.accept().unwrap());
        if round % 2 == 0 {
            pair.run(1 << 20);
        }
        for _ in 0..20 {
            let mut bytes: Vec<u8> =
                (0..random.next_u64() % 300).map(|_| random.next_u64() as u8).collect();
            if let [kind, major, minor, ..] = bytes.as_mut_slice() {
                (*kind, *major, *minor) = (20 + *kind % 5, 3, *minor % 5);
            }
            pair.server.receive(&mut bytes.clone());
            pair.client.receive(&mut bytes);
            assert!(pair.server.session.held_bytes() <= HELD_BYTES_MAX);
            assert!(pair.client.session.held_bytes() <= HELD_BYTES_MAX);
        }
    }
}

#[test]
fn invalid_settings_are_rejected_with_their_fault() {
    let authority = Authority::new("authority");
    let good = authority.server(&["a.example"]);
    let other = authority.server(&["a.example"]);
    let with = |chain_pem: &[u8], key_pem: &[u8]| AcceptorSettings {
        certificates: vec![
            good.clone(),
            CertificateFiles { chain_pem: chain_pem.into(), key_pem: key_pem.into(), ocsp: None },
        ],
        ..AcceptorSettings::default()
    };
    let cut = &good.key_pem[..good.key_pem.len() / 2];
    let none = AcceptorSettings::default();
    let no_ca = AcceptorSettings { client_auth: ClientAuth::Required, ..settings(&authority) };
    let cipher = AcceptorSettings { ciphers: vec!["RC4".into()], ..settings(&authority) };
    let group = AcceptorSettings { groups: vec!["sect113r1".into()], ..settings(&authority) };
    let only_12 = vec!["TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256".to_owned()];
    let nothing =
        AcceptorSettings { version_min: Version::Tls13, ciphers: only_12, ..settings(&authority) };
    for (settings, kind, at) in [
        (none, SetupKind::NoCertificate, None),
        (with(b"", &good.key_pem), SetupKind::ChainEmpty, Some(1)),
        (with(&good.key_pem, &good.key_pem), SetupKind::ChainEmpty, Some(1)),
        (with(&good.chain_pem, &other.key_pem), SetupKind::KeyMismatch, Some(1)),
        (with(&good.chain_pem, &good.chain_pem), SetupKind::KeyMissing, Some(1)),
        (with(&good.chain_pem, cut), SetupKind::KeyBroken, Some(1)),
        (no_ca, SetupKind::AuthoritiesEmpty, None),
        (cipher, SetupKind::CipherUnknown, None),
        (group, SetupKind::GroupUnknown, None),
        (nothing, SetupKind::NothingLeft, None),
    ] {
        let fault = Acceptor::new(&settings, None, clock()).unwrap_err();
        assert_eq!((fault.kind, fault.certificate), (kind, at), "{fault}");
    }
}
