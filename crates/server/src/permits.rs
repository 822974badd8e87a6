//! Carries the permits of servers (`connections-max`) between the workers of a process.
//! In: messages in the worker's mailbox, the state of a pool after its queue was served. Out: messages to the
//! mailboxes of other workers; idle connections closed.
//! Never: decides which worker gets a permit (`gate::permits` does); waits for another worker.
//! Limits: `PERMIT_MAILS_MAX` messages in a mailbox; `MAILS_PER_TURN_MAX` of them are taken in a turn. If a
//! mailbox is full, the sender keeps its message and sends it again after `RETRY_SPAN`.
//! Invariant: the worker holds at least as many permits of a server as it has requests in progress with the
//! server and idle connections to it (not counting connections that are kept for one client).

use tidegate_base::Span;
use tidegate_base::limits::MAILS_PER_TURN_MAX;
use tidegate_gate::permits::{PermitMessage, PermitRequest, bit};
use tidegate_reactor::{Mailbox, Reactor, Sender, SockId, Waker};

use crate::timers::WorkerTimer;
use crate::worker::{Worker, WorkerPool};

/// Maximum number of messages about permits that a worker's mailbox holds.
pub const PERMIT_MAILS_MAX: usize = 1024;
/// How long a worker waits before it sends a message again that a full mailbox refused.
const RETRY_SPAN: Span = Span::from_millis(1);

/// A message about a pool's permits.
#[derive(Clone, Copy, Debug)]
pub struct PermitMail {
    /// The index of the worker that sent it.
    from: u16,
    /// Index of the pool in the configuration.
    pool: u16,
    message: PermitMessage,
}

/// A worker's mailbox for permits, and the senders to the mailboxes of all workers.
pub struct PermitPost {
    /// The worker's index in `workers`.
    pub own: usize,
    /// The worker's mailbox, which wakes the worker's reactor.
    pub mailbox: Mailbox<PermitMail>,
    /// The mailboxes of all workers, including this worker's own.
    pub workers: Vec<Sender<PermitMail>>,
    /// Requests of workers that have applied newer settings, for pools that this worker does not have yet. At most one request
    /// for each worker and pool.
    early_requests: Vec<PermitMail>,
}

impl PermitPost {
    /// The post of worker `own`, of whose mailbox `workers` contains a sender.
    #[must_use]
    pub fn new(own: usize, mailbox: Mailbox<PermitMail>, workers: Vec<Sender<PermitMail>>) -> Self {
        Self { own, mailbox, workers, early_requests: Vec::new() }
    }

    /// The mailbox for permits of each worker; `None` if there is only one worker. A later configuration may need them.
    pub(crate) fn for_workers(wakers: &[Waker]) -> Vec<Option<Self>> {
        if wakers.len() < 2 {
            return wakers.iter().map(|_| None).collect();
        }
        let mailboxes: Vec<Mailbox<PermitMail>> =
            wakers.iter().map(|waker| Mailbox::new(PERMIT_MAILS_MAX, waker.clone())).collect();
        let workers: Vec<Sender<PermitMail>> = mailboxes.iter().map(Mailbox::sender).collect();
        let post = |(own, mailbox)| Some(Self::new(own, mailbox, workers.clone()));
        mailboxes.into_iter().enumerate().map(post).collect()
    }
}

impl Worker {
    /// Makes the worker one of several: reduces each limit to the worker's share, and enables the exchange of
    /// permits.
    /// Called once, before the first turn.
    pub fn join(&mut self, post: PermitPost) {
        let workers = post.workers.len();
        for pool in &mut self.pools {
            pool.share(post.own, workers);
        }
        self.post = Some(post);
    }

    /// Whether the worker exchanges permits with other workers.
    #[must_use]
    pub fn lends(&self) -> bool {
        self.post.is_some()
    }

    /// Whether a message about permits waits in the worker's mailbox.
    #[must_use]
    pub fn has_mail(&self) -> bool {
        self.post.as_ref().is_some_and(|post| !post.mailbox.is_empty())
    }

