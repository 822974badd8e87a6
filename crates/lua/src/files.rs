//! Files of an application's folder that a script sends or reads (`response:file`, `tide.files.read`).
//! In: paths, the facts about a file. Out: reads of pieces (`Effect::ReadFile`); fields of the response.
//! Never: reads a file itself; sends a path that leaves the folder or names a hidden file.
//! Limits: `PIECE_BYTES_MAX` of a file at once, `PATH_BYTES_MAX` of a path.

use tidegate_wire::message::DateField;

use crate::exchange::{Part, Response};
use crate::host::{Effect, Host, ScriptRequestId};
use crate::operations::{OperationId, OperationKind};

/// Maximum number of bytes of a file that one operation reads.
const PIECE_BYTES_MAX: usize = 256 * 1024;
/// Maximum number of bytes of a path.
const PATH_BYTES_MAX: usize = 1024;

/// Whether a path names a file below a folder: no part of it is hidden, is empty, or leads elsewhere.
fn is_below(path: &[u8]) -> bool {
    let is_plain = |part: &[u8]| !part.is_empty() && !part.starts_with(b".");
    path.len() <= PATH_BYTES_MAX
        && !path.contains(&0)
        && path.split(|byte| *byte == b'/').all(is_plain)
}

impl Host {
    /// Starts the read of a piece of a file.
    pub(crate) fn start_file_read(
        &mut self,
        path: &[u8],
        offset: f64,
        bytes_max: f64,
    ) -> Result<OperationId, &'static str> {
        if !is_below(path) {
            return Err("not found");
        }
        let operation = self.start_operation(path.len(), OperationKind::Call)?;
        let path = self.outbox.push(path);
        let (offset, bytes_max) = (offset as u64, (bytes_max as usize).min(PIECE_BYTES_MAX));
        self.outbox.effects.push(Effect::ReadFile { operation, path, offset, bytes_max });
        Ok(operation)
    }

    /// Describes a file in the head of a response, unless the head has been sent. Returns whether the client has this version of
    /// the file already (RFC 9110 section 13.1).
    pub(crate) fn describe_file(
        &mut self,
        id: ScriptRequestId,
        media_type: &[u8],
        tag: &[u8],
        modified: u64,
    ) -> Result<bool, String> {
        let exchange = self.exchange(id)?;
        if exchange.response != Response::Expected {
            return Ok(false);
        }
        let (tag, date) = ([b"\"", tag, b"\""].concat(), DateField::new(modified));
        exchange.set_default_type(media_type);
        exchange.set_answer_field(b"Last-Modified", Some(date.as_bytes()), true)?;
        exchange.set_answer_field(b"ETag", Some(&tag), true)?;
        let method = exchange.part(Part::Method);
        if exchange.status != 200 || !matches!(method.as_deref(), Some(b"GET" | b"HEAD")) {
            return Ok(false);
        }
        let values = |name: &'static str| {
            let named = exchange.fields().filter(move |(own, _)| own.eq_ignore_ascii_case(name));
            named.map(|(_, value)| value.trim_ascii())
        };
        let mut tags = values("if-none-match").flat_map(|list| list.split(|byte| *byte == b','));
        let is_same = |other: &[u8]| {
            let other = other.trim_ascii();
            other == b"*" || other.strip_prefix(b"W/").unwrap_or(other) == tag
        };
        if values("if-none-match").next().is_some() {
            return Ok(tags.any(is_same));
        }
        Ok(values("if-modified-since").any(|since| since == date.as_bytes()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_stay_below_the_folder() {
        for path in ["a", "a/b.html", "a/b/c..d", "a b/\u{e9}", &"a".repeat(1024)] {
            assert!(is_below(path.as_bytes()), "{path}");
        }
        let long = "a".repeat(1025);
        for path in
            ["", "/a", "a/", "a//b", ".", "..", "../a", "a/..", ".git/a", "a/.b", "a\0b", &long]
        {
            assert!(!is_below(path.as_bytes()), "{path}");
        }
    }
}
