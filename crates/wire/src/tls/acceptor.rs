//! Server side of TLS for a listener: certificates, versions, protocols, client authentication.
//! In: `AcceptorSettings` (PEM as bytes). Out: an `Acceptor` that creates sessions.
//! Never: keeps a stateful session cache; offers early data or renegotiation.
//! Invariant: if client certificates are requested, no session is resumed, so that every handshake verifies
//! the certificate.

use std::sync::Arc;

use rustls::crypto::CryptoProvider;
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::{ServerConfig, SupportedProtocolVersion};
use tidegate_base::CertificateChoice;

use super::certificate::{
    CertificateFacts, CertificateFiles, Certificates, Chosen, decode_authorities,
};
use super::chain::{BoundedClients, trust_hash};
use super::choice::{self, Version};
use super::clock::TlsClock;
use super::fault::Fault;
use super::randomness::Randomness;
use super::refusal::{LastRefused, RecordingVerifier};
use super::revocation;
use super::session::TlsSession;
use super::setup::{SetupFault, SetupKind};
use super::tickets::{BoundTickets, TicketKeys};

/// Whether clients must present certificates.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum ClientAuth {
    /// No certificate is requested.
    #[default]
    Off,
    /// A certificate is requested. If the client presents one, it must be valid.
    Optional,
    /// A valid certificate is required.
    Required,
}

/// The TLS settings of a listener.
#[derive(Clone, Debug)]
pub struct AcceptorSettings {
    /// The certificates. If several match a name, the first one is preferred.
    pub certificates: Vec<CertificateFiles>,
    /// Reject names without a certificate instead of presenting the first certificate.
    pub strict_names: bool,
    /// The oldest version accepted.
    pub version_min: Version,
    /// IANA names of cipher suites in order of preference; empty for all of `CIPHER_NAMES`.
    pub ciphers: Vec<String>,
    /// Names of key exchange groups in order of preference; empty for all of `GROUP_NAMES`.
    pub groups: Vec<String>,
    /// Application protocols in order of preference; empty for no ALPN.
    pub alpn: Vec<String>,
    /// Whether clients must present certificates.
    pub client_auth: ClientAuth,
    /// PEM of the authorities that issue client certificates.
    pub client_authorities_pem: Vec<u8>,
    /// PEM of the revocation lists for client certificates.
    pub client_revocations_pem: Option<Vec<u8>>,
    /// TLS 1.3 tickets sent after each handshake; 0 for none.
    pub tickets_per_handshake: usize,
    /// Whether sessions remember the name that the client requested.
    pub keeps_names: bool,
    /// Whether the user of the acceptor chooses the certificate of each connection (`accept_with`).
    pub asks_for_choice: bool,
}

impl Default for AcceptorSettings {
    fn default() -> Self {
        Self {
            certificates: Vec::new(),
            strict_names: false,
            version_min: Version::Tls12,
            ciphers: Vec::new(),
            groups: Vec::new(),
            alpn: Vec::new(),
            client_auth: ClientAuth::Off,
            client_authorities_pem: Vec::new(),
            client_revocations_pem: None,
            tickets_per_handshake: 1,
            keeps_names: false,
            asks_for_choice: false,
        }
    }
}

/// Creates server sessions. Cheap to clone. Immutable: changed files require a new acceptor.
#[derive(Clone, Debug)]
pub struct Acceptor {
    config: Arc<ServerConfig>,
    /// Whether sessions remember the name that the client requested.
    keeps_names: bool,
    /// A hash of the rules by which clients are verified.
    trust: u32,
    /// The facts about the certificates.
    certificates: Arc<[CertificateFacts]>,
    /// The certificates, if the user chooses the certificate of each connection.
    choosable: Option<Arc<Certificates>>,
    /// Verification of client certificates; `None` if they are not requested.
    client_verification: Option<ClientVerification>,
}

