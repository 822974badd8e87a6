//! Templates of servers and names that are absent at start, with dnsmasq as DNS server.
//! In: records that change. Out: which servers get requests; what the admin interface shows.

use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;
use tidegate_testing::{Signal, command};

use crate::admin::Operated;
use crate::process::{Folder, Process, free_address, program, run, text};
use crate::requests::curl;
use crate::upgrade::Serving;

/// How long a change may take. Only a failed test waits for so long.
const WAIT_MAX: Duration = Duration::from_secs(60);

/// A DNS server with the addresses of a file and the SRV records of its command line.
struct Names {
    folder: Folder,
    process: Process,
    address: SocketAddr,
}

impl Names {
    /// Starts the server for the names below "test". A line of `hosts`: an address and a name. `services`: arguments of `--srv-host`.
    fn start(hosts: &str, services: &[String]) -> Self {
        Self::start_at(free_address(), hosts, services)
    }

    fn start_at(address: SocketAddr, hosts: &str, services: &[String]) -> Self {
        let folder = Folder::new("dnsmasq");
        let file = folder.file("hosts", hosts);
        let mut starting = command(program("dnsmasq", "dnsmasq-base"));
        starting.args([
            "--keep-in-foreground",
            "--conf-file=/dev/null",
            "--no-resolv",
            "--no-hosts",
        ]);
        starting.args(["--bind-interfaces", "--user=root", "--pid-file=", "--local=/test/"]);
        starting.args(["--edns-packet-max=1232", "--local-ttl=0"]);
        starting.arg(format!("--port={}", address.port()));
        starting.arg(format!("--listen-address={}", address.ip()));
        starting.arg(format!("--addn-hosts={file}"));
        starting.args(services.iter().map(|service| format!("--srv-host={service}")));
        let mut process = Process::spawn(&mut starting);
        process.wait_for_listener(address);
        Self { folder, process, address }
    }

    /// Other addresses from now on.
    fn change(&self, hosts: &str) {
        self.folder.file("hosts", hosts);
        self.process.signal(Signal::HUP);
    }

    /// The section of the configuration.
    fn resolver(&self, more: &str) -> String {
        format!(
            "[server]\nworkers = 2\n[resolver]\nname-servers = [{:?}]\nfamilies = \"ipv4\"\nttl-min = \"100ms\"\n{more}\n",
            self.address.to_string()
        )
    }
}

/// Answers requests with `name` until the test program ends, many on each connection.
fn serve_requests(listener: TcpListener, name: String) {
    thread::spawn(move || {
        for stream in listener.incoming() {
            let (stream, name) = (stream.expect("a connection"), name.clone());
            thread::spawn(move || {
                let mut lines = BufReader::new(&stream).lines();
                while let Some(Ok(line)) = lines.next() {
                    let length = name.len();
                    let reply =
                        format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n{name}");
                    if line.is_empty() && (&stream).write_all(reply.as_bytes()).is_err() {
                        break;
                    }
                }
            });
        }
    });
}

/// Servers with the same port at 127.0.0.1 to 127.0.0.`count`, which answer with their addresses. Returns the port.
fn servers_at(count: u8) -> u16 {
    let try_all = |_| {
        let one = TcpListener::bind(("127.0.0.1", 0)).ok()?;
        let port = one.local_addr().ok()?.port();
        let others =
            (2..=count).map(|last| TcpListener::bind((Ipv4Addr::new(127, 0, 0, last), port)));
        let others: Result<Vec<_>, _> = others.collect();
        Some((port, core::iter::once(one).chain(others.ok()?).collect::<Vec<_>>()))
    };
    let (port, all) = (0..100).find_map(try_all).expect("a port that is free at all addresses");
    for listener in all {
        let name = listener.local_addr().expect("it is bound").ip().to_string();
        serve_requests(listener, name);
    }
    port
}

/// The body or the status of a response.
fn get(operated: &Operated) -> String {
    let output =
        run(curl().args(["-w", " %{http_code}"]).arg(format!("http://{}/named", operated.door)));
    let text = text(&output.stdout);
    let (body, status) = text.rsplit_once(' ').expect("a status");
    if status == "200" { body.to_owned() } else { status.to_owned() }
}

/// The bodies of many responses.
fn bodies(operated: &Operated) -> BTreeSet<String> {
    (0..24).map(|_| get(operated)).collect()
}

fn set(all: &[&str]) -> BTreeSet<String> {
    all.iter().map(|one| (*one).to_owned()).collect()
}

fn wait_until(what: &str, mut is_true: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_true() {
        assert!(began.elapsed() < WAIT_MAX, "{what}");
        thread::sleep(Duration::from_millis(20));
    }
}

/// By slot of the pool "named": its address and its state for HAProxy's tools (32: without an address).
fn slots(operated: &Operated) -> Vec<(String, String)> {
    let shown = operated.ctl_well(&["show", "servers", "state", "named"]);
    let lines = shown.lines().filter(|line| line.split(' ').nth(1) == Some("named"));
    let slot = |line: &str| {
        let words: Vec<&str> = line.split(' ').collect();
        (words[4].to_owned(), words[6].to_owned())
    };
    lines.map(slot).collect()
}

