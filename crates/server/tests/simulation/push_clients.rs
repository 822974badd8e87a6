//! Clients of the client protocol of push hubs: without WebSocket, and those that do not answer.
//! In: requests, pings that are due. Out: what each test's name says.
//! Limits: the turns that each test sets.
//! Invariant: after a run the workers hold nothing.

use tidegate_base::Span;
use tidegate_reactor::SimPeer;

use crate::push::{KEY, Process};

const SETTINGS: &str = "anonymous = true\nsubscribe = \"anyone\"\npublish = \"anyone\"\n";

/// The command with which a session begins.
const CONNECT: &str = "{\"id\":1,\"connect\":{}}";

/// The response that carries what a client receives.
pub(crate) struct Stream {
    pub(crate) peer: SimPeer,
    pub(crate) text: String,
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.peer.reset();
    }
}

impl Stream {
    pub(crate) fn begin(process: &mut Process, path: &str, commands: &str) -> Self {
        let peer = process.dial();
        process.turns(4);
        let length = commands.len();
        let request = format!(
            "POST /push/connection/{path} HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n{commands}"
        );
        assert_eq!(peer.send(request.as_bytes()), request.len());
        let mut stream = Self { peer, text: String::new() };
        stream.wait_for(process, "\r\n\r\n");
        stream
    }

    /// Waits for a string, and forgets everything until its end.
    pub(crate) fn wait_for(&mut self, process: &mut Process, wanted: &str) -> String {
        for _ in 0..1000 {
            self.text.push_str(&String::from_utf8_lossy(&self.peer.receive()));
            if let Some(at) = self.text.find(wanted) {
                let rest = self.text.split_off(at + wanted.len());
                return core::mem::replace(&mut self.text, rest);
            }
            process.turn();
        }
        panic!("no {wanted} in {}", self.text);
    }

    /// Everything that has come and was not waited for.
    pub(crate) fn rest(&mut self, process: &mut Process) -> &str {
        process.turns(50);
        self.text.push_str(&String::from_utf8_lossy(&self.peer.receive()));
        &self.text
    }
}

/// The value of a member of the reply to `connect`.
pub(crate) fn member<'t>(reply: &'t str, name: &str) -> &'t str {
    let mark = format!("\"{name}\":\"");
    let value = reply.split(&mark).nth(1).and_then(|rest| rest.split('"').next());
    value.unwrap_or_else(|| panic!("no {name} in {reply}"))
}

/// The status of the response to commands for a session.
pub(crate) fn post(process: &mut Process, session: &str, node: &str, commands: &str) -> String {
    let data = commands.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
    let body = format!("{{\"session\":\"{session}\",\"node\":\"{node}\",\"data\":\"{data}\"}}");
    post_body(process, &body)
}

fn post_body(process: &mut Process, body: &str) -> String {
    let length = body.len();
    let response = process.exchange(&format!(
        "POST /push/emulation HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n{body}"
    ));
    response.split(' ').nth(1).unwrap_or_default().to_owned()
}

