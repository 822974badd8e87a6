//! One TLS connection of either role: records in, plain bytes out, and the reverse. RFC 8446 section 5.
//! In: bytes as they came (changed in place), plain bytes. Out: the caller's buffers, `Progress`, `Fault`.
//! Never: keeps a received byte that is not part of a record, or of a handshake message, still incomplete.
//! Limits: `HELD_BYTES_MAX` of those.
//! Invariant: the split of the input into pieces changes neither the plain bytes nor the fault; after a
//! fault every call gives that fault.

use std::sync::Arc;

use rustls::client::UnbufferedClientConnection;
use rustls::pki_types::ServerName;
use rustls::server::UnbufferedServerConnection;
use rustls::unbuffered::{ConnectionState, EncodeError, EncryptError, UnbufferedStatus};
use rustls::{ClientConfig, CommonState, Error, HandshakeKind, ServerConfig};

use super::choice::{Version, cipher_name};
use super::fault::{CertificateFault, Fault};
use super::hello::read_server_name;
use super::identity::PeerIdentity;
use super::refusal::LastRefused;

/// Bytes held of what came in part: the largest handshake message that is reassembled (64 KiB, RFC 8446
/// section 4 allows more) and a whole record behind it.
pub const HELD_BYTES_MAX: usize = 65_536 + RECORD_BYTES_MAX;
/// The largest record: header, content, and what TLS 1.2 may add (RFC 5246 section 6.2.3).
const RECORD_BYTES_MAX: usize = HEADER_BYTES + CONTENT_BYTES_MAX + 2048;
/// A record's header: type, version, length.
const HEADER_BYTES: usize = 5;
/// Plain bytes of one record.
const CONTENT_BYTES_MAX: usize = 16_384;
/// What sealing adds to a record at most: header, explicit nonce (TLS 1.2), type (TLS 1.3), tag.
const SEAL_BYTES_MAX: usize = 32;
/// A sealed alert.
const ALERT_BYTES_MAX: usize = 2 + SEAL_BYTES_MAX;

/// The most bytes that `plain_bytes` become when sealed.
#[must_use]
pub const fn sealed_bytes_max(plain_bytes: usize) -> usize {
    plain_bytes + (plain_bytes / CONTENT_BYTES_MAX + 1) * SEAL_BYTES_MAX
}

/// One TLS connection.
#[derive(Debug)]
pub struct TlsSession {
    side: Side,
    /// INVARIANT: empty (without memory) or the incomplete end of what came.
    held: Vec<u8>,
    stage: Stage,
    name: AskedName,
    /// Where a client's certificate is kept that is refused.
    refused: Option<Arc<LastRefused>>,
    /// The handshake was completed, whatever came then.
    was_established: bool,
    peer_closed: bool,
    close_sent: bool,
}

/// The name that a client asked for.
#[derive(Debug)]
enum AskedName {
    Ignored,
    Awaited,
    Known(Box<str>),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    /// Not a byte has come.
    ExpectFirst,
    /// The handshake is under way.
    ExpectHandshake,
    /// Plain bytes may go both ways.
    Established,
    /// Nothing more is to be had.
    Failed(Fault),
}

enum Side {
    Server(Box<UnbufferedServerConnection>),
    Client(Box<UnbufferedClientConnection>),
}

/// What `handle_bytes` brought about, besides plain bytes and bytes to send.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Progress {
    /// The handshake was completed by these bytes.
    pub established: bool,
    /// The peer said that it sends no more (close_notify) in these bytes.
    pub peer_closed: bool,
}

/// How the peer's bytes came to their end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ending {
    /// With close_notify: nothing is missing.
    Clean,
    /// Without: somebody may have cut the end off (RFC 8446 section 6.1).
    Truncated,
}

/// What was negotiated.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Facts<'a> {
    /// The version.
    pub version: Version,
    /// The cipher suite's IANA name.
    pub cipher: &'static str,
    /// The application protocol, if one was.
    pub alpn: Option<&'a [u8]>,
    /// An earlier session was resumed.
    pub resumed: bool,
}

impl TlsSession {
    pub(super) fn server(
        config: Arc<ServerConfig>,
        keeps_name: bool,
        refused: Option<Arc<LastRefused>>,
    ) -> Result<Self, Fault> {
        let connection = UnbufferedServerConnection::new(config).map_err(|_| Fault::Bug)?;
        let name = if keeps_name { AskedName::Awaited } else { AskedName::Ignored };
        Ok(Self { name, refused, ..Self::new(Side::Server(Box::new(connection))) })
    }

