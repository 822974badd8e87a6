//! The setup of a worker thread before it serves requests: its CPU, its descriptor table, its descriptor limit.
//! In: calls from the starting thread or the worker's own thread. Out: facts and errors of the system.
//! Never: starts a thread.
//! Invariant: after `unshare_descriptor_table`, workers share no kernel lock on descriptors, and
//! RLIMIT_NOFILE applies to each worker separately.

use std::io;

use rustix::process::{Resource, getrlimit, setrlimit};
use rustix::thread::{CpuSet, UnshareFlags, sched_getaffinity, sched_setaffinity};

/// The CPUs that this thread may use, in ascending order. A container or `taskset` may restrict them.
///
/// # Errors
/// The error of sched_getaffinity(2).
pub fn allowed_cpus() -> io::Result<Vec<usize>> {
    let set = sched_getaffinity(None)?;
    Ok((0..CpuSet::MAX_CPU).filter(|&cpu| set.is_set(cpu)).collect())
}

/// Binds the calling thread to one CPU.
///
/// # Errors
/// EINVAL if the CPU is offline or not allowed; EPERM under some seccomp profiles.
pub fn pin_to_cpu(cpu: usize) -> io::Result<()> {
    if cpu >= CpuSet::MAX_CPU {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let mut set = CpuSet::new();
    set.set(cpu);
    Ok(sched_setaffinity(None, &set)?)
}

/// Gives the calling thread its own descriptor table: a copy of the current one.
///
/// Descriptors opened before this call stay open in both tables until each table closes its copy.
/// Descriptors opened after it do not exist in any other thread. So do not move a socket or a file to or from
/// this thread afterwards, unless it was opened before and is never closed (`make_wakers`). A thread started by
/// this thread shares its table.
///
/// # Errors
/// ENOMEM; EPERM under some seccomp profiles. The worker can continue with the shared table.
pub fn unshare_descriptor_table() -> io::Result<()> {
    // SAFETY: in the copy, the same numbers are open on the same files, so no owner in this thread loses
    // its descriptor. The doc comment lists what owners must not do afterwards. Violating it can at worst
    // close or use a wrong descriptor of this process; it cannot violate memory safety.
    Ok(unsafe { rustix::thread::unshare_unsafe(UnshareFlags::FILES) }?)
}

/// The number of descriptors that one table may hold (the soft limit of RLIMIT_NOFILE).
#[must_use]
pub fn descriptor_limit() -> u64 {
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

/// Raises the soft limit of RLIMIT_NOFILE to the hard limit and returns the new soft limit.
///
/// # Errors
/// If the kernel refuses; the limit is unchanged.
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
    fn pinned_thread_has_one_cpu() {
        std::thread::spawn(|| {
            let cpus = allowed_cpus().expect("the affinity can be read");
            let last = *cpus.last().expect("a thread has a CPU");
            pin_to_cpu(last).expect("pinning to an allowed CPU succeeds");
            assert_eq!(allowed_cpus().expect("the affinity can be read"), [last]);
            assert!(pin_to_cpu(usize::MAX).is_err());
        })
        .join()
        .expect("the thread ends");
    }

    #[test]
    fn unshared_table_keeps_earlier_descriptors_and_hides_later_ones() {
        let (sender, receiver) = std::sync::mpsc::channel();
        let earlier = eventfd(0, EventfdFlags::CLOEXEC).expect("an eventfd");
        let earlier_number = earlier.as_raw_fd();
        let worker = std::thread::spawn(move || {
            unshare_descriptor_table().expect("this system allows unshare");
            // SAFETY: the descriptor is open in the copied table, and nothing in this thread closes it.
            let copy = unsafe { BorrowedFd::borrow_raw(earlier_number) };
            assert!(rustix::io::fcntl_getfd(copy).is_ok());
            let later = eventfd(7, EventfdFlags::CLOEXEC).expect("an eventfd");
            let path = format!("/proc/thread-self/fd/{}", later.as_raw_fd());
            let link = std::fs::read_link(path).expect("the descriptor is open here");
            sender.send((later.as_raw_fd(), link)).expect("the test waits for it");
        });
        let (number, link) = receiver.recv().expect("the thread sends it");
        worker.join().expect("the thread ends");
        assert_eq!(link.to_str(), Some("anon_inode:[eventfd]"));
        // Each table uses its lowest free number, so in this table the number is free or belongs to another
        // file.
        assert_ne!(number, earlier.as_raw_fd());
    }

    #[test]
    fn descriptor_limit_can_be_read_and_raised() {
        assert!(descriptor_limit() > 0);
        assert!(raise_descriptor_limit().expect("raising to the hard limit is allowed") > 0);
    }
}
