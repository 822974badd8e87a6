//! Certificates change while the process serves: on SIGHUP, and when a file of theirs changes.
//! In: a signal, changes in the files' folders. Out: a new `TlsPlan` by mail to every worker.
//! Never: leaves a worker without a plan: a broken file is said, and what was served before stays.
//! Limits: a change is acted on `QUIET` after it, so that a certificate and its key are both there.

use std::collections::BTreeSet;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, SystemTime};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::inotify::{CreateFlags, WatchFlags, add_watch, init};
use tidegate_config::model::Config;
use tidegate_secure::TlsPlan;

use crate::certificates::{self, TlsKeeper};

/// After a change, this long nothing is read: files are written one after the other.
const QUIET: Duration = Duration::from_millis(300);
/// Ticket keys are looked after, and files that cannot be watched looked at, this often.
const LOOK_EVERY: Timespec = Timespec { tv_sec: 60, tv_nsec: 0 };

type Deliver = dyn Fn(&Arc<TlsPlan>) + Send + Sync;

/// Reads certificates anew and hands them out.
pub(crate) struct Reloader {
    config: Arc<Config>,
    keeper: Mutex<TlsKeeper>,
    /// Brings a plan to every worker.
    deliver: Box<Deliver>,
}

impl Reloader {
    pub(crate) fn new(
        config: Arc<Config>,
        keeper: TlsKeeper,
        deliver: impl Fn(&Arc<TlsPlan>) + Send + Sync + 'static,
    ) -> Self {
        Self { config, keeper: Mutex::new(keeper), deliver: Box::new(deliver) }
    }

    /// Reads everything anew; what is broken leaves what was.
    pub(crate) fn reload(&self) {
        let Ok(mut keeper) = self.keeper.lock() else { return };
        match keeper.load(&self.config, unix_seconds(), true) {
            Ok(plan) => {
                (self.deliver)(&Arc::new(plan));
                eprintln!("tidegate: certificates were read again");
            }
            Err(faults) => {
                for fault in faults {
                    eprintln!("tidegate: {fault}");
                }
                eprintln!("tidegate: the certificates from before stay in use");
            }
        }
    }

    /// Watches the files on a thread of its own, for as long as the process lives.
    pub(crate) fn watch(self: Arc<Self>) -> std::io::Result<()> {
        let paths = certificates::paths(&self.config);
        let watcher = watcher_of(&paths);
        let work = move || {
            let mut seen = signature(&paths);
            loop {
                wait(watcher.as_ref());
                if let Ok(keeper) = self.keeper.lock() {
                    keeper.rotate_tickets(unix_seconds());
                }
                let now = signature(&paths);
                if now != seen {
                    seen = now;
                    self.reload();
                }
            }
        };
        thread::Builder::new().name("certificates".to_owned()).spawn(work).map(|_| ())
    }
}

/// Watches the folders rather than the files: a renewed certificate is mostly another file of that name.
fn watcher_of(paths: &[PathBuf]) -> Option<OwnedFd> {
    let watcher = init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC).ok()?;
    let own = |path: &PathBuf| path.parent().map(PathBuf::from).unwrap_or_default();
    let folders: BTreeSet<PathBuf> = paths
        .iter()
        .map(own)
        .map(|folder| if folder.as_os_str().is_empty() { PathBuf::from(".") } else { folder })
        .collect();
    let changes = WatchFlags::CLOSE_WRITE | WatchFlags::MOVED_TO | WatchFlags::CREATE;
    for folder in folders {
        // A folder that cannot be watched is still looked at once a minute.
        let _ = add_watch(&watcher, folder, changes);
    }
    Some(watcher)
}

fn wait(watcher: Option<&OwnedFd>) {
    let Some(watcher) = watcher else {
        return thread::sleep(Duration::from_secs(LOOK_EVERY.tv_sec as u64));
    };
    let mut fds = [PollFd::new(watcher, PollFlags::IN)];
    if poll(&mut fds, Some(&LOOK_EVERY)) == Ok(0) {
        return;
    }
    thread::sleep(QUIET);
    let mut events = [0_u8; 4096];
    while rustix::io::read(watcher, &mut events).is_ok_and(|count| count > 0) {}
}

/// What tells that a file is another one than before; a missing file is one of its own.
fn signature(paths: &[PathBuf]) -> Vec<(u64, u64, i64, i64)> {
    let of = |path: &PathBuf| {
        let meta = std::fs::metadata(path).ok();
        meta.map_or((0, 0, 0, 0), |m| (m.ino(), m.size(), m.mtime(), m.mtime_nsec()))
    };
    paths.iter().map(of).collect()
}

/// The time that certificates are judged by before a worker has read the clock.
pub(crate) fn unix_seconds() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
