//! Reads `[[route]]`.
//! In: the root table of the file, and its listeners and pools. Out: checked routes and the place of each.
//! Invariant: a route has exactly one action; a fixed response cannot break its own framing (RFC 9112 section 6).

use core::ops::Range;

use crate::answers;
use crate::ask;
use crate::auth;
use crate::bandwidth;
use crate::choice::{self, Choices};
use crate::client_cert;
use crate::conditions;
use crate::count_tables::{self, CountTables};
use crate::edits::{self, Direction};
use crate::field_test;
use crate::hooks;
use crate::https;
use crate::listeners::{Listeners, refused};
use crate::lua::Apps;
use crate::mirror;
use crate::names::route_name;
use tidegate_base::limits::WEBSOCKET_SETTINGS_MAX;

use crate::findings::Owner;
use crate::model::{
    Action, AddressSet, Handling, HeaderCondition, Listener, PathPattern, Placeholder, PoolChoice,
    Proxy, Push, Redirect, RedirectPiece, Respond, Route, RouteTimeouts, Template, UpstreamHost,
    WebSocket,
};
use crate::pattern::{self, ValueError};
use crate::push;
use crate::rates;
use crate::report::{Kind, Note, Notes, quoted};
use crate::sets;
use crate::table::{Located, Table, Value, texts_of, wrong_type};
use crate::template::Paths;
use crate::websocket;
use crate::words::{ActionKey, Keyword as _};

/// Fields that a fixed response cannot set, and why.
const FIELDS_REFUSED: [(&str, &str); 12] = [
    ("connection", "it describes the connection, which Tidegate controls"),
    ("content-length", "it is computed from the body"),
    ("date", "it is added when the response is sent"),
    ("keep-alive", "it describes the connection, which Tidegate controls"),
    ("proxy-connection", "it describes the connection, which Tidegate controls"),
    ("server", "it is set by `server-name` in [server]"),
    ("te", "it is a request field"),
    ("trailer", "a fixed response has no trailers"),
    ("transfer-encoding", "it would contradict the computed length"),
    ("upgrade", "it describes the connection, which Tidegate controls"),
    ("via", "it is set by `via` in [server]"),
    ("host", "it is a request field"),
];

/// The parts of the file that routes refer to.
pub(crate) struct Known<'a> {
    pub(crate) listeners: &'a Listeners,
    pub(crate) choices: Choices<'a>,
    pub(crate) apps: &'a Apps,
    pub(crate) hubs: &'a [Push],
    pub(crate) sets: &'a [AddressSet],
    pub(crate) tables: &'a CountTables,
    pub(crate) websocket: &'a WebSocket,
}

/// Reads all routes in file order, each with the byte range of its header.
pub(crate) fn read(
    file: &Table<'_>,
    known: &Known<'_>,
    notes: &mut Notes,
) -> Vec<(Route, Range<usize>)> {
    let mut routes = Vec::new();
    for table in file.open_rows("route", notes) {
        if let Some(route) = read_one(&table, known, notes) {
            notes.places.assign(Owner::Route(routes.len()));
            routes.push((route, table.place.clone()));
        }
    }
    let all = routes.iter().map(|(route, _)| route);
    if let Err((at, what, allowed)) = check_limits(all, &known.listeners.listeners) {
        let note = Note::new(Kind::Value, routes[at].1.clone(), what);
        notes.error(note.allowed(allowed));
    }
    routes
}

/// Maximum number of different filters of responses.
const FILTERS_MAX: usize = u16::MAX as usize;

/// Checks the limits of all routes together: responses must not need more filters than can be numbered (each route that edits
/// responses needs a filter for each Strict-Transport-Security value of its listeners).
///
/// # Errors
/// The index of the route that exceeds a limit, what is wrong, and what is allowed.
pub(crate) fn check_limits<'r>(
    routes: impl Iterator<Item = &'r Route>,
    listeners: &[Listener],
) -> Result<(), (usize, &'static str, String)> {
    let policies = listeners.iter().filter(|listener| listener.hsts.is_some()).count();
    let (mut filters, mut changed) = (1 + policies, 0);
    for (at, route) in routes.enumerate() {
        let edits = route.handling.changes_responses();
        filters += usize::from(route.hsts.is_some()) + if edits { 2 + policies } else { 0 };
        changed += usize::from(route.websocket.is_some());
        if filters > FILTERS_MAX {
            let allowed = format!("up to {FILTERS_MAX} different filters");
            return Err((at, "too many routes edit responses", allowed));
        }
        if changed > WEBSOCKET_SETTINGS_MAX {
            let what = "too many routes have `websocket` settings of their own";
            return Err((at, what, format!("up to {WEBSOCKET_SETTINGS_MAX} such routes")));
        }
    }
    Ok(())
}

