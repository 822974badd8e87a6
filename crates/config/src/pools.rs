//! Reads `[pool.NAME]`.
//! In: the root table of the file. Out: checked pools and the place of each.
//! Never: resolves the name of a server.
//! Invariant: every pool has at least one server with a weight above 0.

use core::ops::Range;

use tidegate_base::Span;

use crate::agent;
use crate::eject;
use crate::findings::Owner;
use crate::health;
use crate::http2;
use crate::keys::POOL;
use crate::listeners::{refused, unknown_name};
use crate::model::{Balance, HashKey, Pool, RetryOn, Reuse, ServerTimeouts};
use crate::pattern::{self, ValueError};
use crate::report::{Kind, Note, Notes};
use crate::retry_on;
use crate::sticky;
use crate::table::{Located, Table};
use crate::tls;
use crate::upstreams;

/// The pools of a file.
pub(crate) struct Pools {
    /// The pools, in file order.
    pub(crate) pools: Vec<Pool>,
    /// Byte range of each pool's name, in the same order.
    pub(crate) places: Vec<Range<usize>>,
}

impl Pools {
    /// The index of the pool of this name. Notes an error if there is none.
    pub(crate) fn find(&self, name: &Located, notes: &mut Notes) -> Option<usize> {
        let found = self.pools.iter().position(|pool| pool.name == name.text);
        if found.is_none() {
            let known: Vec<&str> = self.pools.iter().map(|pool| pool.name.as_str()).collect();
            let note = unknown_name("pool", name, &known);
            let is_address = pattern::parse_server(&name.text).is_ok() || name.text.contains("//");
            notes.error(match is_address {
                true => {
                    note.help("define [pool.NAME] with servers = [...] and write its name here")
                }
                false => note,
            });
        }
        found
    }
}

/// Reads all pools, in file order.
pub(crate) fn read(file: &Table<'_>, notes: &mut Notes) -> Pools {
    let mut found = Pools { pools: Vec::new(), places: Vec::new() };
    for (name, value) in file.open_fields("pool", notes) {
        if let Err(complaint) = pattern::check_name(&name.text) {
            notes.error(refused("pool", &name, complaint));
        }
        if POOL.key(&name.text).is_some() && value.get_ref().as_table().is_none() {
            let what = format!("[pool] needs a name: `{}` is a setting of one pool", name.text);
            let note = Note::new(Kind::Missing, name.place, what);
            notes.error(note.help(
                "write [pool.NAME], with a name of your choice, and proxy = \"NAME\" in a route",
            ));
            continue;
        }
        let place = name.place.clone();
        let pool = match Table::open(&POOL, value, notes) {
            Some(table) => read_one(name.text, &table, notes),
            None => named(name.text),
        };
        notes.places.assign(Owner::Pool(found.pools.len()));
        found.pools.push(pool);
        found.places.push(place);
    }
    found
}

fn named(name: String) -> Pool {
    Pool {
        name,
        balance: Balance::Random,
        sticky: None,
        stay: None,
        health: None,
        agent: None,
        eject: None,
        slow_start: Span::ZERO,
        servers: Vec::new(),
        timeouts: ServerTimeouts::default(),
        reuse: Reuse::default(),
        retries: 2,
        retry_budget: None,
        retry_on: RetryOn::default(),
        retry_pause: Span::from_secs(1),
        queue_max: 1024,
        queue_half_closed: false,
        request_buffer_bytes: 16 * 1024,
        proxy_protocol: None,
        trailers: false,
        strict: false,
        tls: None,
        h2c: false,
        http2: http2::PoolHttp2::default(),
    }
}

fn read_one(name: String, table: &Table<'_>, notes: &mut Notes) -> Pool {
    let mut pool = named(name);
    pool.servers = upstreams::read(table, notes);
    pool.balance = read_balance(table, notes);
    (pool.sticky, pool.stay) = sticky::read(table, notes);
    table.set_number("retries", &mut pool.retries, notes);
    pool.retry_budget = eject::read_retry_budget(table, notes);
    pool.retry_on = retry_on::read(table, notes);
    table.set_duration("retry-pause", &mut pool.retry_pause, notes);
    table.set_number("queue-max", &mut pool.queue_max, notes);
    table.set_flag("queue-half-closed", &mut pool.queue_half_closed, notes);
    table.set_size("request-buffer", &mut pool.request_buffer_bytes, notes);
    if let Some(times) = table.open_table("timeouts", notes) {
        times.set_duration("connect", &mut pool.timeouts.connect, notes);
        times.set_duration("response-head", &mut pool.timeouts.response_head, notes);
        times.set_duration("body", &mut pool.timeouts.body, notes);
        times.set_duration("queue", &mut pool.timeouts.queue, notes);
        times.set_timeout("queue-standing", &mut pool.timeouts.queue_standing, notes);
        times.set_duration("tunnel", &mut pool.timeouts.tunnel, notes);
    }
    if let Some(reuse) = table.open_table("reuse", notes) {
        reuse.set_number("idle-max", &mut pool.reuse.idle_max, notes);
        reuse.set_duration("idle-timeout", &mut pool.reuse.idle_timeout, notes);
        reuse.set_flag("after-body", &mut pool.reuse.after_body, notes);
        reuse.set_flag("after-unexpected-body", &mut pool.reuse.after_unexpected_body, notes);
        reuse.set_flag("after-chunked-body", &mut pool.reuse.after_chunked_body, notes);
        reuse.set_word("unretriable", &mut pool.reuse.unretriable, notes);
        reuse.set_bound("requests-max", &mut pool.reuse.requests_max, notes);
    }
    pool.proxy_protocol = table.word("proxy-protocol", notes);
    table.set_flag("trailers", &mut pool.trailers, notes);
    table.set_flag("strict", &mut pool.strict, notes);
    pool.tls = tls::read_pool(table, notes);
    http2::read(&mut pool, table, notes);
    pool.health = health::read(&pool, table, notes);
    pool.agent = agent::read(&pool, table, notes);
    pool.eject = eject::read(table, notes);
    table.set_duration("slow-start", &mut pool.slow_start, notes);
    pool
}

fn read_balance(table: &Table<'_>, notes: &mut Notes) -> Balance {
    let Some(value) = table.value("balance") else {
        return Balance::Random;
    };
    if value.get_ref().as_table().is_none() {
        // An unknown word is reported as an error, so the returned value is never used.
        return table.word("balance", notes).unwrap_or(Balance::Random);
    }
    let by_key = table.open_table("balance", notes);
    let Some(text) = by_key.and_then(|table| table.text("hash", notes)) else {
        return Balance::Random;
    };
    match parse_hash_key(&text.text) {
        Ok(key) => Balance::Hash(key),
        Err(complaint) => {
            notes.error(refused("hash", &text, complaint));
            Balance::Random
        }
    }
}

fn parse_hash_key(text: &str) -> Result<HashKey, ValueError> {
    match text {
        "path" => Ok(HashKey::Path),
        "client-address" => Ok(HashKey::ClientAddress),
        _ => match text.strip_prefix("header:").filter(|name| pattern::is_token(name)) {
            Some(name) => Ok(HashKey::Header(name.to_ascii_lowercase())),
            None => Err(ValueError {
                what: "not a key of a request".to_owned(),
                help: "write \"path\", \"client-address\" or \"header:x-user\"".to_owned(),
            }),
        },
    }
}
