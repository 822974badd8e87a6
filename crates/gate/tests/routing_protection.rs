//! Paths that a server may read as those of a later route that refuses more requests.
//! In: routes in the order that a user writes, from the special to the general; paths. Out: the route, or a refusal.

use tidegate_gate::router::{Client, Routed, Router};
use tidegate_wire::http1::{HeadDecoder, HeadLimits};
use tidegate_wire::message::FieldStorage;

const ROUTES: &str = r#"
[[route]]
path = "/users/{id}"
proxy = "app"
[[route]]
path = "/users/*"
deny = "0.0.0.0/0"
proxy = "app"
[[route]]
path = "/same/{id}"
deny = "0.0.0.0/0"
proxy = "app"
[[route]]
path = "/same/*"
deny = "0.0.0.0/0"
proxy = "other"
[[route]]
path = "/projects/{id}"
proxy = "app"
[[route]]
path = "/gone/{id}"
proxy = "app"
[[route]]
path = "/gone/*"
respond = { status = 410 }
[[route]]
proxy = "other"
[pool.app]
servers = ["127.0.0.1:8000"]
[pool.other]
servers = ["127.0.0.1:8001"]
"#;

/// The index of the route; `None`: the path is refused.
fn route_of(router: &Router, path: &str) -> Option<usize> {
    let bytes = format!("GET {path} HTTP/1.1\r\nHost: h\r\n\r\n").into_bytes();
    let mut storage = FieldStorage::new();
    let decoded =
        HeadDecoder::default().decode_request(&bytes, &HeadLimits::default(), &mut storage);
    let Ok(Some((head, _))) = decoded else { panic!("{decoded:?}: {path}") };
    match router.route(0, &head, &Client::default(), &mut Vec::new()) {
        Routed::Route(index) => Some(index),
        Routed::NoRoute => panic!("{path} has no route"),
        Routed::Refused(_) => None,
    }
}

#[test]
fn segment_that_servers_decode_bypasses_no_later_protection() {
    let text = format!("[[listener]]\nbind = \"127.0.0.1:80\"\n{ROUTES}");
    let config = match tidegate_config::parse(&text, "the test") {
        Ok(config) => config,
        Err(errors) => panic!("{errors}"),
    };
    let router = Router::new(&config);
    for (path, expected) in [
        ("/users/7", Some(0)),
        ("/users/7/private", Some(1)),
        ("/users/7%2Fprivate", None),
        ("/users/7%5Cprivate", None),
        ("/gone/7%2Fx", None),
        // Both routes refuse the same requests, or the later one refuses no request.
        ("/same/7%2Fprivate", Some(2)),
        ("/projects/group%2Fproject", Some(4)),
    ] {
        assert_eq!(route_of(&router, path), expected, "{path}");
    }
}
