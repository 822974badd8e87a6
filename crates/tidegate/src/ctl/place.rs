//! The admin interface of a process, and what `tidegate ctl` and `tidegate check --against` present to it.
//! In: the command line, or the configuration of the process; commands. Out: replies.
//! Never: sends a token or a command to an interface whose certificate is not valid, if TLS is used.
//! Limits: `TOKEN_BYTES_MAX` bytes of a token; `REPLY_BYTES_MAX` bytes of a reply; `IO_TIMEOUT` to connect; the caller's time for a reply.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use tidegate_config::model::Bind;
use tidegate_server::admin_client::{self, ClientTls, REPLY_BYTES_MAX};
use tidegate_server::files;

use crate::source;

/// The default address of the interface.
const ADDRESS: &str = "127.0.0.1:9901";
/// Bytes of the file of the token.
const TOKEN_BYTES_MAX: u64 = 4096;
/// How long a read or write may take.
pub const IO_TIMEOUT: Duration = Duration::from_secs(30);

/// Arguments that name the interface.
#[derive(Args, Debug)]
pub struct PlaceArgs {
    /// Address of the admin interface: IP:PORT or unix:PATH [default: 127.0.0.1:9901]
    #[arg(long, value_name = "ADDRESS", conflicts_with = "config", global = true)]
    at: Option<String>,
    /// File with the token of the interface
    #[arg(long, value_name = "FILE", global = true)]
    token_file: Option<PathBuf>,
    /// The configuration file of the process: its `[admin]` has the address and the token
    #[arg(short, long, value_name = "FILE", global = true)]
    config: Option<PathBuf>,
    #[command(flatten)]
    tls: TlsArgs,
}

impl PlaceArgs {
    /// The interface; the error is a string to print.
    pub fn place(&self) -> Result<Place, String> {
        let (at, config, token) =
            (self.at.as_deref(), self.config.as_deref(), self.token_file.as_deref());
        Place::of(at, config, token, &self.tls)
    }
}

/// Arguments for an interface with TLS.
#[derive(Args, Debug, Default)]
pub struct TlsArgs {
    /// Use TLS: file with the authorities of the interface's certificate (PEM)
    #[arg(long, value_name = "FILE", global = true)]
    ca: Option<PathBuf>,
    /// File with the certificate to present to the interface (PEM); needs --key
    #[arg(long, value_name = "FILE", global = true)]
    cert: Option<PathBuf>,
    /// File with the private key of --cert (PEM)
    #[arg(long, value_name = "FILE", global = true)]
    key: Option<PathBuf>,
    /// Name that the interface's certificate must have [default: the IP address]
    #[arg(long, value_name = "NAME", global = true)]
    server_name: Option<String>,
}

impl TlsArgs {
    /// How TLS is used; `None`: not at all. `own`: the certificate of the interface, if it is known.
    fn read(&self, own: Option<&Path>) -> Result<Option<ClientTls>, String> {
        let certificate = match (&self.cert, &self.key) {
            (Some(cert), Some(key)) => Some((cert.as_path(), key.as_path())),
            (None, None) => None,
            (Some(_), None) | (None, Some(_)) => {
                return Err("tidegate: --cert and --key must be used together\n".to_owned());
            }
        };
        let Some(authorities) = self.ca.as_deref().or(own) else {
            return match certificate.is_some() || self.server_name.is_some() {
                true => Err(
                    "tidegate: without --ca, TLS is not used; help: add --ca FILE with the authorities of the interface's certificate\n"
                        .to_owned(),
                ),
                false => Ok(None),
            };
        };
        let tls = ClientTls::read(authorities, certificate, self.server_name.clone());
        tls.map(Some).map_err(|why| format!("tidegate: TLS cannot be used: {why}\n"))
    }
}

/// An admin interface.
#[derive(Clone, Debug)]
pub struct Place {
    /// Its address: IP:PORT or unix:PATH.
    pub at: String,
    /// The file with its token.
    token_file: Option<PathBuf>,
    /// TLS; `None` without.
    tls: Option<ClientTls>,
}

impl Place {
    /// The interface at an address; the error is a string to print.
    pub fn at(at: &str, token_file: Option<&Path>, tls: &TlsArgs) -> Result<Self, String> {
        let (at, token_file) = (at.to_owned(), token_file.map(Path::to_owned));
        Ok(Self { at, token_file, tls: tls.read(None)? })
    }

