//! Routing: patterns, spellings of paths, and the index compared with testing every route in order.
mod path_reference;
use proptest::prelude::*;
use tidegate_config::model::{
    Action, CertificateCondition, CertificateTest, Conditions, Config, Handling, HeaderCondition,
    HeaderTest, HostPattern, Hsts, Listener, PathPattern, PoolChoice, Proxy, Route, Segment,
    TextKind, TextTest, UpstreamHost,
};
use tidegate_gate::forward::ClientCertificate;
use tidegate_gate::path::{Normalized, Reach, Readings, normalize_path};
use tidegate_gate::router::{Client, Routed, Router};
use tidegate_wire::http1::{HeadDecoder, HeadLimits};
use tidegate_wire::message::FieldStorage;

fn listener(name: &str) -> Listener {
    let text = format!("[[listener]]\nname = \"{name}\"\nbind = \"127.0.0.1:80\"\n");
    match tidegate_config::parse(&text, "the test") {
        Ok(config) => config.listeners[0].clone(),
        Err(errors) => panic!("{errors}"),
    }
}

fn any_route() -> Route {
    Route {
        listener: None,
        hosts: Vec::new(),
        paths: Vec::new(),
        methods: Vec::new(),
        headers: Vec::new(),
        client_cert: None,
        conditions: Conditions::default(),
        counting: Vec::new(),
        hsts: None,
        websocket: None,
        shed: true,
        handling: Handling::default(),
        action: Action::Synthetic,
        is_off: false,
    }
}

fn to_pool(pool: usize) -> Action {
    Action::Proxy(Proxy { pool: PoolChoice::One(pool), host: UpstreamHost::Keep, path: None })
}

/// Routes without another action each get a pool of their own.
fn config(mut routes: Vec<Route>) -> Config {
    let has_none = |(_, route): &(usize, &mut Route)| route.action == Action::Synthetic;
    for (index, route) in routes.iter_mut().enumerate().filter(has_none) {
        route.action = to_pool(index);
    }
    Config { listeners: vec![listener("a"), listener("b")], routes, ..Config::default() }
}

fn host(text: &str) -> Vec<HostPattern> {
    vec![match text.strip_prefix('*') {
        Some(suffix) => HostPattern::Below(suffix.to_owned()),
        None => HostPattern::Exact(text.to_owned()),
    }]
}

fn path(text: &str) -> Vec<PathPattern> {
    if text.contains('{') {
        let (text, open_end) = text.strip_suffix("/*").map_or((text, false), |text| (text, true));
        let segment = |part: &str| match part.strip_prefix('{') {
            Some(name) => Segment::Any(name.trim_end_matches('}').to_owned()),
            None => Segment::Literal(part.to_owned()),
        };
        let segments = text.trim_start_matches('/').split('/').map(segment).collect();
        return vec![PathPattern::Segments { segments, open_end }];
    }
    vec![match text.strip_suffix('*') {
        Some(prefix) => PathPattern::Below(prefix.to_owned()),
        None => PathPattern::Exact(text.to_owned()),
    }]
}

#[derive(Debug, PartialEq)]
enum Found {
    Route(usize),
    NoRoute,
    Refused,
}

fn find(router: &Router, listener: usize, request: &str) -> Found {
    find_for(router, listener, request, None)
}

fn find_for(
    router: &Router,
    listener: usize,
    request: &str,
    certificate: Option<ClientCertificate<'_>>,
) -> Found {
    let bytes = format!("{}\r\n", request.replace('\n', "\r\n")).into_bytes();
    let mut storage = FieldStorage::new();
    let decoded =
        HeadDecoder::default().decode_request(&bytes, &HeadLimits::default(), &mut storage);
    let Ok(Some((head, _))) = decoded else { panic!("{decoded:?}: {request}") };
    let client = Client { certificate, ..Client::default() };
    match router.route(listener, &head, &client, &mut b"left from before".to_vec()) {
        Routed::Route(index) => Found::Route(index),
        Routed::NoRoute => Found::NoRoute,
        Routed::Refused(_) => Found::Refused,
    }
}

fn get(router: &Router, host: &str, path: &str) -> Found {
    find(router, 0, &format!("GET {path} HTTP/1.1\nHost: {host}\n"))
}

