//! The configuration in the form that a worker uses to handle requests.
//! In: a validated configuration and the resolved addresses of its servers. Out: the settings
//! that handling a request needs, readable without a lock. Never: changes after its creation.
//! Invariant: `addresses[pool][server]` is never empty. An index of a listener, a pool or a server means the same in
//! all snapshots of a process, as long as anything uses it (`config::arrange`).

use std::sync::Arc;

use tidegate_base::Address;
use tidegate_config::arrange::{Arranged, Generation, Life, PoolLife};
use tidegate_config::model::{Bind, Config, Listener, Pool, Route, WebSocket};
use tidegate_gate::access::Names;
use tidegate_gate::client_fields::ClientAddressFields;
use tidegate_gate::handling::Handlings;
use tidegate_gate::process_state::ProcessState;
use tidegate_gate::respond::Answers;
use tidegate_gate::router::Router;
use tidegate_gate::sticky::Sessions;
use tidegate_gate::sticky_keys::StickyKeys;
use tidegate_gate::tcp::TcpTargets;
use tidegate_gate::websocket::Endpoints;
use tidegate_push::settings::Hubs;

use crate::name_servers;
use crate::resolve::Addresses;
use crate::scripts::Scripts;
use crate::stats::{Counted, Registry};

/// The immutable settings of a worker, prepared for lookups. The workers share the configuration and the addresses.
pub struct Snapshot {
    /// The configuration that the other fields were prepared from. Indexes of listeners, routes, pools and
    /// servers refer to it.
    pub config: Arc<Config>,
    /// The number of the configuration.
    pub(crate) generation: Generation,
    /// By listener: since when it exists, and whether it was removed.
    pub(crate) listener_lives: Vec<Life>,
    /// By pool: since when it and its servers exist, and which were removed.
    pub(crate) pool_lives: Vec<PoolLife>,
    /// Finds the route of a request.
    pub(crate) router: Router,
    /// The fields that are removed from requests of clients that are not trusted, by listener.
    pub(crate) client_address_fields: Vec<ClientAddressFields>,
    /// The encoded responses of `respond` actions, by route.
    pub(crate) answers: Answers,
    /// The state that all workers share.
    pub(crate) process: ProcessState,
    /// By pool: its sessions that stay with a server.
    pub(crate) sessions: Vec<Option<Sessions>>,
    /// By pool: its keys that stay with a server.
    stays: Vec<Option<StickyKeys>>,
    /// By listener: where it forwards connections without HTTP.
    tcp_targets: Vec<Option<TcpTargets>>,
    /// The names of routes and servers in logs and statistics.
    pub(crate) names: Names,
    /// The handling of requests by routes in addition to their actions, and the filters of responses.
    pub(crate) handlings: Handlings,
    /// The worker's counters of listeners, routes and servers.
    pub(crate) counted: Counted,
    /// The settings of WebSocket connections that Tidegate serves itself.
    pub(crate) websockets: Endpoints,
    /// The programs of the Lua applications; `None` if those of the worker stay.
    pub(crate) scripts: Option<Scripts>,
    /// The settings of the push hubs.
    pub(crate) hubs: Arc<Hubs>,
    /// The DNS servers that applications query.
    pub(crate) name_servers: Vec<core::net::SocketAddr>,
    /// A pool sends PROXY headers, or a route uses the server name of TLS handshakes, so these facts are kept for each
    /// client.
    pub(crate) keeps_sessions: bool,
    /// `addresses[pool][server]`: the addresses of that server, in the resolver's order. Never empty.
    pub(crate) addresses: Arc<Addresses>,
}

impl Snapshot {
    /// Prepares `config`; `addresses[pool][server]` are the resolved addresses.
    #[must_use]
    pub fn new(config: Config, addresses: Addresses) -> Self {
        let process = ProcessState::new(&config, 0);
        Self::arranged(Arranged::first(config), addresses, process, &mut Numbers::default())
    }

