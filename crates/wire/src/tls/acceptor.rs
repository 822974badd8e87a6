//! What a listener needs to accept TLS: certificates, versions, protocols, client authentication.
//! In: `AcceptorSettings` (PEM as bytes). Out: an `Acceptor` that begins sessions.
//! Never: a stateful session cache, early data, renegotiation.
//! Invariant: where a client's certificate counts, no session is resumed: each handshake verifies it anew.

use std::sync::Arc;

use rustls::crypto::CryptoProvider;
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::{ServerConfig, SupportedProtocolVersion};

use super::certificate::{CertificateFiles, Certificates, decode_authorities, decode_revocations};
use super::choice::{self, Version};
use super::clock::TlsClock;
use super::fault::Fault;
use super::randomness::Randomness;
use super::refusal::{LastRefused, Noting};
use super::session::TlsSession;
use super::setup::{SetupFault, SetupKind};
use super::tickets::TicketKeys;

/// Whether clients show certificates.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum ClientAuth {
    /// They are not asked.
    #[default]
    Off,
    /// They are asked; one that is shown must be good.
    Optional,
    /// Without a good one there is no connection.
    Required,
}

/// How a listener speaks TLS.
#[derive(Clone, Debug)]
pub struct AcceptorSettings {
    /// In order of preference where several fit a name.
    pub certificates: Vec<CertificateFiles>,
    /// Refuse names that no certificate is for, instead of showing the first.
    pub strict_names: bool,
    /// The oldest version spoken.
    pub version_min: Version,
    /// IANA names in order of preference; empty: all of `CIPHER_NAMES`.
    pub ciphers: Vec<String>,
    /// Names in order of preference; empty: all of `GROUP_NAMES`.
    pub groups: Vec<String>,
    /// Application protocols in order of preference; empty: none is negotiated.
    pub alpn: Vec<String>,
    /// Whether clients show certificates.
    pub client_auth: ClientAuth,
    /// PEM of the authorities that client certificates are judged by.
    pub client_authorities_pem: Vec<u8>,
    /// PEM of revocation lists.
    pub client_revocations_pem: Option<Vec<u8>>,
    /// TLS 1.3 tickets given after a handshake; 0: none.
    pub tickets_per_handshake: usize,
    /// Sessions remember the name that the client asked for.
    pub keeps_names: bool,
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
        }
    }
}

/// Begins server sessions; cheap to clone, immutable: changed files make a new one.
#[derive(Clone, Debug)]
pub struct Acceptor {
    config: Arc<ServerConfig>,
    keeps_names: bool,
    /// Where clients are asked for certificates.
    judge: Option<Judge>,
}

/// What verifies clients' certificates.
#[derive(Clone, Debug)]
struct Judge {
    verifier: Arc<dyn ClientCertVerifier>,
    versions: &'static [&'static SupportedProtocolVersion],
    refused: Arc<LastRefused>,
}

impl Acceptor {
    /// Checks and prepares `settings`. Tickets are sealed by `tickets`, time is what `clock` shows.
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
        let versions = settings.version_min.and_later();
        let verifier = client_verifier(settings, &provider)?;
        let mut config = ServerConfig::builder_with_details(Arc::clone(&provider), Arc::new(clock))
            .with_protocol_versions(versions)
            .map_err(|error| SetupFault::new(SetupKind::NothingLeft, error))?
            .with_client_cert_verifier(Arc::clone(&verifier))
            .with_cert_resolver(Arc::new(certificates));
        config.alpn_protocols = settings.alpn.iter().map(|name| name.as_bytes().to_vec()).collect();
        config.ignore_client_order = !settings.ciphers.is_empty();
        config.session_storage = Arc::new(NoServerSessionStorage {});
        // A resumed session would be one whose certificate nobody looked at again.
        match tickets.filter(|_| settings.client_auth == ClientAuth::Off) {
            Some(tickets) if settings.tickets_per_handshake > 0 => {
                config.ticketer = tickets;
                config.send_tls13_tickets = settings.tickets_per_handshake;
            }
            _ => config.send_tls13_tickets = 0,
        }
        let judge = verifier.offer_client_auth().then(|| Judge {
            verifier,
            versions,
            refused: Arc::default(),
        });
        let keeps_names = settings.keeps_names;
        Ok(Self { config: Arc::new(config), keeps_names, judge }.with_own_refusals())
    }

    /// An acceptor of the same settings that keeps refused certificates of its own, so that no worker takes
    /// another's for its own.
    #[must_use]
    pub fn with_own_refusals(&self) -> Self {
        let Some(judge) = &self.judge else { return self.clone() };
        let refused = Arc::<LastRefused>::default();
        let noting =
            Noting { verifier: Arc::clone(&judge.verifier), refused: Arc::clone(&refused) };
        let old = &self.config;
        let provider = Arc::clone(old.crypto_provider());
        let clock = Arc::clone(&old.time_provider);
        // The versions were taken before, beside the same provider.
        let Ok(builder) = ServerConfig::builder_with_details(provider, clock)
            .with_protocol_versions(judge.versions)
        else {
            return self.clone();
        };
        let mut config = builder
            .with_client_cert_verifier(Arc::new(noting))
            .with_cert_resolver(Arc::clone(&old.cert_resolver));
        config.alpn_protocols.clone_from(&old.alpn_protocols);
        config.ignore_client_order = old.ignore_client_order;
        config.session_storage = Arc::clone(&old.session_storage);
        config.ticketer = Arc::clone(&old.ticketer);
        config.send_tls13_tickets = old.send_tls13_tickets;
        let judge = Some(Judge { refused, ..judge.clone() });
        Self { config: Arc::new(config), keeps_names: self.keeps_names, judge }
    }

    /// Begins the session of a connection that has come in.
    ///
    /// # Errors
    /// `Bug` when the library refuses its own settings.
    pub fn accept(&self) -> Result<TlsSession, Fault> {
        let refused = self.judge.as_ref().map(|judge| Arc::clone(&judge.refused));
        TlsSession::server(Arc::clone(&self.config), self.keeps_names, refused)
    }
}

fn client_verifier(
    settings: &AcceptorSettings,
    provider: &Arc<CryptoProvider>,
) -> Result<Arc<dyn ClientCertVerifier>, SetupFault> {
    if settings.client_auth == ClientAuth::Off {
        return Ok(WebPkiClientVerifier::no_client_auth());
    }
    let roots = Arc::new(decode_authorities(&settings.client_authorities_pem)?);
    let mut builder = WebPkiClientVerifier::builder_with_provider(roots, Arc::clone(provider));
    if let Some(pem) = &settings.client_revocations_pem {
        // A list that is out of date still tells what was revoked; a chain's intermediate authorities
        // rarely have a list of their own.
        builder = builder
            .with_crls(decode_revocations(pem)?)
            .only_check_end_entity_revocation()
            .allow_unknown_revocation_status();
    }
    if settings.client_auth == ClientAuth::Optional {
        builder = builder.allow_unauthenticated();
    }
    builder.build().map_err(|error| SetupFault::new(SetupKind::RevocationBroken, error))
}
