//! The VMs of earlier code: each continues for a while after a reload, for its requests, its clients and its jobs.
//! In: an application whose code has changed. Out: its deadline, and its WebSocket clients, in the order in which they are
//! handed over or closed.
//! Never: gets a new request or a new client.
//! Limits: `OF_APP_MAX` such VMs of an application, `RETIRED_MAX` of a worker: the oldest ends at once if there are more. Each
//! ends after `reload-grace` of its application, and the turns that it then takes to close its clients, at the latest.
//! Invariant: an index of a VM names no other VM before `RETIRED_FROM` further reloads.

use std::collections::VecDeque;

use tidegate_base::{Id, Moment, Span};
use tidegate_lua::Handler;

use crate::action::lua::socket::LuaClient;
use crate::apps::{App, Apps};

/// The first index of a VM of earlier code. Those below are indexes of applications.
pub(crate) const RETIRED_FROM: usize = 1 << 15;
/// VMs of earlier code of one application.
const OF_APP_MAX: usize = 4;
/// VMs of earlier code of a worker.
const RETIRED_MAX: usize = 64;
/// The part of the grace period over which connections are closed. The rest is for the closing handshakes.
const CLOSES_OF_GRACE: (u32, u32) = (3, 4);

/// A VM of earlier code.
pub(crate) struct Retired {
    /// Its index, from `RETIRED_FROM` on.
    pub(crate) index: usize,
    /// The index of its application.
    pub(crate) of: usize,
    /// The VM.
    pub(crate) app: App,
    /// When other code took its place.
    began: Moment,
    /// When it ends.
    pub(crate) by: Moment,
    /// The clients that are still to be handed over or closed. Some may have disconnected.
    clients: VecDeque<Id<LuaClient>>,
    /// How many clients there were.
    clients_total: usize,
}

/// The next step for a client of earlier code.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Next {
    /// The client is handed over to the new code.
    HandOver(Id<LuaClient>),
    /// The connection is closed.
    Close(Id<LuaClient>),
}

impl Retired {
    /// How many clients are to be closed by now.
    fn closed_by(&self, now: Moment) -> usize {
        if self.by <= now {
            return self.clients_total;
        }
        let (part, of) = CLOSES_OF_GRACE;
        let span = (self.by.since(self.began) * part / of).as_nanos().max(1);
        let elapsed = now.since(self.began).as_nanos().min(span);
        // The first connection closes at once, the last one at the end of the span.
        (self.clients_total as u128 * elapsed / span) as usize + 1
    }

    /// How many clients were handed over or closed.
    fn served(&self) -> usize {
        self.clients_total - self.clients.len()
    }

    /// When the next connection is closed.
    fn next_close(&self) -> Moment {
        let (part, of) = CLOSES_OF_GRACE;
        let span = self.by.since(self.began) * part / of;
        let total = self.clients_total.max(1) as u128;
        let nanos = span.as_nanos() * self.served() as u128 / total;
        self.began.after(Span::from_nanos(nanos as u64 + 1))
    }
}

impl Apps {
    /// Adds a VM of earlier code. Returns its index.
    pub(crate) fn retire(&mut self, of: usize, app: App, now: Moment) -> usize {
        let index = RETIRED_FROM + usize::from(self.next_retired);
        self.next_retired = (self.next_retired + 1) % RETIRED_FROM as u16;
        let by = now.after(app.grace());
        let clients = VecDeque::new();
        self.retired.push(Retired { index, of, app, began: now, by, clients, clients_total: 0 });
        index
    }

    /// These clients of a VM of earlier code are to be handed over or closed.
    pub(crate) fn set_leaving(&mut self, index: usize, clients: VecDeque<Id<LuaClient>>) {
        if let Some(old) = self.retired.iter_mut().find(|old| old.index == index) {
            (old.clients_total, old.clients) = (clients.len(), clients);
        }
    }

    /// Takes a VM of earlier code out of the list.
    pub(crate) fn take_retired(&mut self, index: usize) -> Option<App> {
        let at = self.retired.iter().position(|old| old.index == index)?;
        Some(self.retired.remove(at).app)
    }

    /// The oldest VM of earlier code of an application, or of all, if there are too many.
    pub(crate) fn excess_retired(&self, of: usize) -> Option<usize> {
        let mut own = self.retired.iter().filter(|old| old.of == of);
        let oldest = own.next()?.index;
        if own.count() + 1 > OF_APP_MAX {
            return Some(oldest);
        }
        (self.retired.len() > RETIRED_MAX).then(|| self.retired[0].index)
    }

