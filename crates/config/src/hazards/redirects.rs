//! Warnings about redirects to https that no listener answers.

use toml::de::DeTable;

use super::{Parts, place_of, vain};
use crate::model::Listener;
use crate::report::Notes;

/// `redirect-to-https` where neither this process nor, according to the file, a proxy in front has TLS.
pub(super) fn check(
    listener: &Listener,
    parts: &Parts<'_>,
    table: &DeTable<'_>,
    notes: &mut Notes,
) {
    let has_https = |listener: &Listener| listener.tls.is_some();
    if listener.redirect_to_https.is_none()
        || listener.may_serve_https()
        || parts.listeners.listeners.iter().any(has_https)
    {
        return;
    }
    let what = "no listener serves https, and this listener trusts no proxy: if a proxy in front terminates TLS, its requests \
                are redirected in an endless loop";
    let help = "list the proxy in `trusted`, so that its X-Forwarded-Proto counts; or add a [[listener]] with `tls`";
    notes.warn(vain(place_of(table, "redirect-to-https"), what, help));
}
