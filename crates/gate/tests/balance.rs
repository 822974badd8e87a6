//! Balancing: shares, limits, avoidance of failed servers, and the stability of hashing.

use tidegate_base::prng::{hash_bytes, mix64};
use tidegate_base::{Moment, Prng, Span};
use tidegate_config::arrange::{Life, ServerLife};
use tidegate_config::model::{Balance, Eject, HashKey, Pool, ServerAddress, Upstream};
use tidegate_gate::balance::{
    AVOID_AFTER_FAILURE, Pick, PoolState, ServerStatus, TRIED_MAX, Tried,
};
use tidegate_gate::eject::EjectReason;
use tidegate_gate::eject::{Ejection, is_failure};

const NOW: Moment = Moment::from_nanos(1);
const WAYS: [Balance; 4] =
    [Balance::Random, Balance::RoundRobin, Balance::LeastConnections, Balance::Hash(HashKey::Path)];

fn upstream(number: u16, weight: u16, connections_max: Option<u32>) -> Upstream {
    let address = ServerAddress::Name(format!("server-{number}"), 8000);
    Upstream { weight, connections_max, ..Upstream::at(address) }
}

fn pool(balance: Balance, servers: Vec<Upstream>) -> Pool {
    let text = "[[listener]]\nbind = \"127.0.0.1:80\"\n[[route]]\nproxy = \"p\"\n\
                [pool.p]\nservers = [\"10.0.0.1:80\"]\n";
    match tidegate_config::parse(text, "the test") {
        Ok(config) => Pool { balance, servers, ..config.pools[0].clone() },
        Err(errors) => panic!("{errors}"),
    }
}

fn weighted(balance: &Balance, weights: &[u16]) -> PoolState {
    let servers = (0_u16..).zip(weights).map(|(number, &weight)| upstream(number, weight, None));
    PoolState::new(&pool(balance.clone(), servers.collect()), 7)
}

fn limited(balance: &Balance, limits: &[u32]) -> PoolState {
    let servers = (0_u16..).zip(limits).map(|(number, &limit)| upstream(number, 1, Some(limit)));
    PoolState::new(&pool(balance.clone(), servers.collect()), 7)
}

fn key(number: usize) -> Option<u64> {
    Some(hash_bytes(format!("/item/{number}").as_bytes()))
}

fn pick(state: &mut PoolState, prng: &mut Prng, number: usize) -> usize {
    match state.pick(NOW, prng, key(number), &Tried::default()) {
        Pick::Server(server) => server,
        other => panic!("{other:?}"),
    }
}

/// How often each server is picked in `picks` picks, if no exchange is in use.
fn shares(state: &mut PoolState, picks: usize) -> Vec<usize> {
    let mut prng = Prng::new(3);
    let mut counts = vec![0; state.len()];
    for number in 0..picks {
        counts[pick(state, &mut prng, number)] += 1;
    }
    counts
}

#[test]
fn each_policy_shares_by_weight() {
    for balance in &WAYS {
        let counts = shares(&mut weighted(balance, &[1, 2, 4, 1]), 80_000);
        for (count, weight) in counts.iter().zip([1, 2, 4, 1]) {
            let fair = 10_000 * weight;
            let error = count.abs_diff(fair) * 100 / fair;
            // The arcs of the ring are uneven. The other policies deviate only by chance.
            let allowed = if matches!(balance, Balance::Hash(_)) { 25 } else { 5 };
            assert!(error <= allowed, "{balance:?}: {counts:?}");
        }
    }
}

#[test]
fn load_is_proportional_to_the_weights() {
    for balance in [Balance::Random, Balance::LeastConnections, Balance::RoundRobin] {
        let mut state = weighted(&balance, &[1, 2, 4, 1]);
        let mut prng = Prng::new(5);
        for number in 0..8_000 {
            let server = pick(&mut state, &mut prng, number);
            state.note_start(server);
        }
        for (server, weight) in [1_u32, 2, 4, 1].into_iter().enumerate() {
            let (load, fair) = (state.in_use(server), 1_000 * weight);
            assert!(load.abs_diff(fair) * 20 <= fair, "{balance:?}: {server} has {load}");
        }
        assert_eq!(state.in_use_total(), 8_000);
    }
}

