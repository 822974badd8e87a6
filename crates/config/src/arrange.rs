//! Gives the parts of a new configuration the indexes of the previous one: a part that keeps its name keeps its index.
//! In: the configuration in force, the next one, which removed parts are still in use. Out: the next one, arranged.
//! Never: lets an index name something else while it is in use: a removed part stays in its list, marked, and its
//! index is given away only when nothing uses it.
//! Limits: `INDEXES_MAX` listeners, pools, and servers of a pool, the removed ones that are in use included. Removed parts at the
//! end of a list are dropped once nothing uses them.
//! Invariant: a listener is identified by its address, a pool by its name, a server by its pool and its address (and among
//! servers with the same address by their order). Routes refer to indexes of the same configuration.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use tidegate_base::Address;

use crate::model::{Action, Bind, Config, Forward, LuaApp, Pool, Upstream};

/// Maximum number of indexes of one kind.
pub const INDEXES_MAX: usize = u16::MAX as usize;

/// Maximum number of applications that a process has had, those that were removed included.
pub const APPS_MAX: usize = 4096;

/// The number of a configuration, counted from the start of the process.
pub type Generation = u32;

/// A part of a configuration that keeps its index as long as it is in use.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum PartIndex {
    /// A listener.
    Listener(u16),
    /// A pool.
    Pool(u16),
    /// A server: its pool, and its index in the pool.
    Server(u16, u16),
}

/// The generations in which an index names its part.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Life {
    /// The first generation in which the index named this part.
    pub since: Generation,
    /// The first generation without this part, which is only kept because it may be in use.
    pub gone_since: Option<Generation>,
}

impl Life {
    fn new(since: Generation) -> Self {
        Self { since, gone_since: None }
    }

    /// The life of a listener: a listener that is switched off is treated as a removed one whose index stays taken.
    fn switched(self, is_off: bool, earlier: Option<Generation>, now: Generation) -> Self {
        Self { gone_since: is_off.then(|| earlier.unwrap_or(now)), ..self }
    }

    /// Whether the part was removed in a generation before `now`, so that its users are known.
    fn was_gone_before(&self, now: Generation) -> bool {
        self.gone_since.is_some_and(|since| since < now)
    }

    /// Whether the configuration no longer has this part, or has switched it off.
    #[must_use]
    pub fn is_gone(&self) -> bool {
        self.gone_since.is_some()
    }
}

/// The generations in which a server and its limit were last changed.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct ServerLife {
    /// The life of the server itself.
    pub life: Life,
    /// The generation in which its `connections-max` was last set to another value.
    pub limit_since: Generation,
}

/// The life of a pool.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct PoolLife {
    /// The life of the pool itself.
    pub life: Life,
    /// The generation in which connections to its servers were last set up in another way (TLS, PROXY headers,
    /// protocol).
    pub connects_since: Generation,
    /// By server.
    pub servers: Vec<ServerLife>,
}

/// A configuration with the lives of its parts.
#[derive(Clone, Debug, Default)]
pub struct Arranged {
    /// The configuration. Its lists also contain the removed parts that may be in use.
    pub config: Arc<Config>,
    /// The number of the configuration.
    pub generation: Generation,
    /// By listener.
    pub listeners: Vec<Life>,
    /// By pool.
    pub pools: Vec<PoolLife>,
    /// The index of each listener of the file, in file order.
    pub file_listeners: Vec<usize>,
    /// The index of each pool of the file, in file order.
    pub file_pools: Vec<usize>,
    /// The index of each application of the file, in file order. Others were removed, and keep their indexes.
    pub file_apps: Vec<usize>,
    /// By listener: the address as in the file, where port 0 is a free port.
    binds: Vec<Bind>,
}

/// Too many listeners, pools, or servers of a pool.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IndexesUsedUp;

