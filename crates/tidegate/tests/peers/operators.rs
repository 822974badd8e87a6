//! Operators of another machine: the admin interface over TLS, and the certificates that its clients present.
//! In: `tidegate ctl`, curl. Out: replies for certificates of the configured authority, and none for others.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::SocketAddr;
use std::process::{Output, Stdio};

use tidegate_testing::{command, start};

use crate::process::{Folder, Process, free_address, run, text};
use crate::proxy_protocol::{make_certificate, openssl};
use crate::requests::curl;
use crate::tls_in_front::make_clients;

/// A process whose admin interface uses TLS.
struct Gate {
    folder: Folder,
    admin: SocketAddr,
    _process: Process,
}

impl Gate {
    /// `settings`: of `[admin]`; `of_tls`: of its `tls`, each after a comma.
    fn start(name: &str, settings: &str, of_tls: &str) -> Self {
        let folder = Folder::new(name);
        make_certificate(&folder);
        make_clients(&folder);
        folder.file("token", "0123456789abcdef0123456789abcdef\n");
        let (door, admin) = (free_address(), free_address());
        let config = format!(
            "[admin]\nbind = \"{admin}\"\n{settings}\n\
             tls = {{ cert = \"site.pem\", key = \"site.key\", client-ca = \"ca.pem\"{of_tls} }}\n\
             [[listener]]\nname = \"web\"\nbind = \"{door}\"\n[[route]]\nproxy = \"app\"\n\
             [pool.app]\nservers = [\"127.0.0.1:9\", \"127.0.0.1:10\"]\n"
        );
        let file = folder.file("tidegate.toml", config);
        let log = std::fs::File::create(folder.join("log")).expect("a file can be made");
        let mut command = command(env!("CARGO_BIN_EXE_tidegate"));
        let mut process = Process::spawn(command.args(["run", &file]).stderr(log));
        process.wait_for_listener(door);
        process.wait_for_listener(admin);
        Self { folder, admin, _process: process }
    }

    /// Runs `tidegate ctl` with these options, separated by blanks, in the folder of the certificates.
    fn ctl(&self, options: &str, words: &str) -> Output {
        let mut command = command(env!("CARGO_BIN_EXE_tidegate"));
        let at = self.admin.to_string();
        let options = options.split_whitespace().chain(words.split_whitespace());
        run(command.args(["ctl", "--at", &at]).args(options).current_dir(self.folder.path()))
    }

    /// The page at a path, with these options of curl.
    fn page(&self, options: &[&str], path: &str) -> Output {
        let to = format!("localhost:443:{}", self.admin);
        let mut command = curl();
        command.args(["--connect-to", &to, "--cacert", "ca.pem"]).args(options);
        run(command.arg(format!("https://localhost{path}")).current_dir(self.folder.path()))
    }
}

const TLS: &str = "--ca ca.pem --server-name localhost";
const BOB: &str = "--ca ca.pem --server-name localhost --cert bob.pem --key bob.key";
const EVE: &str = "--ca ca.pem --server-name localhost --cert eve.pem --key eve.key";

#[test]
fn operators_with_certificates_may_do_everything() {
    let gate = Gate::start("operators", "", "");
    let done = gate.ctl(BOB, "set server app/127.0.0.1:9 state drain");
    assert!(done.status.success(), "{}", text(&done.stderr));
    let shown = gate.ctl(BOB, "show events 5 admin");
    let events = text(&shown.stdout);
    assert!(events.contains("(CN=bob,O=Example) ran: set server app/127.0.0.1:9"), "{events}");
    let mut by_file = command(env!("CARGO_BIN_EXE_tidegate"));
    by_file.args(["ctl", "-c", "tidegate.toml"]).args(BOB.split(' ')).args(["show", "info"]);
    let shown = run(by_file.current_dir(gate.folder.path()));
    assert!(shown.status.success(), "{}", text(&shown.stderr));
    for options in [
        TLS,
        EVE,
        "",
        // The certificate of the interface has another name, or another authority.
        "--ca ca.pem --cert bob.pem --key bob.key",
        "--ca eve.pem --server-name localhost --cert bob.pem --key bob.key",
        "--ca ca.pem --cert bob.pem",
        "--cert bob.pem --key bob.key",
    ] {
        let output = gate.ctl(options, "show info");
        let error = text(&output.stderr);
        assert!(!output.status.success() && error.starts_with("tidegate: "), "{options}: {error}");
        assert!(output.stdout.is_empty(), "{options}");
    }
    let own = ["--cert", "bob.pem", "--key", "bob.key"];
    let metrics = gate.page(&own, "/metrics");
    assert!(text(&metrics.stdout).contains("tidegate_accepted_total"), "{metrics:?}");
    let live = gate.page(&[], "/live");
    assert!(!live.status.success() && live.stdout.is_empty(), "{live:?}");
    // A long reply, and a long wait.
    assert!(text(&gate.ctl(BOB, "help").stdout).contains("set tls cert"));
    assert!(gate.ctl(BOB, "wait 1s").status.success());
}

#[test]
fn token_or_certificate_is_enough_if_both_are_configured() {
    let gate = Gate::start("operators-token", "token-file = \"token\"", "");
    let ready = "set server app/127.0.0.1:9 state ready";
    assert!(gate.ctl(BOB, ready).status.success());
    assert!(gate.ctl(&format!("{TLS} --token-file token"), ready).status.success());
    let denied = gate.ctl(TLS, ready);
    assert!(text(&denied.stderr).contains("present the token first"), "{denied:?}");
    assert!(!gate.ctl(EVE, ready).status.success(), "no authority has issued the certificate");
    assert_eq!(text(&gate.page(&[], "/live").stdout), "ok\n");
    let metrics = gate.page(&[], "/metrics");
    assert!(text(&metrics.stdout).contains("present the token"), "{metrics:?}");
}

