//! HAProxy terminates TLS in front of Tidegate and reports it by the TLS extension of the PROXY protocol or by
//! X-Forwarded-Proto.
//! In: curl over TLS and plain HTTP, with and without a certificate. Out: redirects, HSTS and forwarded fields.

use std::net::SocketAddr;

use crate::gate::Gate;
use crate::origins::Script;
use crate::process::{Folder, Process, free_address, run_well};
use crate::proxy_protocol::{haproxy, make_certificate, openssl};
use crate::requests::curl;

/// HAProxy with a TLS and a plain listener for the same server.
struct Front {
    _process: Process,
    secure: SocketAddr,
    plain: SocketAddr,
    authority: String,
}

impl Front {
    /// `mode` is the mode of HAProxy, `server` the arguments of its server line, `frontend` additional lines.
    fn start(folder: &Folder, mode: &str, frontend: &str, server: &str) -> Self {
        let (secure, plain) = (free_address(), free_address());
        let (both, authority) = (folder.join("both.pem"), folder.join("ca.pem"));
        // Accept certificates of unknown authorities too: HAProxy reports them as not verified.
        let process = haproxy(
            folder,
            secure,
            &format!(
                "frontend front\n  mode {mode}\n  bind {plain}\n\
                 \x20 bind {secure} ssl crt {both} ca-file {authority} verify optional \
                 ca-ignore-err all crt-ignore-err all\n{frontend}\
                 \x20 default_backend gate\nbackend gate\n  mode {mode}\n  server gate {server}\n"
            ),
        );
        Self { _process: process, secure, plain, authority }
    }

    /// The head and body of the response, in lower case.
    fn get_secure(&self, arguments: &[&str]) -> String {
        let port = self.secure.port();
        let to = format!("localhost:{port}:{}:{port}", self.secure.ip());
        let url = format!("https://localhost:{port}/head");
        let mut command = curl();
        command.args(["--include", "--cacert", &self.authority, "--connect-to", &to]);
        run_well(command.args(arguments).arg(url)).to_lowercase()
    }

    fn get_plain(&self) -> String {
        let url = format!("http://{}/head", self.plain);
        run_well(curl().args(["--include", &url])).to_lowercase()
    }
}

/// Makes client certificates and their keys: `bob`, issued by the authority in `ca.pem`, and `eve`, self-signed.
pub fn make_clients(folder: &Folder) {
    let curve = "-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes";
    openssl(folder, &format!("req {curve} -subj /O=Example/CN=bob -keyout bob.key -out bob.csr"));
    // An extension makes it a certificate of version 3 (RFC 5280 section 4.1.2.1).
    folder.file("clients.cnf", "extendedKeyUsage = clientAuth\n");
    openssl(
        folder,
        "x509 -req -in bob.csr -CA ca.pem -CAkey ca.key -set_serial 14 -days 2 \
         -extfile clients.cnf -out bob.pem",
    );
    openssl(
        folder,
        &format!("req -x509 {curve} -days 2 -subj /CN=eve -keyout eve.key -out eve.pem"),
    );
}

/// A plain listener that redirects plain HTTP to https.
fn gate_behind(folder: &Folder, origin: &Script, front: &str) -> Gate {
    Gate::start(
        folder,
        &format!(
            "[[listener]]\nbind = \"127.0.0.1:0\"\nredirect-to-https = true\nhsts = \"9s\"\n{front}\n\
             [[route]]\nproxy = \"app\"\n[pool.app]\nservers = [\"{}\"]\n",
            origin.address
        ),
    )
}

const HSTS: &str = "strict-transport-security: max-age=9\r\n";

fn assert_served_by_https(response: &str) {
    assert!(response.starts_with("http/1.1 200 ") && response.contains(HSTS), "{response}");
    assert!(response.contains("\nx-forwarded-proto: https\n"), "{response}");
    assert!(
        response.contains("\nforwarded: for=") && response.contains(";proto=https\n"),
        "{response}"
    );
}

fn assert_redirected(response: &str) {
    assert!(response.starts_with("http/1.1 301 "), "{response}");
    assert!(response.contains("\r\nlocation: https://"), "{response}");
    assert!(!response.contains("strict-transport-security"), "{response}");
}

#[test]
fn haproxy_reports_https_clients_by_proxy_protocol() {
    let folder = Folder::new("front-reports");
    make_certificate(&folder);
    let origin = Script::origin(&folder);
    let accepts = "proxy-protocol = { from = [\"127.0.0.0/8\"] }";
    let gate = gate_behind(&folder, &origin, accepts);
    for mode in ["tcp", "http"] {
        for sends in ["send-proxy-v2-ssl", "send-proxy-v2-ssl-cn"] {
            let server = format!("{} {sends}", gate.address());
            let front = Front::start(&folder, mode, "", &server);
            let response = front.get_secure(&[]);
            assert_served_by_https(&response);
            assert!(!response.contains("x-client-cert"), "{response}");
            assert_redirected(&front.get_plain());
        }
    }
    // Without the TLS extension the client counts as plain HTTP.
    for sends in ["send-proxy", "send-proxy-v2"] {
        let server = format!("{} {sends}", gate.address());
        let front = Front::start(&folder, "tcp", "", &server);
        assert_redirected(&front.get_secure(&[]));
        assert_redirected(&front.get_plain());
    }
}

