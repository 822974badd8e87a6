//! Stops a script that runs too long or holds too much memory.
//! In: the budget of a callback, the limit of a VM. Out: a Lua error in the script, and the reason.
//! Never: stops the trusted code of another VM; lets a stopped script continue.
//! Limits: a callback is stopped within its time budget plus one scheduler tick; requests of memory over `SMALL_BYTES` fail
//! above the hard limit, smaller ones never do.
//! Invariant: `turns` is odd exactly while the VM runs Lua code.
//!
//! LuaJIT is built with LUAJIT_ENABLE_CHECKHOOK, so compiled loops check the hook. The hook is armed only when a budget is used
//! up: a permanent hook would make compiled loops 30 to 900 times slower. A timer on the thread's CPU time ticks five times in
//! a budget, and only while callbacks run; its signal arrives on the thread that runs the VM, so no other thread touches the
//! VM's state. This is the only clock of the crate. `Budget::Instructions` needs none: it counts instructions in the
//! interpreter, so every run of the simulator has the same result.
//!
//! A request for memory above the soft limit is granted and arms the hook: the script is stopped at its next
//! instruction. An allocation that fails instead could fail inside LuaJIT's trace recorder, which does not survive it.

use core::cell::{Cell, RefCell};
use core::ffi::{c_int, c_void};
use core::ptr;
use core::sync::atomic::{
    AtomicBool, AtomicPtr, AtomicU8, AtomicU32, AtomicU64,
    Ordering::{Relaxed, SeqCst},
    compiler_fence,
};
use std::alloc::{Layout, alloc, dealloc, realloc};
use std::io;

use mlua_sys::lua51 as ffi;
use tidegate_base::Span;

use super::{lua_isyieldable, traceback};

/// How long a callback may run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Budget {
    /// CPU time of the thread.
    Time(Span),
    /// Instructions, counted without the just-in-time compiler.
    Instructions(u64),
}

/// Why a script was stopped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Excess {
    /// The callback used up its time.
    Time,
    /// The VM reached its memory limit.
    Memory,
    /// The callback has waited for too long.
    Wait,
}

/// Requests for memory up to this size are always granted.
const SMALL_BYTES: usize = 64 * 1024;
/// Ticks in a budget.
const TICKS: u32 = 5;
/// Instructions between two calls of the hook that counts.
const COUNT_STEP: c_int = 1000;
/// The alignment of all memory of a VM.
const ALIGN: usize = 16;
/// The signal of the timer. The Rust library and Tidegate use it for nothing else.
const SIGNAL: c_int = libc::SIGVTALRM;

const NOT_STOPPED: u8 = 0;
const OVER_TIME: u8 = 1;
const OVER_MEMORY: u8 = 2;

/// The memory and time of one VM. Lives as long as the process: a pending signal may still name it.
pub(crate) struct Guard {
    /// The VM; null before it exists and after it is closed.
    state: AtomicPtr<ffi::lua_State>,
    /// Bytes that the VM holds.
    used: Cell<usize>,
    /// Above this, the script is stopped.
    soft_max: Cell<usize>,
    /// Above this, large requests for memory fail.
    hard_max: Cell<usize>,
    /// Why the script is being stopped; one of the three constants.
    stop: AtomicU8,
    /// A request for memory was refused since the current callback began.
    refused: Cell<bool>,
    /// Increased when a callback begins and when it ends.
    turns: AtomicU32,
    /// The value of `turns` at the last tick.
    seen: AtomicU32,
    /// Ticks within the current callback.
    ticks: AtomicU32,
    /// The timer ticks.
    is_ticking: AtomicBool,
    /// The timer exists.
    has_timer: AtomicBool,
    /// The timer, if `has_timer`: the C library numbers timers from 0.
    timer: AtomicPtr<c_void>,
    /// How long a callback may run.
    budget: Cell<Budget>,
    /// Instructions left, if the budget counts them.
    left: AtomicU64,
    /// Where the script was when it was stopped.
    trace: RefCell<String>,
    /// The data that native functions work on.
    pub(super) data: Cell<*mut c_void>,
}

