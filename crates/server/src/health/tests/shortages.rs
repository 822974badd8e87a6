//! Checks that lack a resource of this process.

use tidegate_reactor::{Reactor, ServerKey, Shortage};

use super::*;

/// How often each server was checked.
fn checks(stage: &Stage) -> [u64; 8] {
    core::array::from_fn(|at| checks_of(stage, at))
}

/// How often a server was checked.
fn checks_of(stage: &Stage, server: usize) -> u64 {
    stage.view(server).checked.expect("it is checked").checks
}

#[test]
fn connection_whose_server_does_not_close_gives_its_slot_to_a_check() {
    let mut stage = Stage::with_slots(8, HTTP, (Faults::none(), 61), 2);
    for origin in &mut stage.origins {
        origin.manner = Manner::Lingers;
    }
    stage.run(Span::from_secs(21));
    let checks = checks(&stage);
    assert!(checks.iter().all(|count| *count >= 9), "one each 2 s: {checks:?}");
    assert!((0..8).all(|at| stage.word(at) == "UP"));
}

#[test]
fn checks_that_lack_a_slot_are_made_in_the_order_of_their_waiting() {
    let mut stage = Stage::with_slots(8, HTTP, (Faults::none(), 62), 1);
    for origin in &mut stage.origins {
        origin.manner = Manner::Silent;
    }
    // Each check takes its timeout of 500 ms, and servers are checked each second while they fail.
    stage.run(Span::from_secs(41));
    let (most, least) = (checks(&stage).into_iter().max(), checks(&stage).into_iter().min());
    assert!(least >= Some(9) && most <= Some(11), "{:?}", checks(&stage));
    assert!((0..8).all(|at| stage.word(at) == "DOWN"));
    let postponed = stage.roster.postponed();
    assert!((60..=100).contains(&postponed), "each check is counted once: {postponed}");
    // Those that wait stay in their order over a reload, and those that were removed wait no longer.
    for servers in [4, 8] {
        stage.reload(servers, HTTP);
        stage.run(Span::from_secs(20));
    }
    stage.origins.iter_mut().for_each(|origin| origin.manner = Manner::Status(200));
    stage.origins.iter_mut().for_each(|origin| origin.open.clear());
    stage.run(Span::from_secs(20));
    assert!((0..8).all(|at| stage.word(at) == "UP"));
    stage.prober.change(&mut stage.reactor, Vec::new());
    stage.run(Span::from_secs(3));
    assert_eq!(stage.net.open_sockets(), 0);
}

const MEMORY: Shortage = Shortage::Memory;
const PORTS: Shortage = Shortage::Ports;

#[test]
fn server_that_no_connect_can_reach_holds_up_no_other_check() {
    let mut seed = 63;
    for shortage in [PORTS, MEMORY] {
        for is_late in [false, true] {
            seed += 1;
            let mut stage = Stage::new(8, HTTP, Faults::none(), seed);
            stage.net.set_shortage(&address(0), Some(shortage), is_late);
            stage.origins[1].manner = Manner::Lingers;
            stage.run(Span::from_secs(3));
            let mut lingering = 0;
            for _ in 0..100 {
                stage.run(Span::from_millis(100));
                lingering += usize::from(!stage.origins[1].open.is_empty());
            }
            let counts = checks(&stage);
            assert!(counts[0] == 0 && counts[1..].iter().all(|count| *count >= 5), "{counts:?}");
            if shortage == PORTS {
                assert!(lingering > 40, "it is kept for 1 s of each 2 s: {lingering}");
                assert_eq!(stage.roster.postponed(), 1);
            }
            stage.net.set_shortage(&address(0), None, false);
            // A check without a port waits for `every` in the end.
            stage.run(Span::from_millis(if shortage == PORTS { 2000 } else { 300 }));
            assert!(checks(&stage)[0] == 1 && stage.word(0) == "UP");
        }
    }
}

#[test]
fn checks_without_a_port_are_tried_more_and_more_rarely() {
    let mut stage = Stage::new(1, HTTP, Faults::none(), 77);
    stage.net.set_shortage(&address(0), Some(PORTS), false);
    stage.run(Span::from_secs(5));
    let before = stage.net.short_connects();
    stage.run(Span::from_secs(20));
    let tries = stage.net.short_connects() - before;
    assert!((9..=11).contains(&tries), "once in each interval of 2 s: {tries}");
}

