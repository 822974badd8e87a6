//! Body of the fuzz target `records`: two ends talk, and what passes between them is changed on the way.
//! In: any bytes, read as steps. Out: nothing; a broken promise panics.
//! Promises: no panic, no more held than `HELD_BYTES_MAX`, no plain byte that the other end did not seal,
//! and an end that failed stays failed.
//! Never: part of the data path.

use super::{
    Acceptor, AcceptorSettings, CertificateFiles, Connector, ConnectorSettings, Fault,
    HELD_BYTES_MAX, Roots, TicketKeys, TlsClock, TlsSession,
};
use std::sync::{Arc, OnceLock};

/// 2027-01-01, when the certificate is good.
const UNIX_SECONDS: u64 = 1_798_761_600;
/// Each step is that many bytes: what is done, where (two), and with which byte.
const STEP_BYTES: usize = 4;
const STEPS_MAX: usize = 64;
const CLIENT_SAYS: &[u8] = b"from the client";
const SERVER_SAYS: &[u8] = b"from the server";

/// Runs a handshake and a conversation, whose bytes the steps in `data` change, cut and add to.
pub fn fuzz_records(data: &[u8]) {
    let (acceptor, connector) = sides();
    let mut client = End::new(connector.connect("a.example").expect("a name"), SERVER_SAYS);
    let mut server = End::new(acceptor.accept().expect("a session"), CLIENT_SAYS);
    client.receive(&mut []);
    for step in data.chunks_exact(STEP_BYTES).take(STEPS_MAX) {
        let mut to_server = core::mem::take(&mut client.out);
        let mut to_client = core::mem::take(&mut server.out);
        let bytes = if step[0] & 1 == 0 { &mut to_server } else { &mut to_client };
        change(bytes, step);
        // An honest way brings pieces of any size.
        let piece = usize::from(step[0] >> 4) * 37 + 1;
        to_server.chunks_mut(piece).for_each(|part| server.receive(part));
        to_client.chunks_mut(piece).for_each(|part| client.receive(part));
        client.seal(CLIENT_SAYS);
        server.seal(SERVER_SAYS);
    }
}

/// What a step does to bytes under way; most steps leave them whole, so that conversations get on.
fn change(bytes: &mut Vec<u8>, step: &[u8]) {
    let at = usize::from(u16::from_be_bytes([step[1], step[2]]));
    match step[0] >> 1 & 7 {
        0 => {
            if let Some(byte) = bytes.get_mut(at) {
                *byte ^= step[3];
            }
        }
        1 => bytes.truncate(at),
        2 => bytes.insert(at.min(bytes.len()), step[3]),
        3 => {
            let copied = bytes.get(at..).unwrap_or_default().to_vec();
            bytes.extend_from_slice(&copied);
        }
        // A record of its own, of any kind and length.
        4 => bytes.extend_from_slice(&[step[3], 3, 3, step[1], step[2], 0, 0]),
        _ => {}
    }
}

struct End {
    session: TlsSession,
    /// What the other end seals, again and again.
    expected: &'static [u8],
    received: Vec<u8>,
    out: Vec<u8>,
    fault: Option<Fault>,
}

impl End {
    fn new(session: TlsSession, expected: &'static [u8]) -> Self {
        Self { session, expected, received: Vec::new(), out: Vec::new(), fault: None }
    }

    fn receive(&mut self, bytes: &mut [u8]) {
        self.received.clear();
        let outcome = self.session.handle_bytes(bytes, &mut self.received, &mut self.out);
        assert!(self.session.held_bytes() <= HELD_BYTES_MAX, "{} held", self.session.held_bytes());
        assert_eq!(self.received.len() % self.expected.len(), 0, "a part of a record came through");
        for said in self.received.chunks(self.expected.len()) {
            assert_eq!(said, self.expected);
        }
        match (self.fault, outcome) {
            (Some(_), Ok(_)) => panic!("an end that failed goes on"),
            (None, Err(fault)) => self.fault = Some(fault),
            _ => {}
        }
    }

    fn seal(&mut self, plain: &[u8]) {
        if self.session.is_established() {
            let outcome = self.session.seal(plain, &mut self.out);
            assert!(self.fault.is_none() || outcome.is_err(), "an end that failed seals on");
        }
    }
}

fn sides() -> &'static (Acceptor, Connector) {
    static SIDES: OnceLock<(Acceptor, Connector)> = OnceLock::new();
    SIDES.get_or_init(|| {
        let clock = TlsClock::default();
        clock.set(UNIX_SECONDS);
        let settings = AcceptorSettings {
            certificates: vec![CertificateFiles {
                chain_pem: include_bytes!("../../../../fuzz/records/certificate.pem").to_vec(),
                key_pem: include_bytes!("../../../../fuzz/records/key.pem").to_vec(),
                ocsp: None,
            }],
            ..AcceptorSettings::default()
        };
        let tickets = Arc::new(TicketKeys::random(UNIX_SECONDS).expect("random keys"));
        let acceptor = Acceptor::new(&settings, Some(tickets), clock.clone()).expect("an acceptor");
        let settings = ConnectorSettings { roots: Roots::Nobody, ..ConnectorSettings::default() };
        (acceptor, Connector::new(&settings, clock).expect("a connector"))
    })
}
