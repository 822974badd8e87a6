//! The PROXY protocol with HAProxy, nginx and curl, as senders and as receivers, with and without TLS.
//! In: a client with its own loopback address. Out: the last server sees that address through all hops.

use std::net::SocketAddr;

use tidegate_testing::command;

use crate::gate::Gate;
use crate::origins::Script;
use crate::process::{Folder, Process, free_address, program, run, run_well, text};
use crate::requests::curl;

/// The address of the client; no proxy connects from it.
const CLIENT: &str = "127.77.0.9";

/// Makes an authority in `ca.pem`, and a certificate by it for `localhost` and 127.0.0.1 with serial number 13 in
/// `site.pem`, its key in `site.key`, and both in `both.pem`.
pub fn make_certificate(folder: &Folder) {
    let curve = "-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes";
    folder.file("names.cnf", "subjectAltName = DNS:localhost, IP:127.0.0.1\n");
    openssl(folder, &format!("req -x509 {curve} -days 2 -subj /CN=CA -keyout ca.key -out ca.pem"));
    openssl(folder, &format!("req {curve} -subj /CN=localhost -keyout site.key -out site.csr"));
    openssl(
        folder,
        "x509 -req -in site.csr -CA ca.pem -CAkey ca.key -set_serial 13 -days 2 \
         -extfile names.cnf -out site.pem",
    );
    let read =
        |name: &str| std::fs::read_to_string(folder.join(name)).expect("openssl wrote the file");
    folder.file("both.pem", read("site.pem") + &read("site.key"));
}

/// Runs openssl in the folder.
pub fn openssl(folder: &Folder, arguments: &str) {
    let mut command = command(program("openssl", "openssl"));
    run_well(command.args(arguments.split_whitespace()).current_dir(folder.path()));
}

/// Starts HAProxy with these proxy sections, which listen on `bind`.
pub fn haproxy(folder: &Folder, bind: SocketAddr, proxies: &str) -> Process {
    let config = format!(
        "global\n  nbthread 1\ndefaults\n  mode http\n  timeout connect 5s\n  timeout client 60s\n\
         \x20 timeout server 60s\n{proxies}"
    );
    let file = folder.file(&format!("haproxy-{}.cfg", bind.ip()), config);
    let mut command = command(program("haproxy", "haproxy"));
    let mut process = Process::spawn(command.args(["-db", "-q", "-f", &file]));
    process.wait_for_listener(bind);
    process
}

/// A gate with a plain and a TLS listener that require a PROXY header from loopback addresses.
fn gate_with_proxy_protocol(folder: &Folder, server: &str) -> Gate {
    let listener = |name: &str, more: &str| {
        format!(
            "[[listener]]\nname = \"{name}\"\nbind = \"127.0.0.1:0\"\n{more}\
             proxy-protocol = {{ from = [\"127.0.0.0/8\"] }}\n"
        )
    };
    let tls = format!(
        "tls = {{ certificates = [{{ cert = \"{}\", key = \"{}\" }}] }}\n",
        folder.join("site.pem"),
        folder.join("site.key")
    );
    let text = listener("plain", "") + &listener("tls", &tls);
    Gate::start(
        folder,
        &format!("{text}[[route]]\nproxy = \"app\"\n[pool.app]\nservers = [\"{server}\"]\n"),
    )
}

fn get(arguments: &[&str], url: &str) -> String {
    run_well(curl().args(["--interface", CLIENT]).args(arguments).arg(url)).to_lowercase()
}

#[test]
fn haproxy_sends_the_client_address_in_both_versions_and_before_tls() {
    let folder = Folder::new("proxied-front");
    make_certificate(&folder);
    let origin = Script::origin(&folder);
    let gate = gate_with_proxy_protocol(&folder, &origin.address.to_string());
    let authority = folder.join("ca.pem");
    for (sends, checks) in [("send-proxy", "check"), ("send-proxy-v2", "check")] {
        let (plain, tls) = (free_address(), free_address());
        // The health checks of HAProxy send LOCAL (or UNKNOWN) and no request.
        let _front = haproxy(
            &folder,
            plain,
            &format!(
                "listen plain\n  mode tcp\n  bind {plain}\n  server gate {} {sends} {checks} inter 100ms\n\
                 listen tls\n  mode tcp\n  bind {tls}\n  server gate {} {sends} {checks} inter 100ms\n",
                gate.address(),
                gate.addresses()[1],
            ),
        );
        let seen = get(&[], &format!("http://{plain}/head"));
        assert!(seen.contains(&format!("x-forwarded-for: {CLIENT}\n")), "{sends}: {seen}");
        let port = tls.port();
        let to = format!("localhost:{port}:{}:{port}", tls.ip());
        let arguments = ["--cacert", &authority, "--connect-to", &to];
        let seen = get(&arguments, &format!("https://localhost:{port}/head"));
        assert!(seen.contains(&format!("x-forwarded-for: {CLIENT}\n")), "{sends}: {seen}");
        assert!(seen.contains("x-forwarded-proto: https"), "{sends}: {seen}");
    }
}