impl Guard {
    /// Creates the guard of a VM.
    pub(super) fn new(budget: Budget, memory_bytes_max: usize) -> &'static Self {
        Box::leak(Box::new(Self {
            state: AtomicPtr::new(ptr::null_mut()),
            used: Cell::new(0),
            soft_max: Cell::new(memory_bytes_max),
            hard_max: Cell::new(memory_bytes_max + memory_bytes_max / 4),
            stop: AtomicU8::new(NOT_STOPPED),
            refused: Cell::new(false),
            turns: AtomicU32::new(0),
            seen: AtomicU32::new(0),
            ticks: AtomicU32::new(0),
            is_ticking: AtomicBool::new(false),
            has_timer: AtomicBool::new(false),
            timer: AtomicPtr::new(ptr::null_mut()),
            budget: Cell::new(budget),
            left: AtomicU64::new(0),
            trace: RefCell::default(),
            data: Cell::new(ptr::null_mut()),
        }))
    }

    /// The guard's address, as LuaJIT hands it to the allocator.
    pub(super) fn address(&'static self) -> *mut c_void {
        ptr::from_ref(self).cast_mut().cast()
    }

    /// The guard of a running VM.
    ///
    /// # Safety
    /// `l` is a state that was created with [`allocate`] and a guard.
    pub(super) unsafe fn of(l: *mut ffi::lua_State) -> &'static Self {
        let mut address = ptr::null_mut();
        // SAFETY: the caller guarantees the state; guards are never freed.
        unsafe {
            ffi::lua_getallocf(l, &mut address);
            &*address.cast::<Self>()
        }
    }

    /// Begins to guard `state`, on the thread that will run it.
    pub(super) fn begin(&'static self, state: *mut ffi::lua_State) -> io::Result<()> {
        self.state.store(state, Relaxed);
        match self.budget.get() {
            Budget::Time(_) => self.create_timer(),
            Budget::Instructions(_) => Ok(()),
        }
    }

    /// Replaces the budget by another of the same kind, while no callback runs.
    pub(super) fn set_budget(&self, budget: Budget) {
        self.budget.set(budget);
        if self.is_ticking.swap(false, Relaxed) {
            self.set_timer(false);
        }
    }

    /// Ends guarding. The VM is closed next.
    pub(super) fn end(&self) {
        self.soft_max.set(usize::MAX);
        self.state.store(ptr::null_mut(), Relaxed);
        // A signal that is handled in between finds no timer.
        if self.has_timer.swap(false, SeqCst) {
            // SAFETY: the timer was created by `create_timer` and is deleted once.
            unsafe { libc::timer_delete(self.timer.load(Relaxed)) };
        }
    }

    /// A callback begins.
    pub(super) fn enter(&self) {
        self.stop.store(NOT_STOPPED, Relaxed);
        self.refused.set(false);
        self.count_turn();
        match self.budget.get() {
            Budget::Time(_) => {
                if !self.is_ticking.load(Relaxed) {
                    self.is_ticking.store(true, Relaxed);
                    self.set_timer(true);
                }
            }
            Budget::Instructions(most) => {
                self.left.store(most, Relaxed);
                self.arm(COUNT_STEP);
            }
        }
    }

    /// Increases `turns`. Only this thread writes them, and the signal handler, which runs on it, only reads them, so no
    /// atomic addition is needed. The fence keeps the compiler from moving accesses to `stop` over the change.
    fn count_turn(&self) {
        self.turns.store(self.turns.load(Relaxed).wrapping_add(1), Relaxed);
        compiler_fence(SeqCst);
    }

    /// A callback has ended. Returns why it was stopped, if it was.
    pub(super) fn leave(&self) -> Option<Excess> {
        self.count_turn();
        let stop = self.stop.load(Relaxed);
        self.stop.store(NOT_STOPPED, Relaxed);
        if stop != NOT_STOPPED || matches!(self.budget.get(), Budget::Instructions(_)) {
            let state = self.state.load(Relaxed);
            // SAFETY: the state is live on this thread; null and 0 remove the hook.
            unsafe { ffi::lua_sethook(state, None, 0, 0) };
        }
        match stop {
            OVER_TIME => Some(Excess::Time),
            OVER_MEMORY => Some(Excess::Memory),
            _ => None,
        }
    }

    /// Whether a request for memory was refused in the current callback, or in the last one.
    pub(super) fn has_refused_memory(&self) -> bool {
        self.refused.get()
    }

    /// Where the script was when it was stopped.
    pub(super) fn take_trace(&self) -> String {
        self.trace.take()
    }

    /// Bytes that the VM holds.
    pub(super) fn used_bytes(&self) -> usize {
        self.used.get()
    }

    /// Counts work of a native function that runs long. Returns whether the function must end.
    pub(super) fn spend(&self, steps: u64) -> bool {
        if let Budget::Instructions(_) = self.budget.get()
            && self.turns.load(Relaxed) % 2 == 1
            && !self.spend_instructions(steps)
        {
            self.request_stop(OVER_TIME);
        }
        self.stop.load(Relaxed) != NOT_STOPPED
    }

    /// Subtracts from the remaining instructions. Returns false if none remain.
    fn spend_instructions(&self, count: u64) -> bool {
        let left = self.left.load(Relaxed).saturating_sub(count);
        self.left.store(left, Relaxed);
        left > 0
    }

    /// Stops the script at its next instruction.
    fn request_stop(&self, reason: u8) {
        self.stop.store(reason, Relaxed);
        self.arm(1);
    }

    /// Sets the hook. May be called in a signal handler on the VM's thread.
    fn arm(&self, count: c_int) {
        let state = self.state.load(Relaxed);
        if !state.is_null() {
            // SAFETY: the state is live on this thread. LuaJIT allows the call at any time, also from a signal handler.
            unsafe { ffi::lua_sethook(state, Some(check), ffi::LUA_MASKCOUNT, count) };
        }
    }

    /// Notes a change of the VM's memory. Returns whether a request for `size` bytes is granted.
    fn admit(&self, old: usize, size: usize) -> bool {
        let used = self.used.get().saturating_sub(old).saturating_add(size);
        if size > old && used > self.soft_max.get() {
            // Outside of a callback an error could not be caught; other limits bound the memory that is allocated there.
            let is_running = self.turns.load(Relaxed) % 2 == 1;
            if is_running && size > SMALL_BYTES && used > self.hard_max.get() {
                self.refused.set(true);
                return false;
            }
            if is_running && self.stop.load(Relaxed) == NOT_STOPPED {
                self.request_stop(OVER_MEMORY);
            }
        }
        self.used.set(used);
        true
    }

    /// After a complete collection: whether the script may continue, because most of its memory was garbage.
    fn has_recovered(&self) -> bool {
        self.used.get() <= self.soft_max.get() / 8 * 7
    }

    /// Creates the timer, which does not tick yet.
    fn create_timer(&'static self) -> io::Result<()> {
        install_handler()?;
        let mut timer: libc::timer_t = ptr::null_mut();
        // SAFETY: all zeroes is a valid sigevent; the fields that are set make it one for this thread. The guard that it
        // names is never freed. `timer` is valid for writing.
        let result = unsafe {
            let mut event: libc::sigevent = core::mem::zeroed();
            event.sigev_notify = libc::SIGEV_THREAD_ID;
            event.sigev_signo = SIGNAL;
            event.sigev_value = libc::sigval { sival_ptr: self.address() };
            event.sigev_notify_thread_id = libc::gettid();
            libc::timer_create(libc::CLOCK_THREAD_CPUTIME_ID, &mut event, &mut timer)
        };
        if result != 0 {
            return Err(io::Error::last_os_error());
        }
        self.timer.store(timer, Relaxed);
        self.has_timer.store(true, SeqCst);
        Ok(())
    }

    /// Starts or stops the timer. May be called in a signal handler.
    fn set_timer(&self, ticks: bool) {
        let Budget::Time(span) = self.budget.get() else { return };
        if !self.has_timer.load(SeqCst) {
            return;
        }
        let nanos = if ticks { (span.as_nanos() as u64 / u64::from(TICKS)).max(1) } else { 0 };
        let part = libc::timespec {
            tv_sec: (nanos / 1_000_000_000) as libc::time_t,
            tv_nsec: (nanos % 1_000_000_000) as libc::c_long,
        };
        let spec = libc::itimerspec { it_interval: part, it_value: part };
        // SAFETY: the timer exists. It is deleted by the same thread after `has_timer` is false.
        unsafe { libc::timer_settime(self.timer.load(Relaxed), 0, &spec, ptr::null_mut()) };
    }

    /// A tick of the timer.
    fn tick(&self) {
        let turns = self.turns.load(Relaxed);
        let is_same = self.seen.swap(turns, Relaxed) == turns;
        match (turns % 2 == 1, is_same) {
            (true, true) => {
                let ticks = self.ticks.fetch_add(1, Relaxed) + 1;
                if ticks >= TICKS {
                    self.request_stop(OVER_TIME);
                }
            }
            (true, false) => self.ticks.store(1, Relaxed),
            (false, true) => {
                self.is_ticking.store(false, Relaxed);
                self.set_timer(false);
            }
            (false, false) => {}
        }
    }
}

