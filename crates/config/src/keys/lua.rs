//! The settings of Lua applications.
//! In: nothing. Out: the section `[lua.NAME]`, which `FILE` refers to, and `[route.hooks]`.

use super::Preset::{Absent, Required, Value};
use super::Shape::{Boolean, Duration, Fields, List, Name, Number, OneOf, Size, Table, Text, Word};
use super::{Section, Shape, key};
use crate::model::LuaLayer;
use crate::words::Keyword as _;

const SETTING: Shape = OneOf(&[Boolean, Number(0, 1 << 53), Text("any text")]);
/// The size of a shared dictionary.
pub(crate) const DICTIONARY: Shape = Size(64 * 1024, 64 * 1024 * 1024 * 1024);
/// The file of a shared dictionary.
pub(crate) const SHARED_FILE: Shape =
    Text("the path of a file, such as \"/var/lib/tidegate/users.dictionary\"");
/// The size of a queue.
pub(crate) const QUEUE: Shape = Size(1024, 16 * 1024 * 1024 * 1024);
/// Maximum of `time-max` and `start-time-max` in milliseconds.
const TIME_MS_MAX: u64 = 60_000;

pub(super) const HOOKS_NAME: &str = "the name of a [lua.NAME]";
pub(super) const HOOKS_ABOUT: &str = "A Lua application whose `on_access` runs before a request is forwarded: it may change \
    the request, choose the pool or send a response itself. Its `on_response` changes the heads of responses, its `on_body` \
    changes their bodies, its `on_frame` sees the messages of WebSockets, and its `on_log` runs when a request has ended. \
    Only for `proxy`. A string is the name of the application.";

/// `hooks = { ... }` of a route.
pub static HOOKS: Section = Section {
    path: "[route.hooks]",
    about: "A Lua application whose `on_access` runs before a request is forwarded, after `deny`, `rate` and `auth` have \
             admitted it, whose `on_response` and `on_body` change the heads and the bodies of responses, whose \
             `on_frame` changes the messages of WebSockets, and whose `on_log` runs when a request has ended. A request whose \
             hook fails or exceeds `time-max` gets a 500 response.",
    keys: &[
        key("lua", Text(HOOKS_NAME), Required, "Name of the application.", ""),
        key(
            "pools",
            List(&Text("the name of a [pool.NAME]")),
            Absent,
            "The pools that the hook may choose instead of the pool of `proxy`.",
            "",
        ),
    ],
    later: &[],
};

const PHASE_FILE: Shape = Text("the path of a file, such as \"apps/access.lua\"");

/// `phases = { ... }` of an application.
pub static LUA_PHASES: Section = Section {
    path: "[lua.NAME.phases]",
    about: "Scripts of further phases of an application with `layer = \"ngx\"`. `script` is the content phase in routes with \
             `lua`, and the access phase in routes with `hooks`. See docs/ngx.md.",
    keys: &[
        key("init", PHASE_FILE, Absent, "Runs once in each VM, while it loads.", ""),
        key(
            "init-worker",
            PHASE_FILE,
            Absent,
            "Runs once in each VM, before the worker listens.",
            "",
        ),
        key(
            "access",
            PHASE_FILE,
            Absent,
            "Runs before the content phase, and in routes with `hooks` in place of `script`.",
            "",
        ),
        key(
            "header-filter",
            PHASE_FILE,
            Absent,
            "Runs for each head of a server's response, in routes with `hooks`.",
            "",
        ),
        key(
            "body-filter",
            PHASE_FILE,
            Absent,
            "Runs for each piece of the body of a server's response, in routes with `hooks`.",
            "",
        ),
        key(
            "log",
            PHASE_FILE,
            Absent,
            "Runs when a request of a route with `hooks` has ended.",
            "",
        ),
    ],
    later: &[],
};

