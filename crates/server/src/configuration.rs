//! The configuration in force, and its replacement by another one while the process serves.
//! In: a source that reads the configuration again; edits of commands. Out: a snapshot for each worker, one worker after the other, so
//! that listeners are opened in CPU order; log lines that state what has changed, or why nothing has.
//! Never: applies a part of a configuration: a configuration that cannot be used is refused as a whole. All workers have loaded
//! and started the applications of a configuration before it takes effect in any of them. The exception is a shortage of
//! descriptors or memory, or a worker that does not answer, after the first worker has changed: then this worker keeps the
//! previous settings, and the result of the reload says so.
//! Limits: a worker has to begin to apply settings within `APPLY_SPAN`; a reload that has begun is waited for, and reported.
//! Invariant: the workers are changed one after the other, by one thread.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use tidegate_base::Address;
use tidegate_config::SUPPLIED_BYTES_MAX;
use tidegate_config::arrange::{Arranged, Life};
use tidegate_config::findings::{Finding, Owner};
use tidegate_config::live_edit::{self, EditFiles, LiveEdit};
use tidegate_config::model::{Bind, Config, Push, ReloadOn};
use tidegate_config::names::route_names;
use tidegate_gate::inventory::Inventory;
use tidegate_gate::process_state::ProcessState;
use tidegate_reactor::Sender;
use tidegate_secure::TlsPlan;

use crate::admin::{Operations, Reloads};
use crate::apply_settings::{InUse, removed_in_use};
use crate::certificates::{self, TlsLoader};
use crate::dictionary_files::DictionaryFiles;
use crate::events::{self, EventKind};
use crate::files;
use crate::handover::{Handover, Order, Rehearsal};
use crate::health::Checks;
use crate::inheritance::is_at;
use crate::key_fetcher::KeyFetcher;
use crate::listening_sockets;
use crate::live_edits::Edited;
use crate::log;
use crate::memory_watch::MemoryWatch;
use crate::name_follower::NameFollower;
use crate::name_servers;
use crate::passwords::VerifierThreads;
use crate::ports;
use crate::reload::unix_seconds;
use crate::resolve::{self, Addresses, Found, Lookups, Resolution};
use crate::scripts::{self, Renewed, Scripts};
use crate::service_manager;
use crate::slots::NameFacts;
use crate::snapshot::{Numbers, Snapshot};
use crate::start::Mail;
use crate::tokens;

/// How long a worker may take to begin to apply settings.
const APPLY_SPAN: Duration = Duration::from_secs(10);
/// How often a thread that waits for a worker checks whether the process is stopping.
const POLL_EVERY: Duration = Duration::from_millis(50);
/// How long sockets of a removed listener are waited for.
const CLOSING_SPAN_MAX: Duration = Duration::from_secs(1);
/// The pause between two checks of a socket that closes.
const CLOSING_PAUSE: Duration = Duration::from_millis(20);

/// The source of the configuration of a process.
pub trait ConfigSource: Send {
    /// Reads and checks the configuration again; also returns warnings, ready to print.
    ///
    /// # Errors
    /// A message for each mistake, with its place in the file.
    fn read(&mut self) -> Result<(Config, String), String>;

    /// The file that it is read from; then those that it includes, and the folders of their patterns.
    fn paths(&self) -> Vec<PathBuf>;

    /// States the findings about the configuration that was read last, each with its place in the file.
    fn explain(&self, findings: Vec<Finding>) -> String;
}

/// The actual addresses of a worker's listeners, by their index in the configuration.
pub(crate) type Bound = Vec<Option<Address>>;

/// A worker, for the thread that changes the configuration.
pub(crate) struct WorkerLink {
    /// The way to the worker's mailbox.
    pub(crate) sender: Sender<Mail>,
    /// The removed parts that the worker still uses.
    pub(crate) in_use: InUse,
}

/// The facts about the configuration in force that a stop of the process needs.
pub(crate) struct Listening {
    /// The configuration.
    pub(crate) config: Arc<Config>,
    /// By listener.
    pub(crate) lives: Vec<Life>,
    /// By listener: the sockets that listened on its address before this process.
    pub(crate) earlier: Vec<Vec<u64>>,
    /// The process stops: nothing is changed any more.
    pub(crate) is_stopping: bool,
}

