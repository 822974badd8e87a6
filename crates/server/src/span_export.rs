//! Spans of requests on their way from the workers to a collector (OTLP over HTTP).
//! In: entries of workers whose traces are sampled. Out: requests to the collector; how many spans were lost.
//! Never: blocks a worker (`batches.rs`): a separate thread sends the spans.
//! Limits: those of `batches.rs`; `REQUEST_BYTES_MAX` bytes of spans in a request (and one batch more), of which one is sent at a
//! time. If the collector cannot be reached or is busy, the same request is sent again for `RETRY_SPAN` at most; spans that do
//! not fit meanwhile are lost and counted.
//! Invariant: a request that the collector has accepted is not sent again.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use tidegate_config::model::{RemoteAddress, Traces};
use tidegate_gate::access::Entry;
use tidegate_gate::identity::SpanIds;
use tidegate_gate::spans::{SpanEncoder, SpanSource, rejected};
use tidegate_wire::http1::{encode_field, encode_field_u64};

use crate::batches::{Batch, BatchSender, Delivery, SharedBatch};
use crate::cold_client::{self, Response};
use crate::cold_thread::ColdThread;
use crate::log;
use crate::randomness::random_seed;
use crate::threads::Ended;

/// Bytes of spans in a request. Collectors accept up to 20 MiB unless configured otherwise.
const REQUEST_BYTES_MAX: usize = 4 << 20;
/// Bytes of a response that are read: a few numbers and a string.
const RESPONSE_BYTES_MAX: usize = 64 << 10;
/// How long spans are collected before they are sent.
const COLLECT_SPAN: Duration = Duration::from_secs(1);
/// How long spans are sent again to a collector that does not take them.
const RETRY_SPAN: Duration = Duration::from_secs(60);
/// The time until the first retry. It doubles with each failure.
const RETRY_MIN: Duration = Duration::from_secs(1);
/// The longest time until a retry.
const RETRY_MAX: Duration = Duration::from_secs(30);

/// State that workers and the exporter share.
#[derive(Default)]
struct Shared {
    /// The exporter. At the end of the process it makes one more attempt.
    thread: Arc<ColdThread>,
    /// Spans that the collector has taken, and that no worker has counted yet.
    exported: AtomicU64,
    /// Spans that it has not taken, and that no worker has counted yet.
    lost: AtomicU64,
}

/// The counts of exported and lost spans since the last report.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct SpanCounts {
    /// Spans that the collector has taken.
    pub(crate) exported: u64,
    /// Spans that were lost.
    pub(crate) lost: u64,
}

/// A worker's side: encodes spans, and hands them over.
pub struct SpanSender {
    encoder: SpanEncoder,
    batches: BatchSender,
    shared: Arc<Shared>,
}

impl SpanSender {
    /// A sender without an exporter, and its batch. For tests.
    #[must_use]
    pub fn without_exporter() -> (Self, Arc<SharedBatch>) {
        let batch = Arc::new(SharedBatch::default());
        (Self::new(Arc::clone(&batch), Arc::default()), batch)
    }

    fn new(batch: Arc<SharedBatch>, shared: Arc<Shared>) -> Self {
        Self { encoder: SpanEncoder::default(), batches: BatchSender::new(batch), shared }
    }

    /// Whether spans wait to be handed over.
    pub(crate) fn has_spans(&self) -> bool {
        self.batches.has_entries()
    }

    /// Encodes the spans of a request.
    pub(crate) fn write(&mut self, entry: &Entry<'_>, ids: &SpanIds, is_secure: bool) {
        let Batch { bytes, entries } = self.batches.batch();
        *entries += self.encoder.encode(entry, ids, is_secure, bytes);
    }

    /// Hands the spans of the turn over.
    pub(crate) fn deliver(&mut self) -> SpanCounts {
        let take = |count: &AtomicU64| match count.load(Ordering::Relaxed) {
            0 => 0,
            _ => count.swap(0, Ordering::Relaxed),
        };
        let mut counts =
            SpanCounts { exported: take(&self.shared.exported), lost: take(&self.shared.lost) };
        match self.batches.deliver() {
            Delivery::Nothing | Delivery::Done { is_urgent: false } => {}
            Delivery::Done { is_urgent: true } => self.shared.thread.wake(),
            Delivery::Lost(spans) => counts.lost += spans,
        }
        counts
    }

    /// Hands over the last spans.
    pub(crate) fn deliver_last(&mut self) {
        self.batches.deliver_last();
    }
}

/// The export of the process, before its thread is started.
pub(crate) struct SpanExport {
    settings: Traces,
    batches: Vec<Arc<SharedBatch>>,
    shared: Arc<Shared>,
}

