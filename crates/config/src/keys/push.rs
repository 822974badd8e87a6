//! The settings of push hubs.
//! In: nothing. Out: the section `[push.NAME]`, which `FILE` refers to, and its tables.

use super::Preset::{Absent, Required, Value};
use super::Shape::{
    Boolean, Duration, List, Named, NoNumber, Number, OneOf, Size, Table, Text, Word,
};
use super::push_backend::{BACKEND, BACKEND_EVENTS};
use super::{Key, Section, TIMEOUT, TIMEOUT_MS_MAX, TIMEOUT_MS_MIN, key};
use crate::model::{Deltas, Permit, Slow, Subscribe};
use crate::words::Keyword as _;

const SUBSCRIBE: Key = key(
    "subscribe",
    Word(Subscribe::WORDS),
    Value("\"token\""),
    "Who may subscribe: with \"token\", clients whose token names the channel; with \"users\", every client with a \
     valid token that names a user; with \"anyone\", even clients without a token.",
    "A channel must not become readable by mistake.",
);
const PUBLISH: Key = key(
    "publish",
    Word(Permit::WORDS),
    Value("\"api\""),
    "Who may publish. The server API may always publish. With \"api\", no client; with \"subscribers\", clients \
     that are subscribed to the channel; with \"users\", clients with a token that names a user; with \"anyone\", \
     every client.",
    "Clients should reach other clients only through the application, unless it decides otherwise.",
);
const HISTORY: Key = key(
    "history",
    Number(0, 100_000),
    Value("0"),
    "How many of its newest messages a channel keeps. A client that reconnects gets the messages that it missed, or \
     learns that messages are lost. 0 turns history off; messages have no offsets then.",
    "History takes memory, and most applications load their state in another way.",
);
const HISTORY_AGE: Key = key(
    "history-age",
    Duration(1000, 30 * TIMEOUT_MS_MAX),
    Value("\"5m\""),
    "How long a message is kept in the history.",
    "Clients that lost their connection come back within seconds; pages that slept longer load their state again.",
);

const READ_HISTORY: Key = key(
    "read-history",
    Word(Permit::WORDS),
    Value("\"api\""),
    "Who may read the history in addition to the server API. A subscriber can always recover the messages that it missed.",
    "As for `publish`.",
);
const PRESENCE: Key = key(
    "presence",
    Boolean,
    Value("false"),
    "Whether the hub keeps a list of the clients of each channel. Only clients of the client protocol are in it.",
    "Each subscription takes more memory, and its beginning and its end are reported to the worker that owns the \
     channel.",
);
const READ_PRESENCE: Key = key(
    "read-presence",
    Word(Permit::WORDS),
    Value("\"api\""),
    "Who may read the list of clients in addition to the server API.",
    "As for `publish`.",
);
const JOIN_LEAVE: Key = key(
    "join-leave",
    Boolean,
    Value("false"),
    "Whether the clients of a channel receive a message when another client subscribes to it or leaves it.",
    "In a channel with many clients that come and go, this multiplies the number of messages.",
);

const CONFLATE: Key = key(
    "conflate",
    OneOf(&[Duration(10, TIMEOUT_MS_MAX), NoNumber("off")]),
    Value("\"off\""),
    "Subscribers of a channel get at most one message in this time: the newest. A message after a pause is delivered at \
     once; of those that follow within the time, the newest is delivered at its end. Only without `history`.",
    "Most messages report different events, and none of them may be left out. For prices, positions and counts, only the newest \
     message matters.",
);

const DELTAS: Key = key(
    "deltas",
    Word(Deltas::WORDS),
    Value("\"off\""),
    "Which messages are sent as patches of the previous message, in the delta format of Fossil, to clients of the client \
     protocol that request it (`delta: \"fossil\"`). With \"marked\", those that the server API publishes with `\"delta\": \
     true`; with \"all\", every message. A client that has missed the previous message gets the whole message.",
    "A patch saves bytes only if a message resembles the previous one, such as a document of which a few numbers change.",
);

const TAG_FILTERS: Key = key(
    "tag-filters",
    Boolean,
    Value("false"),
    "Whether clients of the client protocol may subscribe with a filter, so that they get only messages whose tags it admits. A \
     filter has up to 32 conditions and combinations, 8 levels, 128 values and 4 KiB of text. The tags of a message \
     have up to 1 KiB.",
    "Every filter is evaluated for each message, which takes time, and filters are of use only if the application publishes \
     messages with suitable tags.",
);
const EXCLUDE_SENDER: Key = key(
    "exclude-sender",
    Boolean,
    Value("false"),
    "Whether messages are not delivered to the client that publishes them. A client that recovers messages after a \
     reconnection gets its own messages, too, because it then has another client id.",
    "Client libraries of Centrifugo expect that a client gets what it has published.",
);
const USER_CHANNELS: Key = key(
    "user-channels",
    Boolean,
    Value("false"),
    "Whether a user may subscribe to channels whose names end with `#` and a list of users that contains this user, such as \
     `dialog#7,8`. The user needs no token for such a channel, and `subscribe` does not apply. Other clients need a token for \
     such a channel.",
    "The name of a channel should grant a permission only if the application intends it.",
);

