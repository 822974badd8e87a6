//! Listening sockets that pass from process to process: from the service manager (sd_listen_fds(3)), or from the process
//! that this one replaces.
//! In: LISTEN_FDS and LISTEN_PID, or `HANDOVER` of the environment. Out: sockets with their addresses; in the other
//! direction, sockets of all workers in the table of one thread.
//! Never: takes a descriptor that is not a listening socket; takes descriptors twice.
//! Limits: `SOCKETS_MAX` sockets; `MESSAGE_SOCKETS_MAX` in one message between threads.
//! Invariant: a worker has its own descriptor table (`worker`), so its listeners reach another thread only as a
//! message over a socket pair, of which both tables have a copy.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use rustix::io::FdFlags;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, getsockname, recvmsg, sendmsg,
    socketpair, sockopt,
};
use tidegate_base::Address;

/// The variable that names what a process inherits from the one that it replaces, such as "123:7:9,11": the process, the
/// descriptor of the channel to it, and those of the sockets. In "123:7:9,11:11", a service manager has 11, too.
pub const HANDOVER: &str = "TIDEGATE_HANDOVER";
/// The first descriptor that a service manager passes.
const LISTEN_FDS_START: RawFd = 3;
/// Sockets that a process inherits.
const SOCKETS_MAX: usize = 16_384;
/// How many bits of the number of an attempt a message contains.
const ATTEMPT_BITS: u32 = 7;
const ATTEMPT_MASK: u8 = (1 << ATTEMPT_BITS) - 1;
/// Sockets in one message. The kernel allows 253 (SCM_MAX_FD).
const MESSAGE_SOCKETS_MAX: usize = 128;

/// The descriptors that a process inherits.
#[derive(Debug, Default)]
pub struct Inherited {
    /// The listening sockets.
    pub sockets: Vec<InheritedSocket>,
    /// Descriptors that are not listening sockets with a usable address.
    pub unusable: usize,
    /// The channel to the process that is replaced; `None`: no process is replaced.
    pub channel: Option<OwnedFd>,
}

/// The number of a descriptor, and whether a service manager has it, too.
type NamedSocket = (RawFd, bool);

/// A listening socket.
#[derive(Debug)]
pub struct InheritedSocket {
    /// The socket.
    pub socket: OwnedFd,
    /// Its address.
    pub address: Address,
    /// Whether other sockets may listen on the same address (SO_REUSEPORT).
    pub is_shared: bool,
    /// A service manager has the socket, too: it remains open when this process closes it.
    pub is_managed: bool,
}

impl Inherited {
    /// Takes the sockets and the state that the process has inherited. A second call returns nothing.
    #[must_use]
    pub fn take() -> Self {
        static TAKEN: AtomicBool = AtomicBool::new(false);
        let mut inherited = Self::default();
        if TAKEN.swap(true, Ordering::SeqCst) {
            return inherited;
        }
        let (channel, numbers) = named();
        inherited.channel = channel.and_then(take_number);
        for (number, is_managed) in numbers.into_iter().take(SOCKETS_MAX) {
            let Some(socket) = take_number(number) else { continue };
            match describe(socket, is_managed) {
                Some(socket) => inherited.sockets.push(socket),
                None => inherited.unusable += 1,
            }
        }
        inherited
    }
}

/// The descriptors that the environment names for this process, and whether a service manager has them, too.
fn named() -> (Option<RawFd>, Vec<NamedSocket>) {
    let variable = |name: &str| std::env::var(name).ok();
    if let Some(text) = variable(HANDOVER) {
        let parsed = parse(&text).filter(|(process, channel, _)| {
            *process == std::os::unix::process::parent_id() || is_made_by(*channel, *process)
        });
        if let Some((_, channel, sockets)) = parsed {
            return (Some(channel), sockets);
        }
    }
    let own = variable("LISTEN_PID").and_then(|text| text.parse().ok()) == Some(std::process::id());
    let count = variable("LISTEN_FDS").and_then(|text| text.parse::<RawFd>().ok());
    let count = count.filter(|_| own).unwrap_or(0).clamp(0, SOCKETS_MAX as RawFd);
    (None, (LISTEN_FDS_START..LISTEN_FDS_START + count).map(|number| (number, true)).collect())
}

/// Whether the descriptor is one of a pair of sockets that this process has made. It may have ended since: then this process, which was
/// to replace it, has another parent.
fn is_made_by(channel: RawFd, process: u32) -> bool {
    if channel < LISTEN_FDS_START {
        return false;
    }
    let mut maker = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut length = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `length` bytes to `maker`, for which any bytes are valid. If the number is not open, or not that
    // of a socket, the call fails.
    let result = unsafe {
        libc::getsockopt(
            channel,
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut maker).cast(),
            &raw mut length,
        )
    };
    // Sockets without a known peer have process 0.
    result == 0 && maker.pid > 0 && u32::try_from(maker.pid) == Ok(process)
}