/// Installs the handler of the timers, once for the process, and lets this thread receive the signal.
fn install_handler() -> io::Result<()> {
    use std::sync::OnceLock;
    static INSTALLED: OnceLock<i32> = OnceLock::new();
    // SAFETY: all zeroes is a valid sigaction; the handler has the signature that SA_SIGINFO requires.
    let errno = *INSTALLED.get_or_init(|| unsafe {
        let mut action: libc::sigaction = core::mem::zeroed();
        action.sa_sigaction = on_signal as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART;
        match libc::sigaction(SIGNAL, &action, ptr::null_mut()) {
            0 => 0,
            _ => io::Error::last_os_error().raw_os_error().unwrap_or(libc::EINVAL),
        }
    });
    if errno != 0 {
        return Err(io::Error::from_raw_os_error(errno));
    }
    // SAFETY: the set is initialised before it is used; the old mask is not requested.
    let errno = unsafe {
        let mut set: libc::sigset_t = core::mem::zeroed();
        libc::sigemptyset(&mut set);
        libc::sigaddset(&mut set, SIGNAL);
        libc::pthread_sigmask(libc::SIG_UNBLOCK, &set, ptr::null_mut())
    };
    if errno == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(errno)) }
}

/// The handler of the timers' signal.
extern "C" fn on_signal(_: c_int, info: *mut libc::siginfo_t, _: *mut c_void) {
    // SAFETY: the kernel hands over valid information. Only a timer of this module names a guard; a signal that
    // another process sends has another code.
    unsafe {
        if (*info).si_code != libc::SI_TIMER {
            return;
        }
        let guard = (*info).si_value().sival_ptr.cast::<Guard>();
        if let Some(guard) = guard.as_ref() {
            guard.tick();
        }
    }
}