#[test]
fn curl_sends_its_address_and_connections_without_a_header_are_closed() {
    let folder = Folder::new("proxied-curl");
    make_certificate(&folder);
    let origin = Script::origin(&folder);
    let gate = gate_with_proxy_protocol(&folder, &origin.address.to_string());
    let seen = get(&["--haproxy-protocol"], &gate.url("/head"));
    assert!(seen.contains(&format!("x-forwarded-for: {CLIENT}\n")), "{seen}");
    let authority = folder.join("ca.pem");
    let secure = format!("https://127.0.0.1:{}/head", gate.addresses()[1].port());
    let seen = get(&["--haproxy-protocol", "--cacert", &authority], &secure);
    assert!(seen.contains(&format!("x-forwarded-for: {CLIENT}\n")), "{seen}");
    for url in [gate.url("/head"), secure] {
        let output = run(curl().args(["--cacert", &authority, &url]));
        assert!(!output.status.success() && output.stdout.is_empty(), "{}", text(&output.stdout));
    }
}

/// A gate whose pool has the settings `pool`, with a plain and a TLS listener.
fn gate_with_pool(folder: &Folder, pool: &str) -> Gate {
    let tls = format!(
        "tls = {{ certificates = [{{ cert = \"{}\", key = \"{}\" }}] }}\n",
        folder.join("site.pem"),
        folder.join("site.key")
    );
    Gate::start(
        folder,
        &format!(
            "[[listener]]\nname = \"plain\"\nbind = \"127.0.0.1:0\"\n\
             [[listener]]\nname = \"tls\"\nbind = \"127.0.0.1:0\"\n{tls}\
             [[route]]\nproxy = \"app\"\n[pool.app]\n{pool}\n"
        ),
    )
}

#[test]
fn haproxy_and_nginx_servers_receive_the_client_address() {
    let folder = Folder::new("proxied-behind");
    make_certificate(&folder);
    let (both, authority) = (folder.join("both.pem"), folder.join("ca.pem"));
    let (plain, secure) = (free_address(), free_address());
    let answer = "  http-request return status 200 content-type text/plain lf-string \
                  \"%[src] %[dst_port] <%[fc_pp_authority]>\"\n";
    let _haproxy = haproxy(
        &folder,
        plain,
        &format!(
            "frontend plain\n  bind {plain} accept-proxy\n{answer}\
             frontend secure\n  bind {secure} accept-proxy ssl crt {both}\n{answer}"
        ),
    );
    let nginx = free_address();
    let _nginx = nginx_with_proxy_protocol(&folder, nginx);
    let trust = format!("tls = {{ ca = \"{authority}\", server-name = \"localhost\" }}");
    for version in ["v1", "v2"] {
        for (server, more) in [(plain, ""), (secure, trust.as_str()), (nginx, "")] {
            let version_setting = format!("proxy-protocol = \"{version}\"");
            let gate = gate_with_pool(
                &folder,
                &format!("servers = [\"{server}\"]\n{version_setting}\n{more}"),
            );
            let port = gate.address().port();
            let seen = get(&[], &gate.url("/"));
            assert_eq!(seen.trim_end(), format!("{CLIENT} {port} <>"), "{version} {server}");
            let port = gate.addresses()[1].port();
            let to = format!("localhost:{port}:127.0.0.1:{port}");
            let arguments = ["--cacert", &authority, "--connect-to", &to];
            let seen = get(&arguments, &format!("https://localhost:{port}/"));
            let name = if version == "v2" && server != nginx { "localhost" } else { "" };
            assert_eq!(seen.trim_end(), format!("{CLIENT} {port} <{name}>"), "{version} {server}");
        }
    }
}

