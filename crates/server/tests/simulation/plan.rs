//! Makes a run out of a seed: configuration, origins' behaviour, clients' scripts, faults, a stop.
//! In: a seed. Out: a `Plan`, the same on every machine.
//! Never: makes an invalid request, except for input that is marked as garbage.

use core::fmt::Write;

use tidegate_base::{Address, Moment, Prng, Span};
use tidegate_reactor::Faults;
use tidegate_wire::http2::bounds::SEND_BYTES_FLOOR;
use tidegate_wire::tls::Version;

use crate::asked;
use crate::client::{Habits, Op, ip_of};
use crate::copies;
use crate::http2;
use crate::http2_origin::Http2Behaviour;
use crate::line::WINDOW_BYTES_MIN;
use crate::oracle::{ClientIdentity, Expected, Request};
use crate::origin::Behaviour;
use crate::peer::body;
use crate::proxy_header::{self, NamedClient};

/// The limit of a request's body, in plans that set one.
pub const BODY_BYTES_MAX: u64 = 20_480;

/// All decisions of a run.
pub struct Plan {
    /// The configuration file.
    pub config: String,
    pub workers: usize,
    /// Bytes in progress in one direction of a connection.
    pub window_bytes: usize,
    /// Clients use TLS.
    pub secured: bool,
    /// For each pool, whether its servers use TLS.
    pub secured_pools: Vec<bool>,
    /// A server is asked about each request to the second pool. Its own pool is the last one.
    pub asks: bool,
    /// MirrorServer of requests go to a server of another pool, which is the last one.
    pub mirrors: bool,
    /// The highest TLS version.
    pub version_max: Version,
    /// Connections that each worker may hold.
    pub socks_max: usize,
    pub faults: Faults,
    /// Nothing goes wrong in this run, so nothing may fail.
    pub is_calm: bool,
    /// The worker has too few slots for all clients of this run.
    pub is_crowded: bool,
    /// How often a request may be sent to origins.
    pub tries_max: usize,
    /// `None`: nothing listens at this address.
    pub origins: Vec<(Address, Option<Behaviour>)>,
    /// For each pool with TLS, whether its servers speak HTTP/2.
    pub http2_pools: Vec<bool>,
    pub clients: Vec<(Vec<Op>, Habits)>,
    /// The clients that speak HTTP/2.
    pub http2_clients: Vec<http2::Script>,
    /// All requests of all clients' scripts.
    pub requests: Vec<Request>,
    /// When every worker is told to stop, and the grace period.
    pub stop: Option<(Moment, Span)>,
}

/// The address of the listener.
pub const LISTEN: ([u8; 4], u16) = ([10, 0, 0, 1], 80);

/// The clients whose PROXY headers are accepted, in plans that accept any: the first eight.
const TRUSTED: &str = "10.20.0.0/29";
const RETRY_ON: [&str; 3] =
    ["", "retry-on = [\"reset\", \"malformed\"]\n", "retry-on = [\"malformed\"]\n"];

fn is_trusted(client: usize) -> bool {
    client < 8
}