#[test]
fn requests_to_any_worker_reach_their_session_and_no_other() {
    let mut process = Process::new(3, 7, 64, SETTINGS);
    for path in ["http_stream", "sse"] {
        let mut stream = Stream::begin(&mut process, path, "{\"id\":1,\"connect\":{}}");
        let reply = stream.wait_for(&mut process, "}}\n");
        let (session, node) = (member(&reply, "session"), member(&reply, "node"));
        // The kernel chooses the worker of each connection.
        for number in 2..20 {
            let channel = format!("a{number}");
            let text = format!("{{\"id\":{number},\"subscribe\":{{\"channel\":\"{channel}\"}}}}");
            assert_eq!(post(&mut process, session, node, &text), "204");
            stream.wait_for(&mut process, &format!("{{\"id\":{number},\"subscribe\":{{}}}}"));
            let text = format!(
                "{{\"id\":{},\"publish\":{{\"channel\":\"{channel}\",\"data\":\"é\"}}}}",
                number + 100
            );
            assert_eq!(post(&mut process, session, node, &text), "204");
            let push = format!("{{\"push\":{{\"channel\":\"{channel}\",\"pub\":{{\"data\":\"é\"");
            stream.wait_for(&mut process, &push);
            stream.wait_for(&mut process, "}}\n");
        }
        stream.rest(&mut process);
        stream.text.clear();
        let other = session.replace(|digit: char| digit.is_ascii_digit(), "0");
        let last = if session.ends_with('0') { "1" } else { "0" };
        let near = format!("{}{last}", &session[..session.len() - 1]);
        let command = "{\"id\":50,\"subscribe\":{\"channel\":\"b\"}}";
        for wrong in [other.as_str(), &near, "", "x"] {
            assert_eq!(post(&mut process, wrong, node, command), "204");
        }
        assert_eq!(post(&mut process, session, "3", command), "404");
        assert_eq!(post(&mut process, session, "", command), "404");
        assert_eq!(post_body(&mut process, "{"), "400");
        assert_eq!(stream.rest(&mut process), "", "nothing was done for another session");
        // What ends a WebSocket connection ends the response.
        assert_eq!(post(&mut process, session, node, "{\"id\":51,\"unknown\":{}}"), "204");
        stream.wait_for(
            &mut process,
            "{\"push\":{\"disconnect\":{\"code\":3501,\"reason\":\"bad request\"}}}",
        );
        stream.wait_for(&mut process, "\r\n0\r\n\r\n");
        assert_eq!(post(&mut process, session, node, command), "204");
    }
    assert_eq!(process.sum("push_clients_now"), 0);
    process.finish(Vec::new());
}

#[test]
fn commands_are_confirmed_when_the_worker_of_their_session_has_them() {
    let mut process = Process::new(2, 15, 64, SETTINGS);
    let mut stream = Stream::begin(&mut process, "sse", "{\"id\":1,\"connect\":{}}");
    let reply = stream.wait_for(&mut process, "}}\n");
    let (session, node) = (member(&reply, "session"), member(&reply, "node"));
    let data = "{\\\"id\\\":2,\\\"rpc\\\":{}}";
    let body = format!("{{\"session\":\"{session}\",\"node\":\"{node}\",\"data\":\"{data}\"}}");
    let length = body.len();
    let request = format!(
        "POST /push/emulation HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n{body}"
    );
    let peers: Vec<_> = (0..8).map(|_| process.dial()).collect();
    process.turns(4);
    assert!(peers.iter().all(|peer| peer.send(request.as_bytes()) == request.len()));
    let worker = node.parse().expect("a number");
    (0..100).for_each(|_| process.turn_without(worker));
    for peer in &peers {
        assert_eq!(peer.receive(), b"", "the worker of the session has not taken a turn");
    }
    process.turns(20);
    for peer in &peers {
        let response = String::from_utf8_lossy(&peer.receive()).into_owned();
        assert!(response.starts_with("HTTP/1.1 204 "), "{response}");
        peer.reset();
    }
    assert_eq!(stream.rest(&mut process).matches("\"id\":2").count(), peers.len());
    drop(stream);
    process.finish(Vec::new());
}

#[test]
fn invalid_request_for_a_connection_is_refused() {
    let mut process = Process::new(1, 8, 64, SETTINGS);
    for (request, status) in [
        ("GET /push/connection/sse HTTP/1.1\r\nHost: a\r\n\r\n", "400"),
        ("GET /push/connection/http_stream HTTP/1.1\r\nHost: a\r\n\r\n", "405"),
        ("GET /push/emulation HTTP/1.1\r\nHost: a\r\n\r\n", "405"),
        ("POST /push/emulation HTTP/1.1\r\nHost: a\r\nContent-Length: 99999999\r\n\r\n", "413"),
        (
            "POST /push/emulation HTTP/1.1\r\nHost: a\r\nOrigin: http://b\r\nContent-Length: 0\r\n\r\n",
            "403",
        ),
        ("OPTIONS /push/emulation HTTP/1.1\r\nHost: a\r\nOrigin: http://a\r\n\r\n", "204"),
    ] {
        let response = process.exchange(request);
        assert_eq!(response.split(' ').nth(1), Some(status), "{request}: {response}");
    }
    // The first command must connect.
    let mut stream =
        Stream::begin(&mut process, "http_stream", "{\"id\":1,\"subscribe\":{\"channel\":\"a\"}}");
    stream.wait_for(&mut process, "\"code\":3501");
    stream.wait_for(&mut process, "0\r\n\r\n");
    drop(stream);
    process.finish(Vec::new());
}

