//! Orders of the thread that reloads, on their way to a worker: applications to be prepared, and settings.
//! In: orders of the thread. Out: the result of a worker, or why it has failed.
//! Never: is carried out after the thread has withdrawn it.

use std::sync::mpsc::{self, Receiver, SyncSender};
use std::sync::{Arc, Mutex, PoisonError};

use tidegate_config::model::Config;
use tidegate_reactor::{EpollReactor, Reactor};
use tidegate_secure::{TlsLayer, TlsPlan};

use crate::apply_settings::ChangeError;
use crate::configuration::Bound;
use crate::counters::Accounts;
use crate::scripts::Scripts;
use crate::snapshot::Snapshot;
use crate::worker::Worker;

/// Something on its way to a worker, and the way of the result.
pub(crate) struct Order<T, U> {
    /// The object for the worker; `None` once it has been taken.
    content: Mutex<Option<T>>,
    /// Reports that the worker has carried it out, or why it has not.
    report: SyncSender<Result<U, String>>,
}

/// Settings, and the addresses of the listeners.
pub(crate) type Handover = Order<(Snapshot, Arc<TlsPlan>), Bound>;
/// The configuration and the programs of settings that follow.
pub(crate) type Rehearsal = Order<(Arc<Config>, Scripts), ()>;

impl<T, U> Order<T, U> {
    pub(crate) fn new(content: T) -> (Arc<Self>, Receiver<Result<U, String>>) {
        let (report, result) = mpsc::sync_channel(1);
        (Arc::new(Self { content: Mutex::new(Some(content)), report }), result)
    }

    /// Takes the content: the worker, to carry it out, or the sender, to withdraw it.
    pub(crate) fn take(&self) -> Option<T> {
        self.content.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Reports the result.
    pub(crate) fn report(&self, result: Result<U, String>) {
        let _ = self.report.send(result);
    }
}

/// Prepares the applications of settings that follow, and reports that.
pub(crate) fn rehearse(reactor: &mut impl Reactor, worker: &mut Worker, rehearsal: &Rehearsal) {
    let Some((config, scripts)) = rehearsal.take() else { return };
    let prepared = worker.prepare_apps(reactor, &config, &scripts);
    rehearsal.report(prepared.map_err(|findings| ChangeError::Scripts(findings).to_string()));
}

/// Applies settings to a worker, and reports that.
pub(crate) fn change_settings(
    reactor: &mut EpollReactor,
    worker: &mut Worker,
    tls: &mut Option<TlsLayer<Arc<Accounts>>>,
    handover: &Handover,
) {
    let Some((snapshot, plan)) = handover.take() else { return };
    if tls.is_none() && !plan.is_empty() {
        *tls = Some(TlsLayer::new(&TlsPlan::default(), Vec::new(), worker.accounts()));
    }
    let changed = match tls {
        None => worker.change_settings(reactor, snapshot, &[]),
        Some(layer) => {
            // A waiting request may connect to a new server at once.
            let before = layer.plan();
            layer.replace_plan(&plan);
            let mut changed = Ok(());
            layer.between_turns(reactor, worker, |worker, view| {
                changed = worker.change_settings(view, snapshot, &[]);
            });
            if changed.is_err() {
                layer.replace_plan(&before);
            }
            layer.set_listeners(worker.listeners());
            changed
        }
    };
    if let Err(error) = changed {
        return handover.report(Err(error.to_string()));
    }
    let listeners = worker.listeners();
    let mut bound = vec![None; plan.listeners.len()];
    for (id, index) in listeners {
        if let Some(place) = bound.get_mut(usize::from(index)) {
            *place = reactor.listener_address(id);
        }
    }
    handover.report(Ok(bound));
}
