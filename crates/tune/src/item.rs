//! An item of advice: a record of what it is about, and one function that looks.
//! In: a host, a workload. Out: a finding. How a change is journaled, done and put back is written
//! once for all items (`apply`, `undo`), so an item says only what to change.
//! Never: writes; a detection only reads.

use crate::finding::Finding;
use crate::host::{Host, Unreadable};
use crate::workload::{For, Workload};

/// The groups of the advice; also the pages of the manual.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Group {
    /// Workers, pinning, build.
    Application,
    /// Mitigations, clocks, frequencies.
    Cpu,
    /// What watches system calls.
    Syscalls,
    /// Firewall and connection tracking.
    Netfilter,
    /// Which CPU does which part of a packet's way.
    Locality,
    /// When the card interrupts.
    Interrupts,
    /// Who else is in the path.
    Neighbours,
    /// Queueing disciplines and contention.
    Locks,
    /// Offloads, congestion control, sizes.
    LastPercent,
    /// What bounds the number of connections.
    Capacity,
    /// Counters that say that the host is at a limit now.
    Pressure,
}

impl Group {
    /// All groups, in the order of the manual.
    pub const ALL: [Self; 11] = [
        Self::Application,
        Self::Cpu,
        Self::Syscalls,
        Self::Netfilter,
        Self::Locality,
        Self::Interrupts,
        Self::Neighbours,
        Self::Locks,
        Self::LastPercent,
        Self::Capacity,
        Self::Pressure,
    ];

    /// The word on the command line and the name of the manual's page.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Application => "application",
            Self::Cpu => "cpu",
            Self::Syscalls => "syscalls",
            Self::Netfilter => "netfilter",
            Self::Locality => "locality",
            Self::Interrupts => "interrupts",
            Self::Neighbours => "neighbours",
            Self::Locks => "locks",
            Self::LastPercent => "last-percent",
            Self::Capacity => "capacity",
            Self::Pressure => "pressure",
        }
    }
}

/// What following the advice may cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Risk {
    /// Nothing that we know of.
    None,
    /// Something else gets slower or needs more (said in the item's `avoid`).
    Trade,
    /// Less protection; only done when named.
    SecurityTrade,
}

impl Risk {
    /// The word in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Trade => "trade",
            Self::SecurityTrade => "security trade",
        }
    }
}

/// What gets better.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Benefit {
    /// More connections, or no refused ones.
    Capacity,
    /// Shorter waits, chiefly in the tail.
    Latency,
    /// Survives what it else would not.
    Stability,
    /// Less CPU per request.
    Throughput,
}

impl Benefit {
    /// The word in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Capacity => "capacity",
            Self::Latency => "latency",
            Self::Stability => "stability",
            Self::Throughput => "throughput",
        }
    }
}

/// The gain that may be expected, before it is measured here.
#[derive(Clone, Copy, Debug)]
pub struct Gain {
    /// What gets better.
    pub benefit: Benefit,
    /// For throughput: percent more requests a second, as published. For the others: the weight in
    /// the score on the same scale, our judgement.
    pub percent: f64,
    /// Where the figure is from.
    pub source: &'static str,
}

/// Where a setting lives, which decides whether it can be changed from where we are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// This process can do it alone.
    Process,
    /// A network namespace has its own copy: works in containers too.
    NetNamespace,
    /// The network card; in containers it belongs to the host.
    Card,
    /// One copy per running kernel.
    Kernel,
    /// Decided when the kernel starts.
    Boot,
    /// The machine below: frequencies and idle states, which a virtual machine's host decides.
    Hardware,
}

/// One item of advice.
#[derive(Clone, Copy, Debug)]
pub struct Item {
    /// Its name on the command line, in reports and in the manual; starts with its group's idea.
    pub id: &'static str,
    /// Its group.
    pub group: Group,
    /// A short line.
    pub title: &'static str,
    /// How it costs or limits, in two or three sentences.
    pub mechanism: &'static str,
    /// When not to follow it.
    pub avoid: &'static str,
    /// What may be gained.
    pub gain: Gain,
    /// What it may cost.
    pub risk: Risk,
    /// Where the setting lives.
    pub scope: Scope,
    /// The kinds of work it matters for.
    pub kinds: &'static [For],
    /// Looks at the host. An error means skipped, with the reason.
    pub detect: fn(&Host, &Workload) -> Result<Finding, Unreadable>,
}

/// For `kinds`: matters whatever the work is.
pub const EVERY_KIND: &[For] = &[For::Json, For::Proxy, For::Push];

impl Item {
    /// Whether it matters for this work.
    #[must_use]
    pub fn matters_for(&self, kind: For) -> bool {
        kind == For::All || self.kinds.contains(&kind)
    }
}

/// The source most gains are from.
pub const NINE_STEPS: &str = "nine steps, 224k to 1.2M requests/s (talawah.io 2021; c5n.xlarge, JSON); the split of a step is ours";
/// The kernel's own manual.
pub const KERNEL_DOCS: &str = "kernel documentation, no figure published; our weight";
/// The settings for a million connections.
pub const MILLION: &str =
    "what a million connections needed (C1000K, MigratoryData, Phoenix); our weight";
