//! The faults of TLS connections, distinguished for the log and the counters.
//! In: errors of rustls. Out: one closed enum; a log text for each value.
//! Never: puts text from a peer into a log text.

use rustls::{AlertDescription, CertificateError, Error, InvalidMessage};

use super::chain::ChainTooLarge;

/// Why a TLS connection failed. If the peer gets an alert, it is already in the output.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// The peer sent plain HTTP to a TLS port. It gets a plain-text 400.
    PlainHttp,
    /// The first bytes are not a TLS record.
    NotTls,
    /// A record or handshake message is longer than the protocol or Tidegate allows.
    Oversized,
    /// A message could not be decoded.
    Malformed,
    /// The peer sent a message that is not allowed, for example an attempt to renegotiate.
    Misbehaved,
    /// The two sides share no version, cipher suite or group.
    Incompatible,
    /// The two sides share no application protocol (ALPN).
    NoProtocol,
    /// There is no certificate for the name that the client requested.
    NameUnknown,
    /// The authentication of a record failed: it was damaged in transit, or forged.
    Decrypt,
    /// The peer failed the connection with this alert (RFC 8446 section 6).
    Alert(u8),
    /// The peer's certificate was rejected.
    Certificate(CertificateFault),
    /// The keys have reached their limit and must not seal any more records.
    Exhausted,
    /// rustls failed for a local reason: no time, no randomness, or an invalid call.
    Bug,
}

/// Why a peer's certificate was rejected.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CertificateFault {
    /// The peer presented no certificate, but one is required.
    Absent,
    /// The validity period is over.
    Expired,
    /// The validity period has not begun.
    NotYetValid,
    /// The certificate is for another name.
    WrongName,
    /// No trusted authority issued it.
    UnknownIssuer,
    /// Its issuer revoked it.
    Revoked,
    /// Its revocation status is unknown: a revocation list is missing or too old.
    RevocationUnknown,
    /// A signature is invalid.
    BadSignature,
    /// The certificate cannot be decoded.
    BadEncoding,
    /// It is for another purpose: a client presented a server certificate, or the reverse.
    WrongPurpose,
    /// It is the certificate of an authority, presented as that of a server or client.
    IsAuthority,
    /// It has no extensions, so it is version 1 or 2.
    OldVersion,
    /// Too many or too large certificates were presented with it (`chain.rs`).
    ChainTooLarge,
    /// It breaks another rule of RFC 5280.
    Unacceptable,
}

impl Fault {
    /// One line for the log.
    #[must_use]
    pub const fn text(self) -> &'static str {
        match self {
            Self::PlainHttp => "plain HTTP request on a TLS port",
            Self::NotTls => "the first bytes are not a TLS record",
            Self::Oversized => "TLS record or handshake message too large",
            Self::Malformed => "malformed TLS message",
            Self::Misbehaved => "the peer sent a TLS message that is not allowed here",
            Self::Incompatible => "no TLS version, cipher suite or group in common",
            Self::NoProtocol => "no application protocol in common (ALPN)",
            Self::NameUnknown => "no certificate for the name that the client requested",
            Self::Decrypt => "TLS record authentication failed",
            Self::Alert(code) => alert_text(code),
            Self::Certificate(fault) => fault.text(),
            Self::Exhausted => "the TLS keys have reached their limit of records",
            Self::Bug => "internal TLS error",
        }
    }
}

impl CertificateFault {
    /// One line for the log.
    #[must_use]
    pub const fn text(self) -> &'static str {
        match self {
            Self::Absent => "the peer presented no certificate",
            Self::Expired => "the peer's certificate has expired",
            Self::NotYetValid => "the peer's certificate is not valid yet",
            Self::WrongName => "the peer's certificate is for another name",
            Self::UnknownIssuer => "the issuer of the peer's certificate is not trusted",
            Self::Revoked => "the peer's certificate has been revoked",
            Self::RevocationUnknown => "the peer's certificate cannot be checked for revocation",
            Self::BadSignature => "the peer's certificate has an invalid signature",
            Self::BadEncoding => "the peer's certificate cannot be decoded",
            Self::WrongPurpose => "the peer's certificate is for another purpose",
            Self::IsAuthority => {
                "the peer presented the certificate of an authority (CA:TRUE) as its own"
            }
            Self::OldVersion => {
                "the peer's certificate is version 1 or 2, without extensions; it must be version 3"
            }
            Self::ChainTooLarge => {
                "the peer presented more than 8 intermediate certificates, more than 2 with one subject, or more than 32 KiB"
            }
            Self::Unacceptable => "the peer's certificate breaks a rule of RFC 5280",
        }
    }
}

/// The meaning of an alert from the peer. Operators act mostly on the alerts about certificates.
const fn alert_text(code: u8) -> &'static str {
    match code {
        40 => "the peer rejected the handshake (alert handshake_failure)",
        42 => "the peer rejected our certificate (alert bad_certificate)",
        43 => "the peer rejected our certificate (alert unsupported_certificate)",
        44 => "the peer rejected our certificate (alert certificate_revoked)",
        45 => "the peer rejected our certificate (alert certificate_expired)",
        46 => "the peer rejected our certificate (alert certificate_unknown)",
        48 => "the peer does not trust the issuer of our certificate (alert unknown_ca)",
        70 => "the peer rejected the TLS version (alert protocol_version)",
        112 => "the peer does not serve the requested name (alert unrecognized_name)",
        116 => "the peer requires a certificate (alert certificate_required)",
        120 => "the peer supports none of our protocols (alert no_application_protocol)",
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
            // rustls reports two faults only as text: a certificate whose key the TLS 1.2 client cannot verify, and a
            // resolver that found no certificate. Every other text counts as the second.
            Error::General(text) if text == "incompatible signing key" => Self::Incompatible,
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
        error if is_authority_error(error) => CertificateFault::IsAuthority,
        CertificateError::Other(other) if other.0.is::<ChainTooLarge>() => {
            CertificateFault::ChainTooLarge
        }
        CertificateError::Other(other)
            if matches!(other.0.downcast_ref(), Some(webpki::Error::UnsupportedCertVersion)) =>
        {
            CertificateFault::OldVersion
        }
        _ => CertificateFault::Unacceptable,
    }
}

/// Whether the certificate was rejected because it is marked as an authority (CA:TRUE).
pub(super) fn is_authority(error: &rustls::Error) -> bool {
    matches!(error, rustls::Error::InvalidCertificate(error) if is_authority_error(error))
}

fn is_authority_error(error: &CertificateError) -> bool {
    let CertificateError::Other(other) = error else { return false };
    matches!(other.0.downcast_ref(), Some(webpki::Error::CaUsedAsEndEntity))
}
