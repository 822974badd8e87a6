//! Lua applications: the VM of each on one worker, and the VMs of earlier code that continue for a while (`retired.rs`).
//! In: the configuration, the programs (`scripts.rs`). Out: VMs; what is wrong with a script.
//! Never: reads a script: all workers run the same text. A module is read when a script requires it for the first time.
//! Limits: a VM is replaced if its script keeps most of `memory-max`, or after `EXCESSES_MAX` exceeded budgets in a row over at
//! least `EXCESSES_SPAN`. If it has served nothing since it began, the next one begins after a pause of `PAUSE_MIN` to
//! `PAUSE_MAX`.
//! Invariant: an application without a VM serves no request until its pause is over. Code takes effect after its `on_start` has
//! succeeded. An index below `RETIRED_FROM` names an application for as long as the process lives; one above names a VM of
//! earlier code.

use std::rc::Rc;
use std::sync::Arc;

use tidegate_base::{Moment, Span};
use tidegate_config::findings::Finding;
use tidegate_config::model::{Config, LuaApp, LuaSetting};
use tidegate_lua::{
    Bounds, Budget, CallbackEnd, ClientId, Excess, Facts, Failure, FindModule, Handler,
    OperationId, Outbox, Permissions, Queue, Response, Script, Vm,
};

use crate::broadcasts::Broadcasts;
use crate::figures::AppFigures;
use crate::log;
use crate::randomness::{of_scripts, of_simulated_scripts};
use crate::retired::{RETIRED_FROM, Retired};
pub use crate::script_check::check;
use crate::script_check::lack;
pub use crate::scripts::{Program, Scripts, read};
use crate::scripts::{finding, layer_of};

/// The number of exceeded budgets in a row, without a successful callback in between, after which the VM is replaced.
const EXCESSES_MAX: u32 = 16;
/// The VM is replaced only if no callback has succeeded for this long: one client with slow requests cannot prevent the callbacks
/// of other clients from succeeding for so long.
const EXCESSES_SPAN: Span = Span::from_secs(10);
/// How long an application pauses if its VM has failed without serving anything. Doubled with each failure in a row.
const PAUSE_MIN: Span = Span::from_secs(1);
const PAUSE_MAX: Span = Span::from_secs(60);
/// Lines of a Lua error that are logged.
const TRACE_LINES_MAX: usize = 20;

/// How the budgets of callbacks are measured.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Meter {
    /// By the CPU time of the worker, as configured.
    Time,
    /// By this number of instructions, which is the same in every run.
    Instructions(u64),
}

/// The worker and the numbers of a VM.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    /// The number of the worker, and of all workers.
    worker: (u32, u32),
    /// The number of the VM among those that the worker has had.
    life: u32,
    /// The number in the ids of its clients.
    client_life: u32,
}

impl Place {
    /// The first VM of the only worker.
    pub(crate) const ONLY: Self = Self { worker: (0, 1), life: 0, client_life: 0 };
}

/// Creates a VM and loads a script.
fn load(
    app: &LuaApp,
    program: &Arc<Program>,
    meter: Meter,
    place: Place,
    seed: u64,
) -> Result<Vm, Failure> {
    let (bounds, facts, find) = environment(app, program, meter, place, seed);
    Vm::load(&program.script, &bounds, facts, find)
}

/// Creates a VM that runs the tests of a script.
pub(crate) fn load_tests(
    app: &LuaApp,
    program: &Arc<Program>,
    tests: &Script,
) -> Result<Vm, Failure> {
    let (mut bounds, facts, find) = environment(app, program, Meter::Time, Place::ONLY, 0);
    // The test simulates the server of each socket with another socket.
    bounds.requests_max *= 2;
    Vm::load_tests(tests, &program.script, &bounds, facts, find)
}

