//! The report of `bench push`, for people and for programs, and its lines of progress.
//! In: the counts of the threads and of the course of the run. Out: text, or one JSON object.
//! Never: reports a percentile that has too few samples; hides that the client or its CPUs limited the figures.

use super::subscribers::SubscribersOutcome;
use super::{Pace, PushPlan, PushRun, Shared, Sum};
use crate::histogram::Times;
use crate::machine::{self, NetworkUse, Spent};
use crate::quantity::{counted, micros, short};
use crate::report::sockets::{
    self, busy_in_words, times_to_json, write_percentiles, write_reasons,
};
use core::fmt::Write as _;
use core::sync::atomic::Ordering::Relaxed;
use core::time::Duration;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// Memory of the server, the client and the kernel at one moment, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// Resident memory of the server.
    pub server: u64,
    /// Resident memory of this process.
    pub client: u64,
    /// Kernel objects of the whole machine (`Slab` of /proc/meminfo).
    pub slab: u64,
    /// Socket buffers of the whole machine (`mem` of /proc/net/sockstat).
    pub sockets: u64,
}

impl Memory {
    /// The memory now; 0 where it is unknown.
    #[must_use]
    pub fn now(server_pids: &[u32]) -> Self {
        Self {
            server: server_pids
                .iter()
                .filter_map(|pid| machine::spent(*pid))
                .map(|spent| spent.resident_bytes)
                .sum(),
            client: machine::resident_bytes(std::process::id()),
            slab: machine::slab_bytes(),
            sockets: machine::socket_bytes(),
        }
    }
}

/// The figures of a run.
pub struct PushReport<'a> {
    plan: &'a PushPlan,
    outcome: SubscribersOutcome,
    course: PushRun<'a>,
    /// Messages that should have been received.
    expected: u64,
    /// Times from the publish call to the first receipt, and to the last receipt, of each tracked publication that was received.
    first: Times,
    last: Times,
    /// Deliveries per second during these broadcasts.
    per_second: f64,
    /// Connections were not opened because memory became scarce.
    is_full: bool,
}

impl<'a> PushReport<'a> {
    /// The report of a run.
    pub(super) fn new(
        plan: &'a PushPlan,
        outcome: SubscribersOutcome,
        course: PushRun<'a>,
        shared: &Shared,
    ) -> Self {
        let (mut expected, mut first, mut last) = (0, Times::fine(), Times::fine());
        let (mut deliveries, mut seconds) = (0, 0.0);
        for &number in &course.accepted {
            expected += outcome.opened[(number % plan.channels) as usize];
            let spread = outcome.spreads.get(number as usize).filter(|spread| spread.count > 0);
            if let (Some(spread), Some(at)) = (spread, shared.published_at(number)) {
                let since = |time: u64| Duration::from_nanos(time.saturating_sub(at));
                first.record(since(spread.first));
                last.record(since(spread.last));
                deliveries += spread.count;
                seconds += since(spread.last).as_secs_f64();
            }
        }
        let per_second = deliveries as f64 / f64::max(seconds, 1e-9);
        let is_full = shared.is_full.load(Relaxed);
        Self { plan, outcome, course, expected, first, last, per_second, is_full }
    }

    /// Whether all connections were established and kept, and all messages arrived, each once and in order.
    #[must_use]
    pub fn is_successful(&self) -> bool {
        let receipts = &self.outcome.receipts;
        self.outcome.failed.is_empty()
            && self.outcome.lost.is_empty()
            && self.course.failed.is_empty()
            && self.opened() > 0
            && receipts.lost(self.expected) == 0
            && receipts.duplicated + receipts.out_of_order == 0
            && (self.outcome.talks.unread == 0 || self.course.was_stopped)
    }

    fn opened(&self) -> u64 {
        self.outcome.opened.iter().sum()
    }

    /// Bytes for each connection, of the memory that `of` selects.
    fn per_connection(&self, of: impl Fn(&Memory) -> u64) -> f64 {
        let (before, idle) = &self.course.memory;
        of(idle).saturating_sub(of(before)) as f64 / self.opened().max(1) as f64
    }

