//! Tests that whole files produce the expected model.
//! In: text. Out: `model::Config` has the expected values.

use tidegate_base::Span;
use tidegate_config::keys::{Preset, Section, Shape, sections};
use tidegate_config::model::{
    AccessFilter, AccessFormat, AccessLog, AccessTarget, Action, Admin, AgentCheck, Balance, Bind,
    CaptureNames, CheckKind, CheckMethod, Comparison, Compression, CountTable, CountTest,
    DrainTimes, Eject, Forward, HashKey, HeaderTest, HealthCheck, HostPattern, HttpCheck, Keep,
    LuaLayer, MemoryMax, PathPattern, Placeholder, PoolChoice, RequestIds, RetryBudget,
    ServerAddress, SyslogAddress, TableTest, TextKind, TextTest, Trace, Unretriable, UpstreamHost,
    WebSocket,
};
use tidegate_config::{model::Config, parse};

fn read(file: &str) -> Config {
    match parse(file, "site.toml") {
        Ok(config) => config,
        Err(errors) => panic!("{errors}"),
    }
}

/// Writes every default of the table of settings, as a file that sets each setting to its default.
fn presets(path: &str) -> String {
    let section: &Section =
        sections().into_iter().find(|section| section.path == path).expect("a known section");
    let mut text = String::new();
    for key in section.keys {
        if let Preset::Value(value) = key.preset {
            text.push_str(&format!("{} = {value}\n", key.name));
        }
        // A table with a required setting has no default, nor has one with either of two settings.
        if let Shape::Table(inner) = key.shape
            && path != "the file"
            && path != "[[route]]"
            && inner.path != "[pool.NAME.sticky]"
            && inner.path != "[push.NAME.backend]"
            // Its presence has an effect.
            && inner.path != "[server.overload]"
            && !inner.keys.iter().any(|key| matches!(key.preset, Preset::Required))
        {
            let inner = presets(inner.path).trim().replace('\n', ", ");
            text.push_str(&format!("{} = {{ {inner} }}\n", key.name));
        }
    }
    text
}

#[test]
fn defaults_of_the_table_equal_those_of_the_model() {
    let routes = "[[route]]\npath = \"/a\"\n[route.respond]\n%R\n[[route]]\npath = \"/b\"\n\
                  [route.redirect]\nto = \"/\"\n%D\n[[route]]\nproxy = { pool = \"p\" %P }\n";
    let file = |written: bool| {
        let of = |path| {
            if written { presets(path) } else { String::new() }
        };
        let routes = routes
            .replace("%R", &of("[route.respond]"))
            .replace("%D", &of("[route.redirect]"))
            .replace("%P", if written { ", host = \"keep\"" } else { "" });
        format!(
            "[websocket]\n{}[server]\n{}[[listener]]\nbind = \"127.0.0.1:80\"\n{}{routes}[pool.p]\n\
             servers = [{{ address = \"a:80\" {} }}]\n{}[push.q]\n{}[push.q.namespace.n]\n{}",
            of("[websocket]"),
            of("[server]"),
            of("[[listener]]"),
            if written { ", weight = 1, connections-max = \"unlimited\"" } else { "" },
            of("[pool.NAME]"),
            of("[push.NAME]"),
            of("[push.NAME.namespace.NAME]"),
        )
    };
    let text = file(true);
    assert!(text.contains("tunnel = \"1h\"") && text.contains("head = \"16KiB\""), "{text}");
    assert_eq!(read(&text), read(&file(false)));
}

