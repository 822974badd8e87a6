//! Calls of a push hub to the application's backend: their settings, and the reader of `[push.NAME.backend]`.
//! In: the table of a hub, the checked pools. Out: checked settings.
//! Limits: up to `FIELDS_MAX` fields of a client are copied into backend requests.
//! Invariant: each event that a namespace sends has a path.

use tidegate_base::Span;

use crate::edits::{self, Direction};
use crate::listeners::refused;
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
    /// The name of the pool, not its index: a reload may change the index of a pool while these settings stay in force.
    pub pool: String,
    /// The path of each event that is sent.
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
}

impl PushBackend {
    /// The path of an event; `None` if it is not sent.
    #[must_use]
    pub fn path(&self, event: BackendEvent) -> Option<&str> {
        self.paths.iter().find(|(known, _)| *known == event).map(|(_, path)| path.as_str())
    }
}

/// Reads `backend` of a hub.
pub(crate) fn read(hub: &Table<'_>, pools: &Pools, notes: &mut Notes) -> Option<PushBackend> {
    let table = hub.open_table("backend", notes)?;
    let mut backend = PushBackend {
        pool: String::new(),
        paths: Vec::new(),
        rpc_namespaces: Vec::new(),
        fields: Vec::new(),
        timeout: Span::from_secs(1),
        reply_bytes_max: 64 << 10,
        calls_max: 256,
        calls_per_address_max: 64,
    };
    if let Some(name) = table.text("pool", notes)
        && pools.find(&name, notes).is_some()
    {
        backend.pool = name.text;
    }
    for (event, key) in BackendEvent::PATHS {
        let path = table.text(key, notes).and_then(|text| read_path(key, text, notes));
        backend.paths.extend(path.map(|path| (event, path)));
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
            let what = format!("`backend-events` contains {word:?}, which has no path");
            let help =
                format!("add {word} = \"/centrifugo/{word}\" to [push.{}.backend]", hub.name);
            notes.error(Note::new(Kind::Missing, place, what).help(help));
        }
    }
}
