//! The planned work of the host: its kind and the number of connections.
//! In: built from the command line. Out: plain data that the detection of every item reads.

use core::net::IpAddr;

/// The kind of work the advice is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum For {
    /// Everything that Tidegate does.
    All,
    /// Short responses at a high rate.
    Json,
    /// Reverse proxy: two sockets per exchange, outgoing ports.
    Proxy,
    /// A very large number of mostly idle connections.
    Push,
}

impl For {
    /// The name on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::All => "all",
            Self::Json => "json",
            Self::Proxy => "proxy",
            Self::Push => "push",
        }
    }
}

/// Number of connections to plan for if none is requested.
pub const CONNECTIONS_DEFAULT: u64 = 10_000;
/// The same for push, which is meant for many connections.
pub const PUSH_CONNECTIONS_DEFAULT: u64 = 100_000;
/// Maximum number of connections to plan for; keeps every sum of the plan far below 64 bits.
pub const CONNECTIONS_MAX: u64 = 100_000_000;

/// The planned work of the host.
#[derive(Clone, Debug)]
pub struct Workload {
    /// The kind of work.
    pub kind: For,
    /// Connections open at the same time; `None`: the default of the kind. A larger value counts as
    /// `CONNECTIONS_MAX`.
    pub requested_connections: Option<u64>,
    /// Interfaces in the data path; empty: every interface with a device.
    pub interfaces: Vec<String>,
    /// Worker threads; `None`: one per usable CPU.
    pub workers: Option<u64>,
    /// CPUs of the workers, which the interrupts of the network card keep away from; empty: interrupts and workers
    /// share all CPUs.
    pub worker_cpus: Vec<u32>,
    /// Local addresses for outgoing connections that the host must have.
    pub source_addresses: Vec<IpAddr>,
}

impl Workload {
    /// Work of one kind, with defaults for everything else.
    #[must_use]
    pub fn of(kind: For) -> Self {
        Self {
            kind,
            requested_connections: None,
            interfaces: Vec::new(),
            workers: None,
            worker_cpus: Vec::new(),
            source_addresses: Vec::new(),
        }
    }

    /// Number of connections to plan for.
    #[must_use]
    pub fn connections(&self) -> u64 {
        let default = match self.kind {
            For::Push => PUSH_CONNECTIONS_DEFAULT,
            For::All | For::Json | For::Proxy => CONNECTIONS_DEFAULT,
        };
        self.requested_connections.unwrap_or(default).min(CONNECTIONS_MAX)
    }

    /// Whether outgoing connections matter.
    #[must_use]
    pub fn connects_out(&self) -> bool {
        matches!(self.kind, For::All | For::Proxy)
    }
}