impl core::fmt::Display for IndexesUsedUp {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(
            f,
            "more than {INDEXES_MAX} listeners, pools or servers of a pool, including removed ones that still have \
             connections, or more than {APPS_MAX} Lua applications, including all that were removed"
        )
    }
}
impl std::error::Error for IndexesUsedUp {}

impl Arranged {
    /// The configuration at the start of the process.
    #[must_use]
    pub fn first(config: Config) -> Self {
        let servers = |pool: &Pool| vec![ServerLife::default(); pool.servers.len()];
        let life = |pool: &Pool| PoolLife { servers: servers(pool), ..PoolLife::default() };
        Self {
            generation: 0,
            listeners: vec![Life::default(); config.listeners.len()],
            pools: config.pools.iter().map(life).collect(),
            file_listeners: (0..config.listeners.len()).collect(),
            file_pools: (0..config.pools.len()).collect(),
            file_apps: (0..config.lua.len()).collect(),
            binds: config.listeners.iter().map(|listener| listener.bind.clone()).collect(),
            config: Arc::new(config),
        }
    }

    /// Arranges the configuration that follows this one. `in_use` are the removed parts that are still in use.
    ///
    /// # Errors
    /// There are more parts of a kind than indexes.
    pub fn next(
        &self,
        mut config: Config,
        in_use: &BTreeSet<PartIndex>,
    ) -> Result<Self, IndexesUsedUp> {
        let generation = self.generation + 1;
        let mut next = Self {
            generation,
            listeners: self.listeners.clone(),
            pools: self.pools.clone(),
            binds: self.binds.clone(),
            file_listeners: Vec::new(),
            file_pools: Vec::new(),
            file_apps: Vec::new(),
            config: Arc::default(),
        };
        let listeners = core::mem::take(&mut config.listeners);
        let pools = core::mem::take(&mut config.pools);
        let apps = core::mem::replace(&mut config.lua, self.config.lua.clone());
        config.listeners.clone_from(&self.config.listeners);
        config.pools.clone_from(&self.config.pools);
        next.config = Arc::new(config);
        next.place_apps(apps)?;
        next.file_listeners = next.place_listeners(listeners, in_use)?;
        next.file_pools = next.place_pools(pools, in_use)?;
        next.place_forwards();
        let config = Arc::make_mut(&mut next.config);
        for (index, listener) in config.listeners.iter_mut().enumerate() {
            // The tables of a removed listener may have been removed, too, and its application may have other handlers.
            if !next.file_listeners.contains(&index) {
                listener.counting.clear();
                if let Some(tls) = &mut listener.tls {
                    tls.lua = None;
                }
            }
        }
        for route in &mut config.routes {
            if let Some(listener) = &mut route.listener {
                *listener = next.file_listeners[*listener];
            }
            route.map_pools(|pool| next.file_pools[pool]);
            match &mut route.action {
                Action::Lua(app) => *app = next.file_apps[*app],
                // A hub is found by its name.
                Action::Push(_)
                | Action::Proxy(_)
                | Action::Respond(_)
                | Action::Redirect(_)
                | Action::Synthetic
                | Action::Echo => {}
            }
            if let Some(hooks) = &mut route.handling.hooks {
                hooks.app = next.file_apps[hooks.app];
            }
        }
        Ok(next)
    }

    /// Lets `forward` of each listener refer to the indexes of this configuration. A removed listener keeps its own as
    /// long as they mean the same.
    fn place_forwards(&mut self) {
        let generation = self.generation;
        let (of_file, pools) = (&self.file_listeners, &self.file_pools);
        for (index, listener) in Arc::make_mut(&mut self.config).listeners.iter_mut().enumerate() {
            let Some(forward) = &mut listener.forward else { continue };
            if of_file.contains(&index) {
                forward.map_pools(|pool| pools[pool]);
                continue;
            }
            let is_other =
                |pool: usize| self.pools.get(pool).is_none_or(|own| own.life.since == generation);
            if forward.pools().any(is_other) {
                *forward = Forward::ByServerName { names: Vec::new(), default: None };
            }
        }
    }

