//! The files of shared dictionaries, from which they are restored at the start (`shared-files` of `[lua.NAME]`).
//! In: dictionaries and their paths. Out: files; restored dictionaries; messages for the operator.
//! Never: blocks a worker for longer than a script does that uses the dictionary; leaves a file that is incomplete: a new file
//! takes the place of the earlier one when it is complete.
//! Limits: a changed dictionary is written every `SAVE_SPAN`; `ENTRY_BYTES_MAX` bytes of an entry.
//! Invariant: a malformed file changes nothing: the dictionary is empty, and the file is kept under another name.
//!
//! A file is a line with the version, the entries as `tidegate_lua` encodes them, and the end: a length of 0 and a checksum of all
//! bytes before it.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufReader, Read, Write};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, SystemTime};

use tidegate_config::model::Config;
use tidegate_lua::{Dictionary, ENTRY_BYTES_MAX, EntryCursor};

use crate::files::open_flags;
use crate::log;
use crate::scripts::Scripts;
use crate::threads::{self, Ended};

/// How often a dictionary that has changed is written.
const SAVE_SPAN: Duration = Duration::from_secs(10);
/// The first line of a file.
const VERSION: &[u8] = b"tidegate dictionary 1\n";

/// The dictionaries with files.
#[derive(Default)]
pub(crate) struct DictionaryFiles {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    files: Vec<Kept>,
    /// A process that replaces this one owns the files.
    is_suspended: bool,
    /// The thread has been started.
    has_thread: bool,
}

/// A dictionary and its file.
struct Kept {
    path: String,
    dictionary: Arc<Dictionary>,
    /// `Dictionary::changes` when the file was written; `None` before the first time.
    saved: Option<u64>,
    /// The last write has failed, which was logged.
    has_failed: bool,
}

impl DictionaryFiles {
    /// Writes these dictionaries from now on, and those that are left out a last time.
    ///
    /// # Errors
    /// The kernel refused a thread.
    pub(crate) fn follow(self: &Arc<Self>, config: &Config, scripts: &Scripts) -> io::Result<()> {
        self.save();
        let mut state = self.lock();
        let earlier = core::mem::take(&mut state.files);
        for (app, program) in config.lua.iter().zip(scripts.iter()) {
            let Some(program) = program else { continue };
            for (name, path) in &app.shared_files {
                let found = program.shared.iter().find(|(own, _)| own == name);
                let Some((_, dictionary)) = found else { continue };
                let is_same =
                    |kept: &&Kept| kept.path == *path && Arc::ptr_eq(&kept.dictionary, dictionary);
                let saved = earlier.iter().find(is_same).and_then(|kept| kept.saved);
                let (path, dictionary) = (path.clone(), Arc::clone(dictionary));
                state.files.push(Kept { path, dictionary, saved, has_failed: false });
            }
        }
        if state.files.is_empty() || core::mem::replace(&mut state.has_thread, true) {
            return Ok(());
        }
        drop(state);
        let own = Arc::clone(self);
        let work = move || -> Ended {
            loop {
                thread::sleep(SAVE_SPAN);
                own.save();
            }
        };
        threads::spawn("dictionaries", work).map(drop)
    }

    /// Writes the dictionaries that have changed.
    pub(crate) fn save(&self) {
        self.lock().save();
    }

    /// Writes the dictionaries a last time, for a process that replaces this one.
    pub(crate) fn suspend(&self) {
        let mut state = self.lock();
        state.save();
        state.is_suspended = true;
    }

    /// No process replaces this one.
    pub(crate) fn resume(&self) {
        self.lock().is_suspended = false;
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn save(&mut self) {
        if self.is_suspended {
            return;
        }
        for kept in &mut self.files {
            let changes = kept.dictionary.changes();
            if kept.saved == Some(changes) {
                continue;
            }
            match write(Path::new(&kept.path), &kept.dictionary, now()) {
                Ok(()) => (kept.saved, kept.has_failed) = (Some(changes), false),
                Err(error) => {
                    if !core::mem::replace(&mut kept.has_failed, true) {
                        let path = &kept.path;
                        log::error(format_args!(
                            "the dictionary file {path} cannot be written: {error}"
                        ));
                    }
                }
            }
        }
    }
}

/// Seconds since 1970.
fn now() -> f64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0.0, |since| since.as_secs_f64())
}

/// A checksum that detects a file that was cut or has changed: FNV-1a of 64 bits.
struct Checksum(u64);

impl Checksum {
    fn new() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }

    fn add(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
}

/// Writes a dictionary into a file, which takes the place of the file at `path` when it is complete.
fn write(path: &Path, dictionary: &Dictionary, now: f64) -> io::Result<()> {
    let mut temporary = path.as_os_str().to_owned();
    temporary.push(".new");
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600).custom_flags(open_flags());
    let mut file = options.open(&temporary)?;
    let (mut sum, mut cursor, mut piece) = (Checksum::new(), EntryCursor::default(), Vec::new());
    piece.extend_from_slice(VERSION);
    loop {
        let has_more = dictionary.encode_entries(&mut cursor, now, &mut piece);
        sum.add(&piece);
        file.write_all(&piece)?;
        piece.clear();
        if !has_more {
            break;
        }
    }
    let mut end = vec![0; 4];
    sum.add(&end);
    end.extend_from_slice(&sum.0.to_le_bytes());
    file.write_all(&end)?;
    file.sync_all()?;
    fs::rename(&temporary, path)?;
    // The new name must survive a failure of the machine, too.
    match path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        Some(folder) => File::open(folder)?.sync_all(),
        None => Ok(()),
    }
}