impl Plan {
    pub fn new(seed: u64) -> Self {
        let mut prng = Prng::new(seed ^ 0x7469_6465);
        let is_calm = prng.below(6) == 0;
        let mut crowd = Prng::new(seed ^ 0x6372_6f77);
        let is_crowded = is_calm && crowd.below(2) == 0;
        let pools = 1 + prng.below(3) as usize;
        let faults = match prng.below(4) {
            _ if is_calm => calm_faults(&mut prng),
            0 => Faults::none(),
            1 => Faults::swarm_harmless(&mut prng),
            _ => Faults::swarm(&mut prng),
        };
        let trusts = prng.below(3) == 0;
        let speaks_tls = prng.below(3) == 0;
        let secured = speaks_tls && prng.below(3) > 0;
        let secured_pools: Vec<bool> =
            (0..pools).map(|_| speaks_tls && prng.below(2) == 0).collect();
        let version_max = [Version::Tls12, Version::Tls13][prng.below(2) as usize];
        let mut maker = Maker {
            prng,
            reuse_prng: Prng::new(seed ^ 0x7265_7573),
            has_websockets: http2::has_websockets(seed),
            is_calm,
            pools,
            secured,
            secured_pools: secured_pools.clone(),
            trusts,
            identity: ClientIdentity { ip: None, header: None },
            requests: Vec::new(),
            body_limited: false,
        };
        let (mut config, mut origins, tries_max) = maker.make_config();
        let count = 1 + maker.prng.below(12) as usize;
        let clients = (0..count).map(|index| maker.make_client(index)).collect();
        // A generator of its own, so that the other choices of a seed keep their meaning.
        let mut http2_prng = Prng::new(seed ^ 0x0068_7474_7032);
        let mut http2_clients = Vec::new();
        if http2_prng.below(3) == 0 {
            if !secured {
                config = config.replacen("timeouts = {", "h2c = true\ntimeouts = {", 1);
            }
            for at in 0..1 + http2_prng.below(3) as usize {
                let index = http2::FIRST_CLIENT + at;
                let identity = ClientIdentity { ip: Some(ip_of(index)), header: None };
                let mut maker = http2::Maker {
                    prng: &mut http2_prng,
                    is_calm,
                    pools,
                    identity,
                    requests: &mut maker.requests,
                };
                let mut script = maker.make_script(index);
                if http2::has_websockets(seed) {
                    maker.add_tunnels(&mut script, seed);
                }
                http2_clients.push(script);
            }
        }
        // Another generator of its own.
        let mut origin_prng = Prng::new(seed ^ 0x6832_6f72_6967);
        let http2_pools = (0..pools).map(|pool| {
            let chosen = origin_prng.below(3) == 0;
            chosen && maker.speak_http2(&mut origin_prng, pool, &mut config, &mut origins)
        });
        let mut http2_pools: Vec<bool> = http2_pools.collect();
        if Prng::new(seed ^ 0x686f_6f6b).below(3) == 0 {
            config = config.replacen("proxy = \"p0\"\n", "proxy = \"p0\"\nhooks = \"pass\"\n", 1);
            let script = match Prng::new(seed ^ 0x626f_6479).below(2) {
                0 => "pass",
                _ => "pass_bodies",
            };
            config += &format!("[lua.pass]\nscript = \"tests/scripts/{script}.lua\"\n");
        }
        if Prng::new(seed ^ 0x6964).below(3) == 0 {
            config.push_str("[server]\nrequest-id = { response = true }\ntrace = true\n");
        }
        if Prng::new(seed ^ 0x7461_626c_6548).below(4) == 0 {
            config = add_tables(&config);
        }
        let mut bandwidth = Prng::new(seed ^ 0x6261_6e64_7713);
        if bandwidth.below(4) == 0 {
            config = limit_bandwidth(&config, pools, &mut bandwidth);
        }
        let asks = pools > 1 && Prng::new(seed ^ 0x6173_6b1c).below(4) == 0;
        if asks {
            config = add_question(&config, pools);
            http2_pools.push(false);
        }
        let mirrors = Prng::new(seed ^ 0x6d_6972_726f_7276).below(4) == 0;
        if mirrors {
            config = add_mirror(&config, seed);
            http2_pools.push(false);
        }
        let mut prng = maker.prng;
        let stop = (!is_calm && prng.below(4) == 0).then(|| {
            let at = Moment::from_nanos(1_000_000_000 + prng.below(8_000_000_000));
            (at, Span::from_millis(prng.below(20_000)))
        });
        Self {
            config,
            workers: 1 + prng.below(3) as usize,
            window_bytes: match prng.below(3) {
                0 if !is_calm && speaks_tls => WINDOW_BYTES_MIN + prng.below(3000) as usize,
                0 if !is_calm => 1 + prng.below(3000) as usize,
                0 | 1 => 3000 + prng.below(30_000) as usize,
                _ => 64 * 1024,
            },
            secured,
            secured_pools: secured_pools
                .into_iter()
                .chain(asks.then_some(false))
                .chain(mirrors.then_some(false))
                .collect(),
            asks,
            mirrors,
            version_max,
            socks_max: match () {
                () if is_crowded => 3 + crowd.below(10) as usize,
                () if is_calm || prng.below(3) > 0 => 64,
                () => 2 + prng.below(10) as usize,
            },
            faults,
            is_calm,
            is_crowded,
            tries_max,
            origins,
            http2_pools,
            clients,
            http2_clients,
            requests: maker.requests,
            stop,
        }
    }
}

/// Counts all requests, and those of the first pool, in tables with little room. A request of the first pool sees itself.
fn add_tables(config: &str) -> String {
    let config = config.replacen("timeouts = {", "count = \"all\"\ntimeouts = {", 1);
    let seen = "table = { all = { connections = \">= 1\", \"requests/1s\" = \">= 1\" } }\ncount = [\"all\", \"first\"]\n";
    let config = config.replacen("proxy = \"p0\"\n", &format!("proxy = \"p0\"\n{seen}"), 1);
    format!(
        "{config}[table.all]\ncounts = [\"connections\", \"requests/1s\", \"errors\", \"bytes-sent/2s\"]\n\
         expire = \"2s\"\nentries-max = 8\n\
         [table.first]\nkey = [\"header:x-id\", \"path\"]\ncounts = [\"requests\", \"failures/1s\"]\n\
         expire = \"1s\"\nentries-max = 8\n"
    )
}

