//! Lua applications and a small name server on a real socket.
//! In: a script, a server that answers queries. Out: what the script gets.

use std::net::UdpSocket;
use std::thread;

use crate::gate::Gate;
use crate::process::{Folder, run_well};
use crate::requests::curl;

const SCRIPT: &str = r#"
return {
  on_request = function(request, response)
    local name, kind = request.path:match("^/([^/]+)/(%a+)$")
    local records, err = tide.dns.resolve(name, kind)
    if not records then return response:finish("error: " .. err) end
    local first = records[1]
    response:finish(type(first) == "table" and first.target .. ":" .. first.port or table.concat(records, ","))
  end,
}
"#;

/// A server that knows a few names. It ends after a datagram that is no query. Returns its port, and how many queries it got.
fn serve() -> (u16, thread::JoinHandle<usize>) {
    let socket = UdpSocket::bind(("127.0.0.1", 0)).expect("a free port");
    let port = socket.local_addr().expect("the socket is bound").port();
    let serve = move || {
        let mut buffer = [0; 2048];
        for queries in 0.. {
            let (count, from) = socket.recv_from(&mut buffer).expect("a datagram");
            let query = &buffer[..count];
            if query == b"end" {
                return queries;
            }
            socket.send_to(&answer(query), from).expect("it is sent");
        }
        unreachable!("the numbers do not end")
    };
    (port, thread::spawn(serve))
}

/// The answer to a query, by the first label of its name.
fn answer(query: &[u8]) -> Vec<u8> {
    let mut reply = query[..query.len() - 11].to_vec();
    let label = &query[13..13 + usize::from(query[12])];
    let (code, kind, data): (u8, u8, Vec<Vec<u8>>) = match label {
        b"two" => (0, 1, vec![vec![10, 0, 0, 1], vec![10, 0, 0, 2]]),
        b"six" => (0, 28, vec![[&[0; 15][..], &[1]].concat()]),
        b"_api" => (0, 33, vec![b"\0\x01\0\x02\x1f\x90\x04host\x07example\0".to_vec()]),
        b"text" => (0, 16, vec![b"\x05hello".to_vec()]),
        b"empty" => (0, 1, Vec::new()),
        _ => (3, 1, Vec::new()),
    };
    reply[2..4].copy_from_slice(&[0x81, 0x80 | code]);
    reply[6..12].copy_from_slice(&[0, data.len() as u8, 0, 0, 0, 0]);
    for data in data {
        reply.extend([0xc0, 12, 0, kind, 0, 1, 0, 0, 0x0e, 0x10, 0, data.len() as u8]);
        reply.extend(data);
    }
    reply
}

#[test]
fn scripts_ask_a_name_server() {
    let folder = Folder::new("names");
    let script = folder.file("app.lua", SCRIPT);
    let (port, server) = serve();
    let config = format!(
        "[server]\nworkers = 1\nname-servers = [\"127.0.0.1:{port}\"]\n[[listener]]\nbind = \"127.0.0.1:0\"\n[[route]]\n\
         lua = \"app\"\n[lua.app]\nscript = {script:?}\n"
    );
    let gate = Gate::start(&folder, &config);
    let get = |path: &str| run_well(curl().arg(gate.url(path)));
    for _ in 0..2 {
        assert_eq!(get("/two.example/A"), "10.0.0.1,10.0.0.2");
        assert_eq!(get("/six.example/AAAA"), "::1");
        assert_eq!(get("/_api._tcp.example/SRV"), "host.example:8080");
        assert_eq!(get("/text.example/TXT"), "hello");
    }
    assert_eq!(get("/empty.example/A"), "error: the name has no such records");
    assert_eq!(get("/none.example/A"), "error: the name does not exist");
    let end = UdpSocket::bind(("127.0.0.1", 0)).expect("a free port");
    end.send_to(b"end", ("127.0.0.1", port)).expect("it is sent");
    assert_eq!(server.join().expect("the server ends"), 6, "records are kept");
    // Nothing receives at the port any more; what is kept remains.
    assert_eq!(get("/other.example/A"), "error: the name servers cannot answer");
    assert_eq!(get("/two.example/A"), "10.0.0.1,10.0.0.2");
    gate.terminate();
    assert!(gate.wait().0.success());
}