/// The environment that a VM needs in addition to its script.
pub(crate) fn environment(
    app: &LuaApp,
    program: &Arc<Program>,
    meter: Meter,
    place: Place,
    seed: u64,
) -> (Bounds, Facts, FindModule) {
    let budget = |span| match meter {
        Meter::Time => Budget::Time(span),
        Meter::Instructions(count) => Budget::Instructions(count),
    };
    let bounds = Bounds {
        budget: budget(app.time_max),
        load_budget: budget(app.start_time_max),
        memory_bytes_max: app.memory_bytes_max,
        jobs_max: app.timers_max,
        requests_max: app.requests_max,
    };
    let randomness = match meter {
        Meter::Time => of_scripts(),
        Meter::Instructions(_) => of_simulated_scripts(seed, (place.worker.0, place.life)),
    };
    let facts = Facts {
        app: app.name.clone(),
        worker: place.worker.0,
        workers: place.worker.1,
        settings: settings_as_json(app),
        seed,
        randomness,
        life: place.life,
        client_life: place.client_life,
        shared: program.shared.clone(),
        queues: program.queues.clone(),
        hubs: Arc::clone(&program.hubs),
        pools: app.pools.clone(),
        permissions: Permissions { io: app.permissions.io, os: app.permissions.os },
        layer: app.layer.map(layer_of),
        phases: program.phases.clone(),
    };
    let program = Arc::clone(program);
    (bounds, facts, Box::new(move |name| program.module(name)))
}

fn settings_as_json(app: &LuaApp) -> Vec<u8> {
    let quoted = |text: &str| {
        let mut out = String::from("\"");
        for character in text.chars() {
            match character {
                '"' | '\\' => out.extend(['\\', character]),
                control if control < ' ' => out.push_str(&format!("\\u{:04x}", control as u32)),
                other => out.push(other),
            }
        }
        out + "\""
    };
    let members = app.settings.iter().map(|(name, value)| {
        let value = match value {
            LuaSetting::Text(text) => quoted(text),
            LuaSetting::Number(number) => number.to_string(),
            LuaSetting::Flag(is) => is.to_string(),
        };
        format!("{}:{value}", quoted(name))
    });
    format!("{{{}}}", members.collect::<Vec<_>>().join(",")).into_bytes()
}

/// One application on one worker, or a VM of its earlier code.
pub(crate) struct App {
    /// The settings that the VM was created with, or will be.
    config: Rc<LuaApp>,
    /// The program of the VM; `None` if the application was removed.
    program: Option<Arc<Program>>,
    /// `None` while the application pauses after failures.
    vm: Option<Vm>,
    /// The number of the VM.
    life: u32,
    /// The number in the ids of its clients.
    client_life: u32,
    /// Exceeded time budgets since a callback succeeded.
    excesses: u32,
    /// When the first of them was exceeded.
    exceeded_at: Moment,
    /// A callback has succeeded since the VM began.
    has_served: bool,
    /// When the application may begin again.
    resumes_at: Moment,
    /// The pause after the next failure.
    pause: Span,
    /// Callbacks of the code that have failed.
    failures: u64,
    /// VMs of the code that were discarded.
    restarts: u64,
    /// The code has `on_access`.
    decides: bool,
    /// Earlier code of the application had `on_access`.
    has_decided: bool,
    /// The broadcasts that the VM has to deliver.
    pub(crate) broadcasts: Broadcasts,
}

/// The applications of a worker, by their index in the configuration.
#[derive(Default)]
pub(crate) struct Apps {
    /// The applications.
    pub(crate) apps: Vec<App>,
    /// The VMs of earlier code, in the order in which they were retired.
    pub(crate) retired: Vec<Retired>,
    /// The index of the next retired VM, above `RETIRED_FROM`.
    pub(crate) next_retired: u16,
    /// The data that a new VM needs.
    origin: Option<Source>,
    /// Scratch space for effects; empty between two callbacks.
    outbox: Outbox,
    /// The time of day at a moment of the reactor's clock, so that scripts see parts of a second.
    anchor: Option<(Moment, u64)>,
    /// When `WorkerTimer::Lua` expires; `None` if it is not set.
    armed: Option<Moment>,
    /// The applications for settings that are about to take effect.
    prepared: Option<Prepared>,
}

/// Applications that are loaded and started for settings that are not in force yet.
struct Prepared {
    /// The programs of these settings.
    scripts: Scripts,
    /// The VMs that were in force, by application.
    before: Vec<Option<u32>>,
    successors: Vec<Successor>,
}

