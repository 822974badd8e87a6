//! The settings of the admin interface.
//! In: nothing. Out: the section `[admin]`, which `FILE` refers to.

use super::Preset::{Absent, Required};
use super::Shape::Text;
use super::{Section, key};

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
             other than loopback needs `token-file`.",
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
    ],
    later: &[],
};
