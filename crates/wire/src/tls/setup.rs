//! What can be wrong with TLS settings, for the operator.
//! In: what the library said about keys, chains and lists. Out: one closed enum, the mend in its text.
//! Never: secret bytes in a text.

/// Why settings cannot be used.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SetupFault {
    /// What is wrong.
    pub kind: SetupKind,
    /// Which of the certificates, in the order given; `None` when it is about none of them.
    pub certificate: Option<usize>,
    /// What the library or the file said; may be empty.
    pub detail: String,
}

/// The kinds of `SetupFault`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SetupKind {
    /// The PEM of the chain holds no certificate.
    ChainEmpty,
    /// The PEM of the chain, or a certificate in it, cannot be decoded.
    ChainBroken,
    /// The PEM of the key holds no private key.
    KeyMissing,
    /// The key cannot be decoded or is of an unsupported sort.
    KeyBroken,
    /// The key does not belong to the certificate.
    KeyMismatch,
    /// No certificate at all.
    NoCertificate,
    /// The PEM of authorities holds none that can be used.
    AuthoritiesEmpty,
    /// The PEM of authorities cannot be decoded.
    AuthoritiesBroken,
    /// A revocation list cannot be decoded.
    RevocationBroken,
    /// No such cipher suite.
    CipherUnknown,
    /// No such group.
    GroupUnknown,
    /// The versions, suites and groups together leave nothing to negotiate.
    NothingLeft,
    /// Ticket keys are not lines of 64 hexadecimal digits.
    TicketKeysBroken,
    /// The system's certificate authorities cannot be found.
    NoSystemRoots,
}

impl SetupKind {
    /// What is wrong and what to do about it.
    #[must_use]
    pub const fn text(self) -> &'static str {
        match self {
            Self::ChainEmpty => "it holds no certificate: it must be PEM, the server's own first",
            Self::ChainBroken => "its certificates cannot be decoded: it must be PEM",
            Self::KeyMissing => "it holds no private key: it must be PEM, without a passphrase",
            Self::KeyBroken => {
                "its key cannot be used: write an ECDSA P-256 or P-384, RSA or Ed25519 key"
            }
            Self::KeyMismatch => {
                "the key does not belong to the certificate: name the one it was made with"
            }
            Self::NoCertificate => {
                "there is no certificate: name one, or write tls = \"self-signed\""
            }
            Self::AuthoritiesEmpty => "it holds no authority's certificate: it must be PEM",
            Self::AuthoritiesBroken => "its authorities cannot be decoded: it must be PEM",
            Self::RevocationBroken => {
                "it holds no revocation list that can be decoded: it must be PEM"
            }
            Self::CipherUnknown => "there is no such cipher suite",
            Self::GroupUnknown => "there is no such group",
            Self::NothingLeft => "versions, ciphers and groups together leave nothing to negotiate",
            Self::TicketKeysBroken => {
                "ticket keys are lines of 64 hexadecimal digits, the newest first"
            }
            Self::NoSystemRoots => "the system's authorities were not found: name a file with `ca`",
        }
    }
}

impl SetupFault {
    pub(super) fn new(kind: SetupKind, detail: impl core::fmt::Display) -> Self {
        Self { kind, certificate: None, detail: detail.to_string() }
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
