//! The filter that edits the fields of a response as its route configures.
//! In: the head of a response, the edits of a route, the values of the request. Out: the edited head.
//! Never: adds a field to an interim response: only fields that the route removes or sets are dropped there.

use tidegate_wire::message::{BodyLength, Field, FieldName, ResponseSink};

use crate::edits::Edits;

/// A sink that drops and adds fields of the head for `S`. The added fields precede the length of the body.
#[derive(Debug)]
pub struct Edited<'a, S> {
    sink: S,
    edits: &'a Edits,
    /// The values that depend on the request.
    values: &'a [u8],
    /// The response is a final one.
    is_final: bool,
    /// The fields have been added.
    is_added: bool,
    /// Bit N: the response has the field N of the defaults.
    has_defaults: u8,
}

impl<'a, S: ResponseSink> Edited<'a, S> {
    /// Puts the filter in front of `sink`.
    #[must_use]
    pub const fn new(sink: S, edits: &'a Edits, values: &'a [u8]) -> Self {
        Self { sink, edits, values, is_final: false, is_added: false, has_defaults: 0 }
    }

    /// The next sink.
    pub const fn sink(&self) -> &S {
        &self.sink
    }

    /// Whether the field is dropped. Notes fields that need no default.
    fn drops(&mut self, name: &str) -> bool {
        let drops = self.edits.drops(name);
        if !drops {
            self.note(name);
        }
        drops
    }

    fn note(&mut self, name: &str) {
        for (index, (default, _)) in self.edits.defaults().iter().enumerate() {
            if default.eq_ignore_ascii_case(name) {
                self.has_defaults |= 1 << index;
            }
        }
    }

    fn add(&mut self) {
        if self.is_final && !self.is_added {
            self.is_added = true;
            for (name, value) in self.edits.fields(self.values) {
                self.note(name);
                self.sink.field(name, value);
            }
            for (index, (name, value)) in self.edits.defaults().iter().enumerate() {
                if self.has_defaults >> index & 1 == 0 {
                    self.sink.field(name, value.as_bytes());
                }
            }
        }
    }
}

impl<S: ResponseSink> ResponseSink for Edited<'_, S> {
    fn begin(&mut self, status: u16, reason: &str) {
        self.is_final = status >= 200;
        self.sink.begin(status, reason);
    }

    fn field(&mut self, name: &str, value: &[u8]) {
        if !self.drops(name) {
            self.sink.field(name, value);
        }
    }

    fn received(&mut self, field: &Field<'_>) {
        match field.id {
            _ if self.drops(field.name) => {}
            // No trailer is announced that is removed.
            FieldName::Trailer => {
                let kept = self.edits.kept_names(field.value);
                if !kept.is_empty() {
                    self.sink.field(field.name, &kept);
                }
            }
            _ => self.sink.received(field),
        }
    }

    fn field_with(&mut self, name: &str, compose: impl FnOnce(&mut Vec<u8>)) {
        if !self.drops(name) {
            self.sink.field_with(name, compose);
        }
    }

    fn length(&mut self, length: BodyLength) {
        self.add();
        self.sink.length(length);
    }

    fn takes_trailers(&self) -> bool {
        self.sink.takes_trailers()
    }

    fn switch<'v>(&mut self, protocols: impl Iterator<Item = &'v [u8]>) {
        self.sink.switch(protocols);
    }

    fn end(&mut self) {
        self.add();
        self.sink.end();
    }

    fn content_with(&mut self, compose: impl FnOnce(&mut Vec<u8>)) {
        self.sink.content_with(compose);
    }
}
