//! What a pool needs to speak TLS to its servers: whom to trust, which name to ask for, what to show.
//! In: `ConnectorSettings` (PEM as bytes). Out: a `Connector` that begins sessions.
//! Never: trusts without verifying unless the settings say so in a word that cannot be overlooked.
//! Limits: `TICKETS_FEW` sessions of each server are remembered for resumption, unless the settings name
//! more; none for longer than `RESUMED_SECONDS_MAX`, or than its server's certificates are good.

use std::sync::Arc;

use rustls::ClientConfig;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{Resumption, WebPkiServerVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{DigitallySignedStruct, Error, SignatureScheme};

use super::certificate::{
    CertificateFiles, decode_authorities, decode_revocations, decode_system_authorities,
};
use super::choice::{self, Version};
use super::clock::TlsClock;
use super::der;
use super::fault::Fault;
use super::randomness::Randomness;
use super::session::TlsSession;
use super::sessions::Sessions;
use super::setup::{SetupFault, SetupKind};

/// Sessions of each server remembered for resumption.
const TICKETS_FEW: usize = 8;
/// How long sessions are resumed one after the other before the server's certificate is looked at anew.
const RESUMED_SECONDS_MAX: u64 = 24 * 3600;

/// Whose word a server's certificate is believed on.
#[derive(Clone, Debug)]
pub enum Roots {
    /// PEM of authorities, each of which must be sound.
    Authorities(Vec<u8>),
    /// PEM of the system's authorities: what is unsound among them is left out.
    System(Vec<u8>),
    /// Anybody's: the connection is encrypted, but to whom is not known.
    Nobody,
}

/// How a pool speaks TLS.
#[derive(Clone, Debug)]
pub struct ConnectorSettings {
    /// Whom to trust.
    pub roots: Roots,
    /// PEM of revocation lists.
    pub revocations_pem: Option<Vec<u8>>,
    /// The certificate shown to servers that ask for one.
    pub client_certificate: Option<CertificateFiles>,
    /// The oldest version spoken.
    pub version_min: Version,
    /// The newest version spoken.
    pub version_max: Version,
    /// IANA names in order of preference; empty: all of `CIPHER_NAMES`.
    pub ciphers: Vec<String>,
    /// Names in order of preference; empty: all of `GROUP_NAMES`.
    pub groups: Vec<String>,
    /// Application protocols in order of preference; empty: none is asked for.
    pub alpn: Vec<String>,
    /// Resume earlier sessions.
    pub resume: bool,
    /// Tickets kept of each server, for who opens connections by the thousand; `None`: a few.
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

/// Why a name cannot be asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ServerNameFault;

/// Begins client sessions.
#[derive(Clone, Debug)]
pub struct Connector {
    config: Arc<ClientConfig>,
    verifier: Arc<dyn ServerCertVerifier>,
    /// Certificates are not verified, so that none is to be looked at anew.
    believes_all: bool,
    clock: TlsClock,
    /// Tickets kept of each server; `None`: no session is resumed.
    tickets_max: Option<usize>,
}

impl Connector {
    /// Checks and prepares `settings`; time is what `clock` shows.
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
        let tickets_max = settings.resume.then(|| settings.tickets_max.unwrap_or(TICKETS_FEW));
        let believes_all = matches!(settings.roots, Roots::Nobody);
        let config = Arc::new(config);
        Ok(Self { config, verifier, believes_all, clock, tickets_max }.with_own_sessions())
    }

    /// A connector of the same settings that remembers sessions of its own (where sessions are resumed at
    /// all), so that no worker waits for another's lock.
    #[must_use]
    pub fn with_own_sessions(&self) -> Self {
        let mut config = ClientConfig::clone(&self.config);
        match self.tickets_max {
            None => config.resumption = Resumption::disabled(),
            Some(tickets_max) => {
                let sessions = Arc::new(Sessions::new(tickets_max, self.clock.clone()));
                config.resumption = Resumption::store(Arc::<Sessions>::clone(&sessions));
                let verifier = Arc::clone(&self.verifier);
                let believes_all = self.believes_all;
                let verifier = Arc::new(Remembering { verifier, believes_all, sessions });
                config.dangerous().set_certificate_verifier(verifier);
            }
        }
        Self { config: Arc::new(config), ..self.clone() }
    }

    /// Checks a name that `connect` shall ask for: a DNS name or an IP address.
    ///
    /// # Errors
    /// When it is neither.
    pub fn check_name(name: &str) -> Result<(), ServerNameFault> {
        ServerName::try_from(name).map(|_| ()).map_err(|_| ServerNameFault)
    }

    /// Begins the session of a connection to the server of that name; its first `handle_bytes` (with no
    /// bytes) gives what to send.
    ///
    /// # Errors
    /// `Bug` when the name is none or the library refuses its own settings.
    pub fn connect(&self, name: &str) -> Result<TlsSession, Fault> {
        let name = ServerName::try_from(name).map_err(|_| Fault::Bug)?.to_owned();
        TlsSession::client(Arc::clone(&self.config), name)
    }
}

fn server_verifier(
    settings: &ConnectorSettings,
    provider: &Arc<CryptoProvider>,
) -> Result<Arc<dyn ServerCertVerifier>, SetupFault> {
    let roots = match &settings.roots {
        Roots::Authorities(pem) => decode_authorities(pem)?,
        Roots::System(pem) => decode_system_authorities(pem)?,
        Roots::Nobody => return Ok(Arc::new(Unverified(Arc::clone(provider)))),
    };
    let roots = Arc::new(roots);
    let mut builder = WebPkiServerVerifier::builder_with_provider(roots, Arc::clone(provider));
    if let Some(pem) = &settings.revocations_pem {
        builder = builder
            .with_crls(decode_revocations(pem)?)
            .only_check_end_entity_revocation()
            .allow_unknown_revocation_status();
    }
    let built = builder.build();
    let verifier: Arc<dyn ServerCertVerifier> =
        built.map_err(|error| SetupFault::new(SetupKind::RevocationBroken, error))?;
    Ok(verifier)
}

/// Verifies as `verifier` does, and notes how long that holds for resumed sessions.
#[derive(Debug)]
struct Remembering {
    verifier: Arc<dyn ServerCertVerifier>,
    believes_all: bool,
    sessions: Arc<Sessions>,
}

impl ServerCertVerifier for Remembering {
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
        // An end that cannot be read might be any.
        let ends = chain.map(|certificate| der::read_not_after(certificate).unwrap_or(0));
        let first_end = ends.min().unwrap_or(0);
        let until = match self.believes_all {
            true => u64::MAX,
            false => first_end.min(now.as_secs().saturating_add(RESUMED_SECONDS_MAX)),
        };
        self.sessions.note_verified(server_name, until);
        Ok(verified)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.verifier.verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.verifier.verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.verifier.supported_verify_schemes()
    }
}

/// Believes any certificate. The handshake's signatures are still checked, so that a broken server is
/// told from a working one.
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