/// Goal: no setting is ignored. Method: each setting in turn is a date, which no setting accepts.
#[test]
fn every_setting_rejects_a_value_of_the_wrong_type() {
    for section in sections() {
        let open = match section.path {
            "the file" => "",
            "[[route]]" => "[[route]]\n",
            "[hsts]" => "[[listener]]\n[listener.hsts]\n",
            "[pool.NAME.servers]" => "[[pool.p.servers]]\n",
            "[listener.tls.certificates]" => "[[listener]]\n[[listener.tls.certificates]]\n",
            path if path.starts_with("[listener.") => &format!("[[listener]]\n{path}\n"),
            path if path.starts_with("[route.") => &format!("[[route]]\n{path}\n"),
            "[push.NAME.namespace.NAME]" => "[push.p.namespace.n]\n",
            path if path.starts_with("[push.") => &path.replace("NAME", "p"),
            path if path.starts_with("[pool.") => &path.replace("NAME", "p"),
            path => path,
        };
        for key in section.keys {
            let file = format!("{}\n{} = 1979-05-27\n", open.trim_end(), key.name);
            let line = file.lines().count();
            let errors = parse(&file, "site.toml").expect_err("a date is not a valid value");
            let found = errors
                .mistakes()
                .iter()
                .any(|mistake| mistake.line == line && mistake.what.contains("cannot be a date"));
            assert!(found, "{file}\n{errors}");
        }
    }
}

