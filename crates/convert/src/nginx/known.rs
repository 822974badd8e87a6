//! Which directives are read, not needed, or have no counterpart.
//! In: directives. Out: findings about those that no other part of this module reads.

use crate::finding::Findings;

use super::parse::Directive;

/// Directives outside of `http`.
const PROCESS: [&str; 22] = [
    "user",
    "worker_processes",
    "worker_connections",
    "worker_rlimit_nofile",
    "worker_priority",
    "worker_cpu_affinity",
    "worker_shutdown_timeout",
    "pid",
    "error_log",
    "daemon",
    "master_process",
    "events",
    "load_module",
    "env",
    "lock_file",
    "pcre_jit",
    "thread_pool",
    "timer_resolution",
    "working_directory",
    "worker_rlimit_core",
    "quic_bpf",
    "debug_points",
];

/// Whether a directive outside of blocks concerns the process.
pub(super) fn is_process(name: &str) -> bool {
    PROCESS.contains(&name)
}

/// Directives that other parts of this module read.
const READ: [&str; 59] = [
    "server",
    "listen",
    "server_name",
    "location",
    "return",
    "rewrite",
    "if",
    "proxy_pass",
    "proxy_set_header",
    "proxy_hide_header",
    "add_header",
    "upstream",
    "map",
    "limit_req_zone",
    "limit_conn_zone",
    "limit_req",
    "limit_conn",
    "limit_rate",
    "limit_rate_after",
    "auth_basic",
    "auth_basic_user_file",
    "allow",
    "deny",
    "proxy_connect_timeout",
    "proxy_read_timeout",
    "proxy_send_timeout",
    "client_max_body_size",
    "client_header_timeout",
    "client_body_timeout",
    "keepalive_timeout",
    "keepalive_requests",
    "ssl_certificate",
    "ssl_certificate_key",
    "ssl_protocols",
    "ssl_client_certificate",
    "ssl_verify_client",
    "ssl_crl",
    "ssl_reject_handshake",
    "set_real_ip_from",
    "access_log",
    "proxy_ssl_verify",
    "proxy_ssl_trusted_certificate",
    "proxy_ssl_name",
    "proxy_ssl_certificate",
    "proxy_ssl_certificate_key",
    "proxy_next_upstream",
    "proxy_next_upstream_tries",
    "try_files",
    "default_type",
    "grpc_pass",
    "grpc_read_timeout",
    "grpc_connect_timeout",
    "grpc_set_header",
    "internal",
    "satisfy",
    "proxy_protocol",
    "real_ip_header",
    "proxy_ssl_crl",
    "ssl_session_tickets",
];

/// Directives that Tidegate needs no setting for.
const UNNEEDED: [&str; 61] = [
    "send_timeout",
    "limit_req_status",
    "limit_conn_status",
    "sendfile",
    "sendfile_max_chunk",
    "tcp_nopush",
    "tcp_nodelay",
    "aio",
    "directio",
    "types",
    "types_hash_max_size",
    "types_hash_bucket_size",
    "server_names_hash_bucket_size",
    "server_names_hash_max_size",
    "variables_hash_max_size",
    "variables_hash_bucket_size",
    "map_hash_bucket_size",
    "map_hash_max_size",
    "server_tokens",
    "log_format",
    "error_log",
    "proxy_http_version",
    "proxy_buffering",
    "proxy_buffers",
    "proxy_buffer_size",
    "proxy_busy_buffers_size",
    "proxy_max_temp_file_size",
    "proxy_temp_file_write_size",
    "proxy_temp_path",
    "proxy_headers_hash_max_size",
    "proxy_headers_hash_bucket_size",
    "proxy_request_buffering",
    "proxy_socket_keepalive",
    "proxy_ssl_session_reuse",
    "proxy_ssl_server_name",
    "proxy_ssl_ciphers",
    "client_body_buffer_size",
    "client_header_buffer_size",
    "large_client_header_buffers",
    "client_body_temp_path",
    "client_body_in_file_only",
    "reset_timedout_connection",
    "lingering_close",
    "lingering_time",
    "ssl_session_cache",
    "ssl_session_timeout",
    "ssl_prefer_server_ciphers",
    "ssl_buffer_size",
    "ssl_early_data",
    "http2",
    "http2_max_concurrent_streams",
    "http2_recv_timeout",
    "real_ip_recursive",
    "limit_req_log_level",
    "limit_conn_log_level",
    "log_not_found",
    "port_in_redirect",
    "server_name_in_redirect",
    "absolute_redirect",
    "merge_slashes",
    "ignore_invalid_headers",
];