fn held(slots: &[(&str, &str)]) -> Vec<(String, String)> {
    slots.iter().map(|(address, state)| ((*address).to_owned(), (*state).to_owned())).collect()
}

fn pool(servers: &str) -> String {
    format!(
        "[[route]]\npath = \"/named\"\nproxy = \"named\"\n[pool.named]\nbalance = \"round-robin\"\nservers = [{servers}]\n"
    )
}

#[test]
fn each_address_of_a_name_is_a_server() {
    let port = servers_at(3);
    let names = Names::start("127.0.0.1 app.test\n127.0.0.3 app.test\n", &[]);
    let settings = names.resolver("")
        + &pool(&format!("{{ address = \"app.test:{port}\", slots = 3, prefix = \"web\" }}"));
    let operated = Operated::start("templates", &settings);
    assert_eq!(bodies(&operated), set(&["127.0.0.1", "127.0.0.3"]));
    let both = held(&[("127.0.0.1", "0"), ("127.0.0.3", "0"), ("-", "32")]);
    assert_eq!(slots(&operated), both);
    // A third address takes the free slot, although it is in the middle of the answer.
    names.change("127.0.0.1 app.test\n127.0.0.2 app.test\n127.0.0.3 app.test\n");
    wait_until("the third server is used", || bodies(&operated).len() == 3);
    let three = held(&[("127.0.0.1", "0"), ("127.0.0.3", "0"), ("127.0.0.2", "0")]);
    assert_eq!(slots(&operated), three);
    // Commands select a slot by its name; a reload keeps states and slots.
    operated.ctl_well(&["set", "server", "named/web3", "state", "maint"]);
    wait_until("the server is out of service", || !bodies(&operated).contains("127.0.0.2"));
    operated.ctl_well(&["reload"]);
    assert!(!bodies(&operated).contains("127.0.0.2"));
    assert_eq!(slots(&operated)[2], ("127.0.0.2".to_owned(), "1".to_owned()));
    operated.ctl_well(&["set", "server", "named/web3", "state", "ready"]);
    let refused = operated.ctl(&["set", "server", "named/web3", "address", "10.0.0.1:80"]);
    assert!(text(&refused.stderr).contains("is a slot"), "{}", text(&refused.stderr));
    // An address that is gone leaves its slot, and no request fails.
    names.change("127.0.0.2 app.test\n127.0.0.3 app.test\n");
    wait_until("the first server is gone", || {
        let seen = bodies(&operated);
        assert!(seen.iter().all(|body| body.starts_with("127.")), "{seen:?}");
        seen == set(&["127.0.0.2", "127.0.0.3"])
    });
    let left = held(&[("-", "32"), ("127.0.0.3", "0"), ("127.0.0.2", "0")]);
    wait_until("the slot is free", || slots(&operated) == left);
    let stat = operated.ctl_well(&["show", "stat"]);
    let row = stat.lines().find(|line| line.starts_with("named,web1,")).expect("a row");
    assert!(row.contains("MAINT (resolution)"), "{row}");
    let metrics = operated.page("/metrics");
    assert!(
        metrics.contains("server=\"web2\"")
            && !metrics.contains("server_up{pool=\"named\",server=\"web1\"}")
    );
}

#[test]
fn upgrade_keeps_the_slot_of_each_address() {
    let port = servers_at(3);
    // Nothing listens on the last address.
    let names = Names::start("127.0.0.3 app.test\n127.0.0.9 app.test\n", &[]);
    let settings = names.resolver("")
        + &pool(&format!("{{ address = \"app.test:{port}\", slots = 3, prefix = \"web\" }}"))
        + "health = { tcp = true, every = \"100ms\", fast-every = \"100ms\", rise = 1000, fall = 1 }\n";
    let operated = Operated::start("templates-upgrade", &settings);
    names.change("127.0.0.1 app.test\n127.0.0.3 app.test\n127.0.0.9 app.test\n");
    wait_until("the new address has a slot", || slots(&operated)[2].0 == "127.0.0.1");
    names.change("127.0.0.1 app.test\n127.0.0.9 app.test\n");
    wait_until("the slot is free", || slots(&operated)[0].0 == "-");
    let stat = |server: &str| {
        let table = operated.ctl_well(&["show", "stat"]);
        let mut rows = table.lines().map(|line| line.split(',').collect::<Vec<_>>());
        let head = rows.next().expect("a head");
        let row = rows.find(|row| row.get(..2) == Some(&["named", server][..])).expect("a row");
        let of = |name: &str| row[head.iter().position(|of| *of == name).expect("a column")];
        (of("hrsp_2xx").to_owned(), of("status").to_owned(), of("addr").to_owned())
    };
    wait_until("the dead server is down", || stat("web2").1.starts_with("DOWN"));
    let before = bodies(&operated);
    assert_eq!(before, set(&["127.0.0.1"]));
    let kept = slots(&operated);
    let has_count = || stat("web3").0 == "24";
    wait_until("the requests count", has_count);
    let mut serving = Serving::at(operated.admin.to_string());
    for _ in 0..2 {
        serving.upgrade();
        assert_eq!(slots(&operated), kept);
        assert!(stat("web2").1.starts_with("DOWN"), "checks must pass 1000 times");
        assert_eq!(stat("web3").2, format!("127.0.0.1:{port}"));
        wait_until("the counts are those of the address", has_count);
    }
    // A slot of the new process is reused as before.
    names.change("127.0.0.1 app.test\n127.0.0.2 app.test\n127.0.0.9 app.test\n");
    wait_until("the free slot is used", || slots(&operated)[0].0 == "127.0.0.2");
}

