//! What the host is to be good at: the kind of work and how many connections it shall hold.
//! In: made from the command line. Out: plain data that every item's detection reads.

/// The kind of work the advice is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum For {
    /// Everything that Tidegate does.
    All,
    /// Short answers at a high rate.
    Json,
    /// Reverse proxy: two sockets an exchange, outgoing ports.
    Proxy,
    /// Very many, mostly idle connections.
    Push,
}

impl For {
    /// The word on the command line.
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

/// Connections that are planned for when none were asked.
pub const CONNECTIONS_DEFAULT: u64 = 10_000;
/// The same for push, which exists to hold many.
pub const PUSH_CONNECTIONS_DEFAULT: u64 = 100_000;
/// The most that may be asked; keeps every sum of the plan far below 64 bits.
pub const CONNECTIONS_MAX: u64 = 100_000_000;

/// What the host shall do.
#[derive(Clone, Debug)]
pub struct Workload {
    /// The kind of work.
    pub kind: For,
    /// Connections held at once; `None`: not asked, the default of the kind.
    pub asked_connections: Option<u64>,
    /// Interfaces in the data's path; empty: every interface with a device behind it.
    pub interfaces: Vec<String>,
    /// Worker threads; `None`: one per usable CPU.
    pub workers: Option<u64>,
}

impl Workload {
    /// Work of one kind, nothing else said.
    #[must_use]
    pub fn of(kind: For) -> Self {
        Self { kind, asked_connections: None, interfaces: Vec::new(), workers: None }
    }

    /// Connections to be ready for.
    #[must_use]
    pub fn connections(&self) -> u64 {
        let default = match self.kind {
            For::Push => PUSH_CONNECTIONS_DEFAULT,
            For::All | For::Json | For::Proxy => CONNECTIONS_DEFAULT,
        };
        self.asked_connections.unwrap_or(default).min(CONNECTIONS_MAX)
    }

    /// Whether outgoing connections matter.
    #[must_use]
    pub fn connects_out(&self) -> bool {
        matches!(self.kind, For::All | For::Proxy)
    }
}