/// Parses the value of `HANDOVER`. Earlier versions do not state what the service manager holds.
fn parse(text: &str) -> Option<(u32, RawFd, Vec<NamedSocket>)> {
    let mut parts = text.split(':');
    let (process, channel, sockets) = (parts.next()?, parts.next()?, parts.next()?);
    let numbers = |list: &str| -> Option<Vec<RawFd>> {
        let numbers = list.split(',').filter(|number| !number.is_empty());
        numbers.map(|number| number.parse().ok()).collect()
    };
    let managed = numbers(parts.next().unwrap_or_default())?;
    let sockets = numbers(sockets)?.into_iter().map(|number| (number, managed.contains(&number)));
    Some((process.parse().ok()?, channel.parse().ok()?, sockets.collect()))
}

/// The value of `HANDOVER` for a process that this one starts. By socket: whether a service manager has it, too.
#[must_use]
pub fn handover(channel: &OwnedFd, sockets: &[(&OwnedFd, bool)]) -> String {
    let list = |all: &mut dyn Iterator<Item = &(&OwnedFd, bool)>| {
        let numbers = all.map(|(socket, _)| socket.as_raw_fd().to_string());
        numbers.collect::<Vec<_>>().join(",")
    };
    let (process, channel) = (std::process::id(), channel.as_raw_fd());
    let managed = list(&mut sockets.iter().filter(|(_, is_managed)| *is_managed));
    format!("{process}:{channel}:{}:{managed}", list(&mut sockets.iter()))
}

/// Takes ownership of an inherited descriptor; `None` if it is not open. No other process started by this one gets it.
fn take_number(number: RawFd) -> Option<OwnedFd> {
    if number < LISTEN_FDS_START {
        return None;
    }
    // SAFETY: the number is not negative. If it is not open, the call fails.
    let open = unsafe { BorrowedFd::borrow_raw(number) };
    rustix::io::fcntl_setfd(open, FdFlags::CLOEXEC).ok()?;
    // SAFETY: the descriptor is open, and it was passed to this process for this use, before the process opened any.
    // Each number is taken once.
    Some(unsafe { OwnedFd::from_raw_fd(number) })
}

/// The address of a listening stream socket; `None` if the descriptor is something else.
fn describe(socket: OwnedFd, is_managed: bool) -> Option<InheritedSocket> {
    let is_stream = sockopt::socket_type(&socket).ok()? == SocketType::STREAM;
    let listens = sockopt::socket_acceptconn(&socket).ok()?;
    let address = local_address(socket.as_fd()).filter(|_| is_stream && listens)?;
    let is_shared = sockopt::socket_reuseport(&socket).unwrap_or(false);
    Some(InheritedSocket { socket, address, is_shared, is_managed })
}

/// The address of a listening socket.
///
/// # Errors
/// The error of getsockname(2); `InvalidData` if the address is of another family, or not UTF-8.
pub fn address(socket: &impl AsFd) -> io::Result<Address> {
    local_address(socket.as_fd()).ok_or_else(|| io::ErrorKind::InvalidData.into())
}

fn local_address(socket: BorrowedFd<'_>) -> Option<Address> {
    let address = getsockname(socket).ok()?;
    if let Ok(address) = std::net::SocketAddr::try_from(address.clone()) {
        return Some(Address::Tcp(address));
    }
    let address = rustix::net::SocketAddrUnix::try_from(address).ok()?;
    let path = address.path()?.to_str().ok()?.to_owned();
    Some(Address::Unix(path))
}

/// The ways on which workers pass copies of their listeners to the thread that replaces the process. Made before workers
/// get their own descriptor tables.
#[derive(Debug)]
pub struct ListenerPost {
    /// The end to which workers send.
    sender: OwnedFd,
    /// The end from which the thread receives.
    receiver: OwnedFd,
}

/// A listener that a worker has passed on.
#[derive(Debug)]
pub struct PassedListener {
    /// The index of the worker.
    pub worker: u16,
    /// The copy.
    pub socket: OwnedFd,
}

impl ListenerPost {
    /// # Errors
    /// The kernel has no descriptor or memory left.
    pub fn new() -> io::Result<Self> {
        let flags = SocketFlags::CLOEXEC;
        let (sender, receiver) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
        Ok(Self { sender, receiver })
    }

