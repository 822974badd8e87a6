//! Bounds for the certificates that a peer presents, and the hash of the rules by which they are verified.
//! In: a chain. Out: the verdict of the verifier, or a refusal before the verifier sees the chain.
//! Never: builds a path.
//! Limits: `INTERMEDIATES_MAX`, `SAME_SUBJECT_MAX`, `CHAIN_BYTES_MAX`.
//!
//! The verifier searches for a path to an authority before it checks a signature, and tries each order of the certificates whose
//! names fit. Without these bounds, one handshake with a chain of 65 kB that anybody can make up takes half a minute.

use std::sync::Arc;

use aws_lc_rs::digest;
use rustls::client::danger::{ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{CertificateError, DistinguishedName, Error, OtherError};

use super::der;
use super::forward::forward_signature_checks;

/// Maximum number of certificates that follow the peer's own. Public authorities need up to three; some servers send a few more
/// than they need.
const INTERMEDIATES_MAX: usize = 8;
/// Maximum number of these certificates with one subject: an authority that two others have certified, or that has a new key.
const SAME_SUBJECT_MAX: usize = 2;
/// Maximum number of bytes of the whole chain.
const CHAIN_BYTES_MAX: usize = 32 * 1024;

/// Why a chain is refused.
#[derive(Debug)]
pub(super) struct ChainTooLarge;

impl core::fmt::Display for ChainTooLarge {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("the chain of certificates is too large")
    }
}

impl core::error::Error for ChainTooLarge {}

/// Refuses a chain that exceeds the bounds.
fn check(own: &CertificateDer<'_>, intermediates: &[CertificateDer<'_>]) -> Result<(), Error> {
    let bytes: usize = intermediates.iter().map(|certificate| certificate.len()).sum();
    let is_long = intermediates.len() > INTERMEDIATES_MAX || own.len() + bytes > CHAIN_BYTES_MAX;
    let subjects = || intermediates.iter().map(|certificate| der::read_subject(certificate));
    // Certificates that cannot be read count as having one subject.
    let is_repeated =
        |subject| subjects().filter(|other| *other == subject).count() > SAME_SUBJECT_MAX;
    if is_long || subjects().any(is_repeated) {
        let error = CertificateError::Other(OtherError(Arc::new(ChainTooLarge)));
        return Err(Error::InvalidCertificate(error));
    }
    Ok(())
}

/// A hash of rules for the verification of peers.
pub(super) fn trust_hash(parts: [&[u8]; 3]) -> u32 {
    let mut hash = digest::Context::new(&digest::SHA256);
    for part in parts {
        hash.update(&part.len().to_be_bytes());
        hash.update(part);
    }
    hash.finish().as_ref().iter().take(4).fold(0, |trust, byte| trust << 8 | u32::from(*byte))
}

/// Verifies the chains of clients that are within the bounds.
#[derive(Debug)]
pub(super) struct BoundedClients {
    pub(super) verifier: Arc<dyn ClientCertVerifier>,
}

impl ClientCertVerifier for BoundedClients {
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
        check(end_entity, intermediates)?;
        self.verifier.verify_client_cert(end_entity, intermediates, now)
    }

    forward_signature_checks!();

    fn requires_raw_public_keys(&self) -> bool {
        self.verifier.requires_raw_public_keys()
    }
}

/// Verifies the chains of servers that are within the bounds.
#[derive(Debug)]
pub(super) struct BoundedServers {
    pub(super) verifier: Arc<dyn ServerCertVerifier>,
}

impl ServerCertVerifier for BoundedServers {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        check(end_entity, intermediates)?;
        self.verifier.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now)
    }

    forward_signature_checks!();
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, DnType, KeyPair};

    use super::*;

    fn certificate(name: &str) -> CertificateDer<'static> {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        params.self_signed(&KeyPair::generate().unwrap()).unwrap().der().clone()
    }

    #[test]
    fn chains_are_bounded_in_length_size_and_certificates_of_one_subject() {
        let own = certificate("own");
        let named: Vec<_> = (0..=INTERMEDIATES_MAX).map(|n| certificate(&n.to_string())).collect();
        assert!(check(&own, &[]).is_ok());
        assert!(check(&own, &named[1..]).is_ok());
        assert!(check(&own, &named).is_err(), "too many");
        let same: Vec<_> = (0..3).map(|_| certificate("same")).collect();
        assert!(check(&own, &same[1..]).is_ok());
        assert!(check(&own, &same).is_err(), "one subject");
        let broken = |bytes| CertificateDer::from(vec![0; bytes]);
        assert!(check(&own, &[broken(CHAIN_BYTES_MAX - own.len())]).is_ok());
        assert!(check(&own, &[broken(CHAIN_BYTES_MAX - own.len() + 1)]).is_err(), "too large");
        assert!(check(&own, &[broken(1), broken(2), broken(3)]).is_err(), "unreadable");
    }
}
