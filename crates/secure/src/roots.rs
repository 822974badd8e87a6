//! The operating system's certificate authorities.
//! In: the file that SSL_CERT_FILE names, or the usual bundles of Linux distributions. Out: PEM.
//! Limits: `FILE_BYTES_MAX`.

use std::fs;
use std::io::Read;

/// Maximum number of bytes read from one file. Bundles of authorities are far smaller.
const FILE_BYTES_MAX: u64 = 16 * 1024 * 1024;
/// The paths of the bundle in Linux distributions, in the order of the search.
const SYSTEM_ROOTS: [&str; 4] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

/// The PEM text of the first bundle that can be read; empty if no bundle can be read.
#[must_use]
pub fn system_roots() -> Vec<u8> {
    let named = std::env::var("SSL_CERT_FILE").ok();
    let mut places = named.iter().map(String::as_str).chain(SYSTEM_ROOTS);
    places.find_map(read).unwrap_or_default()
}

fn read(path: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    fs::File::open(path).ok()?.take(FILE_BYTES_MAX).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}
