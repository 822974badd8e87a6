//! Reloads while the process serves: the configuration and all TLS files on SIGHUP, TLS files also when they change, and
//! the configuration too with `reload = "watch"`.
//! In: a signal, changes in the folders of these files, edits of commands. Out: another configuration (`configuration.rs`), or
//! a new `TlsPlan`, mailed to every worker.
//! Never: leaves a worker without a plan: a broken file is reported; the previous settings stay in force.
//! Limits: a reload begins `SETTLE_DELAY` after a change, so that a certificate and its key are both
//! complete.

use std::collections::BTreeSet;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, SystemTime};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::fs::inotify::{CreateFlags, WatchFlags, add_watch, init};
use tidegate_config::live_edit;
use tidegate_config::model::Config;

use crate::certificates::{self, TlsLoader};
use crate::configuration::Configuration;
use crate::delivery::Delivery;
use crate::events::{self, EventKind};
use crate::live_edits::EditRequest;
use crate::log;
use crate::name_follower::Resolved;
use crate::start::Mail;
use crate::threads;

/// How long after a change the files are read. Certificate tools write files one after the other.
const SETTLE_DELAY: Duration = Duration::from_millis(300);
/// How often ticket keys are rotated if due, and files that cannot be watched are checked.
const CHECK_EVERY: Timespec = Timespec { tv_sec: 60, tv_nsec: 0 };

/// How often mail is retried for workers whose mailboxes were full.
const RETRY_EVERY: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };

/// Reloads the configuration and certificates, and delivers them to the workers.
pub(crate) struct Reloader {
    /// The configuration in force.
    configuration: Configuration,
    loader: TlsLoader,
    delivery: Delivery<Mail>,
    /// Delivers addresses of servers to the workers.
    addresses: Delivery<Mail>,
    /// The signature of the TLS files when they were last read.
    seen: Signature,
    /// The signature of the configuration file when it was last read, if the file is watched.
    seen_file: Signature,
}

/// Inode, size and modification time of each file. A different signature means that files have changed.
#[derive(PartialEq, Eq)]
pub(crate) struct Signature(Vec<(u64, u64, i64, i64)>);

/// Makes the reload thread reload now.
pub(crate) struct ReloadSignal {
    /// Wakes the thread.
    event: OwnedFd,
    /// Whether the thread is to reload; edits wake the thread without a reload.
    is_ordered: Arc<AtomicBool>,
}

impl ReloadSignal {
    pub(crate) fn notify(&self) {
        self.is_ordered.store(true, Ordering::SeqCst);
        // A write fails only if the counter is full, and then the thread has been notified already.
        let _ = rustix::io::write(&self.event, &1_u64.to_ne_bytes());
    }
}

impl Reloader {
    /// `seen` was taken before the files were read, so that a file that changed in between is read again.
    pub(crate) fn new(configuration: Configuration, loader: TlsLoader, seen: Signature) -> Self {
        let senders: Vec<_> =
            configuration.workers.iter().map(|worker| worker.sender.clone()).collect();
        let seen_file = Signature::of_paths(&configuration.watched());
        let (delivery, addresses) = (Delivery::new(senders.clone()), Delivery::new(senders));
        Self { configuration, loader, delivery, addresses, seen, seen_file }
    }

    /// Reads the configuration and all TLS files again. If anything is wrong, everything stays as it is. Returns whether the TLS
    /// files are in use.
    fn reload_all(&mut self) -> bool {
        if self.configuration.source.is_none() {
            log::warning(format_args!(
                "SIGHUP: no configuration was reloaded, because the process was started without a configuration file"
            ));
            if !self.paths().is_empty() {
                self.reload_certificates();
            }
            self.configuration.reload(&mut self.loader);
            return true;
        }
        // The new settings contain the TLS settings.
        self.delivery.forget_pending();
        self.configuration.reload(&mut self.loader).is_some()
    }

