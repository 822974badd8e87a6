//! The TLS settings of listeners and pools.
//! In: nothing. Out: the sections that describe the `tls` settings; `FILE` refers to them.

use tidegate_base::tls_names::{CIPHER_NAMES, GROUP_NAMES};

use super::Preset::{Absent, Required, Value};
use super::Shape::{Boolean, List, Name, OneOf, Rows, Table, Text, Word};
use super::{Key, Section, TIMEOUT, key};
use crate::model::{ClientAuth, TlsVersion};
use crate::words::Keyword as _;

/// Application protocols (ALPN) that a listener may accept.
pub(crate) const CLIENT_PROTOCOLS: &[&str] = &["h2", "http/1.1", "http/1.0"];

/// Application protocols (ALPN) that a pool may offer to its servers.
pub(crate) const SERVER_PROTOCOLS: &[&str] = &["h2", "http/1.1"];

const CIPHERS_KEY: Key = key(
    "ciphers",
    List(&Name(CIPHER_NAMES)),
    Absent,
    "Cipher suites, in order of preference. Without this setting, all suites listed here are offered.",
    "All of these suites provide authenticated encryption and forward secrecy: past traffic stays secret if a key is disclosed.",
);
const CURVES_KEY: Key = key(
    "curves",
    List(&Name(GROUP_NAMES)),
    Absent,
    "Key exchange groups, in order of preference. Without this setting, all groups listed here are offered.",
    "The first group also resists quantum computers, if the other side supports it.",
);
const MIN_VERSION_KEY: Key = key(
    "min-version",
    Word(TlsVersion::WORDS),
    Value("\"1.2\""),
    "The oldest TLS version that is accepted.",
    "Version 1.2 with the suites offered here is secure, and some clients support nothing newer.",
);

/// `tls = { ... }` of a listener.
pub static LISTENER_TLS: Section = Section {
    path: "[listener.tls]",
    about: "TLS settings of a listener. Without `certificates`, a self-signed certificate is created at \
             start.",
    keys: &[
        key(
            "certificates",
            Rows(&CERTIFICATE),
            Absent,
            "Certificates and their private keys. The server name that the client requests (SNI) selects \
             one; the first one is the default. Without it, the listener behaves as with tls = \
             \"self-signed\".",
            "",
        ),
        key(
            "strict-sni",
            Boolean,
            Value("false"),
            "Rejects server names that no certificate covers, instead of presenting the first certificate.",
            "A client that checks names rejects the wrong certificate anyway, and reports why.",
        ),
        MIN_VERSION_KEY,
        CIPHERS_KEY,
        CURVES_KEY,
        key(
            "alpn",
            List(&Name(CLIENT_PROTOCOLS)),
            Value("[\"h2\", \"http/1.1\", \"http/1.0\"]"),
            "Application protocols (ALPN), in order of preference. A client that offers protocols, \
             but none of these, is rejected. \"h2\" is HTTP/2.",
            "Browsers send many requests at a time over one HTTP/2 connection. Clients that support \
             only HTTP/1.0 are served like those without ALPN.",
        ),
        key(
            "client-auth",
            Word(ClientAuth::WORDS),
            Value("\"off\""),
            "Whether clients are asked for a certificate. \"optional\" also accepts clients without one, \
             \"required\" does not. With either, sessions are not resumed: each handshake verifies the \
             certificate again.",
            "",
        ),
        key(
            "client-ca",
            Text("the path of a PEM file"),
            Absent,
            "Certificate authorities that client certificates are verified against.",
            "",
        ),
        key(
            "client-crl",
            Text("the path of a PEM file"),
            Absent,
            "Revocation lists for client certificates. Each list must have been issued by an authority in \
             `client-ca`.",
            "",
        ),
        key(
            "tickets",
            Text(
                "\"own\", \"off\", or the path of a file whose lines each have 64 hexadecimal digits",
            ),
            Value("\"own\""),
            "Keys that encrypt session tickets. \"own\" uses keys that this process creates and renews, \
             \"off\" issues no tickets, and a path names a file of keys, the newest first, which several \
             machines may share.",
            "Own keys live for at most a day and are never written to disk.",
        ),
        key(
            "handshake-timeout",
            TIMEOUT,
            Value("\"10s\""),
            "Time from accepting a connection to the end of its handshake. When it expires, the connection \
             is closed.",
            "Enough for two round trips on any network, and short for clients that only hold \
             connections open.",
        ),
        key(
            "lua",
            Text("the name of a [lua.NAME]"),
            Absent,
            "A Lua application whose `on_certificate` chooses the certificate of each connection by the server name that the client \
             requests. If it fails, the server name selects the certificate as without it.",
            "",
        ),
    ],
    later: &[],
};

