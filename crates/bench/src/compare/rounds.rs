//! Paired rounds: all contenders run and take turns, so that the machine's drift affects all of them equally.
//! In: contenders and a load. Out: one sample for each contender and round.
//! Invariant: sample `i` of every contender was taken in the same round.

use super::contender::{self, Contender, Work};
use super::load::{Client, Counted, Reuse, Round};
use super::record::{Measure, Record, Row, Sample};
use super::{Bench, By, HTTP2_JSON_STREAMS, HTTP2_PROXY_STREAMS, PIPELINE_DEPTH};
use crate::plan::Protocol;
use crate::{machine, process};
use core::net::SocketAddr;
use core::time::Duration;
use std::io::IsTerminal as _;

impl Bench {
    /// The CPU time per request of all contenders for one workload.
    pub(super) fn cpu_rounds(
        &self,
        what: &'static str,
        work: Work,
        path: &str,
        connections: u32,
        pipeline: u16,
    ) -> Result<Record, String> {
        let load = Load { pipeline, ..Load::new(path, connections) };
        self.cpu_rounds_of(what, work, &load)
    }

    /// As `cpu_rounds`, with any load.
    pub(super) fn cpu_rounds_of(
        &self,
        what: &'static str,
        work: Work,
        load: &Load<'_>,
    ) -> Result<Record, String> {
        let mut contenders = self.start_all(work)?;
        let rows = self.rounds(&mut contenders, load)?;
        let measure = match (what, self.by) {
            (_, By::Cpu) if load.reuse != Reuse::Keep => Measure::CpuPerHandshake,
            ("bodies" | "tls-bodies", By::Cpu) => Measure::CpuPerByte,
            ("bodies" | "tls-bodies", By::Process) => Measure::ProcessPerByte,
            (_, By::Cpu) => Measure::CpuPerRequest,
            (_, By::Process) => Measure::ProcessPerRequest,
        };
        let record = self.record(what, measure, load.connections, rows);
        Ok(Record { message_bytes: load.message_bytes, ..record })
    }

    /// The p99.9 of all proxies at the same rate: half the capacity of the slowest proxy.
    pub(super) fn latency_rounds(
        &self,
        origin: SocketAddr,
        connections: u32,
    ) -> Result<Record, String> {
        if self.client() != Client::Tidegate {
            return Err(
                "latency at a fixed rate needs an open loop; use --client tidegate".to_owned()
            );
        }
        let mut contenders = self.start_all(Work::Proxy(origin))?;
        let mut slowest = f64::INFINITY;
        let mut load = Load::new("/json", connections);
        for contender in &mut contenders {
            let counted = self.load_once(contender, &load)?;
            slowest = slowest.min(counted.requests as f64 / counted.seconds);
        }
        let rate_per_s = (slowest / 2.0).max(1.0);
        load.rate_per_s = Some(rate_per_s);
        let rows = self.rounds(&mut contenders, &load)?;
        let mut record = self.record("latency", Measure::Tail, connections, rows);
        record.rate_per_s = Some(rate_per_s);
        Ok(record)
    }

    /// The CPU time per request of all clients that can create the load. They send to the server `usual`, unless `--only` names
    /// another one.
    pub(super) fn client_rounds(
        &self,
        what: &'static str,
        work: Work,
        usual: &'static str,
        load: &Load<'_>,
    ) -> Result<Record, String> {
        let chosen =
            contender::NAMES.into_iter().find(|name| self.only.iter().any(|only| only == name));
        let name = chosen.unwrap_or(usual);
        let server =
            contender::start(name, work, &self.own, self.folder.path(), &self.server_cpus)?;
        let mut rows = Vec::new();
        let clients: Vec<Client> = Client::all()
            .into_iter()
            .filter(|client| !work.is_http2() || client.speaks_http2())
            .filter(|client| match client.program() {
                None => true,
                Some(program) => {
                    let found = process::find_program(program).is_some();
                    if !found {
                        eprintln!(
                            "tidegate: left out of the comparison: {program} is not installed"
                        );
                    }
                    found
                }
            })
            .collect();
        for client in &clients {
            rows.push(Row::new(client.name(), client.version()));
        }
        for round in 0..=self.rounds {
            for (client, row) in clients.iter().zip(&mut rows) {
                self.show_progress(round, client.name());
                let busy = machine::busy_time(&self.client_cpus);
                let counted = client.run(&self.round(&server, load))?;
                let busy = machine::busy_time(&self.client_cpus).saturating_sub(busy);
                if round > 0 {
                    let own = Duration::from_secs_f64(counted.client_cpu_s);
                    row.samples.push(Sample::new(&counted, busy, own));
                }
            }
        }
        let record = self.record(what, Measure::ClientCpuPerRequest, load.connections, rows);
        Ok(Record { server: Some(name), ..record })
    }

