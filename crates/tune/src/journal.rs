//! What was changed, on disk before it is changed.
//! In: actions with the state before them. Out: the steps that are still to be put back, newest first.
//! Never: says that a step was begun before its line is synchronised to the disk; believes a file that another
//! user could have written, as undo runs the commands it names.
//! Limits: `JOURNAL_BYTES_MAX`. Invariant: only the last line can be torn (the one being written when the
//! machine stopped), and what it would have said was then not acted upon yet.

use crate::action::Action;
use rustix::fs::{FlockOperation, OFlags};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Bytes of a journal; far more than all items on a large host make.
pub const JOURNAL_BYTES_MAX: u64 = 64 * 1024 * 1024;
/// Where the journal lies unless told otherwise.
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

/// What is known of a step's outcome.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Progress {
    /// Announced; whether it was done is not known.
    Begun,
    /// Done, and this was the state after it.
    Done(Option<String>),
}

/// A change that is still to be put back.
#[derive(Clone, Debug)]
pub struct Step {
    /// Its number, rising.
    pub number: u64,
    /// The root of the host it was made on: `/`, or the folder of a recorded host.
    pub root: String,
    /// The item it was for.
    pub item: String,
    /// The boot it was made in: /proc/sys/kernel/random/boot_id.
    pub boot: String,
    /// What was to be done.
    pub action: Action,
    /// The state before; `None` when the target did not exist.
    pub before: Option<String>,
    /// What is known of its outcome.
    pub progress: Progress,
}

/// The open journal, locked against every other process.
#[derive(Debug)]
pub struct Journal {
    file: File,
    path: PathBuf,
    steps: Vec<Step>,
    next: u64,
}

/// Why there is no journal.
#[derive(Debug)]
pub enum JournalError {
    /// Another process works with it.
    Busy(PathBuf),
    /// A line that is not the last one cannot be read.
    Damaged(PathBuf, usize),
    /// Another user owns it or may write it.
    Foreign(PathBuf),
    /// It holds changes of another host: the file, that host's root.
    OtherRoot(PathBuf, String),
    /// The file system says no.
    Io(PathBuf, io::Error),
}

impl fmt::Display for JournalError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Busy(path) => write!(
                f,
                "{} is in use by another `tidegate tune`; wait for it to end",
                path.display()
            ),
            Self::Damaged(path, line) => write!(
                f,
                "{} line {line} cannot be read, so nothing is changed; mend the line or put the values back by hand",
                path.display()
            ),
            Self::Foreign(path) => write!(
                f,
                "{} was written, or may be, by another user, and undo would run the commands it names, so nothing is \
                 changed; look at it, then `chown` it to yourself and `chmod 600` it, or remove it",
                path.display()
            ),
            Self::OtherRoot(path, root) => write!(
                f,
                "{} holds changes of {}, so nothing is changed; put those back with `tidegate tune undo{}{}` \
                 or, if that host is gone, remove the file",
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
                "{}: {error}; run as root or give a folder you may write with --state",
                path.display()
            ),
        }
    }
}

impl std::error::Error for JournalError {}

impl Journal {
    /// Opens (or makes) the journal in `folder` and takes its lock.
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
        // INVARIANT: a line is whole once its line end is on disk; what follows the last one is torn.
        let whole = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        let mut journal = Self { file, path: path.clone(), steps: Vec::new(), next: 1 };
        let text = String::from_utf8_lossy(bytes.get(..whole).unwrap_or_default()).into_owned();
        for (position, line) in text.lines().enumerate() {
            let record = serde_json::from_str(line)
                .map_err(|_| JournalError::Damaged(path.clone(), position + 1))?;
            journal.take_in(record);
        }
        journal.file.set_len(whole as u64).map_err(failed)?;
        journal.file.seek(SeekFrom::Start(whole as u64)).map_err(failed)?;
        sync_folder(folder).map_err(failed)?;
        Ok(journal)
    }

    /// Steps still to be put back, oldest first.
    #[must_use]
    pub fn outstanding(&self) -> &[Step] {
        &self.steps
    }

    /// That all outstanding steps were made on the host with this root, so that their values are its own.
    ///
    /// # Errors
    /// [`JournalError::OtherRoot`] names the host whose steps they are.
    pub fn is_of(&self, root: &str) -> Result<(), JournalError> {
        match self.steps.iter().find(|step| step.root != root) {
            Some(step) => Err(JournalError::OtherRoot(self.path.clone(), step.root.clone())),
            None => Ok(()),
        }
    }

    /// What was done for an item to settings and by tools, and is in place: what `--persist` keeps when the
    /// item is good by now.
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

    /// Announces a step. When this returns, the state before it is on disk.
    ///
    /// # Errors
    /// [`JournalError`]: then the step must not be done.
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

    /// Says that a step was done, and the state after it.
    ///
    /// # Errors
    /// [`JournalError`].
    pub fn done(&mut self, step: u64, after: Option<String>) -> Result<(), JournalError> {
        self.append(Record::Done { step, after })
    }

    /// Says that a step was put back (or had no effect).
    ///
    /// # Errors
    /// [`JournalError`].
    pub fn undone(&mut self, step: u64) -> Result<(), JournalError> {
        self.append(Record::Undone { step })
    }

    /// Says that a step is left as it is, because the user wants it so.
    ///
    /// # Errors
    /// [`JournalError`].
    pub fn forget(&mut self, step: u64) -> Result<(), JournalError> {
        self.append(Record::Forgotten { step })
    }

    /// Empties the file when nothing is outstanding.
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
            // A disk that is full takes a part of a line, and the next line would run into it.
            let _ = self.file.set_len(end).and_then(|()| self.file.seek(SeekFrom::Start(end)));
            return Err(failed(error));
        }
        self.take_in(record);
        Ok(())
    }

    fn take_in(&mut self, record: Record) {
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

/// Whether nobody else can have written a file. The folder of a service may belong to the service's user.
fn is_ours(file: &fs::Metadata) -> bool {
    const WRITABLE_BY_OTHERS: u32 = 0o022;
    file.uid() == rustix::process::geteuid().as_raw() && file.mode() & WRITABLE_BY_OTHERS == 0
}

/// Where steps were made that do not say so: lines of before roots were kept.
fn live_root() -> String {
    LIVE_ROOT.to_owned()
}

/// Makes the names in a folder last over a crash.
pub(crate) fn sync_folder(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

/// Whether a journal with steps exists in `folder`, without taking its lock.
///
/// # Errors
/// [`JournalError::Io`] when that cannot be told: a folder that may not be entered is not an empty one.
pub fn exists(folder: &Path) -> Result<bool, JournalError> {
    let path = folder.join(FILE_NAME);
    match fs::metadata(&path) {
        Ok(file) => Ok(file.len() > 0),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(JournalError::Io(path, error)),
    }
}
