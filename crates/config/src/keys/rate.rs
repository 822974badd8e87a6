//! The settings of limits of the rate of requests.
//! In: nothing. Out: the section `[route.rate]`.

use super::Preset::{Required, Value};
use super::Shape::{Duration, List, Number, OneOf, Text, Word};
use super::{Section, key};
use crate::model::RateExcess;
use crate::words::Keyword as _;

pub(super) const KEY: &str = "\"client-address\", \"host\", \"path\", \"method\", \"header:NAME\", \"cookie:NAME\" or \"query:NAME\"";

/// As `KEY`, where the token of a request is known.
pub(super) const KEY_OR_CLAIM: &str = "\"client-address\", \"host\", \"path\", \"method\", \"header:NAME\", \"cookie:NAME\", \
    \"query:NAME\" or \"claim:NAME\"";

/// `rate = { ... }` of a route.
pub static RATE: Section = Section {
    path: "[route.rate]",
    about: "Limits how many requests with the same key a route serves, exactly and for all workers together. Several \
             limits are written as an array, all of which must admit the request.",
    keys: &[
        key(
            "limit",
            Text("a number of requests and a period, such as \"100/10s\""),
            Required,
            "The number of requests in a period of up to 24 hours: \"100/10s\" admits ten requests a second on average.",
            "",
        ),
        key(
            "by",
            OneOf(&[Text(KEY_OR_CLAIM), List(&Text(KEY_OR_CLAIM))]),
            Value("\"client-address\""),
            "The value by which requests are counted; with an array, the combination of all its values. Behind a proxy \
             in `trusted` of the listener, the client's address is the one that the proxy reports; IPv6 addresses count by \
             their first 64 bits, because a client usually has a whole network of this size. A request that does not have \
             exactly one value of a field, cookie or parameter is counted by the client's address. Paths are counted in the \
             normalized form in which routes compare them, with slashes merged, and without path parameters (\";...\") and a \
             slash at the end. Hosts are counted in lower case, without the port and a dot at the end. All unknown methods are \
             counted as one method. On a route without `host`, clients choose the host freely. With `jwt` of the route, \"claim:NAME\" \
             is a claim of the token: such a limit counts only requests with a valid token, so add another limit for requests \
             with invalid tokens.",
            "Clients cannot choose their address freely, unlike a field or a cookie.",
        ),
        key(
            "burst",
            Number(1, 1_000_000_000),
            super::Preset::Absent,
            "How many requests are admitted at once before the limit spreads them over time. Without this setting, the number \
             of requests in `limit`.",
            "",
        ),
        key(
            "then",
            Word(RateExcess::WORDS),
            Value("\"deny\""),
            "What happens to a request above the limit: \"deny\" sends a 429 response with Retry-After, \"tarpit\" sends it \
             after `wait`, \"drop\" closes the connection without a response, or resets the stream.",
            "",
        ),
        key(
            "wait",
            Duration(1, 60_000),
            Value("\"5s\""),
            "How long a request waits for its 429 response. Only with then = \"tarpit\". A waiting request reaches no \
             server and no other limit, and its client must keep its connection or stream open. When the process stops, \
             the response is sent at once.",
            "A client that sends one request after another is slowed down to twelve requests a minute on each connection.",
        ),
        key(
            "waiting-max",
            Number(1, 1_000_000),
            Value("1024"),
            "How many requests may wait at the same time because of this limit, in all workers together. Requests above \
             it get the 429 response at once. So do requests that would make more than a quarter of a worker's \
             connections wait. Only with then = \"tarpit\".",
            "Each waiting request of HTTP/1.1 holds its connection, which other clients may need.",
        ),
        key(
            "keys-max",
            Number(8, 16_777_216),
            Value("131072"),
            "How many keys are counted at the same time, rounded up to a power of two. If there are more, the keys \
             that have used the least of their limit are forgotten first; a key at its limit is forgotten only if the \
             seven other keys of its set of eight are at their limits, too. Each key takes 16 bytes.",
            "2 MiB of memory, and more keys than most services have clients within a period.",
        ),
    ],
    later: &[],
};
