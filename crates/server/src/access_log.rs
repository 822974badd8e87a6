//! The access log: lines on their way from the workers to a file, to stdout or to syslog (`syslog.rs`).
//! In: entries of workers. Out: whole lines for the entries that the settings select; the number of lost lines.
//! Never: blocks a worker (`batches.rs`); displaces lines of the process's own log (`log.rs`), which has a thread and a queue
//! of its own.
//! Limits: those of `batches.rs`; further lines are lost and counted.
//! Invariant: only the writer thread writes to the destination.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{FileTypeExt as _, OpenOptionsExt as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use tidegate_config::model::{AccessFormat, AccessLog, AccessTarget};
use tidegate_gate::access::{Entry, LineEncoder, Selection};

pub use crate::batches::SharedBatch;
use crate::batches::{Batch, BatchSender, Delivery};
use crate::cold_thread::ColdThread;
use crate::files;
use crate::log;
use crate::syslog::Syslog;
use crate::threads::Ended;

/// How long the writer collects lines before it writes them.
const COLLECT_SPAN: Duration = Duration::from_millis(50);
/// How often lost lines are reported.
const REPORT_SPAN: Duration = Duration::from_secs(10);
/// How long the writer waits for a destination that accepts no bytes before it polls again.
const POLL_AGAIN: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };

/// What workers and the writer share.
#[derive(Default)]
struct Shared {
    /// The writer sleeps until a worker wakes it.
    is_asleep: AtomicBool,
    /// The writer must open the destination again.
    reopens: AtomicBool,
    /// The handle of the writer. The writer ends when all batches are empty.
    thread: Arc<ColdThread>,
    /// Lines that were lost because the batch of their worker was full.
    dropped: AtomicU64,
    /// Lines that the destination did not accept, and that no worker has counted yet.
    uncounted: AtomicU64,
}

impl Shared {
    fn wake_if_asleep(&self) {
        if self.is_asleep.load(Ordering::SeqCst) && self.is_asleep.swap(false, Ordering::SeqCst) {
            self.thread.wake();
        }
    }
}

/// A worker's side of the log: encodes entries, and hands the lines over.
pub struct LineSender {
    /// The settings of the log.
    settings: AccessLog,
    /// Chooses the entries of which lines are written.
    selection: Selection,
    /// Encodes entries as lines.
    encoder: LineEncoder,
    /// The lines of this turn, and the batch that is shared with the writer.
    sender: BatchSender,
    /// Shared with the writer.
    shared: Arc<Shared>,
}

impl LineSender {
    /// A sender without a writer, and its shared batch. For tests.
    #[must_use]
    pub fn without_writer(settings: &AccessLog) -> (Self, Arc<SharedBatch>) {
        let batch = Arc::new(SharedBatch::default());
        (Self::new(settings, 0, Arc::clone(&batch), Arc::default()), batch)
    }

    fn new(settings: &AccessLog, seed: u64, batch: Arc<SharedBatch>, shared: Arc<Shared>) -> Self {
        Self {
            settings: settings.clone(),
            selection: Selection::new(settings, seed),
            encoder: LineEncoder::new(settings.format),
            sender: BatchSender::new(batch),
            shared,
        }
    }

    /// The settings of the log.
    pub(crate) fn settings(&self) -> &AccessLog {
        &self.settings
    }

    /// Whether lines contain the load of the worker.
    pub(crate) fn shows_loads(&self) -> bool {
        self.settings.format == AccessFormat::Http
    }

    /// Whether lines wait to be handed over.
    pub(crate) fn has_lines(&self) -> bool {
        self.sender.has_entries()
    }

    /// Encodes an entry if the settings select it.
    pub(crate) fn write(&mut self, entry: &Entry<'_>) {
        if self.selection.takes(entry) {
            let batch = self.sender.batch();
            self.encoder.encode(entry, &mut batch.bytes);
            batch.entries += 1;
        }
    }

