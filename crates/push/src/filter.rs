//! Filters of subscriptions by the tags of messages, as Centrifugo's client libraries state them (`tf`).
//! In: a filter as a client sends it; the tags of a message. Out: whether the subscription gets the message.
//! Never: allocates while it tests a message; accepts a filter that it does not understand.
//! Limits: `NODES_MAX` nodes, `DEPTH_MAX` levels, `VALUES_MAX` values and `BYTES_MAX` of text in a filter;
//! `TAGS_BYTES_MAX` of tags of a message.
//! Invariant: the tags of a message are in the order of their names. A condition of a tag that the message
//! does not have is false, except for `neq`, `nin` and `nex`.

use core::cmp::Ordering;

use serde::Deserialize;

/// Maximum number of nodes of a filter.
pub const NODES_MAX: usize = 32;
/// Maximum number of levels of a filter.
pub const DEPTH_MAX: usize = 8;
/// Maximum number of values of all conditions of a filter.
pub const VALUES_MAX: usize = 128;
/// Maximum size in bytes of keys and values of a filter.
pub const BYTES_MAX: usize = 4096;
/// Maximum size in bytes of the tags of a message in a namespace with filters, as JSON. Each condition may examine all of them.
pub const TAGS_BYTES_MAX: usize = 1024;
/// Maximum number of digits that a number is compared by: the rest of a client's number would only cost time.
const NUMBER_BYTES_MAX: usize = 64;

/// A filter as a client sends it.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct Stated {
    /// How `nodes` are combined: `and`, `or` or `not`; empty: a condition.
    #[serde(default)]
    pub op: String,
    /// The tag of a condition.
    #[serde(default)]
    pub key: String,
    /// How a condition compares.
    #[serde(default)]
    pub cmp: String,
    /// The value that it compares with.
    #[serde(default)]
    pub val: String,
    /// The values of `in` and `nin`.
    #[serde(default)]
    pub vals: Vec<String>,
    /// The combined filters.
    #[serde(default)]
    pub nodes: Vec<Stated>,
}

/// A filter is not one, or too large.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Refused;

/// A checked filter.
#[derive(Clone, Debug)]
pub struct Filter {
    /// The outermost node.
    root: Node,
}

#[derive(Clone, Debug)]
enum Node {
    /// All of them are true.
    All(Box<[Node]>),
    /// One of them is true.
    Any(Box<[Node]>),
    /// It is false.
    Not(Box<Node>),
    /// The condition is true.
    Condition { key: Box<str>, test: Test },
}

/// The condition on the value of a tag.
#[derive(Clone, Debug)]
enum Test {
    /// One of these; none of these, if it `is_not`.
    OneOf { values: Box<[Box<str>]>, is_not: bool },
    /// Anything; absent, if it `is_not`.
    Exists { is_not: bool },
    /// A string with this at its start.
    StartsWith(Box<str>),
    /// A string with this at its end.
    EndsWith(Box<str>),
    /// A string with this in it.
    Contains(Box<str>),
    /// A number less than this one; also an equal one, if it `or_equal`.
    Less { than: Number, or_equal: bool },
    /// A number greater than this one; also an equal one, if it `or_equal`.
    Greater { than: Number, or_equal: bool },
}

/// The tags of a message, in the order of their names.
pub type Tags = [(Box<str>, Box<str>)];

/// The rest of the limits while a filter is checked.
struct Room {
    nodes: usize,
    values: usize,
    bytes: usize,
}

impl Room {
    fn take(&mut self, stated: &Stated) -> Result<(), Refused> {
        let texts = [&stated.key, &stated.val].into_iter().chain(&stated.vals);
        let bytes = texts.map(String::len).sum();
        self.nodes = self.nodes.checked_sub(1).ok_or(Refused)?;
        self.values = self.values.checked_sub(stated.vals.len()).ok_or(Refused)?;
        self.bytes = self.bytes.checked_sub(bytes).ok_or(Refused)?;
        Ok(())
    }
}

impl Filter {
    /// Checks a filter.
    ///
    /// # Errors
    /// It contains an unknown operation, lacks an operand, or exceeds a limit.
    pub fn new(stated: &Stated) -> Result<Self, Refused> {
        let mut room = Room { nodes: NODES_MAX, values: VALUES_MAX, bytes: BYTES_MAX };
        Ok(Self { root: Node::new(stated, &mut room, DEPTH_MAX)? })
    }

    /// The memory of the filter.
    #[must_use]
    pub fn cost_bytes(&self) -> usize {
        size_of::<Self>() + self.root.cost_bytes()
    }

    /// The number of conditions.
    pub(crate) fn conditions(&self) -> usize {
        self.root.conditions()
    }

