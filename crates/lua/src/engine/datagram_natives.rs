//! The functions that the prelude calls for sockets for datagrams and for lookups of names.
//! In: arguments that the prelude has checked. Out: values, or nil and an error.
//! Never: raises a Lua error itself; performs I/O: each operation of a script becomes an effect for the worker.
//! Limits: those of `datagrams.rs` and of operations.

use core::ffi::{CStr, c_int};
use core::net::{IpAddr, SocketAddr};

use mlua_sys::lua51 as ffi;
use tidegate_base::Id;
use tidegate_wire::dns::{Question, RecordKind};

use super::call::Call;
use crate::datagrams::DatagramSocketId;
use crate::schedule::{Wait, span_of};

/// The functions by name.
pub(super) static ALL: &[(&CStr, ffi::lua_CFunction)] = &[
    (c"is_address", is_address),
    (c"look_up", look_up),
    (c"udp_open", udp_open),
    (c"udp_wait", udp_wait),
    (c"udp_send", udp_send),
    (c"udp_take", udp_take),
    (c"udp_close", udp_close),
];

/// The socket that the arguments 1 and 2 name.
fn socket(call: Call) -> DatagramSocketId {
    Id::new(call.id(1), call.id(2))
}

/// The argument at `index`, if it is an IP address.
fn address(call: Call, index: c_int) -> Option<IpAddr> {
    core::str::from_utf8(call.bytes(index)?).ok()?.parse().ok()
}

natives! {
    /// (string) -> whether it is an IP address.
    fn is_address(call) {
        call.push_boolean(address(call, 1).is_some());
        1
    }

    /// (name, kind of record) -> true, and the records as JSON; false or nil, and an error.
    fn look_up(call) {
        if !call.can_wait() {
            return call.wait(Wait::Nothing);
        }
        let text = |index| core::str::from_utf8(call.bytes(index).unwrap_or_default()).ok();
        let kind = text(2).and_then(RecordKind::of);
        let question = text(1).zip(kind).and_then(|(name, kind)| Question::new(name, kind));
        let Some(question) = question else { return call.fail("not a valid DNS name") };
        match call.host().start_lookup(question) {
            Ok(operation) => call.wait(Wait::Operation(operation)),
            Err(error) => call.fail(error),
        }
    }

    /// (address, port) -> index and generation of a socket that the worker opens; false or nil, and an error.
    fn udp_open(call) {
        if !call.can_wait() {
            return call.wait(Wait::Nothing);
        }
        let Some(address) = address(call, 1) else { return call.fail("not an IP address") };
        match call.host().open_datagrams(SocketAddr::new(address, call.id(2) as u16)) {
            Ok(id) => {
                call.push_number(f64::from(id.index));
                call.push_number(f64::from(id.generation));
                2
            }
            Err(error) => call.fail(error),
        }
    }

    /// (index, generation, is_read, seconds) -> true once a datagram can be taken, or the socket is open; false or nil, and an
    /// error.
    fn udp_wait(call) {
        let host = call.host();
        let by = host.now().after(span_of(call.number(4).unwrap_or(0.0)));
        match host.datagram_wait(socket(call), call.is_true(3), by) {
            Ok(None) => call.done(Ok(())),
            Ok(Some(wait)) => call.wait(wait),
            Err(error) => call.fail(error),
        }
    }

    /// (index, generation, bytes) -> true once the kernel has taken the datagram; false or nil, and an error.
    fn udp_send(call) {
        if !call.can_wait() {
            return call.wait(Wait::Nothing);
        }
        let data = call.bytes(3).unwrap_or_default();
        match call.host().send_datagram(socket(call), data) {
            Ok(operation) => call.wait(Wait::Operation(operation)),
            Err(error) => call.fail(error),
        }
    }

    /// (index, generation) -> a datagram; false if none waits; nil and an error.
    fn udp_take(call) {
        match call.host().take_datagram(socket(call)) {
            Ok(Some(bytes)) => call.push_bytes(&bytes),
            Ok(None) => call.push_boolean(false),
            Err(error) => return call.fail(error),
        }
        1
    }

    /// (index, generation)
    fn udp_close(call) {
        call.host().close_datagrams(socket(call));
        0
    }
}
