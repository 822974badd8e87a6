//! Rules of the house as checks over the tree; each has its own golden test below.
//! In: the files git tracks or would track. Out: findings as `path:line: what and the mend`.
//! Limits: `FILE_LINES_MAX`, with the files that are longer today listed at their size: they may only shrink.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

/// Lines of one source file; beyond that it is probably two nouns.
const FILE_LINES_MAX: usize = 900;

/// Which of our crates a crate may import (DESIGN: the house).
const MAY_IMPORT: &[(&str, &[&str])] = &[
    ("base", &[]),
    ("config", &["base"]),
    ("wire", &["base"]),
    ("gate", &["base", "config", "wire"]),
    ("push", &["base", "config", "wire"]),
    ("lua", &["base", "config", "gate", "push", "wire"]),
    ("reactor", &["base"]),
    ("secure", &["base", "reactor", "wire"]),
    ("server", &["base", "config", "gate", "lua", "push", "reactor", "secure", "wire"]),
    ("bench", &["base", "reactor", "secure", "wire"]),
    ("tune", &["base"]),
    ("tidegate", &["base", "bench", "config", "server", "tune"]),
];

/// Crates that decide and never act: no socket, clock, thread, file, randomness or seeded map.
const SANS_IO: &[&str] = &["base", "config", "wire", "gate", "push"];

/// What sans-IO code must not name, and what to use instead.
const BANNED_IN_SANS_IO: &[(&str, &str)] = &[
    ("Instant::now", "take `now: Moment` as an argument"),
    ("SystemTime", "take seconds as an argument"),
    ("std::net::", "use core::net address types; sockets belong to reactor"),
    ("TcpStream", "sockets belong to reactor"),
    ("std::fs", "files belong to server or the binary"),
    ("std::thread", "threads belong to server"),
    ("thread_local!", "state is passed down"),
    ("HashMap::new", "its hasher is seeded by the system: use BTreeMap or a fixed hasher"),
    ("HashSet::new", "its hasher is seeded by the system: use BTreeSet or a fixed hasher"),
    ("println!", "return text instead"),
    ("eprintln!", "return text instead"),
    ("rand::", "take &mut Prng as an argument"),
    ("getrandom", "take &mut Prng as an argument"),
];

/// Words that only say "code that helps".
const BANNED_NAMES: &[&str] = &["util", "utils", "misc", "common", "helper", "helpers", "manager"];

/// Where keys are drawn from a seed, for tests to use.
const SEEDED_KEYS_IN: &str = "crates/wire/src/tls/randomness.rs";