#[test]
fn haproxy_reports_the_name_of_a_verified_client_certificate() {
    let folder = Folder::new("front-names");
    make_certificate(&folder);
    make_clients(&folder);
    let origin = Script::origin(&folder);
    let accepts = "proxy-protocol = { from = [\"127.0.0.0/8\"] }";
    let gate = gate_behind(&folder, &origin, accepts);
    for (sends, name, fields) in [
        ("send-proxy-v2-ssl-cn", "bob", "\nx-client-cert-cn: bob\n"),
        ("send-proxy-v2-ssl-cn", "eve", ""),
        ("send-proxy-v2-ssl", "bob", ""),
    ] {
        let server = format!("{} {sends}", gate.address());
        let front = Front::start(&folder, "tcp", "", &server);
        let (pem, key) = (folder.join(&format!("{name}.pem")), folder.join(&format!("{name}.key")));
        let claim = "X-Client-Cert-Cn: mallory";
        let response = front.get_secure(&["--cert", &pem, "--key", &key, "-H", claim]);
        assert_served_by_https(&response);
        assert_eq!(
            response.contains("x-client-cert-"),
            !fields.is_empty(),
            "{sends} {name}: {response}"
        );
        assert!(
            response.contains(fields) && !response.contains("mallory"),
            "{sends} {name}: {response}"
        );
    }
}

#[test]
fn certificate_of_a_proxy_is_not_taken_for_its_clients() {
    let folder = Folder::new("front-shows");
    make_certificate(&folder);
    make_clients(&folder);
    let origin = Script::origin(&folder);
    let (site, key, authority) =
        (folder.join("site.pem"), folder.join("site.key"), folder.join("ca.pem"));
    let gate = Gate::start(
        &folder,
        &format!(
            "[[listener]]\nbind = \"127.0.0.1:0\"\nproxy-protocol = {{ from = [\"127.0.0.0/8\"] }}\n\
             tls = {{ certificates = [{{ cert = \"{site}\", key = \"{key}\" }}], \
             client-auth = \"required\", client-ca = \"{authority}\" }}\n\
             [[route]]\nproxy = \"app\"\n[pool.app]\nservers = [\"{}\"]\n",
            origin.address
        ),
    );
    let server = |sends: &str| {
        format!(
            "{} {sends} ssl verify required ca-file {authority} sni str(localhost) crt {}",
            gate.address(),
            folder.join("both.pem")
        )
    };
    let front = Front::start(&folder, "http", "", &server("send-proxy-v2-ssl-cn"));
    assert!(!front.get_secure(&[]).contains("x-client-cert-"));
    let bob = ["--cert", &folder.join("bob.pem"), "--key", &folder.join("bob.key")];
    let response = front.get_secure(&bob);
    assert!(response.contains("\nx-client-cert-cn: bob\n"), "{response}");
    assert!(!response.contains("x-client-cert-subject"), "{response}");
    // Without the TLS extension, the only known TLS session is that of HAProxy itself.
    let front = Front::start(&folder, "http", "", &server("send-proxy-v2"));
    let response = front.get_secure(&bob);
    assert!(response.contains("\nx-client-cert-subject: cn=localhost\n"), "{response}");
}

#[test]
fn haproxy_reports_https_clients_by_x_forwarded_proto() {
    let folder = Folder::new("front-writes");
    make_certificate(&folder);
    let origin = Script::origin(&folder);
    let sets = "  http-request set-header X-Forwarded-Proto https if { ssl_fc }\n\
                \x20 http-request set-header X-Forwarded-Proto http if !{ ssl_fc }\n";
    let trusting = gate_behind(&folder, &origin, "trusted = [\"127.0.0.0/8\"]");
    let front = Front::start(&folder, "http", sets, &trusting.address().to_string());
    let response = front.get_secure(&[]);
    assert!(response.starts_with("http/1.1 200 ") && response.contains(HSTS), "{response}");
    assert!(response.contains("\nx-forwarded-proto: https\n"), "{response}");
    assert_redirected(&front.get_plain());
    let other = gate_behind(&folder, &origin, "trusted = [\"192.0.2.1\"]");
    let front = Front::start(&folder, "http", sets, &other.address().to_string());
    assert_redirected(&front.get_secure(&[]));
}
