//! Extensions of a version 2 block: type, length, value (section 2.2.x).
//! In: the bytes after the addresses. Out: known extensions by name, other extensions by number. Also encodes
//! extensions.
//! Never: copies a value; fails after `Extensions::decode` has checked all extensions.
//! Limits: those of the block.

use super::Fault;

const ALPN: u8 = 0x01;
const AUTHORITY: u8 = 0x02;
pub(super) const CHECKSUM: u8 = 0x03;
const NOOP: u8 = 0x04;
const UNIQUE_ID: u8 = 0x05;
const TLS: u8 = 0x20;
const NAMESPACE: u8 = 0x30;

const TLS_VERSION: u8 = 0x21;
const TLS_COMMON_NAME: u8 = 0x22;
const TLS_CIPHER: u8 = 0x23;
const TLS_SIGNATURE_ALGORITHM: u8 = 0x24;
const TLS_KEY_ALGORITHM: u8 = 0x25;

/// Bytes of a unique id (section 2.2.5).
const UNIQUE_ID_BYTES_MAX: usize = 128;
/// Bytes of the flags and the verification result before the parts of `Tls`.
const TLS_FIXED_BYTES: usize = 5;

const IN_USE: u8 = 0x01;
const CERTIFICATE_HERE: u8 = 0x02;
const CERTIFICATE_IN_SESSION: u8 = 0x04;

