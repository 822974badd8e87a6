//! A directory for the files of a comparison, removed when the comparison ends for any reason but SIGKILL.
//! In: nothing. Out: a new directory that only this user can write, and that all users can traverse: servers
//! read files in it after they drop root privileges.
//! Never: uses an existing directory, because another user could guess its name and create it first.
//! Limits: `TRIES_MAX`.

use std::fs::{self, DirBuilder, File, Permissions};
use std::io::{self, Read as _};
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// Number of attempts to create or to remove a directory.
const TRIES_MAX: u32 = 8;
/// All users may traverse the directory; only the owner may list and write it.
const MODE: u32 = 0o711;

static FOLDERS: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

/// A new directory, removed when this value is dropped.
#[derive(Debug)]
pub struct Scratch {
    path: PathBuf,
}

impl Scratch {
    /// Creates a new directory in the directory of temporary files.
    ///
    /// # Errors
    /// A message for the operator.
    pub fn new() -> Result<Self, String> {
        let parent = std::env::temp_dir();
        let failed = |error: io::Error| {
            format!(
                "cannot create a directory in {}: {error}; set TMPDIR to another directory",
                parent.display()
            )
        };
        let mut folders = FOLDERS.lock().unwrap_or_else(PoisonError::into_inner);
        for _ in 0..TRIES_MAX {
            let number = random_number().map_err(failed)?;
            let path = parent.join(format!("tidegate-compare-{number:016x}"));
            match make_folder(&path) {
                Ok(()) => {
                    folders.push(path.clone());
                    return Ok(Self { path });
                }
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(failed(error)),
            }
        }
        Err(failed(io::ErrorKind::AlreadyExists.into()))
    }

    /// The path of the directory.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // A directory that cannot be removed is harmless.
        let _ = fs::remove_dir_all(&self.path);
        let mut folders = FOLDERS.lock().unwrap_or_else(PoisonError::into_inner);
        folders.retain(|folder| *folder != self.path);
    }
}

/// Creates a directory with `MODE`, regardless of the umask.
///
/// # Errors
/// The error of the system, or EEXIST if the path exists already.
pub fn make_folder(path: &Path) -> io::Result<()> {
    DirBuilder::new().mode(0o700).create(path)?;
    fs::set_permissions(path, Permissions::from_mode(MODE))
}

/// Removes all directories before this process ends. The programs that write to them have ended.
pub fn remove_all() {
    let folders = FOLDERS.lock().unwrap_or_else(PoisonError::into_inner);
    for folder in &*folders {
        // Repeated, because another thread of this process may still write a file.
        for _ in 0..TRIES_MAX {
            if fs::remove_dir_all(folder).is_ok() {
                break;
            }
        }
    }
    // Threads that create another directory wait for this lock until the process ends.
    core::mem::forget(folders);
}

fn random_number() -> io::Result<u64> {
    let mut bytes = [0; 8];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(u64::from_ne_bytes(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scratch_directory_is_new_traversable_and_removed_on_drop() {
        let (one, other) = (Scratch::new().unwrap(), Scratch::new().unwrap());
        assert_ne!(one.path(), other.path());
        let mode = one.path().metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o777, MODE);
        fs::write(one.path().join("file"), "content").unwrap();
        let path = one.path().to_owned();
        drop(one);
        assert!(!path.exists() && other.path().exists());
    }

    #[test]
    fn existing_directory_is_not_used() {
        let scratch = Scratch::new().unwrap();
        let link = scratch.path().join("link");
        std::os::unix::fs::symlink("/tmp", &link).unwrap();
        for taken in [scratch.path(), &link] {
            let error = make_folder(taken).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::AlreadyExists);
        }
    }
}