#[test]
fn client_that_does_not_answer_a_ping_is_disconnected_with_its_code() {
    let mut process = Process::new(1, 9, 64, SETTINGS);
    let mut stream = Stream::begin(&mut process, "http_stream", "{\"id\":1,\"connect\":{}}");
    let reply = stream.wait_for(&mut process, "}}\n");
    let (session, node) = (member(&reply, "session"), member(&reply, "node"));
    for _ in 0..3 {
        let mut text = String::new();
        for _ in 0..120 {
            process.pass(Span::from_secs(1));
            text.push_str(stream.rest(&mut process));
            stream.text.clear();
            if text.contains("\n{}\n") {
                break;
            }
        }
        assert!(text.contains("\n{}\n"), "no ping: {text}");
        assert_eq!(post(&mut process, session, node, "{}"), "204");
    }
    for _ in 0..200 {
        process.pass(Span::from_secs(1));
    }
    stream.wait_for(
        &mut process,
        "{\"push\":{\"disconnect\":{\"code\":3012,\"reason\":\"no pong\"}}}",
    );
    stream.wait_for(&mut process, "0\r\n\r\n");
    drop(stream);
    process.finish(Vec::new());
}

#[test]
fn conflated_message_comes_when_its_interval_ends_although_nothing_else_happens() {
    let settings = "anonymous = true\nsubscribe = \"anyone\"\nconflate = \"2s\"\n";
    let mut process = Process::new(2, 11, 64, settings);
    let commands = "{\"id\":1,\"connect\":{}}\n{\"id\":2,\"subscribe\":{\"channel\":\"price\"}}";
    let mut stream = Stream::begin(&mut process, "http_stream", commands);
    stream.wait_for(&mut process, "{\"id\":2,\"subscribe\":{}}");
    for number in 1..=5 {
        let body = format!("{{\"channel\":\"price\",\"data\":{number},\"wait\":true}}");
        let response = process.exchange(&format!(
            "POST /push/api/publish HTTP/1.1\r\nHost: a\r\nX-API-Key: {KEY}\r\n\
             Content-Length: {}\r\n\r\n{body}",
            body.len()
        ));
        let reached = format!("\"reached\":{}", u8::from(number == 1));
        assert!(response.contains(&reached), "{response}");
    }
    stream.wait_for(&mut process, "\"pub\":{\"data\":1");
    assert!(!stream.rest(&mut process).contains("\"pub\""), "held back");
    process.pass(Span::from_millis(1900));
    assert!(!stream.rest(&mut process).contains("\"pub\""), "held back");
    process.pass(Span::from_millis(100));
    let text = stream.rest(&mut process).to_owned();
    assert!(text.contains("\"pub\":{\"data\":5") && text.matches("\"pub\"").count() == 1, "{text}");
    assert_eq!(process.sum("push_conflated"), 3);
    drop(stream);
    process.finish(Vec::new());
}

/// Publishes until publications wait for a client that does not read.
fn publish_until_queued(process: &mut Process, session: &str, node: &str) -> u64 {
    for number in 1..200 {
        let data = "x".repeat(3000);
        let command = format!(
            "{{\"id\":{},\"publish\":{{\"channel\":\"a\",\"data\":\"{data}\"}}}}",
            1000 + number
        );
        assert_eq!(post(process, session, node, &command), "204");
        process.turns(10);
        if process.sum("push_queued") >= 3 {
            return number;
        }
    }
    panic!("nothing is queued");
}

#[test]
fn commands_of_a_client_that_does_not_read_wait_for_its_publications() {
    for workers in [1, 2] {
        let mut process = Process::new(workers, 12, 64, SETTINGS);
        let begin = "{\"id\":1,\"connect\":{}}\n{\"id\":2,\"subscribe\":{\"channel\":\"a\"}}";
        let mut slow = Stream::begin(&mut process, "http_stream", begin);
        let reply = slow.wait_for(&mut process, "\"subscribe\":{}}");
        let (session, node) = (member(&reply, "session"), member(&reply, "node"));
        let mut other = Stream::begin(&mut process, "http_stream", "{\"id\":1,\"connect\":{}}");
        let reply = other.wait_for(&mut process, "}}\n");
        let published =
            publish_until_queued(&mut process, member(&reply, "session"), member(&reply, "node"));
        let leave = "{\"id\":3,\"unsubscribe\":{\"channel\":\"a\"}}";
        assert_eq!(post(&mut process, session, node, leave), "204");
        process.turns(20);
        let text = slow.wait_for(&mut process, "{\"id\":3,\"unsubscribe\":{}}");
        assert_eq!(text.matches("\"pub\":").count() as u64, published, "{workers} workers");
        assert!(!slow.rest(&mut process).contains("\"pub\":"), "{workers} workers");
        drop((slow, other));
        process.finish(Vec::new());
    }
}

