//! The action `respond`: the fixed response of a route, encoded when the configuration was loaded.
//! In: a request whose route has the action. Out: its response. Never: lasts longer than the call.

use tidegate_reactor::Reactor;

use crate::answer::Answer;
use crate::requester::Requester;
use crate::worker::Worker;

impl Worker {
    /// Sends the fixed response of `route`.
    pub(super) fn respond<R: Reactor>(&mut self, reactor: &mut R, to: Requester, route: usize) {
        let snapshot = self.settings_of(to);
        match snapshot.answers.prepared(route) {
            Some(prepared) => self.answer(reactor, to, &Answer::Prepared(prepared), false),
            None => self.note_bug(reactor, to.sock),
        }
    }
}