    /// Makes the edits that commands wait for. Returns whether there were any.
    fn make_edits(&mut self) -> bool {
        let Some(operations) = self.configuration.operations.clone() else { return false };
        let orders = operations.edits.take();
        let has_any = !orders.is_empty();
        for order in orders {
            let Some(EditRequest { edit, found, sent }) = order.take() else { continue };
            let before = self.configuration.arranged.generation;
            // Earlier TLS settings must not arrive after those of the edited configuration.
            let result = match self.delivery.retry() {
                0 => self.configuration.edit(&edit, &found, &mut self.loader),
                _ => Err("the mailbox of a worker is full; help: try again".to_owned()),
            };
            // Some workers may use the edit although the command gets an error.
            if self.configuration.arranged.generation != before {
                sent.audit();
            }
            order.report(result);
        }
        has_any
    }

    /// The TLS files of the configuration in force.
    fn paths(&self) -> Vec<PathBuf> {
        certificates::paths(&self.configuration.arranged.config)
    }

    /// The configuration file and those that it includes, if they are watched.
    fn file(&self) -> Vec<PathBuf> {
        self.configuration.watched()
    }

    /// Watches the TLS files of the configuration in force, and `file`, from now on.
    fn follow(&mut self, watched: &mut Watched, file: Vec<PathBuf>) {
        let paths = self.paths();
        if (&paths, &file) != (&watched.paths, &watched.file) {
            *watched = Watched::new(paths, file);
            // Files that change before they are watched are read again.
            self.seen = Signature(Vec::new());
        }
    }

    /// Reads all TLS files again and delivers the new plan. If a file is broken, the previous plan stays in force.
    fn reload_certificates(&mut self) {
        match self.loader.load_arranged(&self.configuration.arranged, unix_seconds()) {
            Ok(plan) => {
                self.configuration.checks.change_tls(&self.configuration.arranged, &plan);
                let plan = Arc::new(plan);
                self.configuration.note_tls(&plan);
                self.delivery.send_to_all(&Mail::Tls(plan));
                log::info(format_args!("certificates reloaded"));
                events::note(EventKind::Reload, format_args!("certificates reloaded"));
                self.warn_of_given();
            }
            Err(faults) => {
                for fault in faults {
                    log::error(format_args!("{fault}"));
                }
                log::error(format_args!(
                    "certificates not reloaded; the previous certificates stay in use"
                ));
                events::note(EventKind::Reload, format_args!("certificates not reloaded"));
            }
        }
    }

    /// Logs how many certificates in files are not used, because commands have given others.
    fn warn_of_given(&self) {
        let all = live_edit::certificates_of(&self.configuration.arranged.config);
        let given: BTreeSet<&String> =
            all.filter(|one| one.given.is_some()).map(|one| &one.cert).collect();
        if !given.is_empty() {
            log::warning(format_args!(
                "certificates of `set tls cert` that stay in use until the configuration is reloaded: {}",
                given.len()
            ));
        }
    }