    /// Whether a subscription with this filter gets a message with these tags.
    #[must_use]
    pub fn admits(&self, tags: &Tags) -> bool {
        self.root.admits(tags)
    }
}

impl Node {
    fn new(stated: &Stated, room: &mut Room, depth: usize) -> Result<Self, Refused> {
        let depth = depth.checked_sub(1).ok_or(Refused)?;
        room.take(stated)?;
        if stated.op.is_empty() {
            return Self::condition(stated);
        }
        if stated.nodes.is_empty() {
            return Err(Refused);
        }
        let nodes = stated.nodes.iter().map(|node| Self::new(node, room, depth));
        let mut nodes = nodes.collect::<Result<Vec<Self>, Refused>>()?;
        match (stated.op.as_str(), nodes.len()) {
            ("and", _) => Ok(Self::All(nodes.into())),
            ("or", _) => Ok(Self::Any(nodes.into())),
            ("not", 1) => nodes.pop().map(|node| Self::Not(Box::new(node))).ok_or(Refused),
            _ => Err(Refused),
        }
    }

    fn condition(stated: &Stated) -> Result<Self, Refused> {
        let Stated { key, cmp, val, vals, nodes, .. } = stated;
        if key.is_empty() || !nodes.is_empty() {
            return Err(Refused);
        }
        let single = || Box::from([Box::from(val.as_str())]);
        let several = || match vals.is_empty() {
            true => Err(Refused),
            false => Ok(vals.iter().map(|value| Box::from(value.as_str())).collect()),
        };
        let number = || Number::parse(val).ok_or(Refused);
        let test = match cmp.as_str() {
            "eq" => Test::OneOf { values: single(), is_not: false },
            "neq" => Test::OneOf { values: single(), is_not: true },
            "in" => Test::OneOf { values: several()?, is_not: false },
            "nin" => Test::OneOf { values: several()?, is_not: true },
            "ex" => Test::Exists { is_not: false },
            "nex" => Test::Exists { is_not: true },
            "sw" => Test::StartsWith(val.as_str().into()),
            "ew" => Test::EndsWith(val.as_str().into()),
            "ct" => Test::Contains(val.as_str().into()),
            "lt" => Test::Less { than: number()?, or_equal: false },
            "lte" => Test::Less { than: number()?, or_equal: true },
            "gt" => Test::Greater { than: number()?, or_equal: false },
            "gte" => Test::Greater { than: number()?, or_equal: true },
            _ => return Err(Refused),
        };
        Ok(Self::Condition { key: key.as_str().into(), test })
    }

    /// The number of conditions.
    fn conditions(&self) -> usize {
        match self {
            Self::All(nodes) | Self::Any(nodes) => nodes.iter().map(Self::conditions).sum(),
            Self::Not(node) => node.conditions(),
            Self::Condition { .. } => 1,
        }
    }

    /// The memory of the node in addition to its own size.
    fn cost_bytes(&self) -> usize {
        let of = |node: &Self| size_of::<Self>() + node.cost_bytes();
        match self {
            Self::All(nodes) | Self::Any(nodes) => nodes.iter().map(of).sum(),
            Self::Not(node) => of(node),
            Self::Condition { key, test } => key.len() + test.cost_bytes(),
        }
    }

    fn admits(&self, tags: &Tags) -> bool {
        match self {
            Self::All(nodes) => nodes.iter().all(|node| node.admits(tags)),
            Self::Any(nodes) => nodes.iter().any(|node| node.admits(tags)),
            Self::Not(node) => !node.admits(tags),
            Self::Condition { key, test } => {
                let found = tags.binary_search_by(|(name, _)| name.cmp(key)).ok();
                test.admits(found.and_then(|at| tags.get(at)).map(|(_, value)| &**value))
            }
        }
    }
}

impl Test {
    /// The memory of the texts.
    fn cost_bytes(&self) -> usize {
        match self {
            Self::OneOf { values, .. } => {
                values.iter().map(|value| size_of_val(value) + value.len()).sum()
            }
            Self::Exists { .. } => 0,
            Self::StartsWith(text) | Self::EndsWith(text) | Self::Contains(text) => text.len(),
            Self::Less { than, .. } | Self::Greater { than, .. } => than.text.len(),
        }
    }