/// Limits the bandwidth of requests to servers and of synthetic responses.
fn limit_bandwidth(config: &str, pools: usize, prng: &mut Prng) -> String {
    let mut limit = || {
        let [down, up] = [(); 2].map(|()| (128 << 10) << prng.below(6));
        let after = prng.below(50_000);
        format!("bandwidth = {{ down = \"{down}B/s\", up = \"{up}B/s\", after = \"{after}B\" }}\n")
    };
    let mut config = config.to_owned();
    for pool in 0..pools {
        let path = format!("path = \"/p{pool}/*\"\n");
        config = config.replacen(&path, &format!("{path}{}", limit()), 1);
    }
    let path = "path = \"/synthetic\"\n";
    config.replacen(path, &format!("{path}bandwidth = {{ down = \"200KiB/s\" }}\n"), 1)
}

/// Lets the route of the second pool ask a server, whose pool is added after `pools` others.
fn add_question(config: &str, pools: usize) -> String {
    let (ip, port) = asked::ADDRESS;
    let ip = core::net::Ipv4Addr::from(ip);
    let auth = format!(
        "auth = {{ ask = \"p{pools}\", path = \"/verify\", copy = [\"{}\"] }}",
        asked::COPIED.0
    );
    let config = config.replacen("proxy = \"p1\"\n", &format!("proxy = \"p1\"\n{auth}\n"), 1);
    format!(
        "{config}[pool.p{pools}]\nservers = [{{ address = \"{ip}:{port}\", connections-max = 2 }}]\n\
         queue-max = 1000\nqueue-half-closed = true\ntimeouts = {{ queue = \"1001s\", response-head = \"1002s\" }}\n"
    )
}

/// Lets the routes of all pools copy requests for another one. In some runs nothing listens there.
fn add_mirror(config: &str, seed: u64) -> String {
    let (ip, port) = copies::ADDRESS;
    let ip = core::net::Ipv4Addr::from(ip);
    let port = if seed.is_multiple_of(5) { port + 1 } else { port };
    let share = ["100%", "30%"][(seed / 5 % 2) as usize];
    let mut config = config.to_owned();
    for pool in 0..3 {
        let path = format!("path = \"/p{pool}/*\"\n");
        let mirror = format!("mirror = {{ pool = \"copies\", share = \"{share}\" }}\n");
        config = config.replacen(&path, &format!("{path}{mirror}"), 1);
    }
    format!(
        "{config}[pool.copies]\nservers = [\"{ip}:{port}\"]\n\
         timeouts = {{ connect = \"2s\", response-head = \"3s\", body = \"3s\" }}\n"
    )
}

/// The settings of a route that rewrites the path and fields, with values that clients and origins check.
fn rewriting(pool: usize) -> String {
    let path = format!("path = \"/p{pool}/{{rest}}\"");
    let (choice, map) = match pool % 2 {
        0 => (
            format!(
                "proxy = {{ {path} }}\n\
                 split = {{ pools = {{ \"p{pool}\" = 1 }}, by = [\"path\", \"header:x-id\"] }}"
            ),
            String::new(),
        ),
        _ => (
            format!(
                "proxy = {{ {path}, pool = {{ map = \"m{pool}\", key = \"{{header:x-id}}\", default = \"p{pool}\" }} }}"
            ),
            format!("\n[map.m{pool}]\nkind = \"prefix\"\nentries = {{ \"1\" = \"p{pool}\" }}"),
        ),
    };
    format!(
        "{choice}\n\
         request-headers = {{ set = {{ x-path = \"{{path}}\", x-client = \"{{client}}\" }} }}\n\
         response-headers = {{ set = {{ x-of = \"{{header:x-id}}\" }} }}\n\
         rate = {{ limit = \"1000000/s\", keys-max = 8 }}\nsecurity-headers = true{map}"
    )
}

/// A number below `top` that favours small numbers: `top` is first halved up to `halvings - 1` times.
pub fn below_skewed(prng: &mut Prng, top: u64, halvings: u64) -> u64 {
    let bound = top >> prng.below(halvings);
    prng.below(bound.max(1))
}

fn calm_faults(prng: &mut Prng) -> Faults {
    if prng.chance(300_000) {
        return Faults::none();
    }
    Faults { stall_ppm: 0, accept_shortage_ppm: 0, ..Faults::swarm_harmless(prng) }
}

/// A plan in the making.
struct Maker {
    prng: Prng,
    /// For the settings of reuse and retries that came later, so that the other choices of a seed keep their meaning.
    reuse_prng: Prng,
    /// Tunnels are WebSockets.
    has_websockets: bool,
    is_calm: bool,
    pools: usize,
    secured: bool,
    secured_pools: Vec<bool>,
    /// The listener accepts PROXY headers.
    trusts: bool,
    /// The client whose script is being made.
    identity: ClientIdentity,
    requests: Vec<Request>,
    /// The listener limits bodies to `BODY_BYTES_MAX`.
    body_limited: bool,
}

