//! Sends one request on a new connection, plain or with TLS, waits for the response and keeps the connection
//! open.
//! In: an address. Out: the open connection.
//! Never: used to generate load, because it blocks the calling thread for each connection.
//! Limits: `STEP_TIMEOUT` for each step.

use crate::plan::Protocol;
use core::net::SocketAddr;
use core::time::Duration;
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::TcpStream;
use tidegate_base::Moment;
use tidegate_wire::http2::{Config, Connection, RequestLine};
use tidegate_wire::tls::{Connector, TlsSession};

/// Timeout of the connection attempt and of each read.
const STEP_TIMEOUT: Duration = Duration::from_secs(10);

/// An open connection with its TLS session.
pub(super) struct Held {
    _stream: TcpStream,
    _session: Option<TlsSession>,
}

/// Requests `/json`, over TLS if there is a `connector`.
///
/// # Errors
/// The error of the kernel or of TLS.
pub(super) fn fetch(
    address: SocketAddr,
    connector: Option<&Connector>,
    protocol: Protocol,
) -> io::Result<Held> {
    let mut stream = TcpStream::connect_timeout(&address, STEP_TIMEOUT)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(STEP_TIMEOUT))?;
    let request = match protocol {
        Protocol::Http1 => format!("GET /json HTTP/1.1\r\nHost: {address}\r\n\r\n").into_bytes(),
        Protocol::Http2 => http2_request(&address.to_string()),
    };
    let session = match connector {
        None => {
            exchange_plain(&mut stream, &request)?;
            None
        }
        Some(connector) => Some(exchange_secured(&mut stream, connector, &request)?),
    };
    Ok(Held { _stream: stream, _session: session })
}

/// The first bytes of an HTTP/2 connection: preface, SETTINGS and one request.
fn http2_request(authority: &str) -> Vec<u8> {
    let mut connection = Connection::new(Config::client(), Moment::ZERO);
    let mut out = Vec::new();
    connection.start(&mut out);
    let line =
        RequestLine { method: "GET", scheme: "https", authority, path: "/json", protocol: None };
    let stream = connection.send_request(&mut out, 0, &line, true, |_| {});
    debug_assert!(stream.is_ok(), "a new connection accepts a request");
    out
}

/// Whether the response contains the whole body, which all contenders send. Over HTTP/2, frames may follow the body.
fn is_whole(answer: &[u8]) -> bool {
    memchr::memmem::find(answer, crate::floor::JSON_BODY.as_bytes()).is_some()
}

fn exchange_plain(stream: &mut TcpStream, request: &[u8]) -> io::Result<()> {
    stream.write_all(request)?;
    let mut answer = Vec::with_capacity(512);
    let mut buffer = [0; 512];
    while !is_whole(&answer) {
        match stream.read(&mut buffer)? {
            0 => return Err(ErrorKind::UnexpectedEof.into()),
            count => answer.extend_from_slice(&buffer[..count]),
        }
    }
    Ok(())
}

fn exchange_secured(
    stream: &mut TcpStream,
    connector: &Connector,
    request: &[u8],
) -> io::Result<TlsSession> {
    let failed = |fault: tidegate_wire::tls::Fault| io::Error::other(fault.text());
    let mut session = connector.connect("localhost").map_err(failed)?;
    let (mut answer, mut out) = (Vec::new(), Vec::new());
    let mut buffer = [0; 4096];
    let mut received = 0;
    loop {
        let input = &mut buffer[..received];
        let progress = session.handle_bytes(input, &mut answer, &mut out).map_err(failed)?;
        if progress.established {
            session.seal(request, &mut out).map_err(failed)?;
        }
        stream.write_all(&out)?;
        out.clear();
        if is_whole(&answer) {
            return Ok(session);
        }
        received = stream.read(&mut buffer)?;
        if received == 0 {
            return Err(ErrorKind::UnexpectedEof.into());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::certificate::{self, Key};
    use super::*;
    use crate::tls::TlsOptions;
    use std::net::TcpListener;
    use std::thread;
    use tidegate_wire::tls::{Acceptor, AcceptorSettings, CertificateFiles, TlsClock};

    const ANSWER: &[u8] =
        b"HTTP/1.1 200 OK\r\nContent-Length: 27\r\n\r\n{\"message\":\"Hello, World!\"}";

    fn acceptor(key: Key) -> Acceptor {
        let folder =
            std::env::temp_dir().join(format!("tidegate-fetch-{}-{key:?}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let files = certificate::make(&folder, key).unwrap();
        let read = |path| std::fs::read(path).unwrap();
        let (chain_pem, key_pem) = (read(&files.certificate), read(&files.key));
        assert_eq!(read(&files.both), [&chain_pem[..], &key_pem].concat());
        std::fs::remove_dir_all(&folder).unwrap();
        let certificates = vec![CertificateFiles { chain_pem, key_pem, ocsp: None }];
        let settings = AcceptorSettings { certificates, ..AcceptorSettings::default() };
        Acceptor::new(&settings, None, TlsClock::default()).unwrap()
    }

    /// Responds to one request byte by byte, so that the response arrives in many records.
    fn serve_once(stream: &mut TcpStream, mut session: TlsSession) {
        let (mut received, mut out, mut buffer) = (Vec::new(), Vec::new(), [0; 4096]);
        while !received.ends_with(b"\r\n\r\n") {
            let count = stream.read(&mut buffer).unwrap();
            session.handle_bytes(&mut buffer[..count], &mut received, &mut out).unwrap();
            stream.write_all(&out).unwrap();
            out.clear();
        }
        for byte in ANSWER {
            session.seal(&[*byte], &mut out).unwrap();
        }
        stream.write_all(&out).unwrap();
    }

    #[test]
    fn tls_response_is_received_with_each_key_type() {
        for key in [Key::Ecdsa, Key::Rsa] {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let address = listener.local_addr().unwrap();
            let acceptor = acceptor(key);
            let server = thread::spawn(move || {
                let (mut stream, _) = listener.accept().unwrap();
                serve_once(&mut stream, acceptor.accept().unwrap());
            });
            let connector = TlsOptions::of_comparison(false).connector(1).unwrap().0;
            fetch(address, Some(&connector), Protocol::Http1).unwrap();
            server.join().unwrap();
        }
    }
}
