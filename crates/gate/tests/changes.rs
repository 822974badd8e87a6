//! What a route changes in requests and responses, from the configuration to the bytes.
//! In: routes as in a file, requests. Out: the request head for the server; the fields for the client.
//! Checks: no value of a request splits a line, adds a field or changes the framing.

use core::net::IpAddr;

use proptest::prelude::*;
use tidegate_config::model::{Action, Config};
use tidegate_gate::changes::{Changes, HookChanges};
use tidegate_gate::client_fields::ClientAddressFields;
use tidegate_gate::filter::Filtered;
use tidegate_gate::forward::{
    ForwardFault, RequestContext, ResponseContext, encode_downstream_response, encode_interim,
    encode_upstream_request,
};
use tidegate_gate::handling::{Handlings, RouteHandling};
use tidegate_gate::identity::Identity;
use tidegate_gate::respond::{self, AnswerContext};
use tidegate_gate::rewrite::MatchedPath;
use tidegate_gate::scheme::Scheme;
use tidegate_gate::template::{PlaceFault, RENDERED_BYTES_MAX, Values};
use tidegate_wire::http1::{HeadDecoder, HeadLimits, ResponseEncoder, ResponseLimits};
use tidegate_wire::jwt::Claims;
use tidegate_wire::message::{
    BodyLength, FieldStorage, Overrides, RequestHead, RequestKind, ResponseStorage, Version,
};

fn config(route: &str) -> Config {
    let text = format!(
        "[[listener]]\nbind = \"127.0.0.1:0\"\ntrusted = [\"10.0.0.0/8\"]\n[[route]]\n{route}\n\
         [pool.app]\nservers = [\"127.0.0.1:1\"]\n"
    );
    tidegate_config::parse(&text, "the test").unwrap_or_else(|errors| panic!("{errors}"))
}

fn with_head<T>(text: &str, run: impl FnOnce(&RequestHead<'_>) -> T) -> T {
    let bytes = format!("{}\r\n\r\n", text.replace('\n', "\r\n"));
    let mut storage = FieldStorage::new();
    let mut decoder = HeadDecoder::default();
    match decoder.decode_request(bytes.as_bytes(), &HeadLimits::default(), &mut storage) {
        Ok(Some((head, _))) => run(&head),
        other => panic!("{text:?}: {other:?}"),
    }
}

/// Calls `run` with what the route does and the values of the request.
fn with_values<T>(
    handling: &RouteHandling,
    head: &RequestHead<'_>,
    run: impl FnOnce(&Values<'_>) -> T,
) -> T {
    let mut scratch = Vec::new();
    let path = MatchedPath::new(head.path, &handling.paths, &mut scratch);
    let trusted = ["10.0.0.0/8"].map(|_| tidegate_config::model::Network {
        address: IpAddr::from([10, 0, 0, 0]),
        prefix_bits: 8,
    });
    run(&Values {
        head,
        path: &path,
        peer: Some(IpAddr::from([10, 0, 0, 9])),
        trusted: &trusted,
        scheme: Scheme::Https,
        server_name: Some(b"sni.example"),
        allowed_origin: None,
        user: None,
        claims: None,
        identity: Identity::plain(0xab),
    })
}

/// The head that the server receives.
fn forward(config: &Config, text: &str) -> Result<String, ForwardFault> {
    forward_hooked(config, text, None)
}

/// As [`forward`], after a hook has changed the request.
fn forward_hooked(
    config: &Config,
    text: &str,
    hook: Option<HookChanges<'_>>,
) -> Result<String, ForwardFault> {
    let handlings = Handlings::new(config);
    let handling = handlings.of_route(0).expect("the route changes something");
    let Action::Proxy(proxy) = &config.routes[0].action else { panic!("a proxy") };
    with_head(text, |head| {
        with_values(handling, head, |values| {
            let edits = handling.request.as_ref();
            let context = RequestContext {
                peer: values.peer,
                trusted: true,
                client_address_fields: &ClientAddressFields::new(&["x-real-ip".to_owned()]),
                client_certificate: None,
                scheme: values.scheme,
                via: "gate",
                host: &proxy.host,
                trailers: false,
                close: false,
                websocket_key: None,
                changes: Some(Changes {
                    path: proxy.path.as_ref(),
                    edits,
                    values,
                    waits: false,
                    hook,
                    ask: None,
                }),
            };
            let mut out = Vec::new();
            encode_upstream_request(&mut out, head, &context)?;
            Ok(String::from_utf8_lossy(&out).into_owned())
        })
    })
}

/// The head of the response to `text`, whose server sends `response`.
fn respond(config: &Config, text: &str, response: &str) -> Result<String, PlaceFault> {
    respond_with(config, text, response, "")
}

/// As [`respond`], with a cookie that names the server.
fn respond_with(
    config: &Config,
    text: &str,
    response: &str,
    cookie: &str,
) -> Result<String, PlaceFault> {
    let handlings = Handlings::new(config);
    let handling = handlings.of_route(0).expect("the route changes something");
    let mut rendered = Vec::new();
    with_head(text, |head| {
        with_values(handling, head, |values| {
            handlings.render_response(handling, &mut rendered, values)
        })
    })?;
    let bytes = format!("{}\r\n\r\n", response.replace('\n', "\r\n"));
    let mut storage = ResponseStorage::new();
    let decoded = HeadDecoder::default().decode_response(
        bytes.as_bytes(),
        &ResponseLimits::default(),
        RequestKind::default(),
        &mut storage,
    );
    let Ok(Some((head, _))) = decoded else { panic!("{decoded:?}") };
    let filters = handlings.filters(handlings.route_filters(0, 0, Scheme::Https), &rendered);
    let context = ResponseContext {
        date: b"Sun, 06 Nov 1994 08:49:37 GMT",
        via: "gate",
        request_is_head: false,
        cookie,
    };
    let mut out = Vec::new();
    let mut encoder = ResponseEncoder::new(&mut out, Version::Http11, false);
    encode_downstream_response(&mut Filtered::new(&mut encoder, filters), &head, &context);
    Ok(String::from_utf8_lossy(&out).into_owned())
}

fn line<'t>(head: &'t str, name: &str) -> Vec<&'t str> {
    let is_named =
        |line: &&str| line.split_once(':').is_some_and(|(own, _)| own.eq_ignore_ascii_case(name));
    let lines = head.split("\r\n").filter(is_named);
    lines.filter_map(|line| line.split_once(": ")).map(|(_, value)| value).collect()
}