#[test]
fn host_comparison_ignores_case_port_and_trailing_dot() {
    let cases = [
        ("example.com", "example.com", true),
        ("example.com", "EXAMPLE.com", true),
        ("example.com", "example.com:8080", true),
        ("example.com", "example.com.", true),
        ("example.com", "example.com.:80", true),
        ("example.com", "www.example.com", false),
        ("example.com", "example.org", false),
        ("example.com", "xexample.com", false),
        ("*.example.com", "a.example.com", true),
        ("*.example.com", "A.B.Example.COM:1", true),
        ("*.example.com", "a.example.com.", true),
        ("*.example.com", "example.com", false),
        ("*.example.com", "aexample.com", false),
        ("[::1]", "[::1]", true),
        ("[::1]", "[::1]:8080", true),
        ("[::1]", "[::2]", false),
        ("192.0.2.1", "192.0.2.1:80", true),
    ];
    for (pattern, given, takes) in cases {
        let router = Router::new(&config(vec![Route { hosts: host(pattern), ..any_route() }]));
        let wanted = if takes { Found::Route(0) } else { Found::NoRoute };
        assert_eq!(get(&router, given, "/"), wanted, "{pattern} and {given}");
    }
    let router = Router::new(&config(vec![Route { hosts: host("h"), ..any_route() }]));
    assert_eq!(find(&router, 0, "GET / HTTP/1.0\n"), Found::NoRoute);
    assert_eq!(find(&router, 0, "GET http://h/ HTTP/1.1\nHost: x\n"), Found::Route(0));
}

#[test]
fn path_patterns_match_as_documented() {
    let cases = [
        ("/json", "/json", true),
        ("/json", "/json?x=1", true),
        ("/json", "/json/", false),
        ("/json", "/JSON", false),
        ("/json", "/jso%6E", true),
        ("/json", "//json", false),
        ("/api/*", "/api", true),
        ("/api/*", "/api/", true),
        ("/api/*", "/api/a/b", true),
        ("/api/*", "/apix", false),
        ("/api/*", "/%61pi/x", true),
        ("/*", "/", true),
        ("/*", "/a", true),
        ("/users/{id}", "/users/7", true),
        ("/users/{id}", "/users/", false),
        ("/users/{id}", "/users", false),
        ("/users/{id}", "/users/7/", false),
        ("/users/{id}", "/users/7/posts", false),
        ("/users/{id}/posts", "/users/7/posts", true),
        ("/users/{id}/posts", "/users//posts", false),
        ("/users/{id}/*", "/users/7", true),
        ("/users/{id}/*", "/users/7/a/b", true),
        ("/users/{id}/*", "/users", false),
        ("/{a}/{b}", "/x/y%2Fz", true),
        ("/caf\u{e9}", "/caf%C3%A9", true),
        ("/caf%c3%a9", "/caf%C3%a9", true),
        ("/a%2fb", "/a%2Fb", true),
        ("/a%2fb", "/a/b", false),
        ("/%7Euser", "/~user", true),
        ("/@team/*", "/%40team/x", true),
        ("/%40team/*", "/@team/x", true),
        ("/a!$&'()+,:=", "/%61%21%24%26%27%28%29%2B%2c%3a%3D", true),
        ("/%2a", "/*", true),
        ("/a[1]", "/a%5B1%5d", true),
        ("/a;b", "/a%3Bb", false),
        ("/a%3fb", "/a%3Fb", true),
    ];
    for (pattern, given, takes) in cases {
        let router = Router::new(&config(vec![Route { paths: path(pattern), ..any_route() }]));
        let wanted = if takes { Found::Route(0) } else { Found::NoRoute };
        assert_eq!(get(&router, "h", given), wanted, "{pattern} and {given}");
    }
}

#[test]
fn asterisk_matches_only_routes_without_a_path() {
    let routes = vec![Route { paths: path("/*"), ..any_route() }, any_route()];
    let router = Router::new(&config(routes));
    assert_eq!(find(&router, 0, "OPTIONS * HTTP/1.1\nHost: h\n"), Found::Route(1));
    assert_eq!(find(&router, 0, "OPTIONS http://h HTTP/1.1\nHost: h\n"), Found::Route(1));
    assert_eq!(find(&router, 0, "OPTIONS / HTTP/1.1\nHost: h\n"), Found::Route(0));
}

fn is_text(kind: TextKind, text: &str) -> HeaderTest {
    HeaderTest::Text(TextTest::new(kind, text, false).expect("a valid test"))
}

#[test]
fn condition_on_a_repeated_field_holds_if_any_line_passes() {
    let kinds = [
        (TextKind::Equals, "two"),
        (TextKind::Contains, "w"),
        (TextKind::Prefix, "tw"),
        (TextKind::Suffix, "wo"),
        (TextKind::Regex, "^t.o$"),
    ];
    for (kind, text) in kinds {
        let headers = vec![HeaderCondition { name: "x-a".to_owned(), test: is_text(kind, text) }];
        let router = Router::new(&config(vec![Route { headers, ..any_route() }]));
        for (fields, wanted) in [
            ("X-A: one\nX-A: two\nX-A: three\n", Found::Route(0)),
            ("x-a: two\nX-B: one\n", Found::Route(0)),
            ("X-A: one\nX-B: two\n", Found::NoRoute),
            ("X-A: t\nX-A: o\n", Found::NoRoute),
            ("", Found::NoRoute),
        ] {
            let request = format!("GET / HTTP/1.1\nHost: h\n{fields}");
            assert_eq!(find(&router, 0, &request), wanted, "{kind:?} {fields:?}");
        }
    }
}

