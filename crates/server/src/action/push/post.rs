//! Mail about channels between the workers of a process.
//! In: messages in the worker's mailbox; mail of the hub. Out: messages to the mailboxes of other workers; replies.
//! Never: waits for another worker; changes the order of mail to a worker.
//! Limits: `PUSH_MAILS_MAX` messages in a mailbox; `MAILS_PER_TURN_MAX` of them are taken in a turn, or as many as
//! `PUSH_EFFORT_PER_TURN_MAX` allows; `COMMANDS_BYTES_MAX` of commands on their way to a worker. If a mailbox is
//! full, the hub keeps the message, and it is sent again after `RETRY_SPAN`.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tidegate_base::limits::{MAILS_PER_TURN_MAX, PUSH_EFFORT_PER_TURN_MAX};
use tidegate_base::{Id, Moment, Span};
use tidegate_config::model::Config;
use tidegate_push::effort;
use tidegate_push::hub::{Event, Hub};
use tidegate_push::mail::Mail;
use tidegate_reactor::{Mailbox, Reactor, Sender, Waker};
use tidegate_wire::websocket::{Close, CloseCode};

use crate::action::push::{Key, LuaCall, PushSession, Receiver};
use crate::action::websocket::WebSocket;
use crate::timers::WorkerTimer;
use crate::worker::Worker;

/// Maximum number of messages about channels that a worker's mailbox holds.
pub const PUSH_MAILS_MAX: usize = 4096;
/// How long a worker waits before it sends a message again that a full mailbox refused.
const RETRY_SPAN: Span = Span::from_millis(1);
/// How often a worker drops publications and idempotency keys that are too old.
const SWEEP_EVERY: Span = Span::from_secs(1);

/// A message about channels.
pub type PushMail = Mail<Key>;

/// A worker's mailbox for messages about channels, and the senders to the mailboxes of all workers.
pub struct PushPost {
    /// The worker's index in `workers`.
    pub own: usize,
    /// The worker's mailbox, which wakes the worker's reactor.
    pub mailbox: Mailbox<PushMail>,
    /// The mailboxes of all workers, including this worker's own.
    pub workers: Vec<Sender<PushMail>>,
    /// By worker: the bytes of client commands that are on their way to it.
    under_way: BytesInFlight,
}

/// By worker: bytes of commands (`weight_of`) on their way to it, from all workers.
pub type BytesInFlight = Arc<[AtomicUsize]>;

/// Counts of zero bytes for `workers` workers.
#[must_use]
pub fn no_bytes_in_flight(workers: usize) -> BytesInFlight {
    (0..workers).map(|_| AtomicUsize::new(0)).collect()
}

/// Maximum size in bytes of commands on their way to a worker. A larger message is sent alone.
const COMMANDS_BYTES_MAX: usize = 4 << 20;

/// The bytes that commands count as. Short commands count as more than their length, so that commands take at most a quarter of
/// the places in a mailbox.
fn weight_of(commands: &[u8]) -> usize {
    commands.len().max(COMMANDS_BYTES_MAX / (PUSH_MAILS_MAX / 4))
}

impl PushPost {
    /// The mailbox for messages about channels of each worker; `None` if there is no push hub, or only one worker.
    pub(crate) fn for_workers(config: &Config, wakers: &[Waker]) -> Vec<Option<Self>> {
        if wakers.len() < 2 || config.push.is_empty() {
            return wakers.iter().map(|_| None).collect();
        }
        let mailboxes: Vec<Mailbox<PushMail>> =
            wakers.iter().map(|waker| Mailbox::new(PUSH_MAILS_MAX, waker.clone())).collect();
        let workers: Vec<Sender<PushMail>> = mailboxes.iter().map(Mailbox::sender).collect();
        let under_way = no_bytes_in_flight(wakers.len());
        let post =
            |(own, mailbox)| Some(Self::new(own, mailbox, workers.clone(), Arc::clone(&under_way)));
        mailboxes.into_iter().enumerate().map(post).collect()
    }