    /// Warnings that are printed before the figures.
    fn caveats(&self) -> Vec<String> {
        let mut words = Vec::new();
        if self.course.was_stopped {
            words.push("Stopped early by a signal.".to_owned());
        }
        if self.is_full {
            words.push(format!(
                "Fewer connections than planned: the host had less than {} MiB of memory available.",
                self.plan.memory_min >> 20
            ));
        }
        words.extend(busy_in_words(self.outcome.busiest));
        words.extend(self.outcome.used.delay_in_words());
        if self.plan.publications as usize > self.outcome.spreads.len() {
            words.push(format!(
                "First and last receipt: measured only for the first {} publications.",
                self.outcome.spreads.len()
            ));
        }
        words
    }

    /// The report for people.
    #[must_use]
    pub fn to_text(&self) -> String {
        let sections: [&dyn Fn(&mut String) -> core::fmt::Result; 4] = [
            &|text| self.write_load(text),
            &|text| self.write_counts(text),
            &|text| self.write_times(text),
            &|text| self.write_use(text),
        ];
        sockets::to_text(self.caveats(), sections)
    }

    fn write_load(&self, text: &mut String) -> core::fmt::Result {
        let plan = self.plan;
        let threads = counted(plan.threads.into(), "thread");
        let sources = match plan.connections.sources.len() as u64 {
            0 | 1 => String::new(),
            count => format!(" from {count} addresses"),
        };
        let channels = match plan.channels {
            1 => String::new(),
            count => format!(" in {count} channels"),
        };
        let publications = match plan.pace {
            Pace::Broadcasts { count, pause } => {
                let count = counted(count.into(), "broadcast");
                format!("{count} of {} bytes, {pause:?} apart", plan.payload.size())
            }
            Pace::Rate { per_second, duration } => {
                let rate = short(per_second);
                format!("{rate}/s of {} bytes for {duration:?}", plan.payload.size())
            }
        };
        let host = plan.address;
        writeln!(text, "ws://{host}{}", plan.target)?;
        writeln!(
            text,
            "  {} on {threads}{sources}{channels}\n  {publications}",
            counted(plan.connections.connections.into(), "connection")
        )?;
        if let Some(talk) = plan.talk {
            writeln!(
                text,
                "  {}% of the subscribers send {} bytes every {:?}",
                short(talk.share * 100.0),
                talk.bytes,
                talk.every
            )?;
        }
        Ok(())
    }

    fn write_counts(&self, text: &mut String) -> core::fmt::Result {
        let outcome = &self.outcome;
        let seconds = outcome.opened_last as f64 / 1e9;
        let failed: u64 = outcome.failed.values().sum();
        let lost: u64 = outcome.lost.values().sum();
        let opened = self.opened();
        writeln!(
            text,
            "  setup        {opened} established, {failed} failed, in {seconds:.2} s: {}/s",
            short(opened as f64 / seconds.max(1e-9))
        )?;
        write_reasons(text, "failed", &outcome.failed)?;
        writeln!(text, "  connections  {} active at the end, {lost} lost", opened - lost)?;
        write_reasons(text, "lost", &outcome.lost)?;
        let rejected: u64 = self.course.failed.values().sum();
        writeln!(
            text,
            "  published    {} accepted, {rejected} failed",
            self.course.accepted.len()
        )?;
        write_reasons(text, "failed", &self.course.failed)?;
        let receipts = &outcome.receipts;
        writeln!(
            text,
            "  messages     {} expected, {} received,\n               {} lost, {} duplicated, {} out of order",
            self.expected,
            receipts.received,
            receipts.lost(self.expected),
            receipts.duplicated,
            receipts.out_of_order
        )?;
        if receipts.foreign > 0 {
            writeln!(text, "               {} messages of other publishers", receipts.foreign)?;
        }
        self.write_fairness(text)?;
        let talks = &outcome.talks;
        if self.plan.talk.is_some() {
            writeln!(
                text,
                "  sent         {} messages by subscribers, {} not read, {} skipped",
                talks.sent, talks.unread, talks.skipped
            )?;
        }
        Ok(())
    }

