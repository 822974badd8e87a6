//! Stacks of threads of this program, taken by the sampler: unwound, named and counted.
//! In: threads that spin. Out: the functions that they call, by perf and by timers.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};

use tidegate_profile::folded::Profile;
use tidegate_profile::stacks::{Snapshot, Stacks};
use tidegate_reactor::sampler::{Sampler, Source, this_thread};

#[inline(never)]
fn outer_function(ends: &AtomicBool) -> u64 {
    let mut sum = 0;
    while !ends.load(Ordering::Relaxed) {
        sum ^= core::hint::black_box(inner_function(core::hint::black_box(1000)));
    }
    sum
}

#[inline(never)]
fn inner_function(rounds: u64) -> u64 {
    (0..rounds).fold(7, |sum, round| core::hint::black_box(sum ^ round).rotate_left(9))
}

#[inline(never)]
fn system_calls(ends: &AtomicBool) {
    while !ends.load(Ordering::Relaxed) {
        let _ = core::hint::black_box(std::fs::read("/proc/self/status"));
    }
}

/// Samples a thread that runs `work`, until there are `count` samples. `None` if the system forbids these means.
fn sample(means: Source, count: u64, work: fn(&AtomicBool)) -> Option<Profile> {
    let ends = Arc::new(AtomicBool::new(false));
    let (sender, receiver) = mpsc::channel();
    let worker = {
        let ends = Arc::clone(&ends);
        std::thread::spawn(move || {
            sender.send(this_thread()).expect("the test waits");
            work(&ends);
        })
    };
    let thread = receiver.recv().expect("the thread sends it").expect("it has a stack");
    let mut stacks = Stacks::of_this_process();
    if means == Source::Timers {
        stacks.hide_kernel();
    }
    let sampler = Sampler::start(&[thread], 499, Some(means));
    let profile = sampler.ok().map(|mut sampler| {
        let mut all = 0;
        while all < count {
            sampler.drain(&mut |sample| {
                all += u64::from(sample.ticks);
                stacks.add(&Snapshot {
                    instruction: sample.registers.instruction,
                    stack_pointer: sample.registers.stack,
                    frame_pointer: sample.registers.frame,
                    link: sample.registers.link,
                    kernel: sample.kernel,
                    stack: sample.stack,
                    ticks: sample.ticks,
                });
            });
            std::thread::yield_now();
        }
        stacks.finish("")
    });
    ends.store(true, Ordering::Relaxed);
    worker.join().expect("it ends");
    profile
}

/// The share of the samples whose stack contains all `parts`, in their order.
fn share(profile: &Profile, parts: &[&str]) -> f64 {
    let contains = |mut stack: &str| {
        parts.iter().all(|part| {
            let found = stack.split_once(part);
            stack = found.map_or("", |(_, rest)| rest);
            found.is_some()
        })
    };
    let hits: u64 =
        profile.stacks().filter(|(stack, _)| contains(stack)).map(|(_, count)| count).sum();
    hits as f64 / profile.samples() as f64
}

/// Both means in one test, because timers serve one sampler at a time.
#[test]
fn stacks_of_a_thread_have_its_functions_from_the_outermost_to_the_innermost() {
    for means in [Source::Perf, Source::Timers] {
        let Some(profile) = sample(means, 60, |ends| {
            core::hint::black_box(outer_function(ends));
        }) else {
            assert_eq!(means, Source::Perf, "timers are always allowed");
            continue;
        };
        let right = share(&profile, &["outer_function", "inner_function"]);
        assert!(right > 0.7, "{means:?}: {right}\n{profile}");
        let lost = share(&profile, &["[unknown callers]"]);
        assert!(lost < 0.1, "{means:?}: {lost}\n{profile}");
        let profile = sample(means, 60, system_calls).expect("as before");
        let kernel = profile.kernel_samples() as f64 / profile.samples() as f64;
        assert!(kernel > 0.3, "{means:?}: {kernel}\n{profile}");
        let called = share(&profile, &["system_calls"]);
        assert!(called > 0.7, "{means:?}: {called}\n{profile}");
    }
}