/// Why a directive was not translated.
fn why(name: &str) -> &'static str {
    match name {
        "root"
        | "index"
        | "alias"
        | "autoindex"
        | "expires"
        | "etag"
        | "open_file_cache"
        | "open_file_cache_valid"
        | "open_file_cache_min_uses"
        | "open_file_cache_errors"
        | "sub_filter"
        | "image_filter"
        | "ssi"
        | "charset" => "Tidegate serves no files: forward these requests to a server that does",
        "gzip" | "gzip_types" | "gzip_vary" | "gzip_proxied" | "gzip_comp_level"
        | "gzip_min_length" | "gzip_buffers" | "gzip_disable" | "gzip_static"
        | "gzip_http_version" | "brotli" | "gunzip" => {
            "Tidegate does not compress responses; your servers may"
        }
        "error_page" | "proxy_intercept_errors" => {
            "errors = { 502 = \"FILE.html\" } of a route sets pages for Tidegate's own errors"
        }
        "ssl_ciphers" | "ssl_dhparam" | "ssl_ecdh_curve" | "ssl_conf_command" => crate::ALGORITHMS,
        "ssl_stapling" | "ssl_stapling_verify" | "ssl_trusted_certificate" | "ssl_ocsp" => {
            "`ocsp` of a certificate names a file with an OCSP response"
        }
        "ssl_session_ticket_key" => "`tickets` of TLS names a file of keys",
        "fastcgi_pass" | "uwsgi_pass" | "scgi_pass" | "memcached_pass" => {
            "Tidegate speaks only HTTP to servers"
        }
        "auth_request" | "auth_request_set" => {
            "auth = { ask = \"POOL\", path = \"/verify\", copy = [\"x-user\"] } of a route asks a server"
        }
        "stub_status" | "status" | "api" => "[admin] serves metrics at /metrics",
        "mirror" => "mirror = \"POOL\" of a route sends copies of requests",
        "set" | "geo" | "split_clients" => {
            "routes have no variables; `split` and `map` choose pools"
        }
        "resolver" | "resolver_timeout" => {
            "names of servers are resolved by the system, at start and at each reload"
        }
        "proxy_redirect" | "proxy_cookie_path" | "proxy_cookie_domain" | "proxy_cookie_flags" => {
            "values of fields in responses are not rewritten"
        }
        name if name.starts_with("proxy_cache")
            || name.starts_with("fastcgi_cache")
            || name == "proxy_store" =>
        {
            "Tidegate has no cache"
        }
        name if name.contains("_by_lua") || name.starts_with("lua_") => {
            "Lua applications are written for Tidegate's interface: docs/lua.md"
        }
        name if name.starts_with("fastcgi_")
            || name.starts_with("uwsgi_")
            || name.starts_with("scgi_") =>
        {
            "Tidegate speaks only HTTP to servers"
        }
        _ => "Tidegate has no counterpart",
    }
}

/// Notes the directives that no other part of this module reads.
pub(super) fn note_rest(directives: &[Directive], findings: &mut Findings<'_>) {
    for directive in directives {
        let name = directive.name.as_str();
        let is_off = directive.arg(0) == "off" && !name.starts_with("proxy_pass_request");
        match name {
            "include" => include(directive, findings),
            "upstream" | "map" | "types" | "events" => {}
            _ if READ.contains(&name) => {}
            _ if UNNEEDED.contains(&name) || is_process(name) => {
                findings.unneeded(directive.line, "Tidegate has no such setting")
            }
            _ if is_off => findings.unneeded(directive.line, "the setting is off"),
            "ssl_ciphers" | "ssl_dhparam" | "ssl_ecdh_curve" | "ssl_conf_command" => {
                findings.differs(directive.line, why(name))
            }
            _ => findings.untranslated(directive.line, why(name)),
        }
        if ["server", "location", "if", "limit_except"].contains(&name) {
            note_rest(directive.inner(), findings);
        }
    }
}

/// A file that is not read.
pub(super) fn include(directive: &Directive, findings: &mut Findings<'_>) {
    let file = directive.arg(0);
    match file.ends_with("mime.types")
        || file.contains("fastcgi")
        || file.contains("modules-enabled")
    {
        true => findings.unneeded(directive.line, "Tidegate has no such setting"),
        false => findings.untranslated(
            directive.line,
            "the file is not read: convert the output of `nginx -T`, or that file as well",
        ),
    }
}