impl Maker {
    fn make_config(&mut self) -> (String, Vec<(Address, Option<Behaviour>)>, usize) {
        let mut text = String::new();
        let (ip, port) = LISTEN;
        let _ = writeln!(text, "[[listener]]\nbind = \"{}:{port}\"", core::net::Ipv4Addr::from(ip));
        if !self.is_calm && self.prng.below(3) == 0 {
            let _ = writeln!(text, "requests-per-connection-max = {}", 1 + self.prng.below(5));
        }
        if self.secured {
            text.push_str("tls = \"self-signed\"\n");
        }
        if self.trusts {
            let _ = writeln!(text, "proxy-protocol = {{ from = [\"{TRUSTED}\"] }}");
        }
        self.body_limited = !self.is_calm && self.prng.below(6) == 0;
        if self.body_limited {
            let _ = writeln!(text, "limits = {{ body = \"{BODY_BYTES_MAX}B\" }}");
        }
        let _ = writeln!(
            text,
            "timeouts = {{ head = \"{}s\", idle = \"{}s\", body = \"{}s\" }}",
            2 + self.prng.below(8),
            if self.is_calm { 30 } else { 1 + self.prng.below(20) },
            2 + self.prng.below(20)
        );
        text.push_str(ROUTES);
        let mut origins = Vec::new();
        let mut tries_max = 0;
        for pool in 0..self.pools {
            // Not random, so that the other choices of a seed keep their meaning.
            let _ = match pool {
                0 | 1 => writeln!(text, "[[route]]\npath = \"/p{pool}/*\"\nproxy = \"p{pool}\""),
                _ => writeln!(text, "[[route]]\npath = \"/p{pool}/*\"\n{}", rewriting(pool)),
            };
        }
        for pool in 0..self.pools {
            let retries = self.prng.below(4);
            tries_max = tries_max.max(1 + retries as usize);
            self.make_pool(&mut text, pool, retries, &mut origins);
        }
        (text, origins, tries_max)
    }

    fn make_pool(
        &mut self,
        text: &mut String,
        pool: usize,
        retries: u64,
        origins: &mut Vec<(Address, Option<Behaviour>)>,
    ) {
        let prng = &mut self.prng;
        let balance = [
            "\"random\"",
            "\"round-robin\"",
            "\"least-connections\"",
            "{ hash = \"path\" }",
            "{ hash = \"header:x-id\" }",
            "{ hash = \"client-address\" }",
        ][prng.below(6) as usize];
        let mut servers = Vec::new();
        let limited = prng.below(3) == 0;
        for server in 0..1 + prng.below(4) {
            let unix = prng.below(4) == 0;
            let (name, address) = if unix {
                let path = format!("/run/{pool}-{server}.sock");
                (format!("unix:{path}"), Address::Unix(path))
            } else {
                let at = core::net::SocketAddr::from(([10, 0, 1 + pool as u8, server as u8], 8000));
                (at.to_string(), Address::Tcp(at))
            };
            let limit = if limited { 1 + prng.below(3) } else { 1_000_000 };
            let weight = 1 + prng.below(3);
            servers.push(format!(
                "{{ address = \"{name}\", weight = {weight}, connections-max = {limit} }}"
            ));
            let is_down = !self.is_calm && prng.below(8) == 0;
            let behaviour = if self.is_calm { calm_behaviour(prng) } else { swarm_behaviour(prng) };
            origins.push((address, (!is_down).then_some(behaviour)));
        }
        let header_setting = ["", "proxy-protocol = \"v1\"\n", "proxy-protocol = \"v2\"\n"]
            [(prng.below(6) as usize).saturating_sub(3)];
        // Not random, so that the other choices of a seed keep their meaning.
        let passes_trailers = pool % 2 == 1;
        let of_pool = origins.len() - servers.len()..;
        for (server, (_, behaviour)) in origins[of_pool].iter_mut().enumerate() {
            if let Some(behaviour) = behaviour {
                // Not random, as above. Calm runs have them too: they must not cause a failure.
                behaviour.unsolicited = if (pool + server) % 3 == 1 { 300_000 } else { 0 };
                behaviour.expects_header = !header_setting.is_empty();
                behaviour.trailers = passes_trailers;
                behaviour.secured = self.secured_pools[pool];
                behaviour.skip_close_notify =
                    if self.is_calm { 0 } else { 2 * pick(prng, 500_000) };
            }
        }
        let sticky = match pool {
            1 => "sticky = { by = \"header:x-id\", for = \"1s\", entries-max = 8 }\n",
            2 => "sticky = { cookie = \"S\" }\n",
            _ => "",
        };
        let tls = match self.secured_pools[pool] {
            true => "tls = { server-name = \"a.example\" }\n",
            false => "",
        };
        // Not random either.
        let buffer = ["16KiB", "0B", "1KiB"][pool % 3];
        let queue = if self.is_calm { 1000 } else { prng.below(6) };
        let slow = if self.is_calm { 1000 } else { 1 };
        let unretriable = ["proven", "always", "never"][self.reuse_prng.below(3) as usize];
        let pause = ["20ms", "1s", "1m"][self.reuse_prng.below(3) as usize];
        // The next number, without drawing it: the other choices of a seed keep their meaning.
        let retry_on = RETRY_ON[self.reuse_prng.clone().below(3) as usize];
        let _ = writeln!(
            text,
            "[pool.p{pool}]\n{retry_on}servers = [{}]\nbalance = {balance}\nretries = {retries}\n\
             retry-pause = \"{pause}\"\n\
             queue-max = {queue}\nrequest-buffer = \"{buffer}\"\n\
             queue-half-closed = {}\ntrailers = {passes_trailers}\n{header_setting}{tls}{sticky}\
             timeouts = {{ connect = \"{}s\", response-head = \"{}s\", body = \"{}s\", \
             queue = \"{}s\", tunnel = \"{}s\" }}\n\
             reuse = {{ idle-max = {}, idle-timeout = \"{}s\", requests-max = {}, \
             unretriable = \"{unretriable}\" }}",
            servers.join(", "),
            self.is_calm || pool % 2 == 1,
            1 + prng.below(3),
            2 + slow + prng.below(6),
            2 + slow + prng.below(6),
            1 + slow + prng.below(4),
            2 + slow + prng.below(6),
            prng.below(4),
            1 + prng.below(10),
            1 + below_skewed(prng, 1000, 10),
        );
    }