#[test]
fn path_of_the_server_is_written_as_configured() {
    for (path, template, target, expected) in [
        ("/api/*", "/{rest}", "/api/users?page=2", "/users?page=2"),
        ("/api/*", "/{rest}", "/api", "/"),
        ("/api/*", "/v2/{rest}", "/api/a%2Fb;c", "/v2/a%2Fb;c"),
        ("/api/*", "/v2/{rest}", "/x/../api/./a", "/v2/a"),
        ("/u/{name}/*", "/users/{name}/x/{rest}", "/u/a%20b/c?d", "/users/a%20b/x/c?d"),
        ("/*", "/mirror{path}", "/a/b", "/mirror/a/b"),
        ("/*", "/{host}/{rest}", "/a", "/h/a"),
        ("/*", "/{query:q}/x", "/?q=a%2Fb%20c%25", "/a%2Fb%20c%25/x?q=a%2Fb%20c%25"),
        ("/*", "/{header:x-a}", "/", "/%C3%A9%22"),
        ("/exact", "/other", "/exact", "/other"),
    ] {
        let config =
            config(&format!("path = {path:?}\nproxy = {{ pool = \"app\", path = {template:?} }}"));
        let head = forward(&config, &format!("GET {target} HTTP/1.1\nHost: h\nX-A: é\""));
        let head = head.expect("a request");
        assert_eq!(head.split("\r\n").next(), Some(&*format!("GET {expected} HTTP/1.1")), "{path}");
    }
}

