//! The settings of the admin interface.
//! In: nothing. Out: the sections `[admin]`, which `FILE` refers to, and `[admin.tls]`.

use super::Preset::{Absent, Required};
use super::Shape::{List, OneOf, Table, Text};
use super::{Section, key};

const CLIENT_NAME: &str = "a common name or DNS name, e.g. \"monitoring\"";

/// `[admin]`.
pub static ADMIN: Section = Section {
    path: "[admin]",
    about: "The admin interface: metrics, statistics, health of the process, and commands. Without this section, there is no \
             such interface, and requests are not counted by listener, route and server.",
    keys: &[
        key(
            "bind",
            Text("\"IP:PORT\", \"[IPv6]:PORT\" or \"unix:PATH\""),
            Required,
            "Address of the interface. A unix socket is accessible only to the user that runs the process. An address \
             other than loopback needs `token-file`, or `tls` with `client-ca`.",
            "",
        ),
        key(
            "token-file",
            Text("the path of a file"),
            Absent,
            "A file with the token that clients must present: in the field `Authorization: Bearer TOKEN` of a \
             request, or with the command `auth TOKEN`. The file is read at start.",
            "",
        ),
        key(
            "read-token-file",
            Text("the path of a file"),
            Absent,
            "A file with a second token, for programs that only read: its clients get all pages, and run only commands that \
             begin with show, get, help or wait, except show errors, sess and conn, which contain requests of clients. Only with \
             `token-file`.",
            "",
        ),
        key(
            "tls",
            Table(&ADMIN_TLS),
            Absent,
            "TLS of the interface, and certificates of its clients. Not for a unix socket.",
            "",
        ),
    ],
    later: &[],
};

/// `tls = { ... }` of `[admin]`.
pub static ADMIN_TLS: Section = Section {
    path: "[admin.tls]",
    about: "TLS of the admin interface. The files are read again when they change.",
    keys: &[
        key(
            "cert",
            Text("the path of a PEM file"),
            Required,
            "The certificate of the interface, followed by the intermediate certificates.",
            "",
        ),
        key(
            "key",
            Text("the path of a PEM file"),
            Required,
            "The private key of the certificate.",
            "",
        ),
        key(
            "client-ca",
            Text("the path of a PEM file"),
            Absent,
            "The authorities of operators' certificates. A client with a valid certificate of one of them may do everything, as \
             with the token of `token-file`, unless `write-clients` is set and does not name the certificate. \
             Without `token-file`, each client must present such a certificate.",
            "",
        ),
        key(
            "client-crl",
            Text("the path of a PEM file"),
            Absent,
            "Revocation lists for operators' certificates. Only with `client-ca`.",
            "",
        ),
        key(
            "write-clients",
            OneOf(&[Text(CLIENT_NAME), List(&Text(CLIENT_NAME))]),
            Absent,
            "Certificates that may do everything: those with one of these names as a common name of the subject or as a DNS name, in \
             upper or lower case. All other certificates may only read, as with the token of `read-token-file`; an empty list lets \
             no certificate do more. Without this setting, all certificates may do everything. Only with `client-ca`.",
            "",
        ),
    ],
    later: &[],
};
