//! Finds out where a worker is stuck: the functions that its thread executes, or the place in the kernel where it waits.
//! In: a thread. Out: lines for the log.
//! Never: runs on a worker; interrupts the thread for longer than a sample of a profile does.
//! Limits: `SAMPLE_SPAN` for the samples; `FRAMES_MAX` functions.

use std::thread;
use std::time::{Duration, Instant};
use std::{fs, io};

use tidegate_profile::folded::bare;
use tidegate_profile::stacks::Stacks;
use tidegate_reactor::sampler::{Sampler, Source, Thread};

use crate::admin::{PROFILE_ROOT, snapshot};

/// How long the thread is sampled.
const SAMPLE_SPAN: Duration = Duration::from_millis(500);
/// How often the samples are read.
const DRAIN_EVERY: Duration = Duration::from_millis(20);
/// Samples for each second of CPU time.
const HERTZ: u32 = 199;
/// The innermost functions that are named.
const FRAMES_MAX: usize = 16;
/// Functions in one line of the log, which is cut if it is long.
const FRAMES_OF_LINE: usize = 4;
/// The thread does not wait, but has used no CPU time.
const BUSY: &str = "it is ready to run, but the CPUs are busy with other threads";

/// Describes what the thread does, in lines for the log.
pub(crate) fn describe(thread: &Thread) -> Vec<String> {
    describe_by(thread, None)
}

fn describe_by(thread: &Thread, means: Option<Source>) -> Vec<String> {
    let frames = match sample(thread, means) {
        Ok(frames) if frames.is_empty() => return vec![waiting(thread, BUSY)],
        Ok(frames) => frames,
        Err(error) => {
            let unknown = match error.kind() {
                io::ErrorKind::ResourceBusy => "another profile is being taken".to_owned(),
                _ => error.to_string(),
            };
            let unknown =
                format!("it executes or is ready to run; its functions are not known: {unknown}");
            return vec![waiting(thread, &unknown)];
        }
    };
    let lines = frames.chunks(FRAMES_OF_LINE);
    lines.map(|frames| format!("executing, innermost first: {}", frames.join(" < "))).collect()
}

/// The functions of the most frequent stack, innermost first; empty if the thread has used no CPU time.
///
/// # Errors
/// The thread cannot be sampled, as while another profile is being taken by timers.
fn sample(thread: &Thread, means: Option<Source>) -> io::Result<Vec<String>> {
    let mut sampler = Sampler::start(&[*thread], HERTZ, means)?;
    let mut stacks = Stacks::of_this_process();
    if sampler.means() == Source::Timers {
        stacks.hide_kernel();
    }
    let begin = Instant::now();
    while begin.elapsed() < SAMPLE_SPAN {
        thread::sleep(DRAIN_EVERY);
        sampler.drain(&mut |sample| stacks.add(&snapshot(sample)));
    }
    drop(sampler);
    let profile = stacks.finish(PROFILE_ROOT);
    let most = profile.stacks().max_by_key(|(_, count)| *count);
    let frames = most.into_iter().flat_map(|(stack, _)| stack.rsplit(';'));
    Ok(frames.take(FRAMES_MAX).map(|frame| bare(frame).0.to_owned()).collect())
}

/// Why the thread has no samples; `ready` if it does not wait.
fn waiting(thread: &Thread, ready: &str) -> String {
    let read = |name: &str| {
        fs::read_to_string(format!("/proc/self/task/{}/{name}", thread.number)).unwrap_or_default()
    };
    // The name of the thread, in parentheses, precedes the state.
    let stat = read("stat");
    let state = stat.rsplit(") ").next().and_then(|rest| rest.chars().next());
    let place = read("wchan");
    match state {
        Some('R') => ready.to_owned(),
        Some('T' | 't') => "it was stopped by a signal or a debugger".to_owned(),
        _ if place.is_empty() || place == "0" => "it waits in the kernel".to_owned(),
        _ => format!("it waits in the kernel ({place})"),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::{Arc, mpsc};

    use tidegate_reactor::sampler::this_thread;

    use super::*;

    #[inline(never)]
    fn spin_until_told(ends: &AtomicBool) {
        let mut sum = 0_u64;
        while !ends.load(Ordering::Relaxed) {
            sum = core::hint::black_box(sum.wrapping_mul(31).wrapping_add(7));
        }
    }

    /// A thread that spins, and the flag that ends it.
    fn spinning() -> (Thread, impl FnOnce()) {
        let ends = Arc::new(AtomicBool::new(false));
        let (sender, receiver) = mpsc::channel();
        let worker = {
            let ends = Arc::clone(&ends);
            std::thread::spawn(move || {
                sender.send(this_thread()).expect("the test waits");
                spin_until_told(&ends);
            })
        };
        let thread = receiver.recv().expect("the thread sends it").expect("it has a stack");
        let stop = move || {
            ends.store(true, Ordering::Relaxed);
            worker.join().expect("it ends");
        };
        (thread, stop)
    }

    #[test]
    fn function_of_a_thread_that_spins_is_named() {
        let (thread, stop) = spinning();
        let begin = Instant::now();
        // A loaded machine may not run the thread, and another test may be sampling.
        while !describe(&thread).concat().contains("spin_until_told") {
            assert!(begin.elapsed() < Duration::from_secs(60), "{:?}", describe(&thread));
        }
        stop();
    }

    #[test]
    fn thread_that_spins_while_a_profile_is_taken_is_not_said_to_lack_a_cpu() {
        let (thread, stop) = spinning();
        let begin = Instant::now();
        // Another test may be sampling, too.
        let profile = loop {
            match Sampler::start(&[thread], HERTZ, Some(Source::Timers)) {
                Ok(profile) => break profile,
                Err(error) => assert!(begin.elapsed() < Duration::from_secs(60), "{error}"),
            }
        };
        let text = describe_by(&thread, Some(Source::Timers)).concat();
        drop(profile);
        stop();
        assert!(text.ends_with("not known: another profile is being taken"), "{text}");
    }

    #[test]
    fn thread_that_waits_is_described_as_waiting() {
        let (stop, stopped) = mpsc::channel::<()>();
        let (sender, receiver) = mpsc::channel();
        let worker = std::thread::spawn(move || {
            sender.send(this_thread()).expect("the test waits");
            let _ = stopped.recv();
        });
        let thread = receiver.recv().expect("the thread sends it").expect("it has a stack");
        let begin = Instant::now();
        while !describe(&thread).concat().starts_with("it waits in the kernel") {
            assert!(begin.elapsed() < Duration::from_secs(60), "{:?}", describe(&thread));
        }
        drop(stop);
        worker.join().expect("it ends");
    }
}