impl SpanExport {
    /// The export that `settings` describe.
    pub(crate) fn new(settings: &Traces) -> Self {
        Self { settings: settings.clone(), batches: Vec::new(), shared: Arc::default() }
    }

    /// The sender of another worker.
    pub(crate) fn sender(&mut self) -> SpanSender {
        let batch = Arc::new(SharedBatch::default());
        self.batches.push(Arc::clone(&batch));
        SpanSender::new(batch, Arc::clone(&self.shared))
    }

    /// Starts the thread.
    ///
    /// # Errors
    /// The kernel refused it.
    pub(crate) fn start(self) -> io::Result<Arc<ColdThread>> {
        let thread = Arc::clone(&self.shared.thread);
        let host = rustix::system::uname();
        let instance = format!("{:016x}{:016x}", random_seed(), random_seed());
        let version = env!("CARGO_PKG_VERSION");
        let host = host.nodename().to_string_lossy().into_owned();
        let exporter = Exporter {
            source: SpanSource::new(&self.settings, version, &host, &instance),
            settings: self.settings,
            batches: self.batches,
            next: 0,
            shared: self.shared,
            taken: Batch::default(),
            pending: Batch::default(),
            schedule: Schedule::default(),
        };
        thread.start("spans", move || exporter.run())?;
        Ok(thread)
    }
}

/// The result of a request to the collector.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Outcome {
    /// It has taken the spans, except some.
    Taken { rejected: u64, why: String },
    /// It may take them later, if it says so after this time.
    Later { why: String, after: Option<Duration> },
    /// It will not take them.
    Refused { why: String },
}

impl Outcome {
    /// The outcome that a response reports (OTLP 1.x, section OTLP/HTTP Response).
    fn of(response: Result<Response, String>) -> Self {
        let response = match response {
            Ok(response) => response,
            Err(why) => return Self::Later { why, after: None },
        };
        match response.status {
            200..=299 => {
                let (rejected, why) = rejected(&response.content);
                Self::Taken { rejected, why }
            }
            status @ (429 | 502 | 503 | 504) => {
                let seconds = response.values("retry-after").next().and_then(|v| v.parse().ok());
                let after = seconds.map(Duration::from_secs);
                Self::Later { why: format!("the status is {status}"), after }
            }
            status @ 300..=399 => {
                Self::Refused { why: format!("the status is {status}: redirects are not followed") }
            }
            status => Self::Refused { why: format!("the status is {status}") },
        }
    }
}

/// When the request is sent again.
#[derive(Default)]
struct Schedule {
    /// When the first attempt failed; `None`: there was no failure.
    failed_at: Option<Instant>,
    /// When the next attempt is due; `None`: at once.
    due: Option<Instant>,
    /// Failures in a row.
    failures: u32,
}

impl Schedule {
    /// Notes a failure. Returns whether there is another attempt.
    fn note_failure(&mut self, after: Option<Duration>, now: Instant) -> bool {
        let doubled = RETRY_MIN * 2_u32.pow(self.failures.min(8));
        let wait = after.unwrap_or(doubled).clamp(RETRY_MIN, RETRY_MAX);
        self.failures += 1;
        self.due = Some(now + wait);
        let failed_at = *self.failed_at.get_or_insert(now);
        now + wait <= failed_at + RETRY_SPAN
    }
}

/// The thread.
struct Exporter {
    settings: Traces,
    source: SpanSource,
    /// By worker.
    batches: Vec<Arc<SharedBatch>>,
    /// The worker whose spans are taken first.
    next: usize,
    shared: Arc<Shared>,
    /// The spans of one worker. The next swap returns its memory to the worker.
    taken: Batch,
    /// The spans of the request that is being sent.
    pending: Batch,
    schedule: Schedule,
}

impl Exporter {
    fn run(mut self) -> Ended {
        loop {
            let ends = self.shared.thread.ends();
            let has_more = self.collect();
            let is_due = self.schedule.due.is_none_or(|due| Instant::now() >= due);
            if self.pending.entries > 0 && (is_due || ends) {
                self.send(ends);
            }
            if ends && !(has_more && self.pending.entries == 0) {
                return self.shared.thread.note_end();
            }
            if !has_more || self.pending.entries > 0 {
                thread::park_timeout(COLLECT_SPAN);
            }
        }
    }

    /// Takes the spans of the workers, if those before were sent. Returns whether there may be more.
    fn collect(&mut self) -> bool {
        if self.pending.entries > 0 {
            return true;
        }
        for _ in 0..self.batches.len() {
            let batch = &self.batches[self.next];
            self.next = (self.next + 1) % self.batches.len();
            batch.take(&mut self.taken);
            self.pending.append(&self.taken);
            if self.pending.bytes.len() >= REQUEST_BYTES_MAX {
                return true;
            }
        }
        false
    }

