//! DNS over datagrams (RFC 1035): the query for the records of one name, and the answer.
//! In: a name and a kind of record; the bytes of an answer. Out: the bytes of a query; the records, or why there are none.
//! Never: takes an answer to another question; follows a compressed name forwards, so decoding ends.
//! Limits: `NAME_BYTES_MAX`, `RECORDS_MAX` records of an answer, `ALIASES_MAX` aliases; queries request, and the decoder accepts,
//! answers of up to `ANSWER_BYTES_MAX` bytes, which pass each network without fragments, unless the caller states another size.

mod answer;
pub(crate) mod fuzz;
mod name;

use core::net::{Ipv4Addr, Ipv6Addr};

pub use answer::{Fault, decode_answer, decode_answer_within};
pub use name::NAME_BYTES_MAX;

/// Maximum size in bytes of an answer, which a query announces. Fragments are avoided, because others could forge them.
pub const ANSWER_BYTES_MAX: u16 = 1232;
/// Records of an answer that are read; further ones are ignored.
pub const RECORDS_MAX: usize = 1024;
/// Aliases (CNAME) from the name of a question to that of its records.
pub const ALIASES_MAX: usize = 8;

/// The class of the Internet.
const CLASS_IN: u16 = 1;
/// The type of the pseudo-record that states the largest answer (RFC 6891).
const TYPE_OPT: u16 = 41;

/// A kind of record.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum RecordKind {
    /// IPv4 addresses.
    A,
    /// IPv6 addresses.
    Aaaa,
    /// The hosts and ports of a service.
    Srv,
    /// Texts.
    Txt,
}

impl RecordKind {
    /// All kinds.
    pub const ALL: [Self; 4] = [Self::A, Self::Aaaa, Self::Srv, Self::Txt];

    /// Its name in zone files.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::A => "A",
            Self::Aaaa => "AAAA",
            Self::Srv => "SRV",
            Self::Txt => "TXT",
        }
    }

    /// The kind with this name.
    #[must_use]
    pub fn of(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// Its number in messages.
    const fn number(self) -> u16 {
        match self {
            Self::A => 1,
            Self::Aaaa => 28,
            Self::Srv => 33,
            Self::Txt => 16,
        }
    }
}

/// The question of a query.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Question {
    /// The name: lower case, without the dot at its end.
    name: String,
    /// The kind of record.
    kind: RecordKind,
}

impl Question {
    /// The question for the records of `name`, which is absolute with and without a dot at its end. `None` if it is no name.
    #[must_use]
    pub fn new(name: &str, kind: RecordKind) -> Option<Self> {
        let name = name.strip_suffix('.').unwrap_or(name);
        name::is_name(name).then(|| Self { name: name.to_ascii_lowercase(), kind })
    }

    /// The name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The kind of record.
    #[must_use]
    pub const fn kind(&self) -> RecordKind {
        self.kind
    }
}

/// A record.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Record {
    /// An IPv4 address.
    A(Ipv4Addr),
    /// An IPv6 address.
    Aaaa(Ipv6Addr),
    /// A host of a service.
    Srv {
        /// Hosts with the smallest number have priority.
        priority: u16,
        /// The share of a host among those of its priority.
        weight: u16,
        /// The port.
        port: u16,
        /// The name of the host, without the dot at its end.
        target: String,
    },
    /// A TXT record: its strings, one after the other.
    Txt(Vec<u8>),
}

/// The contents of an answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Answer {
    /// The records, at least one.
    Records {
        /// The records, in the order of the answer.
        records: Vec<Record>,
        /// How long they may be kept.
        seconds: u32,
    },
    /// There is no such record, or no such name.
    Nothing {
        /// The name does not exist.
        is_unknown: bool,
        /// How long this may be kept (RFC 2308).
        seconds: u32,
    },
    /// The answer does not fit a datagram of the size that the query announces, or is longer.
    Truncated,
    /// The server cannot answer: the code of RFC 1035 section 4.1.1.
    Failed(u8),
}

/// Appends the query for a question. `id` should be random: the answer has to repeat it.
pub fn encode_query(question: &Question, id: u16, out: &mut Vec<u8>) {
    encode_query_for(question, id, ANSWER_BYTES_MAX, out);
}

/// As [`encode_query`]; announces that an answer may have up to `answer_bytes_max` bytes.
pub fn encode_query_for(question: &Question, id: u16, answer_bytes_max: u16, out: &mut Vec<u8>) {
    const RECURSION_DESIRED: u16 = 0x0100;
    // One question, and one record in the last section.
    for number in [id, RECURSION_DESIRED, 1, 0, 0, 1] {
        out.extend_from_slice(&number.to_be_bytes());
    }
    name::encode(&question.name, out);
    for number in [question.kind.number(), CLASS_IN] {
        out.extend_from_slice(&number.to_be_bytes());
    }
    // The root, the type, the size, extended flags and no data.
    out.push(0);
    for number in [TYPE_OPT, answer_bytes_max, 0, 0, 0] {
        out.extend_from_slice(&number.to_be_bytes());
    }
}
