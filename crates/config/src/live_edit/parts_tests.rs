//! Tests of edits that add and remove routes and pools.
//! In: a configuration, edits. Out: the configuration that a file with the same parts would make; the edits that differ.

use super::tests::no_files;
use super::*;
use crate::model::Origins;
use crate::names::route_names;
use crate::parse;

const FILE: &str = "[[listener]]\nname = \"web\"\nbind = \"127.0.0.1:80\"\n\
    [[listener]]\nname = \"tcp\"\nbind = \"127.0.0.1:81\"\nforward = \"t\"\n\
    [[route]]\nhost = \"a.example\"\npath = \"/x/*\"\nproxy = \"p\"\n\
    [[route]]\npath = \"/q/*\"\nproxy = \"q\"\n\
    [[route]]\nproxy = \"p\"\n\
    [pool.p]\nservers = [\"10.0.0.1:1\"]\n\
    [pool.q]\nservers = [\"10.0.0.2:1\"]\n\
    [pool.t]\nservers = [\"10.0.0.3:1\"]\n\
    [pool.idle]\nservers = [\"10.0.0.4:1\"]\n";

fn file() -> Config {
    parse(FILE, "the test").expect("it is valid")
}

fn add_pool(pool: &str, text: &str) -> LiveEdit {
    LiveEdit::AddPool { pool: pool.to_owned(), text: text.to_owned() }
}

fn remove_pool(pool: &str) -> LiveEdit {
    LiveEdit::RemovePool { pool: pool.to_owned() }
}

fn add_route(text: &str, before: Option<&str>) -> LiveEdit {
    LiveEdit::AddRoute { text: text.to_owned(), before: before.map(str::to_owned) }
}

fn remove_route(route: &str) -> LiveEdit {
    LiveEdit::RemoveRoute { route: route.to_owned() }
}

fn switch(route: &str, on: bool) -> LiveEdit {
    LiveEdit::SwitchRoute { route: route.to_owned(), on }
}

/// The configuration after these edits.
fn after(edits: &[LiveEdit]) -> Config {
    let mut edited = file();
    for edit in edits {
        assert_eq!(edit.apply(&mut edited, &no_files()), Ok(true), "{edit}");
    }
    edited
}

/// The configuration with names of pools in place of indexes: routes, and for each route and listener its pools.
fn parts(config: &Config) -> (Vec<String>, Vec<String>) {
    let name = |pool: usize| config.pools[pool].name.clone();
    let mut routes: Vec<String> = Vec::new();
    for (route, of) in config.routes.iter().zip(route_names(config)) {
        let pools: Vec<String> = route.pools().chain(route.also_used()).map(name).collect();
        let mut bare = route.clone();
        bare.map_pools(|_| 0);
        routes.push(format!("{of} to {}: {bare:?}", pools.join(" ")));
    }
    for listener in &config.listeners {
        let pools = listener.forward.iter().flat_map(|forward| forward.pools());
        routes.push(format!("{} to {}", listener.name, pools.map(name).collect::<String>()));
    }
    let mut pools: Vec<String> = config.pools.iter().map(|pool| format!("{pool:?}")).collect();
    pools.sort();
    (routes, pools)
}

/// The differences as commands. Their edits make the same configuration of the file.
fn differences_after(edits: &[LiveEdit]) -> Vec<String> {
    let edited = after(edits);
    let differences = differences(&file(), &edited);
    let again = after(&differences);
    assert_eq!(parts(&again), parts(&edited));
    assert_eq!(super::differences(&file(), &again), differences, "they are complete");
    differences.iter().map(ToString::to_string).collect()
}

#[test]
fn added_parts_are_those_that_a_file_would_have() {
    let edited = after(&[
        add_pool("new", "{ servers = [\"10.0.0.9:1\", \"unix:run/a\"], queue-max = 10 }"),
        add_route("{ host = \"new.example\", proxy = \"new\" }", Some("*")),
        remove_route("/q/*"),
        remove_pool("q"),
    ]);
    let text = FILE
        .replace("[[route]]\npath = \"/q/*\"\nproxy = \"q\"\n", "")
        .replace("[pool.q]\nservers = [\"10.0.0.2:1\"]\n", "")
        .replace(
            "[[route]]\nproxy = \"p\"\n",
            "[[route]]\nhost = \"new.example\"\nproxy = \"new\"\n[[route]]\nproxy = \"p\"\n",
        );
    let text = text + "[pool.new]\nservers = [\"10.0.0.9:1\", \"unix:run/a\"]\nqueue-max = 10\n";
    let in_file = crate::parse_in_folder(&text, "the test", "/etc").expect("it is valid");
    assert_eq!(Config { origins: Origins::default(), ..edited }, in_file.config);
}