/// The data from which the VMs of a worker are created.
struct Source {
    /// How budgets are measured.
    meter: Meter,
    /// The number of the worker, and of all workers.
    place: (u32, u32),
    /// The seed of the random numbers of scripts.
    seed: u64,
    /// The number of the newest VM. The first VMs have 0.
    lives: u32,
}

/// An application that is new or has changed, loaded and not in force.
pub(crate) struct Successor {
    /// Its index.
    pub(crate) index: usize,
    /// `None` if the application is removed.
    pub(crate) app: Option<App>,
    /// How `on_start` has ended; `None`: it has not run.
    pub(crate) started: Option<CallbackEnd>,
}

impl Apps {
    /// Creates the VMs of a worker.
    ///
    /// # Errors
    /// What is wrong with the scripts.
    pub(crate) fn load(
        config: &Config,
        scripts: &Scripts,
        meter: Meter,
        place: (u32, u32),
        seed: u64,
    ) -> Result<Self, Vec<Finding>> {
        let origin = Some(Source { meter, place, seed, lives: 0 });
        let mut apps = Self { origin, ..Self::default() };
        let at = Place { worker: place, life: 0, client_life: 0 };
        for successor in apps.prepare_all(config, scripts, |_| at)? {
            apps.apps.extend(successor.app);
        }
        Ok(apps)
    }

    /// Loads and starts the changed applications of the next configuration. The effects of `on_start` are carried out when the
    /// applications take effect.
    ///
    /// # Errors
    /// What is wrong with the scripts. Nothing has changed.
    pub(crate) fn prepare(
        &mut self,
        (config, scripts): (&Config, &Scripts),
        now: Moment,
        unix_seconds: u64,
    ) -> Result<Vec<Successor>, Vec<Finding>> {
        let mut successors = self.load_successors(config, scripts)?;
        let (mut findings, time) = (Vec::new(), self.time(now, unix_seconds));
        for Successor { index, app, started } in &mut successors {
            let Some((app, vm)) = app.as_mut().and_then(App::with_vm) else { continue };
            vm.set_time(now, time);
            let verdict = vm.start();
            if let CallbackEnd::Failed(failure) = &verdict {
                report(&app.name, "on_start of the new code", failure);
                let what = format!("on_start: {}", failure.message);
                findings.push(finding(*index, app, what));
            }
            *started = Some(verdict);
        }
        if findings.is_empty() { Ok(successors) } else { Err(findings) }
    }

    /// Keeps applications until the settings with these programs take effect.
    pub(crate) fn keep_prepared(&mut self, scripts: Scripts, successors: Vec<Successor>) {
        let before = self.apps.iter().map(App::running).collect();
        self.prepared = Some(Prepared { scripts, before, successors });
    }

    /// Takes the applications that were prepared for the settings with these programs. `None` if there are none, or if a
    /// VM was discarded since: the ids of its clients would be those of the new one.
    pub(crate) fn take_prepared(&mut self, scripts: &Scripts) -> Option<Vec<Successor>> {
        let prepared = self.prepared.take()?;
        let is_current = self.apps.iter().map(App::running).eq(prepared.before);
        (is_current && Arc::ptr_eq(&prepared.scripts, scripts)).then_some(prepared.successors)
    }

    /// Drops the applications that were prepared: their settings were refused.
    pub(crate) fn drop_prepared(&mut self) {
        self.prepared = None;
    }

    fn load_successors(
        &mut self,
        config: &Config,
        scripts: &Scripts,
    ) -> Result<Vec<Successor>, Vec<Finding>> {
        let Some(source) = &mut self.origin else { return Ok(Vec::new()) };
        let (worker, mut life) = (source.place, source.lives);
        let lives: Vec<(u32, Option<u32>)> = (0..config.lua.len())
            .map(|index| {
                life = life.wrapping_add(1);
                let before = self.apps.get(index).filter(|app| app.vm.is_some());
                (life, before.map(|app| app.client_life))
            })
            .collect();
        source.lives = life;
        self.prepare_all(config, scripts, |index| {
            let (life, client_life) = lives[index];
            Place { worker, life, client_life: client_life.unwrap_or(life) }
        })
    }