    /// The end for workers, which is valid in their tables. `attempt`: a number of which the lowest `ATTEMPT_BITS` bits count.
    #[must_use]
    pub fn entrance(&self, attempt: u8) -> ListenerReceiver {
        ListenerReceiver { sender: self.sender.as_raw_fd(), attempt: attempt & ATTEMPT_MASK }
    }

    /// Receives the listeners of a worker that was asked for them in this attempt: the next message. `is_last` reports whether the
    /// worker has sent all of them. Messages for earlier attempts, which came too late, are dropped.
    ///
    /// # Errors
    /// No message came within `wait_ms`, or the kernel refused it.
    pub fn receive(&self, attempt: u8, wait_ms: u32) -> io::Result<(Vec<PassedListener>, bool)> {
        loop {
            let (of, passed, is_last) = self.receive_any(wait_ms)?;
            if of == attempt & ATTEMPT_MASK {
                return Ok((passed, is_last));
            }
        }
    }

    /// The next message, and its attempt.
    fn receive_any(&self, wait_ms: u32) -> io::Result<(u8, Vec<PassedListener>, bool)> {
        let mut polled = [PollFd::new(&self.receiver, PollFlags::IN)];
        let wait = Timespec {
            tv_sec: i64::from(wait_ms / 1000),
            tv_nsec: i64::from(wait_ms % 1000) * 1_000_000,
        };
        if poll(&mut polled, Some(&wait))? == 0 {
            return Err(io::ErrorKind::TimedOut.into());
        }
        let mut space =
            [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MESSAGE_SOCKETS_MAX))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut bytes = [0; 3];
        let mut parts = [IoSliceMut::new(&mut bytes)];
        let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
        let received = recvmsg(&self.receiver, &mut parts, &mut control, flags)?;
        let mut sockets = Vec::new();
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(descriptors) = message {
                sockets.extend(descriptors);
            }
        }
        if received.bytes != bytes.len() {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let [high, low, last] = bytes;
        let worker = u16::from_be_bytes([high, low]);
        let passed = sockets.into_iter().map(|socket| PassedListener { worker, socket });
        Ok((last >> 1, passed.collect(), last & 1 == 1))
    }
}

/// The end of a [`ListenerPost`] for a worker.
#[derive(Clone, Copy, Debug)]
pub struct ListenerReceiver {
    /// The descriptor, which is open in the table of every thread and never closed.
    sender: RawFd,
    /// The attempt to collect the listeners.
    attempt: u8,
}

impl ListenerReceiver {
    /// Sends copies of listeners of the worker with this index. Does not block.
    ///
    /// # Errors
    /// The kernel refused a message; further listeners are not sent.
    pub(crate) fn send(self, worker: u16, listeners: &[BorrowedFd<'_>]) -> io::Result<()> {
        // SAFETY: `ListenerPost` lives as long as the process, so the descriptor is open in the table that the worker's
        // table was copied from, and no owner in this thread closes its copy.
        let sender = unsafe { BorrowedFd::borrow_raw(self.sender) };
        let count = listeners.len().div_ceil(MESSAGE_SOCKETS_MAX).max(1);
        for at in 0..count {
            let begin = at * MESSAGE_SOCKETS_MAX;
            let end = (begin + MESSAGE_SOCKETS_MAX).min(listeners.len());
            let mut space =
                [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MESSAGE_SOCKETS_MAX))];
            let mut control = SendAncillaryBuffer::new(&mut space);
            if begin < end {
                control.push(SendAncillaryMessage::ScmRights(&listeners[begin..end]));
            }
            let [high, low] = worker.to_be_bytes();
            let bytes = [high, low, self.attempt << 1 | u8::from(at + 1 == count)];
            sendmsg(sender, &[IoSlice::new(&bytes)], &mut control, SendFlags::DONTWAIT)?;
        }
        Ok(())
    }
}

/// Takes ownership of the calling thread's copies of descriptors of another thread, and closes those that `is_wanted`
/// does not select by their place in `numbers`.
///
/// To be called once, in a thread that has just called `worker::unshare_descriptor_table`, with numbers whose owners
/// live in the other thread, and do nothing with them until this call has returned.
pub fn take_copies(numbers: &[RawFd], is_wanted: impl Fn(usize) -> bool) -> Vec<OwnedFd> {
    let mut taken = Vec::new();
    for (at, &number) in numbers.iter().enumerate() {
        // SAFETY: the doc comment requires that the number is open in this table and has no owner in this thread.
        // Violating it can at worst close or use a wrong descriptor of this process.
        let copy = unsafe { OwnedFd::from_raw_fd(number) };
        if is_wanted(at) {
            taken.push(copy);
        }
    }
    taken
}

