//! The files whose code this process executes, and the sections that unwinding and names need.
//! In: /proc/self/maps and the files. Out: sections, and the places of addresses in a file.
//! Limits: sections of up to `SECTION_BYTES_MAX`; without a larger one, names are less precise.

use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt as _;

use object::elf::{PF_X, PT_LOAD};
use object::read::elf::{ElfFile64, ProgramHeader as _};
use object::{LittleEndian, Object as _, ObjectSection as _, ReadCache};

/// Bytes of a section.
const SECTION_BYTES_MAX: u64 = 256 << 20;
/// Bytes of the code that the kernel maps into every process.
const VDSO_BYTES_MAX: usize = 64 << 10;

/// A file whose code is mapped.
pub(crate) struct Module {
    /// The last part of its path.
    pub(crate) name: String,
    /// The addresses of its code in memory.
    pub(crate) code: Range<u64>,
    /// The difference between an address in memory and the address in the file.
    pub(crate) bias: u64,
    /// The offset of the code in the file.
    offset: u64,
    /// The content.
    content: Content,
}

enum Content {
    File(File),
    /// A copy of memory.
    Memory(Vec<u8>),
}

/// A section with its address in the file.
pub(crate) struct Section {
    pub(crate) address: u64,
    pub(crate) bytes: Vec<u8>,
}

/// The files whose code this process executes now.
pub(crate) fn of_this_process() -> Vec<Module> {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    let program = std::fs::read_link("/proc/self/exe").unwrap_or_default();
    let program = program.to_string_lossy();
    let mapped = maps.lines().filter_map(Mapped::parse);
    mapped.filter_map(|mapped| Module::open(&mapped, mapped.path == program)).collect()
}

/// A line of /proc/self/maps with code.
struct Mapped<'l> {
    addresses: Range<u64>,
    offset: u64,
    path: &'l str,
}

impl<'l> Mapped<'l> {
    /// Reads a line such as `55d0-55d8 r-xp 00002000 08:01 1234   /usr/bin/tidegate`.
    fn parse(line: &'l str) -> Option<Self> {
        let (range, rest) = line.split_once(' ')?;
        let (access, rest) = rest.split_once(' ')?;
        let (offset, rest) = rest.split_once(' ')?;
        // The device and the number of the file.
        let path = rest.splitn(3, ' ').nth(2)?.trim_start();
        if !access.contains('x') || !(path.starts_with('/') || path == "[vdso]") {
            return None;
        }
        let hex = |text: &str| u64::from_str_radix(text, 16).ok();
        let (first, end) = range.split_once('-')?;
        Some(Self { addresses: hex(first)?..hex(end)?, offset: hex(offset)?, path })
    }
}

impl Module {
    fn open(mapped: &Mapped<'_>, is_program: bool) -> Option<Self> {
        let Mapped { addresses, offset, path } = mapped;
        let name = path.rsplit('/').next().unwrap_or(path).trim_end_matches(" (deleted)");
        let content = match *path {
            "[vdso]" => {
                let length = (addresses.end - addresses.start) as usize;
                let mut bytes = vec![0; length.min(VDSO_BYTES_MAX)];
                let memory = File::open("/proc/self/mem").ok()?;
                memory.read_exact_at(&mut bytes, addresses.start).ok()?;
                Content::Memory(bytes)
            }
            // The file of the program may have been replaced, as by an upgrade.
            _ if is_program => Content::File(File::open("/proc/self/exe").ok()?),
            path => Content::File(File::open(path).ok()?),
        };
        let mut module = Self {
            name: name.to_owned(),
            code: addresses.clone(),
            bias: 0,
            offset: *offset,
            content,
        };
        module.bias = module.find_bias()?;
        Some(module)
    }

    fn find_bias(&self) -> Option<u64> {
        let offset = self.offset;
        self.with_elf(|elf| {
            let endian = LittleEndian;
            elf.elf_program_headers().iter().find_map(|header| {
                let (at, size) = (header.p_offset(endian), header.p_filesz(endian));
                // Parts of a page at the border of two segments are in both.
                let is_it = header.p_type(endian) == PT_LOAD
                    && header.p_flags(endian).0 & PF_X.0 != 0
                    && offset >= at & !0xfff
                    && offset < at.checked_add(size)?;
                let address = header.p_vaddr(endian).wrapping_add(offset).wrapping_sub(at);
                is_it.then(|| self.code.start.wrapping_sub(address))
            })
        })?
    }

