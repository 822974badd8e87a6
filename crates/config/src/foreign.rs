//! Words of other programs (nginx, HAProxy, Caddy, Traefik, Envoy), and what to write instead.
//! In: an unknown setting or value, and its section. Out: the suggested fix.
//! Invariant: no word is a setting of the section that it is listed for; each section exists.

use crate::foreign_anywhere;
use crate::foreign_values::VALUES;

/// Words, the section in which a file uses them, and the suggested fix.
pub(crate) type Entry = (&'static str, &'static [&'static str], &'static str);

pub(crate) const POOL_HELP: &str = "write [pool.NAME] with servers = [\"127.0.0.1:8000\"]";
pub(crate) const LISTENER_HELP: &str = "write [[listener]] with bind = \"0.0.0.0:8080\"";
pub(crate) const ROUTE_HELP: &str =
    "write [[route]] with path = \"/api/*\" and an action, such as proxy = \"NAME\"";
const PROCESS_HELP: &str = "remove it: Tidegate stays in the foreground; the service manager manages the user and the process";
const CERTIFICATES_HELP: &str = "write certificates = [{ cert = \"site.pem\", key = \"site.key\" }] in the `tls` of the listener";
const ACME_HELP: &str = "not in this version: let an ACME client obtain the certificates and name its files in `certificates`";
const CLIENT_CA_HELP: &str =
    "write client-auth = \"required\" and client-ca = \"clients-ca.pem\" for client certificates";
pub(crate) const MIDDLEWARE_HELP: &str = "write request-headers = { set = { \"x-real-ip\" = \"{client}\" } } or response-headers = \
                               { remove = [\"server\"] }";
pub(crate) const STRIP_HELP: &str = "write proxy = { pool = \"NAME\", path = \"/{rest}\" }, with path = \"/api/*\" in the \
    route, to remove /api";
const AGENT_HELP: &str = "write agent = { port = 9999, every = \"2s\" } in [pool.NAME]";
pub(crate) const HEALTH_HELP: &str = "write health = { http = \"/healthz\", every = \"2s\", fall = 3 } in [pool.NAME]; if a connection \
                           fails, another server is tried in any case (`retries`)";
const BALANCE_HELP: &str =
    "write balance = \"least-connections\", \"round-robin\" or { hash = \"client-address\" }";
pub(crate) const TRUSTED_HELP: &str = "write trusted = [\"10.0.0.0/8\"] in the [[listener]]";
pub(crate) const ALLOW_HELP: &str =
    "write allow = [\"10.0.0.0/8\"] or deny = [...] in a [[route]] for a 403 response";

pub(crate) const TLS_HELP: &str = "write tls = { certificates = [{ cert = \"site.pem\", key = \"site.key\" }] } in the [[listener]]";
pub(crate) const FILES_HELP: &str = "not in this version: Tidegate serves no files; write proxy = \"NAME\" with the pool of a file server";
pub(crate) const RATE_HELP: &str =
    "write rate = { limit = \"100/10s\", burst = 20 } in a [[route]]";
pub(crate) const PASSWORD_HELP: &str = "write auth = { basic = \"users.htpasswd\" } in a [[route]]; `client-cert` tests client \
    certificates";
const SERVER_LIMIT_HELP: &str =
    "write servers = [{ address = \"127.0.0.1:8000\", connections-max = 200 }]";

const POOL_READ_HELP: &str = "write response-head = \"60s\" (until the response begins), and body = \"60s\" (while it makes no progress)";

const ENTRIES: &[Entry] = &[
    (
        "[pool.NAME.sticky]",
        &["max-age", "expires", "ttl", "duration", "timeout"],
        "write `lifetime`, such as lifetime = \"1h\"",
    ),
    (
        "[pool.NAME.sticky]",
        &["http-only", "httponly"],
        "remove it: the cookie always has the attribute HttpOnly",
    ),
    (
        "the file",
        &[
            "backend",
            "backends",
            "upstream",
            "upstreams",
            "cluster",
            "clusters",
            "service",
            "services",
            "pools",
        ],
        POOL_HELP,
    ),
    (
        "the file",
        &[
            "frontend",
            "frontends",
            "listen",
            "listeners",
            "entrypoint",
            "entrypoints",
            "bind",
            "port",
            "address",
            "sites",
        ],
        LISTENER_HELP,
    ),
    (
        "the file",
        &["ssl", "tls", "cert", "certs", "certificate", "certificates", "crt", "key"],
        TLS_HELP,
    ),
    ("the file", &["root", "alias", "static", "files", "file-server"], FILES_HELP),
    ("the file", &["rate-limit", "ratelimit", "limit-req", "rate"], RATE_HELP),
    ("the file", &["basic-auth", "basicauth", "auth-basic", "auth"], PASSWORD_HELP),
    ("the file", &["strip-prefix", "rewrite"], STRIP_HELP),
    ("the file", &["maxconn", "max-connections", "max-conns"], "write connections-max in [server]"),
    ("[[listener]]", &["root", "alias", "static", "file-server", "directory"], FILES_HELP),
    ("[[listener]]", &["rate-limit", "ratelimit", "limit-req", "rate"], RATE_HELP),
    ("[[listener]]", &["basic-auth", "basicauth", "auth-basic", "auth"], PASSWORD_HELP),
    ("[[listener]]", &["strip-prefix", "rewrite"], STRIP_HELP),
    ("[[listener]]", &["acme", "letsencrypt", "certresolver"], ACME_HELP),
    (
        "[[route]]",
        &["ssl", "tls", "cert", "certs", "certificate", "certificates", "crt", "key", "https"],
        TLS_HELP,
    ),
    (
        "[[route]]",
        &["listen", "bind", "port", "address", "entrypoint", "entrypoints"],
        "write bind = \"0.0.0.0:8080\" in a [[listener]]; listener = \"NAME\" limits a route to one listener",
    ),
    (
        "[[route]]",
        &["keepalive", "keepalive-timeout", "max-idle"],
        "write reuse = { idle-max = 64, idle-timeout = \"30s\" } in [pool.NAME]; for clients, timeouts = { idle = \"60s\" } \
         in the [[listener]]",
    ),
    ("[[route]]", &["healthcheck", "health-check", "health", "check"], HEALTH_HELP),
    (
        "[[route]]",
        &["balance", "lb-policy", "leastconn", "least-conn", "round-robin", "load-balancing"],
        "write balance = \"least-connections\" in [pool.NAME]",
    ),
    (
        "[[route]]",
        &["maxconn", "max-connections", "max-conns", "connections-max"],
        "write connections-per-address-max = 50 for each client, or connections-max in the [[listener]], or for each server in \
         [pool.NAME]",
    ),
    (
        "[pool.NAME]",
        &["maxconn", "max-connections", "max-conns", "connections-max"],
        SERVER_LIMIT_HELP,
    ),
    (
        "[pool.NAME.servers]",
        &["maxconn", "max-connections", "max-conns", "max-conn", "maxconnections"],
        "write connections-max = 200",
    ),
    (
        "the file",
        &["location", "locations", "router", "routers", "routes", "rule", "rules", "acl", "handle"],
        ROUTE_HELP,
    ),
    (
        "the file",
        &["http", "https", "events", "defaults", "stream"],
        "remove it: [[listener]], [[route]] and [pool.NAME] are at the top of the file",
    ),
    ("the file", &["global", "main"], "write [server]"),
    ("the file", &["user", "group", "daemon", "pid", "pidfile", "chroot"], PROCESS_HELP),
    ("the file", &["acme", "letsencrypt", "certificatesresolvers"], ACME_HELP),
    ("[server]", &["user", "group", "daemon", "pid", "pidfile", "chroot"], PROCESS_HELP),
    (
        "[server]",
        &["threads", "nbthread", "nbproc", "processes", "worker-processes"],
        "write workers = 4",
    ),
    ("[server]", &["port", "listen", "bind", "address", "host"], LISTENER_HELP),
    (
        "[server]",
        &["maxconn", "max-connections", "max-conns", "worker-connections"],
        "write connections-max = 10000",
    ),
    (
        "[server]",
        &["grace", "graceful-timeout", "hard-stop-after", "shutdown-timeout"],
        "write shutdown-grace = \"30s\"",
    ),
    (
        "[server]",
        &["unique-id-header", "unique-id-format", "unique-id", "generate-request-id"],
        "write request-id = true, or request-id = { field = \"x-request-id\" }",
    ),
    ("[server]", &["tracing", "traceparent", "opentelemetry", "otel"], "write trace = true"),
    ("[server]", &["server-tokens"], "write server-name = \"\""),
    (
        "[[listener]]",
        &["listen", "address", "addr", "port", "entrypoint", "ip"],
        "write bind = \"0.0.0.0:8080\"",
    ),
    (
        "[[listener]]",
        &["server-name", "host", "hosts", "hostname", "domain", "domains"],
        "write host = \"example.com\" in a [[route]]; a listener accepts every host",
    ),
    (
        "[[listener]]",
        &[
            "ssl",
            "ssl-certificate",
            "ssl-certificate-key",
            "cert",
            "certs",
            "certificate",
            "certificates",
            "crt",
            "key",
            "https",
        ],
        "write tls = { certificates = [{ cert = \"site.pem\", key = \"site.key\" }] }",
    ),
    (
        "[[listener]]",
        &["http2", "h2"],
        "with tls, HTTP/2 is on by default (alpn); without tls write h2c = true",
    ),
    ("[[listener]]", &["http3", "quic"], "not in this version: clients speak HTTP/1.1 or HTTP/2"),
    (
        "[[listener]]",
        &["default-backend", "use-backend", "proxy", "proxy-pass", "upstream", "backend", "pool"],
        "write proxy = \"NAME\" in a [[route]], and define [pool.NAME]",
    ),
    ("[[listener]]", &["route", "routes", "location", "locations", "rules"], ROUTE_HELP),
    (
        "[[listener]]",
        &["mode", "protocol", "tcp"],
        "write forward = \"NAME\", the name of a [pool.NAME], for TCP mode; without it, the listener speaks HTTP",
    ),
    (
        "[[listener]]",
        &["accept-proxy", "proxyprotocol"],
        "write proxy-protocol = { from = [\"10.0.0.0/8\"] }",
    ),
    (
        "[[listener]]",
        &["maxconn", "max-connections", "max-conns", "worker-connections"],
        "write connections-max = 10000",
    ),
    (
        "[[listener]]",
        &["connections-per-ip", "max-connections-per-ip", "limit-conn", "maxconn-per-ip"],
        "write connections-per-address-max = 200",
    ),
    (
        "[[route]]",
        &["limit-rate", "limit-rate-after", "proxy-limit-rate", "bandwidth-limit", "bwlim"],
        "write bandwidth = { down = \"1MiB/s\", after = \"1MiB\" }",
    ),
    (
        "[[route]]",
        &["mirroring", "shadow", "tee", "request-mirror", "request-mirror-policies"],
        "write mirror = { pool = \"NAME\", share = \"5%\" }",
    ),
    (
        "[[route]]",
        &["connections-per-ip", "max-connections-per-ip", "limit-conn", "inflightreq"],
        "write connections-per-address-max = 50",
    ),
    (
        "[[listener]]",
        &["client-max-body-size", "max-body-size", "body-max", "request-body"],
        "write limits = { body = \"1MiB\" }",
    ),
    (
        "[[listener]]",
        &[
            "timeout",
            "keepalive-timeout",
            "idle-timeout",
            "client-header-timeout",
            "client-body-timeout",
        ],
        "write timeouts = { head = \"10s\", idle = \"60s\", body = \"30s\" }",
    ),
    (
        "[[listener]]",
        &["set-real-ip-from", "real-ip", "trusted-proxies", "trusted-ips", "forwardedheaders"],
        "write trusted = [\"10.0.0.0/8\"]",
    ),
    (
        "[listener.limits]",
        &["client-max-body-size", "max-body-size", "body-max", "max-body", "request-body"],
        "write body = \"1MiB\"",
    ),
    (
        "[listener.limits]",
        &[
            "large-client-header-buffers",
            "client-header-buffer-size",
            "max-header-size",
            "max-headers",
        ],
        "write head = \"32KiB\", and header-fields = 100",
    ),
    (
        "[listener.limits]",
        &["maxconn", "max-connections", "connections", "worker-connections"],
        "write connections-max in [server]",
    ),
    (
        "[listener.timeouts]",
        &[
            "keepalive-timeout",
            "keepalive",
            "keep-alive",
            "idle-timeout",
            "http-keep-alive",
            "timeout-http-keep-alive",
        ],
        "write idle = \"60s\"",
    ),
    (
        "[listener.timeouts]",
        &[
            "client-header-timeout",
            "read-header",
            "read-header-timeout",
            "header",
            "headers",
            "http-request",
            "timeout-http-request",
        ],
        "write head = \"10s\"",
    ),
    (
        "[listener.timeouts]",
        &[
            "client-body-timeout",
            "send-timeout",
            "read",
            "write",
            "send",
            "read-body",
            "client",
            "timeout-client",
            "readtimeout",
            "writetimeout",
        ],
        "write body = \"30s\": how long a request or a response may make no progress",
    ),
    (
        "[listener.timeouts]",
        &["proxy-read-timeout", "proxy-connect-timeout", "proxy-send-timeout", "connect", "server"],
        "write timeouts = { connect = \"3s\", response-head = \"60s\", body = \"60s\" } in [pool.NAME]",
    ),
    (
        "[listener.tls]",
        &[
            "cert",
            "key",
            "certs",
            "certificate",
            "crt",
            "ssl-certificate",
            "ssl-certificate-key",
            "certfile",
            "keyfile",
        ],
        CERTIFICATES_HELP,
    ),
    (
        "[listener.tls]",
        &["acme", "letsencrypt", "certresolver", "email", "auto", "domains"],
        ACME_HELP,
    ),
    (
        "[listener.tls]",
        &["versions", "protocols", "ssl-protocols", "minversion", "version", "ssl-min-ver"],
        "write min-version = \"1.2\"",
    ),
    (
        "[listener.tls]",
        &[
            "ca",
            "verify",
            "ssl-verify-client",
            "ssl-client-certificate",
            "clientauth",
            "mtls",
            "ca-file",
        ],
        CLIENT_CA_HELP,
    ),
    (
        "[[route]]",
        &[
            "upstream",
            "upstreams",
            "backend",
            "backends",
            "cluster",
            "proxy-pass",
            "service",
            "use-backend",
            "reverse-proxy",
            "forward",
            "pool",
            "to",
            "target",
            "servers",
            "server",
        ],
        "write proxy = \"NAME\", and define [pool.NAME] with servers = [\"127.0.0.1:8000\"]",
    ),
    (
        "[[route]]",
        &[
            "location",
            "uri",
            "url",
            "prefix",
            "path-prefix",
            "path-beg",
            "path-reg",
            "match",
            "rule",
        ],
        "write path = \"/api/*\"",
    ),
    ("[[route]]", &["methods", "verb", "verbs"], "write method = [\"GET\", \"POST\"]"),
    (
        "[[route]]",
        &["action", "actions", "handler", "do"],
        "write one action, such as proxy = \"NAME\", respond = { status = 404 } or redirect = \"https://example.com{path}\"",
    ),
    (
        "[[route]]",
        &["client-max-body-size", "max-body-size", "body-max", "request-body"],
        "write limits = { body = \"1MiB\" } in the [[listener]]",
    ),
    (
        "[[route]]",
        &["hosts", "hostname", "domain", "domains", "server-name"],
        "write host = \"example.com\"",
    ),
    (
        "[[route]]",
        &["root", "alias", "static", "file-server", "file", "directory", "index", "try-files"],
        FILES_HELP,
    ),
    (
        "[[route]]",
        &["return", "status", "body"],
        "write respond = { status = 404 }, or redirect = { to = \"https://example.com{path}{query}\", status = 301 }",
    ),
    (
        "[[route]]",
        &[
            "rewrite",
            "strip-prefix",
            "strip-path",
            "uri-strip-prefix",
            "replace-path",
            "handle-path",
            "add-prefix",
            "path-rewrite",
        ],
        STRIP_HELP,
    ),
    (
        "the file",
        &["stick-table", "stick-tables", "tables", "peers"],
        "write [table.NAME] with counts = [\"requests/10s\"], and count = \"NAME\" in a listener or route",
    ),
    (
        "[table.NAME]",
        &["type", "by", "track"],
        "write key = \"client-address\", or another value of the request",
    ),
    (
        "[table.NAME]",
        &["store", "counters", "rates"],
        "write counts = [\"requests/10s\", \"errors/1m\", \"connections\"]",
    ),
    ("[table.NAME]", &["size", "keys-max", "max-entries"], "write entries-max = 100_000"),
    ("[table.NAME]", &["ttl", "timeout", "idle"], "write expire = \"10m\""),
    (
        "[[listener]]",
        &["stick-table", "track", "track-sc0", "tables", "table"],
        "write [table.NAME], and count = \"NAME\" in the listener",
    ),
    (
        "[[route]]",
        &["stick-table", "track", "track-sc0", "tables"],
        "write [table.NAME], count = \"NAME\" where its requests are counted, and table = { NAME = { \"requests/10s\" = \
         \"> 100\" } } in the route that depends on the counts",
    ),
    (
        "[[route]]",
        &["rate-limit", "ratelimit", "rate-limits", "limit-req", "throttle", "rates"],
        "write rate = { limit = \"100/10s\", burst = 20 }",
    ),
    (
        "[[route]]",
        &["error-page", "error-pages", "errorfile", "handle-errors", "error-document"],
        "write errors = { 502 = \"errors/502.html\" }",
    ),
    (
        "[[route]]",
        &["auth-request", "forward-auth", "forwardauth", "ext-authz"],
        "write auth = { ask = \"NAME\", path = \"/verify\" } with the name of a pool",
    ),
    (
        "[[route]]",
        &["basic-auth", "basicauth", "auth-basic", "jwt", "users", "htpasswd"],
        "write auth = { basic = \"users.htpasswd\" }; `client-cert` tests client certificates",
    ),
    (
        "[[route]]",
        &[
            "ip",
            "source",
            "src",
            "remote-ip",
            "client-address",
            "clients",
            "whitelist",
            "blacklist",
            "ip-blacklist",
        ],
        "write client = [\"10.0.0.0/8\"] as a condition, or allow = [\"10.0.0.0/8\"] or deny = [...] for a 403 response",
    ),
    (
        "[[route]]",
        &[
            "add-header",
            "set-header",
            "proxy-set-header",
            "header-up",
            "header-down",
            "request-header",
            "response-header",
            "http-request",
            "http-response",
            "middleware",
            "middlewares",
        ],
        MIDDLEWARE_HELP,
    ),
    (
        "[[route]]",
        &["gzip", "compress", "encode", "brotli", "cache", "proxy-cache"],
        "not in this version: bodies are forwarded unchanged and not stored; let the servers do it",
    ),
    (
        "[[route]]",
        &["priority", "order", "default"],
        "remove it: the first matching route in file order wins, so the general routes come last",
    ),
    (
        "[[route]]",
        &["websockets", "upgrade"],
        "remove it: upgrades through `proxy` need no setting",
    ),
    (
        "[[route]]",
        &["args", "params", "parameters", "query-string"],
        "write query = { debug = \"1\" }, or true for any value",
    ),
    ("[[route]]", &["cookie"], "write cookies = { beta = \"1\" }, or true for any value"),
    (
        "[pool.NAME]",
        &[
            "server",
            "backends",
            "backend",
            "targets",
            "endpoints",
            "upstream",
            "upstreams",
            "hosts",
            "address",
            "addresses",
            "url",
            "urls",
        ],
        "write servers = [\"127.0.0.1:8000\"]",
    ),
    (
        "[pool.NAME]",
        &[
            "method",
            "algorithm",
            "lb",
            "lb-policy",
            "policy",
            "load-balancing",
            "loadbalancer",
            "strategy",
            "leastconn",
            "least-conn",
            "ip-hash",
            "round-robin",
            "roundrobin",
            "hash",
        ],
        BALANCE_HELP,
    ),
    (
        "[pool.NAME]",
        &["sticky-session", "sticky-cookie", "cookie", "persist", "session", "stick-table"],
        "write sticky = { cookie = \"SRV\" }, or balance = { hash = \"client-address\" }",
    ),
    (
        "[pool.NAME]",
        &[
            "health-check",
            "healthcheck",
            "health-checks",
            "check",
            "httpchk",
            "max-fails",
            "fail-timeout",
        ],
        HEALTH_HELP,
    ),
    (
        "[pool.NAME]",
        &["keepalive", "keepalive-timeout", "max-idle", "idle-max", "pool-max-conn"],
        "write reuse = { idle-max = 64, idle-timeout = \"30s\" }",
    ),
    (
        "[pool.NAME]",
        &[
            "timeout",
            "proxy-read-timeout",
            "proxy-connect-timeout",
            "connect-timeout",
            "read-timeout",
        ],
        "write timeouts = { connect = \"3s\", response-head = \"60s\", body = \"60s\" }",
    ),
    (
        "[pool.NAME.timeouts]",
        &["proxy-connect-timeout", "connect-timeout", "timeout-connect", "dial", "dial-timeout"],
        "write connect = \"3s\"",
    ),
    (
        "[pool.NAME.timeouts]",
        &[
            "proxy-read-timeout",
            "read",
            "read-timeout",
            "server",
            "timeout-server",
            "response-header",
            "response-header-timeout",
            "request",
        ],
        POOL_READ_HELP,
    ),
    (
        "[pool.NAME.timeouts]",
        &["proxy-send-timeout", "send", "send-timeout", "write", "write-timeout"],
        "write body = \"60s\": how long a body may make no progress",
    ),
    (
        "[pool.NAME.timeouts]",
        &["keepalive", "keepalive-timeout", "idle", "idle-timeout"],
        "write reuse = { idle-timeout = \"30s\" } in [pool.NAME]",
    ),
    (
        "[route.timeouts]",
        &["proxy-read-timeout", "read", "read-timeout", "server", "request", "response-header"],
        POOL_READ_HELP,
    ),
    (
        "[route.timeouts]",
        &["connect", "proxy-connect-timeout", "connect-timeout", "queue"],
        "write it in timeouts of [pool.NAME]: all routes of a pool share its connections",
    ),
    ("[route.redirect]", &["code", "permanent", "type", "status-code"], "write status = 301"),
    (
        "[route.redirect]",
        &["url", "uri", "location", "target", "regex", "replacement"],
        "write to = \"https://example.com{path}{query}\"",
    ),
    (
        "[route.proxy]",
        &[
            "rewrite",
            "uri",
            "url",
            "prefix",
            "strip",
            "strip-prefix",
            "replace",
            "replace-path",
            "add-prefix",
            "path-rewrite",
        ],
        "write path = \"/new/{rest}\", with path = \"/old/*\" in the route",
    ),
    (
        "[route.proxy]",
        &["upstream", "backend", "to", "name", "target", "service"],
        "write pool = \"NAME\", the name of a [pool.NAME]",
    ),
    ("[pool.NAME]", &["scheme", "protocol", "https", "ssl", "transport"], "write tls = true"),
    (
        "[pool.NAME]",
        &["h2", "grpc"],
        "write tls = { alpn = [\"h2\", \"http/1.1\"] }, or h2c = true without TLS",
    ),
    (
        "[pool.NAME]",
        &["send-proxy", "send-proxy-v2", "proxyprotocol"],
        "write proxy-protocol = \"v2\"",
    ),
    (
        "[pool.NAME.servers]",
        &["host", "hostname", "ip", "url", "addr", "port", "target", "server", "name"],
        "write address = \"127.0.0.1:8000\"",
    ),
    (
        "[pool.NAME.servers]",
        &["priority", "fallback", "standby"],
        "write backup = true for a server that gets requests only while the others are down",
    ),
    (
        "[pool.NAME.servers]",
        &["check", "health", "max-fails", "fail-timeout", "inter", "interval", "rise", "fall"],
        HEALTH_HELP,
    ),
    (
        "[pool.NAME.servers]",
        &["down", "disabled", "drain", "maintenance", "enabled"],
        "write weight = 0 for a server without new requests, or remove the server",
    ),
    (
        "[pool.NAME.servers]",
        &["sni", "server-name", "servername"],
        "write tls = { server-name = \"app.internal\" } in [pool.NAME]",
    ),
    (
        "[pool.NAME.servers]",
        &["tls", "ssl", "https", "verify", "ca", "ca-file"],
        "write tls = true in [pool.NAME]: all servers of a pool speak the same protocol",
    ),
    (
        "[pool.NAME.servers]",
        &["resolve", "resolver", "resolvers", "dns"],
        "remove it: names are resolved at start, at each reload, and again as [resolver] defines",
    ),
    (
        "[pool.NAME.servers]",
        &["server-template", "template", "servers-max", "count", "service"],
        "write { address = \"app.internal:8000\", slots = 10 } for the addresses of a name, or { srv = \"_http._tcp.app.internal\", \
         slots = 10 } for SRV records",
    ),
    ("[pool.NAME.servers]", &["init-addr"], "write at-start = \"optional\""),
    ("[pool.NAME.servers]", &["agent", "agent-check", "agent-port"], AGENT_HELP),
    ("[pool.NAME]", &["agent-check", "agent-port", "agent-inter"], AGENT_HELP),
    (
        "[pool.NAME.tls]",
        &["cert", "key", "certificate"],
        "write client-cert = { cert = \"client.pem\", key = \"client.key\" }",
    ),
    (
        "[pool.NAME.tls]",
        &["sni", "servername", "name", "host"],
        "write server-name = \"app.internal\"",
    ),
    (
        "[pool.NAME.tls]",
        &["insecure", "skip-verify", "insecureskipverify", "ssl-verify"],
        "write verify = false; anyone on the network path can then pose as the server",
    ),
    ("[pool.NAME.tls]", &["cafile", "ca-file", "rootcas", "trusted-ca"], "write ca = \"ca.pem\""),
    ("the file", &["ws", "websockets"], "write [websocket]"),
    (
        "[websocket]",
        &["origin", "allowed-origins", "alloworigins", "check-origin", "cors"],
        "write origins = [\"same-origin\", \"https://*.example.com\"]",
    ),
    ("[websocket]", &["subprotocol", "protocol", "protocols"], "write subprotocols = [\"chat\"]"),
    (
        "[websocket]",
        &["deflate", "permessage-deflate", "permessagedeflate", "compress"],
        "write compression = \"shared\"",
    ),
    (
        "[websocket]",
        &["server-max-window-bits", "client-max-window-bits", "max-window-bits", "window-size"],
        "write window-bits = 12",
    ),
    (
        "[websocket]",
        &["max-size", "maxpayload", "max-message-size", "message-size-limit", "max-payload-length"],
        "write message-max = \"1MiB\"",
    ),
    (
        "[websocket]",
        &["ping-interval", "pinginterval", "heartbeat", "keepalive", "keepalive-interval"],
        "write ping-every = \"30s\"",
    ),
    ("[websocket]", &["ping-timeout", "pingtimeout"], "write pong-timeout = \"10s\""),
    ("[websocket]", &["timeout", "read-timeout", "idle"], "write idle-timeout = \"5m\""),
    (
        "the file",
        &["stats", "metrics", "prometheus", "management", "runtime-api"],
        "write [admin] and below it bind = \"127.0.0.1:9901\"",
    ),
    ("[admin]", &["listen", "address", "socket"], "write bind = \"127.0.0.1:9901\""),
    ("[admin]", &["token", "password", "auth"], "write token-file = \"admin.token\""),
    (
        "the file",
        &["access-log", "accesslog", "httplog", "logging"],
        "write [log] and below it access = { to = \"stdout\" }",
    ),
    (
        "[log]",
        &["access-log", "accesslog", "httplog", "path", "file"],
        "write access = { to = \"file:/var/log/tidegate/access.log\" }",
    ),
    (
        "[log.access]",
        &["path", "file", "output"],
        "write to = \"file:/var/log/tidegate/access.log\"",
    ),
];

/// The fix for the setting `word` in the section of `path`.
pub(crate) fn setting(path: &str, word: &str) -> Option<&'static str> {
    let anywhere = foreign_anywhere::SECTIONS.contains(&path).then_some(foreign_anywhere::ENTRIES);
    find(ENTRIES, path, word).or_else(|| find(anywhere?, "", word))
}

