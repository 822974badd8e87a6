//! The settings of the whole process.

use tidegate_base::Span;

use super::{DrainTimes, ReloadOn, RequestIds, SteerByCpu, Trace};

/// `[server]`: settings of the whole process.
#[derive(Clone, Debug, PartialEq)]
pub struct Server {
    /// Number of worker threads; `None` ("auto"): one for each CPU that this process may use.
    pub workers: Option<u16>,
    /// CPUs for the worker threads, ascending; `None` ("all"): those that this process may use.
    pub cpus: Option<Vec<usize>>,
    /// When the configuration file is read again.
    pub reload: ReloadOn,
    /// How long a stop waits for exchanges in flight.
    pub shutdown_grace: Span,
    /// The times over which WebSocket connections are closed.
    pub drain: DrainTimes,
    /// Maximum number of connections of the process, shared out among the workers; `None`: the number that the descriptor limit
    /// of each worker allows.
    pub connections_max: Option<u32>,
    /// Value of the `Server` field; empty: the field is omitted.
    pub server_name: String,
    /// Name of this proxy in `Via` (RFC 9110 section 7.6.3).
    pub via: String,
    /// The DNS servers that Lua applications query; empty: those of the system.
    pub name_servers: Vec<core::net::SocketAddr>,
    /// The ids of requests; `None`: only requests of routes with `{id}` have one.
    pub request_id: Option<RequestIds>,
    /// The traces of requests; `None`: traceparent is a field like any other.
    pub trace: Option<Trace>,
    /// When new requests are refused because of overload; `None`: never.
    pub overload: Option<Overload>,
    /// Whether a connection goes to the worker of the CPU that received it.
    pub steer_by_cpu: SteerByCpu,
}

/// `overload` of `[server]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Overload {
    /// How long events that are ready may wait for the worker without overload.
    pub turn_target: Span,
    /// A worker is overloaded if events waited for longer all the time of an interval of this length.
    pub interval: Span,
    /// The memory above which all new requests are refused; `None`: none are for this reason.
    pub memory_max: Option<MemoryMax>,
}

/// `memory-max` of `overload`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryMax {
    /// Bytes of the resident memory of the process.
    Bytes(u64),
    /// A share of the memory of the control group or the machine, in percent.
    Percent(u8),
}

impl Default for Overload {
    fn default() -> Self {
        Self {
            turn_target: Span::from_millis(20),
            interval: Span::from_millis(100),
            memory_max: None,
        }
    }
}

impl Default for Server {
    fn default() -> Self {
        Self {
            workers: None,
            cpus: None,
            reload: ReloadOn::Signal,
            shutdown_grace: Span::from_secs(30),
            drain: DrainTimes::default(),
            connections_max: None,
            server_name: "tidegate".to_owned(),
            via: "tidegate".to_owned(),
            name_servers: Vec::new(),
            request_id: None,
            trace: None,
            overload: None,
            steer_by_cpu: SteerByCpu::Auto,
        }
    }
}
