//! Ends connections of push clients after their maximum age (`connection-age-max`), and subscriptions by URL whose token has expired.
//! In: connections that begin, time. Out: Close frames and ends of streams, which make clients connect again.
//! Never: ends many connections at once: the age of each is shortened at random by up to a quarter.
//! Limits: `ENDS_PER_TURN_MAX`. A long poll, which never lasts longer than `poll-timeout`, has no entry.
//! Invariant: only connections that exist have an entry.

use tidegate_base::Moment;
use tidegate_push::client::Disconnect;
use tidegate_reactor::Reactor;

use crate::action::push::{Key, Kind, Receiver};
use crate::action::websocket::jittered;
use crate::worker::Worker;

/// Maximum number of connections that are ended in a turn.
const ENDS_PER_TURN_MAX: usize = 64;

impl Worker {
    /// Notes a new connection to a hub, which ends at `end` at the latest.
    pub(super) fn begin_age<R: Reactor>(&mut self, reactor: &R, hub: u16, key: Key, end: Moment) {
        let age_max = self.push.settings.get(hub).and_then(|hub| hub.push.connection_age_max);
        let aged = age_max.map(|age_max| {
            let span = jittered(age_max, &mut self.prng);
            reactor.now().after(span)
        });
        let end = aged.map_or(end, |aged| aged.min(end));
        if end < Moment::NEVER {
            self.push.ages.begin(key, end);
        }
    }

    /// Ends connections that have reached their maximum age, and subscriptions whose token has expired.
    pub(super) fn end_aged<R: Reactor>(&mut self, reactor: &mut R) {
        for _ in 0..ENDS_PER_TURN_MAX {
            let Some(key) = self.push.ages.take_due(reactor.now()) else { break };
            self.accounts.counters.push_aged_closes.add(1);
            self.end_aged_connection(reactor, key);
        }
        self.settle(reactor);
    }

    fn end_aged_connection<R: Reactor>(&mut self, reactor: &mut R, key: Key) {
        match key.receiver() {
            Receiver::Raw(id) => {
                self.forget_queue(key);
                self.leave_raw(id);
                self.disconnect(reactor, id, Disconnect::FORCE_RECONNECT);
            }
            Receiver::Session(id) => {
                match self.push.sessions.get(id).map(|session| &session.kind) {
                    Some(Kind::Client { .. }) => {
                        self.forget_queue(key);
                        self.leave_channels(reactor, id);
                        self.disconnect_client(reactor, id, Disconnect::FORCE_RECONNECT);
                    }
                    Some(Kind::Events { .. }) => self.end_events(reactor, id),
                    Some(
                        Kind::Request { .. }
                        | Kind::ApiCall(_)
                        | Kind::Commands { .. }
                        | Kind::Unverified(_)
                        | Kind::Poll { .. },
                    )
                    | None => {}
                }
            }
            Receiver::Call(_) => {}
        }
    }
}
