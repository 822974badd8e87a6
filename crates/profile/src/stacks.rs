//! Stacks that were sampled: unwound as they arrive, and counted.
//! In: registers and a copy of the stack, addresses in the kernel. Out: a `Profile` with names.
//! Limits: `STACKS_MAX` different stacks; samples with further ones count as `[other stacks]`.

use std::collections::HashMap;
use std::sync::Arc;

use framehop::{CacheNative, ExplicitModuleSectionInfo, FrameAddress, Unwinder as _};
use framehop::{MayAllocateDuringUnwind, UnwindRegsNative, UnwinderNative};

use crate::folded::Profile;
use crate::modules::{self, Module};
use crate::symbols::Symbols;

/// Different stacks.
pub const STACKS_MAX: usize = 20_000;
/// Frames of a stack.
pub const DEPTH_MAX: usize = 192;
/// How far above the stack pointer the frame of compiled Lua code ends, in words.
const COMPILED_WORDS_MAX: u64 = 512;
/// Addresses of the kernel.
pub(crate) const KERNEL_FROM: u64 = 1 << 63;
// Frames that are not addresses.
/// The callers are unknown.
pub(crate) const INCOMPLETE: u64 = 1;
/// The kernel, whose functions the system hides.
pub(crate) const IN_KERNEL: u64 = 2;
/// Code that LuaJIT has compiled.
pub(crate) const COMPILED_LUA: u64 = 3;
/// Stacks beyond `STACKS_MAX`.
pub(crate) const OTHERS: u64 = 4;

/// The stack of a thread at one moment.
#[derive(Clone, Copy, Debug)]
pub struct Snapshot<'s> {
    /// The next instruction; in the kernel: the instruction after the system call.
    pub instruction: u64,
    /// The stack pointer.
    pub stack_pointer: u64,
    /// The frame pointer.
    pub frame_pointer: u64,
    /// The link register, on architectures that have it.
    pub link: u64,
    /// Addresses in the kernel, innermost first.
    pub kernel: &'s [u64],
    /// The stack from the stack pointer on.
    pub stack: &'s [u8],
    /// How many samples it counts for.
    pub ticks: u32,
}

/// Counts stacks.
pub struct Stacks {
    modules: Vec<Module>,
    unwinder: UnwinderNative<Arc<[u8]>, MayAllocateDuringUnwind>,
    cache: CacheNative<MayAllocateDuringUnwind>,
    /// Stacks, innermost frame first, and their samples.
    counts: HashMap<Box<[u64]>, u64>,
    /// See `hide_kernel`.
    hides_kernel: bool,
    /// The stack that is being unwound.
    frames: Vec<u64>,
}

impl Stacks {
    /// Prepares to unwind stacks of this process.
    #[must_use]
    pub fn of_this_process() -> Self {
        let modules = modules::of_this_process();
        let mut unwinder = UnwinderNative::new();
        for module in &modules {
            unwinder.add_module(unwound(module));
        }
        Self {
            modules,
            unwinder,
            cache: CacheNative::new(),
            counts: HashMap::new(),
            hides_kernel: false,
            frames: Vec::new(),
        }
    }

    /// The samples do not contain frames of the kernel: a program that waits at a system call is in the kernel.
    pub fn hide_kernel(&mut self) {
        self.hides_kernel = true;
    }

    /// Counts a sample.
    pub fn add(&mut self, snapshot: &Snapshot<'_>) {
        self.frames.clear();
        for (at, address) in snapshot.kernel.iter().take(DEPTH_MAX / 2).enumerate() {
            // The others are return addresses; the call is before them.
            self.frames.push(if at == 0 { *address } else { address.saturating_sub(1) });
        }
        if self.hides_kernel && self.is_after_system_call(snapshot.instruction) {
            self.frames.push(IN_KERNEL);
        }
        self.unwind(snapshot);
        let ticks = u64::from(snapshot.ticks);
        if let Some(count) = self.counts.get_mut(&*self.frames) {
            *count += ticks;
            return;
        }
        let frames = if self.counts.len() < STACKS_MAX { &*self.frames } else { &[OTHERS] };
        *self.counts.entry(frames.into()).or_default() += ticks;
    }

    /// The profile, with the names of functions. The callers of the function `root` are left out.
    #[must_use]
    pub fn finish(self, root: &str) -> Profile {
        let addresses = self.counts.keys().flat_map(|frames| frames.iter().copied());
        let symbols = Symbols::of(addresses, &self.modules);
        let mut profile = Profile::default();
        for (frames, count) in &self.counts {
            profile.add(symbols.folded(frames, root), *count);
        }
        profile
    }

    fn module_of(&self, address: u64) -> Option<&Module> {
        self.modules.iter().find(|module| module.code.contains(&address))
    }

