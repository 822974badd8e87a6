//! Named cases of a changed configuration: what ends, what stays, and what keeps the settings it began with.

use tidegate_base::Span;
use tidegate_config::arrange::Arranged;
use tidegate_gate::process_state::ProcessState;
use tidegate_reactor::Faults;
use tidegate_server::Snapshot;
use tidegate_server::apply_settings::{InUse, removed_in_use};
use tidegate_server::snapshot::Numbers;

use crate::peer::harness::addresses;
use crate::stage::{GET, OK, Scene, Stage, assert_status, scene};

/// Changes the configuration of a stage's worker.
pub struct Changes {
    arranged: Arranged,
    numbers: Numbers,
    /// The state of the last change that workers share.
    pub process: ProcessState,
}

fn parse(text: &str) -> tidegate_config::model::Config {
    match tidegate_config::parse(text, "the test") {
        Ok(config) => config,
        Err(errors) => panic!("{errors}\n{text}"),
    }
}

impl Changes {
    /// Begins with the configuration of `stage`.
    pub fn of(stage: &Stage) -> Self {
        let config = parse(&stage.text);
        Self {
            numbers: Numbers::of(&config),
            process: ProcessState::new(&config, 0),
            arranged: Arranged::first(config),
        }
    }

    /// Applies the stage's configuration with each `from` replaced by `to`.
    pub fn apply(&mut self, stage: &mut Stage, edits: &[(&str, &str)]) -> Result<(), String> {
        let mut text = stage.text.clone();
        for (from, to) in edits {
            assert!(text.contains(from), "{from:?} is not in {text}");
            text = text.replace(from, to);
        }
        self.apply_text(stage, &text)
    }

    /// Applies another configuration.
    pub fn apply_text(&mut self, stage: &mut Stage, text: &str) -> Result<(), String> {
        let in_use = removed_in_use(&[InUse::clone(&stage.harness.in_use)], &self.arranged);
        let next = self.arranged.next(parse(text), &in_use).map_err(|error| error.to_string())?;
        let addresses = addresses(&next.config);
        self.process = ProcessState::new(&next.config, 0);
        let process = self.process.clone();
        let snapshot = Snapshot::arranged(next.clone(), addresses, process, &mut self.numbers);
        let plan = tidegate_secure::TlsPlan::default();
        stage.harness.change(snapshot, &plan).map_err(|error| error.to_string())?;
        self.arranged = next;
        Ok(())
    }
}

/// The next lines of the access log.
fn last_line(stage: &mut Stage) -> String {
    stage.until(|stage| {
        let lines = stage.harness.log.as_ref().map(|log| log.take_string());
        lines.filter(|lines| !lines.is_empty())
    })
}

/// A scene with a second listener, which the changes remove.
fn with_second_listener<'a>() -> Scene<'a> {
    scene().listener("[[listener]]\nname = \"second\"\nbind = \"10.0.0.1:81\"\n")
}

const SECOND: (&str, &str) = ("[[listener]]\nname = \"second\"\nbind = \"10.0.0.1:81\"\n", "");

#[test]
fn removed_listener_ends_its_connections_after_their_responses() {
    with_second_listener().run(|stage| {
        let second = stage.harness.bound[1].clone();
        let dial = |stage: &Stage| stage.net.dial(&second).expect("the worker listens");
        let (idle, busy, new_client) = (dial(stage), dial(stage), dial(stage));
        stage.hello(&idle);
        let origin = stage.forward(&busy, GET);
        // In the backlog, not accepted yet.
        let waiting = dial(stage);
        Changes::of(stage).apply(stage, &[SECOND]).expect("it is valid");
        let answer = stage.respond(&origin, &busy);
        assert_status(200, &answer);
        assert!(answer.to_lowercase().contains("connection: close"), "{answer}");
        stage.wait_finished(&busy);
        for client in [&new_client, &waiting] {
            let answer = stage.hello(client);
            assert!(answer.to_lowercase().contains("connection: close"), "{answer}");
            stage.wait_finished(client);
        }
        stage.wait_finished(&idle);
        assert!(stage.net.dial(&second).is_none(), "the listener is closed");
        assert!(stage.net.dial(&stage.harness.bound[0]).is_some(), "the other listener is open");
    });
}