/// A proxy in front that sets or clears `X-Admin` may pass on the client's `X_Admin`.
#[test]
fn conditions_use_fields_of_the_exact_name_only() {
    let refuses = |name: &str, test| Route {
        headers: vec![HeaderCondition { name: name.to_owned(), test }],
        ..any_route()
    };
    let admin = is_text(TextKind::Prefix, "1");
    for (condition, fields, wanted) in [
        (refuses("x-admin", HeaderTest::Present), "X-ADMIN: 1\n", 0),
        (refuses("x-admin", HeaderTest::Present), "X_Admin: 1\n", 1),
        (refuses("x_admin", HeaderTest::Present), "X-Admin: 1\n", 1),
        (refuses("x_admin", HeaderTest::Present), "X_Admin: 1\n", 0),
        (refuses("x-admin", HeaderTest::Present), "X-Admins: 1\nXAdmin: 1\nX.Admin: 1\n", 1),
        (refuses("x-admin", HeaderTest::Absent), "x_ADMIN: 1\n", 0),
        (refuses("x-admin", admin.clone()), "X-Admin: 0\nX_Admin: 1\n", 1),
        (refuses("x-admin", admin), "X_Admin: 0\nX-Admin: 1\n", 0),
    ] {
        let router = Router::new(&config(vec![condition, any_route()]));
        let request = format!("GET / HTTP/1.1\nHost: h\n{fields}");
        assert_eq!(find(&router, 0, &request), Found::Route(wanted), "{fields}");
    }
}

#[test]
fn methods_fields_and_listeners_are_conditions() {
    let field = |name: &str, test| HeaderCondition { name: name.to_owned(), test };
    let routes = vec![
        Route { listener: Some(1), ..any_route() },
        Route { methods: vec!["POST".to_owned(), "PUT".to_owned()], ..any_route() },
        Route {
            headers: vec![
                field("x-canary", is_text(TextKind::Equals, "yes")),
                field("x-old", HeaderTest::Absent),
            ],
            ..any_route()
        },
        Route { headers: vec![field("x-any", HeaderTest::Present)], ..any_route() },
        Route { methods: vec!["GET".to_owned()], ..any_route() },
    ];
    let router = Router::new(&config(routes));
    let cases = [
        (1, "GET", "", Found::Route(0)),
        (0, "POST", "", Found::Route(1)),
        (0, "PUT", "", Found::Route(1)),
        (0, "GET", "X-Canary: yes\n", Found::Route(2)),
        (0, "GET", "X-Canary: no\nx-canary: yes\n", Found::Route(2)),
        (0, "GET", "X-Canary: YES\n", Found::Route(4)),
        (0, "GET", "X-Canary: yes\nX-Old: 1\n", Found::Route(4)),
        (0, "GET", "x-any: \n", Found::Route(3)),
        (0, "DELETE", "X-Any: 1\n", Found::Route(3)),
        (0, "HEAD", "", Found::Route(4)),
        (0, "DELETE", "", Found::NoRoute),
        (0, "get", "", Found::NoRoute),
        (9, "GET", "", Found::NoRoute),
    ];
    for (listener, method, fields, wanted) in cases {
        let request = format!("{method} / HTTP/1.1\nHost: h\n{fields}");
        assert_eq!(find(&router, listener, &request), wanted, "{request}");
    }
}

fn is(subjects: &[&str], fingerprints: &[&str]) -> CertificateCondition {
    let owned = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
    CertificateCondition::Is(CertificateTest {
        subjects: owned(subjects),
        fingerprints: owned(fingerprints),
    })
}

const BOB: ClientCertificate<'_> =
    ClientCertificate::Verified { subject: "CN=bob,O=x", fingerprint: "b0b1" };
const EVE: ClientCertificate<'_> =
    ClientCertificate::Verified { subject: "CN=eve,O=x", fingerprint: "e0e1" };
/// Bob's renewed certificate: the same subject, another fingerprint.
const NEW_BOB: ClientCertificate<'_> =
    ClientCertificate::Verified { subject: "CN=bob,O=x", fingerprint: "b0b2" };
/// A truncated subject that begins like Bob's, with an empty fingerprint. It must not match Bob's.
const ODD: ClientCertificate<'_> =
    ClientCertificate::Verified { subject: "CN=bob,O=x,...", fingerprint: "" };
const IN_FRONT: ClientCertificate<'_> =
    ClientCertificate::VerifiedInFront { common_name: "CN=bob,O=x" };

