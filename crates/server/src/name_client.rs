//! Resolves one name of a server: by queries to DNS servers as `[resolver]` states, or by the resolver of the system.
//! In: a name and its port. Out: addresses and how long they may be kept, or why there are none.
//! Never: runs on a worker; uses a socket for two queries: with a new socket, the kernel chooses another port, so an attacker has to
//! guess the port and the id of the query (RFC 5452). Takes a datagram of another host: the socket is connected.
//! Limits: `attempts` queries for each server and record type, each with `timeout`; answers of `udp-payload` bytes over UDP and
//! `STREAM_ANSWER_BYTES_MAX` over TCP; the names of `search`; `FILE_BYTES_MAX` bytes of each file.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::io::{self, Read as _, Write as _};
use std::net::{TcpStream, ToSocketAddrs as _, UdpSocket};
use std::path::Path;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tidegate_base::{Moment, loopback_addresses};
use tidegate_config::model::{Config, Families, Resolver};
use tidegate_gate::name_book::{Addresses, Failure, HostPort, LookedUp, SRV_PORT};
use tidegate_gate::name_servers::{NameServers, QueryCounts, QueryEnd};
use tidegate_gate::slots::{Mark, Marks};
use tidegate_wire::dns::{
    Answer, Fault, Question, Record, RecordKind, decode_answer_within, encode_query_for,
};

use crate::files;
use crate::name_servers;
use crate::randomness::random_seed;

/// The file with names of this host and of others.
const HOSTS: &str = "/etc/hosts";
const FILE_BYTES_MAX: u64 = 1024 * 1024;
/// How long addresses of that file are kept: it may be edited at any time.
const HOSTS_SECONDS: u32 = 30;
/// Bytes of an answer over TCP.
const STREAM_ANSWER_BYTES_MAX: usize = 64 * 1024 - 1;
/// SRV records whose hosts are resolved: those of the lowest priorities.
const SERVICE_HOSTS_MAX: usize = 128;
/// The largest datagram that is received; see `udp-payload`.
const DATAGRAM_BYTES_MAX: usize = 8192;

/// Resolves names as a configuration states.
pub(crate) type LookUp = Arc<dyn Fn(&HostPort) -> LookedUp + Send + Sync>;

/// The lookup of a configuration.
pub(crate) fn of(config: &Config) -> LookUp {
    match config.resolver.clone() {
        None => Arc::new(by_system),
        Some(resolver) => Arc::new(move |server| by_queries(&resolver, server)),
    }
}

/// The addresses by the resolver of the system.
fn by_system((name, port): &HostPort) -> LookedUp {
    let found: Vec<SocketAddr> = (name.as_str(), *port)
        .to_socket_addrs()
        .map(Iterator::collect)
        .or_else(|error| loopback_addresses(name, *port).map(Vec::from).ok_or(error))
        // The system does not say whether the name is unknown or its servers do not answer.
        .map_err(|_| Failure::ServerFailed)?;
    match found.is_empty() {
        true => Err(Failure::NoAddress),
        false => Ok(Addresses::of(found, None)),
    }
}

/// The addresses by /etc/hosts, or else by DNS servers.
fn by_queries(resolver: &Resolver, (name, port): &HostPort) -> LookedUp {
    let is_service = *port == SRV_PORT;
    if !is_service && let Some(own) = by_hosts(resolver, name, *port) {
        return Ok(own);
    }
    let (servers, searched) = match resolver.name_servers.is_empty() {
        false => (resolver.name_servers.clone(), name_servers::Searched::default()),
        true => name_servers::of_system(),
    };
    let client = Client { resolver, servers };
    let mut failure = Failure::UnknownName;
    for name in searched.candidates(name) {
        let found = match is_service {
            true => client.service(&name),
            false => client.host(&name, *port),
        };
        match found {
            Err(own @ (Failure::UnknownName | Failure::NoAddress)) => {
                // A name without addresses exists, which says more.
                failure = if own == Failure::NoAddress { own } else { failure };
            }
            other @ (Ok(_) | Err(Failure::Timeout | Failure::ServerFailed)) => return other,
        }
    }
    Err(failure)
}

