//! Authentication and permissions of a route.
//! In: the reader of routes, the contents of files. Out: plain data.

use std::collections::BTreeMap;
use std::sync::Arc;

use tidegate_base::Span;

use super::{Config, RemoteAddress, UpstreamHost};

/// `auth = { basic = "FILE" }`: users with passwords (RFC 7617).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct BasicAuth {
    /// The path of the file.
    pub file: String,
    /// The name that browsers show to the user.
    pub realm: String,
    /// By name: the hash of the user's password, with its algorithm. Empty until the file is read.
    pub users: Users,
}

/// Users and the hashes of their passwords. Clones share the memory.
pub type Users = Arc<BTreeMap<String, String>>;

/// `auth = { jwt = { ... } }`: requests with a valid JSON Web Token (RFC 7519).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct JwtAuth {
    /// The path of the file with the secret or the keys.
    pub file: String,
    /// The address that the keys are fetched from, in place of a file.
    pub remote: Option<RemoteAddress>,
    /// The file contains a secret; otherwise public keys, or a set of keys.
    pub is_secret: bool,
    /// The content of the file; empty until it is read.
    pub content: KeyContent,
    /// The name that clients may show to the user.
    pub realm: String,
    /// The audiences of which a token must name one; empty: any.
    pub audience: Vec<String>,
    /// The issuer that a token must name; `None`: any.
    pub issuer: Option<String>,
    /// Names of claims, and the value that each must have or contain.
    pub claims: Vec<(String, String)>,
    /// The difference of clocks that is tolerated.
    pub leeway: Span,
    /// The cookie that may have the token; `None`: only the Authorization field.
    pub cookie: Option<String>,
}

/// Public keys: of a file, or of an address.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PublicKeys {
    /// The path of the file; empty if the keys are fetched.
    pub file: String,
    /// The address that the keys are fetched from, in place of a file.
    pub remote: Option<RemoteAddress>,
    /// The content of the file; empty until it is read.
    pub content: KeyContent,
}

impl Config {
    /// The addresses from which keys are fetched; one may occur several times.
    pub fn remote_keys(&self) -> impl Iterator<Item = &RemoteAddress> {
        let jwts = self.routes.iter().filter_map(|route| route.handling.jwt.as_ref());
        let hubs = self.push.iter().filter_map(|hub| hub.token_keys.as_ref());
        let of_hubs = hubs.filter_map(|keys| keys.remote.as_ref());
        jwts.filter_map(|jwt| jwt.remote.as_ref()).chain(of_hubs)
    }
}

/// `auth = { ask = "POOL", ... }`: a server decides about each request.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct AskAuth {
    /// The index of the pool of the authentication servers.
    pub pool: usize,
    /// The target of the questions: a path, perhaps with a query.
    pub target: String,
    /// The Host field of the questions.
    pub host: UpstreamHost,
    /// Names of fields, in lower case, that the request gets from the answer that grants it.
    pub copy: Vec<String>,
}

/// The content of a file with keys. Clones share the memory, and messages do not show it.
#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct KeyContent(pub Arc<[u8]>);

impl core::fmt::Debug for KeyContent {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{} bytes", self.0.len())
    }
}