    fn admits(&self, value: Option<&str>) -> bool {
        let Some(value) = value else {
            return matches!(
                self,
                Self::OneOf { is_not: true, .. } | Self::Exists { is_not: true }
            );
        };
        match self {
            Self::OneOf { values, is_not } => values.iter().any(|one| **one == *value) != *is_not,
            Self::Exists { is_not } => !is_not,
            Self::StartsWith(start) => value.starts_with(&**start),
            Self::EndsWith(end) => value.ends_with(&**end),
            Self::Contains(part) => value.contains(&**part),
            Self::Less { than, or_equal } => than.is_compared(value, Ordering::Less, *or_equal),
            Self::Greater { than, or_equal } => {
                than.is_compared(value, Ordering::Greater, *or_equal)
            }
        }
    }
}

/// A decimal number of any size: a sign, digits, and digits after a point.
#[derive(Clone, Debug)]
struct Number {
    /// As written, and known to be a number.
    text: Box<str>,
}

/// The parts of a number, without leading zeros and zeros at the end.
#[derive(PartialEq, Eq)]
struct Parts<'a> {
    is_negative: bool,
    whole: &'a str,
    fraction: &'a str,
}

impl Number {
    fn parse(text: &str) -> Option<Self> {
        Parts::of(text).map(|_| Self { text: text.into() })
    }

    /// Whether `value` is a number that compares with this one as `expected`, or equals it if it `or_equal`.
    fn is_compared(&self, value: &str, expected: Ordering, or_equal: bool) -> bool {
        let Some((value, than)) = Parts::of(value).zip(Parts::of(&self.text)) else { return false };
        match value.compare(&than) {
            Ordering::Equal => or_equal,
            found => found == expected,
        }
    }
}