    /// Lets a pool speak HTTP/2 to its servers, if that is possible. Returns whether the servers speak it: with TLS, some
    /// choose HTTP/1.1.
    fn speak_http2(
        &self,
        prng: &mut Prng,
        pool: usize,
        config: &mut String,
        origins: &mut [(Address, Option<Behaviour>)],
    ) -> bool {
        let is_of_pool = |address: &Address| match address {
            Address::Tcp(at) => match at.ip() {
                core::net::IpAddr::V4(ip) => ip.octets()[2] == 1 + pool as u8,
                core::net::IpAddr::V6(_) => false,
            },
            Address::Unix(path) => path.starts_with(&format!("/run/{pool}-")),
        };
        let mut behaviours = origins
            .iter_mut()
            .filter(|(address, _)| is_of_pool(address))
            .filter_map(|(_, b)| b.as_mut());
        let begin = format!("[pool.p{pool}]\n");
        let prefix = format!("/p{pool}/");
        // A tunnel of another protocol needs a server of HTTP/1.1.
        let has_tunnels = !self.has_websockets
            && self.requests.iter().any(|request| {
                request.expected == Expected::Tunnel && request.path.starts_with(&prefix)
            });
        let is_secured = self.secured_pools[pool];
        let chooses_http1 = is_secured && (has_tunnels || prng.below(3) == 0);
        let streams_max = [100, 100, 10, 2, 1][prng.below(5) as usize];
        let connections_max = [256, 256, 4, 1][prng.below(4) as usize];
        let Some(at) = config.find(&begin).map(|at| at + begin.len()) else { return false };
        let end = config[at..].find("[pool.").map_or(config.len(), |end| at + end);
        let section = &config[at..end];
        if section.contains("proxy-protocol") || has_tunnels && !chooses_http1 {
            return false;
        }
        let limits = format!(
            "http2 = {{ streams-max = {streams_max}, connections-max = {connections_max} }}\n"
        );
        let changed = match (is_secured, chooses_http1) {
            (false, _) => format!("h2c = true\n{limits}{section}"),
            (true, false) => {
                let alpn = "\"a.example\", alpn = [\"h2\"]";
                format!("{limits}{}", section.replacen("\"a.example\"", alpn, 1))
            }
            (true, true) => {
                let alpn = "\"a.example\", alpn = [\"h2\", \"http/1.1\"]";
                format!("{limits}{}", section.replacen("\"a.example\"", alpn, 1))
            }
        };
        config.replace_range(at..end, &changed);
        if !chooses_http1 {
            let is_calm = self.is_calm;
            behaviours.by_ref().enumerate().for_each(|(at, behaviour)| {
                // Not random, so that the other choices of a seed keep their meaning.
                let takes_tunnels = is_calm || (pool + at) % 4 < 3;
                let mut rate = |top| if self.is_calm { 0 } else { pick(prng, top) };
                let (refuse, go_away) = (rate(400_000), rate(300_000));
                let (narrow, tight, ping) =
                    (pick(prng, 900_000), pick(prng, 900_000), pick(prng, 100_000));
                // A server with smaller windows gets a large request very slowly, if at all (CVE-2019-9511).
                let window_min = if self.is_calm { SEND_BYTES_FLOOR as u32 } else { 1 };
                behaviour.http2 = Some(Http2Behaviour {
                    takes_tunnels,
                    refuse,
                    go_away,
                    narrow,
                    tight,
                    window_min,
                    ping,
                });
            });
        }
        !chooses_http1
    }

