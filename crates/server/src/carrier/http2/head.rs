//! A buffer for the head of a response: an action writes the head, and the carrier encodes it as a header block.
//! In: the calls of a `ResponseSink`. Out: status, fields and content, in the order of the calls.
//! Never: encodes a field; a connection has one encoder, and its blocks are sent in order.
//! Limits: those of the caller. Each worker has one buffer, which holds one head at a time.

use tidegate_wire::message::{BodyLength, Field, FieldName, ResponseSink};

/// A field in `HeadBuffer::names` and `HeadBuffer::values`.
#[derive(Clone, Copy)]
struct Place {
    /// The classified name.
    id: FieldName,
    /// The end of the name, where the next one begins.
    name_end: u32,
    /// The end of the value, where the next one begins.
    value_end: u32,
    /// Whether intermediaries must not put the field into a compression table.
    is_sensitive: bool,
}

/// One response head, and the content of a complete response.
#[derive(Default)]
pub(crate) struct HeadBuffer {
    /// The status.
    status: u16,
    /// Whether the response ends with its head.
    has_no_body: bool,
    /// The names of all fields in lower case, without separators.
    names: String,
    /// The values of all fields, without separators.
    values: Vec<u8>,
    /// The fields, in order.
    places: Vec<Place>,
    /// The content of a complete response.
    content: Vec<u8>,
}

impl HeadBuffer {
    /// Removes the previous head.
    pub(super) fn clear(&mut self) {
        self.status = 0;
        self.has_no_body = false;
        self.names.clear();
        self.values.clear();
        self.places.clear();
        self.content.clear();
    }

    /// The status.
    pub(super) fn status(&self) -> u16 {
        self.status
    }

    /// Whether the response ends with its head.
    pub(super) fn has_no_body(&self) -> bool {
        self.has_no_body
    }

    /// The content of a complete response.
    pub(super) fn content(&self) -> &[u8] {
        &self.content
    }

    /// The fields, with their names in lower case.
    pub(super) fn fields(&self) -> impl Iterator<Item = Field<'_>> + Clone {
        let (mut names, mut values) = (0, 0);
        self.places.iter().map(move |place| {
            let (name_end, value_end) = (place.name_end as usize, place.value_end as usize);
            let (name, value) = (&self.names[names..name_end], &self.values[values..value_end]);
            (names, values) = (name_end, value_end);
            Field { id: place.id, name, value, is_sensitive: place.is_sensitive }
        })
    }

    /// Adds a field whose value is in `values` already.
    fn push(&mut self, id: FieldName, name: &str, is_sensitive: bool) {
        debug_assert!(!name.is_empty(), "a field without a name");
        let start = self.names.len();
        self.names.push_str(name);
        self.names[start..].make_ascii_lowercase();
        let (name_end, value_end) = (self.names.len() as u32, self.values.len() as u32);
        self.places.push(Place { id, name_end, value_end, is_sensitive });
    }
}

impl ResponseSink for HeadBuffer {
    fn begin(&mut self, status: u16, _reason: &str) {
        self.status = status;
    }

    fn field(&mut self, name: &str, value: &[u8]) {
        self.values.extend_from_slice(value);
        self.push(FieldName::classify(name.as_bytes()), name, false);
    }

    fn received(&mut self, field: &Field<'_>) {
        self.values.extend_from_slice(field.value);
        self.push(field.id, field.name, field.is_sensitive);
    }

    fn field_with(&mut self, name: &str, compose: impl FnOnce(&mut Vec<u8>)) {
        let start = self.values.len();
        compose(&mut self.values);
        // A field without a value is omitted.
        if self.values.len() > start {
            self.push(FieldName::classify(name.as_bytes()), name, false);
        }
    }

    fn length(&mut self, length: BodyLength) {
        match length {
            BodyLength::None => self.has_no_body = true,
            BodyLength::Length(bytes) => {
                self.has_no_body = bytes == 0;
                self.field_u64("content-length", bytes);
            }
            BodyLength::Streamed | BodyLength::UntilClose => {}
        }
    }

    fn takes_trailers(&self) -> bool {
        true
    }

    fn ends_with_head(&self) -> bool {
        true
    }

    fn switch<'v>(&mut self, _protocols: impl Iterator<Item = &'v [u8]>) {}

    fn end(&mut self) {}

    fn content_with(&mut self, compose: impl FnOnce(&mut Vec<u8>)) {
        compose(&mut self.content);
    }

    fn content(&mut self, pieces: &[&[u8]]) {
        for piece in pieces {
            self.content.extend_from_slice(piece);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_keep_their_order_and_composed_fields_without_a_value_are_omitted() {
        let mut head = HeadBuffer::default();
        head.begin(200, "OK");
        head.field("A", b"");
        head.field_with("empty", |_| {});
        head.field_with("b", |value| value.extend_from_slice(b"12"));
        head.length(BodyLength::Length(3));
        head.end();
        ResponseSink::content(&mut head, &[b"x", b"yz"]);
        let fields: Vec<_> = head.fields().map(|field| (field.name, field.value)).collect();
        let expected: [(&str, &[u8]); 3] = [("a", b""), ("b", b"12"), ("content-length", b"3")];
        assert_eq!(fields, expected);
        let ids: Vec<_> = head.fields().map(|field| field.id).collect();
        assert_eq!(ids, [FieldName::Other, FieldName::Other, FieldName::ContentLength]);
        assert_eq!((head.status(), head.has_no_body(), head.content()), (200, false, &b"xyz"[..]));
        head.clear();
        assert_eq!((head.fields().count(), head.content().len()), (0, 0));
    }
}