/// Lets processes that this one starts inherit a descriptor, or not.
///
/// # Errors
/// The error of fcntl(2).
pub fn set_inheritable(descriptor: &impl AsFd, inherits: bool) -> io::Result<()> {
    let flags = if inherits { FdFlags::empty() } else { FdFlags::CLOEXEC };
    Ok(rustix::io::fcntl_setfd(descriptor, flags)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn handover_is_parsed_whole_or_not_at_all() {
        assert_eq!(parse("12:7:9,11"), Some((12, 7, vec![(9, false), (11, false)])));
        assert_eq!(parse("12:7:9,11:11"), Some((12, 7, vec![(9, false), (11, true)])));
        for none in ["12:7:", "12:7::"] {
            assert_eq!(parse(none), Some((12, 7, vec![])), "{none:?}");
        }
        let open = || OwnedFd::from(TcpListener::bind("127.0.0.1:0").expect("loopback has a port"));
        let (channel, own, managed) = (open(), open(), open());
        let numbers = [&channel, &own, &managed].map(AsRawFd::as_raw_fd);
        let sockets = vec![(numbers[1], false), (numbers[2], true)];
        let text = handover(&channel, &[(&own, false), (&managed, true)]);
        assert_eq!(parse(&text), Some((std::process::id(), numbers[0], sockets)));
        for wrong in ["", "12", "12:7", "12:x:9", "a:7:9", "12:7:9,b", "12:7:9:b"] {
            assert_eq!(parse(wrong), None, "{wrong:?}");
        }
    }

    #[test]
    fn handover_of_a_process_that_has_ended_is_known_by_its_channel() {
        let flags = SocketFlags::CLOEXEC;
        let (own, other) =
            socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None).expect("a pair");
        let process = std::process::id();
        for channel in [&own, &other] {
            assert!(is_made_by(channel.as_raw_fd(), process));
            assert!(!is_made_by(channel.as_raw_fd(), process + 1));
        }
        let listener = TcpListener::bind("127.0.0.1:0").expect("loopback has a port");
        assert!(!is_made_by(listener.as_raw_fd(), process));
        assert!(!is_made_by(-1, process) && !is_made_by(1_000_000, process));
    }

    #[test]
    fn only_listening_stream_sockets_are_described() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("loopback has a port");
        let address = listener.local_addr().expect("it is bound");
        let client = TcpStream::connect(address).expect("it listens");
        let described = describe(listener.into(), false).expect("it is a listener");
        assert_eq!((described.address, described.is_shared), (Address::Tcp(address), false));
        assert!(describe(client.into(), false).is_none());
        let datagrams = std::net::UdpSocket::bind("127.0.0.1:0").expect("loopback has a port");
        assert!(describe(datagrams.into(), true).is_none());
        let folder =
            std::env::temp_dir().join(format!("tidegate-inherited-{}", std::process::id()));
        let listener = std::os::unix::net::UnixListener::bind(&folder).expect("a path");
        let described = describe(listener.into(), false).expect("it is a listener");
        assert_eq!(described.address, Address::Unix(folder.to_str().expect("text").to_owned()));
        let _ = std::fs::remove_file(folder);
    }

    #[test]
    fn listeners_reach_the_thread_over_the_tables_of_workers() {
        let post = ListenerPost::new().expect("a socket pair");
        let (late, entrance) = (post.entrance(1), post.entrance(2));
        let worker = std::thread::spawn(move || {
            crate::worker::unshare_descriptor_table().expect("this system allows unshare");
            let listeners: Vec<TcpListener> = (0..200)
                .map(|_| TcpListener::bind("127.0.0.1:0").expect("loopback has a port"))
                .collect();
            let borrowed: Vec<_> = listeners.iter().map(AsFd::as_fd).collect();
            late.send(4, &borrowed[..3]).expect("the pair has room");
            entrance.send(3, &borrowed).expect("the pair has room");
            listeners.iter().map(|of| of.local_addr().expect("it is bound")).collect::<Vec<_>>()
        });
        let mut passed = Vec::new();
        loop {
            let (some, is_last) = post.receive(2, 60_000).expect("a message");
            passed.extend(some);
            if is_last {
                break;
            }
        }
        let addresses = worker.join().expect("the thread ends");
        // The worker's table is closed, and its sockets still listen.
        assert_eq!((passed.len(), passed[0].worker), (200, 3));
        for (passed, address) in passed.into_iter().zip(addresses) {
            let listener = TcpListener::from(passed.socket);
            let _client = TcpStream::connect(address).expect("it listens");
            assert!(listener.accept().is_ok());
        }
        assert!(post.receive(2, 1).is_err(), "no message is left");
    }
}
