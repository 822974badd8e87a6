//! Reads `auth = { ask = "POOL", ... }` of a route.
//! In: the table of `auth`, the checked pools. Out: checked settings.
//! Limits: `COPIED_MAX` fields are copied.

use crate::edits::{self, Direction};
use crate::listeners::refused;
use crate::model::{
    Action, AskAuth, Balance, FieldEdits, Handling, HashKey, Placeholder, PoolChoice, Template,
    UpstreamHost,
};
use crate::pattern::{self, ValueError};
use crate::pools::Pools;
use crate::report::{Kind, Note, Notes, quoted};
use crate::table::{Located, Table};

/// Maximum number of fields that a request gets from an answer.
const COPIED_MAX: usize = 32;

/// The settings that require `ask`.
pub(crate) const OF_ASK: [&str; 3] = ["path", "host", "copy"];

/// Reads the settings; `None` if the pool or the path is absent or cannot be used.
pub(crate) fn read(auth: &Table<'_>, pools: &Pools, notes: &mut Notes) -> Option<AskAuth> {
    let mut host = UpstreamHost::Keep;
    if let Some(text) = auth.text("host", notes).filter(|text| text.text != "keep") {
        match pattern::parse_authority(&text.text) {
            Ok(authority) => host = UpstreamHost::Replace(authority),
            Err(complaint) => notes.error(refused("host", &text, complaint)),
        }
    }
    let mut copy: Vec<String> = Vec::new();
    for name in auth.texts("copy", notes) {
        match edits::read_name(&name, "`copy` cannot copy", Direction::Requests, notes) {
            Some(field) if copy.contains(&field) => {
                let what = format!("{} is listed twice", quoted(&name.text));
                notes.error(
                    Note::new(Kind::Duplicate, name.place, what).help("remove the duplicate"),
                );
            }
            Some(field) => copy.push(field),
            None => {}
        }
    }
    if copy.len() > COPIED_MAX {
        let note = Note::new(Kind::Value, auth.key_place("copy"), "`copy` has too many fields");
        notes.error(note.allowed(format!("up to {COPIED_MAX} fields")));
    }
    if auth.value("path").is_none() && auth.value("ask").is_some() {
        let what = "`ask` needs `path`, the path of the request to the server";
        let note = Note::new(Kind::Missing, auth.key_place("ask"), what);
        notes.error(note.help("add path = \"/verify\""));
    }
    let target = auth.text("path", notes).and_then(|text| read_target(text, notes));
    let pool = pools.find(&auth.text("ask", notes)?, notes)?;
    Some(AskAuth { pool, target: target?, host, copy })
}

fn read_target(text: Located, notes: &mut Notes) -> Option<String> {
    let is_plain = text.text.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'#');
    if text.text.starts_with('/') && !text.text.starts_with("//") && is_plain {
        return Some(text.text);
    }
    let (what, help) = ("not a path".to_owned(), "write path = \"/verify\"".to_owned());
    notes.error(refused("path", &text, ValueError { what, help }));
    None
}

/// Notes an error if the route itself writes a field that it copies from the answer.
pub(crate) fn check(route: &Table<'_>, ask: &AskAuth, edits: &FieldEdits, notes: &mut Notes) {
    let is_copied = |name: &String| ask.copy.contains(name);
    if let Some((name, _)) = edits.written().find(|(name, _)| is_copied(name)) {
        let what = format!("{name:?} is both set by `request-headers` and copied by `auth`");
        let note = Note::new(Kind::Conflict, route.key_place("request-headers"), what);
        notes.error(note.help("remove it from `copy`, or from `request-headers`"));
    }
}

/// Notes an error if a string of the route, or the choice of a server, reads a field that the route copies from the answer: it is
/// read before the response arrives, so the value would be the client's own.
pub(crate) fn check_readers(
    route: &Table<'_>,
    (handling, action): (&Handling, &Action),
    known: &Pools,
    notes: &mut Notes,
) {
    let Some(ask) = &handling.ask else { return };
    let read = |placeholder: &Placeholder| match placeholder {
        Placeholder::Header(name) => ask.copy.iter().find(|copied| *copied == name).cloned(),
        _ => None,
    };
    let proxy = match action {
        Action::Proxy(proxy) => Some(proxy),
        Action::Respond(_)
        | Action::Redirect(_)
        | Action::Synthetic
        | Action::Echo
        | Action::Push(_)
        | Action::Lua(_) => None,
    };
    let fields = handling.request_headers.written().chain(handling.response_headers.written());
    let path = proxy.and_then(|proxy| proxy.path.as_ref());
    let texts = fields.map(|(_, text)| text).chain(path);
    let of_choice = proxy.and_then(|proxy| match &proxy.pool {
        PoolChoice::One(_) => None,
        PoolChoice::Split(split) => Some(&split.key),
        PoolChoice::Map(map) => Some(&map.key),
    });
    let keys = handling.rates.iter().map(|rate| &rate.key);
    let keys = keys.chain(handling.mirror.as_ref().map(|mirror| &mirror.key)).chain(of_choice);
    let in_text = texts.chain(keys).flat_map(Template::placeholders).find_map(read);
    let of_pool = || {
        let pools = proxy.into_iter().flat_map(|proxy| proxy.pool.pools());
        let mut pools = pools.filter_map(|pool| known.pools.get(pool));
        pools.find_map(|pool| match (&pool.balance, &pool.stay) {
            (Balance::Hash(HashKey::Header(name)), _) if ask.copy.contains(name) => {
                Some(name.clone())
            }
            (_, Some(stay)) => stay.key.placeholders().find_map(read),
            (_, None) => None,
        })
    };
    if let Some(name) = in_text.or_else(of_pool) {
        let what = format!(
            "{name:?} is copied by `auth`, but its value is read before the server of `ask` responds"
        );
        let note = Note::new(Kind::Conflict, route.key_place("auth"), what);
        notes.error(note.help(format!(
            "let the server read {name:?} itself, and do not use it as {{header:{name}}} or as a key of `hash`, `sticky`, `rate`, \
             `split`, `mirror` or a map"
        )));
    }
}
