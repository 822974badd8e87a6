//! The settings of WebSocket connections that Tidegate serves itself.
//! In: nothing. Out: the section `[websocket]`, which `FILE` and `ROUTE` refer to.

use super::Preset::Value;
use super::Shape::{Duration, List, NoNumber, Number, OneOf, Size, Text, Word};
use super::{Section, TIMEOUT, TIMEOUT_MS_MAX, TIMEOUT_MS_MIN, key};
use crate::model::Compression;
use crate::words::Keyword as _;

/// Maximum of `message-max` and `frame-max`.
const BYTES_MAX: u64 = tidegate_base::limits::WEBSOCKET_MESSAGE_BYTES_CEILING as u64;

/// `[websocket]`, and `websocket = { ... }` of a route.
pub static WEBSOCKET: Section = Section {
    path: "[websocket]",
    about: "WebSocket connections that Tidegate serves itself (`echo`, `push`, `lua`). A route changes individual settings \
             with `websocket = { ... }`. Of these settings, only \
             `message-max` and `frame-max` apply to connections that `proxy` forwards, if an `on_frame` of `hooks` sees their messages.",
    keys: &[
        key(
            "origins",
            List(&Text(
                "\"same-origin\", \"https://example.com\", \"https://*.example.com\", \"null\" or \"*\"",
            )),
            Value("[\"same-origin\"]"),
            "The web pages that may connect, by the Origin field of the request. \"same-origin\" matches pages of \
             the host and port that the request names in Host, \"https://*.example.com\" matches every name below \
             example.com, \"null\" matches pages without an origin such as local files, and \"*\" matches every page. \
             Other pages get a 403 response. A request without an Origin field is accepted: browsers always \
             send one, and other clients could forge it.",
            "Browsers send cookies with WebSocket requests of any page, so without this check a foreign page could \
             act on behalf of its visitor.",
        ),
        key(
            "subprotocols",
            List(&Text("a token, such as \"chat\"")),
            Value("[]"),
            "The supported subprotocols. The first one in the client's list that is also in this list is used. A \
             client that offers no supported subprotocol gets a connection without one.",
            "",
        ),
        key(
            "compression",
            Word(Compression::WORDS),
            Value("\"off\""),
            "Compression of messages (permessage-deflate) with clients that offer it. With \"shared\", each message \
             is compressed independently, and a connection needs no memory for it. With \"dedicated\", messages refer \
             to earlier messages, which makes small messages much shorter but takes up to 300 KiB for each connection.",
            "Compression costs CPU time. If a message contains a secret and text chosen by an attacker, the attacker \
             can guess the secret from the lengths of compressed messages.",
        ),
        key(
            "window-bits",
            Number(9, 15),
            Value("15"),
            "How far back a compressed message may refer, in bits: 15 is 32 KiB, 9 is 512 bytes. The limit applies to messages \
             from Tidegate, and to messages of clients that accept a limit (`client_max_window_bits`; browsers do). A client \
             may choose a smaller window for itself.",
            "The largest window compresses best. With compression = \"dedicated\", a smaller one saves memory: a connection \
             takes about 300 KiB with 15 bits, 60 KiB with 12 and 15 KiB with 9.",
        ),
        key(
            "message-max",
            Size(1, BYTES_MAX),
            Value("\"1MiB\""),
            "Maximum size of a message, after decompression. A longer one closes the connection with code 1009.",
            "A message that does not arrive in one read is kept in memory until it is complete.",
        ),
        key(
            "frame-max",
            OneOf(&[NoNumber("unlimited"), Size(1, BYTES_MAX)]),
            Value("\"unlimited\""),
            "Maximum size of the payload of a frame. A longer one closes the connection with code 1009.",
            "A frame is a part of a message, which `message-max` limits.",
        ),
        key(
            "idle-timeout",
            OneOf(&[NoNumber("off"), Duration(TIMEOUT_MS_MIN, TIMEOUT_MS_MAX)]),
            Value("\"off\""),
            "Time without a message, after which the connection is closed with code 1001. Pings do not count.",
            "A client that only waits does nothing wrong, and `ping-every` finds clients that are gone.",
        ),
        key(
            "ping-every",
            OneOf(&[NoNumber("off"), Duration(TIMEOUT_MS_MIN, TIMEOUT_MS_MAX)]),
            Value("\"30s\""),
            "Time without a byte from the client, after which it gets a Ping. The time is shortened at random by up \
             to a quarter, so that the Pings to clients that connected together spread out.",
            "Proxies and routers between client and server often forget connections that are silent for a minute.",
        ),
        key(
            "pong-timeout",
            TIMEOUT,
            Value("\"10s\""),
            "If no byte arrives from the client within this time after a Ping, the connection is closed with code \
             1011. The client's response to a Close frame has the same time limit.",
            "A client that is still there responds within a round trip.",
        ),
    ],
    later: &[],
};
