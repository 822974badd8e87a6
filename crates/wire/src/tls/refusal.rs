//! Keeps the client certificate that was rejected last, for the log, since rustls keeps only valid ones.
//! In: the certificates that clients present. Out: the unchanged result of the verifier; the identity in a
//! rejected certificate.
//! Never: changes a result or its alert.
//! Limits: one certificate, until it is taken or the next one is verified; its size is bounded by that of
//! handshake messages.
//! Invariant: if only one thread uses the acceptor, the certificate belongs to the session that failed last.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{DistinguishedName, Error};

use super::forward::forward_signature_checks;
use super::identity::PeerIdentity;

/// The client certificate that an acceptor rejected last.
#[derive(Default, Debug)]
pub(super) struct LastRefused(Mutex<Option<CertificateDer<'static>>>);

impl LastRefused {
    /// Takes the certificate and returns the identity in it.
    pub(super) fn take(&self) -> Option<PeerIdentity> {
        let certificate = self.lock().take()?;
        Some(PeerIdentity::of(&certificate))
    }

    fn lock(&self) -> MutexGuard<'_, Option<CertificateDer<'static>>> {
        // A thread that panicked while it held the lock left the value in a valid state.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Verifies with `verifier`, and keeps a rejected certificate in `refused`.
#[derive(Debug)]
pub(super) struct RecordingVerifier {
    pub(super) verifier: Arc<dyn ClientCertVerifier>,
    pub(super) refused: Arc<LastRefused>,
}

impl ClientCertVerifier for RecordingVerifier {
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

    forward_signature_checks!();

    fn requires_raw_public_keys(&self) -> bool {
        self.verifier.requires_raw_public_keys()
    }
}