#[test]
fn path_that_servers_could_read_otherwise_is_refused() {
    for (template, target) in [
        ("/{rest}", "/api//evil.example/"),
        ("/{query:q}", "/api/?q=.."),
        ("/{query:q}/x", "/api/?q=%2e%2E"),
        ("/a/{query:q}", "/api/?q=..;x"),
        ("/a/{query:q}", "/api/?q=..%2Fb"),
        ("/a/{query:q}", "/api/?q=b%5C.."),
        ("/{header:x-a}", "/api/"),
        ("/.{rest}", "/api/."),
        ("/a/{query:q}", "/api/?q=a%00b"),
        ("/a/{query:q}", "/api/?q=%0d%0a"),
        ("/a/{query:q}", "/api/?q=%7F"),
        ("/a/{query:q}/z", "/api/?q=..%00"),
        ("/a/{query:q}/z", "/api/?q=..%09"),
        ("/a/{query:q}/z", "/api/?q=..%20"),
        ("/a/{query:q}/z", "/api/?q=%20..%20"),
        ("/a/{query:q}/z", "/api/?q=..%20."),
        ("/a/{query:q}/z", "/api/?q=..%3F"),
        ("/a/{query:q}/z", "/api/?q=..%3Fx"),
        ("/a/{query:q}/z", "/api/?q=..%23"),
        ("/a/{rest}", "/api/a%0Ab"),
        ("/a/{rest}", "/api/a%7fb"),
    ] {
        let config = config(&format!(
            "path = \"/api/*\"\nproxy = {{ pool = \"app\", path = {template:?} }}"
        ));
        let head = forward(&config, &format!("GET {target} HTTP/1.1\nHost: h\nX-A: .."));
        let unplaceable = Err(ForwardFault::Value(PlaceFault::Unplaceable));
        assert_eq!(head, unplaceable, "{template} {target}");
    }
}

#[test]
fn asterisk_keeps_its_target() {
    let config = config("proxy = { pool = \"app\", path = \"/in/{rest}\" }");
    let head = forward(&config, "OPTIONS * HTTP/1.1\nHost: h").expect("a request");
    assert!(head.starts_with("OPTIONS * HTTP/1.1\r\n"), "{head}");
}

#[test]
fn request_fields_are_set_added_and_removed() {
    let config = config(
        "path = \"/u/{name}/*\"\nproxy = \"app\"\n[route.request-headers]\n\
         set = { x-real-ip = \"{client}\", X-All = \"{method} {scheme} {host} {path} {rest} {query} {name}\", \
         x-parts = \"{query:q}|{header:x-h}|{cookie:c}|{tls:sni}|{id}\", x-empty = \"{header:none}\", \
         forwarded = \"{{}}\" }\nadd = { x-tag = [\"one\", \"two\"] }\n\
         remove = [\"x-debug\", \"x-forwarded-for\", \"x-forwarded-host\"]\n",
    );
    let head = forward(
        &config,
        "GET /u/bob/a/b?q=1+2 HTTP/1.1\nHost: h:1\nX_Real_IP: forged\nx-tag: zero\nX-DEBUG: 1\nx_debug: 2\n\
         X_H: forged\nX-H:  v \nCookie: a=b; c=d\nX-Forwarded-For: 192.0.2.1\nX-Empty: x\nConnection: x-all\nX-All: forged",
    )
    .expect("a request");
    assert_eq!(line(&head, "x-real-ip"), ["192.0.2.1"]);
    assert_eq!(line(&head, "x_real_ip"), [""; 0]);
    assert_eq!(line(&head, "x-all"), ["GET https h:1 /u/bob/a/b a/b ?q=1+2 bob"]);
    let id = "000000000000000000000000000000ab";
    assert_eq!(line(&head, "x-parts"), [format!("1 2|v|d|sni.example|{id}")]);
    assert_eq!(line(&head, "x-empty"), [""; 0]);
    assert_eq!(line(&head, "forwarded"), ["{}"]);
    assert_eq!(line(&head, "x-tag"), ["zero", "one", "two"]);
    for removed in ["x-debug", "x_debug", "x-forwarded-for", "x-forwarded-host"] {
        assert_eq!(line(&head, removed), [""; 0], "{removed}");
    }
    assert_eq!(line(&head, "x-forwarded-proto"), ["https"]);
}

#[test]
fn trusted_proxy_states_the_client_only_in_the_names_that_proxies_write() {
    let head = forward(
        &config("proxy = \"app\"\nrequest-headers = { set = { x-a = \"b\" } }\n"),
        "GET / HTTP/1.1\nHost: h\nX-Real-IP: 192.0.2.1\nX_Real_IP: 6.6.6.6\nX_Forwarded_For: 6.6.6.6\n\
         X_Forwarded_Proto: https\nX_Other: kept",
    )
    .expect("a request");
    assert_eq!(line(&head, "x-real-ip"), ["192.0.2.1"]);
    assert_eq!(line(&head, "x_other"), ["kept"]);
    for name in ["x_real_ip", "x_forwarded_for", "x_forwarded_proto"] {
        assert_eq!(line(&head, name), [""; 0], "{name}");
    }
}

