//! The contenders of a comparison: how each is configured, started and named.
//! In: the workload, and the origin. Out: running servers, and the reason why a server is left out.
//! Never: touches the system's own services; all contenders run from a scratch directory, on free ports.

use super::certificate::{self, Key};
use crate::floor::JSON_BODY;
use crate::process::{self, Running};
use crate::scratch;
use core::net::SocketAddr;
use core::sync::atomic::AtomicBool;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The workload of the servers in a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Work {
    /// Respond with 27 bytes of JSON.
    Json,
    /// Respond with 13 bytes of text.
    Plaintext,
    /// Forward to an origin.
    Proxy(SocketAddr),
    /// Forward, and add the same header fields about the client as Tidegate does.
    ProxyFields(SocketAddr),
    /// `Json` over TLS.
    SecureJson(Key),
    /// `Proxy` with TLS towards the client.
    SecureProxy(SocketAddr),
    /// `Json` over HTTP/2 without TLS.
    Http2Json,
    /// `Json` over HTTP/2 with TLS.
    SecureHttp2Json,
    /// `Proxy` with HTTP/2 without TLS towards the client.
    Http2Proxy(SocketAddr),
    /// Send each WebSocket message back.
    Echo,
    /// Send messages to all subscribers of a channel, over WebSocket.
    Push,
}

impl Work {
    /// The contenders that can do this work, in the order of the rounds.
    pub(crate) fn names(self) -> &'static [&'static str] {
        match self {
            Self::Json | Self::Plaintext | Self::Proxy(_) | Self::ProxyFields(_) => &NAMES[..4],
            Self::SecureJson(_) => &["tidegate", "nginx", "haproxy"],
            Self::SecureProxy(_) => &["tidegate", "plain", "nginx", "haproxy"],
            Self::Http2Json | Self::Http2Proxy(_) => &["tidegate", "nginx", "haproxy"],
            Self::SecureHttp2Json => &["tidegate", "nginx", "haproxy", H2O],
            Self::Echo => &["tidegate", BUN, FASTWEBSOCKETS, ACTIX, NODE, PYTHON],
            Self::Push => &["tidegate", RAW, CENTRIFUGO, NCHAN],
        }
    }

    /// Whether clients speak HTTP/2.
    pub(crate) fn is_http2(self) -> bool {
        match self {
            Self::Http2Json | Self::SecureHttp2Json | Self::Http2Proxy(_) => true,
            Self::Json
            | Self::Plaintext
            | Self::Proxy(_)
            | Self::ProxyFields(_)
            | Self::SecureJson(_)
            | Self::SecureProxy(_)
            | Self::Echo
            | Self::Push => false,
        }
    }

    fn origin(self) -> Option<SocketAddr> {
        match self {
            Self::Proxy(origin)
            | Self::ProxyFields(origin)
            | Self::SecureProxy(origin)
            | Self::Http2Proxy(origin) => Some(origin),
            Self::Json
            | Self::Plaintext
            | Self::SecureJson(_)
            | Self::Http2Json
            | Self::SecureHttp2Json
            | Self::Echo
            | Self::Push => None,
        }
    }

    fn key(self) -> Option<Key> {
        match self {
            Self::SecureJson(key) => Some(key),
            Self::SecureProxy(_) | Self::SecureHttp2Json => Some(Key::Ecdsa),
            Self::Json
            | Self::Plaintext
            | Self::Proxy(_)
            | Self::ProxyFields(_)
            | Self::Http2Json
            | Self::Http2Proxy(_)
            | Self::Echo
            | Self::Push => None,
        }
    }

    /// The work of contender `name`. `plain` does the same work without TLS, as a baseline for the TLS contenders.
    fn of(self, name: &str) -> Self {
        match self {
            Self::SecureProxy(origin) if name == PLAIN => Self::Proxy(origin),
            work => work,
        }
    }
}