/// A configuration as it was read: its indexes are those of the file.
#[derive(Clone)]
pub(crate) struct ReadConfig {
    /// As the file contains it.
    file: Arc<Config>,
    /// With the edits of commands.
    edited: Arc<Config>,
}

impl ReadConfig {
    /// A configuration without edits.
    pub(crate) fn new(file: Arc<Config>) -> Self {
        Self { edited: Arc::clone(&file), file }
    }

    /// The edits.
    fn edits(&self) -> Vec<LiveEdit> {
        match Arc::ptr_eq(&self.file, &self.edited) {
            true => Vec::new(),
            false => live_edit::differences(&self.file, &self.edited),
        }
    }
}

/// Why the configuration changes.
#[derive(Clone, Copy, Debug)]
enum Cause<'f> {
    /// The file was read again. Edits end.
    File,
    /// A command has edited the configuration. The addresses of the names that it has added.
    Edit(&'f Found),
}

/// The configuration in force.
pub(crate) struct Configuration {
    /// The source of the configuration; `None` for the embedded configuration.
    pub(crate) source: Option<Box<dyn ConfigSource>>,
    /// The configuration as it was read, and edited since.
    pub(crate) read: ReadConfig,
    /// The configuration, whose indexes outlive a reload.
    pub(crate) arranged: Arranged,
    /// The addresses of its servers.
    pub(crate) addresses: Arc<Addresses>,
    /// The numbers of values that connections hold for longer than a generation of settings.
    pub(crate) numbers: Numbers,
    /// The state that all workers share.
    pub(crate) process: ProcessState,
    /// The seed of its tables. Not known to clients.
    pub(crate) seed: u64,
    /// Fetches the keys of tokens.
    pub(crate) keys: KeyFetcher,
    /// Measures the memory of the process.
    pub(crate) memory: MemoryWatch,
    /// The threads that verify passwords.
    pub(crate) passwords: VerifierThreads,
    /// The programs of the Lua applications.
    pub(crate) scripts: Scripts,
    /// The files of shared dictionaries.
    pub(crate) dictionaries: Arc<DictionaryFiles>,
    /// The files of scripts that were refused at the last reload.
    pub(crate) refused: Vec<PathBuf>,
    /// The workers pass messages of Lua applications to each other.
    pub(crate) has_lua_post: bool,
    /// The workers, in CPU order.
    pub(crate) workers: Vec<WorkerLink>,
    /// Shared with the main thread.
    pub(crate) listening: Arc<Mutex<Listening>>,
    /// The admin interface, which shows the configuration; `None` if there is none.
    pub(crate) operations: Option<Arc<Operations>>,
    /// The health checks.
    pub(crate) checks: Checks,
    /// The lookups of names at reloads.
    pub(crate) lookups: Lookups,
    /// Resolves them again.
    pub(crate) names: NameFollower,
    /// What is known about the names.
    pub(crate) name_facts: NameFacts,
    /// By pool and name: how many addresses have no slot.
    pub(crate) unplaced: BTreeMap<(String, String), usize>,
    /// The process shares its addresses with another one.
    pub(crate) takeover: bool,
    /// The addresses whose sockets a service manager has, too.
    pub(crate) managed: Vec<Address>,
}

impl Configuration {
    /// The files that are read again when one of them changes; none: only at SIGHUP.
    pub(crate) fn watched(&self) -> Vec<PathBuf> {
        match (&self.source, self.arranged.config.server.reload) {
            (Some(source), ReloadOn::Watch) => {
                let mut paths = source.paths();
                paths.extend(scripts::paths(&self.scripts));
                paths.extend_from_slice(&self.refused);
                paths
            }
            (None, _) | (Some(_), ReloadOn::Signal) => Vec::new(),
        }
    }

