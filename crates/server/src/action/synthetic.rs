//! Synthetic responses: the URL specifies status, size, delays and chunks (the order). A response holds at
//! most one piece of its body at a time. Fixed responses whose bandwidth is limited are sent in the same way.
//! In: a request on a synthetic route. Out: its response, as fast as the client reads it and the route admits.
//! Never: keeps a body; uses a timer other than the connection's deadline (for the order's delays, and for the
//! request body).
//! Limits: each response sends up to `SHARE_BYTES` a turn, so that other connections get their share.

use std::rc::Rc;

use tidegate_base::{Id, Moment};
use tidegate_gate::respond::Prepared;
use tidegate_gate::synthetic::{self, Synthetic};
use tidegate_reactor::Reactor;
use tidegate_wire::message::{BodyLength, Method, RequestHead};

use crate::action::Running;
use crate::action::intake::Intake;
use crate::answer::{Answer, Head};
use crate::carrier::Rest;
use crate::paces::{BodyDirection, Pace};
use crate::requester::Requester;
use crate::snapshot::Snapshot;
use crate::worker::Worker;

/// Bytes that are collected before they are handed to the reactor.
const PIECE_BYTES: usize = 64 * 1024;
/// How many bytes of the share of a turn each piece uses up in addition to its own.
const PIECE_COST_BYTES: usize = 64;
/// Bytes one response may send in a turn.
const SHARE_BYTES: usize = 4 * PIECE_BYTES;

/// A synthetic response in progress.
pub(crate) struct SyntheticResponse {
    /// The requester. It exists as long as the response, and its carrier refers to this response.
    requester: Requester,
    /// The response that the URL specifies; of a fixed response, its status and length.
    order: Synthetic,
    /// The fixed response; `None`: the order describes the body.
    fixed: Option<Fixed>,
    /// The limit of the bandwidth, if the route has one.
    pub(super) pace: Option<Box<Pace>>,
    /// The response has a body.
    has_body: bool,
    /// Bytes of the body sent so far. At most `order.size`.
    sent: u64,
    /// The seed of a random body; `None` for the fixed pattern.
    seed: Option<u64>,
    /// Bytes of the request body that must still arrive before the response begins.
    body_awaited: u64,
    /// How much of the request body has arrived. The body is discarded.
    pub(crate) intake: Intake,
    /// The current step of the response.
    phase: Phase,
    /// The values for the edits of the response; empty if there are none, and once the response begins.
    values: Vec<u8>,
}

/// A fixed response of a route, under the settings that its request began with.
struct Fixed {
    /// The settings.
    snapshot: Rc<Snapshot>,
    /// The index of the route there.
    route: usize,
}

impl Fixed {
    /// The response.
    fn prepared(&self) -> Option<&Prepared> {
        self.snapshot.answers.prepared(self.route)
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Waiting for the request body, as far as the order requires it.
    ExpectBody,
    /// Waiting for the end of the order's delay.
    Delay(Moment),
    /// Sending the body.
    Send,
    /// Waiting for the end of the order's pause after the response.
    Pause(Moment),
}

impl Worker {
    /// Parses the order in the URL and begins its response.
    pub(super) fn begin_synthetic<R: Reactor>(
        &mut self,
        reactor: &mut R,
        to: Requester,
        head: &RequestHead<'_>,
        route: usize,
    ) {
        let order = match synthetic::parse(head.query, &mut self.prng) {
            Ok(order) => order,
            Err(text) => return self.answer_error(reactor, to, 400, text, false),
        };
        let seed = order.random.then(|| self.prng.next_u64());
        if order.help {
            return self.answer(reactor, to, &Answer::SyntheticHelp, false);
        }
        let has_body = order.has_body(matches!(head.method, Method::Head));
        let pace = self.pace_of(to, route);
        if pace.is_none() && can_send_at_once(&order) && (order.states_length() || !has_body) {
            return self.answer(reactor, to, &Answer::Synthetic { order: &order, seed }, false);
        }
        let body_awaited = match head.length {
            BodyLength::None | BodyLength::Length(0) => 0,
            _ => order.body_read_max.unwrap_or(0),
        };
        let response = SyntheticResponse {
            requester: to,
            has_body,
            sent: 0,
            seed,
            body_awaited,
            intake: Intake::NONE,
            phase: Phase::ExpectBody,
            values: self.values.take(to),
            order,
            fixed: None,
            pace,
        };
        let expects_continue = head.expect_continue;
        self.insert_synthetic(reactor, response, expects_continue);
    }

