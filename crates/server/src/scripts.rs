//! The scripts of Lua applications: the programs that all workers load.
//! In: the configuration, the folders of the scripts. Out: programs; descriptions of their faults.
//! Never: lets two workers run different versions of a module: the first worker that requires it reads it for all.
//! Limits: `FILE_BYTES_MAX` bytes of a script or module.
//! Invariant: a program is replaced by another one only if its settings, its script or a module that it has read differ.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tidegate_config::arrange::Arranged;
use tidegate_config::findings::{Finding, Owner};
use tidegate_config::model::{Config, LuaApp, LuaLayer};
use tidegate_config::report::Kind;
use tidegate_lua::{Dictionary, Layer, Queue, Script};

use crate::{dictionary_files, files, script_check};

/// Bytes of a script or a module.
const FILE_BYTES_MAX: u64 = 4 * 1024 * 1024;

/// The programs of all applications, by their index in the configuration. `None`: the application was removed.
pub type Scripts = Arc<[Option<Arc<Program>>]>;

/// The name of a module's file, and its text.
type Module = (String, Vec<u8>);

/// An application, as every worker loads it.
#[derive(Debug)]
pub struct Program {
    /// The name and the text of the script.
    pub(crate) script: Script,
    /// The scripts of further phases, by name.
    pub(crate) phases: Vec<(String, Script)>,
    /// The dictionaries, by name.
    pub(crate) shared: Vec<(String, Arc<Dictionary>)>,
    /// The queues, by name.
    pub(crate) queues: Vec<(String, Arc<Queue>)>,
    /// The names of the push hubs.
    pub(crate) hubs: Arc<[String]>,
    /// The modules that VMs have required, by name. Locked only when a VM requires a module for the first time.
    modules: Mutex<BTreeMap<String, Module>>,
}

impl Program {
    /// An application with nothing but its script.
    pub(crate) fn alone(script: Script) -> Self {
        Self::new(Texts { script, phases: Vec::new() }, (Vec::new(), Vec::new()), Arc::new([]))
    }

    fn new(texts: Texts, (shared, queues): Stores, hubs: Arc<[String]>) -> Self {
        let Texts { script, phases } = texts;
        Self { script, phases, shared, queues, hubs, modules: Mutex::default() }
    }

    /// The module of this name in the folder of the script: `a.b` is `a/b.lua` or `a/b/init.lua`.
    pub(crate) fn module(&self, name: &str) -> Result<Option<Module>, String> {
        if let Some(module) = self.modules().get(name) {
            return Ok(Some(module.clone()));
        }
        let Some(found) = find_module(&folder_of(&self.script), name)? else { return Ok(None) };
        // If another worker has read it in the meantime, its text counts, so that all workers have the same.
        Ok(Some(self.modules().entry(name.to_owned()).or_insert(found).clone()))
    }

    /// The modules that were read. No file is read while they are locked, because workers wait for the lock.
    fn modules(&self) -> MutexGuard<'_, BTreeMap<String, Module>> {
        self.modules.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The files that the program consists of, as far as it has read them.
    fn paths(&self) -> Vec<PathBuf> {
        let modules = self.modules();
        let files = modules.values().map(|(file, _)| file.into());
        let phases = self.phases.iter().map(|(_, script)| PathBuf::from(&script.file));
        core::iter::once(PathBuf::from(&self.script.file)).chain(phases).chain(files).collect()
    }

    /// Whether the scripts are these and the modules are still those in the files.
    fn is_current(&self, texts: &Texts) -> bool {
        let folder = folder_of(&self.script);
        let modules = self.modules().clone();
        let is_same = |(name, module): (&String, &Module)| {
            find_module(&folder, name).is_ok_and(|found| found.as_ref() == Some(module))
        };
        let is_same_text = self.script == texts.script && self.phases == texts.phases;
        is_same_text && modules.iter().all(is_same)
    }
}

/// The scripts of an application.
struct Texts {
    script: Script,
    /// The scripts of further phases, by name.
    phases: Vec<(String, Script)>,
}

impl Texts {
    /// Reads the scripts of an application.
    fn read(app: &LuaApp) -> Result<Self, String> {
        let of = |path: &str| {
            read_file(Path::new(path)).map(|text| Script { file: path.to_owned(), text })
        };
        let script = of(&app.script)?;
        if let Some(folder) = app.files.as_ref().filter(|folder| !Path::new(folder).is_dir()) {
            return Err(format!("cannot use `files`: {folder} is not a folder"));
        }
        let phase = |(name, path): &(String, String)| match of(path) {
            Ok(script) => Ok((name.clone(), script)),
            Err(what) => Err(format!("{path} {what}")),
        };
        Ok(Self { script, phases: app.phases.iter().map(phase).collect::<Result<_, _>>()? })
    }
}

/// Reads the scripts of all applications. Their dictionaries are empty.
///
/// # Errors
/// The scripts that cannot be read.
pub fn read(config: &Config) -> Result<Scripts, Vec<Finding>> {
    read_all(config, false)
}

