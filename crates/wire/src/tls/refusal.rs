//! The client certificate that was refused last, for the log: the library keeps none that is not good.
//! In: certificates as they are verified. Out: the verifier's word, unchanged; who a refused one is about.
//! Never: changes a verdict, or the alert that goes with it.
//! Limits: one certificate, until it is asked for or the next is verified; handshake messages bound it.
//! Invariant: where one thread alone uses the acceptor, what is kept belongs to the session that failed last.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustls::client::danger::HandshakeSignatureValid;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{DigitallySignedStruct, DistinguishedName, Error, SignatureScheme};

use super::identity::PeerIdentity;

/// The last refused certificate of an acceptor's clients.
#[derive(Default, Debug)]
pub(super) struct LastRefused(Mutex<Option<CertificateDer<'static>>>);

impl LastRefused {
    /// Who it is about, once.
    pub(super) fn take(&self) -> Option<PeerIdentity> {
        let certificate = self.lock().take()?;
        Some(PeerIdentity::of(&certificate))
    }

    fn lock(&self) -> MutexGuard<'_, Option<CertificateDer<'static>>> {
        // What is behind it is whole between any two instructions.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Verifies as `verifier` does, and keeps what is refused.
#[derive(Debug)]
pub(super) struct Noting {
    pub(super) verifier: Arc<dyn ClientCertVerifier>,
    pub(super) refused: Arc<LastRefused>,
}

impl ClientCertVerifier for Noting {
    fn offer_client_auth(&self) -> bool {
        self.verifier.offer_client_auth()
    }

    fn client_auth_mandatory(&self) -> bool {
        self.verifier.client_auth_mandatory()
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.verifier.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        let verdict = self.verifier.verify_client_cert(end_entity, intermediates, now);
        *self.refused.lock() = verdict.is_err().then(|| end_entity.clone().into_owned());
        verdict
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

    fn requires_raw_public_keys(&self) -> bool {
        self.verifier.requires_raw_public_keys()
    }
}