    /// A VM of earlier code that ends now: its time is over, or it has nothing left to do. And whether its time is over.
    pub(crate) fn ended_retired(&mut self, now: Moment) -> Option<(usize, bool)> {
        let is_idle = |old: &mut Retired| old.app.vm().is_none_or(|vm| vm.is_idle());
        // A turn may be too short to hand over or to close all clients.
        let overdue = self.retired.iter().find(|old| old.by <= now && old.clients.is_empty());
        let overdue = overdue.map(|old| old.index);
        let mut all = self.retired.iter_mut();
        let index = overdue.or_else(|| all.find_map(|old| is_idle(old).then_some(old.index)))?;
        let old = self.retired.iter_mut().find(|old| old.index == index)?;
        Some((index, !is_idle(old)))
    }

    /// Takes the next client that is handed over or closed by now. Before the VM's time is over, a client is handed over only
    /// when both VMs have delivered the same broadcasts.
    pub(crate) fn take_leaving(&mut self, now: Moment) -> Option<Next> {
        for at in 0..self.retired.len() {
            let accepts_handover = self.accepts_handover(&self.retired[at]);
            let may_wait = accepts_handover && now < self.retired[at].by;
            if may_wait && !self.are_in_step(&self.retired[at].app, self.retired[at].of) {
                continue;
            }
            let old = &mut self.retired[at];
            if accepts_handover && let Some(client) = old.clients.pop_front() {
                return Some(Next::HandOver(client));
            }
            if old.served() < old.closed_by(now)
                && let Some(client) = old.clients.pop_front()
            {
                return Some(Next::Close(client));
            }
        }
        None
    }

    /// Whether the application takes over the clients of a VM of earlier code: it has reserved their ids, and its code has
    /// `on_handover`. A VM that has begun after one was discarded has given the same ids to other clients.
    fn accepts_handover(&self, old: &Retired) -> bool {
        self.shares_clients(old.index, old.of)
            && self.peek(old.of).is_some_and(|vm| vm.has(Handler::Handover))
    }

    /// The application to which a client of a VM of earlier code is handed over; `None` if the code does not take over
    /// clients, or the index is that of an application.
    pub(crate) fn handover_target(&self, index: usize) -> Option<usize> {
        let old = self.retired.iter().find(|old| old.index == index)?;
        self.accepts_handover(old).then_some(old.of)
    }

    /// Whether the index is that of a VM of earlier code.
    pub(crate) fn is_retired(&self, index: usize) -> bool {
        self.retired.iter().any(|old| old.index == index)
    }

    /// The index of the application to which a VM belongs.
    pub(crate) fn base_of(&self, index: usize) -> usize {
        self.retired.iter().find(|old| old.index == index).map_or(index, |old| old.of)
    }

    /// Whether clients are to be handed over, as fast as the share of the turn allows.
    pub(crate) fn has_handovers(&self) -> bool {
        self.retired.iter().any(|old| !old.clients.is_empty() && self.accepts_handover(old))
    }

    /// When a VM of earlier code has something to do next.
    pub(crate) fn next_of_retired(&self) -> Option<Moment> {
        let next = |old: &Retired| match old.clients.is_empty() {
            true => old.by,
            false => old.by.min(old.next_close()),
        };
        self.retired.iter().map(next).min()
    }

    /// How many VMs of earlier code there are.
    pub(crate) fn retired_len(&self) -> usize {
        self.retired.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_close_one_after_the_other() {
        let began = Moment::ZERO.after(Span::from_secs(1));
        let mut old = Retired {
            index: RETIRED_FROM,
            of: 0,
            app: App::removed(),
            began,
            by: began.after(Span::from_secs(40)),
            clients: (0..30).map(|index| Id::new(index, 1)).collect(),
            clients_total: 30,
        };
        let at = |seconds| began.after(Span::from_secs(seconds));
        assert_eq!([0, 1, 15, 30, 40].map(|second| old.closed_by(at(second))), [1, 2, 16, 31, 30]);
        assert!(old.next_close() <= at(1));
        old.clients.drain(..10);
        assert!(old.next_close() > at(10) && old.next_close() <= at(11), "{:?}", old.next_close());
    }
}