#[test]
fn only_a_certificate_verified_here_meets_a_certificate_condition() {
    let clients = [None, Some(BOB), Some(EVE), Some(NEW_BOB), Some(ODD), Some(IN_FRONT)];
    for (condition, wanted) in [
        (CertificateCondition::Present, [false, true, true, true, true, false]),
        (CertificateCondition::Absent, [true, false, false, false, false, true]),
        (is(&["CN=bob,O=x"], &[]), [false, true, false, true, false, false]),
        (is(&["CN=eve,O=x", "CN=bob,O=x"], &[]), [false, true, true, true, false, false]),
        (is(&[], &["b0b1"]), [false, true, false, false, false, false]),
        (is(&[], &["e0e1", "b0b2"]), [false, false, true, true, false, false]),
        (is(&["CN=bob,O=x"], &["b0b2", "e0e1"]), [false, false, false, true, false, false]),
        (is(&["cn=bob,o=x", "CN=bob"], &[]), [false; 6]),
    ] {
        // With few routes, which are tested in order, and with enough routes to use the index.
        for others in [0, 20] {
            let mut routes = vec![Route { client_cert: Some(condition.clone()), ..any_route() }];
            routes.extend(
                (0..others).map(|n| Route { paths: path(&format!("/{n}")), ..any_route() }),
            );
            let router = Router::new(&config(routes));
            for (client, wanted) in clients.into_iter().zip(wanted) {
                let found = find_for(&router, 0, "GET /x HTTP/1.1\nHost: h\n", client);
                let wanted = if wanted { Found::Route(0) } else { Found::NoRoute };
                assert_eq!(found, wanted, "{condition:?} and {client:?}");
            }
        }
    }
}

#[test]
fn readings_of_a_path_are_routed_for_the_same_client() {
    let bob = Some(is(&["CN=bob,O=x"], &[]));
    let routes = vec![
        Route { paths: path("/admin/*"), client_cert: bob, ..any_route() },
        Route { paths: path("/admin/*"), action: to_pool(7), ..any_route() },
        Route { action: to_pool(8), ..any_route() },
    ];
    let router = Router::new(&config(routes));
    let asked = |path: &str, client| {
        find_for(&router, 0, &format!("GET {path} HTTP/1.1\nHost: h\n"), client)
    };
    for (client, own) in [(None, 1), (Some(EVE), 1), (Some(BOB), 0), (Some(IN_FRONT), 1)] {
        assert_eq!(asked("/admin/a", client), Found::Route(own), "{client:?}");
        // Another reading matches another route of the same client, so the path is rejected.
        for odd in ["//admin/a", "/x//..;/admin", "/admin%2Fa", "/x/../admin/a"] {
            let found = asked(odd, client);
            assert_eq!(found, Found::Refused, "{odd} {client:?}");
        }
    }
    // A route for Bob only does not cause the paths of other clients to be rejected.
    let for_bob = Route {
        paths: path("/admin/*"),
        client_cert: Some(is(&["CN=bob,O=x"], &[])),
        ..any_route()
    };
    let router = Router::new(&config(vec![for_bob, any_route()]));
    let asked = |client| find_for(&router, 0, "GET //admin/a HTTP/1.1\nHost: h\n", client);
    assert_eq!((asked(None), asked(Some(EVE))), (Found::Route(1), Found::Route(1)));
    assert_eq!(asked(Some(BOB)), Found::Refused);
}

#[test]
fn dot_segments_bypass_no_route() {
    let routes = vec![
        Route { paths: path("/admin/*"), ..any_route() },
        Route { paths: path("/public/*"), ..any_route() },
    ];
    let router = Router::new(&config(routes));
    let cases = [
        ("/public/../admin/x", Found::Refused),
        ("/public/%2e%2e/admin/x", Found::Refused),
        ("/public/.%2E/admin/x", Found::Refused),
        ("/public/./../admin", Found::Refused),
        ("/./admin/x?a=/../b", Found::Refused),
        ("/x/..//../admin/", Found::Refused),
        ("/public/x/../../admin/..%61", Found::Refused),
        ("/admin/./x/../y", Found::Route(0)),
        ("/public/../public/x", Found::Route(1)),
        ("/public/../x", Found::Refused),
        ("/public//../admin/x", Found::Refused),
        ("/public/%2f/../admin/x", Found::Refused),
        ("/public/x//../../admin/x", Found::Refused),
        ("/public/./a;b", Found::Refused),
        ("/public/a%3Bb/%2e", Found::Refused),
        ("/public/a%5Cb/.", Found::Refused),
        ("/public/.;a/x", Found::Refused),
        ("/public/a%2F./x", Found::Refused),
        ("/%61dmin/x", Found::Route(0)),
        ("/public/..%2fadmin", Found::Refused),
        ("/public/..%5Cadmin", Found::Refused),
        ("/public/x%2f..%2f..%2fadmin", Found::Refused),
        ("/public/x%2f%2e%2e", Found::Refused),
        ("/../admin", Found::Refused),
        ("/public/../../admin", Found::Refused),
        ("/public/./%2%65%2%65/admin", Found::Refused),
        ("/public/%2%65%2%65/admin", Found::Refused),
        ("/public/%%32e%%32%65/admin", Found::Refused),
        ("/public/%252e%252e/admin", Found::Route(1)),
        ("/public/..;/admin", Found::Refused),
        ("/public/..;a=b/admin", Found::Refused),
        ("/public/%2e%2e%3Ba/admin", Found::Refused),
        ("/public/x%2f..;%2fadmin", Found::Refused),
        ("/public/...", Found::Route(1)),
        ("/public/.hidden", Found::Route(1)),
        ("/public/..a", Found::Route(1)),
        ("/public/a..%2fb", Found::Route(1)),
    ];
    for (given, wanted) in cases {
        assert_eq!(get(&router, "h", given), wanted, "{given}");
    }
}

