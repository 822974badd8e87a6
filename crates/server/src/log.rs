//! The log: whole lines with time and level on stderr, written by a separate thread.
//! In: `error`, `warning` and `info` from any thread; `banner` for the startup lines.
//! Out: `2026-11-22T06:49:01.123Z error message` on stderr, and how many lines were lost.
//! Never: blocks or allocates in a thread that logs (`urgent` and `flush` wait, within `FLUSH_SPAN`); ends
//! because stderr is closed, full or not read. Before `start` every line is discarded, so simulations print
//! nothing.
//! Limits: `BURST` errors or warnings with the same text within `WINDOW` (`repeats.rs`); `LINES_MAX` waiting lines
//! (further ones are dropped and counted), `LINE_BYTES_MAX` bytes of a message (the rest is cut), `FLUSH_SPAN` for
//! the last lines of the process.
//! Invariant: only the writer thread writes to stderr, so a reader that stops reading delays no other thread.

use std::fmt::{self, Write as _};
use std::io;
use std::os::fd::AsFd;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread::{self, Thread};
use std::time::{Duration, Instant, SystemTime};

use crossbeam_queue::ArrayQueue;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use tidegate_base::calendar::Civil;

use crate::repeats::{Repeats, WINDOW};
use crate::threads::{self, Ended};

/// Maximum number of lines that wait for the writer.
pub(crate) const LINES_MAX: usize = 1024;
/// Maximum size in bytes of a message; the rest is cut. A line stays below PIPE_BUF, so pipes take it whole.
pub(crate) const LINE_BYTES_MAX: usize = 480;
/// How long the end of the process waits for the last lines.
pub(crate) const FLUSH_SPAN: Duration = Duration::from_millis(500);
/// How often a thread that waits for the writer checks again.
const POLL_EVERY: Duration = Duration::from_millis(1);
/// How often the writer checks whether a non-blocking stderr accepts bytes.
const POLL_AGAIN: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };
/// Replaces the end of a message that was cut.
const CUT_MARK: &str = "...";

/// How important a line is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Level {
    /// Something failed, and the operator must act.
    Error,
    /// A peer or a file was refused; the service continues.
    Warning,
    /// A change that was requested, or that is expected.
    Info,
}

/// The destination of a line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Destination {
    /// The standard error stream, with time and level.
    Stderr(Level),
    /// The standard error stream, without time and level: the startup lines, which programs parse.
    Banner,
}

/// One line on its way to the writer. Its text has no control characters.
struct Line {
    destination: Destination,
    time: SystemTime,
    /// The number of bytes in use.
    length: usize,
    /// UTF-8 text.
    bytes: [u8; LINE_BYTES_MAX],
}

impl Line {
    fn new(destination: Destination, time: SystemTime, message: fmt::Arguments<'_>) -> Self {
        let mut line = Self { destination, time, length: 0, bytes: [0; LINE_BYTES_MAX] };
        if line.write_fmt(message).is_err() {
            line.mark_as_cut();
        }
        line
    }

    fn text(&self) -> &str {
        core::str::from_utf8(&self.bytes[..self.length]).unwrap_or_default()
    }

    fn push(&mut self, c: char) -> fmt::Result {
        let end = self.length + c.len_utf8();
        let Some(room) = self.bytes.get_mut(self.length..end) else { return Err(fmt::Error) };
        c.encode_utf8(room);
        self.length = end;
        Ok(())
    }

    fn mark_as_cut(&mut self) {
        let mut end = self.length.min(LINE_BYTES_MAX - CUT_MARK.len());
        while !self.text().is_char_boundary(end) {
            end -= 1;
        }
        self.length = end;
        let _ = CUT_MARK.chars().try_for_each(|c| self.push(c));
    }
}

/// Appends text. A control character is escaped, so that a message is one line and cannot command a terminal.
/// Fails if the line is full.
impl fmt::Write for Line {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        text.chars().try_for_each(|c| match c.is_control() {
            true => c.escape_default().try_for_each(|escaped| self.push(escaped)),
            false => self.push(c),
        })
    }
}