/// The addresses of a name of /etc/hosts or of this host.
fn by_hosts(resolver: &Resolver, name: &str, port: u16) -> Option<Addresses> {
    let hosts = files::read(Path::new(HOSTS), FILE_BYTES_MAX).unwrap_or_default();
    let mut own = hosts_of(&String::from_utf8_lossy(&hosts), name, resolver.families);
    if own.is_empty() {
        own.extend(loopback_addresses(name, port).into_iter().flatten().map(|one| one.ip()));
        own.retain(|address| is_wanted(resolver.families, address));
    }
    let addresses: Vec<_> = own.into_iter().map(|ip| SocketAddr::new(ip, port)).collect();
    let is_known = !addresses.is_empty();
    is_known.then(|| Addresses::of(addresses, Some(HOSTS_SECONDS)))
}

/// The addresses of a name in the text of /etc/hosts.
fn hosts_of(text: &str, name: &str, families: Families) -> Vec<IpAddr> {
    let mut found = Vec::new();
    for line in text.lines() {
        let line = line.split('#').next().unwrap_or_default();
        let mut words = line.split_ascii_whitespace();
        let Some(address) = words.next().and_then(|word| word.parse::<IpAddr>().ok()) else {
            continue;
        };
        let is_named = words.any(|word| word.eq_ignore_ascii_case(name));
        if is_named && is_wanted(families, &address) && !found.contains(&address) {
            found.push(address);
        }
    }
    found
}

fn is_wanted(families: Families, address: &IpAddr) -> bool {
    match families {
        Families::Both => true,
        Families::Ipv4 => address.is_ipv4(),
        Families::Ipv6 => address.is_ipv6(),
    }
}

/// Queries the DNS servers.
struct Client<'r> {
    resolver: &'r Resolver,
    servers: Vec<SocketAddr>,
}