/// `{ cert, key }` of a listener's `tls`.
pub static CERTIFICATE: Section = Section {
    path: "[listener.tls.certificates]",
    about: "A certificate and its private key.",
    keys: &[
        key(
            "cert",
            Text("the path of a PEM file"),
            Required,
            "The certificate, followed by the intermediate certificates.",
            "",
        ),
        key(
            "key",
            Text("the path of a PEM file"),
            Required,
            "The private key of the certificate.",
            "",
        ),
        key("ocsp", Text("the path of a DER file"), Absent, "An OCSP response to staple.", ""),
    ],
    later: &[],
};

/// `tls = { ... }` of a pool.
pub static POOL_TLS: Section = Section {
    path: "[pool.NAME.tls]",
    about: "TLS settings of connections to servers.",
    keys: &[
        key(
            "verify",
            Boolean,
            Value("true"),
            "Whether the certificates of servers are verified. `false` encrypts the connection but does not \
             authenticate the server.",
            "An unverified connection protects against eavesdroppers, but not against impostors.",
        ),
        key(
            "ca",
            Text("the path of a PEM file"),
            Absent,
            "Trusted certificate authorities. Without this setting, those of the system are used. The file may \
             also contain the certificate of a server itself, even one marked as an authority (CA:TRUE), \
             unless `crl` is set.",
            "",
        ),
        key(
            "crl",
            OneOf(&[Text("the path of a PEM file"), List(&Text("the path of a PEM file"))]),
            Absent,
            "Revocation lists for the certificates of servers. A listed certificate is rejected, even if the list is out of \
             date. A certificate that is not listed is accepted, even if its authority has no list here.",
            "",
        ),
        key(
            "server-name",
            Text("a host name or an IP address"),
            Absent,
            "Server name to request and to verify. Without it, the name in each server's address is used.",
            "",
        ),
        key(
            "client-cert",
            Table(&CLIENT_CERTIFICATE),
            Absent,
            "Certificate to present to servers that request one.",
            "",
        ),
        MIN_VERSION_KEY,
        CIPHERS_KEY,
        CURVES_KEY,
        key(
            "alpn",
            List(&Name(SERVER_PROTOCOLS)),
            Absent,
            "Application protocols (ALPN) to offer, in order of preference. \"h2\" is HTTP/2: requests to such a server share \
             connections. A server that chooses no protocol gets HTTP/1.1, unless \"h2\" is the only protocol offered. Without \
             this setting, no protocol is offered.",
            "Every server understands HTTP/1.1, with which each request in progress has its own connection, so no client can \
             delay the requests of another client.",
        ),
        key("resume", Boolean, Value("true"), "Whether earlier sessions are resumed.", ""),
    ],
    later: &[],
};

/// `client-cert = { cert, key }` of a pool's `tls`.
pub static CLIENT_CERTIFICATE: Section = Section {
    path: "[pool.NAME.tls.client-cert]",
    about: "The certificate to present to servers that request one.",
    keys: &[
        key(
            "cert",
            Text("the path of a PEM file"),
            Required,
            "The certificate, followed by the intermediate certificates.",
            "",
        ),
        key(
            "key",
            Text("the path of a PEM file"),
            Required,
            "The private key of the certificate.",
            "",
        ),
    ],
    later: &[],
};
