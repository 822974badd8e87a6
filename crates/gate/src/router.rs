//! Which route takes a request: listener, host, path, method, header fields; first match wins.
//! In: a decoded head. Out: the route's index. The path goes on as it came (RFC 9110 section 7.7).
//! Never: allocates (but for `scratch`), lets another spelling or reading of a path dodge a route.
//! Limits: routes that share neither exact host nor exact path are tried one after the other; a path that
//! servers read differently is looked up twelve times.
//! Invariant: the result is that of trying every route in file order; no reading of the path belongs to an
//! earlier route that does something else.

use std::collections::BTreeMap;

use tidegate_config::model::{
    Config, HeaderCondition, HeaderTest, HostPattern, PathPattern, Segment,
};
use tidegate_wire::http1::{Method, RequestHead, TargetForm};

use crate::path::{self, Normalized, Readings};
use crate::scheme::Scheme;

/// Where a request goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Routed {
    /// To the route of this index in the configuration's routes.
    Route(usize),
    /// Nowhere: 404.
    Nothing,
    /// Its path could be read in two ways: 400 with this text.
    Refused(&'static str),
}

const TWO_READINGS: &str = "the path is another route's for servers that merge slashes, decode \"%2F\" or cut parameters off";
const LITERAL_DOTS: &str =
    "the path is another route's for servers that leave \".\" and \"..\" alone";

/// The routes of a configuration, ready to be searched. Shared by all workers.
pub struct Router {
    listeners: Vec<Table>,
    /// By route: the first one that does just the same.
    same_as: Vec<usize>,
}

impl Router {
    /// Prepares the routes of `config`.
    #[must_use]
    pub fn new(config: &Config) -> Self {
        let table = |listener: usize| {
            let rules = config.routes.iter().enumerate();
            Table::new(
                rules
                    .filter(|(_, route)| route.listener.is_none_or(|only| only == listener))
                    .map(|(index, route)| Rule {
                        route: index,
                        host: route.host.as_ref().map(canonical_host),
                        path: route.path.as_ref().map(canonical_path),
                        methods: route.methods.clone(),
                        headers: route.headers.clone(),
                    })
                    .collect(),
            )
        };
        let listeners = (0..config.listeners.len()).map(table).collect();
        Self { listeners, same_as: first_alike(config) }
    }

    /// Finds the first route of `listener` that takes `head`. `scratch` is room for a path in other
    /// spellings; what it held is lost.
    #[must_use]
    pub fn route(&self, listener: usize, head: &RequestHead<'_>, scratch: &mut Vec<u8>) -> Routed {
        let Some(table) = self.listeners.get(listener) else {
            return Routed::Nothing;
        };
        let host = host_name(head.host.unwrap_or_default());
        let find = |path: &str| table.find(head, host, Some(path));
        if head.path == "*" {
            // It names no resource: only routes without a path take it (RFC 9110 section 7.1).
            return table.find(head, host, None).map_or(Routed::Nothing, Routed::Route);
        }
        let found = match path::normalize_path(head.path, scratch) {
            Normalized::Same => find(head.path),
            Normalized::Equivalent(path) => find(path),
            Normalized::Changed { resolved, literal } => {
                let (found, left_alone) = (find(resolved), find(literal));
                if found.map(|index| self.same_as(index))
                    != left_alone.map(|index| self.same_as(index))
                {
                    return Routed::Refused(LITERAL_DOTS);
                }
                found
            }
            Normalized::Refused(text) => return Routed::Refused(text),
        };
        let Some(index) = found else { return Routed::Nothing };
        if path::is_odd(head.path) {
            // Servers may read the path of a route that comes first, such as one that denies it.
            let mut readings = Readings::new(head.path, scratch);
            while let Some(reading) = readings.next() {
                let other = find(reading).filter(|other| *other < index);
                if other.is_some_and(|other| self.same_as(other) != self.same_as(index)) {
                    return Routed::Refused(TWO_READINGS);
                }
            }
        }
        Routed::Route(index)
    }

    fn same_as(&self, route: usize) -> usize {
        self.same_as.get(route).copied().unwrap_or(route)
    }
}

/// For each route, the first of those that do the same: one action, one Strict-Transport-Security.
fn first_alike(config: &Config) -> Vec<usize> {
    let mut first = BTreeMap::new();
    let routes = config.routes.iter().enumerate();
    routes
        .map(|(index, route)| *first.entry((&route.action, &route.hsts)).or_insert(index))
        .collect()
}