    /// Notes the addresses that listeners are bound to: port 0 has become a real port.
    pub fn set_bound(&mut self, bound: &[Option<Address>]) {
        for (index, address) in bound.iter().enumerate() {
            let Some(Address::Tcp(address)) = address else { continue };
            let bind = Bind::Tcp(*address);
            // The configuration is copied only for port 0.
            if self.config.listeners.get(index).is_some_and(|listener| listener.bind != bind) {
                Arc::make_mut(&mut self.config).listeners[index].bind = bind;
            }
        }
    }

    /// The servers that were not removed, with their pools' and their own indexes.
    pub fn servers(&self) -> impl Iterator<Item = ((usize, usize), &Upstream)> {
        let pools = self.config.pools.iter().zip(&self.pools).enumerate();
        pools.flat_map(|(at, (pool, life))| {
            let servers = pool.servers.iter().enumerate();
            let present = servers.filter(move |(server, _)| !life.is_server_gone(*server));
            present.map(move |(server, upstream)| ((at, server), upstream))
        })
    }

    /// The removed parts that the lists still contain.
    pub fn removed(&self) -> impl Iterator<Item = PartIndex> {
        removed(&self.listeners, &self.pools)
    }

    /// Puts the applications at their indexes: the same name has the same index for as long as the process lives.
    fn place_apps(&mut self, apps: Vec<LuaApp>) -> Result<(), IndexesUsedUp> {
        let known = &mut Arc::make_mut(&mut self.config).lua;
        for app in apps {
            let index = known.iter().position(|other| other.name == app.name);
            let index = index.unwrap_or(known.len());
            match known.get_mut(index) {
                Some(place) => *place = app,
                None => known.push(app),
            }
            self.file_apps.push(index);
        }
        if known.len() > APPS_MAX { Err(IndexesUsedUp) } else { Ok(()) }
    }

    /// Puts the listeners at their indexes; returns these.
    fn place_listeners(
        &mut self,
        listeners: Vec<crate::model::Listener>,
        in_use: &BTreeSet<PartIndex>,
    ) -> Result<Vec<usize>, IndexesUsedUp> {
        let generation = self.generation;
        let earlier: Vec<String> = self.binds.iter().map(bind_key).collect();
        let wanted: Vec<String> = listeners.iter().map(|l| bind_key(&l.bind)).collect();
        let is_free = |index: usize| {
            self.listeners[index].is_gone() && !in_use.contains(&PartIndex::Listener(index as u16))
        };
        let indexes = assign(&earlier, &wanted, is_free)?;
        let mut kept = vec![false; self.listeners.len()];
        for (mut listener, placing) in listeners.into_iter().zip(&indexes) {
            let index = placing.index;
            match self.listeners.get_mut(index) {
                Some(life) => {
                    let was_open = placing.is_known && !life.is_gone();
                    if was_open {
                        // The same socket: port 0 has become a real port.
                        listener.bind = self.config.listeners[index].bind.clone();
                    } else {
                        self.binds[index] = listener.bind.clone();
                    }
                    let gone_since = life.gone_since.filter(|_| placing.is_known);
                    let since = if placing.is_known { life.since } else { generation };
                    *life = Life::new(since).switched(listener.is_off, gone_since, generation);
                    Arc::make_mut(&mut self.config).listeners[index] = listener;
                    kept[index] = true;
                }
                None => {
                    self.binds.push(listener.bind.clone());
                    let life = Life::new(generation);
                    self.listeners.push(life.switched(listener.is_off, None, generation));
                    Arc::make_mut(&mut self.config).listeners.push(listener);
                }
            }
        }
        for (life, _) in self.listeners.iter_mut().zip(kept).filter(|(_, kept)| !kept) {
            life.gone_since.get_or_insert(generation);
        }
        // A listener that is switched off counts as removed, too, but keeps its index.
        let end = indexes.iter().map(|placing| placing.index + 1).max().unwrap_or(0);
        while self.listeners.len() > end
            && let Some(life) = self.listeners.last()
            && life.was_gone_before(generation)
            && !in_use.contains(&PartIndex::Listener((self.listeners.len() - 1) as u16))
        {
            self.listeners.pop();
            self.binds.pop();
            Arc::make_mut(&mut self.config).listeners.pop();
        }
        Ok(indexes.into_iter().map(|placing| placing.index).collect())
    }