#[test]
fn every_setting_is_in_the_model() {
    let config = read(
        r#"
[server]
workers = 4
shutdown-grace = "0s"
drain = { stop = "1s", reload = "2s", upgrade = "3s" }
connections-max = 10_000
server-name = ""
via = "edge-1"
request-id = { field = "X-Trace-Id", keep = "all", response = true }
trace = { keep = "none", sampled = "2.5%" }
steer-by-cpu = "off"
[[listener]]
bind = "unix:/run/web.sock"
backlog = 128
limits = { request-line = "1KiB", head = "2KiB", header-fields = 10, body = "1MiB" }
timeouts = { head = "1s", idle = "2s", body = "250ms" }
requests-per-connection-max = 100
connections-max = 5000
connections-per-address-max = 50
count = ["abuse", "users"]
trusted = ["10.0.0.0/8", "::1"]
client-address-headers = ["X-Real-IP"]
[[route]]
host = "*.Example.com"
path = "/api/*"
method = ["GET", "POST"]
headers = { X-B = "yes", X-A = true, X-C = false }
table = { users = { requests = ">= 9" }, abuse = { "errors/60s" = "> 20", bytes-sent = "< 2MiB" } }
count = "users"
proxy = { pool = "z", host = "app.internal:8000" }
[[route]]
respond = { status = 404, headers = { b = "1", a = ["2", "3"] }, body = "gone" }
[[route]]
path = "/echo"
echo = true
websocket = { compression = "dedicated", frame-max = "2KiB", idle-timeout = "off" }
[[route]]
path = "/other"
echo = true
[websocket]
origins = ["https://*.example.com", "null"]
subprotocols = ["chat", "v1.push"]
compression = "shared"
window-bits = 11
message-max = "4KiB"
idle-timeout = "7s"
ping-every = "off"
pong-timeout = "3s"
[table.users]
key = ["header:X-User", "path"]
counts = ["requests/10s"]
expire = "1h"
entries-max = 1000
[table.abuse]
counts = ["connections", "errors/1m", "bytes-sent", "mark"]
[pool.z]
balance = { hash = "header:X-User" }
servers = ["10.0.0.1:80", { address = "app:81", weight = 3, connections-max = 20 }, "unix:/run/app.sock"]
timeouts = { connect = "1s", response-head = "2s", body = "3s", queue = "4s", tunnel = "5s" }
reuse = { idle-max = 1, idle-timeout = "6s", requests-max = 7, unretriable = "never" }
retries = 0
retry-pause = "70ms"
queue-max = 8
queue-half-closed = true
[pool.a]
balance = "round-robin"
servers = ["[::1]:80"]
"#,
    );
    assert_eq!(config.server.workers, Some(4));
    assert_eq!(config.server.shutdown_grace, Span::ZERO);
    let span = Span::from_secs;
    let drain = DrainTimes { stop: span(1), reload: span(2), upgrade: span(3) };
    assert_eq!(config.server.drain, drain);
    assert_eq!(config.server.connections_max, Some(10_000));
    assert_eq!((config.server.server_name.as_str(), config.server.via.as_str()), ("", "edge-1"));
    let field = "x-trace-id".to_owned();
    assert_eq!(
        config.server.request_id,
        Some(RequestIds { field, keep: Keep::All, response: true })
    );
    assert_eq!(
        config.server.trace,
        Some(Trace { keep: Keep::None, sampled: 25_000, is_recorded: false })
    );
    let listener = &config.listeners[0];
    assert_eq!(listener.name, "unix:/run/web.sock", "without a name, the address is the name");
    assert_eq!(listener.bind, Bind::Unix("/run/web.sock".into()));
    assert_eq!(listener.backlog, 128);
    assert_eq!(listener.limits.head_bytes_max, 2048);
    assert_eq!(listener.limits.body_bytes_max, Some(1 << 20));
    assert_eq!(listener.timeouts.body, Span::from_millis(250));
    assert_eq!(listener.requests_per_connection_max, Some(100));
    assert_eq!((listener.connections_max, listener.per_address_max), (Some(5000), Some(50)));
    assert_eq!(listener.trusted.len(), 2);
    let route = &config.routes[0];
    assert_eq!(route.hosts, [HostPattern::Below(".example.com".into())]);
    assert_eq!(route.paths, [PathPattern::Below("/api/".into())]);
    assert_eq!(route.methods, ["GET", "POST"]);
    let tests: Vec<_> = route.headers.iter().map(|c| (c.name.as_str(), c.test.clone())).collect();
    assert_eq!(
        tests[0],
        (
            "x-b",
            HeaderTest::Text(TextTest::new(TextKind::Equals, "yes", false).expect("a valid test"))
        ),
        "conditions are in file order, with lower-case names"
    );
    assert_eq!(tests[1..], [("x-a", HeaderTest::Present), ("x-c", HeaderTest::Absent)]);
    let Action::Proxy(proxy) = &route.action else { panic!("{route:?}") };
    assert_eq!(proxy.host, UpstreamHost::Replace("app.internal:8000".into()));
    assert_eq!(config.pools[0].name, "z", "pools are in file order");
    assert_eq!(proxy.pool, PoolChoice::One(0));
    let Action::Respond(respond) = &config.routes[1].action else {
        panic!("the action is not `respond`")
    };
    let fields: Vec<_> = respond.headers.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect();
    assert_eq!(fields, [("b", "1"), ("a", "2"), ("a", "3")]);
    assert_eq!((respond.status, respond.body.as_slice()), (404, b"gone".as_slice()));
    let general = &config.websocket;
    assert_eq!(general.origins, ["https://*.example.com", "null"]);
    assert_eq!(general.subprotocols, ["chat", "v1.push"]);
    assert_eq!((general.message_bytes_max, general.frame_bytes_max), (4096, None));
    assert_eq!((general.idle_timeout, general.ping_every), (Some(Span::from_secs(7)), None));
    assert_eq!(
        (general.pong_timeout, general.compression, general.window_bits),
        (Span::from_secs(3), Compression::Shared, 11)
    );
    let of_route = WebSocket {
        compression: Compression::Dedicated,
        frame_bytes_max: Some(2048),
        idle_timeout: None,
        ..general.clone()
    };
    assert_eq!(
        (&config.routes[2].action, &config.routes[2].websocket),
        (&Action::Echo, &Some(of_route))
    );
    assert_eq!(config.routes[3].websocket, None);
    let pool = &config.pools[0];
    assert_eq!(pool.balance, Balance::Hash(HashKey::Header("x-user".into())));
    assert_eq!(pool.servers[1].address, ServerAddress::Name("app".into(), 81));
    assert_eq!((pool.servers[1].weight, pool.servers[1].connections_max), (3, Some(20)));
    assert_eq!(pool.servers[2].address, ServerAddress::Unix("/run/app.sock".into()));
    assert_eq!(pool.timeouts.tunnel, Span::from_secs(5));
    assert_eq!((pool.reuse.idle_max, pool.reuse.requests_max), (1, Some(7)));
    assert_eq!(pool.retry_pause, Span::from_millis(70));
    assert_eq!(pool.reuse.unretriable, Unretriable::Never);
    assert_eq!(config.pools[1].reuse.unretriable, Unretriable::Proven);
    assert_eq!((pool.retries, pool.queue_max, pool.queue_half_closed), (0, 8, true));
    assert_eq!(config.pools[1].balance, Balance::RoundRobin);
    assert_eq!((&listener.counting, &route.counting), (&vec![1, 0], &vec![0]));
    let [users, abuse] = config.tables.as_slice() else { panic!("{:?}", config.tables) };
    let key = |table: &CountTable| table.key.placeholders().cloned().collect::<Vec<_>>();
    assert_eq!(key(users), [Placeholder::Header("x-user".to_owned()), Placeholder::Path]);
    assert_eq!((users.expire, users.entries_max), (Span::from_secs(3600), 1000));
    assert_eq!((users.name.as_str(), abuse.name.as_str()), ("users", "abuse"));
    assert_eq!((key(abuse), abuse.entries_max), (vec![Placeholder::Client], 100_000));
    let names: Vec<_> = abuse.counts.iter().map(ToString::to_string).collect();
    assert_eq!(names, ["connections", "errors/1m", "bytes-sent", "mark"]);
    let test = |count, is, bound| CountTest { count, is, bound };
    let of_abuse = vec![test(1, Comparison::Above, 20), test(2, Comparison::Below, 2 << 20)];
    let expected = [
        TableTest { table: 0, tests: vec![test(0, Comparison::AtLeast, 9)] },
        TableTest { table: 1, tests: of_abuse },
    ];
    assert_eq!(route.conditions.tables, expected);
}