/// As `read`, at the start of the process: restores the dictionaries from their files.
///
/// # Errors
/// As `read`.
pub(crate) fn read_with_dictionaries(config: &Config) -> Result<Scripts, Vec<Finding>> {
    read_all(config, true)
}

fn read_all(config: &Config, restores: bool) -> Result<Scripts, Vec<Finding>> {
    let mut findings = Vec::new();
    let mut scripts = Vec::new();
    let mut queues = Queues::default();
    for (index, app) in config.lua.iter().enumerate() {
        match Texts::read(app) {
            Ok(texts) => {
                let stores = (&mut Vec::new(), &mut queues, restores);
                let program = program(config, app, texts, stores);
                scripts.push(Some(Arc::new(program)));
            }
            Err(what) => findings.push(finding(index, app, what)),
        }
    }
    if findings.is_empty() { Ok(scripts.into()) } else { Err(findings) }
}

/// The scripts of a configuration that follows another one.
pub(crate) struct Renewed {
    /// The programs. Those that have not changed are those of before.
    pub(crate) scripts: Scripts,
    /// The names of the applications with other programs.
    pub(crate) changed: Vec<String>,
    /// The messages for the operator.
    pub(crate) notes: Vec<String>,
}

impl Renewed {
    /// The same scripts as before.
    pub(crate) fn unchanged(scripts: &Scripts) -> Self {
        Self { scripts: Arc::clone(scripts), changed: Vec::new(), notes: Vec::new() }
    }
}

/// What is wrong with changed scripts.
pub(crate) struct Refusal {
    /// The mistakes, by the index of the application.
    pub(crate) findings: Vec<Finding>,
    /// The files of the scripts that were read.
    pub(crate) paths: Vec<PathBuf>,
}

/// Reads the scripts again for `next`, and loads each that has changed once, on this thread.
///
/// # Errors
/// A script cannot be read, or is wrong.
pub(crate) fn renew(before: (&Config, &Scripts), next: &Arranged) -> Result<Renewed, Refusal> {
    let config = &next.config;
    let (mut scripts, mut changed, mut notes) = (Vec::new(), Vec::new(), Vec::new());
    let mut refusal = Refusal { findings: Vec::new(), paths: Vec::new() };
    let mut queues = Queues::of(before);
    for (index, app) in config.lua.iter().enumerate() {
        if !next.file_apps.contains(&index) {
            scripts.push(None);
            continue;
        }
        let texts = match Texts::read(app) {
            Ok(texts) => texts,
            Err(what) => {
                refusal.findings.push(finding(index, app, what));
                continue;
            }
        };
        let earlier = before.1.get(index).and_then(Option::as_ref).zip(before.0.lua.get(index));
        if let Some((earlier, settings)) = earlier {
            if settings == app && earlier.is_current(&texts) {
                scripts.push(Some(Arc::clone(earlier)));
                continue;
            }
            notes.extend(lost_dictionaries(settings, app));
        }
        let mut kept = earlier.map_or(Vec::new(), |(earlier, settings)| {
            settings.shared.iter().cloned().zip(earlier.shared.iter().cloned()).collect()
        });
        let program = Arc::new(program(config, app, texts, (&mut kept, &mut queues, true)));
        let wrong = script_check::fault_of(config, index, &program);
        refusal.findings.extend(wrong.map(|what| finding(index, app, what)));
        refusal.paths.extend(program.paths());
        changed.push(app.name.clone());
        scripts.push(Some(program));
    }
    match refusal.findings.is_empty() {
        true => Ok(Renewed { scripts: scripts.into(), changed, notes }),
        false => Err(refusal),
    }
}

/// The files of the programs, as far as they have been read.
pub(crate) fn paths(scripts: &Scripts) -> Vec<PathBuf> {
    scripts.iter().flatten().flat_map(|program| program.paths()).collect()
}

/// A dictionary's name and size, and the dictionary.
type Kept = ((String, usize), (String, Arc<Dictionary>));
/// The dictionaries and the queues of a program, by name.
type Stores = (Vec<(String, Arc<Dictionary>)>, Vec<(String, Arc<Queue>)>);

/// The queues of the process, by name and size: applications that list the same queue share it.
#[derive(Default)]
struct Queues(BTreeMap<(String, usize), Arc<Queue>>);

impl Queues {
    /// The queues of the applications before a reload.
    fn of((config, scripts): (&Config, &Scripts)) -> Self {
        let of_app = |(app, program): (&LuaApp, &Option<Arc<Program>>)| {
            let queues = program.as_ref().map_or(Vec::new(), |program| program.queues.clone());
            app.queues.clone().into_iter().zip(queues.into_iter().map(|(_, queue)| queue))
        };
        Self(config.lua.iter().zip(scripts.iter()).flat_map(of_app).collect())
    }