    /// The post of worker `own`, of whose mailbox `workers` contains a sender. All workers share `under_way`.
    #[must_use]
    pub fn new(
        own: usize,
        mailbox: Mailbox<PushMail>,
        workers: Vec<Sender<PushMail>>,
        under_way: BytesInFlight,
    ) -> Self {
        Self { own, mailbox, workers, under_way }
    }

    /// Counts commands as on their way to a worker. Returns false if there are too many.
    pub(super) fn reserve_bytes(&self, worker: u16, commands: &[u8]) -> bool {
        let Some(bytes) = self.under_way.get(usize::from(worker)) else { return false };
        let weight = weight_of(commands);
        let before = bytes.fetch_add(weight, Ordering::Relaxed);
        let fits = before == 0 || before + weight <= COMMANDS_BYTES_MAX;
        if !fits {
            bytes.fetch_sub(weight, Ordering::Relaxed);
        }
        fits
    }

    /// Commands have arrived at this worker, or were not sent to `worker`.
    pub(super) fn release_bytes(&self, worker: u16, commands: &[u8]) {
        if let Some(bytes) = self.under_way.get(usize::from(worker)) {
            let before = bytes.fetch_sub(weight_of(commands), Ordering::Relaxed);
            debug_assert!(before >= weight_of(commands), "commands have arrived twice");
        }
    }

    /// The number of workers.
    pub(super) fn workers(&self) -> usize {
        self.workers.len()
    }
}

impl Worker {
    /// Makes the worker one of several that share the channels of their hubs. Called once, before the first turn.
    pub fn join_hubs(&mut self, post: PushPost) {
        let (own, workers) = (post.own as u16, post.workers.len() as u16);
        self.push.hub = Hub::new(&self.push.settings, own, workers);
        self.push.post = Some(post);
    }

    /// Whether a message about channels waits in the worker's mailbox.
    #[must_use]
    pub fn has_push_mail(&self) -> bool {
        self.push.post.as_ref().is_some_and(|post| !post.mailbox.is_empty())
    }

    /// Whether the worker exchanges messages about channels.
    #[must_use]
    pub fn shares_hubs(&self) -> bool {
        self.push.post.is_some()
    }

    /// Takes messages about channels. Called when the worker was woken, and while it delivers publications.
    pub(crate) fn receive_push_mail<R: Reactor>(&mut self, reactor: &mut R) {
        let mut effort = 0;
        for _ in 0..MAILS_PER_TURN_MAX {
            if effort >= PUSH_EFFORT_PER_TURN_MAX {
                break;
            }
            // Deliveries make room, and then `finish_push` calls again.
            if !self.push.hub.can_receive() {
                return;
            }
            let Some(post) = &self.push.post else { return };
            let Some(mail) = post.mailbox.take() else { return };
            effort = effort.saturating_add(effort::of_mail(&mail));
            let at = self.instance(reactor);
            let event = self.push.hub.receive(&self.push.settings, mail, at);
            if let Some(event) = event {
                self.handle_hub_event(reactor, event);
            }
        }
        if let Some(post) = &self.push.post
            && !post.mailbox.is_empty()
        {
            post.mailbox.ring_again();
        }
    }