#[test]
fn access_log_and_admin_interface_are_in_the_model() {
    let rest = "[[listener]]\nbind = \"127.0.0.1:80\"\n[[route]]\nrespond = {}\n";
    let config = read(rest);
    assert_eq!((config.log.access, config.admin), (None, None));
    let text = "[log]\naccess = { to = \"file:logs/a\", format = \"http\", only = \"errors\", \
                request-headers = [\"User-Agent\"], \
                cookies = [\"Session\"], response-headers = [\"Content-Type\"], response-cookies = [\"Sid\"], \
                client-certificate = true, slow = \"2s\", sample = \"0.5%\" }\n\
                [admin]\nbind = \"0.0.0.0:9901\"\ntoken-file = \"token\"\n";
    let config = read(&format!("{text}{rest}"));
    let access = AccessLog {
        to: AccessTarget::File("logs/a".to_owned()),
        format: AccessFormat::Http,
        captures: CaptureNames {
            request_headers: vec!["user-agent".to_owned()],
            cookies: vec!["Session".to_owned()],
            response_headers: vec!["content-type".to_owned()],
            response_cookies: vec!["Sid".to_owned()],
            client_certificate: true,
        },
        only: AccessFilter::Errors,
        slow: Some(Span::from_secs(2)),
        sample: 5000,
    };
    assert_eq!(config.log.access, Some(access));
    let bind = Bind::Tcp(([0, 0, 0, 0], 9901).into());
    assert_eq!(
        config.admin,
        Some(Admin {
            bind,
            token_file: Some("token".to_owned()),
            read_token_file: None,
            tls: None
        })
    );
    let config = read(&format!(
        "[admin]\nbind = \"0.0.0.0:9901\"\ntls = {{ cert = \"a.pem\", key = \"a.key\", client-ca = \"ca.pem\", \
         write-clients = [\"alice\", \"ops.example\"] }}\n{rest}"
    ));
    let admin = config.admin.expect("an interface");
    assert!(admin.has_client_ca() && admin.token_file.is_none());
    assert_eq!(
        admin.tls.and_then(|tls| tls.write_clients).map(|names| names.join(" ")).as_deref(),
        Some("alice ops.example")
    );
    let config = read(&format!("[log]\naccess = {{ to = \"stdout\" }}\n{rest}"));
    let access = config.log.access.expect("an access log");
    assert_eq!(access.captures, CaptureNames::default());
    let forms = (access.to, access.format, access.only);
    assert_eq!(forms, (AccessTarget::Stdout, AccessFormat::Json, AccessFilter::All));
    for (to, expected) in [
        ("syslog:[::1]:514", SyslogAddress::Udp("[::1]:514".parse().expect("an address"))),
        ("syslog:tcp:127.0.0.1:601", SyslogAddress::Tcp(([127, 0, 0, 1], 601).into())),
        ("syslog:unix:/dev/log", SyslogAddress::Unix("/dev/log".to_owned())),
    ] {
        let config = read(&format!("[log]\naccess = {{ to = \"{to}\" }}\n{rest}"));
        let target = config.log.access.map(|access| access.to);
        assert_eq!(target, Some(AccessTarget::Syslog(expected.clone())));
        assert_eq!(expected.to_string(), to);
    }
}

