//! Tables of a configuration: which requests count for a key, what conditions of routes see, and what a reload keeps.

use core::net::IpAddr;

use tidegate_base::{Moment, Span};
use tidegate_config::model::Config;
use tidegate_gate::count_cells::Outcome;
use tidegate_gate::counting::{CountTables, RequestCounts, Tracked};
use tidegate_gate::router::{Client, Routed, Router};
use tidegate_wire::http1::{HeadDecoder, HeadLimits};
use tidegate_wire::message::{FieldStorage, RequestHead};

const LISTENER: &str = "[[listener]]\nbind = \"127.0.0.1:80\"\n";

fn parse(tables: &str) -> Config {
    let text = format!("{LISTENER}{tables}");
    tidegate_config::parse(&text, "the test").unwrap_or_else(|errors| panic!("{errors}"))
}

fn at(secs: u64) -> Moment {
    Moment::ZERO.after(Span::from_secs(1000 + secs))
}

fn with_head<T>(text: &str, run: impl FnOnce(&RequestHead<'_>) -> T) -> T {
    let bytes = format!("{}\r\n\r\n", text.replace('\n', "\r\n")).into_bytes();
    let mut storage = FieldStorage::new();
    let decoded =
        HeadDecoder::default().decode_request(&bytes, &HeadLimits::default(), &mut storage);
    let Ok(Some((head, _))) = decoded else { panic!("{decoded:?}") };
    run(&head)
}

fn client(address: &str) -> Client<'static> {
    Client { peer: address.parse::<IpAddr>().ok(), ..Client::default() }
}

/// Counts a request of the first table.
fn begin(tables: &CountTables, address: &str, head: &str) -> Option<Tracked> {
    with_head(head, |head| tables.begin(0, head, &client(address), at(0), &mut Vec::new()))
}

fn route(config: &Config, tables: &CountTables, address: &str, head: &str) -> Routed {
    let request_counts = RequestCounts::new(tables, at(0), Vec::new());
    let client = Client { counts: Some(&request_counts), ..client(address) };
    with_head(head, |head| Router::new(config).route(0, head, &client, &mut Vec::new()))
}

/// The text of each key of the first table and its first count, by the text.
fn shown(tables: &CountTables) -> Vec<(String, u64)> {
    let shown = tables.all()[0].shown(at(0));
    let mut shown: Vec<_> = shown.map(|one| (one.text, one.counts[0])).collect();
    shown.sort();
    shown
}

#[test]
fn keys_are_built_as_for_rates_and_shown_as_text() {
    let get = |fields: &str| format!("GET /a%2Fb/c/?x=1 HTTP/1.1\nHost: A.example:80{fields}");
    for (key, requests, expected) in [
        (
            "\"client-address\"",
            &[
                ("192.0.2.1", ""),
                ("::ffff:192.0.2.1", ""),
                ("2001:db8::1", ""),
                ("2001:db8::2", ""),
                ("", ""),
            ][..],
            &[("192.0.2.1", 2), ("2001:db8::/64", 2), ("unix", 1)][..],
        ),
        (
            "\"header:x-user\"",
            &[
                ("192.0.2.1", "\nX-User: bob"),
                ("192.0.2.2", "\nX-User: bob"),
                ("192.0.2.1", "\nX-User: (a|b) %\u{e9}"),
                ("192.0.2.1", ""),
                ("192.0.2.1", "\nX-User: a\nX-User: b"),
            ],
            &[("%28a%7Cb%29%20%25%C3%A9", 1), ("(192.0.2.1)", 2), ("bob", 2)],
        ),
        (
            "[\"client-address\", \"path\", \"host\"]",
            &[("192.0.2.1", ""), ("192.0.2.2", "")],
            &[("192.0.2.1|/a/b/c|a.example", 1), ("192.0.2.2|/a/b/c|a.example", 1)],
        ),
    ] {
        let config = parse(&format!(
            "count = \"t\"\n[[route]]\nrespond = {{}}\n[table.t]\nkey = {key}\ncounts = [\"requests\"]\n"
        ));
        let tables = CountTables::new(&config, 1);
        for (address, fields) in requests {
            assert!(begin(&tables, address, &get(fields)).is_some(), "{key}");
        }
        let expected: Vec<_> =
            expected.iter().map(|(text, count)| ((*text).to_owned(), *count)).collect();
        assert_eq!(shown(&tables), expected, "{key}");
    }
}

