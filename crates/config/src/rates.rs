//! Reads `rate` of a route.
//! In: the table of a route. Out: checked limits.
//! Limits: `RATES_MAX` limits of a route.

use core::ops::Range;

use tidegate_base::Span;

use crate::keys::RATE;
use crate::listeners::refused;
use crate::model::{Placeholder, Rate, RateExcess, Template, TemplatePiece};
use crate::pattern::{self, ValueError, complain};
use crate::report::{Kind, Note, Notes};
use crate::table::{Table, texts_of};
use crate::units;

/// Maximum number of limits of one route.
const RATES_MAX: usize = 8;
/// The shortest and the longest period.
const PERIOD: Range<Span> = Span::from_millis(1)..Span::from_secs(24 * 3600 + 1);
/// Maximum number of requests in a period.
const COUNT_MAX: u32 = 1_000_000_000;
/// The shortest time between two requests on average. A limit counts this time in whole nanoseconds, so that it differs from the
/// stated one by up to a hundredth.
const INTERVAL_NANOS_MIN: u128 = 100;

/// How long a request in a tarpit waits if the file does not state it.
const WAIT: Span = Span::from_secs(5);

/// Reads the limits of a route.
pub(crate) fn read(route: &Table<'_>, notes: &mut Notes) -> Vec<Rate> {
    let Some(value) = route.value("rate") else { return Vec::new() };
    let values = match value.get_ref().as_array() {
        Some(rows) => rows.iter().collect(),
        None => vec![value],
    };
    if values.is_empty() || values.len() > RATES_MAX {
        let what = format!("`rate` has {} limits", values.len());
        let note = Note::new(Kind::Value, value.span(), what);
        notes.error(note.allowed(format!("1 to {RATES_MAX} limits")));
    }
    let tables = values.into_iter().filter_map(|value| match value.get_ref().as_str() {
        Some(text) => {
            let note = Note::new(Kind::Type, value.span(), "`rate` cannot be a string");
            // nginx counts in r/s and r/m.
            let limit = text.replacen("r/", "/", 1);
            let limit = if parse_limit(&limit).is_ok() { &limit } else { "100/10s" };
            notes.error(note.help(format!("write rate = {{ limit = {limit:?} }}")));
            None
        }
        None => Table::open(&RATE, value, notes),
    });
    let tables: Vec<Table<'_>> = tables.collect();
    let auth = route.value("auth").and_then(|auth| auth.get_ref().as_table());
    let has_token = auth.is_some_and(|auth| auth.contains_key("jwt"));
    tables.iter().filter_map(|table| read_one(table, has_token, notes)).collect()
}

fn read_one(table: &Table<'_>, has_token: bool, notes: &mut Notes) -> Option<Rate> {
    let mut rate = Rate {
        count: 1,
        per: Span::from_secs(1),
        burst: 0,
        key: Template { pieces: vec![TemplatePiece::Value(Placeholder::Client)] },
        keys_max: 131_072,
        then: RateExcess::Deny,
        wait: WAIT,
        waiting_max: 1024,
    };
    table.set_word("then", &mut rate.then, notes);
    table.set_number("keys-max", &mut rate.keys_max, notes);
    table.set_duration("wait", &mut rate.wait, notes);
    table.set_number("waiting-max", &mut rate.waiting_max, notes);
    for name in ["wait", "waiting-max"] {
        if let Some(value) = table.value(name).filter(|_| rate.then != RateExcess::Tarpit) {
            let what = format!("`{name}` has no effect without then = \"tarpit\"");
            let note = Note::new(Kind::Conflict, value.span(), what);
            notes.error(note.help("add then = \"tarpit\""));
        }
    }
    table.set_number("burst", &mut rate.burst, notes);
    if table.value("by").is_some() {
        rate.key.pieces.clear();
        for text in table.texts("by", notes) {
            match parse_key(&text.text, has_token) {
                Ok(placeholder) => rate.key.pieces.push(TemplatePiece::Value(placeholder)),
                Err(complaint) => notes.error(refused("by", &text, complaint)),
            }
        }
        if let Some(value) = table.value("by").filter(|_| rate.key.pieces.is_empty()) {
            let places = texts_of("`by`", value, notes).len();
            if places == 0 {
                let note = Note::new(Kind::Value, value.span(), "`by` is empty");
                notes.error(note.help("write by = \"client-address\""));
            }
        }
    }
    let limit = table.text("limit", notes)?;
    match parse_limit(&limit.text) {
        Ok((count, per)) => (rate.count, rate.per) = (count, per),
        Err(complaint) => {
            notes.error(refused("limit", &limit, complaint));
            return None;
        }
    }
    if rate.burst == 0 {
        rate.burst = rate.count;
    }
    Some(rate)
}

