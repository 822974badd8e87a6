//! The immutable picture of the configuration that a worker serves by.
//! In: a checked configuration and the addresses its servers' names stand for. Out: what a request
//! needs, looked up without a lock. Never: changes; a reload makes a new one.
//! Invariant: `addresses[pool][server]` is never empty.

use tidegate_base::Address;
use tidegate_config::model::{Bind, Config};
use tidegate_gate::hsts::HstsPolicies;
use tidegate_gate::respond::Answers;
use tidegate_gate::router::Router;

/// What a worker serves by.
pub struct Snapshot {
    /// The configuration it was made of.
    pub config: Config,
    pub(crate) router: Router,
    pub(crate) answers: Answers,
    pub(crate) hsts: HstsPolicies,
    /// Some pool's servers are told whom connections are for.
    pub(crate) tells_servers: bool,
    /// By pool and server: where to connect, in order of preference.
    pub(crate) addresses: Vec<Vec<Vec<Address>>>,
}

impl Snapshot {
    /// Prepares `config`; `addresses[pool][server]` are the resolved addresses.
    #[must_use]
    pub fn new(config: Config, addresses: Vec<Vec<Vec<Address>>>) -> Self {
        let router = Router::new(&config);
        let answers = Answers::new(&config);
        let hsts = HstsPolicies::new(&config);
        let tells_servers = config.pools.iter().any(|pool| pool.proxy_protocol.is_some());
        Self { config, router, answers, hsts, tells_servers, addresses }
    }

    /// Where listener `index` is to listen.
    #[must_use]
    pub fn listener_address(&self, index: usize) -> Address {
        match &self.config.listeners[index].bind {
            Bind::Tcp(address) => Address::Tcp(*address),
            Bind::Unix(path) => Address::Unix(path.clone()),
        }
    }
}
