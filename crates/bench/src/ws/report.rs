//! The report of `bench ws`, for people and for programs.
//! In: the counts of the threads and of the main thread. Out: text, or one JSON object.
//! Never: reports a percentile that has too few samples; hides that the client or its CPUs limited the figures.

use super::{Compression, Course, EchoOutcome, EchoPlan, Pace};
use crate::histogram::Times;
use crate::quantity::{counted, short};
use crate::report::sockets::{
    self, busy_in_words, times_to_json, write_percentiles, write_reasons,
};
use core::fmt::Write as _;
use core::time::Duration;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use tidegate_wire::websocket::Kind;

/// The figures of a run.
#[derive(Debug)]
pub struct EchoReport<'a> {
    plan: &'a EchoPlan,
    pub(super) outcome: EchoOutcome,
    pub(super) course: Course,
}

impl<'a> EchoReport<'a> {
    /// The report of a run.
    pub(super) fn new(plan: &'a EchoPlan, outcome: EchoOutcome, course: Course) -> Self {
        Self { plan, outcome, course }
    }

    /// Whether all connections were established and kept, and all messages came back.
    #[must_use]
    pub fn is_successful(&self) -> bool {
        let outcome = &self.outcome;
        outcome.failed.is_empty()
            && outcome.lost.is_empty()
            && outcome.messages > 0
            && (outcome.unanswered == 0 || self.course.was_stopped)
    }

    fn messages_per_second(&self) -> f64 {
        self.outcome.messages as f64 / self.course.span.as_secs_f64().max(1e-9)
    }

    /// CPU time for each message, in microseconds.
    fn per_message(&self, cpu: Duration) -> f64 {
        cpu.as_secs_f64() * 1e6 / self.outcome.messages.max(1) as f64
    }

    /// The fewest and the most messages of a connection that was open at the end.
    fn fairness(&self) -> Option<(u32, u32)> {
        let counts = &self.outcome.per_connection;
        Some((*counts.iter().min()?, *counts.iter().max()?))
    }

