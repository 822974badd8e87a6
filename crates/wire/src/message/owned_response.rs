//! The head of a response of HTTP/2, kept after the block that it was decoded from is gone.
//! In: a head. Out: the same head.
//! Never: changes it.

use super::field::{FieldTable, Packed, PackedField};
use super::length::BodyLength;
use super::response::ResponseHead;
use super::version::Version;

/// The head of a response without a reason phrase.
#[derive(Debug)]
pub struct OwnedResponse {
    /// The names of the fields.
    names: String,
    /// The values of the fields.
    values: Vec<u8>,
    /// The fields, in order.
    fields: Vec<PackedField>,
    version: Version,
    status: u16,
    length: BodyLength,
    content_length: Option<u64>,
    persistent: bool,
    upgrade: bool,
}

impl OwnedResponse {
    /// Keeps a head.
    #[must_use]
    pub fn new(head: &ResponseHead<'_>) -> Self {
        let mut kept = Self {
            names: String::new(),
            values: Vec::new(),
            fields: Vec::new(),
            version: head.version,
            status: head.status,
            length: head.length,
            content_length: head.content_length,
            persistent: head.persistent,
            upgrade: head.upgrade,
        };
        for field in head.fields() {
            let (name, value) = (kept.names.len(), kept.values.len());
            kept.names.push_str(field.name);
            kept.values.extend_from_slice(field.value);
            kept.fields.push(PackedField {
                id: field.id,
                name: (name as u32, kept.names.len() as u32),
                value: (value as u32, kept.values.len() as u32),
                is_sensitive: field.is_sensitive,
            });
        }
        kept
    }

    /// The head.
    #[must_use]
    pub fn lend(&self) -> ResponseHead<'_> {
        let (fields, names, values) = (&self.fields[..], &self.names[..], &self.values[..]);
        ResponseHead {
            version: self.version,
            status: self.status,
            reason: "",
            length: self.length,
            content_length: self.content_length,
            persistent: self.persistent,
            upgrade: self.upgrade,
            fields: FieldTable::of_packed(Packed { fields, names, values }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http1::{HeadDecoder, ResponseLimits};
    use crate::message::{FieldName, RequestKind, ResponseStorage};

    #[test]
    fn lent_head_is_the_one_that_was_kept() {
        let text =
            b"HTTP/1.1 304 \r\nETag: \"a\"\r\nX-Two: 1\r\nx-two: 2\r\nContent-Length: 7\r\n\r\n";
        let mut storage = ResponseStorage::new();
        let decoded = HeadDecoder::default().decode_response(
            text,
            &ResponseLimits::default(),
            RequestKind::default(),
            &mut storage,
        );
        let (head, _) = decoded.expect("the head is valid").expect("the head is complete");
        let kept = OwnedResponse::new(&head);
        let lent = kept.lend();
        let list = |head: &ResponseHead<'_>| format!("{:?}", head.fields().collect::<Vec<_>>());
        assert_eq!(list(&lent), list(&head));
        assert_eq!((lent.status, lent.length), (304, BodyLength::None));
        assert_eq!((lent.content_length, lent.version), (Some(7), Version::Http11));
        assert!(lent.has(FieldName::ContentLength) && !lent.has(FieldName::Date));
    }
}