    /// The interface that the command line names; the error is a string to print.
    pub fn of(
        at: Option<&str>,
        config: Option<&Path>,
        token_file: Option<&Path>,
        tls: &TlsArgs,
    ) -> Result<Self, String> {
        let Some(path) = config else {
            let at = at.unwrap_or(ADDRESS);
            if !is_address(at) {
                let at = at.escape_debug();
                return Err(format!(
                    "tidegate: --at {at} is not an address; allowed: IP:PORT or unix:PATH\n"
                ));
            }
            return Self::at(at, token_file, tls);
        };
        let source = source::load(path).map_err(|refusal| refusal.to_string())?;
        let Some(admin) = &source.loaded.config.admin else {
            return Err(format!(
                "tidegate: {} has no [admin]; help: add [admin] with bind = \"127.0.0.1:9901\", or use --at\n",
                path.display()
            ));
        };
        let at = match &admin.bind {
            Bind::Tcp(address) => address.to_string(),
            Bind::Unix(path) => format!("unix:{path}"),
        };
        let own = admin.tls.as_ref().map(|tls| Path::new(&tls.certificate.cert));
        let token_file = token_file.map(Path::to_owned);
        let token_file = token_file.or_else(|| admin.token_file.clone().map(PathBuf::from));
        Ok(Self { at, token_file, tls: tls.read(own)? })
    }

    /// Another address, with the same token and certificates.
    pub fn with_address(&self, at: &str) -> Self {
        Self { at: at.to_owned(), ..self.clone() }
    }

    /// Sends one command. Returns its reply; the error is a string to print.
    pub fn order(&self, command: &str, timeout: Duration) -> Result<String, String> {
        let at = &self.at;
        let reply = self.send(command, timeout).map_err(|error| {
            format!(
                "tidegate: the admin interface at {at} cannot be used: {error}; help: check [admin] and --at\n"
            )
        })?;
        match reply.strip_prefix("error: ") {
            // The findings of a reload have their own prefixes.
            Some(why) if why.starts_with("error: ") || why.starts_with("tidegate: ") => {
                Err(format!("{}\n", why.trim_end()))
            }
            Some(why) => Err(format!("tidegate: {}\n", why.trim_end())),
            // Every reply ends with a line feed, even an empty one.
            None if reply.is_empty() => Err(format!(
                "tidegate: the admin interface at {at} closed the connection without a reply, so the command was probably not \
                 executed; help: check the command with `tidegate ctl help`, and whether the interface uses TLS (--ca)\n"
            )),
            None => Ok(reply),
        }
    }

    /// Sends one line, and returns all bytes received until the end of the connection. The reply may take as long as `timeout`.
    pub fn send(&self, command: &str, timeout: Duration) -> io::Result<String> {
        let mut line = String::new();
        if let Some(path) = &self.token_file {
            let token = files::read(path, TOKEN_BYTES_MAX)?;
            line = format!("auth {}; ", String::from_utf8_lossy(&token).trim());
        }
        line.push_str(command);
        line.push('\n');
        if let Some(path) = self.at.strip_prefix("unix:") {
            let stream = UnixStream::connect(path)?;
            stream.set_read_timeout(Some(timeout))?;
            return exchange(stream, &line);
        }
        let address: SocketAddr = self
            .at
            .parse()
            .map_err(|_| io::Error::other("not an address; allowed: IP:PORT or unix:PATH"))?;
        let stream = TcpStream::connect_timeout(&address, IO_TIMEOUT)?;
        stream.set_read_timeout(Some(timeout))?;
        match &self.tls {
            Some(tls) => {
                let reply = tls.exchange(stream, line.as_bytes())?;
                Ok(String::from_utf8_lossy(&reply).into_owned())
            }
            None => exchange(stream, &line),
        }
    }
}

/// Whether the text is an address of an interface.
pub fn is_address(at: &str) -> bool {
    at.starts_with("unix:") || at.parse::<SocketAddr>().is_ok()
}

fn exchange(mut stream: impl Read + Write, line: &str) -> io::Result<String> {
    stream.write_all(line.as_bytes())?;
    let mut reply = Vec::new();
    let limit = u64::try_from(REPLY_BYTES_MAX).unwrap_or(u64::MAX);
    stream.take(limit + 1).read_to_end(&mut reply)?;
    match reply.len() <= REPLY_BYTES_MAX {
        true => Ok(String::from_utf8_lossy(&reply).into_owned()),
        false => Err(admin_client::reply_too_long()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A peer that sends bytes without end.
    struct Endless;

    impl Read for Endless {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            buffer.fill(b'x');
            Ok(buffer.len())
        }
    }

    impl Write for Endless {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn endless_reply_is_an_error() {
        let error = exchange(Endless, "show info\n").expect_err("the reply has no end");
        assert_eq!(error.to_string(), "the reply is larger than 256 MiB");
    }
}
