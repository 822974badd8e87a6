//! One TLS connection of either role: opens received records and seals plain bytes. RFC 8446 section 5.
//! In: received bytes (changed in place), plain bytes. Out: the caller's buffers, `Progress`, `Fault`.
//! Never: keeps a received byte, except those of an incomplete record or handshake message.
//! Limits: `HELD_BYTES_MAX` for incomplete records and handshake messages.
//! Invariant: how the input is split into pieces changes neither the plain bytes nor the fault. After a
//! fault, every call returns the same fault.

use std::sync::Arc;

use rustls::client::UnbufferedClientConnection;
use rustls::pki_types::ServerName;
use rustls::server::UnbufferedServerConnection;
use rustls::unbuffered::{
    ConnectionState, EncodeError, EncryptError, UnbufferedStatus, WriteTraffic,
};
use rustls::{AlertDescription, ClientConfig, CommonState, Error, HandshakeKind, ServerConfig};

use super::choice::{Version, cipher_name};
use super::fault::{CertificateFault, Fault};
use super::hello::HelloReader;
use super::identity::PeerIdentity;
use super::names;
use super::records::{self, CONTENT_BYTES_MAX, HANDSHAKE, HEADER_BYTES, PlainRecords};
use super::refusal::LastRefused;

/// Bytes held of incomplete input: the largest handshake message that is reassembled (64 KiB; RFC 8446
/// section 4 allows more) and a whole record after it.
pub const HELD_BYTES_MAX: usize = 65_536 + RECORD_BYTES_MAX;
/// The same for a client after the handshake: it may only send a KeyUpdate of 5 bytes, at worst in a record for each byte.
const HELD_OF_CLIENT_BYTES_MAX: usize = RECORD_BYTES_MAX + 5 * (HEADER_BYTES + 1 + SEAL_BYTES_MAX);
/// Bytes of the largest record: header, content, and the overhead of TLS 1.2 (RFC 5246 section 6.2.3).
const RECORD_BYTES_MAX: usize = HEADER_BYTES + CONTENT_BYTES_MAX + 2048;
/// Bytes that sealing adds to a record: header, explicit nonce (TLS 1.2), type (TLS 1.3), tag.
const SEAL_BYTES_MAX: usize = 32;
/// Bytes of a sealed alert.
const ALERT_BYTES_MAX: usize = 2 + SEAL_BYTES_MAX;

/// An upper bound for `plain_bytes` plain bytes when sealed, unless a key update is sent with them.
#[must_use]
pub const fn sealed_bytes_max(plain_bytes: usize) -> usize {
    plain_bytes + (plain_bytes / CONTENT_BYTES_MAX + 1) * SEAL_BYTES_MAX
}

/// One TLS connection.
#[derive(Debug)]
pub struct TlsSession {
    side: Side,
    /// INVARIANT: empty and without memory, or the incomplete end of the received bytes; up to
    /// `HELD_BYTES_MAX`.
    held: Vec<u8>,
    stage: Stage,
    /// The records received before the version was negotiated.
    records: PlainRecords,
    name: RequestedName,
    /// The place where the acceptor keeps a rejected client certificate; `None` if none are requested.
    refused: Option<Arc<LastRefused>>,
    /// The handshake was completed, even if a fault came later.
    was_established: bool,
    /// The peer's close_notify was received; bytes after it are ignored.
    peer_closed: bool,
    /// Our close_notify was sent; nothing may be sealed after it.
    close_sent: bool,
}

/// The name that a client requested.
#[derive(Debug)]
enum RequestedName {
    /// The name is not wanted, was taken, or the session is a client's.
    Ignored,
    /// The ClientHello is not complete.
    Awaited(HelloReader),
    /// The name was read and not taken yet.
    Known(Box<str>),
}

impl RequestedName {
    /// Takes the next content of the records that contain the ClientHello.
    fn handle_hello(&mut self, content: &[u8]) {
        if let Self::Awaited(reader) = self
            && let Some(name) = reader.take(content)
        {
            *self = name.map_or(Self::Ignored, |name| Self::Known(name.into_boxed_str()));
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    /// No byte has been received.
    ExpectFirst,
    /// The handshake is in progress.
    ExpectHandshake,
    /// Plain bytes may be sent in both directions.
    Established,
    /// The session failed; every call returns this fault.
    Failed(Fault),
}

enum Side {
    Server(Box<UnbufferedServerConnection>),
    Client(Box<UnbufferedClientConnection>),
}

/// The events in one call of `handle_bytes`.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Progress {
    /// These bytes completed the handshake.
    pub established: bool,
    /// These bytes contained the peer's close_notify: it will send no more.
    pub peer_closed: bool,
}

/// How the peer's bytes ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ending {
    /// With close_notify: nothing is missing.
    Clean,
    /// Without close_notify: an attacker may have truncated them (RFC 8446 section 6.1).
    Truncated,
}

