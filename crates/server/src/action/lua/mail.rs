//! Mail of Lua applications between the workers of a process: messages for WebSocket clients of another worker, or of
//! another VM of the same worker; broadcasts to all VMs; words that a queue has got a value.
//! In: messages in the worker's mailbox; effects of callbacks. Out: messages to the mailboxes of other workers; messages
//! and Close frames for clients.
//! Never: waits for another worker; changes the order of mail to a worker.
//! Limits: `LUA_MAILS_MAX` messages and `MAIL_BYTES_MAX` bytes on their way to a worker; more are dropped and counted
//! (`lua_mail_drops`). `MAILS_PER_TURN_MAX` of them are taken in a turn. Broadcasts wait for each VM (`broadcasts.rs`), which
//! gets them in its share of a turn.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use tidegate_base::limits::MAILS_PER_TURN_MAX;
use tidegate_config::model::Config;
use tidegate_lua::{Queue, RemoteClient};
use tidegate_reactor::{Mailbox, Reactor, Sender, Waker};

use crate::broadcasts::Broadcast;
use crate::worker::Worker;

/// Maximum number of messages of applications in a worker's mailbox.
const LUA_MAILS_MAX: usize = 4096;
/// Maximum number of bytes of messages in a worker's mailbox.
const MAIL_BYTES_MAX: usize = 16 * 1024 * 1024;

/// A message of an application for another worker.
pub enum LuaMail {
    /// For a client.
    Client {
        /// The index of the application.
        app: u16,
        /// The client.
        to: RemoteClient,
        /// What the worker of the client does with the client.
        order: Order,
    },
    /// For all VMs.
    Broadcast(Arc<Broadcast>),
    /// For a coroutine that waits for a value of this queue.
    Queue(Arc<Queue>),
}

/// What happens to a client of another worker.
pub enum Order {
    /// Send the client a message.
    Send {
        /// The message is text, not binary.
        is_text: bool,
        /// The message.
        data: Box<[u8]>,
    },
    /// Close the client's connection.
    Close {
        /// The code of the Close frame.
        code: u16,
        /// The reason in the Close frame.
        reason: Box<[u8]>,
    },
}

impl LuaMail {
    fn bytes(&self) -> usize {
        match self {
            Self::Client { order: Order::Send { data, .. }, .. } => data.len(),
            Self::Client { order: Order::Close { reason, .. }, .. } => reason.len(),
            Self::Broadcast(broadcast) => broadcast.data.len(),
            Self::Queue(_) => 0,
        }
    }
}

/// A worker's mailbox for messages of applications, and the senders to the mailboxes of all workers.
pub struct LuaPost {
    /// The worker's index in `workers`.
    own: usize,
    /// The worker's mailbox, which wakes the worker's reactor.
    mailbox: Mailbox<LuaMail>,
    /// The mailboxes of all workers, including this worker's own, each with the bytes in it.
    workers: Vec<(Sender<LuaMail>, Arc<AtomicUsize>)>,
}

impl LuaPost {
    /// The mailboxes of the workers with these wakers; empty if there is no application, or only one worker.
    #[must_use]
    pub fn for_workers(config: &Config, wakers: &[Waker]) -> Vec<Self> {
        if wakers.len() < 2 || config.lua.is_empty() {
            return Vec::new();
        }
        let mailboxes: Vec<_> =
            wakers.iter().map(|waker| Mailbox::new(LUA_MAILS_MAX, waker.clone())).collect();
        let workers: Vec<_> =
            mailboxes.iter().map(|mailbox| (mailbox.sender(), Arc::default())).collect();
        let post = |(own, mailbox)| Self { own, mailbox, workers: workers.clone() };
        mailboxes.into_iter().enumerate().map(post).collect()
    }

    /// Sends a message. Returns false if the mailbox has no room for it.
    fn send(&self, worker: usize, mail: LuaMail) -> bool {
        let Some((sender, waiting)) = self.workers.get(worker) else { return false };
        let bytes = mail.bytes();
        if waiting.fetch_add(bytes, Relaxed) > MAIL_BYTES_MAX || sender.send(mail).is_err() {
            waiting.fetch_sub(bytes, Relaxed);
            return false;
        }
        true
    }

    /// Takes the oldest message.
    fn take(&self) -> Option<LuaMail> {
        let mail = self.mailbox.take()?;
        if let Some((_, waiting)) = self.workers.get(self.own) {
            waiting.fetch_sub(mail.bytes(), Relaxed);
        }
        Some(mail)
    }
}

impl Worker {
    /// Makes the worker one of several whose applications reach each other's clients. Called once, before the first
    /// turn.
    pub fn join_apps(&mut self, post: LuaPost) {
        self.lua.post = Some(post);
    }

    /// Takes messages of applications.
    pub(crate) fn receive_lua_mail<R: Reactor>(&mut self, reactor: &mut R) {
        for _ in 0..MAILS_PER_TURN_MAX {
            let Some(mail) = self.lua.post.as_ref().and_then(LuaPost::take) else { return };
            match mail {
                LuaMail::Client { app, to, order: Order::Send { is_text, data } } => {
                    self.send_lua_local(reactor, app, to, (is_text, &data));
                }
                LuaMail::Client { app, to, order: Order::Close { code, reason } } => {
                    self.close_lua_local(reactor, app, to, code, &reason);
                }
                LuaMail::Broadcast(broadcast) => self.keep_broadcast(broadcast),
                LuaMail::Queue(queue) => self.wake_for_queue(&queue),
            }
        }
        if let Some(post) = &self.lua.post
            && !post.mailbox.is_empty()
        {
            post.mailbox.ring_again();
        }
    }

