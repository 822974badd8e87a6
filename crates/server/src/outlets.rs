//! The destinations of request records: the access log and the export of spans, of which either may be absent.
//! In: the configuration. Out: the writers of each worker; threads that write and send.

use std::io;
use std::sync::Arc;

use tidegate_config::model::Config;

use crate::access_log::{self, LineSender, WriterWaker};
use crate::cold_thread::ColdThread;
use crate::span_export::{SpanExport, SpanSender};

/// Before the threads are started.
pub(crate) struct Outlets {
    access: Option<access_log::Log>,
    spans: Option<SpanExport>,
}

/// The access log and the span export of one worker.
#[derive(Default)]
pub(crate) struct WorkerOutlets {
    /// The access log.
    pub(crate) lines: Option<LineSender>,
    /// The export of spans.
    pub(crate) spans: Option<SpanSender>,
}

impl Outlets {
    /// Opens the access log.
    ///
    /// # Errors
    /// Its file cannot be opened; the text names it.
    pub(crate) fn open(config: &Config) -> Result<Self, String> {
        let access = config.log.access.as_ref().map(access_log::Log::open).transpose()?;
        Ok(Self { access, spans: config.traces.as_ref().map(SpanExport::new) })
    }

    /// Those of another worker.
    pub(crate) fn of_worker(&mut self) -> WorkerOutlets {
        WorkerOutlets {
            lines: self.access.as_mut().map(access_log::Log::sender),
            spans: self.spans.as_mut().map(SpanExport::sender),
        }
    }

    /// Starts the threads.
    ///
    /// # Errors
    /// The kernel refused one.
    pub(crate) fn start(self) -> io::Result<OutletWakers> {
        let access = self.access.map(access_log::Log::start).transpose()?;
        Ok(OutletWakers { access, spans: self.spans.map(SpanExport::start).transpose()? })
    }
}

/// Passes the requests of the process to the threads.
#[derive(Clone)]
pub(crate) struct OutletWakers {
    access: Option<WriterWaker>,
    spans: Option<Arc<ColdThread>>,
}

impl OutletWakers {
    /// Opens the file of the access log again.
    pub(crate) fn reopen(&self) {
        if let Some(access) = &self.access {
            access.reopen();
        }
    }

    /// Waits for a moment until the last lines are written and the last spans are sent. No worker runs any more.
    pub(crate) fn finish(&self) {
        if let Some(access) = &self.access {
            access.finish();
        }
        if let Some(spans) = &self.spans {
            spans.finish();
        }
    }
}
