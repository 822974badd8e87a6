//! Recognizes files of other programs, so that one message names the program, in place of an error for each line.
//! In: a text that is not TOML. Out: the program or the format, and where its first line is.
//! Never: judges a valid file.
//! Invariant: the first line that fits a format decides; lines that fit none are skipped, and a line of TOML ends the
//! search without a result.

use core::ops::Range;

/// Words that begin lines of nginx's files, which end with a semicolon or a brace.
const NGINX: [&str; 22] = [
    "user",
    "worker_processes",
    "events",
    "http",
    "server",
    "upstream",
    "location",
    "listen",
    "server_name",
    "include",
    "pid",
    "error_log",
    "load_module",
    "stream",
    "map",
    "geo",
    "types",
    "split_clients",
    "limit_req_zone",
    "limit_conn_zone",
    "proxy_cache_path",
    "log_format",
];
/// Words that begin the sections of HAProxy's files.
const HAPROXY: [&str; 8] =
    ["global", "defaults", "frontend", "backend", "listen", "userlist", "resolvers", "peers"];
/// Words that begin lines of Caddy's files, in addition to the addresses of sites.
const CADDY: [&str; 8] = [
    "reverse_proxy",
    "file_server",
    "encode",
    "handle",
    "handle_path",
    "php_fastcgi",
    "redir",
    "import",
];

/// The apparent format of a text, and the range of the line that shows it; `None` if it may be TOML.
pub(crate) fn recognize(text: &str) -> Option<(&'static str, Range<usize>)> {
    let mut start = 0;
    for line in text.split_inclusive('\n') {
        let place = start..start + line.trim_end().len();
        start += line.len();
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let word = line.split([' ', '\t', ';']).next().unwrap_or_default();
        let is_block = line.ends_with(['{', '}']);
        let kind = match word {
            _ if line.starts_with(['[', '"', '\'']) => return None,
            "{" if text[start..].trim_start().starts_with('"') => "JSON",
            _ if word.starts_with("{\"") => "JSON",
            "---" => "YAML",
            _ if word.ends_with(':') => "YAML",
            _ if line[word.len()..].trim_start().starts_with('=') => return None,
            // The value of a format may continue in the next line.
            "log_format" => "a configuration of nginx",
            _ if NGINX.contains(&word) && (is_block || line.ends_with(';')) => {
                "a configuration of nginx"
            }
            _ if line.contains('=') => return None,
            _ if HAPROXY.contains(&word) && !is_block => "a configuration of HAProxy",
            _ if line.ends_with('{') || CADDY.contains(&word) => "a configuration of Caddy",
            _ => continue,
        };
        return Some((kind, place));
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_formats_are_told_from_broken_toml() {
        for (text, expected) in [
            ("# x\nuser www-data;\nhttp {\n}\n", Some("a configuration of nginx")),
            ("server { listen 80; }\n", Some("a configuration of nginx")),
            ("map $http_upgrade $to {\n  default upgrade;\n}\n", Some("a configuration of nginx")),
            (
                "limit_req_zone $binary_remote_addr zone=one:10m rate=1r/s;\n",
                Some("a configuration of nginx"),
            ),
            ("log_format main '$remote_addr'\n  '$request';\n", Some("a configuration of nginx")),
            ("map = 1\n[[listener]\n", None),
            ("global\n    maxconn 100\n", Some("a configuration of HAProxy")),
            ("frontend web\n    bind :80\n", Some("a configuration of HAProxy")),
            ("example.com {\n\treverse_proxy :8000\n}\n", Some("a configuration of Caddy")),
            (":80\nreverse_proxy localhost:8000\n", Some("a configuration of Caddy")),
            ("http:\n  routers:\n", Some("YAML")),
            ("---\nstatic_resources:\n", Some("YAML")),
            ("{\n  \"apps\": {}\n}\n", Some("JSON")),
            ("{\"apps\": {}}\n", Some("JSON")),
            ("[[listener]\nbind = 1\n", None),
            ("bind = \"x\n", None),
            ("listener\nbind \"x\"\n", None),
            ("server = {\n", None),
            ("", None),
        ] {
            assert_eq!(recognize(text).map(|(kind, _)| kind), expected, "{text}");
        }
        assert_eq!(recognize("\n  user x;\r\n").map(|(_, place)| place), Some(1..10));
    }
}
