//! The value of the Date field, rendered only when the second changes (RFC 9110 section 5.6.7).
//! In: seconds since 1970 from the worker's clock. Out: 29 bytes of IMF-fixdate.
//! Never: reads a clock.

use core::time::Duration;
use httpdate::HttpDate;
use std::io::Write;
use std::time::UNIX_EPOCH;

/// The current Date value of one worker.
#[derive(Clone, Debug)]
pub struct DateField {
    /// The second that `rendered` shows, in seconds since 1970.
    unix_seconds: u64,
    /// The value of the field.
    rendered: [u8; 29],
}

/// The last second of the year 9999, the latest that IMF-fixdate can express.
const UNIX_SECONDS_MAX: u64 = 253_402_300_799;

impl DateField {
    /// Creates the value for this second.
    #[must_use]
    pub fn new(unix_seconds: u64) -> Self {
        let mut field = Self { unix_seconds, rendered: *b"Thu, 01 Jan 1970 00:00:00 GMT" };
        field.render();
        field
    }

    /// Sets the second; renders the value only if the second changed.
    #[inline]
    pub fn update(&mut self, unix_seconds: u64) {
        if self.unix_seconds != unix_seconds {
            self.unix_seconds = unix_seconds;
            self.render();
        }
    }

    /// The value, for example `Sun, 06 Nov 1994 08:49:37 GMT`.
    #[must_use]
    #[inline]
    pub const fn as_bytes(&self) -> &[u8; 29] {
        &self.rendered
    }

    fn render(&mut self) {
        let seconds = self.unix_seconds.min(UNIX_SECONDS_MAX);
        let date = HttpDate::from(UNIX_EPOCH + Duration::from_secs(seconds));
        // A date with a four-digit year has exactly 29 bytes, so it fits the slice.
        let written = write!(&mut self.rendered[..], "{date}");
        debug_assert!(written.is_ok(), "a date of more than 29 bytes");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn date_is_rendered_for_its_second() {
        let mut field = DateField::new(784_111_777);
        assert_eq!(field.as_bytes(), b"Sun, 06 Nov 1994 08:49:37 GMT");
        field.update(0);
        assert_eq!(field.as_bytes(), b"Thu, 01 Jan 1970 00:00:00 GMT");
        field.update(1_709_164_800);
        assert_eq!(field.as_bytes(), b"Thu, 29 Feb 2024 00:00:00 GMT");
        field.update(u64::MAX);
        assert_eq!(field.as_bytes(), b"Fri, 31 Dec 9999 23:59:59 GMT");
    }
}
