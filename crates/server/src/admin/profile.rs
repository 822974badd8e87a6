//! The command that takes a profile: what the workers execute, sampled for some time.
//! In: words; the threads of the workers. Out: folded stacks with the names of functions.
//! Never: runs on a worker: the thread of the client reads the samples, with a lower priority, and finds the names.
//! Limits: one profile at a time, of up to `SPAN_MAX`; `tidegate_profile::stacks` bounds its memory.

use std::fs;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use tidegate_config::names::route_names;
use tidegate_profile::folded::Facts;
use tidegate_profile::stacks::{Snapshot, Stacks};
use tidegate_reactor::sampler::{HERTZ_MAX, Sample, Sampler, Source, Thread};

use super::Operations;
use super::command::Outcome;
use super::command::Reply::{self, Changed};
use super::rows::listed;

/// The longest and the shortest profile.
const SPAN_MAX: Duration = Duration::from_secs(300);
const SPAN_MIN: Duration = Duration::from_millis(100);
/// Samples for each second of CPU time, unless the command has another number.
const HERTZ: u32 = 99;
/// Added to the nice value of the thread that reads the samples.
const NICE: i32 = 10;
/// The function of a worker that calls all others.
pub(crate) const ROOT: &str = "tidegate_server::worker_thread::serve";
const USAGE: &str = "usage: profile DURATION [worker N] [route NAME] [hertz N] [by perf|timers] [attached], such as: profile 10s; \
    or: profile stop";

/// Whether a profile is being taken.
#[derive(Default)]
pub(crate) struct Profiler {
    is_running: AtomicBool,
    /// The running profile is to end early.
    is_stopped: AtomicBool,
    /// How many profiles of routes there were.
    of_routes: AtomicU64,
}

/// The place of the running profile, of which there is at most one.
struct Running<'p>(&'p Profiler);

impl Profiler {
    fn begin(&self) -> Result<Running<'_>, String> {
        if self.is_running.swap(true, Ordering::SeqCst) {
            let help = "wait for its end, or end it with: profile stop";
            return Err(format!("another profile is being taken; help: {help}"));
        }
        self.is_stopped.store(false, Ordering::SeqCst);
        Ok(Running(self))
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.is_running.store(false, Ordering::SeqCst);
    }
}

/// A profile to take.
#[derive(PartialEq, Debug)]
pub(super) struct Plan {
    span: Duration,
    /// The number of the only worker to sample.
    worker: Option<usize>,
    /// The name of the only route whose requests are sampled.
    route: Option<String>,
    hertz: u32,
    means: Option<Source>,
    /// The profile ends when the client ends its side of the connection.
    is_attached: bool,
}

/// Reads the arguments of the command.
pub(super) fn plan(arguments: &[&str], operations: &Operations) -> Outcome {
    let profiler = &operations.profiler;
    if arguments == ["stop"] {
        return match profiler.is_running.load(Ordering::SeqCst) {
            false => Err("no profile is being taken".to_owned()),
            true => {
                profiler.is_stopped.store(true, Ordering::SeqCst);
                Ok(Changed(String::new()))
            }
        };
    }
    let routes = route_names(&operations.config());
    Plan::parse(arguments, operations.accounts.len(), &routes).map(Reply::Profile)
}

impl Plan {
    fn parse(arguments: &[&str], workers: usize, routes: &[String]) -> Result<Self, String> {
        let [span, rest @ ..] = arguments else { return Err(USAGE.to_owned()) };
        let known = parse_span(span).filter(|span| (SPAN_MIN..=SPAN_MAX).contains(span));
        let span = known.ok_or_else(|| {
            format!("the duration cannot be {span:?}; allowed: 100ms to 5m; {USAGE}")
        })?;
        let mut plan =
            Self { span, worker: None, route: None, hertz: HERTZ, means: None, is_attached: false };
        let mut rest = rest;
        while let [word, after @ ..] = rest {
            rest = match (*word, after) {
                ("attached", after) => {
                    plan.is_attached = true;
                    after
                }
                ("worker", [number, after @ ..]) => {
                    let number = number.parse().ok().filter(|number| *number < workers);
                    let last = workers.saturating_sub(1);
                    let error = || format!("`worker` must be the number of a worker: 0 to {last}");
                    plan.worker = Some(number.ok_or_else(error)?);
                    after
                }
                ("route", [name, after @ ..]) => {
                    let known = routes.iter().find(|known| known == name);
                    let error = || format!("no route {name:?}; the routes are: {}", listed(routes));
                    plan.route = Some(known.cloned().ok_or_else(error)?);
                    after
                }
                ("hertz", [number, after @ ..]) => {
                    let number = number.parse().ok();
                    let number = number.filter(|number| (1..=HERTZ_MAX).contains(number));
                    let error = || format!("`hertz` must be 1 to {HERTZ_MAX}");
                    plan.hertz = number.ok_or_else(error)?;
                    after
                }
                ("by", ["perf", after @ ..]) => {
                    plan.means = Some(Source::Perf);
                    after
                }
                ("by", ["timers", after @ ..]) => {
                    plan.means = Some(Source::Timers);
                    after
                }
                _ => return Err(format!("{word:?} is unknown or incomplete; {USAGE}")),
            };
        }
        if plan.route.is_some() && plan.means == Some(Source::Perf) {
            let why = "the kernel takes the samples of perf, and does not know the route";
            return Err(format!(
                "`route` cannot be combined with `by perf`: {why}; help: leave out `by perf`"
            ));
        }
        Ok(plan)
    }

