//! Facts that carriers and actions note about requests under way.
//! In: facts, when they become known. Out: records with these facts.
//! Never: costs anything but a test of a flag while nothing is recorded.

use std::rc::Rc;

use tidegate_base::Moment;
use tidegate_gate::access::{Cause, Phase};
use tidegate_gate::client_places::ClientPlace;
use tidegate_gate::counting::Tracked;
use tidegate_gate::identity::Identity;
use tidegate_reactor::SockId;

use super::Record;
use crate::connection::ClientCarrier;
use crate::requester::Requester;
use crate::snapshot::Snapshot;
use crate::worker::Worker;

impl Worker {
    /// The route of the request is known. May be called again with another route.
    #[inline]
    pub(crate) fn note_route(&mut self, to: Requester, route: usize) {
        if self.recorder.is_on() {
            let era = self.era_of(to);
            if let Some(index) = self.record_index(to)
                && let Some(record) = self.recorder.records.get_mut(index as usize)
            {
                record.change_route(self.settings.of(era), route as u16);
            }
        }
        self.mark_requester(to);
    }

    /// Removes the query from the line if it contains the token of a client of a push hub.
    pub(crate) fn hide_token(&mut self, to: Requester) {
        if let Some(record) = self.record(to) {
            record.hide_token();
        }
    }

    /// The record of a requester, which gets the newest settings: only they have the server that it goes to now.
    #[inline]
    fn newest_record(&mut self, to: Requester) -> Option<&mut Record> {
        if !self.recorder.is_on() {
            return None;
        }
        let index = self.record_index(to)?;
        let record = self.recorder.records.get_mut(index as usize)?;
        let newest = self.settings.newest();
        if !record.settings.as_ref().is_some_and(|own| Rc::ptr_eq(own, newest)) {
            record.move_to(newest);
        }
        Some(record)
    }

    /// The id and the trace of the request are known. May be called again.
    pub(crate) fn note_identity(&mut self, to: Requester, identity: &Identity<'_>) {
        let has_spans = self.recorder.spans.is_some();
        if let Some(record) = self.record(to) {
            record.note_identity(identity);
            record.spans = if has_spans { identity.spans() } else { None };
        }
    }

    /// The exchange has progressed.
    #[inline]
    pub(crate) fn note_phase(&mut self, to: Requester, phase: Phase) {
        if let Some(record) = self.record(to) {
            record.advance(phase);
        }
    }

    /// The request waits for a server of a pool, or fails without one.
    pub(crate) fn note_pool(&mut self, to: Requester, pool: u16) {
        if let Some(record) = self.newest_record(to) {
            record.pool = Some(pool);
        }
    }

    /// A server was chosen.
    #[inline]
    pub(crate) fn note_attempt(
        &mut self,
        to: Requester,
        server: (u16, u16),
        attempts: u32,
        is_reused: bool,
        now: Moment,
    ) {
        if let Some(record) = self.newest_record(to) {
            record.change_server(server);
            record.attempts = attempts;
            record.is_reused = is_reused;
            record.chosen_at = Some(now);
            record.connected_at = is_reused.then_some(now);
            record.advance(if is_reused { Phase::Head } else { Phase::Connect });
        }
    }

    /// The connection to the server is established.
    #[inline]
    pub(crate) fn note_connected(&mut self, to: Requester, now: Moment) {
        if let Some(record) = self.record(to) {
            record.connected_at = Some(now);
            record.advance(Phase::Head);
        }
    }

    /// The final head of a response was sent, whose body follows.
    #[inline]
    pub(crate) fn note_head(&mut self, to: Requester, status: u16, bytes: usize, now: Moment) {
        if let Some(record) = self.record(to) {
            record.status = status;
            record.bytes_out += bytes as u64;
            record.answered_at = Some(now);
            record.advance(Phase::Data);
        }
    }

    /// A complete response of Tidegate itself was sent.
    #[inline]
    pub(crate) fn note_answer(&mut self, to: Requester, status: u16, bytes: usize) {
        if let Some(record) = self.record(to) {
            record.status = status;
            record.bytes_out += bytes as u64;
            record.advance(Phase::Last);
        }
    }

    /// Bytes of the request body arrived.
    #[inline]
    pub(crate) fn note_bytes_in(&mut self, to: Requester, bytes: usize) {
        if let Some(record) = self.record(to) {
            record.bytes_in += bytes as u64;
        }
    }

    /// Bytes of the response body were sent.
    #[inline]
    pub(crate) fn note_bytes_out(&mut self, to: Requester, bytes: usize) {
        if let Some(record) = self.record(to) {
            record.bytes_out += bytes as u64;
        }
    }

    /// The request has a place among those of its address until its exchange ends.
    pub(crate) fn hold_place(&mut self, to: Requester, place: ClientPlace) {
        if let Some(record) = self.record(to) {
            record.place = Some(place);
        }
    }

    /// The entries that the request holds in tables; `None` if its record began with other settings.
    pub(crate) fn tracked(
        &mut self,
        to: Requester,
        settings: &Rc<Snapshot>,
    ) -> Option<&mut Vec<Tracked>> {
        let record = self.record(to)?;
        let is_same = record.settings.as_ref().is_some_and(|own| Rc::ptr_eq(own, settings));
        (is_same && record.kept_tables.is_none()).then_some(&mut record.tracked)
    }

    /// Notes why the exchange fails. The first cause counts.
    #[inline]
    pub(crate) fn blame(&mut self, to: Requester, cause: Cause, reason: &'static str) {
        if let Some(id) = to.as_own() {
            self.blame_own(id, reason);
        }
        if let Some(record) = self.record(to) {
            record.blame(cause, reason);
        }
    }

    /// Notes why all exchanges of a connection fail.
    pub(crate) fn blame_connection(&mut self, sock: SockId, cause: Cause, reason: &'static str) {
        if !self.recorder.is_on() {
            return;
        }
        let Some(down) = self.conns.downstream(sock) else { return };
        let ClientCarrier::Http2(http2) = &down.carrier else {
            return self.blame(Requester::connection(sock), cause, reason);
        };
        for id in http2.streams() {
            let Some(stream) = self.http2_clients.get(*id) else { continue };
            if let Some(record) = self.recorder.records.get_mut(stream.record() as usize) {
                record.blame(cause, reason);
            }
        }
    }
}
