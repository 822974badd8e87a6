//! The names of functions, by address.
//! In: addresses, the files of the code, /proc/kallsyms. Out: names, with those of inlined functions where the file has
//! debug information.
//! Limits: names of `NAME_BYTES_MAX`.

use std::collections::BTreeMap;

use addr2line::gimli::{self, EndianSlice, LittleEndian};
use object::{Object as _, ObjectSymbol as _, SymbolKind};

use crate::folded::{INLINED, KERNEL};
use crate::modules::Module;
use crate::stacks::{COMPILED_LUA, IN_KERNEL, INCOMPLETE, KERNEL_FROM, OTHERS};

/// Bytes of a name; a longer name is cut.
const NAME_BYTES_MAX: usize = 400;

/// Frames as strings, outermost first, by address.
pub(crate) struct Symbols(BTreeMap<u64, Vec<String>>);

impl Symbols {
    /// The names of functions at these addresses.
    pub(crate) fn of(addresses: impl Iterator<Item = u64>, modules: &[Module]) -> Self {
        let mut names: BTreeMap<u64, Vec<String>> =
            addresses.map(|address| (address, Vec::new())).collect();
        for (mark, name) in [
            (INCOMPLETE, "[unknown callers]".to_owned()),
            (IN_KERNEL, format!("[kernel]{KERNEL}")),
            (COMPILED_LUA, "[compiled Lua]".to_owned()),
            (OTHERS, "[other stacks]".to_owned()),
        ] {
            names.entry(mark).and_modify(|names| names.push(name));
        }
        name_kernel(&mut names);
        for module in modules {
            if names.range(module.code.clone()).next().is_some() {
                name_module(module, &mut names);
            }
        }
        Self(names)
    }

    /// The line of a stack whose innermost frame is first: names from the function `root`, or the outermost, to the innermost.
    pub(crate) fn folded(&self, frames: &[u64], root: &str) -> String {
        let names = frames.iter().rev().flat_map(|frame| self.0.get(frame).into_iter().flatten());
        let mut names: Vec<&str> = names.map(String::as_str).collect();
        if let Some(at) = names.iter().position(|name| *name == root) {
            names.drain(..at);
        }
        names.dedup_by(|next, before| next == before && next.starts_with('['));
        names.join(";")
    }
}

/// Names the addresses of the kernel. Without permission, the kernel shows no addresses.
fn name_kernel(names: &mut BTreeMap<u64, Vec<String>>) {
    if names.range(KERNEL_FROM..).next().is_none() {
        return;
    }
    let text = std::fs::read_to_string("/proc/kallsyms").unwrap_or_default();
    // Lines such as `ffffffff81000000 T _stext`, and `[module]` at the end.
    let mut functions: Vec<(u64, &str)> = text
        .lines()
        .filter_map(|line| {
            let mut words = line.split_ascii_whitespace();
            let (address, kind, name) = (words.next()?, words.next()?, words.next()?);
            let address = u64::from_str_radix(address, 16).ok().filter(|at| *at >= KERNEL_FROM)?;
            matches!(kind, "t" | "T" | "w" | "W").then_some((address, name))
        })
        .collect();
    functions.sort_unstable();
    for (address, names) in names.range_mut(KERNEL_FROM..) {
        let after = functions.partition_point(|(at, _)| at <= address);
        let found = after.checked_sub(1).and_then(|at| functions.get(at));
        names.push(format!("{}{KERNEL}", found.map_or("[kernel]", |(_, name)| name)));
    }
}

/// A function of a file: its address and size there, and its name.
type Function = (u64, u64, String);

fn name_module(module: &Module, names: &mut BTreeMap<u64, Vec<String>>) {
    let functions = functions(module);
    let sections = debug_sections(module);
    let lines = sections.as_ref().and_then(debug_information);
    for (address, names) in names.range_mut(module.code.clone()) {
        let place = address.wrapping_sub(module.bias);
        let inlined = lines.as_ref().map(|lines| frames(lines, place)).unwrap_or_default();
        let after = functions.partition_point(|(at, ..)| *at <= place);
        let found = after.checked_sub(1).and_then(|at| functions.get(at));
        // Assembly code has no sizes.
        let found = found.filter(|(at, size, _)| *size == 0 || place < at.saturating_add(*size));
        // The debug information of a release build has names without the modules that contain them.
        let outermost = match (found, inlined.first()) {
            (Some((.., name)), _) => readable(name),
            (None, Some(name)) => name.clone(),
            (None, None) => format!("[{}]", module.name),
        };
        names.push(outermost);
        names.extend(inlined.into_iter().skip(1));
    }
}

/// The functions in the table of symbols, by address.
fn functions(module: &Module) -> Vec<Function> {
    let read = module.with_elf(|elf| {
        let function = |symbol: object::read::elf::ElfSymbol64<'_, '_, _, _>| {
            let is_function = matches!(symbol.kind(), SymbolKind::Text)
                || (symbol.kind() == SymbolKind::Unknown && symbol.section_index().is_some());
            let name = symbol.name().ok().filter(|name| is_function && !name.is_empty())?;
            Some((symbol.address(), symbol.size(), name.to_owned()))
        };
        let mut functions: Vec<Function> = elf.symbols().filter_map(function).collect();
        if functions.is_empty() {
            functions = elf.dynamic_symbols().filter_map(function).collect();
        }
        functions
    });
    let mut functions = read.unwrap_or_default();
    functions.sort_unstable();
    functions
}

