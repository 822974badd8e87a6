//! The resources that many connections need: descriptors, pages, bytes.
//! In: a workload and the number of workers. Out: the required value of each limit, and the sum as text.
//! Limits: `CONNECTIONS_MAX` keeps every product far below 64 bits.
//! The sizes are slab objects of Linux 6.18 on x86-64, read from /proc/slabinfo while connections were open.

use crate::environment::{Environment, allowed_cpus};
use crate::host::Host;
use crate::workload::{For, Workload};

/// Kernel memory of one idle TCP socket, without its file objects.
pub const TCP_SOCKET_BYTES: u64 = 2368;
/// Inode, directory entry, open file and epoll entry of a socket.
pub const FILE_OBJECTS_BYTES: u64 = 832 + 192 + 192 + 192;
/// User memory of an idle plain WebSocket connection: above the measured value of `make c1000k` (239 bytes).
pub const IDLE_PUSH_BYTES: u64 = 256;
/// User memory of an idle HTTP connection: above the measured value.
pub const IDLE_HTTP_BYTES: u64 = 512;
/// One connection in this many is assumed to have data in transit.
pub const ACTIVE_ONE_IN: u64 = 20;
/// Memory of a connection with data in transit: kernel buffers in both directions and one buffer of Tidegate.
pub const ACTIVE_BYTES: u64 = 20 * 1024;
/// Kernel pages that count against tcp_mem for an active connection.
const ACTIVE_PAGES: u64 = 8;
/// Descriptors that a worker needs in addition to its connections: listeners, epoll, mailbox, files, reserve.
const FILES_BESIDE: u64 = 256;
/// Bytes of a page.
pub const PAGE_BYTES: u64 = 4096;

/// The resources that a number of connections needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Needs {
    /// Connections from clients.
    pub connections: u64,
    /// Sockets, including those to servers.
    pub sockets: u64,
    /// Worker threads.
    pub workers: u64,
    /// RLIMIT_NOFILE: descriptors of one worker, since each worker has its own table.
    pub files_per_worker: u64,
    /// fs.file-max: descriptors of the whole host.
    pub files: u64,
    /// The third number of tcp_mem.
    pub tcp_pages: u64,
    /// Kernel memory of the sockets.
    pub kernel_bytes: u64,
    /// User memory of idle connections.
    pub user_bytes: u64,
    /// Memory of the connections that are active at the same time.
    pub active_bytes: u64,
}

impl Needs {
    /// The needs of a workload on a host.
    #[must_use]
    pub fn of(host: &Host, workload: &Workload) -> Self {
        let usable = allowed_cpus(host).len() as u64;
        Self::with_workers(workload, workload.workers.unwrap_or(usable).max(1))
    }

    /// The needs of a workload with this number of workers.
    #[must_use]
    pub fn with_workers(workload: &Workload, workers: u64) -> Self {
        let connections = workload.connections();
        let ends = if workload.kind == For::Proxy { 2 } else { 1 };
        let sockets = connections * ends;
        let idle_bytes = match workload.kind {
            For::Push => IDLE_PUSH_BYTES,
            For::All | For::Json | For::Proxy => IDLE_HTTP_BYTES,
        };
        let active = sockets / ACTIVE_ONE_IN;
        Self {
            connections,
            sockets,
            workers,
            // A tenth more, because connections are never distributed quite evenly.
            files_per_worker: sockets / workers * 11 / 10 + FILES_BESIDE,
            files: sockets * 11 / 10 + workers * FILES_BESIDE,
            // Measured: an idle socket counts as 5/8 of a page.
            tcp_pages: sockets * 5 / 8 + active * ACTIVE_PAGES,
            kernel_bytes: sockets * (TCP_SOCKET_BYTES + FILE_OBJECTS_BYTES),
            user_bytes: sockets * idle_bytes,
            active_bytes: active * ACTIVE_BYTES,
        }
    }

    /// The sum of all memory.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.kernel_bytes + self.user_bytes + self.active_bytes
    }

    /// The plan as text lines.
    #[must_use]
    pub fn lines(&self, environment: &Environment) -> Vec<String> {
        let share = self.user_bytes.checked_div(self.sockets).unwrap_or(0);
        vec![
            format!(
                "{} connections, {} sockets (a proxied connection has two), {} workers",
                self.connections, self.sockets, self.workers
            ),
            format!(
                "kernel: {} x {} B (TCP {TCP_SOCKET_BYTES} + inode 832 + dentry 192 + file 192 + epoll 192) = {}",
                self.sockets,
                TCP_SOCKET_BYTES + FILE_OBJECTS_BYTES,
                gib(self.kernel_bytes)
            ),
            format!("Tidegate, idle: {} x {share} B = {}", self.sockets, gib(self.user_bytes)),
            format!(
                "active connections, one in {ACTIVE_ONE_IN}: {} x {} KiB = {}",
                self.sockets / ACTIVE_ONE_IN,
                ACTIVE_BYTES / 1024,
                gib(self.active_bytes)
            ),
            format!(
                "sum: {} of {} (TLS adds up to 6 KiB per connection: {} more)",
                gib(self.bytes()),
                gib(environment.memory_bytes),
                gib(self.connections * 6 * 1024)
            ),
            format!(
                "RLIMIT_NOFILE {} (per worker), fs.file-max {}, tcp_mem {} pages ({})",
                self.files_per_worker,
                self.files,
                self.tcp_pages,
                gib(self.tcp_pages * PAGE_BYTES)
            ),
            format!(
                "a client host can open at most 64512 connections per source address to one address and port: \
                 a test needs {} source addresses; if the clients run on this host too, double all figures",
                self.connections.div_ceil(64_512)
            ),
        ]
    }
}

/// Bytes as GiB or MiB.
#[must_use]
pub fn gib(bytes: u64) -> String {
    let mib = bytes as f64 / f64::from(1u32 << 20);
    if mib >= 1024.0 { format!("{:.1} GiB", mib / 1024.0) } else { format!("{mib:.0} MiB") }
}

/// The soft and hard value of a line of /proc/PID/limits; `u64::MAX` is unlimited.
#[must_use]
pub fn limit_of(host: &Host, name: &str) -> Option<(u64, u64)> {
    let text = host.read(&host.process_path("limits")).ok()?;
    let rest = text.lines().find_map(|line| line.strip_prefix(name))?;
    let mut values = rest.split_whitespace().map(|word| match word {
        "unlimited" => Some(u64::MAX),
        number => number.parse().ok(),
    });
    Some((values.next()??, values.next()??))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plan_for_a_million_covers_the_measured_needs() {
        let mut workload = Workload::of(For::Push);
        workload.requested_connections = Some(1_200_000);
        let needs = Needs::with_workers(&workload, 64);
        // Measured: 1.2 million loopback connections (2.4 million sockets) took 1,500,000 pages,
        assert!(needs.tcp_pages * 2 >= 1_500_000);
        // on workers with 20,000 descriptors. Uneven distribution needs a little more than the mean.
        assert!(needs.files_per_worker > 1_200_000 / 64);
        assert!(needs.bytes() < 8 << 30);
    }

    #[test]
    fn largest_number_of_connections_does_not_overflow() {
        let mut workload = Workload::of(For::Proxy);
        workload.requested_connections = Some(u64::MAX);
        assert!(Needs::with_workers(&workload, 1).bytes() > 0);
    }
}