fn read_one(table: &Table<'_>, known: &Known<'_>, notes: &mut Notes) -> Option<Route> {
    let mut shed = true;
    table.set_flag("shed", &mut shed, notes);
    let listeners = known.listeners;
    let sets = known.sets;
    let listener = table.text("listener", notes).and_then(|name| {
        let index = listeners.find(&name, notes)?;
        if listeners.listeners[index].forward.is_some() {
            let what = format!(
                "listener {:?} has `forward`, so it reads no requests and has no routes",
                name.text
            );
            let note = Note::new(Kind::Conflict, name.place, what);
            notes.error(note.help("use another listener, or remove `forward` there"));
        }
        Some(index)
    });
    let hosts = read_patterns(table, "host", pattern::parse_host, notes);
    let paths = read_patterns(table, "path", pattern::parse_path, notes);
    let methods = read_methods(table, notes);
    let headers = read_conditions(table, notes);
    let client_cert = client_cert::read(table, listener, listeners, notes);
    let conditions = conditions::read(table, sets, known.tables, notes);
    let counting = count_tables::read_counting(table, known.tables, notes);
    let hsts = https::read_route(table, listener, listeners, notes);
    let changes = table.value("websocket").is_some();
    let websocket = changes.then(|| websocket::read(table, known.websocket.clone(), notes));
    if hosts.len() * paths.len() > PAIRS_MAX {
        let what =
            format!("the route has {} pairs of a host and a path", hosts.len() * paths.len());
        let note = Note::new(Kind::Value, table.key_place("path"), what);
        notes.error(note.allowed(format!("up to {PAIRS_MAX} pairs")).help("write several routes"));
    }
    let handling = read_handling(table, Paths(&paths), known, notes);
    let action = read_action(table, known, Paths(&paths), notes)?;
    check_push_path(table, &action, &paths, notes);
    if !handling.request_headers.is_empty() && !matches!(action, Action::Proxy(_)) {
        let what = "this route sends no request to a server";
        let note = Note::new(Kind::Conflict, table.key_place("request-headers"), what);
        notes.error(note.help("remove `request-headers`, or use `proxy` as the action"));
    }
    if handling.timeouts.is_some() && !matches!(action, Action::Proxy(_)) {
        let what = "`timeouts` are for servers, and this route sends no request to a server";
        let note = Note::new(Kind::Conflict, table.key_place("timeouts"), what);
        notes.error(note.help("remove `timeouts`, or use `proxy` as the action"));
    }
    check_user(table, &handling, &action, notes);
    ask::check_readers(table, (&handling, &action), known.choices.pools, notes);
    hooks::check(table, &handling, &action, notes);
    bandwidth::check(table, &handling, &action, notes);
    mirror::check(table, &handling, &action, known.choices.pools, notes);
    // Another error explains `websocket = true`.
    let is_table =
        table.value("websocket").is_some_and(|value| value.get_ref().as_table().is_some());
    if is_table && !serves_websockets(&action) {
        let what = "`websocket` has no effect, because the action of this route is not `echo`, `push` or `lua`";
        let note = Note::new(Kind::Conflict, table.key_place("websocket"), what);
        notes.error(note.help("remove `websocket`, or use `echo`, `push` or `lua` as the action"));
    }
    let mut route = Route {
        listener,
        hosts,
        paths,
        methods,
        headers,
        client_cert,
        conditions,
        counting,
        hsts,
        websocket,
        handling,
        action,
        shed,
        is_off: false,
    };
    let name = route_name(&route);
    if let Some(maintenance) = &mut route.handling.maintenance {
        maintenance.name.get_or_insert(name);
    }
    Some(route)
}

/// Whether an action opens WebSocket connections itself.
fn serves_websockets(action: &Action) -> bool {
    match action {
        Action::Echo | Action::Push(_) | Action::Lua(_) => true,
        Action::Respond(_) | Action::Redirect(_) | Action::Synthetic | Action::Proxy(_) => false,
    }
}