/// Verification of client certificates.
#[derive(Clone, Debug)]
struct ClientVerification {
    /// The verifier of rustls, without recording.
    verifier: Arc<dyn ClientCertVerifier>,
    /// The versions that `config` was built with.
    versions: &'static [&'static SupportedProtocolVersion],
    /// The certificate that the verifier in `config` rejected last.
    refused: Arc<LastRefused>,
}

impl Acceptor {
    /// Checks and prepares `settings`. `tickets` seals tickets; `clock` is the time for all checks.
    ///
    /// # Errors
    /// The first setting that cannot be used.
    pub fn new(
        settings: &AcceptorSettings,
        tickets: Option<Arc<TicketKeys>>,
        clock: TlsClock,
    ) -> Result<Self, SetupFault> {
        Self::with_randomness(settings, tickets, clock, Randomness::system())
    }

    /// `new`, with keys and nonces from `randomness`.
    ///
    /// # Errors
    /// As `new`.
    pub fn with_randomness(
        settings: &AcceptorSettings,
        tickets: Option<Arc<TicketKeys>>,
        clock: TlsClock,
        randomness: Randomness,
    ) -> Result<Self, SetupFault> {
        let provider = Arc::new(choice::provider(&settings.ciphers, &settings.groups, randomness)?);
        let certificates =
            Certificates::new(&settings.certificates, settings.strict_names, &provider)?;
        let facts: Arc<[CertificateFacts]> = certificates.facts().into();
        let own_certificates = certificates.own();
        let certificates = Arc::new(certificates);
        let choosable = settings.asks_for_choice.then(|| Arc::clone(&certificates));
        let versions = settings.version_min.and_later();
        let verifier = client_verifier(settings, &provider)?;
        let mut config = ServerConfig::builder_with_details(Arc::clone(&provider), Arc::new(clock))
            .with_protocol_versions(versions)
            .map_err(|error| SetupFault::new(SetupKind::NothingLeft, error))?
            .with_client_cert_verifier(Arc::clone(&verifier))
            .with_cert_resolver(certificates);
        config.alpn_protocols = settings.alpn.iter().map(|name| name.as_bytes().to_vec()).collect();
        config.ignore_client_order = !settings.ciphers.is_empty();
        config.session_storage = Arc::new(NoServerSessionStorage {});
        // A resumed session would skip the verification of the client's certificate.
        match tickets.filter(|_| settings.client_auth == ClientAuth::Off) {
            Some(tickets) if settings.tickets_per_handshake > 0 => {
                config.ticketer = Arc::new(BoundTickets::new(
                    tickets,
                    own_certificates.iter().map(Vec::as_slice),
                ));
                config.send_tls13_tickets = settings.tickets_per_handshake;
            }
            _ => config.send_tls13_tickets = 0,
        }
        let client_verification = verifier.offer_client_auth().then(|| ClientVerification {
            verifier,
            versions,
            refused: Arc::default(),
        });
        let keeps_names = settings.keeps_names;
        let config = Arc::new(config);
        let trust = trust_of(settings);
        let own = Self {
            config,
            keeps_names,
            trust,
            certificates: facts,
            choosable,
            client_verification,
        };
        Ok(own.with_own_refusals())
    }

    /// An acceptor with the same settings that records rejected certificates separately, so that a worker
    /// never reports a certificate that another worker rejected.
    #[must_use]
    pub fn with_own_refusals(&self) -> Self {
        let Some(verification) = &self.client_verification else { return self.clone() };
        let refused = Arc::<LastRefused>::default();
        let verifier = Arc::clone(&verification.verifier);
        let recording = RecordingVerifier { verifier, refused: Arc::clone(&refused) };
        let old = &self.config;
        let provider = Arc::clone(old.crypto_provider());
        let clock = Arc::clone(&old.time_provider);
        // This cannot fail: the same versions were accepted before with the same provider.
        let Ok(builder) = ServerConfig::builder_with_details(provider, clock)
            .with_protocol_versions(verification.versions)
        else {
            return self.clone();
        };
        let mut config = builder
            .with_client_cert_verifier(Arc::new(recording))
            .with_cert_resolver(Arc::clone(&old.cert_resolver));
        config.alpn_protocols.clone_from(&old.alpn_protocols);
        config.ignore_client_order = old.ignore_client_order;
        config.session_storage = Arc::clone(&old.session_storage);
        config.ticketer = Arc::clone(&old.ticketer);
        config.send_tls13_tickets = old.send_tls13_tickets;
        let client_verification = Some(ClientVerification { refused, ..verification.clone() });
        Self { config: Arc::new(config), client_verification, ..self.clone() }
    }

