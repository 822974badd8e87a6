//! Samples by perf_event_open(2): the software event `cpu-clock` of each thread, with the kernel's frames.
//! In: records in the ring that the kernel shares. Out: `Sample`s.
//! Never: excludes the kernel from the event: the time that a thread spends in the kernel would be missing.
//! Limits: a ring of `RING_PAGES` for each thread.

use std::io;
use std::os::fd::{FromRawFd as _, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fd::AsFd as _;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use super::{Registers, STACK_BYTES, Sample, Thread, page_bytes};

/// Pages of a ring. With the page before it, it fits into `perf_event_mlock_kb` of one CPU (516 KiB).
const RING_PAGES: usize = 128;

// linux/perf_event.h
const TYPE_SOFTWARE: u32 = 1;
const COUNT_CPU_CLOCK: u64 = 0;
const SAMPLE_CALLCHAIN: u64 = 1 << 5;
const SAMPLE_REGS_USER: u64 = 1 << 12;
const SAMPLE_STACK_USER: u64 = 1 << 13;
const FLAG_FREQUENCY: u64 = 1 << 10;
const FLAG_EXCLUDE_CALLCHAIN_USER: u64 = 1 << 22;
const FLAG_FD_CLOEXEC: libc::c_ulong = 8;
const RECORD_LOST: u32 = 2;
const RECORD_SAMPLE: u32 = 9;
/// Values from here on are markers in a call chain, such as "user frames follow" (PERF_CONTEXT_USER).
const CONTEXTS_FROM: u64 = -4095_i64 as u64;
/// Places of `data_head` and `data_tail` in the first page.
const HEAD_AT: usize = 1024;
const TAIL_AT: usize = 1032;
const RECORD_HEADER_BYTES: usize = 8;

/// The registers that the kernel copies, as bits, in the order of asm/perf_regs.h.
#[cfg(target_arch = "x86_64")]
const REGISTERS: u64 = 1 << 6 | 1 << 7 | 1 << 8;
#[cfg(target_arch = "aarch64")]
const REGISTERS: u64 = 1 << 29 | 1 << 30 | 1 << 31 | 1 << 32;

/// `struct perf_event_attr`, `PERF_ATTR_SIZE_VER5`.
#[repr(C)]
#[derive(Default)]
struct Attributes {
    kind: u32,
    size: u32,
    config: u64,
    frequency: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup_events: u32,
    breakpoint_type: u32,
    config_1: u64,
    config_2: u64,
    branch_sample_type: u64,
    sample_regs_user: u64,
    sample_stack_user: u32,
    clock: i32,
    sample_regs_intr: u64,
    aux_watermark: u32,
    sample_max_stack: u16,
    reserved: u16,
}

const _: () = assert!(size_of::<Attributes>() == 112);

/// The event of one thread, and its ring.
#[derive(Debug)]
struct Event {
    /// The event exists as long as this descriptor is open.
    _event: OwnedFd,
    /// The page that holds the positions, and after it the ring.
    pages: *mut u8,
    page_bytes: usize,
    /// The end of the thread's stack. The kernel also copies the memory after it, if memory is mapped there.
    stack_end: usize,
}

/// The events of all threads.
#[derive(Debug)]
pub(super) struct Events {
    events: Vec<Event>,
    lost: u64,
    /// The content of the record that is being read.
    record: Vec<u8>,
    /// The kernel's call chain in that record.
    kernel: Vec<u64>,
}

impl Events {
    pub(super) fn start(threads: &[Thread], hertz: u32) -> io::Result<Self> {
        let opened = threads.iter().map(|thread| Event::open(thread, hertz));
        let events = opened.collect::<io::Result<_>>()?;
        Ok(Self { events, lost: 0, record: Vec::new(), kernel: Vec::new() })
    }

    pub(super) fn lost(&self) -> u64 {
        self.lost
    }

    pub(super) fn drain(&mut self, each: &mut dyn FnMut(&Sample<'_>)) {
        for (thread, event) in self.events.iter().enumerate() {
            while let Some(kind) = event.next(&mut self.record) {
                match kind {
                    RECORD_SAMPLE => {
                        let sample = parse(&self.record, &mut self.kernel);
                        if let Some((registers, stack)) = sample {
                            let kernel = &self.kernel;
                            let stack = own_stack(registers.stack, stack, event.stack_end);
                            each(&Sample { thread, ticks: 1, registers, kernel, stack });
                        }
                    }
                    // The number of the event, and that of the lost records.
                    RECORD_LOST => self.lost += word(&self.record, 8).unwrap_or(0),
                    _ => {}
                }
            }
        }
    }
}

impl Event {
    fn open(thread: &Thread, hertz: u32) -> io::Result<Self> {
        let attributes = Attributes {
            kind: TYPE_SOFTWARE,
            size: size_of::<Attributes>() as u32,
            config: COUNT_CPU_CLOCK,
            frequency: u64::from(hertz),
            sample_type: SAMPLE_CALLCHAIN | SAMPLE_REGS_USER | SAMPLE_STACK_USER,
            flags: FLAG_FREQUENCY | FLAG_EXCLUDE_CALLCHAIN_USER,
            sample_regs_user: REGISTERS,
            sample_stack_user: STACK_BYTES as u32,
            ..Attributes::default()
        };
        let (any_cpu, no_group): (libc::c_int, libc::c_int) = (-1, -1);
        // SAFETY: the kernel reads the attributes, whose size they state, and returns a new descriptor or -1.
        let event = unsafe {
            let number = libc::syscall(
                libc::SYS_perf_event_open,
                &raw const attributes,
                thread.number,
                any_cpu,
                no_group,
                FLAG_FD_CLOEXEC,
            );
            if number < 0 {
                return Err(io::Error::last_os_error());
            }
            OwnedFd::from_raw_fd(number as libc::c_int)
        };
        let page_bytes = page_bytes();
        let bytes = (RING_PAGES + 1) * page_bytes;
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice, which `drop` removes.
        let pages = unsafe {
            mmap(core::ptr::null_mut(), bytes, access, MapFlags::SHARED, event.as_fd(), 0)?
        };
        Ok(Self { _event: event, pages: pages.cast(), page_bytes, stack_end: thread.stack_end })
    }

    fn position(&self, at: usize) -> &AtomicU64 {
        // SAFETY: the first page is mapped as long as `self` lives, and has an aligned number there that the kernel and this
        // program change atomically.
        unsafe { AtomicU64::from_ptr(self.pages.add(at).cast()) }
    }

    /// Takes the next record: its content without the header goes into `record`. Returns its type.
    fn next(&self, record: &mut Vec<u8>) -> Option<u32> {
        let (head, tail) = (self.position(HEAD_AT), self.position(TAIL_AT));
        let (end, begin) = (head.load(Ordering::Acquire), tail.load(Ordering::Relaxed));
        if end.wrapping_sub(begin) < RECORD_HEADER_BYTES as u64 {
            return None;
        }
        // type: u32, misc: u16, size: u16
        self.copy(begin, RECORD_HEADER_BYTES, record);
        let header = word(record, 0)?;
        let size = (header >> 48) as usize;
        let rest = size.checked_sub(RECORD_HEADER_BYTES)?;
        self.copy(begin + RECORD_HEADER_BYTES as u64, rest, record);
        tail.store(begin + size as u64, Ordering::Release);
        Some(header as u32)
    }

    /// Copies `count` bytes of the ring from the position `from` on.
    fn copy(&self, from: u64, count: usize, to: &mut Vec<u8>) {
        let ring_bytes = RING_PAGES * self.page_bytes;
        let at = (from % ring_bytes as u64) as usize;
        let first = count.min(ring_bytes - at);
        to.clear();
        // SAFETY: both parts are within the ring, which follows the first page. The kernel does not write there until the
        // tail is moved. `count` is less than 64 KiB, and the ring is larger.
        unsafe {
            let ring = self.pages.add(self.page_bytes).cast_const();
            to.extend_from_slice(core::slice::from_raw_parts(ring.add(at), first));
            to.extend_from_slice(core::slice::from_raw_parts(ring, count - first));
        }
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        // SAFETY: `open` has mapped these pages, and nothing refers to them any more.
        let _ = unsafe { munmap(self.pages.cast(), (RING_PAGES + 1) * self.page_bytes) };
    }
}

/// The part of the copied `bytes` at the address `from` that belongs to the stack that ends at `stack_end`.
fn own_stack(from: u64, bytes: &[u8], stack_end: usize) -> &[u8] {
    let depth = usize::try_from(from).map_or(0, |from| stack_end.saturating_sub(from));
    &bytes[..depth.min(bytes.len())]
}

/// The registers and the stack of a sample; its kernel frames go into `kernel`. `None` if the sample has no user registers.
fn parse<'r>(record: &'r [u8], kernel: &mut Vec<u64>) -> Option<(Registers, &'r [u8])> {
    let count = word(record, 0)? as usize;
    kernel.clear();
    for at in 0..count {
        let address = word(record, 8 + at * 8)?;
        if address < CONTEXTS_FROM {
            kernel.push(address);
        }
    }
    let mut at = 8 + count * 8;
    // The ABI: 0 if there are no registers.
    let abi = word(record, at)?;
    if abi == 0 {
        return None;
    }
    let registers = registers(|index| word(record, at + 8 + index * 8))?;
    at += 8 + 8 * REGISTERS.count_ones() as usize;
    let size = word(record, at)? as usize;
    let stack = record.get(at + 8..at + 8 + size)?;
    // How many of the bytes were copied.
    let copied = if size == 0 { 0 } else { word(record, at + 8 + size)? as usize };
    Some((registers, stack.get(..copied)?))
}

#[cfg(target_arch = "x86_64")]
fn registers(nth: impl Fn(usize) -> Option<u64>) -> Option<Registers> {
    Some(Registers { frame: nth(0)?, stack: nth(1)?, instruction: nth(2)?, link: 0 })
}

#[cfg(target_arch = "aarch64")]
fn registers(nth: impl Fn(usize) -> Option<u64>) -> Option<Registers> {
    Some(Registers { frame: nth(0)?, link: nth(1)?, stack: nth(2)?, instruction: nth(3)? })
}

fn word(bytes: &[u8], at: usize) -> Option<u64> {
    let bytes = bytes.get(at..at.checked_add(8)?)?;
    bytes.try_into().ok().map(u64::from_ne_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_after_the_stack_is_cut_off() {
        let bytes = [7; 32];
        for (from, stack_end, kept) in
            [(1000, 1016, 16), (1000, 1032, 32), (1000, 2000, 32), (1000, 900, 0)]
        {
            assert_eq!(own_stack(from, &bytes, stack_end).len(), kept, "{from} to {stack_end}");
        }
    }
}