    /// Prepares a configuration, with the state that all workers share. The values in `numbers` keep their
    /// numbers; new ones are added to it.
    #[must_use]
    pub fn arranged(
        arranged: Arranged,
        addresses: impl Into<Arc<Addresses>>,
        process: ProcessState,
        numbers: &mut Numbers,
    ) -> Self {
        let Arranged { config, generation, listeners, pools, .. } = arranged;
        let router = Router::sharing(&config, &process.sets);
        let answers = Answers::new(&config);
        let names = Names::new(&config);
        let handlings = Handlings::sharing(&config, &process);
        let sessions = config.pools.iter().map(Sessions::new).collect();
        let stays_of = |(index, pool)| process.stays.of_pool(index, pool);
        let stays = config.pools.iter().enumerate().map(stays_of).collect();
        let forward_of = |listener: &Listener| listener.forward.as_ref().map(TcpTargets::new);
        let tcp_targets = config.listeners.iter().map(forward_of).collect();
        let websockets = Endpoints::after(&config, &numbers.websockets);
        numbers.websockets = websockets.settings().cloned().collect();
        let name_servers = name_servers::of(&config);
        let hubs = Arc::new(Hubs::with_keys(&config, |remote| process.keys.find(remote).cloned()));
        let keeps_sessions = handlings.needs_server_name()
            || config.pools.iter().any(|pool| pool.proxy_protocol.is_some());
        let listeners_fields = config.listeners.iter();
        let client_address_fields =
            listeners_fields.map(|listener| client_fields(listener, &config)).collect();
        Self {
            config,
            generation,
            listener_lives: listeners,
            pool_lives: pools,
            router,
            client_address_fields,
            answers,
            process,
            sessions,
            stays,
            tcp_targets,
            names,
            handlings,
            counted: Counted::default(),
            websockets,
            scripts: None,
            hubs,
            name_servers,
            keeps_sessions,
            addresses: addresses.into(),
        }
    }

    /// Brings the programs of the Lua applications.
    #[must_use]
    pub fn with_scripts(mut self, scripts: Scripts) -> Self {
        self.scripts = Some(scripts);
        self
    }

    /// Counts the requests of worker `worker` in `registry`.
    #[must_use]
    pub fn counted_in(mut self, registry: &Registry, worker: usize) -> Self {
        self.counted = registry.of_worker(worker, &self.config, &self.names);
        self
    }

    /// The settings of listener `index`.
    pub(crate) fn listener(&self, index: u16) -> &Listener {
        &self.config.listeners[usize::from(index)]
    }

    /// The keys of pool `index` that stay with a server; `None` if requests do not stay by a key.
    pub(crate) fn stays(&self, index: u16) -> Option<&StickyKeys> {
        self.stays.get(usize::from(index))?.as_ref()
    }

    /// The destination to which listener `index` forwards connections without HTTP; `None` if it serves HTTP.
    pub(crate) fn tcp_targets(&self, index: u16) -> Option<&TcpTargets> {
        self.tcp_targets.get(usize::from(index))?.as_ref()
    }

    /// Whether listener `index` was removed: its connections end after their responses.
    pub(crate) fn is_listener_gone(&self, index: u16) -> bool {
        self.listener_lives.get(usize::from(index)).is_some_and(Life::is_gone)
    }

    /// Whether pool `index` was removed.
    pub(crate) fn is_pool_gone(&self, index: u16) -> bool {
        self.pool_lives.get(usize::from(index)).is_some_and(|pool| pool.life.is_gone())
    }

    /// Whether the configuration has a pool with this index that was not removed.
    pub(crate) fn has_pool(&self, index: u16) -> bool {
        self.pool_lives.get(usize::from(index)).is_some_and(|pool| !pool.life.is_gone())
    }

    /// Whether a connection to a server that was opened in `generation` may be used for other requests. It may not
    /// if the server was removed since, or if connections are set up in another way now.
    pub(crate) fn may_keep(&self, pool: u16, server: u16, generation: Generation) -> bool {
        self.pool_lives.get(usize::from(pool)).is_some_and(|pool| {
            !pool.is_server_gone(usize::from(server)) && pool.connects_since <= generation
        })
    }

    /// Whether a server was removed.
    pub(crate) fn is_server_gone(&self, pool: u16, server: u16) -> bool {
        self.pool_lives
            .get(usize::from(pool))
            .is_some_and(|pool| pool.is_server_gone(usize::from(server)))
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

/// The fields that are not forwarded from clients of a listener.
pub(crate) fn client_fields(listener: &Listener, config: &Config) -> ClientAddressFields {
    let conditions = config.routes.iter().flat_map(|route| &route.headers);
    ClientAddressFields::new(&listener.client_address_headers)
        .testing(conditions.map(|condition| &condition.name))
}

/// The numbers of values that connections hold for longer than a generation of settings.
#[derive(Clone, Default, Debug)]
pub struct Numbers {
    /// The settings of WebSocket connections, by number.
    websockets: Vec<WebSocket>,
}

impl Numbers {
    /// The numbers that the values of the first configuration get.
    #[must_use]
    pub fn of(config: &Config) -> Self {
        let websockets = Endpoints::new(config).settings().cloned().collect();
        Self { websockets }
    }
}
