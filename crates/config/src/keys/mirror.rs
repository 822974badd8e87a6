//! The settings of copies of requests for another pool.
//! In: nothing. Out: the section `[route.mirror]`.

use super::Preset::{Absent, Required, Value};
use super::Shape::{List, OneOf, Size, Text};
use super::rate::KEY;
use super::{Section, key};

/// The largest body of a copied request. Copies are stored like requests that may have to be sent again.
const BODY_BYTES_MAX: u64 = 32 * 1024;

/// `mirror = { ... }` of a route.
pub static MIRROR: Section = Section {
    path: "[route.mirror]",
    about: "Sends a copy of each request to a server of another pool, too, and drops the response to the copy, to test a new \
            version with real requests. The client gets the response of its own server, and never waits for the copy. \
            A copy is sent once, when the request is complete and on its way to its own server, and only if a server of the \
            pool is free: copies never wait in a queue. Each worker has up to 256 copies in progress, on at most an eighth of \
            its connections. WebSocket connections and other upgrades are not copied, nor are requests that authenticate their \
            connection (NTLM, Negotiate). The servers cannot tell a copy from an original request, so they should not change \
            data that the client's servers use.",
    keys: &[
        key(
            "pool",
            Text("the name of a [pool.NAME]"),
            Required,
            "The pool that gets the copies. It cannot be a pool of the route itself, and cannot have `proxy-protocol`.",
            "",
        ),
        key(
            "share",
            Text("a percentage such as \"10%\""),
            Value("\"100%\""),
            "The share of the requests that are copied. Up to three decimals, such as \"0.1%\".",
            "A copy of each request shows how the new version handles the whole load.",
        ),
        key(
            "by",
            OneOf(&[Text(KEY), List(&Text(KEY))]),
            Absent,
            "The value that decides, written as `by` of `split`: of the requests with the same value, either all or none are \
             copied. Without `by`, each request is chosen at random.",
            "",
        ),
        key(
            "body-max",
            Size(0, BODY_BYTES_MAX),
            Value("\"32KiB\""),
            "Requests with a larger body are not copied (`mirrors_left_out`).",
            "A body is held in memory until it is complete, for each request that is copied.",
        ),
    ],
    later: &[],
};