#[test]
fn client_that_sends_commands_and_does_not_read_is_disconnected() {
    for workers in [1, 2] {
        let settings = format!("queue-max = \"64KiB\"\n{SETTINGS}");
        let mut process = Process::new(workers, 13, 64, &settings);
        let mut slow = Stream::begin(&mut process, "http_stream", "{\"id\":1,\"connect\":{}}");
        let reply = slow.wait_for(&mut process, "}}\n");
        let (session, node) = (member(&reply, "session"), member(&reply, "node"));
        let commands = "{\"id\":2,\"rpc\":{}}\n".repeat(400);
        for _ in 0..40 {
            assert_eq!(post(&mut process, session, node, &commands), "204");
            process.turns(10);
        }
        assert_eq!(process.sum("push_slow_closes"), 1, "{workers} workers");
        assert_eq!(process.sum("push_clients_now"), 0, "{workers} workers");
        drop(slow);
        process.finish(Vec::new());
    }
}

#[test]
fn silent_websocket_client_is_closed_with_the_code_of_its_silence() {
    // A masked text frame with the key 0.
    let connect = b"\x81\x95\0\0\0\0{\"id\":1,\"connect\":{}}";
    for (sent, code, seconds) in [(&b""[..], 3502_u16, 11), (connect, 3012, 200)] {
        let mut process = Process::new(1, 10, 64, SETTINGS);
        let peer = process.dial();
        process.turns(4);
        let request = websocket_request("connection/websocket");
        assert_eq!(peer.send(request.as_bytes()), request.len());
        process.turns(10);
        assert_eq!(peer.send(sent), sent.len());
        for _ in 0..seconds {
            process.pass(Span::from_secs(1));
        }
        let bytes = peer.receive();
        let close = code.to_be_bytes();
        let found = bytes.windows(4).any(|four| four[0] == 0x88 && four[2..] == close);
        assert!(found, "{code}: {}", String::from_utf8_lossy(&bytes));
        drop(peer);
        process.finish(Vec::new());
    }
}

