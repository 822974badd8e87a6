//! Reads the conditions of a route on the client's address, parameters of the query, cookies and counts.
//! In: the table of a route, the sets and tables of the file. Out: checked conditions.

use crate::count_tables::{self, CountTables};
use crate::field_test;
use crate::model::{AddressSet, Conditions, NamedTest};
use crate::pattern;
use crate::report::{Kind, Note, Notes, quoted};
use crate::sets;
use crate::table::{TOKEN_FORM, Table};

/// Reads the conditions of a route.
pub(crate) fn read(
    table: &Table<'_>,
    sets: &[AddressSet],
    tables: &CountTables,
    notes: &mut Notes,
) -> Conditions {
    Conditions {
        client: sets::read_list(table, "client", sets, notes),
        query: read_tests(table, "query", |name| !name.is_empty(), notes),
        cookies: read_tests(table, "cookies", pattern::is_token, notes),
        tables: count_tables::read_tests(table, tables, notes),
    }
}

/// Reads the tests by name under `key`.
fn read_tests(
    table: &Table<'_>,
    key: &str,
    is_name: fn(&str) -> bool,
    notes: &mut Notes,
) -> Vec<NamedTest> {
    let mut tests = Vec::new();
    for (name, value) in table.open_fields(key, notes) {
        if !is_name(&name.text) {
            let what = format!("{} cannot be a name in `{key}`", quoted(&name.text));
            let allowed = match key {
                "query" => "at least one character",
                _ => TOKEN_FORM,
            };
            notes.error(Note::new(Kind::Value, name.place, what).allowed(allowed));
            continue;
        }
        if let Some(test) = field_test::read_value(&name.text, value, notes) {
            tests.push(NamedTest { name: name.text, test });
        }
    }
    tests
}