    /// Reads the configuration again and applies it. Returns the TLS settings in force then; `None` if nothing has
    /// changed. The reason is in the log.
    pub(crate) fn reload(&mut self, loader: &mut TlsLoader) -> Option<Arc<TlsPlan>> {
        self.note_reload(Reloads::begin);
        let edits = self.read.edits().len();
        let Some(source) = self.source.as_mut() else {
            let refusal = "the process was started without a configuration file";
            self.note_reload(|reloads| reloads.end(Err(refusal)));
            return None;
        };
        service_manager::reloading();
        let reloaded = match source.read() {
            Ok((config, warnings)) => {
                for line in warnings.lines().filter(|line| !line.is_empty()) {
                    let line = line.strip_prefix("warning: ").unwrap_or(line);
                    log::warning(format_args!("{line}"));
                }
                self.replace(config, loader, Cause::File)
            }
            Err(text) => Err(text),
        };
        service_manager::ready();
        let result = match &reloaded {
            Ok((_, shortfall)) => shortfall.as_deref().map_or(Ok(edits), Err),
            Err(text) => Err(&text[..]),
        };
        self.note_reload(|reloads| reloads.end(result));
        match reloaded {
            Ok((plan, _)) => {
                name_servers::warn_of_unusable(&self.arranged.config);
                Some(plan)
            }
            Err(text) => {
                log::error(format_args!(
                    "the configuration was not reloaded; the previous settings stay in force"
                ));
                let why = without_prefix(text.lines().next().unwrap_or_default());
                events::note(EventKind::Reload, format_args!("not reloaded: {why}"));
                for line in text.lines().filter(|line| !line.is_empty()) {
                    log::error(format_args!("{}", without_prefix(line)));
                }
                None
            }
        }
    }

    /// Edits the configuration in force, and applies it as a reload does. Files of applications are not read again. `found` has the
    /// addresses of a name that the edit adds.
    ///
    /// # Errors
    /// Why nothing has changed, or which workers keep the previous settings.
    pub(crate) fn edit(
        &mut self,
        edit: &LiveEdit,
        found: &Found,
        loader: &mut TlsLoader,
    ) -> Result<Edited, String> {
        let mut config = (*self.read.edited).clone();
        let paths = self.source.as_ref().map(|source| source.paths()).unwrap_or_default();
        let folder = paths.first().and_then(|path| path.parent()).and_then(Path::to_str);
        let read = |path: &str| {
            files::read_regular(path, SUPPLIED_BYTES_MAX).map_err(|error| error.to_string())
        };
        let maps_naming = |pool: &str| self.process.maps.naming(pool);
        let files = EditFiles {
            folder: folder.unwrap_or_default(),
            read: &read,
            maps_naming: &maps_naming,
        };
        let route_at = edit.added_route_at(&config);
        if !edit.apply(&mut config, &files)? {
            return Ok(Edited::Unchanged);
        }
        let edited = match route_at {
            None => Edited::Changed,
            Some(at) => Edited::AddedRoute(route_names(&config).swap_remove(at)),
        };
        self.check_managed(&config)?;
        self.check_tls_files(&config)?;
        let replaced = self.replace(config, loader, Cause::Edit(found));
        let (_, shortfall) =
            replaced.map_err(|text| text.strip_prefix("tidegate: ").unwrap_or(&text).to_owned())?;
        shortfall.map_or(Ok(edited), Err)
    }

    /// Refuses to close a socket that a service manager keeps open: clients would wait in its queue, and neither this process nor
    /// one that replaces it could open the address again.
    fn check_managed(&self, next: &Config) -> Result<(), String> {
        for (before, next) in self.read.edited.listeners.iter().zip(&next.listeners) {
            let is_managed = |bind: &Bind| self.managed.iter().any(|of| is_at(bind, of));
            if next.is_off && !before.is_off && is_managed(&next.bind) {
                return Err(format!(
                    "listener {:?} cannot be disabled: the service manager has its socket, too, and keeps it open, so clients \
                     would wait; help: close its routes with `set maintenance`, or stop the socket in the service manager",
                    next.name
                ));
            }
        }
        Ok(())
    }

