//! The resources for many WebSocket connections of one process: threads with descriptors, and source addresses with ports.
//! In: the number of connections, the operator's settings, the limits of this host. Out: numbers of threads, addresses.
//! Never: plans fewer connections than requested; it refuses instead, and says what to change.

use crate::machine;
use crate::plan::THREADS_MAX;
use crate::quantity::Sources;
use core::net::{IpAddr, Ipv4Addr, SocketAddr};
use tidegate_reactor::worker;

/// Descriptors that a thread needs in addition to its connections: standard streams, epoll, the publisher.
const OWN_DESCRIPTORS: u64 = 32;
/// The part of its local ports that a source uses on loopback if no sources are given. connect(2) prefers ports of one parity,
/// and tries all of them for each connection once they are used up.
const PORTS_USED: f64 = 0.4;

/// The number of threads: the `given` number, or as many as the descriptor limit requires, which applies to each thread.
///
/// # Errors
/// A message for the operator if they are too few.
pub(crate) fn threads(connections: u32, given: Option<u16>) -> Result<u16, String> {
    let limit = machine::raise_descriptor_limit().saturating_sub(OWN_DESCRIPTORS).max(1);
    let needed = u64::from(connections).div_ceil(limit);
    let threads = u64::from(given.map_or(0, u16::from));
    if needed > u64::from(THREADS_MAX) || (threads > 0 && threads < needed) {
        return Err(format!(
            "{connections} connections need {needed} threads, because each may have {limit} descriptors; \
             use --threads {needed}, or raise the limit (ulimit -n)"
        ));
    }
    Ok(given.unwrap_or(needed as u16).min(connections.min(65_535) as u16))
}

/// Prepares the calling thread, which is number `number` of the client: one of its CPUs, and its own descriptor table.
///
/// # Errors
/// A message for the operator if the thread cannot run on its CPU.
pub(crate) fn begin_thread(cpus: &[usize], number: u16) -> Result<(), String> {
    if !cpus.is_empty() {
        let cpu = cpus[usize::from(number) % cpus.len()];
        worker::pin_to_cpu(cpu).map_err(|why| format!("--client-cpus {cpu}: {why}"))?;
    }
    // With a shared table, the descriptor limit applies to all threads together.
    let _ = worker::unshare_descriptor_table();
    Ok(())
}

/// The local addresses. On loopback, more are used if the ports of one are too few.
///
/// # Errors
/// A message for the operator if the ports of the `given` addresses are too few.
pub(crate) fn sources(
    connections: u32,
    given: Option<&Sources>,
    address: SocketAddr,
) -> Result<Vec<IpAddr>, String> {
    let ports = machine::local_ports();
    let sources = match given {
        Some(Sources(sources)) => sources.clone(),
        None if address.ip().is_loopback() && address.is_ipv4() => {
            let each = (ports as f64 * PORTS_USED) as u32;
            let count = connections.div_ceil(each.max(1));
            let first = u32::from(Ipv4Addr::LOCALHOST);
            (0..count).map(|index| IpAddr::V4(Ipv4Addr::from(first + index))).collect()
        }
        None => Vec::new(),
    };
    let connections = u64::from(connections);
    let needed = connections.div_ceil(ports.max(1));
    if needed > sources.len().max(1) as u64 {
        return Err(format!(
            "{connections} connections need {needed} source addresses, because each has {ports} local ports; \
             give more in --source"
        ));
    }
    Ok(sources)
}