    /// A hash of the rules by which clients are verified: whether they must present certificates, the authorities, and the
    /// revocation lists. A client that was verified by other rules has to be verified again.
    #[must_use]
    pub fn trust(&self) -> u32 {
        self.trust
    }

    /// The facts about the certificates, in the order of the settings.
    #[must_use]
    pub fn certificates(&self) -> &Arc<[CertificateFacts]> {
        &self.certificates
    }

    /// Whether the user chooses the certificate of each connection.
    #[must_use]
    pub fn asks_for_choice(&self) -> bool {
        self.choosable.is_some()
    }

    /// Creates the session of an accepted connection.
    ///
    /// # Errors
    /// `Bug` if rustls rejects the configuration that it built.
    pub fn accept(&self) -> Result<TlsSession, Fault> {
        self.session(Arc::clone(&self.config))
    }

    /// As `accept`, with the certificate of this choice.
    ///
    /// # Errors
    /// As `accept`.
    pub fn accept_with(&self, choice: CertificateChoice) -> Result<TlsSession, Fault> {
        let from = self.choosable.as_ref().filter(|_| choice != CertificateChoice::Requested);
        let Some(from) = from else { return self.accept() };
        let mut config = ServerConfig::clone(&self.config);
        config.cert_resolver = Arc::new(Chosen { from: Arc::clone(from), choice });
        self.session(Arc::new(config))
    }

    fn session(&self, config: Arc<ServerConfig>) -> Result<TlsSession, Fault> {
        let verification = self.client_verification.as_ref();
        let refused = verification.map(|verification| Arc::clone(&verification.refused));
        TlsSession::server(config, self.keeps_names, refused)
    }
}

fn trust_of(settings: &AcceptorSettings) -> u32 {
    let kind = match settings.client_auth {
        ClientAuth::Off => return trust_hash([b"off", &[], &[]]),
        ClientAuth::Optional => b"optional",
        ClientAuth::Required => b"required",
    };
    let lists = settings.client_revocations_pem.as_deref().unwrap_or_default();
    trust_hash([kind, &settings.client_authorities_pem, lists])
}

fn client_verifier(
    settings: &AcceptorSettings,
    provider: &Arc<CryptoProvider>,
) -> Result<Arc<dyn ClientCertVerifier>, SetupFault> {
    if settings.client_auth == ClientAuth::Off {
        return Ok(WebPkiClientVerifier::no_client_auth());
    }
    let roots = Arc::new(decode_authorities(&settings.client_authorities_pem)?);
    let mut builder =
        WebPkiClientVerifier::builder_with_provider(Arc::clone(&roots), Arc::clone(provider));
    if let Some(pem) = &settings.client_revocations_pem {
        // An outdated list still shows which certificates were revoked. Intermediate authorities of a chain rarely have their own
        // list.
        let lists = revocation::decode_lists(pem)?;
        revocation::check_issuers(&lists, &roots)?;
        revocation::check_signatures(&lists, &roots, provider)?;
        builder = builder.with_crls(lists).allow_unknown_revocation_status();
    }
    if settings.client_auth == ClientAuth::Optional {
        builder = builder.allow_unauthenticated();
    }
    let built = builder.build();
    let verifier = built.map_err(|error| SetupFault::new(SetupKind::RevocationBroken, error))?;
    Ok(Arc::new(BoundedClients { verifier }))
}
