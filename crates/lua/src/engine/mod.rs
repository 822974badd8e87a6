//! The only part of the crate with `unsafe`: LuaJIT's C interface, behind safe types.
//! In: sources, arguments, native functions. Out: results and errors of Lua code, run as coroutines.
//! Never: runs bytecode; runs Lua code outside of a protected call; leaves a value on a stack.
//! Limits: `IDLE_COROUTINES_MAX` coroutines are kept for the next callbacks.
//! Invariant: a coroutine that was stopped or that failed is never resumed.

#[macro_use]
mod call;
mod body_natives;
mod cbor;
mod channel_natives;
mod cjson;
mod crypto_natives;
mod datagram_natives;
mod dictionary;
mod event_natives;
mod file_natives;
mod frame_natives;
mod guard;
mod json;
mod layer_natives;
mod natives;
mod queue_natives;
mod socket_natives;

use core::ffi::{CStr, c_char, c_int, c_void};
use core::ptr;
use core::slice;

use mlua_sys::lua51 as ffi;

use crate::host::Host;
use guard::Guard;
pub use guard::{Budget, Excess};

/// Coroutines that are kept for the next callbacks.
const IDLE_COROUTINES_MAX: usize = 64;
/// Maximum number of bytes of a traceback.
const TRACE_BYTES_MAX: usize = 4096;
/// Maximum number of collections after a callback that has exceeded the memory limit.
const COLLECTIONS_MAX: u32 = 16;

// Functions of LuaJIT 2.1 beyond Lua 5.1.
unsafe extern "C-unwind" {
    fn lua_isyieldable(l: *mut ffi::lua_State) -> c_int;
    #[link_name = "luaL_traceback"]
    fn lual_traceback(
        l: *mut ffi::lua_State,
        of: *mut ffi::lua_State,
        message: *const c_char,
        level: c_int,
    );
    #[link_name = "luaJIT_setmode"]
    fn luajit_setmode(l: *mut ffi::lua_State, index: c_int, mode: c_int) -> c_int;
    #[link_name = "lua_resume"]
    fn lua_resume(l: *mut ffi::lua_State, count: c_int) -> c_int;
}
/// `LUAJIT_MODE_ENGINE | LUAJIT_MODE_OFF` of luajit.h.
const JIT_OFF: c_int = 0;

/// A suspended or new coroutine, kept in the registry.
pub(crate) struct Coroutine {
    /// LuaJIT's state of the coroutine. Alive as long as `reference` is in the registry.
    thread: *mut ffi::lua_State,
    /// Its place in the registry.
    reference: c_int,
}

/// How a coroutine ended its turn.
pub(crate) enum Turn {
    /// The function has returned.
    Returned(Coroutine),
    /// It waits for an operation that it requested.
    Suspended(Coroutine),
    /// It raised an error, or was stopped.
    Failed(Failure),
}

/// An error of Lua code.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Failure {
    /// The budget that was exceeded, if one was.
    pub excess: Option<Excess>,
    /// The message, with file and line if it came from Lua.
    pub message: String,
    /// Where the code was: Lua's traceback; empty for syntax errors.
    pub trace: String,
}

/// A value that a coroutine gets when it begins or continues.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Argument<'a> {
    Boolean(bool),
    Number(f64),
    Bytes(&'a [u8]),
}

/// A Lua VM and the data of its native functions.
pub(crate) struct Engine {
    /// LuaJIT's main state.
    main: *mut ffi::lua_State,
    /// The limits of the VM.
    guard: &'static Guard,
    /// Owned; native functions reach it through the guard.
    host: *mut Host,
    /// The functions that Rust calls, by `Entry`: references in the registry.
    entries: [c_int; Entry::ALL.len()],
    /// Coroutines that have returned, for the next callbacks.
    idle: Vec<Coroutine>,
}