    /// Refuses new TLS files that are not regular: the thread would wait for a fifo or a device.
    fn check_tls_files(&self, next: &Config) -> Result<(), String> {
        let known: BTreeSet<PathBuf> = certificates::paths(&self.read.edited).into_iter().collect();
        let mut added = certificates::paths(next).into_iter().filter(|path| !known.contains(path));
        // One that is missing is refused when it is read.
        let is_other = |path: &PathBuf| path.metadata().is_ok_and(|of| !of.is_file());
        match added.find(is_other) {
            Some(path) => Err(format!("{}: {}", path.display(), files::NOT_REGULAR)),
            None => Ok(()),
        }
    }

    /// Shows the TLS settings in force to the admin interface.
    pub(crate) fn note_tls(&self, plan: &Arc<TlsPlan>) {
        if let Some(operations) = &self.operations
            && let Ok(mut shown) = operations.tls.lock()
        {
            *shown = Arc::clone(plan);
        }
    }

    /// Reports to the commands that wait for a reload.
    fn note_reload(&self, note: impl FnOnce(&Reloads)) {
        if let Some(operations) = &self.operations {
            note(&operations.reloads);
        }
    }

    /// Applies another configuration, or says why it cannot be used. Also returns which workers keep the previous
    /// settings.
    fn replace(
        &mut self,
        config: Config,
        loader: &mut TlsLoader,
        cause: Cause<'_>,
    ) -> Result<(Arc<TlsPlan>, Option<String>), String> {
        self.check_applications(&config)?;
        let in_use: Vec<InUse> = self.workers.iter().map(|w| Arc::clone(&w.in_use)).collect();
        let in_use = removed_in_use(&in_use, &self.arranged);
        let mut read = config.clone();
        let mut next = self.arranged.next(config, &in_use).map_err(|error| line(&error))?;
        let notes = restart_notes(&self.arranged, &next);
        let kept = Arc::make_mut(&mut next.config);
        kept.log.clone_from(&self.arranged.config.log);
        kept.admin.clone_from(&self.arranged.config.admin);
        kept.keep_traces(self.arranged.config.traces.as_ref());
        read.log.clone_from(&next.config.log);
        read.admin.clone_from(&next.config.admin);
        read.keep_traces(next.config.traces.as_ref());
        let unusable = tokens::check(&next.config);
        if !unusable.is_empty() {
            return Err(self.explain(&next, unusable, cause));
        }
        let renewed = match cause {
            Cause::File => self.renew_scripts(&next)?,
            Cause::Edit(_) => Renewed::unchanged(&self.scripts),
        };
        let known = (&self.arranged, &*self.addresses);
        let resolved = match cause {
            Cause::File => resolve::resolve_after(&next, known, &self.lookups),
            Cause::Edit(found) => resolve::resolve_new(&next, known, found),
        };
        let loaded = loader.load_arranged(&next, unix_seconds());
        let (plan, Resolution { addresses, marks, unresolved }) = match (loaded, resolved) {
            (Ok(plan), Ok(resolution)) => (Arc::new(plan), resolution),
            (loaded, resolved) => {
                let faults = loaded.err().unwrap_or_default().into_iter().map(Finding::from);
                let findings = faults.chain(resolved.err().unwrap_or_default());
                return Err(self.explain(&next, findings.collect(), cause));
            }
        };
        let addresses = Arc::new(addresses);
        let own = &self.arranged.config;
        let (process, lost) = self.process.after(&next, own, self.seed);
        let opened = self.opened(&next);
        self.check_addresses(&next, &opened)?;
        let earlier: Vec<_> =
            opened.iter().map(|at| (*at, earlier_on(&next.config.listeners[*at].bind))).collect();
        self.passwords.follow(&next.config).map_err(|error| {
            format!("tidegate: cannot start a thread that verifies passwords: {error}")
        })?;
        if let Err(text) = self.prepare_apps(&next, &renewed.scripts) {
            // A change of one of these files may fix the error.
            self.refused = scripts::paths(&renewed.scripts);
            return Err(text);
        }
        let applied = self.apply(&mut next, &addresses, (&process, &renewed.scripts), &plan);
        if applied.is_err() {
            self.drop_prepared(self.workers.len());
        }
        let shortfall = applied?;
        process.settle(&next);
        self.process = process;
        if let Err(error) = self.keys.follow(&self.process.keys) {
            log::error(format_args!("cannot start the thread that fetches token keys: {error}"));
        }
        if let Err(error) = self.memory.follow(&self.process.memory) {
            log::error(format_args!("cannot start the thread that measures memory: {error}"));
        }
        unresolved.iter().for_each(|name| log::warning(format_args!("{name}")));
        if let Some(operations) = &self.operations {
            match cause {
                Cause::File => operations.names.note(&next, &addresses, &unresolved),
                Cause::Edit(_) => operations.names.note_new(&next, &addresses),
            }
        }
        self.note_tls(&plan);
        if !renewed.changed.is_empty() {
            log::info(format_args!("lua: new code is in force for {}", renewed.changed.join(", ")));
        }
        self.scripts = renewed.scripts;
        if let Err(error) = self.dictionaries.follow(&next.config, &self.scripts) {
            log::error(format_args!("dictionaries are not written to their files: {error}"));
        }
        for line in notes.into_iter().chain(lost).chain(renewed.notes) {
            log::warning(format_args!("{line}"));
        }
        self.commit(next, addresses, earlier, read, cause);
        self.name_facts.marks.extend(marks);
        let names = resolve::names_of(&self.arranged);
        self.name_facts.retain(&names);
        let resolved = match cause {
            Cause::File => resolve::resolved_of(names, &unresolved),
            Cause::Edit(_) => BTreeSet::new(),
        };
        self.name_facts.lost.retain(|name| !resolved.contains(name));
        let states = self.name_facts.states(&self.arranged, &self.addresses);
        self.checks.change(&self.arranged, &self.addresses, (&plan, &states));
        self.follow_names(resolved);
        Ok((plan, shortfall))
    }