/// A running contender.
pub(crate) struct Contender {
    /// One of `NAMES`.
    pub(crate) name: &'static str,
    /// The version that the program reports.
    pub(crate) version: String,
    /// The address on which it listens.
    pub(crate) address: SocketAddr,
    /// Whether it uses TLS.
    pub(crate) is_secure: bool,
    /// Whether its clients speak HTTP/2.
    pub(crate) is_http2: bool,
    /// The process, which ends when this is dropped.
    pub(crate) running: Running,
}

/// The paths of the project's own programs.
#[derive(Clone, Debug)]
pub(crate) struct OwnPrograms {
    /// The `tidegate` binary; `None` if it is not built.
    pub(crate) tidegate: Option<PathBuf>,
    /// The running program, for `bench floor`.
    pub(crate) bench: PathBuf,
}

/// The names of all contenders, in the order of the rounds.
pub(crate) const NAMES: [&str; 14] = [
    "tidegate",
    "floor",
    "nginx",
    "haproxy",
    PLAIN,
    H2O,
    BUN,
    FASTWEBSOCKETS,
    ACTIX,
    NODE,
    PYTHON,
    RAW,
    CENTRIFUGO,
    NCHAN,
];
/// The programs that `scripts/compare-peers.sh` installs; in the root of the repository.
const PEERS: &str = "target/peers/compare";
/// Tidegate without TLS, as a baseline for the TLS contenders.
const PLAIN: &str = "plain";
/// A server that takes part only in comparisons of HTTP/2.
const H2O: &str = "h2o";
/// Bun, whose WebSocket server is uWebSockets: only in comparisons of WebSocket.
const BUN: &str = "bun";
/// A Rust library for WebSocket: only in comparisons of WebSocket.
const FASTWEBSOCKETS: &str = "fastwebsockets";
/// The WebSocket of the Rust framework Actix Web: only in comparisons of WebSocket.
const ACTIX: &str = "actix-ws";
/// Node with its package ws: only in comparisons of WebSocket.
const NODE: &str = "node";
/// Python with its package websockets: only in comparisons of WebSocket.
const PYTHON: &str = "python";

/// Tidegate, whose subscribers get bare messages: only in comparisons of push. Those of "tidegate" speak the client protocol.
pub(crate) const RAW: &str = "raw";
/// Centrifugo: only in comparisons of push.
const CENTRIFUGO: &str = "centrifugo";
/// nginx with its module nchan: only in comparisons of push.
const NCHAN: &str = "nchan";
/// The module, of the package libnginx-mod-nchan.
const NCHAN_MODULE: &str = "/usr/lib/nginx/modules/ngx_nchan_module.so";

/// Writes the configuration of `name`, starts it on `cpus` and waits until it listens.
///
/// # Errors
/// The reason why the contender is left out.
pub(crate) fn start(
    name: &'static str,
    work: Work,
    own: &OwnPrograms,
    folder: &Path,
    cpus: &[usize],
) -> Result<Contender, String> {
    let failed = |error: io::Error| format!("{name}: {error}");
    let folder = folder.join(name);
    make_folder(&folder).map_err(failed)?;
    let address = process::free_address().map_err(failed)?;
    let (command, version) = command(name, work, own, &folder, address)?;
    let running = Running::start(&command, cpus).map_err(failed)?;
    wait_until_listening(&running, name, address)?;
    let (is_secure, is_http2) = (work.of(name).key().is_some(), work.is_http2());
    Ok(Contender { name, version, address, is_secure, is_http2, running })
}

/// Creates the directory of one contender, unless an earlier workload has created it.
///
/// # Errors
/// The error of the system.
pub(crate) fn make_folder(folder: &Path) -> io::Result<()> {
    match scratch::make_folder(folder) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        made => made,
    }
}

/// Waits until a contender listens. A signal during the wait ends the whole process.
///
/// # Errors
/// The reason why the contender does not listen.
pub(crate) fn wait_until_listening(
    running: &Running,
    name: &str,
    address: SocketAddr,
) -> Result<(), String> {
    let never = AtomicBool::new(false);
    running.wait_until_listening(address, &never).map_err(|why| format!("{name}: {why}"))
}

