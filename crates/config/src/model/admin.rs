//! The settings of the admin interface.
//! In: settings. Out: data.

use super::{Bind, CertificatePaths};

/// `[admin]`: the admin interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Admin {
    /// The address.
    pub bind: Bind,
    /// Path of the file with the token; present unless `bind` is local or `tls` has authorities.
    pub token_file: Option<String>,
    /// Path of the file with the token for reading; only with `token_file`.
    pub read_token_file: Option<String>,
    /// TLS; `None`: the interface does not encrypt.
    pub tls: Option<AdminTls>,
}

/// `tls` of `[admin]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdminTls {
    /// The certificate of the interface and its key.
    pub certificate: CertificatePaths,
    /// PEM file: the authorities of operators' certificates; `None`: no certificates are requested.
    pub client_ca: Option<String>,
    /// PEM file: revocation lists for operators' certificates; only with `client_ca`.
    pub client_crl: Option<String>,
    /// Names of certificates that may do everything; all others may only read. `None`: all may do everything. Only with `client_ca`.
    pub write_clients: Option<Vec<String>>,
}

impl Admin {
    /// Whether clients identify themselves by certificates.
    #[must_use]
    pub fn has_client_ca(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.client_ca.is_some())
    }
}
