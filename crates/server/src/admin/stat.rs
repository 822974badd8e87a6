//! `show stat`: listeners, pools and servers.
//! In: the counters of the registry, a filter in HAProxy's form. Out: rows with HAProxy's columns, by name and in its order, as CSV
//! or JSON. A column without a meaning here is empty.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Instant;

use tidegate_config::model::{Balance, Bind, Config, Forward};
use tidegate_gate::access::Names;

use super::command::{Outcome, Reply};
use super::rates::Rate;
use super::rows::listed;
use super::{Operations, info};
use crate::health::{Agent, Checked, ServerState, View};
use crate::stats::{Subject, Totals};

/// HAProxy's columns.
const COLUMNS: &str = "pxname,svname,qcur,qmax,scur,smax,slim,stot,bin,bout,dreq,dresp,ereq,econ,eresp,wretr,wredis,\
    status,weight,act,bck,chkfail,chkdown,lastchg,downtime,qlimit,pid,iid,sid,throttle,lbtot,tracked,type,rate,rate_lim,\
    rate_max,check_status,check_code,check_duration,hrsp_1xx,hrsp_2xx,hrsp_3xx,hrsp_4xx,hrsp_5xx,hrsp_other,hanafail,\
    req_rate,req_rate_max,req_tot,cli_abrt,srv_abrt,comp_in,comp_out,comp_byp,comp_rsp,lastsess,last_chk,last_agt,qtime,\
    ctime,rtime,ttime,agent_status,agent_code,agent_duration,check_desc,agent_desc,check_rise,check_fall,check_health,\
    agent_rise,agent_fall,agent_health,addr,cookie,mode,algo,conn_rate,conn_rate_max,conn_tot,intercepted,dcon,dses,wrew,\
    connect,reuse,cache_lookups,cache_hits,srv_icur,src_ilim,qtime_max,ctime_max,rtime_max,ttime_max,eint,idle_conn_cur,\
    safe_conn_cur,used_conn_cur,need_conn_est,uweight,agg_server_status,agg_server_check_status,agg_check_status";

/// The columns whose values are texts, even those that consist of digits.
const TEXT_COLUMNS: [&str; 11] = [
    "pxname",
    "svname",
    "status",
    "check_status",
    "agent_status",
    "check_desc",
    "agent_desc",
    "last_chk",
    "last_agt",
    "addr",
    "algo",
];

/// The values of a row, by column.
type Row = BTreeMap<&'static str, String>;

const USAGE: &str = "usage: show stat [POOL|LISTENER|NUMBER TYPES NUMBER] [json], with a sum of TYPES: 1 listeners, 2 pools, 4 servers; \
    -1 is all; such as: show stat -1 4 -1, all servers";

/// How many names an error lists.
const NAMED_MAX: usize = 20;

/// The rows that a client requests.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
struct Filter<'a> {
    /// The listener or pool, by its name or by the column `iid`; `None`: all.
    proxy: Option<&'a str>,
    /// A bit for each value of the column `type`; `None`: all.
    types: Option<u64>,
    /// The server, by the column `sid`; `None`: all.
    server: Option<&'a str>,
}

