//! Other code for a Lua application while requests and WebSocket connections are open.
//! In: scripts, clients, reloads. Out: what each test's name says.
//! Limits: the turns that each test sets.
//! Invariant: after a run the workers hold nothing, VMs of earlier code included.

use std::collections::VecDeque;

use tidegate_base::Span;
use tidegate_config::arrange::Arranged;
use tidegate_gate::process_state::ProcessState;
use tidegate_reactor::SimPeer;
use tidegate_secure::TlsPlan;
use tidegate_server::apps;
use tidegate_server::snapshot::{Numbers, Snapshot};

use crate::lua::{Client, Process};
use crate::peer::harness::addresses;

/// A process, and what its next configuration follows.
pub struct Reloaded {
    pub process: Process,
    arranged: Arranged,
    numbers: Numbers,
    state: ProcessState,
}

fn file(script: &str) -> String {
    format!(
        "[[listener]]\nbind = \"10.0.0.1:80\"\ntimeouts = {{ head = \"1h\", idle = \"1h\" }}\n[[route]]\nlua = \"r\"\n[lua.r]\n\
        script = \"tests/scripts/{script}.lua\"\nreload-grace = \"10s\"\n"
    )
}

impl Reloaded {
    fn new(workers: u32) -> Self {
        Self::of(&file("before"), workers)
    }

    pub fn of(text: &str, workers: u32) -> Self {
        let config = tidegate_config::parse(text, "the test").expect("it is valid");
        Self {
            process: Process::of(text, workers),
            numbers: Numbers::of(&config),
            state: ProcessState::new(&config, 0),
            arranged: Arranged::first(config),
        }
    }

    /// Brings the configuration `text`. Returns what a worker refused.
    pub fn reload(&mut self, text: &str) -> Result<(), String> {
        let config = tidegate_config::parse(text, "the test").expect("it is valid");
        let next = self.arranged.next(config, &Default::default()).expect("there are indexes");
        let scripts = apps::read(&next.config).expect("they are readable");
        let workers = &mut self.process.workers;
        let failed = workers.iter_mut().find_map(|w| w.prepare(&next.config, &scripts).err());
        if let Some(error) = failed {
            workers.iter_mut().for_each(|worker| worker.worker.drop_prepared_apps());
            return Err(error.to_string());
        }
        for worker in workers {
            let addresses = addresses(&next.config);
            let state = self.state.clone();
            let snapshot = Snapshot::arranged(next.clone(), addresses, state, &mut self.numbers);
            let snapshot = snapshot.with_scripts(scripts.clone());
            let changed = worker.change(snapshot, &TlsPlan::default());
            changed.map_err(|error| error.to_string())?;
        }
        self.arranged = next;
        Ok(())
    }

    /// Lets time pass in turns of 100 ms.
    pub fn pass(&mut self, span: Span) {
        for _ in 0..span.as_millis() / 100 {
            self.process.net.advance_by(Span::from_millis(100));
            self.process.turns(4);
        }
    }