    /// Puts the pools at their indexes; returns these.
    fn place_pools(
        &mut self,
        pools: Vec<Pool>,
        in_use: &BTreeSet<PartIndex>,
    ) -> Result<Vec<usize>, IndexesUsedUp> {
        let generation = self.generation;
        let earlier: Vec<String> = self.config.pools.iter().map(|pool| pool.name.clone()).collect();
        let wanted: Vec<String> = pools.iter().map(|pool| pool.name.clone()).collect();
        let is_free = |index: usize| {
            self.pools[index].life.is_gone() && !in_use.contains(&PartIndex::Pool(index as u16))
        };
        let indexes = assign(&earlier, &wanted, is_free)?;
        let mut kept = vec![false; self.pools.len()];
        let config = Arc::make_mut(&mut self.config);
        for (pool, placing) in pools.into_iter().zip(&indexes) {
            let index = placing.index;
            if index >= self.pools.len() {
                self.pools.push(PoolLife::born(&pool, generation));
                config.pools.push(pool);
                continue;
            }
            kept[index] = true;
            let (life, settings) = (&mut self.pools[index], &mut config.pools[index]);
            if placing.is_known {
                life.succeed(index as u16, settings, pool, generation, in_use)?;
            } else {
                *life = PoolLife::born(&pool, generation);
                *settings = pool;
            }
        }
        for (pool, _) in self.pools.iter_mut().zip(kept).filter(|(_, kept)| !kept) {
            pool.life.gone_since.get_or_insert(generation);
        }
        while let Some(pool) = self.pools.last()
            && pool.life.was_gone_before(generation)
            && !in_use.contains(&PartIndex::Pool((self.pools.len() - 1) as u16))
        {
            self.pools.pop();
            config.pools.pop();
        }
        Ok(indexes.into_iter().map(|placing| placing.index).collect())
    }
}

impl PoolLife {
    /// Whether a server was removed, by itself or with its pool.
    #[must_use]
    pub fn is_server_gone(&self, server: usize) -> bool {
        let server = self.servers.get(server);
        self.life.is_gone() || server.is_none_or(|server| server.life.is_gone())
    }

    /// The life of a pool that begins in `generation`.
    fn born(pool: &Pool, generation: Generation) -> Self {
        let server = ServerLife { life: Life::new(generation), limit_since: generation };
        let servers = vec![server; pool.servers.len()];
        Self { life: Life::new(generation), connects_since: generation, servers }
    }