#[test]
fn round_robin_is_exact_over_a_whole_round() {
    for seed in 0..20 {
        let servers = vec![upstream(0, 5, None), upstream(1, 1, None), upstream(2, 1, None)];
        let mut state = PoolState::new(&pool(Balance::RoundRobin, servers), seed);
        let round: Vec<usize> = (0..7).map(|n| pick(&mut state, &mut Prng::new(0), n)).collect();
        let count = |server| round.iter().filter(|&&picked| picked == server).count();
        assert_eq!([count(0), count(1), count(2)], [5, 1, 1], "{round:?}");
        let run = round.windows(5).any(|five| five.iter().all(|&picked| picked == 0));
        assert!(!run, "the heavy server is not picked five times in a row: {round:?}");
    }
}

#[test]
fn two_choices_keep_the_fullest_server_near_the_mean() {
    let mut prng = Prng::new(9);
    let mut state = weighted(&Balance::Random, &[1; 100]);
    for number in 0..10_000 {
        let server = pick(&mut state, &mut prng, number);
        state.note_start(server);
    }
    let fullest = (0..100).map(|server| state.in_use(server)).max();
    // With one choice, some server would have about 130 exchanges; with two, slightly more than 100.
    assert!(fullest.is_some_and(|load| load <= 106), "{fullest:?}");
}

#[test]
fn two_choices_prefer_the_unused_server_of_two() {
    let mut state = weighted(&Balance::Random, &[1, 1]);
    state.note_start(0);
    let mut prng = Prng::new(1);
    let missed = (0..1_000).filter(|&n| pick(&mut state, &mut prng, n) == 0).count();
    assert!(missed <= 125, "more often than four equal draws in a row: {missed}");
}

#[test]
fn key_stays_with_its_server() {
    let mut state = weighted(&Balance::Hash(HashKey::Path), &[1; 7]);
    let mut again = weighted(&Balance::Hash(HashKey::Path), &[1; 7]);
    for number in 0..1_000 {
        let first = pick(&mut state, &mut Prng::new(1), number);
        assert_eq!(first, pick(&mut again, &mut Prng::new(2), number));
    }
}

#[test]
fn adding_or_removing_a_server_moves_only_its_share_of_keys() {
    const KEYS: usize = 20_000;
    let servers = |count: u16| (0..count).map(|number| upstream(number, 1, None)).collect();
    let hash = || Balance::Hash(HashKey::ClientAddress);
    let mut nine = PoolState::new(&pool(hash(), servers(9)), 1);
    let mut ten = PoolState::new(&pool(hash(), servers(10)), 2);
    let mut prng = Prng::new(1);
    let mut moved = 0;
    for number in 0..KEYS {
        let before = pick(&mut nine, &mut prng, number);
        let after = pick(&mut ten, &mut prng, number);
        assert!(after == before || after == 9, "a key moved between unchanged servers");
        moved += usize::from(after != before);
    }
    assert!((KEYS / 14..KEYS / 7).contains(&moved), "{moved} of {KEYS} moved");

    // Without the first server, its keys are distributed over all other servers.
    let mut rest: Vec<Upstream> = servers(10);
    rest.remove(0);
    let mut without = PoolState::new(&pool(hash(), rest), 1);
    for number in 0..KEYS {
        let (before, after) =
            (pick(&mut ten, &mut prng, number), pick(&mut without, &mut prng, number));
        assert!(before == 0 || after + 1 == before);
    }
}

#[test]
fn server_that_is_down_regains_its_keys() {
    let mut state = weighted(&Balance::Hash(HashKey::Path), &[1; 5]);
    let mut prng = Prng::new(1);
    let before: Vec<usize> = (0..500).map(|n| pick(&mut state, &mut prng, n)).collect();
    state.set_up(2, false);
    assert!(!state.is_up(2) && state.is_up(1));
    for (number, &server) in before.iter().enumerate() {
        let now = pick(&mut state, &mut prng, number);
        assert!(now != 2 && (server == 2 || now == server));
    }
    state.set_up(2, true);
    let after: Vec<usize> = (0..500).map(|n| pick(&mut state, &mut prng, n)).collect();
    assert_eq!(before, after);
}