impl Level {
    /// The levels with their names, from the most to the least important.
    const ALL: [(&'static str, Self); 3] =
        [("error", Self::Error), ("warning", Self::Warning), ("info", Self::Info)];

    fn name(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warning => "warning",
            Self::Info => "info",
        }
    }
}

/// The lines that wait for the writer, and the counts.
struct Log {
    /// The waiting lines.
    lines: ArrayQueue<Line>,
    /// Lines that were put into the queue.
    accepted: AtomicU64,
    /// Lines that the writer took from the queue and has written or given up.
    settled: AtomicU64,
    /// Lines that found the queue full.
    dropped: AtomicU64,
    /// Lines that stderr did not accept.
    unwritten: AtomicU64,
    /// The writer thread, which sleeps while the queue is empty.
    writer: OnceLock<Thread>,
}

impl Log {
    fn new(lines_max: usize) -> Self {
        Self {
            lines: ArrayQueue::new(lines_max),
            accepted: AtomicU64::new(0),
            settled: AtomicU64::new(0),
            dropped: AtomicU64::new(0),
            unwritten: AtomicU64::new(0),
            writer: OnceLock::new(),
        }
    }

    /// Queues a line. Returns false if the queue is full.
    fn queue(&self, line: Line) -> bool {
        if self.lines.push(line).is_err() {
            return false;
        }
        self.accepted.fetch_add(1, Ordering::Release);
        // A system call only if the writer sleeps.
        if let Some(writer) = self.writer.get() {
            writer.unpark();
        }
        true
    }

    /// Lines that were lost so far, reported or not.
    fn lost(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed) + self.unwritten.load(Ordering::Relaxed)
    }

