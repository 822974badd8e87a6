//! The text of explanations, for requests that each part of a configuration decides about.

use std::collections::BTreeMap;

use super::*;

const FILE: &str = "[[listener]]\nbind = \"127.0.0.1:80\"\n\
    [[route]]\nhost = \"b.example\"\nrespond = {}\n\
    [[route]]\npath = \"/v2/*\"\nrespond = {}\n\
    [[route]]\npath = \"/v1/*\"\nmethod = \"POST\"\nrespond = {}\n\
    [[route]]\npath = \"/v1/*\"\nclient = \"10.0.0.0/8\"\nrespond = {}\n\
    [[route]]\npath = \"/v1/*\"\nproxy = { pool = \"app\", path = \"/in/{rest}\" }\n\
    request-headers = { set = { x-client = \"{client}\" } }\ndeny = \"198.51.100.0/24\"\n\
    [pool.app]\nservers = [\"127.0.0.1:8000\"]\n";

fn answer(request: &str) -> Result<String, String> {
    ask(FILE, request, &[])
}

fn ask(file: &str, request: &str, fields: &[&str]) -> Result<String, String> {
    let config = tidegate_config::parse(file, "the test").unwrap_or_else(|e| panic!("{e}"));
    let client = IpAddr::from([192, 0, 2, 7]);
    let fields: Vec<String> = fields.iter().map(|field| (*field).to_owned()).collect();
    let question = ExplainedRequest { request, fields: &fields, client, listener: None };
    explain(&config, &question).map(|explanation| explanation.text)
}

#[test]
fn parts_of_an_explanation_are_separate() {
    let config = tidegate_config::parse(FILE, "the test").unwrap_or_else(|e| panic!("{e}"));
    let ask = |request| {
        let client = IpAddr::from([192, 0, 2, 7]);
        let question = ExplainedRequest { request, fields: &[], client, listener: None };
        explain(&config, &question).expect("an explanation")
    };
    let found = ask("GET http://a.example/v1/x");
    assert_eq!((found.listener.as_str(), found.route), ("127.0.0.1:80", Some(4)));
    let reasons = ["`host`", "`path`", "`method`", "`client`"];
    let earlier = reasons.map(|name| format!("{name} does not match"));
    let named = found.earlier.iter().enumerate();
    assert!(
        named.clone().all(|(at, (route, why))| *route == at && *why == earlier[at]),
        "{found:?}"
    );
    assert_eq!(named.count(), earlier.len());
    let effects: Vec<&str> = found.effects().collect();
    assert_eq!(effects, ["action: proxy to pool \"app\", whose server receives:"]);
    let lines: Vec<&str> = found.forwarded().collect();
    assert_eq!(lines[0], "GET /in/x HTTP/1.1");
    assert!(lines.contains(&"x-client: 192.0.2.7"), "{lines:?}");
    let found = ask("GET http://a.example/v3");
    let effects: Vec<&str> = found.effects().collect();
    assert_eq!((found.route, effects), (None, vec!["no route matches the request: 404"]));
    assert_eq!((found.earlier.len(), found.forwarded().count()), (5, 0));
}

#[test]
fn url_that_no_listener_serves_is_refused() {
    for (request, reason) in [
        ("GET https://a.example/x", "no listener serves https; the listeners are: "),
        ("GET http://a.example:9999/x", "no listener has port 9999; the listeners are: "),
        ("GET https://a.example:80/x", "so it receives no https requests"),
    ] {
        let text = answer(request).expect_err(request);
        assert!(text.contains(reason), "{request}: {text}");
    }
    let trusting = FILE.replacen(":80\"\n", ":80\"\ntrusted = [\"10.0.0.0/8\"]\n", 1);
    let text = ask(&trusting, "GET https://a.example/x", &[]).expect("an explanation");
    assert!(text.contains("a proxy in front"), "{text}");
}

