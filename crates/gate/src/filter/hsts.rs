//! The filter that sets Strict-Transport-Security to the value of the policy (RFC 6797).
//! In: the head of a response, and a value of `crate::hsts`. Out: the same head with exactly this value.
//! Never: changes an interim response. Used only if the policy has a value; otherwise the server's field
//! passes.
//! Invariant: the field occurs once in a final response (RFC 6797 section 7.1).

use tidegate_wire::message::{BodyLength, Field, ResponseSink};

/// The name of the field.
pub(crate) const HSTS: &str = "Strict-Transport-Security";

/// A sink that replaces the field in the head for `S`. The new field precedes the length of the body.
#[derive(Debug)]
pub struct Hsts<'a, S> {
    sink: S,
    /// The value of the field; not empty.
    value: &'a str,
    /// The response is a final one.
    is_final: bool,
    /// The field has been added.
    is_added: bool,
}

impl<'a, S: ResponseSink> Hsts<'a, S> {
    /// Puts the filter in front of `sink`. `value` must not be empty.
    #[must_use]
    pub const fn new(sink: S, value: &'a str) -> Self {
        debug_assert!(!value.is_empty(), "without a policy the filter must not be used");
        Self { sink, value, is_final: false, is_added: false }
    }

    /// The next sink.
    pub const fn sink(&self) -> &S {
        &self.sink
    }

    fn drops(&self, name: &str) -> bool {
        self.is_final && name.eq_ignore_ascii_case(HSTS)
    }

    fn add(&mut self) {
        if self.is_final && !self.is_added {
            self.is_added = true;
            self.sink.field(HSTS, self.value.as_bytes());
        }
    }
}

impl<S: ResponseSink> ResponseSink for Hsts<'_, S> {
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
        if !self.drops(field.name) {
            self.sink.received(field);
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

    fn ends_with_head(&self) -> bool {
        self.sink.ends_with_head()
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
