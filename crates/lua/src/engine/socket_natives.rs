//! The functions of sockets and of WebSocket connections to servers that the prelude calls.
//! In: arguments that the prelude has checked. Out: values, or nil and an error.
//! Never: raises a Lua error itself; performs I/O: each operation of a script becomes an effect for the worker.
//! Limits: those of `sockets.rs` and `server_websocket.rs`.

use core::ffi::{CStr, c_int};

use mlua_sys::lua51 as ffi;
use tidegate_base::Id;

use super::call::Call;
use crate::schedule::{Wait, span_of};
use crate::server_websocket::{Opening, Received, Sent};
use crate::sockets::{Portion, SocketId};

/// The functions by name.
pub(super) static ALL: &[(&CStr, ffi::lua_CFunction)] = &[
    (c"sock_open", sock_open),
    (c"sock_reuse", sock_reuse),
    (c"sock_wait", sock_wait),
    (c"sock_is_awaited", sock_is_awaited),
    (c"sock_send", sock_send),
    (c"sock_take", sock_take),
    (c"sock_keep", sock_keep),
    (c"sock_close", sock_close),
    (c"sock_is_secured", sock_is_secured),
    (c"ws_begin", ws_begin),
    (c"ws_next", ws_next),
    (c"ws_send", ws_send),
    (c"ws_serve", ws_serve),
];

/// The socket that the arguments 1 and 2 name.
fn socket(call: Call) -> SocketId {
    Id::new(call.id(1), call.id(2))
}

/// Pushes the index and the generation of a socket.
fn push_socket(call: Call, id: SocketId) -> c_int {
    call.push_number(f64::from(id.index));
    call.push_number(f64::from(id.generation));
    2
}

natives! {
    /// (number of a pool) -> index and generation of a socket that connects; false or nil, and an error.
    fn sock_open(call) {
        if !call.can_wait() {
            return call.wait(Wait::Nothing);
        }
        match call.host().open_socket(call.id(1) as usize) {
            Ok(id) => push_socket(call, id),
            Err(error) => call.fail(error),
        }
    }

    /// (name) -> index and generation of an idle socket, and how often it was reused; nil if no socket is idle.
    fn sock_reuse(call) {
        match call.bytes(1).and_then(|key| call.host().reuse_socket(key)) {
            Some((id, reuses)) => {
                push_socket(call, id);
                call.push_number(f64::from(reuses));
                3
            }
            None => {
                call.push_nil();
                1
            }
        }
    }

    /// (index, generation, is_read, seconds) -> true once more can be read, or written; false or nil, and an error.
    fn sock_wait(call) {
        let host = call.host();
        let by = host.now().after(span_of(call.number(4).unwrap_or(0.0)));
        match host.socket_wait(socket(call), call.is_true(3), by) {
            Ok(None) => call.done(Ok(())),
            Ok(Some(wait)) => call.wait(wait),
            Err(error) => call.fail(error),
        }
    }

    /// (index, generation) -> whether a coroutine waits for the socket.
    fn sock_is_awaited(call) {
        call.push_boolean(call.host().is_socket_awaited(socket(call)));
        1
    }

    /// (index, generation, bytes) -> true; nil and an error.
    fn sock_send(call) {
        let data = call.bytes(3).unwrap_or_default();
        call.done(call.host().send_socket(socket(call), data))
    }

    /// (index, generation, kind, number or text) -> bytes, whether the portion is complete; nil and an error.
    fn sock_take(call) {
        let count = call.number(4).unwrap_or(0.0) as usize;
        let portion = match call.id(3) {
            0 => Portion::Line(call.number(4).map_or(usize::MAX, |most| most as usize)),
            1 => Portion::Bytes(count),
            2 => Portion::All,
            3 => Portion::Any(count),
            _ => Portion::Until(call.bytes(4).unwrap_or_default()),
        };
        match call.host().socket_piece(socket(call), portion) {
            Ok((piece, bytes)) => {
                call.push_bytes(bytes);
                call.push_boolean(piece.is_complete);
                call.host().consume(socket(call), &piece);
                2
            }
            Err(error) => call.fail(error),
        }
    }

    /// (index, generation, name, seconds, most) -> true; nil and an error.
    fn sock_keep(call) {
        let (span, most) = (span_of(call.number(4).unwrap_or(0.0)), call.id(5) as usize);
        let key = call.bytes(3).unwrap_or_default();
        call.done(call.host().keep_socket(socket(call), key, (span, most)))
    }

    /// (index, generation)
    fn sock_close(call) {
        call.host().close_socket(socket(call));
        0
    }

    /// (index, generation) -> whether its connection uses TLS.
    fn sock_is_secured(call) {
        call.push_boolean(call.host().is_secured(socket(call)));
        1
    }

    /// (index, generation, path, host, fields, subprotocols, bytes of a message) -> true; nil and an error.
    fn ws_begin(call) {
        let opening = Opening {
            target: call.bytes(3).unwrap_or_default(),
            host: call.bytes(4).unwrap_or_default(),
            fields: call.bytes(5).unwrap_or_default(),
            protocols: call.bytes(6).unwrap_or_default(),
            message_bytes_max: call.number(7).unwrap_or(0.0),
        };
        call.outcome(call.host().open_websocket(socket(call), &opening))
    }

    /// (index, generation) -> "more"; "open" and the subprotocol; "text", "binary" or "ping" and data; "pong"; "close", code
    /// and reason; nil and an error.
    fn ws_next(call) {
        let show = |received: Received<'_>| {
            let (kind, data) = match received {
                Received::More => ("more", None),
                Received::Open(protocol) => ("open", protocol.map(str::as_bytes)),
                Received::Text(data) => ("text", Some(data)),
                Received::Binary(data) => ("binary", Some(data)),
                Received::Ping(data) => ("ping", Some(data)),
                Received::Pong => ("pong", None),
                Received::Close(close) => {
                    // RFC 6455 section 7.1.5: 1005 means a frame without a code.
                    let (code, reason) = close.map_or((1005, ""), |close| (close.code.get(), close.reason));
                    call.push_bytes(b"close");
                    call.push_number(f64::from(code));
                    call.push_bytes(reason.as_bytes());
                    return 3;
                }
            };
            call.push_bytes(kind.as_bytes());
            match data {
                Some(data) => call.push_bytes(data),
                None => call.push_nil(),
            }
            2
        };
        match call.host().receive_frame(socket(call), show) {
            Ok(count) => count,
            Err(error) => call.fail(&error),
        }
    }

    /// (index, generation, kind, data, code) -> true; nil and an error.
    fn ws_send(call) {
        let data = call.bytes(4).unwrap_or_default();
        let sent = match call.id(3) {
            0 => Sent::Text(data),
            1 => Sent::Binary(data),
            2 => Sent::Pong(data),
            _ => Sent::Close(call.id(5), data),
        };
        call.outcome(call.host().send_frame(socket(call), &sent))
    }

    /// (index, generation, key of a client) -> the key for the response; nil and an error. Only in the VMs of tests.
    fn ws_serve(call) {
        let key = call.bytes(3).unwrap_or_default();
        match call.host().accept_websocket(socket(call), key) {
            Ok(accept) => {
                call.push_bytes(accept.as_bytes());
                1
            }
            Err(error) => call.fail(error),
        }
    }
}
