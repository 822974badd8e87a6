//! The responses that a route sends by itself, before its action: pages for errors, maintenance, cross-origin requests.
//! In: the reader of routes, the contents of files. Out: plain data.

use std::sync::Arc;

use tidegate_base::Span;

use super::Addresses;

/// The content of a file that is sent as a response.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Page {
    /// The path of the file.
    pub file: String,
    /// The value of Content-Type.
    pub media_type: &'static str,
    /// The content. Empty until the file is read.
    pub content: Arc<[u8]>,
}

/// An entry of `errors`: the page for one status.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ErrorPage {
    /// The status, from 400 to 599.
    pub status: u16,
    /// The page.
    pub page: Page,
}

/// `maintenance`: all requests get a 503 response.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Maintenance {
    /// The name by which commands switch the maintenance of the route; `None`: they cannot.
    pub name: Option<String>,
    /// Whether the route is closed before a command switches it.
    pub active: bool,
    /// The page; `None`: a short text.
    pub page: Option<Page>,
    /// When clients should try again; `None`: the response does not say.
    pub retry_after: Option<Span>,
    /// Clients whose requests are served as usual.
    pub except: Option<Addresses>,
}

impl Default for Maintenance {
    fn default() -> Self {
        Self { name: None, active: true, page: None, retry_after: None, except: None }
    }
}

/// `cors`: pages of other origins may use the route (Fetch standard, section 3.2).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cors {
    /// The origins, in the forms of `websocket.origins` except "same-origin"; at least one. Every entry is valid.
    pub origins: Vec<String>,
    /// The methods; empty: the usual ones.
    pub methods: Vec<String>,
    /// The request fields; empty: those that the page asks for.
    pub headers: Vec<String>,
    /// The response fields that pages may read in addition to the usual ones.
    pub expose: Vec<String>,
    /// Whether requests may have cookies. Not together with the origin "*".
    pub credentials: bool,
    /// How long browsers remember the permission.
    pub max_age: Span,
}
