//! Lua applications: their files, and the VM of each on one worker.
//! In: the configuration, the folders of the scripts. Out: VMs; what is wrong with a script.
//! Never: reads a script while it serves, except for a module that a script requires for the first time: the script
//! itself is read at start, so all workers run the same text.
//! Limits: `FILE_BYTES_MAX` bytes of a script or module; a VM is replaced if its script keeps most of the memory it may,
//! or after `EXCESSES_MAX` exceeded budgets in a row within at least `EXCESSES_SPAN`. If it has served nothing since it
//! began, the next one begins after a pause of `PAUSE_MIN` to `PAUSE_MAX`.
//! Invariant: an application without a VM answers nothing until its pause is over.

use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

use tidegate_base::{Moment, Span};
use tidegate_config::model::{Config, LuaApp, LuaSetting, Route};
use tidegate_config::places::{Finding, Owner};
use tidegate_config::report::Kind;
use tidegate_lua::{
    Bounds, Budget, Dictionary, Excess, Facts, Failure, FindModule, Handler, OperationId, Outbox,
    Response, Script, Verdict, Vm,
};

use crate::files;
use crate::log;

/// Bytes of a script or a module.
const FILE_BYTES_MAX: u64 = 4 * 1024 * 1024;
/// Exceeded budgets in a row, without a callback between them that ended well, until the VM is replaced.
const EXCESSES_MAX: u32 = 16;
/// How long no callback has ended well until the VM is replaced. One client with slow requests cannot keep the callbacks of
/// the others from ending well for so long.
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

/// The scripts of all applications and what their VMs share, by their index in the configuration.
pub type Scripts = Arc<[Program]>;

/// An application, as every worker loads it.
#[derive(Clone, Debug)]
pub struct Program {
    /// The name and the text of the script.
    script: Script,
    /// The dictionaries, by name.
    shared: Vec<(String, Arc<Dictionary>)>,
    /// The names of the push hubs.
    hubs: Arc<[String]>,
}

impl Program {
    /// An application with nothing but its script.
    pub(crate) fn alone(script: Script) -> Self {
        Self { script, shared: Vec::new(), hubs: Arc::new([]) }
    }
}

/// The modules of an application that do not come from files; for tests.
type Find = Rc<dyn Fn(&str) -> Result<Option<(String, Vec<u8>)>, String>>;

/// Reads the scripts of all applications.
///
/// # Errors
/// The scripts that cannot be read.
pub fn read(config: &Config) -> Result<Scripts, Vec<Finding>> {
    let mut findings = Vec::new();
    let mut scripts = Vec::new();
    let hubs: Arc<[String]> = config.push.iter().map(|hub| hub.name.clone()).collect();
    for (index, app) in config.lua.iter().enumerate() {
        match read_file(Path::new(&app.script)) {
            Ok(text) => scripts.push(Program {
                script: Script { file: app.script.clone(), text },
                shared: dictionaries(app),
                hubs: Arc::clone(&hubs),
            }),
            Err(what) => findings.push(finding(index, app, what)),
        }
    }
    if findings.is_empty() { Ok(scripts.into()) } else { Err(findings) }
}

fn dictionaries(app: &LuaApp) -> Vec<(String, Arc<Dictionary>)> {
    let new = |(name, bytes): &(String, usize)| (name.clone(), Arc::new(Dictionary::new(*bytes)));
    app.shared.iter().map(new).collect()
}

/// Loads every script once, as `tidegate check` does. Returns what is wrong.
#[must_use]
pub fn check(config: &Config) -> Vec<Finding> {
    let scripts = match read(config) {
        Ok(scripts) => scripts,
        Err(findings) => return findings,
    };
    let fails = |(index, app)| {
        let what = match load(app, &scripts[index], Meter::Time, Place::ONLY, 0) {
            Ok(mut vm) => lack(config, index, &mut vm)?.to_owned(),
            Err(failure) => failure.message,
        };
        Some(finding(index, app, what))
    };
    config.lua.iter().enumerate().filter_map(fails).collect()
}

/// The handler that routes need and the script lacks.
fn lack(config: &Config, app: usize, vm: &mut Vm) -> Option<&'static str> {
    let hooks = |route: &Route| route.handling.hooks.as_ref().is_some_and(|hooks| hooks.app == app);
    let of_hooks = [Handler::Access, Handler::Response, Handler::Log];
    let lacks = config.routes.iter().any(hooks) && !of_hooks.into_iter().any(|of| vm.has(of));
    lacks.then_some("has no handler for `hooks` of a route: on_access, on_response or on_log")
}

