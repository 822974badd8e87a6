//! Words of other programs that users write in whichever section seems right, and what to write instead.
//! In: an unknown setting. Out: the suggested fix, which names the section.

use crate::foreign::{
    ALLOW_HELP, Entry, FILES_HELP, HEALTH_HELP, LISTENER_HELP, MIDDLEWARE_HELP, PASSWORD_HELP,
    POOL_HELP, RATE_HELP, ROUTE_HELP, STRIP_HELP, TLS_HELP, TRUSTED_HELP,
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
    (
        "",
        &["gzip", "compress", "encode", "brotli", "cache", "proxy-cache"],
        "not in this version: bodies are forwarded unchanged and not stored; let the servers do it",
    ),
    (
        "",
        &["error-page", "error-pages", "errorfile", "handle-errors", "error-document"],
        "write errors = { 502 = \"errors/502.html\" } in a [[route]]",
    ),
    (
        "",
        &["access-log", "accesslog", "custom-log", "httplog", "log-format"],
        "write [log] and below it access = { to = \"stdout\" }",
    ),
    (
        "",
        &["error-log", "errorlog"],
        "remove it: messages of the process go to stderr; `access` in [log] writes a line for each request",
    ),
    (
        "",
        &[
            "proxy-read-timeout",
            "proxy-send-timeout",
            "proxy-connect-timeout",
            "timeout-server",
            "timeout-connect",
        ],
        "write timeouts = { connect = \"3s\", response-head = \"60s\", body = \"60s\" } in [pool.NAME]",
    ),
    (
        "",
        &["keepalive-timeout", "client-header-timeout", "client-body-timeout", "timeout-client"],
        "write timeouts = { head = \"10s\", idle = \"60s\", body = \"30s\" } in the [[listener]]",
    ),
    (
        "",
        &["client-max-body-size", "max-body-size", "body-max"],
        "write limits = { body = \"1MiB\" } in the [[listener]]",
    ),
    ("", &["ssl-certificate", "ssl-certificate-key", "ssl-protocols", "ssl-ciphers"], TLS_HELP),
    (
        "",
        &["default-backend", "use-backend", "proxy-pass", "reverse-proxy"],
        "write proxy = \"NAME\" in a [[route]], and define [pool.NAME] with servers = [\"127.0.0.1:8000\"]",
    ),
    ("", &["worker-processes", "nbthread", "nbproc"], "write workers = 4 in [server]"),
    ("", &["worker-connections"], "write connections-max = 10000 in [server]"),
    (
        "",
        &["server-name", "server-names"],
        "write host = \"example.com\" in a [[route]]; the name in the certificates of servers is `server-name` in \
         [pool.NAME.tls]",
    ),
    (
        "",
        &["option", "options"],
        "remove it: options of HAProxy have settings of their own; `tidegate convert FILE` translates a file of HAProxy",
    ),
];
