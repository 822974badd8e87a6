//! Arranged configurations: what keeps its name keeps its index, and an index in use is never given away.

use std::collections::BTreeSet;
use std::fmt::Write;

use proptest::prelude::*;
use tidegate_config::arrange::{Arranged, PartIndex};
use tidegate_config::model::{Action, Bind, Config, Forward, PoolChoice, ServerAddress};

/// A configuration whose listeners have these ports, and whose pools these servers.
fn config(ports: &[u16], pools: &[(&str, &[u16])]) -> Config {
    let mut text = String::new();
    for port in ports {
        let _ = writeln!(text, "[[listener]]\nbind = \"10.0.0.1:{port}\"");
    }
    for (name, _) in pools {
        let _ = writeln!(text, "[[route]]\npath = \"/{name}/*\"\nproxy = \"{name}\"");
    }
    text.push_str("[[route]]\nrespond = {}\n");
    for (name, servers) in pools {
        let servers: Vec<String> = servers.iter().map(|at| format!("\"10.0.0.2:{at}\"")).collect();
        let _ = writeln!(text, "[pool.{name}]\nservers = [{}]", servers.join(", "));
    }
    tidegate_config::parse(&text, "the test").unwrap_or_else(|errors| panic!("{errors}\n{text}"))
}

/// The parts of a configuration that are not gone, each with its index.
fn parts(arranged: &Arranged) -> Vec<(String, PartIndex)> {
    let mut parts = Vec::new();
    for (index, listener) in arranged.config.listeners.iter().enumerate() {
        if !arranged.listeners[index].is_gone() {
            let Bind::Tcp(address) = &listener.bind else { panic!("{:?}", listener.bind) };
            parts.push((address.to_string(), PartIndex::Listener(index as u16)));
        }
    }
    for (index, pool) in arranged.config.pools.iter().enumerate() {
        if arranged.pools[index].life.is_gone() {
            continue;
        }
        parts.push((pool.name.clone(), PartIndex::Pool(index as u16)));
        for (at, server) in pool.servers.iter().enumerate() {
            if !arranged.pools[index].servers[at].life.is_gone() {
                let ServerAddress::Ip(address) = &server.address else { panic!("{server:?}") };
                let name = format!("{} {address}", pool.name);
                parts.push((name, PartIndex::Server(index as u16, at as u16)));
            }
        }
    }
    parts
}

#[test]
fn forwarding_listeners_refer_to_their_pools() {
    let config = |listeners: &str, pools: &[&str]| {
        let pools = pools.iter().map(|name| format!("[pool.{name}]\nservers = [\"10.0.0.2:1\"]\n"));
        let text = format!("{listeners}{}", pools.collect::<String>());
        tidegate_config::parse(&text, "the test").unwrap_or_else(|errors| panic!("{errors}"))
    };
    let forward =
        |port: u16, to: &str| format!("[[listener]]\nbind = \"10.0.0.1:{port}\"\nforward = {to}\n");
    let names = "{ sni = { \"a.example\" = \"a\" }, default = \"b\" }";
    let first = Arranged::first(config(&forward(1, names), &["a", "b"]));
    let used: BTreeSet<_> = [PartIndex::Listener(0)].into();
    let second = first.next(config(&forward(2, "\"b\""), &["c", "b"]), &used).expect("indexes");
    assert_eq!(second.config.listeners[1].forward, Some(Forward::Pool(1)), "b keeps its index");
    let of_removed = |at: &Arranged| at.config.listeners[0].forward.clone();
    assert_eq!(of_removed(&second), of_removed(&first), "both pools still have their indexes");
    let third = second.next(config(&forward(2, "\"b\""), &["d", "b"]), &used).expect("indexes");
    assert_eq!(third.config.pools[0].name, "d", "the index of a is given away");
    let nowhere = Forward::ByServerName { names: Vec::new(), default: None };
    assert_eq!(of_removed(&third), Some(nowhere), "its pool must not become another one");
}

