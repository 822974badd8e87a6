//! The configuration in the form that a worker uses to handle requests.
//! In: a validated configuration and the resolved addresses of its servers. Out: the settings
//! that handling a request needs, readable without a lock. Never: changes after its creation.
//! Invariant: `addresses[pool][server]` is never empty.

use std::sync::Arc;

use tidegate_base::Address;
use tidegate_config::model::{Bind, Config, Listener, Pool, Route};
use tidegate_gate::access::Names;
use tidegate_gate::client_fields::ClientAddressFields;
use tidegate_gate::handling::Handlings;
use tidegate_gate::rate::RateTables;
use tidegate_gate::respond::Answers;
use tidegate_gate::router::Router;
use tidegate_gate::sticky::Sessions;
use tidegate_gate::websocket::Endpoints;
use tidegate_push::settings::Hubs;

/// The immutable settings of a worker, prepared for lookups.
pub struct Snapshot {
    /// The configuration that the other fields were prepared from. Indexes of listeners, routes, pools and
    /// servers refer to it.
    pub config: Config,
    /// Finds the route of a request.
    pub(crate) router: Router,
    /// The fields that are removed from requests of clients that are not trusted, by listener.
    pub(crate) client_address_fields: Vec<ClientAddressFields>,
    /// The encoded responses of `respond` actions, by route.
    pub(crate) answers: Answers,
    /// The tables of limits of the rate of requests, shared by all workers.
    pub(crate) rates: RateTables,
    /// By pool: its sessions that stay with a server.
    pub(crate) sessions: Vec<Option<Sessions>>,
    /// The names of routes and servers in logs.
    pub(crate) names: Names,
    /// What routes do besides their actions, and the filters of responses.
    pub(crate) handlings: Handlings,
    /// The settings of WebSocket connections that Tidegate serves itself.
    pub(crate) websockets: Endpoints,
    /// The settings of the push hubs.
    pub(crate) hubs: Arc<Hubs>,
    /// A pool sends PROXY headers, or a route uses the server name of TLS handshakes, so these facts are kept for each
    /// client.
    pub(crate) keeps_sessions: bool,
    /// `addresses[pool][server]`: the addresses of that server, in the resolver's order. Never empty.
    pub(crate) addresses: Vec<Vec<Vec<Address>>>,
}

impl Snapshot {
    /// Prepares `config`; `addresses[pool][server]` are the resolved addresses.
    #[must_use]
    pub fn new(config: Config, addresses: Vec<Vec<Vec<Address>>>) -> Self {
        let rates = RateTables::new(&config, 0);
        Self::with_rates(config, addresses, rates)
    }

    /// As [`Self::new`], with the tables of limits that all workers share.
    #[must_use]
    pub fn with_rates(
        config: Config,
        addresses: Vec<Vec<Vec<Address>>>,
        rates: RateTables,
    ) -> Self {
        let router = Router::new(&config);
        let answers = Answers::new(&config);
        let names = Names::new(&config);
        let handlings = Handlings::new(&config);
        let sessions = config.pools.iter().map(Sessions::new).collect();
        let websockets = Endpoints::new(&config);
        let hubs = Arc::new(Hubs::new(&config));
        let keeps_sessions = handlings.needs_server_name()
            || config.pools.iter().any(|pool| pool.proxy_protocol.is_some());
        let fields = config.listeners.iter();
        let client_address_fields = fields
            .map(|listener| ClientAddressFields::new(&listener.client_address_headers))
            .collect();
        Self {
            config,
            router,
            client_address_fields,
            answers,
            rates,
            sessions,
            names,
            handlings,
            websockets,
            hubs,
            keeps_sessions,
            addresses,
        }
    }

    /// The settings of listener `index`.
    pub(crate) fn listener(&self, index: u16) -> &Listener {
        &self.config.listeners[usize::from(index)]
    }

    /// The settings of route `index`.
    pub(crate) fn route(&self, index: usize) -> &Route {
        &self.config.routes[index]
    }

    /// The settings of pool `index`.
    pub(crate) fn pool(&self, index: u16) -> &Pool {
        &self.config.pools[usize::from(index)]
    }

    /// The address that listener `index` is configured to listen on.
    #[must_use]
    pub fn listener_address(&self, index: usize) -> Address {
        match &self.config.listeners[index].bind {
            Bind::Tcp(address) => Address::Tcp(*address),
            Bind::Unix(path) => Address::Unix(path.clone()),
        }
    }
}