impl<'a> Filter<'a> {
    /// Reads the words of HAProxy's command. `None`: they are not understood.
    fn parse(words: &[&'a str]) -> Option<Self> {
        let all_or = |word: &'a str| Some(word).filter(|word| *word != "-1");
        let (proxy, types, server) = match *words {
            [] => return Some(Self::default()),
            [proxy] => (proxy, "-1", "-1"),
            [proxy, types, server] => (proxy, types, server),
            _ => return None,
        };
        let types = all_or(types).map(str::parse::<u64>).transpose().ok()?;
        let server = all_or(server);
        server.map(str::parse::<u64>).transpose().ok()?;
        Some(Self { proxy: all_or(proxy), types, server })
    }

    /// Whether the filter names the listener or pool of a row.
    fn names(&self, row: &Row) -> bool {
        let is = |column: &str, word: &str| row.get(column).is_some_and(|value| value == word);
        self.proxy.is_none_or(|proxy| is("pxname", proxy) || is("iid", proxy))
    }

    /// Whether a row is requested.
    fn takes(&self, row: &Row) -> bool {
        let is = |column: &str, word: &str| row.get(column).is_some_and(|value| value == word);
        let has_type = |types: u64| {
            let kind = row.get("type").and_then(|kind| kind.parse::<u32>().ok());
            kind.and_then(|kind| types.checked_shr(kind)).is_some_and(|rest| rest & 1 == 1)
        };
        self.names(row)
            && self.types.is_none_or(has_type)
            && self.server.is_none_or(|server| !is("type", "2") || is("sid", server))
    }
}

/// The command `show stat`.
pub(super) fn show(arguments: &[&str], operations: &Operations) -> Outcome {
    let (words, is_json) = match arguments {
        [words @ .., "json"] => (words, true),
        words => (words, false),
    };
    let filter = Filter::parse(words)
        .ok_or_else(|| format!("`show stat` does not accept {:?}; {USAGE}", arguments.join(" ")))?;
    let mut rows = rows(operations);
    if let Some(proxy) = filter.proxy
        && !rows.iter().any(|row| filter.names(row))
    {
        let names: BTreeSet<&str> = rows.iter().map(|row| row["pxname"].as_str()).collect();
        let names: Vec<&str> = names.into_iter().take(NAMED_MAX).collect();
        return Err(format!("no listener or pool {proxy:?}; there are: {}", listed(&names)));
    }
    rows.retain(|row| filter.takes(row));
    Ok(Reply::Shown(if is_json { json_of(&rows) + "\n" } else { csv_of(&rows) }))
}

/// The columns of all rows.
fn row(pool: &str, server: &str, totals: &Totals) -> Row {
    let get = |name: &str| totals.get(name).to_string();
    BTreeMap::from([
        ("pxname", pool.to_owned()),
        ("svname", server.to_owned()),
        ("qcur", get("queued_now")),
        ("qmax", get("queued_max")),
        ("scur", get("under_way_now")),
        ("smax", get("under_way_max")),
        ("stot", get("begun")),
        ("bin", get("bytes_in")),
        ("bout", get("bytes_out")),
        ("pid", "1".to_owned()),
        ("hrsp_1xx", get("status_1xx")),
        ("hrsp_2xx", get("status_2xx")),
        ("hrsp_3xx", get("status_3xx")),
        ("hrsp_4xx", get("status_4xx")),
        ("hrsp_5xx", get("status_5xx")),
        ("hrsp_other", get("status_none")),
        ("req_tot", get("begun")),
        ("cli_abrt", get("client_failures")),
        ("mode", "http".to_owned()),
    ])
}

/// Further columns of servers and pools.
fn add_server(row: &mut Row, totals: &Totals) {
    let get = |name: &str| totals.get(name).to_string();
    let connects = totals.get("begun").saturating_sub(totals.get("reuses"));
    let times = [
        ("qtime", "queue_us"),
        ("ctime", "connect_us"),
        ("rtime", "response_us"),
        ("ttime", "total_us"),
    ];
    row.extend(times.map(|(column, name)| (column, totals.mean_ms(name).to_string())));
    row.extend([
        ("econ", get("connect_failures")),
        ("eresp", get("server_failures")),
        ("srv_abrt", get("server_failures")),
        ("wretr", get("retries")),
        ("lbtot", get("begun")),
        ("connect", connects.to_string()),
        ("reuse", get("reuses")),
    ]);
}

/// The state of a server with this weight in HAProxy's words.
fn status(view: &View, weight: u16) -> String {
    let is_down_by_agent = view.agent.as_ref().is_some_and(|agent| !agent.state.works());
    match (view.state_now(), &view.checked) {
        (ServerState::Maintenance, _) => "MAINT".to_owned(),
        _ if view.is_unresolved => "MAINT (resolution)".to_owned(),
        (_, Some(checked)) if !checked.health.is_up() => checked.health.word(),
        _ if is_down_by_agent => "DOWN (agent)".to_owned(),
        (ServerState::Drain, _) => "DRAIN".to_owned(),
        (ServerState::Ready, _) if weight == 0 => "DRAIN".to_owned(),
        (ServerState::Ready, None) => "no check".to_owned(),
        (ServerState::Ready, Some(checked)) => checked.health.word(),
    }
}

/// Further columns of checked servers.
fn add_checks(row: &mut Row, checked: &Checked) {
    let (score, rise, fall) = checked.health.numbers();
    row.extend([
        ("chkfail", checked.failures.to_string()),
        ("chkdown", checked.downs.to_string()),
        ("check_rise", rise.to_string()),
        ("check_fall", fall.to_string()),
        ("check_health", score.to_string()),
    ]);
    let Some((outcome, took)) = checked.last else {
        row.insert("check_status", "INI".to_owned());
        return;
    };
    row.extend([
        ("check_status", outcome.code().to_owned()),
        ("check_code", outcome.status().map_or(String::new(), |status| status.to_string())),
        ("check_duration", took.as_millis().to_string()),
        ("check_desc", outcome.to_string()),
    ]);
}

/// Further columns of servers with agents.
fn add_agent(row: &mut Row, agent: &Agent) {
    // One text decides, so both counts are 1.
    row.extend([
        ("agent_rise", "1".to_owned()),
        ("agent_fall", "1".to_owned()),
        ("agent_health", u8::from(agent.state.works()).to_string()),
    ]);
    let (code, text, took) = match &agent.last {
        None => ("INI", String::new(), None),
        Some((Ok(stated), took)) => (stated.code(), stated.text.clone(), Some(took)),
        Some((Err(failure), took)) => (failure.code(), failure.to_string(), Some(took)),
    };
    row.extend([
        ("agent_status", code.to_owned()),
        ("agent_duration", took.map_or(String::new(), |took| took.as_millis().to_string())),
        ("agent_desc", text.clone()),
        ("last_agt", text),
    ]);
}

fn rows(operations: &Operations) -> Vec<Row> {
    let (config, totals) = (&*operations.config(), operations.registry.totals());
    let none = Totals::default();
    let mut rows = Vec::new();
    for (at, listener) in config.listeners.iter().enumerate() {
        let totals = totals.get(&Subject::Listener(listener.name.clone())).unwrap_or(&none);
        let mut row = row(&listener.name, "FRONTEND", totals);
        // Requests wait in the queues of pools.
        row.retain(|column, _| !matches!(*column, "qcur" | "qmax"));
        let most =
            [listener.connections_max, config.server.connections_max].into_iter().flatten().min();
        let most = most.map_or(String::new(), |most| most.to_string());
        let address = match &listener.bind {
            Bind::Tcp(address) => address.to_string(),
            Bind::Unix(path) => format!("unix:{path}"),
        };
        if listener.forward.is_some() {
            row.insert("mode", "tcp".to_owned());
        }
        row.extend([
            ("slim", most),
            ("ereq", totals.get("refusals").to_string()),
            ("status", if listener.is_off { "STOP" } else { "OPEN" }.to_owned()),
            ("iid", (at + 1).to_string()),
            ("sid", "0".to_owned()),
            ("type", "0".to_owned()),
            ("addr", address),
        ]);
        rows.push(row);
    }
    let names = Names::new(config);
    let without_http = pools_without_http(config);
    for pool in 0..config.pools.len() {
        let first = rows.len();
        add_pool(&mut rows, operations, (config, &names), pool, &totals);
        if without_http.contains(&pool) {
            rows[first..].iter_mut().for_each(|row| _ = row.insert("mode", "tcp".to_owned()));
        }
    }
    add_rates(&mut rows, operations);
    rows
}

/// The indexes of the pools that only listeners with `forward` use.
fn pools_without_http(config: &Config) -> BTreeSet<usize> {
    let forwards = config.listeners.iter().filter_map(|listener| listener.forward.as_ref());
    let mut pools: BTreeSet<usize> = forwards.flat_map(Forward::pools).collect();
    if pools.is_empty() {
        return pools;
    }
    let of_routes = config.routes.iter().flat_map(|route| route.pools().chain(route.also_used()));
    of_routes.for_each(|pool| _ = pools.remove(&pool));
    let is_named = |name: &String| {
        let mut backends = config.push.iter().filter_map(|hub| hub.backend.as_ref());
        config.lua.iter().any(|app| app.pools.contains(name))
            || backends.any(|backend| backend.uses_pool(name))
    };
    pools.retain(|pool| config.pools.get(*pool).is_some_and(|pool| !is_named(&pool.name)));
    pools
}

/// The columns with the requests of a second.
fn add_rates(rows: &mut [Row], operations: &Operations) {
    let name = |row: &Row| format!("{} {}", row["pxname"], row["svname"]);
    let counts = rows.iter().map(|row| (name(row), row["stot"].parse().unwrap_or(0))).collect();
    let rates: HashMap<String, Rate> = operations.rates.of(counts, Instant::now());
    for row in rows {
        let Rate { last, max } = rates.get(&name(row)).copied().unwrap_or_default();
        row.extend([("rate", last.to_string()), ("rate_max", max.to_string())]);
        if row["type"] == "0" {
            row.extend([("req_rate", last.to_string()), ("req_rate_max", max.to_string())]);
        }
    }
}

/// The rows of a pool: its servers, then itself.
fn add_pool(
    rows: &mut Vec<Row>,
    operations: &Operations,
    (config, names): (&Config, &Names),
    at: usize,
    totals: &BTreeMap<Subject, Totals>,
) {
    let none = Totals::default();
    let pool = &config.pools[at];
    let iid = (config.listeners.len() + at + 1).to_string();
    let (mut sum, mut weight, mut ready) = (Totals::default(), 0, [0, 0]);
    let mut since = PoolSince::default();
    for (server_at, server) in pool.servers.iter().enumerate() {
        let (_, name) = names.server(at, server_at);
        let subject = Subject::Server(pool.name.clone(), name.to_owned());
        let totals = totals.get(&subject).unwrap_or(&none);
        let Some(view) = operations.roster.view(at, server_at) else { continue };
        let own_weight = view.weight_now(server.weight);
        let is_backup = server.backup || view.is_backup();
        let takes_requests = view.takes_requests(server.weight);
        since.add(takes_requests, view.changed);
        if takes_requests {
            weight += u64::from(own_weight);
            ready[usize::from(is_backup)] += 1;
        }
        let mut row = row(&pool.name, name, totals);
        add_server(&mut row, totals);
        row.extend([
            ("slim", server.connections_max.map_or(String::new(), |most| most.to_string())),
            ("status", status(&view, own_weight)),
            ("weight", own_weight.to_string()),
            ("uweight", own_weight.to_string()),
            ("act", u8::from(!is_backup).to_string()),
            ("bck", u8::from(is_backup).to_string()),
            ("iid", iid.clone()),
            ("sid", (server_at + 1).to_string()),
            ("type", "2".to_owned()),
            ("addr", address_of(&view, name)),
            ("lastchg", view.changed.elapsed().as_secs().to_string()),
            ("downtime", view.down_for.as_secs().to_string()),
        ]);
        if let Some(checked) = &view.checked {
            add_checks(&mut row, checked);
        }
        if let Some(agent) = &view.agent {
            add_agent(&mut row, agent);
        }
        rows.push(row);
    }
    // Servers that were removed count, too, so that no sum decreases.
    let is_own = |subject: &Subject| match subject {
        Subject::Server(of, _) | Subject::Pool(of) => *of == pool.name,
        Subject::Listener(_) | Subject::Route(_) => false,
    };
    totals.iter().filter(|(subject, _)| is_own(subject)).for_each(|(_, one)| sum.merge(one));
    let mut row = row(&pool.name, "BACKEND", &sum);
    add_server(&mut row, &sum);
    // A request that is tried again begins at each of its servers, and once in the pool.
    let requests = sum.get("begun").saturating_sub(sum.get("retries")).to_string();
    row.extend(["stot", "req_tot"].map(|column| (column, requests.clone())));
    let algorithm = match pool.balance {
        Balance::Random => "random",
        Balance::RoundRobin => "roundrobin",
        Balance::LeastConnections => "leastconn",
        Balance::Hash(_) => "hash",
    };
    row.extend([
        ("status", if ready != [0, 0] { "UP" } else { "DOWN" }.to_owned()),
        ("weight", weight.to_string()),
        ("act", ready[0].to_string()),
        ("bck", ready[1].to_string()),
        ("iid", iid),
        ("sid", "0".to_owned()),
        ("type", "1".to_owned()),
        ("qlimit", pool.queue_max.to_string()),
        ("algo", algorithm.to_owned()),
        ("lastchg", since.seconds().map_or(String::new(), |seconds| seconds.to_string())),
    ]);
    rows.push(row);
}

/// The address of a server: that of a slot, or else its name. Empty if it has none.
fn address_of(view: &View, name: &str) -> String {
    match view.slot {
        None => name.to_owned(),
        Some(address) => address.map_or_else(String::new, |address| address.to_string()),
    }
}

/// Since when a pool has had servers that take requests, or none.
#[derive(Default)]
struct PoolSince {
    /// When the first of the servers that take requests began to. Others may have taken requests before it.
    up: Option<Instant>,
    /// When the last server ceased to take requests.
    down: Option<Instant>,
}

impl PoolSince {
    /// A server takes requests, or does not, since this time.
    fn add(&mut self, is_up: bool, since: Instant) {
        match is_up {
            true => self.up = Some(self.up.map_or(since, |up| up.min(since))),
            false => self.down = self.down.max(Some(since)),
        }
    }