fn read_handling(
    table: &Table<'_>,
    paths: Paths<'_>,
    known: &Known<'_>,
    notes: &mut Notes,
) -> Handling {
    let sets = known.sets;
    let auth = auth::read(table, known.choices.pools, notes);
    let request_headers = edits::read(table, Direction::Requests, paths, notes);
    if let Some(ask) = &auth.ask {
        ask::check(table, ask, &request_headers, notes);
    }
    let mut per_address_max = None;
    table.set_bound("connections-per-address-max", &mut per_address_max, notes);
    Handling {
        request_headers,
        response_headers: edits::read(table, Direction::Responses, paths, notes),
        allow: sets::read_list(table, "allow", sets, notes),
        deny: sets::read_list(table, "deny", sets, notes),
        rates: rates::read(table, notes),
        per_address_max,
        bandwidth: bandwidth::read(table, notes),
        mirror: mirror::read(table, known.choices.pools, notes),
        timeouts: read_timeouts(table, notes),
        auth: auth.basic,
        jwt: auth.jwt,
        ask: auth.ask,
        maintenance: answers::read_maintenance(table, sets, notes),
        cors: answers::read_cors(table, notes),
        errors: answers::read_errors(table, notes),
        security_headers: table.is_true("security-headers", notes).unwrap_or(false),
        hooks: hooks::read(table, known, notes),
    }
}

/// The timeouts for servers of a route.
fn read_timeouts(route: &Table<'_>, notes: &mut Notes) -> Option<RouteTimeouts> {
    let table = route.open_table("timeouts", notes)?;
    let mut timeouts = RouteTimeouts::default();
    table.set_timeout("response-head", &mut timeouts.response_head, notes);
    table.set_timeout("body", &mut timeouts.body, notes);
    table.set_timeout("tunnel", &mut timeouts.tunnel, notes);
    Some(timeouts)
}

/// Notes an error if a string of a route without `auth` names the user or a claim.
fn check_user(table: &Table<'_>, handling: &Handling, action: &Action, notes: &mut Notes) {
    let path = match action {
        Action::Proxy(proxy) => proxy.path.as_ref(),
        _ => None,
    };
    let redirect = match action {
        Action::Redirect(redirect) => redirect.to.as_slice(),
        _ => &[],
    };
    let of_redirect = redirect.iter().filter_map(|piece| match piece {
        RedirectPiece::Value(placeholder) => Some(placeholder),
        _ => None,
    });
    let fields = handling.request_headers.written().chain(handling.response_headers.written());
    let texts = fields.map(|(_, text)| text).chain(path);
    let placeholders: Vec<&Placeholder> =
        texts.flat_map(Template::placeholders).chain(of_redirect).collect();
    let has_auth = handling.auth.is_some() || handling.jwt.is_some();
    if !has_auth && placeholders.contains(&&Placeholder::User) {
        let what = "{user} has no value, because the route has no `auth`";
        let note = Note::new(Kind::Conflict, table.place.clone(), what);
        notes.error(note.help("add auth = { basic = \"users.htpasswd\" }"));
    }
    if handling.jwt.is_none()
        && placeholders.iter().any(|known| matches!(known, Placeholder::Claim(_)))
    {
        let what = "{claim:NAME} has no value, because the route has no `auth` with `jwt`";
        let note = Note::new(Kind::Conflict, table.place.clone(), what);
        notes.error(note.help("add auth = { jwt = { keys = \"keys.json\" } }"));
    }
}

/// Maximum number of hosts, and of paths, of one route.
const PATTERNS_MAX: usize = 100;

/// Maximum number of pairs of a host and a path of one route, each of which is looked up by itself.
const PAIRS_MAX: usize = 1000;

/// The patterns under `name`: one string, or an array of strings.
fn read_patterns<T: PartialEq>(
    table: &Table<'_>,
    name: &str,
    parse: fn(&str) -> Result<T, ValueError>,
    notes: &mut Notes,
) -> Vec<T> {
    let mut patterns = Vec::new();
    let texts = table.texts(name, notes);
    if let Some(value) = table.value(name)
        && (texts.len() > PATTERNS_MAX
            || value.get_ref().as_array().is_some_and(|all| all.is_empty()))
    {
        let what = format!("`{name}` has {} entries", texts.len());
        let note = Note::new(Kind::Value, value.span(), what);
        let note = note.allowed(format!("1 to {PATTERNS_MAX} entries"));
        notes.error(note.help(format!("remove `{name}` if every {name} matches")));
        return patterns;
    }
    for text in texts {
        match parse(&text.text) {
            Ok(pattern) if patterns.contains(&pattern) => {
                let what = format!("{} is listed twice", quoted(&text.text));
                notes.error(
                    Note::new(Kind::Duplicate, text.place, what).help("remove the duplicate"),
                );
            }
            Ok(pattern) => patterns.push(pattern),
            Err(complaint) => notes.error(refused(name, &text, complaint)),
        }
    }
    patterns
}