    /// Warnings that precede the figures.
    fn caveats(&self) -> Vec<String> {
        let mut words = Vec::new();
        if self.course.was_stopped {
            words.push("Stopped early by a signal.".to_owned());
        }
        // A client in a closed loop is busy whenever it is the slower side.
        words.extend(busy_in_words(self.outcome.busiest));
        words.extend(self.outcome.used.delay_in_words());
        if self.outcome.unsent > 0 {
            words.push(format!(
                "BEHIND THE PLAN: {} messages were due and not sent, because all connections waited for echoes or the \
                 client was too slow.",
                self.outcome.unsent
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
            &|text| write_percentiles(text, &self.rows()),
            &|text| self.write_use(text),
        ];
        sockets::to_text(self.caveats(), sections)
    }

    fn write_load(&self, text: &mut String) -> core::fmt::Result {
        let plan = self.plan;
        let kind = match plan.message.kind() {
            Kind::Text => "text",
            Kind::Binary => "binary",
        };
        let pace = match plan.pace {
            Pace::Closed => format!("closed loop, {} outstanding", plan.outstanding),
            Pace::Rate(rate) => {
                format!("{}/s in all, up to {} outstanding", short(rate), plan.outstanding)
            }
        };
        for target in &plan.targets {
            let scheme = if target.url.is_secure { "wss" } else { "ws" };
            writeln!(text, "{scheme}://{}{}", target.address, target.url.target)?;
        }
        writeln!(
            text,
            "  {} on {}, {pace};\n  {kind} messages of {} bytes in {}, for {:?}",
            counted(plan.connections.connections.into(), "connection"),
            counted(plan.threads.into(), "thread"),
            plan.message.size(),
            counted(plan.fragments as u64, "frame"),
            self.course.span
        )?;
        writeln!(text, "  One message means one message sent and its echo received.")
    }

    fn write_counts(&self, text: &mut String) -> core::fmt::Result {
        let outcome = &self.outcome;
        let sum = |reasons: &BTreeMap<String, u64>| reasons.values().sum::<u64>();
        let (failed, lost) = (sum(&outcome.failed), sum(&outcome.lost));
        writeln!(
            text,
            "  setup        {} established, {failed} failed, in {:.2} s",
            outcome.opened,
            outcome.opened_last.as_secs_f64()
        )?;
        write_reasons(text, "failed", &outcome.failed)?;
        writeln!(
            text,
            "  connections  {} active at the end, {lost} lost",
            outcome.opened.saturating_sub(lost)
        )?;
        write_reasons(text, "lost", &outcome.lost)?;
        let rate = self.messages_per_second();
        writeln!(
            text,
            "  messages     {} in {:.2} s: {}/s;\n               {} unanswered, {} lost with connections",
            outcome.messages,
            self.course.span.as_secs_f64(),
            short(rate),
            outcome.unanswered,
            outcome.lost_messages
        )?;
        if let Some((least, most)) = self.fairness() {
            writeln!(text, "               {least} to {most} on each connection")?;
        }
        let bytes = rate * self.plan.message.size() as f64;
        writeln!(text, "  data         {}B/s in each direction", short(bytes))?;
        let compression = &outcome.compression;
        if self.plan.compresses {
            let each = |bytes: u64, count: u64| bytes as f64 / count.max(1) as f64;
            writeln!(
                text,
                "  compression  {} connections; {:.0} bytes for each message, {:.0} for each echo,\n               \
                 {} of {} echoes were compressed",
                compression.connections,
                each(compression.sent_bytes, compression.sent),
                each(compression.received_bytes, compression.received),
                compression.received_deflated,
                compression.received
            )?;
        }
        Ok(())
    }

    fn rows(&self) -> [(&'static str, &Times); 3] {
        let outcome = &self.outcome;
        [("setup", &outcome.setup), ("latency", &outcome.latency), ("service", &outcome.service)]
    }

    fn write_use(&self, text: &mut String) -> core::fmt::Result {
        let meaning = match self.plan.pace {
            Pace::Closed => "latency: from sending a message to its echo",
            Pace::Rate(_) => {
                "latency: from the time at which a message was due to its echo; service: from sending it"
            }
        };
        writeln!(text, "  {meaning}.\n")?;
        if let Some(server) = self.course.server {
            writeln!(
                text,
                "  server CPU   {:.2} µs per message, {} MiB of resident memory",
                self.per_message(server.cpu),
                server.resident_bytes / (1 << 20)
            )?;
        }
        writeln!(text, "  client CPU   {:.2} µs per message", self.per_message(self.course.client))
    }

    /// The report for programs.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let (plan, outcome) = (self.plan, &self.outcome);
        let rate = match plan.pace {
            Pace::Closed => None,
            Pace::Rate(rate) => Some(rate),
        };
        let server = self.course.server;
        let fairness = self.fairness();
        json!({
            "connections": plan.connections.connections,
            "threads": plan.threads,
            "message_bytes": plan.message.size(),
            "binary": plan.message.kind() == Kind::Binary,
            "fragments": plan.fragments,
            "targets": plan.targets.len(),
            "compression": compression_to_json(plan.compresses, &outcome.compression),
            "outstanding": plan.outstanding,
            "rate_planned_per_s": rate,
            "established": outcome.opened,
            "setup_failures": outcome.failed,
            "connection_losses": outcome.lost,
            "messages": outcome.messages,
            "seconds": self.course.span.as_secs_f64(),
            "messages_per_s": self.messages_per_second(),
            "unanswered": outcome.unanswered,
            "lost_with_connections": outcome.lost_messages,
            "unsent": outcome.unsent,
            "least_on_a_connection": fairness.map(|(least, _)| least),
            "most_on_a_connection": fairness.map(|(_, most)| most),
            "setup_us": times_to_json(&outcome.setup),
            "latency_us": times_to_json(&outcome.latency),
            "service_us": times_to_json(&outcome.service),
            "client_cpu_us_per_message": self.per_message(self.course.client),
            "server_cpu_us_per_message": server.map(|server| self.per_message(server.cpu)),
            "server_bytes": server.map(|server| server.resident_bytes),
            "client_busiest_thread": outcome.busiest,
            "stopped_early": self.course.was_stopped,
            "caveats": self.caveats(),
        })
    }
}

/// The results of compression; `null` if it was not offered.
fn compression_to_json(is_offered: bool, compression: &Compression) -> Value {
    if !is_offered {
        return Value::Null;
    }
    json!({
        "connections": compression.connections,
        "sent": compression.sent,
        "sent_bytes": compression.sent_bytes,
        "received": compression.received,
        "received_compressed": compression.received_deflated,
        "received_bytes": compression.received_bytes,
    })
}
