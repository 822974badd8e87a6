//! Who may use a route.
//! In: the reader of routes, the contents of files. Out: plain data.

use std::collections::BTreeMap;
use std::sync::Arc;

/// `auth = { basic = "FILE" }`: users with passwords (RFC 7617).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct BasicAuth {
    /// The path of the file.
    pub file: String,
    /// What browsers show to the user.
    pub realm: String,
    /// By name: the hash of the user's password, with its algorithm. Empty until the file is read.
    pub users: Users,
}

/// Users and the hashes of their passwords. Clones share the memory.
pub type Users = Arc<BTreeMap<String, String>>;
