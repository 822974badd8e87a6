//! Client certificates sent by curl and openssl: which route they select, and how refused ones are logged.
//! In: certificates of the configured authority and of unknown ones. Out: the response of the route, or none; log lines.

use std::io::Write as _;
use std::net::SocketAddr;
use std::process::{Output, Stdio};

use tidegate_testing::{command, start};

use crate::gate::Gate;
use crate::process::{Folder, program, run, run_well, text};
use crate::proxy_protocol::{make_certificate, openssl};
use crate::requests::curl;
use crate::tls_in_front::make_clients;

/// Issues a certificate for `name` by the test authority, in addition to those of `make_clients`.
fn make_client(folder: &Folder, name: &str, signing: &str) {
    let curve = "-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes";
    openssl(folder, &format!("req {curve} -subj /CN={name} -keyout {name}.key -out {name}.csr"));
    openssl(
        folder,
        &format!("x509 -req -in {name}.csr -CA ca.pem -CAkey ca.key {signing} -out {name}.pem"),
    );
}

/// The fingerprint in the form that openssl prints: upper case, with colons.
fn fingerprint(folder: &Folder, name: &str) -> String {
    let pem = folder.join(&format!("{name}.pem"));
    let mut command = command(program("openssl", "openssl"));
    let printed =
        run_well(command.args(["x509", "-in", &pem, "-noout", "-fingerprint", "-sha256"]));
    printed.trim().split_once('=').expect("openssl prints NAME=FINGERPRINT").1.to_owned()
}

fn ask(folder: &Folder, gate: &Gate, name: Option<&str>, arguments: &[&str]) -> Output {
    let mut command = curl();
    command.args(["--cacert", &folder.join("ca.pem")]).args(arguments);
    if let Some(name) = name {
        command.args(["--cert", &folder.join(&format!("{name}.pem"))]);
        command.args(["--key", &folder.join(&format!("{name}.key"))]);
    }
    run(command.arg(format!("https://{}/", gate.address())))
}