#[test]
fn one_hot_key_overloads_no_server() {
    let mut state = weighted(&Balance::Hash(HashKey::Path), &[1, 1, 1, 1, 2]);
    let mut prng = Prng::new(1);
    for _ in 0..6_000 {
        let server = pick(&mut state, &mut prng, 42);
        state.note_start(server);
    }
    for server in 0..5 {
        let fair: u32 = if server == 4 { 2_000 } else { 1_000 };
        assert!(state.in_use(server) <= fair * 5 / 4 + 1, "{server}: {}", state.in_use(server));
    }
}

#[test]
fn requests_without_the_key_are_distributed_at_random() {
    let mut state = weighted(&Balance::Hash(HashKey::Header("x-user".to_owned())), &[1; 4]);
    let mut prng = Prng::new(1);
    let mut counts = [0; 4];
    for _ in 0..4_000 {
        match state.pick(NOW, &mut prng, None, &Tried::default()) {
            Pick::Server(server) => counts[server] += 1,
            other => panic!("{other:?}"),
        }
    }
    assert!(counts.iter().all(|&count| count > 800), "{counts:?}");
}

#[test]
fn limits_are_never_exceeded_and_full_is_reported() {
    for balance in &WAYS {
        let mut state = limited(balance, &[1, 2, 3]);
        let mut prng = Prng::new(1);
        assert!(state.is_limited());
        for number in 0..6 {
            let server = pick(&mut state, &mut prng, number);
            state.note_start(server);
        }
        assert_eq!([state.in_use(0), state.in_use(1), state.in_use(2)], [1, 2, 3]);
        assert!(!state.has_room());
        assert_eq!(state.pick(NOW, &mut prng, key(9), &Tried::default()), Pick::Full);
        state.note_end(1);
        assert!(state.has_room());
        assert_eq!(state.pick(NOW, &mut prng, key(9), &Tried::default()), Pick::Server(1));
    }
}

#[test]
fn tried_and_down_servers_are_never_picked() {
    for balance in &WAYS {
        let mut state = weighted(balance, &[1, 1, 1]);
        let mut prng = Prng::new(1);
        let mut tried = Tried::default();
        tried.insert(0);
        state.set_up(1, false);
        for number in 0..50 {
            assert_eq!(state.pick(NOW, &mut prng, key(number), &tried), Pick::Server(2));
        }
        tried.insert(2);
        assert_eq!(state.pick(NOW, &mut prng, key(1), &tried), Pick::None);
        state.set_up(0, false);
        state.set_up(2, false);
        assert_eq!(state.pick(NOW, &mut prng, key(1), &Tried::default()), Pick::None);
    }
}

#[test]
fn failed_server_is_avoided_unless_it_is_the_last() {
    for balance in &WAYS {
        let mut state = weighted(balance, &[1, 1]);
        let mut prng = Prng::new(1);
        assert!(state.note_connect_failure(0, NOW));
        assert!(!state.note_connect_failure(0, NOW), "the server is avoided already");
        for number in 0..50 {
            assert_eq!(pick(&mut state, &mut prng, number), 1);
        }
        let mut tried = Tried::default();
        tried.insert(1);
        assert_eq!(state.pick(NOW, &mut prng, key(1), &tried), Pick::Server(0), "the last one");
        let later = NOW.after(AVOID_AFTER_FAILURE);
        let back = |state: &mut PoolState, prng: &mut Prng, now| {
            let none = Tried::default();
            (0..200).any(|number| state.pick(now, prng, key(number), &none) == Pick::Server(0))
        };
        assert!(back(&mut state, &mut prng, later), "{balance:?}");
        state.note_connect_failure(0, NOW);
        state.note_connect_success(0);
        assert!(back(&mut state, &mut prng, NOW), "{balance:?}");
    }
}

#[test]
fn request_waits_for_a_full_server_rather_than_use_one_that_failed() {
    for balance in &WAYS {
        let mut state = limited(balance, &[1, 5]);
        let (mut prng, none) = (Prng::new(1), Tried::default());
        state.note_start(0);
        state.note_connect_failure(1, NOW);
        assert_eq!(state.pick(NOW, &mut prng, key(1), &none), Pick::Full);
        assert!(!state.has_room_for(&none, NOW) && !state.has_room_at(1, &none, NOW));
        let end = NOW.after(AVOID_AFTER_FAILURE);
        assert_eq!(state.avoidance_end(NOW), end);
        // A retry that the other server has failed uses it, and so does any request once it is no longer avoided.
        let mut tried = Tried::default();
        tried.insert(0);
        assert_eq!(state.pick(NOW, &mut prng, key(1), &tried), Pick::Server(1));
        assert!(state.has_room_for(&tried, NOW) && state.has_room_at(1, &tried, NOW));
        assert_eq!(state.pick(end, &mut prng, key(1), &none), Pick::Server(1));
        assert_eq!(state.avoidance_end(end), Moment::NEVER);
        // Nothing else is left.
        state.set_up(0, false);
        assert_eq!(state.pick(NOW, &mut prng, key(1), &none), Pick::Server(1));
    }
}