    fn prepare_all(
        &self,
        config: &Config,
        scripts: &Scripts,
        place_of: impl Fn(usize) -> Place,
    ) -> Result<Vec<Successor>, Vec<Finding>> {
        let Some(source) = &self.origin else { return Ok(Vec::new()) };
        let (mut successors, mut findings) = (Vec::new(), Vec::new());
        for (index, (app, program)) in config.lua.iter().zip(scripts.iter()).enumerate() {
            let own = self.apps.get(index).and_then(|app| app.program.as_ref());
            let is_same = match (own, program) {
                (Some(own), Some(program)) => Arc::ptr_eq(own, program),
                (None, None) => index < self.apps.len(),
                (Some(_), None) | (None, Some(_)) => false,
            };
            if is_same {
                continue;
            }
            let Some(program) = program else {
                successors.push(Successor { index, app: None, started: None });
                continue;
            };
            let place = place_of(index);
            match load(app, program, source.meter, place, source.seed) {
                Ok(mut vm) => {
                    let lack = lack(config, index, &mut vm);
                    findings.extend(lack.map(|what| finding(index, app, what.to_owned())));
                    let app = App::new(Rc::new(app.clone()), Arc::clone(program), vm, place);
                    successors.push(Successor { index, app: Some(app), started: None });
                }
                Err(failure) => findings.push(finding(index, app, failure.message)),
            }
        }
        if findings.is_empty() { Ok(successors) } else { Err(findings) }
    }

    /// Puts an application in force. Returns the previous one, if it has a VM.
    pub(crate) fn install(&mut self, index: usize, app: Option<App>) -> Option<App> {
        let mut next = app.unwrap_or_else(App::removed);
        next.has_decided = self.apps.get(index).is_some_and(|app| app.decides || app.has_decided);
        if let (Some(vm), Some(before)) = (&mut next.vm, self.present(index)) {
            vm.reserve_clients_of(before);
        }
        if index >= self.apps.len() {
            self.apps.resize_with(index + 1, App::removed);
        }
        let place = self.apps.get_mut(index)?;
        next.broadcasts = place.broadcasts.clone();
        let before = core::mem::replace(place, next);
        before.vm.is_some().then_some(before)
    }

    /// The number of applications and of VMs of earlier code.
    pub(crate) fn len(&self) -> usize {
        self.apps.len() + self.retired.len()
    }

    /// The index of one of them: of the VM at this place in the list of all VMs, in which those of earlier code are last.
    pub(crate) fn index_at(&self, place: usize) -> usize {
        let retired = place.checked_sub(self.apps.len()).and_then(|at| self.retired.get(at));
        retired.map_or(place, |retired| retired.index)
    }

    /// The application, or the VM of earlier code, with this index.
    fn app(&self, index: usize) -> Option<&App> {
        match index < RETIRED_FROM {
            true => self.apps.get(index),
            false => self.retired.iter().find(|old| old.index == index).map(|old| &old.app),
        }
    }

    pub(crate) fn app_mut(&mut self, index: usize) -> Option<&mut App> {
        match index < RETIRED_FROM {
            true => self.apps.get_mut(index),
            false => self.retired.iter_mut().find(|old| old.index == index).map(|old| &mut old.app),
        }
    }

    fn vms(&self) -> impl Iterator<Item = &Vm> {
        let retired = self.retired.iter().map(|old| &old.app);
        self.apps.iter().chain(retired).filter_map(|app| app.vm.as_ref())
    }

    /// Whether a request of a route with this application needs its decision: the code, or, for a request that began with
    /// earlier settings, any earlier code, has `on_access`.
    pub(crate) fn must_decide(&self, app: usize, is_earlier: bool) -> bool {
        self.app(app).is_some_and(|app| app.decides || is_earlier && app.has_decided)
    }

    /// The VM of an application, with the present time; `None` while the application pauses.
    pub(crate) fn vm(&mut self, app: usize, now: Moment, unix_seconds: u64) -> Option<&mut Vm> {
        self.replace(app, now);
        let time = self.time(now, unix_seconds);
        let vm = self.app_mut(app)?.vm.as_mut()?;
        vm.set_time(now, time);
        Some(vm)
    }

    /// The VM of an application, to give something back to it.
    pub(crate) fn present(&mut self, app: usize) -> Option<&mut Vm> {
        self.app_mut(app)?.vm.as_mut()
    }