    /// Refuses changes of push hubs, whose state in the workers is created at the start (other keys of the same hubs are
    /// accepted), and settings that need mailboxes that are created only at the start.
    fn check_applications(&self, config: &Config) -> Result<(), String> {
        let own = &self.arranged.config;
        if !has_same_hubs(own, config) {
            return Err(
                "tidegate: settings of [push.NAME] other than its keys have changed, which requires a restart; no change of the file was \
                 applied; help: restart (tidegate ctl upgrade), or undo the change"
                    .to_owned(),
            );
        }
        if !config.lua.is_empty() && !self.has_lua_post && self.workers.len() > 1 {
            return Err(
                "tidegate: the first [lua.NAME] was added, which requires a restart; no change of the file was applied; help: restart \
                 (tidegate ctl upgrade), or remove it"
                    .to_owned(),
            );
        }
        Ok(())
    }

    /// Reads the scripts again, and checks those that have changed.
    fn renew_scripts(&mut self, next: &Arranged) -> Result<Renewed, String> {
        // A dictionary whose size has changed is restored from its file.
        self.dictionaries.save();
        let renewed = scripts::renew((&self.arranged.config, &self.scripts), next);
        self.refused.clear();
        renewed.map_err(|refusal| {
            self.refused = refusal.paths;
            self.explain(next, refusal.findings, Cause::File)
        })
    }

    /// The findings, each at its place in the file. Parts that a command has edited have none.
    fn explain(&self, next: &Arranged, findings: Vec<Finding>, cause: Cause<'_>) -> String {
        if matches!(cause, Cause::Edit(_)) {
            let texts = findings.iter().map(|one| format!("{}: {}", one.subject, one.what));
            return texts.collect::<Vec<_>>().join("; ");
        }
        let place = |of_file: &[usize], index: usize| of_file.iter().position(|at| *at == index);
        let in_file = |mut finding: Finding| {
            finding.owner = match finding.owner {
                Owner::Listener(index) => Owner::Listener(place(&next.file_listeners, index)?),
                Owner::Pool(index) => Owner::Pool(place(&next.file_pools, index)?),
                Owner::Lua(index) => Owner::Lua(place(&next.file_apps, index)?),
                // These have the same indexes as in the file.
                other @ (Owner::Route(_)
                | Owner::Push(_)
                | Owner::Set(_)
                | Owner::Map(_)
                | Owner::Admin
                | Owner::Log
                | Owner::Traces) => other,
            };
            Some(finding)
        };
        let findings = findings.into_iter().filter_map(in_file).collect();
        self.source.as_ref().map_or_else(String::new, |source| source.explain(findings))
    }

