//! `[lua.NAME]`: the model and its reader.
//! In: the root table of the file, its pools. Out: checked applications.
//! Never: opens a script.
//! Invariant: names are unique; paths of scripts start from the folder of the file.

use tidegate_base::Span;
use toml::de::DeValue;

use crate::findings::Owner;
use crate::keys::{DICTIONARY, LUA, LUA_PHASES, QUEUE, SHARED_FILE, Shape};
use crate::listeners::{refused, unknown_name};
use crate::model::Network;
use crate::pattern;
use crate::pools::Pools;
use crate::report::{Kind, Note, Notes};
use crate::table::{Located, Scalar, Table, Value, conform, describe, wrong_type};

/// `[lua.NAME]`: a Lua application.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LuaApp {
    /// Name in routes and logs; unique.
    pub name: String,
    /// Path of the script.
    pub script: String,
    /// What the script may use besides its sandbox.
    pub permissions: LuaPermissions,
    /// The interface that the script was written for, if it is another one.
    pub layer: Option<LuaLayer>,
    /// The scripts of the phases other than `script`, by name. Only with the layer `Ngx`.
    pub phases: Vec<(String, String)>,
    /// The value that the script reads as `tide.config`.
    pub settings: Vec<(String, LuaSetting)>,
    /// The dictionaries that all its VMs share, and their sizes in bytes.
    pub shared: Vec<(String, usize)>,
    /// The dictionaries that are restored from files, and the paths of these files.
    pub shared_files: Vec<(String, String)>,
    /// The queues that all applications which list them share, and their sizes in bytes.
    pub queues: Vec<(String, usize)>,
    /// CPU time of one callback.
    pub time_max: Span,
    /// CPU time of the script's top level.
    pub start_time_max: Span,
    /// Memory of one VM in bytes.
    pub memory_bytes_max: usize,
    /// Timers and threads of one VM that exist at once.
    pub timers_max: usize,
    /// Size of a request body in bytes.
    pub body_bytes_max: usize,
    /// The names of the pools to which the script may send requests. Names, because indexes of pools change their meaning
    /// with the file, and these settings do not.
    pub pools: Vec<String>,
    /// The folder whose files the script may send and read.
    pub files: Option<String>,
    /// The addresses to which the script may send datagrams.
    pub udp: Vec<Network>,
    /// Requests of one VM to these pools that are in progress at once.
    pub requests_max: usize,
    /// How long the VMs of earlier code continue after a reload.
    pub reload_grace: Span,
}

impl Default for LuaApp {
    fn default() -> Self {
        Self {
            name: String::new(),
            script: String::new(),
            permissions: LuaPermissions::default(),
            layer: None,
            phases: Vec::new(),
            settings: Vec::new(),
            shared: Vec::new(),
            shared_files: Vec::new(),
            queues: Vec::new(),
            time_max: Span::from_millis(100),
            start_time_max: Span::from_secs(2),
            memory_bytes_max: 64 * 1024 * 1024,
            timers_max: 4096,
            body_bytes_max: 1024 * 1024,
            pools: Vec::new(),
            files: None,
            udp: Vec::new(),
            requests_max: 256,
            reload_grace: Span::from_secs(30),
        }
    }
}

/// The libraries outside of the sandbox that a script may use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LuaPermissions {
    /// The library `io`.
    pub io: bool,
    /// The functions of `os` that reach outside of the process.
    pub os: bool,
}

/// An interface of Lua applications other than Tidegate's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LuaLayer {
    /// That of services of LAppS.
    Lapps,
    /// That of scripts of OpenResty.
    Ngx,
}

/// A value of `lua.NAME.settings`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LuaSetting {
    /// A string.
    Text(String),
    /// A whole number.
    Number(u64),
    /// `true` or `false`.
    Flag(bool),
}

/// The applications of a file, in file order.
pub(crate) struct Apps(pub(crate) Vec<LuaApp>);

impl Apps {
    /// Whether an application sends requests to the pool of this name.
    pub(crate) fn use_pool(&self, name: &str) -> bool {
        self.0.iter().any(|app| app.pools.iter().any(|pool| pool == name))
    }

