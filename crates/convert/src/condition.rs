//! Conditions of a route, and their intersections.
//! In: conditions read from the input. Out: the intersection of two conditions, and whether one condition implies another one.
//! Limits: `ALTERNATIVES_MAX` hosts, paths or addresses of one condition.

use core::net::IpAddr;
use std::collections::BTreeMap;

use crate::document::Value;

/// Maximum number of entries of one list.
const ALTERNATIVES_MAX: usize = 1000;

/// The part of the request that contains a tested value.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Source {
    Header,
    Query,
    Cookie,
}

/// A test of a value.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Test {
    Present,
    Absent,
    /// The key of Tidegate's test (`equals`, `prefix`, ...), its text, and whether case is ignored.
    Is(&'static str, String, bool),
}

impl Test {
    fn value(&self) -> Value {
        match self {
            Self::Present => Value::Flag(true),
            Self::Absent => Value::Flag(false),
            Self::Is("equals", text, false) => Value::Text(text.clone()),
            Self::Is(key, text, ignores_case) => {
                let mut entries = vec![((*key).to_owned(), Value::Text(text.clone()))];
                if *ignores_case {
                    entries.push(("ignore-case".to_owned(), Value::Flag(true)));
                }
                Value::Table(entries)
            }
        }
    }
}

/// The conditions of a route, all of which must hold. `None` holds for every request.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub(crate) struct Condition {
    /// Hosts, any of which matches: "a.example" or "*.a.example".
    pub(crate) hosts: Option<Vec<String>>,
    /// Paths, any of which matches: "/a" or "/a/*".
    pub(crate) paths: Option<Vec<String>>,
    /// A regular expression that the path must match. Routes cannot test it; a map may.
    pub(crate) path_regex: Option<String>,
    /// Methods, any of which matches.
    pub(crate) methods: Option<Vec<String>>,
    /// Networks, or names of sets as "set:NAME".
    pub(crate) clients: Option<Vec<String>>,
    /// Tests of fields, parameters and cookies, by source and name.
    pub(crate) tests: BTreeMap<(Source, String), Test>,
    /// Comparisons with the counts in tables, by the names of the table and of the count.
    pub(crate) counts: BTreeMap<(String, String), String>,
    /// Whether the listener speaks TLS.
    pub(crate) secure: Option<bool>,
}

/// Why two conditions cannot be combined.
pub(crate) type Inexpressible = &'static str;

impl Condition {
    pub(crate) fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// The condition that holds if both hold; `None` if that is impossible.
    pub(crate) fn and(&self, other: &Self) -> Result<Option<Self>, Inexpressible> {
        let hosts = both(&self.hosts, &other.hosts, common_host)?;
        let paths = both(&self.paths, &other.paths, |a, b| Ok(common_path(a, b)))?;
        let same = |a: &str, b: &str| Ok((a == b).then(|| a.to_owned()));
        let methods = both(&self.methods, &other.methods, same)?;
        let clients = both(&self.clients, &other.clients, common_network)?;
        let (Some(hosts), Some(paths), Some(methods), Some(clients)) =
            (hosts, paths, methods, clients)
        else {
            return Ok(None);
        };
        let path_regex = match (&self.path_regex, &other.path_regex) {
            (Some(a), Some(b)) if a != b => return Err("two regular expressions for the path"),
            (a, b) => a.clone().or_else(|| b.clone()),
        };
        let secure = match (self.secure, other.secure) {
            (Some(a), Some(b)) if a != b => return Ok(None),
            (a, b) => a.or(b),
        };
        let mut tests = self.tests.clone();
        for (key, test) in &other.tests {
            match (tests.get(key), test) {
                (None | Some(Test::Present), test) => {
                    tests.insert(key.clone(), test.clone());
                }
                (Some(own), test) if own == test => {}
                (Some(Test::Is(..)), Test::Present) => {}
                (Some(Test::Absent), _) | (Some(_), Test::Absent) => return Ok(None),
                (Some(_), Test::Is(..)) => {
                    return Err("two tests of one field, cookie or parameter");
                }
            }
        }
        let mut counts = self.counts.clone();
        for (key, comparison) in &other.counts {
            if counts.get(key).is_some_and(|own| own != comparison) {
                return Err("two comparisons of one count");
            }
            counts.insert(key.clone(), comparison.clone());
        }
        Ok(Some(Self { hosts, paths, path_regex, methods, clients, tests, counts, secure }))
    }

