//! Warnings about valid files: unreachable routes, listeners without routes, unused pools.
//! In: checked routes, listeners, pools. Out: warnings.
//! Limits: a route is compared with the first `COMPARED_ROUTES_MAX` routes.
//! Invariant: a route is reported as unreachable only if it certainly is: one earlier route matches all of its
//! requests, or no listener that it applies to can bring it a request.

use core::ops::Range;
use std::collections::BTreeSet;

use crate::listeners::Listeners;
use crate::lua::Apps;
use crate::maps::Maps;
use crate::model::{
    Action, Addresses, CertificateCondition, ClientAuth, Conditions, HeaderTest, HostPattern,
    Listener, NamedTest, PathPattern, PoolChoice, Route, Segment,
};
use crate::pools::Pools;
use crate::push::Push;
use crate::report::{Kind, Note, Notes};

/// Maximum number of earlier routes that a route is compared with. Later ones cause no warning.
pub(crate) const COMPARED_ROUTES_MAX: usize = 1000;

/// Notes a warning for each unreachable route, listener without routes and unused pool.
pub(crate) fn check(
    routes: &[(Route, Range<usize>)],
    listeners: &Listeners,
    pools: &Pools,
    (maps, apps, hubs): (&Maps, &Apps, &[Push]),
    notes: &mut Notes,
) {
    let only_one = listeners.listeners.len() == 1;
    for (index, (route, place)) in routes.iter().enumerate() {
        let earlier = routes.iter().take(index.min(COMPARED_ROUTES_MAX));
        let taker = earlier.enumerate().find(|(_, (other, _))| covers(other, route, only_one));
        if let Some((taker, _)) = taker {
            let what = format!(
                "no request reaches route {} of the file: route {} matches all of its requests",
                index + 1,
                taker + 1
            );
            let note = Note::new(Kind::Unreachable, place.clone(), what);
            notes.warn(note.help("move the more specific route before the other"));
        }
        let listeners = listeners.listeners.iter().enumerate();
        let mut applies_to =
            listeners.filter(|(at, _)| route.listener.is_none_or(|only| only == *at));
        if route.client_cert == Some(CertificateCondition::Absent)
            && applies_to.all(|(_, listener)| always_verifies(listener))
        {
            let what = "no request reaches this route: its listener requires a client certificate";
            let note = Note::new(Kind::Unreachable, place.clone(), what);
            notes.warn(note.help("write client-auth = \"optional\", or remove the route"));
        }
    }
    for (index, listener) in listeners.listeners.iter().enumerate() {
        if listener.forward.is_some() {
            continue;
        }
        let holds = |route: &Route| route.listener.is_none_or(|only| only == index);
        if listener.redirect_to_https.is_some() {
            let all = !listener.may_serve_https();
            let own = |route: &Route| all && route.listener == Some(index);
            for (_, place) in routes.iter().filter(|(route, _)| own(route)) {
                let what = format!(
                    "no request reaches this route: listener {:?} redirects every request to https",
                    listener.name
                );
                let note = Note::new(Kind::Unreachable, place.clone(), what);
                notes.warn(
                    note.help("set `listener` to the listener with TLS, or remove the route"),
                );
            }
            continue;
        }
        if !routes.iter().any(|(route, _)| holds(route)) {
            let what = format!(
                "listener {:?} has no route: it answers every request with 404",
                listener.name
            );
            let note = Note::new(Kind::Unused, listeners.places[index].clone(), what);
            notes.warn(note.help("add a [[route]] for this listener"));
        }
    }
    check_pools(routes, listeners, pools, (maps, apps, hubs), notes);
}