#[test]
fn server_of_weight_0_gets_no_request() {
    for balance in &WAYS {
        let mut state = weighted(balance, &[0, 1, 0]);
        let mut prng = Prng::new(1);
        assert!((0..100).all(|number| pick(&mut state, &mut prng, number) == 1));
        let mut tried = Tried::default();
        tried.insert(1);
        assert_eq!(state.pick(NOW, &mut prng, key(1), &tried), Pick::None, "nor a retry");
        assert!(!state.may_wait(&tried));
        state.set_up(1, false);
        assert_eq!(state.pick(NOW, &mut prng, key(1), &Tried::default()), Pick::None);
    }
}

#[test]
fn tried_remembers_the_most_recent_servers() {
    let mut tried = Tried::default();
    assert!(tried.is_empty());
    for server in 0..=TRIED_MAX {
        tried.insert(server);
        tried.insert(server);
        assert!(tried.contains(server));
    }
    assert_eq!(tried.len(), TRIED_MAX);
    assert!(!tried.contains(0), "the oldest is forgotten");
    assert!(!tried.contains(999));
}

#[test]
fn servers_that_left_the_list_are_forgotten() {
    for balance in &WAYS {
        let servers = |count: u16| (0..count).map(|number| upstream(number, 1, Some(2))).collect();
        let lives = [ServerLife::default(); 9];
        let mut state = limited(balance, &[2; 9]);
        state.change(&pool(balance.clone(), servers(3)), &lives[..3], 0, 1);
        assert_eq!(state.len(), 3);
        let mut prng = Prng::new(3);
        assert!((0..100).all(|number| pick(&mut state, &mut prng, number) < 3));
        let born = ServerLife { limit_since: 5, ..ServerLife::default() };
        state.note_start(1);
        let lives = [&lives[..3], &[born][..]].concat();
        state.change(&pool(balance.clone(), servers(4)), &lives, 0, 1);
        assert_eq!((state.len(), state.in_use(1), state.limit_since(3)), (4, 1, 5));
    }
}

#[test]
fn server_that_left_the_configuration_gets_no_request_of_any_kind() {
    let none = Tried::default();
    for balance in &WAYS {
        let servers = || vec![upstream(0, 1, None), upstream(1, 1, None)];
        let mut removed = servers();
        removed[1].weight = 0;
        let gone = Life { gone_since: Some(1), ..Life::default() };
        let lives = [ServerLife::default(), ServerLife { life: gone, ..ServerLife::default() }];
        let mut state = PoolState::new(&pool(balance.clone(), servers()), 7);
        assert!(state.can_keep(1, NOW, &none) && !state.has_lost(1, NOW));
        state.change(&pool(balance.clone(), removed), &lives, 0, 1);
        // The status is from before the removal.
        state.apply_server_statuses(&[status(true, None), status(true, Some(100))], NOW);
        let mut prng = Prng::new(3);
        assert!((0..100).all(|number| pick(&mut state, &mut prng, number) == 0), "{balance:?}");
        assert!(!state.can_keep(1, NOW, &none) && state.has_lost(1, NOW));
        assert!(!state.has_room_at(1, &none, NOW) && state.usable(&none).eq([0]));
        state.change(&pool(balance.clone(), servers()), &[ServerLife::default(); 2], 0, 1);
        assert!(state.can_keep(1, NOW, &none) && state.usable(&none).eq([0, 1]), "it is back");
    }
}