/// A function of the prelude that Rust calls.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Entry {
    /// Loads the script of the application.
    Load,
    /// Runs `on_start`.
    Start,
    /// Runs `on_stop`.
    Stop,
    /// Runs `on_request`.
    Request,
    /// Runs `on_upload`.
    Upload,
    /// Runs `on_access`.
    Access,
    /// Runs `on_balance`.
    Balance,
    /// Runs `on_response`.
    Response,
    /// Runs `on_body`.
    Body,
    /// Runs `on_log`.
    Log,
    /// Runs `on_push`.
    Push,
    /// Runs `on_open`.
    Open,
    /// Runs `on_message`.
    Message,
    /// Runs `on_close`.
    Close,
    /// Runs `on_drain`.
    Drain,
    /// Runs `on_frame`.
    Frame,
    /// Runs `on_frame_end`, and forgets the connection.
    FrameEnd,
    /// Runs `on_certificate`.
    Certificate,
    /// Runs `on_retire`.
    Retire,
    /// Returns the state of a client, and removes the client.
    Release,
    /// Takes over a client with its state, and runs `on_handover`.
    Adopt,
    /// Takes a broadcast of another VM, or of this one.
    Broadcast,
    /// Runs code of the console.
    Evaluate,
    /// Runs a job.
    Job,
    /// Ends a job that has failed.
    JobFailed,
    /// Loads the tests of the application. Only in the VMs of tests.
    LoadTests,
    /// Runs a test.
    Test,
}

impl Entry {
    const ALL: [Self; 27] = [
        Self::Load,
        Self::Start,
        Self::Stop,
        Self::Request,
        Self::Upload,
        Self::Access,
        Self::Balance,
        Self::Response,
        Self::Body,
        Self::Log,
        Self::Push,
        Self::Open,
        Self::Message,
        Self::Close,
        Self::Drain,
        Self::Frame,
        Self::FrameEnd,
        Self::Certificate,
        Self::Retire,
        Self::Release,
        Self::Adopt,
        Self::Broadcast,
        Self::Evaluate,
        Self::Job,
        Self::JobFailed,
        Self::LoadTests,
        Self::Test,
    ];

    const fn name(self) -> &'static CStr {
        match self {
            Self::Load => c"load",
            Self::Start => c"start",
            Self::Stop => c"stop",
            Self::Request => c"request",
            Self::Upload => c"upload",
            Self::Access => c"access",
            Self::Balance => c"balance",
            Self::Response => c"response",
            Self::Body => c"body",
            Self::Log => c"log",
            Self::Push => c"push",
            Self::Open => c"open",
            Self::Message => c"message",
            Self::Close => c"close",
            Self::Drain => c"drain",
            Self::Frame => c"frame",
            Self::FrameEnd => c"frame_end",
            Self::Certificate => c"certificate",
            Self::Retire => c"retire",
            Self::Release => c"release",
            Self::Adopt => c"adopt",
            Self::Broadcast => c"broadcast",
            Self::Evaluate => c"evaluate",
            Self::Job => c"job",
            Self::JobFailed => c"job_failed",
            Self::LoadTests => c"load_tests",
            Self::Test => c"test",
        }
    }
}

impl Engine {
    /// Creates a VM with the prelude, for the thread that calls this.
    pub(crate) fn new(
        host: Box<Host>,
        budget: Budget,
        memory_bytes_max: usize,
        prelude: &[(&CStr, &[u8])],
    ) -> Result<Self, String> {
        let guard = Guard::new(budget, memory_bytes_max);
        let host = Box::into_raw(host);
        guard.data.set(host.cast());
        // SAFETY: `allocate` fits the address of a guard, which lives forever.
        let main = unsafe { ffi::lua_newstate(guard::allocate, guard.address()) };
        if main.is_null() {
            // SAFETY: the host came from a box, and no VM refers to it.
            drop(unsafe { Box::from_raw(host) });
            return Err("there is not enough memory for a Lua VM".to_owned());
        }
        let entries = [ffi::LUA_NOREF; Entry::ALL.len()];
        let mut engine = Self { main, guard, host, entries, idle: Vec::new() };
        let began = guard.begin(main);
        began.map_err(|error| format!("creating the timer of a Lua VM failed: {error}"))?;
        if let Budget::Instructions(_) = budget {
            // SAFETY: the state is live; the mode concerns the whole engine.
            unsafe { luajit_setmode(main, 0, JIT_OFF) };
        }
        engine.open(prelude).map_err(|failure| failure.message)?;
        Ok(engine)
    }