    pub(super) fn client(
        config: Arc<ClientConfig>,
        name: ServerName<'static>,
    ) -> Result<Self, Fault> {
        let connection = UnbufferedClientConnection::new(config, name).map_err(|_| Fault::Bug)?;
        let mut session = Self::new(Side::Client(Box::new(connection)));
        session.stage = Stage::ExpectHandshake;
        Ok(session)
    }

    fn new(side: Side) -> Self {
        let stage = Stage::ExpectFirst;
        let name = AskedName::Ignored;
        Self {
            side,
            held: Vec::new(),
            stage,
            name,
            refused: None,
            was_established: false,
            peer_closed: false,
            close_sent: false,
        }
    }

    /// Takes received bytes, all of them (they are changed in place). Appends plain bytes to `plain` and
    /// what must be sent to `out`. A client's first call is with no bytes.
    ///
    /// # Errors
    /// The fault that ends the connection; the alert for the peer is in `out`, and plain bytes that
    /// came before it are in `plain`.
    pub fn handle_bytes(
        &mut self,
        input: &mut [u8],
        plain: &mut Vec<u8>,
        out: &mut Vec<u8>,
    ) -> Result<Progress, Fault> {
        match self.stage {
            Stage::Failed(fault) => return Err(fault),
            Stage::ExpectFirst => {
                if let Some(first) = input.first() {
                    if *first != HANDSHAKE {
                        return self.fail(not_tls(*first));
                    }
                    self.stage = Stage::ExpectHandshake;
                }
            }
            Stage::ExpectHandshake | Stage::Established => {}
        }
        let was = (self.is_established(), self.peer_closed);
        let mut input = input;
        // First the rest of a header that is held in part, then that of its record.
        while !self.held.is_empty() && !input.is_empty() {
            let taken = self.wanted_bytes().min(input.len());
            let (now, later) = input.split_at_mut(taken);
            self.held.extend_from_slice(now);
            input = later;
            let mut held = core::mem::take(&mut self.held);
            let used = self.process(&mut held, plain, out)?;
            held.drain(..used);
            self.hold(held, &[])?;
        }
        if self.held.is_empty() && (!input.is_empty() || was == (false, false)) {
            let used = self.process(input, plain, out)?;
            let rest = input.get(used..).unwrap_or_default();
            self.hold(Vec::new(), rest)?;
        }
        Ok(Progress {
            established: self.is_established() && !was.0,
            peer_closed: self.peer_closed && !was.1,
        })
    }

    /// Appends `plain`, sealed, to `out`.
    ///
    /// # Errors
    /// `Bug` before the handshake is complete or after `close_notify`; `Exhausted` when the keys are.
    pub fn seal(&mut self, plain: &[u8], out: &mut Vec<u8>) -> Result<(), Fault> {
        self.write(out, sealed_bytes_max(plain.len()), Write::Plain(plain))
    }

    /// Appends the alert that says that this side sends no more. Does nothing before the handshake is
    /// complete, when it was sent already, or after a fault.
    pub fn close_notify(&mut self, out: &mut Vec<u8>) {
        if self.is_established() && !self.close_sent {
            // The only fault possible is that nothing more can be sealed: then there is no way to say it.
            let _ = self.write(out, ALERT_BYTES_MAX, Write::Close);
            self.close_sent = true;
        }
    }

    /// Whether the handshake is complete.
    #[must_use]
    pub fn is_established(&self) -> bool {
        self.stage == Stage::Established
    }

    /// Whether the handshake was completed, be there a fault since then or not: a fault may come in the same
    /// bytes as the end of the handshake.
    #[must_use]
    pub fn was_established(&self) -> bool {
        self.was_established
    }

    /// How it is to be judged that the peer's bytes end here.
    #[must_use]
    pub fn ending(&self) -> Ending {
        if self.peer_closed { Ending::Clean } else { Ending::Truncated }
    }

