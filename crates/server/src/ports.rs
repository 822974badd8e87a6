//! Finds out whether another process listens on an address, and which one.
//! In: addresses. Out: whether they are taken, the process that holds them, the next free port.
//! Never: listens itself, so no client connects to a socket that exists only for the check.
//! Limits: `SEARCH_SPAN` for the search of the process; without the right to look into a process it is not found. A start waits
//! up to `TURN_SPAN` for another one on the same ports, and looks at the first `TURN_PORTS_MAX` ports.

use std::collections::BTreeSet;
use std::fs;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, socket, socket_with, sockopt,
};
use tidegate_config::model::{self, Bind, Config};

use crate::inheritance::Inheritance;
use crate::listening_sockets;
use crate::log;
use crate::start::StartError;

/// How long the search for the process that holds an address may take.
const SEARCH_SPAN: Duration = Duration::from_secs(1);
/// How long a start waits for another process that starts on the same ports.
const TURN_SPAN: Duration = Duration::from_secs(2);
/// Time between two attempts to take the turn.
const TURN_AGAIN: Duration = Duration::from_millis(10);
/// The most ports that a process takes turns for.
const TURN_PORTS_MAX: usize = 16;

/// A process that listens on an address.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Holder {
    /// Its process id.
    pub pid: u32,
    /// The name of its program (proc(5), comm).
    pub name: String,
}

/// Whether another process listens on `address`, even if both could share it by SO_REUSEPORT.
#[must_use]
pub fn is_taken(address: SocketAddr) -> bool {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let taken = || {
        let socket = socket(family, SocketType::STREAM, None)?;
        // Connections that were closed a moment ago do not take the address; listeners do.
        sockopt::set_socket_reuseaddr(&socket, true)?;
        bind(&socket, &address)
    };
    taken() == Err(Errno::ADDRINUSE)
}

/// The first address that is not taken, of `address` and the `tries` ports after it. Port 0 becomes a free port.
#[must_use]
pub fn next_free(address: SocketAddr, tries: u16) -> Option<SocketAddr> {
    if address.port() == 0 {
        return TcpListener::bind(address).ok()?.local_addr().ok();
    }
    let last = address.port().saturating_add(tries);
    let ports = (address.port()..=last).map(|port| SocketAddr::new(address.ip(), port));
    ports.into_iter().find(|address| !is_taken(*address))
}

/// The process that listens on `address`, if it can be found.
#[must_use]
pub fn holder(address: SocketAddr) -> Option<Holder> {
    find_holder(address, Instant::now() + SEARCH_SPAN)
}

fn find_holder(address: SocketAddr, deadline: Instant) -> Option<Holder> {
    let inodes = listening_sockets::listeners_that_exclude(address);
    let links: Vec<String> = inodes.iter().map(|inode| format!("socket:[{inode}]")).collect();
    if links.is_empty() {
        return None;
    }
    let number = |entry: fs::DirEntry| entry.file_name().to_str()?.parse::<u32>().ok();
    let mut pids: Vec<u32> = fs::read_dir("/proc").ok()?.flatten().filter_map(number).collect();
    // A main process is usually older than the processes that inherited its listeners.
    pids.sort_unstable();
    let pid = pids.into_iter().take_while(|_| Instant::now() < deadline).find(|pid| {
        // The threads of a process may have separate descriptor tables, as Tidegate's workers do.
        let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
        tasks.take_while(|_| Instant::now() < deadline).any(|task| {
            let descriptors = fs::read_dir(task.path().join("fd")).into_iter().flatten().flatten();
            descriptors
                .take_while(|_| Instant::now() < deadline)
                .filter_map(|descriptor| fs::read_link(descriptor.path()).ok())
                .any(|link| links.iter().any(|wanted| link.as_os_str() == wanted.as_str()))
        })
    })?;
    let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    Some(Holder { pid, name: name.trim_end().to_owned() })
}

/// The turn of this process to start on its ports, until the value is dropped. Between the look at a port and the listen on it,
/// another process that starts could see the port free as well, and both would share it by SO_REUSEPORT.
///
/// A turn is a unix socket with an abstract name (unix(7)), which is as exclusive as the port: one process of a network namespace has
/// it, and the kernel frees it when the process ends.
#[derive(Debug, Default)]
pub(crate) struct StartTurn(Vec<OwnedFd>);

impl StartTurn {
    /// The descriptors. Threads that have copied the table of this one close them: a copy would keep the turn.
    pub(crate) fn numbers(&self) -> Vec<RawFd> {
        self.0.iter().map(AsRawFd::as_raw_fd).collect()
    }

    /// Takes the turn for the TCP ports of `config`. Waits while another process has it, but not for ever: a process that hangs, or
    /// that only claims the name, must not prevent a start.
    pub(crate) fn take(config: &Config) -> Self {
        let tcp = config.listeners.iter().filter_map(|listener| match listener.bind {
            Bind::Tcp(address) => Some(address.port()),
            Bind::Unix(_) => None,
        });
        // In order, so that two processes do not wait for each other.
        let ports: BTreeSet<u16> = tcp.filter(|port| *port > 0).collect();
        Self::until(ports.into_iter().take(TURN_PORTS_MAX), Instant::now() + TURN_SPAN)
    }

