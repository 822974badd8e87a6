//! A service of LAppS that is a client of another one.
//! In: services. Out: what a subscriber of the result gets.

use tidegate_wire::websocket::{Kind, encode_message};

use crate::stage::scene;

/// The servers of the pool are the listener itself.
const LISTENER: &str = "[[route]]\npath = \"/echo\"\nlua = \"lapps_echo\"\n\
    [[route]]\npath = \"/calls\"\nlua = \"lapps_calls\"\n\
    [lua.lapps_echo]\nscript = \"tests/scripts/lapps_echo.lua\"\nlayer = \"lapps\"\n\
    [lua.lapps_calls]\nscript = \"tests/scripts/lapps_calls.lua\"\nlayer = \"lapps\"\n\
    settings = { protocol = \"LAppS\" }\n\
    [lua.lapps_benchmark]\nscript = \"tests/scripts/lapps_benchmark.lua\"\nlayer = \"lapps\"\n\
    pools = [\"echo\"]\nsettings = { \"ws://127.0.0.1:5083\" = \"echo\" }\nshared = { mqr = \"1MiB\" }\n\
    [pool.echo]\nservers = [\"10.0.0.1:80\"]\n";
const UPGRADE: &[u8] =
    b"GET /calls HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
    Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
/// A client notification: subscribes to the results.
const RESULTS: &[u8] = b"\xa3\x65lapps\x01\x66method\x67results\x63cid\x06";

#[test]
fn benchmark_echoes_through_the_server_and_broadcasts_that_it_is_done() {
    scene().listener(LISTENER).run(|stage| {
        let client = stage.dial();
        client.send(UPGRADE);
        stage.receive_until(&client, "\r\n\r\n");
        let mut message = Vec::new();
        encode_message(&mut message, Kind::Binary, RESULTS, Some([1, 2, 3, 4]));
        client.send(&message);
        stage.receive_until(&client, "done");
        let counters = stage.counters();
        assert_eq!(counters.lua_failures.load(), 0);
        assert!(counters.lua_sockets.load() >= 3, "{}", counters.lua_sockets.load());
    });
}
