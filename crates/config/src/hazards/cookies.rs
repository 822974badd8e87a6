//! Warnings about the cookies of `sticky` that browsers do not store or do not send.

use toml::de::DeTable;

use super::{Step, place, vain};
use crate::model::Pool;
use crate::report::Notes;

/// `serves_https`: whether requests for the pool may arrive over https.
pub(super) fn check(pool: &Pool, serves_https: bool, table: &DeTable<'_>, notes: &mut Notes) {
    let Some(sticky) = &pool.sticky else { return };
    let at = |key| place(table, &[Step::Key("sticky"), Step::Key(key)]);
    if sticky.secure && !serves_https {
        let what = "browsers send a secure cookie only over https, and no listener of this pool serves https: \
                    sessions do not stay with a server";
        let help = "add `tls` to the listener; or, if a proxy in front terminates TLS, list it in `trusted`; or remove `secure`";
        notes.warn(vain(at("secure"), what, help));
    }
    // RFC 6265bis section 4.1.3.
    if sticky.cookie.starts_with("__Secure-") && !sticky.secure {
        let what =
            "browsers ignore a cookie whose name begins with __Secure- and that is not secure";
        notes.warn(vain(at("cookie"), what, "add secure = true, or rename the cookie"));
    }
    let is_host_only = sticky.secure && sticky.domain.is_none() && sticky.path == "/";
    if sticky.cookie.starts_with("__Host-") && !is_host_only {
        let what = "browsers ignore a cookie whose name begins with __Host- unless it is secure, has the path \"/\" \
                    and no domain";
        let help = "add secure = true and remove `path` and `domain`, or rename the cookie";
        notes.warn(vain(at("cookie"), what, help));
    }
}