#[test]
fn in_use_counts_started_and_not_ended_exchanges() {
    for (seed, balance) in (0_u64..).zip(WAYS.iter().cycle().take(40)) {
        let mut prng = Prng::new(mix64(seed));
        let mut state = limited(balance, &[3, 0, 5, 2]);
        let mut started: Vec<usize> = Vec::new();
        for number in 0..500 {
            if prng.chance(550_000) {
                match state.pick(NOW, &mut prng, key(number), &Tried::default()) {
                    Pick::Server(server) => {
                        state.note_start(server);
                        started.push(server);
                    }
                    Pick::Full => assert_eq!(started.len(), 10),
                    Pick::None => panic!("all are up"),
                }
            } else if !started.is_empty() {
                let at = prng.below(started.len() as u64) as usize;
                state.note_end(started.swap_remove(at));
            }
            assert_eq!(state.in_use_total(), started.len() as u64);
            assert!((0..4).all(|s| state.in_use(s) <= [3, 0, 5, 2][s]));
        }
    }
}

/// A pool whose last `backups` servers of `all` are backups.
fn with_backups(balance: &Balance, all: u16, backups: u16) -> PoolState {
    let servers = (0..all).map(|number| {
        let backup = number >= all - backups;
        Upstream { backup, ..upstream(number, 1, Some(2)) }
    });
    PoolState::new(&pool(balance.clone(), servers.collect()), 7)
}

fn status(is_up: bool, weight: Option<u16>) -> ServerStatus {
    ServerStatus { since: 0, is_up, weight, percent: 100, is_backup: false }
}

#[test]
fn backup_servers_get_requests_only_while_no_other_server_may() {
    for balance in &WAYS {
        let mut state = with_backups(balance, 4, 2);
        let mut prng = Prng::new(1);
        let all = |state: &mut PoolState, prng: &mut Prng, tried: &Tried| -> Vec<usize> {
            let mut picked: Vec<usize> = (0..100)
                .filter_map(|number| match state.pick(NOW, prng, key(number), tried) {
                    Pick::Server(server) => Some(server),
                    Pick::Full | Pick::None => None,
                })
                .collect();
            picked.sort_unstable();
            picked.dedup();
            picked
        };
        let none = Tried::default();
        assert_eq!(all(&mut state, &mut prng, &none), [0, 1], "{balance:?}");
        state.set_up(0, false);
        assert_eq!(all(&mut state, &mut prng, &none), [1]);
        let mut tried = Tried::default();
        tried.insert(1);
        assert_eq!(all(&mut state, &mut prng, &tried), [2, 3], "a retry");
        assert!(state.has_room_at(2, &tried, NOW) && !state.has_room_at(2, &none, NOW));
        // A server at its limit is not down.
        state.note_start(1);
        state.note_start(1);
        assert_eq!(state.pick(NOW, &mut prng, key(1), &none), Pick::Full);
        assert!(!state.has_room_for(&none, NOW) && state.has_room_for(&tried, NOW));
        state.note_end(1);
        state.note_end(1);
        state.note_connect_failure(1, NOW);
        assert_eq!(all(&mut state, &mut prng, &none), [2, 3], "a server that just failed");
        state.set_up(2, false);
        state.set_up(3, false);
        assert_eq!(all(&mut state, &mut prng, &none), [1], "the last resort");
        state.set_up(1, false);
        assert_eq!(state.pick(NOW, &mut prng, key(1), &none), Pick::None);
    }
}

#[test]
fn weight_that_an_operator_sets_replaces_that_of_the_file() {
    for balance in &WAYS {
        let mut state = weighted(balance, &[1, 1]);
        let statuses = [status(true, Some(3)), status(true, None)];
        assert!(
            state.apply_server_statuses(&statuses, NOW)
                && !state.apply_server_statuses(&statuses, NOW)
        );
        let counts = shares(&mut state, 8_000);
        assert!((5_000..7_000).contains(&counts[0]), "{balance:?}: {counts:?}");
        assert!(state.apply_server_statuses(&[status(true, Some(0)), status(true, None)], NOW));
        assert_eq!(shares(&mut state, 100), [0, 100]);
        let void = ServerStatus { since: 7, ..status(true, None) };
        assert!(!state.apply_server_statuses(&[void], NOW), "the status of another server");
    }
}

