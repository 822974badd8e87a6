//! Reads the files of Lua applications on separate threads, because a disk may be slow.
//! In: the folder of an application, a path below it, a place in the file. Out: a piece of the file in a mailbox of the worker.
//! Never: blocks a worker; opens a file outside of the folder, also by a symbolic link; waits for a pipe or a device.
//! Limits: `READERS` threads; `JOBS_MAX` jobs wait, `WORKER_JOBS_MAX` of a worker are in progress.
//! Invariant: a worker's mailbox has room for the results of all its jobs.

use std::fmt::Write as _;
use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::fs::{Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use tidegate_base::Id;
use tidegate_config::model::Config;
use tidegate_reactor::{Mailbox, Sender, Waker};

use crate::action::lua::files::LuaFile;
use crate::threads::{self, Ended};

/// The threads that read files.
const READERS: usize = 2;
/// The jobs that wait for them.
const JOBS_MAX: usize = 1024;
/// The jobs of a worker in progress.
pub(crate) const WORKER_JOBS_MAX: usize = 256;
/// The error if too many jobs are in progress.
pub(crate) const BUSY: &str = "too many files are being read";

/// A piece of a file to read.
pub(crate) struct FileJob {
    /// The folder.
    pub(crate) folder: String,
    /// The path below the folder.
    pub(crate) path: String,
    /// Where the piece begins.
    pub(crate) offset: u64,
    /// The size of the piece, unless the file ends before.
    pub(crate) bytes_max: usize,
    /// The read that waits.
    pub(crate) ticket: Id<LuaFile>,
}

/// The result of a job.
pub(crate) struct FilePiece {
    /// The read that waits. It may have ended.
    pub(crate) ticket: Id<LuaFile>,
    /// A line with the size, the second of the last change and a tag of the version, and then the bytes; or an error.
    pub(crate) result: Result<Vec<u8>, String>,
}

/// A job, and the mailbox for its result.
type Task = (FileJob, Sender<FilePiece>);

/// The way of a worker to the threads.
#[derive(Default)]
pub(crate) enum FileDoor {
    /// There are no threads: the worker itself reads. Only in tests.
    #[default]
    AtOnce,
    /// There are no threads, because the process has started without applications.
    Closed,
    /// The threads.
    Open(FileLink),
}

/// The channels between a worker and the threads.
pub(crate) struct FileLink {
    /// The jobs of all workers. The threads end when the last worker has dropped it.
    jobs: SyncSender<Task>,
    /// The results for this worker.
    mailbox: Mailbox<FilePiece>,
    /// The sender to this mailbox.
    own: Sender<FilePiece>,
}

/// What became of a job.
pub(crate) enum Submitted {
    /// A thread has it.
    Waits,
    /// There is no thread; the result is known at once.
    Read(FilePiece),
    /// It was refused, for this reason.
    Refused(&'static str),
}

impl FileDoor {
    /// Starts the threads if there are applications. Returns the door of each worker.
    ///
    /// # Errors
    /// The kernel refused a thread.
    pub(crate) fn for_workers(config: &Config, wakers: &[Waker]) -> io::Result<Vec<Self>> {
        if config.lua.is_empty() {
            return Ok(wakers.iter().map(|_| Self::Closed).collect());
        }
        let (jobs, queue) = sync_channel(JOBS_MAX);
        let queue = Arc::new(Mutex::new(queue));
        for number in 0..READERS {
            let queue = Arc::clone(&queue);
            threads::spawn(format!("files-{number}"), move || serve(&queue))?;
        }
        let door = |waker: &Waker| {
            let mailbox = Mailbox::new(WORKER_JOBS_MAX, waker.clone());
            let own = mailbox.sender();
            Self::Open(FileLink { jobs: jobs.clone(), mailbox, own })
        };
        Ok(wakers.iter().map(door).collect())
    }

    /// Hands a job to a thread.
    pub(crate) fn submit(&self, job: FileJob) -> Submitted {
        match self {
            Self::AtOnce => Submitted::Read(read(&job)),
            Self::Closed => Submitted::Refused("files can be read after a restart of the process"),
            Self::Open(link) => match link.jobs.try_send((job, link.own.clone())) {
                Ok(()) => Submitted::Waits,
                Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => {
                    Submitted::Refused(BUSY)
                }
            },
        }
    }

    /// Takes a result.
    pub(crate) fn take(&self) -> Option<FilePiece> {
        match self {
            Self::AtOnce | Self::Closed => None,
            Self::Open(link) => link.mailbox.take(),
        }
    }

    /// Results are left: the worker takes them in its next turn.
    pub(crate) fn ring_again(&self) {
        if let Self::Open(link) = self
            && !link.mailbox.is_empty()
        {
            link.mailbox.ring_again();
        }
    }
}

/// Reads files until the last worker has ended.
fn serve(queue: &Mutex<Receiver<Task>>) -> Ended {
    loop {
        // The other threads wait for the lock while this one waits for a job.
        let task = queue.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok((job, worker)) = task else { return Ended::AsPlanned };
        // The mailbox has room for all jobs of the worker.
        drop(worker.send(read(&job)));
    }
}

fn read(job: &FileJob) -> FilePiece {
    let result = read_piece(job).map_err(|error| match error {
        Errno::NOENT | Errno::NOTDIR | Errno::XDEV | Errno::LOOP | Errno::NAMETOOLONG => {
            "not found".to_owned()
        }
        Errno::ISDIR => "not a file".to_owned(),
        error => format!("the file cannot be read: {}", io::Error::from(error)),
    });
    FilePiece { ticket: job.ticket, result }
}

fn read_piece(job: &FileJob) -> Result<Vec<u8>, Errno> {
    let file = open_below(&job.folder, &job.path)?;
    let facts = file.metadata().map_err(errno)?;
    if !facts.is_file() {
        return Err(Errno::ISDIR);
    }
    let (size, modified) = (facts.size(), facts.mtime().max(0));
    let mut line = String::new();
    // Writing to a string cannot fail.
    let _ = writeln!(
        line,
        "{size} {modified} {:x}{:x}{:x}",
        facts.ino(),
        facts.mtime_nsec() as u64 ^ (modified as u64) << 30,
        size
    );
    let mut piece = line.into_bytes();
    let begin = piece.len();
    let left = size.saturating_sub(job.offset);
    piece.resize(begin + job.bytes_max.min(usize::try_from(left).unwrap_or(usize::MAX)), 0);
    let mut end = begin;
    while end < piece.len() {
        let offset = job.offset + (end - begin) as u64;
        match file.read_at(&mut piece[end..], offset) {
            Ok(0) => break,
            Ok(count) => end += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(errno(error)),
        }
    }
    piece.truncate(end);
    Ok(piece)
}

/// Opens a file below a folder. No part of the path, and no symbolic link in it, may lead out of the folder.
fn open_below(folder: &str, path: &str) -> Result<File, Errno> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let folder = rustix::fs::open(folder, flags, Mode::empty())?;
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
    rustix::fs::openat2(folder, path, flags, Mode::empty(), resolve).map(File::from)
}

fn errno(error: io::Error) -> Errno {
    Errno::from_io_error(&error).unwrap_or(Errno::IO)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn files_are_read_in_pieces_and_only_below_the_folder() {
        let folder = std::env::temp_dir().join(format!("tidegate-files-{}", std::process::id()));
        let below = folder.join("public/sub");
        fs::create_dir_all(&below).expect("the folder can be created");
        fs::write(folder.join("secret"), "secret").expect("it is ours");
        fs::write(below.join("a.txt"), "0123456789").expect("it is ours");
        fs::write(below.join("empty"), "").expect("it is ours");
        symlink("sub/a.txt", folder.join("public/inner")).expect("it is ours");
        symlink("../secret", folder.join("public/outer")).expect("it is ours");
        symlink(folder.join("secret"), folder.join("public/absolute")).expect("it is ours");
        rustix::fs::mknodat(
            rustix::fs::CWD,
            folder.join("public/fifo"),
            rustix::fs::FileType::Fifo,
            Mode::from_raw_mode(0o600),
            0,
        )
        .expect("a fifo");
        let read = |path: &str, offset, bytes_max| {
            let folder = folder.join("public").display().to_string();
            let (path, ticket) = (path.to_owned(), Id::NONE);
            super::read(&FileJob { folder, path, offset, bytes_max, ticket }).result
        };
        let piece = |path: &str, offset, bytes_max| {
            let text = String::from_utf8(read(path, offset, bytes_max)?).expect("it is text");
            let (line, data) = text.split_once('\n').expect("a line");
            let parts: Vec<&str> = line.split(' ').collect();
            let &[size, modified, tag] = &parts[..] else { panic!("{line}") };
            assert!(modified.parse::<u64>().is_ok_and(|seconds| seconds > 1_000_000_000), "{line}");
            assert!(tag.bytes().all(|byte| byte.is_ascii_hexdigit()), "{line}");
            Ok::<_, String>((size.to_owned(), data.to_owned()))
        };
        for (offset, bytes_max, data) in
            [(0, 100, "0123456789"), (0, 4, "0123"), (8, 4, "89"), (10, 4, ""), (99, 4, "")]
        {
            assert_eq!(piece("sub/a.txt", offset, bytes_max), Ok(("10".into(), data.into())));
        }
        assert_eq!(piece("inner", 0, 2), Ok(("10".into(), "01".into())));
        assert_eq!(piece("sub/empty", 0, 2), Ok(("0".into(), "".into())));
        for path in ["none", "sub/a.txt/b", "outer", "absolute", "../secret", "/etc/passwd"] {
            assert_eq!(piece(path, 0, 10), Err("not found".to_owned()), "{path}");
        }
        for path in ["sub", "fifo"] {
            assert_eq!(piece(path, 0, 10), Err("not a file".to_owned()), "{path}");
        }
        let version = || read("sub/a.txt", 0, 0).expect("it exists");
        let before = version();
        assert_eq!(before, version());
        fs::write(below.join("a.txt"), "012345678").expect("it is ours");
        assert_ne!(before, version(), "another version has another tag");
        fs::remove_dir_all(&folder).expect("it is ours");
    }
}
