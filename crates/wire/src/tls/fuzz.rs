//! Bodies of the fuzz targets `records` (a client and a server exchange records, which are altered in transit) and
//! `client_hello` (the server name of a handshake that is not decrypted).
//! In: any bytes, read as steps. Out: nothing; panics if a check fails.
//! Checks: no panic, at most `HELD_BYTES_MAX` bytes held, no plain byte that the other end did not seal, and
//! an end that failed stays failed.
//! Never: called on the data path.

use super::{
    Acceptor, AcceptorSettings, CertificateFiles, Connector, ConnectorSettings, Fault,
    HELD_BYTES_MAX, HelloPeek, Peeked, Roots, TicketKeys, TlsClock, TlsSession,
};
use std::sync::{Arc, OnceLock};

/// 2027-01-01, when the certificate is valid.
const UNIX_SECONDS: u64 = 1_798_761_600;
/// Bytes of one step: the action (one), the offset (two), and a byte for the action (one).
const STEP_BYTES: usize = 4;
const STEPS_MAX: usize = 64;
/// Looks at `data` as the beginning of a connection whose server name is wanted, whole and in pieces.
pub fn fuzz_client_hello(data: &[u8]) {
    let whole = peek(data, data.len().max(1));
    for step in [1, 2, 7] {
        assert_eq!(peek(data, step), whole, "pieces of {step} bytes");
    }
}

/// The result after the last of these pieces, and the name.
fn peek(data: &[u8], step: usize) -> (&'static str, Option<String>) {
    let (mut state, mut scratch, mut end) = (HelloPeek::default(), Vec::new(), 0);
    loop {
        match state.look(&data[..end], &mut scratch) {
            Peeked::Incomplete if end < data.len() => end = (end + step).min(data.len()),
            Peeked::Incomplete => return ("incomplete", None),
            Peeked::Hello(name) => return ("hello", name.map(str::to_owned)),
            Peeked::NotTls => return ("not TLS", None),
            Peeked::Malformed => return ("malformed", None),
        }
    }
}

const CLIENT_MESSAGE: &[u8] = b"from the client";
const SERVER_MESSAGE: &[u8] = b"from the server";

/// Runs a handshake and an exchange of messages. The steps in `data` alter, truncate and extend the bytes.
pub fn fuzz_records(data: &[u8]) {
    let (acceptor, connector) = sides();
    let client = connector.connect("a.example").expect("the name is valid");
    let server = acceptor.accept().expect("the acceptor can create a session");
    let mut client = End::new(client, SERVER_MESSAGE);
    let mut server = End::new(server, CLIENT_MESSAGE);
    client.receive(&mut []);
    for step in data.chunks_exact(STEP_BYTES).take(STEPS_MAX) {
        let mut to_server = core::mem::take(&mut client.out);
        let mut to_client = core::mem::take(&mut server.out);
        let bytes = if step[0] & 1 == 0 { &mut to_server } else { &mut to_client };
        alter(bytes, step);
        // A network may deliver pieces of any size.
        let piece = usize::from(step[0] >> 4) * 37 + 1;
        to_server.chunks_mut(piece).for_each(|part| server.receive(part));
        to_client.chunks_mut(piece).for_each(|part| client.receive(part));
        client.seal(CLIENT_MESSAGE);
        server.seal(SERVER_MESSAGE);
    }
}

/// Applies a step to bytes in transit. Several kinds of step do nothing, so that handshakes can complete.
fn alter(bytes: &mut Vec<u8>, step: &[u8]) {
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
        // Add the start of a record of any type and length.
        4 => bytes.extend_from_slice(&[step[3], 3, 3, step[1], step[2], 0, 0]),
        _ => {}
    }
}

struct End {
    session: TlsSession,
    /// The message that the other end seals repeatedly.
    expected: &'static [u8],
    /// Plain bytes of the last call of `receive`.
    received: Vec<u8>,
    /// Bytes to send.
    out: Vec<u8>,
    /// The first fault.
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
        assert_eq!(self.received.len() % self.expected.len(), 0, "received part of a record");
        for message in self.received.chunks(self.expected.len()) {
            assert_eq!(message, self.expected);
        }
        match (self.fault, outcome) {
            (Some(_), Ok(_)) => panic!("handle_bytes succeeded after a fault"),
            (None, Err(fault)) => self.fault = Some(fault),
            _ => {}
        }
    }

    fn seal(&mut self, plain: &[u8]) {
        if self.session.is_established() {
            let outcome = self.session.seal(plain, &mut self.out);
            assert!(self.fault.is_none() || outcome.is_err(), "seal succeeded after a fault");
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
        let tickets = TicketKeys::random(UNIX_SECONDS).expect("the system provides randomness");
        let acceptor = Acceptor::new(&settings, Some(Arc::new(tickets)), clock.clone());
        let settings =
            ConnectorSettings { roots: Roots::Unverified, ..ConnectorSettings::default() };
        let connector = Connector::new(&settings, clock).expect("the settings are valid");
        (acceptor.expect("the settings are valid"), connector)
    })
}
