//! HTTP/2 to the servers of a pool: its settings, and which protocols a pool may speak.
//! In: `[pool.NAME]`. Out: `PoolHttp2`; answers about a pool.

use crate::model::{Pool, PoolTls};
use crate::report::{Kind, Note, Notes};
use crate::table::Table;

impl Pool {
    /// Whether servers may be spoken to by HTTP/2.
    #[must_use]
    pub fn may_speak_http2(&self) -> bool {
        self.h2c || self.tls.as_ref().is_some_and(|tls| tls.alpn.iter().any(|name| name == "h2"))
    }

    /// Whether servers may be spoken to by HTTP/1.1.
    #[must_use]
    pub fn may_speak_http1(&self) -> bool {
        let requires_http2 = |tls: &PoolTls| tls.alpn.len() == 1 && tls.alpn[0] == "h2";
        !self.h2c && !self.tls.as_ref().is_some_and(requires_http2)
    }
}

/// `http2` of a pool: connections to servers that speak HTTP/2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolHttp2 {
    /// Maximum number of requests on one connection at once.
    pub streams_max: u32,
    /// Maximum number of connections of each worker to each server.
    pub connections_max: u32,
}

impl Default for PoolHttp2 {
    fn default() -> Self {
        Self { streams_max: 100, connections_max: 256 }
    }
}

/// Reads how HTTP/2 is spoken to the servers.
pub(crate) fn read(pool: &mut Pool, table: &Table<'_>, notes: &mut Notes) {
    pool.h2c = table.is_true("h2c", notes).unwrap_or(false);
    if let Some(http2) = table.open_table("http2", notes) {
        http2.set_number("streams-max", &mut pool.http2.streams_max, notes);
        http2.set_number("connections-max", &mut pool.http2.connections_max, notes);
    }
    if pool.h2c && pool.tls.is_some() {
        let what = "`h2c` is for servers without TLS";
        let note = Note::new(Kind::Conflict, table.key_place("h2c"), what);
        notes.error(note.help("remove it, and write tls = { alpn = [\"h2\", \"http/1.1\"] }"));
    } else if pool.proxy_protocol.is_some() && pool.may_speak_http2() {
        let what = "clients share HTTP/2 connections, but a PROXY header names one client";
        let note = Note::new(Kind::Conflict, table.key_place("proxy-protocol"), what);
        notes.error(note.help("remove `proxy-protocol`, or HTTP/2 (`h2c`, \"h2\" in `alpn`)"));
    }
}