    /// Carries out `Effect::SendRemote`.
    pub(super) fn send_lua_remote<R: Reactor>(
        &mut self,
        reactor: &mut R,
        app: usize,
        to: RemoteClient,
        (is_text, data): (bool, &[u8]),
    ) {
        let app = self.lua.apps.base_of(app) as u16;
        if self.is_local_client(to) {
            return self.send_lua_local(reactor, app, to, (is_text, data));
        }
        self.mail_lua(app, to, Order::Send { is_text, data: data.into() });
    }

    /// Carries out `Effect::CloseRemote`.
    pub(super) fn close_lua_remote<R: Reactor>(
        &mut self,
        reactor: &mut R,
        app: usize,
        to: RemoteClient,
        code: u16,
        reason: &[u8],
    ) {
        let app = self.lua.apps.base_of(app) as u16;
        if self.is_local_client(to) {
            return self.close_lua_local(reactor, app, to, code, reason);
        }
        self.mail_lua(app, to, Order::Close { code, reason: reason.into() });
    }

    /// Whether a client is connected to this worker.
    fn is_local_client(&self, to: RemoteClient) -> bool {
        self.own_number() == to.worker
    }

    fn own_number(&self) -> u32 {
        self.lua.post.as_ref().map_or(0, |post| post.own as u32)
    }

    /// Sends a message to a client of this worker, which may have left.
    fn send_lua_local<R: Reactor>(
        &mut self,
        reactor: &mut R,
        app: u16,
        to: RemoteClient,
        message: (bool, &[u8]),
    ) {
        if let Some(tag) = self.lua.apps.tag_of(usize::from(app), to.life, to.client) {
            self.send_lua_message(reactor, tag, message, None);
        }
    }

    /// Ends the connection of a client of this worker, which may have left.
    fn close_lua_local<R: Reactor>(
        &mut self,
        reactor: &mut R,
        app: u16,
        to: RemoteClient,
        code: u16,
        reason: &[u8],
    ) {
        if let Some(tag) = self.lua.apps.tag_of(usize::from(app), to.life, to.client) {
            self.close_by_lua(reactor, tag, code, reason);
        }
    }

    fn mail_lua(&self, app: u16, to: RemoteClient, order: Order) {
        let mail = LuaMail::Client { app, to, order };
        let is_sent =
            self.lua.post.as_ref().is_some_and(|post| post.send(to.worker as usize, mail));
        self.accounts.counters.lua_mail_drops.add(u64::from(!is_sent));
    }
}

/// Queues.
impl Worker {
    /// Carries out `Effect::QueueFilled`. If the word is lost, the coroutines of the other worker look again by themselves.
    pub(super) fn tell_of_queue(&mut self, worker: u32, queue: &Arc<Queue>) {
        if worker == self.own_number() {
            return self.wake_for_queue(queue);
        }
        let post = self.lua.post.as_ref();
        let mail = LuaMail::Queue(Arc::clone(queue));
        let is_sent = post.is_some_and(|post| post.send(worker as usize, mail));
        self.accounts.counters.lua_mail_drops.add(u64::from(!is_sent));
    }

    /// Lets a coroutine continue that waits for a value. If none does, another worker learns of the value.
    fn wake_for_queue(&mut self, queue: &Arc<Queue>) {
        if !self.lua.apps.note_queue(queue)
            && let Some(next) = queue.leave(self.own_number())
        {
            self.tell_of_queue(next, queue);
        }
    }
}

/// Broadcasts.
impl Worker {
    /// Carries out `Effect::Broadcast`: the VMs of all workers get the message, including the VM that has sent it.
    pub(super) fn broadcast_lua(&mut self, channel: &[u8], data: &[u8]) {
        let channel = String::from_utf8_lossy(channel).into_owned();
        let broadcast = Arc::new(Broadcast { channel, data: data.to_vec() });
        let mut drops = 0;
        if let Some(post) = &self.lua.post {
            for worker in (0..post.workers.len()).filter(|worker| *worker != post.own) {
                let is_sent = post.send(worker, LuaMail::Broadcast(Arc::clone(&broadcast)));
                drops += u64::from(!is_sent);
            }
        }
        self.accounts.counters.lua_mail_drops.add(drops);
        self.keep_broadcast(broadcast);
    }

    fn keep_broadcast(&mut self, broadcast: Arc<Broadcast>) {
        let drops = self.lua.apps.add_broadcast(&broadcast);
        self.accounts.counters.lua_mail_drops.add(drops);
    }

    /// Delivers waiting broadcasts to the VMs in rotation, one to each VM, until the share of the turn is used up.
    pub(super) fn deliver_broadcasts<R: Reactor>(&mut self, reactor: &mut R) {
        while self.lua.apps.has_broadcasts() && !self.lua.share.is_used_up() {
            let place = self.lua.next_broadcast % self.lua.apps.len().max(1);
            self.lua.next_broadcast = place + 1;
            let app = self.lua.apps.index_at(place);
            if let Some(broadcast) = self.lua.apps.take_broadcast(app) {
                let Broadcast { channel, data } = &*broadcast;
                self.call_app(reactor, app, "a broadcast", None, |vm| vm.broadcast(channel, data));
            }
        }
    }
}