    /// Hands the lines of the turn over. If the writer holds the lock, the lines wait for the next turn. Returns how many lines
    /// were lost.
    pub(crate) fn deliver(&mut self) -> u64 {
        let uncounted = match self.shared.uncounted.load(Ordering::Relaxed) {
            0 => 0,
            _ => self.shared.uncounted.swap(0, Ordering::Relaxed),
        };
        match self.sender.deliver() {
            Delivery::Nothing => uncounted,
            Delivery::Done { is_urgent } => {
                match is_urgent {
                    true => self.shared.thread.wake(),
                    false => self.shared.wake_if_asleep(),
                }
                uncounted
            }
            Delivery::Lost(lines) => {
                self.shared.dropped.fetch_add(lines, Ordering::Relaxed);
                self.shared.thread.wake();
                uncounted + lines
            }
        }
    }

    /// Hands over the last lines, and waits for the writer to release the batch.
    pub(crate) fn deliver_last(&mut self) {
        self.sender.deliver_last();
        self.shared.thread.wake();
    }
}

/// The access log of the process, before its writer is started.
pub(crate) struct Log {
    /// The settings of the log.
    settings: AccessLog,
    /// The destination; `None`: a file, which could be opened.
    sink: Option<Sink>,
    /// The batches that the workers share with the writer, by worker.
    batches: Vec<Arc<SharedBatch>>,
    /// Shared by the workers and the writer.
    shared: Arc<Shared>,
}

impl Log {
    /// Opens the destination, or makes sure that it can be opened.
    ///
    /// # Errors
    /// The file cannot be opened; the message names it.
    pub(crate) fn open(settings: &AccessLog) -> Result<Self, String> {
        let sink = Sink::open(&settings.to).map(Sink::unless_file)?;
        Ok(Self { settings: settings.clone(), sink, batches: Vec::new(), shared: Arc::default() })
    }

    /// Adds a worker, and returns its sender.
    pub(crate) fn sender(&mut self) -> LineSender {
        let batch = Arc::new(SharedBatch::default());
        let seed = self.batches.len() as u64;
        self.batches.push(Arc::clone(&batch));
        LineSender::new(&self.settings, seed, batch, Arc::clone(&self.shared))
    }

    /// Starts the writer. The workers must have their own tables of descriptors by now.
    ///
    /// # Errors
    /// The kernel refused the thread.
    pub(crate) fn start(self) -> io::Result<WriterWaker> {
        let waker = WriterWaker(Arc::clone(&self.shared));
        let Self { settings, sink, batches, shared } = self;
        let open = || match Sink::open(&settings.to) {
            Ok(sink) => Some(sink),
            Err(error) => {
                // It could be opened a moment ago.
                log::error(format_args!("{error}; lines are lost until it is opened again"));
                None
            }
        };
        let sink = sink.or_else(open);
        let writer = Writer {
            to: settings.to,
            sink,
            batches,
            shared,
            taken: Batch::default(),
            mid_line: false,
            unwritten: 0,
            reported: 0,
            report_at: Instant::now(),
        };
        waker.0.thread.start("access-log", move || writer.run())?;
        Ok(waker)
    }
}

/// Passes the requests of the process to the writer: open the file again, write the last lines.
#[derive(Clone)]
pub(crate) struct WriterWaker(Arc<Shared>);

impl WriterWaker {
    /// Opens the destination again.
    pub(crate) fn reopen(&self) {
        self.0.reopens.store(true, Ordering::SeqCst);
        self.0.thread.wake();
    }

    /// Waits until all lines are written, at most for `log::FLUSH_SPAN`. No worker runs any more.
    pub(crate) fn finish(&self) {
        self.0.thread.finish();
    }
}

/// Where lines are written.
enum Sink {
    Stream(Stream),
    Syslog(Box<Syslog>),
}

/// A destination for a stream of bytes.
enum Stream {
    Stdout(io::Stdout),
    File(File),
}

impl Sink {
    /// Closes a file. The workers, which are started later, copy all descriptors: their copies would keep the space of the file
    /// after it was rotated and deleted. A fifo stays open, because its reader would treat a close as the end of the log.
    fn unless_file(self) -> Option<Self> {
        let is_file = match &self {
            Self::Stream(Stream::File(file)) => file.metadata().is_ok_and(|meta| meta.is_file()),
            Self::Stream(Stream::Stdout(_)) | Self::Syslog(_) => false,
        };
        (!is_file).then_some(self)
    }

