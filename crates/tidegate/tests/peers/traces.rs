//! Spans for a collector that decodes them with OpenTelemetry's own definitions.
//! In: requests of curl. Out: the spans that the collector prints, and what servers get.

use std::io::{BufRead as _, BufReader};
use std::process::Stdio;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use serde_json::Value;
use tidegate_testing::command;

use crate::origins::python_with_packages;
use crate::process::{Folder, Process, free_address, run_well};
use crate::requests::curl;

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";

/// A collector whose first requests get these statuses: its process, its port, and the requests that it prints.
fn start_collector(folder: &Folder, statuses: &[&str]) -> (Process, u16, Receiver<Value>) {
    let script = folder.file("trace_collector.py", include_str!("trace_collector.py"));
    let mut python = python_with_packages();
    python.arg(script).args(statuses).stdout(Stdio::piped());
    let mut process = Process::spawn(&mut python);
    let mut lines = BufReader::new(process.child().stdout.take().expect("a pipe")).lines();
    let first = lines.next().expect("a line").expect("text");
    let port = first.strip_prefix("port ").and_then(|port| port.parse().ok()).expect("a port");
    let (requests, printed) = channel();
    std::thread::spawn(move || {
        for line in lines.map_while(Result::ok) {
            let request = serde_json::from_str(&line).expect("a line is JSON");
            if requests.send(request).is_err() {
                return;
            }
        }
    });
    (process, port, printed)
}

/// The requests until one is accepted that completes `count` spans; and these spans.
fn collect(printed: &Receiver<Value>, count: usize) -> (Vec<Value>, Vec<Value>) {
    let (mut requests, mut spans) = (Vec::new(), Vec::new());
    while spans.len() < count {
        let request = printed.recv_timeout(Duration::from_secs(60)).expect("another request");
        if request["status"] == 200 {
            spans.extend(request["spans"].as_array().expect("spans").iter().cloned());
        }
        requests.push(request);
    }
    (requests, spans)
}

/// The span of a listener whose request has this path; or that of a server of a pool.
fn find<'s>(spans: &'s [Value], attribute: &str, value: &str) -> &'s Value {
    let found = spans.iter().find(|span| span["attributes"][attribute] == value);
    found.unwrap_or_else(|| panic!("no span with {attribute} {value}: {spans:#?}"))
}

