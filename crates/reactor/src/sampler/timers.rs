//! Samples by a timer of each thread's CPU time, whose signal the thread handles by copying its registers and stack.
//! In: a signal of these timers. Out: `Sample`s. A tick in the kernel is seen at the end of the system call.
//! Never: in the handler: a system call, an allocation, a lock, or a read outside of the thread's stack. Removes the handler: a
//! signal that arrives late would end the process.
//! Limits: `SLOTS` samples of a thread wait. The memory of the rings stays reserved, but is returned to the system.
//! Invariant: a ring has one writer, its thread, whose handler blocks its own signal, and one reader, the sampler.

use std::io;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering};

use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};

use super::{Registers, STACK_BYTES, Sample, Thread, is_thread_marked, page_bytes};

/// Samples of a thread that wait for the reader.
const SLOTS: usize = 16;
/// Of several pending signals, the kernel delivers the lowest first, whose handler then finds the registers of the program, not
/// those of the other handler. The guard of Lua's budgets uses SIGVTALRM, which is due at the same ticks. The kernel itself never
/// sends this one.
const SIGNAL: libc::c_int = libc::SIGSTKFLT;
const _: () = assert!(SIGNAL < libc::SIGVTALRM);

/// A sample as the handler stores it. All zeroes is a valid value.
#[repr(C)]
struct Slot {
    registers: Registers,
    ticks: u32,
    stack_bytes: u32,
    stack: [u8; STACK_BYTES],
}

/// State that the handler of a thread and the reader share. All zeroes is a valid value.
#[repr(C)]
struct Ring {
    /// The end of the thread's stack; 0: the ring takes no samples.
    stack_end: AtomicUsize,
    /// How many samples were written and read.
    written: AtomicU64,
    read: AtomicU64,
    lost: AtomicU64,
    /// Ticks at which the thread is not marked are counted, not sampled.
    only_marked: AtomicBool,
    left_out: AtomicU64,
    slots: [core::cell::UnsafeCell<Slot>; SLOTS],
}

/// The rings of the process, by index of the thread; allocated once.
static RINGS: AtomicPtr<Ring> = AtomicPtr::new(null_mut());
static RINGS_COUNT: AtomicUsize = AtomicUsize::new(0);
/// `Timers` exist.
static ARE_USED: AtomicBool = AtomicBool::new(false);

fn ring(index: usize) -> Option<&'static Ring> {
    let rings = RINGS.load(Ordering::Acquire);
    let is_there = !rings.is_null() && index < RINGS_COUNT.load(Ordering::Acquire);
    // SAFETY: so many rings were mapped before the pointer was stored, and are never unmapped.
    is_there.then(|| unsafe { &*rings.add(index) })
}

/// Makes `count` rings, unless there are as many already.
fn reserve_rings(count: usize) -> io::Result<()> {
    if count <= RINGS_COUNT.load(Ordering::Acquire) {
        return Ok(());
    }
    let access = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a new mapping of zeroes, which are valid rings. It stays: a handler may use older ones at any time.
    let rings = unsafe {
        mmap_anonymous(null_mut(), count * size_of::<Ring>(), access, MapFlags::PRIVATE)?
    };
    RINGS.store(rings.cast(), Ordering::Release);
    RINGS_COUNT.store(count, Ordering::Release);
    Ok(())
}

/// The timers of all threads.
#[derive(Debug)]
pub(super) struct Timers {
    timers: Vec<libc::timer_t>,
    lost_before: u64,
    left_out_before: u64,
    threads: usize,
}

impl Timers {
    pub(super) fn start(threads: &[Thread], hertz: u32, only_marked: bool) -> io::Result<Self> {
        if ARE_USED.swap(true, Ordering::AcqRel) {
            return Err(io::ErrorKind::ResourceBusy.into());
        }
        let mut all =
            Self { timers: Vec::new(), lost_before: 0, left_out_before: 0, threads: threads.len() };
        install_handler()?;
        reserve_rings(threads.len())?;
        all.drain(&mut |_| {});
        (all.lost_before, all.left_out_before) = (all.lost(), all.left_out());
        for (index, thread) in threads.iter().enumerate() {
            if let Some(ring) = ring(index) {
                ring.only_marked.store(only_marked, Ordering::Relaxed);
                ring.stack_end.store(thread.stack_end, Ordering::Release);
            }
            all.timers.push(create_timer(index, thread, hertz)?);
        }
        Ok(all)
    }