#[test]
fn no_lenient_reading_of_a_path_bypasses_an_earlier_route() {
    let routes = vec![
        Route { paths: path("/admin/*"), ..any_route() },
        Route { paths: path("/exact"), ..any_route() },
        Route { paths: path("/api/{id}"), ..any_route() },
        any_route(),
    ];
    let router = Router::new(&config(routes));
    for dodge in [
        "//admin/x",
        "/x//..//admin",
        "/%2Fadmin",
        "/%2fadmin/x",
        "/.%2Fadmin",
        "/%5cadmin",
        "/admin;x",
        "/admin;x=y/z",
        "/;/admin",
        "/a;b/..//admin",
        "/%61dmin%2Fx",
        "/admin%3Bx",
        "//exact",
        "/exact;v=1",
        "/exact%3b",
        "/.;/exact",
    ] {
        assert_eq!(get(&router, "h", dodge), Found::Refused, "{dodge}");
    }
    for (path, index) in [
        ("/admin//x", 0),
        ("/admin/a;b", 0),
        ("/admin/a%2Fb", 0),
        ("/api/a%2Fb", 2),
        ("/api/a;b", 2),
        ("/exact/;x", 3),
        ("/a//b", 3),
        ("/a;b=c/d", 3),
        ("/a%2Fadmin", 3),
        ("/100%", 3),
        ("/a%20b", 3),
        ("/%", 3),
    ] {
        assert_eq!(get(&router, "h", path), Found::Route(index), "{path}");
    }
}

#[test]
fn dot_segments_are_accepted_if_both_readings_have_the_same_route() {
    let routes = vec![Route { paths: path("/admin/*"), ..any_route() }, any_route()];
    let router = Router::new(&config(routes));
    for (given, wanted) in [
        ("/a/./b/../c", Found::Route(1)),
        ("/admin/./x", Found::Route(0)),
        ("/admin/../x", Found::Refused),
        ("/%61dmin/../x", Found::Refused),
        ("/x/../admin", Found::Refused),
    ] {
        assert_eq!(get(&router, "h", given), wanted, "{given}");
    }
}

#[test]
fn equivalent_routes_do_not_reject_each_others_paths() {
    let (path, action) = (path("/login/*"), to_pool(0));
    let hsts = Some(Hsts { max_age_seconds: 1, include_subdomains: false, preload: false });
    for (last, wanted) in [
        (Route { action: to_pool(0), ..any_route() }, Found::Route(1)),
        (Route { action: to_pool(1), ..any_route() }, Found::Refused),
        (Route { action: to_pool(0), hsts, ..any_route() }, Found::Refused),
    ] {
        let first = Route { paths: path.clone(), action: action.clone(), ..any_route() };
        let router = Router::new(&config(vec![first, last.clone()]));
        for given in ["/login;jsessionid=0123", "//login", "/login/../x", "/%2Flogin"] {
            assert_eq!(get(&router, "h", given), wanted, "{given} and {last:?}");
        }
    }
}

#[test]
fn allowed_path_gives_no_access_to_other_paths() {
    let router = Router::new(&config(vec![Route { paths: path("/public/*"), ..any_route() }]));
    for (given, wanted) in [
        ("/public//../admin/secret", Found::Refused),
        ("/public/%2f/../admin/secret", Found::Refused),
        ("/public/x//../../admin/secret", Found::Refused),
        ("/x/../public/a", Found::Refused),
        ("/public/../admin/secret", Found::Refused),
        ("/public/a/../b", Found::Route(0)),
        ("/public//a;b%2Fc", Found::Route(0)),
        ("//public/a", Found::NoRoute),
    ] {
        assert_eq!(get(&router, "h", given), wanted, "{given}");
    }
}

#[test]
fn partially_decoded_paths_are_rejected() {
    let routes = vec![Route { paths: path("/a/{id}"), ..any_route() }, any_route()];
    let router = Router::new(&config(routes));
    for (given, wanted) in [
        // Servers that decode only "%2F" read this as `/a/b%5Cc`.
        ("/a%2Fb%5Cc", Found::Refused),
        ("/a%5cb%2fc", Found::Refused),
        ("/a%2Fb", Found::Refused),
        ("//a/b%2Fc", Found::Refused),
        ("/a%2Fb%2Fc", Found::Route(1)),
        ("/a%5Cb%5cc", Found::Route(1)),
        ("/b%2Fc;d//e", Found::Route(1)),
    ] {
        assert_eq!(get(&router, "h", given), wanted, "{given}");
    }
}