    /// Opens the libraries and runs the prelude, whose last chunk returns the table of entries.
    fn open(&mut self, prelude: &[(&CStr, &[u8])]) -> Result<(), Failure> {
        let l = self.main;
        // SAFETY: the state is live. Every call that may raise an error runs inside `lua_pcall`; the stack is restored
        // before each return.
        unsafe {
            ffi::lua_pushcfunction(l, open_libraries);
            if ffi::lua_pcall(l, 0, 1, 0) != ffi::LUA_OK {
                return Err(self.failure_of(l, None));
            }
            // The table of natives is on the stack. Each chunk receives it and the result of the chunk before.
            ffi::lua_pushnil(l);
            for (name, source) in prelude {
                load(l, name, source)?;
                ffi::lua_insert(l, -2);
                ffi::lua_pushvalue(l, -3);
                ffi::lua_insert(l, -2);
                if ffi::lua_pcall(l, 2, 1, 0) != ffi::LUA_OK {
                    return Err(self.failure_of(l, None));
                }
            }
            for (at, entry) in Entry::ALL.into_iter().enumerate() {
                ffi::lua_getfield_(l, -1, entry.name().as_ptr());
                self.entries[at] = ffi::luaL_ref(l, ffi::LUA_REGISTRYINDEX);
            }
            ffi::lua_settop(l, 0);
        }
        Ok(())
    }

    /// The data of the native functions, while no Lua code runs.
    pub(crate) fn host(&mut self) -> &mut Host {
        // SAFETY: the host was created by `new` and is freed by `drop`. Native functions borrow it only while Lua code
        // runs, which needs `&mut self`.
        unsafe { &mut *self.host }
    }

    /// The data of the native functions, to read.
    pub(crate) fn peek(&self) -> &Host {
        // SAFETY: as for `host`; the borrow of the engine allows no Lua code to run.
        unsafe { &*self.host }
    }

    /// Replaces the budget by another of the same kind.
    pub(crate) fn set_budget(&mut self, budget: Budget) {
        self.guard.set_budget(budget);
    }

    /// Bytes that the VM holds.
    pub(crate) fn used_bytes(&self) -> usize {
        self.guard.used_bytes()
    }

