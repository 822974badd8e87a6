//! The versions of HTTP (RFC 9110 section 2.5).
//! In: a minor version, or the protocol of a connection. Out: a closed enum in order of age.

/// The version of a message. Later versions are greater; every version above [`Version::Http10`] has interim
/// responses, expectations and trailers.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Version {
    /// HTTP/1.0.
    Http10,
    /// HTTP/1.1, or a later minor version, which is treated as 1.1.
    Http11,
    /// HTTP/2.
    Http2,
}

impl Version {
    /// The version 1.x with this minor number.
    pub(crate) const fn from_minor(minor: u8) -> Self {
        if minor == 0 { Self::Http10 } else { Self::Http11 }
    }

    /// The number of the version, as in Via (RFC 9110 section 7.6.3). HTTP/2 is "2.0" (RFC 9113 section
    /// 8.3.1).
    #[must_use]
    #[inline]
    pub const fn number(self) -> &'static str {
        match self {
            Self::Http10 => "1.0",
            Self::Http11 => "1.1",
            Self::Http2 => "2.0",
        }
    }
}
