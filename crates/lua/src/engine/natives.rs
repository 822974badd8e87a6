//! The functions that the prelude calls: functions that Lua lacks, or whose time Lua does not bound.
//! In: arguments that the prelude has checked. Out: values, or nil and an error.
//! Never: raises a Lua error itself; performs I/O: each operation of a script becomes an effect for the worker.
//! Limits: those of `Host`; `LOAD_BYTES_MAX` bytes of source in one chunk.

use core::ffi::{CStr, c_char, c_int, c_void};

use aws_lc_rs::{digest, hmac};
use mlua_sys::lua51 as ffi;
use tidegate_base::{Id, Moment};

use super::call::Call;
use super::guard::Guard;
use super::json;
use crate::encoding;
use crate::exchange::Part;
use crate::host::{
    ClientId, Host, Level, OUTPUT_BYTES_MAX, RemoteClient, ScriptRequestId, TOO_MUCH,
};
use crate::outgoing::Parts;
use crate::pattern::{self, Capture};
use crate::schedule::{Cancelled, JobId, Wait, span_of};

/// Maximum number of bytes of source in one chunk.
const LOAD_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Bytes of source that are compiled between two checks of the budget: about a millisecond.
const LOAD_PIECE_BYTES: usize = 4 * 1024;

/// The functions by name.
pub(super) static ALL: &[(&CStr, ffi::lua_CFunction)] = &[
    (c"find", find),
    (c"load", load),
    (c"source", source),
    (c"env_of", env_of),
    (c"mark_array", mark_array),
    (c"declare", declare),
    (c"fact", fact),
    (c"log", log),
    (c"is_waiting", is_waiting),
    (c"cancel_wait", cancel_wait),
    (c"now", now),
    (c"elapsed", elapsed),
    (c"memory", memory),
    (c"sleep", sleep),
    (c"add_job", add_job),
    (c"cancel_job", cancel_job),
    (c"is_last_run", is_last_run),
    (c"wait_job", wait_job),
    (c"push_names", push_names),
    (c"push_call", push_call),
    (c"pool_names", pool_names),
    (c"check_field", check_field),
    (c"send_request", send_request),
    (c"test_call", test_call),
    (c"test_dictionary", test_dictionary),
    (c"test_name", test_name),
    (c"send", send),
    (c"close", close),
    (c"is_open", is_open),
    (c"queued", queued),
    (c"set_handover_state", set_handover_state),
    (c"premature", premature),
    (c"has_other_vms", has_other_vms),
    (c"send_remote", send_remote),
    (c"close_remote", close_remote),
    (c"part", part),
    (c"field", field),
    (c"fields", fields),
    (c"params", params),
    (c"status", status),
    (c"set_field", set_field),
    (c"write", write),
    (c"finish_json", finish_json),
    (c"flush", flush),
    (c"finish", finish),
    (c"drop_response", drop_response),
    (c"has_ended", has_ended),
    (c"reply_status", reply_status),
    (c"reply_fields", reply_fields),
    (c"set_reply_status", set_reply_status),
    (c"change_reply_field", change_reply_field),
    (c"set_method", set_method),
    (c"set_host", set_host),
    (c"set_path", set_path),
    (c"set_query", set_query),
    (c"change_field", change_field),
    (c"choose_pool", choose_pool),
    (c"json_encode", json_encode),
    (c"json_decode", json_decode),
    (c"hash", hash),
    (c"hmac", hmac_of),
    (c"encode_base64", encode_base64),
    (c"decode_base64", decode_base64),
    (c"encode_hex", encode_hex),
    (c"unescape", unescape),
    (c"escape", escape),
];

/// The client that the arguments 1 and 2 name.
fn client(call: Call) -> ClientId {
    Id::new(call.id(1), call.id(2))
}

/// The client of another worker that the arguments 1, 2, 5 and 6 name.
fn away(call: Call) -> RemoteClient {
    RemoteClient { worker: call.id(5), life: call.id(6), client: client(call) }
}

/// The job that the arguments 1 and 2 name.
fn job(call: Call) -> JobId {
    Id::new(call.id(1), call.id(2))
}

/// The exchange that the arguments 1 and 2 name.
fn exchange(call: Call) -> ScriptRequestId {
    Id::new(call.id(1), call.id(2))
}

/// What the compiler has not read yet.
struct Source<'s> {
    text: &'s [u8],
    guard: &'static Guard,
    /// The budget ended before the source.
    is_stopped: bool,
}

