//! Reads `[[listener]]`.
//! In: the root table of the file, the checked pools and applications. Out: checked listeners and the place of each.
//! Never: binds an address.
//! Invariant: names are unique, and so are addresses (except those with port 0).

use core::ops::Range;

use crate::count_tables::{self, CountTables};
use crate::findings::Owner;
use crate::https;
use crate::keys::{LISTENER, LISTENER_PROXY};
use crate::lua::Apps;
use crate::model::{
    Bind, CLIENT_ADDRESS_HEADERS, ClientTimeouts, Listener, Network, ProxySources, RequestLimits,
};
use crate::nearest::nearest;
use crate::pattern::{self, ValueError};
use crate::pools::Pools;
use crate::report::{Kind, Note, Notes, quoted};
use crate::table::{Located, Table, describe};
use crate::tcp;
use crate::tls;

/// The listeners of a file.
pub(crate) struct Listeners {
    /// The listeners, in file order.
    pub(crate) listeners: Vec<Listener>,
    /// Byte range of each listener's header, in the same order.
    pub(crate) places: Vec<Range<usize>>,
}

impl Listeners {
    /// The index of the listener of this name. Notes an error if there is none.
    pub(crate) fn find(&self, name: &Located, notes: &mut Notes) -> Option<usize> {
        let found = self.listeners.iter().position(|listener| listener.name == name.text);
        if found.is_none() {
            let known: Vec<&str> = self.listeners.iter().map(|l| l.name.as_str()).collect();
            notes.error(unknown_name("listener", name, &known));
        }
        found
    }

    /// Whether a listener forwards connections without HTTP to the pool with this index.
    pub(crate) fn forward_to(&self, pool: usize) -> bool {
        let mut all = self.listeners.iter().filter_map(|listener| listener.forward.as_ref());
        all.any(|forward| forward.pools().any(|other| other == pool))
    }
}

/// An error note: no listener or pool (`noun`) has this name.
pub(crate) fn unknown_name(noun: &str, name: &Located, known: &[&str]) -> Note {
    let what = format!("there is no {noun} {}", quoted(&name.text));
    let note = Note::new(Kind::Reference, name.place.clone(), what).allowed(match known {
        [] => format!("no name, because the file defines no {noun}"),
        known => known.join(", "),
    });
    match nearest(&name.text, known.iter().copied()) {
        Some(near) => note.help(format!("write {near:?}")),
        None => note,
    }
}

/// An error note: the content of a string is not allowed.
pub(crate) fn refused(key: &str, located: &Located, complaint: ValueError) -> Note {
    let what = format!("`{key}` cannot be {}: {}", quoted(&located.text), complaint.what);
    Note::new(Kind::Value, located.place.clone(), what).help(complaint.help)
}

/// Reads all listeners.
pub(crate) fn read(
    file: &Table<'_>,
    (pools, apps): (&Pools, &Apps),
    tables: &CountTables,
    notes: &mut Notes,
) -> Listeners {
    let mut found = Listeners { listeners: Vec::new(), places: Vec::new() };
    for table in file.open_rows("listener", notes) {
        let mut listener = read_one(&table, (pools, apps), notes);
        listener.counting = count_tables::read_counting(&table, tables, notes);
        if listener.forward.is_some() && !listener.counting.is_empty() {
            let what = "connections are forwarded without reading requests (`forward`): there is nothing to count";
            let note = Note::new(Kind::Conflict, table.key_place("count"), what);
            notes.error(note.help("remove `count`, or remove `forward`"));
        }
        check_duplicates(&found, &listener, &table, notes);
        notes.places.assign(Owner::Listener(found.listeners.len()));
        found.listeners.push(listener);
        found.places.push(table.place.clone());
    }
    if let Some(value) = file.value("listener")
        && value.get_ref().as_array().is_some_and(|rows| rows.is_empty())
    {
        let note = Note::new(Kind::Missing, value.span(), "the file has no listener");
        notes.error(note.help("add [[listener]] with bind = \"127.0.0.1:8080\""));
    }
    found
}