    fn make_client(&mut self, index: usize) -> (Vec<Op>, Habits) {
        self.identity = ClientIdentity { ip: Some(ip_of(index)), header: None };
        let header = self.make_opening(index);
        let (mut ops, habits) = self.make_script();
        match header {
            None => {}
            Some(Ok(header)) => self.put_before(&mut ops, header),
            // The rest of the script must not get through, so it is dropped.
            Some(Err(steps)) => ops = steps,
        }
        (ops, habits)
    }

    /// A valid PROXY header, or the steps of a client that must be refused; `None`: the connection begins
    /// with the first request.
    fn make_opening(&mut self, index: usize) -> Option<Result<Vec<u8>, Vec<Op>>> {
        let prng = &mut self.prng;
        if !self.trusts || !is_trusted(index) {
            // A header from any other client is a malformed request.
            let strange = !self.is_calm && !self.secured && prng.below(30) == 0;
            return strange.then(|| Err(vec![Op::Garbage(proxy_header::make(prng, index).0)]));
        }
        if !self.is_calm && prng.below(5) == 0 {
            return Some(Err(proxy_header::make_invalid(prng)));
        }
        let (header, named) = proxy_header::make(prng, index);
        match named {
            NamedClient::Connection => {}
            NamedClient::Addresses(from, to) => {
                self.identity = ClientIdentity { ip: Some(from.ip()), header: Some((from, to)) };
            }
            NamedClient::WithoutAddress => {
                self.identity = ClientIdentity { ip: None, header: None }
            }
        }
        Some(Ok(header))
    }

    /// Puts the header before the script: joined with its first bytes, or sent separately some time before.
    fn put_before(&mut self, ops: &mut Vec<Op>, mut header: Vec<u8>) {
        if let (Some(Op::Send { bytes, .. }), 0) = (ops.first_mut(), self.prng.below(2))
            && !self.secured
        {
            header.append(bytes);
            *bytes = header;
            return;
        }
        let pause = Span::from_millis(self.prng.below(800));
        ops.splice(0..0, [Op::Bare(header), Op::Pause(pause)]);
    }

    fn make_script(&mut self) -> (Vec<Op>, Habits) {
        let piece_bytes = match self.prng.below(4) {
            0 => 1 + self.prng.below(3) as usize,
            1 => 1 + self.prng.below(200) as usize,
            _ => usize::MAX,
        };
        let reads = (self.prng.below(4) == 0).then(|| {
            let most = if self.is_calm { 20 } else { 200 };
            let pause = Span::from_millis(1 + self.prng.below(most));
            (300 + self.prng.below(6000) as usize, pause)
        });
        let habits = Habits {
            start_at: Moment::from_nanos(1_000_000_000 + self.prng.below(3_000_000_000)),
            piece_bytes,
            skips_close_notify: !self.is_calm && self.prng.below(4) == 0,
            reads,
        };
        let mut ops = Vec::new();
        let pipelines = self.prng.below(3) == 0;
        let tiny = piece_bytes < 10;
        for _ in 0..1 + self.prng.below(8) {
            if self.add_request(&mut ops, tiny) {
                return (ops, habits);
            }
            if !self.is_calm && self.prng.below(25) == 0 {
                ops.push(Op::Garbage(self.make_garbage()));
                return (ops, habits);
            }
            if !pipelines || self.prng.below(4) == 0 {
                ops.push(Op::AwaitAnswers);
            }
            if self.prng.below(5) == 0 {
                ops.push(Op::Pause(Span::from_millis(self.prng.below(1500))));
            }
        }
        self.add_end(&mut ops);
        (ops, habits)
    }

    fn add_end(&mut self, ops: &mut Vec<Op>) {
        match self.prng.below(6) {
            0 => ops.push(Op::Finish),
            1 => ops.extend([Op::AwaitAnswers, Op::Leave]),
            2 if !self.is_calm => {
                // At any point of the script.
                let at = self.prng.below(ops.len() as u64 + 1) as usize;
                ops.truncate(at);
                self.cut_last_send(ops);
                ops.push(Op::Pause(Span::from_millis(self.prng.below(300))));
                ops.push(match self.prng.below(4) {
                    0 => Op::Reset,
                    1 => Op::Finish,
                    _ => Op::Leave,
                });
            }
            _ => {}
        }
    }

    fn cut_last_send(&mut self, ops: &mut [Op]) {
        if let Some(Op::Send { bytes, .. }) = ops.last_mut() {
            let at = 1 + self.prng.below(bytes.len() as u64) as usize;
            bytes.truncate(at);
        }
    }

