//! Joins and leaves: observers learn who is there, however many clients come and go at once, and messages are not held up.
//! In: clients that subscribe and leave. Out: what each test's name says.

use std::sync::Arc;

use tidegate_push::hub::{Hub, OUTBOX_MAX};
use tidegate_push::mail::{PresentClient, Reply};

use crate::{Process, Subscriber};

#[test]
fn flood_of_joins_and_leaves_holds_up_no_message() {
    let text = "[push.p.namespace.j]\njoin-leave = true\n";
    let mut process = Process::new(2, 5, text);
    let observers = [0, 1].map(|worker| process.subscribe(worker, "j:room", None));
    for worker in 0..2 {
        process.subscribe(worker, "plain", None);
    }
    process.settle();
    let visitor = visitor("c");
    for turn in 0..5000 {
        let at = (process.now, turn);
        let begun = process.hubs[0]
            .subscribe(&process.settings, (0, "j:room"), 1000, (None, Some(visitor.clone())), at)
            .expect("a place");
        process.hubs[0].unsubscribe(&process.settings, begun.place, 1000, Some(&visitor.client));
        process.carry();
    }
    assert!(process.hubs.iter().all(Hub::can_receive), "joins and leaves fill the deliveries");
    let reply = process.publish(0, "plain");
    assert!(!matches!(reply, Some(Reply::Failed(_))), "{reply:?}");
    process.settle();
    let unreported: u64 = process.hubs.iter_mut().map(Hub::take_unreported).sum();
    assert_eq!(unreported, 0);
    for observer in observers {
        let known = &process.subscribers[&observer].visitors;
        assert_eq!(known.get("c"), Some(&false), "observer {observer} has missed the last leave");
    }
    let got = |one: &&Subscriber| one.channel == "plain" && one.received == [1];
    assert_eq!(process.subscribers.values().filter(got).count(), 2);
}

#[test]
fn observers_learn_of_all_clients_that_join_at_once() {
    for seed in 0..5 {
        let mut process = Process::new(2, seed, "[push.p.namespace.j]\njoin-leave = true\n");
        let observers = [0, 1].map(|worker| process.subscribe(worker, "j:room", None));
        process.settle();
        // More than may wait for a worker, most of which leave at once.
        let clients = OUTBOX_MAX as u32 + 200;
        for number in 0..clients {
            let at = (process.now, u64::from(number));
            let name: Arc<str> = format!("c{number}").into();
            let since = (None, Some(visitor(&name)));
            let begun = process.hubs[0]
                .subscribe(&process.settings, (0, "j:room"), 10_000 + number, since, at)
                .expect("a place");
            if number % 100 > 0 {
                let key = 10_000 + number;
                process.hubs[0].unsubscribe(&process.settings, begun.place, key, Some(&name));
            }
        }
        process.settle();
        assert_eq!(process.hubs.iter_mut().map(Hub::take_unreported).sum::<u64>(), 0);
        for observer in observers {
            let known = &process.subscribers[&observer].visitors;
            let present = known.values().filter(|is_there| **is_there).count();
            assert_eq!((known.len(), present), (1224, 13), "seed {seed}, observer {observer}");
        }
    }
}

/// A client whose joins and leaves are reported.
fn visitor(client: &str) -> PresentClient {
    PresentClient {
        client: client.into(),
        user: "u".into(),
        info: format!(r#"{{"user":"u","client":"{client}"}}"#).into(),
        is_listed: true,
        is_announced: None,
    }
}