    /// Takes the messages about permits. Called when the worker was woken.
    pub(crate) fn receive_permits<R: Reactor>(&mut self, reactor: &mut R) {
        for _ in 0..MAILS_PER_TURN_MAX {
            let Some(post) = &mut self.post else { return };
            let Some(mail) = post.mailbox.take() else { return };
            let Some(pool) = self.pools.get_mut(usize::from(mail.pool)) else {
                // The sender has applied settings that this worker has not. Only workers that have requested permits get grants.
                post.early_requests
                    .retain(|request| (request.from, request.pool) != (mail.from, mail.pool));
                post.early_requests.push(mail);
                continue;
            };
            if let PermitMessage::Grant { count, .. } = mail.message {
                self.accounts.counters.permits_received.add(u64::from(count));
            }
            pool.permits.receive(&mut pool.state, usize::from(mail.from), mail.message);
            self.serve_queue(reactor, mail.pool);
        }
        if let Some(post) = &self.post
            && !post.mailbox.is_empty()
        {
            post.mailbox.ring_again();
        }
    }

    /// Gives a new pool the requests that other workers sent before this worker had the pool.
    pub(crate) fn take_early_requests(&mut self, index: u16, pool: &mut WorkerPool) {
        let Some(post) = &mut self.post else { return };
        for mail in post.early_requests.extract_if(.., |mail| mail.pool == index) {
            pool.permits.receive(&mut pool.state, usize::from(mail.from), mail.message);
        }
    }

    /// Gives away the permits that other workers have requested and no waiting request of this worker can use, and requests
    /// permits of servers for which requests wait and the worker has none. Called after the pool's queue was served.
    pub(crate) fn settle_permits<R: Reactor>(&mut self, reactor: &mut R, pool_index: u16) {
        let pool = &mut self.pools[usize::from(pool_index)];
        if !pool.permits.is_shared() || !pool.state.is_limited() {
            return;
        }
        let mut needs = PermitRequest::default();
        let all = (0..pool.state.len()).fold(0, |all, server| all | bit(server));
        // A request that waits for room does not wait for a permit.
        let mut next = if pool.found_no_room { None } else { pool.queue.front() };
        while let Some(id) = next
            && needs.servers != all
        {
            next = pool.queue.after(id);
            needs.count = pool.queue.len() as u32;
            if let Some(exchange) = self.exchanges.get(id) {
                // A request that waits for a stream does not wait for a permit.
                let usable = pool.state.usable(exchange.attempts.tried());
                let usable = usable.filter(|server| !pool.state.is_full(*server));
                needs.servers = usable.fold(needs.servers, |servers, server| servers | bit(server));
            }
        }
        pool.permits.settle(&mut pool.state, needs);
        // The idle connections of permits that are given away close before the receiver connects.
        for server in 0..self.pools[usize::from(pool_index)].state.len() {
            self.trim_idle(reactor, pool_index, server);
        }
        self.send_permits(reactor, pool_index);
    }

    /// Sends the pool's messages. Messages that a full mailbox refuses are sent again later.
    fn send_permits<R: Reactor>(&mut self, reactor: &mut R, pool_index: u16) {
        let (Some(post), Some(pool)) = (&self.post, self.pools.get_mut(usize::from(pool_index)))
        else {
            return;
        };
        let from = post.own as u16;
        while let Some((to, message)) = pool.permits.next_message() {
            let mail = PermitMail { from, pool: pool_index, message };
            let sent = post.workers.get(to).map_or(Ok(()), |worker| worker.send(mail));
            if let Err(mail) = sent {
                pool.permits.keep(to, mail.message);
                let at = reactor.now().after(RETRY_SPAN);
                WorkerTimer::Permits.set(reactor, at);
                break;
            }
        }
    }

    /// Sends the messages that full mailboxes refused.
    pub(crate) fn send_permits_again<R: Reactor>(&mut self, reactor: &mut R) {
        for pool in 0..self.pools.len() {
            self.send_permits(reactor, pool as u16);
        }
    }

    /// Closes the connections to `server` that have been idle longest and for which there is no permit.
    pub(crate) fn trim_idle<R: Reactor>(
        &mut self,
        reactor: &mut R,
        pool_index: u16,
        server: usize,
    ) {
        loop {
            let pool = &mut self.pools[usize::from(pool_index)];
            let spare = pool.state.unused(server) as usize;
            if !pool.state.is_limited_at(server) || pool.idle.count(server) <= spare {
                return;
            }
            let Some(oldest) = pool.idle.pop_oldest(server, reactor.now()) else {
                return self.note_absent(SockId::NONE);
            };
            // The FIN is sent now instead of at the end of the turn.
            reactor.finish(oldest);
            reactor.flush(oldest);
            self.close_upstream(reactor, oldest);
        }
    }
}