    /// The listeners of `next` that are not open yet.
    fn opened(&self, next: &Arranged) -> Vec<usize> {
        let is_open =
            |index: usize| self.arranged.listeners.get(index).is_some_and(|l| !l.is_gone());
        let is_new = |index: &usize| !next.listeners[*index].is_gone() && !is_open(*index);
        (0..next.listeners.len()).filter(is_new).collect()
    }

    /// Refuses addresses that cannot be opened, before any worker changes.
    fn check_addresses(&self, next: &Arranged, opened: &[usize]) -> Result<(), String> {
        let mut refusals = Vec::new();
        for listener in opened.iter().map(|index| &next.config.listeners[*index]) {
            match &listener.bind {
                Bind::Unix(path) => refusals.push(format!(
                    "tidegate: listener {}: unix:{path} is new, but unix sockets are opened only at start; help: restart, or \
                     use an IP address",
                    listener.name
                )),
                Bind::Tcp(address) => {
                    let is_own = self.has_port(address.port());
                    if !is_own && !self.takeover && address.port() != 0 && self.is_taken(*address) {
                        refusals.push(format!("tidegate: {}", ports::refusal(*address)));
                    }
                }
            }
        }
        if refusals.is_empty() { Ok(()) } else { Err(refusals.join("\n")) }
    }

    /// Whether a listener of this process has the port open, perhaps of another address: its socket may be the one that
    /// has the address already.
    fn has_port(&self, port: u16) -> bool {
        let listeners = self.arranged.config.listeners.iter().zip(&self.arranged.listeners);
        listeners
            .filter(|(_, life)| !life.is_gone())
            .any(|(own, _)| matches!(own.bind, Bind::Tcp(own) if own.port() == port))
    }

    /// Whether another process listens on the address. The sockets of a listener of this process that was just removed
    /// close at the end of a turn of each worker, so they are waited for.
    fn is_taken(&self, address: SocketAddr) -> bool {
        let was_own = self
            .arranged
            .config
            .listeners
            .iter()
            .any(|own| matches!(own.bind, Bind::Tcp(own) if own.port() == address.port()));
        let deadline = Instant::now() + CLOSING_SPAN_MAX;
        while ports::is_taken(address) {
            if !was_own || Instant::now() >= deadline {
                return true;
            }
            thread::sleep(CLOSING_PAUSE);
        }
        false
    }

    /// Sends the settings to one worker after the other.
    fn apply(
        &mut self,
        next: &mut Arranged,
        addresses: &Arc<Addresses>,
        (process, scripts): (&ProcessState, &Scripts),
        plan: &Arc<TlsPlan>,
    ) -> Result<Option<String>, String> {
        let mut shortfalls = Vec::new();
        for (number, worker) in self.workers.iter().enumerate() {
            let snapshot = Snapshot::arranged(
                next.clone(),
                Arc::clone(addresses),
                process.clone(),
                &mut self.numbers,
            )
            .with_scripts(Arc::clone(scripts));
            let snapshot = match &self.operations {
                Some(operations) => snapshot.counted_in(&operations.registry, number),
                None => snapshot,
            };
            let (handover, result) = Handover::new((snapshot, Arc::clone(plan)));
            let mail = Mail::Settings(Arc::clone(&handover));
            match self.order(number, worker, mail, (&handover, &result)) {
                Ok(bound) => next.set_bound(&bound),
                // No other worker has changed.
                Err(text) if number == 0 => return Err(format!("tidegate: {text}")),
                Err(text) => {
                    let _ = worker.sender.send(Mail::DropPrepared);
                    let text = format!(
                        "worker {number} keeps the previous settings until the next reload: {text}"
                    );
                    log::error(format_args!("{text}"));
                    shortfalls.push(text);
                }
            }
        }
        let text = || format!("the new settings are in force, but {}", shortfalls.join("; "));
        Ok((!shortfalls.is_empty()).then(text))
    }