fn read_one(table: &Table<'_>, (pools, apps): (&Pools, &Apps), notes: &mut Notes) -> Listener {
    let mut bind = Bind::Unix(String::new());
    let mut name = String::new();
    if let Some(text) = table.text("bind", notes) {
        name.clone_from(&text.text);
        bind = read_bind(&text, notes).unwrap_or(bind);
        notes.places.mark(bind.to_string(), text.place);
    }
    if let Some(text) = table.text("name", notes) {
        match pattern::check_name(&text.text) {
            Ok(()) => name = text.text,
            Err(complaint) => notes.error(refused("name", &text, complaint)),
        }
    }
    let proxy_protocol = read_proxy_sources(table, &bind, notes);
    let mut listener = Listener {
        name,
        bind,
        backlog: 4096,
        limits: read_limits(table, notes),
        timeouts: read_timeouts(table, notes),
        requests_per_connection_max: None,
        connections_max: None,
        per_address_max: None,
        counting: Vec::new(),
        trusted: read_trusted(table, notes),
        client_address_headers: read_client_address_headers(table, notes),
        proxy_protocol,
        redirect_to_https: None,
        hsts: None,
        tls: tls::read_listener(table, apps, notes),
        h2c: table.is_true("h2c", notes).unwrap_or(false),
        forward: None,
        is_off: false,
    };
    if listener.h2c && listener.tls.is_some() {
        let what = "`h2c` is for a listener without TLS";
        let note = Note::new(Kind::Conflict, table.key_place("h2c"), what);
        notes.error(note.help("remove it; with `tls`, `alpn` offers \"h2\" by default"));
    }
    https::read_listener(table, &mut listener, notes);
    tcp::read(table, &mut listener, pools, notes);
    table.set_number("backlog", &mut listener.backlog, notes);
    let requests = &mut listener.requests_per_connection_max;
    table.set_bound("requests-per-connection-max", requests, notes);
    table.set_bound("connections-max", &mut listener.connections_max, notes);
    table.set_bound("connections-per-address-max", &mut listener.per_address_max, notes);
    listener
}

/// As in the file.
impl core::fmt::Display for Bind {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Tcp(address) => write!(f, "{address}"),
            Self::Unix(path) => write!(f, "unix:{path}"),
        }
    }
}

/// The address in `bind`. An error is noted.
pub(crate) fn read_bind(text: &Located, notes: &mut Notes) -> Option<Bind> {
    let parsed = match pattern::parse_bind(&text.text) {
        Ok(Bind::Unix(path)) => pattern::parse_unix(&notes.resolve(&path)).map(Bind::Unix),
        parsed => parsed,
    };
    parsed.map_err(|complaint| notes.error(refused("bind", text, complaint))).ok()
}

fn read_limits(table: &Table<'_>, notes: &mut Notes) -> RequestLimits {
    let mut limits = RequestLimits::default();
    let Some(table) = table.open_table("limits", notes) else {
        return limits;
    };
    table.set_size("request-line", &mut limits.request_line_bytes_max, notes);
    table.set_size("head", &mut limits.head_bytes_max, notes);
    table.set_number("header-fields", &mut limits.header_fields_max, notes);
    table.set_bound("body", &mut limits.body_bytes_max, notes);
    table.set_size("body-rate-min", &mut limits.body_rate_min, notes);
    if limits.request_line_bytes_max >= limits.head_bytes_max {
        let of = if table.value("head").is_some() { "head" } else { "request-line" };
        let what = "`request-line` must be smaller than `head`, because the head includes the request line";
        let note = Note::new(Kind::Conflict, table.key_place(of), what);
        notes.error(
            note.help("raise `head` or lower `request-line` (the defaults are 16KiB and 8KiB)"),
        );
    }
    limits
}

fn read_timeouts(table: &Table<'_>, notes: &mut Notes) -> ClientTimeouts {
    let mut timeouts = ClientTimeouts::default();
    let Some(table) = table.open_table("timeouts", notes) else {
        return timeouts;
    };
    table.set_duration("head", &mut timeouts.head, notes);
    table.set_duration("idle", &mut timeouts.idle, notes);
    table.set_duration("body", &mut timeouts.body, notes);
    timeouts
}