#[test]
fn added_listener_is_open_and_can_be_removed_and_added_again() {
    with_second_listener().run(|stage| {
        let second = stage.harness.bound[1].clone();
        let mut changes = Changes::of(stage);
        for _ in 0..3 {
            changes.apply(stage, &[SECOND]).expect("it is valid");
            stage.until(|stage| stage.net.dial(&second).is_none().then_some(()));
            changes.apply(stage, &[]).expect("it is valid");
            let client = stage.net.dial(&second).expect("the listener is open again");
            stage.hello(&client);
        }
        assert_eq!(changes.arranged.config.listeners.len(), 2, "the index was used again");
    });
}

#[test]
fn refused_listener_changes_nothing() {
    scene().with_client(|stage, client| {
        let taken = tidegate_base::Address::Unix("/run/taken".to_owned());
        let other = stage.net.serve(&taken).expect("the address is free");
        let added = "[[listener]]\nbind = \"unix:/run/taken\"\n[[route]]\npath = \"/hello\"\n\
                     respond = { body = \"hello, you\" }\n";
        let edit =
            ("[[route]]\npath = \"/hello\"\n", format!("{added}[[route]]\npath = \"/hello\"\n"));
        let refused = Changes::of(stage).apply(stage, &[(edit.0, &edit.1)]);
        assert!(refused.is_err());
        let answer = stage.hello(&client);
        assert!(answer.ends_with("\r\n\r\nhello"), "{answer}");
        assert_eq!(stage.counters().settings_changes.load(), 0);
        drop(other);
    });
}

#[test]
fn routes_change_for_the_next_request_of_a_connection() {
    scene().with_client(|stage, client| {
        stage.hello(&client);
        let edit = ("body = \"hello\"", "body = \"good day, hello\"");
        Changes::of(stage).apply(stage, &[edit]).expect("it is valid");
        let answer = stage.hello(&client);
        assert!(answer.ends_with("\r\n\r\ngood day, hello"), "{answer}");
        assert_eq!(stage.harness.worker.leftovers().earlier, 0);
    });
}

#[test]
fn request_under_way_keeps_its_settings_and_the_next_one_has_the_new_ones() {
    const LONG: &str = "timeouts = { response-head = \"20s\" }";
    const SHORT: &str = "timeouts = { response-head = \"1s\" }";
    scene().pool(LONG).with_request(GET, |stage, client, origin| {
        Changes::of(stage).apply(stage, &[(LONG, SHORT)]).expect("it is valid");
        assert_eq!(stage.harness.worker.leftovers().earlier, 1);
        stage.pass(Span::from_secs(10));
        let answer = stage.respond(&origin, &client);
        assert_status(200, &answer);
        assert_eq!(stage.harness.worker.leftovers().earlier, 0, "the old settings are freed");
        client.send(GET);
        stage.receive_until(&origin, "\r\n\r\n");
        let answer = stage.receive_until(&client, "\r\n\r\n");
        assert_status(504, &answer);
    });
}

