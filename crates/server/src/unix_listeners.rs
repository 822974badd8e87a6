//! Listeners on paths: opened once for all workers, because SO_REUSEPORT does not work with paths.
//! In: the configuration. Out: sockets and their copies; files of sockets that are removed.
//! Never: removes the file of a socket on which a process listens, except its own at the stop.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::UnixListener;

use tidegate_base::Address;
use tidegate_config::model::{Bind, Config};

use crate::inheritance::Inheritance;
use crate::start::{StartError, system};

/// A unix listener. It is opened once and shared by all workers, because SO_REUSEPORT does not work on paths.
pub(crate) struct SharedListener {
    /// Index of the listener in the configuration.
    pub(crate) place: usize,
    /// Its path.
    pub(crate) address: Address,
    /// Maximum number of connections that may wait.
    pub(crate) backlog: u32,
    /// The socket.
    pub(crate) socket: OwnedFd,
}

pub(crate) fn open_unix_listeners(
    config: &Config,
    inheritance: &Inheritance,
) -> Result<Vec<SharedListener>, StartError> {
    let mut listeners = Vec::new();
    let all = config.listeners.iter().enumerate();
    for (place, listener) in all.filter(|(place, _)| !inheritance.has(*place)) {
        let Bind::Unix(path) = &listener.bind else { continue };
        remove_left_behind(path);
        let socket = UnixListener::bind(path).map_err(|cause| match cause.kind() {
            io::ErrorKind::AddrInUse => StartError::Taken(vec![format!(
                "cannot listen on unix:{path}: another process listens there, or the file is not \
                 a socket; stop that process first, because a path cannot be shared"
            )]),
            _ => StartError::Listen(format!("cannot listen on unix:{path}: {cause}")),
        })?;
        listeners.push(SharedListener {
            place,
            address: Address::Unix(path.clone()),
            backlog: listener.backlog,
            socket: socket.into(),
        });
    }
    Ok(listeners)
}

/// Duplicates the descriptors of the unix listeners for one worker. The duplicates are made in this thread's
/// table and copied into the worker's table when it unshares. This thread's copies are closed when the
/// process ends.
pub(crate) fn share(listeners: &[SharedListener]) -> Result<Vec<SharedListener>, StartError> {
    let copy = |listener: &SharedListener| {
        let socket = listener.socket.try_clone().map_err(system("sharing a unix listener"))?;
        let address = listener.address.clone();
        Ok(SharedListener { place: listener.place, address, backlog: listener.backlog, socket })
    };
    listeners.iter().map(copy).collect()
}

/// Removes a socket file of an earlier run on which no process listens any more; it would prevent the bind.
pub(crate) fn remove_left_behind(path: &str) {
    let is_socket = std::fs::symlink_metadata(path).is_ok_and(|meta| meta.file_type().is_socket());
    if is_socket && is_refused(path) {
        let _ = std::fs::remove_file(path);
    }
}

/// Whether the kernel refuses connections to the unix socket at `path`, because no process listens. Does not wait for a
/// process whose queue of connections is full.
fn is_refused(path: &str) -> bool {
    use rustix::net::{
        AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with,
    };
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let Ok(socket) = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None) else {
        return false;
    };
    SocketAddrUnix::new(path).and_then(|address| connect(&socket, &address))
        == Err(rustix::io::Errno::CONNREFUSED)
}

pub(crate) fn unlink_unix_listeners(config: &Config) {
    for listener in &config.listeners {
        if let Bind::Unix(path) = &listener.bind {
            let _ = std::fs::remove_file(path);
        }
    }
    if let Some(Bind::Unix(path)) = config.admin.as_ref().map(|admin| &admin.bind) {
        let _ = std::fs::remove_file(path);
    }
}
