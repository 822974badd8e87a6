//! The certificate that a listener presents to a client, if something other than the requested name decides.
//! In: nothing. Out: the choice, which passes from a script through the reactor to TLS.

/// The certificate for an accepted connection.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub enum CertificateChoice {
    /// The one that the requested name selects.
    #[default]
    Requested,
    /// The one that this name would select.
    Named(Box<str>),
    /// The one with this index in the settings of the listener.
    Index(usize),
    /// None: the handshake is refused.
    Refused,
}