    /// The same, to read.
    pub(crate) fn peek(&self, app: usize) -> Option<&Vm> {
        self.app(app)?.vm.as_ref()
    }

    /// Begins an application again after its pause.
    fn replace(&mut self, index: usize, now: Moment) {
        let (Some(app), Some(source)) = (self.apps.get_mut(index), &mut self.origin) else {
            return;
        };
        let Some(program) = &app.program else { return };
        if app.vm.is_some() || now < app.resumes_at {
            return;
        }
        source.lives = source.lives.wrapping_add(1);
        (app.life, app.client_life) = (source.lives, source.lives);
        let config = &app.config;
        let place = Place { worker: source.place, life: app.life, client_life: app.life };
        let loaded = load(config, program, source.meter, place, source.seed);
        let started = loaded.and_then(|mut vm| match vm.start() {
            CallbackEnd::Done | CallbackEnd::Waiting => Ok(vm),
            CallbackEnd::Failed(failure) => Err(failure),
        });
        match started {
            Ok(vm) => {
                log::info(format_args!("lua {}: the application was started again", config.name));
                app.vm = Some(vm);
                app.excesses = 0;
                app.has_served = false;
            }
            Err(failure) => {
                report(&config.name, "starting the application again", &failure);
                app.resumes_at = now.after(app.pause);
                app.pause = (app.pause * 2).min(PAUSE_MAX);
            }
        }
    }

    /// Seconds since 1970.
    fn time(&mut self, now: Moment, unix_seconds: u64) -> f64 {
        let (at, seconds) = *self.anchor.get_or_insert((now, unix_seconds));
        let time = seconds as f64 + now.since(at).as_nanos() as f64 / 1e9;
        if (time - unix_seconds as f64).abs() < 2.0 {
            return time;
        }
        // The time of day was set.
        self.anchor = Some((now, unix_seconds));
        unix_seconds as f64
    }

    /// Notes how a callback ended, and logs a failure. Returns whether the VM was discarded: then the caller must release
    /// everything that it held.
    pub(crate) fn note(
        &mut self,
        index: usize,
        what: &str,
        verdict: &CallbackEnd,
        now: Moment,
    ) -> bool {
        let Some(app) = self.app_mut(index) else { return false };
        let config = &app.config;
        let failure = match verdict {
            CallbackEnd::Done | CallbackEnd::Waiting => {
                app.excesses = 0;
                app.pause = PAUSE_MIN;
                app.has_served = true;
                return false;
            }
            CallbackEnd::Failed(failure) => failure,
        };
        app.failures += 1;
        report(&config.name, what, failure);
        let Some(excess) = failure.excess else { return false };
        // The garbage of the callback was collected.
        let used = app.vm.as_ref().map_or(0, Vm::used_bytes);
        let is_broken = match excess {
            Excess::Memory => is_much(used, config),
            Excess::Wait => false,
            Excess::Time => {
                if app.excesses == 0 {
                    app.exceeded_at = now;
                }
                app.excesses += 1;
                app.excesses >= EXCESSES_MAX && now.since(app.exceeded_at) >= EXCESSES_SPAN
            }
        };
        if !is_broken {
            return false;
        }
        log::error(format_args!(
            "lua {}: the VM is discarded: time budgets exceeded in a row: {}; memory held: {used} bytes",
            config.name, app.excesses,
        ));
        app.vm = None;
        app.broadcasts = Broadcasts::default();
        app.restarts += 1;
        app.resumes_at = now;
        if !app.has_served {
            app.resumes_at = now.after(app.pause);
            app.pause = (app.pause * 2).min(PAUSE_MAX);
        }
        true
    }

    /// Whether the VM of an application holds so much memory that `note` discards it after a failure for lack of memory.
    pub(crate) fn would_be_discarded(&self, index: usize) -> bool {
        let vm = self.app(index).and_then(|app| app.vm.as_ref().zip(Some(&app.config)));
        vm.is_some_and(|(vm, config)| is_much(vm.used_bytes(), config))
    }

    /// The name of an application.
    pub(crate) fn name(&self, app: usize) -> &str {
        self.settings(app).map_or("", |app| &app.name)
    }

