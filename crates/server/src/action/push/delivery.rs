//! Publications on their way to the subscribers of this worker.
//! In: the hub's deliveries, subscribers that read again. Out: messages; queues for subscribers that do not read.
//! Never: delivers for so long that other connections wait.
//! Limits: `DELIVERY_BYTES_PER_TURN_MAX`; `queue-max` and `queue-messages-max` of the hub for each subscriber.
//! Invariant: a subscriber has a queue only while its carrier holds it until its output has drained, or while it waits for the
//! reply to its `connect`. The queue is sent after that.

use std::sync::Arc;

use tidegate_base::Id;
use tidegate_gate::access::Cause;
use tidegate_push::client::Disconnect;
use tidegate_push::deflated::COMPRESSION_COST;
use tidegate_push::fan_out::{Delivery, Handed};
use tidegate_push::publication::{Content, DELIVERY_COST_BYTES, Form, Publication};
use tidegate_push::queue::{Next, Queued};
use tidegate_reactor::Reactor;

use crate::action::push::emulation::Stream;
use crate::action::push::{Key, Kind, Link, PushSession, PushState, Receiver};
use crate::action::service::Service;
use crate::action::websocket::WebSocket;
use crate::action::websocket::compression::Packing;
use crate::record::SLOW_CLIENT;
use crate::worker::Worker;

/// How much a worker delivers before it serves its other connections again: 64 short messages, or fewer long ones. Each takes a
/// few microseconds, most of them in the kernel.
const DELIVERY_BYTES_PER_TURN_MAX: usize = 64 * DELIVERY_COST_BYTES;

impl Worker {
    /// Continues deliveries after a turn.
    pub(crate) fn continue_deliveries<R: Reactor>(&mut self, reactor: &mut R) {
        let mut keys = core::mem::take(&mut self.push.keys);
        let mut left = DELIVERY_BYTES_PER_TURN_MAX;
        // A connection that keeps a compression context compresses each message itself. Any subscriber may have such a
        // connection.
        let has_contexts = self.websockets.codecs.keepers() > 0;
        let cost_bytes = |publication: &Publication| {
            let own = if has_contexts { publication.compression_cost_bytes() } else { 0 };
            publication.delivery_cost_bytes() + own
        };
        while left > 0 && self.push.hub.is_delivering() {
            let Some(slice) = self.push.hub.deliver(left, cost_bytes, &mut keys) else { break };
            let publication = Arc::clone(&slice.publication);
            // A slice without subscribers costs time, too: the hub has examined their places.
            left = left.saturating_sub(keys.len().max(1) * cost_bytes(&publication));
            if slice.is_first {
                left = left.saturating_sub(publication.patch_cost_bytes());
            }
            let mut delivery = Delivery::default();
            for key in keys.drain(..) {
                delivery.note(self.deliver_to(reactor, key, &publication));
            }
            left = left.saturating_sub(core::mem::take(&mut self.push.compression_cost_bytes));
            self.push.hub.end_slice(slice, delivery);
        }
        self.push.keys = keys;
        let counters = &self.accounts.counters;
        counters.push_unreported.add(self.push.hub.take_unreported());
        counters.push_unkept_bases.add(self.push.hub.take_unkept_bases());
        self.settle(reactor);
    }

    /// Sends a publication to a subscriber, or queues it if the subscriber does not read.
    pub(super) fn deliver_to<R: Reactor>(
        &mut self,
        reactor: &mut R,
        key: Key,
        publication: &Arc<Publication>,
    ) -> Handed {
        let earlier = self.current_mark();
        let handed = self.deliver_now(reactor, key, publication);
        self.restore_mark(earlier);
        handed
    }

