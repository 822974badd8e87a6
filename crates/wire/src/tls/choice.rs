//! Selects versions, cipher suites and groups by the names in the configuration.
//! In: names, and the source of randomness. Out: a provider that offers exactly these, in this order.
//! Never: offers a broken algorithm: only those in the tables can be selected.

use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::{
    ProtocolVersion, SupportedCipherSuite, SupportedProtocolVersion, Tls13CipherSuite, version,
};

use super::randomness::Randomness;
use super::records::{CheckedAead, tls13, with_aead};
use super::setup::{SetupFault, SetupKind};

/// A version of TLS.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Version {
    /// RFC 5246, with forward secrecy and authenticated encryption only.
    Tls12,
    /// RFC 8446.
    Tls13,
}

impl Version {
    /// The name of the version as HAProxy and OpenSSL write it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Tls12 => "TLSv1.2",
            Self::Tls13 => "TLSv1.3",
        }
    }

    pub(super) fn of(version: ProtocolVersion) -> Option<Self> {
        match version {
            ProtocolVersion::TLSv1_2 => Some(Self::Tls12),
            ProtocolVersion::TLSv1_3 => Some(Self::Tls13),
            _ => None,
        }
    }

    /// This version and all later ones, newest first.
    pub(super) fn and_later(self) -> &'static [&'static SupportedProtocolVersion] {
        match self {
            Self::Tls12 => &VERSIONS,
            Self::Tls13 => &VERSIONS[..1],
        }
    }
}

/// The supported versions, newest first.
static VERSIONS: [&SupportedProtocolVersion; 2] = [&version::TLS13, &version::TLS12];

/// IANA names of the cipher suites, in order of preference.
pub const CIPHER_NAMES: &[&str] = &[
    "TLS_AES_256_GCM_SHA384",
    "TLS_AES_128_GCM_SHA256",
    "TLS_CHACHA20_POLY1305_SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",
    "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256",
    "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384",
    "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256",
];

/// The OpenSSL names of `CIPHER_NAMES`, in the same order.
const CIPHER_OPENSSL_NAMES: [&str; 9] = [
    "TLS_AES_256_GCM_SHA384",
    "TLS_AES_128_GCM_SHA256",
    "TLS_CHACHA20_POLY1305_SHA256",
    "ECDHE-ECDSA-AES256-GCM-SHA384",
    "ECDHE-ECDSA-AES128-GCM-SHA256",
    "ECDHE-ECDSA-CHACHA20-POLY1305",
    "ECDHE-RSA-AES256-GCM-SHA384",
    "ECDHE-RSA-AES128-GCM-SHA256",
    "ECDHE-RSA-CHACHA20-POLY1305",
];

/// Names of the key exchange groups, in order of preference.
pub const GROUP_NAMES: &[&str] = &["X25519MLKEM768", "X25519", "P-256", "P-384"];

/// The suites of `CIPHER_NAMES`, in the same order.
const CIPHERS: [SupportedCipherSuite; 9] = {
    use aws_lc_rs::cipher_suite as suite;
    [
        SupportedCipherSuite::Tls13(&AES_256_GCM),
        SupportedCipherSuite::Tls13(&AES_128_GCM),
        SupportedCipherSuite::Tls13(&CHACHA20_POLY1305),
        suite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,
        suite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
        suite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
        suite::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
        suite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
        suite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
    ]
};
const _: () = assert!(CIPHERS.len() == CIPHER_NAMES.len());

/// The suites of TLS 1.3, with the checks of `CheckedAead`.
static AES_256_GCM: Tls13CipherSuite = with_aead(AES_256_GCM_BASE, &AES_256_GCM_AEAD);
static AES_128_GCM: Tls13CipherSuite = with_aead(AES_128_GCM_BASE, &AES_128_GCM_AEAD);
static CHACHA20_POLY1305: Tls13CipherSuite =
    with_aead(CHACHA20_POLY1305_BASE, &CHACHA20_POLY1305_AEAD);