fn finding(index: usize, app: &LuaApp, what: String) -> Finding {
    Finding {
        kind: Kind::Script,
        owner: Owner::Lua(index),
        subject: app.script.clone(),
        what,
        help: None,
    }
}

pub(crate) fn read_file(path: &Path) -> Result<Vec<u8>, String> {
    let text =
        files::read(path, FILE_BYTES_MAX).map_err(|error| format!("cannot be read: {error}"))?;
    match text.len() as u64 > FILE_BYTES_MAX {
        true => Err(format!("is larger than {FILE_BYTES_MAX} bytes")),
        false => Ok(text),
    }
}

/// Finds modules in the folder of a script: `a.b` is `a/b.lua` or `a/b/init.lua`.
fn modules_in(folder: PathBuf) -> Find {
    Rc::new(move |name| {
        let is_plain = |part: &str| {
            let fits = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
            !part.is_empty() && part.bytes().all(fits)
        };
        if !name.split('.').all(is_plain) {
            return Err("a module's name consists of letters, digits, '_', '-' and '.'".to_owned());
        }
        let path = folder.join(name.replace('.', "/"));
        for file in [path.with_extension("lua"), path.join("init.lua")] {
            if file.is_file() {
                let text = read_file(&file).map_err(|what| format!("{} {what}", file.display()))?;
                return Ok(Some((file.display().to_string(), text)));
            }
        }
        Ok(None)
    })
}

/// Where a VM runs.
#[derive(Clone, Copy, Debug)]
struct Place {
    /// The number of the worker, and of all workers.
    worker: (u32, u32),
    /// The number of the VM among those that the worker has had for the application.
    life: u32,
}

impl Place {
    /// The first VM of the only worker.
    const ONLY: Self = Self { worker: (0, 1), life: 0 };
}

/// Creates a VM and loads a script.
fn load(
    app: &LuaApp,
    program: &Program,
    meter: Meter,
    place: Place,
    seed: u64,
) -> Result<Vm, Failure> {
    let (bounds, facts, find) = environment(app, program, meter, place, seed);
    Vm::load(&program.script, &bounds, facts, find)
}

/// Creates a VM that runs the tests of a script.
pub(crate) fn load_tests(app: &LuaApp, program: &Program, tests: &Script) -> Result<Vm, Failure> {
    let (bounds, facts, find) = environment(app, program, Meter::Time, Place::ONLY, 0);
    Vm::load_tests(tests, &program.script, &bounds, facts, find)
}