#[test]
fn only_what_happens_is_printed() {
    let file = "[[listener]]\nbind = \"127.0.0.1:80\"\n\
        [[listener]]\nname = \"up\"\nbind = \"127.0.0.1:81\"\nredirect-to-https = true\n\
        [[route]]\npath = \"/m\"\nmaintenance = {}\nproxy = \"app\"\n\
        [[route]]\npath = \"/d\"\ndeny = \"192.0.2.0/24\"\nproxy = \"app\"\n\
        [[route]]\npath = \"/a\"\nauth = { basic = \"users\" }\nproxy = \"app\"\n\
        [[route]]\npath = \"/c\"\ncors = { origins = \"https://a.example\" }\nproxy = \"app\"\n\
        [[route]]\npath = \"/r/*\"\nredirect = \"https://new.example{path}{query}\"\n\
        [[route]]\nproxy = \"app\"\n[pool.app]\nservers = [\"127.0.0.1:8000\"]\n";
    let preflight = ["Origin: https://a.example", "Access-Control-Request-Method: PUT"];
    for (request, fields, last) in [
        ("GET http://a/m", &[][..], "  503: the route is in maintenance\n"),
        ("GET http://a/d", &[], "  403: `allow` or `deny` refuses the client\n"),
        (
            "GET http://a/a",
            &[],
            "  401: the request has no user name and password (Authorization: Basic)\n",
        ),
        (
            "GET http://a/a",
            &["Authorization: Basic Ym9iOng="],
            "  401: the file of `auth` has no user of this name\n",
        ),
        (
            "OPTIONS http://a/c",
            &preflight,
            "  204: `cors` answers the preflight request, and allows the origin\n",
        ),
        (
            "GET http://a/r/x?y=1",
            &[],
            "  action: redirect with 302, Location: https://new.example/r/x?y=1\n",
        ),
        ("GET http://a:81/x", &[], "the listener redirects to https: 301, Location: https://a/x\n"),
    ] {
        let text = ask(file, request, fields).expect("an explanation");
        assert!(text.ends_with(last) && !text.contains("receives"), "{request}: {text}");
    }
    let text = ask(file, "GET http://a/x", &["Content-Length: 5"]).expect("an explanation");
    assert!(text.to_ascii_lowercase().contains("    connection: close\n"), "{text}");
    let text = ask(file, "GET http://a/c", &preflight).expect("an explanation");
    assert!(text.contains("whose server receives"), "{text}");
}

#[test]
fn chosen_pool_is_named_with_its_reason() {
    let file = "[[listener]]\nbind = \"127.0.0.1:80\"\n\
        [[route]]\npath = \"/s\"\nsplit = { pools = { app = 3, next = 1 } }\n\
        [[route]]\npath = \"/k\"\nsplit = { pools = { app = 0, next = 1 }, by = \"host\" }\n\
        [[route]]\npath = \"/d\"\n\
        proxy = { pool = { map = \"hosts\", key = \"{host}\", default = \"app\" } }\n\
        [[route]]\nproxy = { pool = { map = \"hosts\", key = \"{host}\" } }\n\
        [map.hosts]\nentries = { \"b.example\" = \"next\" }\n\
        [pool.app]\nservers = [\"127.0.0.1:1\"]\n[pool.next]\nservers = [\"127.0.0.1:2\"]\n";
    for (url, expected) in [
        (
            "http://a/s",
            "  split: pool \"app\" gets 75.00 % of all requests\n  split: pool \"next\" gets 25",
        ),
        ("http://a/s", "  action: proxy to pool \"app\""),
        (
            "http://a/k",
            "  split: `by` decides the pool of this request\n  action: proxy to pool \"next\"",
        ),
        (
            "http://B.example:80/d",
            "  pool: the value of \"b.example\" in map \"hosts\"\n  action: proxy to pool \"next\"",
        ),
        (
            "http://c/d",
            "  pool: `default`, because \"c\" is not in map \"hosts\"\n  action: proxy to pool \"app\"",
        ),
        ("http://c/", "  404: \"c\" is not in map \"hosts\", and `pool` has no `default`\n"),
    ] {
        let text = ask(file, &format!("GET {url}"), &[]).expect("an explanation");
        assert!(text.contains(expected), "{url}: {text}");
    }
}

#[test]
fn each_earlier_route_has_its_reason() {
    let text = answer("GET http://a.example/v1/x?y=1").expect("an explanation");
    for line in [
        "route 1: no, `host` does not match\n",
        "route 2: no, `path` does not match\n",
        "route 3: no, `method` does not match\n",
        "route 4: no, `client` does not match\n",
        "listener \"127.0.0.1:80\"\n",
        "route 5: yes\n  action: proxy to pool \"app\"",
        "    GET /in/x?y=1 HTTP/1.1\n",
        "    x-client: 192.0.2.7\n",
    ] {
        assert!(text.contains(line), "{line:?} is not in\n{text}");
    }
}