    /// Begins to sample.
    fn start(&self, threads: &[Thread]) -> std::io::Result<Sampler> {
        match &self.route {
            Some(_) => Sampler::start_marked(threads, self.hertz),
            None => Sampler::start(threads, self.hertz, self.means),
        }
    }

    /// Takes the profile and returns its text. `has_client_left`: whether the client has ended its side.
    pub(super) fn record(
        &self,
        operations: &Operations,
        mut has_client_left: impl FnMut() -> bool,
    ) -> Result<String, String> {
        let running = operations.profiler.begin()?;
        let is_chosen = |at: usize| self.worker.is_none_or(|worker| worker == at);
        let chosen: Vec<_> =
            operations.accounts.iter().enumerate().filter(|(at, _)| is_chosen(*at)).collect();
        let threads: Vec<Thread> =
            chosen.iter().filter_map(|(_, accounts)| accounts.thread.get().copied()).collect();
        if threads.is_empty() {
            return Err("the threads of the workers are not known".to_owned());
        }
        let _marked = match &self.route {
            Some(route) => Some(Marked::begin(operations, route)?),
            None => None,
        };
        let facts = || {
            let requests = chosen.iter().map(|(at, accounts)| match &self.route {
                Some(route) => operations.registry.begun(route, *at),
                None => accounts.counters.requests.load(),
            });
            let requests = requests.sum();
            let times = threads.iter().map(cpu_ms);
            let (user_ms, kernel_ms) =
                times.fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
            Facts { requests, user_ms, kernel_ms, ..Facts::default() }
        };
        // A lower priority than that of the workers. The thread serves only this connection, so the priority is not restored.
        let _ = rustix::process::nice(NICE);
        let mut stacks = Stacks::of_this_process();
        let begin = (Instant::now(), facts());
        let mut sampler = self.start(&threads).map_err(refusal)?;
        if sampler.means() == Source::Timers {
            stacks.hide_kernel();
        }
        let is_stopped = || running.0.is_stopped.load(Ordering::SeqCst);
        // A ring has room for more than 10 samples.
        let pause = Duration::from_millis(4_000 / u64::from(self.hertz))
            .clamp(Duration::from_millis(4), Duration::from_millis(40));
        while begin.0.elapsed() < self.span
            && !is_stopped()
            && !(self.is_attached && has_client_left())
        {
            thread::sleep(pause.min(self.span.saturating_sub(begin.0.elapsed())));
            sampler.drain(&mut |sample| stacks.add(&snapshot(sample)));
        }
        let end = facts();
        let facts = Facts {
            seconds: begin.0.elapsed().as_secs_f64(),
            hertz: self.hertz,
            workers: threads.len() as u32,
            requests: end.requests.saturating_sub(begin.1.requests),
            user_ms: end.user_ms.saturating_sub(begin.1.user_ms),
            kernel_ms: end.kernel_ms.saturating_sub(begin.1.kernel_ms),
            lost: sampler.lost(),
            means: match sampler.means() {
                Source::Perf => "perf".to_owned(),
                Source::Timers => "timers".to_owned(),
            },
            route: self.route.clone().unwrap_or_default(),
            left_out: sampler.left_out(),
        };
        drop(sampler);
        let mut profile = stacks.finish(ROOT);
        profile.facts = facts;
        Ok(profile.to_string())
    }
}

/// Lets the workers mark what they do for a route, until it is dropped.
struct Marked<'o> {
    operations: &'o Operations,
    route: &'o str,
}

impl<'o> Marked<'o> {
    fn begin(operations: &'o Operations, route: &'o str) -> Result<Self, String> {
        let marked = Self { operations, route };
        // A worker that has slept through the end of another profile must not take this one for it.
        let number = operations.profiler.of_routes.fetch_add(1, Ordering::Relaxed) + 1;
        match marked.set(number) {
            true => Ok(marked),
            false => Err(format!("route {route:?} has been removed")),
        }
    }

