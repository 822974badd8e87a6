//! The condition of `if`.
//! In: its words: a variable, perhaps an operator and a value. Out: a clause, or why routes have no such condition.

use crate::condition::{Clause, Condition, Source, Test};

/// The condition of `if`: a variable, perhaps an operator and a value.
pub(super) fn condition(words: &[String]) -> Result<Clause, String> {
    let word = |index: usize| words.get(index).map_or("", String::as_str);
    let (variable, operator, value) = (word(0), word(1), word(2));
    let why = || format!("routes have no condition such as {}", words.join(" "));
    let one = |condition| Ok(Clause { any: vec![condition], unless: Vec::new() });
    let negated = |condition| Ok(Clause { unless: vec![condition], ..Clause::always() });
    let texts = |value: &str| Some(vec![value.to_owned()]);
    let base = match variable {
        "$scheme" => {
            let secure = match (operator, value) {
                ("=", "http") | ("!=", "https") => false,
                ("=", "https") | ("!=", "http") => true,
                _ => return Err(why()),
            };
            return one(Condition { secure: Some(secure), ..Condition::default() });
        }
        "$https" if operator.is_empty() => {
            return one(Condition { secure: Some(true), ..Condition::default() });
        }
        "$host" | "$http_host" if ["=", "!="].contains(&operator) => {
            Condition { hosts: texts(value), ..Condition::default() }
        }
        "$request_method" => match operator {
            "=" | "!=" => Condition { methods: texts(value), ..Condition::default() },
            _ => {
                let list =
                    value.trim_start_matches('^').trim_end_matches('$').trim_matches(['(', ')']);
                let methods: Vec<_> = list.split('|').map(str::to_owned).collect();
                if methods.iter().any(|method| !method.bytes().all(|b| b.is_ascii_uppercase())) {
                    return Err(why());
                }
                Condition { methods: Some(methods), ..Condition::default() }
            }
        },
        "$remote_addr" if ["=", "!="].contains(&operator) => {
            Condition { clients: texts(value), ..Condition::default() }
        }
        "$uri" | "$request_uri" if operator == "=" => {
            Condition { paths: texts(value), ..Condition::default() }
        }
        name => {
            let (source, name) = if let Some(name) = name.strip_prefix("$http_") {
                (Source::Header, name.replace('_', "-"))
            } else if let Some(name) = name.strip_prefix("$cookie_") {
                (Source::Cookie, name.to_owned())
            } else if let Some(name) = name.strip_prefix("$arg_") {
                (Source::Query, name.to_owned())
            } else {
                return Err(why());
            };
            let test = match (operator, value) {
                ("", _) | ("!=", "") => Test::Present,
                ("=", "") => Test::Absent,
                ("=" | "!=", value) => Test::Is("equals", value.to_owned(), false),
                ("~" | "!~", value) => Test::Is("regex", value.to_owned(), false),
                ("~*" | "!~*", value) => Test::Is("regex", value.to_owned(), true),
                _ => return Err(why()),
            };
            if matches!(test, Test::Present | Test::Absent) {
                return one(Condition {
                    tests: [((source, name), test)].into(),
                    ..Condition::default()
                });
            }
            Condition { tests: [((source, name), test)].into(), ..Condition::default() }
        }
    };
    match operator.starts_with('!') {
        true => negated(base),
        false => one(base),
    }
}