    /// Whether this condition certainly holds whenever `other` holds.
    pub(crate) fn covers(&self, other: &Self) -> bool {
        let hosts = |a: &str, b: &str| a == b || is_host_below(b, a);
        let paths = |a: &str, b: &str| a == b || is_path_below(b, a);
        let networks = |a: &str, b: &str| {
            a == b || network(a).zip(network(b)).is_some_and(|(a, b)| is_within(b, a))
        };
        let regex = self.path_regex.is_none() || self.path_regex == other.path_regex;
        let secure = self.secure.is_none() || self.secure == other.secure;
        let tests = self.tests.iter().all(|(key, test)| match (test, other.tests.get(key)) {
            (Test::Present, Some(Test::Is(..))) => true,
            (test, own) => own == Some(test),
        });
        regex
            && secure
            && tests
            && self.counts.iter().all(|(key, count)| other.counts.get(key) == Some(count))
            && list_covers(&self.paths, &other.paths, paths)
            && list_covers(&self.hosts, &other.hosts, hosts)
            && list_covers(&self.methods, &other.methods, |a, b| a == b)
            && list_covers(&self.clients, &other.clients, networks)
    }

    /// The settings of a route.
    pub(crate) fn settings(&self) -> Vec<(&'static str, Value)> {
        let mut settings = Vec::new();
        let lists = [
            ("host", &self.hosts),
            ("path", &self.paths),
            ("method", &self.methods),
            ("client", &self.clients),
        ];
        for (key, list) in lists {
            if let Some(list) = list {
                settings.push((key, Value::one_or_many(list.clone())));
            }
        }
        for (key, source) in
            [("headers", Source::Header), ("query", Source::Query), ("cookies", Source::Cookie)]
        {
            let own = self.tests.iter().filter(|((own, _), _)| *own == source);
            let own: Vec<_> = own.map(|((_, name), test)| (name.clone(), test.value())).collect();
            if !own.is_empty() {
                settings.push((key, Value::Table(own)));
            }
        }
        let mut tables: Vec<(String, Value)> = Vec::new();
        for ((table, count), comparison) in &self.counts {
            let entry = (count.clone(), Value::Text(comparison.clone()));
            match tables.last_mut() {
                Some((own, Value::Table(entries))) if own == table => entries.push(entry),
                _ => tables.push((table.clone(), Value::Table(vec![entry]))),
            }
        }
        if !tables.is_empty() {
            settings.push(("table", Value::Table(tables)));
        }
        settings
    }
}

type List = Option<Vec<String>>;

/// The entries that both lists have in common; `None` if there are none, `Some(None)` if neither list restricts anything.
fn both(
    a: &List,
    b: &List,
    common: impl Fn(&str, &str) -> Result<Option<String>, Inexpressible>,
) -> Result<Option<List>, Inexpressible> {
    let (Some(a), Some(b)) = (a, b) else { return Ok(Some(a.clone().or_else(|| b.clone()))) };
    let mut list: Vec<String> = Vec::new();
    if a.len().saturating_mul(b.len()) > ALTERNATIVES_MAX * ALTERNATIVES_MAX {
        return Err("too many alternatives");
    }
    for a in a {
        for b in b {
            if let Some(one) = common(a, b)?
                && !list.contains(&one)
            {
                list.push(one);
            }
        }
        if list.len() > ALTERNATIVES_MAX {
            return Err("too many alternatives");
        }
    }
    Ok((!list.is_empty()).then_some(Some(list)))
}

/// Whether each entry of `b` matches no more than some entry of `a`.
fn list_covers(a: &List, b: &List, covers: impl Fn(&str, &str) -> bool) -> bool {
    match (a, b) {
        (None, _) => true,
        (Some(_), None) => false,
        (Some(a), Some(b)) => b.iter().all(|b| a.iter().any(|a| covers(a, b))),
    }
}

fn is_host_below(name: &str, pattern: &str) -> bool {
    pattern.strip_prefix('*').is_some_and(|suffix| name != pattern && name.ends_with(suffix))
}

fn common_host(a: &str, b: &str) -> Result<Option<String>, Inexpressible> {
    Ok(match a == b || is_host_below(a, b) {
        true => Some(a.to_owned()),
        false => is_host_below(b, a).then(|| b.to_owned()),
    })
}

/// The pattern of the paths that both patterns match.
pub(crate) fn common_path(a: &str, b: &str) -> Option<String> {
    match a == b || is_path_below(a, b) {
        true => Some(a.to_owned()),
        false => is_path_below(b, a).then(|| b.to_owned()),
    }
}