/// nginx that answers with the client address of the PROXY header.
fn nginx_with_proxy_protocol(folder: &Folder, address: SocketAddr) -> Process {
    let home = folder.path().display();
    let config = format!(
        "daemon off;\nmaster_process off;\npid {home}/nginx-proxied.pid;\nevents {{}}\nhttp {{\n\
         access_log off;\nclient_body_temp_path {home}/b;\nproxy_temp_path {home}/p;\n\
         fastcgi_temp_path {home}/f;\nuwsgi_temp_path {home}/u;\nscgi_temp_path {home}/s;\n\
         server {{\nlisten {address} proxy_protocol;\ndefault_type text/plain;\n\
         return 200 \"$proxy_protocol_addr $proxy_protocol_server_port <>\";\n}}\n}}\n"
    );
    let file = folder.file("nginx-proxied.conf", config);
    let mut command = command(program("nginx", "nginx-light"));
    command.args(["-e", &folder.join("nginx-proxied-error.log"), "-c", &file]);
    let mut process = Process::spawn(&mut command);
    process.wait_for_listener(address);
    process
}

#[test]
fn haproxy_terminates_tls_and_sends_the_client_address_over_its_own_tls() {
    let folder = Folder::new("proxied-again");
    make_certificate(&folder);
    let origin = Script::origin(&folder);
    let gate = gate_with_proxy_protocol(&folder, &origin.address.to_string());
    let front = free_address();
    let (both, authority) = (folder.join("both.pem"), folder.join("ca.pem"));
    let _front = haproxy(
        &folder,
        front,
        &format!(
            "frontend web\n  bind {front} ssl crt {both}\n  default_backend gate\n\
             backend gate\n  server gate {} send-proxy-v2-ssl-cn proxy-v2-options authority,crc32c \
             ssl verify required ca-file {authority} sni str(localhost)\n",
            gate.addresses()[1]
        ),
    );
    let port = front.port();
    let to = format!("localhost:{port}:{}:{port}", front.ip());
    let arguments = ["--cacert", &authority, "--connect-to", &to];
    let seen = get(&arguments, &format!("https://localhost:{port}/head"));
    assert!(seen.contains(&format!("x-forwarded-for: {CLIENT}\n")), "{seen}");
}

#[test]
fn nginx_sends_the_client_address_before_tls() {
    let folder = Folder::new("proxied-nginx");
    make_certificate(&folder);
    let origin = Script::origin(&folder);
    let gate = gate_with_proxy_protocol(&folder, &origin.address.to_string());
    let (plain, secure) = (free_address(), free_address());
    let module = "/usr/lib/nginx/modules/ngx_stream_module.so";
    assert!(std::path::Path::new(module).exists(), "apt-get install libnginx-mod-stream");
    let home = folder.path().display();
    let server = |listen: SocketAddr, to: SocketAddr| {
        format!("server {{ listen {listen}; proxy_pass {to}; proxy_protocol on; }}\n")
    };
    let config = format!(
        "load_module {module};\ndaemon off;\nmaster_process off;\npid {home}/nginx-front.pid;\n\
         events {{}}\nstream {{\n{}{}}}\n",
        server(plain, gate.address()),
        server(secure, gate.addresses()[1])
    );
    let file = folder.file("nginx-front.conf", config);
    let mut command = command(program("nginx", "nginx-light"));
    command.args(["-e", &folder.join("nginx-front-error.log"), "-c", &file]);
    let mut front = Process::spawn(&mut command);
    front.wait_for_listener(plain);
    let seen = get(&[], &format!("http://{plain}/head"));
    assert!(seen.contains(&format!("x-forwarded-for: {CLIENT}\n")), "{seen}");
    let (port, authority) = (secure.port(), folder.join("ca.pem"));
    let to = format!("localhost:{port}:{}:{port}", secure.ip());
    let arguments = ["--cacert", &authority, "--connect-to", &to];
    let seen = get(&arguments, &format!("https://localhost:{port}/head"));
    assert!(seen.contains(&format!("x-forwarded-for: {CLIENT}\n")), "{seen}");
    assert!(seen.contains("x-forwarded-proto: https"), "{seen}");
}
