//! The journal of changes: each change is on disk before it is made.
//! In: actions with the previous state. Out: the steps that are still to be undone, oldest first.
//! Never: reports a step as begun before its line is synchronised to disk; trusts a file that another user could
//! have written, because undo runs the commands in it.
//! Limits: `JOURNAL_BYTES_MAX`. Invariant: only the last line can be incomplete (the line being written when the
//! machine stopped), and nothing was done for an incomplete line.

use crate::action::Action;
use rustix::fs::{FlockOperation, OFlags};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Maximum bytes of a journal; far more than all items on a large host need.
pub const JOURNAL_BYTES_MAX: u64 = 64 * 1024 * 1024;
/// Default directory of the journal.
pub const STATE_FOLDER: &str = "/var/lib/tidegate/tune";
/// The root of the live host.
pub const LIVE_ROOT: &str = "/";
const FILE_NAME: &str = "journal.jsonl";

/// One line of the file.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "record")]
enum Record {
    Begun {
        step: u64,
        #[serde(default = "live_root")]
        root: String,
        item: String,
        boot: String,
        action: Action,
        before: Option<String>,
    },
    Done {
        step: u64,
        after: Option<String>,
    },
    Forgotten {
        step: u64,
    },
    Undone {
        step: u64,
    },
}

/// The known progress of a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Progress {
    /// Recorded before the action; whether the action was performed is unknown.
    Begun,
    /// Performed; the state after it.
    Done(Option<String>),
}

/// A change that is still to be undone.
#[derive(Clone, Debug)]
pub struct Step {
    /// The number of the step; numbers increase.
    pub number: u64,
    /// The root of the host on which the change was made: `/`, or the directory of a recorded host.
    pub root: String,
    /// The item for which the change was made.
    pub item: String,
    /// The boot during which the change was made: /proc/sys/kernel/random/boot_id.
    pub boot: String,
    /// The action.
    pub action: Action,
    /// The previous state; `None` if the target did not exist.
    pub before: Option<String>,
    /// Whether the action was performed.
    pub progress: Progress,
}

/// The open journal, locked against every other process.
#[derive(Debug)]
pub struct Journal {
    /// The journal file, positioned at its end.
    file: File,
    /// Path of the file, for messages.
    path: PathBuf,
    /// Outstanding steps, oldest first.
    steps: Vec<Step>,
    /// Number of the next step, above all numbers in the file.
    next: u64,
}

/// Why the journal cannot be used.
#[derive(Debug)]
pub enum JournalError {
    /// Another process uses the journal.
    Busy(PathBuf),
    /// A complete line cannot be parsed; its number.
    Damaged(PathBuf, usize),
    /// Another user owns the file or may write it.
    Foreign(PathBuf),
    /// The journal contains changes of another host: the file, the root of that host.
    OtherRoot(PathBuf, String),
    /// A file system error.
    Io(PathBuf, io::Error),
}

impl fmt::Display for JournalError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Busy(path) => write!(
                f,
                "{} is in use by another `tidegate tune`; wait until it has finished",
                path.display()
            ),
            Self::Damaged(path, line) => write!(
                f,
                "{} line {line} cannot be read, so nothing was changed; help: repair the line, or restore \
                    the values by hand and remove the file",
                path.display()
            ),
            Self::Foreign(path) => write!(
                f,
                "{} is owned or writable by another user, and undo would run the commands in it, so \
                    nothing was changed; \
                 help: inspect the file, then `chown` it to yourself and `chmod 600` it, or remove it",
                path.display()
            ),
            Self::OtherRoot(path, root) => write!(
                f,
                "{} contains changes of {}, so nothing was changed; help: undo them with `tidegate tune \
                    undo{}{}` \
                 or, if that host no longer exists, remove the file",
                path.display(),
                if root == LIVE_ROOT {
                    "the live host".to_owned()
                } else {
                    format!("the recorded host {root}")
                },
                if root == LIVE_ROOT { String::new() } else { format!(" --root {root}") },
                path.parent()
                    .map_or_else(String::new, |folder| format!(" --state {}", folder.display())),
            ),
            Self::Io(path, error) => write!(
                f,
                "{}: {error}; help: run as root, or give a writable directory with --state",
                path.display()
            ),
        }
    }
}

impl std::error::Error for JournalError {}

