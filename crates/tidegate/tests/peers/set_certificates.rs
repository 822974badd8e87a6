//! Certificates that commands replace while the process serves, seen by openssl.
//! In: commands of `tidegate ctl` and of scripts for HAProxy. Out: the certificate of the next handshake; earlier connections
//! continue.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::process::{ChildStdin, ChildStdout, Stdio};
use std::time::{Duration, Instant};

use tidegate_testing::{Started, command, start};

use crate::admin::Operated;
use crate::process::{Folder, Process, free_address, program, run, text};
use crate::proxy_protocol::{make_certificate, openssl};

/// How long a test waits for a condition.
const WAIT_MAX: Duration = Duration::from_secs(60);

/// A process with a TLS listener `web`, whose log is in a file.
fn start_process(name: &str) -> Operated {
    let folder = Folder::new(name);
    make_certificate(&folder);
    let curve = "-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes";
    openssl(
        &folder,
        &format!(
            "req -x509 {curve} -days 2 -subj /CN=new -addext subjectAltName=DNS:new.example -keyout new.key -out new.pem"
        ),
    );
    let (door, admin) = (free_address(), free_address());
    let config = format!(
        "[admin]\nbind = \"{admin}\"\n[[listener]]\nname = \"web\"\nbind = \"{door}\"\n\
         tls = {{ certificates = [{{ cert = \"{}\", key = \"{}\" }}] }}\n\
         [[route]]\nrespond = {{ body = \"hello\" }}\n",
        folder.join("site.pem"),
        folder.join("site.key"),
    );
    let file = folder.file("tidegate.toml", config);
    let log = std::fs::File::create(folder.join("log")).expect("a file can be made");
    let mut command = command(env!("CARGO_BIN_EXE_tidegate"));
    let mut process = Process::spawn(command.args(["run", &file]).stderr(log));
    process.wait_for_listener(door);
    process.wait_for_listener(admin);
    Operated { folder, process, door, admin }
}

/// The lines about the certificate of the next handshake that openssl prints.
fn handshake(operated: &Operated) -> String {
    let at = operated.door.to_string();
    let mut command = command(program("openssl", "openssl"));
    let output = run(command.args(["s_client", "-connect", &at]).stdin(Stdio::null()));
    let printed = text(&output.stdout).replace(" = ", "=");
    let line = printed.lines().find(|line| line.starts_with("subject="));
    line.unwrap_or_else(|| panic!("{printed}")).to_owned()
}

/// A TLS connection that stays open.
struct Client {
    _process: Started,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
}

impl Client {
    fn connect(address: SocketAddr) -> Self {
        let mut process = start(
            command(program("openssl", "openssl"))
                .args(["s_client", "-quiet", "-connect", &address.to_string()])
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .stderr(Stdio::null()),
        );
        let stdin = process.stdin.take().expect("stdin is piped");
        let stdout = BufReader::new(process.stdout.take().expect("stdout is piped"));
        Self { _process: process, stdin, stdout }
    }

    /// The first line and the body of the response to a request.
    fn get(&mut self) -> (String, String) {
        self.stdin.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n").expect("it is open");
        let (mut first, mut line) = (String::new(), String::new());
        self.stdout.read_line(&mut first).expect("a response");
        while line != "\r\n" {
            line.clear();
            assert!(self.stdout.read_line(&mut line).expect("a head") > 0, "the connection ended");
        }
        let mut body = [0; 5];
        self.stdout.read_exact(&mut body).expect("a body");
        (first, text(&body))
    }
}

#[test]
fn next_handshake_has_the_new_certificate_and_earlier_connections_continue() {
    let operated = start_process("set-certificate");
    let path = |name: &str| operated.folder.join(name);
    let (site, new, new_key) = (path("site.pem"), path("new.pem"), path("new.key"));
    let mut client = Client::connect(operated.door);
    assert_eq!(client.get(), ("HTTP/1.1 200 OK\r\n".to_owned(), "hello".to_owned()));
    assert!(handshake(&operated).contains("CN=localhost"));

    let reply = operated.ctl_well(&["set", "tls", "cert", "web", &new, &new_key]);
    let created = format!("Transaction created for certificate {site}!\n# new.example, expires ");
    assert!(reply.starts_with(&created), "{reply}");
    assert!(operated.ctl_well(&["show", "tls", "cert"]).contains(&format!("*{site}\n")));
    assert!(handshake(&operated).contains("CN=localhost"), "it is not committed");
    let reply = operated.ctl_well(&["commit", "tls", "cert", &site]);
    assert_eq!(reply.trim(), format!("Committing {site}.\nSuccess!"));
    assert!(handshake(&operated).contains("CN=new"));
    assert_eq!(client.get(), ("HTTP/1.1 200 OK\r\n".to_owned(), "hello".to_owned()));
    let edits = operated.ctl_well(&["show", "edits"]);
    assert!(edits.starts_with(&format!("set tls cert {site} << (new.example, ")), "{edits}");
    assert!(operated.ctl_well(&["show", "tls"]).contains("new.example"));

    // A pair that does not match changes nothing.
    let refused = operated.ctl(&["set", "tls", "cert", "web", &new, &path("site.key")]);
    let error = text(&refused.stderr);
    assert!(!refused.status.success() && error.contains("does not match"), "{error}");
    assert!(handshake(&operated).contains("CN=new"));

    // Files that change are read, but the certificate of the command stays.
    let log = || std::fs::read_to_string(path("log")).expect("it exists");
    let content = std::fs::read(&site).expect("it exists");
    std::fs::write(&site, [&content[..], b"\n"].concat()).expect("a file can be written");
    let begin = Instant::now();
    while !log().contains("that stay in use until the configuration is reloaded: 1") {
        assert!(begin.elapsed() < WAIT_MAX, "{}", log());
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(handshake(&operated).contains("CN=new"));

    assert_eq!(operated.ctl_well(&["reload"]).trim(), "edits dropped 1");
    assert!(handshake(&operated).contains("CN=localhost"));
    assert_eq!(client.get().1, "hello");
    let shown = log() + &operated.ctl_well(&["show", "events", "100"]);
    for part in ["ran: set tls cert web <<\n", &format!("ran: commit tls cert {site}\n")] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    let key = std::fs::read_to_string(&new_key).expect("it exists");
    for line in key.lines() {
        assert!(!shown.contains(line), "{shown}");
    }
}

/// The commands of acme.sh and of other scripts for HAProxy.
#[test]
fn scripts_for_haproxy_replace_a_certificate() {
    let operated = start_process("set-certificate-haproxy");
    let site = operated.folder.join("site.pem");
    let read = |name: &str| {
        std::fs::read_to_string(operated.folder.join(name)).expect("openssl wrote the file")
    };
    let send = |lines: &str| {
        let mut stream = TcpStream::connect(operated.admin).expect("it is open");
        stream.set_read_timeout(Some(WAIT_MAX)).expect("a socket");
        stream.write_all(lines.as_bytes()).expect("it is open");
        let mut reply = String::new();
        stream.read_to_string(&mut reply).expect("a reply");
        reply
    };
    assert!(send("show ssl cert\n").lines().any(|line| line == site));
    let both = read("new.pem") + &read("new.key");
    let reply = send(&format!("set ssl cert {site} <<\n{both}\n"));
    assert!(reply.contains("Transaction created"), "{reply}");
    let reply = send(&format!("commit ssl cert {site}\n"));
    assert!(reply.lines().any(|line| line == "Success!"), "{reply}");
    assert!(handshake(&operated).contains("CN=new"));
    assert!(send(&format!("commit ssl cert {site}\n")).contains("no new certificate waits"));
}