#[test]
fn collector_of_traces_is_in_the_model() {
    let rest = "[[listener]]\nbind = \"127.0.0.1:80\"\n[[route]]\nrespond = {}\n";
    let traces = "[traces]\nendpoint = \"http://otel:4318/v1/traces\"\nheaders = { X-Key = \"k\" }\n\
                  attributes = { \"host.name\" = \"a b\" }\n";
    let config = read(&format!("[server]\ntrace = true\n{traces}{rest}"));
    let found = config.traces.as_ref().expect("a collector");
    assert_eq!((found.endpoint.host.as_str(), found.endpoint.port), ("otel", 4318));
    assert_eq!(found.headers, [("x-key".to_owned(), "k".to_owned())]);
    assert_eq!(found.attributes, [("host.name".to_owned(), "a b".to_owned())]);
    assert_eq!(found.service, "tidegate");
    assert!(config.server.trace.is_some_and(|trace| trace.is_recorded));
    let mut without = read(&format!("[server]\ntrace = true\n{rest}"));
    assert!(without.traces.is_none() && without.server.trace.is_some_and(|one| !one.is_recorded));
    // A reload keeps the collector that the process has.
    without.keep_traces(config.traces.as_ref());
    assert_eq!(without, config);
}

#[test]
fn samples_are_percentages_with_three_decimals() {
    let rest = "[[listener]]\nbind = \"127.0.0.1:80\"\n[[route]]\nrespond = {}\n";
    let sample = |text: &str| {
        let file = format!("[log]\naccess = {{ to = \"stdout\", sample = {text:?} }}\n{rest}");
        let config = tidegate_config::parse(&file, "the test").ok()?;
        config.log.access.map(|access| access.sample)
    };
    for (text, parts) in [("100%", 1_000_000), ("10%", 100_000), ("0.001%", 10), ("33.3%", 333_000)]
    {
        assert_eq!(sample(text), Some(parts), "{text}");
    }
    for text in ["0%", "101%", "100.001%", "10", "1e1%", "-1%", "0.0001%", "%", ".5%"] {
        assert_eq!(sample(text), None, "{text}");
    }
}

#[test]
fn relative_paths_start_from_the_folder_of_the_file() {
    let text = r#"
[[listener]]
bind = "unix:run/web.sock"
tls = { certificates = [{ cert = "a.pem", key = "/b.key", ocsp = "c" }], tickets = "d",
        client-auth = "required", client-ca = "e", client-crl = "f" }
[[route]]
proxy = "p"
[pool.p]
servers = ["unix:g", { address = "unix:/h" }, "i:1"]
tls = { ca = "j", crl = ["k", "/l"], client-cert = { cert = "m", key = "n" }, server-name = "o" }
"#;
    let paths = |folder: &str| {
        let loaded =
            tidegate_config::parse_in_folder(text, "site.toml", folder).expect("it is valid");
        let shown = format!("{:?}", loaded.config);
        let is_path = |word: &&str| word.contains('/') || word.len() == 1 || word.contains(".pem");
        shown.split('"').skip(1).step_by(2).filter(is_path).map(str::to_owned).collect::<Vec<_>>()
    };
    for (folder, lead) in [("", ""), ("etc", "etc/"), ("/etc/", "/etc/"), ("/", "/")] {
        let found = paths(folder);
        for name in ["run/web.sock", "a.pem", "c", "d", "e", "f", "g", "j", "k", "m", "n"] {
            assert!(found.contains(&format!("{lead}{name}")), "{folder:?} {name}: {found:?}");
        }
        for absolute in ["/b.key", "/h", "/l"] {
            assert!(found.contains(&absolute.to_owned()), "{folder:?} {absolute}: {found:?}");
        }
    }
    let long = format!("/{}", "x".repeat(120));
    let errors = tidegate_config::parse_in_folder(text, "site.toml", &long).expect_err("too long");
    assert!(errors.to_string().contains("the path has 1"), "{errors}");
}

