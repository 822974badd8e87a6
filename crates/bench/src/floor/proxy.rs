//! The bare proxy of the floor: it receives and sends bytes without changing them.
//! In: readiness of one side of a pair. Out: the bytes of that side, sent on the other side.
//! Never: parses, pools or retries. The two sides of a pair are opened and closed together.
//! Limits: at most one read is buffered for each side; the other side is not read again until those bytes are sent.

use super::{READ_BYTES, Serve, family, watch};
use core::net::SocketAddr;
use rustix::event::epoll::EventFlags;
use rustix::fd::{AsRawFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{self, RecvFlags, SendFlags, SocketFlags, SocketType};

/// One of the two connections of a pair.
struct Side {
    socket: OwnedFd,
    /// Descriptor number of the other side.
    partner: usize,
    /// Bytes to send on this side; those before `pending_from` are sent.
    pending: Vec<u8>,
    pending_from: usize,
    /// Whether this side has unread input, because the other side could not take more.
    readable: bool,
}

/// The connections of a floor proxy.
pub(super) struct Pairs<'epoll> {
    origin: SocketAddr,
    epoll: BorrowedFd<'epoll>,
    /// The sides, indexed by descriptor number.
    sides: Vec<Option<Side>>,
}

impl<'epoll> Pairs<'epoll> {
    pub(super) fn new(origin: SocketAddr, epoll: BorrowedFd<'epoll>) -> Self {
        Self { origin, epoll, sides: Vec::new() }
    }

    fn insert(&mut self, socket: OwnedFd, partner: usize) {
        let fd = socket.as_raw_fd() as usize;
        if self.sides.len() <= fd {
            self.sides.resize_with(fd + 1, || None);
        }
        self.sides[fd] =
            Some(Side { socket, partner, pending: Vec::new(), pending_from: 0, readable: false });
    }

    fn side(&mut self, fd: usize) -> Option<&mut Side> {
        self.sides.get_mut(fd)?.as_mut()
    }

    fn close_pair(&mut self, fd: usize) {
        if let Some(side) = self.sides.get_mut(fd).and_then(Option::take)
            && let Some(partner) = self.sides.get_mut(side.partner)
        {
            *partner = None;
        }
    }

    /// Sends the pending bytes of `fd`; returns true once all are sent.
    fn flush(&mut self, fd: usize) -> Result<bool, Errno> {
        let Some(side) = self.side(fd) else {
            return Ok(false);
        };
        while side.pending_from < side.pending.len() {
            match net::send(&side.socket, &side.pending[side.pending_from..], SendFlags::NOSIGNAL) {
                Ok(count) => side.pending_from += count,
                Err(Errno::AGAIN) => return Ok(false),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error),
            }
        }
        side.pending.clear();
        side.pending_from = 0;
        Ok(true)
    }

    /// Forwards the input of `fd` until it is empty or the other side cannot take more.
    fn pump(&mut self, fd: usize, ending: bool, buffer: &mut [u8]) -> Result<(), Errno> {
        loop {
            let Some(side) = self.side(fd) else {
                return Ok(());
            };
            let partner_fd = side.partner;
            if self.side(partner_fd).is_some_and(|partner| !partner.pending.is_empty()) {
                if let Some(side) = self.side(fd) {
                    side.readable = true;
                }
                return Ok(());
            }
            let Some(side) = self.side(fd) else {
                return Ok(());
            };
            side.readable = false;
            let count = match net::recv(&side.socket, &mut *buffer, RecvFlags::empty()) {
                Ok((0, _)) => return Err(Errno::PIPE),
                Ok((count, _)) => count,
                Err(Errno::AGAIN) => return Ok(()),
                Err(Errno::INTR) => continue,
                Err(error) => return Err(error),
            };
            let Some(partner) = self.side(partner_fd) else {
                return Ok(());
            };
            let sent = match net::send(&partner.socket, &buffer[..count], SendFlags::NOSIGNAL) {
                Ok(sent) => sent,
                Err(Errno::AGAIN | Errno::INTR | Errno::NOTCONN) => 0,
                Err(error) => return Err(error),
            };
            partner.pending.extend_from_slice(&buffer[sent..count]);
            if count < READ_BYTES && !ending {
                return Ok(());
            }
        }
    }

    fn advance(&mut self, fd: usize, flags: EventFlags, buffer: &mut [u8]) -> Result<(), Errno> {
        let ending = flags.intersects(EventFlags::RDHUP | EventFlags::HUP | EventFlags::ERR);
        if flags.contains(EventFlags::OUT)
            && self.side(fd).is_some_and(|side| !side.pending.is_empty())
            && self.flush(fd)?
            && let Some(partner) = self.side(fd).map(|side| side.partner)
            && self.side(partner).is_some_and(|partner| partner.readable)
        {
            self.pump(partner, true, buffer)?;
        }
        if ending || flags.contains(EventFlags::IN) {
            self.pump(fd, ending, buffer)?;
        }
        Ok(())
    }
}

impl Serve for Pairs<'_> {
    fn open(&mut self, epoll: &OwnedFd, downstream: OwnedFd) {
        let Ok(upstream) = net::socket_with(
            family(self.origin),
            SocketType::STREAM,
            SocketFlags::NONBLOCK | SocketFlags::CLOEXEC,
            None,
        ) else {
            return;
        };
        // A socket that rejects this option fails on its next use anyway.
        let _ = net::sockopt::set_tcp_nodelay(&upstream, true);
        match net::connect(&upstream, &self.origin) {
            Ok(()) | Err(Errno::INPROGRESS) => {}
            Err(_) => return,
        }
        if watch(epoll, &downstream) && watch(self.epoll, &upstream) {
            let (down, up) = (downstream.as_raw_fd() as usize, upstream.as_raw_fd() as usize);
            self.insert(downstream, up);
            self.insert(upstream, down);
        }
    }

    fn handle_event(&mut self, fd: usize, flags: EventFlags, buffer: &mut [u8]) {
        if self.advance(fd, flags, buffer).is_err() {
            self.close_pair(fd);
        }
    }

    fn begin_turn(&mut self, _unix_seconds: u64) {}
}
