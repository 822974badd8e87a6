//! Version 1: one line of text (section 2.1 of the specification).
//! In: the first bytes of a received connection, or the endpoints to send. Out: the decoded header, or the
//! encoded line.
//! Never: accepts a sign or leading zeros in a port or an IPv4 address, more than one space, or another line end. IPv6 addresses
//! may have any form.
//! Limits: `TEXT_BYTES_MAX`.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use core::str::FromStr;
use std::io::Write;

use super::{Endpoints, Extensions, Fault, Header, Transport, Version};

/// Bytes of the longest line that the specification allows, including its CRLF.
pub const TEXT_BYTES_MAX: usize = 107;
/// The first bytes of a line.
const PREFIX: &[u8] = b"PROXY ";

pub(super) fn decode(bytes: &[u8]) -> Result<Option<(Header<'_>, usize)>, Fault> {
    let begun = bytes.len().min(PREFIX.len());
    if bytes[..begun] != PREFIX[..begun] {
        return Err(Fault::NoHeader);
    }
    let searched = &bytes[..bytes.len().min(TEXT_BYTES_MAX)];
    let Some(end) = memchr::memchr2(b'\r', b'\n', searched) else {
        return if searched.len() == TEXT_BYTES_MAX { Err(Fault::TextTooLong) } else { Ok(None) };
    };
    match searched.get(end..) {
        Some([b'\r']) if end + 1 == TEXT_BYTES_MAX => Err(Fault::TextTooLong),
        Some([b'\r']) => Ok(None),
        Some([b'\r', b'\n', ..]) => {
            let line = searched.get(PREFIX.len()..end).ok_or(Fault::TextMalformed)?;
            let endpoints = parse(line)?;
            let extensions = Extensions::default();
            Ok(Some((Header { version: Version::V1, endpoints, extensions }, end + 2)))
        }
        _ => Err(Fault::TextMalformed),
    }
}

/// Appends the line for `endpoints`. Version 1 can express only TCP. All other endpoints become UNKNOWN,
/// for which the receiver uses the connection's own addresses.
pub fn encode_text(out: &mut Vec<u8>, endpoints: &Endpoints<'_>) {
    let Endpoints::Ip { source, destination, transport: Transport::Stream } = endpoints else {
        return out.extend_from_slice(b"PROXY UNKNOWN\r\n");
    };
    let family = match (source, destination) {
        (SocketAddr::V4(_), SocketAddr::V4(_)) => "TCP4",
        (SocketAddr::V6(_), SocketAddr::V6(_)) => "TCP6",
        _ => return out.extend_from_slice(b"PROXY UNKNOWN\r\n"),
    };
    let (from, to) = (source.ip(), destination.ip());
    let (from_port, to_port) = (source.port(), destination.port());
    // Writing into a vector cannot fail.
    let written = write!(out, "PROXY {family} {from} {to} {from_port} {to_port}\r\n");
    debug_assert!(written.is_ok());
}

/// Parses the part of a line between `PROXY ` and CRLF.
fn parse(line: &[u8]) -> Result<Endpoints<'static>, Fault> {
    if line == b"UNKNOWN" || line.starts_with(b"UNKNOWN ") {
        // The specification requires receivers to ignore the rest of the line.
        return Ok(Endpoints::Unknown);
    }
    let line = core::str::from_utf8(line).map_err(|_| Fault::TextMalformed)?;
    let mut words = line.split(' ');
    let mut word = || words.next().ok_or(Fault::TextMalformed);
    let parse_ip = match word()? {
        "TCP4" => |word: &str| Ipv4Addr::from_str(word).ok().map(IpAddr::V4),
        "TCP6" => |word: &str| Ipv6Addr::from_str(word).ok().map(IpAddr::V6),
        _ => return Err(Fault::TextMalformed),
    };
    let from = parse_ip(word()?).ok_or(Fault::TextMalformed)?;
    let to = parse_ip(word()?).ok_or(Fault::TextMalformed)?;
    let source = SocketAddr::new(from, parse_port(word()?)?);
    let destination = SocketAddr::new(to, parse_port(word()?)?);
    match words.next() {
        None => Ok(Endpoints::Ip { source, destination, transport: Transport::Stream }),
        Some(_) => Err(Fault::TextMalformed),
    }
}

/// A decimal number from 0 to 65535 without sign or leading zeros.
fn parse_port(word: &str) -> Result<u16, Fault> {
    let digits = !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_digit());
    if !digits || (word.len() > 1 && word.starts_with('0')) {
        return Err(Fault::TextMalformed);
    }
    word.parse().map_err(|_| Fault::TextMalformed)
}
