//! Calls of a push hub to the application's backend: their settings, and the reader of `[push.NAME.backend]`.
//! In: the table of a hub, the checked pools and applications. Out: checked settings.
//! Limits: up to `FIELDS_MAX` fields of a client are copied into backend requests.
//! Invariant: each event that a namespace sends has a path.

use tidegate_base::Span;

use crate::edits::{self, Direction};
use crate::listeners::refused;
use crate::lua::Apps;
use crate::pattern::ValueError;
use crate::pools::Pools;
use crate::push::{Namespace, Push};
use crate::report::{Kind, Note, Notes, quoted};
use crate::table::{Located, Table};
use crate::words::Keyword as _;

/// Maximum number of fields that are copied into backend requests.
const FIELDS_MAX: usize = 32;

/// `[push.NAME.backend]`: the application that decides what clients may do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PushBackend {
    /// The receiver of events.
    pub target: BackendTarget,
    /// The path of each event that is sent; empty for events to an application in Lua.
    pub paths: Vec<(BackendEvent, String)>,
    /// The namespaces of methods that clients may call.
    pub rpc_namespaces: Vec<String>,
    /// The fields of the client's first request that are copied into backend requests, in lower case.
    pub fields: Vec<String>,
    /// How long a response of the backend may take.
    pub timeout: Span,
    /// Maximum size of a response in bytes.
    pub reply_bytes_max: usize,
    /// Maximum number of events of one worker that wait for a response.
    pub calls_max: u32,
    /// Maximum number of such events of the clients of one address.
    pub calls_per_address_max: u32,
}

/// The receiver of events. A name, not an index: a reload may change indexes while these settings stay in force.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BackendTarget {
    /// The pool of this name, over HTTP.
    Pool(String),
    /// The application in Lua of this name.
    Lua(String),
}

/// An event about which the backend decides or is notified.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum BackendEvent {
    /// A client connects.
    Connect,
    /// A connection that was granted for a time ends.
    Refresh,
    /// A client subscribes.
    Subscribe,
    /// A client publishes.
    Publish,
    /// A subscription that was granted for a time ends.
    SubRefresh,
    /// A client calls a method.
    Rpc,
    /// A client has left.
    Disconnect,
    /// The last subscriber of a channel has left.
    ChannelEmpty,
}

impl BackendEvent {
    /// All events, and the settings of their paths.
    const PATHS: [(Self, &'static str); 8] = [
        (Self::Connect, "connect"),
        (Self::Refresh, "refresh"),
        (Self::Subscribe, "subscribe"),
        (Self::Publish, "publish"),
        (Self::SubRefresh, "sub-refresh"),
        (Self::Rpc, "rpc"),
        (Self::Disconnect, "disconnect"),
        (Self::ChannelEmpty, "channel-empty"),
    ];
    /// The names of all events in settings.
    pub const NAMES: [&'static str; 8] = [
        "connect",
        "refresh",
        "subscribe",
        "publish",
        "sub-refresh",
        "rpc",
        "disconnect",
        "channel-empty",
    ];

    /// The event as scripts name it.
    #[must_use]
    pub const fn script_name(self) -> &'static str {
        match self {
            Self::Connect => "connect",
            Self::Refresh => "refresh",
            Self::Subscribe => "subscribe",
            Self::Publish => "publish",
            Self::SubRefresh => "sub_refresh",
            Self::Rpc => "rpc",
            Self::Disconnect => "disconnect",
            Self::ChannelEmpty => "channel_empty",
        }
    }
}

impl PushBackend {
    /// Whether events are sent to the pool of this name.
    #[must_use]
    pub fn uses_pool(&self, name: &str) -> bool {
        matches!(&self.target, BackendTarget::Pool(pool) if pool == name)
    }

    /// The path of an event; `None` if it is not sent.
    #[must_use]
    pub fn path(&self, event: BackendEvent) -> Option<&str> {
        self.paths.iter().find(|(known, _)| *known == event).map(|(_, path)| path.as_str())
    }
}