#[test]
fn chosen_pools_are_found_at_their_new_indexes() {
    let text = |pools: &[&str]| {
        let pools: String = pools
            .iter()
            .map(|name| format!("[pool.{name}]\nservers = [\"10.0.0.9:1\"]\n"))
            .collect();
        let text = format!(
            "[[listener]]\nbind = \"10.0.0.1:80\"\n[[route]]\npath = \"/s\"\n\
             split = {{ pools = {{ a = 1, b = 2 }} }}\n[[route]]\n\
             proxy = {{ pool = {{ map = \"m\", key = \"{{host}}\", default = \"b\" }} }}\n\
             [map.m]\nentries = {{ x = \"b\", y = \"a\" }}\n{pools}"
        );
        tidegate_config::parse(&text, "the test").unwrap_or_else(|errors| panic!("{errors}"))
    };
    let first = Arranged::first(text(&["b", "c", "a"]));
    let second = first.next(text(&["a", "d", "b"]), &BTreeSet::new()).expect("indexes are left");
    for config in [&first.config, &second.config] {
        let names = |route: usize| -> Vec<&str> {
            let Action::Proxy(proxy) = &config.routes[route].action else { panic!("a proxy") };
            proxy.pool.pools().map(|pool| config.pools[pool].name.as_str()).collect()
        };
        assert_eq!((names(0), names(1)), (vec!["a", "b"], vec!["b", "b", "a"]));
    }
}

#[test]
fn applications_keep_their_indexes() {
    let text = |apps: &[&str]| {
        let mut text = "[[listener]]\nbind = \"10.0.0.1:80\"\n".to_owned();
        for (at, name) in apps.iter().enumerate() {
            let _ = match at {
                0 => writeln!(text, "[[route]]\npath = \"/0\"\nhooks = \"{name}\"\nproxy = \"p\""),
                _ => writeln!(text, "[[route]]\npath = \"/{at}\"\nlua = \"{name}\""),
            };
        }
        text.push_str("[pool.p]\nservers = [\"10.0.0.2:1\"]\n");
        for name in apps {
            let _ = writeln!(text, "[lua.{name}]\nscript = \"{name}-{}.lua\"", apps.len());
        }
        tidegate_config::parse(&text, "the test")
            .unwrap_or_else(|errors| panic!("{errors}\n{text}"))
    };
    let used = |arranged: &Arranged| {
        let name = |app: usize| arranged.config.lua[app].script.clone();
        let routes = arranged.config.routes.iter();
        let of_route = |route: &tidegate_config::model::Route| match route.action {
            Action::Lua(app) => name(app),
            _ => name(route.handling.hooks.as_ref().expect("hooks").app),
        };
        routes.map(of_route).collect::<Vec<_>>()
    };
    let first = Arranged::first(text(&["a", "b", "c"]));
    let second = first.next(text(&["c", "d"]), &BTreeSet::new()).expect("there are indexes");
    assert_eq!((&second.file_apps[..], second.config.lua.len()), (&[2, 3][..], 4));
    assert_eq!(used(&second), ["c-2.lua", "d-2.lua"]);
    let third = second.next(text(&["b"]), &BTreeSet::new()).expect("there are indexes");
    assert_eq!((&third.file_apps[..], third.config.lua[1].script.as_str()), (&[1][..], "b-1.lua"));
    assert_eq!(used(&third), ["b-1.lua"]);
}

#[test]
fn removed_parts_keep_their_indexes_while_in_use() {
    let first = Arranged::first(config(&[80, 81], &[("a", &[1, 2]), ("b", &[1])]));
    let none = BTreeSet::new();
    let used: BTreeSet<_> =
        [PartIndex::Listener(0), PartIndex::Pool(0), PartIndex::Server(1, 0)].into();
    let second = first.next(config(&[81], &[("b", &[2, 1])]), &used).expect("indexes are left");
    assert_eq!((second.config.listeners.len(), second.config.pools.len()), (2, 2));
    assert!(second.listeners[0].is_gone() && second.pools[0].life.is_gone());
    let Action::Proxy(proxy) = &second.config.routes[0].action else { panic!("a proxy route") };
    assert_eq!(proxy.pool, PoolChoice::One(1), "the route refers to the pool by its index");
    let third = second.next(config(&[82], &[("c", &[1]), ("b", &[2])]), &used).expect("as above");
    assert_eq!(third.config.listeners.len(), 3, "listener 0 is in use, listener 1 has just gone");
    assert_eq!(third.config.pools[2].name, "c");
    assert_eq!(third.config.pools[1].servers[0].weight, 0, "a removed server is drained");
    let fourth = third.next(config(&[83], &[("d", &[1]), ("b", &[2])]), &none).expect("as above");
    assert_eq!(fourth.config.listeners.len(), 3, "index 0 is given away");
    assert_eq!((fourth.config.pools[0].name.as_str(), fourth.pools[0].life.since), ("d", 3));
}

