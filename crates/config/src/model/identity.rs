//! How requests are identified: `server.request-id` and `server.trace`.

use super::{SAMPLE_ALL, Server};

/// The longest field name of `server.request-id`.
pub const ID_FIELD_BYTES_MAX: usize = 64;

/// `server.request-id`: each request has an id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestIds {
    /// The name of the field with the id, in lower case.
    pub field: String,
    /// Whose ids are kept.
    pub keep: Keep,
    /// Responses state the id, too.
    pub response: bool,
}

impl Default for RequestIds {
    fn default() -> Self {
        Self { field: "x-request-id".to_owned(), keep: Keep::Trusted, response: false }
    }
}

/// `server.trace`: each request belongs to a trace (W3C Trace Context).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trace {
    /// Whose traces are continued.
    pub keep: Keep,
    /// Parts per million of the traces begun here that are to be recorded.
    pub sampled: u32,
    /// Tidegate records spans itself (`[traces]`).
    pub is_recorded: bool,
}

impl Default for Trace {
    fn default() -> Self {
        Self { keep: Keep::Trusted, sampled: SAMPLE_ALL, is_recorded: false }
    }
}

impl Server {
    /// Whether each request has an id or belongs to a trace.
    #[must_use]
    pub const fn identifies(&self) -> bool {
        self.request_id.is_some() || self.trace.is_some()
    }
}

/// The clients whose statements are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    /// Those in `trusted` of the listener.
    Trusted,
    /// All clients.
    All,
    /// No client.
    None,
}
