//! The settings that choose the pool of a request.
//! In: nothing. Out: the sections `[map.NAME]`, `[route.split]` and `[route.proxy.pool]`.

use super::Preset::{Absent, Required, Value};
use super::Shape::{self, Boolean, Fields, List, Number, OneOf, Table, Text, Word};
use super::rate::KEY;
use super::{Section, key};
use crate::model::MapKind;
use crate::words::Keyword as _;

/// The greatest weight of a pool.
pub(crate) const WEIGHT_MAX: u64 = 1_000_000;

/// `pool` of `proxy`.
pub(super) const POOL_SHAPE: Shape = OneOf(&[Text("the name of a [pool.NAME]"), Table(&CHOICE)]);

/// `[map.NAME]`.
pub static MAP: Section = Section {
    path: "[map.NAME]",
    about: "Values by key, such as pools by host, which routes look up (`pool` of `proxy`). Exactly one of `file` and \
            `entries` is required. A key may have up to 1024 bytes, and occurs once. `tidegate ctl set map NAME KEY \
            VALUE` changes a running process; a reload keeps such changes unless the file or `entries` have changed.",
    keys: &[
        key(
            "file",
            Text("the path of a file"),
            Absent,
            "A file with a key, spaces and a value in each line; `#` begins a comment. A relative path starts from the \
             folder of the configuration file. The file may have up to 1,000,000 keys, and is read at start and at each \
             reload.",
            "",
        ),
        key(
            "entries",
            Fields(&Text("a value")),
            Absent,
            "Keys and values in the configuration itself: { \"a.example\" = \"app\" }.",
            "",
        ),
        key(
            "kind",
            Word(MapKind::WORDS),
            Value("\"exact\""),
            "How the text that is looked up must match a key: it equals the key (\"exact\"), begins with it (\"prefix\"), ends \
             with it (\"suffix\"), is an IP address in the range that the key names (\"address\", such as 10.0.0.0/8), or matches \
             the key as a regular expression (\"regex\"). If several keys match, the longest key, the smallest address range or \
             the first regular expression in the file wins. A map may have up to 100 regular expressions, and a string of more \
             than 4096 bytes matches none of them; in a file, write \\s for a space and \\x23 for `#`.",
            "With \"exact\", a key matches only the text that is written in the map.",
        ),
        key(
            "ignore-case",
            Boolean,
            Value("false"),
            "Whether upper and lower case ASCII letters are equal.",
            "Paths and most other values distinguish upper and lower case; {host} is always in lower case.",
        ),
    ],
    later: &[],
};

/// `proxy = { pool = { map, key, default } }`.
pub static CHOICE: Section = Section {
    path: "[route.proxy.pool]",
    about: "Looks up the pool in a map. Each value of the map must be the name of a pool.",
    keys: &[
        key("map", Text("the name of a [map.NAME]"), Required, "Name of the map.", ""),
        key(
            "key",
            Text("a string with placeholders, such as \"{host}\""),
            Required,
            "The text that is looked up, with [placeholders](#placeholders) except {user} and {claim:NAME}. {host} \
             is the host in lower case, without the port; {path} is the path in the normalized form in which routes compare it.",
            "",
        ),
        key(
            "default",
            Text("the name of a [pool.NAME]"),
            Absent,
            "The pool of requests whose text matches no key of the map. Without this setting, such requests get a 404 response.",
            "",
        ),
    ],
    later: &[],
};

/// `split` of a route.
pub static SPLIT: Section = Section {
    path: "[route.split]",
    about: "Distributes the requests of a route among several pools.",
    keys: &[
        key(
            "pools",
            Fields(&Number(0, WEIGHT_MAX)),
            Required,
            "The pools, by name, and the weight of each: { stable = 95, canary = 5 }. A pool with weight 0 gets no \
             requests.",
            "",
        ),
        key(
            "by",
            OneOf(&[Text(KEY), List(&Text(KEY))]),
            Absent,
            "The value that decides, written as `by` of `rate`: requests with the same value get the same pool, on every \
             instance of Tidegate. When weights change, no more values than necessary move to another pool. A request that \
             does not have exactly one value of a field, cookie or parameter is assigned by the client's address. Without \
             `by`, each request is assigned at random.",
            "",
        ),
    ],
    later: &[],
};
