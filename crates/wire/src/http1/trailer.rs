//! The trailer section of a chunked body (RFC 9112 section 7.1.2): parsed strictly, forwarded in part.
//! In: the bytes of the section, one by one. Out: the lines that may be forwarded, in canonical form.
//! Never: forwards a field that is allowed only in the header section (RFC 9110 section 6.5.1).
//! Limits: `TRAILER_BYTES_MAX`, `HEADER_FIELDS_MAX`; allocated only when a body has a trailer field.

use super::encode::encode_field;
use super::scan::split_field_line;
use crate::message::syntax::is_text;
use crate::message::{FaultKind, is_trailer_forbidden};
use core::str::from_utf8;
use tidegate_base::limits::{HEADER_FIELDS_MAX, TRAILER_BYTES_MAX};

/// The part of a trailer section that has been received.
#[derive(Default, Debug)]
pub(super) struct TrailerSection {
    /// The current line so far, without CRLF.
    line: Vec<u8>,
    /// The lines that may be forwarded, in canonical form, each with its CRLF.
    kept: Vec<u8>,
    /// Bytes of all lines, CRLFs not counted; at most `TRAILER_BYTES_MAX`.
    bytes: usize,
    /// Complete lines, dropped ones included; at most `HEADER_FIELDS_MAX`.
    fields: usize,
}

impl TrailerSection {
    /// Adds a byte to the current line.
    pub(super) fn push(&mut self, byte: u8) -> Result<(), FaultKind> {
        if !is_text(byte) {
            return Err(FaultKind::ControlByte);
        }
        self.bytes += 1;
        if self.bytes > TRAILER_BYTES_MAX {
            return Err(FaultKind::TrailerTooLarge);
        }
        self.line.push(byte);
        Ok(())
    }

    /// Ends the current line, whose CRLF has been received.
    pub(super) fn end_line(&mut self) -> Result<(), FaultKind> {
        let (name, value) = split_field_line(&self.line)?;
        let name = from_utf8(name).map_err(|_| FaultKind::FieldNameInvalid)?;
        self.fields += 1;
        if self.fields > HEADER_FIELDS_MAX {
            return Err(FaultKind::TooManyFields);
        }
        if !is_trailer_forbidden(name) {
            encode_field(&mut self.kept, name, value);
        }
        self.line.clear();
        Ok(())
    }

    /// The lines that may be forwarded, each with its CRLF.
    pub(super) fn lines(&self) -> &[u8] {
        &self.kept
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_permitted_trailer_fields_are_kept() {
        let mut section = TrailerSection::default();
        for line in ["X-Sum:  1 ", "Host: evil", "TE: x", "if-match: *", "X-Forwarded-For: 1.1.1.1"]
        {
            line.bytes().for_each(|byte| section.push(byte).unwrap());
            section.end_line().unwrap();
        }
        assert_eq!(section.lines(), b"X-Sum: 1\r\n");
    }
}