    fn open(to: &AccessTarget) -> Result<Self, String> {
        match to {
            AccessTarget::Stdout => Ok(Self::Stream(Stream::Stdout(io::stdout()))),
            AccessTarget::Syslog(address) => Syslog::open(address)
                .map(|syslog| Self::Syslog(Box::new(syslog)))
                .map_err(|error| format!("the access log {address} cannot be opened: {error}")),
            AccessTarget::File(path) => OpenOptions::new()
                .append(true)
                .create(true)
                .mode(0o640)
                // A fifo without a reader is an error, and does not make the start wait.
                .custom_flags(files::open_flags())
                .open(path)
                .map(|file| Self::Stream(Stream::File(file)))
                .map_err(|error| {
                    let is_fifo =
                        std::fs::metadata(path).is_ok_and(|meta| meta.file_type().is_fifo());
                    match is_fifo && error.raw_os_error() == Some(Errno::NXIO.raw_os_error()) {
                        true => format!(
                            "the access log {path} cannot be opened: it is a fifo that no program \
                             reads; start the reader first, or name a file"
                        ),
                        false => format!("the access log {path} cannot be opened: {error}"),
                    }
                }),
        }
    }
}

impl Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Stdout(stdout) => stdout.as_fd(),
            Self::File(file) => file.as_fd(),
        }
    }

    /// Writes `bytes`. Returns how many bytes were accepted before an error, or before the destination is to be opened
    /// again because it accepts none.
    fn write(&self, bytes: &[u8], reopens: &AtomicBool) -> usize {
        let mut written = 0;
        while let Some(rest) = bytes.get(written..).filter(|rest| !rest.is_empty()) {
            match rustix::io::write(self.as_fd(), rest) {
                Ok(0) => break,
                Ok(count) => written += count,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) if reopens.load(Ordering::SeqCst) => break,
                Err(Errno::AGAIN) => {
                    let fd = self.as_fd();
                    // Tries to write again, whatever the result of the wait.
                    let _ = poll(
                        &mut [PollFd::from_borrowed_fd(fd, PollFlags::OUT)],
                        Some(&POLL_AGAIN),
                    );
                }
                Err(_) => break,
            }
        }
        written
    }
}

/// The writer thread.
struct Writer {
    /// The destination as configured.
    to: AccessTarget,
    /// The open destination; `None`: it could not be opened at the start.
    sink: Option<Sink>,
    /// The batches that the workers share with the writer, by worker.
    batches: Vec<Arc<SharedBatch>>,
    /// Shared with the workers.
    shared: Arc<Shared>,
    /// The lines that are being written. The buffer goes back to a worker with the next swap.
    taken: Batch,
    /// The destination accepted only the beginning of the last line.
    mid_line: bool,
    /// Lines that the destination did not accept.
    unwritten: u64,
    /// Lost lines, dropped ones included, that were reported.
    reported: u64,
    /// When lost lines may be reported next.
    report_at: Instant,
}

/// What the writer found in the batches.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Found {
    Nothing,
    /// A worker continues its lines in this turn.
    Borrowed,
    Lines,
}

impl Writer {
    fn run(mut self) -> Ended {
        loop {
            if self.shared.reopens.swap(false, Ordering::SeqCst) {
                self.reopen();
            }
            let found = self.write_all();
            self.report_losses(false);
            if found != Found::Lines && self.shared.thread.ends() {
                self.report_losses(true);
                return self.shared.thread.note_end();
            }
            if found != Found::Nothing {
                // A worker that has borrowed its lines wakes the writer when it returns them.
                thread::park_timeout(COLLECT_SPAN);
                continue;
            }
            // A worker that hands lines over after the next check sees that the writer is asleep.
            self.shared.is_asleep.store(true, Ordering::SeqCst);
            if self.write_all() == Found::Nothing && !self.shared.thread.ends() {
                match self.unreported() {
                    0 => thread::park(),
                    _ => thread::park_timeout(REPORT_SPAN),
                }
            }
            self.shared.is_asleep.store(false, Ordering::SeqCst);
            thread::park_timeout(COLLECT_SPAN);
        }
    }

