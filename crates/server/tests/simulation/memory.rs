//! Named cases of `memory-max`. The memory in use is an input.

use tidegate_gate::memory::MemoryUse;
use tidegate_reactor::SimPeer;

use crate::settings::Changes;
use crate::stage::{GET, Stage, assert_status, scene};

/// Sends a request that no server gets; returns the response.
fn refused(stage: &mut Stage, client: &SimPeer, path: &str) -> String {
    client.send(format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n").as_bytes());
    stage.receive_until(client, "is overloaded\n")
}

#[test]
fn new_requests_are_refused_while_too_much_memory_is_in_use() {
    let routes = "[[route]]\npath = \"/health\"\nproxy = \"p\"\nshed = false\n";
    let limit = "[server.overload]\nmemory-max = \"100MiB\"\n";
    scene().listener(routes).pool(limit).run(|stage| {
        let mut changes = Changes::of(stage);
        changes.apply(stage, &[]).expect("it is valid");
        let memory = changes.process.memory.clone();
        let client = stage.dial();
        let note = |mib: u64| {
            memory.note(MemoryUse { resident: mib << 20, shared: (0, 0) });
        };
        note(100);
        let origin = stage.forward(&client, GET);
        note(101);
        let answer = stage.respond(&origin, &client);
        assert_status(200, &answer);
        for path in ["/p", "/synthetic?s=5"] {
            let answer = refused(stage, &client, path);
            assert_status(503, &answer);
            assert!(answer.to_lowercase().contains("\r\nretry-after: "), "{answer}");
        }
        assert!(!stage.hello(&client).contains("close"), "the connection stays open");
        client.send(b"GET /health HTTP/1.1\r\nHost: a\r\n\r\n");
        stage.receive_until(&origin, "\r\n\r\n");
        assert_status(200, &stage.respond(&origin, &client));
        let counters = stage.counters();
        assert_eq!((counters.memory_refusals.load(), counters.overload_refusals.load()), (2, 0));
        let log = stage.harness.log.as_ref().expect("it records").take_string();
        let reason = "\"reason\":\"the process uses more memory than memory-max\"";
        assert_eq!(log.matches(reason).count(), 2, "{log}");
        // The use must fall by more than to the limit.
        note(99);
        assert_status(503, &refused(stage, &client, "/p"));
        note(95);
        client.send(GET);
        stage.receive_until(&origin, "\r\n\r\n");
        assert_status(200, &stage.respond(&origin, &client));
    });
}
