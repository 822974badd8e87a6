//! Requests that tables count (`count` of a listener or route).
//! In: requests that begin, and refusals of requests that could not be read. Out: the conditions of routes see the counts; the
//! results of each request are counted at its end, from its record.
//! Never: costs anything for a listener or route without `count`.
//! Invariant: a request is counted once in each table, and its record holds the table entry until the request ends.

use core::net::IpAddr;
use std::rc::Rc;

use tidegate_gate::counting::Tracked;
use tidegate_gate::router::Client;
use tidegate_reactor::Reactor;
use tidegate_wire::message::RequestHead;

use crate::requester::Requester;
use crate::snapshot::Snapshot;
use crate::worker::Worker;

impl Worker {
    /// Counts a request in the tables `counting` of its listener or route.
    pub(crate) fn count_request<R: Reactor>(
        &mut self,
        reactor: &R,
        to: Requester,
        head: &RequestHead<'_>,
        snapshot: &Rc<Snapshot>,
        counting: &[usize],
    ) {
        if counting.is_empty() {
            return;
        }
        let Some(down) = self.conns.downstream(to.sock) else { return self.note_absent(to.sock) };
        let listener = snapshot.listener(down.listener);
        let client = Client {
            certificate: None,
            peer: down.peer().ip(),
            trusted: &listener.trusted,
            counts: None,
        };
        let (tables, now) = (&snapshot.process.tables, reactor.now());
        let mut scratch = core::mem::take(&mut self.piece);
        if let Some(tracked) = self.tracked(to, snapshot) {
            for table in counting {
                if !is_tracked(tracked, *table) {
                    tracked.extend(tables.begin(*table, head, &client, now, &mut scratch));
                }
            }
        }
        self.piece = scratch;
    }
}

/// Counts a request that could not be parsed, in those tables of its listener whose key is the client's address. The address
/// of a trusted proxy is not counted, because it is not the client's.
pub(crate) fn count_unread<R: Reactor>(
    reactor: &R,
    tracked: &mut Vec<Tracked>,
    snapshot: &Snapshot,
    listener: u16,
    peer: Option<IpAddr>,
) {
    let listener = snapshot.listener(listener);
    let is_client = |peer: &IpAddr| !listener.trusted.iter().any(|net| net.contains(*peer));
    let Some(peer) = peer.filter(is_client) else { return };
    for table in &listener.counting {
        tracked.extend(snapshot.process.tables.begin_unread(*table, peer, reactor.now()));
    }
}

fn is_tracked(tracked: &[Tracked], table: usize) -> bool {
    tracked.iter().any(|known| known.table == table)
}
