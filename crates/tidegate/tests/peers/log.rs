//! The log when stderr cannot be written: a closed pipe, a full pipe without a reader, a full disk.
//! In: thousands of log lines: refused clients, a refused server, reloads of missing files. Out: all clients are
//! served, files are reloaded, and SIGTERM stops the process with status 0.

use std::fs::File;
use std::io::{PipeReader, PipeWriter, Read as _, Write as _};
use std::net::SocketAddr;
use std::process::{Command, ExitStatus, Stdio};

use tidegate_testing::{Signal, command};

use crate::process::{Folder, Process, free_address, run, run_well, text};
use crate::proxy_protocol::{make_certificate, openssl};
use crate::requests::curl;
use crate::tls_in_front::make_clients;

/// How often the certificate is listed; each entry of a missing file is two lines in the log.
const ENTRIES: usize = 600;
/// How often the missing files are reloaded.
const RELOADS: usize = 5;

/// A Tidegate whose log goes to a given file.
struct Logging {
    folder: Folder,
    process: Process,
    /// Accepts TLS, with or without a client certificate.
    door: SocketAddr,
    /// Accepts plain HTTP.
    plain: SocketAddr,
}

impl Logging {
    fn start(name: &str, stderr: impl Into<Stdio>) -> Self {
        let folder = Folder::new(name);
        make_certificate(&folder);
        make_clients(&folder);
        let (door, plain) = (free_address(), free_address());
        // Lines with the same text are left out after a while, so each entry has a path of its own.
        let entries: String = (0..ENTRIES)
            .map(|number| {
                let own = format!("e{number}");
                std::fs::create_dir(folder.join(&own)).expect("the folder is new");
                let [cert, key] =
                    ["pem", "key"].map(|end| folder.join(&format!("{own}/../site.{end}")));
                format!("{{ cert = {cert:?}, key = {key:?} }}, ")
            })
            .collect();
        let config = format!(
            "[server]\nworkers = 1\n[[listener]]\nname = \"door\"\nbind = \"{door}\"\n[listener.tls]\n\
             client-auth = \"optional\"\nclient-ca = {:?}\ncertificates = [{}]\n\
             [[listener]]\nbind = \"{plain}\"\n\
             [[route]]\npath = \"/refused\"\nproxy = \"app\"\n\
             [[route]]\nrespond = {{ body = \"served\" }}\n\
             [pool.app]\nservers = [\"{door}\"]\ntls = true\n",
            folder.join("ca.pem"),
            entries
        );
        let file = folder.file("tidegate.toml", config);
        let mut command = command(env!("CARGO_BIN_EXE_tidegate"));
        let mut process = Process::spawn(command.args(["run", "-c", &file]).stderr(stderr));
        process.wait_for_listener(plain);
        Self { folder, process, door, plain }
    }

    /// Causes thousands of lines, while other clients are served.
    fn cause_lines(&mut self) {
        for round in 0..=RELOADS {
            // In the first round the queue has room, so the refused client is logged.
            if round == 1 {
                for name in ["site.pem", "site.key"] {
                    std::fs::remove_file(self.folder.join(name)).expect("the file exists");
                }
            }
            if round > 0 {
                self.process.signal(Signal::HUP);
            }
            let mut bad = self.curl_tls("ca.pem");
            bad.args([
                "--cert",
                &self.folder.join("eve.pem"),
                "--key",
                &self.folder.join("eve.key"),
            ]);
            assert!(!run(&mut bad).status.success(), "the certificate is not trusted");
            let refused = format!("http://{}/refused", self.plain);
            let status = run_well(curl().args(["-o", "/dev/null", "-w", "%{http_code}", &refused]));
            assert_eq!(status, "502");
            for _ in 0..5 {
                assert_eq!(run_well(curl().arg(format!("http://{}/", self.plain))), "served");
            }
            assert_eq!(run_well(&mut self.curl_tls("ca.pem")), "served");
        }
    }

    /// Replaces the certificate, and waits until clients get the new one: all earlier reloads have ended then.
    fn replace_certificate(&mut self) {
        let curve = "-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes";
        openssl(
            &self.folder,
            &format!(
                "req -x509 {curve} -days 2 -subj /CN=localhost -addext subjectAltName=IP:{} \
                 -keyout site.key -out site.pem",
                self.door.ip()
            ),
        );
        self.process.signal(Signal::HUP);
        let mut request = self.curl_tls("site.pem");
        self.process
            .wait_until("serving the new certificate", || run(&mut request).status.success());
    }

