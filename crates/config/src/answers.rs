//! Reads `errors`, `maintenance` and `cors` of a route.
//! In: the table of a route, the sets of the file. Out: checked settings, with the places of the files that they name.
//! Never: opens a file; see `file_contents.rs`.

use std::sync::Arc;

use tidegate_base::Span;

use crate::listeners::refused;
use crate::model::{AddressSet, Cors, ErrorPage, Maintenance, Page};
use crate::pattern::{self, ValueError};
use crate::report::{Kind, Note, Notes, quoted};
use crate::sets;
use crate::table::{Located, TOKEN_FORM, Table, wrong_type};
use crate::websocket::check_origin;

/// The media types of pages, by the end of their file's name.
const MEDIA_TYPES: [(&str, &str); 6] = [
    (".html", "text/html; charset=utf-8"),
    (".htm", "text/html; charset=utf-8"),
    (".json", "application/json"),
    (".txt", "text/plain; charset=utf-8"),
    (".xml", "application/xml"),
    (".svg", "image/svg+xml"),
];

/// Reads `errors`, in the order of the statuses.
pub(crate) fn read_errors(route: &Table<'_>, notes: &mut Notes) -> Vec<ErrorPage> {
    let mut pages = Vec::new();
    for (name, value) in route.open_fields("errors", notes) {
        let status = name.text.parse::<u16>().ok().filter(|status| (400..600).contains(status));
        let Some(status) = status else {
            let what = format!("{} is not the status of an error", quoted(&name.text));
            notes.error(Note::new(Kind::Value, name.place, what).allowed("400 to 599"));
            continue;
        };
        let Some(text) = value.get_ref().as_str() else {
            notes.error(wrong_type(&format!("`{status}`"), value, "the path of a file"));
            continue;
        };
        let path = Located { text: text.to_owned(), place: value.span() };
        if let Some(page) = read_page("errors", path, notes) {
            pages.push(ErrorPage { status, page });
        }
    }
    pages.sort();
    pages
}

/// The page in the file at `path`.
fn read_page(key: &str, path: Located, notes: &mut Notes) -> Option<Page> {
    let lower = path.text.to_ascii_lowercase();
    let known = MEDIA_TYPES.iter().find(|(end, _)| lower.ends_with(end));
    let Some((_, media_type)) = known else {
        let what =
            format!("`{key}` cannot be {}: the type of the file is unknown", quoted(&path.text));
        let ends: Vec<&str> = MEDIA_TYPES.iter().map(|(end, _)| *end).collect();
        let note = Note::new(Kind::Value, path.place, what);
        notes.error(note.allowed(format!("a file whose name ends with {}", ends.join(", "))));
        return None;
    };
    let file = notes.resolve(&path.text);
    notes.places.mark(file.clone(), path.place);
    Some(Page { file, media_type, content: Arc::default() })
}

/// Reads `maintenance`; `None` if the route is in service.
pub(crate) fn read_maintenance(
    route: &Table<'_>,
    sets: &[AddressSet],
    notes: &mut Notes,
) -> Option<Maintenance> {
    let value = route.value("maintenance")?;
    if value.get_ref().as_table().is_none() {
        return route.is_true("maintenance", notes)?.then(Maintenance::default);
    }
    let table = route.open_table("maintenance", notes)?;
    let mut maintenance = Maintenance::default();
    if let Some(text) = table.text("name", notes) {
        match pattern::check_name(&text.text) {
            Ok(()) => maintenance.name = Some(text.text),
            Err(complaint) => notes.error(refused("name", &text, complaint)),
        }
    }
    table.set_flag("active", &mut maintenance.active, notes);
    if let Some(path) = table.text("page", notes) {
        maintenance.page = read_page("page", path, notes);
    }
    let mut retry_after = Span::ZERO;
    table.set_duration("retry-after", &mut retry_after, notes);
    maintenance.retry_after = Some(retry_after).filter(|span| !span.is_zero());
    maintenance.except = sets::read_list(&table, "except", sets, notes);
    Some(maintenance)
}

/// Reads `cors`; `None` if the setting is absent.
pub(crate) fn read_cors(route: &Table<'_>, notes: &mut Notes) -> Option<Cors> {
    route.value("cors")?;
    let table = route.open_table("cors", notes)?;
    let mut cors = Cors {
        origins: Vec::new(),
        methods: read_tokens(&table, "methods", notes),
        headers: read_tokens(&table, "headers", notes),
        expose: read_tokens(&table, "expose", notes),
        credentials: false,
        max_age: Span::from_secs(7200),
    };
    table.set_flag("credentials", &mut cors.credentials, notes);
    table.set_duration("max-age", &mut cors.max_age, notes);
    for origin in table.texts("origins", notes) {
        if origin.text == "same-origin" {
            let what = "browsers let pages of the same origin read responses without CORS";
            notes.error(Note::new(Kind::Value, origin.place, what).help("remove it"));
            continue;
        }
        match check_origin(&origin.text) {
            Ok(()) => cors.origins.push(origin.text),
            Err(complaint) => {
                let help =
                    "write \"https://example.com\", \"https://*.example.com\", \"null\" or \"*\"";
                let complaint = ValueError { help: help.to_owned(), ..complaint };
                notes.error(refused("origins", &origin, complaint));
            }
        }
    }
    if cors.credentials && cors.origins.iter().any(|origin| origin == "*") {
        let what = "with `credentials` and the origin \"*\", any web page could act as the user";
        let note = Note::new(Kind::Conflict, table.key_place("credentials"), what);
        notes.error(note.help("list the origins, or remove `credentials`"));
    }
    Some(cors)
}

fn read_tokens(table: &Table<'_>, key: &str, notes: &mut Notes) -> Vec<String> {
    let mut tokens = Vec::new();
    for text in table.texts(key, notes) {
        if pattern::is_token(&text.text) {
            tokens.push(text.text);
            continue;
        }
        let what = format!("`{key}` cannot be {}", quoted(&text.text));
        let note = Note::new(Kind::Value, text.place, what);
        notes.error(note.allowed(TOKEN_FORM));
    }
    tokens
}
