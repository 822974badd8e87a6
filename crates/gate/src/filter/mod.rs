//! Filters change the heads of responses on their way to the client.
//! In: the calls of `ResponseSink` for one response. Out: the same calls, changed, on the sink that the filter contains.
//! Never: changes a response that needs no filter: its sink is in [`Filtered::Plain`], or is used directly.
//! Invariant: a filter keeps the order of calls that `wire::message::ResponseSink` requires.
//!
//! To add a filter on heads (compression, header rewriting, a script):
//! - Write `filter/NAME.rs`: a struct with the next sink `S` and the settings, and `impl<S: ResponseSink> ResponseSink` for it.
//!   Pass every call on, and change only the parts that concern the filter. [`hsts::Hsts`] is the pattern: it drops a field in
//!   `field` and `received`, and adds one in `length`.
//! - Decide in `begin` whether the filter applies to the response: interim responses (1xx) also pass filters.
//! - A filter that changes the body calls `length(BodyLength::Streamed)` on the next sink unless it knows the new
//!   length. It decides before `length` arrives, from the fields so far, and withholds those that are no
//!   longer true: Content-Length, Accept-Ranges, a strong ETag. Changing the bytes of the body needs a second
//!   trait, which does not exist yet.
//! - Add a variant to [`Filtered`], or put the new filter around or inside another one. The filter that must
//!   see the final fields is the innermost: `Outer<Inner<Carrier>>`.
//! - The choice is made for each response where its sink is created (`server/src/answer.rs` and the
//!   `response.rs` of a carrier), from values prepared at start.
//! - Test it with the recording sink of `gate/tests/sink/`.

pub mod edit;
pub mod hsts;

use tidegate_wire::message::{BodyLength, Field, ResponseSink};

use tidegate_config::model::Page;

use crate::handling::ResponseRules;
use edit::Edited;
use hsts::Hsts;

/// The filters that apply to one response.
#[derive(Clone, Copy, Debug)]
pub struct Filters<'a> {
    /// The value of Strict-Transport-Security, empty if the field is not sent.
    pub hsts: &'a str,
    /// The route's changes to its responses, and the values of the request.
    pub rules: Option<(&'a ResponseRules, &'a [u8])>,
}

impl<'a> Filters<'a> {
    /// Only the policy for Strict-Transport-Security.
    #[must_use]
    pub const fn policy(hsts: &'a str) -> Self {
        Self { hsts, rules: None }
    }

    /// Whether the response is not changed.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.hsts.is_empty() && self.rules.is_none()
    }

    /// The filters for interim responses: they remove fields, but add none.
    #[must_use]
    pub const fn for_interim(self) -> Self {
        Self { hsts: "", rules: self.rules }
    }

    /// The lines of trailer fields that the client gets; `None` if they are unchanged.
    #[must_use]
    pub fn kept_trailers(&self, lines: &[u8]) -> Option<Vec<u8>> {
        let (rules, _) = self.rules.filter(|_| !lines.is_empty())?;
        Some(rules.edits.kept_lines(lines))
    }

    /// The page of the route for error responses of this status.
    #[must_use]
    pub fn page(&self, status: u16) -> Option<&'a Page> {
        let (rules, _) = self.rules?;
        rules.page(status)
    }
}

/// A sink with the filters of one response. Each call costs a branch; where that matters, the caller uses the
/// sink or the filter itself.
#[derive(Debug)]
pub enum Filtered<'a, S> {
    /// No filter.
    Plain(S),
    /// The policy for Strict-Transport-Security.
    Hsts(Hsts<'a, S>),
    /// The edits of a route.
    Edited(Edited<'a, S>),
    /// The edits of a route, and then the policy.
    EditedHsts(Edited<'a, Hsts<'a, S>>),
}

impl<'a, S: ResponseSink> Filtered<'a, S> {
    /// The sink with the filters.
    #[must_use]
    pub const fn new(sink: S, filters: Filters<'a>) -> Self {
        let hsts = filters.hsts;
        match (filters.rules, hsts.is_empty()) {
            (None, true) => Self::Plain(sink),
            (None, false) => Self::Hsts(Hsts::new(sink, hsts)),
            (Some((rules, values)), true) => Self::Edited(Edited::new(sink, &rules.edits, values)),
            (Some((rules, values)), false) => {
                Self::EditedHsts(Edited::new(Hsts::new(sink, hsts), &rules.edits, values))
            }
        }
    }

    /// The sink after the filters.
    pub const fn sink(&self) -> &S {
        match self {
            Self::Plain(sink) => sink,
            Self::Hsts(filter) => filter.sink(),
            Self::Edited(filter) => filter.sink(),
            Self::EditedHsts(filter) => filter.sink().sink(),
        }
    }
}

macro_rules! each {
    ($self:ident, $sink:ident => $call:expr) => {
        match $self {
            Filtered::Plain($sink) => $call,
            Filtered::Hsts($sink) => $call,
            Filtered::Edited($sink) => $call,
            Filtered::EditedHsts($sink) => $call,
        }
    };
}

impl<S: ResponseSink> ResponseSink for Filtered<'_, S> {
    fn begin(&mut self, status: u16, reason: &str) {
        each!(self, sink => sink.begin(status, reason));
    }

    fn field(&mut self, name: &str, value: &[u8]) {
        each!(self, sink => sink.field(name, value));
    }

    fn received(&mut self, field: &Field<'_>) {
        each!(self, sink => sink.received(field));
    }

    fn field_u64(&mut self, name: &str, value: u64) {
        each!(self, sink => sink.field_u64(name, value));
    }

    fn field_with(&mut self, name: &str, compose: impl FnOnce(&mut Vec<u8>)) {
        each!(self, sink => sink.field_with(name, compose));
    }

    fn length(&mut self, length: BodyLength) {
        each!(self, sink => sink.length(length));
    }

    fn takes_trailers(&self) -> bool {
        each!(self, sink => sink.takes_trailers())
    }

    fn ends_with_head(&self) -> bool {
        each!(self, sink => sink.ends_with_head())
    }

    fn switch<'v>(&mut self, protocols: impl Iterator<Item = &'v [u8]>) {
        each!(self, sink => sink.switch(protocols));
    }

    fn end(&mut self) {
        each!(self, sink => sink.end());
    }

    fn content_with(&mut self, compose: impl FnOnce(&mut Vec<u8>)) {
        each!(self, sink => sink.content_with(compose));
    }
}