/// How to write the table of the section of `path` for which the file has a short form that does not exist; `shown` is
/// the text in the file, in quotes, or empty.
pub(crate) fn table(path: &str, shown: &str) -> Option<String> {
    let value = |usual: &str| if shown.is_empty() { usual.to_owned() } else { shown.to_owned() };
    match path {
        "[route.rate]" => Some("write rate = { limit = \"100/10s\" }".to_owned()),
        "[route.cors]" => {
            Some(format!("write cors = {{ origins = {} }}", value("\"https://app.example\"")))
        }
        "[log.access]" => {
            let to = match shown.trim_matches('"') {
                path if path.starts_with('/') || path.starts_with('.') => {
                    format!("\"file:{path}\"")
                }
                _ => value("\"stdout\""),
            };
            Some(format!("write access = {{ to = {to} }}"))
        }
        _ => None,
    }
}

/// What to write as the value of the setting `name` instead of `word`.
pub(crate) fn value(name: &str, word: &str) -> Option<&'static str> {
    find(VALUES, name, word)
}

fn find(entries: &[Entry], place: &str, word: &str) -> Option<&'static str> {
    let word = word.to_ascii_lowercase().replace('_', "-");
    let mut here = entries.iter().filter(|(of, ..)| *of == place);
    here.find(|(_, words, _)| words.contains(&word.as_str())).map(|(_, _, help)| *help)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::sections;

    #[test]
    fn every_word_is_unknown_to_its_section_and_listed_once() {
        for (path, words, _) in ENTRIES {
            let mut found = sections().into_iter().filter(|section| section.path == *path);
            let section = found.next().unwrap_or_else(|| panic!("{path} is not a section"));
            for word in *words {
                assert!(section.key(word).is_none(), "{path}: {word} is a setting");
                assert!(!section.later.iter().any(|(later, _)| later == word), "{path}: {word}");
                assert_eq!(*word, word.to_ascii_lowercase().replace('_', "-"), "{path}");
                let twins = ENTRIES.iter().filter(|(at, ..)| at == path);
                let count = twins.flat_map(|(_, words, _)| *words).filter(|w| *w == word).count();
                assert_eq!(count, 1, "{path}: {word}");
            }
        }
    }
}