static AES_256_GCM_AEAD: CheckedAead = CheckedAead::of(AES_256_GCM_BASE);
static AES_128_GCM_AEAD: CheckedAead = CheckedAead::of(AES_128_GCM_BASE);
static CHACHA20_POLY1305_AEAD: CheckedAead = CheckedAead::of(CHACHA20_POLY1305_BASE);
const AES_256_GCM_BASE: &Tls13CipherSuite =
    tls13(&aws_lc_rs::cipher_suite::TLS13_AES_256_GCM_SHA384);
const AES_128_GCM_BASE: &Tls13CipherSuite =
    tls13(&aws_lc_rs::cipher_suite::TLS13_AES_128_GCM_SHA256);
const CHACHA20_POLY1305_BASE: &Tls13CipherSuite =
    tls13(&aws_lc_rs::cipher_suite::TLS13_CHACHA20_POLY1305_SHA256);

/// The OpenSSL name of the suite with this IANA name, as the PROXY protocol uses it; an unknown name is
/// returned unchanged.
#[must_use]
pub fn openssl_cipher_name(name: &str) -> &str {
    let found = CIPHER_NAMES.iter().position(|known| *known == name);
    found.and_then(|at| CIPHER_OPENSSL_NAMES.get(at)).copied().unwrap_or(name)
}

/// The IANA name of a suite.
pub(super) fn cipher_name(suite: SupportedCipherSuite) -> &'static str {
    let found = CIPHERS.iter().position(|known| known.suite() == suite.suite());
    found.and_then(|at| CIPHER_NAMES.get(at)).copied().unwrap_or("unknown")
}

/// A provider that offers `ciphers` and `groups`; an empty list means the default.
pub(super) fn provider(
    ciphers: &[String],
    groups: &[String],
    randomness: Randomness,
) -> Result<CryptoProvider, SetupFault> {
    let mut provider = randomness.provider();
    provider.cipher_suites = CIPHERS.to_vec();
    if !ciphers.is_empty() {
        provider.cipher_suites.clear();
        for name in ciphers {
            let at = CIPHER_NAMES.iter().position(|known| known == name);
            let suite = at.and_then(|at| CIPHERS.get(at)).copied();
            provider
                .cipher_suites
                .push(suite.ok_or_else(|| unknown(SetupKind::CipherUnknown, name))?);
        }
    }
    if !groups.is_empty() {
        provider.kx_groups.clear();
        for name in groups {
            let group = randomness.group(name);
            provider.kx_groups.push(group.ok_or_else(|| unknown(SetupKind::GroupUnknown, name))?);
        }
    }
    Ok(provider)
}

fn unknown(kind: SetupKind, name: &str) -> SetupFault {
    SetupFault { kind, certificate: None, detail: format!("{name:?}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn empty_settings_offer_all_names_in_order() {
        let owned =
            |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let all = provider(&owned(CIPHER_NAMES), &owned(GROUP_NAMES), Randomness::system())
            .expect("every name can be offered");
        let usual = provider(&[], &[], Randomness::system()).expect("the default is valid");
        let suites = |provider: &CryptoProvider| {
            provider.cipher_suites.iter().map(|suite| suite.suite()).collect::<Vec<_>>()
        };
        assert_eq!(suites(&usual), suites(&all));
        let groups = |provider: &CryptoProvider| {
            provider.kx_groups.iter().map(|group| group.name()).collect::<Vec<_>>()
        };
        assert_eq!(groups(&usual), groups(&all));
    }

    #[test]
    fn suites_and_names_are_in_the_same_order() {
        for (at, suite) in CIPHERS.into_iter().enumerate() {
            let known = format!("{:?}", suite.suite());
            // rustls puts the version in front of the names of TLS 1.3 suites.
            assert_eq!(known.replace("TLS13_", "TLS_"), CIPHER_NAMES[at]);
        }
    }
}
