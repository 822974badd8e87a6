//! The reaction to a stream that is missing although its id is in use.
//! In: the ids that `CheckedSlab` noted. Out: a count (`bugs`), the connections that name the streams in `broken`.
//! Never: resets a connection itself (`Worker::repair` does).

use tidegate_base::Id;
use tidegate_reactor::Reactor;

use crate::action::proxy::exchange::Exchange;
use crate::worker::Worker;

impl Worker {
    /// Counts missing streams of HTTP/2, ends the exchanges that name them, and adds their connections to `broken`.
    pub(crate) fn repair_streams<R: Reactor>(&mut self, reactor: &mut R) {
        for id in self.http2_clients.take_missed() {
            self.accounts.counters.bugs.add(1);
            if id.is_none() {
                continue;
            }
            for sock in self.conns.downstream_ids() {
                if self.conns.http2_client(sock).is_some_and(|http2| http2.streams().contains(&id))
                {
                    self.broken.push(sock);
                }
            }
            self.cancel_exchanges(reactor, |exchange| exchange.requester.stream == id);
        }
        for id in self.http2_servers.take_missed() {
            self.accounts.counters.bugs.add(1);
            if id.is_none() {
                continue;
            }
            for sock in self.conns.upstream_ids() {
                if self.conns.http2_server(sock).is_some_and(|http2| http2.streams().contains(&id))
                {
                    self.broken.push(sock);
                }
            }
            let named = self.exchanges.iter().filter(|(_, one)| one.attempt.up.stream == id);
            self.broken.extend(named.map(|(_, one)| one.requester.sock));
        }
    }

    /// Ends the exchanges for which `names` is true.
    fn cancel_exchanges<R: Reactor>(&mut self, reactor: &mut R, names: impl Fn(&Exchange) -> bool) {
        let named = self.exchanges.iter().filter(|(_, exchange)| names(exchange));
        let named: Vec<Id<Exchange>> = named.map(|(id, _)| id).collect();
        for id in named {
            self.cancel_exchange(reactor, id);
        }
    }
}