/// A request for a WebSocket.
pub(crate) fn websocket_request(path: &str) -> String {
    format!(
        "GET /push/{path} HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    )
}

#[test]
fn connections_end_after_their_age_and_advise_to_connect_again() {
    let get =
        |fields: &str| format!("GET /push/subscribe/time HTTP/1.1\r\nHost: a\r\n{fields}\r\n");
    let settings = format!("connection-age-max = \"8s\"\n{SETTINGS}");
    let mut process = Process::new(2, 14, 64, &settings);
    let commands = "{\"id\":1,\"connect\":{}}\n{\"id\":2,\"subscribe\":{\"channel\":\"time\"}}";
    let mut stream = Stream::begin(&mut process, "http_stream", commands);
    let mut peers = Vec::new();
    for (request, sent) in [
        (
            websocket_request("connection/websocket"),
            &b"\x81\x95\0\0\0\0{\"id\":1,\"connect\":{}}"[..],
        ),
        (websocket_request("subscribe/time"), b""),
        (get("Accept: text/event-stream\r\n"), b""),
        (get(""), b""),
    ] {
        let peer = process.dial();
        process.turns(4);
        assert_eq!(peer.send(request.as_bytes()), request.len());
        process.turns(10);
        assert_eq!(peer.send(sent), sent.len());
        peers.push(peer);
    }
    for _ in 0..5 {
        process.pass(Span::from_secs(1));
    }
    assert_eq!((process.sum("push_aged_closes"), process.sum("push_clients_now")), (0, 2));
    for _ in 0..4 {
        process.pass(Span::from_secs(1));
    }
    stream.wait_for(
        &mut process,
        "{\"push\":{\"disconnect\":{\"code\":3011,\"reason\":\"force reconnect\"}}}",
    );
    stream.wait_for(&mut process, "0\r\n\r\n");
    let received: Vec<Vec<u8>> = peers.iter().map(SimPeer::receive).collect();
    let ends = |bytes: &[u8], end: &[u8]| bytes.windows(end.len()).any(|part| part == end);
    let close = [&[0x88, 17][..], &3011_u16.to_be_bytes(), b"force reconnect"].concat();
    for (bytes, end) in
        received.iter().zip([&close[..], &close, b"\r\n0\r\n\r\n", b"{\"publications\":[]}"])
    {
        assert!(ends(bytes, end), "{}", String::from_utf8_lossy(bytes));
    }
    // The client over WebSocket has not answered the Close frame.
    assert_eq!((process.sum("push_aged_closes"), process.sum("push_clients_now")), (4, 1));
    assert_eq!(process.sum("push_subscriptions_now"), 0);
    drop((stream, peers));
    process.finish(Vec::new());
}

#[test]
fn application_subscribes_a_session_on_terms_of_its_own() {
    let settings = format!(
        "{SETTINGS}[push.p.namespace.r]\nsubscribe = \"anyone\"\nhistory = 5\npresence = true\njoin-leave = true\n"
    );
    // Simulated workers have the same secret, so that sessions of two workers could have the same name.
    let mut process = Process::new(1, 21, 64, &settings);
    let begin = |process: &mut Process, commands: &str| {
        let mut stream = Stream::begin(process, "http_stream", commands);
        let reply = stream.wait_for(process, "}}\n");
        let session = member(&reply, "session").to_owned();
        stream.rest(process);
        stream.text.clear();
        (stream, session)
    };
    let (mut seen, mut hidden) = (begin(&mut process, CONNECT), begin(&mut process, CONNECT));
    let commands = format!("{CONNECT}\n{{\"id\":2,\"subscribe\":{{\"channel\":\"r:x\"}}}}");
    let (mut other, _) = begin(&mut process, &commands);
    let subscribe = |session: &str, rest: &str| {
        format!("{{\"session\":\"{session}\",\"channel\":\"r:x\",{rest}}}")
    };
    let counts = |process: &mut Process| process.api("presence_stats", "{\"channel\":\"r:x\"}");

    // Others see it, with the information of the channel.
    let terms = "\"b64info\":\"eyJ4IjoxfQ==\",\"b64data\":\"WzJd\"";
    process.api("subscribe", &subscribe(&seen.1, terms));
    let told = seen.0.wait_for(&mut process, "\"data\":[2]");
    assert!(told.contains("\"recoverable\":true"), "{told}");
    let join = other.wait_for(&mut process, "\"chan_info\":{\"x\":1}");
    assert!(join.contains("\"join\""), "{join}");
    assert!(counts(&mut process).contains("\"num_clients\":2"));
    for stream in [&mut seen.0, &mut other] {
        stream.rest(&mut process);
        stream.text.clear();
    }

    // Others do not see it, and it does not see others.
    let flags = ["presence", "join_leave", "force_push_join_leave", "force_recovery"]
        .map(|name| format!("\"{name}\":{{\"value\":false}}"));
    let terms = format!("\"override\":{{{}}}", flags.join(","));
    process.api("subscribe", &subscribe(&hidden.1, &terms));
    let told = hidden.0.wait_for(&mut process, "\"subscribe\":{");
    assert!(!hidden.0.rest(&mut process).contains("recoverable"), "{told}");
    hidden.0.text.clear();
    assert!(counts(&mut process).contains("\"num_clients\":2"));
    assert_eq!(other.rest(&mut process), "", "no join");
    let (late, _) = begin(&mut process, &commands);
    other.wait_for(&mut process, "\"join\"");
    seen.0.wait_for(&mut process, "\"join\"");
    process.api("publish", "{\"channel\":\"r:x\",\"data\":7}");
    let told = hidden.0.wait_for(&mut process, "\"pub\":{\"data\":7");
    assert!(!told.contains("\"join\""), "{told}");

    process.api("disconnect", &format!("{{\"session\":\"{}\"}}", hidden.1));
    hidden.0.wait_for(&mut process, "\"code\":3503");
    other.wait_for(&mut process, "\"pub\":{\"data\":7");
    assert!(!other.rest(&mut process).contains("\"leave\""));
    process.api("disconnect", &format!("{{\"session\":\"{}\"}}", seen.1));
    other.wait_for(&mut process, "\"leave\"");
    assert_eq!(process.sum("push_clients_now"), 2, "only these sessions have ended");
    drop((seen, hidden, other, late));
    process.finish(Vec::new());
}

#[test]
fn stop_ends_clients_with_and_without_websocket_over_the_time_of_drain() {
    let request =
        "GET /push/subscribe/time HTTP/1.1\r\nHost: a\r\nAccept: text/event-stream\r\n\r\n";
    let mut process = Process::new(1, 15, 64, SETTINGS);
    let commands = "{\"id\":1,\"connect\":{}}\n{\"id\":2,\"subscribe\":{\"channel\":\"time\"}}";
    let mut events = Vec::new();
    for _ in 0..40 {
        let peer = process.dial();
        process.turns(4);
        assert_eq!(peer.send(request.as_bytes()), request.len());
        process.turns(10);
        events.push((peer, String::new()));
    }
    let mut streams: Vec<Stream> =
        (0..40).map(|_| Stream::begin(&mut process, "http_stream", commands)).collect();
    let poll = process.dial();
    process.turns(4);
    poll.send(b"GET /push/subscribe/time HTTP/1.1\r\nHost: a\r\n\r\n");
    process.turns(10);
    process.stop_over(Span::from_secs(30), Span::from_secs(10));
    let is_ended = |text: &str| text.ends_with("\r\n0\r\n\r\n");
    let mut ended = Vec::new();
    for _ in 0..60 {
        process.pass(Span::from_millis(250));
        let mut count = [0, 0];
        for (peer, text) in &mut events {
            text.push_str(&String::from_utf8_lossy(&peer.receive()));
            count[0] += u32::from(is_ended(text));
        }
        for stream in &mut streams {
            stream.text.push_str(&String::from_utf8_lossy(&stream.peer.receive()));
            count[1] += u32::from(is_ended(&stream.text) && stream.text.contains("\"shutdown\""));
        }
        ended.push(count);
    }
    for (number, kind) in ["events", "HTTP streaming"].iter().enumerate() {
        let counts: Vec<u32> = ended.iter().map(|count| count[number]).collect();
        assert!(counts.is_sorted() && counts.last() == Some(&40), "{kind}: {counts:?}");
        let steps = counts.windows(2).map(|two| two[1] - two[0]);
        assert!(steps.max() <= Some(4) && counts[0] <= 4, "{kind}: {counts:?}");
    }
    assert!(events.iter().all(|(_, text)| text.contains("retry: ")));
    assert!(String::from_utf8_lossy(&poll.receive()).contains("{\"publications\":[]}"));
    drop((events, streams, poll));
    process.finish(Vec::new());
}

#[test]
fn refused_clients_are_told_to_come_back_at_different_times() {
    let mut process = Process::new(1, 11, 64, &format!("{SETTINGS}retry = \"3s\"\n"));
    let mut peers: Vec<SimPeer> = (0..40).map(|_| process.dial()).collect();
    process.turns(10);
    // A request that has begun keeps its connection while the process stops.
    peers.iter_mut().for_each(|peer| {
        peer.send(b"GET /push/subscribe/a HTTP/1.1\r\nHost: a\r\n");
    });
    process.turns(10);
    process.stop(Span::from_secs(30));
    process.turns(10);
    peers.iter_mut().for_each(|peer| {
        peer.send(b"\r\n");
    });
    process.turns(50);
    let waits: std::collections::BTreeSet<u64> = peers
        .iter()
        .map(|peer| {
            let response = String::from_utf8_lossy(&peer.receive()).into_owned();
            assert!(response.starts_with("HTTP/1.1 503 "), "{response}");
            let field = response.lines().find_map(|line| line.strip_prefix("Retry-After: "));
            field.and_then(|seconds| seconds.parse().ok()).expect("a number of seconds")
        })
        .collect();
    assert!(waits.iter().all(|seconds| (3..=15).contains(seconds)), "{waits:?}");
    assert!(waits.len() > 5, "they are spread: {waits:?}");
}