#[test]
fn differences_repeat_the_edits() {
    let route = "{ host = \"a.example\", path = \"/x/*\", method = \"PUT\", proxy = \"new\" }";
    assert_eq!(
        differences_after(&[
            add_pool("new", "{ servers = [\"10.0.0.9:1\"] }"),
            add_route(route, Some("a.example/x/*")),
            remove_route("/q/*"),
            remove_pool("q"),
            switch("a.example/x/*#2", false),
            LiveEdit::SetLimit {
                pool: "new".to_owned(),
                server: "10.0.0.9:1".to_owned(),
                limit: Some(3)
            },
        ]),
        [
            "del route /q/*",
            "del pool q",
            "add pool new { servers = [\"10.0.0.9:1\"] }",
            "set server new/10.0.0.9:1 connections-max 3",
            "disable route a.example/x/*",
            &format!("add route {route} before a.example/x/*"),
        ]
    );
    let (one, two) = ("{ path = \"/1\", respond = {} }", "{ path = \"/2\", respond = {} }");
    assert_eq!(
        differences_after(&[
            add_route(two, Some("*")),
            add_route(one, Some("/2")),
            switch("/2", false),
            remove_route("a.example/x/*"),
        ]),
        [
            "del route a.example/x/*",
            &format!("add route {two} before *"),
            &format!("add route {one} before /2"),
            "disable route /2"
        ]
    );
    // Routes that others cover, which were added later or were off.
    let (one, all) = ("{ path = \"/x/{id}\", respond = {} }", "{ path = \"/x/*\", respond = {} }");
    let last = "{ path = \"/n\", respond = {} }";
    assert_eq!(
        differences_after(&[
            add_route(one, Some("*")),
            add_route(all, Some("/x/{id}")),
            switch("*", false),
            add_route(last, None),
        ]),
        [
            "disable route *".to_owned(),
            format!("add route {last}"),
            format!("add route {one} before *"),
            format!("add route {all} before /x/{{id}}"),
        ]
    );
    assert_eq!(
        differences_after(&[switch("*", false), add_route(last, None), switch("*", true)]),
        ["disable route *".to_owned(), format!("add route {last}"), "enable route *".to_owned()]
    );
    // Names that routes before them change.
    let again = "{ respond = {} }";
    assert_eq!(
        differences_after(&[
            switch("*", false),
            add_route(again, Some("*")),
            switch("*", false),
            switch("*#2", true),
        ]),
        [format!("add route {again} before *"), "disable route *".to_owned()]
    );
    // A pool with the name of a removed one.
    assert_eq!(
        differences_after(&[
            remove_pool("idle"),
            add_pool("idle", "{ servers = [\"10.0.0.5:1\"] }")
        ]),
        ["del pool idle", "add pool idle { servers = [\"10.0.0.5:1\"] }"]
    );
    // All routes are removed.
    assert_eq!(
        differences_after(&[
            remove_route("*"),
            remove_route("/q/*"),
            remove_route("a.example/x/*")
        ]),
        ["del route *", "del route /q/*", "del route a.example/x/*"]
    );
}

#[test]
fn added_parts_that_are_removed_leave_no_difference() {
    let none: [String; 0] = [];
    assert_eq!(
        differences_after(&[
            add_pool("new", "{ servers = [\"10.0.0.9:1\"] }"),
            add_route("{ path = \"/n\", proxy = \"new\" }", Some("*")),
            switch("/n", false),
            remove_route("/n"),
            remove_pool("new"),
        ]),
        none
    );
}