/// Reads `backend` of a hub.
pub(crate) fn read(
    hub: &Table<'_>,
    (pools, apps): (&Pools, &Apps),
    notes: &mut Notes,
) -> Option<PushBackend> {
    let table = hub.open_table("backend", notes)?;
    let mut backend = PushBackend {
        target: BackendTarget::Pool(String::new()),
        paths: Vec::new(),
        rpc_namespaces: Vec::new(),
        fields: Vec::new(),
        timeout: Span::from_secs(1),
        reply_bytes_max: 64 << 10,
        calls_max: 256,
        calls_per_address_max: 64,
    };
    match (table.text("pool", notes), table.text("lua", notes)) {
        (Some(pool), None) => {
            pools.find(&pool, notes);
            backend.target = BackendTarget::Pool(pool.text);
        }
        (None, Some(app)) => {
            apps.find(&app, notes);
            backend.target = BackendTarget::Lua(app.text);
        }
        (Some(_), Some(_)) => {
            let what = "a backend cannot have both `pool` and `lua`";
            let note = Note::new(Kind::Conflict, table.key_place("lua"), what);
            notes.error(note.help("remove one of them"));
        }
        (None, None) => {
            let what = "the backend has neither `pool` nor `lua`";
            let note = Note::new(Kind::Missing, hub.key_place("backend"), what);
            notes.error(note.help(
                "add pool = \"NAME\", the name of a [pool.NAME], or lua = \"NAME\", the name of a [lua.NAME]",
            ));
        }
    }
    match backend.target {
        BackendTarget::Pool(_) => read_paths(&table, &mut backend, notes),
        BackendTarget::Lua(_) => read_names(&table, &mut backend, notes),
    }
    for name in table.texts("rpc-namespaces", notes) {
        backend.rpc_namespaces.push(name.text);
    }
    read_fields(&table, &mut backend, notes);
    table.set_duration("timeout", &mut backend.timeout, notes);
    table.set_size("reply-max", &mut backend.reply_bytes_max, notes);
    table.set_number("calls-max", &mut backend.calls_max, notes);
    table.set_number("calls-per-address-max", &mut backend.calls_per_address_max, notes);
    Some(backend)
}

/// Reads the events that are sent to a pool.
fn read_paths(table: &Table<'_>, backend: &mut PushBackend, notes: &mut Notes) {
    for (event, key) in BackendEvent::PATHS {
        let path = table.text(key, notes).and_then(|text| read_path(key, text, notes));
        backend.paths.extend(path.map(|path| (event, path)));
    }
    if table.value("events").is_some() {
        // Also a value of another type is noted.
        _ = table.texts("events", notes);
        let what = "`events` is for applications in Lua, and this backend is a pool";
        let note = Note::new(Kind::Conflict, table.key_place("events"), what);
        notes.error(note.help("give the path of each event, such as connect = \"/connect\""));
    }
}

/// Reads the events that are sent to an application in Lua.
fn read_names(table: &Table<'_>, backend: &mut PushBackend, notes: &mut Notes) {
    for (_, key) in BackendEvent::PATHS {
        if table.value(key).is_some() {
            let what =
                format!("`{key}` is the path of an HTTP backend, and this backend is in Lua");
            let note = Note::new(Kind::Conflict, table.key_place(key), what);
            notes.error(note.help(format!("remove it, and list {key:?} in `events`")));
        }
    }
    for name in table.texts("events", notes) {
        let Some((event, _)) = BackendEvent::PATHS.iter().find(|(_, key)| *key == name.text) else {
            let what = format!("unknown event {}", quoted(&name.text));
            let note = Note::new(Kind::Value, name.place, what);
            notes.error(note.allowed(BackendEvent::NAMES.join(", ")));
            continue;
        };
        match backend.path(*event) {
            Some(_) => {
                let what = format!("{} is listed twice", quoted(&name.text));
                let note = Note::new(Kind::Duplicate, name.place, what);
                notes.error(note.help("remove the duplicate"));
            }
            None => backend.paths.push((*event, String::new())),
        }
    }
    if backend.paths.is_empty() {
        let what = "the backend gets no event";
        let note = Note::new(Kind::Missing, table.key_place("lua"), what);
        notes.error(note.help("add events = [\"connect\", \"subscribe\", \"publish\"]"));
    }
}

