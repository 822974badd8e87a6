//! Recorded hosts as directory trees: unpacks `fixtures/NAME.host` into a temporary directory.
#![allow(dead_code, reason = "each test program uses only some of it")]

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

static MADE: AtomicU32 = AtomicU32::new(0);

/// A temporary directory, removed when the value is dropped.
pub struct Scratch(pub PathBuf);

impl Scratch {
    pub fn new() -> Self {
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let name = format!("tidegate-tune-test-{}-{number}", std::process::id());
        // In memory if possible, because the tests synchronise the journal thousands of times.
        let memory = PathBuf::from("/dev/shm").join(&name);
        if fs::create_dir(&memory).is_ok() {
            return Self(memory);
        }
        let path = std::env::temp_dir().join(name);
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    /// A recorded host, unpacked.
    pub fn of_host(name: &str) -> Self {
        let scratch = Self::new();
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("fixtures/{name}.host"));
        let text = fs::read_to_string(file).unwrap();
        for part in text.split("=== ").skip(1) {
            let (head, body) = part.split_once('\n').unwrap();
            let (path, target) = match head.split_once(" -> ") {
                Some((path, target)) => (path, Some(target)),
                None => (head, None),
            };
            let to = scratch.0.join(path.trim_start_matches('/'));
            fs::create_dir_all(to.parent().unwrap()).unwrap();
            match target {
                Some(target) => symlink(target, to).unwrap(),
                None => fs::write(to, body).unwrap(),
            }
        }
        scratch
    }

    /// All files and directories below, with the bytes of files (`None`: a directory).
    pub fn contents(&self) -> BTreeMap<PathBuf, Option<Vec<u8>>> {
        let mut found = BTreeMap::new();
        let mut folders = vec![self.0.clone()];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).unwrap().flatten() {
                let kind = entry.file_type().unwrap();
                if kind.is_dir() {
                    folders.push(entry.path());
                    found.insert(entry.path(), None);
                } else if kind.is_file() {
                    found.insert(entry.path(), Some(fs::read(entry.path()).unwrap()));
                }
            }
        }
        found
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