/// Restores a new dictionary from its file, if there is one. A file that cannot be used is reported.
pub(crate) fn restore(app: &str, path: &str, dictionary: &Dictionary) {
    match read(Path::new(path), dictionary, now()) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => {
            dictionary.remove_all();
            log::error(format_args!(
                "lua {app}: the dictionary file {path} cannot be used, so the dictionary is empty: {error}"
            ));
            if error.kind() == io::ErrorKind::InvalidData {
                // The next write would replace it.
                let _ = fs::rename(path, format!("{path}.broken"));
            }
        }
    }
}

fn read(path: &Path, dictionary: &Dictionary, now: f64) -> io::Result<()> {
    let file = OpenOptions::new().read(true).custom_flags(open_flags()).open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    let mut file = BufReader::with_capacity(256 * 1024, file);
    let mut sum = Checksum::new();
    let mut version = vec![0; VERSION.len()];
    fill(&mut file, &mut version)?;
    if version != VERSION {
        return Err(malformed("it has another version, or is no dictionary"));
    }
    sum.add(&version);
    let mut record = Vec::new();
    loop {
        let mut length = [0; 4];
        fill(&mut file, &mut length)?;
        sum.add(&length);
        let length = u32::from_le_bytes(length) as usize;
        if length == 0 {
            break;
        }
        if length > ENTRY_BYTES_MAX {
            return Err(malformed("an entry is too large"));
        }
        record.resize(length, 0);
        fill(&mut file, &mut record)?;
        sum.add(&record);
        if !dictionary.add_encoded(&record, now) {
            return Err(malformed("an entry is malformed"));
        }
    }
    let mut expected = [0; 8];
    fill(&mut file, &mut expected)?;
    match u64::from_le_bytes(expected) == sum.0 && file.read(&mut [0])? == 0 {
        true => Ok(()),
        false => Err(malformed("its checksum is wrong")),
    }
}

fn fill(file: &mut impl Read, bytes: &mut [u8]) -> io::Result<()> {
    file.read_exact(bytes).map_err(|error| match error.kind() {
        io::ErrorKind::UnexpectedEof => malformed("it is incomplete"),
        _ => error,
    })
}

fn malformed(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A dictionary with this many entries.
    fn dictionary(count: u32) -> Dictionary {
        let dictionary = Dictionary::new(1 << 20);
        for at in 0..count {
            let key = at.to_le_bytes();
            let record = [&[4, 0][..], &key, &f64::INFINITY.to_le_bytes(), &[1]].concat();
            assert!(dictionary.add_encoded(&record, 0.0));
        }
        dictionary
    }

    fn entries(dictionary: &Dictionary) -> usize {
        let (mut cursor, mut out) = (EntryCursor::default(), Vec::new());
        while dictionary.encode_entries(&mut cursor, 0.0, &mut out) {}
        // Each entry has 4 bytes of length, 2 of the key's length, 4 of the key, 8 of the end, 1 of the value.
        out.len() / 19
    }

    struct Folder(std::path::PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
            let own = format!("tidegate-dictionary-{name}-{}", std::process::id());
            let path = std::env::temp_dir().join(own);
            fs::create_dir_all(&path).expect("the folder can be created");
            Self(path)
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn dictionary_is_restored_from_its_file() {
        let folder = Folder::new("restored");
        let path = folder.0.join("d");
        for count in [0, 1, 5000] {
            write(&path, &dictionary(count), 1.0).expect("it is written");
            let copy = Dictionary::new(1 << 20);
            read(&path, &copy, 1.0).expect("it is read");
            assert_eq!(entries(&copy), count as usize);
        }
        assert_eq!(fs::read_dir(&folder.0).expect("it exists").count(), 1, "no other file is left");
    }

    #[test]
    fn broken_file_is_refused_and_kept() {
        let folder = Folder::new("broken");
        let path = folder.0.join("d");
        write(&path, &dictionary(3), 1.0).expect("it is written");
        let whole = fs::read(&path).expect("it is there");
        let refused = |bytes: &[u8]| {
            fs::write(&path, bytes).expect("it is ours");
            let copy = Dictionary::new(1 << 20);
            restore("app", path.to_str().expect("it is text"), &copy);
            assert_eq!(entries(&copy), 0);
            let broken = folder.0.join("d.broken");
            let is_kept = fs::read(&broken).is_ok_and(|kept| kept == bytes) && !path.exists();
            let _ = fs::remove_file(broken);
            is_kept
        };
        for length in 0..whole.len() {
            assert!(refused(&whole[..length]), "{length}");
        }
        for at in 0..whole.len() {
            let mut changed = whole.clone();
            changed[at] ^= 1;
            assert!(refused(&changed), "{at}");
        }
        assert!(refused(&[&whole[..], b"x"].concat()));
        fs::write(&path, &whole).expect("it is ours");
        let copy = Dictionary::new(1 << 20);
        restore("app", path.to_str().expect("it is text"), &copy);
        assert_eq!(entries(&copy), 3);
    }

    #[test]
    fn only_changed_dictionaries_are_written_and_none_after_a_handover() {
        let folder = Folder::new("saved");
        let path = folder.0.join("d");
        let dictionary = Arc::new(dictionary(1));
        let kept = Kept {
            path: path.display().to_string(),
            dictionary: Arc::clone(&dictionary),
            saved: None,
            has_failed: false,
        };
        let files = DictionaryFiles::default();
        files.lock().files.push(kept);
        let saves = || {
            let _ = fs::remove_file(&path);
            files.save();
            path.exists()
        };
        assert!(saves());
        assert!(!saves(), "nothing has changed");
        dictionary.remove_all();
        assert!(saves());
        dictionary.remove_all();
        let _ = fs::remove_file(&path);
        files.suspend();
        assert!(path.exists());
        dictionary.remove_all();
        assert!(!saves());
        files.resume();
        assert!(saves());
    }
}