    /// The index of the application of this name.
    pub(crate) fn named(&self, name: &str) -> Option<usize> {
        self.apps.iter().position(|app| app.program.is_some() && app.config.name == name)
    }

    /// What is wrong with an application, for a message at its place in the configuration.
    pub(crate) fn finding(&self, app: usize, what: String) -> Option<Finding> {
        Some(finding(app, self.settings(app)?, what))
    }

    /// The settings of an application.
    pub(crate) fn settings(&self, app: usize) -> Option<&LuaApp> {
        self.app(app).map(|app| &*app.config)
    }

    /// A queue has got a value: lets one coroutine that waits for it continue. Returns false if none waits on this worker.
    pub(crate) fn note_queue(&mut self, queue: &Arc<Queue>) -> bool {
        let retired = self.retired.iter_mut().map(|old| &mut old.app);
        let mut vms = self.apps.iter_mut().chain(retired).filter_map(|app| app.vm.as_mut());
        vms.any(|vm| vm.note_queue(queue))
    }

    /// Takes the effects of the last callback; give the outbox back with `put_outbox`.
    pub(crate) fn take_outbox(&mut self, app: usize) -> Outbox {
        let mut outbox = core::mem::take(&mut self.outbox);
        if let Some(vm) = self.present(app) {
            vm.take_outbox(&mut outbox);
        }
        outbox
    }

    /// The applications with this handler, by their index. An application whose VM is still to be started again may have it.
    pub(crate) fn with(&mut self, handler: Handler) -> Vec<bool> {
        let has = |app: &mut App| match &mut app.vm {
            Some(vm) => vm.has(handler),
            None => app.program.is_some(),
        };
        self.apps.iter_mut().map(has).collect()
    }

    /// Whether an application runs in its VM with this number.
    pub(crate) fn is_running(&self, app: usize, life: u32) -> bool {
        self.app(app).is_some_and(|app| app.life == life && app.vm.is_some())
    }

    /// The number of the VM of an application.
    pub(crate) fn life(&self, app: usize) -> u32 {
        self.app(app).map_or(0, |app| app.life)
    }

    /// Whether the ids of clients of both indexes have the same number: one VM may reserve those of the other.
    pub(crate) fn shares_clients(&self, one: usize, other: usize) -> bool {
        let life = |index| self.app(index).map(|app| app.client_life);
        life(one).is_some() && life(one) == life(other)
    }

    /// Gives the result of an operation to the VM with this number, if the VM still exists.
    pub(crate) fn complete(
        &mut self,
        app: usize,
        life: u32,
        operation: OperationId,
        reply: Result<&[u8], &str>,
    ) {
        if let Some(vm) = self.present(app) {
            vm.complete(life, operation, reply);
        }
    }

    /// Gives the response to a request of the VM with this number, if the VM still exists.
    pub(crate) fn complete_request(
        &mut self,
        app: usize,
        life: u32,
        operation: OperationId,
        reply: Result<Response, &str>,
    ) {
        if let Some(vm) = self.present(app) {
            vm.complete_request(life, operation, reply);
        }
    }

    /// The server's name of a client of an application, by its id, whichever VM of the application it belongs to.
    pub(crate) fn tag_of(&self, app: usize, life: u32, client: ClientId) -> Option<u64> {
        let old = self.retired.iter().filter(|old| old.of == app).map(|old| &old.app);
        let vms = self.apps.get(app).into_iter().chain(old).filter_map(|app| app.vm.as_ref());
        vms.filter_map(|vm| vm.tag_of(life, client)).next()
    }

    /// Keeps the memory of an outbox.
    pub(crate) fn put_outbox(&mut self, mut outbox: Outbox) {
        outbox.clear();
        self.outbox = outbox;
    }

    /// Whether a callback, a timer or a thread can continue.
    pub(crate) fn has_ready(&self) -> bool {
        self.vms().any(Vm::is_ready)
    }

    /// The time at which an application has something to do, if `WorkerTimer::Lua` must be set earlier for it.
    pub(crate) fn arm(&mut self, app: usize) -> Option<Moment> {
        let due = self.present(app)?.next_due()?;
        self.arm_at(due)
    }

