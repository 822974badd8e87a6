//! Edits of header fields, prepared for applying.
//! In: the edits of a route, the values of a request. Out: which received fields are dropped; the written fields.
//! Never: writes a field with an empty value.
//! Limits: `RENDERED_BYTES_MAX` for the values of one message.
//! Invariant: `values` of a response has one part for each written field that has placeholders, in order.

use tidegate_config::model::{FieldEdits, Template};

use crate::name_set::NameSet;
use crate::template::{PlaceFault, RENDERED_BYTES_MAX, Values, render_field};

/// The edits of one direction.
#[derive(Debug, Default)]
pub struct Edits {
    /// The names of received fields that are dropped, because they are removed or set.
    dropped: NameSet,
    /// The fields that are written, in order.
    written: Vec<(String, Template)>,
    /// Some written field has placeholders.
    is_dynamic: bool,
    /// Fields that are written unless the message has a field of the same name.
    defaults: &'static [(&'static str, &'static str)],
}

/// The number of bytes of the length before each part of the values.
const LENGTH_BYTES: usize = 4;

impl Edits {
    /// Prepares `edits`; `None` if there are none.
    #[must_use]
    pub fn new(edits: &FieldEdits) -> Option<Self> {
        (!edits.is_empty()).then(|| Self::with_defaults(edits, &[]))
    }

    /// Prepares `edits`. A field of `defaults` (up to eight) is written unless the message has one of the same name.
    #[must_use]
    pub fn with_defaults(
        edits: &FieldEdits,
        defaults: &'static [(&'static str, &'static str)],
    ) -> Self {
        debug_assert!(defaults.len() <= 8, "a filter remembers up to eight");
        let set = edits.set.iter().map(|(name, _)| name);
        let written: Vec<_> = edits.written().cloned().collect();
        let is_dynamic = written.iter().any(|(_, template)| template.literal().is_none());
        let dropped = NameSet::new(edits.remove.iter().chain(set));
        Self { dropped, written, is_dynamic, defaults }
    }

    /// The fields that are written unless the message has a field of the same name.
    #[must_use]
    pub const fn defaults(&self) -> &'static [(&'static str, &'static str)] {
        self.defaults
    }

    /// Whether a received field of this name is dropped.
    #[must_use]
    pub fn drops(&self, name: &str) -> bool {
        self.dropped.contains(name)
    }

    /// The names of a list, as in the field Trailer, without those of dropped fields.
    #[must_use]
    pub(crate) fn kept_names(&self, list: &[u8]) -> Vec<u8> {
        let names = list.split(|&byte| byte == b',').map(<[u8]>::trim_ascii);
        let kept = names.filter(|name| !self.drops(core::str::from_utf8(name).unwrap_or_default()));
        kept.filter(|name| !name.is_empty()).collect::<Vec<_>>().join(&b", "[..])
    }

    /// The trailer fields, as lines, without those of dropped fields.
    #[must_use]
    pub fn kept_lines(&self, lines: &[u8]) -> Vec<u8> {
        let is_kept = |line: &&[u8]| {
            let name = line.split(|&byte| byte == b':').next().unwrap_or_default();
            !self.drops(core::str::from_utf8(name).unwrap_or_default())
        };
        lines.split_inclusive(|&byte| byte == b'\n').filter(is_kept).flatten().copied().collect()
    }

    /// Whether the values depend on the request.
    #[must_use]
    pub const fn is_dynamic(&self) -> bool {
        self.is_dynamic
    }

    /// Appends the written fields as lines of HTTP/1.
    ///
    /// # Errors
    /// A value cannot be placed. The lines before it have been appended.
    pub fn encode_lines(&self, out: &mut Vec<u8>, values: &Values<'_>) -> Result<(), PlaceFault> {
        let first = out.len();
        for (name, template) in &self.written {
            let start = out.len();
            out.extend_from_slice(name.as_bytes());
            out.extend_from_slice(b": ");
            let empty = out.len();
            render_field(out, template, values)?;
            match out.len() > empty {
                true => out.extend_from_slice(b"\r\n"),
                false => out.truncate(start),
            }
            if out.len() - first > RENDERED_BYTES_MAX {
                return Err(PlaceFault::TooLong);
            }
        }
        Ok(())
    }

    /// Appends the values that depend on the request, for [`Self::fields`].
    ///
    /// # Errors
    /// A value cannot be placed. The values before it have been appended.
    pub fn render(&self, out: &mut Vec<u8>, values: &Values<'_>) -> Result<(), PlaceFault> {
        let first = out.len();
        for (_, template) in self.written.iter().filter(|(_, text)| text.literal().is_none()) {
            let at = out.len();
            out.extend_from_slice(&[0; LENGTH_BYTES]);
            render_field(out, template, values)?;
            if out.len() - first > RENDERED_BYTES_MAX {
                return Err(PlaceFault::TooLong);
            }
            let length = (out.len() - at - LENGTH_BYTES) as u32;
            if let Some(place) = out.get_mut(at..at + LENGTH_BYTES) {
                place.copy_from_slice(&length.to_le_bytes());
            }
        }
        Ok(())
    }

    /// The written fields with their values; `values` is the output of [`Self::render`]. Fields that depend on the request are
    /// left out if `values` is empty.
    pub fn fields<'a>(&'a self, values: &'a [u8]) -> impl Iterator<Item = (&'a str, &'a [u8])> {
        let mut rest = values;
        let values = self.written.iter().map(move |(name, template)| {
            let value = match template.literal() {
                Some(text) => text.as_bytes(),
                None => take_part(&mut rest),
            };
            (name.as_str(), value)
        });
        values.filter(|(_, value)| !value.is_empty())
    }
}

/// Takes the first part of rendered values; empty if there is none.
fn take_part<'v>(rest: &mut &'v [u8]) -> &'v [u8] {
    let Some((length, after)) = rest.split_first_chunk::<LENGTH_BYTES>() else { return b"" };
    let (part, after) =
        after.split_at_checked(u32::from_le_bytes(*length) as usize).unwrap_or_default();
    *rest = after;
    part
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trailers_lose_the_fields_that_are_dropped() {
        let remove = ["x-secret", "x-powered-by"].map(str::to_owned).to_vec();
        let edits = FieldEdits { remove, ..FieldEdits::default() };
        let edits = Edits::new(&edits).expect("edits");
        assert_eq!(
            edits.kept_lines(b"X-Sum: 1\r\nx_secret: s\r\nX-Powered-By: php\r\ngrpc-status: 0\r\n"),
            b"X-Sum: 1\r\ngrpc-status: 0\r\n"
        );
        assert_eq!(edits.kept_lines(b""), b"");
        assert_eq!(edits.kept_names(b"x-powered-by, X-Sum ,x-secret,,a"), b"X-Sum, a");
        assert_eq!(edits.kept_names(b"X-Secret"), b"");
    }
}
