//! The listening sockets on an address, of all processes. A stopping process steers new connections to
//! processes that started later, and must know whether a process that started earlier still listens.
//! In: an address. Out: the inodes of the sockets that listen on it, from /proc/net/tcp.
//! Never: runs while requests are served, only at start and stop. If /proc cannot be read, no socket is
//! found.
//! Limits: reads only the listening sockets of the network namespace, which the kernel lists first.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::sync::Arc;

use tidegate_config::arrange::Life;
use tidegate_config::model::{Bind, Config, Listener};
use tidegate_reactor::LeavingListeners;

use crate::stop::Leaving;

/// The state of a listening socket in the table (`TCP_LISTEN`).
const LISTENS: &str = "0A";

/// Which listeners steer new connections to a process that takes over. These are the TCP listeners on whose
/// address another process listens, if no process that listened before this one still does: only then are
/// this process's listeners the first ones of the SO_REUSEPORT group.
pub(crate) fn leaving(
    config: &Config,
    lives: &[Life],
    workers: u32,
    earlier: &[Vec<u64>],
) -> Leaving {
    let own = |((listener, life), earlier): ((&Listener, &Life), &Vec<u64>)| {
        let Bind::Tcp(address) = listener.bind else { return None };
        if life.is_gone() {
            return None;
        }
        // Each worker has one listener on the address. If there are more listeners, another process has the
        // rest. If fewer are found, the table cannot be read, and there may be another process.
        let is_alone = listeners_on(address).len() == workers as usize;
        let is_first = !any_still_listening(earlier, address);
        (is_first && !is_alone).then(|| Arc::new(LeavingListeners::new(workers)))
    };
    config.listeners.iter().zip(lives).zip(earlier).map(own).collect()
}

/// Returns the inodes of the sockets that listen on exactly `address`.
pub(crate) fn listeners_on(address: SocketAddr) -> Vec<u64> {
    let table = if address.is_ipv4() { "/proc/net/tcp" } else { "/proc/net/tcp6" };
    let local = table_address(address);
    File::open(table).map(|file| parse(BufReader::new(file), |at| at == local)).unwrap_or_default()
}

/// Returns the inodes of the sockets that prevent another socket from listening on `address`: those on the same
/// port and address, or on the same port of all addresses.
pub(crate) fn listeners_that_exclude(address: SocketAddr) -> Vec<u64> {
    let own = table_address(address);
    let Some((_, port)) = own.split_once(':') else { return Vec::new() };
    let excludes = |local: &str| {
        local.split_once(':').is_some_and(|(ip, other)| {
            let is_any = address.ip().is_unspecified() || ip.bytes().all(|digit| digit == b'0');
            other == port && (is_any || local == own)
        })
    };
    ["/proc/net/tcp", "/proc/net/tcp6"]
        .iter()
        .filter_map(|table| File::open(table).ok())
        .flat_map(|file| parse(BufReader::new(file), excludes))
        .collect()
}

/// Whether one of the sockets `earlier` still listens on `address`.
pub(crate) fn any_still_listening(earlier: &[u64], address: SocketAddr) -> bool {
    !earlier.is_empty() && listeners_on(address).iter().any(|inode| earlier.contains(inode))
}

/// Parses the table described in proc(5) for the sockets whose local address is `wanted`. Its fields: `sl
/// local_address rem_address st queues timer retransmits uid timeout inode`.
fn parse(table: impl BufRead, wanted: impl Fn(&str) -> bool) -> Vec<u64> {
    let mut inodes = Vec::new();
    for line in table.lines().skip(1).map_while(Result::ok) {
        let mut fields = line.split_ascii_whitespace().skip(1);
        let (at, state) = (fields.next(), fields.nth(1));
        if state != Some(LISTENS) {
            break;
        }
        if at.is_some_and(&wanted) {
            inodes.extend(fields.nth(5).and_then(|inode| inode.parse::<u64>().ok()));
        }
    }
    inodes
}

/// Formats an address as in the table: 32-bit words in the host's byte order, then the port.
fn table_address(address: SocketAddr) -> String {
    let octets = match address {
        SocketAddr::V4(v4) => v4.ip().octets().to_vec(),
        SocketAddr::V6(v6) => v6.ip().octets().to_vec(),
    };
    let words = octets
        .chunks_exact(4)
        .map(|word| format!("{:08X}", u32::from_ne_bytes([word[0], word[1], word[2], word[3]])));
    format!("{}:{:04X}", words.collect::<String>(), address.port())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsFd;

    #[test]
    fn only_open_listeners_are_found() {
        for any in ["127.0.0.1:0", "[::1]:0"] {
            let listener = TcpListener::bind(any).expect("loopback has a port");
            let address = listener.local_addr().expect("it is bound");
            let client = TcpStream::connect(address).expect("it listens");
            let inode = rustix::fs::fstat(listener.as_fd()).expect("it is open").st_ino;
            let seen = listeners_on(address);
            assert_eq!(seen, [inode]);
            assert!(any_still_listening(&seen, address));
            drop(listener);
            assert!(!any_still_listening(&seen, address));
            drop(client);
        }
    }
}
