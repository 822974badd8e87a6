//! Routes with `auth = { basic = ... }` on real sockets.
//! In: clients with right, wrong and no passwords, for each action; clients that leave while their passwords are verified.
//! Out: only right passwords reach an action; requests of clients that leave end before the verification does.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::admin::Operated;
use crate::gate::Gate;
use crate::process::Folder;

/// How long a condition may take on a loaded machine.
const WAIT_MAX: Duration = Duration::from_secs(60);
/// Verifying a password against this hash takes seconds.
const SLOW_HASH: &str = "bob:$2y$15$qEpkPzW0/J.jS9imiNqDKuhXu4JtS0Z/IEc/C85N39bFS2750KosS\n";
/// The password is "secret".
const QUICK_HASH: &str = "bob:$2y$05$qEpkPzW0/J.jS9imiNqDKuhXu4JtS0Z/IEc/C85N39bFS2750KosS\n";
const RIGHT: &str = "Ym9iOnNlY3JldA==";
const WRONG: &str = "Ym9iOndyb25n";
/// Fewer than the checks of one address that may wait.
const CLIENTS: u64 = 6;

#[test]
fn every_action_requires_the_password() {
    let folder = Folder::new("passwords-of-actions");
    folder.file("users", QUICK_HASH);
    folder.file(
        "app.lua",
        "return { on_request = function(request, response) response:write(request.user .. ' sent ' .. request.body) end }\n",
    );
    let actions = [
        ("/respond", "respond = { body = \"open\" }", 200),
        ("/redirect", "redirect = { to = \"/{user}\" }", 302),
        ("/synthetic", "synthetic = true", 200),
        ("/lua", "lua = \"app\"", 200),
        ("/push/*", "push = \"hub\"", 404),
        ("/echo", "echo = true", 426),
    ];
    let routes: String = actions
        .iter()
        .map(|(path, action, _)| {
            format!(
                "[[route]]\npath = \"{path}\"\nauth = {{ basic = \"users\" }}\n\
                 response-headers = {{ set = {{ x-user = \"{{user}}\" }} }}\n{action}\n"
            )
        })
        .collect();
    let gate = Gate::start(
        &folder,
        &format!(
            "[[listener]]\nbind = \"127.0.0.1:0\"\n{routes}[lua.app]\nscript = \"app.lua\"\n[push.hub]\n"
        ),
    );
    for (path, _, status) in actions {
        for (credentials, expected) in
            [(None, 401), (Some(WRONG), 401), (Some(RIGHT), status), (Some(RIGHT), status)]
        {
            let response = ask(&gate, &path.replace('*', "x"), credentials);
            let place = format!("{path}, {credentials:?}: {response}");
            assert!(response.starts_with(&format!("HTTP/1.1 {expected} ")), "{place}");
            let names_user = response.to_ascii_lowercase().contains("x-user: bob\r\n");
            assert_eq!(names_user, expected == status, "{place}");
            let is_run = (path, expected) == ("/lua", 200);
            assert_eq!(response.contains("bob sent the body"), is_run, "{place}");
        }
        if status == 302 {
            assert!(ask(&gate, path, Some(RIGHT)).contains("ocation: /bob\r\n"));
        }
    }
}

#[test]
fn reload_brings_the_first_route_with_passwords() {
    let operated = Operated::start("passwords-by-reload", "[server]\nworkers = 2\n");
    operated.folder.file("users", QUICK_HASH);
    assert!(ask_at(operated.door, "/json", None).starts_with("HTTP/1.1 200 "));
    let file = operated.folder.join("tidegate.toml");
    let text = std::fs::read_to_string(&file).expect("it exists");
    let users = operated.folder.join("users");
    let guarded = text.replace(
        "path = \"/json\"\n",
        &format!("path = \"/json\"\nauth = {{ basic = \"{users}\" }}\n"),
    );
    // The threads start once, and serve each later configuration.
    for _ in 0..2 {
        operated.folder.file("tidegate.toml", &guarded);
        operated.ctl_well(&["reload"]);
        for (credentials, status) in [(None, 401), (Some(WRONG), 401), (Some(RIGHT), 200)] {
            let response = ask_at(operated.door, "/json", credentials);
            assert!(response.starts_with(&format!("HTTP/1.1 {status} ")), "{response}");
        }
        operated.folder.file("tidegate.toml", &text);
        operated.ctl_well(&["reload"]);
        assert!(ask_at(operated.door, "/json", None).starts_with("HTTP/1.1 200 "));
    }
}

fn ask(gate: &Gate, path: &str, credentials: Option<&str>) -> String {
    ask_at(gate.address(), path, credentials)
}

/// The response to a request with a body on a connection of its own.
fn ask_at(address: SocketAddr, path: &str, credentials: Option<&str>) -> String {
    let mut client = TcpStream::connect(address).expect("it listens");
    client.set_read_timeout(Some(WAIT_MAX)).expect("the limit is valid");
    let credentials =
        credentials.map_or_else(String::new, |of| format!("Authorization: Basic {of}\r\n"));
    let request = format!(
        "POST {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n{credentials}Content-Length: 8\r\n\r\nthe body"
    );
    client.write_all(request.as_bytes()).expect("it reads");
    let mut response = String::new();
    client.read_to_string(&mut response).expect("it responds and closes");
    response
}

#[test]
fn request_ends_when_its_client_leaves_during_the_verification() {
    let users = format!("{}/slow-users", env!("CARGO_TARGET_TMPDIR"));
    std::fs::write(&users, SLOW_HASH).expect("the folder exists");
    let route = format!(
        "[server]\nworkers = 1\n[[route]]\npath = \"/secret\"\nauth = {{ basic = \"{users}\" }}\nproxy = \"app\"\n"
    );
    let operated = Operated::start("passwords", &route);
    let request = "GET /secret HTTP/1.1\r\nHost: a\r\nAuthorization: Basic Ym9iOndyb25n\r\n\r\n";
    for _ in 0..CLIENTS {
        let mut client = TcpStream::connect(operated.door).expect("it listens");
        client.write_all(request.as_bytes()).expect("it reads");
        client.shutdown(Shutdown::Write).expect("it is connected");
    }
    let begin = Instant::now();
    let (mut checks, mut departures) = (0, 0);
    while checks < CLIENTS || departures == 0 {
        assert!(begin.elapsed() < WAIT_MAX, "{checks} checks, {departures} departures");
        std::thread::sleep(Duration::from_millis(10));
        let shown = operated.ctl_well(&["show", "info", "json"]);
        let info: Value = serde_json::from_str(&shown).expect("it is JSON");
        let count = |name: &str| info["counters"][name].as_u64().expect("a counter");
        (checks, departures) = (count("password_checks"), count("client_aborts"));
        // One after the other, the checks of clients that stay would end with 401.
        assert_eq!(count("unauthenticated_requests"), 0, "a client that has left gets a response");
    }
}