    /// `number`: that of the profile; 0 ends it.
    fn set(&self, number: u64) -> bool {
        let is_known = self.operations.registry.set_profiled(self.route, number != 0);
        for accounts in &self.operations.accounts {
            accounts.marks_route.store(number, Ordering::Relaxed);
        }
        is_known
    }
}

impl Drop for Marked<'_> {
    fn drop(&mut self) {
        self.set(0);
    }
}

/// The sample as the profile reads it.
pub(crate) fn snapshot<'s>(sample: &Sample<'s>) -> Snapshot<'s> {
    Snapshot {
        instruction: sample.registers.instruction,
        stack_pointer: sample.registers.stack,
        frame_pointer: sample.registers.frame,
        link: sample.registers.link,
        kernel: sample.kernel,
        stack: sample.stack,
        ticks: sample.ticks,
    }
}

fn refusal(error: std::io::Error) -> String {
    format!(
        "the system does not let Tidegate sample its threads: {error}; help: allow the process to call timer_create(2), or \
         perf_event_open(2) with CAP_PERFMON"
    )
}

/// The CPU time of a thread in the program and in the kernel.
pub(super) fn cpu_ms(thread: &Thread) -> (u64, u64) {
    let path = format!("/proc/self/task/{}/stat", thread.number);
    let text = fs::read_to_string(path).unwrap_or_default();
    // The name of the thread is in parentheses. utime and stime are the 14th and the 15th field, in ticks of 10 ms.
    let mut fields = text.rsplit(')').next().unwrap_or_default().split_ascii_whitespace().skip(11);
    let mut next = || fields.next().and_then(|field| field.parse::<u64>().ok()).unwrap_or(0) * 10;
    (next(), next())
}

/// A duration such as `10s`, `500ms` or `2m`.
pub(super) fn parse_span(text: &str) -> Option<Duration> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let millis = match unit {
        "ms" => 1,
        "s" | "" => 1000,
        "m" => 60_000,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(millis).map(Duration::from_millis)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_checked() {
        let routes = ["*".to_owned(), "a.example/api/*".to_owned()];
        let plan = |line: &str| Plan::parse(&line.split(' ').collect::<Vec<_>>(), 2, &routes);
        let expected = Plan {
            span: Duration::from_millis(500),
            worker: Some(1),
            route: None,
            hertz: 999,
            means: Some(Source::Timers),
            is_attached: true,
        };
        assert_eq!(plan("500ms hertz 999 worker 1 by timers attached"), Ok(expected));
        let of_route = plan("1s route a.example/api/* by timers").expect("a plan");
        assert_eq!(of_route.route.as_deref(), Some("a.example/api/*"));
        let seconds = |line| plan(line).map(|plan: Plan| plan.span.as_secs());
        assert_eq!((seconds("10s"), seconds("7"), seconds("5m")), (Ok(10), Ok(7), Ok(300)));
        for (line, part) in [
            ("", "DURATION"),
            ("s", "DURATION"),
            ("99ms", "DURATION"),
            ("301s", "DURATION"),
            ("99999999999999999999s", "DURATION"),
            ("1h", "DURATION"),
            ("1s worker 2", "0 to 1"),
            ("1s worker", "\"worker\" is unknown or incomplete"),
            ("1s hertz 0", "1 to 999"),
            ("1s hertz 1000", "1 to 999"),
            ("1s by magic", "\"by\" is unknown or incomplete"),
            ("1s route", "\"route\" is unknown or incomplete"),
            ("1s route /x", "no route \"/x\"; the routes are: *, a.example/api/*"),
            ("1s by perf route *", "leave out `by perf`"),
        ] {
            let error = plan(line).expect_err(line);
            assert!(error.contains(part), "{line}: {error}");
        }
    }

    #[test]
    fn one_profile_is_taken_at_a_time() {
        let profiler = Profiler::default();
        let first = profiler.begin().map_err(drop).expect("none is running");
        assert!(profiler.begin().err().is_some_and(|why| why.contains("profile stop")));
        drop(first);
        assert!(profiler.begin().is_ok());
    }

    #[test]
    fn cpu_time_of_a_thread_is_read() {
        let thread = tidegate_reactor::sampler::this_thread().expect("it has a stack");
        let begin = Instant::now();
        // The kernel counts in ticks.
        while cpu_ms(&thread) == (0, 0) {
            assert!(begin.elapsed().as_secs() < 60, "the time stays 0");
        }
        assert_eq!(cpu_ms(&Thread { number: -1, stack_end: 0 }), (0, 0));
    }
}