#[test]
fn health_of_servers_is_in_the_model() {
    let config = read(
        r#"
[[listener]]
bind = "127.0.0.1:80"
[[route]]
path = "/a"
proxy = "a"
[[route]]
path = "/b"
proxy = "b"
[pool.a]
servers = ["10.0.0.1:80", { address = "10.0.0.2:80", backup = true }]
slow-start = "30s"
eject = { failures = 7, errors = "off", for = "1m", ejected-max = "10%", latency = 5, panic = "30%" }
retry-budget = { share = "10%", min = 3 }
tls = true
[pool.a.health]
http = "/up?x"
host = "app.example"
method = "HEAD"
status = "200, 300-302"
every = "5s"
fast-every = "9s"
timeout = "3s"
rise = 4
fall = 5
port = 8080
tls = false
keep-alive = "30s"
[pool.b]
servers = ["10.0.0.1:80"]
health = "/healthz"
eject = true
retry-budget = "20%"
agent = { port = 9999, every = "3s", send = "app" }
"#,
    );
    let [a, b] = &config.pools[..] else { panic!("two pools") };
    let http = HttpCheck {
        target: "/up?x".to_owned(),
        host: Some("app.example".to_owned()),
        method: CheckMethod::Head,
        status: vec![(200, 200), (300, 302)],
        body: None,
    };
    let health = HealthCheck {
        kind: CheckKind::Http(http),
        every: Span::from_secs(5),
        fast_every: Span::from_secs(5),
        timeout: Span::from_secs(3),
        rise: 4,
        fall: 5,
        port: Some(8080),
        is_secured: false,
        keep_alive: Some(Span::from_secs(30)),
    };
    assert_eq!(a.health, Some(health));
    assert_eq!((a.slow_start, a.servers[1].backup), (Span::from_secs(30), true));
    assert_eq!(a.retry_budget, Some(RetryBudget { percent: 10, min: 3 }));
    assert_eq!(b.retry_budget, Some(RetryBudget { percent: 20, min: 10 }));
    let span = Span::from_secs(60);
    assert_eq!(
        a.eject,
        Some(Eject {
            failures: Some(7),
            errors: None,
            span,
            ejected_max: 10,
            latency: Some(5),
            panic: Some(30)
        })
    );
    let http = HttpCheck {
        target: "/healthz".to_owned(),
        host: None,
        method: CheckMethod::Get,
        status: vec![(200, 399)],
        body: None,
    };
    assert_eq!(b.health.as_ref().map(|health| &health.kind), Some(&CheckKind::Http(http)));
    assert_eq!(b.health.as_ref().and_then(|health| health.keep_alive), None);
    let span = Span::from_secs(10);
    let preset = Eject {
        failures: Some(5),
        errors: Some(50),
        span,
        ejected_max: 50,
        latency: None,
        panic: None,
    };
    assert_eq!((b.eject, b.slow_start), (Some(preset), Span::ZERO));
    let agent = AgentCheck {
        port: 9999,
        every: Span::from_secs(3),
        timeout: Span::from_secs(1),
        send: Some("app".to_owned()),
    };
    assert_eq!((a.agent.as_ref(), b.agent.as_ref()), (None, Some(&agent)));
}