    /// Starts a thread that watches the files until the process ends. Notifying the returned signal makes it
    /// reload.
    pub(crate) fn watch(mut self) -> std::io::Result<ReloadSignal> {
        let mut watched = Watched::new(self.paths(), self.file());
        let event = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?;
        let event_reader = event.try_clone()?;
        if let Some(operations) = &self.configuration.operations {
            operations.edits.connect(event.try_clone()?);
            self.configuration.names.show_in(Arc::clone(&operations.names));
        }
        self.configuration.names.connect(event.try_clone()?);
        self.configuration.follow_names(Resolved::new());
        let is_ordered = Arc::new(AtomicBool::new(false));
        let ordered = Arc::clone(&is_ordered);
        let work = move || {
            // A change before the start has settled.
            let (mut notified, mut is_settled) = (false, true);
            loop {
                let mut now = Signature::of_paths(&watched.paths);
                let mut file_now = Signature::of_paths(&watched.file);
                let is_changed = file_now != self.seen_file || now != self.seen;
                if is_changed && !notified && !is_settled {
                    // An edit woke the thread, perhaps while a program writes the files.
                    thread::sleep(SETTLE_DELAY);
                    now = Signature::of_paths(&watched.paths);
                    file_now = Signature::of_paths(&watched.file);
                }
                if notified || file_now != self.seen_file {
                    // Changed TLS files must not be lost because the configuration was refused.
                    if self.reload_all() {
                        self.seen = now;
                    }
                    self.seen_file = file_now;
                    let file = self.file();
                    if file != watched.file {
                        self.seen_file = Signature::of_paths(&file);
                    }
                    self.follow(&mut watched, file);
                } else if now != self.seen {
                    self.seen = now;
                    self.reload_certificates();
                }
                let moved = self.configuration.take_addresses();
                if let Some((generation, addresses)) = moved {
                    self.addresses.send_to_all(&Mail::Addresses(generation, addresses));
                }
                let pending = self.delivery.retry() + self.addresses.retry();
                let wait_max = if pending > 0 { &RETRY_EVERY } else { &CHECK_EVERY };
                let woken = wait(watched.watcher.as_ref(), &event_reader, wait_max);
                notified = woken == Woken::Signal && ordered.swap(false, Ordering::SeqCst);
                is_settled = woken == Woken::Change;
                if self.make_edits() {
                    // Edits add and remove pools, which name files of their own.
                    let file = watched.file.clone();
                    self.follow(&mut watched, file);
                }
                self.loader.rotate_tickets(unix_seconds());
            }
        };
        threads::spawn("reload", work)?;
        Ok(ReloadSignal { event, is_ordered })
    }
}

/// The files whose changes make the thread reload.
struct Watched {
    /// The TLS files.
    paths: Vec<PathBuf>,
    /// The configuration file and those that it includes, if they are watched.
    file: Vec<PathBuf>,
    watcher: Option<OwnedFd>,
}

impl Watched {
    fn new(paths: Vec<PathBuf>, file: Vec<PathBuf>) -> Self {
        let watcher = watcher_of(&paths, &file);
        Self { paths, file, watcher }
    }
}

impl Signature {
    /// The current signature of the files of `config`.
    pub(crate) fn of(config: &Config) -> Self {
        Self::of_paths(&certificates::paths(config))
    }

    /// A missing file has a signature too, all zero.
    pub(crate) fn of_paths(paths: &[PathBuf]) -> Self {
        let of = |path: &PathBuf| {
            let meta = std::fs::metadata(path).ok();
            meta.map_or((0, 0, 0, 0), |m| (m.ino(), m.size(), m.mtime(), m.mtime_nsec()))
        };
        Self(paths.iter().map(of).collect())
    }
}

/// Watches the folders rather than the files, because renewal usually replaces a file by another one.
fn watcher_of(paths: &[PathBuf], file: &[PathBuf]) -> Option<OwnedFd> {
    let watcher = init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC).ok()?;
    let own = |path: &PathBuf| path.parent().map(PathBuf::from).unwrap_or_default();
    let folders: BTreeSet<PathBuf> = paths
        .iter()
        .chain(file)
        .map(own)
        .map(|folder| if folder.as_os_str().is_empty() { PathBuf::from(".") } else { folder })
        .collect();
    let changes = WatchFlags::CLOSE_WRITE
        | WatchFlags::MOVED_TO
        | WatchFlags::CREATE
        | WatchFlags::DELETE
        | WatchFlags::MOVED_FROM;
    for folder in folders {
        // The files of a folder that cannot be watched are still checked once a minute.
        let _ = add_watch(&watcher, folder, changes);
    }
    Some(watcher)
}

/// Why the thread no longer waits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Woken {
    /// The signal was notified: by a request for a reload, or by an edit.
    Signal,
    /// A file has changed, `SETTLE_DELAY` ago.
    Change,
    /// The time has passed.
    Timeout,
}