    fn deliver_now<R: Reactor>(
        &mut self,
        reactor: &mut R,
        key: Key,
        publication: &Arc<Publication>,
    ) -> Handed {
        match key.receiver() {
            Receiver::Raw(_) if publication.content != Content::Message => Handed::Nothing,
            Receiver::Raw(id) => {
                // An earlier delivery of the slice may have ended the connection.
                let Some(socket) = self.websockets.sessions.find(id) else {
                    return Handed::Nothing;
                };
                let to = socket.requester();
                self.mark_requester(to);
                if self.is_client_held(to) {
                    return self.enqueue_publication(reactor, key, publication);
                }
                self.accounts.counters.push_deliveries.add(1);
                self.send_publication(reactor, id, publication, Form::Raw);
                self.is_websocket_held(reactor, id);
                Handed::Sent
            }
            // A call gets no publications.
            Receiver::Call(_) => Handed::Nothing,
            Receiver::Session(id) => self.deliver_to_session(reactor, id, publication),
        }
    }

    fn deliver_to_session<R: Reactor>(
        &mut self,
        reactor: &mut R,
        id: Id<PushSession>,
        publication: &Arc<Publication>,
    ) -> Handed {
        self.mark_session(id);
        let Some(session) = self.push.sessions.find(id) else { return Handed::Nothing };
        let (to, key) = (session.requester, Key::of_session(id));
        match &session.kind {
            Kind::Client { link, connection, .. } => {
                let link = *link;
                if publication.is_visit() && !connection.hears_visits(&publication.channel) {
                    return Handed::Nothing;
                }
                let Some(publication) = connection.chosen(publication) else {
                    self.accounts.counters.push_left_out.add(1);
                    return Handed::Nothing;
                };
                if connection.is_connect_reply_pending() || self.is_client_held(to) {
                    return self.enqueue_publication(reactor, key, publication);
                }
                let Some(form) = self.choose_form(id, publication) else { return Handed::Nothing };
                match link {
                    Link::Socket(socket) => {
                        self.send_publication(reactor, socket, publication, form);
                        self.is_websocket_held(reactor, socket);
                    }
                    Link::Stream(Stream { framing, .. }) => {
                        self.send_to_stream(reactor, to, framing, publication.message(form));
                    }
                }
            }
            // Only clients of the client protocol receive joins and leaves.
            _ if publication.content != Content::Message => return Handed::Nothing,
            Kind::Events { .. } => {
                if self.is_client_held(to) {
                    return self.enqueue_publication(reactor, key, publication);
                }
                self.send_event(reactor, to, publication);
                if self.is_client_blocked(reactor, to) {
                    self.hold_client(reactor, to);
                }
            }
            Kind::Poll { .. } => {
                self.answer_poll(reactor, id, core::slice::from_ref(publication), false);
            }
            Kind::Request { .. }
            | Kind::ApiCall(_)
            | Kind::Commands { .. }
            | Kind::Unverified(_) => {
                return Handed::Nothing;
            }
        }
        self.accounts.counters.push_deliveries.add(1);
        Handed::Sent
    }

    /// Sends a publication over a WebSocket: the frame that all connections share, compressed if that was negotiated.
    fn send_publication<R: Reactor>(
        &mut self,
        reactor: &mut R,
        id: Id<WebSocket>,
        publication: &Publication,
        form: Form,
    ) {
        let window_bits = match self.packing_for(id, || publication.message(form).len()) {
            Packing::Plain => return self.send_frame(reactor, id, publication.frame(form)),
            Packing::Own => {
                let message = publication.message(form);
                return self.notify_websocket(reactor, id, form.kind(), message);
            }
            Packing::Shared { window_bits } => window_bits,
        };
        let mut cost_bytes = 0;
        let codecs = &mut self.websockets.codecs;
        let deflated = publication.deflated_frame(form, window_bits, |kind, message| {
            cost_bytes = COMPRESSION_COST * message.len();
            codecs.deflated_frame(kind, message, window_bits)
        });
        if cost_bytes > 0 {
            self.push.compression_cost_bytes += cost_bytes;
            self.accounts.counters.push_compressions.add(1);
        }
        self.send_frame(reactor, id, deflated.unwrap_or_else(|| publication.frame(form)));
    }

    /// The form in which a client of the client protocol is sent a publication now.
    fn choose_form(&mut self, id: Id<PushSession>, publication: &Publication) -> Option<Form> {
        let session = self.push.sessions.find_mut(id)?;
        let Kind::Client { connection, .. } = &mut session.kind else { return None };
        let form = connection.choose_form(publication);
        if matches!(form, Form::JsonPatch | Form::ProtobufPatch) {
            self.accounts.counters.push_patches.add(1);
        }
        Some(form)
    }

