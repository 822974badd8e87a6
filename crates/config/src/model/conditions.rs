//! Conditions of routes on header fields, the client's address, the query, cookies and counts.
//! In: the reader of routes. Out: plain data.

use super::{Addresses, TableTest, TextTest};

/// Conditions of a route on the client's address, the query, cookies and counts, all of which must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Conditions {
    /// The addresses that match; `None`: any client.
    pub client: Option<Addresses>,
    /// Conditions on parameters of the query, by their decoded names and values.
    pub query: Vec<NamedTest>,
    /// Conditions on cookies.
    pub cookies: Vec<NamedTest>,
    /// Conditions on the counts in tables; each table once.
    pub tables: Vec<TableTest>,
}

impl Conditions {
    /// Whether there are no conditions.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.client.is_none()
            && self.query.is_empty()
            && self.cookies.is_empty()
            && self.tables.is_empty()
    }
}

/// A condition on the values of one name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedTest {
    /// The name, whose case counts.
    pub name: String,
    /// The condition on the values.
    pub test: HeaderTest,
}

/// A condition on one header field, such as `headers = { "x-canary" = "yes" }`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeaderCondition {
    /// Field name, in lower case.
    pub name: String,
    /// The condition on the field.
    pub test: HeaderTest,
}

/// The test of a header condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HeaderTest {
    /// The field is present with any value (`true` in the file).
    Present,
    /// The field is absent (`false` in the file).
    Absent,
    /// At least one line of the field passes this test.
    Text(TextTest),
}
