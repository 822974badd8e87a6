//! Certificate revocation lists (RFC 5280 section 5), checked when settings are read.
//! In: PEM, authorities. Out: lists that the verifier of rustls uses, or a fault for the operator.
//! Never: judges a certificate; checks the times of a list.

use core::cmp::Reverse;

use rustls::RootCertStore;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::CertificateRevocationListDer;
use rustls::pki_types::pem::PemObject;

use super::der;
use super::setup::{SetupFault, SetupKind};

/// The revocation lists in `pem`, at least one; the newest one is first, because the verifier looks only into the first list of
/// an issuer.
pub(super) fn decode_lists(
    pem: &[u8],
) -> Result<Vec<CertificateRevocationListDer<'static>>, SetupFault> {
    let lists: Result<Vec<_>, _> = CertificateRevocationListDer::pem_slice_iter(pem).collect();
    let mut lists =
        lists.map_err(|error| SetupFault::of_pem(SetupKind::RevocationBroken, &error))?;
    lists.sort_by_key(|list| Reverse(der::read_list_head(list).map(|(issued, _)| issued)));
    if lists.is_empty() { Err(SetupFault::new(SetupKind::RevocationBroken, "")) } else { Ok(lists) }
}

/// Refuses a list of another authority: it would revoke nothing, and nothing would show that.
pub(super) fn check_issuers(
    lists: &[CertificateRevocationListDer<'_>],
    roots: &RootCertStore,
) -> Result<(), SetupFault> {
    for (at, list) in lists.iter().enumerate() {
        let issuer = read_issuer(list)?;
        if !roots.roots.iter().any(|root| root.subject.as_ref() == issuer) {
            return Err(SetupFault::new(SetupKind::RevocationForeign, position(at, lists)));
        }
    }
    Ok(())
}

/// Refuses a list in the name of one of `roots` that none of them with this name has signed: the verifier would refuse
/// every certificate of that authority. Authorities that have changed their key have several certificates of one name.
pub(super) fn check_signatures(
    lists: &[CertificateRevocationListDer<'_>],
    roots: &RootCertStore,
    provider: &CryptoProvider,
) -> Result<(), SetupFault> {
    for (at, list) in lists.iter().enumerate() {
        let issuer = read_issuer(list)?;
        let mut keys = roots
            .roots
            .iter()
            .filter(|root| root.subject.as_ref() == issuer)
            .map(|root| root.subject_public_key_info.as_ref())
            .peekable();
        if keys.peek().is_some() && !keys.any(|key| is_signed_by(list, key, provider)) {
            return Err(SetupFault::new(SetupKind::RevocationForged, position(at, lists)));
        }
    }
    Ok(())
}

fn read_issuer<'a>(list: &'a CertificateRevocationListDer<'_>) -> Result<&'a [u8], SetupFault> {
    let head = der::read_list_head(list);
    head.map(|(_, issuer)| issuer).ok_or_else(|| SetupFault::new(SetupKind::RevocationBroken, ""))
}

fn position(at: usize, lists: &[CertificateRevocationListDer<'_>]) -> String {
    format!("list {} of {}", at + 1, lists.len())
}

/// Whether the key, which is the content of a SubjectPublicKeyInfo, has signed the list.
fn is_signed_by(
    list: &CertificateRevocationListDer<'_>,
    public_key: &[u8],
    provider: &CryptoProvider,
) -> bool {
    let Some((signed, signature_algorithm, signature)) = der::split_signed(list) else {
        return false;
    };
    let Some((key_algorithm, key)) = der::split_public_key(public_key) else { return false };
    provider.signature_verification_algorithms.all.iter().any(|algorithm| {
        algorithm.signature_alg_id().as_ref() == signature_algorithm
            && algorithm.public_key_alg_id().as_ref() == key_algorithm
            && algorithm.verify_signature(key, signed, signature).is_ok()
    })
}
