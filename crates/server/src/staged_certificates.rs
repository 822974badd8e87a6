//! Certificates that commands have given, and that wait for `commit tls cert`.
//! In: the path of a certificate, PEM of the new one and of its key. Out: the checked pair.
//! Never: keeps a certificate whose key does not match, or shows a key.
//! Limits: `STAGED_MAX` certificates of `PEM_BYTES_MAX` bytes.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use tidegate_config::model::GivenCertificate;
use tidegate_wire::tls::{Acceptor, AcceptorSettings, CertificateFiles, TlsClock};

use crate::log::Stamp;

/// Maximum size in bytes of a certificate, its intermediate certificates and its key.
pub(crate) const PEM_BYTES_MAX: usize = 64 * 1024;
/// How many certificates may wait.
const STAGED_MAX: usize = 16;
/// How many names of a certificate are shown.
const NAMES_SHOWN_MAX: usize = 5;

/// The certificates that wait, by path.
#[derive(Default)]
pub(crate) struct StagedCertificates(Mutex<BTreeMap<String, Arc<GivenCertificate>>>);

impl StagedCertificates {
    /// Keeps a certificate with its key until it is taken. Returns the parts that may be shown, and whether the certificate has
    /// replaced another one that waited.
    ///
    /// # Errors
    /// Why the pair cannot be used, or that there is no room.
    pub(crate) fn stage(&self, path: &str, pem: &str) -> Result<(String, bool), String> {
        let given = check(pem)?;
        let summary = given.summary.clone();
        let mut staged = self.lock();
        if staged.len() >= STAGED_MAX && !staged.contains_key(path) {
            return Err(format!(
                "{STAGED_MAX} certificates already wait; help: commit tls cert, or abort tls cert (show tls cert lists them)"
            ));
        }
        let replaced = staged.insert(path.to_owned(), Arc::new(given)).is_some();
        Ok((summary, replaced))
    }

    /// The certificate that waits.
    pub(crate) fn get(&self, path: &str) -> Option<Arc<GivenCertificate>> {
        self.lock().get(path).cloned()
    }

    /// Removes a certificate, unless another one has taken its place. Returns whether it waited.
    pub(crate) fn remove(&self, path: &str, given: &Arc<GivenCertificate>) -> bool {
        let mut staged = self.lock();
        let is_same = staged.get(path).is_some_and(|known| Arc::ptr_eq(known, given));
        is_same && staged.remove(path).is_some()
    }

    /// The paths of the certificates that wait.
    pub(crate) fn paths(&self) -> Vec<String> {
        self.lock().keys().cloned().collect()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Arc<GivenCertificate>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Checks that the text contains a certificate and its key.
fn check(pem: &str) -> Result<GivenCertificate, String> {
    let pem = pem.as_bytes().to_vec();
    let files = CertificateFiles { chain_pem: pem.clone(), key_pem: pem.clone(), ocsp: None };
    let settings = AcceptorSettings { certificates: vec![files], ..AcceptorSettings::default() };
    let acceptor = Acceptor::new(&settings, None, TlsClock::default())
        .map_err(|fault| format!("the certificate cannot be used: {fault}"))?;
    let facts = acceptor.certificates().first();
    let mut names: Vec<&str> =
        facts.iter().flat_map(|facts| &facts.names).map(String::as_str).collect();
    if names.len() > NAMES_SHOWN_MAX {
        names.truncate(NAMES_SHOWN_MAX);
        names.push("...");
    }
    if names.is_empty() {
        names.push("no names");
    }
    let expiry = facts.and_then(|facts| facts.not_after).map(|end| {
        format!(", expires {}", Stamp(SystemTime::UNIX_EPOCH + Duration::from_secs(end)))
    });
    let summary = names.join(" ") + &expiry.unwrap_or_default();
    Ok(GivenCertificate { pem, summary })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The PEM of a certificate for `name`, and that of its key.
    fn make(name: &str) -> (String, String) {
        let made = rcgen::generate_simple_self_signed(vec![name.to_owned()]).expect("a key");
        (made.cert.pem(), made.signing_key.serialize_pem())
    }

    #[test]
    fn pair_waits_until_it_is_removed() {
        let staged = StagedCertificates::default();
        let [(a, a_key), (b, b_key)] = [make("a.example"), make("b.example")];
        let (summary, replaced) = staged.stage("/a.pem", &(a + &a_key)).expect("it matches");
        assert!(summary.starts_with("a.example, expires ") && !replaced, "{summary}");
        let earlier = staged.get("/a.pem").expect("it waits");
        // A key before its certificate.
        let (summary, replaced) = staged.stage("/a.pem", &(b_key + &b)).expect("it matches");
        assert!(summary.starts_with("b.example, ") && replaced, "{summary}");
        assert!(!staged.remove("/a.pem", &earlier), "another one has taken its place");
        let given = staged.get("/a.pem").expect("it waits");
        assert_eq!(given.summary, summary);
        assert!(staged.remove("/a.pem", &given) && staged.paths().is_empty());
    }

    #[test]
    fn broken_pairs_are_refused_without_showing_them() {
        let staged = StagedCertificates::default();
        let [(a, a_key), (_, b_key)] = [make("a.example"), make("b.example")];
        let cut = &a_key[..a_key.len() / 2];
        for (pem, part) in [
            (String::new(), "no certificate found"),
            ("text\n".to_owned(), "no certificate found"),
            (a_key.clone(), "no certificate found"),
            (a.clone(), "no private key found"),
            (a.clone() + &b_key, "the key does not match the certificate"),
            (a.clone() + cut, "has no END line"),
            (a.clone() + &a_key.replacen('\n', " ", 1), "does not end with five hyphens"),
            (a.replace("MII", "!!!") + &a_key, "cannot be decoded"),
        ] {
            let refusal = staged.stage("/a.pem", &pem).expect_err("it is refused");
            assert!(refusal.contains(part), "{part}: {refusal}");
            let lines = pem.lines().filter(|line| line.len() > 20 && !line.starts_with('-'));
            for line in lines {
                assert!(!refusal.contains(line), "{refusal}");
            }
        }
        assert!(staged.paths().is_empty());
    }

    #[test]
    fn waiting_certificates_are_bounded() {
        let staged = StagedCertificates::default();
        let (pem, key) = make("a.example");
        let pem = pem + &key;
        for number in 0..STAGED_MAX {
            staged.stage(&number.to_string(), &pem).expect("there is room");
        }
        let refusal = staged.stage("one more", &pem).expect_err("there is no room");
        assert!(refusal.contains("already wait"), "{refusal}");
        assert!(staged.stage("0", &pem).is_ok_and(|(_, replaced)| replaced));
    }
}
