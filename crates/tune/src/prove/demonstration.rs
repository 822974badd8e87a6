//! Demonstrates capacity settings: a run fails with a small value and passes with the planned value.
//! In: no settings of this host: each run has its own network namespace and limits.
//! Out: for each limit, the number of connections established with the small and with the planned value.
//! Never: changes a setting outside its namespace. Limits: 1000 connections per run (`CASES`).

use crate::host::{Host, find_tool, run_tool};
use rustix::fd::OwnedFd;
use rustix::net::{AddressFamily, SocketType, bind, listen, socket};
use rustix::process::{Resource, Rlimit, setrlimit};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpListener, TcpStream};
use std::process::Command;
use std::time::Duration;

/// Time limit for one connection; over loopback it takes microseconds unless it is dropped.
const CONNECT_WAIT: Duration = Duration::from_millis(400);

/// A limit that can be demonstrated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Limit {
    /// Connections waiting to be accepted.
    Somaxconn,
    /// Ports for outgoing connections.
    PortRange,
    /// Descriptors of a process.
    Nofile,
}

/// The runs for each limit: the item, the small value, the planned value, the number of connections.
const CASES: [(Limit, &str, &str, &str, u32); 3] = [
    (Limit::Somaxconn, "capacity-somaxconn", "128", "65535", 1000),
    (Limit::PortRange, "capacity-port-range", "40000 40499", "1024 65535", 1000),
    (Limit::Nofile, "capacity-nofile", "1024", "8192", 1000),
];

/// The result for one limit.
#[derive(Clone, Debug)]
pub struct Demonstration {
    /// The item.
    pub item: &'static str,
    /// The small value.
    pub without: &'static str,
    /// The planned value.
    pub with: &'static str,
    /// Connections to establish.
    pub wanted: u32,
    /// Connections established with each value, or why the run failed.
    pub result: Result<(u32, u32), String>,
}

impl Demonstration {
    /// The result as one line.
    #[must_use]
    pub fn line(&self) -> String {
        match &self.result {
            Ok((without, with)) => format!(
                "{} = \"{}\": {without} of {} connections established; with \"{}\": {with}",
                self.item, self.without, self.wanted, self.with
            ),
            Err(reason) => format!("{}: could not run: {reason}", self.item),
        }
    }
}

/// Runs every case; each value has its own process and network namespace.
#[must_use]
pub fn demonstrate_all(own_command: &[String]) -> Vec<Demonstration> {
    CASES
        .iter()
        .map(|(limit, item, without, with, wanted)| Demonstration {
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
    let text = String::from_utf8_lossy(&output.stdout);
    text.trim()
        .parse()
        .map_err(|_| String::from_utf8_lossy(&output.stderr).trim().replace('\n', "; "))
}

/// One run, inside its own network namespace: sets the limit and counts the established connections.
///
/// # Errors
/// The reason why the run cannot be set up.
pub fn count_connections(limit: Limit, value: &str, wanted: u32) -> Result<u32, String> {
    run_tool(&["ip", "link", "set", "lo", "up"]).map_err(|error| error.to_string())?;
    let host = Host::live();
    let set = |path: &str, value: &str| {
        host.write_setting(path, value).map_err(|error| error.to_string())
    };
    match limit {
        Limit::Somaxconn => {
            set("/proc/sys/net/core/somaxconn", value)?;
            let (_listener, address) = open_listener()?;
            Ok(connect(address, wanted, None).len() as u32)
        }
        Limit::PortRange => {
            let (listener, address) = open_listener()?;
            let listener = TcpListener::from(listener);
            set("/proc/sys/net/ipv4/ip_local_port_range", value)?;
            Ok(connect(address, wanted, Some(&listener)).len() as u32)
        }
        Limit::Nofile => {
            let (listener, address) = open_listener()?;
            let files = value.parse().map_err(|_| format!("{value} is not a number"))?;
            let rlimit = Rlimit { current: Some(files), maximum: Some(files) };
            setrlimit(Resource::Nofile, rlimit)
                .map_err(|error| format!("RLIMIT_NOFILE {files}: {error}"))?;
            Ok(connect(address, wanted, Some(&TcpListener::from(listener))).len() as u32)
        }
    }
}

/// A listener with the longest queue that the kernel allows.
fn open_listener() -> Result<(OwnedFd, SocketAddr), String> {
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

/// Opens connections until one fails. If `accept` is given, each is accepted at once. Both ends stay open until the
/// result is dropped.
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