const CACHE: Key = key(
    "cache",
    Boolean,
    Value("false"),
    "Whether a client that subscribes gets the newest message of the channel at once, but no older messages. This also applies \
     to a client that was subscribed before. Only with `history`, which keeps the message for `history-age`.",
    "A message that reports an event is of no use to later subscribers; one that contains a state, such as a price, is.",
);

const EVENT: Key = key(
    "event",
    Text("1 to 64 visible characters"),
    Absent,
    "The event name of the messages in streams of events, for which pages listen with `addEventListener`. A message that is \
     published with `\"event\"` has that name instead. Without a name, messages reach `onmessage`. \"lost\", \"open\" and \
     \"error\" are not allowed.",
    "",
);

/// `[push.NAME]`.
pub static PUSH: Section = Section {
    path: "[push.NAME]",
    about: "A push hub: clients subscribe to channels, and messages that are published in a channel reach all of its \
             subscribers on all workers. Routes refer to it with `push`. Settings that also exist for a \
             namespace apply here to channels without a namespace.",
    keys: &[
        key(
            "api-keys",
            List(&Text("at least 16 visible characters")),
            Value("[]"),
            "Keys of the server API. A request contains one of them in X-API-Key. Without a key, every request to the \
             API gets a 401 response.",
            "",
        ),
        key(
            "token-secret",
            Text("at least 16 visible characters"),
            Absent,
            "The secret of the tokens with which clients of the client protocol connect and subscribe: JSON Web \
             Tokens signed with HS256, HS384 or HS512. Without `token-secret` and `token-keys`, no token is valid.",
            "",
        ),
        key(
            "token-keys",
            Text("the path of a file, or \"https://id.example/jwks.json\""),
            Absent,
            "The public keys of these tokens, in place of `token-secret`: a file in PEM or with a set of keys in JSON (JWKS), \
             or the https address of a set, as for `keys` of [route.auth.jwt]. The keys decide which algorithms are accepted: \
             RS256 to RS512, PS256 to PS512, ES256, ES384, ES512 and EdDSA. The file is read at start and at each reload. \
             A set at an address is fetched at start, and again while the process serves. Until the first set has been \
             fetched, commands with tokens get error 100, and client libraries try again.",
            "",
        ),
        key(
            "token-keys-ca",
            Text("the path of a file"),
            Absent,
            "The file with the authorities (PEM) that verify the server of an address in `token-keys`, in place of those of \
             the system.",
            "",
        ),
        key(
            "token-audience",
            OneOf(&[Text("\"app\""), List(&Text("\"app\""))]),
            Absent,
            "The audience that a token must name (`aud`), or several audiences, one of which it must name. Without this setting, \
             tokens that were issued for other services are accepted, too.",
            "",
        ),
        key(
            "token-issuer",
            Text("a string, such as \"https://id.example\""),
            Absent,
            "The issuer that a token must name (`iss`).",
            "",
        ),
        key(
            "token-leeway",
            Duration(0, 300_000),
            Value("\"30s\""),
            "How far the clocks of the issuer and of this machine may differ, for the times in tokens (`exp`, `nbf`).",
            "Clocks of machines differ by seconds, and a token should be valid as soon as it is issued.",
        ),
        key(
            "token-cookie",
            Text("the name of a cookie, such as \"push-token\""),
            Absent,
            "The cookie from which the token of a client that subscribes by URL is read if the query contains no token (`?token=`).",
            "",
        ),
        key(
            "anonymous",
            Boolean,
            Value("false"),
            "Whether clients of the client protocol may connect without a token. They have no user.",
            "Applications usually know their users.",
        ),
        SUBSCRIBE,
        PUBLISH,
        HISTORY,
        HISTORY_AGE,
        READ_HISTORY,
        PRESENCE,
        READ_PRESENCE,
        JOIN_LEAVE,
        CONFLATE,
        BACKEND_EVENTS,
        key(
            "backend",
            Table(&BACKEND),
            Absent,
            "The application that decides what clients may do, and that is notified of what they do.",
            "",
        ),
        DELTAS,
        TAG_FILTERS,
        EXCLUDE_SENDER,
        USER_CHANNELS,
        CACHE,
        EVENT,
        key(
            "namespace",
            Named(&NAMESPACE),
            Absent,
            "Settings of the channels whose names begin with a namespace and a colon, such as `chat:room-1`. A \
             channel of an unknown namespace does not exist.",
            "",
        ),
        key(
            "message-max",
            Size(1, 1 << 20),
            Value("\"64KiB\""),
            "Maximum size of a message in bytes, as published.",
            "A message is kept in memory until the slowest of its subscribers has received it.",
        ),
        key(
            "channels-max",
            Number(1, 100_000),
            Value("128"),
            "Maximum number of channels that a connection is subscribed to.",
            "Each subscription takes memory. A client that needs many channels should get its messages in one channel of its own.",
        ),
        key(
            "channel-length-max",
            Number(1, 4096),
            Value("255"),
            "Maximum length of a channel's name in bytes.",
            "Names are kept for each channel in use.",
        ),
        key(
            "publish-rate",
            Text("a rate, such as \"50/1s\""),
            Absent,
            "How many messages a connection may publish in a period; it may publish all of them at once. Further messages are \
             rejected with error 111, and clients may publish them again later. Without this setting, clients publish as fast \
             as the hub delivers. `rate` of a route limits how often an address connects.",
            "",
        ),
        key(
            "history-memory-max",
            Size(1 << 20, 1 << 40),
            Value("\"256MiB\""),
            "Maximum memory of all histories, divided equally among the workers. If the share of a worker \
             is used up, its oldest messages are dropped first. Channels without messages take at most half of the share; \
             those that subscriptions or reads have created, at most three eighths.",
            "A client that may subscribe to channels of any name cannot use up the memory of the machine.",
        ),
        key(
            "queue-max",
            Size(1024, 1 << 30),
            Value("\"1MiB\""),
            "Maximum size of the messages that wait for a client that does not read.",
            "A client on a slow network recovers from a pause of seconds; a client that is further behind recovers faster with \
             a new connection.",
        ),
        key(
            "queue-messages-max",
            Number(1, 1_000_000),
            Value("1000"),
            "Maximum number of messages that wait for a client that does not read.",
            "As for `queue-max`, for small messages.",
        ),
        key(
            "slow",
            Word(Slow::WORDS),
            Value("\"disconnect\""),
            "What happens if the messages that wait for a client exceed their limit. With \"disconnect\", the connection is \
             closed with code 3008; with \"drop-oldest\", the oldest messages are dropped; with \"drop-newest\", the new \
             message is dropped; with \"conflate\", only the newest message of each channel is kept. \"conflate\" keeps joins \
             and leaves; if the rest still exceeds three quarters of the limit, the oldest messages are dropped, too. In a channel \
             with history, clients are told that messages were dropped, except in raw mode.",
            "A client that is disconnected knows that it missed messages, and recovers them from the history.",
        ),
        key(
            "connection-age-max",
            OneOf(&[NoNumber("off"), Duration(1000, 30 * TIMEOUT_MS_MAX)]),
            Value("\"off\""),
            "How long a connection lasts, less up to a quarter at random. Then clients of the client protocol and those in raw \
             mode get code 3011, after which client libraries connect again, and streams of events end, which browsers open \
             again. In channels with history, clients then recover the messages that they missed.",
            "Connections may stay open. A maximum age spreads clients over new servers behind a load balancer.",
        ),
        key(
            "heartbeat",
            OneOf(&[NoNumber("off"), Duration(TIMEOUT_MS_MIN, TIMEOUT_MS_MAX)]),
            Value("\"25s\""),
            "How often a comment is sent in a stream of events, so that proxies keep the connection and a client that is gone \
             is noticed. WebSocket connections have `ping-every`.",
            "Proxies often close connections that are silent for 30 or 60 seconds.",
        ),
        key(
            "retry",
            Duration(TIMEOUT_MS_MIN, TIMEOUT_MS_MAX),
            Value("\"2s\""),
            "How long a browser waits before it opens a stream of events again (`retry:`). A random time of up to half \
             of it is added for each stream.",
            "Clients that lose their connections at the same time reconnect spread over a second.",
        ),
        key(
            "poll-timeout",
            TIMEOUT,
            Value("\"25s\""),
            "How long a long poll waits for a message before it gets a response without one.",
            "Proxies often close connections that are silent for 30 or 60 seconds.",
        ),
    ],
    later: &[],
};