#[test]
fn agents_state_parts_of_weights() {
    for balance in &WAYS {
        let mut state = weighted(balance, &[1, 2]);
        let part = |percent, set| ServerStatus { percent, ..status(true, set) };
        // 1 against half of 2, although weights are whole numbers.
        let statuses = [part(100, None), part(50, None)];
        assert!(
            state.apply_server_statuses(&statuses, NOW)
                && !state.apply_server_statuses(&statuses, NOW)
        );
        let counts = shares(&mut state, 8_000);
        assert!((3_200..4_800).contains(&counts[0]), "{balance:?}: {counts:?}");
        // The part is of the weight that an operator has set.
        assert!(state.apply_server_statuses(&[part(300, None), part(10, Some(20))], NOW));
        let counts = shares(&mut state, 8_000);
        assert!((4_200..5_600).contains(&counts[0]), "{balance:?}: {counts:?}");
        assert!(state.apply_server_statuses(&[part(100, None), part(0, None)], NOW));
        assert_eq!(shares(&mut state, 100), [100, 0]);
        // With a ring, small changes move no keys.
        let is_ring = matches!(balance, Balance::Hash(_));
        assert!(state.apply_server_statuses(&[part(100, None), part(73, None)], NOW));
        assert_eq!(state.apply_server_statuses(&[part(100, None), part(78, None)], NOW), !is_ring);
    }
}

#[test]
fn weight_of_a_server_that_is_up_again_grows_in_steps() {
    for balance in [Balance::Random, Balance::RoundRobin] {
        let servers = vec![upstream(0, 5, None), upstream(1, 5, None)];
        let slow = Span::from_secs(20);
        let slow_start = Pool { slow_start: slow, ..pool(balance.clone(), servers) };
        let mut state = PoolState::new(&slow_start, 3);
        let share = |state: &mut PoolState, now: Moment| {
            let mut prng = Prng::new(4);
            let picked = (0..10_000)
                .filter(|_| state.pick(now, &mut prng, None, &Tried::default()) == Pick::Server(0));
            picked.count()
        };
        assert!(share(&mut state, NOW).abs_diff(5_000) < 300, "the start is not slow");
        state.apply_server_statuses(&[status(false, None), status(true, None)], NOW);
        assert_eq!(share(&mut state, NOW), 0);
        state.apply_server_statuses(&[status(true, None), status(true, None)], NOW);
        // With a twentieth of the weight of the other server, then with half, then with all of it. Two choices compare
        // servers without load, which are alike.
        let mut last = share(&mut state, NOW);
        assert!((300..1_500).contains(&last), "{balance:?}: {last}");
        for (seconds, least, most) in [(10, 2_800, 4_500), (20, 4_700, 5_300)] {
            let now = share(&mut state, NOW.after(Span::from_secs(seconds)));
            assert!(
                (least..most).contains(&now) && now > last,
                "{balance:?} after {seconds} s: {now}"
            );
            last = now;
        }
    }
}

const EJECT: Eject = Eject {
    failures: Some(3),
    errors: Some(50),
    span: Span::from_secs(10),
    ejected_max: 50,
    latency: None,
    panic: None,
};

fn ejecting(servers: u16) -> PoolState {
    let servers = (0..servers).map(|number| upstream(number, 1, None)).collect();
    PoolState::new(&Pool { eject: Some(EJECT), ..pool(Balance::Random, servers) }, 1)
}

#[test]
fn ejected_server_keeps_its_sessions_until_a_connect_fails() {
    let (mut state, none) = (ejecting(2), Tried::default());
    (0..3).for_each(|_| _ = state.note_result(0, (true, None), NOW));
    assert_eq!(state.pick(NOW, &mut Prng::new(1), None, &none), Pick::Server(1), "0 is ejected");
    assert!(state.can_keep(0, NOW, &none) && !state.has_lost(0, NOW));
    state.note_connect_failure(0, NOW);
    assert!(!state.can_keep(0, NOW, &none) && state.has_lost(0, NOW));
}

#[test]
fn server_with_other_addresses_is_not_ejected_for_the_earlier_ones() {
    let (mut state, none) = (ejecting(2), Tried::default());
    (0..3).for_each(|_| _ = state.note_result(0, (true, None), NOW));
    state.note_connect_failure(0, NOW);
    state.forget_results(0);
    let picked = (0..100).map(|seed| state.pick(NOW, &mut Prng::new(seed), None, &none));
    assert!(picked.filter(|picked| *picked == Pick::Server(0)).count() > 20);
    assert!(!state.has_lost(0, NOW));
}