#[test]
fn placeholder_reads_only_the_exact_name() {
    let config =
        config("proxy = \"app\"\nrequest-headers = { set = { x-copy = \"<{header:x-v}>\" } }\n");
    let head = forward(&config, "GET / HTTP/1.1\nHost: h\nX_V: forged").expect("a request");
    assert_eq!(line(&head, "x-copy"), ["<>"]);
}

#[test]
fn fields_of_a_hook_replace_received_ones_and_those_of_the_proxy() {
    let config = config(
        "proxy = \"app\"\nrequest-headers = { set = { x-route = \"route\" }, remove = [\"x-gone\"] }",
    );
    let mut fields = Overrides::default();
    for (name, value) in [
        ("X-User", Some("ann")),
        ("X-Real-IP", Some("203.0.113.9")),
        ("X-Forwarded-For", Some("203.0.113.9")),
        ("Forwarded", None),
        ("X-Route", Some("hook")),
        ("X-Gone", Some("hook")),
        ("Cookie", None),
    ] {
        match value {
            Some(value) => fields.add(name, value.as_bytes()),
            None => fields.remove(name),
        }
        .expect("there is room");
    }
    let hook = HookChanges { fields: &fields, has_path: false, pool: None };
    let text =
        "GET /a//../b HTTP/1.1\nHost: h\nx_user: root\nCookie: a=b\nX-Route: client\nX-Other: 1";
    let head = forward_hooked(&config, text, Some(hook)).expect("a request");
    for (name, expected) in [
        ("x-user", &["ann"][..]),
        ("x_user", &[]),
        ("x-real-ip", &["203.0.113.9"]),
        ("x-forwarded-for", &["203.0.113.9"]),
        ("forwarded", &[]),
        ("x-route", &["route"]),
        ("x-gone", &[]),
        ("cookie", &[]),
        ("x-other", &["1"]),
    ] {
        assert_eq!(line(&head, name), expected, "{name}");
    }
    assert!(head.starts_with("GET /a//../b "), "the path of the client: {head}");
    // The path of a hook must not leave the part of the server that it names.
    for (path, is_right) in
        [("/a/b", true), ("/a/../b", false), ("/a/%2e%2e/b", false), ("/a%00", false)]
    {
        let hook = HookChanges { fields: &fields, has_path: true, pool: None };
        let text = format!("GET {path} HTTP/1.1\nHost: h");
        assert_eq!(forward_hooked(&config, &text, Some(hook)).is_ok(), is_right, "{path}");
    }
}

#[test]
fn values_that_a_field_or_path_cannot_contain_are_refused() {
    let config = config(
        "proxy = \"app\"\nrequest-headers = { set = { x-a = \"{query:q}\", x-b = \"{query:q}\" } }",
    );
    for value in ["%0d%0aX-Evil:1", "%00", "a%0Ab", "%7f", "%1b"] {
        let head = forward(&config, &format!("GET /?q={value} HTTP/1.1\nHost: h"));
        assert_eq!(head, Err(ForwardFault::Value(PlaceFault::Unplaceable)), "{value}");
    }
    let get = |bytes: usize| {
        let target = format!("GET /?q={} HTTP/1.1\nHost: h", "x".repeat(bytes));
        forward(&config, &target).map(|_| ())
    };
    const { assert!(2 * 7000 < RENDERED_BYTES_MAX && RENDERED_BYTES_MAX < 8 * 7000) };
    assert_eq!(get(7000), Ok(()));
    let many = (0..8).map(|n| format!("x-{n} = \"{{query:q}}\"")).collect::<Vec<_>>().join(", ");
    let many =
        self::config(&format!("proxy = \"app\"\nrequest-headers = {{ set = {{ {many} }} }}"));
    let target = format!("GET /?q={} HTTP/1.1\nHost: h", "x".repeat(7000));
    assert_eq!(forward(&many, &target), Err(ForwardFault::Value(PlaceFault::TooLong)));
}

