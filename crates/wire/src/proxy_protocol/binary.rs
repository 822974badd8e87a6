//! Version 2: a binary block (section 2.2 of the specification).
//! In: the first bytes of a connection; endpoints and extensions. Out: a header; a block.
//! Never: reads the extensions of a block that must be discarded (LOCAL, or no addresses).
//! Limits: `BINARY_BYTES_MAX`.

use core::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use super::extension::{self, CHECKSUM, Extension};
use super::{Endpoints, Extensions, Fault, Header, Transport, UNIX_PATH_BYTES, Version, checksum};

/// Bytes of the longest block, including its signature. Signature, lengths and addresses take up to 232
/// bytes. The rest is for extensions: facts about a TLS client, including a certificate of ordinary size.
pub const BINARY_BYTES_MAX: usize = 4096;
/// The first bytes of a block; no text protocol begins with them.
pub(super) const SIGNATURE: &[u8; 12] = b"\r\n\r\n\0\r\nQUIT\n";
/// Bytes of signature, version and command, family, and length.
const FIXED_BYTES: usize = 16;
/// Bytes of a checksum extension.
const CHECKSUM_BYTES: usize = 7;

/// Version 2 with the command LOCAL.
const LOCAL: u8 = 0x20;
/// Version 2 with the command PROXY.
const PROXY: u8 = 0x21;
/// The family of a block without addresses.
const UNSPECIFIED: u8 = 0x00;

pub(super) fn decode(bytes: &[u8]) -> Result<Option<(Header<'_>, usize)>, Fault> {
    let begun = bytes.len().min(SIGNATURE.len());
    if bytes[..begun] != SIGNATURE[..begun] {
        return Err(Fault::NoHeader);
    }
    let local = match bytes.get(12) {
        None => return Ok(None),
        Some(&LOCAL) => true,
        Some(&PROXY) => false,
        Some(byte) if byte >> 4 == 2 => return Err(Fault::CommandUnknown),
        Some(_) => return Err(Fault::VersionUnknown),
    };
    let Some(&family) = bytes.get(13) else { return Ok(None) };
    let address_bytes =
        if local { 0 } else { address_bytes(family).ok_or(Fault::FamilyUnknown)? };
    let Some(&[high, low]) = bytes.get(14..FIXED_BYTES) else { return Ok(None) };
    let length = usize::from(u16::from_be_bytes([high, low]));
    let total = FIXED_BYTES + length;
    if total > BINARY_BYTES_MAX {
        return Err(Fault::TooLong);
    }
    if length < address_bytes {
        return Err(Fault::TooShort);
    }
    let Some(block) = bytes.get(..total) else { return Ok(None) };
    let header = if local {
        discarded(Endpoints::Local)
    } else if family == UNSPECIFIED {
        discarded(Endpoints::Unknown)
    } else {
        decode_proxied(block, family, address_bytes)?
    };
    Ok(Some((header, total)))
}

/// Appends the block for `endpoints` with `extensions`, and a checksum if `checksummed`. An extension that
/// does not fit is left out. Blocks for `Local` and `Unknown` have no extensions, because receivers discard
/// their content.
pub fn encode_binary<'a>(
    out: &mut Vec<u8>,
    endpoints: &Endpoints<'_>,
    extensions: impl IntoIterator<Item = Extension<'a>>,
    checksummed: bool,
) {
    let start = out.len();
    out.extend_from_slice(SIGNATURE);
    let (command, family) = code(endpoints);
    out.extend_from_slice(&[command, family, 0, 0]);
    encode_addresses(out, endpoints);
    if family != UNSPECIFIED {
        let reserved = if checksummed { CHECKSUM_BYTES } else { 0 };
        for extension in extensions {
            let before = out.len();
            let whole = extension::encode(out, &extension);
            if !whole || out.len() - start > BINARY_BYTES_MAX - reserved {
                out.truncate(before);
            }
        }
    }
    let checksum_at = out.len() + 3;
    let checksummed = checksummed && family != UNSPECIFIED;
    if checksummed {
        out.extend_from_slice(&[CHECKSUM, 0, 4, 0, 0, 0, 0]);
    }
    // INVARIANT: the block has at most `BINARY_BYTES_MAX` bytes, so its length fits.
    let length = (out.len() - start - FIXED_BYTES) as u16;
    out[start + 14..start + FIXED_BYTES].copy_from_slice(&length.to_be_bytes());
    if checksummed {
        let sum = checksum::crc32c(&out[start..]);
        out[checksum_at..checksum_at + 4].copy_from_slice(&sum.to_be_bytes());
    }
}