#[test]
fn collector_gets_the_spans_of_requests_and_their_servers() {
    let folder = Folder::new("traces");
    let (address, origin, admin) = (free_address(), free_address(), free_address());
    let (_collector, port, printed) = start_collector(&folder, &["503"]);
    let text = format!(
        "[server]\ntrace = true\n[admin]\nbind = \"{admin}\"\n\
         [traces]\nendpoint = \"http://127.0.0.1:{port}/v1/traces?key=s3cret\"\nservice = \"edge\"\n\
         headers = {{ Authorization = \"Bearer t0ken\" }}\nattributes = {{ \"deployment.environment.name\" = \"test\" }}\n\
         [[listener]]\nname = \"web\"\nbind = \"{address}\"\ntrusted = [\"127.0.0.0/8\"]\n\
         [[listener]]\nname = \"origin\"\nbind = \"{origin}\"\ntrusted = [\"127.0.0.0/8\"]\n\
         [[route]]\nlistener = \"origin\"\nrespond = {{ body = \"x\" }}\n\
         response-headers = {{ set = {{ x-parent = \"{{header:traceparent}}\" }} }}\n\
         [[route]]\npath = \"/gone\"\nproxy = \"gone\"\n[[route]]\npath = \"/app/*\"\nproxy = \"app\"\n\
         [pool.app]\nservers = [\"{origin}\"]\n[pool.gone]\nservers = [\"127.0.0.1:1\"]\nretries = 0\n"
    );
    let file = folder.file("tidegate.toml", text);
    let mut process = Process::spawn(command(env!("CARGO_BIN_EXE_tidegate")).args(["run", &file]));
    process.wait_for_listener(address);
    let get = |target: &str, parent: &str| {
        let mut curl = curl();
        if !parent.is_empty() {
            curl.args(["-H", &format!("traceparent: {parent}")]);
        }
        run_well(curl.args(["-si", &format!("http://{address}{target}")]))
    };
    let sampled = get("/app/a?q=1", &format!("00-{TRACE}-00f067aa0ba902b7-01"));
    let unsampled = get("/app/b", &format!("00-{TRACE}-00f067aa0ba902b7-00"));
    assert!(unsampled.contains(&format!("\r\nx-parent: 00-{TRACE}-")), "{unsampled}");
    get("/gone", "");
    // Two spans of /app/a, one of its server's listener, two of /gone.
    let (requests, spans) = collect(&printed, 5);
    assert_eq!(spans.len(), 5, "{spans:#?}");
    assert_eq!(requests[0]["status"], 503, "the first request was sent again");
    let request = requests.last().expect("a request");
    assert_eq!(request["path"], "/v1/traces?key=s3cret");
    assert_eq!(request["fields"]["authorization"], "Bearer t0ken");
    assert_eq!(request["fields"]["content-type"], "application/x-protobuf");
    let resource = &request["resource"];
    assert_eq!(resource["service.name"], "edge");
    assert_eq!(resource["deployment.environment.name"], "test");
    assert_eq!(resource["service.instance.id"].as_str().map(str::len), Some(32));
    assert_eq!(request["scope"][0], "tidegate");

    let of_request = find(&spans, "http.route", "/app/*");
    let of_server = find(&spans, "tidegate.pool", "app");
    let at_server = find(&spans, "tidegate.listener", "origin");
    assert_eq!(
        (&of_request["trace"], &of_request["parent"]),
        (&TRACE.into(), &"00f067aa0ba902b7".into())
    );
    assert_eq!((&of_server["trace"], &of_server["parent"]), (&TRACE.into(), &of_request["id"]));
    assert_eq!((&at_server["trace"], &at_server["parent"]), (&TRACE.into(), &of_server["id"]));
    let stated =
        format!("\r\nx-parent: 00-{TRACE}-{}-01\r\n", of_server["id"].as_str().expect("an id"));
    assert!(sampled.contains(&stated), "{sampled} {stated}");
    assert_eq!(
        (&of_request["kind"], &of_server["kind"], &of_request["flags"]),
        (&2.into(), &3.into(), &0x301.into())
    );
    assert_eq!((&of_request["name"], &of_server["name"]), (&"GET /app/*".into(), &"GET".into()));
    let times = |span: &Value| ["began", "ended"].map(|name| span[name].as_u64().expect("a time"));
    let ([began, ended], [begun, done]) = (times(of_request), times(of_server));
    assert!(began <= begun && begun <= done && done == ended, "{of_request} {of_server}");
    let attributes = &of_request["attributes"];
    for (name, value) in [
        ("http.request.method", Value::from("GET")),
        ("url.query", "q=1".into()),
        ("url.scheme", "http".into()),
        ("http.route", "/app/*".into()),
        ("http.response.status_code", 200.into()),
        ("network.protocol.version", "1.1".into()),
        ("client.address", "127.0.0.1".into()),
        ("server.address", address.ip().to_string().into()),
        ("url.path", "/app/a".into()),
        ("server.port", address.port().into()),
    ] {
        assert_eq!(attributes[name], value, "{name}");
    }
    assert_eq!(of_server["attributes"]["server.port"], origin.port());
    assert_eq!((&of_request["status"], &of_server["status"]), (&0.into(), &0.into()));

    // A server that cannot be reached.
    let failed = find(&spans, "http.route", "/gone");
    let of_gone = find(&spans, "tidegate.pool", "gone");
    assert_eq!((&failed["parent"], &of_gone["parent"]), (&"".into(), &failed["id"]));
    assert_eq!(
        (&failed["status"], &failed["attributes"]["error.type"]),
        (&2.into(), &"server".into())
    );
    assert_eq!(failed["attributes"]["http.response.status_code"], 502);
    assert!(of_gone["attributes"].get("http.response.status_code").is_none(), "{of_gone}");
    assert!(
        of_gone["message"].as_str().is_some_and(|message| message.contains("connect")),
        "{of_gone}"
    );
    process.wait_until("counting the spans", || {
        let metrics = run_well(curl().arg(format!("http://{admin}/metrics")));
        metrics.contains("\ntidegate_spans_exported_total 5\n")
            && metrics.contains("\ntidegate_spans_lost_total 0\n")
    });
    // The last spans are sent before the process ends.
    get("/app/c", &format!("00-{TRACE}-00f067aa0ba902b7-01"));
    process.terminate();
    assert!(process.wait().success());
    assert_eq!(collect(&printed, 3).1.len(), 3);
}

#[test]
fn spans_that_a_collector_refuses_are_lost_and_counted() {
    let folder = Folder::new("traces-refused");
    let (address, admin) = (free_address(), free_address());
    let (_collector, port, printed) = start_collector(&folder, &["400"]);
    let text = format!(
        "[server]\ntrace = true\n[admin]\nbind = \"{admin}\"\n[traces]\nendpoint = \"http://127.0.0.1:{port}/\"\n\
         [[listener]]\nbind = \"{address}\"\n[[route]]\npath = \"/x\"\nrespond = {{}}\n"
    );
    let file = folder.file("tidegate.toml", text);
    let mut process = Process::spawn(command(env!("CARGO_BIN_EXE_tidegate")).args(["run", &file]));
    process.wait_for_listener(address);
    run_well(curl().arg(format!("http://{address}/x")));
    let lost = |count: u64| {
        let metrics = run_well(curl().arg(format!("http://{admin}/metrics")));
        metrics.contains(&format!("\ntidegate_spans_lost_total {count}\n"))
    };
    process.wait_until("counting the lost span", || lost(1));
    // The next request to the collector is accepted, and does not contain the lost span.
    run_well(curl().args(["-X", "DELETE", "-d", "ab", &format!("http://{address}/none")]));
    let (requests, spans) = collect(&printed, 1);
    assert_eq!((requests.len(), spans.len()), (2, 1), "{requests:#?}");
    assert_eq!((&spans[0]["name"], &spans[0]["status"]), (&"DELETE".into(), &0.into()));
    assert!(lost(1));
}