/// Whether `pattern` ends in "/*" and matches everything that `path` matches.
pub(crate) fn is_path_below(path: &str, pattern: &str) -> bool {
    let Some(folder) = pattern.strip_suffix("/*") else { return false };
    path.strip_prefix(folder).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

fn common_network(a: &str, b: &str) -> Result<Option<String>, Inexpressible> {
    if a == b {
        return Ok(Some(a.to_owned()));
    }
    let (Some(first), Some(second)) = (network(a), network(b)) else {
        return Err("two lists of addresses");
    };
    Ok(match () {
        () if is_within(first, second) => Some(a.to_owned()),
        () if is_within(second, first) => Some(b.to_owned()),
        () => None,
    })
}

/// The address and the number of its leading bits that count.
pub(crate) fn network(text: &str) -> Option<(IpAddr, u32)> {
    let (address, bits) = text.split_once('/').map_or((text, None), |(a, bits)| (a, Some(bits)));
    let address: IpAddr = address.parse().ok()?;
    let width = if address.is_ipv4() { 32 } else { 128 };
    let bits = bits.map_or(Some(width), |bits| bits.parse().ok())?;
    (bits <= width).then_some((address, bits))
}

fn is_within((inner, inner_bits): (IpAddr, u32), (outer, outer_bits): (IpAddr, u32)) -> bool {
    let left = |address: u128, width: u32| match outer_bits {
        0 => 0,
        bits => address >> (width - bits),
    };
    inner_bits >= outer_bits
        && match (inner, outer) {
            (IpAddr::V4(a), IpAddr::V4(b)) => {
                left(u32::from(a).into(), 32) == left(u32::from(b).into(), 32)
            }
            (IpAddr::V6(a), IpAddr::V6(b)) => left(a.into(), 128) == left(b.into(), 128),
            (IpAddr::V4(_), IpAddr::V6(_)) | (IpAddr::V6(_), IpAddr::V4(_)) => false,
        }
}

/// A set of conditions: any of `any` holds, and none of `unless`.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub(crate) struct Clause {
    pub(crate) any: Vec<Condition>,
    pub(crate) unless: Vec<Condition>,
}

impl Clause {
    /// The clause that always holds.
    pub(crate) fn always() -> Self {
        Self { any: vec![Condition::default()], unless: Vec::new() }
    }

    /// Adds a term: any of `terms` must hold, too.
    pub(crate) fn require(&mut self, terms: &[Condition]) -> Result<(), Inexpressible> {
        let mut any = Vec::new();
        for own in &self.any {
            for term in terms {
                any.extend(own.and(term)?);
            }
        }
        if any.len() > ALTERNATIVES_MAX {
            return Err("too many alternatives");
        }
        self.any = any;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(hosts: &[&str], paths: &[&str], clients: &[&str]) -> Condition {
        let list = |texts: &[&str]| {
            (!texts.is_empty()).then(|| texts.iter().map(|text| (*text).to_owned()).collect())
        };
        Condition {
            hosts: list(hosts),
            paths: list(paths),
            clients: list(clients),
            ..Condition::default()
        }
    }

    #[test]
    fn intersection_keeps_the_narrower_entries() {
        let a = of(&["*.a.example", "b.example"], &["/api/*", "/x"], &["10.0.0.0/8"]);
        let b = of(&["c.a.example", "*.example"], &["/api/v1/*", "/x/*"], &["10.1.0.0/16", "::1"]);
        let both = of(
            &["c.a.example", "*.a.example", "b.example"],
            &["/api/v1/*", "/x"],
            &["10.1.0.0/16"],
        );
        assert_eq!(a.and(&b), Ok(Some(both.clone())));
        assert!(a.covers(&both) && b.covers(&both) && !both.covers(&a));
        assert_eq!(of(&["a.b"], &[], &[]).and(&of(&["b.b"], &[], &[])), Ok(None));
        assert_eq!(of(&[], &["/ab"], &[]).and(&of(&[], &["/a/*"], &[])), Ok(None));
        assert!(of(&[], &[], &["set:a"]).and(&of(&[], &[], &["10.0.0.0/8"])).is_err());
    }

    #[test]
    fn path_is_below_its_folder_and_the_folder_itself() {
        for (path, pattern, is_below) in [
            ("/a", "/a/*", true),
            ("/a/b/*", "/a/*", true),
            ("/ab", "/a/*", false),
            ("/a/*", "/a/*", true),
            ("/*", "/a/*", false),
            ("/a/*", "/*", true),
        ] {
            assert_eq!(is_path_below(path, pattern), is_below, "{path} {pattern}");
        }
    }
}