    /// Writes the lines of all workers.
    fn write_all(&mut self) -> Found {
        let mut found = Found::Nothing;
        for index in 0..self.batches.len() {
            let is_borrowed = self.batches[index].take(&mut self.taken);
            if self.taken.entries > 0 {
                found = Found::Lines;
                self.write_taken();
            } else if is_borrowed && found == Found::Nothing {
                found = Found::Borrowed;
            }
        }
        found
    }

    fn write_taken(&mut self) {
        match &mut self.sink {
            None => self.note_unwritten(self.taken.entries),
            Some(Sink::Stream(_)) => self.write_stream(),
            Some(Sink::Syslog(syslog)) => {
                let unsent = syslog.send(&self.taken.bytes, SystemTime::now());
                self.note_unwritten(unsent);
            }
        }
    }

    fn write_stream(&mut self) {
        let Some(Sink::Stream(stream)) = &self.sink else { return };
        if self.mid_line {
            if stream.write(b"\n", &self.shared.reopens) == 0 {
                self.note_unwritten(self.taken.entries);
                return;
            }
            self.mid_line = false;
        }
        let written = stream.write(&self.taken.bytes, &self.shared.reopens);
        if written < self.taken.bytes.len() {
            let (done, rest) = self.taken.bytes.split_at(written);
            let lines = rest.iter().filter(|byte| **byte == b'\n').count() as u64;
            self.mid_line = done.last().is_some_and(|byte| *byte != b'\n');
            self.note_unwritten(lines);
        }
    }

    /// Opens the destination again. If that fails, the previous one stays in use.
    fn reopen(&mut self) {
        match Sink::open(&self.to) {
            Ok(sink) => {
                self.sink = Some(sink);
                self.mid_line = false;
                log::info(format_args!("the access log was opened again"));
            }
            Err(error) => {
                let lines = match self.sink {
                    Some(_) => "still go to the file that was open before",
                    None => "are lost until it is opened again",
                };
                log::error(format_args!("{error}; lines {lines}"));
            }
        }
    }

    fn note_unwritten(&mut self, lines: u64) {
        self.unwritten += lines;
        self.shared.uncounted.fetch_add(lines, Ordering::Relaxed);
    }

    fn unreported(&self) -> u64 {
        self.unwritten + self.shared.dropped.load(Ordering::Relaxed) - self.reported
    }

    /// Reports lost lines, at most once in `REPORT_SPAN`. `at_once`: even if less time has passed.
    fn report_losses(&mut self, at_once: bool) {
        let count = self.unreported();
        if count == 0 || (!at_once && Instant::now() < self.report_at) {
            return;
        }
        self.report_at = Instant::now() + REPORT_SPAN;
        self.reported += count;
        log::warning(format_args!(
            "access log lines lost: {count}, because the log could not be written or was written too slowly"
        ));
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::time::Duration;

    use super::*;

    #[test]
    fn file_that_cannot_be_opened_at_the_start_is_opened_by_reopen() {
        let name = format!("tidegate-access-log-{}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        fs::create_dir_all(&folder).expect("a folder can be made");
        let path = folder.join("log");
        let text = format!(
            "[log]\naccess = {{ to = {:?} }}\n[[listener]]\nbind = \"127.0.0.1:1\"\n[[route]]\nrespond = {{ status = 200 }}\n",
            format!("file:{}", path.display())
        );
        let config = tidegate_config::parse(&text, "the test").expect("it is valid");
        let settings = config.log.access.expect("it has an access log");
        let log = Log::open(&settings).expect("the file can be opened");
        fs::remove_file(&path).expect("it was made");
        fs::create_dir(&path).expect("a folder can be made");
        let waker = log.start().expect("the thread starts");
        fs::remove_dir(&path).expect("it is empty");
        waker.reopen();
        let begin = Instant::now();
        while !path.is_file() {
            assert!(begin.elapsed() < Duration::from_secs(60), "the file was not opened");
            thread::sleep(Duration::from_millis(5));
        }
        waker.finish();
        fs::remove_dir_all(&folder).expect("it exists");
    }
}