#[test]
fn long_answers_are_fetched_over_tcp_and_surplus_addresses_are_reported() {
    let port = servers_at(1);
    let many: String = (1..=120).map(|last| format!("127.0.1.{last} app.test\n")).collect();
    let names = Names::start(&many, &[]);
    let settings =
        names.resolver("") + &pool(&format!("{{ address = \"app.test:{port}\", slots = 100 }}"));
    let operated = Operated::start("templates-many", &settings);
    wait_until("the name is resolved again", || {
        let shown = operated.ctl_well(&["show", "resolvers", "json"]);
        let rows: Value = serde_json::from_str(&shown).expect("JSON");
        rows[0]["addresses"].as_array().is_some_and(|all| all.len() == 120)
    });
    assert!(slots(&operated).iter().all(|(address, _)| address.starts_with("127.0.1.")));
    wait_until("the rest is reported", || {
        operated.ctl_well(&["show", "events"]).contains("`slots` is too small: 20")
    });
    let mut distinct: Vec<String> =
        slots(&operated).into_iter().map(|(address, _)| address).collect();
    distinct.sort_unstable();
    distinct.dedup();
    assert_eq!(distinct.len(), 100);
}

#[test]
fn srv_records_state_ports_weights_and_backups() {
    let ports: Vec<u16> = (0..3)
        .map(|number| {
            let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
            let port = listener.local_addr().expect("it is bound").port();
            serve_requests(listener, format!("server {number}"));
            port
        })
        .collect();
    let service = |number: usize, priority: u16, weight: u16| {
        format!("_http._tcp.app.test,host.test,{},{priority},{weight}", ports[number])
    };
    let first = [service(0, 10, 3), service(1, 10, 1), service(2, 20, 5)];
    let names = Names::start("127.0.0.1 host.test\n", &first);
    let settings = names.resolver("hold = { nx = \"60s\" }")
        + &pool("{ srv = \"_http._tcp.app.test\", slots = 4 }");
    let operated = Operated::start("templates-srv", &settings);
    let count = |all: &[String], name: &str| all.iter().filter(|one| *one == name).count();
    let seen: Vec<String> = (0..40).map(|_| get(&operated)).collect();
    assert_eq!(count(&seen, "server 2"), 0, "it is a backup: {seen:?}");
    let (three, one) = (count(&seen, "server 0"), count(&seen, "server 1"));
    assert!(three > 2 * one && one > 0, "{three} and {one}");
    // Only the backup is left, then nothing.
    let at = names.address;
    drop(names);
    let names = Names::start_at(at, "127.0.0.1 host.test\n", &[service(2, 20, 5)]);
    wait_until("the backup is used", || bodies(&operated) == set(&["server 2"]));
    let stat = operated.ctl_well(&["show", "stat"]);
    let up = stat.lines().filter(|line| line.starts_with("named,_http._tcp.app.test#")).count();
    assert_eq!(up, 4, "{stat}");
    drop(names);
    // While no DNS server answers, the servers stay.
    assert_eq!(bodies(&operated), set(&["server 2"]));
}

#[test]
fn process_starts_without_an_optional_name() {
    let port = servers_at(1);
    let names = Names::start("127.0.0.1 other.test\n", &[]);
    let servers = format!(
        "{{ address = \"late.test:{port}\", at-start = \"optional\" }}, \
         {{ address = \"app.test:{port}\", slots = 2, at-start = \"optional\" }}"
    );
    let operated = Operated::start("templates-late", &(names.resolver("") + &pool(&servers)));
    assert_eq!(get(&operated), "503");
    assert_eq!(slots(&operated).iter().filter(|(_, state)| state == "32").count(), 3);
    names.change("127.0.0.1 app.test\n");
    wait_until("the slot has an address", || get(&operated) == "127.0.0.1");
    assert_eq!(slots(&operated)[1], ("127.0.0.1".to_owned(), "0".to_owned()));
    names.change("127.0.0.1 app.test\n127.0.0.1 late.test\n");
    wait_until("the server is up", || slots(&operated)[0].1 == "0");
    // Without the setting, the process does not start.
    let folder = Folder::new("templates-required");
    let config = names.resolver("")
        + &pool("{ address = \"absent.test:80\", slots = 2 }")
        + "[[listener]]\nbind = \"127.0.0.1:0\"\n";
    let file = folder.file("tidegate.toml", config);
    let output = run(command(env!("CARGO_BIN_EXE_tidegate")).args(["run", &file]));
    let errors = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{errors}");
    assert!(errors.contains("absent.test:80") && errors.contains("does not exist"), "{errors}");
}
