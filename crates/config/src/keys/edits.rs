//! The settings of routes that edit header fields.
//! In: nothing. Out: the sections `[route.request-headers]` and `[route.response-headers]`.

use super::Preset::Absent;
use super::Shape::{Fields, List, OneOf, Text};
use super::{Section, Shape, key};

const NAME: &str = "a field name";
const NAMES: Shape = OneOf(&[Text(NAME), List(&Text(NAME))]);
const VALUE: &str = "a value; placeholders such as {client} are replaced";
const VALUES: Shape = OneOf(&[Text(VALUE), List(&Text(VALUE))]);

/// `request-headers = { ... }` of a route.
pub static REQUEST_EDITS: Section = Section {
    path: "[route.request-headers]",
    about: "Edits of the fields that servers receive. Field names ignore case, and `_` in a received name counts as `-`. \
             Fields that frame the message or describe the connection, Host, Via and X-Client-Cert-* cannot be edited. A route \
             with such edits forwards no trailers of requests. Values may have [placeholders](#placeholders). A field whose value \
             is empty is left out. A request for which a value would contain a control character gets a 400 response.",
    keys: &[
        key(
            "set",
            Fields(&VALUES),
            Absent,
            "Fields that replace all received fields of the same name; an array writes several.",
            "",
        ),
        key(
            "add",
            Fields(&VALUES),
            Absent,
            "Fields that are added; received fields of the same name stay.",
            "",
        ),
        key("remove", NAMES, Absent, "Names of fields that are removed.", ""),
    ],
    later: &[],
};

/// `response-headers = { ... }` of a route.
pub static RESPONSE_EDITS: Section = Section {
    path: "[route.response-headers]",
    about: "Edits of the fields that clients receive, in all final responses of the route, including error responses \
             by Tidegate. Values may have [placeholders](#placeholders), which refer to the request. Fields that \
             frame the message or describe the connection, Date, Via and Strict-Transport-Security (`hsts`) cannot be \
             edited.",
    keys: &[
        key(
            "set",
            Fields(&VALUES),
            Absent,
            "Fields that replace all fields of the same name; an array writes several.",
            "",
        ),
        key(
            "add",
            Fields(&VALUES),
            Absent,
            "Fields that are added; fields of the same name stay.",
            "",
        ),
        key("remove", NAMES, Absent, "Names of fields that are removed.", ""),
    ],
    later: &[],
};
