//! Certificates change while the process serves: on SIGHUP, and when a file of theirs changes.
//! In: a signal, changes in the files' folders. Out: a new `TlsPlan` by mail to every worker.
//! Never: leaves a worker without a plan: a broken file is said, and what was served before stays.
//! Limits: a change is acted on `QUIET` after it, so that a certificate and its key are both there.

use std::collections::BTreeSet;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, SystemTime};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::fs::inotify::{CreateFlags, WatchFlags, add_watch, init};
use tidegate_config::model::Config;
use tidegate_reactor::Sender;

use crate::certificates::{self, TlsKeeper};
use crate::delivery::Delivery;
use crate::start::Mail;

/// After a change, this long nothing is read: files are written one after the other.
const QUIET: Duration = Duration::from_millis(300);
/// Ticket keys are looked after, and files that cannot be watched looked at, this often.
const LOOK_EVERY: Timespec = Timespec { tv_sec: 60, tv_nsec: 0 };

/// Workers whose mailboxes were full are tried again this often.
const TRY_AGAIN_EVERY: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };

/// Reads certificates anew and hands them out.
pub(crate) struct Reloader {
    config: Arc<Config>,
    keeper: TlsKeeper,
    delivery: Delivery<Mail>,
    seen: Signature,
}

/// What tells that files are others than before.
#[derive(PartialEq, Eq)]
pub(crate) struct Signature(Vec<(u64, u64, i64, i64)>);

/// Asks the thread that reloads to do so now.
pub(crate) struct ReloadBell(OwnedFd);

impl ReloadBell {
    pub(crate) fn ring(&self) {
        // It can only be full, and then it has been rung.
        let _ = rustix::io::write(&self.0, &1_u64.to_ne_bytes());
    }
}

impl Reloader {
    /// `seen` was taken before the files were read: what changed in between is read again.
    pub(crate) fn new(
        config: Arc<Config>,
        keeper: TlsKeeper,
        workers: Vec<Sender<Mail>>,
        seen: Signature,
    ) -> Self {
        Self { config, keeper, delivery: Delivery::new(workers), seen }
    }

    /// Reads everything anew; what is broken leaves what was.
    fn reload(&mut self) {
        match self.keeper.load(&self.config, unix_seconds(), true) {
            Ok(plan) => {
                self.delivery.bring(&Mail::Tls(Arc::new(plan)));
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

    /// Watches the files on a thread of its own, for as long as the process lives, and heeds the bell that is
    /// returned.
    pub(crate) fn watch(mut self) -> std::io::Result<ReloadBell> {
        let paths = certificates::paths(&self.config);
        let watcher = watcher_of(&paths);
        let bell = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?;
        let heard = bell.try_clone()?;
        let work = move || {
            let mut rung = false;
            loop {
                let now = Signature::of_paths(&paths);
                if rung || now != self.seen {
                    self.seen = now;
                    self.reload();
                }
                let owed = self.delivery.try_again();
                let most = if owed > 0 { &TRY_AGAIN_EVERY } else { &LOOK_EVERY };
                rung = wait(watcher.as_ref(), &heard, most);
                self.keeper.rotate_tickets(unix_seconds());
            }
        };
        thread::Builder::new().name("certificates".to_owned()).spawn(work)?;
        Ok(ReloadBell(bell))
    }
}

impl Signature {
    /// That of the files of `config` as they are now.
    pub(crate) fn of(config: &Config) -> Self {
        Self::of_paths(&certificates::paths(config))
    }

    /// A missing file has one of its own.
    fn of_paths(paths: &[PathBuf]) -> Self {
        let of = |path: &PathBuf| {
            let meta = std::fs::metadata(path).ok();
            meta.map_or((0, 0, 0, 0), |m| (m.ino(), m.size(), m.mtime(), m.mtime_nsec()))
        };
        Self(paths.iter().map(of).collect())
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

/// Waits for a change, for the bell, or for `most`; tells whether it was the bell.
fn wait(watcher: Option<&OwnedFd>, bell: &OwnedFd, most: &Timespec) -> bool {
    let nothing = PollFlags::empty();
    let mut fds = [
        PollFd::new(bell, PollFlags::IN),
        // Without a watcher the bell stands in for it, asked for nothing.
        watcher.map_or(PollFd::new(bell, nothing), |fd| PollFd::new(fd, PollFlags::IN)),
    ];
    if poll(&mut fds, Some(most)) == Ok(0) {
        return false;
    }
    let rung = fds.first().is_some_and(|fd| !fd.revents().is_empty());
    let mut events = [0_u8; 4096];
    if rung {
        // One read takes all the rings.
        let _ = rustix::io::read(bell, &mut events);
        return true;
    }
    thread::sleep(QUIET);
    if let Some(watcher) = watcher {
        while rustix::io::read(watcher, &mut events).is_ok_and(|count| count > 0) {}
    }
    false
}

/// The time that certificates are judged by before a worker has read the clock.
pub(crate) fn unix_seconds() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_reactor::{Mailbox, make_wakers};

    #[test]
    fn what_changed_before_anybody_watched_is_read_again() {
        let folder = std::env::temp_dir().join(format!("tidegate-seen-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        let made = rcgen::generate_simple_self_signed(vec!["a.example".to_owned()]).expect("a key");
        let (cert, key) = (folder.join("a.pem"), folder.join("a.key"));
        std::fs::write(&cert, made.cert.pem()).expect("a file");
        std::fs::write(&key, made.signing_key.serialize_pem()).expect("a file");
        let text = format!(
            "[[listener]]\nbind = \"127.0.0.1:0\"\n\
             tls = {{ certificates = [{{ cert = {cert:?}, key = {key:?} }}] }}\n\
             [[route]]\nrespond = {{ status = 204 }}\n"
        );
        let Ok(config) = tidegate_config::parse(&text, "the test") else { panic!("{text}") };
        let before = Signature::of(&config);
        std::fs::write(&cert, made.cert.pem() + "\n").expect("a file");
        let waker = make_wakers(1).expect("a waker").remove(0);
        let mailbox = Mailbox::new(4, waker);
        let reloader =
            Reloader::new(Arc::new(config), TlsKeeper::default(), vec![mailbox.sender()], before);
        let bell = reloader.watch().expect("a thread");
        let mail = loop {
            match mailbox.take() {
                Some(mail) => break mail,
                None => thread::yield_now(),
            }
        };
        assert!(matches!(mail, Mail::Tls(_)));
        drop(bell);
        std::fs::remove_dir_all(folder).expect("it is ours");
    }
}