impl Client<'_> {
    /// The addresses of an absolute name. Some name servers know only one kind of record, and state that the name does not exist, or
    /// fail, if they are asked for the other one (RFC 4074 section 4).
    fn host(&self, name: &str, port: u16) -> LookedUp {
        let kinds: &[(RecordKind, Families)] = match self.resolver.families {
            Families::Both => {
                &[(RecordKind::A, Families::Ipv4), (RecordKind::Aaaa, Families::Ipv6)]
            }
            Families::Ipv4 => &[(RecordKind::A, Families::Ipv4)],
            Families::Ipv6 => &[(RecordKind::Aaaa, Families::Ipv6)],
        };
        let mut found = Addresses::of(Vec::new(), Some(u32::MAX));
        let (mut absence, mut fault) = (None, None);
        for (kind, family) in kinds {
            let question = Question::new(name, *kind).ok_or(Failure::UnknownName)?;
            match self.records(&question) {
                Ok((records, seconds)) => {
                    found.seconds = found.seconds.map(|least| least.min(seconds));
                    found.addresses.extend(records.iter().filter_map(|record| match record {
                        Record::A(address) => Some(SocketAddr::new((*address).into(), port)),
                        Record::Aaaa(address) => Some(SocketAddr::new((*address).into(), port)),
                        Record::Srv { .. } | Record::Txt(_) => None,
                    }));
                }
                // A name without addresses exists, which says more.
                Err(Failure::NoAddress) => absence = Some(Failure::NoAddress),
                Err(Failure::UnknownName) => {
                    absence = absence.or(Some(Failure::UnknownName));
                }
                Err(failure @ (Failure::Timeout | Failure::ServerFailed)) => {
                    (fault, found.unanswered) = (Some(failure), Some(*family));
                }
            }
        }
        match found.addresses.is_empty() {
            true => Err(fault.or(absence).unwrap_or(Failure::NoAddress)),
            false => Ok(found),
        }
    }

    /// The addresses of the hosts that the SRV records of an absolute name state (RFC 2782). A host without addresses is left out; if the
    /// lookup of one fails, the whole lookup has failed.
    fn service(&self, name: &str) -> LookedUp {
        let question = Question::new(name, RecordKind::Srv).ok_or(Failure::UnknownName)?;
        let (mut records, mut least) = self.records(&question)?;
        records.sort_by_key(|record| match record {
            Record::Srv { priority, .. } => *priority,
            Record::A(_) | Record::Aaaa(_) | Record::Txt(_) => u16::MAX,
        });
        records.truncate(SERVICE_HOSTS_MAX);
        let (mut addresses, mut marks) = (Vec::new(), Marks::new());
        for record in records {
            let Record::Srv { priority, weight, port, target } = record else { continue };
            // The root in place of a host: there is no such service.
            if target.is_empty() || port == 0 {
                continue;
            }
            let found = match by_hosts(self.resolver, &target, port) {
                Some(own) => Ok(own),
                None => self.host(&target, port),
            };
            let found = match found {
                // Its address of IPv4, which it may have, would be its address here.
                Ok(Addresses { unanswered: Some(Families::Ipv4), .. }) => {
                    return Err(Failure::ServerFailed);
                }
                Ok(found) => found,
                Err(Failure::UnknownName | Failure::NoAddress) => continue,
                Err(failure) => return Err(failure),
            };
            least = least.min(found.seconds.unwrap_or(least));
            // A host with addresses of both families is one server.
            let is_v4 = found.addresses.iter().any(SocketAddr::is_ipv4);
            for address in found.addresses.into_iter().filter(|one| one.is_ipv4() == is_v4) {
                let mark = Mark { priority, weight };
                let known = marks.entry(address).or_insert(mark);
                known.priority = known.priority.min(priority);
                if !addresses.contains(&address) {
                    addresses.push(address);
                }
            }
        }
        match addresses.is_empty() {
            true => Err(Failure::NoAddress),
            false => Ok(Addresses { marks, ..Addresses::of(addresses, Some(least)) }),
        }
    }

    /// The records of a question, and for how many seconds they may be kept. Each server is asked in turn, those that have just failed
    /// last.
    fn records(&self, question: &Question) -> Result<(Vec<Record>, u32), Failure> {
        let mut failure = Failure::Timeout;
        let servers = known_servers().in_order(&self.servers, now());
        for _ in 0..self.resolver.attempts {
            for server in &servers {
                let answer = self.ask(*server, question);
                // A malformed answer is one, too: the server runs.
                let is_silent =
                    answer.as_ref().is_err_and(|error| error.kind() != io::ErrorKind::InvalidData);
                known_servers().note(*server, !is_silent, now());
                match answer {
                    Ok(Answer::Records { records, seconds }) => return Ok((records, seconds)),
                    Ok(Answer::Nothing { is_unknown: true, .. }) => {
                        return Err(Failure::UnknownName);
                    }
                    Ok(Answer::Nothing { is_unknown: false, .. }) => {
                        return Err(Failure::NoAddress);
                    }
                    // The next server may know more.
                    Ok(Answer::Truncated | Answer::Failed(_)) => failure = Failure::ServerFailed,
                    Err(error) if is_timeout(&error) => {}
                    Err(_) => failure = Failure::ServerFailed,
                }
            }
        }
        Err(failure)
    }

    /// Asks one server, over TCP if the answer does not fit a datagram.
    fn ask(&self, server: SocketAddr, question: &Question) -> io::Result<Answer> {
        let deadline = Instant::now() + self.resolver.timeout;
        let answer = self.ask_by_datagram(server, question, deadline);
        known_servers().count(server, end_of(&answer));
        match answer? {
            Answer::Truncated => {
                let deadline = Instant::now() + self.resolver.timeout;
                let answer = ask_by_stream(server, question, deadline);
                known_servers().count(server, end_of(&answer));
                answer
            }
            answer @ (Answer::Records { .. } | Answer::Nothing { .. } | Answer::Failed(_)) => {
                Ok(answer)
            }
        }
    }

    fn ask_by_datagram(
        &self,
        server: SocketAddr,
        question: &Question,
        deadline: Instant,
    ) -> io::Result<Answer> {
        let any: IpAddr = match server {
            SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        let socket = UdpSocket::bind((any, 0))?;
        socket.connect(server)?;
        let (id, size) = (random_seed() as u16, self.resolver.udp_payload);
        let mut query = Vec::new();
        encode_query_for(question, id, size, &mut query);
        socket.send(&query)?;
        let mut buffer = [0; DATAGRAM_BYTES_MAX];
        loop {
            socket.set_read_timeout(Some(left_until(deadline)?))?;
            let count = socket.recv(&mut buffer)?;
            match decode_answer_within(question, id, usize::from(size), &buffer[..count]) {
                Ok(answer) => return Ok(answer),
                // The true answer may still arrive.
                Err(Fault::Foreign) => {}
                Err(Fault::Malformed) => return Err(io::ErrorKind::InvalidData.into()),
            }
        }
    }
}