/// The output of openssl s_client; `arguments` may save the session to a file or resume it from one.
fn s_client(folder: &Folder, address: SocketAddr, arguments: &[&str]) -> String {
    let mut command = command(program("openssl", "openssl"));
    command
        .args(["s_client", "-connect", &address.to_string(), "-ign_eof", "-CAfile", "ca.pem"])
        .args(arguments)
        .current_dir(folder.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    let mut client = start(&mut command);
    let request = b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    client.stdin.take().expect("stdin is piped").write_all(request).expect("openssl reads stdin");
    text(&client.output().stdout)
}

fn listener(folder: &Folder, auth: &str) -> String {
    let (site, key, authority) =
        (folder.join("site.pem"), folder.join("site.key"), folder.join("ca.pem"));
    format!(
        "[[listener]]\nname = \"door\"\nbind = \"127.0.0.1:0\"\n\
         tls = {{ certificates = [{{ cert = \"{site}\", key = \"{key}\" }}], \
         client-auth = \"{auth}\", client-ca = \"{authority}\" }}\n"
    )
}

const VERSIONS: [[&str; 3]; 2] =
    [["--tlsv1.2", "--tls-max", "1.2"], ["--tlsv1.3", "--tls-max", "1.3"]];

#[test]
fn routes_select_clients_by_certificate() {
    let folder = Folder::new("certificate-routes");
    make_certificate(&folder);
    make_clients(&folder);
    for (name, serial) in [("carol", "15"), ("dan", "16")] {
        let signing = format!("-set_serial {serial} -days 2 -extfile clients.cnf");
        make_client(&folder, name, &signing);
    }
    let carols = fingerprint(&folder, "carol");
    let gate = Gate::start(
        &folder,
        &format!(
            "{}[[route]]\nclient-cert = {{ subject = [\"CN=nobody\", \"CN=bob,O=Example\"] }}\n\
             respond = {{ body = \"bob\" }}\n\
             [[route]]\nclient-cert = {{ subject = \"CN=dan\", sha256 = \"{carols}\" }}\n\
             respond = {{ body = \"never both\" }}\n\
             [[route]]\nclient-cert = {{ sha256 = [\"{carols}\"] }}\nrespond = {{ body = \"carol\" }}\n\
             [[route]]\nclient-cert = true\nrespond = {{ body = \"another\" }}\n\
             [[route]]\nclient-cert = false\nrespond = {{ status = 403, body = \"none\" }}\n",
            listener(&folder, "optional")
        ),
    );
    for version in VERSIONS {
        for (name, wanted) in [
            (Some("bob"), "bob"),
            (Some("carol"), "carol"),
            (Some("dan"), "another"),
            (None, "none"),
        ] {
            // A header field does not count as a certificate.
            let claims = ["-H", "X-Client-Cert-Subject: CN=bob,O=Example"];
            let output = ask(&folder, &gate, name, &[&version[..], &claims].concat());
            assert_eq!(text(&output.stdout), wanted, "{version:?} {name:?} {output:?}");
        }
        let output = ask(&folder, &gate, Some("eve"), &version);
        assert!(!output.status.success() && output.stdout.is_empty(), "{version:?} {output:?}");
    }
}

#[test]
fn resumed_session_does_not_replace_a_certificate() {
    let folder = Folder::new("certificate-resumed");
    make_certificate(&folder);
    make_clients(&folder);
    let (site, key) = (folder.join("site.pem"), folder.join("site.key"));
    let gate = Gate::start(
        &folder,
        &format!(
            "{}[[listener]]\nname = \"open\"\nbind = \"127.0.0.1:0\"\n\
             tls = {{ certificates = [{{ cert = \"{site}\", key = \"{key}\" }}] }}\n\
             [[route]]\nclient-cert = {{ subject = \"CN=bob,O=Example\" }}\n\
             respond = {{ body = \"it is bob\" }}\n\
             [[route]]\nrespond = {{ body = \"no certificate\" }}\n",
            listener(&folder, "optional")
        ),
    );
    let (door, open) = (gate.addresses()[0], gate.addresses()[1]);
    let bob = ["-cert", "bob.pem", "-key", "bob.key"];
    for version in ["-tls1_2", "-tls1_3"] {
        let printed =
            s_client(&folder, door, &[&[version, "-sess_out", "bobs.pem"], &bob[..]].concat());
        assert!(printed.contains("it is bob"), "{version} {printed}");
        let kept = std::path::Path::new(&folder.join("bobs.pem")).exists();
        assert!(!kept, "{version}: the listener issued a ticket");

        // The listener that requests no certificate seals its tickets with the same keys.
        s_client(&folder, open, &[version, "-sess_out", "session.pem"]);
        let resume = [version, "-sess_in", "session.pem"];
        let printed = s_client(&folder, open, &resume);
        assert!(
            printed.contains("Reused") && printed.contains("no certificate"),
            "{version} {printed}"
        );
        let printed = s_client(&folder, door, &resume);
        assert!(
            !printed.contains("Reused") && printed.contains("no certificate"),
            "{version} {printed}"
        );
        let printed = s_client(&folder, door, &[&resume[..], &bob].concat());
        assert!(
            !printed.contains("Reused") && printed.contains("it is bob"),
            "{version} {printed}"
        );
    }
}

/// The openssl CA configuration for certificates with given dates and for revocation lists.
const BOOKS: &str = "[ca]\ndefault_ca = own\n[own]\ndatabase = index.txt\nnew_certs_dir = .\n\
                     certificate = ca.pem\nprivate_key = ca.key\ndefault_md = sha256\n\
                     rand_serial = yes\ncrlnumber = crlnumber\ncrl_extensions = lists\n\
                     default_crl_days = 30\npolicy = any\n[any]\ncommonName = supplied\n\
                     [lists]\nauthorityKeyIdentifier = keyid\n";

#[test]
fn log_names_the_refused_certificate_and_the_reason() {
    let folder = Folder::new("certificate-refused");
    make_certificate(&folder);
    make_clients(&folder);
    folder.file("index.txt", "");
    folder.file("crlnumber", "01\n");
    folder.file("books.cnf", BOOKS);
    folder.file("servers.cnf", "extendedKeyUsage = serverAuth\n");
    make_client(&folder, "server", "-set_serial 21 -days 2 -extfile servers.cnf");
    make_client(&folder, "back", "-set_serial 22 -days 2 -extfile clients.cnf");
    make_client(&folder, "stranger", "-set_serial 24 -days 2");
    openssl(
        &folder,
        "x509 -req -in stranger.csr -CA eve.pem -CAkey eve.key -set_serial 25 -days 2 \
         -extfile clients.cnf -out stranger.pem",
    );
    let books = "ca -batch -config books.cnf -extfile clients.cnf";
    for (name, dates) in [
        ("old", "-startdate 20200101000000Z -enddate 20210101000000Z"),
        ("early", "-startdate 20900101000000Z -enddate 20910101000000Z"),
    ] {
        make_client(&folder, name, "-set_serial 23 -days 2 -extfile clients.cnf");
        openssl(&folder, &format!("{books} {dates} -in {name}.csr -out {name}.pem -notext"));
    }
    openssl(&folder, "ca -config books.cnf -revoke back.pem");
    openssl(&folder, "ca -config books.cnf -gencrl -out ca.crl");
    let crl = format!("client-crl = \"{}\" }}\n", folder.join("ca.crl"));
    let listener = listener(&folder, "required").replace(" }\n", &format!(", {crl}"));
    let config = format!("[server]\nworkers = 1\n{listener}[[route]]\nrespond = {{}}\n");
    for (name, why) in [
        (Some("old"), "the peer's certificate has expired"),
        (Some("early"), "the peer's certificate is not valid yet"),
        (Some("stranger"), "the issuer of the peer's certificate is not trusted"),
        (Some("back"), "the peer's certificate has been revoked"),
        (Some("server"), "the peer's certificate is for another purpose"),
        (None, "the peer presented no certificate"),
    ] {
        // At most one line a second is logged, so each case starts its own process.
        let gate = Gate::start(&folder, &config);
        let output = ask(&folder, &gate, name, &[]);
        assert!(!output.status.success(), "{name:?} {output:?}");
        assert!(ask(&folder, &gate, Some("bob"), &[]).status.success(), "{name:?}");
        gate.terminate();
        let (_, log) = gate.wait();
        let shown = name.map_or(String::new(), |name| {
            let fingerprint = fingerprint(&folder, name).replace(':', "").to_lowercase();
            format!(": subject \"CN={name}\", SHA-256 {fingerprint}")
        });
        let lines: Vec<&str> = log.lines().filter(|line| line.contains("peer")).collect();
        let [line] = lines[..] else { panic!("{name:?}: {log}") };
        assert!(line.contains("Z warning listener door: client 127.0.0.1:"), "{line}");
        assert!(line.ends_with(&format!(": {why}{shown}")), "{name:?}: {line}");
    }
}

#[test]
fn access_log_names_the_subjects_of_certificates() {
    let folder = Folder::new("certificate-log");
    make_certificate(&folder);
    make_clients(&folder);
    let path = folder.join("access.log");
    let gate = Gate::start(
        &folder,
        &format!(
            "{}[[route]]\nrespond = {{}}\n\
             [log]\naccess = {{ to = \"file:{path}\", client-certificate = true }}\n",
            listener(&folder, "optional")
        ),
    );
    for (name, arguments) in
        [(Some("bob"), ["--http1.1"]), (Some("bob"), ["--http2"]), (None, ["--http2"])]
    {
        ask(&folder, &gate, name, &arguments);
    }
    let begin = std::time::Instant::now();
    let lines = loop {
        let lines = std::fs::read_to_string(&path).unwrap_or_default();
        if lines.lines().count() == 3 {
            break lines;
        }
        assert!(begin.elapsed().as_secs() < 60, "{lines}");
        std::thread::sleep(std::time::Duration::from_millis(20));
    };
    for line in lines.lines() {
        let line: serde_json::Value = serde_json::from_str(line).expect("a line is JSON");
        let subject = line.get("client_certificate").and_then(|subject| subject.as_str());
        assert!(matches!(subject, None | Some("CN=bob,O=Example")), "{line}");
    }
    assert_eq!(lines.matches("\"client_certificate\":\"CN=bob,O=Example\"").count(), 2, "{lines}");
}
