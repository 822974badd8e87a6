//! Tidegate's own certificates: decoding, and selection by the name that a client requests.
//! In: PEM bytes; name and signature schemes of a ClientHello. Out: the chain and key to sign with. RFC 6066.
//! Never: accepts a key that does not match its certificate.
//! Invariant: the candidates for a name keep the order of the settings; an exact name takes precedence over
//! a wildcard.

use std::collections::BTreeMap;
use std::sync::Arc;

use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::{Error, InconsistentKeys, RootCertStore};
use tidegate_base::CertificateChoice;

use super::der;
use super::setup::{SetupFault, SetupKind};

/// Maximum number of bytes of an OCSP response: a handshake message contains it.
const OCSP_BYTES_MAX: usize = 32 * 1024;

/// The contents of the files of one certificate.
#[derive(Clone, Default, Debug)]
pub struct CertificateFiles {
    /// The chain in PEM: first the certificate itself, then the intermediate certificates.
    pub chain_pem: Vec<u8>,
    /// The private key in PEM: PKCS#8, PKCS#1 or SEC1.
    pub key_pem: Vec<u8>,
    /// An OCSP response (DER) to staple.
    pub ocsp: Option<Vec<u8>>,
}

impl CertificateFiles {
    pub(super) fn decode(&self, provider: &CryptoProvider) -> Result<CertifiedKey, SetupFault> {
        let chain = decode_chain(&self.chain_pem)?;
        let key = match PrivateKeyDer::from_pem_slice(&self.key_pem) {
            Ok(key) => key,
            Err(rustls::pki_types::pem::Error::NoItemsFound) => {
                return Err(SetupFault::new(SetupKind::KeyMissing, ""));
            }
            Err(error) => return Err(SetupFault::of_pem(SetupKind::KeyBroken, &error)),
        };
        let mut certified =
            CertifiedKey::from_der(chain, key, provider).map_err(|error| match error {
                Error::InconsistentKeys(InconsistentKeys::KeyMismatch) => {
                    SetupFault::new(SetupKind::KeyMismatch, "")
                }
                Error::InvalidCertificate(_) => SetupFault::new(SetupKind::ChainBroken, error),
                error => SetupFault::new(SetupKind::KeyBroken, error),
            })?;
        if let Some(ocsp) = &self.ocsp
            && (ocsp.len() > OCSP_BYTES_MAX || !der::is_ocsp_response(ocsp))
        {
            return Err(SetupFault::new(SetupKind::OcspBroken, ""));
        }
        certified.ocsp.clone_from(&self.ocsp);
        Ok(certified)
    }
}

pub(super) fn decode_chain(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, SetupFault> {
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    let chain = chain.map_err(|error| SetupFault::of_pem(SetupKind::ChainBroken, &error))?;
    if chain.is_empty() { Err(SetupFault::new(SetupKind::ChainEmpty, "")) } else { Ok(chain) }
}

/// The authorities in `pem`; at least one, and all of them must be valid.
pub(super) fn decode_authorities(pem: &[u8]) -> Result<RootCertStore, SetupFault> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(pem) {
        let kind = SetupKind::AuthoritiesBroken;
        let certificate = certificate.map_err(|error| SetupFault::of_pem(kind, &error))?;
        roots.add(certificate).map_err(|error| SetupFault::new(kind, error))?;
    }
    if roots.is_empty() { Err(SetupFault::new(SetupKind::AuthoritiesEmpty, "")) } else { Ok(roots) }
}

/// The valid authorities in `pem`, at least one; invalid ones are skipped.
pub(super) fn decode_system_authorities(pem: &[u8]) -> Result<RootCertStore, SetupFault> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(CertificateDer::pem_slice_iter(pem).filter_map(Result::ok));
    if roots.is_empty() { Err(SetupFault::new(SetupKind::NoSystemRoots, "")) } else { Ok(roots) }
}

/// The facts about a certificate that operators see.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CertificateFacts {
    /// The names that it covers.
    pub names: Vec<String>,
    /// The end of its validity, in seconds since 1970; `None` if it cannot be read.
    pub not_after: Option<u64>,
}

impl CertificateFacts {
    /// Whether the certificate covers a name.
    #[must_use]
    pub fn covers(&self, name: &str) -> bool {
        let name = name.trim_end_matches('.');
        // RFC 6125 section 6.4.3: a wildcard matches exactly one label, the leftmost.
        let parent = name.find('.').and_then(|at| name.get(at..));
        self.names.iter().any(|own| match own.strip_prefix('*') {
            Some(of) => parent.is_some_and(|parent| parent.eq_ignore_ascii_case(of)),
            None => own.eq_ignore_ascii_case(name),
        })
    }
}