    /// Calls an entry in a coroutine.
    pub(crate) fn call(&mut self, entry: Entry, arguments: &[Argument<'_>]) -> Turn {
        let Some(coroutine) = self.idle.pop().or_else(|| self.new_coroutine()) else {
            return Turn::Failed(Failure {
                excess: Some(Excess::Memory),
                message: "there is no memory for a coroutine".to_owned(),
                trace: String::new(),
            });
        };
        let function = self.entries[entry as usize];
        // SAFETY: the coroutine is alive, because the registry refers to it; its stack is empty and has room for a few
        // values; the reference names a function.
        unsafe { ffi::lua_rawgeti_(coroutine.thread, ffi::LUA_REGISTRYINDEX, function) };
        self.run(coroutine, arguments)
    }

    /// Continues a coroutine that is new or suspended.
    pub(crate) fn run(&mut self, coroutine: Coroutine, arguments: &[Argument<'_>]) -> Turn {
        let thread = coroutine.thread;
        // SAFETY: the coroutine is alive and either new with a function on its stack, or suspended. Strings are pushed
        // before Lua code runs; LuaJIT reserves LUA_MINSTACK slots for them.
        let (status, excess) = unsafe {
            for argument in arguments {
                push(thread, *argument);
            }
            self.guard.enter();
            let status = lua_resume(thread, arguments.len() as c_int);
            (status, self.guard.leave())
        };
        match (status, excess) {
            (ffi::LUA_OK, None) => {
                // SAFETY: as above; the results are dropped.
                unsafe { ffi::lua_settop(thread, 0) };
                Turn::Returned(coroutine)
            }
            (ffi::LUA_YIELD, None) => {
                // SAFETY: as above; what was yielded is dropped.
                unsafe { ffi::lua_settop(thread, 0) };
                Turn::Suspended(coroutine)
            }
            (_, excess) => {
                // SAFETY: the coroutine is alive, and it runs no code any more.
                let failure = unsafe { self.failure_of(thread, excess) };
                self.forget(coroutine);
                if failure.excess == Some(Excess::Memory) {
                    self.collect();
                }
                Turn::Failed(failure)
            }
        }
    }

    /// Frees the memory that the script does not hold any more. A collection halves LuaJIT's buffer for strings in
    /// construction, so after a long string it takes several.
    pub(crate) fn collect(&mut self) {
        for _ in 0..COLLECTIONS_MAX {
            let before = self.guard.used_bytes();
            // SAFETY: no Lua code runs; the collector raises no error without finalizers.
            unsafe { ffi::lua_gc(self.main, ffi::LUA_GCCOLLECT, 0) };
            if self.guard.used_bytes() > before - before / 8 {
                break;
            }
        }
    }

    /// Keeps a coroutine that has returned for the next callback.
    pub(crate) fn keep(&mut self, coroutine: Coroutine) {
        match self.idle.len() < IDLE_COROUTINES_MAX {
            true => self.idle.push(coroutine),
            false => self.forget(coroutine),
        }
    }

    /// Gives a coroutine to the collector.
    pub(crate) fn forget(&mut self, coroutine: Coroutine) {
        // SAFETY: the reference is in use exactly as long as the `Coroutine`.
        unsafe { ffi::luaL_unref(self.main, ffi::LUA_REGISTRYINDEX, coroutine.reference) };
    }

    fn new_coroutine(&mut self) -> Option<Coroutine> {
        let l = self.main;
        // SAFETY: creating a thread may fail only for lack of memory; that error is caught by `lua_cpcall`.
        unsafe {
            if ffi::lua_cpcall(l, create_thread, ptr::null_mut()) != ffi::LUA_OK {
                ffi::lua_settop(l, 0);
                return None;
            }
            ffi::lua_getfield_(l, ffi::LUA_REGISTRYINDEX, NEWEST.as_ptr());
            let thread = ffi::lua_tothread(l, -1);
            let reference = ffi::luaL_ref(l, ffi::LUA_REGISTRYINDEX);
            (!thread.is_null()).then_some(Coroutine { thread, reference })
        }
    }

    /// The error on top of the stack of a coroutine that has failed, or the reason why it was stopped.
    ///
    /// # Safety
    /// `l` is a live state of this VM that runs no code.
    unsafe fn failure_of(&self, l: *mut ffi::lua_State, excess: Option<Excess>) -> Failure {
        let stopped_at = self.guard.take_trace();
        if let Some(excess) = excess {
            let message = match excess {
                Excess::Time => "the callback exceeds its time budget",
                Excess::Memory => "the application exceeds its memory limit",
                Excess::Wait => "the callback has waited for too long",
            };
            return Failure {
                excess: Some(excess),
                message: message.to_owned(),
                trace: stopped_at,
            };
        }
        // SAFETY: the caller guarantees the state. `tolstring` is called for strings and numbers only, so no metamethod
        // runs.
        unsafe {
            let message = match ffi::lua_type(l, -1) {
                ffi::LUA_TSTRING | ffi::LUA_TNUMBER => string_at(l, -1),
                ffi::LUA_TNONE => "unknown error".to_owned(),
                other => {
                    let name = CStr::from_ptr(ffi::lua_typename(l, other));
                    format!("(the error is a value of the type {})", name.to_string_lossy())
                }
            };
            let excess = self.guard.has_refused_memory().then_some(Excess::Memory);
            let trace = if l == self.main { String::new() } else { traceback(self.main, l, 0) };
            Failure { excess, message, trace }
        }
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.guard.end();
        // SAFETY: no Lua code runs and no coroutine is used after this; the host came from a box.
        unsafe {
            ffi::lua_close(self.main);
            drop(Box::from_raw(self.host));
        }
    }
}

/// The place in the registry of the newest coroutine.
const NEWEST: &CStr = c"tidegate.newest";

unsafe extern "C-unwind" fn create_thread(l: *mut ffi::lua_State) -> c_int {
    // SAFETY: called by `lua_cpcall` with a live state.
    unsafe {
        ffi::lua_newthread(l);
        ffi::lua_setfield(l, ffi::LUA_REGISTRYINDEX, NEWEST.as_ptr());
    }
    0
}

/// Opens the libraries that the prelude builds the sandbox from, and returns the table of native functions.
unsafe extern "C-unwind" fn open_libraries(l: *mut ffi::lua_State) -> c_int {
    // SAFETY: called by `lua_pcall` with a live state; each library's function expects its name.
    unsafe {
        let libraries: [(&CStr, ffi::lua_CFunction); 8] = [
            (c"", ffi::luaopen_base),
            (c"table", ffi::luaopen_table),
            (c"string", ffi::luaopen_string),
            (c"math", ffi::luaopen_math),
            (c"os", ffi::luaopen_os),
            (c"debug", ffi::luaopen_debug),
            (c"bit", ffi::luaopen_bit),
            // Without it, the just-in-time compiler stays off.
            (c"jit", ffi::luaopen_jit),
        ];
        // Only the prelude sees the globals of these libraries.
        let io: (&CStr, ffi::lua_CFunction) = (c"io", ffi::luaopen_io);
        let io = host(l).facts.permissions.io.then_some(io);
        for (name, open) in libraries.into_iter().chain(io) {
            ffi::lua_pushcfunction(l, open);
            ffi::lua_pushstring_(l, name.as_ptr());
            ffi::lua_call(l, 1, 0);
        }
        let functions = [
            natives::ALL,
            body_natives::ALL,
            dictionary::ALL,
            layer_natives::ALL,
            channel_natives::ALL,
            event_natives::ALL,
            file_natives::ALL,
            frame_natives::ALL,
            cjson::ALL,
            crypto_natives::ALL,
            queue_natives::ALL,
            socket_natives::ALL,
            datagram_natives::ALL,
        ];
        ffi::lua_createtable(l, 0, functions.iter().map(|of| of.len()).sum::<usize>() as c_int);
        for (name, function) in functions.into_iter().flatten() {
            ffi::lua_pushcfunction(l, *function);
            ffi::lua_setfield(l, -2, name.as_ptr());
        }
        json::push_null(l);
        ffi::lua_setfield(l, -2, c"null".as_ptr());
    }
    1
}

/// Compiles a source text onto the stack of `l`. Bytecode is refused.
///
/// # Safety
/// `l` is a live state.
unsafe fn load(l: *mut ffi::lua_State, name: &CStr, source: &[u8]) -> Result<(), Failure> {
    // SAFETY: the caller guarantees the state; the buffer and the name are valid during the call.
    unsafe {
        let status = ffi::luaL_loadbuffer(l, source.as_ptr().cast(), source.len(), name.as_ptr());
        if status == ffi::LUA_OK {
            return Ok(());
        }
        let message = string_at(l, -1);
        ffi::lua_settop(l, -2);
        Err(Failure { excess: None, message, trace: String::new() })
    }
}

/// Pushes a value.
///
/// # Safety
/// `l` is a live state with room on its stack.
unsafe fn push(l: *mut ffi::lua_State, argument: Argument<'_>) {
    // SAFETY: the caller guarantees the state; LuaJIT copies the bytes.
    unsafe {
        match argument {
            Argument::Boolean(is) => ffi::lua_pushboolean(l, c_int::from(is)),
            Argument::Number(number) => ffi::lua_pushnumber(l, number),
            Argument::Bytes(bytes) => ffi::lua_pushlstring_(l, bytes.as_ptr().cast(), bytes.len()),
        }
    }
}

/// The string at `index`, with invalid UTF-8 replaced.
///
/// # Safety
/// `l` is a live state with a string or number at `index`.
unsafe fn string_at(l: *mut ffi::lua_State, index: c_int) -> String {
    let mut length = 0;
    // SAFETY: the caller guarantees the value; the bytes are copied before anything can free them.
    unsafe {
        let bytes = ffi::lua_tolstring(l, index, &mut length);
        if bytes.is_null() {
            return String::new();
        }
        String::from_utf8_lossy(slice::from_raw_parts(bytes.cast(), length)).into_owned()
    }
}

/// Lua's traceback of `of`.
///
/// # Safety
/// Both are live states of one VM.
unsafe fn traceback(l: *mut ffi::lua_State, of: *mut ffi::lua_State, level: c_int) -> String {
    // SAFETY: the caller guarantees the states. The traceback needs little memory, which is always granted.
    unsafe {
        lual_traceback(l, of, ptr::null(), level);
        let mut text = string_at(l, -1);
        ffi::lua_settop(l, -2);
        if text.len() > TRACE_BYTES_MAX {
            let end = (0..=TRACE_BYTES_MAX).rev().find(|at| text.is_char_boundary(*at));
            text.truncate(end.unwrap_or(0));
        }
        text
    }
}

/// The data of the native functions of a VM.
///
/// # Safety
/// `l` is a state that `Engine::new` created, and the result is not used across a call that runs Lua code.
unsafe fn host<'h>(l: *mut ffi::lua_State) -> &'h mut Host {
    // SAFETY: the caller guarantees the state; the host lives as long as the VM.
    unsafe { &mut *Guard::of(l).data.get().cast::<Host>() }
}
const _: () = assert!(size_of::<*mut c_void>() == 8);
