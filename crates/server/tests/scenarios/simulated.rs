//! Plays a scene on the simulator, with several seeds; each seed splits and delays bytes differently.
//! In: a scene. Out: success, or the current step of each actor when the scene failed.
//! Limits: `TURNS_MAX`. Invariant: after the scene the worker holds nothing.

use std::collections::{BTreeMap, BTreeSet};

use tidegate_base::{Address, Prng, Span};
use tidegate_reactor::{Faults, Reactor, SimNet, SimPeer, SimReactor, SimServer};

use crate::actor::{Actor, Stage, Wire};
use crate::peer::harness::Harness;
use crate::scene::{Scene, Script};

const SEEDS: u64 = 12;
const TURNS_MAX: u32 = 500_000;

/// A simulated network with one worker and the servers of a scene.
struct Simulated {
    net: SimNet,
    harness: Harness<SimReactor>,
    servers: BTreeMap<String, SimServer>,
}

impl Stage for Simulated {
    fn dial(&mut self) -> Option<Box<dyn Wire>> {
        let peer = self.net.dial(&self.harness.bound[0])?;
        Some(Box::new(End(Some(peer))))
    }

    fn accept(&mut self, server: &str) -> Option<Box<dyn Wire>> {
        let peer = self.servers.get(server)?.accept()?;
        Some(Box::new(End(Some(peer))))
    }

    fn stop(&mut self, grace_s: u64) {
        self.harness.worker.stop(&mut self.harness.reactor, Span::from_secs(grace_s));
    }
}

/// One end of a simulated connection.
struct End(Option<SimPeer>);

impl Wire for End {
    fn send(&mut self, bytes: &[u8]) -> usize {
        match &self.0 {
            Some(peer) if peer.was_reset() => bytes.len(),
            Some(peer) => peer.send(bytes),
            None => bytes.len(),
        }
    }

    fn receive(&mut self) -> Vec<u8> {
        self.0.as_ref().map(SimPeer::receive).unwrap_or_default()
    }

    fn is_finished(&mut self) -> bool {
        self.0.as_ref().is_some_and(SimPeer::is_finished_by_other)
    }

    fn was_reset(&mut self) -> bool {
        self.0.as_ref().is_none_or(|peer| peer.was_reset() && peer.arrived_bytes() == 0)
    }

    fn finish(&mut self) {
        if let Some(peer) = &self.0 {
            peer.finish();
        }
    }

    fn reset(self: Box<Self>) {
        if let Some(peer) = self.0 {
            peer.reset();
        }
    }
}

/// Plays the scene that `make` returns on every seed.
pub fn play(make: impl Fn() -> Scene) -> Result<(), String> {
    for seed in 0..SEEDS {
        play_seed(make(), seed).map_err(|why| format!("on the simulator, seed {seed}: {why}"))?;
    }
    Ok(())
}

fn play_seed(scene: Scene, seed: u64) -> Result<(), String> {
    let faults = match seed {
        0 => Faults::none(),
        _ => Faults { stall_ppm: 0, ..Faults::swarm_harmless(&mut Prng::new(seed)) },
    };
    let net = SimNet::new(seed, faults);
    let mut config = scene.config.replace("@listen", "10.0.0.1:80");
    let mut servers = BTreeMap::new();
    let names = scene.actors.iter().filter(|actor| !actor.is_client).map(|actor| &actor.name);
    for (at, name) in names.chain(&scene.refusing).enumerate() {
        let address = core::net::SocketAddr::from(([10, 0, 1, at as u8], 8000));
        config = config.replace(&format!("@{name}\""), &format!("{address}\""));
        if !scene.refusing.contains(name) {
            let server =
                net.serve(&Address::Tcp(address)).ok_or("two servers have the same name")?;
            servers.insert(name.clone(), server);
        }
    }
    let config = tidegate_config::parse(&config, "the scene").map_err(|e| e.to_string())?;
    let harness = Harness::simulated(&net, &config, 100, seed);
    run(Simulated { net, harness, servers }, scene.actors)
}

fn run(mut stage: Simulated, scripts: Vec<Script>) -> Result<(), String> {
    let mut actors: Vec<Actor> = scripts.into_iter().map(Actor::new).collect();
    let mut marks = BTreeSet::new();
    for _ in 0..TURNS_MAX {
        let mut moved = false;
        for actor in &mut actors {
            moved |= actor.step(&mut stage, &mut marks)?;
        }
        if actors.iter().all(Actor::is_done) {
            drop(actors);
            return end(stage);
        }
        stage.harness.turn();
        for actor in &mut actors {
            moved |= actor.step(&mut stage, &mut marks)?;
        }
        if !moved && !stage.net.advance_to_next_event() {
            break;
        }
    }
    let all: Vec<String> = actors.iter().map(Actor::describe).collect();
    Err(format!("no progress:\n  {}", all.join("\n  ")))
}

/// Checks that the worker holds nothing once all clients and servers are gone.
fn end(mut stage: Simulated) -> Result<(), String> {
    for _ in 0..TURNS_MAX {
        stage.harness.turn();
        if stage.harness.reactor.sock_count() == 0 || !stage.net.advance_to_next_event() {
            break;
        }
    }
    stage.harness.find_leak().map_or(Ok(()), Err)
}