    /// Returns a time if `WorkerTimer::Lua` must be set to it.
    pub(crate) fn arm_at(&mut self, due: Moment) -> Option<Moment> {
        let is_earlier = self.armed.is_none_or(|armed| due < armed);
        is_earlier.then(|| *self.armed.insert(due))
    }

    /// `WorkerTimer::Lua` has expired: makes ready the timers that are due.
    pub(crate) fn collect_due(&mut self, now: Moment, unix_seconds: u64) {
        self.armed = None;
        for place in 0..self.len() {
            if let Some(vm) = self.vm(self.index_at(place), now, unix_seconds) {
                vm.collect_due();
            }
        }
    }

    /// The figures of the worker's VM of each application, then of the VMs of earlier code.
    pub(crate) fn figures(&self) -> Vec<AppFigures> {
        let earlier = self.retired.iter().map(|old| (&old.app, true));
        let all = self.apps.iter().map(|app| (app, false)).chain(earlier);
        all.filter(|(app, _)| app.program.is_some()).map(|(app, is)| app.figures(is)).collect()
    }

    /// The sum of a number of each VM.
    pub(crate) fn sum(&self, of: impl Fn(&Vm) -> usize) -> usize {
        self.vms().map(of).sum()
    }
}

/// Whether a VM has so little memory after a collection that its callbacks would continue to fail.
fn is_much(used: usize, config: &LuaApp) -> bool {
    used > config.memory_bytes_max / 4 * 3
}

impl App {
    fn new(config: Rc<LuaApp>, program: Arc<Program>, vm: Vm, place: Place) -> Self {
        let Place { life, client_life, .. } = place;
        let decides = vm.has(Handler::Access);
        let program = Some(program);
        Self { program, vm: Some(vm), life, client_life, decides, ..Self::of(config) }
    }

    /// The number of the VM.
    fn running(&self) -> Option<u32> {
        self.vm.as_ref().map(|_| self.life)
    }

    fn figures(&self, is_earlier: bool) -> AppFigures {
        let of_vm = |figure: fn(&Vm) -> usize| self.vm.as_ref().map_or(0, figure) as u64;
        AppFigures {
            name: self.config.name.clone(),
            is_earlier,
            runs: self.vm.is_some(),
            used_bytes: of_vm(Vm::used_bytes),
            bytes_max: self.config.memory_bytes_max as u64,
            clients: of_vm(Vm::clients),
            requests: of_vm(Vm::requests),
            waiting: of_vm(Vm::waiting),
            timers: of_vm(Vm::jobs),
            failures: self.failures,
            restarts: self.restarts,
        }
    }

    /// The settings and the VM.
    fn with_vm(&mut self) -> Option<(&LuaApp, &mut Vm)> {
        self.vm.as_mut().map(|vm| (&*self.config, vm))
    }

    /// An application that was removed.
    pub(crate) fn removed() -> Self {
        Self::of(Rc::default())
    }

    /// The same, to read.
    pub(crate) fn running_vm(&self) -> Option<&Vm> {
        self.vm.as_ref()
    }

    /// The VM; `None` if it was discarded.
    pub(crate) fn vm(&mut self) -> Option<&mut Vm> {
        self.vm.as_mut()
    }

    /// How long the VM may continue after other code has replaced it.
    pub(crate) fn grace(&self) -> Span {
        self.config.reload_grace
    }

    fn of(config: Rc<LuaApp>) -> Self {
        Self {
            config,
            program: None,
            vm: None,
            life: 0,
            client_life: 0,
            excesses: 0,
            exceeded_at: Moment::ZERO,
            has_served: false,
            resumes_at: Moment::ZERO,
            pause: PAUSE_MIN,
            failures: 0,
            restarts: 0,
            decides: false,
            has_decided: false,
            broadcasts: Broadcasts::default(),
        }
    }
}

