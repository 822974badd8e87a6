//! The binary with TLS against clients that share no code with it: curl and openssl s_client.
//! In: a self-signed listener on a free port. Out: the output of those clients.
//! Never: skips a test; a missing client fails the test and names its package.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};

use tidegate_testing::{Signal, Started, command, run, start};

struct Server {
    child: Started,
    port: String,
    folder: PathBuf,
}

impl Server {
    /// Starts the binary in a new folder; `name` makes the folder unique to the test.
    fn start(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("tidegate-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        Self::start_in(folder, "\"self-signed\"")
    }

    /// Starts the binary in `folder` with this value of `tls`.
    fn start_in(folder: PathBuf, tls: &str) -> Self {
        let config = "[server]\nworkers = 2\n[[listener]]\nbind = \"127.0.0.1:0\"\ntls = TLS\n\
                      [[route]]\npath = \"/json\"\nrespond = { body = \"Hello, World!\" }\n\
                      [[route]]\npath = \"/synthetic\"\nsynthetic = true\n";
        std::fs::write(folder.join("site.toml"), config.replace("TLS", tls)).unwrap();
        let mut child = start(
            command(env!("CARGO_BIN_EXE_tidegate"))
                .args(["run", "-c", "site.toml"])
                .current_dir(&folder)
                .env("STATE_DIRECTORY", &folder)
                .stderr(Stdio::piped()),
        );
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let place = lines
            .by_ref()
            .map_while(Result::ok)
            .find_map(|line| Some(line.split_once("https://127.0.0.1:")?.1.to_owned()))
            .expect("the listening address is printed");
        let port = place.split('/').next().unwrap().to_owned();
        // Keep reading stderr, so that the server never blocks on a full pipe.
        std::thread::spawn(move || lines.map_while(Result::ok).for_each(drop));
        Self { child, port, folder }
    }

    fn authority(&self) -> String {
        let own = self.folder.join("site.pem");
        let own = if own.exists() { own } else { self.folder.join("self-signed.pem") };
        own.display().to_string()
    }

    fn curl(&self, arguments: &[&str], path: &str) -> Output {
        let url = format!("https://localhost:{}{path}", self.port);
        run(command("curl")
            .args(["-sS", "--max-time", "20", "--cacert", &self.authority()])
            .args(arguments)
            .arg(url))
    }

