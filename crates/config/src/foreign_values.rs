//! Values of settings in other programs, and what to write instead.
//! In: nothing. Out: the words of each setting.

use crate::foreign::Entry;

/// Values of other programs: the setting, the words, and what to write as its value.
pub(crate) const VALUES: &[Entry] = &[
    (
        "balance",
        &["leastconn", "least-conn", "least-request", "leastrequest"],
        "\"least-connections\"",
    ),
    ("balance", &["rr", "wrr", "roundrobin", "static-rr", "weighted"], "\"round-robin\""),
    ("balance", &["p2c", "two-random-choices", "power-of-two-choices", "random two"], "\"random\""),
    ("balance", &["ip-hash", "source", "client-ip", "sticky"], "{ hash = \"client-address\" }"),
    ("balance", &["uri", "uri-hash", "path"], "{ hash = \"path\" }"),
    (
        "client-auth",
        &["require", "mandatory", "on", "yes", "true", "require-and-verify"],
        "\"required\"",
    ),
    ("client-auth", &["request", "want", "verify-if-given"], "\"optional\""),
    ("client-auth", &["none", "no", "false"], "\"off\""),
    ("min-version", &["tlsv1.2", "tls1.2", "tls12", "versiontls12"], "\"1.2\""),
    ("min-version", &["tlsv1.3", "tls1.3", "tls13", "versiontls13"], "\"1.3\""),
    (
        "tls",
        &["true", "on", "yes"],
        "{ certificates = [{ cert = \"site.pem\", key = \"site.key\" }] }, or \"self-signed\" for development",
    ),
    (
        "format",
        &["combined", "common", "clf", "main", "apache", "nginx", "httplog"],
        "\"json\", or \"http\" for the fields of HAProxy's option httplog",
    ),
    ("proxy-protocol", &["1"], "\"v1\""),
    ("proxy-protocol", &["2"], "\"v2\""),
];
