//! The route conditions of one listener, indexed by their host and the literal start of their path.
//! In: rules in file order; a head with its host and path, the client's certificate. Out: the first rule that
//! matches.
//! Never: allocates in a search; returns a rule whose conditions do not match.
//! Rules that need a name which the request does not have are not tested (`presence.rs`).
//! Limits: a search examines up to `HOST_KEYS_MAX` × `PATH_KEYS_MAX` lists, and only at those kinds of keys that some rule has.
//! Rules with the same host and the same literal start of the path are tested one after the other.
//! Invariant: the result equals that of testing every rule in order.

use tidegate_config::model::{
    CertificateCondition, HeaderCondition, HeaderTest, HostPattern, PathPattern, Segment,
};
use tidegate_wire::message::{Method, RequestHead};

use crate::conditions::Prepared as Conditions;
use crate::forward::ClientCertificate;
use crate::live_set::SetReaders;
use crate::path::Reach;
use crate::presence::Names;
use crate::router::Client;

/// Up to this many rules, testing each one is faster than a lookup.
const LINEAR_SEARCH_MAX: usize = 8;
/// Maximum number of labels of a pattern such as `*.example.com` that are indexed. A pattern with more labels is
/// tested for every host.
const LABELS_MAX: u32 = 8;
/// Maximum number of literal segments at the start of a path pattern that are indexed. Further segments are ignored by
/// the index.
const SEGMENTS_MAX: u32 = 8;
const HOST_KEYS_MAX: usize = LABELS_MAX as usize + 2;
const PATH_KEYS_MAX: usize = SEGMENTS_MAX as usize + 2;

/// The conditions of a route.
pub(crate) struct Rule {
    /// The index of the route in the configuration.
    pub(crate) route: usize,
    pub(crate) host: Option<HostPattern>,
    pub(crate) path: Option<PathPattern>,
    pub(crate) methods: Vec<String>,
    pub(crate) headers: Vec<HeaderCondition>,
    pub(crate) client_cert: Option<CertificateCondition>,
    pub(crate) conditions: Conditions,
    /// The names without which the conditions do not hold.
    pub(crate) needed: Names,
}

/// The parts of a request that conditions test, except for its path, which may have several readings.
pub(crate) struct RequestParts<'a> {
    /// The decoded head.
    pub(crate) head: &'a RequestHead<'a>,
    /// The host name, without port and trailing dot.
    pub(crate) host: &'a str,
    /// The client.
    pub(crate) client: &'a Client<'a>,
    /// The sets of addresses.
    pub(crate) sets: &'a SetReaders,
}

/// The condition of a route that a request does not meet, in the order in which they are tested.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Unmet {
    /// `host`.
    Host,
    /// `path`.
    Path,
    /// `method`.
    Method,
    /// `headers`, by the place of its test in the configuration of the route.
    Headers(usize),
    /// `query`, likewise.
    Query(usize),
    /// `cookies`, likewise.
    Cookies(usize),
    /// `client`.
    Client,
    /// `client-cert`.
    Certificate,
    /// `table`.
    Counts,
}

/// Rules, prepared for searching.
pub(crate) struct Table {
    /// In file order.
    rules: Vec<Rule>,
    /// Sorted by key, then by position. A collision of keys costs one more test.
    places: Vec<Place>,
    /// Whether a rule needs names of the request.
    needs_names: bool,
    /// The kinds of host keys that the rules have.
    hosts: HostKinds,
    /// The kinds of path keys that the rules have.
    paths: PathKinds,
    /// How much of a path can affect whether the rules' patterns match.
    reach: Reach,
}

/// A rule in the index. What a search reads of most rules is here, side by side.
struct Place {
    /// The key of the rule's host and path.
    key: u64,
    /// The position of the rule.
    position: u32,
    /// The names that the rule needs.
    needed: Names,
}