    fn get(&mut self, name: &str, bytes: usize) -> Arc<Queue> {
        let queue = self.0.entry((name.to_owned(), bytes));
        Arc::clone(queue.or_insert_with(|| Arc::new(Queue::new(bytes))))
    }
}

/// The program of an application. A dictionary among `kept` that has the same name and size is used again. `restores`: others are
/// restored from their files.
fn program(
    config: &Config,
    app: &LuaApp,
    texts: Texts,
    (kept, queues, restores): (&mut Vec<Kept>, &mut Queues, bool),
) -> Program {
    let shared = app.shared.iter().map(|(name, bytes)| {
        let at = kept.iter().position(|((other, size), _)| (other, size) == (name, bytes));
        let dictionary = at.map(|at| kept.swap_remove(at).1.1);
        let create = || {
            let dictionary = Dictionary::new(*bytes);
            if restores && let Some(path) = file_of(app, name) {
                dictionary_files::restore(&app.name, path, &dictionary);
            }
            Arc::new(dictionary)
        };
        (name.clone(), dictionary.unwrap_or_else(create))
    });
    let shared = shared.collect();
    let queues = app.queues.iter().map(|(name, bytes)| (name.clone(), queues.get(name, *bytes)));
    let queues = queues.collect();
    let hubs = config.push.iter().map(|hub| hub.name.clone()).collect();
    Program::new(texts, (shared, queues), hubs)
}

/// The file of a dictionary.
fn file_of<'a>(app: &'a LuaApp, dictionary: &str) -> Option<&'a str> {
    let found = app.shared_files.iter().find(|(name, _)| name == dictionary);
    found.map(|(_, path)| path.as_str())
}

/// The dictionaries that begin again, because they have another size and no file.
fn lost_dictionaries(before: &LuaApp, after: &LuaApp) -> Vec<String> {
    let resized = after.shared.iter().filter(|(name, bytes)| {
        let is_other = before.shared.iter().any(|(other, size)| other == name && size != bytes);
        is_other && file_of(after, name).is_none()
    });
    let note = |(name, _): &(String, usize)| {
        format!("lua {}: the shared dictionary {name} has another size, so it is empty", after.name)
    };
    resized.map(note).collect()
}

/// The interface of a VM.
pub(crate) fn layer_of(layer: LuaLayer) -> Layer {
    match layer {
        LuaLayer::Lapps => Layer::Lapps,
        LuaLayer::Ngx => Layer::Ngx,
    }
}

/// What is wrong with an application, for a message at its place in the configuration.
pub(crate) fn finding(index: usize, app: &LuaApp, what: String) -> Finding {
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

fn folder_of(script: &Script) -> PathBuf {
    Path::new(&script.file).parent().unwrap_or(Path::new("")).to_path_buf()
}

fn find_module(folder: &Path, name: &str) -> Result<Option<Module>, String> {
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
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// A configuration with two applications, of which `b` has these settings.
    fn config(script: &Path, of_b: &str) -> Config {
        let script = script.display();
        let text = format!(
            "[[listener]]\nbind = \"127.0.0.1:0\"\n[[route]]\nlua = \"a\"\n[lua.a]\nscript = \"{script}\"\n\
             queues = {{ jobs = \"1MiB\" }}\n[lua.b]\nscript = \"{script}\"\nqueues = {{ {of_b} }}\n"
        );
        tidegate_config::parse(&text, "the test").expect("it is valid")
    }

    /// The queue of an application.
    fn queue(scripts: &Scripts, app: usize, name: &str) -> Arc<Queue> {
        let queues = &scripts[app].as_ref().expect("the program").queues;
        Arc::clone(&queues.iter().find(|(own, _)| own == name).expect("the queue").1)
    }

    #[test]
    fn applications_share_queues_and_keep_them_across_a_reload() {
        let folder = std::env::temp_dir().join(format!("tidegate-queues-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("the folder can be created");
        let script = folder.join("app.lua");
        let text = "return { on_request = function() tide.queue.jobs:push(1) end }";
        fs::write(&script, text).expect("the script can be written");
        let before = config(&script, "jobs = \"1MiB\"");
        let scripts = read(&before).expect("it is readable");
        let jobs = queue(&scripts, 0, "jobs");
        assert!(Arc::ptr_eq(&jobs, &queue(&scripts, 1, "jobs")));
        let arranged = Arranged::first(before);
        let next = config(&script, "jobs = \"1MiB\", more = \"1MiB\"");
        let next = arranged.next(next, &Default::default()).expect("there are indexes");
        let Ok(renewed) = renew((&arranged.config, &scripts), &next) else {
            panic!("it is refused")
        };
        assert_eq!(renewed.changed, ["b"]);
        assert!(Arc::ptr_eq(&jobs, &queue(&renewed.scripts, 0, "jobs")), "it has not changed");
        assert!(Arc::ptr_eq(&jobs, &queue(&renewed.scripts, 1, "jobs")), "it is the same queue");
        assert!(!Arc::ptr_eq(&jobs, &queue(&renewed.scripts, 1, "more")));
    }
}