/// `[push.NAME.namespace.NAME]`.
pub static NAMESPACE: Section = Section {
    path: "[push.NAME.namespace.NAME]",
    about: "The channels of a namespace. Settings of [push.NAME] are not inherited, so that a namespace permits \
             only what its own table permits.",
    keys: &[
        SUBSCRIBE,
        PUBLISH,
        HISTORY,
        HISTORY_AGE,
        READ_HISTORY,
        PRESENCE,
        READ_PRESENCE,
        JOIN_LEAVE,
        CONFLATE,
        BACKEND_EVENTS,
        DELTAS,
        TAG_FILTERS,
        EXCLUDE_SENDER,
        USER_CHANNELS,
        CACHE,
        EVENT,
    ],
    later: &[],
};

/// `push = { ... }` of a route.
pub static ROUTE_PUSH: Section = Section {
    path: "[route.push]",
    about: "Connects clients to a push hub.",
    keys: &[
        key("hub", Text("the name of a [push.NAME]"), Required, "Name of the hub.", ""),
        key(
            "channel",
            Text("the name of a channel"),
            Absent,
            "The channel that every request to the route subscribes to. Without it, the route serves everything \
             below its path: `connection/websocket`, `subscribe/CHANNEL` and `api/METHOD`.",
            "",
        ),
    ],
    later: &[],
};