    fn handle_hub_event<R: Reactor>(&mut self, reactor: &mut R, event: Event<Key>) {
        let key = match &event {
            Event::Subscribed(key, ..)
            | Event::Refused(key, ..)
            | Event::Replied(key, ..)
            | Event::Commands(key, ..) => *key,
        };
        if let Event::Commands(key, secret, data) = event {
            if let Some(post) = &self.push.post {
                post.release_bytes(post.own as u16, &data);
            }
            return self.take_commands(reactor, key, secret, data);
        }
        let id = match key.receiver() {
            Receiver::Raw(id) => return self.handle_raw_event(reactor, id, &event),
            Receiver::Session(id) => id,
            Receiver::Call(id) => return self.handle_call_event(id, event),
        };
        let Some(is_client) = self.push.sessions.find(id).map(PushSession::is_client) else {
            return;
        };
        match event {
            Event::Subscribed(_, place, reply) if is_client => {
                self.confirm_client(reactor, id, place, &reply);
            }
            Event::Subscribed(_, _, reply) => self.confirm_session(reactor, id, &reply),
            Event::Refused(_, place, error) if is_client => {
                self.refuse_client(reactor, id, place, error);
            }
            Event::Refused(..) => self.refuse_session(reactor, id),
            Event::Replied(_, number, reply) if is_client => {
                self.reply_to_client(reactor, id, number, &reply);
            }
            Event::Replied(_, number, reply) => self.take_reply(reactor, id, number, reply),
            Event::Commands(..) => {}
        }
    }

    fn handle_call_event(&mut self, id: Id<LuaCall>, event: Event<Key>) {
        match event {
            Event::Replied(_, number, reply) => self.take_lua_reply(id, number, reply),
            // A call subscribes to nothing.
            Event::Subscribed(..) | Event::Refused(..) | Event::Commands(..) => {}
        }
    }

    fn handle_raw_event<R: Reactor>(
        &mut self,
        reactor: &mut R,
        id: Id<WebSocket>,
        event: &Event<Key>,
    ) {
        match event {
            Event::Subscribed(_, _, reply) => self.confirm_raw(reactor, id, reply),
            // A client in raw mode has no commands.
            Event::Replied(..) | Event::Commands(..) => {}
            Event::Refused(..) => {
                self.forget_raw_place(id);
                if self.websockets.sessions.find(id).is_some() {
                    let code = CloseCode::TRY_AGAIN_LATER;
                    self.close_websocket(reactor, id, Close { code, reason: "limit exceeded" });
                }
            }
        }
    }

    /// The work for the hubs at the end of a turn: deliveries, mail, the sweep.
    pub(crate) fn finish_push<R: Reactor>(&mut self, reactor: &mut R) {
        if self.push.hub.is_instructing() {
            self.continue_instruction(reactor);
        }
        if self.push.has_backends {
            self.serve_backend_calls(reactor);
        }
        let now = reactor.now();
        if self.push.hub.next_due() <= now {
            let replaced = self.push.hub.publish_due(now);
            self.accounts.counters.push_conflated.add(replaced);
        }
        if self.push.ages.next_end() <= now {
            self.end_aged(reactor);
        }
        if self.push.hub.is_delivering() {
            self.continue_deliveries(reactor);
            if self.has_push_mail() {
                self.receive_push_mail(reactor);
                self.settle(reactor);
            }
        }
        while let Some(event) = self.push.hub.take_event() {
            self.handle_hub_event(reactor, event);
            self.settle(reactor);
        }
        if self.push.hub.has_mail() {
            self.send_push_mail(reactor);
        }
        let due_at = self.push.hub.next_due().min(self.push.ages.next_end());
        if due_at != self.push.due_at {
            self.push.due_at = due_at;
            WorkerTimer::Conflation.set(reactor, due_at);
        }
        if reactor.now() >= self.push.sweep_at {
            self.push.sweep_at = reactor.now().after(SWEEP_EVERY);
            self.push.hub.sweep(&self.push.settings, reactor.now());
        }
    }

    /// Sends the mail of the hub.
    pub(crate) fn send_push_mail<R: Reactor>(&mut self, reactor: &mut R) {
        let Some(post) = &self.push.post else { return };
        let mut is_full = false;
        for (worker, sender) in post.workers.iter().enumerate() {
            let worker = worker as u16;
            while let Some(mail) = self.push.hub.take_mail(worker) {
                if let Err(mail) = sender.send(mail) {
                    self.push.hub.keep_mail(worker, mail);
                    is_full = true;
                    break;
                }
            }
        }
        let at = if is_full { reactor.now().after(RETRY_SPAN) } else { Moment::NEVER };
        WorkerTimer::Push.set(reactor, at);
    }
}
