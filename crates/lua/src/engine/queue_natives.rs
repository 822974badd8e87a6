//! The natives of `tide.queue`.
//! In: the number of a queue, and arguments that the prelude has checked. Out: values, or nil and an error.
//! Never: runs code or pushes a value onto a stack under the lock of a queue.

use core::ffi::{CStr, c_int};

use mlua_sys::lua51 as ffi;

use super::call::Call;
use crate::queue::Queue;
use crate::schedule::{Wait, span_of};

/// The functions by name.
pub(super) static ALL: &[(&CStr, ffi::lua_CFunction)] = &[
    (c"queue_names", names),
    (c"queue_push", push),
    (c"queue_pop", pop),
    (c"queue_wait", wait),
    (c"queue_length", length),
    (c"test_queue", test_queue),
];

const UNKNOWN: &str = "there is no such queue";

/// The queue that argument 1 names.
fn queue<'h>(call: Call) -> Option<&'h Queue> {
    call.host().facts.queues.get(call.id(1) as usize).map(|(_, queue)| &**queue)
}

natives! {
    /// () -> the names of the queues, in order.
    fn names(call) {
        call.push_table();
        for (at, (name, _)) in call.host().facts.queues.iter().enumerate() {
            call.push_number((at + 1) as f64);
            call.push_bytes(name.as_bytes());
            call.set_pair();
        }
        1
    }

    /// (queue, value) -> true; nil and an error.
    fn push(call) {
        let Some(value) = call.value(2) else {
            return call.fail("a value must be a string, a number or a boolean");
        };
        call.done(call.host().push_to_queue(call.id(1) as usize, value))
    }

    /// (queue, is the caller about to wait) -> value; nil without one; nil and an error.
    fn pop(call) {
        let Some(queue) = queue(call) else { return call.fail(UNKNOWN) };
        let value = match call.is_true(2) && call.can_wait() {
            true => queue.pop_or_wait(call.host().facts.worker),
            false => queue.pop(),
        };
        call.push_value(value.as_ref());
        1
    }

    /// (queue, seconds) -> true; false and an error.
    fn wait(call) {
        if queue(call).is_none() {
            return call.fail(UNKNOWN);
        }
        let by = call.host().now().after(span_of(call.number(2).unwrap_or(0.0)));
        let by = call.host().next_look(by);
        call.wait(Wait::Queue(call.id(1) as usize, by))
    }

    /// (queue) -> the number of values; nil and an error.
    fn length(call) {
        let Some(queue) = queue(call) else { return call.fail(UNKNOWN) };
        call.push_number(queue.length() as f64);
        1
    }

    /// (name) -> the number of a new queue. Only in the VMs of tests.
    fn test_queue(call) {
        let name = String::from_utf8_lossy(call.bytes(1).unwrap_or_default()).into_owned();
        call.push_number(call.host().add_queue(name) as f64);
        1
    }
}