#[test]
fn next_address_is_tried_if_there_is_no_port_for_one() {
    for (seed, is_late) in [(70, false), (71, true)] {
        let mut stage = Stage::new(2, HTTP, Faults::none(), seed);
        stage.net.set_shortage(&address(0), Some(PORTS), is_late);
        let own = vec![address(0), address(7)];
        stage.give_targets_at(&vec![vec![own, vec![address(1)]]]);
        stage.run(Span::from_secs(10));
        assert!(stage.origins[7].requests.len() >= 4 && stage.word(0) == "UP");
        assert_eq!((stage.origins[0].accepted, stage.roster.postponed()), (0, 0));
    }
}

#[test]
fn check_fails_if_no_address_can_be_reached_and_there_is_no_port_for_the_last_one() {
    for (seed, is_late) in [(75, false), (76, true)] {
        let mut stage = Stage::new(2, HTTP, Faults::none(), seed);
        stage.origins[0].manner = Manner::Down;
        stage.net.set_shortage(&address(7), Some(PORTS), is_late);
        stage.give_targets_at(&vec![vec![vec![address(0), address(7)], vec![address(1)]]]);
        stage.run(Span::from_secs(15));
        let count = checks_of(&stage, 0);
        assert!(count >= 4 && stage.word(0) == "DOWN", "{count}: {}", stage.word(0));
        assert!(stage.word(1) == "UP" && stage.roster.postponed() == 0);
    }
}

#[test]
fn server_without_a_plan_for_tls_lacks_nothing_that_others_need() {
    let mut stage = Stage::new(1, HTTP, Faults::none(), 72);
    let key = ServerKey { pool: 7, server: 0, http1_only: false };
    let (reactor, prober) = (&mut stage.reactor, &mut stage.prober);
    let refused = stage
        .layer
        .between_turns(reactor, prober, |_, view| view.connect_secured(&address(0), key).err());
    assert_eq!(refused, Some(PORTS));
}

/// How often all servers were checked.
fn total(stage: &Stage, servers: usize) -> u64 {
    (0..servers).map(|at| checks_of(stage, at)).sum()
}

/// Lets one check lack a resource of the process, for once.
fn let_a_check_wait(stage: &mut Stage, servers: usize) {
    let set = |stage: &Stage, shortage: Option<Shortage>| {
        (0..servers).for_each(|at| stage.net.set_shortage(&address(at), shortage, false));
    };
    set(stage, Some(Shortage::WorkerDescriptors));
    while stage.roster.postponed() == 0 {
        stage.run(Span::from_millis(1));
    }
    set(stage, None);
}

#[test]
fn many_checks_do_not_wait_for_long_after_one_shortage() {
    const SERVERS: usize = 2000;
    let health = "health = { tcp = true, every = \"1s\" }";
    let mut stage = Stage::with_slots(SERVERS, health, (Faults::none(), 73), 4096);
    stage.run(Span::from_secs(4));
    let_a_check_wait(&mut stage, SERVERS);
    stage.run(Span::from_secs(2));
    let (before, waited) = (total(&stage, SERVERS), stage.roster.postponed());
    assert!(waited < 500, "those of about 100 ms: {waited}");
    stage.run(Span::from_secs(5));
    let count = total(&stage, SERVERS) - before;
    assert!(count >= 5 * SERVERS as u64, "each server once a second: {count}");
    assert_eq!(stage.roster.postponed(), waited, "no check waits");
}

#[test]
fn check_that_begins_to_wait_does_not_delay_the_first_one() {
    const SERVERS: usize = 400;
    let health = "health = { tcp = true, every = \"1s\" }";
    let mut stage = Stage::with_slots(SERVERS, health, (Faults::none(), 74), 1024);
    stage.run(Span::from_secs(5));
    let_a_check_wait(&mut stage, SERVERS);
    let before = total(&stage, SERVERS);
    // More than 200 checks are due.
    stage.run(Span::from_millis(500));
    let count = total(&stage, SERVERS) - before;
    assert!(count >= 100, "they wait for about 100 ms: {count}");
}