fn read_path(key: &str, text: Located, notes: &mut Notes) -> Option<String> {
    let is_plain = text.text.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'#');
    if text.text.starts_with('/') && !text.text.starts_with("//") && is_plain {
        return Some(text.text);
    }
    let (what, help) = ("not a path".to_owned(), format!("write {key} = \"/centrifugo/{key}\""));
    notes.error(refused(key, &text, ValueError { what, help }));
    None
}

/// Fields that Tidegate sends itself.
const OWN: [&str; 6] = [
    "content-type",
    "forwarded",
    "host",
    "x-forwarded-for",
    "x-forwarded-host",
    "x-forwarded-proto",
];

fn read_fields(table: &Table<'_>, backend: &mut PushBackend, notes: &mut Notes) {
    for name in table.texts("headers", notes) {
        let place = name.place.clone();
        match edits::read_name(&name, "`headers` cannot copy", Direction::Requests, notes) {
            Some(field) if backend.fields.contains(&field) => {
                let what = format!("{} is listed twice", quoted(&name.text));
                notes.error(Note::new(Kind::Duplicate, place, what).help("remove the duplicate"));
            }
            Some(field) if OWN.contains(&field.as_str()) => {
                let what = format!("`headers` cannot copy {field:?}: Tidegate sets it");
                notes.error(Note::new(Kind::Value, place, what).help("remove it"));
            }
            Some(field) => backend.fields.push(field),
            None => {}
        }
    }
    if backend.fields.len() > FIELDS_MAX {
        let note = Note::new(Kind::Value, table.key_place("headers"), "too many fields");
        notes.error(note.allowed(format!("up to {FIELDS_MAX} fields")));
    }
}

/// Reads `backend-events` of the channels of a namespace.
pub(crate) fn read_events(table: &Table<'_>, namespace: &mut Namespace, notes: &mut Notes) {
    for text in table.texts("backend-events", notes) {
        match BackendEvent::from_word(&text.text) {
            Some(event) if namespace.backend_events.contains(&event) => {}
            Some(event) => namespace.backend_events.push(event),
            None => {
                let what = format!("unknown event {}", quoted(&text.text));
                let note = Note::new(Kind::Value, text.place, what);
                notes.error(note.allowed(BackendEvent::WORDS.join(", ")));
            }
        }
    }
}

/// Notes an error for each event that a namespace sends and for which the hub has no path.
pub(crate) fn check(table: &Table<'_>, hub: &Push, notes: &mut Notes) {
    let all = core::iter::once(&hub.channels).chain(&hub.namespaces);
    for namespace in all {
        for event in &namespace.backend_events {
            let path = hub.backend.as_ref().and_then(|backend| backend.path(*event));
            let Some(word) = event.word().filter(|_| path.is_none()) else { continue };
            let place = match namespace.name.is_empty() {
                true => table.key_place("backend-events"),
                false => table.key_place("namespace"),
            };
            let is_lua =
                hub.backend.as_ref().is_some_and(|of| matches!(of.target, BackendTarget::Lua(_)));
            let (lacks, name) =
                (if is_lua { "is not in `events`" } else { "has no path" }, &hub.name);
            let what = format!("`backend-events` contains {word:?}, which {lacks}");
            let help = match is_lua {
                true => format!("add {word:?} to `events` of [push.{name}.backend]"),
                false => format!("add {word} = \"/centrifugo/{word}\" to [push.{name}.backend]"),
            };
            notes.error(Note::new(Kind::Missing, place, what).help(help));
        }
    }
}