fn read_trusted(table: &Table<'_>, notes: &mut Notes) -> Vec<Network> {
    let mut networks = Vec::new();
    let Some(value) = table.value("trusted") else {
        return networks;
    };
    if value.get_ref().as_array().is_none() {
        let allowed = LISTENER.key("trusted").map(|key| describe(&key.shape)).unwrap_or_default();
        notes.error(crate::table::wrong_type("`trusted`", value, &allowed));
        return networks;
    }
    for text in table.texts("trusted", notes) {
        match pattern::parse_network(&text.text) {
            Ok(network) => networks.push(network),
            Err(complaint) => notes.error(refused("trusted", &text, complaint)),
        }
    }
    networks
}

fn read_client_address_headers(table: &Table<'_>, notes: &mut Notes) -> Vec<String> {
    if table.value("client-address-headers").is_none() {
        return CLIENT_ADDRESS_HEADERS.map(str::to_owned).to_vec();
    }
    let mut names = Vec::new();
    for text in table.texts("client-address-headers", notes) {
        if pattern::is_token(&text.text) {
            names.push(text.text.to_ascii_lowercase());
        } else {
            let complaint = ValueError {
                what: "not the name of a field".to_owned(),
                help: "write a name such as \"x-real-ip\"".to_owned(),
            };
            notes.error(refused("client-address-headers", &text, complaint));
        }
    }
    names
}

/// Reads `proxy-protocol`. Each entry of `from` must be able to connect to `bind`.
fn read_proxy_sources(table: &Table<'_>, bind: &Bind, notes: &mut Notes) -> Option<ProxySources> {
    let table = table.open_table("proxy-protocol", notes)?;
    let value = table.value("from")?;
    if value.get_ref().as_array().is_none() {
        let allowed =
            LISTENER_PROXY.key("from").map(|key| describe(&key.shape)).unwrap_or_default();
        let note = crate::table::wrong_type("`from`", value, &allowed);
        notes.error(note.help("write it in brackets: from = [\"10.0.0.0/8\"]"));
        return None;
    }
    let texts = table.texts("from", notes);
    if texts.is_empty() {
        let note = Note::new(Kind::Missing, value.span(), "`from` is empty");
        notes.error(note.help("list the proxies in front, or remove `proxy-protocol`"));
    }
    let mut sources = ProxySources { networks: Vec::new(), unix: false };
    let by_path = matches!(bind, Bind::Unix(path) if !path.is_empty());
    for text in texts {
        if (text.text == "unix") != by_path {
            let (what, help) = match by_path {
                true => ("clients of a unix socket have no IP address", "write from = [\"unix\"]"),
                false => (
                    "\"unix\" is only allowed if the listener binds a unix socket",
                    "write from = [\"10.0.0.0/8\"]",
                ),
            };
            notes.error(Note::new(Kind::Conflict, text.place, what).help(help));
            continue;
        }
        sources.unix |= by_path;
        match pattern::parse_network(&text.text) {
            _ if by_path => {}
            Ok(network) => sources.networks.push(network),
            Err(complaint) => notes.error(refused("from", &text, complaint)),
        }
    }
    Some(sources)
}

fn check_duplicates(found: &Listeners, new: &Listener, table: &Table<'_>, notes: &mut Notes) {
    let any_port = matches!(&new.bind, Bind::Tcp(address) if address.port() == 0);
    for old in &found.listeners {
        if old.bind == new.bind && !any_port && new.bind != Bind::Unix(String::new()) {
            let what = format!("listener {:?} already has this address", old.name);
            notes.error(Note::new(Kind::Duplicate, table.key_place("bind"), what).help(
                "use another port; one listener can serve several hosts (`host` of a route)",
            ));
            return;
        }
        if old.name == new.name && !new.name.is_empty() && table.value("name").is_some() {
            let what = format!("another listener is already named {:?}", new.name);
            let note = Note::new(Kind::Duplicate, table.key_place("name"), what);
            notes.error(note.help("give each listener a different name"));
            return;
        }
    }
}
