//! A folder for the files of a comparison, gone at its end whichever way it ends.
//! In: nothing. Out: a new folder that only this user writes to and everybody may pass through: servers
//! drop root's rights and read what lies in it later.
//! Never: uses what is there already: names in a shared folder can be guessed or made first.
//! Limits: `TRIES_MAX`.

use std::fs::{self, DirBuilder, File, Permissions};
use std::io::{self, Read as _};
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// Names that may be taken before another is tried no more.
const TRIES_MAX: u32 = 8;
/// Passed through by all, listed and written by the owner.
const MODE: u32 = 0o711;

static FOLDERS: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

/// A folder of its own, removed when this value goes.
#[derive(Debug)]
pub struct Scratch {
    path: PathBuf,
}

impl Scratch {
    /// Makes a new folder where temporary files belong.
    ///
    /// # Errors
    /// A sentence for the operator.
    pub fn new() -> Result<Self, String> {
        let parent = std::env::temp_dir();
        let failed = |error: io::Error| {
            format!(
                "no folder can be made in {}: {error}; TMPDIR chooses another",
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

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // A folder that stays behind harms nobody.
        let _ = fs::remove_dir_all(&self.path);
        let mut folders = FOLDERS.lock().unwrap_or_else(PoisonError::into_inner);
        folders.retain(|folder| *folder != self.path);
    }
}

/// Makes a folder that was not there, with `MODE` whatever the umask is.
///
/// # Errors
/// What the system said; also when something has that name.
pub fn make_folder(path: &Path) -> io::Result<()> {
    DirBuilder::new().mode(0o700).create(path)?;
    fs::set_permissions(path, Permissions::from_mode(MODE))
}

/// Removes all folders; this process is about to end, and those who write to them have ended.
pub fn remove_all() {
    let folders = FOLDERS.lock().unwrap_or_else(PoisonError::into_inner);
    for folder in &*folders {
        // Again, while another thread of this process still finishes a file in it.
        for _ in 0..TRIES_MAX {
            if fs::remove_dir_all(folder).is_ok() {
                break;
            }
        }
    }
    // Whoever wants to make another waits for this lock until the process is over.
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
    fn each_folder_is_new_can_be_passed_through_and_goes_with_its_owner() {
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
    fn a_folder_that_somebody_else_made_is_not_used() {
        let scratch = Scratch::new().unwrap();
        let link = scratch.path().join("link");
        std::os::unix::fs::symlink("/tmp", &link).unwrap();
        for taken in [scratch.path(), &link] {
            let error = make_folder(taken).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::AlreadyExists);
        }
    }
}