/// Checks the whole tree.
pub(crate) fn run() -> ExitCode {
    let findings = check_tree(&root());
    for finding in &findings {
        eprintln!("{finding}");
    }
    if findings.is_empty() {
        eprintln!("tidy: nothing to mend");
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask lies in the root").to_path_buf()
}

fn check_tree(root: &Path) -> Vec<String> {
    let mut findings = Vec::new();
    for path in tracked_files(root) {
        let Ok(text) = fs::read_to_string(root.join(&path)) else { continue };
        if path.ends_with(".rs") {
            findings.extend(check_source(&path, &text));
        }
        if path.ends_with("Cargo.toml") {
            findings.extend(check_imports(&path, &text));
        }
    }
    findings
}

fn tracked_files(root: &Path) -> Vec<String> {
    let output = Command::new("git")
        .args(["ls-files", "--cached", "--others", "--exclude-standard"])
        .current_dir(root)
        .output()
        .expect("git lists the tree's files");
    String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect()
}

fn check_source(path: &str, text: &str) -> Vec<String> {
    let mut findings = Vec::new();
    let mut find = |line: usize, what: &str| findings.push(format!("{path}:{line}: {what}"));
    if !text.trim_start_matches("#![no_main]\n").starts_with("//!") {
        find(1, "no room card: begin the module with `//!` lines (what, In, Out, Never, Limits)");
    }
    if text.lines().count() > FILE_LINES_MAX {
        find(1, &format!("longer than {FILE_LINES_MAX} lines: is it still one noun?"));
    }
    let stem = Path::new(path).file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
    if BANNED_NAMES.contains(&stem) {
        find(1, "this name says nothing: name the file after its one noun");
    }
    let is_root = path.ends_with("/src/lib.rs") || path.ends_with("/src/main.rs");
    let may_be_unsafe = path.starts_with("crates/reactor/") || path.starts_with("fuzz/");
    if is_root && !may_be_unsafe && !text.contains("#![forbid(unsafe_code)]") {
        find(1, "no `#![forbid(unsafe_code)]`: only the reactor may use unsafe");
    }
    let own = path == "xtask/src/tidy.rs";
    let may_be_seeded = own || path == SEEDED_KEYS_IN || path.contains("/tests/");
    let sans_io = path
        .strip_prefix("crates/")
        .and_then(|rest| rest.split_once("/src/"))
        .is_some_and(|(name, _)| SANS_IO.contains(&name));
    let mut in_tests = false;
    for (index, line) in text.lines().enumerate() {
        let number = index + 1;
        in_tests |= line.trim_start().starts_with("#[cfg(test)]");
        if line.len() > 140 {
            find(number, "longer than 140 columns");
        }
        if !own && (line.contains("FIXME") || line.contains("XXX") || line.contains("TODO")) {
            find(number, "left open: finish it, or say why in an issue");
        }
        if is_commented_code(line) {
            find(number, "commented-out code: delete it, history has it");
        }
        if line.contains("Randomness::seeded") && !may_be_seeded && !in_tests {
            find(number, "keys from a seed are nobody's secret: only tests may have them");
        }
        if sans_io && !in_tests && !line.trim_start().starts_with("//") {
            for (word, mend) in BANNED_IN_SANS_IO {
                if line.contains(word) {
                    find(number, &format!("`{word}` in a sans-IO crate: {mend}"));
                }
            }
        }
    }
    findings
}

/// A line comment that ends as a statement does.
fn is_commented_code(line: &str) -> bool {
    let Some(comment) = line.trim_start().strip_prefix("// ") else { return false };
    let code_end = comment.ends_with(';') || comment.ends_with(" {") || comment.ends_with("},");
    let code_start = ["let ", "if ", "for ", "use ", "fn ", "pub ", "self.", "return ", "match "]
        .iter()
        .any(|word| comment.starts_with(word));
    code_end && (code_start || comment.contains("();") || comment.contains(" = "))
}

fn check_imports(path: &str, text: &str) -> Vec<String> {
    let Some(name) = path.strip_prefix("crates/").and_then(|rest| rest.strip_suffix("/Cargo.toml"))
    else {
        return Vec::new();
    };
    let rules: BTreeMap<&str, &[&str]> = MAY_IMPORT.iter().copied().collect();
    let Some(allowed) = rules.get(name) else {
        return vec![format!("{path}:1: crate `{name}` is not in the import table of xtask tidy")];
    };
    let mut findings = Vec::new();
    let mut section = "";
    for (index, line) in text.lines().enumerate() {
        if line.starts_with('[') {
            section = line.trim();
        }
        let Some(rest) = line.strip_prefix("tidegate-") else { continue };
        let import = rest.split(['.', ' ', '=']).next().unwrap_or_default();
        if section == "[dependencies]" && !allowed.contains(&import) {
            let number = index + 1;
            findings.push(format!("{path}:{number}: `{name}` may not import `{import}`"));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tree_is_tidy() {
        let findings = check_tree(&root());
        assert!(findings.is_empty(), "\n{}", findings.join("\n"));
    }

    fn finds(path: &str, text: &str, what: &str) {
        let findings = check_source(path, text);
        assert!(findings.iter().any(|f| f.contains(what)), "{what}: {findings:?}");
    }

    #[test]
    fn each_rule_finds_what_it_is_for() {
        let card = "//! Card.\n";
        finds("crates/base/src/a.rs", "fn a() {}\n", "no room card");
        finds("crates/server/src/util.rs", card, "says nothing");
        finds("crates/wire/src/a.rs", &format!("{card}let t = Instant::now();\n"), "sans-IO");
        finds("crates/gate/src/a.rs", &format!("{card}use std::net::TcpStream;\n"), "sans-IO");
        finds("crates/gate/src/a.rs", &format!("{card}// let x = 1;\n"), "commented-out");
        finds("crates/gate/src/a.rs", &format!("{card}// FIXME later\n"), "left open");
        finds("crates/gate/src/a.rs", &card.repeat(FILE_LINES_MAX + 1), "one noun");
        finds("crates/gate/src/lib.rs", card, "forbid(unsafe_code)");
        finds("crates/server/src/a.rs", &format!("{card}Randomness::seeded(1)\n"), "secret");
        let long = format!("{card}{}\n", "x".repeat(141));
        finds("crates/gate/src/a.rs", &long, "columns");
    }

    #[test]
    fn tests_and_prose_are_left_alone() {
        let text = "//! Card.\n// Because the client may wait; see RFC 9112.\n#[cfg(test)]\nmod tests { fn a() { println!(); } }\n";
        assert_eq!(check_source("crates/wire/src/a.rs", text), Vec::<String>::new());
        let text = "//! Card.\nRandomness::seeded(1)\n";
        assert_eq!(check_source("crates/server/tests/a.rs", text), Vec::<String>::new());
    }

    #[test]
    fn a_forbidden_import_is_found() {
        let text = "[dependencies]\ntidegate-server.workspace = true\n[dev-dependencies]\ntidegate-server.workspace = true\n";
        assert_eq!(check_imports("crates/bench/Cargo.toml", text).len(), 1);
        assert_eq!(check_imports("crates/new/Cargo.toml", "").len(), 1);
    }
}
