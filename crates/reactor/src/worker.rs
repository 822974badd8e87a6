//! What a worker thread arranges for itself before it serves: CPU, descriptor table, descriptor limit.
//! In: calls by the starter or the worker's own thread. Out: facts and errors of the system.
//! Never: starts a thread.
//! Invariant: after `unshare_descriptor_table` no kernel lock on descriptors is shared between workers
//! and RLIMIT_NOFILE counts for each worker alone.

use std::io;

use rustix::process::{Resource, getrlimit, setrlimit};
use rustix::thread::{CpuSet, UnshareFlags, sched_getaffinity, sched_setaffinity};

/// The CPUs this thread may use, ascending; what a container or `taskset` leaves of the machine.
///
/// # Errors
/// When the kernel refuses to tell.
pub fn allowed_cpus() -> io::Result<Vec<usize>> {
    let set = sched_getaffinity(None)?;
    Ok((0..CpuSet::MAX_CPU).filter(|&cpu| set.is_set(cpu)).collect())
}

/// Binds the calling thread to one CPU.
///
/// # Errors
/// EINVAL when that CPU is offline or not allowed; EPERM under some seccomp profiles.
pub fn pin_to_cpu(cpu: usize) -> io::Result<()> {
    if cpu >= CpuSet::MAX_CPU {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let mut set = CpuSet::new();
    set.set(cpu);
    Ok(sched_setaffinity(None, &set)?)
}

/// Gives the calling thread a descriptor table of its own: a copy of the present one.
///
/// Descriptors opened before stay open in both tables until each closes its own copy; those opened
/// after are unknown to every other thread. So nothing that owns a descriptor may be moved between
/// this thread and others afterwards, but for what was opened before and is closed nowhere
/// (`make_wakers`). A thread started by this one shares its table.
///
/// # Errors
/// ENOMEM; EPERM under some seccomp profiles. The worker can go on with the shared table.
pub fn unshare_descriptor_table() -> io::Result<()> {
    // SAFETY: the copy has the same numbers open on the same files, so no owner in this thread loses
    // its descriptor; what owners must not do afterwards is said above, and breaking it can at worst
    // close or use a descriptor of this process, never memory.
    Ok(unsafe { rustix::thread::unshare_unsafe(UnshareFlags::FILES) }?)
}

/// Descriptors one table may hold (the soft limit of RLIMIT_NOFILE).
#[must_use]
pub fn descriptor_limit() -> u64 {
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

/// Raises the soft limit to the hard one and tells what it is now.
///
/// # Errors
/// When the kernel refuses; the limit is as it was.
pub fn raise_descriptor_limit() -> io::Result<u64> {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    setrlimit(Resource::Nofile, limit)?;
    Ok(descriptor_limit())
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::{EventfdFlags, eventfd};
    use std::os::fd::{AsRawFd, BorrowedFd};

    #[test]
    fn a_pinned_thread_has_one_cpu() {
        std::thread::spawn(|| {
            let cpus = allowed_cpus().expect("the kernel tells");
            let last = *cpus.last().expect("a thread has a CPU");
            pin_to_cpu(last).expect("an allowed CPU is allowed");
            assert_eq!(allowed_cpus().expect("the kernel tells"), [last]);
            assert!(pin_to_cpu(usize::MAX).is_err());
        })
        .join()
        .expect("the thread ends");
    }

    #[test]
    fn an_unshared_table_hides_later_descriptors_and_keeps_earlier_ones() {
        let (tell, hear) = std::sync::mpsc::channel();
        let earlier = eventfd(0, EventfdFlags::CLOEXEC).expect("an eventfd");
        let earlier_number = earlier.as_raw_fd();
        let worker = std::thread::spawn(move || {
            unshare_descriptor_table().expect("this system lets us");
            // SAFETY: the copied table has it open; nothing closes it in this thread.
            let copy = unsafe { BorrowedFd::borrow_raw(earlier_number) };
            assert!(rustix::io::fcntl_getfd(copy).is_ok());
            let later = eventfd(7, EventfdFlags::CLOEXEC).expect("an eventfd");
            let path = format!("/proc/thread-self/fd/{}", later.as_raw_fd());
            let link = std::fs::read_link(path).expect("it is open here");
            tell.send((later.as_raw_fd(), link)).expect("the test listens");
        });
        let (number, link) = hear.recv().expect("the thread tells");
        worker.join().expect("the thread ends");
        assert_eq!(link.to_str(), Some("anon_inode:[eventfd]"));
        // The lowest free number is taken in each table, so here it is free or something else's.
        assert_ne!(number, earlier.as_raw_fd());
    }

    #[test]
    fn the_descriptor_limit_is_known() {
        assert!(descriptor_limit() > 0);
        assert!(raise_descriptor_limit().expect("raising to the hard limit is allowed") > 0);
    }
}
