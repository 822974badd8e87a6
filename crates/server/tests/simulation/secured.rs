//! The TLS settings of a run: keys, certificate and randomness from its seed, so that every run repeats.
//! In: a seed, a TLS version. Out: the acceptors, connectors and plans of workers, clients and origins.

use std::sync::Arc;

use tidegate_base::Span;
use tidegate_secure::{ListenerPlan, PoolPlan, ServerPlan, TlsPlan};
use tidegate_wire::tls::{
    Acceptor, AcceptorSettings, Connector, ConnectorSettings, Randomness, Roots, TicketKeys,
    TlsClock, Version,
};

use crate::peer::keys;

/// The name in the certificate.
const NAME: &str = "a.example";
/// The time at which the simulated clock starts.
const UNIX_SECONDS: u64 = 1_700_000_000;
/// Longer than any handshake of a calm run, even through the narrowest window.
const HANDSHAKE_TIMEOUT: Span = Span::from_secs(10);

/// What workers, clients and origins of a run begin TLS sessions with.
pub struct Keys {
    pub acceptor: Acceptor,
    pub connector: Connector,
    /// The connector of clients that speak HTTP/2 only.
    pub http2_connector: Connector,
    /// The clock that TLS reads, set to `UNIX_SECONDS`.
    clock: TlsClock,
}

impl Keys {
    pub fn new(seed: u64, version_max: Version) -> Self {
        let clock = TlsClock::default();
        clock.set(UNIX_SECONDS);
        let randomness = Randomness::seeded(seed);
        let files = keys::certificate(seed, NAME, |_| {});
        let roots = Roots::Authorities(files.chain_pem.clone());
        let settings = AcceptorSettings {
            certificates: vec![files],
            keeps_names: true,
            alpn: ["h2", "http/1.1"].map(str::to_owned).to_vec(),
            ..Default::default()
        };
        let tickets = TicketKeys::with_randomness(UNIX_SECONDS, randomness).map(Arc::new).ok();
        let acceptor = Acceptor::with_randomness(&settings, tickets, clock.clone(), randomness);
        let settings = ConnectorSettings { roots, version_max, ..Default::default() };
        let connector = Connector::with_randomness(&settings, clock.clone(), randomness);
        let settings = ConnectorSettings { alpn: vec!["h2".to_owned()], ..settings };
        let http2_connector = Connector::with_randomness(&settings, clock.clone(), randomness);
        Self {
            acceptor: acceptor.expect("valid settings"),
            connector: connector.expect("valid settings"),
            http2_connector: http2_connector.expect("valid settings"),
            clock,
        }
    }

    /// The TLS plan of a worker. `listener` and `pools` state which of them use TLS; `servers` holds the
    /// number of servers of each pool.
    pub fn plan(&self, listener: bool, pools: &[bool], servers: &[usize]) -> TlsPlan {
        self.plan_of_listeners(&[listener], pools, servers)
    }

    /// As `plan`, for several listeners.
    pub fn plan_of_listeners(
        &self,
        listeners: &[bool],
        pools: &[bool],
        servers: &[usize],
    ) -> TlsPlan {
        let listener = || ListenerPlan {
            acceptor: self.acceptor.clone(),
            handshake_timeout: HANDSHAKE_TIMEOUT,
        };
        let listeners = listeners.iter().map(|secured| secured.then(listener)).collect();
        let pool = |(secured, count): (&bool, &usize)| {
            secured.then(|| PoolPlan {
                name: "p".to_owned(),
                connector: self.connector.clone(),
                servers: vec![ServerPlan { name: NAME.to_owned(), place: String::new() }; *count],
            })
        };
        let pools = pools.iter().zip(servers).map(pool).collect();
        TlsPlan { listeners, pools, clock: self.clock.clone() }
    }
}