/// All certificates of a listener, by name.
#[derive(Debug)]
pub(super) struct Certificates {
    /// The certificates, in the order of the settings; never empty.
    all: Vec<Arc<CertifiedKey>>,
    /// Maps names in lower case to indexes of `all`. Wildcards are stored without their `*`, so they begin
    /// with a dot.
    names: BTreeMap<String, Vec<usize>>,
    /// Reject names without a certificate.
    strict: bool,
}

impl Certificates {
    pub(super) fn new(
        files: &[CertificateFiles],
        strict: bool,
        provider: &CryptoProvider,
    ) -> Result<Self, SetupFault> {
        if files.is_empty() {
            return Err(SetupFault::new(SetupKind::NoCertificate, ""));
        }
        let mut found = Self { all: Vec::new(), names: BTreeMap::new(), strict };
        for (at, files) in files.iter().enumerate() {
            let certified = files.decode(provider).map_err(|fault| fault.at(at))?;
            for name in names_of(&certified).map_err(|fault| fault.at(at))? {
                found.names.entry(name).or_default().push(at);
            }
            found.all.push(Arc::new(certified));
        }
        Ok(found)
    }

    /// The own certificates, without those of authorities, in DER.
    pub(super) fn own(&self) -> Vec<Vec<u8>> {
        let own = self.all.iter().filter_map(|key| key.cert.first());
        own.map(|certificate| certificate.to_vec()).collect()
    }

    /// The facts about each certificate, in the order of the settings.
    pub(super) fn facts(&self) -> Vec<CertificateFacts> {
        let names_of = |at: usize| {
            let own = self.names.iter().filter(|(_, places)| places.contains(&at));
            let shown = |name: &String| match name.starts_with('.') {
                true => format!("*{name}"),
                false => name.clone(),
            };
            own.map(|(name, _)| shown(name)).collect()
        };
        let end_of = |key: &CertifiedKey| der::read_not_after(key.cert.first()?);
        let all = self.all.iter().enumerate();
        all.map(|(at, key)| CertificateFacts { names: names_of(at), not_after: end_of(key) })
            .collect()
    }

    /// The first candidate whose key the client can verify. If there is none, the first candidate, so that
    /// the handshake fails with the actual reason.
    fn choose(
        &self,
        name: Option<&str>,
        can: impl Fn(&CertifiedKey) -> bool,
    ) -> Option<Arc<CertifiedKey>> {
        let candidates = name.and_then(|name| self.candidates(name));
        let Some(candidates) = candidates else {
            if self.strict {
                return None;
            }
            return self.all.iter().find(|key| can(key)).or(self.all.first()).cloned();
        };
        let mut keys = candidates.iter().filter_map(|at| self.all.get(*at));
        keys.clone().find(|key| can(key)).or(keys.next()).cloned()
    }

    fn candidates(&self, name: &str) -> Option<&Vec<usize>> {
        let name = name.trim_end_matches('.').to_ascii_lowercase();
        // RFC 6125 section 6.4.3: a wildcard matches exactly one label, the leftmost.
        self.names.get(&name).or_else(|| self.names.get(&name[name.find('.')?..]))
    }
}

fn names_of(certified: &CertifiedKey) -> Result<Vec<String>, SetupFault> {
    let broken = |error: &dyn core::fmt::Display| SetupFault::new(SetupKind::ChainBroken, error);
    let own = certified.end_entity_cert().map_err(|error| broken(&error))?;
    let own = webpki::EndEntityCert::try_from(own).map_err(|error| broken(&error))?;
    let bare = |name: &str| name.strip_prefix('*').unwrap_or(name).to_ascii_lowercase();
    Ok(own.valid_dns_names().map(bare).collect())
}

impl ResolvesServerCert for Certificates {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.choose(hello.server_name(), |key| can_verify(&hello, key))
    }
}

/// Whether a client can verify signatures of a key.
fn can_verify(hello: &ClientHello<'_>, key: &CertifiedKey) -> bool {
    key.key.choose_scheme(hello.signature_schemes()).is_some()
}

/// A choice among the certificates of a listener for one connection.
#[derive(Debug)]
pub(super) struct Chosen {
    /// The certificates of the listener.
    pub(super) from: Arc<Certificates>,
    /// The choice.
    pub(super) choice: CertificateChoice,
}

impl ResolvesServerCert for Chosen {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        match &self.choice {
            CertificateChoice::Requested => self.from.resolve(hello),
            CertificateChoice::Named(name) => {
                self.from.choose(Some(name), |key| can_verify(&hello, key))
            }
            CertificateChoice::Index(at) => self.from.all.get(*at).cloned(),
            CertificateChoice::Refused => None,
        }
    }
}