    /// Adds one request; returns true if nothing may follow it.
    fn add_request(&mut self, ops: &mut Vec<Op>, tiny: bool) -> bool {
        match self.prng.below(10) {
            0 => self.add_local(ops, "/hello", Expected::Fixed(200, "hello".to_owned()), tiny),
            1 => {
                let moved = Expected::Fixed(302, "302 Found: see Location\n".to_owned());
                self.add_local(ops, "/moved", moved, tiny);
            }
            2 => {
                let size = below_skewed(&mut self.prng, 200_000, 10);
                let chunks = if self.prng.below(2) == 0 { "" } else { "&k=700" };
                let delay = self.prng.below(200);
                let path = format!("/synthetic?s={size}{chunks}&t={delay}");
                self.add_local(ops, &path, Expected::Bytes(size), tiny);
            }
            3 => self.add_local(ops, "/nowhere", Expected::Fixed(404, NO_ROUTE.to_owned()), tiny),
            4 if self.prng.below(3) == 0 => {
                self.add_tunnel(ops, tiny);
                return true;
            }
            _ => return self.add_proxied(ops, tiny),
        }
        false
    }

    /// Adds a request for a local response. Some have a body, which the worker reads and drops.
    fn add_local(&mut self, ops: &mut Vec<Op>, path: &str, expected: Expected, tiny: bool) {
        let methods = ["GET", "GET", "GET", "HEAD", "POST"];
        let method = methods[self.prng.below(methods.len() as u64) as usize];
        let most = if self.is_calm { 8_000 } else { 150_000 };
        let most = if tiny { 300 } else { most };
        let count = if method == "POST" { below_skewed(&mut self.prng, most, 6) } else { 0 };
        let chunked = self.prng.below(2) == 0;
        let id = self.note(method, path, count, false, expected);
        let framing = match method {
            "POST" if chunked => "Transfer-Encoding: chunked\r\n".to_owned(),
            "POST" => format!("Content-Length: {count}\r\n"),
            _ => String::new(),
        };
        let head = format!("{method} {path} HTTP/1.1\r\nhost: a\r\nx-id: {id}\r\n{framing}\r\n");
        let mut bytes = head.into_bytes();
        if method == "POST" {
            bytes.extend(self.frame(id, count, chunked));
        }
        ops.push(Op::Send { id: Some(id), bytes });
    }

    fn add_tunnel(&mut self, ops: &mut Vec<Op>, tiny: bool) {
        let path = format!("/p{}/up", self.prng.below(self.pools as u64));
        let id = self.note("GET", &path, 0, false, Expected::Tunnel);
        let protocol = if self.has_websockets { http2::WEBSOCKET } else { "echo" };
        let text = format!(
            "GET {path} HTTP/1.1\r\nhost: example\r\nx-id: {id}\r\nconnection: upgrade\r\n\
             upgrade: {protocol}\r\n\r\n"
        );
        ops.push(Op::Send { id: Some(id), bytes: text.into_bytes() });
        let mut at = 0;
        let early = self.is_calm && self.prng.below(2) == 0;
        for _ in 0..self.prng.below(6) {
            let count = self.prng.below(if tiny { 50 } else { 40_000 }) as usize;
            ops.push(Op::Tunnel { bytes: body::make(id, at, count), early });
            at += count as u64;
            if self.prng.below(3) == 0 {
                ops.push(Op::Pause(Span::from_millis(self.prng.below(300))));
            }
        }
        if self.is_calm || self.prng.below(2) == 0 {
            ops.push(Op::AwaitAnswers);
            ops.push(Op::Finish);
        }
    }

    /// Adds a request for an origin; returns true if nothing may follow it.
    fn add_proxied(&mut self, ops: &mut Vec<Op>, tiny: bool) -> bool {
        let prng = &mut self.prng;
        let old = prng.below(8) == 0;
        let method =
            ["GET", "GET", "GET", "HEAD", "POST", "POST", "PUT", "DELETE", "PATCH", "OPTIONS"]
                [prng.below(10) as usize];
        let has_body = matches!(method, "POST" | "PUT" | "PATCH") || prng.below(20) == 0;
        let most = if tiny { 300 } else { 200_000 };
        let count = if has_body { below_skewed(prng, most, 8) } else { 0 };
        let chunked = has_body && !old && prng.below(2) == 0;
        let expect = has_body && !old && prng.below(4) == 0;
        let close = prng.below(10) == 0;
        let keep_old = old && prng.below(2) == 0;
        let path = format!("/p{}/{}", prng.below(self.pools as u64), prng.below(50));
        let id = self.note(method, &path, count, old, Expected::Origin);
        let version = if old { "1.0" } else { "1.1" };
        let mut head = format!("{method} {path} HTTP/{version}\r\nHost: example\r\nx-id: {id}\r\n");
        if chunked {
            head.push_str("Transfer-Encoding: chunked\r\n");
        } else if has_body {
            let _ = write!(head, "Content-Length: {count}\r\n");
        }
        if expect {
            head.push_str("Expect: 100-continue\r\n");
        }
        if close {
            head.push_str("Connection: close\r\n");
        } else if keep_old {
            head.push_str("Connection: keep-alive\r\n");
        }
        head.push_str("\r\n");
        let mut bytes = head.into_bytes();
        if expect {
            ops.push(Op::Send { id: Some(id), bytes });
            ops.push(Op::AwaitContinue);
            ops.push(Op::Send { id: None, bytes: self.frame(id, count, chunked) });
        } else {
            bytes.extend(self.frame(id, count, chunked));
            ops.push(Op::Send { id: Some(id), bytes });
        }
        close || (old && !keep_old)
    }