    fn write_fairness(&self, text: &mut String) -> core::fmt::Result {
        let fairness = &self.outcome.fairness;
        let (Some((least, most)), Some(jain)) = (fairness.messages(), fairness.jain()) else {
            return Ok(());
        };
        // The first percentile needs as many connections as the 99th.
        let means = fairness.means();
        let of = |percent| match means.carries(99.0) {
            true => micros(means.percentile_us(percent)),
            false => "-".to_owned(),
        };
        writeln!(
            text,
            "  fairness     {least} to {most} messages on each connection; mean latencies of the\n               \
             connections: {} (p1) to {} (p99), Jain's index {jain:.3}",
            of(1.0),
            of(99.0)
        )
    }

    fn write_times(&self, text: &mut String) -> core::fmt::Result {
        write_percentiles(text, &self.rows())?;
        writeln!(
            text,
            "  latency: publish call to receipt, each message; first, last: to the first and\n  \
             the last subscriber's receipt, each publication; call: publish call to its\n  \
             response; talk: from a subscriber's own message to the Pong that follows it."
        )?;
        if self.last.count() > 0 {
            writeln!(
                text,
                "\n  last receipt {} min, {} mean, {} max after the publish call:\n               \
                 {} deliveries/s",
                micros(self.last.percentile_us(0.0)),
                micros(self.last.mean_us()),
                micros(self.last.max_us()),
                short(self.per_second)
            )?;
        }
        Ok(())
    }

