//! Reads `redirect-to-https` of a listener and `hsts` of a listener or a route.
//! In: tables of the file. Out: checked settings.
//! Invariant: a listener that redirects to https has no TLS. A listener that sends Strict-Transport-Security has
//! TLS, or a proxy in front that may have it (RFC 6797 section 7.2). A value with `preload` meets the requirements
//! of the preload lists.

use tidegate_base::Span;

use crate::listeners::Listeners;
use crate::model::{Hsts, HttpsRedirect, Listener};
use crate::report::{Kind, Note, Notes};
use crate::table::Table;

/// Minimum `max-age` that the preload lists of browsers require.
const PRELOAD_SECONDS_MIN: u64 = 365 * 24 * 3600;

/// Reads `redirect-to-https` and `hsts` into `listener`, whose `tls` is already read.
pub(crate) fn read_listener(table: &Table<'_>, listener: &mut Listener, notes: &mut Notes) {
    listener.redirect_to_https = read_redirect(table, notes);
    listener.hsts = read_hsts(table, notes);
    if listener.redirect_to_https.is_some() && listener.tls.is_some() {
        let what =
            "this listener already speaks TLS: redirecting to https would be an endless loop";
        let note = Note::new(Kind::Conflict, table.key_place("redirect-to-https"), what);
        notes.error(note.help("move it to a [[listener]] without `tls`, for example on port 80"));
    }
    if listener.hsts.is_some() && !listener.may_serve_https() {
        notes.error(without_https(table, "the listener"));
    }
}

/// Reads `hsts` of a route that applies to `listener` (`None`: to all listeners).
pub(crate) fn read_route(
    table: &Table<'_>,
    listener: Option<usize>,
    listeners: &Listeners,
    notes: &mut Notes,
) -> Option<Hsts> {
    let hsts = read_hsts(table, notes)?;
    let mut places = listeners.listeners.iter().enumerate();
    let effective =
        places.any(|(at, place)| listener.is_none_or(|only| only == at) && place.may_serve_https());
    if !effective && !listeners.listeners.is_empty() {
        notes.error(without_https(table, "the listener of this route"));
    }
    Some(hsts)
}

/// An error note: browsers would ignore `hsts` on this listener.
fn without_https(table: &Table<'_>, whose: &str) -> Note {
    let what =
        format!("browsers accept Strict-Transport-Security only over TLS, and {whose} has no TLS");
    let help = format!(
        "add `tls` to {whose}; or, if a proxy in front terminates TLS, list it in `trusted` or \
         `proxy-protocol`; or remove `hsts`"
    );
    Note::new(Kind::Conflict, table.key_place("hsts"), what).help(help)
}

fn read_redirect(table: &Table<'_>, notes: &mut Notes) -> Option<HttpsRedirect> {
    let value = table.value("redirect-to-https")?;
    let mut redirect = HttpsRedirect { port: 443, status: None };
    if value.get_ref().as_table().is_none() {
        return table.flag("redirect-to-https", notes).then_some(redirect);
    }
    let table = table.open_table("redirect-to-https", notes)?;
    table.set_number("port", &mut redirect.port, notes);
    table.set_bound("status", &mut redirect.status, notes);
    let accepted = |status: &u16| matches!(status, 301 | 302 | 303 | 307 | 308);
    if let Some(status) = redirect.status.filter(|status| !accepted(status)) {
        let what = format!("`status` cannot be {status}: not a redirect status");
        let note = Note::new(Kind::Value, table.key_place("status"), what);
        notes.error(note.allowed("301, 302, 303, 307 or 308"));
    }
    Some(redirect)
}

fn read_hsts(table: &Table<'_>, notes: &mut Notes) -> Option<Hsts> {
    let value = table.value("hsts")?;
    let mut hsts = Hsts::default();
    let mut max_age = Span::from_secs(hsts.max_age_seconds);
    if value.get_ref().as_table().is_none() {
        table.set_duration("hsts", &mut max_age, notes);
        hsts.max_age_seconds = seconds(max_age);
        return Some(hsts);
    }
    let table = table.open_table("hsts", notes)?;
    table.set_duration("max-age", &mut max_age, notes);
    hsts.max_age_seconds = seconds(max_age);
    hsts.include_subdomains = table.is_true("include-subdomains", notes).unwrap_or(false);
    hsts.preload = table.is_true("preload", notes).unwrap_or(false);
    if hsts.preload && (hsts.max_age_seconds < PRELOAD_SECONDS_MIN || !hsts.include_subdomains) {
        let what = "the preload lists require a max-age of at least a year and include-subdomains";
        let note = Note::new(Kind::Conflict, table.key_place("preload"), what);
        let help = "write hsts = { max-age = \"365d\", include-subdomains = true, preload = true }";
        notes.error(note.help(help));
    }
    Some(hsts)
}

/// Whole seconds, the unit of the field.
fn seconds(span: Span) -> u64 {
    u64::try_from(span.as_millis() / 1000).unwrap_or(u64::MAX)
}