/// The sections of the debug information, by name.
type Sections = BTreeMap<&'static str, Vec<u8>>;

/// The debug information of a file, if it has some.
fn debug_sections(module: &Module) -> Option<Sections> {
    module.section(".debug_info")?;
    // `load` states which sections there may be.
    let mut sections = Sections::new();
    let load = |id: gimli::SectionId| -> Result<_, gimli::Error> {
        if let Some(section) = module.section(id.name()) {
            sections.insert(id.name(), section.bytes);
        }
        Ok(EndianSlice::new(&[], LittleEndian))
    };
    gimli::Dwarf::load(load).ok()?;
    Some(sections)
}

type Lines<'s> = addr2line::Context<EndianSlice<'s, LittleEndian>>;

fn debug_information(sections: &Sections) -> Option<Lines<'_>> {
    let load = |id: gimli::SectionId| -> Result<_, gimli::Error> {
        let bytes = sections.get(id.name()).map(Vec::as_slice).unwrap_or_default();
        Ok(EndianSlice::new(bytes, LittleEndian))
    };
    addr2line::Context::from_dwarf(gimli::Dwarf::load(load).ok()?).ok()
}

/// The function at `place` and those that were inlined there, outermost first.
fn frames(lines: &Lines, place: u64) -> Vec<String> {
    let mut names = Vec::new();
    let Ok(mut found) = lines.find_frames(place).skip_all_loads() else { return names };
    while let Ok(Some(frame)) = found.next() {
        let name = frame.function.as_ref().and_then(|name| name.raw_name().ok());
        let Some(mut name) = name.map(|name| readable(&name)) else { return Vec::new() };
        let file = frame.location.and_then(|location| location.file);
        if let Some(file) = file.filter(|_| !name.contains("::")) {
            name = format!("{name} ({})", short(file));
        }
        names.push(name);
    }
    names.reverse();
    for name in names.iter_mut().skip(1) {
        name.push_str(INLINED);
    }
    names
}

/// The path of a source file from the name of its crate on.
fn short(file: &str) -> String {
    let roots = ["/library/", "/crates/", "/registry/src/"];
    let found = roots.iter().find_map(|root| file.rsplit_once(root).map(|(_, rest)| (root, rest)));
    let path = match found {
        // After the name of the registry.
        Some((&"/registry/src/", rest)) => rest.split_once('/').map_or(rest, |(_, rest)| rest),
        Some((_, rest)) => rest,
        None => {
            let last = file.rmatch_indices('/').nth(1);
            last.map_or(file, |(at, _)| &file[at + 1..])
        }
    };
    path.replace("/src/", "/").replace(';', ",")
}

/// A name without the hash of the compiler and without the version in the names of cryptography. `;` separates frames.
fn readable(name: &str) -> String {
    let mut name = format!("{:#}", rustc_demangle::demangle(name)).replace(';', ",");
    if let Some(rest) = name.strip_prefix("aws_lc_") {
        let rest = rest.trim_start_matches(|c: char| c.is_ascii_digit() || c == '_');
        name = rest.to_owned();
    }
    if name.len() > NAME_BYTES_MAX {
        name.truncate(name.floor_char_boundary(NAME_BYTES_MAX));
        name.push('…');
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_readable() {
        for (raw, expected) in [
            ("_ZN4core3fmt9Formatter3pad17h0123456789abcdefE", "core::fmt::Formatter::pad"),
            ("aws_lc_0_38_0_AES_encrypt", "AES_encrypt"),
            ("lj_vm_call", "lj_vm_call"),
            ("_RNvC6_123foo3bar", "123foo::bar"),
            ("", ""),
        ] {
            assert_eq!(readable(raw), expected);
        }
        assert!(readable(&"x".repeat(5000)).len() < 500);
    }

    #[test]
    fn files_begin_with_their_crate() {
        for (file, expected) in [
            ("/home/a/tidegate/crates/wire/src/http1/head.rs", "wire/http1/head.rs"),
            ("/rustc/0123/library/core/src/cmp.rs", "core/cmp.rs"),
            (
                "/root/.cargo/registry/src/index.crates.io-1949/memchr-2.8.3/src/arch/x.rs",
                "memchr-2.8.3/arch/x.rs",
            ),
            ("/build/luajit/lj_vm.s", "luajit/lj_vm.s"),
            ("a.c", "a.c"),
        ] {
            assert_eq!(short(file), expected);
        }
    }

    #[test]
    fn stack_begins_with_the_root_unless_it_is_missing() {
        let name = |name: &str| vec![name.to_owned()];
        let symbols = Symbols(BTreeMap::from([
            (INCOMPLETE, name("[unknown callers]")),
            (100, name("std::thread::start")),
            (101, name("tidegate_server::start::serve")),
            (102, vec!["epoll_wait".to_owned(), "inner_[i]".to_owned()]),
            (103, name("[kernel]_[k]")),
            (104, name("[kernel]_[k]")),
        ]));
        let root = "tidegate_server::start::serve";
        let expected = "tidegate_server::start::serve;epoll_wait;inner_[i];[kernel]_[k]";
        assert_eq!(symbols.folded(&[104, 103, 102, 101, 100], root), expected);
        assert_eq!(symbols.folded(&[104, 103, 102, 101, INCOMPLETE], root), expected);
        assert_eq!(
            symbols.folded(&[100, INCOMPLETE], root),
            "[unknown callers];std::thread::start"
        );
    }
}