/// Notes a warning for each unused pool and map.
fn check_pools(
    routes: &[(Route, Range<usize>)],
    listeners: &Listeners,
    pools: &Pools,
    (maps, apps, hubs): (&Maps, &Apps, &[Push]),
    notes: &mut Notes,
) {
    let choices = || routes.iter().filter_map(|(route, _)| choice_of(route));
    let map_of = |choice: &PoolChoice| match choice {
        PoolChoice::Map(choice) => Some(choice.map),
        PoolChoice::One(_) | PoolChoice::Split(_) => None,
    };
    for (index, (map, place)) in maps.maps.iter().zip(&maps.places).enumerate() {
        if !choices().any(|choice| map_of(choice) == Some(index)) {
            let what = format!("no route uses map {:?}", map.name);
            let note = Note::new(Kind::Unused, place.clone(), what);
            let help =
                format!("proxy = {{ pool = {{ map = {:?}, key = \"{{host}}\" }} }}", map.name);
            notes.warn(note.help(format!("add {help} to a route, or remove the map")));
        }
    }
    // A file may name any pool.
    let is_from_file = |map: usize| maps.maps.get(map).is_some_and(|map| map.file.is_some());
    if choices().filter_map(map_of).any(is_from_file) {
        return;
    }
    let used: BTreeSet<usize> =
        routes.iter().flat_map(|(route, _)| route.pools().chain(route.also_used())).collect();
    let is_named = |name: &str| {
        let of_hub =
            |hub: &Push| hub.backend.as_ref().is_some_and(|backend| backend.uses_pool(name));
        apps.use_pool(name) || hubs.iter().any(of_hub)
    };
    for (index, pool) in pools.pools.iter().enumerate() {
        if !used.contains(&index) && !listeners.forward_to(index) && !is_named(&pool.name) {
            let what = format!("no route uses pool {:?}", pool.name);
            let note = Note::new(Kind::Unused, pools.places[index].clone(), what);
            notes.warn(
                note.help(format!("add proxy = {:?} to a route, or remove the pool", pool.name)),
            );
        }
    }
}

/// How the route chooses a pool; `None` if it sends no request to a server.
const fn choice_of(route: &Route) -> Option<&PoolChoice> {
    match &route.action {
        Action::Proxy(proxy) => Some(&proxy.pool),
        Action::Respond(_)
        | Action::Redirect(_)
        | Action::Synthetic
        | Action::Echo
        | Action::Push(_)
        | Action::Lua(_) => None,
    }
}

/// Whether `early` matches every request that `late` matches.
pub(crate) fn covers(early: &Route, late: &Route, only_one_listener: bool) -> bool {
    let methods = early.methods.is_empty()
        || (!late.methods.is_empty() && late.methods.iter().all(|m| early.methods.contains(m)));
    methods
        && covers_each(&early.hosts, &late.hosts, covers_host)
        && covers_each(&early.paths, &late.paths, covers_path)
        && covers_more(early, late, only_one_listener)
}

/// As [`covers`], for requests that have a host, a path and a method of both.
pub(crate) fn covers_more(early: &Route, late: &Route, only_one_listener: bool) -> bool {
    let listener = only_one_listener || early.listener.is_none() || early.listener == late.listener;
    listener
        && early.headers.iter().all(|early| {
            let mut same = late.headers.iter().filter(|late| late.name == early.name);
            same.any(|late| covers_test(&early.test, &late.test))
        })
        && covers_conditions(&early.conditions, &late.conditions)
        && covers_certificate(early.client_cert.as_ref(), late.client_cert.as_ref())
}

/// Whether a request that matches one of the patterns `late` also matches one of `early`. An empty list matches every
/// request.
pub(crate) fn covers_each<T>(
    early: &[T],
    late: &[T],
    covers: fn(Option<&T>, Option<&T>) -> bool,
) -> bool {
    let is_covered = |late: &T| early.iter().any(|early| covers(Some(early), Some(late)));
    early.is_empty() || (!late.is_empty() && late.iter().all(is_covered))
}

fn covers_conditions(early: &Conditions, late: &Conditions) -> bool {
    let covers_client = |early: &Addresses| {
        late.client.as_ref().is_some_and(|late| {
            late.sets.iter().all(|set| early.sets.contains(set))
                && early.networks.covers(&late.networks)
        })
    };
    early.client.as_ref().is_none_or(covers_client)
        && covers_tests(&early.query, &late.query)
        && covers_tests(&early.cookies, &late.cookies)
        && early.tables.iter().all(|condition| late.tables.contains(condition))
}

