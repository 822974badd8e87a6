//! Gives each connection to the listener of the CPU that received it (SO_ATTACH_REUSEPORT_CBPF).
//! In: one listener of the group, and how many there are. Out: the group's program is set.
//! Never: decides whether that pays: see `interrupts`.
//! Invariant: the program's result is below the count, so the kernel never falls back to its hash. It
//! indexes the group in the order in which its listeners began to listen: open them in CPU order.

use std::io;

use rustix::fd::{AsRawFd, BorrowedFd};

/// The program: load the CPU's number, take it modulo the count, return it.
fn program(count: u32) -> [libc::sock_filter; 3] {
    let cpu = (libc::SKF_AD_OFF + libc::SKF_AD_CPU) as u32;
    [
        instruction(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, cpu),
        instruction(libc::BPF_ALU | libc::BPF_MOD | libc::BPF_K, count.max(1)),
        instruction(libc::BPF_RET | libc::BPF_A, 0),
    ]
}

const fn instruction(code: u32, k: u32) -> libc::sock_filter {
    libc::sock_filter { code: code as u16, jt: 0, jf: 0, k }
}

/// Sets the program for the whole group of `listener`, which has SO_REUSEPORT. The last one set wins.
///
/// # Errors
/// What the kernel said (EINVAL without SO_REUSEPORT).
pub(crate) fn steer_by_cpu(listener: BorrowedFd<'_>, count: u32) -> io::Result<()> {
    let mut program = program(count);
    let filter =
        libc::sock_fprog { len: program.len() as libc::c_ushort, filter: program.as_mut_ptr() };
    // SAFETY: `filter` points to `program`, which lives until the call returns (the kernel copies it),
    // and the length passed is that of `sock_fprog`, as socket(7) asks.
    let result = unsafe {
        libc::setsockopt(
            listener.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_ATTACH_REUSEPORT_CBPF,
            (&raw const filter).cast(),
            size_of::<libc::sock_fprog>() as libc::socklen_t,
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
