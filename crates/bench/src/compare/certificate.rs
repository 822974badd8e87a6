//! Creates a certificate for each contender, in the contender's own directory.
//! In: the type of key. Out: three files: the certificate, its key, and both in one file for HAProxy.
//! Never: lets another user read the files; writes outside the comparison's scratch directory.

use rcgen::{CertificateParams, KeyPair, PKCS_RSA_SHA256, RsaKeySize};
use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

/// The type of a certificate's key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Key {
    /// ECDSA P-256
    Ecdsa,
    /// RSA-2048
    Rsa,
}

/// The paths of a certificate's files.
pub(crate) struct Files {
    pub(crate) certificate: PathBuf,
    pub(crate) key: PathBuf,
    /// Certificate and key in one file.
    pub(crate) both: PathBuf,
}

/// Creates a certificate for localhost and 127.0.0.1 and writes it to `folder`.
///
/// # Errors
/// A message for the operator.
pub(crate) fn make(folder: &Path, key: Key) -> Result<Files, String> {
    let failed = |why: &dyn core::fmt::Display| {
        format!("cannot create a certificate in {}: {why}", folder.display())
    };
    let pair = match key {
        Key::Ecdsa => KeyPair::generate(),
        Key::Rsa => KeyPair::generate_rsa_for(&PKCS_RSA_SHA256, RsaKeySize::_2048),
    };
    let pair = pair.map_err(|error| failed(&error))?;
    let names = vec!["localhost".to_owned(), "127.0.0.1".to_owned()];
    let made = CertificateParams::new(names).and_then(|params| params.self_signed(&pair));
    let (certificate_pem, key_pem) =
        (made.map_err(|error| failed(&error))?.pem(), pair.serialize_pem());
    let at = |name: &str| folder.join(name);
    let files = Files { certificate: at("site.pem"), key: at("site.key"), both: at("both.pem") };
    let both_pem = format!("{certificate_pem}{key_pem}");
    for (path, pem) in
        [(&files.certificate, &certificate_pem), (&files.key, &key_pem), (&files.both, &both_pem)]
    {
        write(path, pem).map_err(|error| failed(&error))?;
    }
    Ok(files)
}

/// Writes a file that only this user may read. This is enough: servers read keys before they drop privileges.
fn write(path: &Path, pem: &str) -> io::Result<()> {
    let mut options = OpenOptions::new();
    options
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(path)?
        .write_all(pem.as_bytes())
}