fn read_methods(table: &Table<'_>, notes: &mut Notes) -> Vec<String> {
    let mut methods = Vec::new();
    if let Some(value) = table.value("method")
        && value.get_ref().as_array().is_some_and(|all| all.is_empty())
    {
        let note = Note::new(Kind::Value, value.span(), "`method` has 0 entries");
        let note = note.allowed("at least 1 entry");
        notes.error(note.help("remove `method` if every method matches"));
    }
    for method in table.texts("method", notes) {
        let help = match method.text.to_ascii_uppercase() {
            _ if !pattern::is_token(&method.text) => "write \"GET\", \"POST\", ...".to_owned(),
            upper if upper != method.text => format!("write {upper:?}: methods are case-sensitive"),
            upper if upper == "CONNECT" => {
                "remove it: CONNECT is rejected before routing".to_owned()
            }
            upper if methods.contains(&upper) => "remove the duplicate".to_owned(),
            upper => {
                methods.push(upper);
                continue;
            }
        };
        let what = format!("`method` cannot be {}", quoted(&method.text));
        notes.error(Note::new(Kind::Value, method.place, what).help(help));
    }
    methods
}

fn read_conditions(table: &Table<'_>, notes: &mut Notes) -> Vec<HeaderCondition> {
    let mut conditions: Vec<HeaderCondition> = Vec::new();
    for (name, value) in table.open_fields("headers", notes) {
        let Some(field) = name.field_name(notes) else {
            continue;
        };
        let field = field.to_ascii_lowercase();
        let Some(test) = field_test::read(&field, &name, value, notes) else {
            continue;
        };
        if conditions.iter().any(|other| other.name == field) {
            let what = format!("there is already a condition on {field:?}");
            notes.error(
                Note::new(Kind::Duplicate, name.place, what).help("keep one of the two conditions"),
            );
            continue;
        }
        conditions.push(HeaderCondition { name: field, test });
    }
    conditions
}

/// A route to a whole hub needs a path whose rest says what is requested.
fn check_push_path(table: &Table<'_>, action: &Action, paths: &[PathPattern], notes: &mut Notes) {
    let Action::Push(push) = action else { return };
    if push.channel.is_none() && !paths.iter().all(|path| matches!(path, PathPattern::Below(_))) {
        let what = "a route to a whole push hub needs paths that end with \"/*\"";
        let note = Note::new(Kind::Conflict, table.key_place("path"), what);
        notes.error(
            note.help("write path = \"/push/*\", or push = { hub = \"NAME\", channel = \"NAME\" }"),
        );
    }
}

fn read_action(
    table: &Table<'_>,
    known: &Known<'_>,
    paths: Paths<'_>,
    notes: &mut Notes,
) -> Option<Action> {
    let words = ActionKey::WORDS.iter().copied();
    let mut present: Vec<&str> = words.clone().filter(|word| table.value(word).is_some()).collect();
    let proxy = ActionKey::Proxy.word().unwrap_or_default();
    if table.value("split").is_some() && !present.contains(&proxy) {
        present.push(proxy);
    }
    present.sort_by_key(|word| table.key_place(word).start);
    match present.as_slice() {
        [] if table.has_later() || words.clone().any(|word| table.has_word_for(word)) => None,
        [] => {
            let note = Note::new(Kind::Missing, table.place.clone(), "the route has no action");
            let words = ActionKey::WORDS.join(", ");
            let note = note.allowed(format!("exactly one of {words}"));
            notes.error(note.help("add an action, such as respond = { status = 404 }"));
            None
        }
        [word] => match ActionKey::from_word(word)? {
            ActionKey::Respond => read_respond(table, notes).map(Action::Respond),
            ActionKey::Redirect => read_redirect(table, paths, notes).map(Action::Redirect),
            ActionKey::Synthetic => table.flag("synthetic", notes).then_some(Action::Synthetic),
            ActionKey::Echo => table.flag("echo", notes).then_some(Action::Echo),
            ActionKey::Push => push::read_route(table, known.hubs, notes).map(Action::Push),
            ActionKey::Lua => known.apps.find(&table.text("lua", notes)?, notes).map(Action::Lua),
            ActionKey::Proxy => read_proxy(table, known.choices, paths, notes).map(Action::Proxy),
        },
        [_, second, ..] => {
            let what = format!("the route has {} actions: {}", present.len(), present.join(", "));
            let note = Note::new(Kind::Conflict, table.key_place(second), what);
            notes.error(
                note.help("keep one action, and move each other action to a separate [[route]]"),
            );
            None
        }
    }
}