    fn rounds(&self, contenders: &mut [Contender], load: &Load<'_>) -> Result<Vec<Row>, String> {
        let mut rows: Vec<Row> = contenders
            .iter()
            .map(|contender| Row::new(contender.name, contender.version.clone()))
            .collect();
        // Round 0 is the warm-up: caches, connections of the proxies, branch predictors.
        for round in 0..=self.rounds {
            for (contender, row) in contenders.iter_mut().zip(&mut rows) {
                self.show_progress(round, contender.name);
                let before = machine::spent(contender.running.pid()).unwrap_or_default();
                let busy = machine::busy_time(&self.server_cpus);
                let counted = self.load_once(contender, load)?;
                let busy = machine::busy_time(&self.server_cpus).saturating_sub(busy);
                let after = machine::spent(contender.running.pid()).unwrap_or_default();
                if round > 0 {
                    row.samples.push(Sample::new(&counted, busy, after.since(before).cpu));
                    row.resident_bytes = after.resident_bytes;
                }
            }
        }
        Ok(rows)
    }

    fn load_once(&self, contender: &mut Contender, load: &Load<'_>) -> Result<Counted, String> {
        let counted = self.client().run(&self.round(contender, load)).and_then(|counted| {
            if counted.requests == 0 { Err("no response arrived".to_owned()) } else { Ok(counted) }
        });
        counted.map_err(|why| {
            let ended =
                contender.running.ended().map_or(String::new(), |ended| format!("; {ended}"));
            format!("{}: {why}{ended}", contender.name)
        })
    }

    pub(super) fn round<'a>(&'a self, contender: &Contender, load: &Load<'a>) -> Round<'a> {
        Round {
            address: contender.address,
            is_secure: contender.is_secure,
            reuse: load.reuse,
            path: load.path,
            connections: load.connections,
            pipeline: load.pipeline,
            protocol: if contender.is_http2 { Protocol::Http2 } else { Protocol::Http1 },
            duration: self.duration,
            rate_per_s: load.rate_per_s,
            message_bytes: load.message_bytes,
            cpus: &self.client_cpus,
            folder: self.folder.path(),
        }
    }

    pub(super) fn show_progress(&self, round: u32, name: &str) {
        if std::io::stderr().is_terminal() {
            let round = if round == 0 {
                "warming up".to_owned()
            } else {
                format!("round {round} of {}", self.rounds)
            };
            eprint!("\r\x1b[K{round}: {name}");
        }
    }

    pub(super) fn record(
        &self,
        what: &'static str,
        measure: Measure,
        connections: u32,
        rows: Vec<Row>,
    ) -> Record {
        if std::io::stderr().is_terminal() {
            eprint!("\r\x1b[K");
        }
        Record {
            what,
            measure,
            connections,
            pipeline: match what {
                "pipeline" => PIPELINE_DEPTH,
                "h2-json" | "h2-client" => HTTP2_JSON_STREAMS,
                "h2-proxy" => HTTP2_PROXY_STREAMS,
                _ => 1,
            },
            rate_per_s: None,
            message_bytes: None,
            rounds: self.rounds,
            seconds: self.duration.as_secs_f64(),
            client: self.client().name(),
            server: None,
            rows,
        }
    }
}

/// The load for each contender.
pub(super) struct Load<'a> {
    pub(super) path: &'a str,
    pub(super) connections: u32,
    /// Requests in flight on each connection.
    pub(super) pipeline: u16,
    /// Requests per second of an open loop; `None`: a closed loop.
    pub(super) rate_per_s: Option<f64>,
    pub(super) reuse: Reuse,
    /// Bytes of each WebSocket message; `None`: HTTP requests.
    pub(super) message_bytes: Option<usize>,
}

impl<'a> Load<'a> {
    /// A closed loop over connections that stay open.
    pub(super) fn new(path: &'a str, connections: u32) -> Self {
        Self {
            path,
            connections,
            pipeline: 1,
            rate_per_s: None,
            reuse: Reuse::Keep,
            message_bytes: None,
        }
    }
}
