//! Words of other programs that users write in whichever section seems right, and what to write instead.
//! In: an unknown setting. Out: the suggested fix, which names the section.

use crate::foreign::{
    ALLOW_HELP, Entry, FILES_HELP, HEALTH_HELP, LISTENER_HELP, MIDDLEWARE_HELP, PASSWORD_HELP,
    POOL_HELP, RATE_HELP, ROUTE_HELP, STRIP_HELP, TRUSTED_HELP,
};

/// The sections that a word can be misplaced in.
pub(crate) const SECTIONS: &[&str] =
    &["the file", "[server]", "[[listener]]", "[[route]]", "[pool.NAME]", "[pool.NAME.servers]"];

/// The words, and the fix. The place is empty: the entries of a section take precedence.
pub(crate) const ENTRIES: &[Entry] = &[
    (
        "",
        &[
            "leastconn",
            "least-conn",
            "round-robin",
            "roundrobin",
            "ip-hash",
            "lb-policy",
            "load-balancing",
        ],
        "write balance = \"least-connections\" in [pool.NAME]",
    ),
    ("", &["backends", "backend", "upstreams", "upstream", "targets", "endpoints"], POOL_HELP),
    ("", &["listen", "listeners", "frontend", "entrypoint", "entrypoints", "port"], LISTENER_HELP),
    ("", &["location", "locations", "router", "routers", "routes"], ROUTE_HELP),
    ("", &["root", "alias", "static", "file-server", "document-root"], FILES_HELP),
    ("", &["rate-limit", "ratelimit", "rate-limits", "limit-req", "throttle"], RATE_HELP),
    ("", &["basic-auth", "basicauth", "auth-basic", "htpasswd", "users"], PASSWORD_HELP),
    ("", &["strip-prefix", "rewrite", "replace-path", "add-prefix"], STRIP_HELP),
    ("", &["health-check", "healthcheck", "httpchk"], HEALTH_HELP),
    ("", &["trusted-proxies", "real-ip", "set-real-ip-from", "trusted-ips"], TRUSTED_HELP),
    (
        "",
        &["ip-whitelist", "ip-allow-list", "ip-allowlist", "ipwhitelist", "ipallowlist"],
        ALLOW_HELP,
    ),
    (
        "",
        &[
            "add-header",
            "add-headers",
            "set-header",
            "set-headers",
            "remove-header",
            "remove-headers",
        ],
        MIDDLEWARE_HELP,
    ),
];
