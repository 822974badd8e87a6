//! The destination of a response's head: the encoder of a carrier, or a filter in front of one.
//! In: the parts of a response, in order. Out: bytes or frames of the carrier.
//! Never: states a framing other than by `length`; gets a field that concerns the connection.
//!
//! The calls for one response, in this order:
//! 1. `begin`;
//! 2. `field`, `received`, `field_u64` and `field_with` any number of times, and among them `length` once, unless
//!    the response is an interim one;
//! 3. `switch` for a 101 or a 426;
//! 4. `end`;
//! 5. `content` or `content_with`, only if the response is one of the proxy itself and `length` was `Length` of
//!    more than 0. Otherwise the body follows in another way, as `length` stated it.

use crate::message::{BodyLength, Field};

/// Takes the head of one response. Names may be in any case; a carrier that needs lower case converts them.
pub trait ResponseSink {
    /// Begins the head. `reason` may be empty, or unfit for a status line; then the carrier uses the phrase
    /// of the status, if it has reason phrases at all.
    fn begin(&mut self, status: u16, reason: &str);

    /// Adds a field. Its name is a token, and its value has been checked.
    fn field(&mut self, name: &str, value: &[u8]);

    /// Adds a field of another message. A carrier that compresses fields obeys `is_sensitive`.
    #[inline]
    fn received(&mut self, field: &Field<'_>) {
        self.field(field.name, field.value);
    }

    /// Adds a field whose value is a decimal number.
    #[inline]
    fn field_u64(&mut self, name: &str, value: u64) {
        self.field(name, itoa::Buffer::new().format(value).as_bytes());
    }

    /// Adds a field whose value `compose` appends to the buffer. Nothing is added if it appends nothing.
    /// `compose` must not read or change what the buffer already contains.
    fn field_with(&mut self, name: &str, compose: impl FnOnce(&mut Vec<u8>));

    /// States how the body is delimited; the carrier expresses it in its own way. A response without a body
    /// may state the length of the response to GET with `field_u64` before `length(BodyLength::None)` (RFC
    /// 9110 section 8.6).
    ///
    /// `Streamed` leaves the choice to the carrier: chunks in HTTP/1.1, the end of the connection in
    /// HTTP/1.0. `UntilClose` asks for the end of the connection where there is one body for each connection;
    /// HTTP/2 treats it as `Streamed`.
    fn length(&mut self, length: BodyLength);

    /// Whether trailer fields may follow a `Streamed` body.
    fn takes_trailers(&self) -> bool;

    /// Whether the head itself can end the response, so that a response without a body has no length.
    fn ends_with_head(&self) -> bool {
        false
    }

    /// Names the protocols that the connection switches to (101) or should be upgraded to (426; RFC 9110
    /// sections 7.8 and 15.5.22). A carrier without upgrades ignores this.
    fn switch<'v>(&mut self, protocols: impl Iterator<Item = &'v [u8]>);

    /// Ends the head. The carrier adds the fields that its protocol requires there.
    fn end(&mut self);

    /// Adds the whole content, which `compose` appends to the buffer. `compose` must not read or change what
    /// the buffer already contains.
    fn content_with(&mut self, compose: impl FnOnce(&mut Vec<u8>));

    /// Adds the whole content, which is all `pieces` together.
    #[inline]
    fn content(&mut self, pieces: &[&[u8]]) {
        self.content_with(|out| pieces.iter().for_each(|piece| out.extend_from_slice(piece)));
    }
}

impl<S: ResponseSink> ResponseSink for &mut S {
    #[inline]
    fn begin(&mut self, status: u16, reason: &str) {
        (**self).begin(status, reason);
    }

    #[inline]
    fn field(&mut self, name: &str, value: &[u8]) {
        (**self).field(name, value);
    }

    #[inline]
    fn received(&mut self, field: &Field<'_>) {
        (**self).received(field);
    }

    #[inline]
    fn field_u64(&mut self, name: &str, value: u64) {
        (**self).field_u64(name, value);
    }

    #[inline]
    fn field_with(&mut self, name: &str, compose: impl FnOnce(&mut Vec<u8>)) {
        (**self).field_with(name, compose);
    }

    #[inline]
    fn length(&mut self, length: BodyLength) {
        (**self).length(length);
    }

    #[inline]
    fn takes_trailers(&self) -> bool {
        (**self).takes_trailers()
    }

    #[inline]
    fn ends_with_head(&self) -> bool {
        (**self).ends_with_head()
    }

    #[inline]
    fn switch<'v>(&mut self, protocols: impl Iterator<Item = &'v [u8]>) {
        (**self).switch(protocols);
    }

    #[inline]
    fn end(&mut self) {
        (**self).end();
    }

    #[inline]
    fn content_with(&mut self, compose: impl FnOnce(&mut Vec<u8>)) {
        (**self).content_with(compose);
    }
}