    /// Lets all workers load and start the applications that have changed. If one cannot, nothing has changed in any.
    fn prepare_apps(&self, next: &Arranged, scripts: &Scripts) -> Result<(), String> {
        if scripts.is_empty() && self.scripts.is_empty() {
            return Ok(());
        }
        let config = Arc::clone(&next.config);
        for (number, worker) in self.workers.iter().enumerate() {
            let (rehearsal, result) = Rehearsal::new((Arc::clone(&config), Arc::clone(scripts)));
            let mail = Mail::Prepare(Arc::clone(&rehearsal));
            if let Err(text) = self.order(number, worker, mail, (&rehearsal, &result)) {
                self.drop_prepared(number);
                return Err(format!("tidegate: worker {number}: {text}"));
            }
        }
        Ok(())
    }

    /// Lets the first `count` workers drop the applications that they have prepared.
    fn drop_prepared(&self, count: usize) {
        for worker in self.workers.iter().take(count) {
            // A worker without room in its mailbox drops them at the next reload.
            let _ = worker.sender.send(Mail::DropPrepared);
        }
    }

    /// Sends an order to a worker, and waits until the worker has carried it out. Withdraws it if the worker does not begin,
    /// or the process stops.
    fn order<T, U>(
        &self,
        number: usize,
        worker: &WorkerLink,
        mail: Mail,
        (order, result): (&Order<T, U>, &Receiver<Result<U, String>>),
    ) -> Result<U, String> {
        let (mut since, mut unsent) = (Instant::now(), Some(mail));
        loop {
            unsent = unsent.and_then(|mail| worker.sender.send(mail).err());
            match result.recv_timeout(POLL_EVERY) {
                Ok(result) => return result,
                Err(RecvTimeoutError::Disconnected) => {
                    return Err("the worker has ended".to_owned());
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
            let is_stopping = self.listening.lock().is_ok_and(|listening| listening.is_stopping);
            let is_late = since.elapsed() >= APPLY_SPAN;
            match (is_stopping, is_late) {
                (true, _) if order.take().is_some() => {
                    return Err("the process is stopping".to_owned());
                }
                (_, true) if order.take().is_some() => {
                    return Err(format!("the worker has not responded within {APPLY_SPAN:?}"));
                }
                (_, true) => {
                    log::warning(format_args!(
                        "worker {number} has not applied the new settings within {APPLY_SPAN:?}; the reload waits for the worker"
                    ));
                    since = Instant::now();
                }
                (true | false, false) => {}
            }
        }
    }

    /// Notes that `next` is in force, and logs what has changed.
    fn commit(
        &mut self,
        next: Arranged,
        addresses: Arc<Addresses>,
        earlier: Vec<(usize, Vec<u64>)>,
        read: Config,
        cause: Cause<'_>,
    ) {
        let was_open =
            |index: usize| self.arranged.listeners.get(index).is_some_and(|l| !l.is_gone());
        let mut changes = String::new();
        for (index, listener) in next.config.listeners.iter().enumerate() {
            let change = match (was_open(index), !next.listeners[index].is_gone()) {
                (false, true) => "opened",
                (true, false) => "closed",
                (true, true) | (false, false) => continue,
            };
            if let (Bind::Unix(path), "closed") = (&listener.bind, change) {
                let _ = std::fs::remove_file(path);
            }
            changes.push_str(&format!("; {change} {}", place_of(&listener.bind)));
        }
        let live = |gone: &mut dyn Iterator<Item = bool>| gone.filter(|gone| !gone).count();
        let listeners = live(&mut next.listeners.iter().map(Life::is_gone));
        let pools = live(&mut next.pools.iter().map(|pool| pool.life.is_gone()));
        let routes = next.config.routes.len();
        // Equal configurations share their memory.
        let read = if read == *next.config { Arc::clone(&next.config) } else { Arc::new(read) };
        let (what, edits) = self.note_read(read, cause);
        let line = format!(
            "configuration {what}: listeners {listeners}, routes {routes}, pools {pools}{changes}{edits}"
        );
        log::info(format_args!("{line}"));
        events::note(EventKind::Reload, format_args!("{line}"));
        if let Some(operations) = &self.operations
            && let Ok(mut config) = operations.config.lock()
            && let Ok(mut process) = operations.process.lock()
        {
            *config = Arc::clone(&next.config);
            process.clone_from(&self.process);
        }
        if let Ok(mut listening) = self.listening.lock() {
            listening.config = Arc::clone(&next.config);
            listening.lives.clone_from(&next.listeners);
            listening.earlier.resize(next.listeners.len(), Vec::new());
            for (index, sockets) in earlier {
                listening.earlier[index] = sockets;
            }
        }
        self.arranged = next;
        self.addresses = addresses;
        if let Some(operations) = &self.operations {
            operations.registry.follow(&self.arranged);
            operations.edits.note_names(&self.arranged);
        }
    }
}

impl Configuration {
    /// Notes the configuration that was read or edited. Returns the outcome, and how many edits there are or were.
    fn note_read(&mut self, read: Arc<Config>, cause: Cause<'_>) -> (&'static str, String) {
        if let Some(operations) = &self.operations
            && let Ok(mut inventory) = operations.inventory.lock()
        {
            *inventory = Inventory::of(&read);
        }
        let noted = match cause {
            Cause::File => {
                let dropped = self.read.edits().len();
                self.read = ReadConfig::new(read);
                (
                    "reloaded",
                    dropped_note(dropped).map_or_else(String::new, |note| format!("; {note}")),
                )
            }
            Cause::Edit(_) => {
                self.read.edited = read;
                ("edited", format!("; edits in force {}", self.read.edits().len()))
            }
        };
        if let Some(operations) = &self.operations {
            operations.edits.note(&self.read.edits());
        }
        noted
    }
}

/// A line without the prefix that it has on stderr.
fn without_prefix(line: &str) -> &str {
    let rest = line.strip_prefix("error: ").or_else(|| line.strip_prefix("tidegate: "));
    rest.unwrap_or(line)
}

/// States how many edits a reload has dropped.
pub(crate) fn dropped_note(count: usize) -> Option<String> {
    (count > 0).then(|| format!("edits dropped {count}"))
}

/// Whether the push hubs are the same, except for the keys of tokens and of the server API.
fn has_same_hubs(own: &Config, next: &Config) -> bool {
    let hubs = |config: &Config| config.push.iter().map(Push::without_keys).collect::<Vec<_>>();
    hubs(own) == hubs(next)
}

/// The address of a listener, as it is logged.
fn place_of(bind: &Bind) -> String {
    match bind {
        Bind::Tcp(address) => address.to_string(),
        Bind::Unix(path) => format!("unix:{path}"),
    }
}

/// The inodes of the sockets that listen on the address already.
pub(crate) fn earlier_on(bind: &Bind) -> Vec<u64> {
    match bind {
        Bind::Tcp(address) => listening_sockets::listeners_on(*address),
        Bind::Unix(_) => Vec::new(),
    }
}

fn line(error: &dyn core::fmt::Display) -> String {
    format!("tidegate: {error}")
}

/// The settings that have changed and take effect only after a restart.
fn restart_notes(before: &Arranged, after: &Arranged) -> Vec<String> {
    let (old, new) = (&before.config.server, &after.config.server);
    let changed = [
        ("server.workers", old.workers != new.workers),
        ("server.cpus", old.cpus != new.cpus),
        ("server.connections-max", old.connections_max != new.connections_max),
        ("server.steer-by-cpu", old.steer_by_cpu != new.steer_by_cpu),
        ("[admin]", before.config.admin != after.config.admin),
        ("log.access", before.config.log != after.config.log),
        ("[traces]", before.config.traces != after.config.traces),
    ];
    let mut notes: Vec<String> = changed
        .iter()
        .filter(|(_, changed)| *changed)
        .map(|(name, _)| format!("{name} has changed, which takes effect after a restart"))
        .collect();
    let listeners = before.config.listeners.iter().zip(&after.config.listeners);
    for ((old, new), life) in listeners.zip(&after.listeners) {
        if old.backlog != new.backlog && !life.is_gone() {
            notes.push(format!(
                "backlog of listener {} has changed, which takes effect after a restart",
                new.name
            ));
        }
    }
    notes
}

#[cfg(test)]
mod tests;
