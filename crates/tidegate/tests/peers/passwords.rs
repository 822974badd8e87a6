//! Routes with `auth = { basic = ... }` on real sockets.
//! In: clients that leave while their passwords are verified. Out: their requests end before the verification does.

use std::io::Write as _;
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::admin::Operated;

/// How long a condition may take on a loaded machine.
const WAIT_MAX: Duration = Duration::from_secs(60);
/// Verifying a password against this hash takes seconds.
const SLOW_HASH: &str = "bob:$2y$15$qEpkPzW0/J.jS9imiNqDKuhXu4JtS0Z/IEc/C85N39bFS2750KosS\n";
/// Fewer than the checks of one address that may wait.
const CLIENTS: u64 = 6;

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
