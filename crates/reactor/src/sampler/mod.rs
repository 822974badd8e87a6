//! Samples of what threads of this process execute: registers and a part of the stack, a number of times for each second of
//! CPU time.
//! In: threads, a rate. Out: `Sample`s, by `perf_event_open` with the kernel's frames, or by timers and a signal handler where
//! the system forbids that.
//! Never: costs a thread anything while no `Sampler` exists; unwinds a stack, because that needs files and memory.
//! Limits: `STACK_BYTES` of a stack; samples that come faster than `drain` is called are counted as lost.

mod mark;
mod perf;
mod timers;

use std::io;

pub use self::mark::{is_thread_marked, mark_thread};

/// Bytes of the stack in a sample, from the stack pointer on.
pub const STACK_BYTES: usize = 32 * 1024 - 8;
/// Maximum number of samples for each second of CPU time.
pub const HERTZ_MAX: u32 = 999;

/// A thread that can be sampled.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Thread {
    /// Its number in the kernel.
    pub number: i32,
    /// The first address above its stack.
    pub stack_end: usize,
}

/// The calling thread. It must not end while a [`Sampler`] that uses timers samples it: it gets no more samples then, and another
/// thread may get its number.
///
/// # Errors
/// The error of pthread_getattr_np(3).
pub fn this_thread() -> io::Result<Thread> {
    // SAFETY: the attributes are initialised by the first call, read by the second and freed by the third; all pointers refer
    // to values on this stack.
    let (errno, low, size) = unsafe {
        let mut attributes: libc::pthread_attr_t = core::mem::zeroed();
        let errno = libc::pthread_getattr_np(libc::pthread_self(), &mut attributes);
        let (mut low, mut size) = (core::ptr::null_mut(), 0);
        if errno == 0 {
            libc::pthread_attr_getstack(&attributes, &mut low, &mut size);
            libc::pthread_attr_destroy(&mut attributes);
        }
        (errno, low as usize, size)
    };
    if errno != 0 {
        return Err(io::Error::from_raw_os_error(errno));
    }
    Ok(Thread { number: rustix::thread::gettid().as_raw_nonzero().get(), stack_end: low + size })
}

/// The registers from which a stack is unwound.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Registers {
    /// The next instruction.
    pub instruction: u64,
    /// The stack pointer.
    pub stack: u64,
    /// The frame pointer.
    pub frame: u64,
    /// The link register, which x86-64 does not have.
    pub link: u64,
}

/// The stack of a thread at one moment.
#[derive(Debug)]
pub struct Sample<'s> {
    /// The index of the thread.
    pub thread: usize,
    /// How many ticks the sample counts for.
    pub ticks: u32,
    /// The registers of the program. In the kernel: those at the system call.
    pub registers: Registers,
    /// Addresses in the kernel, innermost first; empty outside of the kernel, and where the system hides them.
    pub kernel: &'s [u64],
    /// The stack, from the stack pointer on.
    pub stack: &'s [u8],
}

/// The source of the samples.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Source {
    /// The events of `perf_event_open`, with the frames of the kernel.
    Perf,
    /// A timer of each thread's CPU time, and a signal handler.
    Timers,
}

/// Takes samples until it is dropped.
#[derive(Debug)]
pub struct Sampler(Inner);

#[derive(Debug)]
enum Inner {
    Perf(perf::Events),
    Timers(timers::Timers),
}

impl Sampler {
    /// Begins to sample `threads`, `hertz` times for each second of CPU time. Without `means`: by perf, and by timers if perf
    /// is forbidden. One sampler at a time can use timers.
    ///
    /// # Errors
    /// The system refuses, or another sampler uses timers; without `means`, the error of the timers.
    pub fn start(threads: &[Thread], hertz: u32, means: Option<Source>) -> io::Result<Self> {
        let hertz = hertz.clamp(1, HERTZ_MAX);
        let perf = || perf::Events::start(threads, hertz).map(|events| Self(Inner::Perf(events)));
        let timers = || Self::by_timers(threads, hertz, false);
        match means {
            Some(Source::Perf) => perf(),
            Some(Source::Timers) => timers(),
            None => perf().or_else(|_| timers()),
        }
    }