    /// Queues a line, or counts it as dropped.
    fn submit(&self, destination: Destination, message: fmt::Arguments<'_>) {
        if !self.queue(Line::new(destination, SystemTime::now(), message)) {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Queues a line, and waits for room in the queue until `deadline`.
    fn submit_until(&self, deadline: Instant, level: Level, message: fmt::Arguments<'_>) {
        let (destination, time) = (Destination::Stderr(level), SystemTime::now());
        while !self.queue(Line::new(destination, time, message)) {
            if self.is_writer() || Instant::now() >= deadline {
                self.dropped.fetch_add(1, Ordering::Relaxed);
                return;
            }
            thread::sleep(POLL_EVERY);
        }
    }

    /// Whether the calling thread is the writer.
    fn is_writer(&self) -> bool {
        self.writer.get().is_some_and(|writer| writer.id() == thread::current().id())
    }

    /// Waits until the lines that were queued so far are written or given up, or until `deadline`.
    fn flush(&self, deadline: Instant) {
        if self.is_writer() {
            // The writer itself is ending, so it writes the remaining lines until `deadline`.
            let mut notices = Notices::default();
            return self.write_waiting(
                &mut Output::new(Stderr { deadline: Some(deadline) }),
                &mut notices,
            );
        }
        let target = self.accepted.load(Ordering::Acquire);
        while self.settled.load(Ordering::Acquire) < target && Instant::now() < deadline {
            thread::sleep(POLL_EVERY);
        }
    }

    /// Writes the waiting lines, then how many lines were lost since that was last reported.
    fn write_waiting<S: Sink>(&self, output: &mut Output<S>, notices: &mut Notices) {
        while let Some(line) = self.lines.pop() {
            if notices.admits(&line) && !output.write(&line) {
                self.unwritten.fetch_add(1, Ordering::Relaxed);
            }
            self.settled.fetch_add(1, Ordering::Release);
            notices.lines_since += 1;
            if notices.lines_since >= LINES_MAX {
                self.report_losses(output, notices);
            }
        }
        self.report_losses(output, notices);
        while let Some((level, text, count)) = notices.repeats.take_due(Instant::now()) {
            let message =
                format_args!("{count} repetitions within {WINDOW:?} were not written: {text}");
            let line = Line::new(Destination::Stderr(level), SystemTime::now(), message);
            if !output.write(&line) {
                self.unwritten.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    fn report_losses<S: Sink>(&self, output: &mut Output<S>, notices: &mut Notices) {
        notices.lines_since = 0;
        let counts = (self.dropped.load(Ordering::Relaxed), self.unwritten.load(Ordering::Relaxed));
        if counts == notices.reported {
            return;
        }
        let (dropped, unwritten) = (counts.0 - notices.reported.0, counts.1 - notices.reported.1);
        let message = format_args!(
            "log lines lost: {} ({dropped} because stderr was read too slowly, \
             {unwritten} because stderr could not be written)",
            dropped + unwritten
        );
        let destination = Destination::Stderr(Level::Warning);
        if output.write(&Line::new(destination, SystemTime::now(), message)) {
            notices.reported = counts;
        }
    }
}

/// The lines that the writer has written recently, and its reports about lost lines.
#[derive(Default)]
struct Notices {
    /// The lines that were logged recently.
    repeats: Repeats<Level>,
    /// The counts of dropped and unwritten lines that were reported last.
    reported: (u64, u64),
    /// Lines since the writer last checked whether lines are lost.
    lines_since: usize,
}

impl Notices {
    /// Whether a line is written. Changes that were intended are never left out.
    fn admits(&mut self, line: &Line) -> bool {
        match line.destination {
            Destination::Banner | Destination::Stderr(Level::Info) => true,
            Destination::Stderr(level @ (Level::Error | Level::Warning)) => {
                self.repeats.admits(level, line.text(), Instant::now())
            }
        }
    }
}

/// Accepts bytes; `Stderr` or a test.
trait Sink {
    /// Writes a part of `bytes` and returns its length.
    fn write(&mut self, bytes: &[u8]) -> Result<usize, Errno>;
    /// Waits until bytes are accepted again after `EAGAIN`. Returns false if a retry is pointless.
    fn wait(&mut self) -> bool;
}

/// The standard error stream.
struct Stderr {
    /// When to give up on a stream that accepts no bytes; `None`: never.
    deadline: Option<Instant>,
}

impl Stderr {
    /// Waits until the stream accepts bytes. Returns false if the deadline passes.
    fn is_ready(&self, wait_max: &Timespec) -> bool {
        let stderr = io::stderr();
        poll(&mut [PollFd::new(&stderr, PollFlags::OUT)], Some(wait_max)) != Ok(0)
    }

    /// The time until the deadline, as an argument of poll(2).
    fn remaining(&self) -> Option<Timespec> {
        let left = self.deadline?.saturating_duration_since(Instant::now());
        Some(Timespec { tv_sec: 0, tv_nsec: i64::from(left.min(FLUSH_SPAN).subsec_nanos()) })
    }
}

impl Sink for Stderr {
    fn write(&mut self, bytes: &[u8]) -> Result<usize, Errno> {
        if let Some(remaining) = self.remaining()
            && !self.is_ready(&remaining)
        {
            return Err(Errno::TIMEDOUT);
        }
        rustix::io::write(io::stderr().as_fd(), bytes)
    }

    fn wait(&mut self) -> bool {
        match self.remaining() {
            Some(remaining) => self.is_ready(&remaining),
            None => {
                self.is_ready(&POLL_AGAIN);
                true
            }
        }
    }
}

/// Writes whole lines to a sink.
struct Output<S> {
    sink: S,
    /// The text of the line that is being written.
    text: String,
    /// The sink accepted only the beginning of the last line.
    mid_line: bool,
}

impl<S: Sink> Output<S> {
    fn new(sink: S) -> Self {
        Self { sink, text: String::with_capacity(2 * LINE_BYTES_MAX), mid_line: false }
    }

    /// Writes one line. Returns whether the sink accepted it whole.
    fn write(&mut self, line: &Line) -> bool {
        self.text.clear();
        if self.mid_line {
            self.text.push('\n');
        }
        // Writing to a String cannot fail.
        let _ = match line.destination {
            Destination::Banner => writeln!(self.text, "{}", line.text()),
            Destination::Stderr(level) => {
                let (stamp, level) = (Stamp(line.time), level.name());
                writeln!(self.text, "{stamp} {level} {}", line.text())
            }
        };
        let mut rest = self.text.as_bytes();
        while !rest.is_empty() {
            match self.sink.write(rest) {
                Ok(0) => break,
                Ok(count) => rest = rest.get(count..).unwrap_or_default(),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) if self.sink.wait() => {}
                Err(_) => break,
            }
        }
        let begun = rest.len() < self.text.len();
        self.mid_line = !rest.is_empty() && (begun || self.mid_line);
        rest.is_empty()
    }
}

/// A time in UTC with milliseconds, as in RFC 3339.
pub(crate) struct Stamp(pub(crate) SystemTime);

impl fmt::Display for Stamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let since = self.0.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let Civil { year, month, day, hour, minute, second } = Civil::of_unix(since.as_secs());
        let millis = since.subsec_millis();
        write!(f, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{millis:03}Z")
    }
}

/// The log of this process.
static LOG: OnceLock<Log> = OnceLock::new();

/// Starts the writer, and sends panics to the log.
///
/// # Errors
/// The thread cannot be started.
pub(crate) fn start() -> io::Result<()> {
    let log = LOG.get_or_init(|| Log::new(LINES_MAX));
    if log.writer.get().is_some() {
        return Ok(());
    }
    let writer = threads::spawn("log", move || write_forever(log))?;
    if log.writer.set(writer.thread().clone()).is_ok() {
        writer.thread().unpark();
    }
    std::panic::set_hook(Box::new(report_panic));
    Ok(())
}

fn write_forever(log: &Log) -> Ended {
    let mut output = Output::new(Stderr { deadline: None });
    let mut notices = Notices::default();
    loop {
        log.write_waiting(&mut output, &mut notices);
        // A line that was queued after the last look has already ended this wait.
        match notices.repeats.due_at() {
            None => thread::park(),
            Some(at) => thread::park_timeout(at.saturating_duration_since(Instant::now())),
        }
    }
}

/// Logs a panic, with a backtrace if `RUST_BACKTRACE` is set.
fn report_panic(panic: &std::panic::PanicHookInfo<'_>) {
    let current = thread::current();
    let name = current.name().unwrap_or("(unnamed)");
    let reason = panic.payload_as_str().unwrap_or("no message");
    match panic.location() {
        Some(at) => urgent(format_args!("thread {name} panicked at {at}: {reason}")),
        None => urgent(format_args!("thread {name} panicked: {reason}")),
    }
    let trace = std::backtrace::Backtrace::capture();
    if trace.status() == std::backtrace::BacktraceStatus::Captured {
        trace.to_string().lines().for_each(|line| urgent(format_args!("{line}")));
    }
}

/// The least important level that is logged, as an index of `Level::ALL`.
static LEAST: AtomicUsize = AtomicUsize::new(Level::ALL.len() - 1);

/// From now on, only lines of this level and of more severe levels are logged, and the lines of the start.
///
/// # Errors
/// There is no such level; the names of all.
pub(crate) fn set_level(name: &str) -> Result<(), String> {
    match Level::ALL.iter().position(|(known, _)| *known == name) {
        Some(index) => {
            LEAST.store(index, Ordering::Relaxed);
            Ok(())
        }
        None => Err(Level::ALL.map(|(name, _)| name).join(", ")),
    }
}

/// Whether lines of this level are logged.
fn is_logged(level: Level) -> bool {
    let least = LEAST.load(Ordering::Relaxed);
    Level::ALL.iter().take(least + 1).any(|(_, logged)| *logged == level)
}

/// Logs that something failed and the operator must act.
pub(crate) fn error(message: fmt::Arguments<'_>) {
    submit(Destination::Stderr(Level::Error), message);
}

/// Logs that a peer or a file was refused.
pub(crate) fn warning(message: fmt::Arguments<'_>) {
    if is_logged(Level::Warning) {
        submit(Destination::Stderr(Level::Warning), message);
    }
}

/// Logs a change that was requested, or that is expected.
pub(crate) fn info(message: fmt::Arguments<'_>) {
    if is_logged(Level::Info) {
        submit(Destination::Stderr(Level::Info), message);
    }
}

/// Logs a change that an operator has made, at each level of the log: `set log level` must not hide changes and their authors.
pub(crate) fn audit(message: fmt::Arguments<'_>) {
    submit(Destination::Stderr(Level::Info), message);
}

/// Prints a startup line, without time and level.
pub(crate) fn banner(message: fmt::Arguments<'_>) {
    submit(Destination::Banner, message);
}

/// Logs an error of a process that is about to end: waits for room in the queue, for `FLUSH_SPAN` at most.
pub(crate) fn urgent(message: fmt::Arguments<'_>) {
    if let Some(log) = LOG.get() {
        log.submit_until(Instant::now() + FLUSH_SPAN, Level::Error, message);
    }
}

/// Lines that were lost since the process started.
pub(crate) fn lost() -> u64 {
    LOG.get().map_or(0, Log::lost)
}

/// Waits until the lines logged so far are written, for `FLUSH_SPAN` at most.
pub(crate) fn flush() {
    if let Some(log) = LOG.get() {
        log.flush(Instant::now() + FLUSH_SPAN);
    }
}

fn submit(destination: Destination, message: fmt::Arguments<'_>) {
    if let Some(log) = LOG.get() {
        log.submit(destination, message);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn level_has_one_of_three_names() {
        assert_eq!(set_level("verbose"), Err("error, warning, info".to_owned()));
        assert_eq!(set_level("info"), Ok(()));
        assert!(is_logged(Level::Error) && is_logged(Level::Info));
    }
    use std::collections::VecDeque;

    /// Returns the results of its script, and accepts everything after the end of the script.
    #[derive(Default)]
    struct Script {
        results: VecDeque<Result<usize, Errno>>,
        written: String,
    }

    impl Sink for Script {
        fn write(&mut self, bytes: &[u8]) -> Result<usize, Errno> {
            let count = self.results.pop_front().unwrap_or(Ok(bytes.len()))?.min(bytes.len());
            self.written.push_str(core::str::from_utf8(&bytes[..count]).expect("it is ASCII"));
            Ok(count)
        }

        fn wait(&mut self) -> bool {
            true
        }
    }

    fn write_lines(log: &Log, results: impl IntoIterator<Item = Result<usize, Errno>>) -> String {
        let script = Script { results: results.into_iter().collect(), written: String::new() };
        let mut output = Output::new(script);
        log.write_waiting(&mut output, &mut Notices::default());
        output.sink.written
    }

    fn at(seconds: u64, millis: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_millis(seconds * 1000 + millis)
    }

    #[test]
    fn stamps_are_dates_in_utc() {
        for (seconds, millis, stamp) in [
            (0, 0, "1970-01-01T00:00:00.000Z"),
            (951_782_399, 999, "2000-02-28T23:59:59.999Z"),
            (951_782_400, 0, "2000-02-29T00:00:00.000Z"),
            (951_868_800, 1, "2000-03-01T00:00:00.001Z"),
            (1_735_689_599, 10, "2024-12-31T23:59:59.010Z"),
            (1_735_689_600, 0, "2025-01-01T00:00:00.000Z"),
            (1_795_330_141, 123, "2026-11-22T06:49:01.123Z"),
            (4_107_542_400, 0, "2100-03-01T00:00:00.000Z"),
        ] {
            assert_eq!(Stamp(at(seconds, millis)).to_string(), stamp);
        }
    }

    #[test]
    fn line_has_time_level_and_no_control_characters() {
        let log = Log::new(4);
        let text = "a\nb\u{1b}[31m é";
        let line = Line::new(Destination::Stderr(Level::Error), at(0, 7), format_args!("{text}"));
        assert!(log.queue(line));
        log.submit(Destination::Banner, format_args!("tidegate: as it is"));
        let mut output = Output::new(Collected(Vec::new()));
        log.write_waiting(&mut output, &mut Notices::default());
        assert_eq!(
            String::from_utf8(output.sink.0).expect("it is text"),
            "1970-01-01T00:00:00.007Z error a\\nb\\u{1b}[31m é\ntidegate: as it is\n"
        );
    }

    struct Collected(Vec<u8>);
    impl Sink for Collected {
        fn write(&mut self, bytes: &[u8]) -> Result<usize, Errno> {
            self.0.extend_from_slice(bytes);
            Ok(bytes.len())
        }
        fn wait(&mut self) -> bool {
            false
        }
    }

    #[test]
    fn message_is_cut_at_its_limit_between_characters() {
        let whole = |text: &str| Line::new(Destination::Banner, at(0, 0), format_args!("{text}"));
        let fits = "x".repeat(LINE_BYTES_MAX);
        assert_eq!(whole(&fits).text(), fits);
        for lead in 0..8 {
            let long = "x".repeat(lead) + &"\u{1f600}".repeat(LINE_BYTES_MAX);
            let line = whole(&long);
            let kept = line.text().strip_suffix(CUT_MARK).expect("the cut is marked");
            assert!(long.starts_with(kept), "{lead}");
            assert!((LINE_BYTES_MAX - 8..=LINE_BYTES_MAX).contains(&line.text().len()), "{lead}");
        }
    }

    #[test]
    fn full_queue_drops_lines_and_reports_them() {
        let log = Log::new(2);
        for number in 0..5 {
            log.submit(Destination::Banner, format_args!("line {number}"));
        }
        let written = write_lines(&log, []);
        let mut lines = written.lines();
        assert_eq!((lines.next(), lines.next()), (Some("line 0"), Some("line 1")));
        let notice = lines.next().expect("the loss is reported");
        assert!(notice.contains(" warning log lines lost: 3 (3 because"), "{notice}");
        assert_eq!(lines.next(), None);
    }

    #[test]
    fn failed_writes_are_counted_and_later_lines_are_whole() {
        use Errno as E;
        let log = Log::new(8);
        for number in 0..4 {
            log.submit(Destination::Banner, format_args!("line {number}"));
        }
        // A closed pipe; then a full disk in the middle of a line; then interruptions of a line that succeeds.
        let results =
            [Err(E::PIPE), Ok(3), Err(E::NOSPC), Ok(1), Err(E::INTR), Err(E::AGAIN), Ok(2)];
        let written = write_lines(&log, results);
        assert!(written.starts_with("lin\nline 2\nline 3\n"), "{written:?}");
        assert!(written.contains("log lines lost: 2 (0 because"), "{written:?}");
        assert_eq!(log.settled.load(Ordering::Relaxed), 4);
    }

    #[test]
    fn repeated_errors_are_left_out_and_counted() {
        let log = Log::new(256);
        for _ in 0..50 {
            log.submit(Destination::Stderr(Level::Error), format_args!("lua app: failed"));
            log.submit(Destination::Stderr(Level::Info), format_args!("certificates reloaded"));
        }
        let mut output = Output::new(Script { results: Vec::new().into(), written: String::new() });
        let mut notices = Notices::default();
        log.write_waiting(&mut output, &mut notices);
        let count = |text: &str| output.sink.written.matches(text).count() as u64;
        assert_eq!((count("failed\n"), count("reloaded\n")), (crate::repeats::BURST, 50));
        assert_eq!(
            log.settled.load(Ordering::Relaxed),
            100,
            "no thread waits for lines that were left out"
        );
        assert!(notices.repeats.due_at().is_some());
    }

    #[test]
    fn flush_and_urgent_lines_give_up_at_their_deadline() {
        let log = Log::new(1);
        log.submit(Destination::Banner, format_args!("nothing takes this line"));
        let deadline = Instant::now() + Duration::from_millis(5);
        log.flush(deadline);
        log.submit_until(deadline, Level::Error, format_args!("no room"));
        assert!(Instant::now() >= deadline);
        assert_eq!(log.lost(), 1);
    }
}