    /// A request over TLS that trusts the authority in `ca`.
    fn curl_tls(&self, ca: &str) -> Command {
        let mut command = curl();
        command.args(["--cacert", &self.folder.join(ca)]);
        let (port, ip) = (self.door.port(), self.door.ip());
        match ca {
            "site.pem" => command.arg(format!("https://{}/", self.door)),
            _ => command
                .args(["--connect-to", &format!("localhost:{port}:{ip}:{port}")])
                .arg(format!("https://localhost:{port}/")),
        };
        command
    }

    fn stop(mut self) -> ExitStatus {
        self.process.terminate();
        let mut ended = None;
        let child = &mut self.process;
        let begin = std::time::Instant::now();
        while ended.is_none() {
            ended = child.child().try_wait().expect("the process can be polled");
            assert!(begin.elapsed().as_secs() < 30, "the process did not stop");
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        ended.expect("it ended")
    }
}

/// A pipe that accepts no byte.
fn full_pipe() -> (PipeReader, PipeWriter) {
    let (reader, mut writer) = std::io::pipe().expect("a pipe");
    rustix::io::ioctl_fionbio(&writer, true).expect("a flag of the pipe");
    while writer.write(&[b'x'; 4096]).is_ok() {}
    while writer.write(b"x").is_ok() {}
    rustix::io::ioctl_fionbio(&writer, false).expect("a flag of the pipe");
    (reader, writer)
}

#[test]
fn closed_stderr_pipe_does_not_affect_clients() {
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    let mut gate = Logging::start("log-closed", writer);
    gate.cause_lines();
    gate.replace_certificate();
    assert_eq!(gate.stop().code(), Some(0));
}

#[test]
fn full_disk_for_stderr_does_not_affect_clients() {
    let full = File::options().write(true).open("/dev/full").expect("the device exists");
    let mut gate = Logging::start("log-disk", full);
    gate.cause_lines();
    gate.replace_certificate();
    assert_eq!(gate.stop().code(), Some(0));
}

#[test]
fn unread_stderr_pipe_does_not_affect_clients() {
    let (reader, writer) = full_pipe();
    let mut gate = Logging::start("log-stuck", writer);
    gate.cause_lines();
    gate.replace_certificate();
    assert_eq!(gate.stop().code(), Some(0));
    drop(reader);
}

#[test]
fn late_reader_of_stderr_gets_whole_lines_and_the_number_of_lost_lines() {
    let (mut reader, writer) = full_pipe();
    let mut gate = Logging::start("log-late", writer);
    gate.cause_lines();
    gate.replace_certificate();
    let reading = std::thread::spawn(move || {
        let mut bytes = Vec::new();
        reader.read_to_end(&mut bytes).expect("the pipe can be read");
        text(&bytes)
    });
    assert_eq!(gate.stop().code(), Some(0));
    let log = reading.join().expect("the reader ends");
    let log = log.trim_start_matches('x');
    let (mut faults, mut lost) = (0, 0);
    // A warning about the configuration (a pool that contains an own listener) and the lines of the start are first.
    let is_last_of_start = |line: &&str| line.starts_with("tidegate: listening on ");
    let lines = log.lines().skip_while(|line| !is_last_of_start(line)).skip_while(is_last_of_start);
    for line in lines {
        let (stamp, rest) = line.split_once("Z ").unwrap_or_else(|| panic!("no time: {line}"));
        assert!(stamp.len() == 23 && stamp.as_bytes()[10] == b'T', "{line}");
        let (level, message) = rest.split_once(' ').expect("a level is first");
        match level {
            "error" if message.contains("site.pem: cannot be read") => faults += 1,
            "warning" if message.contains("log lines lost: ") => {
                let number = message.split(' ').nth(3).and_then(|n| n.parse::<usize>().ok());
                lost += number.expect("the number is the fourth word");
            }
            "error" | "warning" | "info" => {}
            other => panic!("level {other}: {line}"),
        }
    }
    assert!(faults > 100, "{log}");
    assert!(lost > ENTRIES, "{lost} lines lost");
    assert!(log.contains(" warning listener door: client 127."), "{log}");
}