    /// Begins to sample `threads` by timers, but only at ticks at which a thread is marked ([`mark_thread`]). The kernel, which takes the
    /// samples of perf, does not know the mark.
    ///
    /// # Errors
    /// The system refuses, or another sampler uses timers.
    pub fn start_marked(threads: &[Thread], hertz: u32) -> io::Result<Self> {
        Self::by_timers(threads, hertz.clamp(1, HERTZ_MAX), true)
    }

    fn by_timers(threads: &[Thread], hertz: u32, only_marked: bool) -> io::Result<Self> {
        let timers = timers::Timers::start(threads, hertz, only_marked)?;
        Ok(Self(Inner::Timers(timers)))
    }

    /// The source of the samples.
    #[must_use]
    pub fn means(&self) -> Source {
        match self.0 {
            Inner::Perf(_) => Source::Perf,
            Inner::Timers(_) => Source::Timers,
        }
    }

    /// Passes the samples since the last call to `each`. To be called at least 50 times a second.
    pub fn drain(&mut self, each: &mut dyn FnMut(&Sample<'_>)) {
        match &mut self.0 {
            Inner::Perf(events) => events.drain(each),
            Inner::Timers(timers) => timers.drain(each),
        }
    }

    /// How many ticks were left out so far, because their threads were not marked.
    #[must_use]
    pub fn left_out(&self) -> u64 {
        match &self.0 {
            Inner::Perf(_) => 0,
            Inner::Timers(timers) => timers.left_out(),
        }
    }

    /// How many samples were lost so far.
    #[must_use]
    pub fn lost(&self) -> u64 {
        match &self.0 {
            Inner::Perf(events) => events.lost(),
            Inner::Timers(timers) => timers.lost(),
        }
    }
}

/// The size of a page of memory.
fn page_bytes() -> usize {
    // SAFETY: the call has no precondition.
    let bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(bytes).unwrap_or(4096)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::{Arc, Mutex, PoisonError, mpsc};
    use std::time::{Duration, Instant};

    use super::*;

    /// How long a test waits for samples. The thread may get a small part of a busy machine.
    const PATIENCE: Duration = Duration::from_secs(60);

    /// Held by tests that may use timers.
    static TIMERS: Mutex<()> = Mutex::new(());

    #[inline(never)]
    fn spin(ends: &AtomicBool) {
        let mut sum = 0_u64;
        while !ends.load(Ordering::Relaxed) {
            sum = core::hint::black_box(sum.wrapping_mul(31).wrapping_add(7));
        }
    }

    /// Samples a thread that spins, until `count` samples were taken. Returns the share of those that show the function.
    fn share_of_the_spinning_function(means: Source, count: u32) -> io::Result<f64> {
        let ends = Arc::new(AtomicBool::new(false));
        let (sender, receiver) = mpsc::channel();
        let worker = {
            let ends = Arc::clone(&ends);
            std::thread::spawn(move || {
                sender.send(this_thread()).expect("the test waits");
                spin(&ends);
            })
        };
        let thread = receiver.recv().expect("the thread sends it").expect("it has a stack");
        let result = Sampler::start(&[thread], 499, Some(means)).map(|mut sampler| {
            let first = spin as *const () as u64;
            let (mut all, mut hits, mut with_stack) = (0, 0, 0);
            while all < count {
                sampler.drain(&mut |sample| {
                    let Registers { instruction, stack, .. } = sample.registers;
                    assert!(stack < thread.stack_end as u64 && sample.thread == 0);
                    let most = thread.stack_end as u64 - stack;
                    assert!(sample.stack.len() as u64 <= most, "{} of {most}", sample.stack.len());
                    all += sample.ticks;
                    with_stack += sample.ticks * u32::from(!sample.stack.is_empty());
                    hits += sample.ticks * u32::from((first..first + 4096).contains(&instruction));
                });
                std::thread::yield_now();
            }
            assert_eq!(sampler.means(), means);
            // The kernel copies nothing of a page that is not in memory at that moment.
            assert!(with_stack * 2 > all, "{with_stack} of {all} samples have a stack");
            f64::from(hits) / f64::from(all)
        });
        ends.store(true, Ordering::Relaxed);
        worker.join().expect("it ends");
        result
    }

    #[test]
    fn timers_sample_a_thread_that_spins_and_can_be_started_again() {
        let _held = TIMERS.lock().unwrap_or_else(PoisonError::into_inner);
        for _ in 0..2 {
            let share = share_of_the_spinning_function(Source::Timers, 40).expect("timers");
            assert!(share > 0.8, "{share}");
        }
    }

    /// Samples a thread that spins, marked or not, until it was sampled or left out 20 times. Returns how often it was sampled, and how
    /// often it was left out.
    fn ticks_of(is_marked: bool) -> (u64, u64) {
        let ends = Arc::new(AtomicBool::new(false));
        let (sender, receiver) = mpsc::channel();
        let worker = {
            let ends = Arc::clone(&ends);
            std::thread::spawn(move || {
                mark_thread(is_marked);
                sender.send(this_thread()).expect("the test waits");
                spin(&ends);
            })
        };
        let thread = receiver.recv().expect("the thread sends it").expect("it has a stack");
        let mut sampler = Sampler::start_marked(&[thread], 499).expect("timers");
        let mut sampled = 0;
        let begin = Instant::now();
        while sampled + sampler.left_out() < 20 {
            sampler.drain(&mut |sample| sampled += u64::from(sample.ticks));
            let left_out = sampler.left_out();
            assert!(begin.elapsed() < PATIENCE, "{sampled} sampled, {left_out} left out");
            std::thread::yield_now();
        }
        let left_out = sampler.left_out();
        drop(sampler);
        ends.store(true, Ordering::Relaxed);
        worker.join().expect("it ends");
        (sampled, left_out)
    }

    #[test]
    fn only_a_marked_thread_is_sampled_if_requested() {
        let _held = TIMERS.lock().unwrap_or_else(PoisonError::into_inner);
        let (sampled, left_out) = ticks_of(true);
        assert!(sampled >= 20 && left_out == 0, "{sampled}, {left_out}");
        let (sampled, left_out) = ticks_of(false);
        assert!(sampled == 0 && left_out >= 20, "{sampled}, {left_out}");
        assert!(!is_thread_marked(), "the mark belongs to the other thread");
        let share = share_of_the_spinning_function(Source::Timers, 20).expect("timers");
        assert!(share > 0.8, "other samplers sample threads without a mark: {share}");
    }

    #[test]
    fn perf_samples_a_thread_that_spins_where_it_is_allowed() {
        match share_of_the_spinning_function(Source::Perf, 40) {
            Ok(share) => assert!(share > 0.8, "{share}"),
            Err(error) => assert!(
                matches!(
                    error.kind(),
                    io::ErrorKind::PermissionDenied
                        | io::ErrorKind::Unsupported
                        | io::ErrorKind::NotFound
                ),
                "{error}"
            ),
        }
    }

    #[test]
    fn timers_serve_one_sampler_at_a_time() {
        let _held = TIMERS.lock().unwrap_or_else(PoisonError::into_inner);
        let thread = [this_thread().expect("it has a stack")];
        let start = || Sampler::start(&thread, 1, Some(Source::Timers));
        let first = start().expect("timers");
        assert_eq!(start().expect_err("one exists").kind(), io::ErrorKind::ResourceBusy);
        drop(first);
        start().expect("timers");
    }

    #[test]
    fn thread_that_has_ended_is_an_error() {
        let _held = TIMERS.lock().unwrap_or_else(PoisonError::into_inner);
        let thread = std::thread::spawn(|| this_thread().expect("it has a stack"));
        let thread = thread.join().expect("it ends");
        // The kernel may need a moment to remove it.
        while Sampler::start(&[thread], 99, None).is_ok() {
            std::thread::yield_now();
        }
    }
}