#[test]
fn statuses_that_any_client_can_provoke_are_no_failures() {
    let failures: Vec<u16> = (100..=599).filter(|status| is_failure(*status)).collect();
    let wanted = (500..=599).filter(|status| ![501, 505, 511].contains(status));
    assert_eq!(failures, wanted.collect::<Vec<u16>>());
}

#[test]
fn server_whose_requests_fail_is_avoided_for_a_while() {
    let mut state = ejecting(2);
    let mut prng = Prng::new(1);
    let none = Tried::default();
    assert_eq!(state.note_result(0, (true, None), NOW), None);
    assert_eq!(state.note_result(0, (true, None), NOW), None);
    assert_eq!(state.note_result(0, (false, None), NOW), None, "a success begins the count again");
    for _ in 0..2 {
        assert_eq!(state.note_result(0, (true, None), NOW), None);
    }
    assert_eq!(state.note_result(0, (true, None), NOW), Some((EJECT.span, EjectReason::Failures)));
    assert!((0..100).all(|_| state.pick(NOW, &mut prng, None, &none) == Pick::Server(1)));
    // Half of two servers is one.
    assert!((0..50).all(|_| state.note_result(1, (true, None), NOW).is_none()));
    // With the other one down, an ejected server is better than none.
    state.set_up(1, false);
    assert_eq!(state.pick(NOW, &mut prng, None, &none), Pick::Server(0));
    state.set_up(1, true);
    let later = NOW.after(EJECT.span);
    assert!((0..100).any(|_| state.pick(later, &mut prng, None, &none) == Pick::Server(0)));
    // Again: once more as long each time, and at most ten times as long.
    let mut now = later;
    for times in 2..=12 {
        let spans: Vec<Span> = (0..3)
            .filter_map(|_| state.note_result(0, (true, None), now))
            .map(|(span, _)| span)
            .collect();
        assert_eq!(spans, [EJECT.span * times.min(10)]);
        now = now.after(spans[0]);
    }
}

#[test]
fn server_that_fails_every_other_request_is_avoided() {
    let mut state = ejecting(4);
    let mut ejected = Vec::new();
    for number in 0..100 {
        if state.note_result(2, (number % 2 == 1, None), NOW).is_some() {
            ejected.push(number);
        }
    }
    assert_eq!(ejected.first(), Some(&19), "the first of at least 20 requests");
    // Half of the requests of each window of 10 s count, not those before it.
    let mut state = ejecting(4);
    for second in 0..100 {
        let now = NOW.after(Span::from_secs(second));
        assert_eq!(
            state.note_result(1, (second % 2 == 0, None), now),
            None,
            "19 requests are too few"
        );
    }
}

/// Notes a response of this time.
fn respond_after(state: &mut PoolState, server: usize, millis: u64) -> Option<EjectReason> {
    let took = Some(Span::from_millis(millis));
    state.note_result(server, (false, took), NOW).map(|(_, reason)| reason)
}

#[test]
fn server_that_is_much_slower_than_the_others_is_avoided() {
    let eject = Eject { latency: Some(5), ..EJECT };
    let settings = |eject| {
        let servers = (0..4).map(|number| upstream(number, 1, None)).collect();
        Pool { eject: Some(eject), ..pool(Balance::Random, servers) }
    };
    for (eject, own, theirs, expected) in [
        (eject, 100, 10, Some(EjectReason::Latency)),
        // Less than five times as long.
        (eject, 49, 10, None),
        // By less than 20 ms.
        (eject, 20, 1, None),
        (EJECT, 1000, 10, None),
    ] {
        let mut state = PoolState::new(&settings(eject), 1);
        // Too few responses of the others.
        assert!((0..40).all(|_| respond_after(&mut state, 0, own).is_none()), "{own} {theirs}");
        for server in 1..4 {
            (0..7).for_each(|_| _ = respond_after(&mut state, server, theirs));
        }
        let found = (0..8).find_map(|_| respond_after(&mut state, 0, own));
        assert_eq!(found, expected, "{own} {theirs}");
        // The others are not slow in comparison, and the next window starts from zero.
        assert!((0..60).all(|_| respond_after(&mut state, 1, theirs).is_none()));
    }
}

