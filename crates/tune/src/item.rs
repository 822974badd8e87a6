//! An item of advice: a description, and one function that checks the host.
//! In: a host, a workload. Out: a finding. Journaling, applying and undoing a change is implemented once for all
//! items (`apply`, `undo`), so an item only says what to change.
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
    /// Audit, seccomp and tracing of system calls.
    Syscalls,
    /// Firewall and connection tracking.
    Netfilter,
    /// Which CPU performs which part of a packet's path.
    Locality,
    /// When the network card interrupts.
    Interrupts,
    /// Other programs that receive packets or take CPU time.
    Neighbours,
    /// Queueing disciplines and contention.
    Locks,
    /// Offloads, congestion control, sizes.
    LastPercent,
    /// Limits of the number of connections.
    Capacity,
    /// Counters that show that the host reaches a limit.
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

    /// The name on the command line and of the page in the manual.
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

/// The drawback of following the advice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Risk {
    /// No known drawback.
    None,
    /// Something else gets slower or needs more resources (described in the item's `avoid`).
    Trade,
    /// Less protection; applied only if the user names it.
    SecurityTrade,
}

impl Risk {
    /// The value in JSON reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Trade => "trade",
            Self::SecurityTrade => "security trade",
        }
    }

    /// The words in reports for people.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Trade => "trade-off",
            Self::SecurityTrade => "security trade-off",
        }
    }
}

/// The property that improves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Benefit {
    /// More connections, or no refused connections.
    Capacity,
    /// Lower latency, mainly tail latency.
    Latency,
    /// The host or server survives conditions in which it would otherwise fail.
    Stability,
    /// Less CPU time per request.
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

/// The expected gain, before it is measured on this host.
#[derive(Clone, Copy, Debug)]
pub struct Gain {
    /// The property that improves.
    pub benefit: Benefit,
    /// For throughput: percent more requests per second, as published. For other benefits: the weight in the score
    /// on the same scale, which is our estimate.
    pub percent: f64,
    /// The source of the figure.
    pub source: &'static str,
    /// The figures that the source published; reports show no other percentage.
    pub published: Published,
}

/// A published figure for the gain of an item.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Published {
    /// No figure: the item's percentage is only its weight in the score.
    No,
    /// The item is a whole step of a publication: percent more requests per second.
    Step(f64),
    /// The item is one part of a step with this gain.
    PartOfStep(f64),
}

/// The scope of a setting. It decides whether this process can change the setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// The setting of one process, which can change it itself.
    Process,
    /// Each network namespace has its own copy: the change works in containers too.
    NetNamespace,
    /// The network card, which belongs to the host even in a container.
    Card,
    /// One copy per running kernel.
    Kernel,
    /// Set by boot parameters.
    Boot,
    /// The hardware: frequencies and idle states, which the hypervisor controls in a virtual machine.
    Hardware,
}

/// One item of advice.
#[derive(Clone, Copy, Debug)]
pub struct Item {
    /// The name on the command line, in reports and in the manual; starts with a word for the group.
    pub id: &'static str,
    /// The group.
    pub group: Group,
    /// A short title.
    pub title: &'static str,
    /// How it costs performance or limits connections, in two or three sentences.
    pub mechanism: &'static str,
    /// When not to follow the advice, as full sentences.
    pub avoid: &'static str,
    /// The expected gain.
    pub gain: Gain,
    /// The drawback.
    pub risk: Risk,
    /// The scope of the setting.
    pub scope: Scope,
    /// The kinds of work for which the item matters.
    pub kinds: &'static [For],
    /// Checks the host. An error means that the item is skipped, with the error as the reason.
    pub detect: fn(&Host, &Workload) -> Result<Finding, Unreadable>,
}

/// For `kinds`: the item matters for every kind of work.
pub const EVERY_KIND: &[For] = &[For::Json, For::Proxy, For::Push];

impl Item {
    /// Whether the item matters for this kind of work.
    #[must_use]
    pub fn matters_for(&self, kind: For) -> bool {
        kind == For::All || self.kinds.contains(&kind)
    }
}

/// The source of most gains.
pub const NINE_STEPS: &str = "nine-steps article, 224k to 1.2M requests/s (talawah.io 2021; c5n.xlarge, \
    JSON); how a step is divided among items is our estimate";
/// The documentation of the kernel.
pub const KERNEL_DOCS: &str =
    "kernel documentation; no figure is published, the weight is our estimate";
/// The source of the settings for a million connections.
pub const MILLION: &str = "reports of servers with a million connections (C1000K, MigratoryData, \
    Phoenix); the weight is our estimate";