/// What a VM needs besides its script.
fn environment(
    app: &LuaApp,
    program: &Program,
    meter: Meter,
    place: Place,
    seed: u64,
) -> (Bounds, Facts, FindModule) {
    let script = &program.script;
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
    let facts = Facts {
        app: app.name.clone(),
        worker: place.worker.0,
        workers: place.worker.1,
        settings: settings_as_json(app),
        seed,
        life: place.life,
        shared: program.shared.clone(),
        hubs: Arc::clone(&program.hubs),
        pools: app.pools.clone(),
    };
    let folder = Path::new(&script.file).parent().unwrap_or(Path::new("")).to_path_buf();
    let find = modules_in(folder);
    (bounds, facts, Box::new(move |name| find(name)))
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

/// One application on one worker.
struct App {
    /// `None` while the application pauses after failures.
    vm: Option<Vm>,
    /// The number of the VM.
    life: u32,
    /// Exceeded time budgets since a callback ended well.
    excesses: u32,
    /// When the first of them was exceeded.
    exceeded_at: Moment,
    /// A callback has ended well since the VM began.
    has_served: bool,
    /// When the application may begin again.
    resumes_at: Moment,
    /// The pause after the next failure.
    pause: Span,
}

/// The applications of a worker, by their index in the configuration.
#[derive(Default)]
pub(crate) struct Apps {
    /// The applications.
    apps: Vec<App>,
    /// What a new VM needs.
    origin: Option<Source>,
    /// Scratch space for effects; empty between two callbacks.
    outbox: Outbox,
    /// The time of day at a moment of the reactor's clock, so that scripts see parts of a second.
    anchor: Option<(Moment, u64)>,
    /// When `WorkerTimer::Lua` expires; `None` if it is not set.
    armed: Option<Moment>,
}

/// What the VMs of a worker are created from.
struct Source {
    /// The settings of the applications.
    config: Vec<LuaApp>,
    /// Their scripts and dictionaries.
    scripts: Scripts,
    /// How budgets are measured.
    meter: Meter,
    /// The number of the worker, and of all workers.
    place: (u32, u32),
    /// The seed of the random numbers of scripts.
    seed: u64,
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
        let (mut apps, mut findings) = (Vec::new(), Vec::new());
        for (index, (app, script)) in config.lua.iter().zip(scripts.iter()).enumerate() {
            match load(app, script, meter, Place { worker: place, life: 0 }, seed) {
                Ok(mut vm) => {
                    let lack = lack(config, index, &mut vm);
                    findings.extend(lack.map(|what| finding(index, app, what.to_owned())));
                    apps.push(App::new(vm));
                }
                Err(failure) => findings.push(finding(index, app, failure.message)),
            }
        }
        if !findings.is_empty() {
            return Err(findings);
        }
        let config = config.lua.clone();
        let origin = Some(Source { config, scripts: Arc::clone(scripts), meter, place, seed });
        Ok(Self { apps, origin, outbox: Outbox::default(), anchor: None, armed: None })
    }

    /// The number of applications.
    pub(crate) fn len(&self) -> usize {
        self.apps.len()
    }

    /// The VM of an application, with the present time; `None` while the application pauses.
    pub(crate) fn vm(&mut self, app: usize, now: Moment, unix_seconds: u64) -> Option<&mut Vm> {
        self.replace(app, now);
        let time = self.time(now, unix_seconds);
        let vm = self.apps.get_mut(app)?.vm.as_mut()?;
        vm.set_time(now, time);
        Some(vm)
    }

    /// The VM of an application, to give something back to it.
    pub(crate) fn present(&mut self, app: usize) -> Option<&mut Vm> {
        self.apps.get_mut(app)?.vm.as_mut()
    }

    /// Begins an application again after its pause.
    fn replace(&mut self, index: usize, now: Moment) {
        let (Some(app), Some(source)) = (self.apps.get_mut(index), &self.origin) else { return };
        if app.vm.is_some() || now < app.resumes_at {
            return;
        }
        let (config, script) = (&source.config[index], &source.scripts[index]);
        app.life = app.life.wrapping_add(1);
        let place = Place { worker: source.place, life: app.life };
        let loaded = load(config, script, source.meter, place, source.seed);
        let started = loaded.and_then(|mut vm| match vm.start() {
            Verdict::Done | Verdict::Waiting => Ok(vm),
            Verdict::Failed(failure) => Err(failure),
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

    /// Notes how a callback ended, and logs a failure. Returns whether the VM is gone: everything that it held has to be
    /// given up.
    pub(crate) fn note(
        &mut self,
        index: usize,
        what: &str,
        verdict: &Verdict,
        now: Moment,
    ) -> bool {
        let (Some(app), Some(source)) = (self.apps.get_mut(index), &self.origin) else {
            return false;
        };
        let config = &source.config[index];
        let failure = match verdict {
            Verdict::Done | Verdict::Waiting => {
                app.excesses = 0;
                app.pause = PAUSE_MIN;
                app.has_served = true;
                return false;
            }
            Verdict::Failed(failure) => failure,
        };
        report(&config.name, what, failure);
        let Some(excess) = failure.excess else { return false };
        // What a callback has left behind was collected.
        let used = app.vm.as_ref().map_or(0, Vm::used_bytes);
        let is_broken = match excess {
            Excess::Memory => is_much(used, config),
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
            "lua {}: the application is started again: time budgets exceeded in a row: {}; memory held: {used} bytes",
            config.name, app.excesses,
        ));
        app.vm = None;
        app.resumes_at = now;
        if !app.has_served {
            app.resumes_at = now.after(app.pause);
            app.pause = (app.pause * 2).min(PAUSE_MAX);
        }
        true
    }

    /// Whether the VM of an application holds so much memory that `note` discards it after a failure for lack of memory.
    pub(crate) fn is_strained(&self, index: usize) -> bool {
        let vm = self.apps.get(index).and_then(|app| app.vm.as_ref());
        vm.zip(self.settings(index)).is_some_and(|(vm, config)| is_much(vm.used_bytes(), config))
    }

    /// The name of an application.
    pub(crate) fn name(&self, app: usize) -> &str {
        let source = self.origin.as_ref();
        source.and_then(|source| source.config.get(app)).map_or("", |app| &app.name)
    }

    /// What is wrong with an application, for a message at its place in the configuration.
    pub(crate) fn finding(&self, app: usize, what: String) -> Option<Finding> {
        Some(finding(app, self.settings(app)?, what))
    }

    /// The settings of an application.
    pub(crate) fn settings(&self, app: usize) -> Option<&LuaApp> {
        self.origin.as_ref()?.config.get(app)
    }

    /// Takes the effects of the last callback; give the outbox back with `put_outbox`.
    pub(crate) fn take_outbox(&mut self, app: usize) -> Outbox {
        let mut outbox = core::mem::take(&mut self.outbox);
        if let Some(vm) = self.present(app) {
            vm.take_outbox(&mut outbox);
        }
        outbox
    }

    /// The applications with this handler, by their index.
    pub(crate) fn with(&mut self, handler: Handler) -> Vec<bool> {
        let has = |app: &mut App| app.vm.as_mut().is_some_and(|vm| vm.has(handler));
        self.apps.iter_mut().map(has).collect()
    }

    /// Whether an application runs in its VM with this number.
    pub(crate) fn is_running(&self, app: usize, life: u32) -> bool {
        self.apps.get(app).is_some_and(|app| app.life == life && app.vm.is_some())
    }

    /// The number of the VM of an application.
    pub(crate) fn life(&self, app: usize) -> u32 {
        self.apps.get(app).map_or(0, |app| app.life)
    }

    /// Gives the result of an operation to the VM with this number, unless that is gone.
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

    /// Gives the response to a request of the VM with this number, unless that is gone.
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

    /// Keeps the memory of an outbox.
    pub(crate) fn put_outbox(&mut self, mut outbox: Outbox) {
        outbox.clear();
        self.outbox = outbox;
    }

    /// Whether a callback, a timer or a thread can continue.
    pub(crate) fn has_ready(&self) -> bool {
        self.apps.iter().filter_map(|app| app.vm.as_ref()).any(Vm::is_ready)
    }

    /// The time at which an application has something to do, if `WorkerTimer::Lua` must be set earlier for it.
    pub(crate) fn arm(&mut self, app: usize) -> Option<Moment> {
        let due = self.present(app)?.next_due()?;
        let is_earlier = self.armed.is_none_or(|armed| due < armed);
        is_earlier.then(|| *self.armed.insert(due))
    }

    /// `WorkerTimer::Lua` has expired: makes ready what is due.
    pub(crate) fn collect_due(&mut self, now: Moment, unix_seconds: u64) {
        self.armed = None;
        for app in 0..self.apps.len() {
            if let Some(vm) = self.vm(app, now, unix_seconds) {
                vm.collect_due();
            }
        }
    }

    /// The number of handlers of requests and clients that wait.
    pub(crate) fn waiting(&self) -> usize {
        self.apps.iter().filter_map(|app| app.vm.as_ref()).map(Vm::waiting).sum()
    }

    /// The number of WebSocket clients that the VMs keep.
    pub(crate) fn clients(&self) -> usize {
        self.apps.iter().filter_map(|app| app.vm.as_ref()).map(Vm::clients).sum()
    }

    /// The number of requests that the VMs keep.
    pub(crate) fn requests(&self) -> usize {
        self.apps.iter().filter_map(|app| app.vm.as_ref()).map(Vm::requests).sum()
    }
}

/// Whether a VM has so little memory left after a collection that its callbacks would go on failing.
fn is_much(used: usize, config: &LuaApp) -> bool {
    used > config.memory_bytes_max / 4 * 3
}

impl App {
    fn new(vm: Vm) -> Self {
        Self {
            vm: Some(vm),
            life: 0,
            excesses: 0,
            exceeded_at: Moment::ZERO,
            has_served: false,
            resumes_at: Moment::ZERO,
            pause: PAUSE_MIN,
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
        assert!(!apps.note(0, "on_stop", &Verdict::Done, now));
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
            let Verdict::Failed(failure) = &verdict else { panic!("it has enough memory") };
            assert_eq!(failure.excess, Some(Excess::Memory));
            assert!(!apps.note(0, "on_stop", &verdict, now));
        }
        assert!(apps.apps[0].vm.as_ref().is_some_and(|vm| vm.used_bytes() < 512 * 1024));
    }
}