/// Waits for a change, for the signal, or for `wait_max`.
fn wait(watcher: Option<&OwnedFd>, signal: &OwnedFd, wait_max: &Timespec) -> Woken {
    let nothing = PollFlags::empty();
    let mut fds = [
        PollFd::new(signal, PollFlags::IN),
        // Without a watcher, the signal fills the entry and is polled for no event.
        watcher.map_or(PollFd::new(signal, nothing), |fd| PollFd::new(fd, PollFlags::IN)),
    ];
    if poll(&mut fds, Some(wait_max)) == Ok(0) {
        return Woken::Timeout;
    }
    let notified = fds.first().is_some_and(|fd| !fd.revents().is_empty());
    let mut events = [0_u8; 4096];
    if notified {
        // One read resets the counter.
        let _ = rustix::io::read(signal, &mut events);
        return Woken::Signal;
    }
    thread::sleep(SETTLE_DELAY);
    if let Some(watcher) = watcher {
        while rustix::io::read(watcher, &mut events).is_ok_and(|count| count > 0) {}
    }
    Woken::Change
}

/// The current time, for checking certificates outside of a worker.
pub(crate) fn unix_seconds() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use tidegate_config::arrange::Arranged;
    use tidegate_reactor::{Mailbox, make_wakers};
    use tidegate_secure::TlsPlan;

    use super::*;
    use crate::apply_settings::InUse;
    use crate::configuration::{Listening, ReadConfig, WorkerLink};
    use crate::health::{Checks, Roster};
    use crate::snapshot::Numbers;

    #[test]
    fn removed_file_wakes_the_thread() {
        let name = format!("tidegate-removed-{}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&folder).expect("a folder");
        let files = ["a.toml", "b.toml"].map(|name| folder.join(name));
        files.iter().for_each(|file| std::fs::write(file, "").expect("a file"));
        let watcher = watcher_of(&[], &files).expect("a watcher");
        let signal = eventfd(0, EventfdFlags::NONBLOCK).expect("a counter");
        let long = Timespec { tv_sec: 60, tv_nsec: 0 };
        std::fs::remove_file(&files[0]).expect("it exists");
        assert_eq!(wait(Some(&watcher), &signal, &long), Woken::Change);
        let moved = std::env::temp_dir().join(format!("tidegate-moved-{}", std::process::id()));
        std::fs::rename(&files[1], &moved).expect("it exists");
        assert_eq!(wait(Some(&watcher), &signal, &long), Woken::Change);
        std::fs::remove_file(moved).expect("it exists");
        std::fs::remove_dir_all(folder).expect("it is ours");
    }

    #[test]
    fn change_between_reading_and_watching_is_reloaded() {
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
        let worker = WorkerLink { sender: mailbox.sender(), in_use: InUse::default() };
        let arranged = Arranged::first(config.clone());
        let roster = Arc::new(Roster::new(&arranged, Vec::new()));
        let checks = Checks::start(roster, &arranged, &Vec::new(), &TlsPlan::default());
        let configuration = Configuration {
            source: None,
            keys: Default::default(),
            memory: Default::default(),
            checks: checks.expect("no server is checked"),
            addresses: Arc::default(),
            numbers: Numbers::of(&config),
            process: tidegate_gate::process_state::ProcessState::new(&config, 0),
            seed: 0,
            passwords: Default::default(),
            scripts: Arc::new([]),
            refused: Vec::new(),
            has_lua_post: false,
            dictionaries: Arc::default(),
            listening: Arc::new(Mutex::new(Listening {
                config: Arc::new(config.clone()),
                lives: Vec::new(),
                earlier: Vec::new(),
                is_stopping: false,
            })),
            read: ReadConfig::new(Arc::clone(&arranged.config)),
            arranged,
            workers: vec![worker],
            takeover: false,
            name_facts: Default::default(),
            unplaced: Default::default(),
            lookups: Default::default(),
            names: Default::default(),
            managed: Vec::new(),
            operations: None,
        };
        let reloader = Reloader::new(configuration, TlsLoader::default(), before);
        let signal = reloader.watch().expect("a thread");
        let mail = loop {
            match mailbox.take() {
                Some(mail) => break mail,
                None => thread::yield_now(),
            }
        };
        assert!(matches!(mail, Mail::Tls(_)));
        drop(signal);
        std::fs::remove_dir_all(folder).expect("it is ours");
    }
}