impl Table {
    pub(crate) fn new(rules: Vec<Rule>) -> Self {
        let (mut hosts, mut paths) = (HostKinds::default(), PathKinds::default());
        let mut places = Vec::new();
        for (position, rule) in rules.iter().enumerate() {
            let host = hosts.key_of_pattern(rule.host.as_ref());
            let path = paths.key_of_pattern(rule.path.as_ref());
            let (key, needed) = (pair(host, path), rule.needed);
            places.push(Place { key, position: position as u32, needed });
        }
        places.sort_unstable_by_key(|place| (place.key, place.position));
        let needs_names = rules.iter().any(|rule| !rule.needed.is_empty());
        let reach = reach_of(rules.iter().filter_map(|rule| rule.path.as_ref()));
        Self { rules, places, needs_names, hosts, paths, reach }
    }

    /// How much of a path a search needs: [`Self::find`] returns the same for the part within reach as for the
    /// whole path.
    pub(crate) fn reach(&self) -> Reach {
        self.reach
    }

    /// The route of the first rule that matches the request. `path` is `None` if the request names no
    /// resource.
    pub(crate) fn find(&self, request: &RequestParts<'_>, path: Option<&str>) -> Option<usize> {
        if self.rules.len() <= LINEAR_SEARCH_MAX {
            let matching = self.rules.iter().find(|rule| rule.takes(request, path));
            return matching.map(|rule| rule.route);
        }
        let (hosts, paths) = (self.hosts.keys_of(request.host), self.paths.keys_of(path));
        let mut first = self.rules.len();
        // The names of the request are worth collecting only if many rules are tested.
        let (mut names, mut tested) = (Names::ALL, 0);
        for host_key in hosts.iter() {
            for path_key in paths.iter() {
                for place in self.places_of(pair(host_key, path_key)) {
                    let position = place.position as usize;
                    if position >= first {
                        break;
                    }
                    if !names.may_contain(place.needed) {
                        continue;
                    }
                    tested += 1;
                    if tested == LINEAR_SEARCH_MAX && self.needs_names {
                        names = Names::of_request(request.head);
                    }
                    if self.rules.get(position).is_some_and(|rule| rule.takes(request, path)) {
                        first = position;
                    }
                }
            }
        }
        self.rules.get(first).map(|rule| rule.route)
    }

    /// For each route in file order, the last condition that keeps one of its rules from taking the request.
    pub(crate) fn unmet(
        &self,
        request: &RequestParts<'_>,
        path: Option<&str>,
    ) -> Vec<(usize, Option<Unmet>)> {
        let mut found: Vec<(usize, Option<Unmet>)> = Vec::new();
        for rule in &self.rules {
            let unmet = rule.unmet(request, path);
            match found.last_mut() {
                // A route with several hosts or paths has several rules, one of which may take the request.
                Some((route, known)) if *route == rule.route => {
                    *known = match (*known, unmet) {
                        (Some(known), Some(unmet)) => Some(known.max(unmet)),
                        (None, _) | (_, None) => None,
                    };
                }
                Some(_) | None => found.push((rule.route, unmet)),
            }
        }
        found
    }

    /// The rules with this key, in file order.
    fn places_of(&self, key: u64) -> impl Iterator<Item = &Place> {
        let start = self.places.partition_point(|place| place.key < key);
        let from = self.places.get(start..).unwrap_or_default();
        from.iter().take_while(move |place| place.key == key)
    }
}

impl Rule {
    /// The first condition that the request does not meet; `None` if the rule takes it.
    fn unmet(&self, request: &RequestParts<'_>, path: Option<&str>) -> Option<Unmet> {
        let head = request.head;
        let host = self.host.as_ref().is_none_or(|pattern| host_matches(pattern, request.host));
        let path = self
            .path
            .as_ref()
            .is_none_or(|pattern| path.is_some_and(|path| path_matches(pattern, path)));
        let unmet_header = || self.headers.iter().position(|test| !header_matches(test, head));
        match () {
            () if !host => Some(Unmet::Host),
            () if !path => Some(Unmet::Path),
            () if !self.methods.is_empty()
                && !method_matches(&self.methods, head.routed_method()) =>
            {
                Some(Unmet::Method)
            }
            () => match unmet_header()
                .map(Unmet::Headers)
                .or_else(|| self.conditions.unmet(head, request.sets, request.client))
            {
                Some(unmet) => Some(unmet),
                None if !self.takes_certificate(request) => Some(Unmet::Certificate),
                None if !self.conditions.counts_hold(head, request.client) => Some(Unmet::Counts),
                None => None,
            },
        }
    }