/// One fact about a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Extension<'a> {
    /// The negotiated application protocol.
    Alpn(&'a [u8]),
    /// The host name that the client requested (SNI).
    Authority(&'a [u8]),
    /// CRC-32c of the block with zeros in place of the checksum. The encoder adds its own.
    Checksum(u32),
    /// Padding without meaning.
    Noop(&'a [u8]),
    /// The sender's identifier for the connection; up to 128 bytes.
    UniqueId(&'a [u8]),
    /// The facts of the client's TLS connection.
    Tls(Tls<'a>),
    /// The network namespace.
    Namespace(&'a [u8]),
    /// An extension of another type.
    Other(u8, &'a [u8]),
}

/// The facts of a client's TLS connection.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Tls<'a> {
    /// The client connected over TLS.
    pub in_use: bool,
    /// The client presented a certificate on this connection.
    pub certificate_here: bool,
    /// The client presented a certificate on this connection, or on an earlier one of the same session.
    pub certificate_in_session: bool,
    /// The client's certificate was verified successfully.
    pub verified: bool,
    /// The version, for example `TLSv1.3`.
    pub version: Option<&'a [u8]>,
    /// The CN in the subject of the client's certificate.
    pub common_name: Option<&'a [u8]>,
    /// The OpenSSL name of the cipher suite.
    pub cipher: Option<&'a [u8]>,
    /// The signature algorithm of the certificate that the proxy presented, for example `SHA256`.
    pub signature_algorithm: Option<&'a [u8]>,
    /// The key algorithm of the certificate that the proxy presented, for example `RSA2048`.
    pub key_algorithm: Option<&'a [u8]>,
}

/// An iterator over the extensions of a block, in order. All of them are well-formed.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Extensions<'a> {
    /// The extensions that are not iterated yet; checked by `decode`.
    rest: &'a [u8],
}

impl<'a> Extensions<'a> {
    /// Checks all extensions in `bytes`.
    pub(super) fn decode(bytes: &'a [u8]) -> Result<Self, Fault> {
        let mut rest = bytes;
        while !rest.is_empty() {
            let (kind, value, after) = split(rest).ok_or(Fault::ExtensionMalformed)?;
            rest = after;
            read(kind, value).ok_or(Fault::ExtensionMalformed)?;
        }
        Ok(Self { rest: bytes })
    }

    /// The offset and the value of the checksum, if there is one. A second checksum is a fault, because
    /// it would be unclear which bytes each of them covers.
    pub(super) fn checksum(&self) -> Result<Option<(usize, u32)>, Fault> {
        let mut found = None;
        let mut rest = self.rest;
        while let Some((kind, value, after)) = split(rest) {
            if let Some(Extension::Checksum(sum)) = read(kind, value) {
                let at = self.rest.len() - after.len() - value.len();
                if found.replace((at, sum)).is_some() {
                    return Err(Fault::ExtensionMalformed);
                }
            }
            rest = after;
        }
        Ok(found)
    }
}

impl<'a> Iterator for Extensions<'a> {
    type Item = Extension<'a>;

    fn next(&mut self) -> Option<Extension<'a>> {
        let (kind, value, after) = split(self.rest)?;
        self.rest = after;
        read(kind, value)
    }
}

/// Appends `extension`. Returns `false` if a length does not fit its field; part of the extension may then
/// have been appended. Appends nothing for `Checksum`, since its value would be wrong in a new block.
pub(super) fn encode(out: &mut Vec<u8>, extension: &Extension<'_>) -> bool {
    match extension {
        Extension::Alpn(value) => push(out, ALPN, value),
        Extension::Authority(value) => push(out, AUTHORITY, value),
        Extension::Checksum(_) => true,
        Extension::Noop(value) => push(out, NOOP, value),
        Extension::UniqueId(value) => {
            value.len() <= UNIQUE_ID_BYTES_MAX && push(out, UNIQUE_ID, value)
        }
        Extension::Tls(tls) => encode_tls(out, tls),
        Extension::Namespace(value) => push(out, NAMESPACE, value),
        Extension::Other(kind, value) => push(out, *kind, value),
    }
}

fn push(out: &mut Vec<u8>, kind: u8, value: &[u8]) -> bool {
    let Ok(length) = u16::try_from(value.len()) else { return false };
    out.push(kind);
    out.extend_from_slice(&length.to_be_bytes());
    out.extend_from_slice(value);
    true
}

fn encode_tls(out: &mut Vec<u8>, tls: &Tls<'_>) -> bool {
    let flag = |set: bool, flag: u8| if set { flag } else { 0 };
    let flags = flag(tls.in_use, IN_USE)
        | flag(tls.certificate_here, CERTIFICATE_HERE)
        | flag(tls.certificate_in_session, CERTIFICATE_IN_SESSION);
    out.push(TLS);
    let length_at = out.len();
    out.extend_from_slice(&[0, 0, flags]);
    out.extend_from_slice(&u32::from(!tls.verified).to_be_bytes());
    let parts = [
        (TLS_VERSION, tls.version),
        (TLS_COMMON_NAME, tls.common_name),
        (TLS_CIPHER, tls.cipher),
        (TLS_SIGNATURE_ALGORITHM, tls.signature_algorithm),
        (TLS_KEY_ALGORITHM, tls.key_algorithm),
    ];
    for (kind, value) in parts {
        if value.is_some_and(|value| !push(out, kind, value)) {
            return false;
        }
    }
    let Ok(length) = u16::try_from(out.len() - length_at - 2) else { return false };
    out[length_at..length_at + 2].copy_from_slice(&length.to_be_bytes());
    true
}

/// Splits off the first extension: its type, its value, and the remaining bytes.
fn split(bytes: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&[kind, high, low], rest) = bytes.split_first_chunk::<3>()?;
    let (value, rest) = rest.split_at_checked(usize::from(u16::from_be_bytes([high, low])))?;
    Some((kind, value, rest))
}

fn read(kind: u8, value: &[u8]) -> Option<Extension<'_>> {
    Some(match kind {
        ALPN => Extension::Alpn(value),
        AUTHORITY => Extension::Authority(value),
        CHECKSUM => Extension::Checksum(u32::from_be_bytes(value.try_into().ok()?)),
        NOOP => Extension::Noop(value),
        UNIQUE_ID if value.len() > UNIQUE_ID_BYTES_MAX => return None,
        UNIQUE_ID => Extension::UniqueId(value),
        TLS => Extension::Tls(read_tls(value)?),
        NAMESPACE => Extension::Namespace(value),
        kind => Extension::Other(kind, value),
    })
}

/// Unknown parts are skipped. If a part is repeated, the first one counts.
fn read_tls(value: &[u8]) -> Option<Tls<'_>> {
    let (&[flags, result @ ..], mut rest) = value.split_first_chunk::<TLS_FIXED_BYTES>()?;
    let mut tls = Tls {
        in_use: flags & IN_USE != 0,
        certificate_here: flags & CERTIFICATE_HERE != 0,
        certificate_in_session: flags & CERTIFICATE_IN_SESSION != 0,
        verified: u32::from_be_bytes(result) == 0,
        ..Tls::default()
    };
    while !rest.is_empty() {
        let (kind, value, after) = split(rest)?;
        rest = after;
        let part = match kind {
            TLS_VERSION => &mut tls.version,
            TLS_COMMON_NAME => &mut tls.common_name,
            TLS_CIPHER => &mut tls.cipher,
            TLS_SIGNATURE_ALGORITHM => &mut tls.signature_algorithm,
            TLS_KEY_ALGORITHM => &mut tls.key_algorithm,
            _ => continue,
        };
        part.get_or_insert(value);
    }
    Some(tls)
}