/// The header of a block whose content is discarded.
fn discarded(endpoints: Endpoints<'_>) -> Header<'_> {
    Header { version: Version::V2, endpoints, extensions: Extensions::default() }
}

fn decode_proxied(block: &[u8], family: u8, address_bytes: usize) -> Result<Header<'_>, Fault> {
    let endpoints = decode_addresses(block, family).ok_or(Fault::TooShort)?;
    let extensions_at = FIXED_BYTES + address_bytes;
    let extensions = Extensions::decode(block.get(extensions_at..).unwrap_or_default())?;
    if let Some((at, sum)) = extensions.checksum()? {
        check(block, extensions_at + at, sum)?;
    }
    Ok(Header { version: Version::V2, endpoints, extensions })
}

/// Checks `sum`, which is at offset `at`, against the checksum of the block with zeros in its place.
fn check(block: &[u8], at: usize, sum: u32) -> Result<(), Fault> {
    let (before, after) = (block.get(..at), block.get(at + 4..));
    let parts = [before.unwrap_or_default(), &[0; 4], after.unwrap_or_default()];
    if checksum::crc32c_of(parts) == sum { Ok(()) } else { Err(Fault::ChecksumWrong) }
}

/// Bytes of the two addresses of a family; `None` if the family is unassigned.
fn address_bytes(family: u8) -> Option<usize> {
    match family {
        UNSPECIFIED => Some(0),
        0x11 | 0x12 => Some(2 * (4 + 2)),
        0x21 | 0x22 => Some(2 * (16 + 2)),
        0x31 | 0x32 => Some(2 * UNIX_PATH_BYTES),
        _ => None,
    }
}

/// The bytes for command and family.
fn code(endpoints: &Endpoints<'_>) -> (u8, u8) {
    let low = |transport: &Transport| match transport {
        Transport::Stream => 1,
        Transport::Datagram => 2,
    };
    match endpoints {
        Endpoints::Local => (LOCAL, UNSPECIFIED),
        Endpoints::Unknown => (PROXY, UNSPECIFIED),
        Endpoints::Ip { source, destination, transport } => match (source, destination) {
            (SocketAddr::V4(_), SocketAddr::V4(_)) => (PROXY, 0x10 | low(transport)),
            (SocketAddr::V6(_), SocketAddr::V6(_)) => (PROXY, 0x20 | low(transport)),
            _ => (PROXY, UNSPECIFIED),
        },
        Endpoints::Unix { transport, .. } => (PROXY, 0x30 | low(transport)),
    }
}

fn encode_addresses(out: &mut Vec<u8>, endpoints: &Endpoints<'_>) {
    match endpoints {
        Endpoints::Local | Endpoints::Unknown => {}
        Endpoints::Ip { source, destination, .. } => {
            match (source, destination) {
                (SocketAddr::V4(source), SocketAddr::V4(destination)) => {
                    out.extend_from_slice(&source.ip().octets());
                    out.extend_from_slice(&destination.ip().octets());
                }
                (SocketAddr::V6(source), SocketAddr::V6(destination)) => {
                    out.extend_from_slice(&source.ip().octets());
                    out.extend_from_slice(&destination.ip().octets());
                }
                _ => return,
            }
            out.extend_from_slice(&source.port().to_be_bytes());
            out.extend_from_slice(&destination.port().to_be_bytes());
        }
        Endpoints::Unix { source, destination, .. } => {
            out.extend_from_slice(*source);
            out.extend_from_slice(*destination);
        }
    }
}

/// Decodes the addresses of a block; the caller has checked that it is long enough.
fn decode_addresses(block: &[u8], family: u8) -> Option<Endpoints<'_>> {
    let transport = if family & 1 == 1 { Transport::Stream } else { Transport::Datagram };
    let rest = block.get(FIXED_BYTES..)?;
    match family >> 4 {
        1 => {
            let (from, rest) = rest.split_first_chunk::<4>()?;
            let (to, rest) = rest.split_first_chunk::<4>()?;
            let (from_port, to_port) = decode_ports(rest)?;
            let source = SocketAddr::new(Ipv4Addr::from(*from).into(), from_port);
            let destination = SocketAddr::new(Ipv4Addr::from(*to).into(), to_port);
            Some(Endpoints::Ip { source, destination, transport })
        }
        2 => {
            let (from, rest) = rest.split_first_chunk::<16>()?;
            let (to, rest) = rest.split_first_chunk::<16>()?;
            let (from_port, to_port) = decode_ports(rest)?;
            let source = SocketAddr::new(Ipv6Addr::from(*from).into(), from_port);
            let destination = SocketAddr::new(Ipv6Addr::from(*to).into(), to_port);
            Some(Endpoints::Ip { source, destination, transport })
        }
        _ => {
            let (source, rest) = rest.split_first_chunk::<UNIX_PATH_BYTES>()?;
            let destination = rest.first_chunk::<UNIX_PATH_BYTES>()?;
            Some(Endpoints::Unix { source, destination, transport })
        }
    }
}

fn decode_ports(bytes: &[u8]) -> Option<(u16, u16)> {
    let &[a, b, c, d] = bytes.first_chunk::<4>()?;
    Some((u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d])))
}
