//! The pipe through which the kernel moves bytes from one socket to another without a copy (splice).
//! In: two sockets. Out: how many bytes were moved.
//! Never: blocks; leaves bytes in the pipe.
//! Limits: `PIPE_BYTES` of the pipe, whose places hold a fragment of a received packet each.

use std::io;

use rustix::fd::OwnedFd;
use rustix::io::{Errno, ioctl_fionread};
use rustix::pipe::{PipeFlags, SpliceFlags, fcntl_setpipe_size, pipe_with, splice};

use crate::kernel::{Relaying, Watch};

/// The size of the pipe: 64 places of a page. A pipe that is full with fewer bytes than a read has room for makes the next
/// read of the same turn find the rest.
const PIPE_BYTES: usize = 256 << 10;

/// A pipe that is empty between two calls.
pub(crate) struct Pipe {
    read: OwnedFd,
    write: OwnedFd,
}

impl Pipe {
    /// Makes a pipe.
    ///
    /// # Errors
    /// There is no descriptor left.
    pub(crate) fn new() -> io::Result<Self> {
        let (read, write) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        // Without the larger size (`/proc/sys/fs/pipe-user-pages-soft`) it moves fewer bytes at once.
        let _ = fcntl_setpipe_size(&write, PIPE_BYTES);
        Ok(Self { read, write })
    }

    /// See `Kernel::relay`.
    pub(crate) fn relay(
        &self,
        from: &OwnedFd,
        to: &OwnedFd,
        buffer: &mut [u8],
        watch: Watch,
    ) -> Relaying {
        let flags = SpliceFlags::MOVE | SpliceFlags::NONBLOCK;
        let taken = loop {
            match splice(from, None, &self.write, None, buffer.len(), flags) {
                Ok(0) => return Relaying::Receive,
                Ok(taken) => break taken,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Relaying::Empty,
                // The kernel cannot splice such sockets.
                Err(Errno::INVAL) => return Relaying::Receive,
                Err(_) => return Relaying::Broken,
            }
        };
        let mut left = taken;
        while left > 0 {
            match splice(&self.read, None, to, None, left, flags) {
                Ok(sent) if sent > 0 => left -= sent,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => {
                    self.take_back(&mut buffer[..left]);
                    return Relaying::Held { taken, held: left };
                }
                Ok(_) | Err(_) => {
                    self.take_back(&mut buffer[..left]);
                    return Relaying::Lost(taken);
                }
            }
        }
        let is_empty = match watch {
            // The next wait reports the remaining bytes.
            Watch::Level => taken < buffer.len(),
            // Fewer bytes may also mean that the pipe had no place for more fragments.
            Watch::Edges => taken < buffer.len() && ioctl_fionread(from) == Ok(0),
        };
        Relaying::Sent { count: taken, is_empty }
    }

    /// Takes the bytes out of the pipe.
    fn take_back(&self, buffer: &mut [u8]) {
        let mut filled = 0;
        while filled < buffer.len() {
            match rustix::io::read(&self.read, &mut buffer[filled..]) {
                Ok(count) if count > 0 => filled += count,
                Err(Errno::INTR) => {}
                Ok(_) | Err(_) => {
                    debug_assert!(false, "the pipe has the bytes that were moved into it");
                    return;
                }
            }
        }
    }
}
