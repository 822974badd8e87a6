//! Reads what brings clients to https: `redirect-to-https` of a listener, `hsts` of a listener or a route.
//! In: the file's tables. Out: checked settings.
//! Invariant: a listener that redirects has no TLS; one that sends Strict-Transport-Security has, or has a
//! proxy in front that may (RFC 6797 section 7.2); what asks for a browser's list is fit for it.

use tidegate_base::Span;

use crate::listeners::Listeners;
use crate::model::{Hsts, HttpsRedirect, Listener};
use crate::report::{Kind, Note, Notes};
use crate::table::Table;

/// What browsers' lists ask for at least.
const PRELOAD_SECONDS_MIN: u64 = 365 * 24 * 3600;

/// `redirect-to-https` and `hsts` into `listener`, whose `tls` is known.
pub(crate) fn read_listener(table: &Table<'_>, listener: &mut Listener, notes: &mut Notes) {
    listener.redirect_to_https = read_redirect(table, notes);
    listener.hsts = read_hsts(table, notes);
    if listener.redirect_to_https.is_some() && listener.tls.is_some() {
        let what = "the listener speaks https already: it would send clients round in circles";
        let note = Note::new(Kind::Conflict, table.key_place("redirect-to-https"), what);
        notes.error(note.mend("set it on a [[listener]] without `tls`, on port 80 for example"));
    }
    if listener.hsts.is_some() && !listener.may_serve_https() {
        notes.error(unheard(table, "the listener"));
    }
}

/// `hsts` of a route for `listener` (`None`: all of them).
pub(crate) fn read_route(
    table: &Table<'_>,
    listener: Option<usize>,
    listeners: &Listeners,
    notes: &mut Notes,
) -> Option<Hsts> {
    let hsts = read_hsts(table, notes)?;
    let mut places = listeners.listeners.iter().enumerate();
    let heard =
        places.any(|(at, place)| listener.is_none_or(|only| only == at) && place.may_serve_https());
    if !heard && !listeners.listeners.is_empty() {
        notes.error(unheard(table, "its listener"));
    }
    Some(hsts)
}

fn unheard(table: &Table<'_>, whose: &str) -> Note {
    let what = "Strict-Transport-Security is heard over TLS only, and there is none here";
    let mend = format!(
        "add `tls` to {whose}; or, if a proxy in front ends TLS, name it in `trusted` or \
         `proxy-protocol`; or leave `hsts` out"
    );
    Note::new(Kind::Conflict, table.key_place("hsts"), what).mend(mend)
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
    if redirect.status.is_some_and(|status| !matches!(status, 301 | 302 | 303 | 307 | 308)) {
        let what = "this `status` is no redirect";
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
        let what = "browsers' lists take no site without max-age of a year and include-subdomains";
        let note = Note::new(Kind::Conflict, table.key_place("preload"), what);
        let mend = "write hsts = { max-age = \"365d\", include-subdomains = true, preload = true }";
        notes.error(note.mend(mend));
    }
    Some(hsts)
}

/// Whole seconds, which is what the field can say.
fn seconds(span: Span) -> u64 {
    u64::try_from(span.as_millis() / 1000).unwrap_or(u64::MAX)
}
