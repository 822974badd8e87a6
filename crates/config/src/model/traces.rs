//! The collector that gets the spans of requests.
//! In: settings. Out: data.

use super::{Config, RemoteAddress};

/// `[traces]`: the spans of requests whose traces are sampled are sent to an OpenTelemetry collector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Traces {
    /// The address of the collector.
    pub endpoint: RemoteAddress,
    /// Fields of each request to the collector: names and values.
    pub headers: Vec<(String, String)>,
    /// The name of the service that the spans belong to.
    pub service: String,
    /// Further attributes of the service: names and values.
    pub attributes: Vec<(String, String)>,
}

impl Config {
    /// Takes these settings in place of those of the file.
    pub fn keep_traces(&mut self, traces: Option<&Traces>) {
        self.traces = traces.cloned();
        if let Some(trace) = &mut self.server.trace {
            trace.is_recorded = traces.is_some();
        }
    }
}