#[test]
fn forward_is_a_pool_or_pools_by_server_name() {
    let pools = "[pool.p]\nservers = [\"10.0.0.1:1\"]\n[pool.q]\nservers = [\"10.0.0.2:1\"]\n";
    let listener = |more: &str| {
        let text = format!("[[listener]]\nbind = \"127.0.0.1:1\"\n{more}\n{pools}");
        read(&text).listeners.remove(0)
    };
    assert_eq!(listener("forward = \"q\"").forward, Some(Forward::Pool(1)));
    let by_name =
        "forward = { sni = { \"A.example\" = \"q\", \"*.b.example\" = \"p\" }, default = \"q\" }";
    let expected = Forward::ByServerName {
        names: vec![
            (HostPattern::Exact("a.example".to_owned()), 1),
            (HostPattern::Below(".b.example".to_owned()), 0),
        ],
        default: Some(1),
    };
    assert_eq!(listener(by_name).forward, Some(expected));
    let alpn = |tls: &str| listener(&format!("forward = \"p\"\n{tls}")).tls.map(|tls| tls.alpn);
    assert_eq!(alpn("tls = \"self-signed\""), Some(Vec::new()), "the protocol is unknown");
    let stated = alpn("tls = { certificates = [{ cert = \"a\", key = \"b\" }], alpn = [\"h2\"] }");
    assert_eq!(stated, Some(vec!["h2".to_owned()]));
}

#[test]
fn applications_may_have_a_layer() {
    let config = read(
        "[[listener]]\nbind = \"127.0.0.1:80\"\n[[route]]\nlua = \"a\"\n[lua.a]\nscript = \"a.lua\"\n\
         [lua.b]\nscript = \"b.lua\"\nlayer = \"lapps\"\n",
    );
    let layers: Vec<_> = config.lua.iter().map(|app| app.layer).collect();
    assert_eq!(layers, [None, Some(LuaLayer::Lapps)]);
    let config = read(
        "[[listener]]\nbind = \"127.0.0.1:80\"\n[[route]]\nlua = \"a\"\n[lua.a]\nscript = \"a.lua\"\nlayer = \"ngx\"\n\
         phases = { log = \"l.lua\", access = \"b.lua\" }\n",
    );
    let app = &config.lua[0];
    let phases: Vec<_> = app.phases.iter().map(|(name, path)| (&name[..], &path[..])).collect();
    assert_eq!(
        (app.layer, &phases[..]),
        (Some(LuaLayer::Ngx), &[("access", "b.lua"), ("log", "l.lua")][..])
    );
}

#[test]
fn applications_may_use_the_network() {
    let config = read(
        "[server]\nname-servers = [\"10.0.0.2\", \"10.0.0.3:5353\", \"2001:db8::2\", \"[2001:db8::3]:5353\"]\n\
         [[listener]]\nbind = \"127.0.0.1:80\"\n[[route]]\nlua = \"a\"\n[lua.a]\nscript = \"a.lua\"\n\
         udp = [\"10.0.0.0/8\", \"::1\"]\n",
    );
    let servers: Vec<_> = config.server.name_servers.iter().map(ToString::to_string).collect();
    assert_eq!(servers, ["10.0.0.2:53", "10.0.0.3:5353", "[2001:db8::2]:53", "[2001:db8::3]:5353"]);
    let may_send = |text: &str| {
        let address = text.parse().expect("an address");
        config.lua[0].udp.iter().any(|network| network.contains(address))
    };
    assert_eq!(["10.1.2.3", "::1", "11.0.0.1", "::2"].map(may_send), [true, true, false, false]);
}

