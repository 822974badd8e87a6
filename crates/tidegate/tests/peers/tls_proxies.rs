//! HAProxy and nginx as TLS servers, nginx as a TLS proxy in front, certificates revoked while Tidegate runs.
//! In: certificates made by openssl. Out: a response if the certificate verifies, 502 if it does not.

use std::net::SocketAddr;

use tidegate_testing::command;

use crate::gate::Gate;
use crate::origins::Script;
use crate::process::{Folder, Process, free_address, program, run_well};
use crate::proxy_protocol::{haproxy, make_certificate, openssl};
use crate::requests::curl;

/// Starts nginx with TLS. The log format `connections` states the number of the connection and the path.
pub fn nginx(folder: &Folder, address: SocketAddr, server: &str) -> Process {
    let home = folder.path().display();
    let config = format!(
        "daemon off;\nmaster_process off;\npid {home}/nginx-tls.pid;\nevents {{}}\nhttp {{\n\
         access_log off;\nlog_format connections \"$connection $uri\";\nclient_body_temp_path {home}/b;\nproxy_temp_path {home}/p;\n\
         fastcgi_temp_path {home}/f;\nuwsgi_temp_path {home}/u;\nscgi_temp_path {home}/s;\n\
         server {{\nlisten {address} ssl;\nssl_certificate {home}/site.pem;\n\
         ssl_certificate_key {home}/site.key;\n{server}}}\n}}\n"
    );
    let file = folder.file("nginx-tls.conf", config);
    let mut command = command(program("nginx", "nginx-light"));
    command.args(["-e", &folder.join("nginx-tls-error.log"), "-c", &file]);
    let mut process = Process::spawn(&mut command);
    process.wait_for_listener(address);
    process
}

fn gate_before(folder: &Folder, server: SocketAddr, tls: &str) -> Gate {
    Gate::start(
        folder,
        &format!(
            "[[listener]]\nname = \"web\"\nbind = \"127.0.0.1:0\"\n[[route]]\nproxy = \"app\"\n\
             [pool.app]\nservers = [\"{server}\"]\nreuse = {{ idle-max = 0 }}\n\
             tls = {{ server-name = \"localhost\", {tls} }}\n"
        ),
    )
}

#[test]
fn haproxy_and_nginx_tls_servers_are_verified() {
    let folder = Folder::new("tls-servers");
    make_certificate(&folder);
    let (by_haproxy, by_nginx) = (free_address(), free_address());
    let answers = format!(
        "frontend web\n  bind {by_haproxy} ssl crt {}\n  http-request return status 200 \
         content-type text/plain lf-string \"%[ssl_fc_protocol] %[ssl_fc_sni]\"\n",
        folder.join("both.pem")
    );
    let _haproxy = haproxy(&folder, by_haproxy, &answers);
    let _nginx = nginx(&folder, by_nginx, "return 200 \"$ssl_protocol $ssl_server_name\";\n");
    for server in [by_haproxy, by_nginx] {
        let trusting = format!("ca = \"{}\"", folder.join("ca.pem"));
        let gate = gate_before(&folder, server, &trusting);
        for _ in 0..3 {
            let response = run_well(curl().arg(gate.url("/")));
            // nginx below 1.23 enables TLS 1.3 only by configuration.
            assert!(
                ["TLSv1.3 localhost", "TLSv1.2 localhost"].contains(&response.as_str()),
                "{response}"
            );
        }
        // The authorities of the system do not include the test authority.
        let gate = gate_before(&folder, server, "verify = true");
        let status = ["-o", "/dev/null", "-w", "%{http_code}"];
        assert_eq!(run_well(curl().args(status).arg(gate.url("/"))), "502", "{server}");
    }
}

#[test]
fn nginx_terminates_tls_and_verifies_tidegate() {
    let folder = Folder::new("tls-front");
    make_certificate(&folder);
    let origin = Script::origin(&folder);
    let (cert, key) = (folder.join("site.pem"), folder.join("site.key"));
    let authority = folder.join("ca.pem");
    let gate = Gate::start(
        &folder,
        &format!(
            "[[listener]]\nname = \"web\"\nbind = \"127.0.0.1:0\"\n\
             tls = {{ certificates = [{{ cert = \"{cert}\", key = \"{key}\" }}] }}\n\
             [[route]]\nproxy = \"app\"\n[pool.app]\nservers = [\"{}\"]\n",
            origin.address
        ),
    );
    let front = free_address();
    let _front = nginx(
        &folder,
        front,
        &format!(
            "location / {{\nproxy_pass https://{};\nproxy_ssl_verify on;\n\
             proxy_ssl_trusted_certificate {authority};\nproxy_ssl_name localhost;\n\
             proxy_ssl_server_name on;\nproxy_http_version 1.1;\n}}\n",
            gate.address()
        ),
    );
    let port = front.port();
    let to = format!("localhost:{port}:{}:{port}", front.ip());
    let arguments = ["--cacert", &authority, "--connect-to", &to];
    let seen = run_well(curl().args(arguments).arg(format!("https://localhost:{port}/head")));
    assert!(seen.to_lowercase().contains("x-forwarded-proto: https"), "{seen}");
}