#[test]
fn known_bypasses_of_a_denied_path_are_rejected() {
    let routes = vec![Route { paths: path("/admin/*"), ..any_route() }, any_route()];
    let router = Router::new(&config(routes));
    for given in
        ["/y//../admin/z/;/../../q", "/y//../admin/z/%3b/../../q", "/x/..//admin/z/;/../../q"]
    {
        assert_eq!(get(&router, "h", given), Found::Refused, "{given}");
    }
}

#[test]
fn each_path_has_one_spelling() {
    let cases = [
        ("/", ""),
        ("/a/b.c", ""),
        ("/.well-known/x", ""),
        ("/a%20b", ""),
        ("/a//b", ""),
        ("/100%", "= /100%25"),
        ("/%zz", "= /%25zz"),
        ("/%252e%252E/", ""),
        ("/%41%2d%7e", "= /A-~"),
        ("/a%2fb", "= /a%2Fb"),
        ("/.", "> /"),
        ("/a/.", "> /a/"),
        ("/a/..", "> /"),
        ("/a/b/..", "> /a/"),
        ("/a/./b", "> /a/b"),
        ("/a/../b", "> /b"),
        ("/a/b/c/./../../g", "> /a/g"),
        ("/%2e/a%40", "> /a@"),
        ("/%2a%3b%3F", "= /*%3B%3F"),
    ];
    for (given, wanted) in cases {
        let spelling = match normalize_path(given, Reach::UNLIMITED, &mut Vec::new()) {
            Normalized::Same => String::new(),
            Normalized::Ambiguous(readings) => match first_reading(readings) {
                path if path == given => String::new(),
                path => format!("= {path}"),
            },
            Normalized::Equivalent(path) => format!("= {path}"),
            Normalized::Changed { resolved, .. } => format!("> {resolved}"),
            Normalized::Refused(text) => text.to_owned(),
        };
        assert_eq!(spelling, wanted, "{given}");
    }
    let refused = [
        "/..", "/a/../..", "/%2e%2e/", "/a/..\\b", "/a\\..", "/..%2f", "/%2f..", "/..;", "/.;",
        "/a/%5C.",
    ];
    for refused in refused.into_iter().chain([
        "/%2%65", "/%%32%65", "/%%32e", "/a%2%45/", "/a//../b", "/./a%2f", "/%00", "/a%00b//",
    ]) {
        let mut scratch = Vec::new();
        let result = normalize_path(refused, Reach::UNLIMITED, &mut scratch);
        assert!(matches!(result, Normalized::Refused(_)), "{refused}: {result:?}");
    }
}

/// The canonical form of an ambiguous path.
fn first_reading(mut readings: Readings<'_>) -> String {
    readings.next().expect("each path has a canonical spelling").to_owned()
}

/// What the reference makes of a path, in words.
fn reference(path: &str) -> String {
    use path_reference::Normalized;
    let mut scratch = Vec::new();
    let normal = match path_reference::normalize_path(path, &mut scratch) {
        Normalized::Same => path.to_owned(),
        Normalized::Equivalent(normal) => normal.to_owned(),
        Normalized::Changed { resolved, literal } => return format!("{resolved} or {literal}"),
        Normalized::Refused(_) => return "refused".to_owned(),
    };
    if !path_reference::is_ambiguous(path) {
        return normal;
    }
    let mut all = std::collections::BTreeSet::from([normal]);
    let mut readings = path_reference::Readings::new(path, &mut scratch);
    while let Some(reading) = readings.next() {
        all.insert(reading.to_owned());
    }
    format!("{all:?}")
}

/// What `normalize_path` makes of a path, in the same words.
fn normalized(path: &str) -> String {
    match normalize_path(path, Reach::UNLIMITED, &mut Vec::new()) {
        Normalized::Same => path.to_owned(),
        Normalized::Equivalent(normal) => normal.to_owned(),
        Normalized::Changed { resolved, literal } => format!("{resolved} or {literal}"),
        Normalized::Refused(_) => "refused".to_owned(),
        Normalized::Ambiguous(mut readings) => {
            let mut all = std::collections::BTreeSet::new();
            while let Some(reading) = readings.next() {
                all.insert(reading.to_owned());
            }
            format!("{all:?}")
        }
    }
}

/// The decision for a GET of `path` by the reference and by testing every route.
fn route_by_reference(routes: &[Route], host: &str, path: &str) -> Found {
    use path_reference::Normalized;
    let find = |path: &str| routes.iter().position(|route| naive(route, host, path));
    let mut scratch = Vec::new();
    let found = match path_reference::normalize_path(path, &mut scratch) {
        Normalized::Same => find(path),
        Normalized::Equivalent(normal) => find(normal),
        Normalized::Changed { resolved, literal } => match (find(resolved), find(literal)) {
            (resolved, literal) if resolved == literal => resolved,
            _ => return Found::Refused,
        },
        Normalized::Refused(_) => return Found::Refused,
    };
    let Some(index) = found else { return Found::NoRoute };
    if path_reference::is_ambiguous(path) {
        let mut readings = path_reference::Readings::new(path, &mut scratch);
        while let Some(reading) = readings.next() {
            if find(reading).is_some_and(|other| other < index) {
                return Found::Refused;
            }
        }
    }
    Found::Route(index)
}