/// Logs a Lua error: the message and the traceback, a line each.
pub(crate) fn report(app: &str, what: &str, failure: &Failure) {
    log::error(format_args!("lua {app}: {what}: {}", failure.message));
    for line in failure.trace.lines().take(TRACE_LINES_MAX) {
        log::error(format_args!("lua {app}:   {}", line.trim()));
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use tidegate_config::findings::Owner;
    use tidegate_config::report::Kind;

    use super::*;

    /// A configuration with one application whose script is `text`, in a folder of its own.
    fn config(name: &str, text: &str) -> Config {
        let folder =
            std::env::temp_dir().join(format!("tidegate-apps-{name}-{}", std::process::id()));
        fs::create_dir_all(folder.join("lib")).expect("the folder can be created");
        let script = folder.join("app.lua");
        fs::write(&script, text).expect("the script can be written");
        fs::write(folder.join("lib/greet.lua"), "return 'hi'").expect("the module can be written");
        let script = script.display();
        let text = format!(
            "[[listener]]\nbind = \"127.0.0.1:0\"\n[[route]]\nlua = \"a\"\n[lua.a]\nscript = \"{script}\"\n\
             memory-max = \"1MiB\"\n"
        );
        tidegate_config::parse(&text, "the test").expect("it is valid")
    }

    #[test]
    fn wrong_script_is_found_with_file_line_and_message() {
        let sound = "assert(require('lib.greet') == 'hi') return { on_request = function() end }";
        assert_eq!(check(&config("sound", sound)), []);
        let findings = check(&config("syntax", "local x =\nreturn {"));
        let [finding] = &findings[..] else { panic!("{findings:?}") };
        assert!(finding.what.contains("app.lua:2: "), "{finding:?}");
        assert_eq!((finding.kind, finding.owner), (Kind::Script, Owner::Lua(0)));
        for (name, text) in [("escape", "require('..app')"), ("missing", "require('lib.none')")] {
            assert_eq!(check(&config(name, text)).len(), 1, "{text}");
        }
        let mut absent = config("absent", "");
        absent.lua[0].script = "/nonexistent/app.lua".to_owned();
        assert!(check(&absent)[0].what.contains("cannot be read"));
    }

    #[test]
    fn application_that_keeps_exceeding_its_budget_begins_again() {
        let config = config(
            "excess",
            "local n = 0 return { on_stop = function() while true do n = n + 1 end end }",
        );
        let scripts = read(&config).expect("it is readable");
        let loaded = Apps::load(&config, &scripts, Meter::Instructions(10_000), (0, 1), 1);
        let mut apps = loaded.expect("it loads");
        let mut now = Moment::ZERO.after(Span::from_secs(1));
        let fail = |apps: &mut Apps, now| {
            let verdict = apps.vm(0, now, 100).expect("it runs").stop();
            apps.note(0, "on_stop", &verdict, now)
        };
        assert!((0..100).all(|_| !fail(&mut apps, now)), "a burst of one client");
        now = now.after(EXCESSES_SPAN);
        assert!(fail(&mut apps, now));
        assert!(apps.vm(0, now, 100).is_none(), "it pauses, because it has served nothing");
        now = now.after(PAUSE_MIN);
        assert!(apps.vm(0, now, 101).is_some(), "it begins again");
        assert!(!apps.note(0, "on_stop", &CallbackEnd::Done, now));
        assert!(!fail(&mut apps, now));
        now = now.after(EXCESSES_SPAN);
        assert!((2..EXCESSES_MAX).all(|_| !fail(&mut apps, now)));
        assert!(fail(&mut apps, now));
        assert!(apps.vm(0, now, 120).is_some(), "without a pause, because it has served");
    }

    #[test]
    fn requests_for_too_much_memory_do_not_stop_the_application() {
        let config = config(
            "bomb",
            "return { on_stop = function() return string.rep('x', 900000) .. string.rep('y', 900000) end }",
        );
        let scripts = read(&config).expect("it is readable");
        let loaded = Apps::load(&config, &scripts, Meter::Time, (0, 1), 1);
        let mut apps = loaded.expect("it loads");
        let mut now = Moment::ZERO.after(Span::from_secs(1));
        for _ in 0..100 {
            now = now.after(Span::from_secs(1));
            let verdict = apps.vm(0, now, 100).expect("it runs").stop();
            let CallbackEnd::Failed(failure) = &verdict else { panic!("it has enough memory") };
            assert_eq!(failure.excess, Some(Excess::Memory));
            assert!(!apps.note(0, "on_stop", &verdict, now));
        }
        assert!(apps.apps[0].vm.as_ref().is_some_and(|vm| vm.used_bytes() < 512 * 1024));
    }
}
