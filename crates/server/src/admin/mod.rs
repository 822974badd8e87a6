//! The admin interface: metrics, statistics, health of the process, and commands, over TCP or a unix socket.
//! In: requests of HTTP/1 and command lines. Out: text, JSON, CSV; mail to the workers.
//! Never: runs on a worker or waits for one; lets a page in a browser or a client without the token read or change
//! anything, even if bytes of another protocol contain commands. A connection speaks HTTP if its first line is that of
//! an HTTP request (`http.rs`), and else the line protocol (`line.rs`).
//! Limits: the places and deadlines of `connection.rs`; `INPUT_BYTES_MAX` bytes of a request or line; `PEM_BYTES_MAX` bytes of
//! the lines of a certificate.

mod activity;
mod certificates;
mod command;
mod connection;
mod console;
mod edits;
mod errors;
mod events;
mod exposition;
mod http;
mod info;
mod line;
mod maintenance;
mod map;
mod metrics;
mod parts;
mod pending;
mod process;
mod profile;
mod rates;
mod reloads;
mod resolvers;
mod rows;
mod sess;
mod set;
mod stat;
mod table;
mod tls;
pub(crate) mod token;
mod wait;
mod words;

use std::collections::BTreeMap;
use std::io::{self, Read};
use std::net::TcpListener;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixListener;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::pipe::{PipeFlags, pipe_with};
use tidegate_config::model::{Admin, Bind, Config};
use tidegate_gate::inventory::Inventory;
use tidegate_gate::process_state::ProcessState;
use tidegate_reactor::Sender;
use tidegate_secure::TlsPlan;

pub(crate) use self::connection::Places;
use self::connection::{Connection, Stream};
pub(crate) use self::profile::Profiler;
pub(crate) use self::profile::{ROOT as PROFILE_ROOT, snapshot};
pub(crate) use self::rates::Rates;
pub(crate) use self::reloads::Reloads;
use self::tls::Secrets;
use self::token::{Rights, Tokens};
use crate::counters::Accounts;
use crate::events::EventKind;
use crate::health::Roster;
use crate::known_names::KnownNames;
use crate::live_edits::LiveEdits;
use crate::log;
use crate::staged_certificates::StagedCertificates;
use crate::start::Mail;
use crate::state_transfer::StateTransfer;
use crate::stats::{Registry, is_passed};
use crate::threads::{self, Ended};

/// Bytes of a request head, or of a line of commands.
const INPUT_BYTES_MAX: usize = 16 * 1024;
/// The pause after a failed accept (descriptors or memory are short), and after a failed attempt to listen.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// How long the interface waits for the last counts of the process that is replaced.
const OPENING_WAIT: Duration = Duration::from_secs(10);

/// The state that the interface shows and changes.
pub(crate) struct Operations {
    /// The configuration, with the actual addresses of listeners.
    pub(crate) config: Mutex<Arc<Config>>,
    /// The parts of the configuration that was read last, with a fingerprint of each.
    pub(crate) inventory: Mutex<Inventory>,
    /// The state that all workers share.
    pub(crate) process: Mutex<ProcessState>,
    /// The counters of each worker.
    pub(crate) accounts: Vec<Arc<Accounts>>,
    /// The senders to the mailboxes of the workers.
    pub(crate) workers: Vec<Sender<Mail>>,
    /// Only the user that runs the process, or a client with the token, can use the interface.
    pub(crate) is_private: bool,
    /// The counters of listeners, routes and servers.
    pub(crate) registry: Arc<Registry>,
    /// The TLS settings in force.
    pub(crate) tls: Mutex<Arc<TlsPlan>>,
    /// The names of servers.
    pub(crate) names: Arc<KnownNames>,
    /// The servers.
    pub(crate) roster: Arc<Roster>,
    /// When the process started.
    pub(crate) started: (Instant, SystemTime),
    /// The process is stopping.
    pub(crate) is_stopping: AtomicBool,
    /// The connections of the interface.
    pub(crate) places: Places,
    /// The results of reloads.
    pub(crate) reloads: Reloads,
    /// The results of upgrades.
    pub(crate) upgrades: Reloads,
    /// The edits of the configuration.
    pub(crate) edits: LiveEdits,
    /// The certificates that wait for `commit tls cert`.
    pub(crate) staged: StagedCertificates,
    /// The profile that is being taken.
    pub(crate) profiler: Profiler,
    /// The rates of the process, for `show info`.
    pub(crate) process_rates: Rates,
    /// The rates of listeners, pools and servers, for `show stat`.
    pub(crate) rates: Rates,
}