#[test]
fn removed_server_finishes_its_request_and_gets_no_other() {
    const BEFORE: &str = "servers = [\"10.0.1.1:8000\"]";
    const AFTER: &str = "servers = [\"10.0.1.2:8000\"]";
    scene().with_request(GET, |stage, client, origin| {
        let second = tidegate_base::Address::Tcp(([10, 0, 1, 2], 8000).into());
        let second = stage.net.serve(&second).expect("the address is free");
        // A second connection to the first server, which is idle when the server is removed.
        let other = stage.dial();
        let idle = stage.forward(&other, GET);
        stage.respond(&idle, &other);
        let mut changes = Changes::of(stage);
        changes.apply(stage, &[(BEFORE, AFTER)]).expect("it is valid");
        stage.wait_finished(&idle);
        assert!(stage.harness.worker.leftovers().earlier > 0, "the removed server is in use");
        let answer = stage.respond(&origin, &client);
        assert_status(200, &answer);
        stage.wait_finished(&origin);
        client.send(GET);
        let newer = stage.until(|_| second.accept());
        stage.receive_until(&newer, "\r\n\r\n");
        newer.send(OK);
        stage.receive_until(&client, "ok");
        stage.pass(Span::from_millis(200));
        changes
            .apply(stage, &[(BEFORE, "servers = [\"10.0.1.2:8000\", \"10.0.1.3:8000\"]")])
            .expect("valid");
        let servers = &changes.arranged.config.pools[0].servers;
        assert_eq!(servers.len(), 2, "the index of the removed server was given away: {servers:?}");
    });
}

#[test]
fn idle_connections_to_servers_that_stay_are_reused_after_a_change() {
    scene().with_request(GET, |stage, client, origin| {
        stage.respond(&origin, &client);
        let mut changes = Changes::of(stage);
        for at in 0..3 {
            let edit = ("[pool.p]\n", format!("[pool.p]\nqueue-max = {at}\n"));
            changes.apply(stage, &[(edit.0, &edit.1)]).expect("it is valid");
            client.send(GET);
            stage.receive_until(&origin, "\r\n\r\n");
            stage.respond(&origin, &client);
        }
        assert_eq!(stage.counters().upstream_connects.load(), 1);
    });
}

#[test]
fn waiting_request_uses_a_server_that_was_added() {
    const BEFORE: &str = "servers = [{ address = \"10.0.1.1:8000\", connections-max = 1 }]";
    const AFTER: &str =
        "servers = [{ address = \"10.0.1.1:8000\", connections-max = 1 }, \"10.0.1.2:8000\"]";
    scene().pool(BEFORE).with_request(GET, |stage, client, origin| {
        let second = tidegate_base::Address::Tcp(([10, 0, 1, 2], 8000).into());
        let second = stage.net.serve(&second).expect("the address is free");
        let other = stage.dial();
        other.send(GET);
        stage.pass(Span::from_millis(100));
        assert_eq!(stage.counters().queued.load(), 1);
        Changes::of(stage).apply(stage, &[(BEFORE, AFTER)]).expect("it is valid");
        let newer = stage.until(|_| second.accept());
        stage.receive_until(&newer, "\r\n\r\n");
        newer.send(OK);
        stage.receive_until(&other, "ok");
        let line = last_line(stage);
        assert!(line.contains("10.0.1.2:8000"), "{line}");
        let answer = stage.respond(&origin, &client);
        assert_status(200, &answer);
    });
}

#[test]
fn requests_of_too_many_generations_continue_with_newer_settings() {
    const LONG: &str = "timeouts = { response-head = \"1000s\" }";
    scene().pool(LONG).run(|stage| {
        let mut changes = Changes::of(stage);
        let mut under_way = Vec::new();
        for at in 0..20 {
            let client = stage.dial();
            let origin = stage.forward(&client, GET);
            under_way.push((client, origin));
            let edit = ("[pool.p]\n", format!("[pool.p]\nretries = {}\n", at % 2));
            changes.apply(stage, &[(edit.0, &edit.1)]).expect("it is valid");
        }
        assert_eq!(stage.harness.worker.leftovers().earlier, 15);
        assert_eq!(stage.counters().settings_adopted.load(), 5);
        for (client, origin) in &under_way {
            let answer = stage.respond(origin, client);
            assert_status(200, &answer);
        }
        assert_eq!(stage.harness.worker.leftovers().earlier, 0);
    });
}