#[test]
fn refusals_state_the_reason_and_change_nothing() {
    let mut config = file();
    let before = config.clone();
    for (edit, expected) in [
        (remove_pool("x"), "no pool \"x\"; the pools are: p, q, t, idle"),
        (remove_pool("p"), "used by route a.example/x/*, route *; help"),
        (remove_pool("t"), "used by listener tcp"),
        (add_pool("p", "{ servers = [\"10.0.0.9:1\"] }"), "pool \"p\" exists already"),
        (add_pool("a b", "{ servers = [\"10.0.0.9:1\"] }"), "not a valid name"),
        (add_pool("n", "{}"), "has no `servers`"),
        (add_pool("n", "{ server = [\"10.0.0.9:1\"] }"), "unknown setting `server` in [pool"),
        (add_pool("n", "{ servers = [\"10.0.0.9\"] }"), "the port is missing"),
        (add_pool("n", "{ servers = [\"10.0.0.9:1\"]"), "invalid TOML"),
        (add_pool("n", "10.0.0.9:1"), "invalid TOML"),
        (add_pool("n", "\"10.0.0.9:1\""), "cannot be a string"),
        (
            add_pool("n", "{ servers = [\"10.0.0.9:1\"] }, m = { servers = [\"10.0.0.9:1\"] }"),
            "write one pool",
        ),
        (
            add_route(
                "{ path = \"/n\", proxy = \"p\", errors = { 502 = \"/a.html\" } }",
                Some("*"),
            ),
            "cannot have pages",
        ),
        (remove_route("/x"), "no route \"/x\"; the routes are: a.example/x/*, /q/*, *"),
        (add_route("{ path = \"/n\", proxy = \"n\" }", Some("*")), "there is no pool \"n\""),
        (add_route("{ path = \"/n\", proxy = \"p\" }", Some("/x")), "no route \"/x\""),
        (add_route("{ path = \"/n\", proxy = \"p\" }", None), "append `before *`"),
        (
            add_route("{ path = \"/q/a\", proxy = \"p\" }", Some("*")),
            "route /q/* before it matches all of its requests",
        ),
        (add_route("{ path = \"/n\" }", Some("*")), "no action"),
        (
            add_route("{ path = \"/n\", proxy = \"p\", respond = {} }", Some("*")),
            "the route has 2 actions: proxy, respond",
        ),
        (
            add_route(
                "{ path = \"/n\", respond = {} }, { path = \"/m\", respond = {} }",
                Some("*"),
            ),
            "is not one route",
        ),
        (
            add_route("{ path = \"/n\", listener = \"tcp\", proxy = \"p\" }", Some("*")),
            "reads no requests",
        ),
        (
            add_route("{ path = \"/n\", respond = { body = \"${HOME}\" } }", Some("*")),
            "are not replaced in commands",
        ),
        (
            add_route("{ path = \"/n\", proxy = \"p\", auth = { basic = \"users\" } }", Some("*")),
            "/etc/users: cannot be read: no /etc/users in a test",
        ),
    ] {
        let refusal = edit.apply(&mut config, &no_files()).expect_err("it is refused");
        let is_whole = !refusal.contains("\n\n");
        assert!(refusal.contains(expected) && is_whole, "{edit}: {refusal}");
        assert_eq!(config, before, "{edit}");
    }
}

#[test]
fn pool_can_be_removed_once_no_entry_of_a_map_in_force_names_it() {
    let choice = "{ pool = { map = \"hosts\", key = \"{host}\", default = \"p\" } }";
    let text = format!(
        "{FILE}[[route]]\nlistener = \"web\"\nproxy = {choice}\n\
         [map.hosts]\nentries = {{ \"b.example\" = \"idle\", \"c.example\" = \"t\" }}\n"
    )
    .replace("[[route]]\nproxy = \"p\"\n", "");
    let mut config = parse(&text, "the test").unwrap_or_else(|errors| panic!("{errors}"));
    let before = config.clone();
    let named = EditFiles { maps_naming: &|_| vec!["hosts".to_owned()], ..no_files() };
    let refusal = remove_pool("idle").apply(&mut config, &named).expect_err("a map names it");
    assert!(refusal.contains("is used by [map.hosts]; help"), "{refusal}");
    assert!(remove_pool("p").apply(&mut config, &no_files()).is_err(), "it is the default");
    assert_eq!(config, before);
    // A command has removed the entry of the file.
    assert_eq!(remove_pool("idle").apply(&mut config, &no_files()), Ok(true));
    let pools: Vec<&str> = config.pools.iter().map(|pool| pool.name.as_str()).collect();
    assert_eq!(pools, ["p", "q", "t"]);
    let of_route = |config: &Config, at: usize| config.routes[at].pools().collect::<Vec<_>>();
    assert_eq!(of_route(&config, 2), [0, 2]);
    // The file still has the entry.
    let route = add_route(&format!("{{ path = \"/n\", proxy = {choice} }}"), Some("*"));
    assert_eq!(route.apply(&mut config, &no_files()), Ok(true));
    assert_eq!(of_route(&config, 2), [0, 2]);
    assert_eq!(parse(&text, "the test").expect("it is valid").pools.len(), 4);
}

#[test]
fn commands_add_a_bounded_number_of_routes() {
    let mut config = file();
    for at in 0..route::ADDED_MAX {
        let edit = add_route(&format!("{{ path = \"/{at}\", respond = {{}} }}"), Some("*"));
        assert_eq!(edit.apply(&mut config, &no_files()), Ok(true));
    }
    let refusal = add_route("{ path = \"/n\", respond = {} }", Some("*"));
    let refusal = refusal.apply(&mut config, &no_files()).expect_err("there are too many");
    assert!(refusal.contains("write them into the file"), "{refusal}");
    assert_eq!(differences(&file(), &config).len(), route::ADDED_MAX);
}