    /// What was negotiated; `None` before the handshake is complete.
    #[must_use]
    pub fn facts(&self) -> Option<Facts<'_>> {
        let state = self.side.state();
        if !self.was_established {
            return None;
        }
        Some(Facts {
            version: Version::of(state.protocol_version()?)?,
            cipher: cipher_name(state.negotiated_cipher_suite()?),
            alpn: state.alpn_protocol(),
            resumed: state.handshake_kind() == Some(HandshakeKind::Resumed),
        })
    }

    /// Takes the name that the client asked for, where the acceptor has it remembered and there was one.
    pub fn take_asked_name(&mut self) -> Option<Box<str>> {
        match core::mem::replace(&mut self.name, AskedName::Ignored) {
            AskedName::Known(name) => Some(name),
            AskedName::Ignored | AskedName::Awaited => None,
        }
    }

    /// Who the peer proved to be, when it showed a certificate. Computed anew on each call: ask once.
    #[must_use]
    pub fn peer_identity(&self) -> Option<PeerIdentity> {
        let chain = self.side.state().peer_certificates()?;
        chain.first().map(|certificate| PeerIdentity::of(certificate))
    }

    /// Who the certificate is about that was refused, where a client showed one: to be asked once, right after
    /// the fault.
    #[must_use]
    pub fn take_refused(&mut self) -> Option<PeerIdentity> {
        match self.stage {
            // Whoever showed none has none that could be refused; what is kept is somebody else's.
            Stage::Failed(Fault::Certificate(CertificateFault::Absent)) => None,
            Stage::Failed(Fault::Certificate(_)) => self.refused.take()?.take(),
            _ => None,
        }
    }

    /// Bytes held of something incomplete.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        self.held.len()
    }

    /// How many bytes complete the record that is held in part; all, while handshake messages may be
    /// spread over records.
    fn wanted_bytes(&self) -> usize {
        match (self.stage, self.held.get(3..HEADER_BYTES)) {
            (Stage::Established, Some(&[high, low])) => {
                let length = usize::from(u16::from_be_bytes([high, low]));
                (HEADER_BYTES + length).saturating_sub(self.held.len()).max(1)
            }
            (Stage::Established, _) => HEADER_BYTES - self.held.len(),
            _ => usize::MAX,
        }
    }

    fn hold(&mut self, mut held: Vec<u8>, rest: &[u8]) -> Result<(), Fault> {
        if self.peer_closed {
            // RFC 8446 section 6.1: what comes after close_notify is ignored.
            return Ok(());
        }
        if held.len() + rest.len() > HELD_BYTES_MAX {
            return self.fail(Fault::Oversized);
        }
        held.extend_from_slice(rest);
        if !held.is_empty() {
            self.held = held;
        }
        Ok(())
    }

    /// Processes records from `input`; returns how many bytes are done with.
    fn process(
        &mut self,
        input: &mut [u8],
        plain: &mut Vec<u8>,
        out: &mut Vec<u8>,
    ) -> Result<usize, Fault> {
        if matches!(self.name, AskedName::Awaited)
            && self.stage == Stage::ExpectHandshake
            && let Some(name) = read_server_name(input)
        {
            self.name = AskedName::Known(name.into_boxed_str());
        }
        let mut used = 0;
        loop {
            let rest = input.get_mut(used..).unwrap_or_default();
            let step = self.side.step(rest, plain, out, Write::Nothing);
            used += step.used;
            match step.next {
                Next::Again => {}
                Next::PeerClosed => self.peer_closed = true,
                Next::Blocked => return Ok(used),
                Next::Ready => {
                    self.stage = Stage::Established;
                    self.was_established = true;
                    return Ok(used);
                }
                Next::Failed(error) => {
                    self.was_established |= !self.side.state().is_handshaking();
                    self.send_alert(input.get_mut(used..).unwrap_or_default(), out);
                    return self.fail(Fault::from(error));
                }
                Next::Unsealed(_) => return self.fail(Fault::Bug),
            }
        }
    }

    /// Lets the library write the alert that goes with a fault. It looks at what it has to send before it
    /// looks at the bytes, and must be given the same ones: it may still point into them.
    fn send_alert(&mut self, rest: &mut [u8], out: &mut Vec<u8>) {
        let mut nothing = Vec::new();
        while self.side.state().wants_write() {
            self.side.step(rest, &mut nothing, out, Write::Nothing);
        }
    }

    fn write(
        &mut self,
        out: &mut Vec<u8>,
        bytes_max: usize,
        write: Write<'_>,
    ) -> Result<(), Fault> {
        if let Stage::Failed(fault) = self.stage {
            return Err(fault);
        }
        if self.stage != Stage::Established || self.close_sent {
            return Err(Fault::Bug);
        }
        out.reserve(bytes_max);
        let mut held = core::mem::take(&mut self.held);
        let mut nothing = Vec::new();
        let result = loop {
            match self.side.step(&mut held, &mut nothing, out, write).next {
                Next::Again | Next::PeerClosed => {}
                Next::Ready => break Ok(()),
                Next::Failed(error) => break Err(Fault::from(error)),
                Next::Unsealed(EncryptError::EncryptExhausted) => break Err(Fault::Exhausted),
                Next::Unsealed(_) | Next::Blocked => break Err(Fault::Bug),
            }
        };
        self.held = held;
        if let Err(fault) = result {
            return self.fail(fault);
        }
        Ok(())
    }

    fn fail<T>(&mut self, fault: Fault) -> Result<T, Fault> {
        self.stage = Stage::Failed(fault);
        self.held = Vec::new();
        Err(fault)
    }
}

