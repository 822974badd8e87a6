//! Sessions that stay with a server.
//! In: the reader of pools. Out: plain data.

use tidegate_base::Span;

use super::Template;

/// `sticky` of a pool: a cookie names the server of a client's session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sticky {
    /// The name of the cookie.
    pub cookie: String,
    /// Whether browsers send the cookie only over https.
    pub secure: bool,
    /// To which requests from other sites browsers add the cookie.
    pub same_site: SameSite,
    /// The paths to which browsers send the cookie.
    pub path: String,
    /// The domain to whose hosts browsers send the cookie; `None`: only to the host that set it.
    pub domain: Option<String>,
    /// How long browsers keep the cookie; `None`: until they are closed.
    pub lifetime: Option<Span>,
    /// How long a session without requests stays with its server, in whole seconds; `None`: as long as the cookie lasts. With
    /// it, the cookie also contains when the session began and when it was last used.
    pub idle: Option<Span>,
}

/// `sticky = { by = ... }` of a pool: requests with the same key stay with one server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stay {
    /// The values of a request that form the key.
    pub key: Template,
    /// How long a key without requests keeps its server; at least a second.
    pub span: Span,
    /// How many keys the table has room for.
    pub entries_max: u32,
}

/// To which requests from other sites browsers add a cookie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SameSite {
    /// To no request from another site.
    Strict,
    /// To requests that open a page.
    Lax,
    /// To all.
    None,
}
