//! Why the service could not start, as text for the user.

use std::io;

use tidegate_config::findings::Finding;

/// Why the service could not start.
#[derive(Debug)]
pub enum StartError {
    /// Certificates, keys, revocation lists or names of servers cannot be used; never empty.
    Values(Vec<Finding>),
    /// A listener could not be opened.
    Listen(String),
    /// Another process listens on these addresses; each message contains the address, the process and the fix.
    Taken(Vec<String>),
    /// The access log or the admin interface cannot be opened.
    Open(String),
    /// A system call that the start needs has failed.
    System {
        /// The step that failed, such as "starting a worker thread".
        what: &'static str,
        /// The kernel's error.
        cause: io::Error,
    },
}

impl core::fmt::Display for StartError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Values(findings) => {
                for (index, Finding { subject, what, .. }) in findings.iter().enumerate() {
                    let lead = if index == 0 { "" } else { "\ntidegate: " };
                    write!(f, "{lead}{subject}: {what}")?;
                }
                Ok(())
            }
            Self::Listen(text) | Self::Open(text) => write!(f, "{text}"),
            Self::Taken(texts) => write!(f, "{}", texts.join("\ntidegate: ")),
            Self::System { what, cause } => write!(f, "{what} failed: {cause}"),
        }
    }
}

impl std::error::Error for StartError {}