/// Hands the next piece of a source to the compiler, which runs in C, where nothing else checks the budget.
unsafe extern "C-unwind" fn read_source(
    _: *mut ffi::lua_State,
    source: *mut c_void,
    length: *mut usize,
) -> *const c_char {
    // SAFETY: `load` passes a source that it keeps, and LuaJIT a place for the length.
    let (source, length) = unsafe { (&mut *source.cast::<Source<'_>>(), &mut *length) };
    let (piece, rest) = source.text.split_at(source.text.len().min(LOAD_PIECE_BYTES));
    source.text = rest;
    source.is_stopped |= source.guard.spend(piece.len() as u64);
    *length = if source.is_stopped { 0 } else { piece.len() };
    piece.as_ptr().cast()
}

natives! {
    /// (text, pattern, init, is_plain, is_anchored) -> start, end, captures...; nil if nothing matches; nil and an error.
    fn find(call) {
        let (Some(text), Some(pattern)) = (call.bytes(1), call.bytes(2)) else {
            return call.fail("the arguments must be strings");
        };
        let init = call.number(3).unwrap_or(1.0);
        let from = if init < 0.0 { (text.len() as f64 + init).max(0.0) } else { (init - 1.0).max(0.0) };
        let from = from as usize;
        if from > text.len() {
            call.push_nil();
            return 1;
        }
        if call.is_true(4) || pattern::is_plain(pattern) {
            let Some(at) = memchr::memmem::find(&text[from..], pattern) else {
                call.push_nil();
                return 1;
            };
            call.push_number((from + at + 1) as f64);
            call.push_number((from + at + pattern.len()) as f64);
            return 2;
        }
        let spend = |steps| call.guard().spend(steps);
        match pattern::find(text, pattern, from, call.is_true(5), &spend) {
            Err(error) => call.fail(error),
            Ok(None) => {
                call.push_nil();
                1
            }
            Ok(Some(found)) => {
                if !call.reserve(found.captures.len() + 4) {
                    return call.fail("too many captures");
                }
                call.push_number((found.place.start + 1) as f64);
                call.push_number(found.place.end as f64);
                for capture in &found.captures {
                    match *capture {
                        Capture::Text(start, end) => call.push_bytes(&text[start..end]),
                        Capture::Position(at) => call.push_number(at as f64),
                    }
                }
                2 + found.captures.len() as c_int
            }
        }
    }

    /// (source, name) -> function; nil and an error. Bytecode is refused.
    fn load(call) {
        let (Some(source), Some(name)) = (call.bytes(1), call.bytes(2)) else {
            return call.fail("the arguments must be strings");
        };
        if source.first() == Some(&0x1b) {
            return call.fail("bytecode is not allowed");
        }
        if source.len() > LOAD_BYTES_MAX {
            return call.fail("the source exceeds 4 MiB");
        }
        let mut ended = name.to_vec();
        ended.retain(|byte| *byte != 0);
        ended.push(0);
        let mut rest = Source { text: source, guard: call.guard(), is_stopped: false };
        // SAFETY: the state is live; the source and the name, which ends with a zero, are valid during the call.
        let status = unsafe {
            ffi::lua_load(call.l, read_source, (&raw mut rest).cast(), ended.as_ptr().cast())
        };
        if rest.is_stopped {
            return call.fail("the callback exceeds its budget");
        }
        if status == ffi::LUA_OK {
            return 1;
        }
        call.push_nil();
        // SAFETY: the stack holds the message and nil; they change places.
        unsafe { ffi::lua_insert(call.l, -2) };
        2
    }

    /// (module) -> source, file name; false if there is none; nil and an error.
    fn source(call) {
        let name = call.bytes(1).and_then(|name| core::str::from_utf8(name).ok());
        let Some(name) = name else { return call.fail("the name of the module must be a string") };
        match (call.host().find_module)(name) {
            Ok(Some((file, text))) => {
                call.push_bytes(&text);
                call.push_bytes(file.as_bytes());
                2
            }
            Ok(None) => {
                call.push_boolean(false);
                1
            }
            Err(error) => call.fail(&error),
        }
    }

    /// (function) -> its environment.
    fn env_of(call) {
        // SAFETY: the state is live; any value is allowed.
        unsafe { ffi::lua_getfenv(call.l, 1) };
        1
    }

    /// (table): decoded arrays get this metatable.
    fn mark_array(call) {
        // SAFETY: the state is live, and the argument is on the stack.
        unsafe {
            ffi::lua_pushvalue(call.l, 1);
            ffi::lua_setfield(call.l, ffi::LUA_REGISTRYINDEX, c"tidegate.array".as_ptr());
        }
        0
    }

    /// (number of a handler): the script has this handler.
    fn declare(call) {
        call.host().handlers |= 1_u32.checked_shl(call.id(1)).unwrap_or(0);
        0
    }

    /// (name) -> a fact about the application.
    fn fact(call) {
        let memory_bytes_max = call.host().memory_bytes_max;
        let facts = &call.host().facts;
        match call.bytes(1) {
            Some(b"memory_max") => call.push_number(memory_bytes_max as f64),
            Some(b"app") => call.push_bytes(facts.app.as_bytes()),
            Some(b"worker") => call.push_number(f64::from(facts.worker)),
            Some(b"pid") => call.push_number(f64::from(std::process::id())),
            Some(b"workers") => call.push_number(f64::from(facts.workers)),
            Some(b"settings") => call.push_bytes(&facts.settings),
            Some(b"life") => call.push_number(f64::from(facts.client_life)),
            Some(b"io") => call.push_boolean(facts.permissions.io),
            Some(b"os") => call.push_boolean(facts.permissions.os),
            Some(b"seed") => call.push_number((facts.seed >> 11) as f64),
            _ => call.push_nil(),
        }
        1
    }

    /// (level, text)
    fn log(call) {
        let level = match call.id(1) {
            0 => Level::Error,
            1 => Level::Warning,
            _ => Level::Info,
        };
        if let Some(text) = call.bytes(2) {
            call.host().log(level, text);
        }
        0
    }

    /// () -> whether a coroutine of this callback waits for an operation.
    fn is_waiting(call) {
        call.push_boolean(call.host().wait != Wait::Nothing);
        1
    }

    /// () Ends the wait of the coroutine that was suspended last: it continues without a result.
    fn cancel_wait(call) {
        call.host().cancel_wait();
        0
    }

    /// () -> seconds since 1970.
    fn now(call) {
        call.push_number(call.host().unix_seconds);
        1
    }

    /// () -> seconds of a clock that never jumps.
    fn elapsed(call) {
        call.push_number(call.host().now_nanos as f64 / 1e9);
        1
    }

    /// () -> bytes that the VM holds.
    fn memory(call) {
        call.push_number(call.guard().used_bytes() as f64);
        1
    }

    /// (seconds) -> true; false and an error.
    fn sleep(call) {
        let until = call.host().now().after(span_of(call.number(1).unwrap_or(0.0)));
        call.wait(Wait::Until(until))
    }

    /// (delay, interval or nil, does it run before its time rather than never) -> index, generation of a job; nil and an error.
    fn add_job(call) {
        let (delay, interval) = (span_of(call.number(1).unwrap_or(0.0)), call.number(2).map(span_of));
        let (now, is_owed) = (call.host().now(), call.is_true(3));
        match call.host().schedule.add_job(now, delay, interval, is_owed) {
            Some(id) => {
                call.push_number(f64::from(id.index));
                call.push_number(f64::from(id.generation));
                2
            }
            None => call.fail("the application has too many timers and threads"),
        }
    }

    /// (index, generation) -> whether the job is gone; nil if it had ended before.
    fn cancel_job(call) {
        match call.host().schedule.cancel_job(job(call)) {
            Cancelled::Gone => call.push_boolean(true),
            Cancelled::Later => call.push_boolean(false),
            Cancelled::Never => call.push_nil(),
        }
        1
    }

    /// (index, generation) -> whether the job ends when its function returns.
    fn is_last_run(call) {
        call.push_boolean(call.host().schedule.is_last_run(job(call)));
        1
    }

    /// (index, generation, seconds or nil) -> true; false and an error.
    fn wait_job(call) {
        let job = job(call);
        let seconds = call.number(3);
        let host = call.host();
        let by = seconds.map_or(Moment::NEVER, |seconds| host.now().after(span_of(seconds)));
        let error = match host.schedule.has_job(job) {
            true if host.schedule.running != job => return call.wait(Wait::Job(job, by)),
            true => "a job cannot wait for itself",
            false => "the function was stopped",
        };
        call.push_boolean(false);
        call.push_bytes(error.as_bytes());
        2
    }

    /// () -> a list of the names of push hubs.
    fn push_names(call) {
        push_list(call, &call.host().facts.hubs)
    }

    /// () -> a list of the names of the pools to which the application may send requests.
    fn pool_names(call) {
        push_list(call, &call.host().facts.pools)
    }

    /// (name, value) -> true; nil and an error if a request to a server cannot have this field.
    fn check_field(call) {
        let (Some(name), Some(value)) = (call.bytes(1), call.bytes(2)) else {
            return call.fail("the arguments must be strings");
        };
        call.outcome(Host::check_field(name, value))
    }

    /// (number of a pool, method, path and query, host or nil, fields, body or nil, seconds, bytes of a response) -> true,
    /// content, status, fields; false or nil, and an error.
    fn send_request(call) {
        if !call.can_wait() {
            return call.wait(Wait::Nothing);
        }
        let (Some(method), Some(target), Some(fields)) = (call.bytes(2), call.bytes(3), call.bytes(5)) else {
            return call.fail("the arguments must be strings");
        };
        let parts = Parts {
            pool: call.id(1) as usize,
            method,
            target,
            host: call.bytes(4).unwrap_or_default(),
            fields,
            body: call.bytes(6),
            body_bytes_max: call.number(8).unwrap_or(0.0),
            timeout: span_of(call.number(7).unwrap_or(0.0)),
        };
        match call.host().start_request(&parts) {
            Ok(operation) => call.wait(Wait::Operation(operation)),
            Err(error) => call.fail(error),
        }
    }

    /// (hub, method, arguments as JSON) -> true and the response of the server API; false and an error.
    fn push_call(call) {
        if !call.can_wait() {
            return call.wait(Wait::Nothing);
        }
        let (Some(hub), Some(method), Some(arguments)) = (call.bytes(1), call.bytes(2), call.bytes(3)) else {
            return call.fail("the arguments must be strings");
        };
        match call.host().start_push_call(hub, method, arguments) {
            Ok(operation) => call.wait(Wait::Operation(operation)),
            Err(error) => call.fail(error),
        }
    }

    /// (method, arguments as JSON, data) -> true and the result; false and an error. Only in the VMs of tests.
    fn test_call(call) {
        if !call.can_wait() {
            return call.wait(Wait::Nothing);
        }
        let (Some(method), Some(arguments), Some(data)) = (call.bytes(1), call.bytes(2), call.bytes(3)) else {
            return call.fail("the arguments must be strings");
        };
        match call.host().start_test_call(method, arguments, data) {
            Ok(operation) => call.wait(Wait::Operation(operation)),
            Err(error) => call.fail(error),
        }
    }

    /// (name) -> the index of a new dictionary. Only in the VMs of tests.
    fn test_dictionary(call) {
        let name = String::from_utf8_lossy(call.bytes(1).unwrap_or_default()).into_owned();
        call.push_number(call.host().add_dictionary(name) as f64);
        1
    }

    /// (name): there is a test of this name.
    fn test_name(call) {
        let name = String::from_utf8_lossy(call.bytes(1).unwrap_or_default()).into_owned();
        call.host().tests.push(name);
        0
    }

    /// (index, generation, data, is text)
    fn send(call) {
        let Some(data) = call.bytes(3) else { return call.fail("the data must be a string") };
        call.done(call.host().send(client(call), data, call.is_true(4)))
    }

    /// (index, generation, code, reason)
    fn close(call) {
        let Some(reason) = call.bytes(4) else { return call.fail("the reason must be a string") };
        call.done(call.host().close_connection(client(call), call.id(3), reason))
    }

    /// (index, generation) -> whether messages are delivered.
    fn is_open(call) {
        call.push_boolean(call.host().client(client(call)).is_ok());
        1
    }

    /// (index, generation) -> bytes that wait for the client; 0 if its connection is closed.
    fn queued(call) {
        let queued = call.host().clients.get(client(call)).map_or(0, |client| client.queued);
        call.push_number(queued as f64);
        1
    }

    /// (state): the state of the client that is handed over.
    fn set_handover_state(call) {
        let Some(state) = call.bytes(1) else { return call.fail("the state must be a string") };
        call.done(call.host().set_handover_state(state))
    }

    /// () -> false; the seconds until the VM ends, if other code has taken its place or the process stops.
    fn premature(call) {
        match call.host().seconds_left() {
            None => call.push_boolean(false),
            Some(seconds) => call.push_number(seconds),
        }
        1
    }

    /// () -> whether another VM of the application on this worker may have clients.
    fn has_other_vms(call) {
        let has_other_vms = call.host().has_other_vms();
        call.push_boolean(has_other_vms);
        1
    }

    /// (index, generation, data, is text, worker, life): to a client of another VM.
    fn send_remote(call) {
        let Some(data) = call.bytes(3) else { return call.fail("the data must be a string") };
        call.done(call.host().send_remote(away(call), data, call.is_true(4)))
    }

    /// (index, generation, code, reason, worker, life): of a client of another VM.
    fn close_remote(call) {
        let Some(reason) = call.bytes(4) else { return call.fail("the reason must be a string") };
        call.done(call.host().close_remote(away(call), call.id(3), reason))
    }

    /// (index, generation, part) -> a part of the request; nil if it has none.
    fn part(call) {
        let part = Part::of(call.id(3)).zip(call.host().exchanges.get(exchange(call)));
        match part.and_then(|(part, exchange)| exchange.part(part)) {
            Some(bytes) => call.push_bytes(&bytes),
            None => call.push_nil(),
        }
        1
    }

    /// (index, generation, name in lower case) -> the value of a request field; several values are joined by commas.
    fn field(call) {
        let (Some(name), Some(exchange)) = (call.bytes(3), call.host().exchanges.get(exchange(call))) else {
            call.push_nil();
            return 1;
        };
        let mut values = exchange.fields().filter(|(other, _)| other.as_bytes().eq_ignore_ascii_case(name)).map(|(_, value)| value);
        match (values.next(), values.next()) {
            (None, _) => call.push_nil(),
            (Some(value), None) => call.push_bytes(value),
            (Some(first), Some(second)) => {
                let mut joined = first.to_vec();
                for value in core::iter::once(second).chain(values) {
                    joined.extend_from_slice(b", ");
                    joined.extend_from_slice(value);
                }
                call.push_bytes(&joined);
            }
        }
        1
    }

    /// (index, generation) -> a list of names and values of the request's fields, in turn.
    fn fields(call) {
        call.push_table();
        if let Some(exchange) = call.host().exchanges.get(exchange(call)) {
            push_fields(call, exchange.fields());
        }
        1
    }

    /// (index, generation) -> the status of a server's response; nil after `on_response` and `on_body`.
    fn reply_status(call) {
        match call.host().reply(exchange(call)) {
            Ok(reply) => call.push_number(reply.status.into()),
            Err(_) => call.push_nil(),
        }
        1
    }

    /// (index, generation) -> a list of names and values of the fields of a server's response, in turn.
    fn reply_fields(call) {
        call.push_table();
        if let Ok(reply) = call.host().reply(exchange(call)) {
            push_fields(call, reply.fields());
        }
        1
    }

    /// (index, generation, status)
    fn set_reply_status(call) {
        let (id, status) = (exchange(call), call.id(3));
        call.done(call.host().changeable_reply(id).and_then(|reply| reply.set_status(status)))
    }

    /// (index, generation, name, value or nil): adds a field of a server's response, or removes those of this name.
    fn change_reply_field(call) {
        let Some(name) = call.bytes(3) else { return call.fail("the name must be a string") };
        let (id, value) = (exchange(call), call.bytes(4));
        let reply = call.host().changeable_reply(id).map_err(str::to_owned);
        call.outcome(reply.and_then(|reply| reply.change_field(name, value)))
    }

    /// (index, generation) -> a list of names and values of the path's parameters, in turn.
    fn params(call) {
        call.push_table();
        if let Some(exchange) = call.host().exchanges.get(exchange(call)) {
            push_pairs(call, exchange.params());
        }
        1
    }

    /// (index, generation, status)
    fn status(call) {
        let status = call.id(3);
        if !(200..=599).contains(&status) {
            return call.fail("the status must be 200 to 599");
        }
        call.done(call.host().set_status(exchange(call), status as u16))
    }

    /// (index, generation, name, value or nil, replaces)
    fn set_field(call) {
        let Some(name) = call.bytes(3) else { return call.fail("the name must be a string") };
        call.outcome(call.host().set_field(exchange(call), name, call.bytes(4), call.is_true(5)))
    }

    /// (index, generation, data) -> true, whether `flush` must follow; or nil, an error, whether the response would be
    /// incomplete.
    fn write(call) {
        let Some(data) = call.bytes(3) else { return call.fail("the data must be a string") };
        let id = exchange(call);
        match call.host().write(id, data) {
            Ok(()) => {
                call.push_boolean(true);
                call.push_boolean(call.host().must_flush(id));
                2
            }
            Err(error) => {
                let count = call.fail(error);
                call.push_boolean(error == TOO_MUCH);
                count + 1
            }
        }
    }

    /// (index, generation, value): completes the response with the value as JSON, and sets Content-Type unless the script has set it.
    fn finish_json(call) {
        let id = exchange(call);
        let Some(mut out) = call.host().take_written(id) else {
            return call.fail("the response has ended");
        };
        let start = out.len();
        let room = OUTPUT_BYTES_MAX.saturating_sub(call.host().outbox.bytes.len());
        let result = json::encode(call, 3, &mut out);
        let result = if out.len() > room { result.and(Err(TOO_MUCH)) } else { result };
        if result.is_err() {
            out.truncate(start);
        }
        call.host().put_written_json(id, out);
        call.done(result.and_then(|()| call.host().finish(id)))
    }

    /// (index, generation) -> true once the client has read; false or nil, and an error.
    fn flush(call) {
        let id = exchange(call);
        if let Err(error) = call.host().flush(id) {
            return call.fail(error);
        }
        if !call.can_wait() {
            call.push_boolean(true);
            return 1;
        }
        call.host().request_drain(id);
        call.wait(Wait::Drain(id))
    }

    /// (index, generation)
    fn finish(call) {
        call.done(call.host().finish(exchange(call)))
    }

    /// (index, generation)
    fn drop_response(call) {
        call.done(call.host().drop_response(exchange(call)))
    }

    /// (index, generation, method)
    fn set_method(call) {
        let Some(method) = call.bytes(3) else { return call.fail("the method must be a string") };
        let id = exchange(call);
        call.done(call.host().exchange(id).and_then(|exchange| exchange.set_method(method)))
    }

    /// (index, generation, host)
    fn set_host(call) {
        let Some(host) = call.bytes(3) else { return call.fail("the host must be a string") };
        let id = exchange(call);
        call.done(call.host().exchange(id).and_then(|exchange| exchange.set_host(host)))
    }

    /// (index, generation, path)
    fn set_path(call) {
        let Some(path) = call.bytes(3) else { return call.fail("the path must be a string") };
        let id = exchange(call);
        call.done(call.host().exchange(id).and_then(|exchange| exchange.set_path(path)))
    }

    /// (index, generation, query or nil)
    fn set_query(call) {
        let (id, query) = (exchange(call), call.bytes(3));
        call.done(call.host().exchange(id).and_then(|exchange| exchange.set_query(query)))
    }

    /// (index, generation, name, value or nil, replaces): adds a field of the request, or removes those of this name, or both.
    fn change_field(call) {
        let Some(name) = call.bytes(3) else { return call.fail("the name must be a string") };
        let (id, value) = (exchange(call), call.bytes(4));
        let exchange = call.host().exchange(id).map_err(str::to_owned);
        let replaces = call.is_true(5);
        call.outcome(exchange.and_then(|exchange| exchange.change_field(name, value, replaces)))
    }

    /// (index, generation, name of a pool)
    fn choose_pool(call) {
        let Some(name) = call.bytes(3) else { return call.fail("the name must be a string") };
        let id = exchange(call);
        let exchange = call.host().exchange(id).map_err(str::to_owned);
        call.outcome(exchange.and_then(|exchange| exchange.choose_pool(name)))
    }

    /// (index, generation) -> whether the response is complete.
    fn has_ended(call) {
        call.push_boolean(call.host().has_ended(exchange(call)));
        1
    }

    /// (value) -> text; nil and an error.
    fn json_encode(call) {
        let mut text = Vec::new();
        match json::encode(call, 1, &mut text) {
            Ok(()) => {
                call.push_bytes(&text);
                1
            }
            Err(error) => call.fail(error),
        }
    }

    /// (text) -> value; nil and an error.
    fn json_decode(call) {
        let Some(text) = call.bytes(1) else { return call.fail("the text must be a string") };
        match json::decode(call, text, false, json::DEPTH_MAX) {
            Ok(()) => 1,
            Err((what, at)) => call.fail(&format!("{what} (at byte {})", at + 1)),
        }
    }

    /// (name of an algorithm, data) -> digest; nil and an error.
    fn hash(call) {
        let (Some(name), Some(data)) = (call.bytes(1), call.bytes(2)) else {
            return call.fail("the arguments must be strings");
        };
        let algorithm = match name {
            b"sha1" => &digest::SHA1_FOR_LEGACY_USE_ONLY,
            b"sha256" => &digest::SHA256,
            b"sha384" => &digest::SHA384,
            b"sha512" => &digest::SHA512,
            _ => return call.fail("the algorithms are sha1, sha256, sha384 and sha512"),
        };
        call.push_bytes(digest::digest(algorithm, data).as_ref());
        1
    }

    /// (name of an algorithm, key, data) -> code; nil and an error.
    fn hmac_of(call) {
        let (Some(name), Some(key), Some(data)) = (call.bytes(1), call.bytes(2), call.bytes(3)) else {
            return call.fail("the arguments must be strings");
        };
        let algorithm = match name {
            b"sha1" => hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY,
            b"sha256" => hmac::HMAC_SHA256,
            b"sha384" => hmac::HMAC_SHA384,
            b"sha512" => hmac::HMAC_SHA512,
            _ => return call.fail("the algorithms are sha1, sha256, sha384 and sha512"),
        };
        call.push_bytes(hmac::sign(&hmac::Key::new(algorithm, key), data).as_ref());
        1
    }

    /// (data, is for URLs) -> text.
    fn encode_base64(call) {
        let Some(data) = call.bytes(1) else { return call.fail("the data must be a string") };
        call.push_bytes(&encoding::base64(data, call.is_true(2)));
        1
    }

    /// (text) -> data; nil and an error.
    fn decode_base64(call) {
        let Some(text) = call.bytes(1) else { return call.fail("the text must be a string") };
        match encoding::from_base64(text) {
            Some(data) => {
                call.push_bytes(&data);
                1
            }
            None => call.fail("the text is not valid base64"),
        }
    }

    /// (data) -> hexadecimal digits.
    fn encode_hex(call) {
        let Some(data) = call.bytes(1) else { return call.fail("the data must be a string") };
        call.push_bytes(&encoding::hex(data));
        1
    }

    /// (text, plus is a space) -> the text with %XX decoded.
    fn unescape(call) {
        let Some(text) = call.bytes(1) else { return call.fail("the text must be a string") };
        call.push_bytes(&encoding::unescape(text, call.is_true(2)));
        1
    }

    /// (text) -> the text with all but unreserved characters as %XX.
    fn escape(call) {
        let Some(text) = call.bytes(1) else { return call.fail("the text must be a string") };
        call.push_bytes(&encoding::escape(text));
        1
    }
}

/// Fills the table on top of the stack with names in lower case and values in turn.
fn push_fields<'f>(call: Call, fields: impl Iterator<Item = (&'f str, &'f [u8])>) {
    let mut lower = Vec::new();
    for (at, (name, value)) in fields.enumerate() {
        lower.clear();
        lower.extend(name.bytes().map(|byte| byte.to_ascii_lowercase()));
        push_pair(call, at, &lower, value);
    }
}

/// Pushes a list of strings.
fn push_list(call: Call, strings: &[String]) -> c_int {
    call.push_table();
    for (at, string) in strings.iter().enumerate() {
        call.push_bytes(string.as_bytes());
        // SAFETY: the table is below the value.
        unsafe { ffi::lua_rawseti_(call.l, -2, (at + 1) as c_int) };
    }
    1
}

/// Fills the table on top of the stack with keys and values in turn.
fn push_pairs<'p>(call: Call, pairs: impl Iterator<Item = (&'p [u8], &'p [u8])>) {
    for (at, (name, value)) in pairs.enumerate() {
        push_pair(call, at, name, value);
    }
}

/// Adds the key and the value with the number `at` to the table on top of the stack.
fn push_pair(call: Call, at: usize, name: &[u8], value: &[u8]) {
    for (offset, bytes) in [name, value].into_iter().enumerate() {
        call.push_bytes(bytes);
        // SAFETY: the table is below the value.
        unsafe { ffi::lua_rawseti_(call.l, -2, (2 * at + offset + 1) as c_int) };
    }
}
