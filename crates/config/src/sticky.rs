//! Reads `sticky` of a pool.
//! In: the table of a pool. Out: checked settings.

use tidegate_base::Span;

use crate::listeners::refused;
use crate::model::{SameSite, Sticky};
use crate::pattern::{self, Complaint};
use crate::report::{Kind, Note, Notes};
use crate::table::Table;

/// Reads the settings of sessions; `None` if the setting is absent.
pub(crate) fn read(pool: &Table<'_>, notes: &mut Notes) -> Option<Sticky> {
    let value = pool.value("sticky")?;
    if value.get_ref().as_bool() == Some(true) {
        let note = Note::new(Kind::Type, value.span(), "`sticky` needs the name of a cookie");
        notes.error(note.help("write sticky = { cookie = \"SRV\" }"));
        return None;
    }
    let table = pool.open_table("sticky", notes)?;
    let mut sticky = Sticky {
        cookie: String::new(),
        secure: false,
        same_site: SameSite::Lax,
        path: "/".to_owned(),
        domain: None,
        lifetime: None,
    };
    table.set_flag("secure", &mut sticky.secure, notes);
    table.set_word("same-site", &mut sticky.same_site, notes);
    let mut lifetime = Span::ZERO;
    table.set_duration("lifetime", &mut lifetime, notes);
    sticky.lifetime = Some(lifetime).filter(|span| !span.is_zero());
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
                "not a value of this attribute",
                "write path = \"/app\" or domain = \"example.com\"",
            );
            notes.error(refused(
                key,
                &text,
                Complaint { what: what.to_owned(), help: help.to_owned() },
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
        let complaint = Complaint {
            what: "not the name of a cookie".to_owned(),
            help: "write cookie = \"SRV\"".to_owned(),
        };
        notes.error(refused("cookie", &cookie, complaint));
        return None;
    }
    sticky.cookie = cookie.text;
    Some(sticky)
}