    /// The index of the application of this name. Notes an error if there is none.
    pub(crate) fn find(&self, name: &Located, notes: &mut Notes) -> Option<usize> {
        let found = self.0.iter().position(|app| app.name == name.text);
        if found.is_none() {
            let known: Vec<&str> = self.0.iter().map(|app| app.name.as_str()).collect();
            let note = unknown_name("application", name, &known);
            notes.error(match name.text.ends_with(".lua") {
                true => {
                    note.help("define [lua.NAME] with script = \"...\" and write its name here")
                }
                false => note,
            });
        }
        found
    }
}

/// Reads all applications, in file order.
pub(crate) fn read(file: &Table<'_>, pools: &Pools, notes: &mut Notes) -> Apps {
    let mut apps = Vec::new();
    for (name, value) in file.open_fields("lua", notes) {
        if let Err(complaint) = pattern::check_name(&name.text) {
            notes.error(refused("lua", &name, complaint));
        }
        if LUA.key(&name.text).is_some() && value.get_ref().as_table().is_none() {
            let what =
                format!("[lua] needs a name: `{}` is a setting of one application", name.text);
            let note = Note::new(Kind::Missing, name.place, what);
            notes.error(note.help(
                "write [lua.NAME], with a name of your choice, and lua = \"NAME\" in a route",
            ));
            continue;
        }
        let mut app = LuaApp { name: name.text, ..LuaApp::default() };
        if let Some(table) = Table::open(&LUA, value, notes) {
            read_one(&table, pools, &mut app, notes);
            read_queues(&table, &apps, &mut app, notes);
            read_shared_files(&table, &apps, &mut app, notes);
        }
        notes.places.assign(Owner::Lua(apps.len()));
        apps.push(app);
    }
    Apps(apps)
}

fn read_one(table: &Table<'_>, pools: &Pools, app: &mut LuaApp, notes: &mut Notes) {
    if let Some(script) = table.text("script", notes) {
        app.script = notes.resolve(&script.text);
        notes.places.mark(app.script.clone(), script.place);
    }
    if let Some(folder) = table.text("files", notes) {
        let path = notes.resolve(&folder.text);
        notes.places.mark(path.clone(), folder.place);
        app.files = Some(path);
    }
    read_permissions(table, app, notes);
    app.layer = table.word("layer", notes);
    read_phases(table, app, notes);
    for (name, value) in table.open_fields("settings", notes) {
        match read_setting(value) {
            Some(setting) => app.settings.push((name.text, setting)),
            None => {
                let subject = format!("`{}`", name.text);
                notes.error(wrong_type(&subject, value, "a string, true, false or a whole number"));
            }
        }
    }
    app.shared = read_sizes(table, "shared", ("dictionary", &DICTIONARY), notes);
    table.set_duration("time-max", &mut app.time_max, notes);
    table.set_duration("start-time-max", &mut app.start_time_max, notes);
    table.set_size("memory-max", &mut app.memory_bytes_max, notes);
    table.set_number("timers-max", &mut app.timers_max, notes);
    table.set_size("body-max", &mut app.body_bytes_max, notes);
    table.set_number("requests-max", &mut app.requests_max, notes);
    table.set_duration("reload-grace", &mut app.reload_grace, notes);
    for name in table.texts("pools", notes) {
        if pools.find(&name, notes).is_some() {
            app.pools.push(name.text);
        }
    }
    for text in table.texts("udp", notes) {
        match pattern::parse_network(&text.text) {
            Ok(network) => app.udp.push(network),
            Err(complaint) => notes.error(refused("udp", &text, complaint)),
        }
    }
}

/// Reads `permissions`.
fn read_permissions(table: &Table<'_>, app: &mut LuaApp, notes: &mut Notes) {
    for text in table.texts("permissions", notes) {
        match text.text.as_str() {
            "io" => app.permissions.io = true,
            "os" => app.permissions.os = true,
            other => {
                let what = format!("there is no permission {other:?}");
                notes.error(Note::new(Kind::Value, text.place, what).allowed("io, os".to_owned()));
            }
        }
    }
}

