//! Warnings about conditions that no request meets.

use toml::de::DeTable;

use super::{Step, place, vain};
use crate::model::{HeaderCondition, HeaderTest, Route, TextKind};
use crate::report::Notes;

/// Conditions on cookies and fields whose text is never part of a value.
pub(super) fn check(route: &Route, table: &DeTable<'_>, notes: &mut Notes) {
    for cookie in &route.conditions.cookies {
        let text = plain_text(&cookie.test).or_else(|| literal_expression(&cookie.test));
        if text.is_some_and(|text| text.contains(';')) {
            let at = place(table, &[Step::Key("cookies"), Step::Key(&cookie.name)]);
            let what = "no request meets this condition: the value of a cookie ends at a semicolon";
            notes.warn(vain(at, what, "write one condition for each cookie"));
        }
    }
    let is_sent = |test: &HeaderTest| !matches!(test, HeaderTest::Absent);
    let has_no_cookie = |header: &&HeaderCondition| {
        header.name == "cookie" && matches!(header.test, HeaderTest::Absent)
    };
    if let Some(cookie) = route.conditions.cookies.iter().find(|cookie| is_sent(&cookie.test))
        && route.headers.iter().any(|header| has_no_cookie(&header))
    {
        let at = place(table, &[Step::Key("cookies"), Step::Key(&cookie.name)]);
        let what = "no request meets this condition: `headers` of the route requires that there is no Cookie field";
        notes.warn(vain(at, what, "remove one of the two conditions"));
    }
    for header in &route.headers {
        let Some(text) = plain_text(&header.test) else { continue };
        let is_number = header.name == "content-length" || header.name == "max-forwards";
        let what = match text {
            _ if text.bytes().any(|byte| byte.is_ascii_control() && byte != b'\t') => {
                "no request meets this condition: a field cannot contain a control character"
            }
            _ if is_number && !text.bytes().all(|byte| byte.is_ascii_digit()) => {
                "no request meets this condition: the value of this field is a number"
            }
            _ => continue,
        };
        let written = field_as_written(table, &header.name).unwrap_or_default();
        let at = place(table, &[Step::Key("headers"), Step::Key(&written)]);
        notes.warn(vain(at, what, "write the value that requests have, or remove the condition"));
    }
}

/// A regular expression that is a text without special characters.
fn literal_expression(test: &HeaderTest) -> Option<&str> {
    match test {
        HeaderTest::Text(test) if test.kind() == TextKind::Regex => {
            Some(test.text()).filter(|text| !text.contains(|c| r"\.+*?()|[]{}^$".contains(c)))
        }
        HeaderTest::Present | HeaderTest::Absent | HeaderTest::Text(_) => None,
    }
}

/// The name of a field as the file writes it.
fn field_as_written(table: &DeTable<'_>, name: &str) -> Option<String> {
    let headers = table.get("headers")?.get_ref().as_table()?;
    let mut names = headers.keys().map(|key| key.get_ref().to_string());
    names.find(|written| written.eq_ignore_ascii_case(name))
}

/// The text that a value must contain; `None` if the test has none, or is a regular expression.
fn plain_text(test: &HeaderTest) -> Option<&str> {
    match test {
        HeaderTest::Present | HeaderTest::Absent => None,
        HeaderTest::Text(test) => (test.kind() != TextKind::Regex).then(|| test.text()),
    }
}