/// Issues a certificate by the test authority with the key of `site.pem`; writes both to `NAME.both`.
fn issue(folder: &Folder, name: &str, names: &str, dates: &str) {
    folder.file("issued.cnf", format!("subjectAltName = {names}\n"));
    openssl(
        folder,
        &format!(
            "ca -batch -config issue.cnf -in site.csr -extfile issued.cnf {dates} -notext \
             -out {name}.pem"
        ),
    );
    let read =
        |name: &str| std::fs::read_to_string(folder.join(name)).expect("openssl wrote the file");
    folder.file(&format!("{name}.both"), read(&format!("{name}.pem")) + &read("site.key"));
}

#[test]
fn log_names_the_refused_server_and_the_reason() {
    let folder = Folder::new("tls-reasons");
    make_certificate(&folder);
    folder.file("index.txt", "");
    folder.file("serial", "77\n");
    folder.file(
        "issue.cnf",
        "[ca]\ndefault_ca = own\n[own]\ndatabase = index.txt\nserial = serial\nnew_certs_dir = .\n\
         certificate = ca.pem\nprivate_key = ca.key\ndefault_md = sha256\ndefault_days = 2\n\
         unique_subject = no\npolicy = any\n[any]\ncommonName = supplied\n",
    );
    let past = "-startdate 20200101000000Z -enddate 20200201000000Z";
    let future = "-startdate 20400101000000Z -enddate 20410101000000Z";
    issue(&folder, "old", "DNS:localhost", past);
    issue(&folder, "young", "DNS:localhost", future);
    issue(&folder, "other", "DNS:elsewhere.example", "");
    openssl(&folder, "req -x509 -key site.key -days 2 -subj /CN=Other -out stranger.pem");
    let bare =
        "x509 -req -in site.csr -CA ca.pem -CAkey ca.key -set_serial 9 -days 2 -out bare.pem";
    openssl(&folder, bare);
    let read =
        |name: &str| std::fs::read_to_string(folder.join(name)).expect("openssl wrote the file");
    folder.file("bare.both", read("bare.pem") + &read("site.key"));
    let trusted = folder.join("ca.pem");
    for (certificate, authority, reason) in [
        ("old", trusted.clone(), "the peer's certificate has expired"),
        ("young", trusted.clone(), "the peer's certificate is not valid yet"),
        ("other", trusted.clone(), "the peer's certificate is for another name"),
        (
            "bare",
            trusted,
            "the peer's certificate is version 1 or 2, without extensions; it must be version 3",
        ),
        (
            "both",
            folder.join("stranger.pem"),
            "the issuer of the peer's certificate is not trusted",
        ),
    ] {
        let server = free_address();
        let file = match certificate {
            "both" => folder.join("both.pem"),
            other => folder.join(&format!("{other}.both")),
        };
        let answers =
            format!("frontend web\n  bind {server} ssl crt {file}\n  http-request deny\n");
        let _haproxy = haproxy(&folder, server, &answers);
        let gate = gate_before(&folder, server, &format!("ca = \"{authority}\""));
        let response = run_well(curl().args(["--include", &gate.url("/")]));
        assert!(response.starts_with("HTTP/1.1 502 "), "{response}");
        gate.terminate();
        let (_, log) = gate.wait();
        let line = format!("pool app: server {server} as localhost: {reason}\n");
        assert!(log.contains(&line), "{certificate}: {log}");
    }
}

/// Replaces `crl.pem`; `revoked` has a line of the openssl index for each revoked certificate.
fn publish_revocations(folder: &Folder, revoked: &str) {
    folder.file("index.txt", revoked);
    openssl(folder, "ca -gencrl -config ca.cnf -keyfile ca.key -cert ca.pem -out new.crl");
    std::fs::rename(folder.join("new.crl"), folder.join("crl.pem"))
        .expect("openssl wrote the file");
}

#[test]
fn server_with_a_newly_revoked_certificate_is_refused() {
    let folder = Folder::new("tls-revoked");
    let settings = "[ca]\ndefault_ca = own\n[own]\ndatabase = index.txt\ndefault_md = sha256\n\
                    default_crl_days = 2\ncrlnumber = number\ncrl_extensions = more\n\
                    [more]\nauthorityKeyIdentifier = keyid\n";
    folder.file("number", "01\n");
    folder.file("ca.cnf", settings);
    make_certificate(&folder);
    publish_revocations(&folder, "");
    let server = free_address();
    let _nginx = nginx(&folder, server, "return 200 \"fine\";\n");
    let tls = format!("ca = \"{}\", crl = \"{}\"", folder.join("ca.pem"), folder.join("crl.pem"));
    let gate = gate_before(&folder, server, &tls);
    let status = || {
        let arguments = ["-o", "/dev/null", "-w", "%{http_code}"];
        run_well(curl().args(arguments).arg(gate.url("/")))
    };
    assert_eq!(status(), "200");
    publish_revocations(&folder, "R\t400101000000Z\t260101000000Z\t0D\tunknown\t/CN=localhost\n");
    // The old list stays in force until the change is noticed.
    let refused = (0..2000).any(|_| {
        let status = status();
        assert!(status == "200" || status == "502", "{status}");
        status == "502"
    });
    assert!(refused, "the new list was never used");
    gate.terminate();
    let (_, log) = gate.wait();
    assert!(log.contains(": the peer's certificate has been revoked\n"), "{log}");
}