#[test]
fn response_fields_are_set_added_and_removed() {
    let config = config(
        "hsts = \"1h\"\nproxy = \"app\"\n[route.response-headers]\nset = { cache-control = \"no-store\", x-user = \
         \"{header:x-user}\", x-none = \"{cookie:none}\" }\nadd = { vary = \"origin\", x-q = \"{query:q}\" }\n\
         remove = [\"server\", \"x-powered-by\"]\n",
    );
    let request = "GET /?q=7 HTTP/1.1\nHost: h\nX-User: bob";
    let response = "HTTP/1.1 200 OK\nServer: old\nX-Powered-By: php\nVary: accept\nCache-Control: public\n\
                    Cache_Control: private\nX-None: x\nContent-Length: 3";
    let head = respond(&config, request, response).expect("a response");
    assert_eq!(line(&head, "cache-control"), ["no-store"]);
    assert_eq!(line(&head, "x-user"), ["bob"]);
    assert_eq!(line(&head, "x-q"), ["7"]);
    assert_eq!(line(&head, "strict-transport-security"), ["max-age=3600"]);
    assert_eq!(line(&head, "vary"), ["accept", "origin"]);
    assert_eq!(line(&head, "content-length"), ["3"]);
    for removed in ["server", "x-powered-by", "x-none", "cache_control"] {
        assert_eq!(line(&head, removed), [""; 0], "{removed}");
    }
    let fault = respond(&config, "GET /?q=%0d HTTP/1.1\nHost: h", response);
    assert_eq!(fault.err(), Some(PlaceFault::Unplaceable));
}

#[test]
fn fields_are_removed_from_interim_responses_and_not_set() {
    let config = config(
        "proxy = \"app\"\nresponse-headers = { set = { x-a = \"1\" }, remove = [\"link\"] }",
    );
    let handlings = Handlings::new(&config);
    let filters = handlings.filters(handlings.route_filters(0, 0, Scheme::Http), b"");
    let mut storage = ResponseStorage::new();
    let bytes = b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n";
    let decoded = HeadDecoder::default().decode_response(
        bytes,
        &ResponseLimits::default(),
        RequestKind::default(),
        &mut storage,
    );
    let Ok(Some((head, _))) = decoded else { panic!("{decoded:?}") };
    let mut out = Vec::new();
    let mut encoder = ResponseEncoder::new(&mut out, Version::Http11, false);
    encode_interim(&mut Filtered::new(&mut encoder, filters), &head, "gate");
    let head = String::from_utf8_lossy(&out);
    assert_eq!((line(&head, "link").len(), line(&head, "x-a").len()), (0, 0));
}

proptest! {
    /// Goal: whatever a client sends, the server gets one head with the fields that were configured, and no others
    /// than the client's. Method: random bytes in each place that a placeholder can copy.
    #[test]
    fn no_value_splits_a_line(
        query in "[ -~&&[^ #]]{0,40}",
        escaped in prop::collection::vec(any::<u8>(), 0..12),
        header in "[\t -~é]{0,30}",
        segment in "[!-~&&[^/?# \"<>\\\\^`{|}]]{1,20}",
    ) {
        let config = config(
            "path = \"/u/{name}/*\"\nproxy = { pool = \"app\", path = \"/in/{query:e}/{name}/{rest}\" }\n\
             request-headers = { set = { x-a = \"{query}{query:e}{header:x-h}{cookie:c}{path}{name}\" } }",
        );
        let escaped: String = escaped.iter().map(|byte| format!("%{byte:02X}")).collect();
        let text = format!(
            "GET /u/{segment}/rest?e={escaped}&{query} HTTP/1.1\nHost: h\nX-H: {header}\nCookie: c={header}"
        );
        let bytes = format!("{}\r\n\r\n", text.replace('\n', "\r\n"));
        let mut storage = FieldStorage::new();
        let decoded = HeadDecoder::default()
            .decode_request(bytes.as_bytes(), &HeadLimits::default(), &mut storage);
        prop_assume!(matches!(decoded, Ok(Some(_))));
        if let Ok(forwarded) = forward(&config, &text) {
            let mut storage = FieldStorage::new();
            let decoded = HeadDecoder::default()
                .decode_request(forwarded.as_bytes(), &HeadLimits::default(), &mut storage);
            let Ok(Some((head, used))) = decoded else { panic!("{forwarded:?}: {decoded:?}") };
            prop_assert_eq!(used, forwarded.len());
            prop_assert_eq!(head.length, BodyLength::None);
            prop_assert!(head.path.starts_with("/in/"));
            let own = ["host", "x-h", "cookie", "via", "x-forwarded-for", "x-forwarded-host", "x-forwarded-proto",
                "forwarded", "x-a"];
            for field in head.fields() {
                prop_assert!(own.contains(&&*field.name.to_ascii_lowercase()), "{}", field.name);
            }
        }
    }
}

