//! Third-party servers behind Tidegate: nginx, Python's http.server, an application built on it.
//! In: a folder. Out: a process that accepts connections, its address, its log.

use std::net::SocketAddr;
use std::process::{Command, Stdio};

use tidegate_testing::{Signal, command};

use crate::process::{Folder, Process, free_address, program};

/// nginx serving files from the folder's `files`, logging one line a request.
pub struct Nginx {
    process: Process,
    pub address: SocketAddr,
    /// Path of the access log.
    log: String,
}

/// One request as nginx saw it.
pub struct LogLine {
    /// The connection's number.
    pub connection: u64,
    /// The position of this request on the connection, from 1.
    pub request_of_connection: u64,
    pub status: u16,
    pub protocol: String,
}

impl Nginx {
    pub fn start(folder: &Folder) -> Self {
        Self::start_on(folder, free_address())
    }

    pub fn start_on(folder: &Folder, address: SocketAddr) -> Self {
        let files = folder.path().join("files");
        std::fs::create_dir_all(&files).expect("a folder can be made");
        let log = folder.join("nginx-access.log");
        let config = NGINX_CONFIG
            .replace("{folder}", &folder.path().display().to_string())
            .replace("{address}", &address.to_string());
        let file = folder.file("nginx.conf", config);
        let mut command = command(program("nginx", "nginx-light"));
        command.args(["-e", &folder.join("nginx-error.log"), "-c", &file]);
        let mut process = Process::spawn(&mut command);
        process.wait_for_listener(address);
        Self { process, address, log }
    }

    /// Puts a file where nginx serves it.
    pub fn file(&self, folder: &Folder, name: &str, content: impl AsRef<[u8]>) {
        folder.file(&format!("files/{name}"), content);
    }

    pub fn terminate(&mut self) {
        self.process.terminate();
        self.process.wait();
    }

    /// Ends nginx without giving it time to close its connections.
    pub fn kill(&mut self) {
        self.process.signal(Signal::KILL);
        self.process.wait();
    }

    /// Stops nginx, so that its log is complete, and reads the log.
    pub fn end(mut self) -> Vec<LogLine> {
        self.terminate();
        let text = std::fs::read_to_string(&self.log).expect("nginx wrote its log");
        text.lines().map(parse_log_line).collect()
    }
}

fn parse_log_line(line: &str) -> LogLine {
    let mut words = line.split(' ');
    let mut word =
        || words.next().unwrap_or_else(|| panic!("unexpected line in the log of nginx: {line}"));
    LogLine {
        connection: word().parse().expect("a number"),
        request_of_connection: word().parse().expect("a number"),
        status: word().parse().expect("a status"),
        protocol: word().to_owned(),
    }
}

const NGINX_CONFIG: &str = "
daemon off;
master_process off;
pid {folder}/nginx.pid;
error_log {folder}/nginx-error.log warn;
events { worker_connections 4096; }
http {
    log_format seen '$connection $connection_requests $status $server_protocol';
    access_log {folder}/nginx-access.log seen;
    client_body_temp_path {folder}/client_body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    sendfile on;
    absolute_redirect off;
    gzip_types text/plain;
    server {
        listen {address} backlog=4096;
        root {folder}/files;
        default_type text/plain;
        location /gzip/ { gzip on; gzip_min_length 1; gzip_proxied any; alias {folder}/files/; }
        location /memory { return 200 memory; }
        location /moved { return 301 /elsewhere; }
    }
}
";

/// `python3 -m http.server`, as tutorials start it.
pub struct FileServer {
    _process: Process,
    pub address: SocketAddr,
}

impl FileServer {
    pub fn start(folder: &Folder) -> Self {
        let address = free_address();
        let (host, port) = (address.ip().to_string(), address.port().to_string());
        let mut command = python();
        command.args(["-m", "http.server", &port, "--bind", &host, "--directory"]);
        command.arg(folder.path()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut process = Process::spawn(&mut command);
        process.wait_for_listener(address);
        Self { _process: process, address }
    }
}

/// A Python script of this folder, which prints its listening address in the first line.
pub struct Script {
    _process: Process,
    /// The address in the form that `servers` takes.
    pub address: String,
}

impl Script {
    /// `origin.py` on a TCP port.
    pub fn origin(folder: &Folder) -> Self {
        Self::start(folder, include_str!("origin.py"), &[])
    }

    /// `origin.py` on a unix socket.
    pub fn origin_on_path(folder: &Folder) -> Self {
        Self::start(folder, include_str!("origin.py"), &[&folder.join("origin.sock")])
    }

    /// `websocket_server.py` on a port.
    pub fn websocket(folder: &Folder) -> Self {
        Self::start(folder, include_str!("websocket_server.py"), &[])
    }

    /// `mail_server.py` on a port.
    pub fn mail(folder: &Folder) -> Self {
        Self::start(folder, include_str!("mail_server.py"), &[])
    }

    /// `careless_origin.py`, running the server of this name.
    pub fn careless(folder: &Folder, server: &str) -> Self {
        let source = include_str!("careless_origin.py");
        Self::start_by(python_with_packages(), folder, source, &[server])
    }

    fn start(folder: &Folder, source: &str, arguments: &[&str]) -> Self {
        Self::start_by(python(), folder, source, arguments)
    }

    fn start_by(mut command: Command, folder: &Folder, source: &str, arguments: &[&str]) -> Self {
        let file = folder.file("server.py", source);
        command.arg(file).args(arguments).stdout(Stdio::piped());
        let mut process = Process::spawn(&mut command);
        let address = process.first_line();
        Self { _process: process, address }
    }
}

/// A Python with the packages that `scripts/install-peers.sh` installs from PyPI.
pub fn python_with_packages() -> Command {
    let python = concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/peers/python/bin/python");
    assert!(
        std::path::Path::new(python).exists(),
        "{python} is missing: run scripts/install-peers.sh"
    );
    command(python)
}

/// A Go program of the folder `go`, which `scripts/install-peers.sh` builds.
pub fn go_program(name: &str) -> Command {
    let path = format!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/peers/go/{}"), name);
    assert!(
        std::path::Path::new(&path).exists(),
        "{path} is missing: run scripts/install-peers.sh"
    );
    command(path)
}

/// The distribution's Node, with the distribution's packages.
pub fn node() -> Command {
    let mut command = command(program("node", "nodejs"));
    command.env("NODE_PATH", "/usr/share/nodejs");
    command
}

/// The distribution's Python, which has the distribution's `websockets`.
pub fn python() -> Command {
    command(program("python3", "python3"))
}
