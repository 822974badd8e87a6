//! The commands that show the parts of a running process: pools, certificates, names, events, push hubs, applications.
//! In: a process with one of each. Out: what `tidegate ctl` prints, as text and as JSON.

use std::io::Write as _;
use std::process::Stdio;

use serde_json::Value;

use crate::admin::Operated;
use tidegate_testing::command;

use crate::process::{Folder, free_address, text};
use crate::proxy_protocol::make_certificate;

/// The value of `show WHAT json`.
fn shown(operated: &Operated, what: &str) -> Value {
    let json = operated.ctl_well(&["show", what, "json"]);
    serde_json::from_str(&json).unwrap_or_else(|error| panic!("{what}: {error}: {json}"))
}

#[test]
fn parts_of_the_process_are_shown() {
    let files = Folder::new("admin-parts-files");
    let script = "return { on_request = function(request, response) response:json({}) end }\n";
    let script = files.file("app.lua", script);
    make_certificate(&files);
    let (cert, key) = (files.join("site.pem"), files.join("site.key"));
    let secure = free_address();
    let settings = format!(
        "[[listener]]\nname = \"secure\"\nbind = \"{secure}\"\ntls = {{ certificates = [{{ cert = {cert:?}, key = {key:?} }}] }}\n\
         [push.news]\n[lua.app]\nscript = {script:?}\n\
         [[route]]\npath = \"/news/*\"\npush = \"news\"\n[[route]]\npath = \"/lua\"\nlua = \"app\"\n\
         [[route]]\npath = \"/named/*\"\nproxy = \"named\"\n\
         [pool.named]\nservers = [{{ address = \"localhost:{}\", weight = 3 }}]\n",
        secure.port()
    );
    let operated = Operated::start("admin-parts", &settings);
    let pools = shown(&operated, "pools");
    let named = pools.as_array().expect("rows").iter().find(|row| row["pool"] == "named");
    let named = named.expect("the pool");
    assert_eq!((&named["state"], &named["weight"]), (&"up".into(), &3.into()), "{named}");
    let names = shown(&operated, "names");
    assert_eq!(shown(&operated, "resolvers")[0]["name"], names[0]["name"]);
    assert_eq!(operated.ctl_well(&["show", "resolvers"]), "No resolvers found\n");
    assert_eq!(names[0]["name"], format!("localhost:{}", secure.port()), "{names}");
    assert!(names[0]["addresses"].as_array().is_some_and(|all| !all.is_empty()), "{names}");
    assert_eq!(names[0]["failures"], 0);
    let tls = shown(&operated, "tls");
    assert_eq!((&tls[0]["listener"], &tls[0]["tickets"]), (&"secure".into(), &"own".into()));
    assert!(tls[0]["names"].as_array().is_some_and(|names| names == &["localhost"]), "{tls}");
    assert!(tls[0]["days_left"].as_i64().is_some_and(|days| days > 0), "{tls}");
    let push = shown(&operated, "push");
    assert_eq!((&push[0]["hub"], &push[0]["subscriptions"]), (&"news".into(), &0.into()));
    assert_eq!((&push[0]["slow"], &push[0]["dropped"]), (&"disconnect".into(), &0.into()));
    let lua = shown(&operated, "lua");
    assert_eq!((&lua[0]["application"], &lua[0]["state"]), (&"app".into(), &"running".into()));
    assert!(lua[0]["memory_bytes"].as_u64().is_some_and(|bytes| bytes > 0), "{lua}");
    for what in ["pools", "names", "tls", "push", "lua"] {
        let words = operated.ctl_well(&["show", what]);
        assert!(words.lines().any(|line| line.starts_with("# ")), "{what}: {words}");
        let output = operated.ctl(&["show", what, "frob"]);
        let said = text(&output.stderr);
        assert!(said.contains(&format!("allowed: `show {what}`, `show {what} json`")), "{said}");
    }
}

#[test]
fn lines_of_lua_run_in_an_application() {
    let files = Folder::new("admin-repl-files");
    let script = "greeting = 'hello' return { on_request = function(request, response) response:json({}) end }\n";
    let script = files.file("app.lua", script);
    let settings =
        format!("[lua.app]\nscript = {script:?}\n[[route]]\npath = \"/lua\"\nlua = \"app\"\n");
    let operated = Operated::start("admin-repl", &settings);
    assert_eq!(operated.ctl_well(&["lua", "eval", "app", "greeting..1+1"]), "\"hello2\"\n");
    for (words, error) in [
        (&["lua", "eval", "app", "nothing.x"][..], "console:1:"),
        (&["lua", "eval", "app", "while%20true%20do%20end"], "time budget"),
        (&["lua", "eval", "none", "1"], "there is no application \"none\""),
        (&["lua", "eval", "app", "worker", "99", "1"], "there are the workers 0 to"),
        (&["lua", "eval", "app", "%zz"], "must be percent-encoded"),
        (&["lua", "eval", "app"], "allowed: lua eval APPLICATION"),
    ] {
        let output = operated.ctl(words);
        let said = text(&output.stderr);
        assert!(!output.status.success() && said.contains(error), "{words:?}: {said}");
    }
    let mut repl = command(env!("CARGO_BIN_EXE_tidegate"))
        .args(["lua", "repl", "app", "--at", &operated.admin.to_string()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts");
    let mut input = repl.stdin.take().expect("a pipe");
    input.write_all(b"{ greeting, 'a;b' }\n\nerror('it fails')\ntide.app\n").expect("it reads");
    drop(input);
    let output = repl.wait_with_output().expect("it ends");
    assert_eq!(text(&output.stdout), "{ [1] = \"hello\", [2] = \"a;b\" }\n\"app\"\n");
    assert!(text(&output.stderr).contains("it fails"), "{}", text(&output.stderr));
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn events_state_what_has_changed() {
    let operated = Operated::start("admin-events", "");
    let server = format!("app/{}", operated.door);
    operated.ctl_well(&["set", "server", &server, "state", "drain"]);
    operated.ctl_well(&["reload"]);
    let events = shown(&operated, "events");
    let kinds: Vec<&str> = events
        .as_array()
        .expect("rows")
        .iter()
        .filter_map(|event| event["kind"].as_str())
        .collect();
    assert_eq!(kinds, ["reload", "admin", "admin", "process"], "{events}");
    let only = operated.ctl_well(&["show", "events", "reload", "1"]);
    assert!(only.contains("\"configuration reloaded: "), "{only}");
    let output = operated.ctl(&["show", "events", "frob"]);
    assert!(text(&output.stderr).contains("reload, server, ejection, admin, process"));
}

#[test]
fn profiling_has_percentiles() {
    let operated = Operated::start("admin-percentiles", "");
    for _ in 0..300 {
        assert_eq!(operated.get("/json"), "{}");
    }
    let profiling = shown(&operated, "profiling");
    let rows = profiling.as_array().expect("rows");
    let receive = rows.iter().find(|row| row["function"] == "downstream_receive").expect("a row");
    let cpu = |part: &str| receive["cpu"][part].as_u64().unwrap_or(u64::MAX);
    assert!(receive["timed"].as_u64().is_some_and(|timed| timed > 0), "{receive}");
    assert!(cpu("p50_ns") <= cpu("p90_ns") && cpu("p90_ns") <= cpu("p99_ns"), "{receive}");
    assert!(operated.ctl_well(&["show", "profiling"]).contains(" cpu_p99"));
}