/// Content type of handshake records: what a connection begins with.
const HANDSHAKE: u8 = 22;

/// What else begins with that byte: every method of HTTP begins with a capital letter.
const fn not_tls(first: u8) -> Fault {
    if first.is_ascii_uppercase() { Fault::PlainHttp } else { Fault::NotTls }
}

/// What to write when the session can.
#[derive(Clone, Copy)]
enum Write<'a> {
    Nothing,
    Plain(&'a [u8]),
    Close,
}

/// One state of the library's, dealt with.
struct Step {
    /// Bytes of the input that are done with.
    used: usize,
    next: Next,
}

enum Next {
    Again,
    PeerClosed,
    /// More must come first.
    Blocked,
    /// Plain bytes can be sealed (and were, if asked).
    Ready,
    Failed(Error),
    Unsealed(EncryptError),
}

impl Side {
    fn state(&self) -> &CommonState {
        match self {
            Self::Server(connection) => connection,
            Self::Client(connection) => connection,
        }
    }

    fn step(
        &mut self,
        input: &mut [u8],
        plain: &mut Vec<u8>,
        out: &mut Vec<u8>,
        write: Write<'_>,
    ) -> Step {
        match self {
            Self::Server(connection) => {
                let status = connection.process_tls_records(input);
                step(status, plain, out, write)
            }
            Self::Client(connection) => {
                let status = connection.process_tls_records(input);
                step(status, plain, out, write)
            }
        }
    }
}

impl core::fmt::Debug for Side {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Self::Server(_) => "Server",
            Self::Client(_) => "Client",
        })
    }
}

fn step<Data>(
    status: UnbufferedStatus<'_, '_, Data>,
    plain: &mut Vec<u8>,
    out: &mut Vec<u8>,
    write: Write<'_>,
) -> Step {
    let mut used = status.discard;
    let next = match status.state {
        Ok(ConnectionState::ReadTraffic(mut traffic)) => {
            while let Some(record) = traffic.next_record() {
                match record {
                    Ok(record) => {
                        used += record.discard;
                        plain.extend_from_slice(record.payload);
                    }
                    Err(error) => return Step { used, next: Next::Failed(error) },
                }
            }
            Next::Again
        }
        Ok(ConnectionState::EncodeTlsData(mut data)) => {
            let start = out.len();
            if let Err(EncodeError::InsufficientSize(size)) = data.encode(&mut []) {
                out.resize(start + size.required_size, 0);
                let room = out.get_mut(start..).unwrap_or_default();
                let written = data.encode(room).unwrap_or(0);
                out.truncate(start + written);
            }
            Next::Again
        }
        Ok(ConnectionState::TransmitTlsData(data)) => {
            // It is in `out`, whose owner sends it in order.
            data.done();
            Next::Again
        }
        Ok(ConnectionState::PeerClosed) => Next::PeerClosed,
        Ok(ConnectionState::WriteTraffic(mut traffic)) => {
            let start = out.len();
            let bytes_max = match write {
                Write::Nothing => return Step { used, next: Next::Ready },
                Write::Plain(bytes) => sealed_bytes_max(bytes.len()),
                Write::Close => ALERT_BYTES_MAX,
            };
            out.resize(start + bytes_max, 0);
            let room = out.get_mut(start..).unwrap_or_default();
            let written = match write {
                Write::Plain(bytes) => traffic.encrypt(bytes, room),
                Write::Nothing | Write::Close => traffic.queue_close_notify(room),
            };
            out.truncate(start + written.as_ref().copied().unwrap_or(0));
            match written {
                Ok(_) => Next::Ready,
                Err(error) => Next::Unsealed(error),
            }
        }
        // Closed in both directions, or waiting for the peer. Early data is never offered.
        Ok(_) => Next::Blocked,
        Err(error) => Next::Failed(error),
    };
    Step { used, next }
}