fn read_respond(table: &Table<'_>, notes: &mut Notes) -> Option<Respond> {
    let value = table.value("respond")?;
    if let Some(text) = value.get_ref().as_str() {
        let note = wrong_type("`respond`", value, "a table with: status, headers, body");
        notes.error(note.help(format!("write respond = {{ body = {} }}", quoted(text))));
        return None;
    }
    if let Some(status) = value.get_ref().as_integer() {
        let note = wrong_type("`respond`", value, "a table with: status, headers, body");
        notes.error(note.help(format!("write respond = {{ status = {status} }}")));
        return None;
    }
    let table = table.open_table("respond", notes)?;
    let mut respond = Respond { status: 200, headers: Vec::new(), body: Vec::new() };
    table.set_number("status", &mut respond.status, notes);
    for (name, value) in table.open_fields("headers", notes) {
        read_field(&name, value, &mut respond.headers, notes);
    }
    if let Some(body) = table.text("body", notes) {
        if !body.text.is_empty() && matches!(respond.status, 204 | 205 | 304) {
            let what = format!("a response with status {} has no content", respond.status);
            let note = Note::new(Kind::Conflict, body.place, what);
            notes.error(note.help("remove `body`, or set status = 200"));
        }
        respond.body = body.text.into_bytes();
    }
    Some(respond)
}

fn read_field(
    name: &Located,
    value: &Value<'_>,
    fields: &mut Vec<(String, String)>,
    notes: &mut Notes,
) {
    let Some(field) = name.field_name(notes) else {
        return;
    };
    let refusal = FIELDS_REFUSED.iter().find(|(refused, _)| field.eq_ignore_ascii_case(refused));
    if let Some((_, reason)) = refusal {
        let what = format!("a fixed response cannot set {field:?}: {reason}");
        notes.error(Note::new(Kind::Value, name.place.clone(), what).help("remove it"));
        return;
    }
    for text in texts_of(&format!("`{field}`"), value, notes) {
        match pattern::check_field_value(&text.text) {
            Ok(()) => fields.push((field.to_owned(), text.text)),
            Err(complaint) => notes.error(refused(field, &text, complaint)),
        }
    }
}

fn read_redirect(table: &Table<'_>, paths: Paths<'_>, notes: &mut Notes) -> Option<Redirect> {
    let is_table = table.value("redirect")?.get_ref().as_table().is_some();
    let mut status = 302_u16;
    let (key, text) = if is_table {
        let table = table.open_table("redirect", notes)?;
        table.set_number("status", &mut status, notes);
        if !matches!(status, 301 | 302 | 303 | 307 | 308) {
            let what = format!("`status` cannot be {status}: not a redirect status");
            let note = Note::new(Kind::Value, table.key_place("status"), what);
            notes.error(note.allowed("301, 302, 303, 307 or 308"));
        }
        ("to", table.text("to", notes)?)
    } else {
        ("redirect", table.text("redirect", notes)?)
    };
    match pattern::parse_redirect(&text.text, paths) {
        Ok(to) => Some(Redirect { status, to }),
        Err(complaint) => {
            notes.error(refused(key, &text, complaint));
            None
        }
    }
}

fn read_proxy(
    table: &Table<'_>,
    choices: Choices<'_>,
    paths: Paths<'_>,
    notes: &mut Notes,
) -> Option<Proxy> {
    let Some(value) = table.value("proxy") else {
        let pool = choice::read(table, None, choices, paths, notes)?;
        return Some(Proxy { pool, host: UpstreamHost::Keep, path: None });
    };
    if value.get_ref().as_table().is_none() {
        let name = table.text("proxy", notes)?;
        if table.value("split").is_some() {
            let what = "`split` chooses the pool, but `proxy` names a pool as well";
            let note = Note::new(Kind::Conflict, name.place, what);
            notes.error(note.help("remove `proxy`, or remove `split`"));
            return None;
        }
        let pool = PoolChoice::One(choices.pools.find(&name, notes)?);
        return Some(Proxy { pool, host: UpstreamHost::Keep, path: None });
    }
    let (route, table) = (table, table.open_table("proxy", notes)?);
    let mut host = UpstreamHost::Keep;
    if let Some(text) = table.text("host", notes).filter(|text| text.text != "keep") {
        match pattern::parse_authority(&text.text) {
            Ok(authority) => host = UpstreamHost::Replace(authority),
            Err(complaint) => notes.error(refused("host", &text, complaint)),
        }
    }
    let path = edits::read_path(&table, paths, notes);
    let pool = choice::read(route, Some(&table), choices, paths, notes)?;
    Some(Proxy { pool, host, path })
}
