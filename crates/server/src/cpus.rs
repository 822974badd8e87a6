//! The CPUs of the workers.
//! In: the configuration; the CPUs that this process may use. Out: the CPUs that workers are pinned to, and whether connections
//! are steered to them.

use std::io;

use tidegate_config::model::{Config, SteerByCpu};
use tidegate_reactor::interrupts;

use crate::start::StartError;

/// The CPUs for the workers: those of the configuration, which this process must be allowed to use.
pub(crate) fn worker_cpus(
    allowed: Vec<usize>,
    wanted: Option<&[usize]>,
) -> Result<Vec<usize>, StartError> {
    let Some(wanted) = wanted else { return Ok(allowed) };
    match wanted.iter().find(|cpu| !allowed.contains(cpu)) {
        None => Ok(wanted.to_vec()),
        Some(cpu) => Err(StartError::System {
            what: "pinning the workers to server.cpus",
            cause: io::Error::other(format!(
                "CPU {cpu} does not exist or this process may not use it; allowed: {allowed:?}"
            )),
        }),
    }
}

/// Whether connections are steered to the worker of the CPU that received them.
pub(crate) fn steers(config: &Config, cpus: &[usize], count: usize) -> bool {
    // The program returns the CPU's number modulo the number of workers. That is the right worker only if the
    // workers run on exactly the CPUs 0..count.
    let aligned = count == cpus.len() && cpus.iter().enumerate().all(|(at, cpu)| at == *cpu);
    match config.server.steer_by_cpu {
        SteerByCpu::On => true,
        SteerByCpu::Off => false,
        SteerByCpu::Auto => count > 1 && aligned && interrupts::are_spread_over(cpus) == Some(true),
    }
}