impl Operations {
    /// The configuration in force.
    fn config(&self) -> Arc<Config> {
        Arc::clone(&self.config.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The TLS settings in force.
    fn tls(&self) -> Arc<TlsPlan> {
        Arc::clone(&self.tls.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The state that all workers share.
    fn process(&self) -> ProcessState {
        self.process.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The state that the next process takes over.
    pub(crate) fn transfer(&self) -> StateTransfer {
        let counters = self.counters().into_iter().filter(|(name, _)| is_passed(name));
        let [traffic, gone] = self.registry.passed();
        StateTransfer {
            process: counters.map(|(name, value)| (name.to_owned(), value)).collect(),
            traffic,
            gone,
            servers: self.roster.passed(),
            switches: self.process().switches.set_by_commands(),
        }
    }

    /// Counts of a push hub whose clients did not read: messages that had to wait, messages that were dropped, and clients that
    /// were disconnected.
    fn push_losses(&self, hub: u16) -> [u64; 3] {
        let of_workers = self.accounts.iter().filter_map(|accounts| accounts.hub(hub));
        of_workers.fold([0; 3], |[queued, dropped, closes], of| {
            [queued + of.queued.load(), dropped + of.dropped.load(), closes + of.slow_closes.load()]
        })
    }

    /// The sum of each counter over all workers and earlier processes.
    fn counters(&self) -> BTreeMap<&'static str, u64> {
        let mut sums = BTreeMap::from([
            ("admin_connections_displaced", self.places.displaced()),
            ("admin_connections_now", self.places.open()),
            ("checks_postponed", self.roster.postponed()),
            ("key_fetches", 0),
            ("key_fetch_failures", 0),
            ("log_lines_lost", log::lost()),
        ]);
        let process = self.process();
        if process.memory.max().is_some() {
            let (used, max) = process.memory.measured().unwrap_or_default();
            sums.insert("memory_used_bytes_now", used);
            sums.insert("memory_max_bytes_now", max);
            sums.insert("memory_exceeded_now", process.memory.is_exceeded().into());
        }
        for (_, keys) in process.keys.all() {
            let facts = keys.facts();
            *sums.entry("key_fetches").or_default() += facts.fetches;
            *sums.entry("key_fetch_failures").or_default() += facts.failures;
        }
        for accounts in &self.accounts {
            for (name, value) in accounts.counters.all() {
                *sums.entry(name).or_default() += value;
            }
        }
        self.registry.add_earlier(&mut sums);
        sums
    }
}

/// An open interface, before its threads are started.
pub(crate) struct Interface {
    /// The socket that accepts connections.
    socket: Socket,
    /// The tokens that clients must present.
    tokens: Tokens,
    /// The certificates; `None` without TLS.
    secrets: Option<Secrets>,
    /// The end of a pipe from which the thread reads that another process has taken over.
    leave_reader: OwnedFd,
    /// The end of the pipe that tells it to the thread; `None` after `share_socket`.
    leave_signal: Option<LeaveSignal>,
}

/// Tells the thread of the interface to leave the socket to another process.
pub(crate) struct LeaveSignal(OwnedFd);

impl LeaveSignal {
    /// Makes the thread stop accepting connections.
    pub(crate) fn notify(&self) {
        let _ = rustix::io::write(&self.0, b"1");
    }
}

enum Socket {
    Tcp(TcpListener),
    Unix(UnixListener),
    /// Another process, which this one replaces, still listens there.
    Taken(Bind),
}

impl Interface {
    /// Opens the interface. `takeover`: another process may still listen on the address, and this one waits for its
    /// end. `inherited`: a socket that listens there already.
    ///
    /// # Errors
    /// The address cannot be listened on, or the token cannot be read; the message says which.
    pub(crate) fn open(
        admin: &Admin,
        takeover: bool,
        inherited: Option<OwnedFd>,
    ) -> Result<Self, String> {
        let tokens = Tokens::read(admin).map_err(|(path, (what, help))| {
            format!("the admin interface cannot be opened: {path}: {what}; help: {help}")
        })?;
        let secrets = Secrets::read(admin)?;
        let opened = match (inherited, &admin.bind) {
            (None, bind) => listen(bind),
            (Some(socket), Bind::Tcp(_)) => Ok(Socket::Tcp(socket.into())),
            (Some(socket), Bind::Unix(_)) => Ok(Socket::Unix(socket.into())),
        };
        let socket = match opened {
            Ok(socket) => socket,
            Err(error) if takeover && error.kind() == io::ErrorKind::AddrInUse => {
                Socket::Taken(admin.bind.clone())
            }
            Err(error) => {
                let place = &admin.bind;
                return Err(format!("the admin interface cannot listen on {place}: {error}"));
            }
        };
        let leave_reader = pipe_with(PipeFlags::CLOEXEC);
        let (leave_reader, leave_signal) = leave_reader
            .map_err(|error| format!("the admin interface cannot be opened: {error}"))?;
        let leave_signal = Some(LeaveSignal(leave_signal));
        Ok(Self { socket, tokens, secrets, leave_reader, leave_signal })
    }

    /// A copy of the socket for another process, and the signal that makes the thread leave the socket to that process. `None`
    /// on a second call, and if the socket is not open.
    pub(crate) fn share_socket(&mut self) -> Option<(OwnedFd, LeaveSignal)> {
        let copy = match &self.socket {
            Socket::Taken(_) => return None,
            Socket::Tcp(listener) => listener.as_fd().try_clone_to_owned(),
            Socket::Unix(listener) => listener.as_fd().try_clone_to_owned(),
        };
        Some((copy.ok()?, self.leave_signal.take()?))
    }

    /// The address, for the lines of the start.
    pub(crate) fn address(&self) -> String {
        match &self.socket {
            Socket::Taken(bind) => {
                format!("{bind}, once the process that listens there has ended")
            }
            Socket::Tcp(listener) => {
                let scheme = if self.secrets.is_some() { "https" } else { "http" };
                let at = listener.local_addr();
                at.map_or_else(|_| String::new(), |at| format!("{scheme}://{at}/"))
            }
            Socket::Unix(listener) => {
                let address = listener.local_addr().ok();
                let path = address.as_ref().and_then(|address| address.as_pathname());
                path.map_or_else(String::new, |path| format!("unix:{}", path.display()))
            }
        }
    }

    /// Starts the thread that accepts connections. `opening`: the thread waits for this signal, for up to
    /// `OPENING_WAIT`, because an earlier process still accepts them, and its last counts are not known yet.
    ///
    /// # Errors
    /// The kernel refused the thread.
    pub(crate) fn start(
        self,
        operations: Arc<Operations>,
        opening: Option<mpsc::Receiver<()>>,
    ) -> io::Result<()> {
        let Self { socket, tokens, secrets, leave_reader, .. } = self;
        let (tokens, secrets) = (Arc::new(tokens), Arc::new(secrets));
        threads::spawn("admin", move || {
            let mut socket = socket;
            if let Some(opening) = opening {
                let _ = opening.recv_timeout(OPENING_WAIT);
            }
            loop {
                // During an upgrade, two processes may accept from the socket.
                if !wait_for_client(&socket, &leave_reader) {
                    return Ended::AsPlanned;
                }
                let accepted = match &socket {
                    Socket::Taken(bind) => {
                        thread::sleep(ACCEPT_PAUSE);
                        if let Ok(opened) = listen(bind) {
                            socket = opened;
                        }
                        continue;
                    }
                    Socket::Tcp(listener) => listener
                        .accept()
                        // In a session, a reply is followed by a prompt, which must not wait until the client acknowledges it.
                        .and_then(|(stream, from)| {
                            stream.set_nodelay(true).map(|()| (stream, from))
                        })
                        .map(|(stream, from)| (Stream::Tcp(stream), from.to_string())),
                    Socket::Unix(listener) => listener
                        .accept()
                        .map(|(stream, _)| (Stream::Unix(stream), "unix".to_owned())),
                };
                match accepted {
                    Ok((stream, from)) => {
                        let operations = Arc::clone(&operations);
                        let tokens = Arc::clone(&tokens);
                        let caller = Caller::new(from, tokens, Arc::clone(&secrets));
                        begin(stream, caller, operations);
                    }
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    Err(_) => thread::sleep(ACCEPT_PAUSE),
                }
            }
        })
        .map(drop)
    }
}

/// Waits for a connection. Returns false once another process has taken over the socket.
fn wait_for_client(socket: &Socket, leave_reader: &OwnedFd) -> bool {
    let (listener, is_set) = match socket {
        Socket::Taken(_) => return true,
        Socket::Tcp(listener) => (listener.as_fd(), listener.set_nonblocking(true)),
        Socket::Unix(listener) => (listener.as_fd(), listener.set_nonblocking(true)),
    };
    if is_set.is_err() {
        return true;
    }
    let mut polled =
        [PollFd::new(&listener, PollFlags::IN), PollFd::new(leave_reader, PollFlags::IN)];
    poll(&mut polled, None).is_err() || polled[1].revents().is_empty()
}

/// Serves a connection on a separate thread, unless all places are taken by connections that are being served.
fn begin(stream: Stream, mut caller: Caller, operations: Arc<Operations>) {
    let Some(mut connection) = operations.places.take(stream) else { return };
    let work = move || {
        // The client may disconnect at any time.
        if caller.secure(&mut connection).is_ok() {
            let _ = serve(connection, &caller, &operations);
        }
        Ended::AsPlanned
    };
    // If the kernel refuses the thread, the closure is dropped, which closes the connection.
    let _ = threads::spawn("admin-client", work);
}

/// A client of the interface.
struct Caller {
    /// Its address, for the log.
    from: String,
    /// The tokens of the interface.
    tokens: Arc<Tokens>,
    /// The TLS settings of the interface.
    secrets: Arc<Option<Secrets>>,
    /// The generation of these settings with which the session of the connection began; `None` without TLS.
    secured_by: Option<u64>,
    /// The commands that the client's certificate permits; `None` if the client has presented none.
    certificate: Option<Rights>,
}

impl Caller {
    fn new(from: String, tokens: Arc<Tokens>, secrets: Arc<Option<Secrets>>) -> Self {
        Self { from, tokens, secrets, secured_by: None, certificate: None }
    }

    /// Completes the handshake with the client, if the interface uses TLS.
    fn secure(&mut self, connection: &mut Connection) -> io::Result<()> {
        let Some(secrets) = &*self.secrets else { return Ok(()) };
        let (session, generation) = secrets.accept().ok_or(io::ErrorKind::Other)?;
        let presented = connection.secure(session)?;
        self.secured_by = Some(generation);
        if let Some(presented) = presented {
            self.certificate = Some(secrets.rights_of(presented.names.as_deref()));
            // A certificate may have DNS names only.
            let name = presented.names.iter().flatten().next();
            let name = name.filter(|_| presented.subject.is_empty()).unwrap_or(&presented.subject);
            self.from = format!("{} ({name})", self.from);
        }
        Ok(())
    }

    /// Whether the client may go on: the certificates of the interface, and the list of revoked ones, are those of its handshake.
    fn is_current(&self) -> bool {
        match (self.secured_by, &*self.secrets) {
            (Some(generation), Some(secrets)) => secrets.is_current(generation),
            (None, _) | (_, None) => true,
        }
    }

    /// The rights of a client that has presented this.
    fn rights_of(&self, shown: Option<&str>) -> Rights {
        let by_token = || self.tokens.rights_of(shown);
        match self.certificate {
            Some(Rights::All) => Rights::All,
            // Without a token in the configuration, a client needs none, but a certificate.
            Some(own) if self.tokens.all.is_none() => own,
            Some(own) => own.max(by_token()),
            None => by_token(),
        }
    }
}

fn serve(mut connection: Connection, caller: &Caller, operations: &Operations) -> io::Result<()> {
    let served = serve_any(&mut connection, caller, operations);
    connection.close();
    served
}

fn serve_any(
    connection: &mut Connection,
    caller: &Caller,
    operations: &Operations,
) -> io::Result<()> {
    let mut input = Input::default();
    let Some(first) = input.read_line(connection)? else { return Ok(()) };
    match first.trim_end().ends_with("HTTP/1.1") || first.trim_end().ends_with("HTTP/1.0") {
        true => http::serve(connection, first, input, caller, operations),
        false => line::serve(connection, first, input, caller, operations),
    }
}

/// Bytes that were received.
#[derive(Default)]
struct Input {
    /// The bytes that are not taken yet.
    bytes: Vec<u8>,
    /// How many bytes at the start were examined: they are text, and contain no end of a line.
    examined: usize,
}

impl Input {
    /// The lines up to an empty one, which ends them; or why they are refused.
    ///
    /// # Errors
    /// As those of `read_line`.
    fn read_lines(
        &mut self,
        stream: &mut impl Read,
        bytes_max: usize,
    ) -> io::Result<Result<String, String>> {
        let mut lines = String::new();
        loop {
            let Some(line) = self.read_line(stream)? else {
                return Ok(Err("the lines after `<<` must end with an empty line".to_owned()));
            };
            if line.trim_end_matches(['\r', '\n']).is_empty() {
                return Ok(Ok(lines));
            }
            if lines.len() + line.len() > bytes_max {
                return Ok(Err(format!("the lines after `<<` have more than {bytes_max} bytes")));
            }
            lines.push_str(&line);
        }
    }

    /// The next line with its end; `None` at the end of the input. The last line may have no end.
    ///
    /// # Errors
    /// A byte is not text, so the input is of another protocol. It may contain commands all the same: a web page can make a
    /// browser send a TLS ClientHello whose session id is a command. So the line with such a byte is not executed, nor is
    /// anything after it.
    fn read_line(&mut self, stream: &mut impl Read) -> io::Result<Option<String>> {
        let mut buffer = [0; 4096];
        loop {
            let (_, new) = self.bytes.split_at(self.examined);
            if let Some(found) = new.iter().position(|byte| *byte == b'\n' || !is_text(*byte)) {
                let end = self.examined + found;
                if self.bytes.get(end) != Some(&b'\n') {
                    return Err(io::ErrorKind::InvalidData.into());
                }
                self.examined = 0;
                let line: Vec<u8> = self.bytes.drain(..=end).collect();
                return Ok(Some(String::from_utf8_lossy(&line).into_owned()));
            }
            self.examined = self.bytes.len();
            if self.bytes.len() > INPUT_BYTES_MAX {
                return Err(io::ErrorKind::InvalidData.into());
            }
            match stream.read(&mut buffer) {
                Ok(0) if self.bytes.is_empty() => return Ok(None),
                Ok(0) => {
                    self.examined = 0;
                    let rest = core::mem::take(&mut self.bytes);
                    return Ok(Some(String::from_utf8_lossy(&rest).into_owned()));
                }
                Ok(count) => self.bytes.extend_from_slice(&buffer[..count]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
}

/// Whether a byte may be part of a line: printable ASCII, tab or CR.
fn is_text(byte: u8) -> bool {
    matches!(byte, b'\t' | b'\r' | b' '..=b'~')
}

fn listen(bind: &Bind) -> io::Result<Socket> {
    match bind {
        Bind::Tcp(address) => TcpListener::bind(address).map(Socket::Tcp),
        Bind::Unix(path) => open_unix(path).map(Socket::Unix),
    }
}

/// Opens a unix socket that only the user of the process can connect to. The file mode mask of the process is changed
/// for a moment; of the other threads, only that of the access log creates files.
fn open_unix(path: &str) -> io::Result<UnixListener> {
    crate::unix_listeners::remove_left_behind(path);
    let mask = rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o177));
    let listener = UnixListener::bind(path);
    rustix::process::umask(mask);
    listener
}

/// A command that a client has sent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct SentCommand {
    /// The client.
    pub(crate) from: String,
    /// The words of the command.
    pub(crate) command: String,
}

impl SentCommand {
    fn new(caller: &Caller, words: &[&str]) -> Self {
        Self { from: caller.from.clone(), command: words.join(" ") }
    }

    /// Logs that the command has changed something.
    pub(crate) fn audit(&self) {
        let Self { from, command } = self;
        log::audit(format_args!("admin: {from} ran: {command}"));
        crate::events::note(EventKind::Admin, format_args!("{from} ran: {command}"));
    }
}
