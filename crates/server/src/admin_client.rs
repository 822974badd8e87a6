//! A client of the admin interface over TLS, for `tidegate ctl`.
//! In: files with certificates, a connection, a line of commands. Out: the reply.
//! Never: sends a command to an interface whose certificate is not valid for its name, or takes a reply that was cut.
//! Limits: `FILE_BYTES_MAX` bytes of a file; `REPLY_BYTES_MAX` bytes of a reply; the time limits of the connection.

use std::io;
use std::net::TcpStream;
use std::path::Path;

use tidegate_wire::tls::{CertificateFiles, Connector, ConnectorSettings, Roots, TlsClock};

use crate::files;
use crate::reload::unix_seconds;
use crate::secured::Secured;

/// Bytes of a file.
const FILE_BYTES_MAX: u64 = 1024 * 1024;

/// Maximum size of a reply in bytes: several times that of `show stat` with 10,000 servers.
pub const REPLY_BYTES_MAX: usize = 256 * 1024 * 1024;

/// The error if a reply is larger.
#[must_use]
pub fn reply_too_long() -> io::Error {
    io::Error::other(format!("the reply is larger than {} MiB", REPLY_BYTES_MAX / (1024 * 1024)))
}

/// How a client of the interface uses TLS.
#[derive(Clone, Debug)]
pub struct ClientTls {
    /// Creates the sessions.
    connector: Connector,
    /// The name that the certificate of the interface must have; `None`: the address.
    name: Option<String>,
}

impl ClientTls {
    /// Reads the authorities of the interface's certificate, and the client's certificate and key.
    ///
    /// # Errors
    /// A file or the name cannot be used; the text says why.
    pub fn read(
        authorities: &Path,
        certificate: Option<(&Path, &Path)>,
        name: Option<String>,
    ) -> Result<Self, String> {
        let file = |path: &Path| {
            let bytes = files::read(path, FILE_BYTES_MAX);
            bytes.map_err(|error| format!("{}: cannot be read: {error}", path.display()))
        };
        if let Some(name) = name.as_deref().filter(|name| Connector::check_name(name).is_err()) {
            return Err(format!("{name:?} is not a valid host name"));
        }
        let client_certificate = match certificate {
            Some((cert, key)) => {
                Some(CertificateFiles { chain_pem: file(cert)?, key_pem: file(key)?, ocsp: None })
            }
            None => None,
        };
        let roots = Roots::Authorities(file(authorities)?);
        let settings = ConnectorSettings {
            roots,
            client_certificate,
            resume: false,
            ..ConnectorSettings::default()
        };
        let clock = TlsClock::default();
        clock.set(unix_seconds());
        let connector = Connector::new(&settings, clock).map_err(|fault| fault.to_string())?;
        Ok(Self { connector, name })
    }

    /// Sends a line. Returns all bytes received until the end of the connection.
    ///
    /// # Errors
    /// The interface cannot be trusted, refuses the client, does not reply in time, or replies without end.
    pub fn exchange(&self, mut stream: TcpStream, line: &[u8]) -> io::Result<Vec<u8>> {
        let name = match &self.name {
            Some(name) => name.clone(),
            None => stream.peer_addr()?.ip().to_string(),
        };
        let session = self.connector.connect(&name);
        let session = session.map_err(|fault| io::Error::other(fault.text()))?;
        let mut secured = Secured::establish(session, &mut stream)?;
        let mut rest = line;
        while !rest.is_empty() {
            let count = secured.write(rest, &mut stream)?;
            rest = rest.get(count..).unwrap_or_default();
        }
        let (mut reply, mut buffer) = (Vec::new(), [0; 16 * 1024]);
        loop {
            match secured.read(&mut buffer, &mut stream)? {
                0 => break,
                count if reply.len() + count > REPLY_BYTES_MAX => return Err(reply_too_long()),
                count => reply.extend_from_slice(&buffer[..count]),
            }
        }
        let _ = secured.close(&mut stream);
        Ok(reply)
    }
}