#[test]
fn session_ends_at_its_next_line_after_the_authority_was_replaced() {
    let gate = Gate::start("operators-session", "", "");
    let mut command = command("openssl");
    let at = gate.admin.to_string();
    command.args(["s_client", "-quiet", "-connect", &at, "-cert", "bob.pem", "-key", "bob.key"]);
    command.current_dir(gate.folder.path()).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut client = start(&mut command);
    let mut input = client.stdin.take().expect("it is piped");
    let mut output = BufReader::new(client.stdout.take().expect("it is piped"));
    input.write_all(b"prompt\nshow info\n").expect("it reads");
    let mut line = String::new();
    while !line.contains("Name: Tidegate") {
        line.clear();
        assert!(output.read_line(&mut line).expect("it is text") > 0, "the session has ended");
    }
    std::fs::copy(gate.folder.join("eve.pem"), gate.folder.join("ca.pem")).expect("both exist");
    input.write_all(b"show info\n").expect("it reads");
    // If the session did not end, it would end after a minute without a line.
    let mut rest = String::new();
    output.read_to_string(&mut rest).expect("it is text");
    assert!(rest.contains("Uptime"), "the rest of the first reply: {rest}");
    assert!(!rest.contains("Name: Tidegate"), "a second reply: {rest}");
}

const READS: &str = "--ca ca.pem --server-name localhost --cert reads.pem --key reads.key";

/// A certificate without a subject for the DNS name `prometheus.example`.
fn make_reader(folder: &Folder) {
    let curve = "-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes";
    openssl(folder, &format!("req {curve} -subj / -keyout reads.key -out reads.csr"));
    folder.file("reads.cnf", "subjectAltName = DNS:prometheus.example\n");
    openssl(
        folder,
        "x509 -req -in reads.csr -CA ca.pem -CAkey ca.key -set_serial 18 -days 2 -extfile reads.cnf -out reads.pem",
    );
}

#[test]
fn certificates_that_are_not_named_as_writers_only_read() {
    let gate = Gate::start("readers", "", ", write-clients = [\"BOB\"]");
    make_reader(&gate.folder);
    let drain = "set server app/127.0.0.1:9 state drain";
    let refused = gate.ctl(READS, drain);
    let why = "this token or certificate allows only show, get, help and wait";
    assert!(!refused.status.success() && text(&refused.stderr).contains(why), "{refused:?}");
    for command in ["show sess", "show errors", "reload", "profile 1s --text"] {
        assert!(!gate.ctl(READS, command).status.success(), "{command}");
    }
    assert!(gate.ctl(READS, "show info").status.success());
    let metrics = gate.page(&["--cert", "reads.pem", "--key", "reads.key"], "/metrics");
    assert!(text(&metrics.stdout).contains("tidegate_accepted_total"), "{metrics:?}");
    assert!(gate.ctl(BOB, drain).status.success(), "the named certificate may do everything");
    let state = text(&gate.ctl(READS, "show servers state").stdout);
    assert!(state.contains("127.0.0.1:9 127.0.0.1 2 8 "), "only one server drains: {state}");
}

#[test]
fn token_gives_a_reading_certificate_its_rights() {
    let settings = "token-file = \"token\"";
    let gate = Gate::start("readers-token", settings, ", write-clients = \"bob\"");
    make_reader(&gate.folder);
    let ready = "set server app/127.0.0.1:9 state ready";
    assert!(!gate.ctl(READS, ready).status.success());
    assert!(gate.ctl(READS, "show info").status.success());
    assert!(gate.ctl(&format!("{READS} --token-file token"), ready).status.success());
    let events = text(&gate.ctl(READS, "show events 5 admin").stdout);
    assert!(events.contains("(prometheus.example) ran: set server app/127.0.0.1:9"), "{events}");
    gate.folder.file("wrong", "0123456789abcdef0123456789abcdee\n");
    assert!(gate.ctl(&format!("{READS} --token-file wrong"), "show info").status.success());
    assert!(!gate.ctl(&format!("{READS} --token-file wrong"), ready).status.success());
}

#[test]
fn renewed_certificate_of_the_interface_is_used_without_a_restart() {
    let gate = Gate::start("operators-renewed", "", "");
    assert!(gate.ctl(BOB, "show info").status.success());
    let curve = "-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes";
    openssl(
        &gate.folder,
        &format!("req -x509 {curve} -days 2 -subj /CN=CA2 -keyout ca2.key -out ca2.pem"),
    );
    openssl(
        &gate.folder,
        &format!("req {curve} -subj /CN=localhost -keyout site2.key -out site2.csr"),
    );
    openssl(
        &gate.folder,
        "x509 -req -in site2.csr -CA ca2.pem -CAkey ca2.key -set_serial 17 -days 2 -extfile names.cnf -out site2.pem",
    );
    let replace = |from: &str, to: &str| {
        std::fs::rename(gate.folder.join(from), gate.folder.join(to)).expect("it exists");
    };
    // The key does not match the certificate until both are replaced.
    replace("site2.pem", "site.pem");
    assert!(gate.ctl(BOB, "show info").status.success());
    let log = std::fs::read_to_string(gate.folder.join("log")).expect("it exists");
    assert!(log.contains("site.key: the key does not match"), "{log}");
    replace("site2.key", "site.key");
    assert!(!gate.ctl(BOB, "show info").status.success(), "the authority is another one");
    assert!(gate.ctl(&BOB.replace("ca.pem", "ca2.pem"), "show info").status.success());
}