    fn seconds(&self) -> Option<u64> {
        self.up.or(self.down).map(|since| since.elapsed().as_secs())
    }
}

/// The rows as CSV. Each line ends with a comma, as HAProxy's do.
fn csv_of(rows: &[Row]) -> String {
    let mut text = format!("# {COLUMNS},\n");
    for row in rows {
        for column in COLUMNS.split(',') {
            let value = row.get(column).map_or("", String::as_str);
            match value.contains([',', '"', '\n']) {
                true => text.push_str(&format!("\"{}\"", value.replace('"', "\"\""))),
                false => text.push_str(value),
            }
            text.push(',');
        }
        text.push('\n');
    }
    text
}

/// The rows as an array of JSON objects. Columns without a value are left out; numbers are numbers.
pub(super) fn json(operations: &Operations) -> String {
    json_of(&rows(operations))
}

fn json_of(rows: &[Row]) -> String {
    let objects = rows.iter().map(|row| {
        let members = COLUMNS.split(',').filter_map(|column| {
            let value = row.get(column).filter(|value| !value.is_empty())?;
            let number = value.parse::<u64>().ok().filter(|_| !TEXT_COLUMNS.contains(&column));
            Some(match number {
                Some(number) => format!("\"{column}\":{number}"),
                None => format!("\"{column}\":{}", info::quoted(value)),
            })
        });
        format!("{{{}}}", members.collect::<Vec<_>>().join(","))
    });
    format!("[{}]", objects.collect::<Vec<_>>().join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filter_is_that_of_haproxy() {
        let row = |name: &str, iid: &str, kind: &str, sid: &str| {
            let columns = [("pxname", name), ("iid", iid), ("type", kind), ("sid", sid)];
            Row::from(columns.map(|(column, value)| (column, value.to_owned())))
        };
        let rows = [
            row("web", "1", "0", "0"),
            row("app", "2", "2", "1"),
            row("app", "2", "2", "2"),
            row("app", "2", "1", "0"),
        ];
        let shown = |line: &str| {
            let words: Vec<&str> = line.split_whitespace().collect();
            let filter = Filter::parse(&words)?;
            Some((0..rows.len()).filter(|at| filter.takes(&rows[*at])).collect::<Vec<_>>())
        };
        for (line, expected) in [
            ("", vec![0, 1, 2, 3]),
            ("-1 -1 -1", vec![0, 1, 2, 3]),
            ("-1 4 -1", vec![1, 2]),
            ("-1 3 -1", vec![0, 3]),
            ("2 -1 -1", vec![1, 2, 3]),
            ("app 4 2", vec![2]),
            // The number of a server selects servers only.
            ("-1 -1 2", vec![0, 2, 3]),
            ("web", vec![0]),
            ("nothing", vec![]),
            ("-1 0 -1", vec![]),
            ("-1 8 -1", vec![]),
        ] {
            assert_eq!(shown(line), Some(expected), "{line}");
        }
        for line in ["1 2", "1 x 1", "1 1 x", "1 1 1 1", "1 -2 1"] {
            assert_eq!(shown(line), None, "{line}");
        }
    }

    #[test]
    fn pools_that_requests_use_are_not_in_tcp_mode() {
        let pools: String = ["db", "both", "mail", "app", "lua", "rest"]
            .map(|name| format!("[pool.{name}]\nservers = [\"10.0.0.1:1\"]\n"))
            .concat();
        let text = format!(
            "[[listener]]\nbind = \"127.0.0.1:1\"\n[[listener]]\nbind = \"127.0.0.1:2\"\nforward = \"db\"\n\
             [[listener]]\nbind = \"127.0.0.1:3\"\n\
             forward = {{ sni = {{ \"a.example\" = \"both\", \"b.example\" = \"lua\" }}, default = \"mail\" }}\n\
             [[route]]\npath = \"/a\"\nproxy = \"app\"\nmirror = {{ pool = \"both\" }}\n\
             [[route]]\nlua = \"l\"\n[lua.l]\nscript = \"x.lua\"\npools = [\"lua\"]\n{pools}"
        );
        let config = match tidegate_config::parse(&text, "the test") {
            Ok(config) => config,
            Err(errors) => panic!("{errors}"),
        };
        let found = pools_without_http(&config);
        let names: Vec<&str> = found.iter().map(|at| config.pools[*at].name.as_str()).collect();
        assert_eq!(names, ["db", "mail"]);
    }

    #[test]
    fn pool_is_up_since_its_first_server_and_down_since_its_last() {
        let now = Instant::now();
        let ago = |seconds| now - std::time::Duration::from_secs(seconds);
        let since = |servers: &[(bool, u64)]| {
            let mut since = PoolSince::default();
            servers.iter().for_each(|(is_up, seconds)| since.add(*is_up, ago(*seconds)));
            since.up.or(since.down)
        };
        assert_eq!(since(&[(true, 5), (false, 1), (true, 9)]), Some(ago(9)));
        assert_eq!(since(&[(false, 5), (false, 2)]), Some(ago(2)));
        assert_eq!(since(&[]), None);
    }
}