    /// The limits of a request to this route; `None` if its responses are not limited.
    fn pace_of(&mut self, to: Requester, route: usize) -> Option<Box<Pace>> {
        let snapshot = self.settings_of(to);
        let limits = snapshot.handlings.of_route(route)?.bandwidth?;
        limits.down.map(|_| Box::new(Pace::new(&limits)))
    }

    /// Begins a fixed response that is sent in pieces, if the bandwidth limit of its route does not admit all of it at once.
    /// Returns whether the response has begun.
    pub(super) fn begin_paced<R: Reactor>(
        &mut self,
        reactor: &mut R,
        to: Requester,
        is_head: bool,
        route: usize,
    ) -> bool {
        let Some(pace) = self.pace_of(to, route).filter(|_| !is_head) else { return false };
        let fixed = Fixed { snapshot: self.settings_of(to), route };
        let Some(prepared) = fixed.prepared() else { return false };
        let (status, size) = (prepared.status(), prepared.content().len() as u64);
        if size <= pace.first_room() {
            return false;
        }
        let response = SyntheticResponse {
            requester: to,
            has_body: true,
            sent: 0,
            seed: None,
            body_awaited: 0,
            intake: Intake::NONE,
            phase: Phase::ExpectBody,
            values: self.values.take(to),
            order: Synthetic { status, size, ..Synthetic::default() },
            fixed: Some(fixed),
            pace: Some(pace),
        };
        self.insert_synthetic(reactor, response, false);
        true
    }

    fn insert_synthetic<R: Reactor>(
        &mut self,
        reactor: &mut R,
        response: SyntheticResponse,
        expects_continue: bool,
    ) {
        let (to, body_awaited) = (response.requester, response.body_awaited);
        match self.synthetics.insert(response) {
            Ok(id) => {
                self.set_running(to, Running::Synthetic(id));
                if body_awaited == 0 {
                    self.begin_delay(reactor, id);
                } else if expects_continue {
                    // RFC 9110 section 10.1.1: a recipient that wants the body must request it with 100.
                    self.send_continue(reactor, to);
                }
            }
            Err(_) => {
                let text = "the proxy is handling too many requests";
                self.answer_error(reactor, to, 503, text, true);
            }
        }
    }

    /// Discards bytes of the request body. Begins the response once enough of the body has arrived.
    pub(super) fn feed_synthetic<R: Reactor>(
        &mut self,
        reactor: &mut R,
        id: Id<SyntheticResponse>,
        data: &[u8],
        is_end: bool,
    ) {
        let Some(response) = self.synthetics.get_mut(id) else { return };
        response.body_awaited = response.body_awaited.saturating_sub(data.len() as u64);
        let is_enough = is_end || response.body_awaited == 0;
        if is_enough && response.phase == Phase::ExpectBody {
            self.begin_delay(reactor, id);
        }
    }

    /// Whether the response waits for more of the request body.
    pub(super) fn synthetic_expects_body(&self, id: Id<SyntheticResponse>) -> bool {
        self.synthetics.get(id).is_some_and(|response| response.phase == Phase::ExpectBody)
    }

    /// Begins the delay of the order.
    fn begin_delay<R: Reactor>(&mut self, reactor: &mut R, id: Id<SyntheticResponse>) {
        let Some(response) = self.synthetics.get_mut(id) else { return };
        response.phase = Phase::Delay(reactor.now().after(response.order.delay));
        self.pump(reactor, id);
    }

