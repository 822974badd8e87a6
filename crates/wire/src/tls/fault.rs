//! What can be wrong with a TLS connection, told apart for the log and the counters.
//! In: the library's errors. Out: one closed enum; a text for each.
//! Never: a text that a peer chose.

use rustls::{AlertDescription, CertificateError, Error, InvalidMessage};

/// Why a TLS connection ends; the alert for the peer, if one is due, is in the output already.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// The peer speaks plain HTTP on a port for TLS: a plain 400 tells it so.
    PlainHttp,
    /// The first bytes are no TLS record.
    NotTls,
    /// A record, or a handshake message, is longer than the protocol or this side allows.
    Oversized,
    /// A message could not be decoded.
    Malformed,
    /// A message that may not come here, or not so (an attempt to renegotiate, for one).
    Misbehaved,
    /// No version, cipher suite or group in common.
    Incompatible,
    /// No application protocol in common (ALPN).
    NoProtocol,
    /// No certificate for the name that the client asked for.
    NameUnknown,
    /// A record's authentication failed: damaged on its way, or forged.
    Decrypt,
    /// The peer gave up and sent this alert (RFC 8446 section 6).
    Alert(u8),
    /// The peer's certificate was refused.
    Certificate(CertificateFault),
    /// The keys may seal no more records.
    Exhausted,
    /// The library refused for a reason of this side's: no time, no randomness, a wrong call.
    Bug,
}

/// Why a peer's certificate was refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CertificateFault {
    /// The peer showed none though one is required.
    Absent,
    /// Its time is over.
    Expired,
    /// Its time has not begun.
    NotYetValid,
    /// It is for another name.
    WrongName,
    /// Nobody trusted signed it.
    UnknownIssuer,
    /// Its issuer took it back.
    Revoked,
    /// Whether it was taken back cannot be told: a revocation list is missing or too old.
    RevocationUnknown,
    /// A signature does not fit.
    BadSignature,
    /// It cannot be decoded.
    BadEncoding,
    /// It is for another use (a server's shown by a client, or the reverse).
    WrongPurpose,
    /// It is an authority's, shown as a server's or client's own.
    IsAuthority,
    /// It has no extensions, and so is of version 1 or 2.
    OldVersion,
    /// Another rule of RFC 5280 forbids it.
    Unacceptable,
}

impl Fault {
    /// One line for the log.
    #[must_use]
    pub const fn text(self) -> &'static str {
        match self {
            Self::PlainHttp => "plain HTTP on a port for TLS",
            Self::NotTls => "the first bytes are no TLS record",
            Self::Oversized => "a TLS record or handshake message is too large",
            Self::Malformed => "a TLS message is malformed",
            Self::Misbehaved => "a TLS message that may not come here",
            Self::Incompatible => "no TLS version, cipher suite or group in common",
            Self::NoProtocol => "no application protocol in common (ALPN)",
            Self::NameUnknown => "no certificate for the name that the client asked for",
            Self::Decrypt => "a TLS record's authentication failed",
            Self::Alert(code) => alert_text(code),
            Self::Certificate(fault) => fault.text(),
            Self::Exhausted => "the TLS keys may seal no more records",
            Self::Bug => "TLS refused for a reason of this side's",
        }
    }
}

impl CertificateFault {
    /// One line for the log.
    #[must_use]
    pub const fn text(self) -> &'static str {
        match self {
            Self::Absent => "the peer showed no certificate",
            Self::Expired => "the peer's certificate has expired",
            Self::NotYetValid => "the peer's certificate is not valid yet",
            Self::WrongName => "the peer's certificate is for another name",
            Self::UnknownIssuer => "the issuer of the peer's certificate is not trusted",
            Self::Revoked => "the peer's certificate has been revoked",
            Self::RevocationUnknown => "the peer's certificate cannot be checked for revocation",
            Self::BadSignature => "a signature of the peer's certificate does not fit",
            Self::BadEncoding => "the peer's certificate cannot be decoded",
            Self::WrongPurpose => "the peer's certificate is for another purpose",
            Self::IsAuthority => {
                "the peer's certificate is an authority's (CA:TRUE), which may not be shown as its own"
            }
            Self::OldVersion => {
                "the peer's certificate is of version 1 or 2, without extensions: it must be of version 3"
            }
            Self::Unacceptable => "the peer's certificate breaks a rule of RFC 5280",
        }
    }
}

