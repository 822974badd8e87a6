//! What capacity settings are for, shown by a run that fails without them and passes with them.
//! In: nothing of this host's settings: each run has a network namespace (or limits) of its own.
//! Out: for each limit, how many connections came in with the small and with the planned value.
//! Never: changes a setting outside its namespace. Limits: `CONNECTIONS`, so it fits everywhere.

use crate::host::{Host, find_tool, run_tool};
use rustix::fd::OwnedFd;
use rustix::net::{AddressFamily, SocketType, bind, listen, socket};
use rustix::process::{Resource, Rlimit, setrlimit};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpListener, TcpStream};
use std::process::Command;
use std::time::Duration;

/// How long one connection may take; over loopback it takes microseconds unless it is dropped.
const CONNECT_WAIT: Duration = Duration::from_millis(400);

/// A limit that can be shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Limit {
    /// Connections waiting to be accepted.
    Somaxconn,
    /// Ports for outgoing connections.
    PortRange,
    /// Descriptors of a process.
    Nofile,
}

/// What is tried for each limit: the item, the small value, the planned one, connections wanted.
const CASES: [(Limit, &str, &str, &str, u32); 3] = [
    (Limit::Somaxconn, "capacity-somaxconn", "128", "65535", 1000),
    (Limit::PortRange, "capacity-port-range", "40000 40499", "1024 65535", 1000),
    (Limit::Nofile, "capacity-nofile", "1024", "8192", 1000),
];

/// One limit's outcome.
#[derive(Clone, Debug)]
pub struct Shown {
    /// The item.
    pub item: &'static str,
    /// The small value.
    pub without: &'static str,
    /// The planned value.
    pub with: &'static str,
    /// Connections wanted.
    pub wanted: u32,
    /// Connections with each, or why it could not be run.
    pub result: Result<(u32, u32), String>,
}

impl Shown {
    /// A line for people.
    #[must_use]
    pub fn line(&self) -> String {
        match &self.result {
            Ok((without, with)) => format!(
                "{} at \"{}\": {without} of {} connections come in; at \"{}\": {with}",
                self.item, self.without, self.wanted, self.with
            ),
            Err(reason) => format!("{}: not shown: {reason}", self.item),
        }
    }
}

/// Runs every case, each value in a process and network namespace of its own.
#[must_use]
pub fn show_all(own_command: &[String]) -> Vec<Shown> {
    CASES
        .iter()
        .map(|(limit, item, without, with, wanted)| Shown {
            item,
            without,
            with,
            wanted: *wanted,
            result: spawn(own_command, *limit, without, *wanted)
                .and_then(|small| Ok((small, spawn(own_command, *limit, with, *wanted)?))),
        })
        .collect()
}

fn spawn(own_command: &[String], limit: Limit, value: &str, wanted: u32) -> Result<u32, String> {
    let unshare = find_tool("unshare").ok_or("the tool unshare is not installed")?;
    let flags = if rustix::process::geteuid().is_root() { "-n" } else { "-rn" };
    let name = match limit {
        Limit::Somaxconn => "somaxconn",
        Limit::PortRange => "port-range",
        Limit::Nofile => "nofile",
    };
    let output = Command::new(unshare)
        .arg(flags)
        .args(own_command)
        .args(["capacity", "--limit", name, "--value", value, "--wanted", &wanted.to_string()])
        .output()
        .map_err(|error| error.to_string())?;
    let said = String::from_utf8_lossy(&output.stdout);
    said.trim()
        .parse()
        .map_err(|_| String::from_utf8_lossy(&output.stderr).trim().replace('\n', "; "))
}

/// The inside of one run: sets the limit here (a namespace of our own) and counts connections.
///
/// # Errors
/// What cannot be set up, in words.
pub fn count_connections(limit: Limit, value: &str, wanted: u32) -> Result<u32, String> {
    run_tool(&["ip", "link", "set", "lo", "up"]).map_err(|error| error.to_string())?;
    let host = Host::live();
    let set = |path: &str, value: &str| {
        host.write_setting(path, value).map_err(|error| error.to_string())
    };
    match limit {
        Limit::Somaxconn => {
            set("/proc/sys/net/core/somaxconn", value)?;
            let (_listener, address) = deaf_listener()?;
            Ok(connect(address, wanted, None).len() as u32)
        }
        Limit::PortRange => {
            let (listener, address) = deaf_listener()?;
            let listener = TcpListener::from(listener);
            set("/proc/sys/net/ipv4/ip_local_port_range", value)?;
            Ok(connect(address, wanted, Some(&listener)).len() as u32)
        }
        Limit::Nofile => {
            let (listener, address) = deaf_listener()?;
            let files = value.parse().map_err(|_| format!("{value} is not a number"))?;
            let rlimit = Rlimit { current: Some(files), maximum: Some(files) };
            setrlimit(Resource::Nofile, rlimit)
                .map_err(|error| format!("RLIMIT_NOFILE {files}: {error}"))?;
            Ok(connect(address, wanted, Some(&TcpListener::from(listener))).len() as u32)
        }
    }
}

/// A listener with the longest queue that the kernel allows.
fn deaf_listener() -> Result<(OwnedFd, SocketAddr), String> {
    let made = socket(AddressFamily::INET, SocketType::STREAM, None).and_then(|fd| {
        bind(&fd, &SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0))?;
        listen(&fd, i32::MAX)?;
        Ok(fd)
    });
    let fd = made.map_err(|error| error.to_string())?;
    let copy = TcpListener::from(fd.try_clone().map_err(|error| error.to_string())?);
    let address = copy.local_addr().map_err(|error| error.to_string())?;
    Ok((fd, address))
}

/// Opens connections until one fails; they are accepted at once when `accept` is given. Both ends stay
/// open until the end of the program.
fn connect(
    address: SocketAddr,
    wanted: u32,
    accept: Option<&TcpListener>,
) -> Vec<(TcpStream, Option<TcpStream>)> {
    let mut open = Vec::new();
    for _ in 0..wanted {
        let Ok(stream) = TcpStream::connect_timeout(&address, CONNECT_WAIT) else {
            break;
        };
        let served = match accept.map(TcpListener::accept) {
            None => None,
            Some(Ok((served, _))) => Some(served),
            Some(Err(_)) => break,
        };
        open.push((stream, served));
    }
    open
}
