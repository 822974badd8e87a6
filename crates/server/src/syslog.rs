//! Syslog as a destination of the access log: one datagram for each line, over UDP or a unix socket (RFC 5424, RFC 5426), or one message
//! of a TCP connection (`syslog_stream.rs`).
//! In: whole lines. Out: messages; how many lines were lost.
//! Never: runs on a worker; waits longer than `SEND_WAIT` for a receiver that does not read.
//! Limits: a datagram holds one line; a line that the kernel finds too long is lost.
//! Invariant: a line that was not sent is counted.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::unix::net::UnixDatagram;
use std::time::{Duration, Instant, SystemTime};

use rustix::io::Errno;
use tidegate_base::calendar::Civil;
use tidegate_config::model::SyslogAddress;

use crate::syslog_stream::SyslogStream;

/// Facility local0 (16), severity informational (6).
const PRIORITY: u8 = 16 * 8 + 6;
/// How long a datagram may wait for a receiver.
const SEND_WAIT: Duration = Duration::from_millis(100);

/// The way to a receiver.
pub(crate) struct Syslog {
    address: SyslogAddress,
    socket: Socket,
    /// Between the time and the line: host, program, process and kind of message.
    labels: String,
    /// The datagram that is being assembled.
    datagram: Vec<u8>,
}

enum Socket {
    Udp(UdpSocket),
    Stream(SyslogStream),
    Unix(UnixDatagram),
}

impl Socket {
    fn open(address: &SyslogAddress) -> io::Result<Self> {
        match address {
            SyslogAddress::Udp(to) => {
                let any: SocketAddr = match to {
                    SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
                    SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
                };
                let socket = UdpSocket::bind(any)?;
                socket.connect(to)?;
                socket.set_write_timeout(Some(SEND_WAIT))?;
                Ok(Self::Udp(socket))
            }
            SyslogAddress::Tcp(to) => Ok(Self::Stream(SyslogStream::new(*to))),
            SyslogAddress::Unix(path) => {
                let socket = UnixDatagram::unbound()?;
                socket.connect(path)?;
                socket.set_write_timeout(Some(SEND_WAIT))?;
                Ok(Self::Unix(socket))
            }
        }
    }

    fn send(&mut self, message: &[u8]) -> io::Result<()> {
        match self {
            Self::Udp(socket) => socket.send(message).map(drop),
            Self::Unix(socket) => socket.send(message).map(drop),
            Self::Stream(stream) => {
                stream.push(message);
                Ok(())
            }
        }
    }

    /// Sends the messages that are not sent yet. Returns how many were lost.
    fn flush(&mut self) -> u64 {
        match self {
            Self::Udp(_) | Self::Unix(_) => 0,
            Self::Stream(stream) => stream.flush(Instant::now()),
        }
    }
}

impl Syslog {
    /// Opens the way to the receiver.
    ///
    /// # Errors
    /// The kernel refused; a unix socket has no receiver. A receiver over TCP may be absent.
    pub(crate) fn open(address: &SyslogAddress) -> io::Result<Self> {
        let socket = Socket::open(address)?;
        let system = rustix::system::uname();
        let host = system.nodename().to_string_lossy();
        let host: String = host.chars().filter(char::is_ascii_graphic).collect();
        let host = if host.is_empty() { "-" } else { &host };
        let labels = format!(" {host} tidegate {} access - ", std::process::id());
        Ok(Self { address: address.clone(), socket, labels, datagram: Vec::new() })
    }