/// The code of an answer of a server that refuses the query (RFC 1035 section 4.1.1).
const REFUSED: u8 = 5;

/// How a query has ended.
fn end_of(answer: &io::Result<Answer>) -> QueryEnd {
    match answer {
        Ok(Answer::Records { .. }) => QueryEnd::Records,
        Ok(Answer::Nothing { is_unknown: true, .. }) => QueryEnd::UnknownName,
        Ok(Answer::Nothing { is_unknown: false, .. }) => QueryEnd::Empty,
        Ok(Answer::Failed(REFUSED)) => QueryEnd::Refused,
        Ok(Answer::Failed(_)) => QueryEnd::Failed,
        Ok(Answer::Truncated) => QueryEnd::Truncated,
        Err(error) if is_timeout(error) => QueryEnd::Timeout,
        Err(error) if error.kind() == io::ErrorKind::InvalidData => QueryEnd::Malformed,
        Err(_) => QueryEnd::NotSent,
    }
}

/// The DNS servers that a configuration uses, and the queries to each of them; `None`: the resolver of the system asks them.
pub(crate) fn server_counts(config: &Config) -> Option<Vec<(SocketAddr, QueryCounts)>> {
    let resolver = config.resolver.as_ref()?;
    let servers = match resolver.name_servers.is_empty() {
        false => resolver.name_servers.clone(),
        true => name_servers::of_system().0,
    };
    let known = known_servers();
    Some(servers.into_iter().map(|server| (server, known.counts(server))).collect())
}

/// What is known about the DNS servers. Of the process, so that a reload forgets nothing.
fn known_servers() -> MutexGuard<'static, NameServers> {
    static KNOWN: Mutex<NameServers> = Mutex::new(NameServers::new());
    KNOWN.lock().unwrap_or_else(PoisonError::into_inner)
}

fn now() -> Moment {
    static BEGAN: LazyLock<Instant> = LazyLock::new(Instant::now);
    Moment::ZERO.after(BEGAN.elapsed())
}

/// Asks one server over TCP (RFC 7766).
fn ask_by_stream(server: SocketAddr, question: &Question, deadline: Instant) -> io::Result<Answer> {
    let mut stream = TcpStream::connect_timeout(&server, left_until(deadline)?)?;
    let id = random_seed() as u16;
    let mut query = vec![0, 0];
    encode_query_for(question, id, tidegate_wire::dns::ANSWER_BYTES_MAX, &mut query);
    let length = (query.len() - 2) as u16;
    query[..2].copy_from_slice(&length.to_be_bytes());
    stream.set_write_timeout(Some(left_until(deadline)?))?;
    stream.write_all(&query)?;
    let mut length = [0; 2];
    read_until(&mut stream, &mut length, deadline)?;
    let length = usize::from(u16::from_be_bytes(length));
    let mut message = vec![0; length];
    read_until(&mut stream, &mut message, deadline)?;
    decode_answer_within(question, id, STREAM_ANSWER_BYTES_MAX, &message)
        .map_err(|_| io::ErrorKind::InvalidData.into())
}

/// Fills `buffer`, however slowly the peer sends, before the deadline.
fn read_until(stream: &mut TcpStream, buffer: &mut [u8], deadline: Instant) -> io::Result<()> {
    let mut filled = 0;
    while filled < buffer.len() {
        stream.set_read_timeout(Some(left_until(deadline)?))?;
        match stream.read(&mut buffer[filled..])? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            count => filled += count,
        }
    }
    Ok(())
}

/// The time until the deadline, which is not zero: that would mean no deadline.
fn left_until(deadline: Instant) -> io::Result<Duration> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(left) }
}

/// Whether the time was up. The kernel reports the end of a read timeout as "would block".
fn is_timeout(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock)
}

#[cfg(test)]
mod tests;
