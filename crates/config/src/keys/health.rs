//! The settings of health checks.
//! In: nothing. Out: the section `[pool.NAME.health]`.

use super::Preset::{Absent, Value};
use super::Shape::{Boolean, Duration, NoNumber, Number, OneOf, Size, Text, True, Word};
use super::{Section, TIMEOUT, TIMEOUT_MS_MAX, key};
use crate::model::CheckMethod;
use crate::words::Keyword as _;

/// `health = { ... }` of a pool.
pub static HEALTH: Section = Section {
    path: "[pool.NAME.health]",
    about: "Checks every server of the pool with a request (`http`), a connection (`tcp`), a call of gRPC's health service (`grpc`) or a \
             WebSocket handshake (`websocket`); exactly one of these is set. One thread of the process makes \
             all checks. A server that fails gets no new requests until it passes again. At the start a server counts as up, \
             but its first failed check marks it down. Checks use TLS and the PROXY protocol as the pool does.",
    keys: &[
        key(
            "http",
            Text("a path, such as \"/healthz\""),
            Absent,
            "Path of the request, with its query. The check passes if the status of the response is one of `status`. \
             The request is HTTP/1.1.",
            "",
        ),
        key(
            "tcp",
            True,
            Absent,
            "The check passes if a connection can be opened, with TLS if the pool has `tls`.",
            "",
        ),
        key(
            "grpc",
            Text("the name of a service, or \"\""),
            Absent,
            "The check calls `grpc.health.v1.Health/Check` over HTTP/2 with this name, and passes if the response is SERVING. `\"\"` asks \
             for the server as a whole.",
            "",
        ),
        key(
            "websocket",
            Text("a path, such as \"/ws\""),
            Absent,
            "The check opens a WebSocket connection with a request for this path, sends a Close frame, and passes if the server \
             sends one, too.",
            "",
        ),
        key(
            "body",
            Text("a text, such as \"ok\""),
            Absent,
            "A check by `http` passes only if the body of the response also contains this text, as the server sends it \
             (uncompressed), within its first `body-max` bytes.",
            "",
        ),
        key(
            "body-max",
            Size(1, 1 << 20),
            Value("\"64KiB\""),
            "How many bytes of a body are searched for `body`. The check fails if the text is not in them.",
            "A page for checks is short, and a check must not read a download.",
        ),
        key(
            "host",
            Text("a host, such as \"app.example\""),
            Absent,
            "Host of the request. Without it, the address of the server as in `servers`.",
            "",
        ),
        key(
            "method",
            Word(CheckMethod::WORDS),
            Value("\"GET\""),
            "Method of the request.",
            "Every server knows it, and the response of a health page is usually short.",
        ),
        key(
            "status",
            OneOf(&[Text("\"200-399\" or \"200,204\""), Number(200, 599)]),
            Value("\"200-399\""),
            "The statuses with which a check passes.",
            "A server that redirects to a login page is up; 4xx means that the path is wrong, and 5xx that the server \
             cannot serve.",
        ),
        key(
            "every",
            TIMEOUT,
            Value("\"2s\""),
            "Time from the start of a check to the start of the next. The time is shortened at random by up to a \
             tenth, so that several proxies do not check a server at the same moment.",
            "Notices a dead server within seconds, and costs a server less than one request per second.",
        ),
        key(
            "fast-every",
            TIMEOUT,
            Value("\"1s\""),
            "As `every`, while the results of a server differ from its state: between the first failure and `fall`, and \
             between the first success and `rise`. At most `every`.",
            "A failing server is marked down sooner, and a recovered one is used again sooner.",
        ),
        key(
            "timeout",
            TIMEOUT,
            Value("\"1s\""),
            "Time limit of a whole check: the connect, the TLS handshake if there is one, and the response up to the end of its head, \
             or of its `body`.",
            "A server that takes a second for its health page is too slow to be sent requests.",
        ),
        key(
            "rise",
            Number(1, 1000),
            Value("2"),
            "How many checks in a row must pass before a server that is down counts as up.",
            "A server that is still starting may pass a single check by chance.",
        ),
        key(
            "fall",
            Number(1, 1000),
            Value("3"),
            "How many checks in a row must fail before a server that is up counts as down.",
            "One lost packet must not mark a server down.",
        ),
        key(
            "keep-alive",
            OneOf(&[NoNumber("off"), Duration(1000, TIMEOUT_MS_MAX)]),
            Value("\"off\""),
            "How long the connection of a check by `http` is kept open and used for the next checks of the server. The time is \
             shortened at random by up to a half. A check that fails on a kept connection is repeated at once on a new \
             connection, and a connection on which a check failed is closed. If the server stops accepting connections, checks \
             over a kept connection can still pass for up to this time.",
            "A check over its own connection also finds a server that accepts no more connections. Set it to \"1m\" for \
             thousands of servers or for TLS: a check over a kept connection costs a fraction of a check with a new \
             connection.",
        ),
        key(
            "port",
            Number(1, 65_535),
            Absent,
            "Port that is checked instead of the server's own.",
            "",
        ),
        key(
            "tls",
            Boolean,
            Absent,
            "`false` checks without TLS although the pool has `tls`, such as on another `port`.",
            "",
        ),
    ],
    later: &[],
};