    pub(super) fn lost(&self) -> u64 {
        let rings = (0..self.threads).filter_map(ring);
        let lost: u64 = rings.map(|ring| ring.lost.load(Ordering::Relaxed)).sum();
        lost - self.lost_before
    }

    pub(super) fn left_out(&self) -> u64 {
        let rings = (0..self.threads).filter_map(ring);
        let left_out: u64 = rings.map(|ring| ring.left_out.load(Ordering::Relaxed)).sum();
        left_out - self.left_out_before
    }

    pub(super) fn drain(&mut self, each: &mut dyn FnMut(&Sample<'_>)) {
        for thread in 0..self.threads {
            let Some(ring) = ring(thread) else { continue };
            let mut read = ring.read.load(Ordering::Relaxed);
            while read < ring.written.load(Ordering::Acquire) {
                // SAFETY: the writer does not touch this slot until `read` exceeds its number.
                let slot = unsafe { &*ring.slots[read as usize % SLOTS].get() };
                let Slot { registers, ticks, .. } = *slot;
                let stack = &slot.stack[..slot.stack_bytes as usize];
                each(&Sample { thread, ticks, registers, kernel: &[], stack });
                read += 1;
                ring.read.store(read, Ordering::Release);
            }
        }
    }
}

impl Drop for Timers {
    fn drop(&mut self) {
        for timer in self.timers.drain(..) {
            // SAFETY: `start` has created the timer, and nothing else deletes it.
            unsafe { libc::timer_delete(timer) };
        }
        for ring in (0..self.threads).filter_map(ring) {
            ring.stack_end.store(0, Ordering::Release);
        }
        // Samples that are left belong to no profile; without them, a page of zeroes is as good as the memory.
        self.drain(&mut |_| {});
        for ring in (0..self.threads).filter_map(ring) {
            let slots = ring.slots.as_ptr().cast_mut().cast::<u8>();
            let before = slots.align_offset(page_bytes());
            let bytes = size_of_val(&ring.slots) - before;
            // SAFETY: whole pages of slots, and a part of the last page that the kernel leaves: no slot has a value that matters.
            // A late handler writes into new pages.
            let _ = unsafe {
                let advice = rustix::mm::Advice::LinuxDontNeed;
                let whole = bytes / page_bytes() * page_bytes();
                rustix::mm::madvise(slots.add(before).cast(), whole, advice)
            };
        }
        ARE_USED.store(false, Ordering::Release);
    }
}

fn install_handler() -> io::Result<()> {
    // SAFETY: all zeroes is a valid value of this plain type; the handler has the signature that SA_SIGINFO requires and only
    // does what a handler may do.
    let result = unsafe {
        let mut action: libc::sigaction = core::mem::zeroed();
        let handler: extern "C" fn(libc::c_int, *const libc::siginfo_t, *const libc::ucontext_t) =
            handle_tick;
        action.sa_sigaction = handler as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART;
        libc::sigemptyset(&mut action.sa_mask);
        libc::sigaction(SIGNAL, &action, null_mut())
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Creates the timer of a thread and starts it.
fn create_timer(index: usize, thread: &Thread, hertz: u32) -> io::Result<libc::timer_t> {
    // include/linux/posix-timers.h: the clock of a thread's CPU time in both modes.
    let clock = (!thread.number << 3) | 6;
    let nanos = libc::c_long::from(1_000_000_000 / hertz);
    let every = libc::timespec { tv_sec: nanos / 1_000_000_000, tv_nsec: nanos % 1_000_000_000 };
    let times = libc::itimerspec { it_interval: every, it_value: every };
    // SAFETY: all zeroes is a valid value of this plain type. The pointers refer to values on this stack; the kernel stores
    // the number of the timer, which is used only if the call succeeded.
    unsafe {
        let mut event: libc::sigevent = core::mem::zeroed();
        event.sigev_notify = libc::SIGEV_THREAD_ID;
        event.sigev_signo = SIGNAL;
        event.sigev_notify_thread_id = thread.number;
        event.sigev_value = libc::sigval { sival_ptr: core::ptr::without_provenance_mut(index) };
        let mut timer: libc::timer_t = null_mut();
        if libc::timer_create(clock, &mut event, &mut timer) != 0 {
            return Err(io::Error::last_os_error());
        }
        if libc::timer_settime(timer, 0, &times, null_mut()) != 0 {
            let error = io::Error::last_os_error();
            libc::timer_delete(timer);
            return Err(error);
        }
        Ok(timer)
    }
}

/// The signal handler.
extern "C" fn handle_tick(
    _: libc::c_int,
    information: *const libc::siginfo_t,
    context: *const libc::ucontext_t,
) {
    // SAFETY: the kernel passes valid pointers, and the value of a timer if the code says so. The thread is stopped in this
    // handler, so its stack from the stack pointer to its end does not change. The slot is not read until `written` exceeds its
    // number, and no other handler of this thread runs.
    unsafe {
        if (*information).si_code != libc::SI_TIMER {
            return;
        }
        let Some(ring) = ring((*information).si_value().sival_ptr.addr()) else { return };
        let registers = registers_of(&*context);
        let end = ring.stack_end.load(Ordering::Acquire);
        let Some(depth) = end.checked_sub(registers.stack as usize).filter(|_| end != 0) else {
            return;
        };
        if ring.only_marked.load(Ordering::Relaxed) && !is_thread_marked() {
            ring.left_out.fetch_add(1 + u64::from(overruns(information)), Ordering::Relaxed);
            return;
        }
        let (written, read) =
            (ring.written.load(Ordering::Relaxed), ring.read.load(Ordering::Acquire));
        if written - read >= SLOTS as u64 {
            ring.lost.fetch_add(1, Ordering::Relaxed);
            return;
        }
        let slot = ring.slots[written as usize % SLOTS].get();
        let count = depth.min(STACK_BYTES);
        let from = core::ptr::with_exposed_provenance::<u8>(registers.stack as usize);
        core::ptr::copy_nonoverlapping(from, (&raw mut (*slot).stack).cast(), count);
        (*slot).registers = registers;
        (*slot).stack_bytes = count as u32;
        (*slot).ticks = 1 + overruns(information);
        ring.written.store(written + 1, Ordering::Release);
    }
}

/// Ticks that the signal stands for, in addition to the first.
///
/// # Safety
/// `information` is that of a timer's signal.
unsafe fn overruns(information: *const libc::siginfo_t) -> u32 {
    /// The begin of `siginfo_t` for timers, on 64-bit systems.
    #[repr(C)]
    struct OfTimer {
        signal: i32,
        errno: i32,
        code: i32,
        padding: i32,
        timer: i32,
        overrun: i32,
    }
    // SAFETY: the caller states that the value has this form.
    let of_timer = unsafe { &*information.cast::<OfTimer>() };
    u32::try_from(of_timer.overrun).unwrap_or(0)
}

#[cfg(target_arch = "x86_64")]
fn registers_of(context: &libc::ucontext_t) -> Registers {
    let register = |at: libc::c_int| context.uc_mcontext.gregs[at as usize] as u64;
    Registers {
        instruction: register(libc::REG_RIP),
        stack: register(libc::REG_RSP),
        frame: register(libc::REG_RBP),
        link: 0,
    }
}

#[cfg(target_arch = "aarch64")]
fn registers_of(context: &libc::ucontext_t) -> Registers {
    let machine = &context.uc_mcontext;
    Registers {
        instruction: machine.pc,
        stack: machine.sp,
        frame: machine.regs[29],
        link: machine.regs[30],
    }
}