#[test]
fn unmet_condition_and_edits_are_named() {
    let file = "[[listener]]\nbind = \"127.0.0.1:80\"\n\
        [[route]]\nquery = { q = true }\ncookies = { c = true }\nclient = \"10.0.0.0/8\"\nrespond = {}\n\
        [[route]]\ncookies = { c = \"1\" }\nclient = \"10.0.0.0/8\"\nrespond = {}\n\
        [[route]]\nclient = \"10.0.0.0/8\"\nrespond = {}\n\
        [[route]]\nproxy = \"app\"\nsecurity-headers = true\n\
        request-headers = { set = { x-a = \"new\" }, remove = [\"x-debug\"] }\n\
        response-headers = { set = { x-from = \"{host}\" }, add = { vary = \"a\" }, remove = [\"server\"] }\n\
        [pool.app]\nservers = [\"127.0.0.1:8000\"]\n";
    let fields = ["X_Debug: 1", "X-A: old", "X-B: 1"];
    let text = ask(file, "GET http://a/x", &fields).expect("an explanation");
    for line in [
        "route 1: no, `query` does not match (q)\n",
        "route 2: no, `cookies` does not match (c)\n",
        "route 3: no, `client` does not match\n",
        "    X-B: 1\n",
        "  `request-headers` removed or replaced: X_Debug, X-A\n",
        "  removed from the response: server\n  set in the response: x-from: a\n",
        "  added in the response: vary: a\n  `security-headers` adds fields",
    ] {
        assert!(text.contains(line), "{line:?} is not in\n{text}");
    }
}

#[test]
fn path_that_was_meant_as_a_prefix_is_named() {
    let file = "[[listener]]\nbind = \"127.0.0.1:80\"\n[[route]]\npath = \"/api\"\nrespond = {}\n";
    let hint = "  \"/api\" matches only this path; \"/api/*\" also matches the paths below it\n";
    for (path, is_hinted) in [("/api/x", true), ("/api/", true), ("/apis", false), ("/", false)] {
        let text = ask(file, &format!("GET http://a{path}"), &[]).expect("an explanation");
        assert_eq!(text.contains(hint), is_hinted, "{path}: {text}");
    }
}

#[test]
fn requests_without_a_route_and_wrong_requests_are_named() {
    let text = answer("http://a.example/other").expect("an explanation");
    assert!(text.ends_with("no route matches the request: 404\n"), "{text}");
    let text = answer("GET http://a.example//v2/../x").expect("an explanation");
    assert!(text.contains("refused: 400"), "{text}");
    for wrong in ["GET /path", "GET http://a.example?x", "GET http://a b/", "GET ftp://a/"] {
        assert!(answer(wrong).is_err(), "{wrong}");
    }
    let limited =
        FILE.replacen(":80\"\n", ":80\"\nlimits = { request-line = \"100B\", body = \"9B\" }\n", 1);
    let long = format!("GET http://a.example/{}", "x".repeat(100));
    let text = ask(&limited, &long, &[]).expect_err("a long request line");
    assert!(text.contains("refuses the request: 414"), "{text}");
    let text = ask(&limited, "PUT http://a.example/", &["Content-Length: 10"]).expect("it is");
    assert!(text.contains("413: the body is longer than `body`"), "{text}");
}

/// A route with placeholders in its path and its fields, on a listener with TLS.
fn with_names(auth: &str) -> String {
    format!(
        "[[listener]]\nbind = \"127.0.0.1:443\"\ntls = {{ certificates = [{{ cert = \"a.pem\", key = \"a.key\" }}] }}\n\
        [[listener]]\nbind = \"127.0.0.1:80\"\n\
        [[route]]\npath = \"/r/*\"\n{auth}\nproxy = {{ pool = \"app\", path = \"/u/{{user}}/{{rest}}\" }}\n\
        request-headers = {{ set = {{ x-user = \"{{user}}\", x-sni = \"{{tls:sni}}\" }} }}\n\
        response-headers = {{ set = {{ x-by = \"{{user}}\" }} }}\n\
        [pool.app]\nservers = [\"127.0.0.1:8000\"]\n"
    )
}

