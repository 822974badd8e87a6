//! A certificate with its key: the files of the configuration, or the certificate that a command has given in their place.
//! In: paths; PEM that was checked. Out: data.
//! Never: shows a private key: `Debug` of a given certificate contains its summary only.

use std::sync::Arc;

/// The files of a certificate and its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificatePaths {
    /// PEM file: the certificate, followed by the intermediate certificates. Commands know the certificate by this path.
    pub cert: String,
    /// PEM file: the private key.
    pub key: String,
    /// DER file: an OCSP response to staple.
    pub ocsp: Option<String>,
    /// The certificate and key that are used in place of the files; `None`: the files.
    pub given: Option<Arc<GivenCertificate>>,
}

/// A certificate and its key that a command has given.
#[derive(Clone, PartialEq, Eq)]
pub struct GivenCertificate {
    /// PEM: the certificate, the intermediate certificates, and the private key.
    pub pem: Vec<u8>,
    /// The facts that are shown to operators: names and expiry.
    pub summary: String,
}

impl core::fmt::Debug for GivenCertificate {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_tuple("GivenCertificate").field(&self.summary).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_is_not_shown() {
        let (pem, summary) = (b"secret".to_vec(), "a.example".to_owned());
        let shown = format!("{:?}", GivenCertificate { pem, summary });
        assert_eq!(shown, "GivenCertificate(\"a.example\")");
    }
}
