//! Client side of TLS for a pool: trusted authorities, requested names, client certificates.
//! In: `ConnectorSettings` (PEM as bytes). Out: a `Connector` that creates sessions.
//! Never: skips the verification of certificates unless the settings request it explicitly.
//! Limits: `TICKETS_DEFAULT` sessions of each server are kept for resumption, unless the settings name
//! another number. A session is resumed up to `RESUMED_SECONDS_MAX` after the server was verified, and only
//! while the server's certificates are valid.

use std::sync::Arc;

use rustls::ClientConfig;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{Resumption, WebPkiServerVerifier, verify_server_name};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{DigitallySignedStruct, Error, SignatureScheme};

use super::certificate::{
    CertificateFiles, decode_authorities, decode_chain, decode_system_authorities,
};
use super::chain::{BoundedServers, trust_hash};
use super::choice::{self, Version};
use super::clock::TlsClock;
use super::der;
use super::fault::{Fault, is_authority};
use super::forward::forward_signature_checks;
use super::randomness::Randomness;
use super::revocation;
use super::session::TlsSession;
use super::sessions::Sessions;
use super::setup::{SetupFault, SetupKind};

/// Sessions of each server kept for resumption, unless the settings name another number.
const TICKETS_DEFAULT: usize = 8;
/// How long a chain of resumed sessions may last until the server's certificate must be verified again.
const RESUMED_SECONDS_MAX: u64 = 24 * 3600;

/// The authorities trusted to issue server certificates.
#[derive(Clone, Debug)]
pub enum Roots {
    /// PEM of authorities, each of which must be valid.
    Authorities(Vec<u8>),
    /// PEM of the system's authorities; invalid ones are skipped.
    System(Vec<u8>),
    /// No authority, because certificates are not verified: the connection is encrypted, but the server is
    /// not authenticated.
    Unverified,
}

/// The TLS settings of a pool.
#[derive(Clone, Debug)]
pub struct ConnectorSettings {
    /// The trusted authorities.
    pub roots: Roots,
    /// PEM of the revocation lists for server certificates.
    pub revocations_pem: Option<Vec<u8>>,
    /// The certificate presented to servers that request one.
    pub client_certificate: Option<CertificateFiles>,
    /// The oldest version offered.
    pub version_min: Version,
    /// The newest version offered.
    pub version_max: Version,
    /// IANA names of cipher suites in order of preference; empty for all of `CIPHER_NAMES`.
    pub ciphers: Vec<String>,
    /// Names of key exchange groups in order of preference; empty for all of `GROUP_NAMES`.
    pub groups: Vec<String>,
    /// Application protocols in order of preference; empty for no ALPN.
    pub alpn: Vec<String>,
    /// Resume earlier sessions.
    pub resume: bool,
    /// Tickets kept for each server, for callers that open connections by the thousand; `None` for
    /// `TICKETS_DEFAULT`.
    pub tickets_max: Option<usize>,
}

impl Default for ConnectorSettings {
    fn default() -> Self {
        Self {
            roots: Roots::Authorities(Vec::new()),
            revocations_pem: None,
            client_certificate: None,
            version_min: Version::Tls12,
            version_max: Version::Tls13,
            ciphers: Vec::new(),
            groups: Vec::new(),
            alpn: Vec::new(),
            resume: true,
            tickets_max: None,
        }
    }
}

/// A name that is neither a DNS name nor an IP address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ServerNameFault;

/// Creates client sessions.
#[derive(Clone, Debug)]
pub struct Connector {
    config: Arc<ClientConfig>,
    /// Verifies server certificates, without recording the result.
    verifier: Arc<dyn ServerCertVerifier>,
    /// A hash of the rules by which servers are verified.
    trust: u32,
    /// Certificates are not verified, so sessions may be resumed without a limit in time.
    accepts_any_certificate: bool,
    clock: TlsClock,
    /// Tickets kept for each server; `None` if sessions are not resumed.
    tickets_max: Option<usize>,
}

impl Connector {
    /// Checks and prepares `settings`; `clock` is the time for all checks.
    ///
    /// # Errors
    /// The first setting that cannot be used.
    pub fn new(settings: &ConnectorSettings, clock: TlsClock) -> Result<Self, SetupFault> {
        Self::with_randomness(settings, clock, Randomness::system())
    }