/// The negotiated parameters.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Facts<'a> {
    /// The version.
    pub version: Version,
    /// The IANA name of the cipher suite.
    pub cipher: &'static str,
    /// The application protocol, if one was negotiated.
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
        let name = if keeps_name {
            RequestedName::Awaited(HelloReader::default())
        } else {
            RequestedName::Ignored
        };
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
        let name = RequestedName::Ignored;
        Self {
            side,
            held: Vec::new(),
            stage,
            records: PlainRecords::default(),
            name,
            refused: None,
            was_established: false,
            peer_closed: false,
            close_sent: false,
        }
    }

    /// Handles received bytes; consumes all of them and changes them in place. Appends plain bytes to
    /// `plain`, and bytes to send to `out`. The first call for a client must have empty input.
    ///
    /// # Errors
    /// The fault that ends the connection. The alert for the peer is in `out`, and plain bytes received
    /// before the fault are in `plain`.
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
        if self.side.state().protocol_version().is_none() {
            let name = &mut self.name;
            if self.records.find_overlong(input, |content| name.handle_hello(content)) {
                records::append_alert(AlertDescription::RecordOverflow, out);
                return self.fail(Fault::Oversized);
            }
        }
        let was = (self.is_established(), self.peer_closed);
        let mut input = input;
        // First complete a partial header, then its record.
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

    /// Seals `plain` and appends the records to `out`.
    ///
    /// # Errors
    /// `Bug` before the handshake is complete or after `close_notify`; `Exhausted` if the keys have reached
    /// their limit.
    pub fn seal(&mut self, plain: &[u8], out: &mut Vec<u8>) -> Result<(), Fault> {
        self.write(out, sealed_bytes_max(plain.len()), Write::Plain(plain))
    }

    /// Appends close_notify, the alert that ends the bytes of this side. Does nothing before the handshake
    /// is complete, if the alert was already sent, or after a fault.
    pub fn close_notify(&mut self, out: &mut Vec<u8>) {
        if self.is_established() && !self.close_sent {
            // The only possible fault is that the keys have reached their limit. Then no alert can be sent.
            let _ = self.write(out, ALERT_BYTES_MAX, Write::Close);
            self.close_sent = true;
        }
    }

    /// Whether the handshake is complete.
    #[must_use]
    pub fn is_established(&self) -> bool {
        self.stage == Stage::Established
    }

    /// Whether the handshake was completed, even if the session failed later: a fault may occur in the same
    /// bytes as the end of the handshake.
    #[must_use]
    pub fn was_established(&self) -> bool {
        self.was_established
    }

    /// How the peer's bytes ended, if they end here.
    #[must_use]
    pub fn ending(&self) -> Ending {
        if self.peer_closed { Ending::Clean } else { Ending::Truncated }
    }

    /// The negotiated parameters; `None` before the handshake is complete.
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

    /// Takes the name that the client requested. `None` if it requested none, or if the settings of the
    /// acceptor do not keep names.
    pub fn take_asked_name(&mut self) -> Option<Box<str>> {
        match core::mem::replace(&mut self.name, RequestedName::Ignored) {
            RequestedName::Known(name) => Some(name),
            RequestedName::Ignored | RequestedName::Awaited(_) => None,
        }
    }

    /// The identity in the certificate that the peer presented, if any. Each call computes it again, so
    /// callers should keep the result.
    #[must_use]
    pub fn peer_identity(&self) -> Option<PeerIdentity> {
        let chain = self.side.state().peer_certificates()?;
        chain.first().map(|certificate| PeerIdentity::of(certificate))
    }

    /// The common names and DNS names in the certificate that the peer presented; `None` if there is no certificate, or if it has
    /// names that cannot be read.
    #[must_use]
    pub fn peer_names(&self) -> Option<Vec<String>> {
        let chain = self.side.state().peer_certificates()?;
        names::names_of(chain.first()?)
    }

    /// Takes the identity in the client certificate that was rejected, if the client presented one. Call it
    /// once, right after the fault.
    #[must_use]
    pub fn take_refused(&mut self) -> Option<PeerIdentity> {
        match self.stage {
            // A client without a certificate had none rejected: the kept one is from another session.
            Stage::Failed(Fault::Certificate(CertificateFault::Absent)) => None,
            Stage::Failed(Fault::Certificate(_)) => self.refused.take()?.take(),
            _ => None,
        }
    }

    /// Bytes held of an incomplete record or handshake message.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        self.held.len()
    }

    /// How many bytes are missing from the held header or record. Unlimited during the handshake, and also
    /// if a whole record is held, because then a handshake message is split over several records.
    pub(super) fn wanted_bytes(&self) -> usize {
        match (self.stage, self.held.get(3..HEADER_BYTES)) {
            (Stage::Established, Some(&[high, low])) => {
                let record_bytes = HEADER_BYTES + usize::from(u16::from_be_bytes([high, low]));
                match record_bytes.checked_sub(self.held.len()) {
                    None | Some(0) => usize::MAX,
                    Some(missing_bytes) => missing_bytes,
                }
            }
            (Stage::Established, _) => HEADER_BYTES - self.held.len(),
            _ => usize::MAX,
        }
    }

    fn hold(&mut self, mut held: Vec<u8>, rest: &[u8]) -> Result<(), Fault> {
        if self.peer_closed {
            // RFC 8446 section 6.1: bytes after close_notify are ignored.
            return Ok(());
        }
        let most = match (&self.side, self.stage) {
            (Side::Server(_), Stage::Established) => HELD_OF_CLIENT_BYTES_MAX,
            _ => HELD_BYTES_MAX,
        };
        if held.len() + rest.len() > most {
            return self.fail(Fault::Oversized);
        }
        held.extend_from_slice(rest);
        if !held.is_empty() {
            self.held = held;
        }
        Ok(())
    }

    /// Processes records from `input`; returns how many bytes were consumed.
    fn process(
        &mut self,
        input: &mut [u8],
        plain: &mut Vec<u8>,
        out: &mut Vec<u8>,
    ) -> Result<usize, Fault> {
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
                    let (fault, sent) = (Fault::from(error), out.len());
                    self.send_alert(input.get_mut(used..).unwrap_or_default(), out);
                    // For some faults rustls writes no alert (RFC 8446 section 6.2: should be sent).
                    if self.sends_plaintext()
                        && !records::has_alert(out.get(sent..).unwrap_or_default())
                        && let Some(alert) = records::alert_for(fault)
                    {
                        records::append_alert(alert, out);
                    }
                    return self.fail(fault);
                }
                Next::Unsealed(_) => return self.fail(Fault::Bug),
            }
        }
    }

    /// Lets rustls write the alert for a fault. rustls handles pending output before its input, but it must
    /// get the same input again, because it may still hold offsets into it.
    fn send_alert(&mut self, rest: &mut [u8], out: &mut Vec<u8>) {
        let mut nothing = Vec::new();
        while self.side.state().wants_write() {
            self.side.step(rest, &mut nothing, out, Write::Nothing);
        }
    }

    /// Whether the records of this side are surely not protected yet.
    fn sends_plaintext(&self) -> bool {
        let state = self.side.state();
        match (&self.side, state.protocol_version().and_then(Version::of)) {
            (_, None) => true,
            // The server's Finished follows the client's, unless a session is resumed.
            (Side::Server(_), Some(Version::Tls12)) => {
                state.is_handshaking() && state.handshake_kind() != Some(HandshakeKind::Resumed)
            }
            (Side::Server(_), Some(Version::Tls13)) | (Side::Client(_), Some(_)) => false,
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

/// The fault of a connection that begins with another byte. All usual HTTP methods begin with a capital
/// letter.
const fn not_tls(first: u8) -> Fault {
    if first.is_ascii_uppercase() { Fault::PlainHttp } else { Fault::NotTls }
}

/// The bytes to write once the session can send plain bytes.
#[derive(Clone, Copy)]
enum Write<'a> {
    Nothing,
    Plain(&'a [u8]),
    Close,
}

/// The result of handling one state of rustls.
struct Step {
    /// Bytes of the input that were consumed.
    used: usize,
    next: Next,
}

/// The next step of the session.
enum Next {
    /// Handle the next state.
    Again,
    /// The peer's close_notify was received; handle the next state.
    PeerClosed,
    /// Wait for more input.
    Blocked,
    /// Plain bytes can be sealed, and requested ones were sealed.
    Ready,
    /// The connection failed.
    Failed(Error),
    /// Sealing failed.
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
            // The bytes are in `out`; the caller sends them in order.
            data.done();
            Next::Again
        }
        Ok(ConnectionState::PeerClosed) => Next::PeerClosed,
        Ok(ConnectionState::WriteTraffic(traffic)) => write_traffic(traffic, out, write),
        // Closed in both directions, or blocked until the peer sends more. Early data is never offered.
        Ok(_) => Next::Blocked,
        Err(error) => Next::Failed(error),
    };
    Step { used, next }
}

/// Appends the requested bytes, sealed. rustls puts a key update in front of them if one is due or the peer
/// requested one (RFC 8446 section 4.6.3). It then reports the larger space that it needs, and keeps the
/// message for the next call.
fn write_traffic<Data>(
    mut traffic: WriteTraffic<'_, Data>,
    out: &mut Vec<u8>,
    write: Write<'_>,
) -> Next {
    let start = out.len();
    let mut room_bytes = match write {
        Write::Nothing => return Next::Ready,
        Write::Plain(bytes) => sealed_bytes_max(bytes.len()),
        Write::Close => ALERT_BYTES_MAX,
    };
    loop {
        out.resize(start + room_bytes, 0);
        let room = out.get_mut(start..).unwrap_or_default();
        let written = match write {
            Write::Plain(bytes) => traffic.encrypt(bytes, room),
            Write::Nothing | Write::Close => traffic.queue_close_notify(room),
        };
        out.truncate(start + written.as_ref().copied().unwrap_or(0));
        match written {
            Ok(_) => return Next::Ready,
            Err(EncryptError::InsufficientSize(wanted)) if wanted.required_size > room_bytes => {
                room_bytes = wanted.required_size;
            }
            Err(error) => return Next::Unsealed(error),
        }
    }
}
