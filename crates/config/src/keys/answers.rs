//! The settings of responses that a route sends before its action: maintenance, cross-origin requests.
//! In: nothing. Out: the sections `[route.maintenance]` and `[route.cors]`.

use super::Preset::{Absent, Required, Value};
use super::Shape::{Boolean, Duration, List, OneOf, Text};
use super::route::ADDRESSES;
use super::{Section, Shape, key};

const TOKENS: Shape = OneOf(&[Text("a name"), List(&Text("a name"))]);
const ORIGIN: &str = "\"https://example.com\", \"https://*.example.com\", \"null\" or \"*\"";
const DAY_MS: u64 = 24 * 3_600_000;

/// `maintenance = { ... }` of a route.
pub static MAINTENANCE: Section = Section {
    path: "[route.maintenance]",
    about: "All requests get a 503 response, without reaching the action.",
    keys: &[
        key(
            "name",
            Text("1 to 64 letters, digits, '-', '_' and '.'"),
            Absent,
            "Name by which `tidegate ctl set maintenance NAME on|off|default` switches the maintenance of the route on or off; \
             `default` returns to `active`. Routes with the same name are switched together. A reload keeps the setting of the \
             command. Without this setting, the name is the first host and the first path of the route, such as \
             \"shop.example/cart/*\", or \"*\".",
            "",
        ),
        key(
            "active",
            Boolean,
            Value("true"),
            "Whether the route is in maintenance unless a command has switched it. With `false`, requests are served as usual \
             until `tidegate ctl` switches the maintenance on.",
            "A route with `maintenance` is in maintenance, unless the file says otherwise.",
        ),
        key(
            "page",
            Text("the path of a file"),
            Absent,
            "A file with the content of the response. Without this setting, the content is a short text.",
            "",
        ),
        key(
            "retry-after",
            Duration(0, 30 * DAY_MS),
            Value("\"0s\""),
            "Time after which clients should try again (the field Retry-After); \"0s\" omits the field.",
            "Only the operator knows how long the maintenance will take.",
        ),
        key(
            "except",
            ADDRESSES,
            Absent,
            "Clients whose requests are served as usual: addresses, ranges or sets, written as in `client`.",
            "",
        ),
    ],
    later: &[],
};

/// `cors = { ... }` of a route.
pub static CORS: Section = Section {
    path: "[route.cors]",
    about: "Lets web pages of other origins use the route (CORS, a part of the Fetch standard). Tidegate answers the \
             preflight requests of browsers, and sets Access-Control-Allow-Origin and Vary in the other responses; such \
             fields of the server are removed. Requests are not refused: browsers hide the responses from other pages. If \
             the route has `method`, it must list OPTIONS.",
    keys: &[
        key(
            "origins",
            OneOf(&[Text(ORIGIN), List(&Text(ORIGIN))]),
            Required,
            "The origins whose pages may use the route. \"*.\" stands for one or more labels; \"*\" alone is every page \
             of the web.",
            "",
        ),
        key(
            "methods",
            TOKENS,
            Absent,
            "The methods that pages may use. Without it, GET, HEAD, POST, PUT, PATCH and DELETE.",
            "",
        ),
        key(
            "headers",
            TOKENS,
            Absent,
            "The request fields that pages may set. Without it, any field.",
            "",
        ),
        key(
            "expose",
            TOKENS,
            Absent,
            "The response fields that pages may read besides those that browsers always allow, such as Content-Type.",
            "",
        ),
        key(
            "credentials",
            Boolean,
            Value("false"),
            "Whether pages may send the cookies of their user. Not allowed with the origin \"*\".",
            "With cookies, a page acts as its user.",
        ),
        key(
            "max-age",
            Duration(0, DAY_MS),
            Value("\"2h\""),
            "How long browsers remember the response to a preflight request.",
            "Chromium remembers for two hours at most.",
        ),
    ],
    later: &[],
};
