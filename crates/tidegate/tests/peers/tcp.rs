//! TCP mode with foreign clients and servers: TLS by server name without decrypting it, mail (the server speaks first),
//! TLS in front of a plain server, the PROXY protocol.
//! In: curl, openssl and smtplib against HAProxy and a mail server. Out: what they would see without Tidegate.

use std::net::SocketAddr;

use tidegate_testing::command;

use crate::cookbook::start_mirror;
use crate::gate::Gate;
use crate::origins::{Script, python};
use crate::process::{Folder, Process, free_address, program, run, run_well, text};
use crate::proxy_protocol::{haproxy, make_certificate};
use crate::requests::curl;

/// The address of the client; no proxy connects from it.
const CLIENT: &str = "127.77.0.19";

/// HAProxy with a TLS server that answers with its name, the client's address and the requested server name.
fn tls_server(folder: &Folder, name: &str, options: &str) -> (Process, SocketAddr) {
    let (address, both) = (free_address(), folder.join("both.pem"));
    let answer = format!("\"{name} %[src] <%[ssl_fc_sni]>\"");
    let frontend = format!(
        "frontend {name}\n  bind {address} {options} ssl crt {both} alpn h2,http/1.1\n\
         \x20 http-request return status 200 content-type text/plain lf-string {answer}\n"
    );
    (haproxy(folder, address, &frontend), address)
}

/// What curl gets from `https://HOST/` at this address.
fn get(folder: &Folder, gate: SocketAddr, host: &str) -> String {
    let port = gate.port();
    let to = format!("{host}:{port}:{}:{port}", gate.ip());
    let authority = folder.join("ca.pem");
    let mut command = curl();
    command.args(["--interface", CLIENT, "--connect-to", &to]);
    // The certificate is for localhost only; whether it is verified is the client's matter.
    match host {
        "localhost" => command.args(["--cacert", &authority]),
        _ => command.arg("--insecure"),
    };
    run_well(command.arg(format!("https://{host}:{port}/")))
}

#[test]
fn tls_connections_reach_the_server_of_their_name() {
    let folder = Folder::new("tcp-names");
    make_certificate(&folder);
    let (_one, one) = tls_server(&folder, "one", "");
    let (_two, two) = tls_server(&folder, "two", "accept-proxy");
    let gate = Gate::start(
        &folder,
        &format!(
            "[[listener]]\nbind = \"127.0.0.1:0\"\n\
             forward = {{ sni = {{ \"localhost\" = \"one\", \"*.b.example\" = \"two\" }} }}\n\
             [pool.one]\nservers = [\"{one}\"]\n\
             [pool.two]\nservers = [\"{two}\"]\nproxy-protocol = \"v2\"\n"
        ),
    );
    let address = gate.address();
    // The certificate and HTTP/2 are the server's: Tidegate has neither here.
    let seen = get(&folder, address, "localhost");
    assert!(seen.starts_with("one 127.") && seen.ends_with("<localhost>"), "{seen}");
    assert_eq!(
        get(&folder, address, "deep.A.b.example"),
        format!("two {CLIENT} <deep.a.b.example>")
    );
    let other = format!("https://other.example:{}/", address.port());
    let to = format!("other.example:{0}:127.0.0.1:{0}", address.port());
    let refused = run(curl().args(["--insecure", "--connect-to", &to, &other]));
    assert!(!refused.status.success(), "{}", text(&refused.stdout));
    // openssl verifies the chain of the server behind.
    let mut command = command(program("openssl", "openssl"));
    command.args(["s_client", "-connect", &address.to_string(), "-servername", "localhost"]);
    command.args(["-CAfile", &folder.join("ca.pem"), "-verify_return_error", "-alpn", "h2"]);
    let printed = run_well(command.stdin(std::process::Stdio::null()));
    assert!(printed.contains("Verification: OK"), "{printed}");
    assert!(printed.contains("ALPN protocol: h2"), "{printed}");
}

#[test]
fn smtp_session_passes_with_and_without_tls_in_front() {
    let folder = Folder::new("tcp-mail");
    make_certificate(&folder);
    let server = Script::mail(&folder);
    let gate = Gate::start(
        &folder,
        &format!(
            "[[listener]]\nname = \"plain\"\nbind = \"127.0.0.1:0\"\nforward = \"mail\"\n\
             [[listener]]\nname = \"secured\"\nbind = \"127.0.0.1:0\"\nforward = \"mail\"\n\
             tls = {{ certificates = [{{ cert = \"{}\", key = \"{}\" }}] }}\n\
             [pool.mail]\nservers = [\"{}\", \"{}\"]\n",
            folder.join("site.pem"),
            folder.join("site.key"),
            free_address(),
            server.address
        ),
    );
    let script = folder.file("client.py", include_str!("mail_client.py"));
    let authority = folder.join("ca.pem");
    for (at, more) in [(0, None), (1, Some(authority.as_str()))] {
        let address = gate.addresses()[at];
        let mut client = python();
        client.args([&script, "localhost", &address.port().to_string(), "500000"]).args(more);
        assert_eq!(run_well(&mut client).trim(), "500000 bytes", "listener {at}");
    }
}

#[test]
fn server_whose_checks_fail_gets_no_connections() {
    let folder = Folder::new("tcp-health");
    let (admin, absent, server) = (free_address(), free_address(), start_mirror("one"));
    let gate = Gate::start(
        &folder,
        &format!(
            "[admin]\nbind = \"{admin}\"\n[[listener]]\nbind = \"127.0.0.1:0\"\nforward = \"app\"\n\
             [pool.app]\nservers = [\"{absent}\", \"{server}\"]\nbalance = \"round-robin\"\nretries = 0\n\
             health = {{ tcp = true, every = \"200ms\", timeout = \"5s\" }}\n"
        ),
    );
    let mut ctl = command(env!("CARGO_BIN_EXE_tidegate"));
    ctl.args(["ctl", "--at", &admin.to_string(), "wait", "60s", "server"]);
    run_well(ctl.args([&format!("app/{absent}"), "down"]));
    for _ in 0..4 {
        // Each has a connection of its own, and would fail at the other server.
        assert!(run_well(curl().arg(gate.url("/"))).contains("served by one"));
    }
}

#[test]
fn tls_in_front_negotiates_no_protocol_and_adds_no_field() {
    let folder = Folder::new("tcp-tls");
    make_certificate(&folder);
    let origin = Script::origin(&folder);
    let gate = Gate::start(
        &folder,
        &format!(
            "[[listener]]\nbind = \"127.0.0.1:0\"\nforward = \"app\"\n\
             tls = {{ certificates = [{{ cert = \"{}\", key = \"{}\" }}] }}\n\
             [pool.app]\nservers = [\"{}\"]\n",
            folder.join("site.pem"),
            folder.join("site.key"),
            origin.address
        ),
    );
    let port = gate.address().port();
    let to = format!("localhost:{port}:127.0.0.1:{port}");
    let mut command = curl();
    command.args(["--cacert", &folder.join("ca.pem"), "--connect-to", &to]);
    let seen = run_well(command.arg(format!("https://localhost:{port}/head"))).to_lowercase();
    assert!(seen.contains("user-agent: curl/"), "{seen}");
    assert!(!seen.contains("x-forwarded") && !seen.contains("via:"), "{seen}");
}
