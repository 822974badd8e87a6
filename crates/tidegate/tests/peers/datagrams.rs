//! Lua applications and real sockets for datagrams.
//! In: a script, a server that sends datagrams back. Out: what the script gets.

use std::net::UdpSocket;
use std::thread;

use crate::gate::Gate;
use crate::process::{Folder, run_well};
use crate::requests::curl;

const SCRIPT: &str = r#"
local function talk(port, data, seconds)
  local socket, err = tide.udp.connect("127.0.0.1", port)
  if not socket then return nil, err end
  local ok
  ok, err = socket:send(data)
  if not ok then return nil, err end
  return socket:receive(seconds)
end
return {
  on_request = function(request, response)
    local port, kind = tonumber(request.query.port), request.path:sub(2)
    local text, err
    if kind == "echo" then text, err = talk(port, "hello", 60)
    elseif kind == "most" then
      text, err = talk(port, ("x"):rep(65507), 60)
      text = text and tostring(#text)
    elseif kind == "long" then text, err = talk(port, ("x"):rep(65508), 60)
    elseif kind == "lost" then text, err = talk(port, "lost", 0.05)
    elseif kind == "elsewhere" then text, err = tide.udp.connect("127.0.0.2", port)
    end
    response:finish(text or "error: " .. err)
  end,
}
"#;

/// A server that sends back what it gets, except for "lost". It ends after "end".
fn echo() -> (u16, thread::JoinHandle<()>) {
    let socket = UdpSocket::bind(("127.0.0.1", 0)).expect("a free port");
    let port = socket.local_addr().expect("the socket is bound").port();
    let serve = move || {
        let mut buffer = vec![0; 65_536];
        loop {
            let (count, from) = socket.recv_from(&mut buffer).expect("a datagram");
            match &buffer[..count] {
                b"end" => return,
                b"lost" => {}
                bytes => assert_eq!(socket.send_to(bytes, from).expect("it is sent"), count),
            }
        }
    };
    (port, thread::spawn(serve))
}

#[test]
fn scripts_exchange_datagrams_with_real_sockets() {
    let folder = Folder::new("datagrams");
    let script = folder.file("app.lua", SCRIPT);
    let config = format!(
        "[server]\nworkers = 1\n[[listener]]\nbind = \"127.0.0.1:0\"\n[[route]]\nlua = \"app\"\n[lua.app]\n\
         script = {script:?}\nudp = [\"127.0.0.1\"]\n"
    );
    let gate = Gate::start(&folder, &config);
    let (port, server) = echo();
    let get = |kind: &str| run_well(curl().arg(gate.url(&format!("/{kind}?port={port}"))));
    assert_eq!(get("echo"), "hello");
    assert_eq!(get("most"), "65507");
    assert_eq!(get("long"), "error: a datagram has up to 65507 bytes");
    assert_eq!(get("lost"), "error: timeout");
    assert_eq!(get("elsewhere"), "error: the address is not among `udp` of the application");
    let end = UdpSocket::bind(("127.0.0.1", 0)).expect("a free port");
    end.send_to(b"end", ("127.0.0.1", port)).expect("it is sent");
    server.join().expect("the server ends");
    // Nothing receives at the port any more.
    assert_eq!(get("echo"), "error: connection refused");
    gate.terminate();
    assert!(gate.wait().0.success());
}