impl<'a> Parts<'a> {
    fn of(text: &'a str) -> Option<Self> {
        if text.len() > NUMBER_BYTES_MAX {
            return None;
        }
        let (is_negative, digits) = match text.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, text.strip_prefix('+').unwrap_or(text)),
        };
        let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
        let is_digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
        if !is_digits(whole) || !is_digits(fraction) || whole.len() + fraction.len() == 0 {
            return None;
        }
        let (whole, fraction) = (whole.trim_start_matches('0'), fraction.trim_end_matches('0'));
        // There is no negative zero.
        let is_negative = is_negative && whole.len() + fraction.len() > 0;
        Some(Self { is_negative, whole, fraction })
    }

    fn compare(&self, other: &Self) -> Ordering {
        let size = |one: &Self, other: &Self| {
            let by_length = one.whole.len().cmp(&other.whole.len());
            // Digits of the same length compare as strings do, and so do fractions.
            by_length.then(one.whole.cmp(other.whole)).then(one.fraction.cmp(other.fraction))
        };
        match (self.is_negative, other.is_negative) {
            (false, true) => Ordering::Greater,
            (true, false) => Ordering::Less,
            (false, false) => size(self, other),
            (true, true) => size(other, self),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(json: &str) -> Result<Filter, Refused> {
        Filter::new(&serde_json::from_str::<Stated>(json).map_err(|_| Refused)?)
    }

    fn tags(pairs: &[(&str, &str)]) -> Vec<(Box<str>, Box<str>)> {
        let mut tags: Vec<(Box<str>, Box<str>)> =
            pairs.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
        tags.sort();
        tags
    }

    #[test]
    fn each_comparison_has_its_documented_meaning() {
        let tags = tags(&[("ticker", "GOOG"), ("price", "10.50"), ("empty", ""), ("low", "-3")]);
        for (key, cmp, val, expected) in [
            ("ticker", "eq", "GOOG", true),
            ("ticker", "eq", "goog", false),
            ("other", "eq", "", false),
            ("empty", "eq", "", true),
            ("ticker", "neq", "GOOG", false),
            ("ticker", "neq", "AAPL", true),
            ("other", "neq", "GOOG", true),
            ("ticker", "ex", "", true),
            ("other", "ex", "", false),
            ("ticker", "nex", "", false),
            ("other", "nex", "", true),
            ("ticker", "sw", "GO", true),
            ("ticker", "sw", "OG", false),
            ("ticker", "ew", "OG", true),
            ("ticker", "ew", "GO", false),
            ("ticker", "ct", "OO", true),
            ("ticker", "ct", "GG", false),
            ("other", "ct", "", false),
            ("price", "gt", "10.5", false),
            ("price", "gte", "10.5", true),
            ("price", "gt", "9.999999999999999999999", true),
            ("price", "gt", "-100", true),
            ("price", "lt", "10.500000000000000001", true),
            ("price", "lt", "010.5", false),
            ("price", "lte", "+10.5", true),
            ("low", "lt", "-2", true),
            ("low", "gt", "-20", true),
            ("low", "gte", "-0", false),
            ("ticker", "lt", "5", false),
            ("empty", "gte", "0", false),
            ("other", "lte", "5", false),
        ] {
            let filter =
                read(&format!("{{\"key\":\"{key}\",\"cmp\":\"{cmp}\",\"val\":\"{val}\"}}"));
            assert_eq!(filter.map(|one| one.admits(&tags)), Ok(expected), "{key} {cmp} {val}");
        }
    }

    #[test]
    fn conditions_are_combined() {
        let goog = r#"{"key":"t","cmp":"in","vals":["GOOG","AAPL"]}"#;
        let dear = r#"{"key":"p","cmp":"gt","val":"100"}"#;
        for (filter, t, p, expected) in [
            (format!(r#"{{"op":"and","nodes":[{goog},{dear}]}}"#), "GOOG", "101", true),
            (format!(r#"{{"op":"and","nodes":[{goog},{dear}]}}"#), "GOOG", "99", false),
            (format!(r#"{{"op":"or","nodes":[{goog},{dear}]}}"#), "MSFT", "101", true),
            (format!(r#"{{"op":"or","nodes":[{goog},{dear}]}}"#), "MSFT", "99", false),
            (format!(r#"{{"op":"not","nodes":[{goog}]}}"#), "MSFT", "99", true),
            (
                format!(r#"{{"op":"not","nodes":[{{"op":"or","nodes":[{goog},{dear}]}}]}}"#),
                "AAPL",
                "1",
                false,
            ),
            (goog.replace("in", "nin"), "MSFT", "1", true),
            (goog.replace("in", "nin"), "AAPL", "1", false),
        ] {
            let filter = read(&filter).unwrap_or_else(|_| panic!("{filter}"));
            assert_eq!(filter.admits(&tags(&[("t", t), ("p", p)])), expected, "{t} {p}");
        }
    }

    #[test]
    fn filters_that_are_wrong_or_too_large_are_refused() {
        let leaf = r#"{"key":"a","cmp":"ex"}"#;
        let nested = |levels: usize| {
            format!("{}{leaf}{}", r#"{"op":"not","nodes":["#.repeat(levels), "]}".repeat(levels))
        };
        let wide =
            |count: usize| format!(r#"{{"op":"or","nodes":[{}]}}"#, vec![leaf; count].join(","));
        let values = |count: usize| {
            format!(r#"{{"key":"a","cmp":"in","vals":[{}]}}"#, vec!["\"v\""; count].join(","))
        };
        let long =
            |bytes: usize| format!(r#"{{"key":"a","cmp":"eq","val":"{}"}}"#, "x".repeat(bytes));
        for (filter, is_accepted) in [
            (leaf.to_owned(), true),
            (nested(DEPTH_MAX - 1), true),
            (nested(DEPTH_MAX), false),
            (wide(NODES_MAX - 1), true),
            (wide(NODES_MAX), false),
            (values(VALUES_MAX), true),
            (values(VALUES_MAX + 1), false),
            (long(BYTES_MAX - 1), true),
            (long(BYTES_MAX), false),
            ("{}".to_owned(), false),
            (r#"{"key":"","cmp":"ex"}"#.to_owned(), false),
            (r#"{"key":"a","cmp":"like","val":"x"}"#.to_owned(), false),
            (r#"{"key":"a","cmp":"in"}"#.to_owned(), false),
            (r#"{"key":"a","cmp":"lt","val":"x"}"#.to_owned(), false),
            (r#"{"key":"a","cmp":"lt","val":"."}"#.to_owned(), false),
            (r#"{"key":"a","cmp":"lt","val":"1e5"}"#.to_owned(), false),
            (format!(r#"{{"key":"a","cmp":"ex","nodes":[{leaf}]}}"#), false),
            (r#"{"op":"and"}"#.to_owned(), false),
            (format!(r#"{{"op":"xor","nodes":[{leaf}]}}"#), false),
            (format!(r#"{{"op":"not","nodes":[{leaf},{leaf}]}}"#), false),
        ] {
            assert_eq!(read(&filter).is_ok(), is_accepted, "{filter:.100}");
        }
    }

    proptest! {
        #[test]
        fn numbers_compare_as_integers_do(a in any::<i64>(), b in any::<i64>()) {
            let than = Number::parse(&b.to_string()).expect("a number");
            prop_assert_eq!(than.is_compared(&a.to_string(), Ordering::Less, false), a < b);
            prop_assert_eq!(than.is_compared(&a.to_string(), Ordering::Greater, true), a >= b);
        }

        #[test]
        fn any_filter_is_refused_or_evaluated(json in "[\\{\\}\\[\\],:\"a-z0-9]{0,60}", value in "\\PC{0,20}") {
            if let Ok(filter) = read(&json) {
                let _ = filter.admits(&tags(&[("a", &value)]));
            }
        }
    }
}
