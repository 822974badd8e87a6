//! The settings of tables that count what clients do, and the settings that refer to them.
//! In: nothing. Out: the section `[table.NAME]`; the keys `count` and `table`.

use super::Preset::{Required, Value};
use super::Shape::{Duration, Fields, List, Number, OneOf, Text};
use super::rate::KEY;
use super::{Section, Shape, key};

const COUNT: &str = "\"requests/10s\", \"errors/1m\", \"failures/1m\", \"bytes-received/1m\", \"bytes-sent/1m\", \
                     each also without a period, \"connections\" or \"mark\"";
const NAME: &str = "the name of a [table.NAME]";

/// The value of `count` of a listener or route.
pub(super) const COUNTING: Shape = OneOf(&[Text(NAME), List(&Text(NAME))]);
/// The value of `table` of a route.
pub(super) const TABLE_TESTS: Shape = Fields(&Fields(&Text("\"> 100\", \">= 20\" or \"> 10MiB\"")));

/// `count` of a route.
pub(super) const ROUTE_COUNT: &str = "The tables that count the requests of this route. A request is counted after its route \
     has been chosen, so the conditions of routes do not include the request itself. A table counts each request once, even if \
     the listener also names it.";
/// `count` of a listener.
pub(super) const LISTENER_COUNT: &str = "The tables that count all requests of this listener. A request is counted before its \
     route is chosen, so the conditions of routes include the request itself, and requests that routes refuse are counted, \
     too. Not with `forward`.";
/// `table` of a route.
pub(super) const ROUTE_TABLE: &str = "Conditions on what tables have counted for the key of the request, all of which must \
     hold, such as { abuse = { \"requests/10s\" = \"> 100\" } }. A comparison begins with >, >=, <, <= or =; bytes have a \
     unit. The period may be omitted if the table counts this kind of event with one period only. Counts of a key that the \
     table does not know are 0. To let any one of several conditions suffice, write several routes.";

/// `[table.NAME]`.
pub static COUNT_TABLE: Section = Section {
    path: "[table.NAME]",
    about: "Counts what clients do, by a key such as their address, for all workers together. Listeners and routes name \
             the tables that count their requests (`count`), and routes can depend on the counts (`table`). The command \
             `show table NAME` shows the keys. A reload keeps the counts of a table whose key, counts and size are the same; \
             a restart does not.",
    keys: &[
        key(
            "key",
            OneOf(&[Text(KEY), List(&Text(KEY))]),
            Value("\"client-address\""),
            "The value by which requests are counted; with an array, the combination of all its values. The possible values are \
             those of `by` in `rate`: IPv6 addresses count by their first 64 bits, and a request that does not have exactly \
             one value of a field, cookie or parameter is counted by the client's address.",
            "Clients cannot choose their address freely, unlike a field or a cookie.",
        ),
        key(
            "counts",
            List(&Text(COUNT)),
            Required,
            "What is counted, up to eight numbers for each key. With a period from 1s to 24h, a number counts what has \
             happened within that time until now; without a period, what has happened since the key was first counted. \
             \"requests\": requests; \"connections\": requests in progress, where a WebSocket connection or another tunnel is \
             one request; \"errors\": responses with a status from 400 to 499, by a server or by Tidegate; \"failures\": \
             responses with a status of 500 or more; \"bytes-received\" and \"bytes-sent\": bytes of request bodies and of \
             responses; \"mark\": a number that the command `set table` sets. Errors, failures and bytes are counted when the \
             exchange ends. A period is divided into seven parts, and the oldest part counts in proportion to how much of it \
             lies within the period. So a count is exact for clients with a steady rate; for other clients, it may be wrong by \
             up to the events of one seventh of the period.",
            "",
        ),
        key(
            "expire",
            Duration(1000, 24 * 3_600_000),
            Value("\"10m\""),
            "How long a key is remembered after its last request. It must be at least as long as the longest period in `counts`.",
            "Long enough to recognise a client that returns, and short enough that a client refused by mistake is soon served.",
        ),
        key(
            "entries-max",
            Number(8, 4_194_304),
            Value("100_000"),
            "How many keys are counted at the same time. If there are more, a new key replaces one of eight keys: first a key \
             that was not used for `expire`, then the key with the fewest recent requests. So a flood of new keys replaces \
             quiet keys, but not active keys (`tidegate_table_evictions_total`). An entry takes 24 bytes, 24 for the text of \
             its key (64 unless `key` is the client's address), 64 for each count with a period, and 8 for each other count. \
             The memory is allocated at start.",
            "More keys than most services have clients within ten minutes; 17 MB with two periods.",
        ),
    ],
    later: &[],
};
