//! The decisions of the backend when a connection or a subscription that it has granted expires.
//! In: intervals at which times are checked; decisions. Out: requests, in addition to those about commands; ends.
//! Never: lets commands of the client wait; renews anything without the consent of the backend.
//! Limits: one request of each client at a time; `FAILURES_MAX` of a round may fail, and the next round begins `RETRY_SECONDS`
//! later. A connection or subscription that is not renewed within `OVERDUE_SECONDS_MAX` after its expiry ends
//! (`Connection::check`).
//! Invariant: a decision concerns the subscription that the request was about, never a later one to the same channel.

use std::collections::VecDeque;
use std::sync::Arc;

use tidegate_config::model::BackendEvent;

use crate::backend::{BackendDecision, ClientEvent, Failure, Granted};
use crate::client::backend_requests::{Disconnection, is_over};
use crate::client::codec::Push;
use crate::client::{Connection, Context, Disconnect};

/// How long a connection or subscription continues after its expiry if the backend has not decided about it, in seconds.
pub(in crate::client) const OVERDUE_SECONDS_MAX: u64 = 600;
/// How long after a failure the next round begins, in seconds.
const RETRY_SECONDS: u64 = 60;
/// The failures after which a round ends: each takes up to the timeout of the backend.
const FAILURES_MAX: u32 = 4;

/// The connection or subscription that was granted for a limited time.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Lease {
    /// The connection.
    Connection,
    /// The subscription to this channel.
    Subscription(Arc<str>),
}

/// A round of requests about grants that are due.
#[derive(Debug, Default)]
pub(super) struct Round {
    /// The request that waits for its decision; `Some(None)` if its subscription has ended.
    asked: Option<Option<Lease>>,
    /// The grants about which the backend is to be asked.
    due: VecDeque<Lease>,
    /// How many requests have failed.
    failures: u32,
    /// When the next round may begin, in seconds since 1970.
    next_at: u64,
    /// The channel of the latest request. The next round begins after it, so that channels whose requests fail do not keep the
    /// others from their turn.
    last: Option<Arc<str>>,
}

impl Round {
    /// Whether a request waits for its decision.
    pub(super) const fn awaits_backend(&self) -> bool {
        self.asked.is_some()
    }

    /// A subscription to `channel` has ended.
    pub(super) fn note_end(&mut self, channel: &str) {
        let is_same = |lease: &Lease| matches!(lease, Lease::Subscription(of) if **of == *channel);
        if let Some(asked) = &mut self.asked {
            asked.take_if(|lease| is_same(lease));
        }
    }
}

impl Connection {
    /// Asks about everything whose time is over, one after the other.
    pub(in crate::client) fn begin_round<K>(&mut self, context: &mut Context<'_, K>) {
        let (now, end) = (context.unix_seconds, self.end());
        let Some(backing) = &mut self.backing else { return };
        let round = &mut backing.round;
        if round.awaits_backend() || now < round.next_at {
            return;
        }
        (round.failures, round.due) = (0, VecDeque::new());
        let is_due = |at: Option<u64>| at.is_some_and(|at| at <= now);
        if backing.is_renewed && is_due(end) {
            round.due.push_back(Lease::Connection);
        }
        let all = self.subscriptions.iter_after(round.last.as_deref());
        let due = all.filter(|(_, known)| known.is_renewed && is_due(known.expires_at));
        let due: Vec<_> = due.map(|(name, _)| Lease::Subscription(Arc::clone(name))).collect();
        round.due.extend(due);
        self.ask_next(context);
    }

    fn ask_next<K>(&mut self, context: &mut Context<'_, K>) {
        while let Some(backing) = &mut self.backing
            && let Some(lease) = backing.round.due.pop_front()
        {
            let (event, deed) = match &lease {
                Lease::Connection => (BackendEvent::Refresh, ClientEvent::Refresh),
                Lease::Subscription(channel) => {
                    // It may have ended since the round began.
                    if !self.subscriptions.get(channel).is_some_and(|known| known.is_renewed) {
                        continue;
                    }
                    backing.round.last = Some(Arc::clone(channel));
                    (BackendEvent::SubRefresh, ClientEvent::SubRefresh { channel })
                }
            };
            self.put_request(context, event, &deed);
            if let Some(backing) = &mut self.backing {
                backing.round.asked = Some(Some(lease));
            }
            return;
        }
    }

    /// The backend has answered the latest request, or has failed to.
    pub(super) fn take_round_decision<K: Copy + Eq>(
        &mut self,
        context: &mut Context<'_, K>,
        decision: Result<BackendDecision<'_>, Failure>,
        out: &mut Vec<u8>,
    ) -> Result<(), Disconnection> {
        let now = context.unix_seconds;
        let Some(round) = self.backing.as_mut().map(|backing| &mut backing.round) else {
            return Ok(());
        };
        let Some(lease) = round.asked.take() else { return Ok(()) };
        let granted = match decision {
            Ok(BackendDecision::Granted(granted)) => Some(granted),
            // As in Centrifugo, a connection or subscription without a result has ended.
            Ok(BackendDecision::Nothing | BackendDecision::Refused(_)) => None,
            Ok(BackendDecision::Disconnected(code, reason)) => {
                return Err(Disconnection::Application(code, reason.into()));
            }
            Err(Failure::Down | Failure::Busy) => {
                round.failures += 1;
                round.next_at = now.saturating_add(RETRY_SECONDS);
                if round.failures >= FAILURES_MAX {
                    round.due.clear();
                }
                self.ask_next(context);
                return Ok(());
            }
        };
        let granted = granted.filter(|granted| !granted.expired && !is_over(granted, now));
        match (lease, granted) {
            (None, _) => {}
            (Some(Lease::Connection), None) => return Err(Disconnect::EXPIRED.into()),
            (Some(Lease::Connection), Some(granted)) => self.renew(&granted),
            (Some(Lease::Subscription(channel)), None) => self.end_expired(context, &channel, out),
            (Some(Lease::Subscription(channel)), Some(granted)) => {
                if let Some(subscription) = self.subscriptions.get_mut(&channel) {
                    subscription.expires_at = granted.ends_at();
                }
            }
        }
        self.ask_next(context);
        Ok(())
    }

    /// The connection continues.
    fn renew(&mut self, granted: &Granted<'_>) {
        self.set_end(granted.ends_at());
        if let Ok(Some(info)) = granted.info() {
            self.conn_info = info.into();
        }
        if let (Some(backing), Some(meta)) = (&mut self.backing, granted.meta()) {
            backing.meta = meta;
        }
    }

    /// Ends a subscription whose time is over.
    pub(in crate::client) fn end_expired<K: Copy + Eq>(
        &mut self,
        context: &mut Context<'_, K>,
        channel: &Arc<str>,
        out: &mut Vec<u8>,
    ) {
        self.unsubscribe(context, channel);
        let (code, reason) = (2501, "subscription expired");
        self.codec.encode_push(out, &Push::Unsubscribed { channel, code, reason });
    }
}
