//! Tables that count what clients do.
//! In: the readers of tables, listeners and routes. Out: plain data.
//! Invariant: the window of a count is a whole number of seconds.

use tidegate_base::Span;

use super::{Placeholder, Template};
use crate::units::write_duration;

/// Maximum number of tables of a file.
pub const COUNT_TABLES_MAX: usize = 16;
/// Maximum number of counts of a table.
pub const COUNTS_MAX: usize = 8;

/// `[table.NAME]`: counts of what the requests of each key do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CountTable {
    /// Name in routes, listeners and commands; unique.
    pub name: String,
    /// The values of a request that are counted together. Absent values are replaced by the client's address.
    pub key: Template,
    /// What is counted, each once; at least one.
    pub counts: Vec<Count>,
    /// How long a key without requests is remembered; at least as long as each window.
    pub expire: Span,
    /// The number of keys that are counted at the same time.
    pub entries_max: u32,
}

impl CountTable {
    /// Bytes of memory for each key: the fixed part of every entry, the text of the key, and the counts.
    #[must_use]
    pub fn entry_bytes(&self) -> u64 {
        let is_address = self.key.placeholders().all(|part| matches!(part, Placeholder::Client));
        let text = if is_address { 24 } else { 64 };
        let counts = self.counts.iter().map(|count| if count.window.is_some() { 64 } else { 8 });
        24 + text + counts.sum::<u64>()
    }

    /// Whether the counts of `other` can continue in this table.
    #[must_use]
    pub fn counts_same(&self, other: &Self) -> bool {
        (&self.name, &self.key, &self.counts, self.entries_max)
            == (&other.name, &other.key, &other.counts, other.entries_max)
    }
}

/// One number for each key of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Count {
    /// What is counted.
    pub what: Counted,
    /// The period before the present in which it is counted; `None`: since the key was first counted.
    pub window: Option<Span>,
}

impl core::fmt::Display for Count {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let word = self.what.word();
        match self.window {
            Some(window) => write!(f, "{word}/{}", write_duration(window.as_millis() as u64)),
            None => f.write_str(word),
        }
    }
}

/// What is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counted {
    /// Requests.
    Requests,
    /// Requests in progress. Has no window.
    Connections,
    /// Responses with a status from 400 to 499.
    Errors,
    /// Responses with a status from 500 to 599.
    Failures,
    /// Bytes of request bodies.
    BytesReceived,
    /// Bytes of responses.
    BytesSent,
    /// A number that commands set. Has no window.
    Mark,
}

impl Counted {
    /// Everything that can be counted.
    pub const ALL: [Self; 7] = [
        Self::Requests,
        Self::Connections,
        Self::Errors,
        Self::Failures,
        Self::BytesReceived,
        Self::BytesSent,
        Self::Mark,
    ];

    /// The word in the file.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Requests => "requests",
            Self::Connections => "connections",
            Self::Errors => "errors",
            Self::Failures => "failures",
            Self::BytesReceived => "bytes-received",
            Self::BytesSent => "bytes-sent",
            Self::Mark => "mark",
        }
    }

    /// Whether it may be counted within a window.
    #[must_use]
    pub const fn may_have_window(self) -> bool {
        match self {
            Self::Requests
            | Self::Errors
            | Self::Failures
            | Self::BytesReceived
            | Self::BytesSent => true,
            Self::Connections | Self::Mark => false,
        }
    }

    /// Whether it is a number of bytes.
    #[must_use]
    pub const fn is_bytes(self) -> bool {
        matches!(self, Self::BytesReceived | Self::BytesSent)
    }
}

/// `table` of a route: the required counts of the request's key in one table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableTest {
    /// Index of the table.
    pub table: usize,
    /// The tests, all of which must hold; at least one.
    pub tests: Vec<CountTest>,
}

/// A condition on one count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CountTest {
    /// Index of the count in its table; below [`COUNTS_MAX`].
    pub count: usize,
    /// How it is compared.
    pub is: Comparison,
    /// The bound.
    pub bound: u64,
}

impl CountTest {
    /// Whether a count has such a value.
    #[must_use]
    pub const fn holds(self, value: u64) -> bool {
        match self.is {
            Comparison::Above => value > self.bound,
            Comparison::AtLeast => value >= self.bound,
            Comparison::Below => value < self.bound,
            Comparison::AtMost => value <= self.bound,
            Comparison::Equal => value == self.bound,
        }
    }
}

/// How a count is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Comparison {
    /// `>`.
    Above,
    /// `>=`.
    AtLeast,
    /// `<`.
    Below,
    /// `<=`.
    AtMost,
    /// `=`.
    Equal,
}
