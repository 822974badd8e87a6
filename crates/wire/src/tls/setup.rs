//! The faults of TLS settings, for the operator.
//! In: errors of rustls about keys, chains and lists. Out: one closed enum; messages that name the fix.
//! Never: puts secret bytes into a string.

use rustls::pki_types::pem;

/// Why TLS settings cannot be used.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SetupFault {
    /// What is wrong.
    pub kind: SetupKind,
    /// The index of the certificate in the settings; `None` if the fault is not about a certificate.
    pub certificate: Option<usize>,
    /// The error of the library, or the place in the file; may be empty.
    pub detail: String,
}

/// The kinds of `SetupFault`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SetupKind {
    /// The PEM of the chain contains no certificate.
    ChainEmpty,
    /// The PEM of the chain, or a certificate in it, cannot be decoded.
    ChainBroken,
    /// The PEM of the key contains no private key.
    KeyMissing,
    /// The key cannot be decoded, or its type is not supported.
    KeyBroken,
    /// The key does not match the certificate.
    KeyMismatch,
    /// The OCSP response cannot be decoded, reports an error, or is too large.
    OcspBroken,
    /// The settings name no certificate.
    NoCertificate,
    /// The PEM of authorities contains no certificate.
    AuthoritiesEmpty,
    /// The PEM of authorities, or a certificate in it, cannot be decoded.
    AuthoritiesBroken,
    /// There is no revocation list, or one cannot be decoded.
    RevocationBroken,
    /// A revocation list was issued by none of the authorities, so no certificate would ever be looked up in it.
    RevocationForeign,
    /// The signature of a revocation list does not match the key of its issuer, so every certificate of the issuer would
    /// be refused.
    RevocationForged,
    /// The cipher suite is unknown.
    CipherUnknown,
    /// The key exchange group is unknown.
    GroupUnknown,
    /// The combination of versions, suites and groups leaves nothing to negotiate.
    NothingLeft,
    /// The ticket keys are not lines of 64 hexadecimal digits, or their number is not allowed.
    TicketKeysBroken,
    /// The certificate authorities of the system were not found.
    NoSystemRoots,
}

impl SetupKind {
    /// What is wrong and how to fix it.
    #[must_use]
    pub const fn text(self) -> &'static str {
        match self {
            Self::ChainEmpty => {
                "no certificate found; write PEM with the server's own certificate first"
            }
            Self::ChainBroken => "the certificates cannot be decoded; write them as PEM",
            Self::KeyMissing => "no private key found; write it as PEM without a passphrase",
            Self::KeyBroken => {
                "the key cannot be used; use an ECDSA P-256 or P-384, RSA or Ed25519 key"
            }
            Self::KeyMismatch => {
                "the key does not match the certificate; use the key that the certificate was issued for"
            }
            Self::OcspBroken => {
                "not a successful OCSP response in DER of at most 32 KiB; request it again from the authority"
            }
            Self::NoCertificate => {
                "no certificate configured; name one, or write tls = \"self-signed\""
            }
            Self::AuthoritiesEmpty => "no authority certificate found; write it as PEM",
            Self::AuthoritiesBroken => "the authorities cannot be decoded; write them as PEM",
            Self::RevocationBroken => {
                "no revocation list found, or it cannot be decoded; write it as PEM"
            }
            Self::RevocationForeign => {
                "a revocation list was issued by none of the authorities in `client-ca`; name the list of one of them, \
                 or add the certificate of the list's issuer to `client-ca`"
            }
            Self::RevocationForged => {
                "the signature of a revocation list does not match the key of its issuer; get the list again from the issuer, \
                 or name the issuer's current certificate"
            }
            Self::CipherUnknown => "unknown cipher suite",
            Self::GroupUnknown => "unknown key exchange group",
            Self::NothingLeft => {
                "the combination of versions, ciphers and groups leaves nothing to negotiate"
            }
            Self::TicketKeysBroken => {
                "ticket keys must be lines of 64 hexadecimal digits, newest key first"
            }
            Self::NoSystemRoots => {
                "the system's certificate authorities were not found; name a file with `ca`"
            }
        }
    }
}

impl SetupFault {
    pub(super) fn new(kind: SetupKind, detail: impl core::fmt::Display) -> Self {
        Self { kind, certificate: None, detail: detail.to_string() }
    }

    /// A fault of PEM. The text of the library may contain a line, which may be of a private key.
    pub(super) fn of_pem(kind: SetupKind, error: &pem::Error) -> Self {
        let detail = match error {
            pem::Error::MissingSectionEnd { .. } => "a section has no END line",
            pem::Error::IllegalSectionStart { .. } => "a BEGIN line does not end with five hyphens",
            pem::Error::Base64Decode(_) => "a section is not base64",
            pem::Error::SectionTooLarge => "a section is too large",
            // The type may get more variants.
            _ => "",
        };
        Self::new(kind, detail)
    }

    pub(super) fn at(mut self, certificate: usize) -> Self {
        self.certificate = Some(certificate);
        self
    }
}

impl core::fmt::Display for SetupFault {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(self.kind.text())?;
        if self.detail.is_empty() { Ok(()) } else { write!(f, " ({})", self.detail) }
    }
}
impl std::error::Error for SetupFault {}