    fn frame(&mut self, id: u64, count: u64, chunked: bool) -> Vec<u8> {
        if !chunked {
            return body::make(id, 0, count as usize);
        }
        let mut bytes = Vec::new();
        let mut at = 0;
        while at < count {
            let size = (1 + below_skewed(&mut self.prng, 1 << 15, 15)).min(count - at);
            let extension = if self.prng.below(8) == 0 { ";a=b" } else { "" };
            bytes.extend(format!("{size:X}{extension}\r\n").into_bytes());
            bytes.extend(body::make(id, at, size as usize));
            bytes.extend(b"\r\n");
            at += size;
        }
        let trailer =
            if self.prng.below(4) == 0 { format!("X-Trailer: {id}\r\n") } else { String::new() };
        bytes.extend(format!("0\r\n{trailer}\r\n").into_bytes());
        bytes
    }

    fn note(
        &mut self,
        method: &'static str,
        path: &str,
        body_bytes: u64,
        old_version: bool,
        expected: Expected,
    ) -> u64 {
        let id = 1 + self.requests.len() as u64;
        self.requests.push(Request {
            id,
            identity: self.identity.clone(),
            method,
            path: path.to_owned(),
            body_bytes,
            idempotent: !matches!(method, "POST" | "PATCH"),
            old_version,
            expected,
            begun: false,
            answered: false,
            status: None,
            seen: Vec::new(),
        });
        id
    }

    fn make_garbage(&mut self) -> Vec<u8> {
        let kinds: [&[u8]; 8] = [
            b"\0\0\0\0\r\n\r\n",
            b"GET /p0/evil\r\n\r\n",
            b"GET  /p0/evil HTTP/1.1\r\nhost: a\r\n\r\n",
            b"GET /p0/evil HTTP/1.1\r\nhost: a\r\nhost: b\r\n\r\n",
            b"POST /p0/evil HTTP/1.1\r\nhost: a\r\ncontent-length: 5\r\ntransfer-encoding: chunked\
              \r\n\r\n0\r\n\r\nGET /p0/evil HTTP/1.1\r\nhost: a\r\n\r\n",
            b"GET /p0/evil HTTP/1.1\r\nhost : a\r\n\r\n",
            b"GET /p0/evil HTTP/2.0\r\nhost: a\r\n\r\n",
            b"POST /p0/evil HTTP/1.1\r\nhost: a\r\ncontent-length: 1, 2\r\n\r\n",
        ];
        kinds[self.prng.below(kinds.len() as u64) as usize].to_vec()
    }
}

fn calm_behaviour(prng: &mut Prng) -> Behaviour {
    Behaviour {
        interim: pick(prng, 400_000),
        delayed: pick(prng, 500_000),
        close_after: 0,
        dribble: pick(prng, 800_000),
        answer_bytes_max: 1 + prng.below(300_000),
        ..Behaviour::default()
    }
}

/// Each misbehaviour is off in two of three origins, and from rare to common in the others.
fn swarm_behaviour(prng: &mut Prng) -> Behaviour {
    Behaviour {
        drop_at_accept: pick(prng, 300_000),
        early_answer: pick(prng, 900_000),
        interim: pick(prng, 600_000),
        delayed: pick(prng, 900_000),
        abandon: pick(prng, 600_000),
        cut: pick(prng, 600_000),
        malformed: pick(prng, 500_000),
        silent: pick(prng, 300_000),
        not_reading: pick(prng, 300_000),
        close_after: pick(prng, 900_000),
        trailing_garbage: pick(prng, 500_000),
        dribble: pick(prng, 900_000),
        answer_bytes_max: 1 + prng.below(300_000),
        expects_header: false,
        trailers: false,
        secured: false,
        skip_close_notify: 0,
        unsolicited: 0,
        http2: None,
        idle_close: (prng.below(3) == 0).then(|| Span::from_millis(prng.below(3000))),
        injected_fault: None,
    }
}

/// A chance in parts per million: 0 in two of three cases, otherwise up to `top`.
fn pick(prng: &mut Prng, top: u64) -> u32 {
    if prng.below(3) > 0 {
        return 0;
    }
    (1 + below_skewed(prng, top, 5)) as u32
}

pub const NO_ROUTE: &str = "404 Not Found: no route matches this request\n";

const ROUTES: &str = r#"
[[route]]
path = "/hello"
respond = { body = "hello" }
[[route]]
path = "/moved"
redirect = { to = "http://elsewhere{path}" }
[[route]]
path = "/synthetic"
synthetic = true
"#;
