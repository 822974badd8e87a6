//! Addresses of services that Tidegate itself uses.
//! In: settings. Out: the parts of an address.

use super::KeyContent;

/// The address of a service that Tidegate itself uses: public keys, or a collector of traces.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RemoteAddress {
    /// As it is written.
    pub url: String,
    /// By https.
    pub is_tls: bool,
    /// A name or an IP address, without brackets.
    pub host: String,
    /// The host and the port as they are written, for the Host field.
    pub authority: String,
    /// The port.
    pub port: u16,
    /// The path and the query.
    pub target: String,
    /// The path of the file with the authorities that verify the server; `None`: those of the system.
    pub ca: Option<String>,
    /// The content of the file; empty until it is read.
    pub authorities: KeyContent,
}
