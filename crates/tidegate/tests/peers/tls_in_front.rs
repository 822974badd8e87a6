//! Proxies of other people that end TLS in front, and say so: HAProxy by the PROXY protocol's TLS extension, and
//! by X-Forwarded-Proto.
//! In: curl over TLS and in plain, with and without a certificate. Out: what Tidegate makes of it.

use std::net::SocketAddr;

use crate::gate::Gate;
use crate::origins::Script;
use crate::process::{Folder, Process, free_address, run_well};
use crate::proxy_protocol::{haproxy, make_certificate, openssl};
use crate::requests::curl;

/// HAProxy with a listener over TLS and one in plain before the same server.
struct Front {
    _process: Process,
    secure: SocketAddr,
    plain: SocketAddr,
    authority: String,
}

impl Front {
    /// `mode` is that of its proxies; `server` says where and how it passes on, `frontend` what else it does.
    fn start(folder: &Folder, mode: &str, frontend: &str, server: &str) -> Self {
        let (secure, plain) = (free_address(), free_address());
        let (both, authority) = (folder.join("both.pem"), folder.join("ca.pem"));
        // It lets clients with certificates of others in, to say of them that they are not verified.
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

    /// The answer's head and body in lower case.
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

/// Certificates of clients: `bob` of the authority in `ca.pem`, `eve` of nobody's, each with its key.
pub fn make_clients(folder: &Folder) {
    let curve = "-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes";
    openssl(folder, &format!("req {curve} -subj /O=Example/CN=bob -keyout bob.key -out bob.csr"));
    // An extension makes it one of version 3 (RFC 5280 section 4.1.2.1).
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

/// A plain listener that is to be reached by https alone.
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

fn assert_served_by_https(said: &str) {
    assert!(said.starts_with("http/1.1 200 ") && said.contains(HSTS), "{said}");
    assert!(said.contains("\nx-forwarded-proto: https\n"), "{said}");
    assert!(said.contains("\nforwarded: for=") && said.contains(";proto=https\n"), "{said}");
}

fn assert_redirected(said: &str) {
    assert!(said.starts_with("http/1.1 301 "), "{said}");
    assert!(said.contains("\r\nlocation: https://"), "{said}");
    assert!(!said.contains("strict-transport-security"), "{said}");
}

#[test]
fn haproxy_says_by_the_proxy_protocol_which_clients_come_by_https() {
    let folder = Folder::new("front-tells");
    make_certificate(&folder);
    let origin = Script::origin(&folder);
    let told = "proxy-protocol = { from = [\"127.0.0.0/8\"] }";
    let gate = gate_behind(&folder, &origin, told);
    for mode in ["tcp", "http"] {
        for sends in ["send-proxy-v2-ssl", "send-proxy-v2-ssl-cn"] {
            let server = format!("{} {sends}", gate.address());
            let front = Front::start(&folder, mode, "", &server);
            let said = front.get_secure(&[]);
            assert_served_by_https(&said);
            assert!(!said.contains("x-client-cert"), "{said}");
            assert_redirected(&front.get_plain());
        }
    }
    // Who does not say so is not taken to mean it.
    for sends in ["send-proxy", "send-proxy-v2"] {
        let server = format!("{} {sends}", gate.address());
        let front = Front::start(&folder, "tcp", "", &server);
        assert_redirected(&front.get_secure(&[]));
        assert_redirected(&front.get_plain());
    }
}

#[test]
fn haproxy_names_the_client_whose_certificate_it_has_verified() {
    let folder = Folder::new("front-names");
    make_certificate(&folder);
    make_clients(&folder);
    let origin = Script::origin(&folder);
    let told = "proxy-protocol = { from = [\"127.0.0.0/8\"] }";
    let gate = gate_behind(&folder, &origin, told);
    for (sends, name, fields) in [
        ("send-proxy-v2-ssl-cn", "bob", "\nx-client-cert-cn: bob\n"),
        ("send-proxy-v2-ssl-cn", "eve", ""),
        ("send-proxy-v2-ssl", "bob", ""),
    ] {
        let server = format!("{} {sends}", gate.address());
        let front = Front::start(&folder, "tcp", "", &server);
        let (pem, key) = (folder.join(&format!("{name}.pem")), folder.join(&format!("{name}.key")));
        let claim = "X-Client-Cert-Cn: mallory";
        let said = front.get_secure(&["--cert", &pem, "--key", &key, "-H", claim]);
        assert_served_by_https(&said);
        assert_eq!(said.contains("x-client-cert-"), !fields.is_empty(), "{sends} {name}: {said}");
        assert!(said.contains(fields) && !said.contains("mallory"), "{sends} {name}: {said}");
    }
}

#[test]
fn the_certificate_of_a_proxy_is_not_its_clients() {
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
    let said = front.get_secure(&bob);
    assert!(said.contains("\nx-client-cert-cn: bob\n"), "{said}");
    assert!(!said.contains("x-client-cert-subject"), "{said}");
    // Without a word of the client's TLS, the session here is the only one that is known.
    let front = Front::start(&folder, "http", "", &server("send-proxy-v2"));
    let said = front.get_secure(&bob);
    assert!(said.contains("\nx-client-cert-subject: cn=localhost\n"), "{said}");
}

#[test]
fn haproxy_says_by_a_field_which_clients_come_by_https() {
    let folder = Folder::new("front-writes");
    make_certificate(&folder);
    let origin = Script::origin(&folder);
    let sets = "  http-request set-header X-Forwarded-Proto https if { ssl_fc }\n\
                \x20 http-request set-header X-Forwarded-Proto http if !{ ssl_fc }\n";
    let trusting = gate_behind(&folder, &origin, "trusted = [\"127.0.0.0/8\"]");
    let front = Front::start(&folder, "http", sets, &trusting.address().to_string());
    let said = front.get_secure(&[]);
    assert!(said.starts_with("http/1.1 200 ") && said.contains(HSTS), "{said}");
    assert!(said.contains("\nx-forwarded-proto: https\n"), "{said}");
    assert_redirected(&front.get_plain());
    let other = gate_behind(&folder, &origin, "trusted = [\"192.0.2.1\"]");
    let front = Front::start(&folder, "http", sets, &other.address().to_string());
    assert_redirected(&front.get_secure(&[]));
}
