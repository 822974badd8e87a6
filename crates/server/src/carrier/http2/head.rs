//! A buffer for the head of a response: an action writes the head, and the carrier encodes it as a header block.
//! In: the calls of a `ResponseSink`. Out: status, fields and content, in the order of the calls.
//! Never: encodes a field; a connection has one encoder, and its blocks are sent in order.
//! Limits: those of the caller. Each worker has one buffer, which holds one head at a time.

use tidegate_wire::message::{BodyLength, Field, ResponseSink};

/// A field in `HeadBuffer::bytes`: its name, then its value.
#[derive(Clone, Copy)]
struct Place {
    /// The end of the name.
    name_end: u32,
    /// The end of the value, where the next field begins.
    end: u32,
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
    /// The names and values of all fields, without separators.
    bytes: Vec<u8>,
    /// The end of each name and value in `bytes`, in order.
    places: Vec<Place>,
    /// The content of a complete response.
    content: Vec<u8>,
}

impl HeadBuffer {
    /// Removes the previous head.
    pub(super) fn clear(&mut self) {
        self.status = 0;
        self.has_no_body = false;
        self.bytes.clear();
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

    /// The fields: name, value, and whether no intermediary may put the field into a compression table.
    pub(super) fn fields(&self) -> impl Iterator<Item = (&str, &[u8], bool)> {
        let mut start = 0;
        self.places.iter().map(move |place| {
            let name = &self.bytes[start..place.name_end as usize];
            let value = &self.bytes[place.name_end as usize..place.end as usize];
            start = place.end as usize;
            (core::str::from_utf8(name).unwrap_or_default(), value, place.is_sensitive)
        })
    }

    fn push(&mut self, name: &str, is_sensitive: bool, compose: impl FnOnce(&mut Vec<u8>)) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(name.as_bytes());
        let name_end = self.bytes.len();
        compose(&mut self.bytes);
        let end = self.bytes.len();
        let place = Place { name_end: name_end as u32, end: end as u32, is_sensitive };
        debug_assert!(start < name_end, "a field without a name");
        self.places.push(place);
    }
}

impl ResponseSink for HeadBuffer {
    fn begin(&mut self, status: u16, _reason: &str) {
        self.status = status;
    }

    fn field(&mut self, name: &str, value: &[u8]) {
        self.push(name, false, |bytes| bytes.extend_from_slice(value));
    }

    fn received(&mut self, field: &Field<'_>) {
        let value = field.value;
        self.push(field.name, field.is_sensitive, |bytes| bytes.extend_from_slice(value));
    }

    fn field_with(&mut self, name: &str, compose: impl FnOnce(&mut Vec<u8>)) {
        let start = self.bytes.len();
        self.push(name, false, compose);
        // A field without a value is omitted.
        if self.bytes.len() == start + name.len() {
            self.bytes.truncate(start);
            self.places.pop();
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
        head.field("a", b"");
        head.field_with("empty", |_| {});
        head.field_with("b", |value| value.extend_from_slice(b"12"));
        head.length(BodyLength::Length(3));
        head.end();
        ResponseSink::content(&mut head, &[b"x", b"yz"]);
        let fields: Vec<_> = head.fields().collect();
        let expected: [(&str, &[u8], bool); 3] =
            [("a", b"", false), ("b", b"12", false), ("content-length", b"3", false)];
        assert_eq!(fields, expected);
        assert_eq!((head.status(), head.has_no_body(), head.content()), (200, false, &b"xyz"[..]));
        head.clear();
        assert_eq!((head.fields().count(), head.content().len()), (0, 0));
    }
}