#[test]
fn ejections_continue_in_another_process_within_its_settings() {
    let (mut old, mut new, mut other) = (ejecting(4), ejecting(4), ejecting(2));
    let at = |seconds| Moment::ZERO.after(Span::from_secs(seconds));
    for server in [1, 3] {
        assert!((0..40).any(|_| old.note_result(server, (true, None), at(1)).is_some()));
    }
    let passed: Vec<_> = old.ejections(at(4)).collect();
    assert_eq!(passed.iter().map(|(server, _)| *server).collect::<Vec<_>>(), [1, 3]);
    assert_eq!((passed[0].1.times, old.ejections(at(1000)).count()), (1, 0));
    // Moments of another process have another start.
    for (server, ejection) in &passed {
        new.resume_ejection(*server, *ejection, at(500));
        other.resume_ejection(*server % 2, *ejection, at(500));
    }
    assert_eq!(new.ejections(at(500)).collect::<Vec<_>>(), passed);
    let last = at(500).after(passed[0].1.left);
    assert_eq!(new.ejections(last).count(), 0, "it ends when it would have ended");
    // One of two may be ejected.
    assert_eq!(other.ejections(at(500)).count(), 1);
    // No longer than an ejection can take.
    let endless = Ejection { left: Span::from_secs(1_000_000), times: u32::MAX };
    let mut new = ejecting(4);
    new.resume_ejection(0, endless, at(500));
    let (_, left) = new.ejections(at(500)).next().expect("it is ejected");
    assert!(left.left < Span::from_secs(1000), "{left:?}");
}

#[test]
fn pool_never_ejects_more_than_ejected_max() {
    for servers in 1..10_u16 {
        let mut state = ejecting(servers);
        let ejected = (0..servers).filter(|server| {
            (0..10).any(|_| state.note_result(usize::from(*server), (true, None), NOW).is_some())
        });
        assert_eq!(ejected.count(), usize::from(servers / 2), "{servers}");
    }
    let mut state = weighted(&Balance::Random, &[1, 1]);
    assert!((0..100).all(|_| state.note_result(0, (true, None), NOW).is_none()), "without `eject`");
}

#[test]
fn servers_without_addresses_leave_their_share_to_all_others() {
    for balance in &WAYS {
        let servers = (0..10).map(|number| upstream(number, 1, None)).collect();
        let mut state = PoolState::new(&pool(balance.clone(), servers), 7);
        state.note_addresses(|at| at % 5 == 1, NOW);
        let (mut prng, none) = (Prng::new(3), Tried::default());
        let mut counts = [0_u32; 10];
        for number in 0..1000 {
            let Pick::Server(server) = state.pick(NOW, &mut prng, key(number), &none) else {
                panic!("{balance:?}: two servers have addresses");
            };
            counts[server] += 1;
        }
        let used: Vec<usize> = (0..10).filter(|at| counts[*at] > 0).collect();
        assert_eq!(used, [1, 6], "{balance:?}");
        assert!(counts[1].min(counts[6]) > 300, "{balance:?}: {counts:?}");
        state.note_addresses(|_| false, NOW);
        assert_eq!(state.pick(NOW, &mut prng, key(1), &none), Pick::None, "{balance:?}");
    }
}

#[test]
fn records_make_servers_backups_until_they_no_longer_do() {
    let servers = (0..2).map(|number| upstream(number, 1, None)).collect();
    let mut state = PoolState::new(&pool(Balance::RoundRobin, servers), 7);
    let marked = |is_backup| ServerStatus { is_backup, ..status(true, None) };
    assert!(state.apply_server_statuses(&[marked(false), marked(true)], NOW));
    let mut prng = Prng::new(1);
    let mut picked = |state: &mut PoolState| -> Vec<Pick> {
        let mut all: Vec<Pick> =
            (0..4).map(|_| state.pick(NOW, &mut prng, None, &Tried::default())).collect();
        all.dedup();
        all
    };
    assert_eq!(picked(&mut state), [Pick::Server(0)]);
    // A reload with the same settings keeps it.
    let lives = [ServerLife::default(); 2];
    let servers = (0..2).map(|number| upstream(number, 1, None)).collect();
    state.change(&pool(Balance::RoundRobin, servers), &lives, 0, 1);
    assert_eq!(picked(&mut state), [Pick::Server(0)]);
    assert!(state.apply_server_statuses(&[marked(false), marked(false)], NOW));
    assert!(picked(&mut state).len() > 1);
}