/// The same configuration, whose files have this content.
fn ask_with(config: &Config, request: &str, fields: &[&str]) -> String {
    let client = IpAddr::from([192, 0, 2, 7]);
    let fields: Vec<String> = fields.iter().map(|field| (*field).to_owned()).collect();
    let question = ExplainedRequest { request, fields: &fields, client, listener: None };
    explain(config, &question).expect("an explanation").text
}

#[test]
fn user_and_server_name_are_those_of_the_request() {
    let text = with_names("auth = { basic = \"users\" }");
    let mut config = tidegate_config::parse(&text, "the test").unwrap_or_else(|e| panic!("{e}"));
    let auth = config.routes[0].handling.auth.as_mut().expect("it is set");
    auth.users = BTreeMap::from([("bob".to_owned(), "$2y$05$x".to_owned())]).into();
    let bob = "Authorization: Basic Ym9iOnNlY3JldA==";
    let text = ask_with(&config, "GET https://A.example:443/r/x", &[bob]);
    for line in ["    GET /u/bob/x HTTP/1.1\n", "    x-user: bob\n", "    x-sni: A.example\n"] {
        assert!(text.contains(line), "{line:?} is not in\n{text}");
    }
    assert!(text.contains("  set in the response: x-by: bob\n"), "{text}");
    for request in ["GET https://192.0.2.1/r/x", "GET https://[::1]:443/r/x", "GET http://a/r/x"] {
        let text = ask_with(&config, request, &[bob]);
        assert!(text.contains("x-user") && !text.contains("x-sni"), "{request}: {text}");
    }
}

/// A token with the claims {"sub":"bob","role":"admin"} and a wrong signature.
const TOKEN: &str =
    "Authorization: Bearer eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJib2IiLCJyb2xlIjoiYWRtaW4ifQ.AAAA";

#[test]
fn tokens_are_verified_if_the_keys_are_known() {
    let fetched = with_names("auth = { jwt = { keys = \"https://id.example/keys\" } }");
    let config = tidegate_config::parse(&fetched, "the test").unwrap_or_else(|e| panic!("{e}"));
    let text = ask_with(&config, "GET http://a/r/x", &[TOKEN]);
    assert!(text.contains("    GET /u/bob/x HTTP/1.1\n"), "{text}");
    assert!(text.contains("its keys are not fetched here"), "{text}");
    let text = ask_with(&config, "GET http://a/r/x", &["Authorization: Bearer a.b.c"]);
    assert!(text.ends_with("  401: the token is not valid\n"), "{text}");
    let known = with_names("auth = { jwt = { secret-file = \"secret\" } }");
    let mut config = tidegate_config::parse(&known, "the test").unwrap_or_else(|e| panic!("{e}"));
    let jwt = config.routes[0].handling.jwt.as_mut().expect("it is set");
    jwt.content.0 = b"0123456789abcdef0123456789abcdef".as_slice().into();
    for (fields, last) in [
        (&[][..], "  401: this route requires a token\n"),
        (&[TOKEN], "  401: the token is not valid\n"),
        (&[TOKEN, TOKEN], "  400: the request has more than one token, or a malformed token\n"),
    ] {
        let text = ask_with(&config, "GET http://a/r/x", fields);
        assert!(text.ends_with(last) && !text.contains("receives"), "{fields:?}: {text}");
    }
    let signed = "Authorization: Bearer eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJzdWIiOiJib2IiLCJyb2xlIjoi\
        YWRtaW4iLCJhdWQiOlsiYXBwIiwieCJdLCJpc3MiOiJpZCIsImV4cCI6MjAwMDAwMDAwMH0.DNbGnHc8yry6SeeExBsRyun-s9J-_PzIkiwAWcBsJ1A";
    let text = ask_with(&config, "GET http://a/r/x", &[signed]);
    assert!(text.contains("    x-user: bob\n") && !text.contains("401"), "{text}");
}