    /// `new`, with keys and nonces from `randomness`.
    ///
    /// # Errors
    /// As `new`.
    pub fn with_randomness(
        settings: &ConnectorSettings,
        clock: TlsClock,
        randomness: Randomness,
    ) -> Result<Self, SetupFault> {
        let provider = Arc::new(choice::provider(&settings.ciphers, &settings.groups, randomness)?);
        let versions: &[_] = match (settings.version_min, settings.version_max) {
            (Version::Tls12, Version::Tls12) => &Version::Tls12.and_later()[1..],
            (least, _) => least.and_later(),
        };
        let verifier = server_verifier(settings, &provider)?;
        let shown = Arc::new(clock.clone());
        let builder = ClientConfig::builder_with_details(Arc::clone(&provider), shown)
            .with_protocol_versions(versions)
            .map_err(|error| SetupFault::new(SetupKind::NothingLeft, error))?
            .dangerous()
            .with_custom_certificate_verifier(Arc::clone(&verifier));
        let mut config = match &settings.client_certificate {
            None => builder.with_no_client_auth(),
            Some(files) => {
                let certified = Arc::new(files.decode(&provider).map_err(|fault| fault.at(0))?);
                builder.with_client_cert_resolver(Arc::new(rustls::sign::SingleCertAndKey::from(
                    certified,
                )))
            }
        };
        config.alpn_protocols = settings.alpn.iter().map(|name| name.as_bytes().to_vec()).collect();
        let tickets_max = settings.resume.then(|| settings.tickets_max.unwrap_or(TICKETS_DEFAULT));
        let accepts_any_certificate = matches!(settings.roots, Roots::Unverified);
        let config = Arc::new(config);
        let trust = trust_of(settings);
        let connector =
            Self { config, trust, verifier, accepts_any_certificate, clock, tickets_max };
        Ok(connector.with_own_sessions())
    }

    /// A connector with the same settings and a separate session store (if sessions are resumed), so that
    /// no worker waits for another worker's lock.
    #[must_use]
    pub fn with_own_sessions(&self) -> Self {
        let mut config = ClientConfig::clone(&self.config);
        match self.tickets_max {
            None => config.resumption = Resumption::disabled(),
            Some(tickets_max) => {
                let sessions = Arc::new(Sessions::new(tickets_max, self.clock.clone()));
                config.resumption = Resumption::store(Arc::<Sessions>::clone(&sessions));
                let verifier = Arc::clone(&self.verifier);
                let accepts_any_certificate = self.accepts_any_certificate;
                let verifier = RecordingVerifier { verifier, accepts_any_certificate, sessions };
                config.dangerous().set_certificate_verifier(Arc::new(verifier));
            }
        }
        Self { config: Arc::new(config), ..self.clone() }
    }

    /// A hash of the rules by which servers are verified: the authorities and the revocation lists. A server that was verified by
    /// other rules has to be verified again.
    #[must_use]
    pub fn trust(&self) -> u32 {
        self.trust
    }

    /// A connector with the same settings that offers only HTTP/1.1, if it offers a protocol at all.
    #[must_use]
    pub fn with_http1_only(&self) -> Self {
        let mut config = ClientConfig::clone(&self.config);
        if !config.alpn_protocols.is_empty() {
            config.alpn_protocols = vec![b"http/1.1".to_vec()];
        }
        Self { config: Arc::new(config), ..self.clone() }
    }

    /// A connector with the same settings that offers only HTTP/2.
    #[must_use]
    pub fn with_http2_only(&self) -> Self {
        let mut config = ClientConfig::clone(&self.config);
        config.alpn_protocols = vec![b"h2".to_vec()];
        Self { config: Arc::new(config), ..self.clone() }
    }

    /// Checks a name for `connect`.
    ///
    /// # Errors
    /// The name is neither a DNS name nor an IP address.
    pub fn check_name(name: &str) -> Result<(), ServerNameFault> {
        ServerName::try_from(name).map(|_| ()).map_err(|_| ServerNameFault)
    }

    /// Creates the session of a connection to the server with this name. The first call of `handle_bytes`,
    /// with empty input, outputs the first bytes to send.
    ///
    /// # Errors
    /// `Bug` if the name is invalid or rustls rejects the configuration that it built.
    pub fn connect(&self, name: &str) -> Result<TlsSession, Fault> {
        let name = ServerName::try_from(name).map_err(|_| Fault::Bug)?.to_owned();
        TlsSession::client(Arc::clone(&self.config), name)
    }
}