#[test]
fn conditions_of_routes_see_the_counts() {
    let config = parse(
        "count = \"t\"\n\
         [[route]]\npath = \"/a/*\"\ntable = { t = { requests = \"> 2\", errors = \">= 1\" } }\nrespond = { status = 401 }\n\
         [[route]]\npath = \"/a/*\"\ntable = { t = { connections = \"> 1\" } }\nrespond = { status = 402 }\n\
         [[route]]\npath = \"/a/*\"\nrespond = {}\n\
         [table.t]\ncounts = [\"requests/10s\", \"errors/1m\", \"connections\"]\n",
    );
    let tables = CountTables::new(&config, 1);
    let (here, other, get) = ("192.0.2.1", "192.0.2.2", "GET /a/x HTTP/1.1\nHost: a");
    let taken = |address: &str, head: &str| route(&config, &tables, address, head);
    assert_eq!(taken(here, get), Routed::Route(2), "not counted yet");
    let first = begin(&tables, here, get).expect("it is counted");
    let second = begin(&tables, here, get).expect("it is counted");
    assert_eq!((taken(here, get), taken(other, get)), (Routed::Route(1), Routed::Route(2)));
    tables.end(first, at(0), &Outcome { status: 404, ..Outcome::default() });
    assert_eq!(taken(here, get), Routed::Route(2), "two requests do not exceed the limit of two");
    let third = begin(&tables, here, get).expect("it is counted");
    assert_eq!(taken(here, get), Routed::Route(0));
    // Other spellings of the path reach no other route.
    for path in ["/a/./x", "/%61/x", "//a//x", "/b/../a/x"] {
        let routed = taken(here, &format!("GET {path} HTTP/1.1\nHost: a"));
        assert!(!matches!(routed, Routed::Route(1 | 2)), "{path}: {routed:?}");
    }
    tables.end(second, at(0), &Outcome::default());
    tables.end(third, at(0), &Outcome::default());
    assert_eq!(tables.in_progress(), 0);
    // Without counts, as in `check --request`.
    let head = |head: &RequestHead<'_>| Router::new(&config).explain(0, head, &client(here));
    let unmet: Vec<_> = with_head(get, head).into_iter().map(|(_, unmet)| unmet).collect();
    let counts = Some(tidegate_gate::router::Unmet::Counts);
    assert_eq!(unmet, [counts, counts, None]);
}

#[test]
fn request_that_could_not_be_read_counts_for_its_address() {
    for (key, expected) in [
        ("\"client-address\"", vec![("192.0.2.1".to_owned(), 2)]),
        ("[\"client-address\", \"path\"]", vec![("192.0.2.1|/".to_owned(), 1)]),
    ] {
        let config = parse(&format!(
            "count = \"t\"\n[[route]]\nrespond = {{}}\n[table.t]\nkey = {key}\ncounts = [\"requests\"]\n"
        ));
        let tables = CountTables::new(&config, 1);
        let _ = begin(&tables, "192.0.2.1", "GET / HTTP/1.1\nHost: a");
        let _ = tables.begin_unread(0, "192.0.2.1".parse().expect("an address"), at(0));
        assert_eq!(shown(&tables), expected, "{key}");
    }
}

#[test]
fn reload_keeps_the_counts_of_a_table_with_the_same_settings() {
    let file = |name: &str, rest: &str| {
        parse(&format!(
            "[[route]]\ncount = \"{name}\"\nrespond = {{}}\n[table.{name}]\nkey = \"path\"\n{rest}\n"
        ))
    };
    let counts = "counts = [\"requests/1m\"]";
    let before = file("t", counts);
    let tables = CountTables::new(&before, 1);
    let held = begin(&tables, "192.0.2.1", "GET /x HTTP/1.1\nHost: a").expect("it is counted");
    let kept = [("/x".to_owned(), 1)];
    for (name, rest, expected) in [
        ("t", format!("{counts}\nexpire = \"2h\""), &kept[..]),
        ("t", "counts = [\"requests/60s\"]".to_owned(), &kept),
        ("t", format!("{counts}\nentries-max = 8"), &[]),
        ("t", "counts = [\"requests/2m\"]".to_owned(), &[]),
        ("u", counts.to_owned(), &[]),
    ] {
        let after = tables.after(&file(name, &rest), 2);
        assert_eq!(shown(&after), expected, "{name} {rest}");
    }
    // A request in progress ends in the tables that it began with.
    let after = tables.after(&before, 2);
    tables.end(held, at(0), &Outcome::default());
    assert_eq!((after.in_progress(), shown(&after)), (0, kept.to_vec()));
}