#[test]
fn session_cookie_replaces_the_servers_own_and_is_not_cached() {
    let config = config("proxy = \"app\"\nresponse-headers = { remove = [\"x-none\"] }");
    let cookies = |fields: &str| {
        let response = format!("HTTP/1.1 200 OK\nContent-Length: 0\n{fields}");
        let head = respond_with(&config, "GET / HTTP/1.1\nHost: h", &response, "S=1; Path=/");
        line(&head.expect("a response"), "set-cookie").iter().map(|v| (*v).to_owned()).collect()
    };
    let of = |fields: &str| -> Vec<String> { cookies(fields) };
    assert_eq!(of("X-A: b"), ["S=1; Path=/"]);
    assert_eq!(
        of("Set-Cookie: S=evil; Path=/\nSet-Cookie: SS=a\nset-cookie: S =b"),
        ["SS=a", "S=1; Path=/"]
    );
    assert_eq!(of("Cache-Control: no-cache, private"), ["S=1; Path=/"]);
    for shared in ["public", "max-age=9, Public", "s-maxage=60", "no-cache, S-MaxAge=1"] {
        assert_eq!(of(&format!("Cache-Control: {shared}")), [""; 0], "{shared}");
    }
}

#[test]
fn trailers_that_the_route_removes_are_not_announced() {
    let config = config("proxy = \"app\"\nresponse-headers = { remove = [\"x-secret\"] }");
    let response =
        "HTTP/1.1 200 OK\nTransfer-Encoding: chunked\nTrailer: x-secret, x-sum\nX-Secret: s";
    let head = respond(&config, "GET / HTTP/1.1\nHost: h", response).expect("a response");
    assert_eq!(line(&head, "trailer"), ["x-sum"]);
    assert_eq!(line(&head, "x-secret"), [""; 0]);
}

/// The Location of a redirect, or the status of the response to a request with values that it cannot contain.
fn location(path: &str, to: &str, request: &str) -> Result<String, u16> {
    let config = config(&format!("path = {path:?}\nredirect = {to:?}"));
    let handlings = Handlings::new(&config);
    let handling = handlings.of_route(0).expect("the redirect has values");
    let Action::Redirect(redirect) = &config.routes[0].action else { panic!("a redirect") };
    with_head(request, |head| {
        with_values(handling, head, |values| {
            let target = respond::location(redirect, values).map_err(|(status, _)| status)?;
            Ok(String::from_utf8(target).expect("ASCII"))
        })
    })
}

#[test]
fn redirect_inserts_values_of_the_request() {
    for (path, to, target, wanted) in [
        ("/old/*", "https://a.example/{rest}", "/old/x/y?q=1", "https://a.example/x/y"),
        ("/old/*", "/new/{rest}{query}", "/old/x/y?q=1", "/new/x/y?q=1"),
        ("/old/*", "/{rest}", "/old/%2Fx", "/%2Fx"),
        ("/u/{n}/*", "/x/{n}/{rest}", "/u/bob/%C3%A9", "/x/bob/%C3%A9"),
        ("/*", "/s/{query:q}/z", "/?q=a%2Fb%20c%25%3F%23", "/s/a%2Fb%20c%25%3F%23/z"),
        ("/*", "/s?n={query:q}", "/?q=a%26b%3D1%2B%23", "/s?n=a%26b%3D1%2B%23"),
        ("/*", "https://{host}/{client}/{header:x-a}", "/", "https://h/10.0.0.9/a%22b"),
        (
            "/*",
            "https://{host}/{scheme}{path}?from={tls:sni}",
            "/p",
            "https://h/https/p?from=sni.example",
        ),
        ("/*", "/{rest}", "/", "/"),
    ] {
        let request = format!("GET {target} HTTP/1.1\nHost: h\nX-A: a\"b\nX_A: c");
        assert_eq!(location(path, to, &request).as_deref(), Ok(wanted), "{to} {target}");
    }
}