impl Journal {
    /// Opens or creates the journal in the directory `folder` and takes its lock.
    ///
    /// # Errors
    /// [`JournalError`].
    pub fn open(folder: &Path) -> Result<Self, JournalError> {
        let path = folder.join(FILE_NAME);
        let failed = |error| JournalError::Io(path.clone(), error);
        DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(failed)?;
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .custom_flags(OFlags::NOFOLLOW.bits().cast_signed())
            .open(&path)
            .map_err(failed)?;
        if !is_ours(&file.metadata().map_err(failed)?) {
            return Err(JournalError::Foreign(path));
        }
        rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive)
            .map_err(|_| JournalError::Busy(path.clone()))?;
        let mut bytes = Vec::new();
        (&mut file).take(JOURNAL_BYTES_MAX).read_to_end(&mut bytes).map_err(failed)?;
        // INVARIANT: a line is complete once its newline is on disk; bytes after the last newline are incomplete.
        let whole = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        let mut journal = Self { file, path: path.clone(), steps: Vec::new(), next: 1 };
        let text = String::from_utf8_lossy(bytes.get(..whole).unwrap_or_default()).into_owned();
        for (position, line) in text.lines().enumerate() {
            let record = serde_json::from_str(line)
                .map_err(|_| JournalError::Damaged(path.clone(), position + 1))?;
            journal.replay(record);
        }
        journal.file.set_len(whole as u64).map_err(failed)?;
        journal.file.seek(SeekFrom::Start(whole as u64)).map_err(failed)?;
        sync_folder(folder).map_err(failed)?;
        Ok(journal)
    }

    /// Steps still to be undone, oldest first.
    #[must_use]
    pub fn outstanding(&self) -> &[Step] {
        &self.steps
    }

    /// Checks that all outstanding steps were made on the host with this root.
    ///
    /// # Errors
    /// [`JournalError::OtherRoot`] names the host of the steps.
    pub fn check_root(&self, root: &str) -> Result<(), JournalError> {
        match self.steps.iter().find(|step| step.root != root) {
            Some(step) => Err(JournalError::OtherRoot(self.path.clone(), step.root.clone())),
            None => Ok(()),
        }
    }

    /// The settings and tool calls that were applied for an item and are in effect. If the item is
    /// already good, `--persist` writes the files for them.
    #[must_use]
    pub fn actions_of(&self, item: &str) -> Vec<Action> {
        let lasting =
            |action: &Action| matches!(action, Action::Run { .. } | Action::Setting { .. });
        self.steps
            .iter()
            .filter(|step| step.item == item && lasting(&step.action))
            .map(|step| step.action.clone())
            .collect()
    }

    /// Records a step before its action. When this returns, the previous state is on disk.
    ///
    /// # Errors
    /// [`JournalError`]: the action must then not be performed.
    pub fn begin(
        &mut self,
        root: &str,
        item: &str,
        boot: &str,
        action: &Action,
        before: Option<String>,
    ) -> Result<u64, JournalError> {
        let step = self.next;
        self.append(Record::Begun {
            step,
            root: root.to_owned(),
            item: item.to_owned(),
            boot: boot.to_owned(),
            action: action.clone(),
            before,
        })?;
        Ok(step)
    }

    /// Records that the action of a step was performed, and the state after it.
    ///
    /// # Errors
    /// [`JournalError`].
    pub fn done(&mut self, step: u64, after: Option<String>) -> Result<(), JournalError> {
        self.append(Record::Done { step, after })
    }

    /// Records that a step was undone (or had no effect).
    ///
    /// # Errors
    /// [`JournalError`].
    pub fn undone(&mut self, step: u64) -> Result<(), JournalError> {
        self.append(Record::Undone { step })
    }

    /// Records that a step is not to be undone, at the request of the user.
    ///
    /// # Errors
    /// [`JournalError`].
    pub fn forget(&mut self, step: u64) -> Result<(), JournalError> {
        self.append(Record::Forgotten { step })
    }

    /// Empties the file if no step is outstanding.
    ///
    /// # Errors
    /// [`JournalError`].
    pub fn tidy(&mut self) -> Result<(), JournalError> {
        if !self.steps.is_empty() {
            return Ok(());
        }
        let emptied = self
            .file
            .set_len(0)
            .and_then(|()| self.file.seek(SeekFrom::Start(0)))
            .and_then(|_| self.file.sync_all());
        emptied.map_err(|error| JournalError::Io(self.path.clone(), error))
    }

    fn append(&mut self, record: Record) -> Result<(), JournalError> {
        let failed = |error| JournalError::Io(self.path.clone(), error);
        let mut line =
            serde_json::to_vec(&record).map_err(|error| failed(io::Error::other(error)))?;
        line.push(b'\n');
        let end = self.file.stream_position().map_err(failed)?;
        if let Err(error) = self.file.write_all(&line).and_then(|()| self.file.sync_all()) {
            // A full disk may take part of a line. Remove it, or the next line would be appended to it.
            let _ = self.file.set_len(end).and_then(|()| self.file.seek(SeekFrom::Start(end)));
            return Err(failed(error));
        }
        self.replay(record);
        Ok(())
    }

    fn replay(&mut self, record: Record) {
        match record {
            Record::Begun { step, root, item, boot, action, before } => {
                self.next = self.next.max(step + 1);
                let progress = Progress::Begun;
                let number = step;
                self.steps.push(Step { number, root, item, boot, action, before, progress });
            }
            Record::Done { step, after } => {
                if let Some(known) = self.steps.iter_mut().find(|known| known.number == step) {
                    known.progress = Progress::Done(after);
                }
            }
            Record::Forgotten { step } | Record::Undone { step } => {
                self.steps.retain(|known| known.number != step);
            }
        }
    }
}

/// Whether no other user can have written the file. The directory is not checked: the state directory of a service
/// may belong to the user of the service.
fn is_ours(file: &fs::Metadata) -> bool {
    const WRITABLE_BY_OTHERS: u32 = 0o022;
    file.uid() == rustix::process::geteuid().as_raw() && file.mode() & WRITABLE_BY_OTHERS == 0
}

/// The root of steps without one, which older versions wrote.
fn live_root() -> String {
    LIVE_ROOT.to_owned()
}

/// Synchronises a directory, so that the names in it survive a crash.
pub(crate) fn sync_folder(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

/// Whether a non-empty journal exists in `folder`, without taking its lock.
///
/// # Errors
/// [`JournalError::Io`] if this cannot be determined: a directory without permission is not an empty one.
pub fn exists(folder: &Path) -> Result<bool, JournalError> {
    let path = folder.join(FILE_NAME);
    match fs::metadata(&path) {
        Ok(file) => Ok(file.len() > 0),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(JournalError::Io(path, error)),
    }
}
