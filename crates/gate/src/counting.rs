//! Tables that count what the requests of each key do, for all workers together: `[table.NAME]`.
//! In: requests that begin and end, the time. Out: the counts for a request's key.
//! Never: takes a lock, waits without a bound, or allocates for a request, except that `scratch` may grow.
//! Limits: those of `count_cells.rs`.
//! Invariant: all conditions of one request see the same counts, however often they are tested.

use core::cell::{Cell, RefCell};
use core::net::IpAddr;
use std::sync::Arc;

use tidegate_base::Moment;
use tidegate_config::model::{
    COUNT_TABLES_MAX, COUNTS_MAX, Config, CountTable, Placeholder, TableTest,
};
use tidegate_wire::message::RequestHead;

use crate::count_cells::{CountCells, Counts, Held, KeyText, Outcome, Shown};
use crate::identity::Identity;
use crate::rate_key::{hash_address, hash_key, show_addresses, show_key};
use crate::rewrite::MatchedPath;
use crate::router::Client;
use crate::scheme::Scheme;
use crate::template::Values;

/// A table of a configuration.
#[derive(Clone, Debug)]
pub struct Table {
    /// Its settings.
    settings: CountTable,
    /// Its entries.
    cells: Arc<CountCells>,
}

/// The tables of a configuration, shared by all workers.
#[derive(Clone, Debug, Default)]
pub struct CountTables(Arc<[Table]>);

/// A request that a table counts, until its end.
#[derive(Clone, Copy, Debug)]
pub struct Tracked {
    /// Index of the table.
    pub table: usize,
    /// The reference to the entry that counts the request as in progress.
    held: Held,
}

impl CountTables {
    /// The tables for `config`. `seed` is not known to clients.
    #[must_use]
    pub fn new(config: &Config, seed: u64) -> Self {
        let table = |settings: &CountTable| Table {
            settings: settings.clone(),
            cells: Arc::new(CountCells::new(settings, seed)),
        };
        Self(config.tables.iter().map(table).collect())
    }

    /// The tables for `config`, which follows the configuration of the tables `self`. A table of the same name whose key,
    /// counts and size are the same keeps its entries.
    #[must_use]
    pub fn after(&self, config: &Config, seed: u64) -> Self {
        let table = |settings: &CountTable| {
            let before = self.0.iter().find(|table| table.settings.counts_same(settings));
            let fresh = || Arc::new(CountCells::new(settings, seed));
            Table {
                settings: settings.clone(),
                cells: before.map_or_else(fresh, |table| Arc::clone(&table.cells)),
            }
        };
        Self(config.tables.iter().map(table).collect())
    }

    /// Whether there are tables.
    #[must_use]
    pub fn are_set(&self) -> bool {
        !self.0.is_empty()
    }

    /// The requests in progress of all tables.
    #[must_use]
    pub fn in_progress(&self) -> u64 {
        self.0.iter().map(|table| table.cells.in_progress()).sum()
    }

    /// All tables, in file order.
    #[must_use]
    pub fn all(&self) -> &[Table] {
        &self.0
    }

    /// The table of this name.
    #[must_use]
    pub fn find(&self, name: &str) -> Option<&Table> {
        self.0.iter().find(|table| table.settings.name == name)
    }

    /// Counts a request that begins in the table with this index; `None` if it is not counted.
    #[must_use]
    pub fn begin(
        &self,
        table: usize,
        head: &RequestHead<'_>,
        client: &Client<'_>,
        now: Moment,
        scratch: &mut Vec<u8>,
    ) -> Option<Tracked> {
        let Table { settings, cells } = self.0.get(table)?;
        let path = MatchedPath::whole(head.path);
        let values = values_of(head, client, &path);
        let hash = hash_key(&settings.key, &values, cells.seed(), scratch);
        let held = cells.begin(hash, now, settings.expire, |text| {
            show_key(&settings.key, &values, scratch, text);
        })?;
        Some(Tracked { table, held })
    }

    /// As [`Self::begin`], for a request that could not be decoded; also `None` if the key of the table has other parts than the
    /// client's address.
    #[must_use]
    pub fn begin_unread(&self, table: usize, client: IpAddr, now: Moment) -> Option<Tracked> {
        let Table { settings, cells } = self.0.get(table)?;
        let hash = hash_address(&settings.key, Some(client), cells.seed())?;
        let text = |text: &mut KeyText| show_addresses(&settings.key, client, text);
        let held = cells.begin(hash, now, settings.expire, text)?;
        Some(Tracked { table, held })
    }