#[test]
fn names_are_resolved_as_stated() {
    let with = |resolver: &str| {
        read(&format!(
            "{resolver}\n[[listener]]\nbind = \"127.0.0.1:80\"\n[[route]]\nrespond = {{ status = 204 }}\n"
        ))
        .resolver
    };
    assert_eq!(with(""), None);
    let defaults = with("[resolver]").expect("a resolver");
    assert_eq!(defaults, tidegate_config::model::Resolver::default());
    let resolver = with(
        "[resolver]\nname-servers = [\"10.0.0.2:8600\"]\ntimeout = \"2s\"\nattempts = 3\nfamilies = \"ipv6\"\nttl-min = \"2s\"\n\
         ttl-max = \"1m\"\nudp-payload = 512\nhold = { valid = \"1s\", nx = \"2s\", timeout = \"3s\", other = \"4s\" }",
    )
    .expect("a resolver");
    let hold = resolver.hold;
    let spans = [hold.valid, hold.nx, hold.timeout, hold.other, resolver.timeout, resolver.ttl_min];
    assert_eq!(spans.map(|span| span.as_secs()), [1, 2, 3, 4, 2, 2]);
    assert_eq!((resolver.attempts, resolver.udp_payload, resolver.ttl_max.as_secs()), (3, 512, 60));
    assert_eq!(resolver.families, tidegate_config::model::Families::Ipv6);
    assert_eq!(resolver.name_servers[0].to_string(), "10.0.0.2:8600");
}

#[test]
fn templates_are_read_as_slots() {
    let servers = |servers: &str| {
        let text = format!(
            "[resolver]\n[[listener]]\nbind = \"127.0.0.1:80\"\n[[route]]\nproxy = \"p\"\n[pool.p]\nservers = [{servers}]\n"
        );
        tidegate_config::parse(&text, "the test").expect("it is valid").pools[0].servers.clone()
    };
    let names = |all: &[tidegate_config::model::Upstream]| -> Vec<String> {
        all.iter().map(|server| server.address.to_string()).collect()
    };
    let read = servers(
        "\"10.0.0.1:80\", { address = \"app:80\", slots = 2, weight = 3, connections-max = 9, at-start = \"optional\" }, \
         { srv = \"_HTTP._tcp.App.\", slots = 1, backup = true }, { address = \"b:1\", slots = 2, prefix = \"web\" }, \"app:80\"",
    );
    assert_eq!(
        names(&read),
        ["10.0.0.1:80", "app:80#1", "app:80#2", "_http._tcp.app#1", "web1", "web2", "app:80"]
    );
    let of = &read[2];
    assert_eq!((of.weight, of.connections_max, of.may_lack_address), (3, Some(9), true));
    assert_eq!((read[3].backup, read[3].may_lack_address), (true, false));
    let ServerAddress::Slot(slot) = &read[2].address else { panic!("{of:?}") };
    assert_eq!((slot.number, slot.source.host()), (2, "app:80".to_owned()));
    let ServerAddress::Slot(slot) = &read[3].address else { panic!("{of:?}") };
    assert_eq!(slot.source.host(), "app");
}

#[test]
fn overload_is_off_unless_it_is_set() {
    let read = |server: &str, route: &str, pool: &str| {
        let text = format!(
            "{server}\n[[listener]]\nbind = \"127.0.0.1:80\"\n[[route]]\nproxy = \"p\"\n{route}\n\
             [pool.p]\nservers = [\"10.0.0.1:80\"]\n{pool}\n"
        );
        tidegate_config::parse(&text, "the test").expect("it is valid")
    };
    let plain = read("", "", "");
    assert_eq!(plain.server.overload, None);
    assert_eq!((plain.routes[0].shed, plain.pools[0].timeouts.queue_standing), (true, None));
    let set = read(
        "[server.overload]\nturn-target = \"5ms\"\nmemory-max = \"2GiB\"",
        "shed = false",
        "timeouts = { queue-standing = \"200ms\" }",
    );
    let overload = set.server.overload.expect("it is set");
    assert_eq!((overload.turn_target.as_millis(), overload.interval.as_millis()), (5, 100));
    assert_eq!(overload.memory_max, Some(MemoryMax::Bytes(2 << 30)));
    let share = read("[server.overload]\nmemory-max = \"90%\"", "", "").server.overload;
    assert_eq!(share.and_then(|overload| overload.memory_max), Some(MemoryMax::Percent(90)));
    assert!(!set.routes[0].shed);
    assert_eq!(set.pools[0].timeouts.queue_standing.map(|span| span.as_millis()), Some(200));
}