/// `[lua.NAME]`.
pub static LUA: Section = Section {
    path: "[lua.NAME]",
    about: "A Lua application, which routes use with `lua = \"NAME\"`. Each worker runs it in its own VM. The \
             script is compiled, and its top level is run, by `tidegate check` and at the start; if it has an error, \
             the error is reported and the process does not start. See docs/lua.md for the interface.",
    keys: &[
        key(
            "script",
            Text("the path of a file, such as \"apps/chat.lua\""),
            Required,
            "The file of the script, which returns a table of handlers. `require` finds modules in the same folder \
             and below it, and nowhere else.",
            "",
        ),
        key(
            "layer",
            Word(LuaLayer::WORDS),
            Absent,
            "The interface that the script was written for, if it is not Tidegate's own: \"lapps\" is the interface of \
             LAppS services (docs/lapps.md), \"ngx\" the interface of OpenResty scripts (docs/ngx.md).",
            "",
        ),
        key(
            "permissions",
            List(&Name(&["io", "os"])),
            Absent,
            "Libraries outside of the sandbox that the script may use: \"io\" is Lua's library `io`, \"os\" its functions `os.execute`, \
             `os.getenv`, `os.remove`, `os.rename` and `os.tmpname`. They have the rights of the process, and block the worker while they \
             run.",
            "",
        ),
        key(
            "phases",
            Table(&LUA_PHASES),
            Absent,
            "Scripts of further phases of an application with `layer = \"ngx\"`.",
            "",
        ),
        key(
            "settings",
            Fields(&SETTING),
            Absent,
            "Values that the script reads as `tide.config`.",
            "",
        ),
        key(
            "shared",
            Fields(&DICTIONARY),
            Absent,
            "Dictionaries that the application's VMs in all workers share, by name, and their sizes. The script reads \
             and changes them as `tide.shared.NAME`. If a dictionary is full, its least recently used entries are removed.",
            "",
        ),
        key(
            "shared-files",
            Fields(&SHARED_FILE),
            Absent,
            "Files from which dictionaries of `shared` are restored at the start, by the name of the dictionary. A dictionary that has \
             changed is written every 10 s, and when the process stops. A file that is broken is reported and ignored.",
            "",
        ),
        key(
            "queues",
            Fields(&QUEUE),
            Absent,
            "Queues of the process, by name, and their sizes. All applications that list a queue share it, in all workers. The script \
             uses them as `tide.queue.NAME`. If a queue is full, `push` returns nil and an error.",
            "",
        ),
        key(
            "time-max",
            Duration(10, TIME_MS_MAX),
            Value("\"100ms\""),
            "CPU time of one callback. A callback that takes longer is stopped with a Lua error, and its client gets \
             a 500 response.",
            "The other connections of the worker wait while a callback runs; a callback that serves one request rarely takes \
             more than a few milliseconds.",
        ),
        key(
            "start-time-max",
            Duration(10, TIME_MS_MAX),
            Value("\"2s\""),
            "CPU time of the script's top level.",
            "Loading modules and building tables may take longer than a callback, but a script that never returns \
             must not block the start.",
        ),
        key(
            "memory-max",
            Size(1024 * 1024, 16 * 1024 * 1024 * 1024),
            Value("\"64MiB\""),
            "Memory of one VM. A callback that exceeds it is stopped with a Lua error; each worker has its own VM.",
            "Enough for the state of tens of thousands of connections, and a script that leaks memory is stopped early.",
        ),
        key(
            "timers-max",
            Number(0, 1_000_000),
            Value("4096"),
            "Maximum number of timers and threads (`tide.timer`, `tide.spawn`) of one VM at once. Above it, the functions \
             return nil and an error.",
            "Enough for one timer for each of several thousand connections, and a script that adds timers endlessly is noticed \
             early.",
        ),
        key(
            "body-max",
            Size(0, 1024 * 1024 * 1024),
            Value("\"1MiB\""),
            "Largest request body, which is held in memory until it is complete. A larger body gets a 413 response.",
            "Forms and JSON documents are smaller, and every request in progress may hold this much memory.",
        ),
        key(
            "pools",
            List(&Text("the name of a [pool.NAME]")),
            Absent,
            "The pools to which the script may send requests of its own (`tide.http.request`) and connect sockets (`tide.tcp`).",
            "",
        ),
        key(
            "files",
            Text("the path of a folder, such as \"apps/public\""),
            Absent,
            "The folder whose files the script may send (`response:file`) and read (`tide.files`). Without this setting, it cannot read \
             files. Files whose path has a part that begins with a dot are not found.",
            "",
        ),
        key(
            "udp",
            List(&Text("\"10.0.0.0/8\", \"192.0.2.1\" or \"2001:db8::/32\"")),
            Absent,
            "The addresses to which the script may send datagrams (`tide.udp`). Without this setting, it may not send datagrams.",
            "",
        ),
        key(
            "requests-max",
            Number(0, 65_536),
            Value("256"),
            "Maximum number of requests to servers and sockets of one VM at once, including kept connections. Above it, \
             `tide.http.request` and `connect` return nil and an error.",
            "Enough for one request of each of several hundred waiting handlers. Each request may hold a response of 1 MiB.",
        ),
        key(
            "reload-grace",
            Duration(0, 3_600_000),
            Value("\"30s\""),
            "How long the previous code continues after a reload has loaded new code: its requests, its timers and, if the new \
             code has no `on_handover`, its WebSocket connections, which are closed one after the other with code 1012.",
            "Enough for requests that wait for servers, and long enough to spread the clients that connect again. Each VM that \
             continues takes memory.",
        ),
    ],
    later: &[],
};
