//! Push clients whose hub asks an application in Lua: decisions, failures, and clients that leave.
//! In: scripts of the tests. Out: what each test's name says.
//! Limits: the turns that each test sets.
//! Invariant: after a run the workers hold nothing.

use tidegate_base::Span;

use crate::push::Process;
use crate::push_clients::{Stream, member, post};

const SETTINGS: &str = "subscribe = \"anyone\"\nbackend-events = [\"subscribe\", \"publish\", \"channel-empty\"]\n\
    [push.p.backend]\nlua = \"hub\"\n\
    events = [\"connect\", \"subscribe\", \"publish\", \"rpc\", \"refresh\", \"disconnect\", \"channel-empty\"]\n\
    headers = [\"Cookie\"]\ntimeout = \"500ms\"\nreply-max = \"1KiB\"\ncalls-max = 5\ncalls-per-address-max = 3\n\
    [lua.hub]\nscript = \"tests/scripts/hub.lua\"\n";

fn process() -> Process {
    Process::new(1, 3, 64, SETTINGS)
}

/// A client that states `data` as it connects. `commands` follow at once.
fn connect(process: &mut Process, data: &str, commands: &str) -> Stream {
    let commands = format!("{{\"id\":1,\"connect\":{{\"data\":{data}}}}}{commands}");
    Stream::begin(process, "http_stream", &commands)
}

#[test]
fn application_decides_about_commands_and_transforms_messages() {
    let mut process = process();
    let mut stream = connect(
        &mut process,
        "{}",
        "\n{\"id\":2,\"subscribe\":{\"channel\":\"r\"}}\n{\"id\":3,\"subscribe\":{\"channel\":\"closed\"}}\n\
         {\"id\":4,\"publish\":{\"channel\":\"r\",\"data\":{\"text\":\"hi\"}}}\n\
         {\"id\":5,\"publish\":{\"channel\":\"r\",\"data\":7}}\n\
         {\"id\":6,\"rpc\":{\"method\":\"tell\"}}\n{\"id\":7,\"rpc\":{\"method\":\"none\"}}",
    );
    stream.wait_for(&mut process, "\"connect\":{");
    stream.wait_for(&mut process, "{\"id\":2,\"subscribe\":{}}");
    stream.wait_for(&mut process, "{\"id\":3,\"error\":{\"code\":103,\"message\":\"closed to 7\"");
    let text = stream.wait_for(&mut process, "{\"id\":7,\"error\":{\"code\":1000");
    for wanted in [
        "\"from\":\"7\"",
        "\"text\":\"HI\"",
        "\"tags\":{\"by\":\"p\"}",
        "\"data\":7",
        "\"data\":\"told by 7\"",
        "{\"id\":6,\"rpc\":{\"data\":\"told\"}}",
    ] {
        assert!(text.contains(wanted), "{wanted} in {text}");
    }
    assert_eq!(process.sum("push_backend_failures") + process.sum("lua_failures"), 0);
    drop(stream);
    process.turns(50);
    // Events without a decision reach the application, too.
    let commands = "\n{\"id\":2,\"rpc\":{\"method\":\"counts\"}}";
    let mut other = connect(&mut process, "{}", commands);
    other.wait_for(&mut process, "{\"id\":2,\"rpc\":{\"data\":[1,1]}}");
    drop(other);
    process.turns(50);
    process.finish(Vec::new());
}

#[test]
fn application_refuses_and_disconnects_clients() {
    let mut process = process();
    for (data, wanted) in [
        ("{\"banned\":true}", "\"code\":4403,\"reason\":\"banned\""),
        ("{\"unknown\":true}", "\"error\":{\"code\":103,\"message\":\"permission denied\""),
        ("{\"broken\":true}", "\"error\":{\"code\":100"),
    ] {
        let mut stream = connect(&mut process, data, "");
        stream.wait_for(&mut process, wanted);
    }
    assert_eq!(process.sum("push_backend_failures"), 1);
    process.turns(50);
    process.finish(Vec::new());
}

#[test]
fn decision_that_is_late_or_too_large_is_none() {
    let mut process = process();
    let mut late = connect(&mut process, "{\"wait\":2}", "");
    // The other clients do not wait for it.
    let mut stream = connect(
        &mut process,
        "{\"wait\":0.1}",
        "\n{\"id\":2,\"publish\":{\"channel\":\"r\",\"data\":{\"large\":1}}}",
    );
    process.pass(Span::from_millis(150));
    stream.wait_for(&mut process, "\"connect\":{");
    stream.wait_for(&mut process, "{\"id\":2,\"error\":{\"code\":100");
    process.pass(Span::from_millis(600));
    late.wait_for(&mut process, "{\"id\":1,\"error\":{\"code\":100");
    assert_eq!(process.sum("lua_late_hooks"), 1);
    assert_eq!(process.sum("push_backend_failures"), 2);
    drop((late, stream));
    process.turns(50);
    process.finish(Vec::new());
}

#[test]
fn clients_of_one_address_have_a_bounded_number_of_events() {
    let mut process = process();
    let mut streams: Vec<Stream> =
        (0..5).map(|_| connect(&mut process, "{\"wait\":0.3}", "")).collect();
    for stream in &mut streams[3..] {
        stream.wait_for(&mut process, "{\"id\":1,\"error\":{\"code\":111");
    }
    // A client that leaves makes room at once.
    streams.truncate(2);
    process.turns(50);
    let mut next = connect(&mut process, "{}", "");
    next.wait_for(&mut process, "\"connect\":{");
    process.pass(Span::from_millis(400));
    for stream in &mut streams {
        stream.wait_for(&mut process, "\"connect\":{");
    }
    assert_eq!(process.sum("push_backend_refused"), 2);
    drop((streams, next));
    process.turns(50);
    process.finish(Vec::new());
}

#[test]
fn client_that_leaves_cancels_its_event() {
    let mut process = process();
    let mut stream = connect(&mut process, "{}", "");
    let reply = stream.wait_for(&mut process, "}}\n");
    let (session, node) = (member(&reply, "session"), member(&reply, "node"));
    let text = "{\"id\":2,\"publish\":{\"channel\":\"r\",\"data\":{\"wait\":0.4,\"text\":\"a\"}}}";
    assert_eq!(post(&mut process, session, node, text), "204");
    process.turns(20);
    drop(stream);
    process.turns(100);
    assert_eq!(process.sum("push_publications"), 0);
    assert_eq!(process.sum("push_backend_failures"), 0);
    process.finish(Vec::new());
}

#[test]
fn event_whose_handler_fails_does_not_lose_the_others() {
    let mut process = process();
    let mut streams = Vec::new();
    for data in ["{}", "{\"user\":\"bad\"}", "{}", "{}"] {
        streams.push(connect(&mut process, data, ""));
        let last = streams.last_mut().expect("a stream");
        last.wait_for(&mut process, "\"connect\":{");
    }
    drop(streams);
    process.turns(100);
    let commands = "\n{\"id\":2,\"rpc\":{\"method\":\"counts\"}}";
    let mut other = connect(&mut process, "{}", commands);
    other.wait_for(&mut process, "{\"id\":2,\"rpc\":{\"data\":[3,0]}}");
    let sums =
        ["lua_failures", "push_lost_events", "push_backend_failures"].map(|of| process.sum(of));
    assert_eq!(sums, [1, 1, 0]);
    drop(other);
    process.turns(50);
    process.finish(Vec::new());
}
