//! The pool of a request, from the configuration to the index.
//! In: routes as in a file, requests. Out: the name of the pool.

use core::net::IpAddr;

use tidegate_config::model::Config;
use tidegate_gate::handling::Handlings;
use tidegate_gate::identity::Identity;
use tidegate_gate::rewrite::MatchedPath;
use tidegate_gate::scheme::Scheme;
use tidegate_gate::template::Values;
use tidegate_wire::http1::{HeadDecoder, HeadLimits};
use tidegate_wire::message::FieldStorage;

fn config(route: &str) -> Config {
    let pools = ["one", "two", "three"]
        .map(|name| format!("[pool.{name}]\nservers = [\"127.0.0.1:1\"]\n"))
        .concat();
    let text = format!("[[listener]]\nbind = \"127.0.0.1:0\"\n[[route]]\n{route}\n{pools}");
    tidegate_config::parse(&text, "the test").unwrap_or_else(|errors| panic!("{errors}"))
}

/// The name of the pool of a request; `None`: it has none.
fn pool_of(config: &Config, head: &str, client: [u8; 4], random: u64) -> Option<String> {
    pool_among(config, head, (client, random), |_| true)
}

/// As `pool_of`. `is_present`: the pools that the configuration still has.
fn pool_among(
    config: &Config,
    head: &str,
    (client, random): ([u8; 4], u64),
    is_present: impl Fn(u16) -> bool,
) -> Option<String> {
    let handlings = Handlings::new(config);
    let handling = handlings.of_route(0).expect("the route chooses a pool");
    let bytes = format!("{}\r\n\r\n", head.replace('\n', "\r\n"));
    let mut storage = FieldStorage::new();
    let mut decoder = HeadDecoder::default();
    let decoded = decoder.decode_request(bytes.as_bytes(), &HeadLimits::default(), &mut storage);
    let Ok(Some((head, _))) = decoded else { panic!("{head:?}: {decoded:?}") };
    let mut scratch = Vec::new();
    let path = MatchedPath::new(head.path, &handling.paths, &mut scratch);
    let values = Values {
        head: &head,
        path: &path,
        peer: Some(IpAddr::from(client)),
        trusted: &[],
        scheme: Scheme::Http,
        server_name: None,
        allowed_origin: None,
        user: None,
        claims: None,
        identity: Identity::plain(0),
    };
    let chooser = handling.pool.as_ref().expect("the route chooses a pool");
    let pool =
        handlings.choose_pool((chooser, is_present), &values, || random, &mut b"old".to_vec())?;
    Some(config.pools[usize::from(pool)].name.clone())
}

fn get(config: &Config, host: &str, path: &str) -> Option<String> {
    pool_of(config, &format!("GET {path} HTTP/1.1\nHost: {host}"), [192, 0, 2, 1], 0)
}

#[test]
fn host_is_looked_up_in_one_spelling() {
    let config = config(
        "proxy = { pool = { map = \"hosts\", key = \"{host}\" } }\n\
         [map.hosts]\nentries = { \"a.example\" = \"one\", \"b.example\" = \"two\" }",
    );
    for host in ["a.example", "A.Example", "a.example.", "a.example:8080"] {
        assert_eq!(get(&config, host, "/").as_deref(), Some("one"), "{host}");
    }
    assert_eq!(get(&config, "b.example", "/").as_deref(), Some("two"));
    for host in ["c.example", "x.a.example", ""] {
        assert_eq!(get(&config, host, "/"), None, "{host}");
    }
}

#[test]
fn pool_that_the_configuration_no_longer_has_is_not_chosen() {
    let entries = "[map.hosts]\nentries = { \"a.example\" = \"one\", \"b.example\" = \"two\" }";
    for (default, expected) in [("", None), (", default = \"three\"", Some("three"))] {
        let route =
            format!("proxy = {{ pool = {{ map = \"hosts\", key = \"{{host}}\"{default} }} }}\n");
        let config = config(&(route + entries));
        let of = |host: &str| {
            let head = format!("GET / HTTP/1.1\nHost: {host}");
            pool_among(&config, &head, ([192, 0, 2, 1], 0), |pool| pool != 1)
        };
        assert_eq!(
            (of("a.example").as_deref(), of("b.example").as_deref()),
            (Some("one"), expected)
        );
    }
}

#[test]
fn hosts_below_a_name_have_its_pool() {
    let config = config(
        "proxy = { pool = { map = \"hosts\", key = \".{host}\", default = \"three\" } }\n\
         [map.hosts]\nkind = \"suffix\"\nentries = { \".a.example\" = \"one\", \".b.a.example\" = \"two\" }",
    );
    for (host, pool) in [
        ("a.example", "one"),
        ("x.a.example", "one"),
        ("b.a.example", "two"),
        ("y.b.a.example", "two"),
        ("ba.example", "three"),
    ] {
        assert_eq!(get(&config, host, "/").as_deref(), Some(pool), "{host}");
    }
}

#[test]
fn path_is_looked_up_in_one_spelling() {
    let config = config(
        "path = \"/*\"\nproxy = { pool = { map = \"apps\", key = \"{path}\", default = \"three\" } }\n\
         [map.apps]\nkind = \"prefix\"\nentries = { \"/api/\" = \"one\", \"/api/v2/\" = \"two\" }",
    );
    for (path, pool) in [
        ("/api/x", "one"),
        ("/%61pi/x", "one"),
        ("/./api/x", "one"),
        ("/x/../api/v2/y", "two"),
        ("/api/%762/y?a=/b", "two"),
        ("/api", "three"),
        ("/?x=/api/", "three"),
    ] {
        assert_eq!(get(&config, "h", path).as_deref(), Some(pool), "{path}");
    }
}

#[test]
fn split_keeps_a_value_at_its_pool() {
    let config = config("split = { pools = { one = 1, two = 1, three = 0 }, by = \"cookie:id\" }");
    let of = |cookie: &str, client, random| {
        let head = format!("GET / HTTP/1.1\nHost: h\nCookie: {cookie}");
        pool_of(&config, &head, [192, 0, 2, client], random).expect("a pool")
    };
    let mut found = [false; 2];
    for number in 0..100 {
        let cookie = format!("id=user{number}");
        let pool = of(&cookie, 1, 0);
        assert_eq!(pool, of(&cookie, 2, u64::MAX), "neither the address nor chance matters");
        found[usize::from(pool == "two")] = true;
        // Without exactly one value, the address decides.
        let client = number as u8;
        let pool = of("other=1", client, 0);
        assert_eq!(pool, of("id=a; id=b", client, u64::MAX));
        assert_ne!(pool, "three");
    }
    assert_eq!(found, [true; 2]);
    let by_address: Vec<String> = (0..100).map(|client| of("x=y", client, 0)).collect();
    assert!(by_address.contains(&"one".to_owned()) && by_address.contains(&"two".to_owned()));
}

#[test]
fn split_without_a_key_is_random() {
    let config = config("split = { pools = { one = 1, two = 1 } }");
    let head = "GET / HTTP/1.1\nHost: h";
    let found: Vec<_> =
        (0..64).filter_map(|random| pool_of(&config, head, [192, 0, 2, 1], random)).collect();
    assert!(found.contains(&"one".to_owned()) && found.contains(&"two".to_owned()));
}
