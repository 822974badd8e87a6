//! Reads `sticky` of a pool.
//! In: the table of a pool. Out: checked settings.

use tidegate_base::Span;

use crate::listeners::refused;
use crate::model::{SameSite, Stay, Sticky, Template, TemplatePiece};
use crate::pattern::{self, ValueError};
use crate::rates::parse_key;
use crate::report::{Kind, Note, Notes};
use crate::table::Table;

/// Keys of `sticky` that only a cookie has.
const OF_COOKIES: [&str; 6] = ["secure", "same-site", "path", "domain", "lifetime", "idle"];
/// Keys of `sticky` that only `by` has.
const OF_KEYS: [&str; 2] = ["for", "entries-max"];

/// Reads the settings of sessions: by a cookie, or by a key.
pub(crate) fn read(pool: &Table<'_>, notes: &mut Notes) -> (Option<Sticky>, Option<Stay>) {
    let Some(value) = pool.value("sticky") else { return (None, None) };
    if value.get_ref().as_bool() == Some(true) {
        let note = Note::new(Kind::Type, value.span(), "`sticky` needs the name of a cookie");
        notes.error(note.help("write sticky = { cookie = \"SRV\" }"));
        return (None, None);
    }
    let Some(table) = pool.open_table("sticky", notes) else { return (None, None) };
    let has = |key: &&str| table.value(key).is_some();
    let others: &[&str] = match (has(&"cookie"), has(&"by")) {
        (false, false) => {
            let what = "`sticky` has neither `cookie` nor `by`";
            let note = Note::new(Kind::Missing, table.place.clone(), what);
            notes.error(note.help("write sticky = { cookie = \"SRV\" }"));
            // For the mistakes in the other settings.
            let _ = (read_cookie(&table, notes), read_stay(&table, notes));
            return (None, None);
        }
        (true, true) => {
            let what = "`sticky` has both `cookie` and `by`";
            let note = Note::new(Kind::Conflict, table.key_place("by"), what);
            notes.error(note.help(
                "remove `cookie`, or write by = \"cookie:NAME\" for a cookie of the servers",
            ));
            return (None, None);
        }
        (true, false) => &OF_KEYS,
        (false, true) => &OF_COOKIES,
    };
    for key in others.iter().filter(|key| has(key)) {
        let (of, without) = if has(&"cookie") { ("by", "cookie") } else { ("cookie", "by") };
        let what =
            format!("`{key}` has no effect without `{of}`, and `sticky` has `{without}` instead");
        notes.error(Note::new(Kind::Conflict, table.key_place(key), what).help("remove it"));
    }
    match has(&"by") {
        true => (None, read_stay(&table, notes)),
        false => (read_cookie(&table, notes), None),
    }
}

/// Reads the key by which requests stay with a server.
fn read_stay(table: &Table<'_>, notes: &mut Notes) -> Option<Stay> {
    let mut stay =
        Stay { key: Template::default(), span: Span::from_secs(30 * 60), entries_max: 131_072 };
    table.set_duration("for", &mut stay.span, notes);
    table.set_number("entries-max", &mut stay.entries_max, notes);
    for text in table.texts("by", notes) {
        match parse_key(&text.text, true) {
            Ok(placeholder) => stay.key.pieces.push(TemplatePiece::Value(placeholder)),
            Err(complaint) => notes.error(refused("by", &text, complaint)),
        }
    }
    if stay.key.pieces.is_empty() {
        let value = table.value("by").filter(|value| value.get_ref().as_array().is_some())?;
        let note = Note::new(Kind::Value, value.span(), "`by` is empty");
        notes.error(note.help("write by = \"header:x-user\""));
        return None;
    }
    Some(stay)
}

fn read_cookie(table: &Table<'_>, notes: &mut Notes) -> Option<Sticky> {
    let mut sticky = Sticky {
        cookie: String::new(),
        secure: false,
        same_site: SameSite::Lax,
        path: "/".to_owned(),
        domain: None,
        lifetime: None,
        idle: None,
    };
    table.set_flag("secure", &mut sticky.secure, notes);
    table.set_word("same-site", &mut sticky.same_site, notes);
    let mut lifetime = Span::ZERO;
    table.set_duration("lifetime", &mut lifetime, notes);
    sticky.lifetime = Some(lifetime).filter(|span| !span.is_zero());
    let mut idle = Span::ZERO;
    table.set_duration("idle", &mut idle, notes);
    sticky.idle = Some(idle).filter(|span| !span.is_zero());
    if sticky.same_site == SameSite::None && !sticky.secure {
        let what = "browsers ignore cookies with SameSite=None that are not secure";
        let note = Note::new(Kind::Conflict, table.key_place("same-site"), what);
        notes.error(note.help("add secure = true, or write same-site = \"lax\""));
    }
    for key in ["path", "domain"] {
        let Some(text) = table.text(key, notes) else { continue };
        let is_plain = text.text.bytes().all(|byte| byte.is_ascii_graphic() && byte != b';');
        let is_right = match key {
            "path" => text.text.starts_with('/'),
            _ => !text.text.is_empty(),
        };
        if !is_plain || !is_right {
            let (what, help) = (
                "not a valid value of this cookie attribute",
                "write path = \"/app\" or domain = \"example.com\"",
            );
            notes.error(refused(
                key,
                &text,
                ValueError { what: what.to_owned(), help: help.to_owned() },
            ));
            continue;
        }
        match key {
            "path" => sticky.path = text.text,
            _ => sticky.domain = Some(text.text),
        }
    }
    let cookie = table.text("cookie", notes)?;
    if !pattern::is_token(&cookie.text) {
        let complaint = ValueError {
            what: "not the name of a cookie".to_owned(),
            help: "write cookie = \"SRV\"".to_owned(),
        };
        notes.error(refused("cookie", &cookie, complaint));
        return None;
    }
    sticky.cookie = cookie.text;
    Some(sticky)
}
