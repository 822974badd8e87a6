//! The effect of a flood of TLS handshakes on established connections.
//! In: contenders with TLS. Out: the p99 of established connections during the flood, divided by the p99 without it.
//! Never: lets the flood take CPU time from the measuring client: the flood runs at a lower priority.
//! Limits: `HANDSHAKES`, `FLOOD_MAX`.

use super::Bench;
use super::certificate::Key;
use super::contender::{Contender, Work};
use super::load::{Client, Counted, Reuse};
use super::record::{Measure, Record, Row, Sample};
use super::rounds::Load;
use crate::drive::{self, Job};
use crate::machine;
use core::sync::atomic::{AtomicBool, Ordering};
use core::time::Duration;
use std::sync::mpsc;
use std::thread;

/// Number of handshakes of one flood.
const HANDSHAKES: u64 = 5000;
/// Number of simultaneous connections of the flood.
const FLOOD_CONNECTIONS: u32 = 256;
/// Requests per second on the established connections: far below the capacity of any contender.
const RATE_PER_S: f64 = 1000.0;
/// Time for establishing the connections.
const WARM_UP: Duration = Duration::from_millis(500);
/// Time limit of a flood.
const FLOOD_MAX: Duration = Duration::from_secs(60);
/// Niceness of the flood's threads. At the default niceness the flood would disturb the measuring client; at the
/// highest niceness any other program would stop the flood.
const FLOOD_NICENESS: i32 = 10;

impl Bench {
    /// The p99 during a flood divided by the p99 without it, for all contenders.
    pub(super) fn flood_rounds(&self, connections: u32) -> Result<Record, String> {
        if self.client() != Client::Tidegate {
            return Err(
                "latency at a fixed rate needs an open loop; use --client tidegate".to_owned()
            );
        }
        let contenders = self.start_all(Work::SecureJson(Key::Ecdsa))?;
        let mut rows: Vec<Row> = contenders
            .iter()
            .map(|contender| Row::new(contender.name, contender.version.clone()))
            .collect();
        for round in 0..=self.rounds {
            for (contender, row) in contenders.iter().zip(&mut rows) {
                self.show_progress(round, contender.name);
                let sample = self.flood_once(contender, connections)?;
                if round > 0 {
                    row.samples.push(sample);
                }
            }
        }
        let mut record = self.record("tls-flood", Measure::Flooded, connections, rows);
        record.rate_per_s = Some(RATE_PER_S);
        Ok(record)
    }

    fn flood_once(&self, contender: &Contender, connections: u32) -> Result<Sample, String> {
        let failed = |why: String| format!("{}: {why}", contender.name);
        let load = Load { rate_per_s: Some(RATE_PER_S), ..Load::new("/json", connections) };
        let mut quiet = self.round(contender, &load).job().map_err(failed)?;
        quiet.plan.warm_up = WARM_UP;
        let outcome = drive::run(&quiet, &AtomicBool::new(false), &mut |_| {}).map_err(failed)?;
        let without = Counted::of(&outcome).map_err(failed)?;

        let flood = Load { reuse: Reuse::Full, ..Load::new("/json", FLOOD_CONNECTIONS) };
        let mut flood = self.round(contender, &flood).job().map_err(failed)?;
        flood.plan.requests = Some(HANDSHAKES);
        flood.plan.duration = Some(FLOOD_MAX);
        let mut meanwhile = quiet;
        meanwhile.plan.duration = Some(FLOOD_MAX);
        let own = machine::spent(contender.running.pid()).unwrap_or_default();
        let busy = machine::busy_time(&self.server_cpus);
        let with = measure_during(&meanwhile, &flood).map_err(failed)?;
        let busy = machine::busy_time(&self.server_cpus).saturating_sub(busy);
        let own = machine::spent(contender.running.pid()).unwrap_or_default().since(own);
        Ok(Sample { value: p99_us(&with) / p99_us(&without), ..Sample::new(&with, busy, own.cpu) })
    }
}

/// The p99; NaN if there were too few responses for it.
fn p99_us(counted: &Counted) -> f64 {
    counted.latency_us[1].map_or(f64::NAN, |micros| micros.max(1e-3))
}

/// Runs `job` during `flood` and returns its counts. They include up to 0.25 s before the flood begins.
fn measure_during(job: &Job, flood: &Job) -> Result<Counted, String> {
    let is_over = AtomicBool::new(false);
    let over = &is_over;
    let (begin, begun) = mpsc::channel();
    thread::scope(|scope| {
        let flooding = scope.spawn(move || {
            // If no message comes, the measuring client has failed, and its own error is reported.
            let came = begun.recv().map(|()| {
                // If this fails, the flood disturbs the client and the measured latency is too high.
                let _ = rustix::process::setpriority_process(None, FLOOD_NICENESS);
                drive::run(flood, &AtomicBool::new(false), &mut |_| {})
            });
            over.store(true, Ordering::Relaxed);
            came.ok()
        });
        let outcome = drive::run(job, over, &mut |tick| {
            if tick.is_counting {
                // Only the first message is received.
                let _ = begin.send(());
            }
        });
        drop(begin);
        let flooded = flooding.join().map_err(|_| "the flood's thread panicked".to_owned())?;
        let counted = Counted::of(&outcome?)?;
        let flooded = flooded.ok_or("the flood did not start")??.tally;
        if flooded.requests < HANDSHAKES {
            return Err(format!(
                "the flood completed only {} of {HANDSHAKES} handshakes",
                flooded.requests
            ));
        }
        Ok(counted)
    })
}