    fn until(ports: impl Iterator<Item = u16>, deadline: Instant) -> Self {
        let mut sockets = Vec::new();
        for port in ports {
            let mut taken = take_turn(port);
            while matches!(taken, Err(Errno::ADDRINUSE)) && Instant::now() < deadline {
                std::thread::sleep(TURN_AGAIN);
                taken = take_turn(port);
            }
            sockets.extend(taken);
        }
        Self(sockets)
    }
}

fn take_turn(port: u16) -> Result<OwnedFd, Errno> {
    let name = format!("tidegate/start/{port}");
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    bind(&socket, &SocketAddrUnix::new_abstract_name(name.as_bytes())?)?;
    Ok(socket)
}

/// States that `address` is taken, by which process, and what to do.
pub(crate) fn refusal(address: SocketAddr) -> String {
    refusal_by(address, holder(address))
}

fn refusal_by(address: SocketAddr, holder: Option<Holder>) -> String {
    let lead = format!("cannot listen on {address}: ");
    match holder {
        Some(Holder { pid, name }) if name == "tidegate" => format!(
            "{lead}process {pid} (tidegate) already listens there; stop it (kill {pid}), \
             or start with --takeover to replace it without a pause"
        ),
        Some(Holder { pid, name }) => format!(
            "{lead}process {pid} ({name}) already listens there; stop it, or choose another address"
        ),
        None => format!(
            "{lead}another process already listens there (`ss -ltnp` as root shows which); stop it, or choose \
             another address; to replace a tidegate of the same user without a pause, start with --takeover"
        ),
    }
}

/// Refuses TCP addresses on which another process listens. SO_REUSEPORT would let a second process of the same
/// user listen there too, which is how a new process takes over from an old one (`takeover`). Without this
/// check, a process started by mistake would silently receive a share of the connections.
pub(crate) fn refuse_taken_ports(
    config: &Config,
    takeover: bool,
    inheritance: &Inheritance,
) -> Result<(), StartError> {
    let tcp = |(place, listener): (usize, &model::Listener)| match listener.bind {
        Bind::Tcp(address) if !inheritance.has(place) => Some(address),
        Bind::Tcp(_) | Bind::Unix(_) => None,
    };
    let listeners = config.listeners.iter().enumerate();
    let taken: Vec<_> = listeners.filter_map(tcp).filter(|at| is_taken(*at)).collect();
    if !takeover && !taken.is_empty() {
        return Err(StartError::Taken(taken.into_iter().map(refusal).collect()));
    }
    for address in taken {
        let holder = match holder(address) {
            Some(Holder { pid, name }) => format!("process {pid} ({name})"),
            None => "another process".to_owned(),
        };
        log::banner(format_args!(
            "tidegate: taking over {address} from {holder}, which still receives a share of the connections \
             until it is stopped (SIGTERM)"
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use tidegate_reactor::inherited::take_copies;
    use tidegate_reactor::worker;

    use super::*;

    #[test]
    fn one_process_at_a_time_starts_on_a_port() {
        // No test listens on these ports, which need a capability.
        let take = |wait| StartTurn::until([1, 2].into_iter(), Instant::now() + wait);
        let first = take(Duration::ZERO);
        assert_eq!((first.0.len(), take(Duration::ZERO).0.len()), (2, 0));
        let second = std::thread::spawn(move || take(Duration::from_secs(60)).0.len());
        drop(first);
        assert_eq!(second.join().expect("it does not panic"), 2);
    }

    #[test]
    fn worker_keeps_no_turn_to_start() {
        let take = || StartTurn::until([3, 4].into_iter(), Instant::now());
        let turn = take();
        let numbers = turn.numbers();
        let (prepared, is_prepared) = std::sync::mpsc::channel();
        let (ends, end) = std::sync::mpsc::channel::<()>();
        let worker = std::thread::spawn(move || {
            worker::unshare_descriptor_table().expect("this system allows unshare");
            drop(take_copies(&numbers, |_| false));
            prepared.send(()).expect("the test waits");
            let _ = end.recv();
        });
        is_prepared.recv().expect("it is prepared");
        drop(turn);
        assert_eq!(take().0.len(), 2);
        drop(ends);
        worker.join().expect("it does not panic");
    }

    #[test]
    fn holder_of_a_taken_port_is_found_and_the_next_free_port_is_above_it() {
        for (any, wild) in [("127.0.0.1:0", "0.0.0.0"), ("[::1]:0", "[::]")] {
            let any: SocketAddr = any.parse().expect("an address");
            let listener = TcpListener::bind(any).expect("loopback has a port");
            let address = listener.local_addr().expect("it is bound");
            let own = std::process::id();
            assert!(is_taken(address));
            // Not `SEARCH_SPAN`: the machine may have thousands of descriptors, and other work.
            let find = |address| find_holder(address, Instant::now() + Duration::from_secs(60));
            assert_eq!(find(address).map(|holder| holder.pid), Some(own));
            let wild: SocketAddr =
                format!("{wild}:{}", address.port()).parse().expect("an address");
            assert!(is_taken(wild));
            assert_eq!(find(wild).map(|holder| holder.pid), Some(own), "{wild}");
            assert!(refusal_by(address, find(address)).contains(&format!("process {own} ")));
            if let Some(next) = next_free(address, 64) {
                assert!(next.port() > address.port() && next.ip() == address.ip());
            }
            assert_eq!(next_free(address, 0), None);
            assert!(next_free(any, 0).is_some_and(|free| free.port() != 0));
        }
    }
}
