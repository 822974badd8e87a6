//! Comparisons that need no load: the memory of idle connections, and the time from start to first response.
//! In: contenders. Out: a record of memory or of times.
//! Never: runs two contenders at the same time, so that they do not share descriptors or memory.

use super::Bench;
use super::certificate::Key;
use super::contender::{self, Contender, Work};
use super::fetch::fetch;
use super::record::{Measure, Record, Row, Sample};
use crate::plan::Protocol;
use crate::tls::TlsOptions;
use crate::{machine, process};
use core::time::Duration;
use std::thread;
use std::time::Instant;

/// Descriptors that this process needs for other purposes.
const DESCRIPTORS_SPARE: u64 = 200;
/// Time for the server to become idle (timers, purges) before its memory is read.
const SETTLE: Duration = Duration::from_millis(1500);

impl Bench {
    /// User memory for each open connection that is idle after one response.
    pub(super) fn memory(&self, connections: u32) -> Result<Record, String> {
        self.memory_of("memory", Work::Json, connections)
    }

    /// The same over TLS.
    pub(super) fn secure_memory(&self, connections: u32) -> Result<Record, String> {
        self.memory_of("tls-memory", Work::SecureJson(Key::Ecdsa), connections)
    }

    /// The same over TLS and HTTP/2.
    pub(super) fn http2_memory(&self, connections: u32) -> Result<Record, String> {
        self.memory_of("h2-memory", Work::SecureHttp2Json, connections)
    }

    fn memory_of(
        &self,
        what: &'static str,
        work: Work,
        connections: u32,
    ) -> Result<Record, String> {
        let limit = machine::raise_descriptor_limit();
        let needed = u64::from(connections) + DESCRIPTORS_SPARE;
        if limit < needed {
            return Err(format!(
                "{connections} connections need {needed} descriptors but the hard limit is {limit}; \
                 use --connections {} or raise the limit (ulimit -Hn)",
                limit.saturating_sub(DESCRIPTORS_SPARE)
            ));
        }
        let mut rows = Vec::new();
        for &name in work.names() {
            // The floor server needs almost no user memory for a connection, so its figure is meaningless.
            if name == "floor" || !self.takes_part(name) {
                continue;
            }
            let started =
                contender::start(name, work, &self.own, self.folder.path(), &self.server_cpus);
            match started {
                Ok(contender) => rows.push(hold(&contender, connections)?),
                Err(why) => eprintln!("tidegate: left out of the comparison: {why}"),
            }
        }
        Ok(self.record(what, Measure::MemoryPerConnection, connections, rows))
    }

    /// Time from the start of the process to its first complete response.
    pub(super) fn start_times(&self) -> Result<Record, String> {
        let mut rows: Vec<Row> = Vec::new();
        let mut absent = Vec::new();
        for round in 0..=self.rounds {
            for &name in Work::Json.names() {
                if !self.takes_part(name) || absent.contains(&name) {
                    continue;
                }
                match self.start_once(name) {
                    Ok((version, sample, resident_bytes)) if round > 0 => {
                        let at =
                            rows.iter().position(|row| row.name == name).unwrap_or_else(|| {
                                rows.push(Row::new(name, version));
                                rows.len() - 1
                            });
                        rows[at].samples.push(sample);
                        rows[at].resident_bytes = resident_bytes;
                    }
                    Ok(_) => {}
                    Err(why) if round == 0 => {
                        eprintln!("tidegate: left out of the comparison: {why}");
                        absent.push(name);
                    }
                    // Skipping a round of one contender would pair its later rounds with the wrong rounds of others.
                    Err(why) => return Err(why),
                }
            }
        }
        Ok(self.record("start", Measure::StartTime, 1, rows))
    }

    fn start_once(&self, name: &str) -> Result<(String, Sample, u64), String> {
        let failed = |error: std::io::Error| format!("{name}: {error}");
        let folder = self.folder.path().join(name);
        contender::make_folder(&folder).map_err(failed)?;
        let address = process::free_address().map_err(failed)?;
        let (mut command, version) =
            contender::command(name, Work::Json, &self.own, &folder, address)?;
        let begun = Instant::now();
        let running =
            process::Running::start_directly(&mut command, &self.server_cpus).map_err(failed)?;
        while fetch(address, None, Protocol::Http1).is_err() {
            if begun.elapsed() > process::START_MAX {
                return Err(format!("{name}: no response within {:?}", process::START_MAX));
            }
            thread::sleep(Duration::from_micros(200));
        }
        let value = begun.elapsed().as_secs_f64() * 1000.0;
        let spent = machine::spent(running.pid()).unwrap_or_default();
        Ok((version, Sample { value, ..Sample::default() }, spent.resident_bytes))
    }
}

/// Opens `connections` to `contender`, gets one response on each, and measures how its memory has grown.
fn hold(contender: &Contender, connections: u32) -> Result<Row, String> {
    let failed = |error: std::io::Error| format!("{}: {error}", contender.name);
    // Each connection has a full handshake.
    let connector = match contender.is_secure {
        true if contender.is_http2 => {
            Some(TlsOptions::of_comparison(false).for_http2().connector(connections)?.0)
        }
        true => Some(TlsOptions::of_comparison(false).connector(connections)?.0),
        false => None,
    };
    let protocol = if contender.is_http2 { Protocol::Http2 } else { Protocol::Http1 };
    let fetch = || fetch(contender.address, connector.as_ref(), protocol).map_err(failed);
    let first = fetch()?;
    let resident =
        || machine::spent(contender.running.pid()).map_or(0, |spent| spent.resident_bytes);
    let before = resident();
    let mut held = Vec::with_capacity(connections as usize);
    for _ in 0..connections {
        held.push(fetch()?);
    }
    thread::sleep(SETTLE);
    let after = resident();
    let mut row = Row::new(contender.name, contender.version.clone());
    let value = after.saturating_sub(before) as f64 / f64::from(connections);
    row.samples.push(Sample { value, ..Sample::default() });
    row.resident_bytes = after;
    drop(first);
    Ok(row)
}
