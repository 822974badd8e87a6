//! Repository rules, checked over the tree; each rule has a test below.
//! In: the files that git tracks or would track. Out: findings as `path:line: what is wrong and the fix`.
//! Limits: `FILE_LINES_MAX` lines in a source file.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

/// Most lines of a source file; a longer file probably covers two subjects.
const FILE_LINES_MAX: usize = 900;

/// Which crates of this workspace a crate may import (the table in ARCHITECTURE.md).
const MAY_IMPORT: &[(&str, &[&str])] = &[
    ("base", &[]),
    ("config", &["base"]),
    ("convert", &["config"]),
    ("wire", &["base"]),
    ("gate", &["base", "config", "wire"]),
    ("push", &["base", "config", "wire"]),
    ("lua", &["base", "wire"]),
    ("reactor", &["base"]),
    ("secure", &["base", "reactor", "wire"]),
    ("server", &["base", "config", "gate", "lua", "profile", "push", "reactor", "secure", "wire"]),
    ("bench", &["base", "reactor", "secure", "wire"]),
    ("profile", &[]),
    ("tune", &["base"]),
    ("testing", &[]),
    ("tidegate", &["base", "bench", "config", "convert", "profile", "server", "tune"]),
];

/// Crates that decide and never act: no socket, clock, thread, file, system randomness or randomly seeded map.
const SANS_IO: &[&str] = &["base", "config", "convert", "wire", "gate", "push"];

/// What sans-IO code must not contain, and what to use instead.
const BANNED_IN_SANS_IO: &[(&str, &str)] = &[
    ("Instant::now", "take `now: Moment` as an argument"),
    ("SystemTime", "take seconds as an argument"),
    ("std::net::", "use core::net address types; sockets belong to reactor"),
    ("TcpStream", "sockets belong to reactor"),
    ("std::fs", "files belong to server or the binary"),
    ("std::thread", "threads belong to server"),
    ("thread_local!", "pass the state as an argument"),
    ("HashMap::new", "its hasher is seeded by the system: use BTreeMap or a fixed hasher"),
    ("HashSet::new", "its hasher is seeded by the system: use BTreeSet or a fixed hasher"),
    ("println!", "return text instead"),
    ("eprintln!", "return text instead"),
    ("rand::", "take &mut Prng as an argument"),
    ("getrandom", "take &mut Prng as an argument"),
];

/// Crates of the serving process: a print there could block or kill a worker, and a bare thread could end unnoticed.
const SERVING: &[&str] = &["reactor", "secure", "server"];

/// What the code of `SERVING` must not contain, what to use instead, and the only file where it is allowed.
const BANNED_IN_SERVING: &[(&str, &str, &str)] = &[
    ("print!(", "use the log", LOG_IN),
    ("println!(", "use the log", LOG_IN),
    ("dbg!(", "use the log", LOG_IN),
    ("io::stderr", "use the log", LOG_IN),
    ("io::stdout", "use the log", ACCESS_LOG_IN),
    ("stdio::std", "use the log", LOG_IN),
    ("panic::set_hook", "the log reports panics", LOG_IN),
    ("thread::spawn", "use threads::spawn, which guards the thread", THREADS_IN),
    ("thread::scope", "use threads::spawn, which guards the thread", THREADS_IN),
    ("Builder::new()", "use threads::spawn, which guards the thread", THREADS_IN),
];

/// The only file of the serving crates that writes to stderr.
const LOG_IN: &str = "crates/server/src/log.rs";
/// The only file of the serving crates that writes to stdout.
const ACCESS_LOG_IN: &str = "crates/server/src/access_log.rs";
/// The only file of the serving crates that starts threads.
const THREADS_IN: &str = "crates/server/src/threads.rs";

/// File names that do not describe what the file contains.
const BANNED_NAMES: &[&str] = &["util", "utils", "misc", "common", "helper", "helpers", "manager"];

/// The file that defines keys from a seed, for tests.
const SEEDED_KEYS_IN: &str = "crates/wire/src/tls/randomness.rs";