fn covers_tests(early: &[NamedTest], late: &[NamedTest]) -> bool {
    early.iter().all(|early| {
        let mut same = late.iter().filter(|late| late.name == early.name);
        same.any(|late| covers_test(&early.test, &late.test))
    })
}

/// Whether every request that meets `late` meets `early`, for the values of one name.
fn covers_test(early: &HeaderTest, late: &HeaderTest) -> bool {
    match (early, late) {
        (HeaderTest::Present, HeaderTest::Present | HeaderTest::Text(_))
        | (HeaderTest::Absent, HeaderTest::Absent) => true,
        (HeaderTest::Text(early), HeaderTest::Text(late)) => early.covers(late),
        (HeaderTest::Present, HeaderTest::Absent)
        | (HeaderTest::Absent | HeaderTest::Text(_), _) => false,
    }
}

fn covers_certificate(
    early: Option<&CertificateCondition>,
    late: Option<&CertificateCondition>,
) -> bool {
    let within = |late: &[String], early: &[String]| {
        early.is_empty() || (!late.is_empty() && late.iter().all(|text| early.contains(text)))
    };
    match (early, late) {
        (None, _) => true,
        (Some(CertificateCondition::Present), Some(CertificateCondition::Is(_))) => true,
        (Some(CertificateCondition::Is(early)), Some(CertificateCondition::Is(late))) => {
            within(&late.subjects, &early.subjects)
                && within(&late.fingerprints, &early.fingerprints)
        }
        (early, late) => early == late,
    }
}

/// Whether every request to `listener` has a client certificate that was verified by the listener.
fn always_verifies(listener: &Listener) -> bool {
    let required = listener.tls.as_ref().is_some_and(|tls| tls.client_auth == ClientAuth::Required);
    // A proxy in front presents its own certificate, not that of its client.
    required && listener.proxy_protocol.is_none()
}

pub(crate) fn covers_host(early: Option<&HostPattern>, late: Option<&HostPattern>) -> bool {
    match (early, late) {
        (None, _) => true,
        (Some(_), None) => false,
        (Some(HostPattern::Exact(early)), Some(HostPattern::Exact(late))) => early == late,
        (Some(HostPattern::Exact(_)), Some(HostPattern::Below(_))) => false,
        (
            Some(HostPattern::Below(early)),
            Some(HostPattern::Exact(late) | HostPattern::Below(late)),
        ) => late.ends_with(early.as_str()) && (late.len() > early.len() || late.starts_with('.')),
    }
}

pub(crate) fn covers_path(early: Option<&PathPattern>, late: Option<&PathPattern>) -> bool {
    let (Some(early), Some(late)) = (early, late) else {
        return early.is_none();
    };
    match (early, late) {
        (PathPattern::Exact(early), PathPattern::Exact(late)) => early == late,
        (PathPattern::Below(early), PathPattern::Exact(late) | PathPattern::Below(late)) => {
            late.starts_with(early.as_str()) || Some(late.as_str()) == early.strip_suffix('/')
        }
        (PathPattern::Below(early), PathPattern::Segments { segments, .. }) => {
            early == "/" || covers_prefix(early, segments)
        }
        (
            PathPattern::Segments { segments: early, open_end: false },
            PathPattern::Segments { segments: late, open_end: false },
        ) => early.len() == late.len() && covers_segments(early, late),
        (
            PathPattern::Segments { segments: early, open_end: true },
            PathPattern::Segments { segments: late, .. },
        ) => early.len() <= late.len() && covers_segments(early, late),
        (PathPattern::Segments { segments, open_end: false }, PathPattern::Exact(late)) => {
            let late: Vec<Segment> = literals(late);
            segments.len() == late.len() && covers_segments(segments, &late)
        }
        // An exact comparison of these pairs is not worth the effort: without it only a warning is missing.
        (PathPattern::Exact(_), PathPattern::Below(_) | PathPattern::Segments { .. })
        | (PathPattern::Segments { open_end: true, .. }, PathPattern::Exact(_))
        | (PathPattern::Segments { .. }, PathPattern::Below(_) | PathPattern::Segments { .. }) => {
            false
        }
    }
}

fn covers_prefix(early: &str, late: &[Segment]) -> bool {
    let early = literals(early.strip_suffix('/').unwrap_or(early));
    early.len() <= late.len() && covers_segments(&early, late)
}