/// Whether the request is for a URI that its connection must not answer for (RFC 9110 section 7.4):
/// an https one that came in plain.
#[must_use]
pub fn is_misdirected(head: &RequestHead<'_>, scheme: Scheme) -> bool {
    head.form == TargetForm::Absolute
        && scheme == Scheme::Http
        && head.target.get(..6).is_some_and(|start| start.eq_ignore_ascii_case("https:"))
}

/// `host[:port]` without port and trailing dot.
fn host_name(host: &str) -> &str {
    let name = match host.find(']') {
        Some(end) => &host[..=end],
        None => host.split_once(':').map_or(host, |(name, _)| name),
    };
    name.strip_suffix('.').unwrap_or(name)
}

fn canonical_host(pattern: &HostPattern) -> HostPattern {
    let canonical = |name: &str| name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase();
    match pattern {
        HostPattern::Exact(name) => HostPattern::Exact(canonical(host_name(name))),
        HostPattern::Below(suffix) => HostPattern::Below(canonical(suffix)),
    }
}

fn canonical_path(pattern: &PathPattern) -> PathPattern {
    match pattern {
        PathPattern::Exact(path) => PathPattern::Exact(path::canonical_pattern(path)),
        PathPattern::Below(path) => PathPattern::Below(path::canonical_pattern(path)),
        PathPattern::Segments { segments, open_end } => {
            let canonical = |segment: &Segment| match segment {
                Segment::Literal(text) => Segment::Literal(path::canonical_pattern(text)),
                Segment::Any(name) => Segment::Any(name.clone()),
            };
            let segments = segments.iter().map(canonical).collect();
            PathPattern::Segments { segments, open_end: *open_end }
        }
    }
}

/// A route's conditions.
struct Rule {
    route: usize,
    host: Option<HostPattern>,
    path: Option<PathPattern>,
    methods: Vec<String>,
    headers: Vec<HeaderCondition>,
}

impl Rule {
    fn takes(&self, head: &RequestHead<'_>, host: &str, path: Option<&str>) -> bool {
        self.host.as_ref().is_none_or(|pattern| host_matches(pattern, host))
            && self
                .path
                .as_ref()
                .is_none_or(|pattern| path.is_some_and(|path| path_matches(pattern, path)))
            && (self.methods.is_empty() || method_matches(&self.methods, head.method))
            && self.headers.iter().all(|condition| header_matches(condition, head))
    }

    fn exact_host(&self) -> Option<&str> {
        match &self.host {
            Some(HostPattern::Exact(name)) => Some(name),
            Some(HostPattern::Below(_)) | None => None,
        }
    }

    fn exact_path(&self) -> Option<&str> {
        match &self.path {
            Some(PathPattern::Exact(path)) => Some(path),
            Some(PathPattern::Below(_) | PathPattern::Segments { .. }) | None => None,
        }
    }
}

fn host_matches(pattern: &HostPattern, host: &str) -> bool {
    match pattern {
        HostPattern::Exact(name) => name.eq_ignore_ascii_case(host),
        HostPattern::Below(suffix) => {
            let (host, suffix) = (host.as_bytes(), suffix.as_bytes());
            host.len() > suffix.len()
                && host[host.len() - suffix.len()..].eq_ignore_ascii_case(suffix)
        }
    }
}

fn path_matches(pattern: &PathPattern, path: &str) -> bool {
    match pattern {
        PathPattern::Exact(exact) => exact == path,
        PathPattern::Below(prefix) => {
            path.starts_with(prefix.as_str()) || prefix.strip_suffix('/') == Some(path)
        }
        PathPattern::Segments { segments, open_end } => segments_match(segments, *open_end, path),
    }
}

fn segments_match(segments: &[Segment], open_end: bool, path: &str) -> bool {
    let Some(rest) = path.strip_prefix('/') else {
        return false;
    };
    let mut parts = rest.split('/');
    for segment in segments {
        let Some(part) = parts.next() else {
            return false;
        };
        let equal = match segment {
            Segment::Literal(text) => text == part,
            Segment::Any(_) => !part.is_empty(),
        };
        if !equal {
            return false;
        }
    }
    open_end || parts.next().is_none()
}