/// Checks the whole tree.
pub(crate) fn run() -> ExitCode {
    let findings = check_tree(&root());
    for finding in &findings {
        eprintln!("{finding}");
    }
    if findings.is_empty() {
        eprintln!("tidy: no findings");
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("xtask is a folder of the root")
        .to_path_buf()
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
        .expect("git lists the files");
    String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect()
}

fn check_source(path: &str, text: &str) -> Vec<String> {
    let mut findings = Vec::new();
    let mut find = |line: usize, what: &str| findings.push(format!("{path}:{line}: {what}"));
    if !text.trim_start_matches("#![no_main]\n").starts_with("//!") {
        find(
            1,
            "no module header: begin the file with `//!` lines (what it is; In, Out, Never, Limits, Invariant)",
        );
    }
    if text.lines().count() > FILE_LINES_MAX {
        find(1, &format!("longer than {FILE_LINES_MAX} lines: split the file by subject"));
    }
    let stem = Path::new(path).file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
    if BANNED_NAMES.contains(&stem) {
        find(
            1,
            "the file name does not say what the file contains: name the file after its subject",
        );
    }
    let is_root = path.ends_with("/src/lib.rs") || path.ends_with("/src/main.rs");
    let may_be_unsafe = path.starts_with("crates/reactor/") || path.starts_with("fuzz/");
    // The interface of LuaJIT is a C library; `engine/` keeps it from the rest of the crate.
    let may_be_unsafe = may_be_unsafe || path == "crates/lua/src/lib.rs";
    if is_root && !may_be_unsafe && !text.contains("#![forbid(unsafe_code)]") {
        find(
            1,
            "no `#![forbid(unsafe_code)]`: only the reactor and the engine of `lua` may use unsafe",
        );
    }
    let own = path == "xtask/src/tidy.rs";
    let may_be_seeded = own || path == SEEDED_KEYS_IN || path.contains("/tests/");
    let source_of = path.strip_prefix("crates/").and_then(|rest| rest.split_once("/src/"));
    let is_source_of = |crates: &[&str]| source_of.is_some_and(|(name, _)| crates.contains(&name));
    let (sans_io, serving) = (is_source_of(SANS_IO), is_source_of(SERVING));
    let mut in_tests = path.ends_with("/tests.rs");
    for (index, line) in text.lines().enumerate() {
        let number = index + 1;
        in_tests |= line.trim_start().starts_with("#[cfg(test)]");
        if line.len() > 140 {
            find(number, "longer than 140 columns");
        }
        if !own && (line.contains("FIXME") || line.contains("XXX") || line.contains("TODO")) {
            find(number, "open end: finish it, or file an issue");
        }
        if is_commented_code(line) {
            find(number, "commented-out code: delete it, git keeps the history");
        }
        if line.contains("Randomness::seeded") && !may_be_seeded && !in_tests {
            find(number, "keys from a seed are not secret: only tests may use them");
        }
        if sans_io && !in_tests && !line.trim_start().starts_with("//") {
            for (word, fix) in BANNED_IN_SANS_IO {
                if line.contains(word) {
                    find(number, &format!("`{word}` in a sans-IO crate: {fix}"));
                }
            }
        }
        if serving && !in_tests && !line.trim_start().starts_with("//") {
            for (word, fix, only_in) in BANNED_IN_SERVING {
                if path != *only_in && line.contains(word) {
                    find(number, &format!("`{word}` in a serving crate: {fix}"));
                }
            }
        }
    }
    findings
}

/// Whether the line is a comment that looks like a statement.
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
    fn each_rule_reports_its_violation() {
        let header = "//! Header.\n";
        finds("crates/base/src/a.rs", "fn a() {}\n", "no module header");
        finds("crates/server/src/util.rs", header, "does not say");
        finds("crates/wire/src/a.rs", &format!("{header}let t = Instant::now();\n"), "sans-IO");
        finds("crates/gate/src/a.rs", &format!("{header}use std::net::TcpStream;\n"), "sans-IO");
        finds("crates/gate/src/a.rs", &format!("{header}// let x = 1;\n"), "commented-out");
        finds("crates/gate/src/a.rs", &format!("{header}// FIXME later\n"), "open end");
        finds("crates/gate/src/a.rs", &header.repeat(FILE_LINES_MAX + 1), "split the file");
        finds("crates/gate/src/lib.rs", header, "forbid(unsafe_code)");
        finds("crates/server/src/a.rs", &format!("{header}Randomness::seeded(1)\n"), "not secret");
        finds("crates/server/src/a.rs", &format!("{header}eprintln!(\"a\");\n"), "use the log");
        finds("crates/secure/src/a.rs", &format!("{header}io::stderr().lock();\n"), "use the log");
        finds("crates/server/src/a.rs", &format!("{header}thread::spawn(f);\n"), "guards");
        let long = format!("{header}{}\n", "x".repeat(141));
        finds("crates/gate/src/a.rs", &long, "columns");
    }

    #[test]
    fn tests_and_prose_have_no_findings() {
        let text = "//! Header.\n// Because the client may wait; see RFC 9112.\n#[cfg(test)]\nmod tests { fn a() { println!(); } }\n";
        assert_eq!(check_source("crates/wire/src/a.rs", text), Vec::<String>::new());
        let text = "//! Header.\nRandomness::seeded(1)\n";
        assert_eq!(check_source("crates/server/tests/a.rs", text), Vec::<String>::new());
    }

    #[test]
    fn forbidden_import_is_reported() {
        let text = "[dependencies]\ntidegate-server.workspace = true\n[dev-dependencies]\ntidegate-server.workspace = true\n";
        assert_eq!(check_imports("crates/bench/Cargo.toml", text).len(), 1);
        assert_eq!(check_imports("crates/new/Cargo.toml", "").len(), 1);
    }
}
