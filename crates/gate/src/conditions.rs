//! Conditions of routes on the client's address, parameters of the query, cookies and counts, and access by address.
//! In: the conditions of a route, a worker's readers of the sets, a request. Out: whether the conditions hold.
//! Never: treats two spellings of a parameter as different parameters: names and values are decoded.
//! Limits: a percent-encoded value is copied to decode it; the copy is at most as long as the query.

use core::net::IpAddr;

use tidegate_config::model::{
    Addresses, Conditions, HeaderTest, NamedTest, NetworkSet, TableTest, TextTest,
};
use tidegate_wire::message::RequestHead;

use crate::counting;
use crate::live_set::SetReaders;
use crate::parameters::{cookies, decoded, parameters};
use crate::router::Client;
use crate::table::Unmet;

/// Addresses, prepared for looking up.
#[derive(Clone, Debug, Default)]
pub(crate) struct AddressTest {
    /// The addresses in the list itself.
    networks: NetworkSet,
    /// The indexes of the sets. The address has to be in one of them, or in `networks`.
    sets: Vec<usize>,
}

impl AddressTest {
    pub(crate) fn new(addresses: &Addresses) -> Self {
        Self { networks: addresses.networks.clone(), sets: addresses.sets.clone() }
    }

    /// Whether the address is known, and in the list or one of the sets.
    pub(crate) fn contains(&self, address: Option<IpAddr>, sets: &SetReaders) -> bool {
        let is_in = |address| {
            self.networks.contains(address)
                || self.sets.iter().any(|set| sets.contains(*set, address))
        };
        address.is_some_and(is_in)
    }
}

/// The conditions of a route, prepared.
#[derive(Clone, Debug, Default)]
pub(crate) struct Prepared {
    client: Option<AddressTest>,
    query: Vec<NamedTest>,
    cookies: Vec<NamedTest>,
    tables: Vec<TableTest>,
}

impl Prepared {
    pub(crate) fn new(conditions: &Conditions) -> Self {
        Self {
            client: conditions.client.as_ref().map(AddressTest::new),
            query: conditions.query.clone(),
            cookies: conditions.cookies.clone(),
            tables: conditions.tables.clone(),
        }
    }

    /// Whether all conditions except those on counts hold.
    pub(crate) fn hold(
        &self,
        head: &RequestHead<'_>,
        sets: &SetReaders,
        client: &Client<'_>,
    ) -> bool {
        self.unmet(head, sets, client).is_none()
    }

    /// The first condition, except those on counts, that does not hold.
    pub(crate) fn unmet(
        &self,
        head: &RequestHead<'_>,
        sets: &SetReaders,
        client: &Client<'_>,
    ) -> Option<Unmet> {
        let is_from = |test: &AddressTest| test.contains(client.named_address(head), sets);
        let query = || self.query.iter().position(|test| !query_holds(test, head.query));
        let cookie = || self.cookies.iter().position(|test| !cookie_holds(test, head));
        query()
            .map(Unmet::Query)
            .or_else(|| cookie().map(Unmet::Cookies))
            .or_else(|| (!self.client.as_ref().is_none_or(is_from)).then_some(Unmet::Client))
    }

    /// Whether the conditions on counts hold.
    pub(crate) fn counts_hold(&self, head: &RequestHead<'_>, client: &Client<'_>) -> bool {
        self.tables.iter().all(|test| counting::holds(test, head, client))
    }
}

fn query_holds(condition: &NamedTest, query: Option<&str>) -> bool {
    let mut values = query.into_iter().flat_map(|query| parameters(query, &condition.name));
    match &condition.test {
        HeaderTest::Present => values.next().is_some(),
        HeaderTest::Absent => values.next().is_none(),
        HeaderTest::Text(test) => values.any(|value| value_matches(test, value)),
    }
}

fn value_matches(test: &TextTest, value: &str) -> bool {
    if !value.contains(['%', '+']) {
        return test.matches(value.as_bytes());
    }
    let value: Vec<u8> = decoded(value).collect();
    test.matches(&value)
}

fn cookie_holds(condition: &NamedTest, head: &RequestHead<'_>) -> bool {
    let mut values = cookies(head, &condition.name);
    match &condition.test {
        HeaderTest::Present => values.next().is_some(),
        HeaderTest::Absent => values.next().is_none(),
        HeaderTest::Text(test) => values.any(|value| test.matches(value)),
    }
}