/// The hook: counts instructions, or stops the script. Once a script is being stopped, the hook runs before each of its
/// instructions, so the script cannot catch its end: it is suspended forever, or an error is raised again and again.
unsafe extern "C-unwind" fn check(l: *mut ffi::lua_State, _: *mut ffi::lua_Debug) {
    // SAFETY: LuaJIT calls the hook with a live state between two instructions, where it may collect garbage, raise an
    // error or yield. No value with a destructor is alive at the calls that do not return.
    unsafe {
        let guard = Guard::of(l);
        let is_counting = matches!(guard.budget.get(), Budget::Instructions(_));
        if guard.stop.load(Relaxed) == NOT_STOPPED {
            if !is_counting || guard.spend_instructions(COUNT_STEP as u64) {
                return;
            }
            guard.request_stop(OVER_TIME);
        }
        if guard.stop.load(Relaxed) == OVER_MEMORY {
            ffi::lua_gc(l, ffi::LUA_GCCOLLECT, 0);
            if guard.has_recovered() && guard.stop.load(Relaxed) == OVER_MEMORY {
                guard.stop.store(NOT_STOPPED, Relaxed);
                match is_counting {
                    true => guard.arm(COUNT_STEP),
                    false => {
                        ffi::lua_sethook(l, None, 0, 0);
                    }
                }
                return;
            }
        }
        if guard.trace.borrow().is_empty() {
            let trace = traceback(l, l, 0);
            *guard.trace.borrow_mut() = trace;
        }
        if lua_isyieldable(l) != 0 {
            ffi::lua_yield(l, 0);
        } else {
            let text = match guard.stop.load(Relaxed) {
                OVER_MEMORY => c"the application exceeds its memory limit",
                _ => c"the callback exceeds its time budget",
            };
            ffi::luaL_error(l, text.as_ptr());
        }
    }
}

/// The allocator of a VM: the process's, with the limits of the guard.
pub(super) unsafe extern "C" fn allocate(
    guard: *mut c_void,
    old: *mut c_void,
    old_size: usize,
    size: usize,
) -> *mut c_void {
    // SAFETY: LuaJIT hands over the guard that the state was created with, and the size with which `old` was allocated.
    unsafe {
        let guard = &*guard.cast::<Guard>();
        let old_size = if old.is_null() { 0 } else { old_size };
        if size == 0 {
            guard.admit(old_size, 0);
            if !old.is_null() && old_size > 0 {
                dealloc(old.cast(), Layout::from_size_align_unchecked(old_size, ALIGN));
            }
            return ptr::null_mut();
        }
        let Ok(layout) = Layout::from_size_align(size, ALIGN) else { return ptr::null_mut() };
        if !guard.admit(old_size, size) {
            return ptr::null_mut();
        }
        let new = match old_size {
            0 => alloc(layout),
            _ => realloc(old.cast(), Layout::from_size_align_unchecked(old_size, ALIGN), size),
        };
        if new.is_null() {
            guard.admit(size, old_size);
        }
        new.cast()
    }
}