    /// Keeps a publication for a subscriber that does not read, as the hub's policy requires.
    fn enqueue_publication<R: Reactor>(
        &mut self,
        reactor: &mut R,
        key: Key,
        publication: &Arc<Publication>,
    ) -> Handed {
        let hubs = Arc::clone(&self.push.settings);
        let Some(hub) = hubs.get(publication.hub) else { return Handed::Nothing };
        let queue = self.push.queues.entry(key).or_default();
        let outcome = queue.push(Arc::clone(publication), &hub.queue);
        let lost = queue.take_lost();
        let (queued, dropped, handed) = match outcome {
            Queued::Waits => (1, 0, Handed::Queued { dropped: 0 }),
            Queued::DroppedOlder(dropped) => (1, dropped.into(), Handed::Queued { dropped }),
            Queued::Dropped => (0, 1, Handed::Dropped),
            Queued::Overflow => {
                self.count_slow_close(publication.hub);
                self.disconnect_slow(reactor, key);
                return Handed::Slow;
            }
        };
        let counters = &self.accounts.counters;
        counters.push_queued.add(queued);
        counters.push_dropped.add(dropped);
        if let Some(of_hub) = self.accounts.hub(publication.hub) {
            of_hub.queued.add(queued);
            of_hub.dropped.add(dropped);
        }
        if !lost.is_empty() {
            self.end_lost(reactor, key, &lost);
        }
        handed
    }

    /// Messages of these channels with a history were dropped from the queue of a subscriber. A client of the client protocol
    /// subscribes again, and recovers them if it can. A stream of events reports the gap where it is, and raw mode cannot report it.
    fn end_lost<R: Reactor>(&mut self, reactor: &mut R, key: Key, lost: &[Arc<str>]) {
        let Receiver::Session(id) = key.receiver() else { return };
        let mut out = self.buffers.take();
        let ended = self.with_client(reactor, id, 0, |connection, context| {
            lost.iter().try_for_each(|channel| connection.end_lost(context, channel, &mut out))
        });
        match ended {
            Some(Ok(())) => self.send_to_client(reactor, id, &out),
            Some(Err(Disconnect { code, reason })) => {
                self.close_push_client(reactor, id, code, reason);
            }
            None => {}
        }
        self.buffers.put(out);
    }

    /// A client of a hub is disconnected because it does not read.
    pub(super) fn count_slow_close(&self, hub: u16) {
        self.accounts.counters.push_slow_closes.add(1);
        if let Some(of_hub) = self.accounts.hub(hub) {
            of_hub.slow_closes.add(1);
        }
    }

    /// Ends a subscriber that is too slow.
    pub(super) fn disconnect_slow<R: Reactor>(&mut self, reactor: &mut R, key: Key) {
        self.forget_queue(key);
        match key.receiver() {
            Receiver::Raw(id) => {
                self.leave_raw(id);
                self.disconnect(reactor, id, Disconnect::SLOW);
            }
            Receiver::Call(_) => {}
            Receiver::Session(id) => {
                let Some(session) = self.push.sessions.find(id) else { return };
                let to = session.requester;
                match session.socket() {
                    Some(socket) => {
                        self.leave_channels(reactor, id);
                        self.disconnect(reactor, socket, Disconnect::SLOW);
                    }
                    None => self.abandon_client(reactor, to, Cause::ClientTimeout, SLOW_CLIENT),
                }
            }
        }
    }

    /// Sends what waited for a client in raw mode that reads again.
    pub(in crate::action) fn resume_raw<R: Reactor>(&mut self, reactor: &mut R, id: Id<WebSocket>) {
        self.resume_socket(reactor, id, Key::of_raw(id), None);
    }

    /// Sends what waited for a client of the client protocol that reads again.
    pub(in crate::action) fn resume_client_session<R: Reactor>(
        &mut self,
        reactor: &mut R,
        id: Id<WebSocket>,
        session: Id<PushSession>,
    ) {
        self.resume_socket(reactor, id, Key::of_session(session), Some(session));
        if self.push.lets_commands_wait {
            self.run_waiting_commands(reactor, session);
        }
    }