    /// Calls `read` with the content, if it is a valid file of this architecture's format.
    pub(crate) fn with_elf<T>(
        &self,
        read: impl FnOnce(&ElfFile64<'_, LittleEndian, &ReadCache<Bytes<'_>>>) -> T,
    ) -> Option<T> {
        let cache = ReadCache::new(Bytes { content: &self.content, at: 0 });
        ElfFile64::parse(&cache).ok().map(|elf| read(&elf))
    }

    /// A section of the file.
    pub(crate) fn section(&self, name: &str) -> Option<Section> {
        let place = self.with_elf(|elf| {
            let section = elf.section_by_name(name)?;
            Some((section.address(), section.file_range()?))
        })?;
        let (address, (at, size)) = place?;
        if size == 0 || size > SECTION_BYTES_MAX {
            return None;
        }
        let mut bytes = vec![0; size as usize];
        self.content.read_at(&mut bytes, at).ok()?;
        Some(Section { address, bytes })
    }

    /// The bytes of the code before the address `end` in memory.
    pub(crate) fn code_before<const N: usize>(&self, end: u64) -> Option<[u8; N]> {
        let at = end.checked_sub(N as u64)?.checked_sub(self.code.start)?;
        let mut bytes = [0; N];
        self.content.read_at(&mut bytes, self.offset + at).ok()?;
        Some(bytes)
    }
}

impl Content {
    fn read_at(&self, bytes: &mut [u8], at: u64) -> std::io::Result<()> {
        match self {
            Self::File(file) => file.read_exact_at(bytes, at),
            Self::Memory(memory) => {
                let from = usize::try_from(at).unwrap_or(usize::MAX);
                let found = memory.get(from..).and_then(|rest| rest.get(..bytes.len()));
                bytes.copy_from_slice(found.ok_or(std::io::ErrorKind::UnexpectedEof)?);
                Ok(())
            }
        }
    }

    fn length(&self) -> u64 {
        match self {
            Self::File(file) => file.metadata().map_or(0, |facts| facts.len()),
            Self::Memory(memory) => memory.len() as u64,
        }
    }
}

/// The content with a position, as the parser reads it.
pub(crate) struct Bytes<'m> {
    content: &'m Content,
    at: u64,
}

impl std::io::Read for Bytes<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let left = self.content.length().saturating_sub(self.at);
        let count = buffer.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        self.content.read_at(&mut buffer[..count], self.at)?;
        self.at += count as u64;
        Ok(count)
    }
}

impl std::io::Seek for Bytes<'_> {
    fn seek(&mut self, to: std::io::SeekFrom) -> std::io::Result<u64> {
        let (from, offset) = match to {
            std::io::SeekFrom::Start(at) => (at, 0),
            std::io::SeekFrom::End(offset) => (self.content.length(), offset),
            std::io::SeekFrom::Current(offset) => (self.at, offset),
        };
        self.at = from.checked_add_signed(offset).ok_or(std::io::ErrorKind::InvalidInput)?;
        Ok(self.at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_with_code_are_found() {
        let line = "7f00-7f10 r-xp 00028000 fd:00 123                        /usr/lib/lib c.so.6 (deleted)";
        let mapped = Mapped::parse(line).expect("it has code");
        assert_eq!((mapped.addresses, mapped.offset), (0x7f00..0x7f10, 0x28000));
        assert_eq!(mapped.path, "/usr/lib/lib c.so.6 (deleted)");
        for line in [
            "7f00-7f10 rw-p 00028000 fd:00 123 /usr/lib/libc.so.6",
            "7f00-7f10 r-xp 00000000 00:00 0 ",
            "7f00-7f10 r-xp 00000000 00:00 0 [heap]",
            "",
        ] {
            assert!(Mapped::parse(line).is_none(), "{line}");
        }
    }

    #[test]
    fn own_code_is_where_the_bias_says() {
        let modules = of_this_process();
        let here = own_code_is_where_the_bias_says as *const () as u64;
        let module = modules.iter().find(|module| module.code.contains(&here)).expect("it runs");
        let frames = module.section(".eh_frame").expect("it can be unwound");
        assert!(frames.address > 0 && frames.bytes.len() > 1000);
        let code: [u8; 16] = module.code_before(here + 16).expect("it is in the file");
        let mut memory = [0; 16];
        let file = File::open("/proc/self/mem").expect("own memory");
        file.read_exact_at(&mut memory, here).expect("code can be read");
        assert_eq!(code, memory);
        assert!(modules.iter().any(|module| module.name == "[vdso]"), "the kernel has a vdso");
    }
}