    /// Sends each line of `lines`. Returns how many lines were lost.
    pub(crate) fn send(&mut self, lines: &[u8], now: SystemTime) -> u64 {
        let lead = lead(now);
        let mut lost = 0;
        let mut may_wait = true;
        for line in lines.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
            self.datagram.clear();
            self.datagram.extend_from_slice(lead.as_bytes());
            self.datagram.extend_from_slice(self.labels.as_bytes());
            self.datagram.extend_from_slice(line);
            match self.send_datagram(may_wait) {
                Ok(()) => {}
                Err(error) => {
                    // A receiver that does not read delays the lines of one turn of the writer once.
                    may_wait &= error.kind() != io::ErrorKind::WouldBlock;
                    lost += 1;
                }
            }
        }
        lost + self.socket.flush()
    }

    fn send_datagram(&mut self, may_wait: bool) -> io::Result<()> {
        if !may_wait {
            return Err(io::ErrorKind::Other.into());
        }
        let Err(error) = self.socket.send(&self.datagram) else { return Ok(()) };
        let errno = error.raw_os_error().map(Errno::from_raw_os_error);
        match errno {
            // The kernel reports that an earlier datagram found no receiver, or the receiver was started again.
            Some(Errno::CONNREFUSED | Errno::NOTCONN | Errno::CONNRESET) => {
                self.socket = Socket::open(&self.address)?;
                self.socket.send(&self.datagram)
            }
            _ => Err(error),
        }
    }
}

/// Priority, version and time.
fn lead(now: SystemTime) -> String {
    let since = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let Civil { year, month, day, hour, minute, second } = Civil::of_unix(since.as_secs());
    let millis = since.subsec_millis();
    format!(
        "<{PRIORITY}>1 {year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{millis:03}Z"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn now() -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_millis(1_795_330_141_007)
    }

    #[test]
    fn each_line_is_one_datagram_of_rfc_5424() {
        let receiver = UdpSocket::bind("127.0.0.1:0").expect("a port");
        receiver.set_read_timeout(Some(Duration::from_secs(10))).expect("a timeout");
        let address = SyslogAddress::Udp(receiver.local_addr().expect("an address"));
        let mut syslog = Syslog::open(&address).expect("a socket");
        assert_eq!(syslog.send(b"{\"a\":1}\nsecond\n", now()), 0);
        let receive = || {
            let mut buffer = [0; 1024];
            let length = receiver.recv(&mut buffer).expect("a datagram");
            String::from_utf8_lossy(&buffer[..length]).into_owned()
        };
        let (first, second) = (receive(), receive());
        assert!(first.starts_with("<134>1 2026-11-22T06:49:01.007Z "), "{first}");
        let expected = format!(" tidegate {} access - {{\"a\":1}}", std::process::id());
        assert!(first.ends_with(&expected), "{first}");
        assert!(second.ends_with(" access - second"), "{second}");
    }

    #[test]
    fn lines_over_tcp_have_their_lengths_before_them() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = SyslogAddress::Tcp(listener.local_addr().expect("an address"));
        let mut syslog = Syslog::open(&address).expect("it connects later");
        assert_eq!(syslog.send(b"one\nsecond\n", now()), 0);
        let (mut stream, _) = listener.accept().expect("a connection");
        drop(syslog);
        let mut text = String::new();
        io::Read::read_to_string(&mut stream, &mut text).expect("both lines");
        let (length, rest) = text.split_once(' ').expect("a length");
        let (first, second) = rest.split_at(length.parse().expect("a number"));
        assert!(first.starts_with("<134>1 2026-11-22T06:49:01.007Z ") && first.ends_with(" one"));
        let (length, second) = second.split_once(' ').expect("a length");
        assert_eq!(length.parse(), Ok(second.len()));
        assert!(second.ends_with(" access - second"), "{second}");
    }

    #[test]
    fn receiver_on_a_unix_socket_may_restart_or_stop_reading() {
        let path = std::env::temp_dir().join(format!("tidegate-syslog-{}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        let address = SyslogAddress::Unix(path.display().to_string());
        assert!(Syslog::open(&address).is_err(), "there is no receiver");
        let receiver = UnixDatagram::bind(&path).expect("a socket");
        let mut syslog = Syslog::open(&address).expect("a receiver");
        assert_eq!(syslog.send(b"one\n", now()), 0);
        drop(receiver);
        assert_eq!(syslog.send(b"lost\n", now()), 1);
        std::fs::remove_file(&path).expect("the socket is there");
        let receiver = UnixDatagram::bind(&path).expect("a socket");
        assert_eq!(syslog.send(b"two\n", now()), 0, "it connects again");
        let lost = syslog.send(&b"line\n".repeat(100_000), now());
        assert!(lost > 0 && lost < 100_000, "{lost} lines found no room, and nothing hangs");
        drop(receiver);
        std::fs::remove_file(&path).expect("the socket is there");
    }
}
