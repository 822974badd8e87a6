//! The settings of TLS, of listeners and of pools.
//! In: nothing. Out: sections that `FILE` reaches through `tls`.

use super::Preset::{Absent, Required, Value};
use super::Shape::{Boolean, List, OneOf, Rows, Table, Text, Word};
use super::{Key, Section, TIMEOUT, key};

/// Cipher suites that may be named (IANA).
pub(crate) const CIPHERS: &[&str] = &[
    "TLS_AES_256_GCM_SHA384",
    "TLS_AES_128_GCM_SHA256",
    "TLS_CHACHA20_POLY1305_SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",
    "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256",
    "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384",
    "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256",
];

/// Key exchange groups that may be named.
pub(crate) const GROUPS: &[&str] = &["X25519MLKEM768", "X25519", "P-256", "P-384"];

const CIPHERS_KEY: Key = key(
    "ciphers",
    List(&Word(CIPHERS)),
    Absent,
    "Cipher suites, the preferred first. Without it, all that are listed here.",
    "All of them are authenticated and keep past traffic secret when a key is lost.",
);
const CURVES_KEY: Key = key(
    "curves",
    List(&Word(GROUPS)),
    Absent,
    "Key exchange groups, the preferred first. Without it, all that are listed here.",
    "The first one withstands quantum computers too, where the other side knows it.",
);
const MIN_VERSION_KEY: Key = key(
    "min-version",
    Word(&["1.2", "1.3"]),
    Value("\"1.2\""),
    "The oldest version of TLS spoken.",
    "Version 1.2 with the suites offered here is sound, and some clients know nothing newer.",
);

/// `tls = { ... }` of a listener.
pub static LISTENER_TLS: Section = Section {
    path: "[listener.tls]",
    about: "How a listener speaks TLS. Without `certificates` it makes one for itself at start.",
    keys: &[
        key(
            "certificates",
            Rows(&CERTIFICATE),
            Absent,
            "Certificates and their keys. The name that a client asks for chooses; the first is \
             the default. Without it, as tls = \"self-signed\".",
            "",
        ),
        key(
            "strict-sni",
            Boolean,
            Value("false"),
            "Refuse names that no certificate is for, instead of showing the first certificate.",
            "A client that checks names refuses the wrong certificate anyway, and says why.",
        ),
        MIN_VERSION_KEY,
        CIPHERS_KEY,
        CURVES_KEY,
        key(
            "alpn",
            List(&Word(&["http/1.1"])),
            Value("[\"http/1.1\"]"),
            "Application protocols, the preferred first.",
            "",
        ),
        key(
            "client-auth",
            Word(&["off", "optional", "required"]),
            Value("\"off\""),
            "Whether clients show certificates. Where they do, sessions are not resumed: each \
             handshake verifies anew.",
            "",
        ),
        key(
            "client-ca",
            Text("a file's path (PEM)"),
            Absent,
            "Authorities that client certificates are judged by.",
            "",
        ),
        key(
            "client-crl",
            Text("a file's path (PEM)"),
            Absent,
            "Revocation lists for client certificates.",
            "",
        ),
        key(
            "tickets",
            Text("\"own\", \"off\", or the path of a file with lines of 64 hexadecimal digits"),
            Value("\"own\""),
            "What seals session tickets: keys that this process makes and renews, none, or keys \
             in a file, the newest first, which several machines may share.",
            "Own keys live a day at most and leave no trace on disk.",
        ),
        key(
            "handshake-timeout",
            TIMEOUT,
            Value("\"10s\""),
            "From accept to the end of the handshake; then the connection is closed.",
            "Two round trips over any network, and no more for those who only hold the door.",
        ),
    ],
    later: &[],
};

/// `{ cert, key }` of a listener's `tls`.
pub static CERTIFICATE: Section = Section {
    path: "[listener.tls.certificates]",
    about: "A certificate and its key.",
    keys: &[
        key(
            "cert",
            Text("a file's path (PEM)"),
            Required,
            "The certificate, then the intermediate ones.",
            "",
        ),
        key("key", Text("a file's path (PEM)"), Required, "Its private key.", ""),
        key("ocsp", Text("a file's path (DER)"), Absent, "An OCSP response to staple.", ""),
    ],
    later: &[],
};

/// `tls = { ... }` of a pool.
pub static POOL_TLS: Section = Section {
    path: "[pool.NAME.tls]",
    about: "How servers are spoken to in TLS.",
    keys: &[
        key(
            "verify",
            Boolean,
            Value("true"),
            "Whether a server's certificate is verified. `false` encrypts, but to whom nobody \
             knows.",
            "An unverified connection keeps out listeners, not impostors.",
        ),
        key(
            "ca",
            Text("a file's path (PEM)"),
            Absent,
            "Authorities that are trusted. Without it, the system's.",
            "",
        ),
        key(
            "crl",
            OneOf(&[Text("a file's path (PEM)"), List(&Text("a file's path (PEM)"))]),
            Absent,
            "Revocation lists for the servers' certificates: one that is listed is refused. One whose \
             authority has no list here is not, nor is one for a list that is out of date.",
            "",
        ),
        key(
            "server-name",
            Text("a host's name or an IP address"),
            Absent,
            "The name asked for and verified. Without it, that of each server's address.",
            "",
        ),
        key(
            "client-cert",
            Table(&CLIENT_CERTIFICATE),
            Absent,
            "Shown to servers that ask for a certificate.",
            "",
        ),
        MIN_VERSION_KEY,
        CIPHERS_KEY,
        CURVES_KEY,
        key(
            "alpn",
            List(&Word(&["http/1.1"])),
            Absent,
            "Application protocols asked for. Without it, none is.",
            "",
        ),
        key("resume", Boolean, Value("true"), "Resume earlier sessions.", ""),
    ],
    later: &[],
};

/// `client-cert = { cert, key }` of a pool's `tls`.
pub static CLIENT_CERTIFICATE: Section = Section {
    path: "[pool.NAME.tls.client-cert]",
    about: "The certificate shown to servers that ask for one.",
    keys: &[
        key(
            "cert",
            Text("a file's path (PEM)"),
            Required,
            "The certificate, then the intermediate ones.",
            "",
        ),
        key("key", Text("a file's path (PEM)"), Required, "Its private key.", ""),
    ],
    later: &[],
};
