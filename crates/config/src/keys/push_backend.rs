//! The settings of calls to the application's backend.
//! In: nothing. Out: the section `[push.NAME.backend]`, and the key with which channels use it.

use super::Preset::{Absent, Value};
use super::Shape::{Duration, List, Number, Size, Text, Word};
use super::{Key, Section, TIMEOUT_MS_MAX, key};
use crate::model::BackendEvent;
use crate::words::Keyword as _;

const PATH: super::Shape = Text("a path, such as \"/centrifugo/connect\"");

pub(super) const BACKEND_EVENTS: Key = key(
    "backend-events",
    List(&Word(BackendEvent::WORDS)),
    Value("[]"),
    "Which events of these channels go to the backend. With \"subscribe\", the backend decides about each subscription \
     without a token, and `subscribe` has no effect; with \"publish\", the backend decides about each message of a \
     client, and `publish` has no effect; with \"sub-refresh\", the backend renews subscriptions that it has granted for \
     a limited time; with \"channel-empty\", the backend is told that the last subscriber of a channel has left.",
    "Each event is a request to the backend, which must be able to answer it.",
);

/// `[push.NAME.backend]`.
pub static BACKEND: Section = Section {
    path: "[push.NAME.backend]",
    about: "The application that decides what clients may do: the servers of a pool, in the HTTP protocol of Centrifugo's \
            proxy, or an application in Lua. For each event with a path, a server gets a POST request with JSON; for each \
            event in `events`, the Lua application's `on_push` is called. Other events are not sent.",
    keys: &[
        key(
            "pool",
            Text("the name of a [pool.NAME]"),
            Absent,
            "Name of the pool. A backend has either `pool` or `lua`.",
            "",
        ),
        key(
            "lua",
            Text("the name of a [lua.NAME]"),
            Absent,
            "Name of the Lua application whose `on_push` decides.",
            "",
        ),
        key(
            "events",
            List(&Word(&BackendEvent::NAMES)),
            Value("[]"),
            "With `lua`: the events that the application gets. \"connect\": clients that connect without a token; \
             \"refresh\" and \"sub-refresh\": connections and subscriptions that it has granted for a limited time; \
             \"rpc\": calls of clients; \"disconnect\": clients that have left. \"subscribe\", \"publish\", \
             \"sub-refresh\" and \"channel-empty\" also need `backend-events` of the channels.",
            "",
        ),
        key("connect", PATH, Absent, "Path for clients that connect without a token.", ""),
        key(
            "refresh",
            PATH,
            Absent,
            "Path for renewing connections that the backend has granted for a limited time.",
            "",
        ),
        key("subscribe", PATH, Absent, "Path for subscriptions. See `backend-events`.", ""),
        key("publish", PATH, Absent, "Path for messages of clients. See `backend-events`.", ""),
        key(
            "sub-refresh",
            PATH,
            Absent,
            "Path for renewing subscriptions that the backend has granted for a limited time. See `backend-events`.",
            "",
        ),
        key(
            "rpc",
            PATH,
            Absent,
            "Path for calls of clients (`rpc`). Without it, they get error 108.",
            "",
        ),
        key(
            "disconnect",
            PATH,
            Absent,
            "Path for lists of clients that have left. Tidegate does not wait for a decision.",
            "",
        ),
        key(
            "channel-empty",
            PATH,
            Absent,
            "Path for lists of channels whose last subscriber has left. See `backend-events`. Tidegate does not \
             wait for a decision.",
            "",
        ),
        key(
            "rpc-namespaces",
            List(&Text("the part of a method before its first colon")),
            Value("[]"),
            "Namespaces of methods that clients may call, such as \"chat\" for `chat:invite`. Methods without a \
             namespace may always be called; a method of another namespace gets error 104.",
            "As in Centrifugo.",
        ),
        key(
            "headers",
            List(&Text("the name of a header field")),
            Value("[]"),
            "Fields of a client's first request that are copied into the backend request for each event of that client, such \
             as [\"Cookie\", \"Authorization\"]. The fields are kept as long as the connection. A request in which these \
             fields exceed 8 KiB gets a 431 response. X-Forwarded-For is always sent, with the address of the client.",
            "The backend should see only what it needs.",
        ),
        key(
            "timeout",
            Duration(10, TIMEOUT_MS_MAX),
            Value("\"1s\""),
            "How long a response of the backend may take. After this time, the command of the client fails with error 100, and \
             libraries try again.",
            "As in Centrifugo. Libraries give up a command after 5 s and connect again.",
        ),
        key(
            "reply-max",
            Size(256, 8 << 20),
            Value("\"64KiB\""),
            "Maximum size of a response in bytes. A larger response counts as a failure.",
            "The same size as the default of `message-max`.",
        ),
        key(
            "calls-max",
            Number(1, 100_000),
            Value("256"),
            "Maximum number of events of one worker that wait for a response of the backend. Above this number, commands fail \
             with error 111, and libraries try again later. Each connection has at most one such event. `refresh` and \
             `sub-refresh` have a separate limit of the same size.",
            "A backend that is slow must not use up the memory and the connections of the proxy.",
        ),
        key(
            "calls-per-address-max",
            Number(1, 100_000),
            Value("64"),
            "The same limit for the clients of one address (with IPv6: of one /64 network), so that one machine cannot use up \
             `calls-max`.",
            "A quarter of `calls-max` is enough for the clients behind one gateway.",
        ),
    ],
    later: &[],
};