#[test]
fn removed_parts_at_the_end_of_a_list_leave_it_when_nothing_uses_them() {
    let many: Vec<u16> = (1..=1000).collect();
    let pools: [(&str, &[u16]); 4] = [("a", &many), ("b", &[1]), ("c", &[1]), ("d", &[1])];
    let small = || config(&[80], &[("a", &[2])]);
    let first = Arranged::first(config(&[80, 81, 82, 83], &pools));
    let lengths = |at: &Arranged| {
        let of_a = at.config.pools[0].servers.len();
        assert_eq!(
            (at.config.listeners.len(), of_a),
            (at.listeners.len(), at.pools[0].servers.len())
        );
        assert_eq!(at.config.pools.len(), at.pools.len());
        (at.listeners.len(), at.pools.len(), of_a)
    };
    let second = first.next(small(), &BTreeSet::new()).expect("indexes are left");
    assert_eq!(lengths(&second), (4, 4, 1000), "they may be in use");
    let used: BTreeSet<_> =
        [PartIndex::Listener(2), PartIndex::Pool(1), PartIndex::Server(0, 499)].into();
    let third = second.next(small(), &used).expect("as above");
    assert_eq!(lengths(&third), (3, 2, 500));
    let fourth = third.next(small(), &BTreeSet::new()).expect("as above");
    assert_eq!((lengths(&fourth), parts(&fourth)), ((1, 1, 2), parts(&second)));
    let again = fourth.next(config(&[80, 90], &[("a", &[2, 9]), ("e", &[1])]), &used);
    let again = again.expect("as above");
    assert_eq!(
        (lengths(&again), again.listeners[1].since),
        ((2, 2, 2), 4),
        "new parts use the places"
    );
    assert_eq!((again.pools[1].life.since, again.pools[0].servers[0].life.since), (4, 4));
}

#[test]
fn removed_listener_does_not_forward_to_a_pool_that_left_the_list() {
    let config = |listener: &str, pools: &[&str]| {
        let pools = pools.iter().map(|name| format!("[pool.{name}]\nservers = [\"10.0.0.2:1\"]\n"));
        let text = format!("[[listener]]\n{listener}\n{}", pools.collect::<String>());
        tidegate_config::parse(&text, "the test").unwrap_or_else(|errors| panic!("{errors}"))
    };
    let before = "bind = \"10.0.0.1:1\"\nforward = \"b\"";
    let after = || config("bind = \"10.0.0.1:2\"\nforward = \"a\"", &["a"]);
    let used: BTreeSet<_> = [PartIndex::Listener(0)].into();
    let first = Arranged::first(config(before, &["a", "b"]));
    let second = first.next(after(), &used).expect("indexes are left");
    assert_eq!(second.config.listeners[0].forward, Some(Forward::Pool(1)));
    let third = second.next(after(), &used).expect("as above");
    let nowhere = Forward::ByServerName { names: Vec::new(), default: None };
    assert_eq!((third.pools.len(), &third.config.listeners[0].forward), (1, &Some(nowhere)));
}

#[test]
fn removed_parts_come_back_at_their_indexes() {
    let first = Arranged::first(config(&[80, 81], &[("a", &[1, 2])]));
    let used: BTreeSet<_> = [PartIndex::Listener(0), PartIndex::Server(0, 0)].into();
    let second = first.next(config(&[81], &[("a", &[2])]), &used).expect("indexes are left");
    let third = second.next(config(&[81, 80], &[("a", &[2, 1])]), &used).expect("as above");
    assert_eq!(parts(&third), parts(&first));
    assert_eq!(third.pools[0].servers[0].life, first.pools[0].servers[0].life);
    assert_eq!(third.config.pools[0].servers[0].weight, 1);
}

#[test]
fn changes_of_limits_and_of_connections_are_dated() {
    let text = |limit: u32, tls: &str| {
        format!(
            "[[listener]]\nbind = \"10.0.0.1:80\"\n[[route]]\nproxy = \"p\"\n[pool.p]\n{tls}\nservers = [\n\
             {{ address = \"10.0.0.2:1\", connections-max = {limit} }}, \"10.0.0.2:2\"]\n"
        )
    };
    let parse = |text: String| match tidegate_config::parse(&text, "the test") {
        Ok(config) => config,
        Err(errors) => panic!("{errors}"),
    };
    let none = BTreeSet::new();
    let first = Arranged::first(parse(text(1, "")));
    let second = first.next(parse(text(1, "")), &none).expect("indexes are left");
    let since = |arranged: &Arranged| {
        let pool = &arranged.pools[0];
        (pool.connects_since, pool.servers[0].limit_since, pool.servers[1].limit_since)
    };
    assert_eq!(since(&second), (0, 0, 0));
    let third = second.next(parse(text(2, "")), &none).expect("as above");
    assert_eq!(since(&third), (0, 2, 0));
    let fourth = third.next(parse(text(2, "proxy-protocol = \"v1\"")), &none).expect("as above");
    assert_eq!(since(&fourth), (3, 2, 0));
}

