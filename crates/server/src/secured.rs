//! TLS over a stream whose reads and writes block: of clients of the admin interface, and of `tidegate ctl`.
//! In: a session of either role; the stream. Out: plain bytes, sealed writes.
//! Never: takes the end of a stream without close_notify for the end of the peer's data: an attacker may have cut it.
//! Limits: `PIECE_BYTES` are read or sealed at a time; the deadlines are those of the stream.

use std::io::{self, Read, Write};

use tidegate_wire::tls::{Fault, TlsSession};

/// How many bytes are read or sealed at a time.
const PIECE_BYTES: usize = 16 * 1024;

/// The session of a stream.
pub(crate) struct Secured {
    /// The session.
    session: TlsSession,
    /// Received bytes that were not read yet.
    plain: Vec<u8>,
    /// The peer has sent all.
    has_ended: bool,
}

impl Secured {
    /// Completes the handshake.
    ///
    /// # Errors
    /// The peer is refused, has disconnected, or takes too long.
    pub(crate) fn establish(
        session: TlsSession,
        stream: &mut (impl Read + Write),
    ) -> io::Result<Self> {
        let mut own = Self { session, plain: Vec::new(), has_ended: false };
        own.handle(&mut [], stream)?;
        while !own.session.is_established() {
            own.receive(stream)?;
        }
        Ok(own)
    }

    /// The session, from which properties of the peer are read.
    pub(crate) fn session(&self) -> &TlsSession {
        &self.session
    }

    /// Whether the peer has sent all.
    pub(crate) fn has_ended(&self) -> bool {
        self.has_ended
    }

    /// How many bytes were received and not read yet.
    pub(crate) fn unread(&self) -> usize {
        self.plain.len()
    }

    /// Reads plain bytes; none at the end.
    ///
    /// # Errors
    /// The stream failed, or has ended without close_notify.
    pub(crate) fn read(
        &mut self,
        buffer: &mut [u8],
        stream: &mut (impl Read + Write),
    ) -> io::Result<usize> {
        while self.plain.is_empty() && !self.has_ended {
            self.receive(stream)?;
        }
        let count = self.plain.len().min(buffer.len());
        for (to, from) in buffer.iter_mut().zip(self.plain.drain(..count)) {
            *to = from;
        }
        Ok(count)
    }

    /// Writes a piece of the bytes. Returns its length.
    ///
    /// # Errors
    /// The stream failed.
    pub(crate) fn write(&mut self, bytes: &[u8], stream: &mut impl Write) -> io::Result<usize> {
        let piece = bytes.get(..PIECE_BYTES).unwrap_or(bytes);
        let mut sealed = Vec::new();
        self.session.seal(piece, &mut sealed).map_err(broken)?;
        stream.write_all(&sealed)?;
        Ok(piece.len())
    }

    /// Ends the direction of this side.
    ///
    /// # Errors
    /// The stream failed.
    pub(crate) fn close(&mut self, stream: &mut impl Write) -> io::Result<()> {
        let mut sealed = Vec::new();
        self.session.close_notify(&mut sealed);
        stream.write_all(&sealed)
    }

    /// Receives bytes once.
    ///
    /// # Errors
    /// As `read`.
    pub(crate) fn receive(&mut self, stream: &mut (impl Read + Write)) -> io::Result<()> {
        let mut buffer = [0; PIECE_BYTES];
        match stream.read(&mut buffer) {
            Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => self.handle(&mut buffer[..count], stream),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Handles received bytes.
    ///
    /// # Errors
    /// The peer broke the protocol, or the stream failed.
    pub(crate) fn handle(&mut self, bytes: &mut [u8], stream: &mut impl Write) -> io::Result<()> {
        let mut out = Vec::new();
        let handled = self.session.handle_bytes(bytes, &mut self.plain, &mut out);
        // An alert says why the peer is refused.
        let sent = stream.write_all(&out);
        self.has_ended |= handled.map_err(broken)?.peer_closed;
        sent
    }
}

fn broken(fault: Fault) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, fault.text())
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;
    use std::thread;

    use tidegate_wire::tls::{
        Acceptor, AcceptorSettings, CertificateFiles, Connector, ConnectorSettings, Roots, TlsClock,
    };

    use super::*;
    use crate::reload::unix_seconds;

    /// Two ends of a connection after the handshake, the client's first.
    fn connect() -> ((Secured, UnixStream), (Secured, UnixStream)) {
        let made = rcgen::generate_simple_self_signed(vec!["a.example".to_owned()]).expect("a key");
        let chain_pem = made.cert.pem().into_bytes();
        let key_pem = made.signing_key.serialize_pem().into_bytes();
        let clock = TlsClock::default();
        clock.set(unix_seconds());
        let roots = Roots::Authorities(chain_pem.clone());
        let settings = ConnectorSettings { roots, ..ConnectorSettings::default() };
        let connector = Connector::new(&settings, clock.clone()).expect("they are valid");
        let certificates = vec![CertificateFiles { chain_pem, key_pem, ocsp: None }];
        let settings = AcceptorSettings { certificates, ..AcceptorSettings::default() };
        let acceptor = Acceptor::new(&settings, None, clock).expect("they are valid");
        let (mut near, mut far) = UnixStream::pair().expect("a pair of sockets");
        thread::scope(|scope| {
            let server = scope.spawn(move || {
                let session = acceptor.accept().expect("a session");
                (Secured::establish(session, &mut far).expect("a handshake"), far)
            });
            let session = connector.connect("a.example").expect("a session");
            let client = Secured::establish(session, &mut near).expect("a handshake");
            ((client, near), server.join().expect("it ends"))
        })
    }

    #[test]
    fn bytes_arrive_until_the_close() {
        let ((mut client, mut near), (mut server, mut far)) = connect();
        let text = vec![b'x'; 3 * PIECE_BYTES];
        let received = thread::scope(|scope| {
            scope.spawn(move || {
                let mut rest = text.as_slice();
                while !rest.is_empty() {
                    let count = client.write(rest, &mut near).expect("it is open");
                    rest = &rest[count..];
                }
                client.close(&mut near).expect("it is open");
            });
            let (mut received, mut buffer) = (0, [0; 100]);
            loop {
                match server.read(&mut buffer, &mut far).expect("it is open") {
                    0 => break received,
                    count => received += count,
                }
            }
        });
        assert_eq!(received, 3 * PIECE_BYTES);
    }

    #[test]
    fn end_without_close_notify_is_an_error() {
        let ((mut client, mut near), (mut server, mut far)) = connect();
        client.write(b"set server a/b weight 1", &mut near).expect("it is open");
        drop(near);
        let mut buffer = [0; 100];
        assert_eq!(server.read(&mut buffer, &mut far).ok(), Some(23));
        let error = server.read(&mut buffer, &mut far).expect_err("the rest is missing");
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
    }
}