#[test]
fn request_that_is_not_forwarded_reaches_no_server() {
    let file = "[[listener]]\nbind = \"127.0.0.1:80\"\n\
        [[route]]\npath = \"/s\"\nproxy = \"app\"\nbandwidth = { down = \"1MiB/s\" }\n\
        response-headers = { set = { x-q = \"{query:q}\" } }\n\
        [[route]]\npath = \"/q\"\nproxy = \"app\"\n\
        request-headers = { set = { x-q = \"{query:q}\" } }\n\
        [[route]]\npath = \"/p/*\"\nproxy = { pool = \"app\", path = \"/{query:q}\" }\n\
        [pool.app]\nservers = [\"127.0.0.1:8000\"]\n";
    let why = "a value of the request is not allowed in the field or path that this route writes";
    let not_sent = format!("  400: {why}; no request is sent to a server of pool \"app\"\n");
    for (target, last) in [
        ("/s?q=%0d", format!("  400: {why} (`response-headers`)\n")),
        ("/q?q=%0d", not_sent.clone()),
        ("/p/x?q=..", not_sent),
    ] {
        let text = ask(file, &format!("GET http://a{target}"), &[]).expect("an explanation");
        assert!(text.ends_with(&format!(": yes\n{last}")), "{text}");
        assert!(!text.contains("receives"), "{text}");
    }
}

#[test]
fn settings_that_apply_are_named() {
    let file = "[[listener]]\nbind = \"127.0.0.1:80\"\n\
        [[route]]\npath = \"/a\"\nproxy = \"app\"\nauth = { ask = \"id\", path = \"/v\", copy = [\"x-user\"] }\n\
        request-headers = { remove = [\"x-debug\"] }\ntimeouts = { response-head = \"5m\", body = \"1500ms\" }\n\
        maintenance = { active = false, name = \"site\" }\ncors = { origins = \"https://a.example\" }\n\
        [[route]]\npath = \"/m\"\nproxy = \"id\"\nmaintenance = { except = \"192.0.2.0/24\" }\n\
        [pool.app]\nservers = [\"127.0.0.1:8000\"]\nsticky = { cookie = \"SRV\" }\n\
        [pool.id]\nservers = [\"127.0.0.1:8000\"]\nsticky = { by = \"header:x-key\" }\n";
    let fields = ["X-User: eve", "X-Debug: 1", "Origin: https://a.example"];
    let text = ask(file, "GET http://a/a", &fields).expect("an explanation");
    for line in [
        "  `maintenance` is not active; `tidegate ctl set maintenance site on` closes the route\n",
        "  `request-headers` removed or replaced: X-Debug\n",
        "  removed, because only the response of the server of `ask` states them (`copy`): X-User\n",
        "  `sticky` of the pool: the cookie \"SRV\" names the server\n",
        "  `timeouts` of the route: response-head 300 s\n  `timeouts` of the route: body 1500 ms\n",
        "  `cors` allows pages of https://a.example to read the response\n",
    ] {
        assert!(text.contains(line), "{line:?} is not in\n{text}");
    }
    let text = ask(file, "GET http://a/a", &["Origin: https://b.example"]).expect("it is");
    assert!(text.contains("  `cors` does not allow pages of this origin"), "{text}");
    let text = ask(file, "GET http://a/m", &[]).expect("an explanation");
    for line in
        ["  `except` of `maintenance` admits the client\n", "requests with the same value of `by`"]
    {
        assert!(text.contains(line), "{line:?} is not in\n{text}");
    }
}

#[test]
fn failed_condition_of_several_is_named() {
    let file = "[[listener]]\nbind = \"127.0.0.1:80\"\n\
        [[route]]\nheaders = { x-a = true, x-b = true, x-c = true }\nrespond = {}\n\
        [[route]]\nquery = { a = true, b = true }\nrespond = {}\n\
        [[route]]\nhost = [\"a\", \"b\"]\ncookies = { a = true, b = \"2\" }\nrespond = {}\n\
        [[route]]\nrespond = {}\n";
    let fields = ["X-A: 1", "X-C: 1", "Cookie: a=1; b=1"];
    let text = ask(file, "GET http://a/x?a=1", &fields).expect("an explanation");
    for line in [
        "route 1: no, `headers` does not match (x-b)\n",
        "route 2: no, `query` does not match (b)\n",
        "route 3: no, `cookies` does not match (b)\n",
    ] {
        assert!(text.contains(line), "{line:?} is not in\n{text}");
    }
}