/// The command line that starts contender `name` on `address`, and the version of the program.
pub(crate) fn command(
    name: &str,
    work: Work,
    own: &OwnPrograms,
    folder: &Path,
    address: SocketAddr,
) -> Result<(Command, String), String> {
    let work = work.of(name);
    let configuration = |file: &str, template: &str| {
        let text = fill(template, work, folder, address)?;
        let path = folder.join(file);
        fs::write(&path, text).map(|()| path).map_err(|error| format!("{name}: {error}"))
    };
    let installed = |program: &str| {
        process::find_program(program).ok_or_else(|| {
            let packages = if program == NODE { "nodejs node-ws" } else { program };
            format!("{name} is not installed; run apt-get install {packages}")
        })
    };
    match name {
        "tidegate" | PLAIN | RAW => {
            let program = own.tidegate.clone().ok_or(
                "tidegate is not built; run cargo build --release, or give its path with --ours",
            )?;
            let template = if work == Work::Push { TIDEGATE_PUSH } else { TIDEGATE.of(work) };
            let file = configuration("tidegate.toml", template)?;
            let mut command = Command::new(&program);
            command.args(["run", "-c"]).arg(file);
            Ok((command, process::version_of(&program, "--version")))
        }
        "floor" => Ok((floor(work, own, address), "receive and send only".to_owned())),
        "nginx" => {
            let program = installed("nginx")?;
            let file = configuration("nginx.conf", NGINX.of(work))?;
            let mut command = Command::new(&program);
            command.arg("-p").arg(folder).arg("-c").arg(file);
            Ok((command, process::version_of(&program, "-v")))
        }
        "haproxy" => {
            let program = installed("haproxy")?;
            let file = configuration("haproxy.cfg", HAPROXY.of(work))?;
            let mut command = Command::new(&program);
            command.arg("-db").arg("-f").arg(file);
            Ok((command, process::version_of(&program, "-v")))
        }
        H2O => {
            let program = installed(H2O)?;
            let file = configuration("h2o.conf", H2O_RESPONSE)?;
            let mut command = Command::new(&program);
            command.arg("-c").arg(file);
            Ok((command, process::version_of(&program, "-v")))
        }
        BUN | NODE | PYTHON => {
            let (program, file, script) = match name {
                BUN => (find_peer(BUN, BUN)?, "echo.mjs", BUN_ECHO),
                NODE => (installed(NODE)?, "echo.js", NODE_ECHO),
                // Another Python in PATH does not find the packages of the distribution.
                _ => ("/usr/bin/python3".into(), "echo.py", PYTHON_ECHO),
            };
            let mut command = Command::new(&program);
            command.arg(configuration(file, script)?);
            Ok((command, process::version_of(&program, "--version")))
        }
        FASTWEBSOCKETS | ACTIX => {
            let program = find_peer(name, &format!("{name}-echo"))?;
            let mut command = Command::new(&program);
            command.arg(address.to_string());
            Ok((command, process::version_of(&program, "--version")))
        }
        CENTRIFUGO => {
            let program = find_peer(CENTRIFUGO, CENTRIFUGO)?;
            let mut command = Command::new(&program);
            command.arg("-c").arg(configuration("config.json", CENTRIFUGO_PUSH)?);
            Ok((command, process::version_of(&program, "version")))
        }
        NCHAN => {
            let program = installed("nginx")?;
            if !Path::new(NCHAN_MODULE).exists() {
                let why = "nchan is not installed; run apt-get install libnginx-mod-nchan";
                return Err(why.to_owned());
            }
            let file = configuration("nchan.conf", NCHAN_PUSH)?;
            let mut command = Command::new(&program);
            command.arg("-p").arg(folder).arg("-c").arg(file);
            Ok((command, process::version_of(&program, "-v")))
        }
        _ => Err(format!("unknown contender `{name}`; allowed: {}", NAMES.join(", "))),
    }
}

/// Finds a program that no package of the distribution contains: in PATH, or where `scripts/compare-peers.sh` installs it.
fn find_peer(name: &str, program: &str) -> Result<PathBuf, String> {
    process::find_program(program)
        .or_else(|| process::find_program(Path::new(PEERS).join(program)))
        .ok_or_else(|| format!("{name} is not installed; run scripts/compare-peers.sh"))
}