    fn begin(&self, target: &str) -> SimPeer {
        let peer = self.process.net.dial(&self.process.workers[0].bound[0]).expect("they listen");
        let request = format!("GET {target} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
        assert_eq!(peer.send(request.as_bytes()), request.len());
        peer
    }

    fn retired(&self) -> usize {
        self.process.workers.iter().map(|worker| worker.worker.leftovers().retired).sum()
    }
}

fn body(peer: &SimPeer) -> String {
    let response: Vec<u8> = peer.receive().into_iter().collect();
    String::from_utf8_lossy(&response).into_owned()
}

#[test]
fn clients_are_handed_over_with_their_state_and_their_id() {
    for workers in [1, 3] {
        let mut run = Reloaded::new(workers);
        let mut clients: Vec<(Client, String)> = (0..9).map(|_| run.process.connect()).collect();
        for (client, _) in &clients {
            client.send("one");
        }
        clients[4].0.send("wait");
        run.process.turns(20);
        let request = run.begin("/short");
        run.process.turns(5);
        assert_eq!(run.reload(&file("after")), Ok(()));
        assert_eq!(run.process.get("/"), "after", "new requests get the new code");
        for (at, (client, _)) in clients.iter_mut().enumerate() {
            let expected: &[&str] = match at {
                4 => &["before 1"],
                _ => &["before 1", "handed over 1"],
            };
            assert_eq!(client.read(), expected, "client {at}, {workers} workers");
        }
        assert!((1..=workers as usize).contains(&run.retired()), "VMs without clients end at once");
        // The VM before still has the client whose handler waits.
        clients[0].0.send(&format!("to {} early", clients[4].1));
        run.process.turns(20);
        assert_eq!(
            (clients[0].0.read(), clients[4].0.read()),
            (vec!["after 2".into()], vec!["early".into()])
        );
        run.pass(Span::from_secs(2));
        assert!(
            body(&request).ends_with("before"),
            "a request ends with the code that it began with"
        );
        request.reset();
        assert_eq!(clients[4].0.read(), ["before 2", "handed over 2"], "after its handler");
        assert_eq!(run.retired(), 0, "the previous VMs have nothing left to do");
        // The id of a client is the same, even for other workers.
        let to = clients[8].1.clone();
        clients[0].0.send(&format!("to {to} hello"));
        run.process.turns(20);
        assert_eq!(
            (clients[0].0.read(), clients[8].0.read()),
            (vec!["after 3".into()], vec!["hello".into()])
        );
        let (new, id) = run.process.connect();
        assert!(clients.iter().all(|(_, other)| *other != id), "{id}");
        assert_eq!(run.process.sum("lua_handovers"), 9);
        clients.push((new, id));
        run.process.finish(clients.into_iter().map(|(client, _)| client).collect());
    }
}

#[test]
fn failed_on_handover_closes_its_client_only() {
    let mut run = Reloaded::new(1);
    let mut clients: Vec<Client> = (0..3).map(|_| run.process.connect().0).collect();
    for _ in 0..13 {
        clients[1].send("count");
        run.process.turns(4);
    }
    assert_eq!(run.reload(&file("after")), Ok(()));
    run.process.turns(20);
    assert_eq!(clients[1].read().last().map(String::as_str), Some("1011"));
    for at in [0, 2] {
        assert_eq!(clients[at].read(), ["handed over 0"]);
    }
    run.process.finish(clients);
}

#[test]
fn clients_that_are_not_handed_over_are_closed_over_time() {
    let mut run = Reloaded::new(1);
    let mut clients: Vec<Client> = (0..30).map(|_| run.process.connect().0).collect();
    assert_eq!(run.reload(&file("without_handover")), Ok(()));
    for second in 1..=8 {
        for client in &clients {
            client.send("served until it is closed");
        }
        run.pass(Span::from_secs(1));
        let before = clients.len();
        clients.retain_mut(|client| {
            let messages = client.read();
            let is_open = messages.last().is_some_and(|message| message.starts_with("before "));
            assert!(
                is_open || messages.last().is_some_and(|message| message == "1012"),
                "{messages:?}"
            );
            is_open
        });
        assert!(before - clients.len() <= 6, "{} at once", before - clients.len());
        assert!(clients.len() <= 30 - 3 * second.min(7), "{} are left", clients.len());
    }
    assert!(clients.is_empty(), "within three quarters of the grace period");
    run.process.turns(20);
    assert_eq!((run.retired(), run.process.sum("lua_drained_clients")), (0, 30));
    run.process.finish(clients);
}

/// All of them in one turn would delay every other connection of the worker.
#[test]
fn clients_are_closed_over_several_turns_even_without_a_grace_period() {
    let without_grace = |script| file(script).replace("\"10s\"", "\"0s\"");
    let mut run = Reloaded::of(&without_grace("before"), 1);
    let mut clients: Vec<Client> = (0..50).map(|_| run.process.connect().0).collect();
    assert_eq!(run.reload(&without_grace("without_handover")), Ok(()));
    let mut before = run.process.sum("lua_drained_clients");
    let mut turns = 0;
    while before < 50 {
        run.process.net.advance_by(Span::from_millis(1));
        run.process.turns(1);
        let closed = run.process.sum("lua_drained_clients");
        assert!(closed - before <= 32, "{} in one turn", closed - before);
        before = closed;
        turns += 1;
        assert!(turns < 100, "{closed} are closed");
    }
    run.process.turns(20);
    for client in &mut clients {
        assert_eq!(client.read(), ["1012"]);
    }
    assert_eq!((run.retired(), run.process.sum("lua_drained_clients")), (0, 50));
    run.process.finish(clients);
}

#[test]
fn requests_that_are_too_slow_end_with_the_grace_period() {
    let mut run = Reloaded::new(1);
    let (mut client, _) = run.process.connect();
    client.send("wait");
    let request = run.begin("/long");
    run.process.turns(10);
    assert_eq!(run.reload(&file("after")), Ok(()));
    run.pass(Span::from_secs(9));
    assert_eq!((body(&request), run.retired()), (String::new(), 1));
    run.pass(Span::from_secs(2));
    let response = body(&request);
    assert!(
        response.starts_with("HTTP/1.1 503 ") && response.contains("the application was reloaded"),
        "{response}"
    );
    assert_eq!((run.retired(), run.process.sum("lua_reload_cuts")), (0, 1));
    assert_eq!(client.read(), ["before 1", "handed over 1"]);
    request.reset();
    run.process.finish(vec![client]);
}

#[test]
fn code_whose_on_start_fails_changes_no_worker() {
    let mut run = Reloaded::new(2);
    let (mut client, _) = run.process.connect();
    for (script, why, failures) in
        [("fails_to_start", "no database", 1), ("fails_in_worker_1", "no luck", 2)]
    {
        let error = run.reload(&file(script)).expect_err("on_start fails");
        assert!(error.contains(&format!("{script}.lua: on_start: ")), "{error}");
        assert!(error.contains(why), "{error}");
        assert_eq!(run.process.sum("lua_reload_failures"), failures);
    }
    assert_eq!((run.process.get("/"), run.retired()), ("before".to_owned(), 0));
    client.send("x");
    run.process.turns(10);
    assert_eq!((client.read(), run.retired()), (vec!["before 1".to_owned()], 0));
    assert_eq!(run.process.sum("lua_reloads"), 0);
    assert_eq!(run.reload(&file("after")), Ok(()));
    assert_eq!(
        (run.process.get("/"), client.read()),
        ("after".to_owned(), vec!["handed over 1".to_owned()])
    );
    run.process.finish(vec![client]);
}

/// A file whose application decides about the requests of all routes.
fn hooked(script: &str) -> String {
    let text = file(script).replace("lua = \"r\"", "proxy = \"p\"\nhooks = \"r\"");
    format!(
        "{text}memory-max = \"1MiB\"\nshared = {{ vms = \"64KiB\" }}\n[pool.p]\nservers = [\"10.0.1.1:80\"]\n"
    )
}

/// The previous code has no `on_access`, so a request of the new routes would be forwarded without a decision.
#[test]
fn routes_with_hooks_come_into_force_only_with_their_code() {
    let mut run = Reloaded::new(2);
    let refused = run.reload(&hooked("refuses_but_fails_to_start"));
    assert!(refused.is_err_and(|error| error.contains("no database")));
    assert_eq!(run.process.get("/"), "before");
    run.process.finish(Vec::new());
}

#[test]
fn request_passes_no_hook_whose_code_has_lost_on_access() {
    let mut run = Reloaded::of(&hooked("forgets_to_decide"), 1);
    assert_eq!(run.process.get("/"), "refused");
    let discarded = run.process.get("/hoard");
    assert!(discarded.contains("the application failed"), "{discarded}");
    assert_eq!(run.process.sum("lua_restarts"), 1);
    let response = run.process.get("/");
    assert!(response.contains("the application cannot decide"), "{response}");
    run.process.finish(Vec::new());
}

/// The code between has given the id of the first client to another one, because its VM was discarded.
#[test]
fn client_is_never_handed_over_under_the_id_of_another_one() {
    let mut run = Reloaded::new(1);
    let (mut first, _) = run.process.connect();
    first.send("wait");
    run.process.turns(10);
    assert_eq!(run.reload(&format!("{}memory-max = \"1MiB\"\n", file("between"))), Ok(()));
    assert_eq!(run.process.get("/"), "between");
    let discarded = run.process.get("/hoard");
    assert!(discarded.contains("the application failed"), "{discarded}");
    let (mut second, _) = run.process.connect();
    assert_eq!(run.process.sum("lua_restarts"), 1);
    run.pass(Span::from_millis(500));
    second.send("wait");
    run.process.turns(10);
    assert_eq!(run.reload(&file("after")), Ok(()));
    run.pass(Span::from_secs(2));
    assert_eq!(first.read(), ["before 1"], "its handler ends before that of the second");
    assert_eq!(second.read(), ["between", "handed over 7"]);
    run.pass(Span::from_secs(10));
    assert_eq!((first.read(), run.retired()), (vec!["1012".to_owned()], 0));
    run.process.finish(vec![first, second]);
}

#[test]
fn applications_come_and_go() {
    let mut run = Reloaded::new(2);
    let (mut client, _) = run.process.connect();
    let moved =
        file("before").replace("[[route]]\nlua = \"r\"", "[[route]]\npath = \"/new\"\nlua = \"n\"");
    let moved = moved.replace("[lua.r]", "[lua.n]");
    assert_eq!(run.reload(&moved), Ok(()));
    assert_eq!(run.process.get("/new"), "before");
    run.pass(Span::from_secs(9));
    assert_eq!(client.read(), ["1012"], "the application of the client was removed");
    drop(client);
    run.process.turns(20);
    assert_eq!(run.reload(&file("after")), Ok(()), "it comes back");
    assert_eq!(run.process.get("/"), "after");
    run.pass(Span::from_secs(11));
    assert_eq!(run.retired(), 0);
    run.process.finish(Vec::new());
}

#[test]
fn storm_of_reloads_keeps_few_vms_and_leaks_nothing() {
    let mut run = Reloaded::new(2);
    let mut clients: Vec<Client> = (0..6).map(|_| run.process.connect().0).collect();
    let mut requests = VecDeque::new();
    for round in 0..200 {
        // A request that its code never answers keeps the VM until the limit ends it.
        requests.push_back(run.begin("/long"));
        if requests.len() > 12 {
            requests.pop_front();
        }
        clients[round % 6].send(if round % 3 == 0 { "wait" } else { "x" });
        run.process.turns(6);
        let script = ["after", "before", "without_handover", "before"][round % 4];
        // A change of the file's name, or of nothing but the settings, is a change.
        let text = format!("{}settings = {{ round = {round} }}\n", file(script));
        assert_eq!(run.reload(&text), Ok(()), "round {round}");
        assert!(run.retired() <= 2 * 4, "{} VMs of earlier code", run.retired());
        run.process.turns(10);
        if round % 10 == 9 {
            for client in &mut clients {
                if client.read().iter().any(|message| message == "1012" || message == "1011") {
                    *client = run.process.connect().0;
                }
            }
        }
    }
    assert!(run.process.sum("lua_reload_cuts") > 100, "{}", run.process.sum("lua_reload_cuts"));
    run.pass(Span::from_secs(11));
    assert_eq!(run.retired(), 0);
    drop(requests);
    run.process.finish(clients);
}