/// Pieces of paths: what servers read differently, what they do not, and long runs of both.
fn odd_path() -> impl Strategy<Value = String> {
    let pieces = prop::sample::select(vec![
        "/", "/", "/", "a", "a", "b", "c", "/a", "/b", "/a/b", "/a/b/c", "/c/", ".", "..", "/.",
        "/..", "%2F", "%2f", "%5C", "%5c", ";", ";x", "%3B", "%3b", "%2e", "%2E", "%61", "%20",
        "%zz", "%", "%2", "%25", "%2%65", "%00", "%C3%A9", "//", "@", "%40",
    ]);
    let long = (prop::collection::vec(pieces.clone(), 1..5), 1..90_usize)
        .prop_map(|(unit, times)| unit.concat().repeat(times));
    let part = prop_oneof![8 => pieces.clone().prop_map(str::to_owned), 1 => long];
    let any = prop::collection::vec(part, 0..9);
    // Mostly refused, if dots and both kinds of slashes are among the pieces.
    let delimiters = prop::sample::select(vec!["/", "/", "%2F", ";", "%3B", "a", "b"]);
    let unit = prop::collection::vec(delimiters, 1..6);
    let repeated = (unit, 1..20_usize).prop_map(|(unit, times)| unit.concat().repeat(times));
    let ambiguous = prop::collection::vec(repeated, 0..6);
    prop_oneof![any, ambiguous].prop_map(|parts| format!("/{}", parts.concat()))
}

#[test]
fn parts_that_no_pattern_sees_do_not_change_the_readings_of_others() {
    let config = config(["/", "/{n}/*"].map(|at| Route { paths: path(at), ..any_route() }).into());
    let router = Router::new(&config);
    for given in [
        "/%3B/%3B/%3B/%2Fa",
        "/%3B/%3B/%3B/%2F",
        "//////;/;/;a%2Fb",
        "/;a/;a/;a/;a%2Fa/b",
        "/;%2F;%2F;%2F;%2F/a",
    ] {
        assert_eq!(
            get(&router, "a.x", given),
            route_by_reference(&config.routes, "a.x", given),
            "{given}"
        );
    }
}

/// Whether the route matches a GET of `path` at `host`, by the definition of its patterns.
fn naive(route: &Route, host: &str, path: &str) -> bool {
    let host_takes = match route.hosts.first() {
        None => true,
        Some(HostPattern::Exact(name)) => name == host,
        Some(HostPattern::Below(suffix)) => host.len() > suffix.len() && host.ends_with(suffix),
    };
    let path_takes = match route.paths.first() {
        None => true,
        Some(PathPattern::Exact(exact)) => exact == path,
        Some(PathPattern::Below(prefix)) => {
            path.starts_with(prefix) || format!("{path}/") == *prefix
        }
        Some(PathPattern::Segments { segments, open_end }) => {
            let parts: Vec<&str> = path[1..].split('/').collect();
            let enough =
                parts.len() == segments.len() || (*open_end && parts.len() > segments.len());
            enough
                && segments.iter().zip(&parts).all(|(segment, part)| match segment {
                    Segment::Literal(text) => text == part,
                    Segment::Any(_) => !part.is_empty(),
                })
        }
    };
    host_takes && path_takes
}

fn routes() -> impl Strategy<Value = Vec<Route>> {
    let hosts = prop::sample::select(vec![
        "",
        "",
        "a.x",
        "b.x",
        "x",
        "*.x",
        "*.a.x",
        "*.9.8.7.6.5.4.3.2.1.x",
    ]);
    let paths = prop::sample::select(vec![
        "",
        "/",
        "/a",
        "/a/b",
        "/b",
        "/a/*",
        "/*",
        "/a/{n}",
        "/{n}/b",
        "/{n}/*",
        "/{m}/{n}/*",
        "/a/b/*",
        "/a/{n}/c/*",
        "/a/b/c/d/e/f/g/h/i/*",
        "/a/b/c/d/e/f/g/h/{n}/j",
    ]);
    let route = (hosts, paths, any::<bool>()).prop_map(|(on, at, only_second)| Route {
        listener: only_second.then_some(1),
        hosts: if on.is_empty() { Vec::new() } else { host(on) },
        paths: if at.is_empty() { Vec::new() } else { path(at) },
        ..any_route()
    });
    prop::collection::vec(route, 0..40)
}

