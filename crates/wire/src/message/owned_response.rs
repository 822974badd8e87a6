//! The head of a response, kept after the bytes that it was decoded from are gone.
//! In: a head; the replacements of its status and fields. Out: the same head, or the changed one.
//! Never: changes how the message is framed, except by `streamed`.

use super::field::{Field, FieldName, FieldTable, Packed, PackedField};
use super::length::BodyLength;
use super::overrides::Overrides;
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
        head.fields().for_each(|field| kept.push(&field));
        kept
    }

    /// Keeps another head instead, in the same memory.
    pub fn replace(&mut self, head: &ResponseHead<'_>) {
        self.names.clear();
        self.values.clear();
        self.fields.clear();
        self.version = head.version;
        self.status = head.status;
        self.length = head.length;
        self.content_length = head.content_length;
        self.persistent = head.persistent;
        self.upgrade = head.upgrade;
        head.fields().for_each(|field| self.push(&field));
    }

    /// The memory of the fields, in bytes.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        let fields = self.fields.capacity() * size_of::<PackedField>();
        self.names.capacity() + self.values.capacity() + fields
    }

    /// Keeps a head with another status and other fields. The fields that frame the message are not among them.
    #[must_use]
    pub fn changed(head: &ResponseHead<'_>, status: u16, changes: &Overrides) -> Self {
        let mut kept = Self::new(head);
        kept.status = status;
        let Self { names, fields, .. } = &mut kept;
        fields.retain(|field| {
            let (start, end) = field.name;
            !changes.drops(names.get(start as usize..end as usize).unwrap_or_default())
        });
        for (name, value) in changes.written() {
            let id = FieldName::classify(name.as_bytes());
            kept.push(&Field { id, name, value, is_sensitive: false });
        }
        kept
    }

    /// The same head for a body whose length is not known.
    #[must_use]
    pub fn streamed(self) -> Self {
        Self { length: BodyLength::Streamed, content_length: None, ..self }
    }

    /// The same head of a response without content, for content whose length is not known (RFC 9110 section 8.6).
    #[must_use]
    pub fn without_length(self) -> Self {
        Self { content_length: None, ..self }
    }

    fn push(&mut self, field: &Field<'_>) {
        let (name, value) = (self.names.len(), self.values.len());
        self.names.push_str(field.name);
        self.values.extend_from_slice(field.value);
        self.fields.push(PackedField {
            id: field.id,
            name: (name as u32, self.names.len() as u32),
            value: (value as u32, self.values.len() as u32),
            is_sensitive: field.is_sensitive,
        });
    }

    /// The head that was made of `head`, with its reason phrase if the status is the same.
    #[must_use]
    pub fn lend_after<'a>(&'a self, head: &ResponseHead<'a>) -> ResponseHead<'a> {
        let reason = if self.status == head.status { head.reason } else { "" };
        ResponseHead { reason, ..self.lend() }
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
        let mut kept = OwnedResponse::new(&head);
        let memory = kept.memory_bytes();
        kept.replace(&head);
        assert_eq!(kept.memory_bytes(), memory, "the memory of the head before");
        let lent = kept.lend();
        let list = |head: &ResponseHead<'_>| format!("{:?}", head.fields().collect::<Vec<_>>());
        assert_eq!(list(&lent), list(&head));
        assert_eq!((lent.status, lent.length), (304, BodyLength::None));
        assert_eq!((lent.content_length, lent.version), (Some(7), Version::Http11));
        assert!(lent.has(FieldName::ContentLength) && !lent.has(FieldName::Date));
    }

    #[test]
    fn changes_replace_the_status_and_fields() {
        let text = b"HTTP/1.1 200 OK\r\nServer: a\r\nX_One: 1\r\nContent-Length: 7\r\n\r\n";
        let mut storage = ResponseStorage::new();
        let decoded = HeadDecoder::default().decode_response(
            text,
            &ResponseLimits::default(),
            RequestKind::default(),
            &mut storage,
        );
        let (head, _) = decoded.expect("the head is valid").expect("the head is complete");
        let mut changes = Overrides::default();
        changes.remove("x-one").expect("there is room");
        changes.add("server", b"b").expect("there is room");
        changes.add("Set-Cookie", b"c=1").expect("there is room");
        let kept = OwnedResponse::changed(&head, 404, &changes);
        let lent = kept.lend();
        assert_eq!((lent.reason, kept.lend_after(&head).reason), ("", ""));
        let fields: Vec<_> = lent.fields().map(|field| (field.name, field.value)).collect();
        let expected: [(&str, &[u8]); 3] =
            [("Content-Length", b"7"), ("server", b"b"), ("Set-Cookie", b"c=1")];
        assert_eq!(fields, expected);
        assert_eq!((lent.status, lent.length), (404, BodyLength::Length(7)));
        assert!(lent.has(FieldName::Server) && lent.has(FieldName::ContentLength));
    }
}