/// Reads `phases`.
fn read_phases(app_table: &Table<'_>, app: &mut LuaApp, notes: &mut Notes) {
    let Some(table) = app_table.open_table("phases", notes) else { return };
    for key in LUA_PHASES.keys {
        if let Some(script) = table.text(key.name, notes) {
            let path = notes.resolve(&script.text);
            notes.places.mark(path.clone(), script.place);
            app.phases.push((key.name.to_owned(), path));
        }
    }
    if app.layer != Some(LuaLayer::Ngx) {
        let what = "`phases` needs layer = \"ngx\"";
        let note = Note::new(Kind::Conflict, app_table.key_place("phases"), what);
        notes
            .error(note.help("add layer = \"ngx\", or return a table of handlers from the script"));
    }
}

/// Reads `queues`. The applications that share a queue must agree about its size.
fn read_queues(table: &Table<'_>, others: &[LuaApp], app: &mut LuaApp, notes: &mut Notes) {
    app.queues = read_sizes(table, "queues", ("queue", &QUEUE), notes);
    for (name, bytes) in &app.queues {
        let has_other_size =
            |other: &&LuaApp| other.queues.iter().any(|(own, size)| own == name && size != bytes);
        if let Some(other) = others.iter().find(has_other_size) {
            let what = format!("[lua.{}] has the queue `{name}` with a different size", other.name);
            let note = Note::new(Kind::Conflict, table.key_place("queues"), what);
            notes.error(note.help("write the same size in both: they share the queue"));
        }
    }
}

/// Reads `shared-files`. Each names a dictionary of the application, and a file of its own.
fn read_shared_files(table: &Table<'_>, others: &[LuaApp], app: &mut LuaApp, notes: &mut Notes) {
    for (name, value) in table.open_fields("shared-files", notes) {
        let Some(Scalar::Text(path)) = conform(&SHARED_FILE, value.get_ref()) else {
            let subject = format!("`{}`", name.text);
            notes.error(wrong_type(&subject, value, &describe(&SHARED_FILE)));
            continue;
        };
        if !app.shared.iter().any(|(own, _)| *own == name.text) {
            let what = format!("`shared` has no dictionary `{}`", name.text);
            let note = Note::new(Kind::Reference, name.place, what);
            notes.error(note.help("add it to `shared` with its size, or remove the file"));
            continue;
        }
        let path = notes.resolve(&path);
        let mut known =
            others.iter().flat_map(|other| &other.shared_files).chain(&app.shared_files);
        if known.any(|(_, other)| *other == path) {
            let what = "another dictionary has the same file";
            let note = Note::new(Kind::Duplicate, value.span(), what);
            notes.error(note.help("give each dictionary a file of its own"));
            continue;
        }
        app.shared_files.push((name.text, path));
    }
}

/// Reads names with sizes.
fn read_sizes(
    table: &Table<'_>,
    key: &'static str,
    (what, shape): (&str, &'static Shape),
    notes: &mut Notes,
) -> Vec<(String, usize)> {
    let mut sizes = Vec::new();
    for (name, value) in table.open_fields(key, notes) {
        if let Err(complaint) = pattern::check_name(&name.text) {
            notes.error(refused(key, &name, complaint));
            continue;
        }
        match conform(shape, value.get_ref()) {
            Some(Scalar::Size(bytes)) => sizes.push((name.text, bytes as usize)),
            _ => {
                let what = format!("the {what} `{}` cannot have this size", name.text);
                let note = Note::new(Kind::Value, value.span(), what);
                notes.error(note.allowed(describe(shape)));
            }
        }
    }
    sizes
}

/// A value of `settings`; `None` if it has another type.
fn read_setting(value: &Value<'_>) -> Option<LuaSetting> {
    match value.get_ref() {
        DeValue::String(text) => Some(LuaSetting::Text(text.to_string())),
        DeValue::Boolean(is) => Some(LuaSetting::Flag(*is)),
        DeValue::Integer(number) => {
            u64::from_str_radix(number.as_str(), number.radix()).ok().map(LuaSetting::Number)
        }
        _ => None,
    }
}