    /// Replaces the settings of the pool by those of `next`, which has the same name.
    fn succeed(
        &mut self,
        index: u16,
        settings: &mut Pool,
        mut next: Pool,
        generation: Generation,
        in_use: &BTreeSet<PartIndex>,
    ) -> Result<(), IndexesUsedUp> {
        self.life.gone_since = None;
        let connects = |pool: &Pool| (pool.tls.clone(), pool.proxy_protocol, pool.h2c);
        if connects(settings) != connects(&next) {
            self.connects_since = generation;
        }
        let mut servers = core::mem::take(&mut settings.servers);
        let earlier: Vec<String> = servers.iter().map(server_key).collect();
        let wanted: Vec<String> = next.servers.iter().map(server_key).collect();
        let is_free = |server: usize| {
            let place = PartIndex::Server(index, server as u16);
            self.servers[server].life.is_gone() && !in_use.contains(&place)
        };
        let indexes = assign(&earlier, &wanted, is_free)?;
        let mut kept = vec![false; servers.len()];
        let born = ServerLife { life: Life::new(generation), limit_since: generation };
        for (server, placing) in core::mem::take(&mut next.servers).into_iter().zip(indexes) {
            let at = placing.index;
            match self.servers.get_mut(at) {
                Some(life) if placing.is_known => {
                    if servers[at].connections_max != server.connections_max {
                        life.limit_since = generation;
                    }
                    life.life.gone_since = None;
                }
                Some(life) => *life = born,
                None => {
                    self.servers.push(born);
                    servers.push(server);
                    continue;
                }
            }
            kept[at] = true;
            servers[at] = server;
        }
        for (at, _) in kept.iter().enumerate().filter(|(_, kept)| !**kept) {
            self.servers[at].life.gone_since.get_or_insert(generation);
            // A removed server gets no new requests.
            servers[at].weight = 0;
        }
        while let Some(server) = self.servers.last()
            && server.life.was_gone_before(generation)
            && !in_use.contains(&PartIndex::Server(index, (self.servers.len() - 1) as u16))
        {
            self.servers.pop();
            servers.pop();
        }
        *settings = Pool { servers, ..next };
        Ok(())
    }
}

/// The removed parts of these listeners and pools.
pub fn removed<'a>(
    listeners: &'a [Life],
    pools: &'a [PoolLife],
) -> impl Iterator<Item = PartIndex> + use<'a> {
    let is_gone = |(_, life): &(u16, &Life)| life.is_gone();
    let of_listeners = (0..).zip(listeners).filter(is_gone);
    let of_pools = (0..).zip(pools).flat_map(move |(at, pool)| {
        let itself = pool.life.is_gone().then_some(PartIndex::Pool(at));
        let servers = (0..).zip(pool.servers.iter().map(|server| &server.life)).filter(is_gone);
        itself.into_iter().chain(servers.map(move |(server, _)| PartIndex::Server(at, server)))
    });
    of_listeners.map(|(at, _)| PartIndex::Listener(at)).chain(of_pools)
}

/// The index of a part.
struct Placing {
    /// Its index. Indexes beyond the earlier ones are in the order of the wanted parts.
    index: usize,
    /// The index named the same part before.
    is_known: bool,
}

/// Finds an index for each wanted key: that of the same key, else a free one, else a new one.
fn assign(
    earlier: &[String],
    wanted: &[String],
    is_free: impl Fn(usize) -> bool,
) -> Result<Vec<Placing>, IndexesUsedUp> {
    let mut known: BTreeMap<&str, VecDeque<usize>> = BTreeMap::new();
    for (index, key) in earlier.iter().enumerate() {
        known.entry(key).or_default().push_back(index);
    }
    let found: Vec<Option<usize>> = wanted
        .iter()
        .map(|key| known.get_mut(key.as_str()).and_then(VecDeque::pop_front))
        .collect();
    let taken: BTreeSet<usize> = found.iter().flatten().copied().collect();
    let mut free = (0..earlier.len()).filter(|index| !taken.contains(index) && is_free(*index));
    let mut end = earlier.len();
    let mut placings = Vec::with_capacity(wanted.len());
    for found in found {
        let index = found.or_else(|| free.next()).unwrap_or_else(|| {
            end += 1;
            end - 1
        });
        placings.push(Placing { index, is_known: found.is_some() });
    }
    if end > INDEXES_MAX { Err(IndexesUsedUp) } else { Ok(placings) }
}

pub(crate) fn bind_key(bind: &Bind) -> String {
    match bind {
        Bind::Tcp(address) => address.to_string(),
        Bind::Unix(path) => format!("unix:{path}"),
    }
}

pub(crate) fn server_key(server: &Upstream) -> String {
    server.address.to_string()
}