    /// Counts the outcome of a request at its end.
    pub fn end(&self, tracked: Tracked, now: Moment, outcome: &Outcome) {
        if let Some(Table { settings, cells }) = self.0.get(tracked.table) {
            cells.end(tracked.held, now, settings.expire, outcome);
        }
    }
}

impl Table {
    /// The settings.
    #[must_use]
    pub const fn settings(&self) -> &CountTable {
        &self.settings
    }

    /// The entries.
    #[must_use]
    pub fn cells(&self) -> &CountCells {
        &self.cells
    }

    /// The canonical text of a key that an operator typed: if keys are addresses, the address as the table shows it.
    #[must_use]
    pub fn text_of(&self, key: &str) -> String {
        let Some(address) = self.address_of(key) else { return key.to_owned() };
        let mut text = KeyText::default();
        show_addresses(&self.settings.key, address, &mut text);
        text.text()
    }

    /// The address in the text of a key (with or without `/64`), if keys are addresses.
    fn address_of(&self, key: &str) -> Option<IpAddr> {
        let mut parts = self.settings.key.placeholders();
        let (Some(Placeholder::Client), None) = (parts.next(), parts.next()) else { return None };
        key.strip_suffix("/64").unwrap_or(key).parse().ok()
    }

    /// Sets the mark of a key. An address may be a new key. Returns whether the table has the key.
    #[must_use]
    pub fn mark(&self, key: &str, mark: u64, now: Moment) -> bool {
        let Self { settings, cells } = self;
        if let Some(address) = self.address_of(key)
            && let Some(hash) = hash_address(&settings.key, Some(address), cells.seed())
        {
            let text = |text: &mut KeyText| show_addresses(&settings.key, address, text);
            let _ = cells.admit(hash, now, settings.expire, text);
        }
        cells.mark(&self.text_of(key), mark)
    }

    /// The entries that have not expired.
    pub fn shown(&self, now: Moment) -> impl Iterator<Item = Shown> {
        self.cells.shown(now, self.settings.expire)
    }
}

/// The values of a request that can be a part of a key.
fn values_of<'a>(
    head: &'a RequestHead<'a>,
    client: &Client<'a>,
    path: &'a MatchedPath<'a>,
) -> Values<'a> {
    Values {
        head,
        path,
        peer: client.peer,
        trusted: client.trusted,
        scheme: Scheme::Http,
        server_name: None,
        allowed_origin: None,
        user: None,
        claims: None,
        identity: Identity::plain(0),
    }
}

/// The counts for the keys of one request. The counts of a table are read once.
#[derive(Debug)]
pub struct RequestCounts<'a> {
    tables: &'a CountTables,
    now: Moment,
    /// By table: its counts; `None` until they are read.
    known: [Cell<Option<Counts>>; COUNT_TABLES_MAX],
    /// A buffer for values of the request.
    scratch: RefCell<Vec<u8>>,
}

impl<'a> RequestCounts<'a> {
    /// No table is read yet. The contents of `scratch` are overwritten.
    #[must_use]
    pub fn new(tables: &'a CountTables, now: Moment, scratch: Vec<u8>) -> Self {
        let scratch = RefCell::new(scratch);
        Self { tables, now, known: [const { Cell::new(None) }; COUNT_TABLES_MAX], scratch }
    }

    /// The buffer.
    #[must_use]
    pub fn into_scratch(self) -> Vec<u8> {
        self.scratch.into_inner()
    }

    /// The counts of a table for the request.
    fn counts(&self, table: usize, head: &RequestHead<'_>, client: &Client<'_>) -> Counts {
        let known = self.known.get(table);
        if let Some(counts) = known.and_then(Cell::get) {
            return counts;
        }
        let Some(Table { settings, cells }) = self.tables.0.get(table) else {
            return [0; COUNTS_MAX];
        };
        let path = MatchedPath::whole(head.path);
        let values = values_of(head, client, &path);
        let Ok(mut scratch) = self.scratch.try_borrow_mut() else { return [0; COUNTS_MAX] };
        let hash = hash_key(&settings.key, &values, cells.seed(), &mut scratch);
        let counts = cells.read(hash, self.now, settings.expire);
        if let Some(known) = known {
            known.set(Some(counts));
        }
        counts
    }
}

/// Whether a condition holds for a request. Without `client.counts`, all counts are 0.
pub(crate) fn holds(test: &TableTest, head: &RequestHead<'_>, client: &Client<'_>) -> bool {
    let counts = client.counts.map_or([0; COUNTS_MAX], |of| of.counts(test.table, head, client));
    test.tests.iter().all(|test| test.holds(counts.get(test.count).copied().unwrap_or_default()))
}