    fn rows(&self) -> [(&'static str, &Times); 7] {
        [
            ("talk", &self.outcome.talks.times),
            ("setup", &self.outcome.setup),
            ("latency", &self.outcome.latency),
            ("first", &self.first),
            ("last", &self.last),
            ("call", &self.course.calls),
            ("publish lag", &self.course.lag),
        ]
    }

    fn write_use(&self, text: &mut String) -> core::fmt::Result {
        let (_, idle) = &self.course.memory;
        if self.course.server.is_some() {
            writeln!(
                text,
                "  server       {:.0} bytes of memory per idle connection ({} MiB in all)",
                self.per_connection(|memory| memory.server),
                idle.server / (1 << 20)
            )?;
        }
        writeln!(
            text,
            "  kernel       {:.0} bytes of objects per connection (both ends on this host),\n               \
             {} MiB in socket buffers",
            self.per_connection(|memory| memory.slab),
            idle.sockets / (1 << 20)
        )?;
        writeln!(
            text,
            "  client       {:.0} bytes of resident memory per connection",
            self.per_connection(|memory| memory.client)
        )?;
        for (who, setup, delivery) in self.cpu() {
            writeln!(
                text,
                "  {who} CPU   {setup:.2} µs per connection, {delivery:.2} µs per message"
            )?;
        }
        Ok(())
    }

    /// CPU time in microseconds of server and client: for each established connection, for each received message.
    fn cpu(&self) -> Vec<(&'static str, f64, f64)> {
        let micros = |from: Duration, to: Duration, count: u64| {
            to.saturating_sub(from).as_secs_f64() * 1e6 / count.max(1) as f64
        };
        let (opened, received) = (self.opened(), self.outcome.receipts.received);
        let mut rows = Vec::new();
        let server = self.course.server.map(|uses| uses.map(|spent: Spent| spent.cpu));
        for (who, cpu) in [("server", server), ("client", Some(self.course.client))] {
            if let Some([before, idle, after]) = cpu {
                rows.push((who, micros(before, idle, opened), micros(idle, after, received)));
            }
        }
        rows
    }

    /// The report for programs.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let outcome = &self.outcome;
        let mut object = Map::new();
        let mut put = |name: &str, value: Value| {
            object.insert(name.to_owned(), value);
        };
        let sum = |counts: &BTreeMap<String, u64>| counts.values().sum::<u64>();
        put("connections", json!(self.plan.connections.connections));
        put("threads", json!(self.plan.threads));
        put("channels", json!(self.plan.channels));
        put("message_bytes", json!(self.plan.payload.size()));
        put("established", json!(self.opened()));
        put("setup_failed", json!(sum(&outcome.failed)));
        put("setup_failures", json!(outcome.failed));
        let seconds = outcome.opened_last as f64 / 1e9;
        put("setup_s", json!(seconds));
        put("setup_per_s", json!(self.opened() as f64 / seconds.max(1e-9)));
        put("connections_lost", json!(sum(&outcome.lost)));
        put("connection_losses", json!(outcome.lost));
        put("published", json!(self.course.accepted.len()));
        put("publish_failed", json!(sum(&self.course.failed)));
        put("publish_failures", json!(self.course.failed));
        put("expected", json!(self.expected));
        put("received", json!(outcome.receipts.received));
        put("lost", json!(outcome.receipts.lost(self.expected)));
        put("duplicated", json!(outcome.receipts.duplicated));
        put("out_of_order", json!(outcome.receipts.out_of_order));
        put("foreign", json!(outcome.receipts.foreign));
        let fairness = &outcome.fairness;
        put("least_on_a_connection", json!(fairness.messages().map(|(least, _)| least)));
        put("most_on_a_connection", json!(fairness.messages().map(|(_, most)| most)));
        put("connection_mean_latency_us", times_to_json(fairness.means()));
        put("fairness_index", json!(fairness.jain()));
        let talks = &outcome.talks;
        put("talked", json!(talks.sent));
        put("talks_unread", json!(talks.unread));
        put("talks_skipped", json!(talks.skipped));
        for (name, times) in self.rows() {
            put(&format!("{}_us", name.replace(' ', "_")), times_to_json(times));
        }
        put("deliveries_per_s", json!(self.per_second));
        put("publishing_s", json!(self.course.span.as_secs_f64()));
        put("memory", self.memory_to_json());
        for (who, setup, delivery) in self.cpu() {
            put(&format!("{who}_cpu_us_per_connection"), json!(setup));
            put(&format!("{who}_cpu_us_per_message"), json!(delivery));
        }
        put("stopped_early", json!(self.course.was_stopped));
        put("memory_exhausted", json!(self.is_full));
        put("caveats", json!(self.caveats()));
        Value::Object(object)
    }

    fn memory_to_json(&self) -> Value {
        let (_, idle) = &self.course.memory;
        let server = self.course.server.map(|_| self.per_connection(|memory| memory.server));
        json!({
            "server_bytes_per_connection": server,
            "server_bytes": self.course.server.map(|_| idle.server),
            "client_bytes_per_connection": self.per_connection(|memory| memory.client),
            "kernel_bytes_per_connection": self.per_connection(|memory| memory.slab),
            "socket_buffer_bytes": idle.sockets,
        })
    }
}

/// The names of the columns of `line`.
pub(super) fn lines_header() -> &'static str {
    "#  time    active failed   lost opened/s messages/s packets/s softirq/s sockmem"
}

/// A line of progress: what there is now, what was counted in a second since `before`, and the host's network use since
/// then. `sockmem` is in MiB.
pub(super) fn line(
    before: (Duration, Sum),
    (now, sum): (Duration, Sum),
    network: NetworkUse,
) -> String {
    let seconds = now.saturating_sub(before.0).as_secs_f64().max(1e-9);
    let each_second = |count: u64| short(count as f64 / seconds);
    format!(
        "{:>7.1} {:>9} {:>6} {:>6} {:>8} {:>10} {:>9} {:>9} {:>7}",
        now.as_secs_f64(),
        sum.opened - sum.lost,
        sum.failed,
        sum.lost,
        each_second(sum.opened.saturating_sub(before.1.opened)),
        each_second(sum.received.saturating_sub(before.1.received)),
        each_second(network.packets_in),
        each_second(network.soft_interrupts),
        machine::socket_bytes() >> 20
    )
}