/// What the peer said with its alert; those of certificates are the ones an operator acts on.
const fn alert_text(code: u8) -> &'static str {
    match code {
        40 => "the peer refused the handshake (alert handshake_failure)",
        42 => "the peer refused this side's certificate (alert bad_certificate)",
        43 => "the peer refused this side's certificate (alert unsupported_certificate)",
        44 => "the peer refused this side's certificate (alert certificate_revoked)",
        45 => "the peer refused this side's certificate (alert certificate_expired)",
        46 => "the peer refused this side's certificate (alert certificate_unknown)",
        48 => "the peer does not trust this side's issuer (alert unknown_ca)",
        70 => "the peer refused the TLS version (alert protocol_version)",
        112 => "the peer has no such name (alert unrecognized_name)",
        116 => "the peer requires a certificate (alert certificate_required)",
        120 => "the peer has no such protocol (alert no_application_protocol)",
        _ => "the peer ended the connection with an alert",
    }
}

impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        match error {
            Error::PeerSentOversizedRecord
            | Error::InvalidMessage(
                InvalidMessage::MessageTooLarge
                | InvalidMessage::HandshakePayloadTooLarge
                | InvalidMessage::CertificatePayloadTooLarge,
            ) => Self::Oversized,
            Error::InvalidMessage(
                InvalidMessage::UnknownProtocolVersion | InvalidMessage::InvalidContentType,
            ) => Self::NotTls,
            Error::InvalidMessage(_) => Self::Malformed,
            Error::InappropriateMessage { .. }
            | Error::InappropriateHandshakeMessage { .. }
            | Error::PeerMisbehaved(_)
            | Error::InvalidEncryptedClientHello(_) => Self::Misbehaved,
            Error::PeerIncompatible(_) => Self::Incompatible,
            Error::NoApplicationProtocol => Self::NoProtocol,
            Error::DecryptError => Self::Decrypt,
            Error::AlertReceived(alert) => Self::Alert(alert_code(alert)),
            Error::NoCertificatesPresented => Self::Certificate(CertificateFault::Absent),
            Error::InvalidCertificate(error) => Self::Certificate(certificate_fault(&error)),
            Error::InvalidCertRevocationList(_) => {
                Self::Certificate(CertificateFault::RevocationUnknown)
            }
            // The library has no other word for a resolver that found no certificate.
            Error::General(_) => Self::NameUnknown,
            _ => Self::Bug,
        }
    }
}

fn alert_code(alert: AlertDescription) -> u8 {
    u8::from(alert)
}

fn certificate_fault(error: &CertificateError) -> CertificateFault {
    match error {
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            CertificateFault::Expired
        }
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            CertificateFault::NotYetValid
        }
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            CertificateFault::WrongName
        }
        CertificateError::UnknownIssuer => CertificateFault::UnknownIssuer,
        CertificateError::Revoked => CertificateFault::Revoked,
        CertificateError::UnknownRevocationStatus
        | CertificateError::ExpiredRevocationList
        | CertificateError::ExpiredRevocationListContext { .. } => {
            CertificateFault::RevocationUnknown
        }
        CertificateError::BadSignature => CertificateFault::BadSignature,
        CertificateError::BadEncoding => CertificateFault::BadEncoding,
        CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. } => {
            CertificateFault::WrongPurpose
        }
        CertificateError::Other(other)
            if matches!(other.0.downcast_ref(), Some(webpki::Error::CaUsedAsEndEntity)) =>
        {
            CertificateFault::IsAuthority
        }
        CertificateError::Other(other)
            if matches!(other.0.downcast_ref(), Some(webpki::Error::UnsupportedCertVersion)) =>
        {
            CertificateFault::OldVersion
        }
        _ => CertificateFault::Unacceptable,
    }
}