    /// Sends the publications that were queued until the client had got the reply to its `connect`.
    pub(super) fn send_kept<R: Reactor>(&mut self, reactor: &mut R, id: Id<PushSession>) {
        let key = Key::of_session(id);
        let Some(session) = self.push.sessions.find(id) else { return };
        let (to, socket) = (session.requester, session.socket());
        if !self.push.queues.contains_key(&key) || self.is_client_held(to) {
            return;
        }
        match socket {
            Some(socket) => self.resume_socket(reactor, socket, key, Some(id)),
            None => self.resume_session(reactor, id),
        }
    }

    fn resume_socket<R: Reactor>(
        &mut self,
        reactor: &mut R,
        id: Id<WebSocket>,
        key: Key,
        session: Option<Id<PushSession>>,
    ) {
        if session
            .and_then(|id| self.push.sessions.find(id))
            .is_some_and(PushSession::is_connect_reply_pending)
        {
            return;
        }
        while let Some(queue) = self.push.queues.get_mut(&key) {
            let next = queue.pop();
            if queue.is_empty() {
                self.push.queues.remove(&key);
            }
            let Some(Next { publication, .. }) = next else { break };
            let form = session.map_or(Some(Form::Raw), |id| self.choose_form(id, &publication));
            let Some(form) = form else { break };
            self.accounts.counters.push_deliveries.add(1);
            self.send_publication(reactor, id, &publication, form);
            if self.is_websocket_held(reactor, id) {
                break;
            }
        }
    }

    /// Sends what waited for a session whose client reads again.
    pub(in crate::action) fn resume_session<R: Reactor>(
        &mut self,
        reactor: &mut R,
        id: Id<PushSession>,
    ) {
        let Some(session) = self.push.sessions.get(id) else { return };
        let (to, is_connect_reply_pending) =
            (session.requester, session.is_connect_reply_pending());
        let framing = self.framing_of(id);
        match (&session.kind, framing) {
            (Kind::Events { .. }, _) => self.arm_heartbeat(reactor, id),
            (_, Some(_)) => {
                self.check_resumed_stream(reactor, id);
                if self.push.sessions.find(id).is_none() {
                    return;
                }
            }
            _ => return,
        }
        let key = Key::of_session(id);
        while !is_connect_reply_pending && let Some(queue) = self.push.queues.get_mut(&key) {
            let next = queue.pop();
            if queue.is_empty() {
                self.push.queues.remove(&key);
            }
            let Some(next) = next else { break };
            self.accounts.counters.push_deliveries.add(1);
            match framing {
                Some(framing) => {
                    let Some(form) = self.choose_form(id, &next.publication) else { break };
                    self.send_to_stream(reactor, to, framing, next.publication.message(form));
                }
                None => {
                    self.send_next_event(reactor, to, &next);
                    if self.is_client_blocked(reactor, to) {
                        self.hold_client(reactor, to);
                    }
                }
            }
            if self.is_client_held(to) {
                break;
            }
        }
        self.run_waiting_commands(reactor, id);
    }

    /// Ends the subscription of a client in raw mode, whose connection stays open.
    pub(super) fn leave_raw(&mut self, id: Id<WebSocket>) {
        let Some(socket) = self.websockets.sessions.get_mut(id) else { return };
        if let Service::Raw(place) = &mut socket.service
            && let Some(place) = place.take()
        {
            let PushState { hub, settings, .. } = &mut self.push;
            hub.unsubscribe(settings, place, Key::of_raw(id), None);
            self.accounts.counters.push_subscriptions_now.sub(1);
        }
    }

    /// The hub has ended the subscription of a client in raw mode.
    pub(super) fn forget_raw_place(&mut self, id: Id<WebSocket>) {
        if let Some(socket) = self.websockets.sessions.find_mut(id)
            && let Service::Raw(place) = &mut socket.service
            && place.take().is_some()
        {
            self.accounts.counters.push_subscriptions_now.sub(1);
        }
    }

    /// Drops the publications that wait for a subscriber.
    pub(super) fn forget_queue(&mut self, key: Key) {
        self.push.queues.remove(&key);
    }
}