#[test]
fn tunnel_stays_open_over_many_changes_and_uses_no_earlier_settings() {
    const UPGRADE: &[u8] =
        b"GET /p HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n";
    scene().with_request(UPGRADE, |stage, client, origin| {
        origin
            .send(b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n");
        stage.receive_until(&client, "\r\n\r\n");
        let mut changes = Changes::of(stage);
        for at in 0..40 {
            let edit = ("[pool.p]\n", format!("[pool.p]\nretries = {}\n", at % 2));
            changes.apply(stage, &[(edit.0, &edit.1)]).expect("it is valid");
            assert_eq!(stage.harness.worker.leftovers().earlier, 0);
            assert_eq!(stage.harness.worker.settings_held_by_records(), 0);
            client.send(b"ping");
            stage.receive_until(&origin, "ping");
        }
        // The pool may go while the tunnel lasts.
        let gone = ("[[route]]\nproxy = \"p\"\n", "[[route]]\nproxy = \"q\"\n");
        let renamed = ("[pool.p]\n", "[pool.q]\n");
        changes.apply(stage, &[gone, renamed]).expect("it is valid");
        client.send(b"ping");
        stage.receive_until(&origin, "ping");
        assert_eq!(changes.arranged.config.pools.len(), 2);
        drop((client, origin));
        let line = last_line(stage);
        assert!(line.contains("\"p\"") && line.contains("10.0.1.1:8000"), "{line}");
    });
}

#[test]
fn removed_server_gets_no_request_of_its_sessions() {
    const BEFORE: &str = "servers = [\"10.0.1.1:8000\", \"10.0.1.2:8000\"]";
    const AFTER: &str = "servers = [\"10.0.1.1:8000\"]";
    const CLOSED: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok";
    let pool = format!(
        "{BEFORE}\nbalance = \"round-robin\"\ntimeouts = {{ connect = \"2s\" }}\nsticky = {{ cookie = \"SRV\" }}"
    );
    scene().pool(&pool).run(|stage| {
        let second = tidegate_base::Address::Tcp(([10, 0, 1, 2], 8000).into());
        let second = stage.net.serve(&second).expect("the address is free");
        // By server: the cookie that names it.
        let mut cookies = [const { String::new() }; 2];
        for _ in 0..2 {
            let client = stage.dial();
            client.send(GET);
            let (at, origin) = stage.until(|stage| {
                let first = stage.try_accept().map(|origin| (0, origin));
                first.or_else(|| second.accept().map(|origin| (1, origin)))
            });
            stage.receive_until(&origin, "\r\n\r\n");
            origin.send(CLOSED);
            let answer = stage.receive_until(&client, "\r\n\r\nok");
            let cookie = answer.split("SRV=").nth(1).and_then(|rest| rest.split(';').next());
            cookies[at] = format!("SRV={}", cookie.expect("the session begins"));
        }
        let mut changes = Changes::of(stage);
        changes.apply(stage, &[(BEFORE, AFTER)]).expect("it is valid");
        stage.pass(Span::from_millis(300));
        // The first connect of the request fails after a further change, in which the removed server leaves the list.
        stage.net.set_faults(Faults { connect_silent_ppm: 1_000_000, ..Faults::none() });
        let client = stage.dial();
        let request = format!("GET / HTTP/1.1\r\nHost: a\r\nCookie: {}\r\n\r\n", cookies[1]);
        client.send(request.as_bytes());
        stage.pass(Span::from_millis(100));
        assert_eq!(stage.counters().upstream_connects.load(), 3);
        stage.net.set_faults(Faults::none());
        changes.apply(stage, &[(BEFORE, &format!("{AFTER}\nqueue-max = 7"))]).expect("it is valid");
        assert_eq!(changes.arranged.config.pools[0].servers.len(), 1);
        let origin = stage.accept();
        stage.receive_until(&origin, "\r\n\r\n");
        origin.send(CLOSED);
        let answer = stage.receive_until(&client, "\r\n\r\nok");
        assert!(answer.contains(&cookies[0]), "the session moves: {answer}");
    });
}
