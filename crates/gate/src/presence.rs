//! The names of the fields, parameters and cookies of a request, as a set of bits: most routes whose conditions test an absent
//! name are excluded without testing the conditions.
//! In: the head of a request; the conditions of a route. Out: the set of the names that the request has, and of those that the
//! route needs.
//! Never: allocates for a request. Misses a name: a name may seem to be present because another one has the same bit, but not the
//! other way round.
//! Limits: `BITS` bits, so that some names of large requests share bits.

use tidegate_config::model::{Conditions, HeaderCondition, HeaderTest, NamedTest};
use tidegate_wire::message::{FieldName, RequestHead};

use crate::parameters::decoded;

/// Bits of a set.
const BITS: u64 = 128;

/// A set of names.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Names(u128);

/// The kinds of names; the number distinguishes equal names of different kinds.
#[derive(Clone, Copy)]
enum Kind {
    Field = 1,
    Parameter = 2,
    Cookie = 3,
}

impl Names {
    /// Every name.
    pub(crate) const ALL: Self = Self(u128::MAX);

    /// The names of a request.
    pub(crate) fn of_request(head: &RequestHead<'_>) -> Self {
        let mut names = Self::default();
        for field in head.fields() {
            names.insert(Kind::Field, field.name.bytes().map(|byte| byte.to_ascii_lowercase()));
            if field.id == FieldName::Cookie {
                for pair in field.value.split(|&byte| byte == b';') {
                    let pair = pair.trim_ascii();
                    if let Some(end) = pair.iter().position(|&byte| byte == b'=') {
                        names.insert(Kind::Cookie, pair[..end].trim_ascii_end().iter().copied());
                    }
                }
            }
        }
        for pair in head.query.into_iter().flat_map(|query| query.split('&')) {
            let name = pair.split_once('=').map_or(pair, |(name, _)| name);
            names.insert(Kind::Parameter, decoded(name));
        }
        names
    }

    /// The names without which the conditions do not hold.
    pub(crate) fn needed(headers: &[HeaderCondition], conditions: &Conditions) -> Self {
        let mut names = Self::default();
        for condition in headers {
            if needs_name(&condition.test) {
                let name = condition.name.bytes().map(|byte| byte.to_ascii_lowercase());
                names.insert(Kind::Field, name);
            }
        }
        let mut add = |kind, tests: &[NamedTest]| {
            for condition in tests.iter().filter(|condition| needs_name(&condition.test)) {
                // The name of a cookie ends at the first `=` in a request, and may contain one in a condition.
                if matches!(kind, Kind::Parameter) || !condition.name.contains('=') {
                    names.insert(kind, condition.name.bytes());
                }
            }
        };
        add(Kind::Parameter, &conditions.query);
        add(Kind::Cookie, &conditions.cookies);
        names
    }

    /// Whether there are no names.
    pub(crate) fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Whether the set may contain all of `needed`; false if a name is missing.
    pub(crate) fn may_contain(self, needed: Self) -> bool {
        needed.0 & !self.0 == 0
    }

    fn insert(&mut self, kind: Kind, name: impl Iterator<Item = u8>) {
        let mut hash = 0xcbf2_9ce4_8422_2325_u64 ^ kind as u64;
        for byte in name {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
        // The low bits of the product depend on the low bits of its factors only.
        self.0 |= 1 << ((hash ^ hash >> 32) % BITS);
    }
}

/// Whether a condition holds only if there is something of its name.
fn needs_name(test: &HeaderTest) -> bool {
    match test {
        HeaderTest::Present | HeaderTest::Text(_) => true,
        HeaderTest::Absent => false,
    }
}
