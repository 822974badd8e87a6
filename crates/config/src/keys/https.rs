//! The settings that make browsers use https.
//! In: nothing. Out: the sections and shapes of `hsts` and `redirect-to-https`.

use super::Preset::{Absent, Value};
use super::Shape::{Boolean, Duration, Number, OneOf, Table};
use super::{Section, Shape, key};

/// Maximum of `max-age`: ten years.
const HSTS_MS_MAX: u64 = 10 * 365 * 24 * 3_600_000;
pub(super) const HSTS_SHAPE: Shape = OneOf(&[Duration(0, HSTS_MS_MAX), Table(&HSTS)]);
pub(super) const HSTS_ABOUT: &str = "Tells browsers to use only https for this long \
     (Strict-Transport-Security, RFC 6797); \"0s\" revokes it. Sent only in responses to requests \
     received by https (over TLS here, or according to a proxy in `trusted` or `proxy-protocol`), \
     where it replaces the field of the server. The value of a route overrides that of its listener. \
     Without this setting, the server's field is passed on.";

/// `hsts = { ... }` of a listener or a route.
pub static HSTS: Section = Section {
    path: "[hsts]",
    about: "Tells browsers to use only https (RFC 6797). Start with a short time: only a later response \
             over https can revoke it.",
    keys: &[
        key(
            "max-age",
            Duration(0, HSTS_MS_MAX),
            Value("\"365d\""),
            "How long browsers use only https for the host after each response.",
            "The preload lists of browsers require one year.",
        ),
        key(
            "include-subdomains",
            Boolean,
            Value("false"),
            "Whether all subdomains of the host are included.",
            "A subdomain without https would become unreachable.",
        ),
        key(
            "preload",
            Boolean,
            Value("false"),
            "Requests inclusion in the preload lists that browsers ship. Requires a `max-age` of at least \
             one year and `include-subdomains`.",
            "Removal from such a list takes months.",
        ),
    ],
    later: &[],
};

/// `redirect-to-https = { ... }` of a listener.
pub static HTTPS_REDIRECT: Section = Section {
    path: "[listener.redirect-to-https]",
    about: "The target of redirects to https.",
    keys: &[
        key("port", Number(1, 65_535), Value("443"), "Port of the listener with TLS.", ""),
        key(
            "status",
            Number(301, 308),
            Absent,
            "301, 302, 303, 307 or 308. Without it, GET and HEAD get a 301, which every client \
             knows and caches. Other methods get a 308, which keeps the method and the body.",
            "",
        ),
    ],
    later: &[],
};