/// The command line of a floor server.
pub(crate) fn floor(work: Work, own: &OwnPrograms, address: SocketAddr) -> Command {
    let mut command = Command::new(&own.bench);
    command.args(["bench", "floor", "--listen", &address.to_string()]);
    match work {
        Work::Json
        | Work::SecureJson(_)
        | Work::Http2Json
        | Work::SecureHttp2Json
        | Work::Echo
        | Work::Push => {}
        Work::Plaintext => {
            command.arg("--plaintext");
        }
        Work::Proxy(origin)
        | Work::ProxyFields(origin)
        | Work::SecureProxy(origin)
        | Work::Http2Proxy(origin) => {
            command.args(["--proxy", &origin.to_string()]);
        }
    }
    command
}

fn fill(template: &str, work: Work, folder: &Path, address: SocketAddr) -> Result<String, String> {
    let origin = work.origin().map_or_else(String::new, |origin| origin.to_string());
    let mut text = template
        .replace("{listen}", &address.to_string())
        .replace("{origin}", &origin)
        .replace("{host}", &address.ip().to_string())
        .replace("{port}", &address.port().to_string())
        .replace("{dir}", &folder.to_string_lossy());
    if text.contains("{body}") {
        let body = folder.join("json");
        fs::write(&body, JSON_BODY).map_err(|error| format!("{}: {error}", body.display()))?;
        // H2O started by root would change to a user that cannot read the folder.
        let is_root = rustix::process::geteuid().is_root();
        text = text
            .replace("{user}", if is_root { "user: root" } else { "" })
            .replace("{body}", &body.to_string_lossy());
    }
    if let Some(key) = work.key() {
        let files = certificate::make(folder, key)?;
        text = text
            .replace("{certificate}", &files.certificate.to_string_lossy())
            .replace("{key}", &files.key.to_string_lossy())
            .replace("{both}", &files.both.to_string_lossy());
    }
    Ok(text)
}

/// The configuration templates of one program; `of` selects the template for a `Work`.
struct Templates {
    answer: &'static str,
    proxy: &'static str,
    proxy_fields: &'static str,
    secure_answer: &'static str,
    secure_proxy: &'static str,
    http2_answer: &'static str,
    secure_http2_answer: &'static str,
    http2_proxy: &'static str,
}

impl Templates {
    fn of(&self, work: Work) -> &'static str {
        match work {
            Work::Json | Work::Plaintext | Work::Echo | Work::Push => self.answer,
            Work::Proxy(_) => self.proxy,
            Work::ProxyFields(_) => self.proxy_fields,
            Work::SecureJson(_) => self.secure_answer,
            Work::SecureProxy(_) => self.secure_proxy,
            Work::Http2Json => self.http2_answer,
            Work::SecureHttp2Json => self.secure_http2_answer,
            Work::Http2Proxy(_) => self.http2_proxy,
        }
    }
}