proptest! {
    #[test]
    fn index_in_use_is_never_given_away(
        steps in prop::collection::vec(
            (
                prop::collection::btree_set(80..86_u16, 1..4),
                prop::collection::btree_map(0..5_usize, prop::collection::btree_set(1..6_u16, 1..4), 1..4),
                any::<u64>(),
            ),
            1..20,
        ),
    ) {
        const NAMES: [&str; 5] = ["a", "b", "c", "d", "e"];
        let mut arranged: Option<Arranged> = None;
        // Every part that was ever used and has not been found unused since, with its name.
        let mut used: Vec<(String, PartIndex)> = Vec::new();
        for (ports, pools, ends) in steps {
            let ports: Vec<u16> = ports.into_iter().collect();
            let pools: Vec<(&str, Vec<u16>)> =
                pools.into_iter().map(|(at, ports)| (NAMES[at], ports.into_iter().collect())).collect();
            let pools: Vec<(&str, &[u16])> =
                pools.iter().map(|(name, ports)| (*name, ports.as_slice())).collect();
            let config = config(&ports, &pools);
            let in_use: BTreeSet<PartIndex> = used.iter().map(|(_, place)| *place).collect();
            let next = match &arranged {
                None => Arranged::first(config),
                Some(before) => before.next(config, &in_use).expect("indexes are left"),
            };
            let now = parts(&next);
            prop_assert_eq!(now.len(), ports.len() + pools.len()
                + pools.iter().map(|(_, servers)| servers.len()).sum::<usize>());
            for (name, place) in &now {
                for (other, taken) in &used {
                    prop_assert_eq!(name == other, place == taken, "{} at {:?}, {} at {:?}",
                        name, place, other, taken);
                }
            }
            used.extend(now);
            used.sort();
            used.dedup();
            // Some parts end. A server ends before its pool may.
            let mut at = 0;
            used.retain(|(_, place)| {
                at += 1;
                matches!(place, PartIndex::Pool(_)) || ends >> (at % 64) & 1 == 0
            });
            let servers: BTreeSet<u16> = used.iter().filter_map(|(_, place)| match place {
                PartIndex::Server(pool, _) => Some(*pool),
                PartIndex::Listener(_) | PartIndex::Pool(_) => None,
            }).collect();
            used.retain(|(_, place)| !matches!(place, PartIndex::Pool(pool) if !servers.contains(pool)));
            arranged = Some(next);
        }
    }
}

#[test]
fn listener_that_is_switched_off_keeps_its_index_and_its_routes() {
    let text = "[[listener]]\nname = \"a\"\nbind = \"10.0.0.1:0\"\n[[listener]]\nname = \"b\"\nbind = \"10.0.0.1:2\"\n\
                [[route]]\nlistener = \"b\"\nrespond = {}\n[[route]]\nrespond = {}\n";
    let mut config = tidegate_config::parse(text, "the test").expect("it is valid");
    let first = Arranged::first(config.clone());
    config.listeners[0].is_off = true;
    config.listeners[1].is_off = true;
    let off = first.next(config.clone(), &BTreeSet::new()).expect("there is room");
    let again = off.next(config.clone(), &BTreeSet::new()).expect("there is room");
    for arranged in [&off, &again] {
        assert_eq!(arranged.listeners[1].gone_since, Some(off.generation));
        assert_eq!(arranged.config.routes[0].listener, Some(1));
        assert_eq!(arranged.removed().count(), 2);
    }
    // The index of a listener that is switched off is not given to another one.
    let mut added = config.clone();
    added.listeners.push(added.listeners[0].clone());
    added.listeners[2].bind = Bind::Tcp(([10, 0, 0, 1], 3).into());
    added.listeners[2].is_off = false;
    let more = again.next(added, &BTreeSet::new()).expect("there is room");
    assert_eq!(more.file_listeners, [0, 1, 2]);
    assert!(!more.listeners[2].is_gone());
    config.listeners.iter_mut().for_each(|listener| listener.is_off = false);
    let on = more.next(config, &BTreeSet::new()).expect("there is room");
    assert_eq!(on.listeners[..2], first.listeners[..]);
    assert!(on.listeners[2].is_gone());
}