    /// The output of openssl s_client during one request for `/json`.
    fn s_client(&self, arguments: &[&str]) -> String {
        let mut client = start(
            command("openssl")
                .args(["s_client", "-connect", &format!("127.0.0.1:{}", self.port)])
                .args(["-servername", "localhost", "-ign_eof", "-CAfile", &self.authority()])
                .args(arguments)
                .current_dir(&self.folder)
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .stderr(Stdio::null()),
        );
        let request = b"GET /json HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
        client.stdin.as_mut().unwrap().write_all(request).unwrap();
        let output = client.output();
        // Some versions print names with spaces around the equals sign.
        String::from_utf8_lossy(&output.stdout).replace(" = ", "=")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn curl_verifies_the_certificate_and_gets_complete_responses() {
    let server = Server::start("curl");
    for version in [["--tlsv1.2", "--tls-max=1.2"], ["--tlsv1.3", "--tls-max=1.3"]] {
        let [least, most] = version;
        let (flag, value) = most.split_once('=').unwrap();
        let output = server.curl(&[least, flag, value], "/json");
        assert_eq!(text(&output), "Hello, World!", "{version:?} {output:?}");
    }
    assert_eq!(server.curl(&[], "/synthetic?s=3m").stdout.len(), 3 << 20);
    let old = server.curl(&["--tlsv1.0", "--tls-max", "1.1"], "/json");
    assert!(!old.status.success(), "TLS 1.1 is refused");
    let unknown = run(command("curl").args([
        "-sS",
        "--max-time",
        "20",
        &format!("https://localhost:{}/json", server.port),
    ]));
    assert!(!unknown.status.success(), "an unknown certificate is not trusted");
    let plain = run(command("curl").args([
        "-sS",
        "--max-time",
        "20",
        &format!("http://localhost:{}/json", server.port),
    ]));
    assert!(text(&plain).contains("https://"), "{plain:?}");
}

#[test]
fn openssl_resumes_sessions_on_any_worker() {
    let server = Server::start("openssl");
    for version in ["-tls1_2", "-tls1_3"] {
        let first = server.s_client(&[version, "-sess_out", "session.pem"]);
        assert!(first.contains("Hello, World!") && first.contains("New, TLS"), "{first}");
        assert!(first.contains("Verify return code: 0"), "{first}");
        for _ in 0..6 {
            let again = server.s_client(&[version, "-sess_in", "session.pem"]);
            assert!(again.contains("Reused, TLS"), "{version} {again}");
            assert!(again.contains("Hello, World!"), "{version} {again}");
        }
    }
}

/// Replaces `site.pem` and `site.key` with a new certificate for `name` and its key.
fn renew(folder: &Path, name: &str) {
    let made = run(command("openssl")
        .args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"])
        .args([
            "-days",
            "2",
            "-subj",
            &format!("/CN={name}"),
            "-addext",
            "subjectAltName=DNS:localhost",
        ])
        .args(["-keyout", "new.key", "-out", "new.pem"])
        .current_dir(folder));
    assert!(made.status.success(), "{made:?}");
    std::fs::rename(folder.join("new.key"), folder.join("site.key")).unwrap();
    std::fs::rename(folder.join("new.pem"), folder.join("site.pem")).unwrap();
}

#[test]
fn renewed_certificate_is_served_without_a_lost_request_and_a_broken_key_is_ignored() {
    let folder = std::env::temp_dir().join(format!("tidegate-renew-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    renew(&folder, "first");
    let server = Server::start_in(
        folder.clone(),
        "{ certificates = [{ cert = \"site.pem\", key = \"site.key\" }] }",
    );
    assert!(server.s_client(&[]).contains("CN=first"));
    std::fs::write(folder.join("site.key"), "broken").unwrap();
    server.child.send(Signal::HUP);
    for _ in 0..20 {
        let answer = server.s_client(&[]);
        assert!(answer.contains("CN=first") && answer.contains("Hello, World!"), "{answer}");
    }
    renew(&folder, "second");
    let served = (0..2000).any(|_| {
        let answer = server.s_client(&[]);
        assert!(answer.contains("Hello, World!"), "a request was lost: {answer}");
        answer.contains("CN=second")
    });
    assert!(served, "the new certificate was never served");
}

#[test]
fn load_generator_verifies_certificates_and_counts_resumptions() {
    let server = Server::start("bench");
    let url = format!("https://localhost:{}/json", server.port);
    let report = |arguments: &[&str]| {
        let output = run(command(env!("CARGO_BIN_EXE_tidegate"))
            .args(["bench", "http", &url, "--json", "-c", "6"])
            .args(arguments));
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let number = |name: &str| {
            let (_, rest) = text.split_once(&format!("\"{name}\": ")).expect(name);
            rest.split([',', '\n']).next().unwrap().parse::<u64>().unwrap()
        };
        assert_eq!(number("requests"), 120, "{text}");
        (number("handshakes_full"), number("handshakes_resumed"), output.status.code())
    };
    let own = server.authority();
    // A connection that starts late may resume with the ticket of an earlier one, or find no request left.
    let (full, resumed, code) = report(&["-n", "120", "--ca", &own]);
    assert!(full >= 1 && full + resumed <= 6 && code == Some(0), "{full} {resumed}");
    let every_request = ["-n", "120", "--accept-any-certificate", "--handshake-every-request"];
    let (full, resumed, code) = report(&every_request);
    // Both workers seal tickets with the same keys, so either can resume the session.
    assert!((1..=6).contains(&full) && resumed >= 114 && code == Some(0), "{full} {resumed}");
    let (full, resumed, _) = report(&[&every_request[..], &["--tls-resumption", "off"]].concat());
    assert!(full >= 120 && resumed == 0, "{full} {resumed}");
}