    fn takes_certificate(&self, request: &RequestParts<'_>) -> bool {
        let condition = self.client_cert.as_ref();
        condition.is_none_or(|condition| certificate_matches(condition, request.client.certificate))
    }

    fn takes(&self, request: &RequestParts<'_>, path: Option<&str>) -> bool {
        let head = request.head;
        self.host.as_ref().is_none_or(|pattern| host_matches(pattern, request.host))
            && self
                .path
                .as_ref()
                .is_none_or(|pattern| path.is_some_and(|path| path_matches(pattern, path)))
            && (self.methods.is_empty() || method_matches(&self.methods, head.routed_method()))
            && self.headers.iter().all(|condition| header_matches(condition, head))
            && self
                .client_cert
                .as_ref()
                .is_none_or(|condition| certificate_matches(condition, request.client.certificate))
            && self.conditions.hold(head, request.sets, request.client)
            && self.conditions.counts_hold(head, request.client)
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

/// Whether the pattern matches the path; both are in canonical form.
pub(crate) fn path_matches(pattern: &PathPattern, path: &str) -> bool {
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

/// A condition for GET also matches HEAD, which has the response of GET without the body (RFC 9110 section
/// 9.3.2).
fn method_matches(methods: &[String], method: Method<'_>) -> bool {
    let name = method.as_str();
    methods
        .iter()
        .any(|allowed| allowed == name || (allowed == "GET" && matches!(method, Method::Head)))
}

/// Only fields of exactly this name count (RFC 9110 section 5.1): see `ClientAddressFields::is_lookalike`.
fn header_matches(condition: &HeaderCondition, head: &RequestHead<'_>) -> bool {
    let mut named = head.fields().filter(|field| field.name.eq_ignore_ascii_case(&condition.name));
    match &condition.test {
        HeaderTest::Present => named.next().is_some(),
        HeaderTest::Absent => named.next().is_none(),
        HeaderTest::Text(test) => named.any(|field| test.matches(field.value)),
    }
}

/// A certificate verified only by a proxy in front does not count: it is the proxy's claim, and its common
/// name alone does not identify the client.
fn certificate_matches(
    condition: &CertificateCondition,
    certificate: Option<ClientCertificate<'_>>,
) -> bool {
    let verified = match certificate {
        Some(ClientCertificate::Verified { subject, fingerprint }) => Some((subject, fingerprint)),
        Some(ClientCertificate::VerifiedInFront { .. }) | None => None,
    };
    let among = |texts: &[String], own: &str| texts.is_empty() || texts.iter().any(|t| t == own);
    match (condition, verified) {
        (CertificateCondition::Present, verified) => verified.is_some(),
        (CertificateCondition::Absent, verified) => verified.is_none(),
        (CertificateCondition::Is(_), None) => false,
        (CertificateCondition::Is(test), Some((subject, fingerprint))) => {
            among(&test.subjects, subject) && among(&test.fingerprints, fingerprint)
        }
    }
}

/// How much of a path can affect whether `patterns` match.
fn reach_of<'a>(patterns: impl Iterator<Item = &'a PathPattern>) -> Reach {
    let (mut literal_bytes_max, mut segments_max) = (0, 0);
    for pattern in patterns {
        match pattern {
            PathPattern::Exact(text) | PathPattern::Below(text) => {
                literal_bytes_max = literal_bytes_max.max(text.len());
            }
            PathPattern::Segments { segments, .. } => {
                // The index hashes the literal start as a whole.
                literal_bytes_max = literal_bytes_max.max(literal_start(segments).len());
                segments_max = segments_max.max(segments.len());
                for segment in segments {
                    if let Segment::Literal(text) = segment {
                        literal_bytes_max = literal_bytes_max.max(text.len());
                    }
                }
            }
        }
    }
    Reach { bytes: literal_bytes_max + 1, segments: segments_max }
}

/// The lookup keys of one request, in an array on the stack.
struct Keys<const MAX: usize> {
    keys: [u64; MAX],
    length: usize,
}

impl<const MAX: usize> Keys<MAX> {
    fn new() -> Self {
        Self { keys: [0; MAX], length: 0 }
    }

    fn push(&mut self, key: u64) {
        if let Some(place) = self.keys.get_mut(self.length) {
            *place = key;
            self.length += 1;
        }
    }

    fn iter(&self) -> impl Iterator<Item = u64> {
        self.keys.iter().copied().take(self.length)
    }
}

/// The kinds of host conditions that the rules have.
#[derive(Default)]
struct HostKinds {
    /// Some rule has an exact host.
    has_exact: bool,
    /// Some rule matches any host, or has a pattern that is too long for the index.
    has_any: bool,
    /// Bit N: some rule has a pattern of `*.` and N labels.
    below: u32,
}

const EXACT: u64 = 0x9e37_79b9_7f4a_7c15;
const START: u64 = 0xcbf2_9ce4_8422_2325;
const ANY_HOST: u64 = 1;

impl HostKinds {
    fn key_of_pattern(&mut self, pattern: Option<&HostPattern>) -> u64 {
        match pattern {
            Some(HostPattern::Exact(name)) => {
                self.has_exact = true;
                hash_host(name) ^ EXACT
            }
            Some(HostPattern::Below(suffix)) if labels(suffix) <= LABELS_MAX => {
                self.below |= 1 << labels(suffix);
                hash_host(suffix)
            }
            Some(HostPattern::Below(_)) | None => {
                self.has_any = true;
                ANY_HOST
            }
        }
    }

    /// Hashes from the end, so that the hash of each parent domain occurs on the way to that of the whole
    /// name.
    fn keys_of(&self, host: &str) -> Keys<HOST_KEYS_MAX> {
        let mut keys = Keys::new();
        if self.has_any {
            keys.push(ANY_HOST);
        }
        if self.below == 0 {
            if self.has_exact {
                keys.push(hash_host(host) ^ EXACT);
            }
            return keys;
        }
        let (mut hash, mut label) = (START, 0);
        for byte in host.bytes().rev() {
            hash = fold_host(hash, byte);
            if byte == b'.' {
                label += 1;
                if label <= LABELS_MAX && self.below >> label & 1 == 1 {
                    keys.push(hash);
                }
            }
        }
        if self.has_exact {
            keys.push(hash ^ EXACT);
        }
        keys
    }
}

/// The kinds of path conditions that the rules have.
#[derive(Default)]
struct PathKinds {
    /// The length of the longest exact path; `None` if there is none.
    exact_bytes_max: Option<usize>,
    /// Bit N: some rule has a pattern that begins with N literal segments. Bit 0 includes rules for any path.
    begun: u32,
}

impl PathKinds {
    fn key_of_pattern(&mut self, pattern: Option<&PathPattern>) -> u64 {
        let start = match pattern {
            None => String::new(),
            Some(PathPattern::Exact(path)) => {
                self.exact_bytes_max = self.exact_bytes_max.max(Some(path.len()));
                return hash_path(path.as_bytes()) ^ EXACT;
            }
            Some(PathPattern::Below(prefix)) => {
                prefix.rsplit_once('/').map_or("", |(start, _)| start).to_owned()
            }
            Some(PathPattern::Segments { segments, .. }) => literal_start(segments),
        };
        let depth = (start.matches('/').count() as u32).min(SEGMENTS_MAX);
        self.begun |= 1 << depth;
        hash_path(first_segments(&start, depth).as_bytes())
    }

    fn keys_of(&self, path: Option<&str>) -> Keys<PATH_KEYS_MAX> {
        let mut keys = Keys::new();
        let mut hash = START;
        if self.begun & 1 == 1 {
            keys.push(hash);
        }
        let Some(path) = path else { return keys };
        if let Some(bytes_max) = self.exact_bytes_max
            && path.len() <= bytes_max
        {
            keys.push(hash_path(path.as_bytes()) ^ EXACT);
        }
        let mut depth = 0;
        for byte in path.bytes().chain([b'/']) {
            if byte == b'/' {
                if depth > 0 && self.begun >> depth & 1 == 1 {
                    keys.push(hash);
                }
                depth += 1;
                if self.begun >> depth == 0 {
                    break;
                }
            }
            hash = fold(hash, byte);
        }
        keys
    }
}

fn labels(suffix: &str) -> u32 {
    suffix.matches('.').count() as u32
}

/// The literal segments at the start of a pattern, each with its leading slash.
fn literal_start(segments: &[Segment]) -> String {
    let mut start = String::new();
    for segment in segments {
        let Segment::Literal(text) = segment else { break };
        start.push('/');
        start.push_str(text);
    }
    start
}

/// The first `depth` segments of `path`.
fn first_segments(path: &str, depth: u32) -> &str {
    let end = path.match_indices('/').nth(depth as usize).map_or(path.len(), |(at, _)| at);
    path.get(..end).unwrap_or_default()
}

/// A fixed hash of a host from its end, ignoring case.
fn hash_host(host: &str) -> u64 {
    host.bytes().rev().fold(START, fold_host)
}

fn fold_host(hash: u64, byte: u8) -> u64 {
    fold(hash, byte.to_ascii_lowercase())
}

fn hash_path(path: &[u8]) -> u64 {
    path.iter().fold(START, |hash, &byte| fold(hash, byte))
}

/// FNV-1a. It need not resist attacks: patterns come from the operator, and a collision costs one test.
fn fold(hash: u64, byte: u8) -> u64 {
    (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
}

fn pair(host: u64, path: u64) -> u64 {
    host.rotate_left(32) ^ path
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(route: usize, host: Option<HostPattern>, path: Option<PathPattern>) -> Rule {
        Rule {
            route,
            host,
            path,
            methods: Vec::new(),
            headers: Vec::new(),
            client_cert: None,
            conditions: Conditions::default(),
            needed: Names::default(),
        }
    }

    /// Maximum number of rules that a search tests.
    fn tried(table: &Table, host: &str, path: &str) -> usize {
        let (hosts, paths) = (table.hosts.keys_of(host), table.paths.keys_of(Some(path)));
        let pairs = hosts.iter().flat_map(|host| paths.iter().map(move |path| pair(host, path)));
        pairs.map(|key| table.places_of(key).count()).sum()
    }

    #[test]
    fn search_among_ten_thousand_routes_tests_one() {
        let below = |prefix: String| Some(PathPattern::Below(prefix));
        let mut rules = Vec::new();
        for n in 0..2500 {
            let host = Some(HostPattern::Below(format!(".{n}.example")));
            let segments = vec![
                Segment::Literal("v1".to_owned()),
                Segment::Literal(format!("things{n}")),
                Segment::Any("id".to_owned()),
            ];
            rules.extend([
                rule(n, None, below(format!("/one{n}/"))),
                rule(n, None, below(format!("/all/of/them/{n}/"))),
                rule(n, host, None),
                rule(n, None, Some(PathPattern::Segments { segments, open_end: true })),
            ]);
        }
        let table = Table::new(rules);
        for (host, path) in [
            ("x", "/one17/a"),
            ("x", "/all/of/them/2499/b/c"),
            ("a.b.700.example", "/"),
            ("x", "/v1/things12/7/more"),
        ] {
            assert_eq!(tried(&table, host, path), 1, "{host}{path}");
        }
        assert_eq!(tried(&table, "nobody", "/nothing/here"), 0);
    }
}