fn trust_of(settings: &ConnectorSettings) -> u32 {
    let (kind, authorities) = match &settings.roots {
        Roots::Authorities(pem) => (&b"authorities"[..], &pem[..]),
        Roots::System(pem) => (&b"system"[..], &pem[..]),
        Roots::Unverified => (&b"unverified"[..], &[][..]),
    };
    let lists = settings.revocations_pem.as_deref().unwrap_or_default();
    trust_hash([kind, authorities, lists])
}

fn server_verifier(
    settings: &ConnectorSettings,
    provider: &Arc<CryptoProvider>,
) -> Result<Arc<dyn ServerCertVerifier>, SetupFault> {
    let roots = match &settings.roots {
        Roots::Authorities(pem) => decode_authorities(pem)?,
        Roots::System(pem) => decode_system_authorities(pem)?,
        Roots::Unverified => return Ok(Arc::new(Unverified(Arc::clone(provider)))),
    };
    let roots = Arc::new(roots);
    let mut builder =
        WebPkiServerVerifier::builder_with_provider(Arc::clone(&roots), Arc::clone(provider));
    if let Some(pem) = &settings.revocations_pem {
        // Lists of authorities that only the server sends are allowed, so their issuers are not checked.
        let lists = revocation::decode_lists(pem)?;
        revocation::check_signatures(&lists, &roots, provider)?;
        builder = builder.with_crls(lists).allow_unknown_revocation_status();
    }
    let built = builder.build();
    let verifier: Arc<dyn ServerCertVerifier> =
        built.map_err(|error| SetupFault::new(SetupKind::RevocationBroken, error))?;
    let verifier: Arc<dyn ServerCertVerifier> = match &settings.roots {
        // Not with revocation lists: the error that `TrustedCaVerifier` overrides arises before the revocation check, so a
        // revoked certificate would be accepted.
        Roots::Authorities(pem) if settings.revocations_pem.is_none() => {
            Arc::new(TrustedCaVerifier { verifier, trusted: decode_chain(pem)? })
        }
        Roots::Authorities(_) | Roots::System(_) | Roots::Unverified => verifier,
    };
    Ok(Arc::new(BoundedServers { verifier }))
}

/// Verifies with `verifier`, but also accepts a certificate that is marked as an authority (CA:TRUE) as the server's own
/// certificate if `trusted` contains it. Self-signed certificates are often marked so, and other clients accept them too.
#[derive(Debug)]
struct TrustedCaVerifier {
    verifier: Arc<dyn ServerCertVerifier>,
    /// The certificates in the file of authorities.
    trusted: Vec<CertificateDer<'static>>,
}

impl ServerCertVerifier for TrustedCaVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let verified = self.verifier.verify_server_cert(
            end_entity,
            intermediates,
            server_name,
            ocsp_response,
            now,
        );
        // The time of validity was checked before this error arose. The name was not.
        match verified {
            Err(error)
                if is_authority(&error) && self.trusted.iter().any(|own| own == end_entity) =>
            {
                verify_server_name(&ParsedCertificate::try_from(end_entity)?, server_name)?;
                Ok(ServerCertVerified::assertion())
            }
            verified => verified,
        }
    }

    forward_signature_checks!();
}

/// Verifies with `verifier`, and records until when the server's sessions may be resumed.
#[derive(Debug)]
struct RecordingVerifier {
    verifier: Arc<dyn ServerCertVerifier>,
    /// `verifier` accepts any certificate, so there is no limit in time.
    accepts_any_certificate: bool,
    /// The record of the time limit.
    sessions: Arc<Sessions>,
}

impl ServerCertVerifier for RecordingVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let verified = self.verifier.verify_server_cert(
            end_entity,
            intermediates,
            server_name,
            ocsp_response,
            now,
        )?;
        let chain = core::iter::once(end_entity).chain(intermediates);
        // A certificate whose end cannot be read counts as expired, so that its session is not resumed.
        let ends = chain.map(|certificate| der::read_not_after(certificate).unwrap_or(0));
        let first_end = ends.min().unwrap_or(0);
        let until = match self.accepts_any_certificate {
            true => u64::MAX,
            false => first_end.min(now.as_secs().saturating_add(RESUMED_SECONDS_MAX)),
        };
        self.sessions.note_verified(server_name, until);
        Ok(verified)
    }

    forward_signature_checks!();
}

/// Accepts any certificate. The signatures of the handshake are still checked, so that a broken server is
/// distinguished from a working one.
#[derive(Debug)]
struct Unverified(Arc<CryptoProvider>);

impl ServerCertVerifier for Unverified {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signed, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