proptest! {
    #[test]
    fn index_agrees_with_testing_every_route(
        routes in routes(),
        host in prop::sample::select(vec!["x", "a.x", "b.x", "c.a.x", "y", "0.9.8.7.6.5.4.3.2.1.x"]),
        path in prop::sample::select(vec![
            "/", "/a", "/a/", "/a/b", "/a/b/", "/b", "/b/b", "/a/b/c", "/c",
            "/a/b/c/d/e/f/g/h/i", "/a/b/c/d/e/f/g/h/i/j", "/a/b/c/d/e/f/g/h/y/j",
        ]),
        listener in 0..2_usize,
    ) {
        let router = Router::new(&config(routes.clone()));
        let takes = |route: &Route| {
            route.listener.is_none_or(|only| only == listener) && naive(route, host, path)
        };
        let wanted = routes.iter().position(takes).map_or(Found::NoRoute, Found::Route);
        let found = find(&router, listener, &format!("GET {path} HTTP/1.1\nHost: {host}\n"));
        prop_assert_eq!(found, wanted);
    }

    #[test]
    fn normalised_path_is_canonical_and_has_no_dot_segments(path in "(/([a.%2eEfF5cC]|\\.\\.|%2[eEfF]){0,4}){1,5}") {
        let mut scratch = Vec::new();
        let normal = match normalize_path(&path, Reach::UNLIMITED, &mut scratch) {
            Normalized::Same => path.clone(),
            Normalized::Ambiguous(readings) => first_reading(readings),
            Normalized::Equivalent(normal) => normal.to_owned(),
            Normalized::Changed { resolved, .. } => resolved.to_owned(),
            Normalized::Refused(_) => return Ok(()),
        };
        prop_assert!(normal.starts_with('/'));
        prop_assert!(!normal.split('/').any(|segment| segment == "." || segment == ".."));
        let mut again = Vec::new();
        match normalize_path(&normal, Reach::UNLIMITED, &mut again) {
            Normalized::Same => {}
            Normalized::Ambiguous(readings) => prop_assert_eq!(first_reading(readings), normal),
            other => prop_assert!(false, "{normal}: {other:?}"),
        }
    }

    #[test]
    fn paths_are_normalised_as_by_the_reference(path in odd_path()) {
        prop_assert_eq!(normalized(&path), reference(&path), "{}", path);
    }

    #[test]
    fn odd_paths_are_routed_as_by_the_reference(routes in routes(), paths in prop::collection::vec(odd_path(), 8)) {
        let routes: Vec<Route> = routes.into_iter().filter(|route| route.listener.is_none()).collect();
        let config = config(routes);
        let router = Router::new(&config);
        for path in paths {
            let wanted = route_by_reference(&config.routes, "a.x", &path);
            prop_assert_eq!(get(&router, "a.x", &path), wanted, "{}", path);
        }
    }

    #[test]
    fn no_server_reads_a_path_as_that_of_an_earlier_route(
        routes in routes(),
        path in "(/([abAB]|%61|%2[fFeE]|%5[cC]|;|%3[bB]|\\.){0,4}){1,6}",
        order in Just(vec![
            merge_slashes, decode_slashes, decode_backslashes, decode_semicolons, cut_parameters,
            remove_dots as fn(&str) -> String,
        ])
        .prop_shuffle(),
        subset in 0..64_usize,
    ) {
        let config = config(routes.iter().filter(|route| route.listener.is_none()).cloned().collect());
        if let Found::Route(index) = get(&Router::new(&config), "a.x", &path) {
            let chosen = order.iter().enumerate().filter(|(bit, _)| subset >> bit & 1 == 1);
            let read = chosen.fold(decode_letters(&path), |path, (_, step)| step(&path));
            let other = config.routes.iter().position(|route| naive(route, "a.x", &read));
            prop_assert!(other.is_none_or(|other| other >= index), "{path} is read as {read}");
        }
    }
}

fn decode_letters(path: &str) -> String {
    path.replace("%2e", ".").replace("%2E", ".").replace("%61", "a")
}

fn merge_slashes(path: &str) -> String {
    let mut merged = path.to_owned();
    while merged.contains("//") {
        merged = merged.replace("//", "/");
    }
    merged
}

fn decode_slashes(path: &str) -> String {
    path.replace("%2f", "/").replace("%2F", "/")
}

fn decode_backslashes(path: &str) -> String {
    path.replace("%5c", "/").replace("%5C", "/")
}

fn decode_semicolons(path: &str) -> String {
    path.replace("%3b", ";").replace("%3B", ";")
}

fn cut_parameters(path: &str) -> String {
    let names = path.split('/').map(|segment| segment.split(';').next().unwrap_or_default());
    names.collect::<Vec<_>>().join("/")
}

/// Resolves dot segments. ".." at the root is ignored, as many servers do.
fn remove_dots(path: &str) -> String {
    let mut kept: Vec<&str> = Vec::new();
    for segment in path[1..].split('/') {
        match segment {
            "." => {}
            ".." => drop(kept.pop()),
            _ => kept.push(segment),
        }
    }
    let ends_open = path.ends_with("/.") || path.ends_with("/..");
    format!("/{}{}", kept.join("/"), if ends_open && !kept.is_empty() { "/" } else { "" })
}
