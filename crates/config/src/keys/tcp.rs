//! The settings of TCP mode.
//! In: nothing. Out: the shape of `forward`, and the section of its table.

use super::Preset::{Absent, Required};
use super::Shape::{self, Fields, OneOf, Table, Text};
use super::{Section, key};

/// `forward` of a listener.
pub(super) const FORWARD_SHAPE: Shape =
    OneOf(&[Text("the name of a [pool.NAME]"), Table(&FORWARD)]);

/// The description of `forward`.
pub(super) const FORWARD_ABOUT: &str = "Forwards every connection to a server of a pool without reading HTTP \
     (TCP mode), for databases, mail and other protocols. A string is the name of the pool; a table chooses it by \
     the name in the client's TLS handshake. The settings of the pool apply: `balance`, `connections-max`, the \
     queue, `retries`, `proxy-protocol` and `timeouts` (`connect`, `queue`, `tunnel`). With `tls`, the listener \
     terminates TLS and forwards the decrypted bytes. Routes do not apply to the listener.";

/// `forward = { sni, default }` of a listener.
pub static FORWARD: Section = Section {
    path: "[listener.forward]",
    about: "Chooses the pool by the server name in the client's TLS handshake (SNI). Nothing is decrypted: the \
            server has the certificate. The handshake must arrive within `timeouts.head` of the listener.",
    keys: &[
        key(
            "sni",
            Fields(&Text("the name of a [pool.NAME]")),
            Required,
            "Pools by server name: \"a.example\", or \"*.b.example\" for every name below b.example. An exact name \
             wins over a pattern, and the longest pattern over shorter ones.",
            "",
        ),
        key(
            "default",
            Text("the name of a [pool.NAME]"),
            Absent,
            "The pool of connections with another name or without a name, including those that do not begin with a \
             TLS handshake. Without it, these connections are closed (`tcp_unmatched`).",
            "",
        ),
    ],
    later: &[],
};