fn covers_segments(early: &[Segment], late: &[Segment]) -> bool {
    early.iter().zip(late).all(|pair| match pair {
        (Segment::Any(_), Segment::Any(_)) => true,
        (Segment::Any(_), Segment::Literal(text)) => !text.is_empty(),
        (Segment::Literal(early), Segment::Literal(late)) => early == late,
        (Segment::Literal(_), Segment::Any(_)) => false,
    })
}

fn literals(path: &str) -> Vec<Segment> {
    let path = path.strip_prefix('/').unwrap_or(path);
    path.split('/').map(|segment| Segment::Literal(segment.to_owned())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::CertificateTest;
    use crate::pattern::{parse_host, parse_path};

    fn path_covers(early: &str, late: &str) -> bool {
        covers_path(parse_path(early).ok().as_ref(), parse_path(late).ok().as_ref())
    }

    #[test]
    fn wider_path_covers_narrower_path_but_not_the_reverse() {
        for (early, late) in [
            ("/a", "/a"),
            ("/*", "/a"),
            ("/*", "/a/*"),
            ("/a/*", "/a"),
            ("/a/*", "/a/b/*"),
            ("/a/*", "/a/{id}"),
            ("/{x}", "/{y}"),
            ("/{x}", "/a"),
            ("/u/{x}/*", "/u/{y}/p"),
        ] {
            assert!(path_covers(early, late), "{early} covers {late}");
        }
        for (early, late) in [
            ("/a", "/*"),
            ("/a/*", "/ab"),
            ("/a/*", "/*"),
            ("/a/{id}", "/a/*"),
            ("/{x}", "/"),
            ("/{x}", "/a/b"),
            ("/a/{x}", "/{y}/b"),
            ("/u/{x}", "/u/{y}/*"),
        ] {
            assert!(!path_covers(early, late), "{early} does not cover {late}");
        }
    }

    #[test]
    fn wider_certificate_condition_covers_narrower_one_but_not_the_reverse() {
        let is = |subjects: &[&str], fingerprints: &[&str]| {
            let owned = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
            Some(CertificateCondition::Is(CertificateTest {
                subjects: owned(subjects),
                fingerprints: owned(fingerprints),
            }))
        };
        let covers = |early: &Option<CertificateCondition>, late: &Option<CertificateCondition>| {
            covers_certificate(early.as_ref(), late.as_ref())
        };
        let (any, yes, no) =
            (None, Some(CertificateCondition::Present), Some(CertificateCondition::Absent));
        let (bob, both, first, bob_first) =
            (is(&["bob"], &[]), is(&["eve", "bob"], &[]), is(&[], &["1"]), is(&["bob"], &["1"]));
        let wider = [
            (&any, vec![&yes, &no, &bob, &both, &first, &bob_first]),
            (&yes, vec![&bob, &both, &first, &bob_first]),
            (&both, vec![&bob, &bob_first]),
            (&bob, vec![&bob_first]),
            (&first, vec![&bob_first]),
        ];
        let all = [&any, &yes, &no, &bob, &both, &first, &bob_first];
        for early in all {
            let narrower = wider.iter().find(|(wide, _)| *wide == early).map(|(_, all)| all);
            for late in all {
                let expected = early == late || narrower.is_some_and(|all| all.contains(&late));
                assert_eq!(covers(early, late), expected, "{early:?} {late:?}");
            }
        }
    }

    #[test]
    fn wider_host_covers_narrower_host_but_not_the_reverse() {
        let host = |text: &str| parse_host(text).ok();
        let covers = |a: &str, b: &str| covers_host(host(a).as_ref(), host(b).as_ref());
        assert!(covers("*.a.b", "c.a.b") && covers("*.a.b", "*.c.a.b") && covers("*.a.b", "*.a.b"));
        assert!(!covers("*.a.b", "a.b") && !covers("*.c.a.b", "*.a.b") && !covers("a.b", "*.a.b"));
        assert!(
            covers_host(None, host("a.b").as_ref()) && !covers_host(host("a.b").as_ref(), None)
        );
    }
}