/// A number of requests and a period, such as `100/10s`; without a number, the unit is one.
pub(crate) fn parse_limit(text: &str) -> Result<(u32, Span), ValueError> {
    let form = "write \"100/10s\", \"20/s\" or \"1000/h\"";
    let Some((count, per)) = text.split_once('/') else {
        return complain("the period is missing", form);
    };
    let count = count.trim();
    if count.is_empty() || !count.bytes().all(|byte| byte.is_ascii_digit()) {
        return complain("the text before the slash is not a number of requests", form);
    }
    // A number that does not fit is out of range, too.
    let count = count.parse::<u32>().unwrap_or(u32::MAX);
    if !(1..=COUNT_MAX).contains(&count) {
        return complain(
            "the number of requests is out of range",
            format!(
                "write a number from 1 to {COUNT_MAX}; to refuse all requests write respond = {{ status = 403 }}"
            ),
        );
    }
    let per = per.trim();
    let whole = if per.starts_with(|c: char| c.is_ascii_digit()) {
        per.to_owned()
    } else {
        format!("1{per}")
    };
    match units::parse_duration(&whole) {
        Some(span) if PERIOD.contains(&span) => {
            if span.as_nanos() < INTERVAL_NANOS_MIN * u128::from(count) {
                return complain(
                    "the limit is too high",
                    "write up to 10000000 requests a second, or remove the limit",
                );
            }
            Ok((count, span))
        }
        Some(_) => complain("the period is out of range", "write a period from 1ms to 24h"),
        None => complain("the period is not a duration", form),
    }
}

/// The key by which requests are counted. `has_claims`: the claims of the token are known where the key is used.
pub(crate) fn parse_key(text: &str, has_claims: bool) -> Result<Placeholder, ValueError> {
    let named = |rest: &str| pattern::is_token(rest).then(|| rest.to_owned());
    let known = match text.split_once(':') {
        None => match text {
            "client-address" => Some(Placeholder::Client),
            "host" => Some(Placeholder::Host),
            "path" => Some(Placeholder::Path),
            "method" => Some(Placeholder::Method),
            _ => None,
        },
        Some(("header", name)) => {
            named(name).map(|name| Placeholder::Header(name.to_ascii_lowercase()))
        }
        Some(("cookie", name)) => named(name).map(Placeholder::Cookie),
        Some(("query", name)) => {
            (!name.is_empty()).then(|| Placeholder::QueryValue(name.to_owned()))
        }
        Some(("claim", name)) if has_claims => {
            (!name.is_empty()).then(|| Placeholder::Claim(name.to_owned()))
        }
        Some(_) => None,
    };
    match known {
        Some(placeholder) => Ok(placeholder),
        None if text.starts_with("claim:") && !has_claims => complain(
            "claims of a token cannot be used here",
            "write another value; `rate` can use claims if the route has auth = { jwt = ... }",
        ),
        None => complain(
            "not a value of a request",
            "write \"client-address\", \"host\", \"path\", \"method\", \"header:NAME\", \"cookie:NAME\" or \"query:NAME\"",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_have_a_number_and_a_period() {
        let secs = Span::from_secs;
        for (text, expected) in [
            ("100/10s", Some((100, secs(10)))),
            ("20/s", Some((20, secs(1)))),
            ("1/h", Some((1, secs(3600)))),
            ("5 / 2m", Some((5, secs(120)))),
            ("7/250ms", Some((7, Span::from_millis(250)))),
            ("1/24h", Some((1, secs(86_400)))),
            ("1/25h", None),
            ("0/s", None),
            ("-1/s", None),
            ("10", None),
            ("10/", None),
            ("10/0s", None),
            ("10/d", Some((10, secs(86_400)))),
            ("10/w", None),
            ("ten/s", None),
        ] {
            assert_eq!(parse_limit(text).ok(), expected, "{text}");
        }
    }
}