    /// Sends the pending spans. `is_last`: there is no further attempt.
    fn send(&mut self, is_last: bool) {
        let request = encode_request(&self.settings, &self.source.request(&self.pending.bytes));
        let endpoint = &self.settings.endpoint;
        let response = cold_client::exchange(endpoint, &request, false, RESPONSE_BYTES_MAX);
        let (spans, url) = (self.pending.entries, shown(endpoint));
        match Outcome::of(response) {
            Outcome::Taken { rejected, why } => {
                let rejected = rejected.min(spans);
                self.shared.exported.fetch_add(spans - rejected, Ordering::Relaxed);
                if rejected > 0 {
                    self.lose(rejected, &format!("the collector rejected them: {why}"));
                }
                if self.schedule.failures > 0 {
                    log::info(format_args!("traces: the collector {url} accepts spans again"));
                }
                self.done();
            }
            Outcome::Later { why, after } => {
                let is_first = self.schedule.failures == 0;
                if is_last || !self.schedule.note_failure(after, Instant::now()) {
                    self.lose(spans, &why);
                    return self.done();
                }
                if is_first {
                    log::warning(format_args!(
                        "traces: the collector {url} does not accept spans; they are sent again for up to {} s: {why}",
                        RETRY_SPAN.as_secs()
                    ));
                }
            }
            Outcome::Refused { why } => {
                self.lose(spans, &why);
                self.done();
            }
        }
    }

    /// The pending spans are sent or lost.
    fn done(&mut self) {
        self.pending.clear();
        self.pending.bytes.shrink_to(REQUEST_BYTES_MAX / 4);
        self.schedule = Schedule::default();
    }

    fn lose(&self, spans: u64, why: &str) {
        self.shared.lost.fetch_add(spans, Ordering::Relaxed);
        let url = shown(&self.settings.endpoint);
        log::warning(format_args!("traces: {spans} spans for the collector {url} are lost: {why}"));
    }
}

/// The request with the spans in `body`.
fn encode_request(settings: &Traces, body: &[u8]) -> Vec<u8> {
    let mut request = cold_client::begin_request(&settings.endpoint, "POST");
    encode_field(&mut request, "Content-Type", b"application/x-protobuf");
    encode_field_u64(&mut request, "Content-Length", body.len() as u64);
    for (name, value) in &settings.headers {
        encode_field(&mut request, name, value.as_bytes());
    }
    request.extend_from_slice(b"\r\n");
    request.extend_from_slice(body);
    request
}

/// An address without its query, which may contain a secret.
fn shown(address: &RemoteAddress) -> &str {
    address.url.split('?').next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn response(status: u16, fields: &[(&str, &str)], content: &[u8]) -> Result<Response, String> {
        let own = fields.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        Ok(Response { status, fields: own.collect(), content: content.to_vec() })
    }

    #[test]
    fn responses_state_whether_spans_are_sent_again() {
        let later = |why: &str, after: Option<u64>| Outcome::Later {
            why: why.to_owned(),
            after: after.map(Duration::from_secs),
        };
        let refused = |why: &str| Outcome::Refused { why: why.to_owned() };
        let all = Outcome::Taken { rejected: 0, why: String::new() };
        // `partial_success` with 2 rejected spans and the text "no".
        let partial = [10, 6, 8, 2, 18, 2, b'n', b'o'];
        for (given, expected) in [
            (response(200, &[], b""), all.clone()),
            (response(202, &[], b"{}"), all),
            (response(200, &[], &partial), Outcome::Taken { rejected: 2, why: "no".to_owned() }),
            (response(503, &[("retry-after", "7")], b""), later("the status is 503", Some(7))),
            (response(429, &[("retry-after", "soon")], b""), later("the status is 429", None)),
            (Err("refused".to_owned()), later("refused", None)),
            (response(400, &[], b""), refused("the status is 400")),
            (response(307, &[], b""), refused("the status is 307: redirects are not followed")),
        ] {
            assert_eq!(Outcome::of(given), expected);
        }
    }

    #[test]
    fn failed_attempts_are_repeated_with_longer_pauses_for_a_minute() {
        let start = Instant::now();
        let (mut schedule, mut now, mut pauses) = (Schedule::default(), start, Vec::new());
        while schedule.note_failure(None, now) {
            let due = schedule.due.expect("another attempt is due");
            pauses.push((due - now).as_secs());
            now = due;
        }
        assert_eq!(pauses, [1, 2, 4, 8, 16]);
        let mut schedule = Schedule::default();
        assert!(schedule.note_failure(Some(Duration::from_secs(3600)), start));
        assert_eq!(schedule.due, Some(start + RETRY_MAX));
        assert!(!schedule.note_failure(Some(Duration::from_secs(3600)), start + RETRY_SPAN));
    }
}