/// A shared cache keeps a 301 or 308 response without being told to.
#[test]
fn redirect_with_values_of_one_client_is_not_sent_to_others_by_a_cache() {
    for (to, wanted) in [
        ("/s/{query:q}{path}", &[][..]),
        ("/s/{header:x-a}", &["Vary: x-a"]),
        ("/s/{header:x-a}/{cookie:c}/{cookie:d}/{header:x-a}", &["Vary: x-a, cookie"]),
        ("/s/{client}", &["Cache-Control: no-store"]),
        ("/s/{tls:sni}/{header:x-a}", &["Cache-Control: no-store", "Vary: x-a"]),
    ] {
        let config = config(&format!("redirect = {to:?}"));
        let handlings = Handlings::new(&config);
        let handling = handlings.of_route(0).expect("the redirect has values");
        let Action::Redirect(redirect) = &config.routes[0].action else { panic!("a redirect") };
        let mut out = Vec::new();
        with_head("GET /p?q=1 HTTP/1.1\nHost: h\nX-A: a\nCookie: c=1; d=2", |head| {
            with_values(handling, head, |values| {
                let mut encoder = ResponseEncoder::new(&mut out, Version::Http11, false);
                let context = AnswerContext { date: &[b'x'; 29], server: "", is_head: false };
                let (sink, request) = (&mut encoder, (head, Scheme::Https));
                respond::encode_redirect(sink, redirect, request, Some(values), &context);
            });
        });
        let text = String::from_utf8(out).expect("text");
        let is_about_caches =
            |line: &&str| line.starts_with("Vary: ") || line.starts_with("Cache-Control: ");
        assert_eq!(text.split("\r\n").filter(is_about_caches).collect::<Vec<_>>(), wanted, "{to}");
    }
}

#[test]
fn value_that_a_redirect_target_cannot_contain_is_refused() {
    for (path, to, target) in [
        ("/old/*", "/{rest}", "/old//evil.example/"),
        ("/*", "/{header:none}{rest}", "//evil.example/"),
        ("/*", "/{query:q}/x", "/?q=.."),
        ("/*", "/{query:q}/x", "/?q=%0d%0aSet-Cookie:x"),
        ("/*", "/x?n={query:q}", "/?q=%00"),
        ("/*", "https://{host}/{query:q}", "/?q=%2e%2E%2fx"),
    ] {
        let request = format!("GET {target} HTTP/1.1\nHost: h\nX-A: a");
        assert_eq!(location(path, to, &request), Err(400), "{to} {target}");
    }
    assert_eq!(location("/*", "https://{host}/{id}", "GET / HTTP/1.0\n"), Err(400));
}

#[test]
fn user_does_not_become_another_one_by_losing_whitespace() {
    let config = config(
        "respond = { body = \"a\" }\nauth = { jwt = { secret-file = \"secret\" } }\n\
         response-headers = { set = { x-user = \"{user}\", x-role = \"{claim:role}\" } }",
    );
    let handlings = Handlings::new(&config);
    let handling = handlings.of_route(0).expect("the route changes something");
    let render = |user: &str, role: &str| {
        let claims = format!("{{\"role\":{role}}}");
        let claims = Claims::parse(claims.as_bytes()).expect("claims");
        with_head("GET / HTTP/1.1\nHost: a", |head| {
            with_values(handling, head, |values| {
                let values = Values { user: Some(user), claims: Some(&claims), ..*values };
                handlings.render_response(handling, &mut Vec::new(), &values)
            })
        })
    };
    assert_eq!(render("admin", "\"a b\""), Ok(()));
    assert_eq!(render("", "null"), Ok(()));
    for user in ["admin ", " admin", "admin\t", " "] {
        assert_eq!(render(user, "null"), Err(PlaceFault::Unplaceable), "{user:?}");
    }
    for role in ["\"a \"", "[\" a\",\"b\"]"] {
        assert_eq!(render("admin", role), Err(PlaceFault::Unplaceable), "{role}");
    }
}