    /// Advances a response as far as its delays and the client allow.
    pub(super) fn pump<R: Reactor>(&mut self, reactor: &mut R, id: Id<SyntheticResponse>) {
        let Some(response) = self.synthetics.get_mut(id) else { return };
        let to = response.requester;
        match response.phase {
            Phase::ExpectBody => {}
            Phase::Delay(until) if reactor.now() < until => {
                self.set_action_deadline(reactor, to, until);
            }
            Phase::Delay(_) => {
                response.phase = Phase::Send;
                let order = response.order.clone();
                let snapshot = response.fixed.as_ref().map(|fixed| Rc::clone(&fixed.snapshot));
                let route = response.fixed.as_ref().map_or(0, |fixed| fixed.route);
                let prepared = snapshot.as_ref().and_then(|known| known.answers.prepared(route));
                let head = prepared.map_or(Head::Synthetic(&order), Head::Prepared);
                let values = core::mem::take(&mut response.values);
                self.recall_values(to, values);
                self.begin_response(reactor, to, &head, Rest::Discarded);
                self.send_pieces(reactor, id);
            }
            Phase::Send => self.send_pieces(reactor, id),
            Phase::Pause(until) if reactor.now() < until => {
                self.set_action_deadline(reactor, to, until);
            }
            Phase::Pause(_) => {
                self.forget_synthetic(id);
                self.release_requester(reactor, to);
            }
        }
    }

    /// Removes a response that is complete or cancelled.
    pub(super) fn forget_synthetic(&mut self, id: Id<SyntheticResponse>) {
        if let Some(mut response) = self.synthetics.remove(id) {
            self.paces.forget(response.pace.take());
        }
    }

    /// Sends pieces of the body until it is complete, the client is too slow, or the share of the turn or the bandwidth
    /// of the route is used up.
    fn send_pieces<R: Reactor>(&mut self, reactor: &mut R, id: Id<SyntheticResponse>) {
        let mut piece = core::mem::take(&mut self.piece);
        let mut share = SHARE_BYTES;
        while let Some(response) = self.synthetics.get_mut(id) {
            let to = response.requester;
            if response.is_whole() {
                response.phase = Phase::Pause(reactor.now().after(response.order.pause));
                self.end_response(reactor, to, b"", b"");
                self.pump(reactor, id);
                break;
            }
            let is_paced = response.pace.is_some();
            let room = if is_paced { self.synthetic_room(reactor, id) } else { usize::MAX };
            if room == 0 {
                break;
            }
            piece.clear();
            let Some(response) = self.synthetics.get_mut(id) else { break };
            response.fill_piece(&mut piece, room, reactor.now());
            let is_last = response.is_whole();
            self.send_data(reactor, to, &piece);
            if !is_last && self.is_client_blocked(reactor, to) {
                self.hold_client(reactor, to);
                break;
            }
            share = share.saturating_sub(piece.len() + PIECE_COST_BYTES);
            if !is_last && share == 0 {
                self.yielded.push(Running::Synthetic(id));
                break;
            }
        }
        self.piece = piece;
    }
}

impl SyntheticResponse {
    /// The requester of the response.
    pub(crate) fn requester(&self) -> Requester {
        self.requester
    }

    /// The limit of the bandwidth, if the route has one.
    pub(crate) fn pace(&self) -> Option<&Pace> {
        self.pace.as_deref()
    }

    fn is_whole(&self) -> bool {
        !self.has_body || self.sent >= self.order.size
    }

    /// Appends the next piece of the body, of up to `room` bytes.
    fn fill_piece(&mut self, out: &mut Vec<u8>, room: usize, now: Moment) {
        let left = self.order.size - self.sent;
        let room = PIECE_BYTES.min(self.order.piece_bytes).min(room) as u64;
        let amount = left.min(room) as usize;
        match self.fixed.as_ref().and_then(Fixed::prepared) {
            None => synthetic::fill(out, self.sent, amount, self.seed),
            Some(prepared) => {
                let begin = self.sent as usize;
                out.extend_from_slice(&prepared.content()[begin..begin + amount]);
            }
        }
        self.sent += amount as u64;
        if let Some(pace) = &mut self.pace {
            pace.spend(BodyDirection::Down, now, amount);
        }
    }
}

/// Whether the whole response can be sent at once.
fn can_send_at_once(order: &Synthetic) -> bool {
    order.delay.is_zero()
        && order.pause.is_zero()
        && order.size <= PIECE_BYTES as u64
        && order.body_read_max.is_none()
}