/// HEAD goes where GET goes: it asks what GET would answer (RFC 9110 section 9.3.2).
fn method_matches(methods: &[String], method: Method<'_>) -> bool {
    let name = method.as_str();
    methods
        .iter()
        .any(|allowed| allowed == name || (allowed == "GET" && matches!(method, Method::Head)))
}

fn header_matches(condition: &HeaderCondition, head: &RequestHead<'_>) -> bool {
    match &condition.test {
        HeaderTest::Present => head.find_named(&condition.name).is_some(),
        HeaderTest::Absent => head.find_named(&condition.name).is_none(),
        HeaderTest::Equals(value) => head.fields().any(|field| {
            field.value == value.as_bytes() && field.name.eq_ignore_ascii_case(&condition.name)
        }),
    }
}

/// The rules of one listener, found by what they ask exactly.
struct Table {
    rules: Vec<Rule>,
    by_host_and_path: Index,
    by_host: Index,
    by_path: Index,
    others: Vec<u32>,
}

impl Table {
    fn new(rules: Vec<Rule>) -> Self {
        let mut table = Self {
            rules: Vec::new(),
            by_host_and_path: Index::default(),
            by_host: Index::default(),
            by_path: Index::default(),
            others: Vec::new(),
        };
        for (position, rule) in rules.iter().enumerate() {
            let position = position as u32;
            match (rule.exact_host().map(hash_host), rule.exact_path().map(hash_path)) {
                (Some(host), Some(path)) => {
                    table.by_host_and_path.add(pair(host, path), position);
                }
                (Some(host), None) => table.by_host.add(host, position),
                (None, Some(path)) => table.by_path.add(path, position),
                (None, None) => table.others.push(position),
            }
        }
        table.rules = rules;
        table.by_host_and_path.entries.sort_unstable();
        table.by_host.entries.sort_unstable();
        table.by_path.entries.sort_unstable();
        table
    }

    /// The first rule that takes the request: the candidates of four lists, merged in file order.
    fn find(&self, head: &RequestHead<'_>, host: &str, path: Option<&str>) -> Option<usize> {
        let hashes_host = !self.by_host.is_empty() || !self.by_host_and_path.is_empty();
        let hashes_path = !self.by_path.is_empty() || !self.by_host_and_path.is_empty();
        let host_hash = hashes_host.then(|| hash_host(host));
        let path_hash = if hashes_path { path.map(hash_path) } else { None };
        let both = host_hash.zip(path_hash).map(|(host, path)| pair(host, path));
        let mut lists = [
            both.map_or(&[][..], |key| self.by_host_and_path.candidates(key)),
            host_hash.map_or(&[][..], |key| self.by_host.candidates(key)),
            path_hash.map_or(&[][..], |key| self.by_path.candidates(key)),
        ];
        let mut others = self.others.as_slice();
        loop {
            let mut first = others.first().copied();
            let mut from = None;
            for (list, entries) in lists.iter().enumerate() {
                if let Some(&(_, position)) = entries.first()
                    && first.is_none_or(|first| position < first)
                {
                    first = Some(position);
                    from = Some(list);
                }
            }
            let rule = self.rules.get(first? as usize)?;
            if rule.takes(head, host, path) {
                return Some(rule.route);
            }
            let rest = from.and_then(|list| lists.get_mut(list));
            match rest {
                Some(entries) => *entries = entries.get(1..).unwrap_or_default(),
                None => others = others.get(1..).unwrap_or_default(),
            }
        }
    }
}

/// Positions of rules by the hash of what they ask; a collision costs one more comparison.
#[derive(Default)]
struct Index {
    entries: Vec<(u64, u32)>,
}

impl Index {
    fn add(&mut self, hash: u64, position: u32) {
        self.entries.push((hash, position));
    }

    fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The entries of `hash`, in file order.
    fn candidates(&self, hash: u64) -> &[(u64, u32)] {
        let start = self.entries.partition_point(|entry| entry.0 < hash);
        let from = &self.entries[start..];
        let length = from.iter().take_while(|entry| entry.0 == hash).count();
        &from[..length]
    }
}

/// A fixed hash of a host without regard to case.
fn hash_host(host: &str) -> u64 {
    host.bytes().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
        (hash ^ u64::from(byte.to_ascii_lowercase())).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

fn hash_path(path: &str) -> u64 {
    path.bytes().fold(0x8422_2325_cbf2_9ce4, |hash: u64, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

fn pair(host: u64, path: u64) -> u64 {
    host.rotate_left(32) ^ path
}