const TIDEGATE: Templates = Templates {
    answer: include_str!("../../../../benches/compare/tidegate-answer.toml"),
    proxy: include_str!("../../../../benches/compare/tidegate-proxy.toml"),
    proxy_fields: include_str!("../../../../benches/compare/tidegate-proxy.toml"),
    secure_answer: include_str!("../../../../benches/compare/tidegate-tls-answer.toml"),
    secure_proxy: include_str!("../../../../benches/compare/tidegate-tls-proxy.toml"),
    http2_answer: include_str!("../../../../benches/compare/tidegate-h2c-answer.toml"),
    secure_http2_answer: include_str!("../../../../benches/compare/tidegate-h2-answer.toml"),
    http2_proxy: include_str!("../../../../benches/compare/tidegate-h2c-proxy.toml"),
};
const NGINX: Templates = Templates {
    answer: include_str!("../../../../benches/compare/nginx-answer.conf"),
    proxy: include_str!("../../../../benches/compare/nginx-proxy.conf"),
    proxy_fields: include_str!("../../../../benches/compare/nginx-proxy-fields.conf"),
    secure_answer: include_str!("../../../../benches/compare/nginx-tls-answer.conf"),
    secure_proxy: include_str!("../../../../benches/compare/nginx-tls-proxy.conf"),
    http2_answer: include_str!("../../../../benches/compare/nginx-h2c-answer.conf"),
    secure_http2_answer: include_str!("../../../../benches/compare/nginx-h2-answer.conf"),
    http2_proxy: include_str!("../../../../benches/compare/nginx-h2c-proxy.conf"),
};
const HAPROXY: Templates = Templates {
    answer: include_str!("../../../../benches/compare/haproxy-answer.cfg"),
    proxy: include_str!("../../../../benches/compare/haproxy-proxy.cfg"),
    proxy_fields: include_str!("../../../../benches/compare/haproxy-proxy-fields.cfg"),
    secure_answer: include_str!("../../../../benches/compare/haproxy-tls-answer.cfg"),
    secure_proxy: include_str!("../../../../benches/compare/haproxy-tls-proxy.cfg"),
    http2_answer: include_str!("../../../../benches/compare/haproxy-h2c-answer.cfg"),
    secure_http2_answer: include_str!("../../../../benches/compare/haproxy-h2-answer.cfg"),
    http2_proxy: include_str!("../../../../benches/compare/haproxy-h2c-proxy.cfg"),
};
const BUN_ECHO: &str = include_str!("../../../../benches/compare/bun-echo.mjs");
const NODE_ECHO: &str = include_str!("../../../../benches/compare/node-echo.js");
const PYTHON_ECHO: &str = include_str!("../../../../benches/compare/python-echo.py");
const TIDEGATE_PUSH: &str = include_str!("../../../../benches/compare/tidegate-push.toml");
const CENTRIFUGO_PUSH: &str = include_str!("../../../../benches/compare/centrifugo-push.json");
const NCHAN_PUSH: &str = include_str!("../../../../benches/compare/nchan-push.conf");
const H2O_RESPONSE: &str = include_str!("../../../../benches/compare/h2o-h2-answer.conf");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn templates_have_no_unfilled_placeholders() {
        let scratch = scratch::Scratch::new().unwrap();
        let folder = scratch.path();
        let address: SocketAddr = "127.0.0.1:1".parse().unwrap();
        let origin: SocketAddr = "127.0.0.1:2".parse().unwrap();
        for work in [
            Work::Json,
            Work::Proxy(origin),
            Work::SecureJson(Key::Ecdsa),
            Work::SecureJson(Key::Rsa),
            Work::SecureProxy(origin),
            Work::Http2Json,
            Work::SecureHttp2Json,
            Work::Http2Proxy(origin),
        ] {
            let mut templates = vec![TIDEGATE.of(work), NGINX.of(work), HAPROXY.of(work)];
            if work.names().contains(&H2O) {
                templates.push(H2O_RESPONSE);
            }
            for template in templates {
                let text = fill(template, work, folder, address).unwrap();
                let listens = text.contains("127.0.0.1:1") || text.contains("port: 1\n");
                assert!(listens, "{text}");
                assert_eq!(text.contains("127.0.0.1:2"), work.origin().is_some(), "{text}");
                for word in
                    ["listen", "origin", "dir", "certificate", "key", "both", "host", "port"]
                {
                    assert!(!text.contains(&format!("{{{word}}}")), "{text}");
                }
            }
        }
        for template in [TIDEGATE_PUSH, CENTRIFUGO_PUSH, NCHAN_PUSH] {
            let text = fill(template, Work::Push, folder, address).unwrap();
            assert!(text.contains("127.0.0.1:1") || text.contains("\"port\": 1 "), "{text}");
            for word in ["listen", "dir", "host", "port"] {
                assert!(!text.contains(&format!("{{{word}}}")), "{text}");
            }
        }
        let key = folder.join("site.key").metadata().unwrap().permissions();
        assert_eq!(std::os::unix::fs::PermissionsExt::mode(&key) & 0o777, 0o600);
    }
}
