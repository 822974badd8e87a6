//! `tidegate bench http` over TLS, end to end: candidates that run already, candidates that it starts, and the
//! reference probe.
//! In: the binary, as server and as client. Out: its JSON reports.
//! Never: accepts an unverified certificate, except in the tests of `--accept-any-certificate`.

use serde_json::Value;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::Stdio;
use tidegate_testing::{Started, command, run, start};

const PROGRAM: &str = env!("CARGO_BIN_EXE_tidegate");
/// Two measured rounds on four connections.
const SHORT: [&str; 6] = ["--rounds", "2", "--requests", "100", "--connections", "4"];

/// A folder with a certificate for localhost, and configurations of servers that use it.
struct Site {
    folder: PathBuf,
}

impl Site {
    fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("tidegate-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let made = run(command("openssl")
            .args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"])
            .args(["-addext", "basicConstraints=critical,CA:FALSE"])
            .args(["-nodes", "-days", "2", "-subj", "/CN=localhost", "-keyout", "site.key"])
            .args(["-addext", "subjectAltName=DNS:localhost", "-out", "site.pem"])
            .current_dir(&folder));
        assert!(made.status.success(), "{made:?}");
        Self { folder }
    }

    /// A server of this site on a free port.
    fn server(&self, tls: &str) -> Configured {
        let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let tls = if tls.is_empty() { String::new() } else { format!("tls = {tls}\n") };
        let text = format!(
            "[server]\nworkers = 1\n[[listener]]\nbind = \"{address}\"\n{tls}\
             [[route]]\npath = \"/json\"\nrespond = {{ body = \"Hello, World!\" }}\n"
        );
        let file = self.folder.join(format!("{}.toml", address.port()));
        std::fs::write(&file, text).unwrap();
        Configured { address, file, is_secure: !tls.is_empty(), folder: self.folder.clone() }
    }

    /// The value of `tls` that selects the certificate of this folder.
    fn own(&self) -> String {
        let folder = self.folder.display();
        format!(
            "{{ certificates = [{{ cert = \"{folder}/site.pem\", key = \"{folder}/site.key\" }}] }}"
        )
    }

    fn authority(&self) -> String {
        self.folder.join("site.pem").display().to_string()
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// A configured server, not started yet.
struct Configured {
    address: SocketAddr,
    file: PathBuf,
    is_secure: bool,
    folder: PathBuf,
}

impl Configured {
    fn url(&self) -> String {
        let scheme = if self.is_secure { "https" } else { "http" };
        format!("{scheme}://localhost:{}/json", self.address.port())
    }

    /// A command line for `--start`.
    fn command(&self) -> String {
        let folder = self.folder.display();
        format!("env STATE_DIRECTORY={folder} {PROGRAM} run -c {}", self.file.display())
    }

    fn start(&self) -> Peer {
        let child = start(
            command(PROGRAM)
                .args(["run", "-c"])
                .arg(&self.file)
                .env("STATE_DIRECTORY", &self.folder)
                .stderr(Stdio::null()),
        );
        let mut peer = Peer(child);
        while TcpStream::connect(self.address).is_err() {
            assert!(peer.0.try_wait().unwrap().is_none(), "{} exited", self.file.display());
            std::thread::yield_now();
        }
        peer
    }
}

/// A server that is killed when the test ends.
struct Peer(Started);

fn bench(arguments: &[&str]) -> (Value, Option<i32>) {
    let output = run(command(PROGRAM).args(["bench", "http", "--json"]).args(arguments));
    let json = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|_| panic!("{}", String::from_utf8_lossy(&output.stderr)));
    (json, output.status.code())
}

/// Asserts that all requests of a candidate were answered, over TLS sessions opened in each round.
fn assert_answered_over_tls(candidate: &Value) {
    assert_eq!(candidate["requests"], 200, "{candidate:#}");
    assert!((2..=8).contains(&candidate["handshakes_full"].as_u64().unwrap()), "{candidate:#}");
    assert!(candidate["negotiated"].as_str().unwrap().starts_with("TLSv1.3"), "{candidate:#}");
    assert!(candidate["handshake_us"]["p50"].as_f64().unwrap() > 0.0);
}

#[test]
fn candidates_are_compared_over_verified_tls_and_plain_http() {
    let site = Site::new("vs");
    let (one, other, plain) = (site.server(&site.own()), site.server(&site.own()), site.server(""));
    let _running = [one.start(), other.start(), plain.start()];
    let candidates =
        [one.url(), format!("other={}", other.url()), format!("plain={}", plain.url())];
    let vs: Vec<&str> = candidates.iter().flat_map(|url| ["--vs", url]).collect();
    let (json, code) = bench(&[&vs[..], &SHORT, &["--ca", &site.authority()]].concat());
    assert_eq!(code, Some(0), "{json:#}");
    for secure in [0, 1] {
        assert_answered_over_tls(&json["candidates"][secure]);
    }
    assert!(json["candidates"][2]["requests"] == 200);
    assert!(json["candidates"][2].get("negotiated").is_none());
    assert_eq!(json["ratios"][1]["name"], "plain");

    // Without `--ca` the certificates are not trusted.
    let (json, code) = bench(&[&vs[..4], &["--rounds", "1", "-d", "300ms"]].concat());
    assert_eq!(code, Some(1));
    let note = json["candidates"][0]["first_error"]["tls"].as_str().unwrap();
    assert!(note.contains("--ca FILE"), "{note}");
}

#[test]
fn tls_candidates_are_started_and_stopped() {
    let site = Site::new("start");
    let (one, other) = (site.server(&site.own()), site.server("\"self-signed\""));
    let (urls, commands) = ([one.url(), other.url()], [one.command(), other.command()]);
    let vs = urls.iter().flat_map(|url| ["--vs", url]);
    let start = commands.iter().flat_map(|command| ["--start", command]);
    let all: Vec<&str> = vs.chain(start).chain(SHORT).collect();
    let (json, code) = bench(&[&all[..], &["--accept-any-certificate"]].concat());
    assert_eq!(code, Some(0), "{json:#}");
    for candidate in [0, 1] {
        assert_answered_over_tls(&json["candidates"][candidate]);
        assert!(json["candidates"][candidate]["server_process_cpu_s"].is_number());
    }
    for server in [one, other] {
        assert!(TcpStream::connect(server.address).is_err(), "{} still listens", server.address);
    }
}

#[test]
fn reference_probe_and_load_use_tls_independently() {
    let site = Site::new("reference");
    let (secure, plain) = (site.server(&site.own()), site.server(""));
    let _running = [secure.start(), plain.start()];
    let short = ["-d", "1s", "-c", "2", "--reference-rate", "200/s"];
    let ca = site.authority();
    for (load, probe) in [(&plain, &secure), (&secure, &secure), (&secure, &plain)] {
        let urls = [&load.url(), "--reference", &probe.url(), "--ca", &ca];
        let (json, code) = bench(&[&urls[..], &short].concat());
        assert_eq!(code, Some(0), "{json:#}");
        assert!(json["reference_requests"].as_u64().unwrap() > 0, "{json:#}");
        assert!(json["added_latency_us"]["p50"].is_number());
    }
    let urls = [&plain.url(), "--reference", &secure.url()];
    let (json, code) = bench(&[&urls[..], &short].concat());
    assert!(json["reference_errors"]["tls"].as_u64().unwrap() > 0, "{json:#}");
    assert_eq!((json["reference_requests"].as_u64(), code), (Some(0), Some(1)));
}