    fn is_after_system_call(&self, instruction: u64) -> bool {
        let Some(module) = self.module_of(instruction) else { return false };
        match cfg!(target_arch = "x86_64") {
            // syscall
            true => module.code_before(instruction) == Some([0x0f, 0x05]),
            // svc #0
            false => module.code_before(instruction) == Some([0x01, 0x00, 0x00, 0xd4]),
        }
    }

    /// Whether the instruction before `address` calls a function of the same module by its address.
    fn is_after_call(&self, address: u64) -> bool {
        let Some(module) = self.module_of(address) else { return false };
        let target = match cfg!(target_arch = "x86_64") {
            // call rel32
            true => module.code_before(address).and_then(|[code, rest @ ..]: [u8; 5]| {
                let distance = i64::from(i32::from_le_bytes(rest));
                (code == 0xe8).then(|| address.wrapping_add_signed(distance))
            }),
            // bl: 6 bits, and 26 bits that count instructions.
            false => module.code_before(address).map(u32::from_le_bytes).and_then(|code| {
                let distance = i64::from((code << 6).cast_signed() >> 4) - 4;
                (code >> 26 == 0x25).then(|| address.wrapping_add_signed(distance))
            }),
        };
        target.is_some_and(|target| module.code.contains(&target))
    }

    /// Appends the frames of the program.
    fn unwind(&mut self, snapshot: &Snapshot<'_>) {
        let begin = snapshot.stack_pointer;
        let mut read_stack = |address: u64| -> Result<u64, ()> {
            let at = usize::try_from(address.checked_sub(begin).ok_or(())?).map_err(drop)?;
            let bytes = snapshot.stack.get(at..).and_then(|rest| rest.first_chunk()).ok_or(())?;
            Ok(u64::from_ne_bytes(*bytes))
        };
        let (mut registers, mut address) = (
            registers(snapshot.instruction, begin, snapshot.frame_pointer, snapshot.link),
            FrameAddress::from_instruction_pointer(snapshot.instruction),
        );
        while self.frames.len() < DEPTH_MAX {
            let place = address.address_for_lookup();
            let next = if self.module_of(place).is_some() {
                self.frames.push(place);
                let unwound = self.unwinder.unwind_frame(
                    address,
                    &mut registers,
                    &mut self.cache,
                    &mut read_stack,
                );
                match unwound {
                    Ok(None) => return,
                    Ok(Some(next)) => Some(next),
                    Err(_) => None,
                }
            } else {
                self.frames.push(COMPILED_LUA);
                self.leave_compiled_code(&mut registers, &mut read_stack)
            };
            match next.and_then(FrameAddress::from_return_address) {
                Some(next) => address = next,
                None => break,
            }
        }
        self.frames.push(INCOMPLETE);
    }

    /// Compiled Lua code has no tables for unwinding. It uses the frame of the function that entered Lua: the first word of
    /// the stack that follows a call in the code is the return address of that function.
    fn leave_compiled_code(
        &self,
        registers: &mut UnwindRegsNative,
        read_stack: &mut impl FnMut(u64) -> Result<u64, ()>,
    ) -> Option<u64> {
        let stack = registers.sp();
        for at in 0..COMPILED_WORDS_MAX {
            let word = read_stack(stack.wrapping_add(at * 8)).ok()?;
            if self.is_after_call(word) {
                *registers = self::registers(word, stack.wrapping_add(at * 8 + 8), 0, word);
                return Some(word);
            }
        }
        None
    }
}

#[cfg(target_arch = "x86_64")]
fn registers(instruction: u64, stack: u64, frame: u64, _link: u64) -> UnwindRegsNative {
    UnwindRegsNative::new(instruction, stack, frame)
}

#[cfg(target_arch = "aarch64")]
fn registers(_instruction: u64, stack: u64, frame: u64, link: u64) -> UnwindRegsNative {
    UnwindRegsNative::new(link, stack, frame)
}

/// The data of a module that the unwinder needs.
fn unwound(module: &Module) -> framehop::Module<Arc<[u8]>> {
    let (frames, header) = (module.section(".eh_frame"), module.section(".eh_frame_hdr"));
    let range =
        |section: &modules::Section| section.address..section.address + section.bytes.len() as u64;
    let code =
        module.code.start.wrapping_sub(module.bias)..module.code.end.wrapping_sub(module.bias);
    let sections = ExplicitModuleSectionInfo {
        base_svma: 0,
        text_svma: Some(code),
        eh_frame_svma: frames.as_ref().map(range),
        eh_frame_hdr_svma: header.as_ref().map(range),
        eh_frame: frames.map(|section| section.bytes.into()),
        eh_frame_hdr: header.map(|section| section.bytes.into()),
        ..ExplicitModuleSectionInfo::default()
    };
    framehop::Module::new(module.name.clone(), module.code.clone(), module.bias, sections)
}
