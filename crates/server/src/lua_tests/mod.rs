//! `tidegate lua test`: runs the tests of Lua applications with fake clients, in virtual time.
//! In: a folder with applications and their tests (`NAME.lua`, `NAME_test.lua`). Out: how each test ended.
//! Never: opens a socket; waits for real time.
//! Limits: `STEPS_MAX` and `SPAN_MAX` of a test, and the budgets of an application with default settings.
//! Invariant: each test has a VM of its own, and begins at the same time with the same random numbers.

mod decisions;
mod sockets;
mod stage;
mod tunnels;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tidegate_base::Span;
use tidegate_config::model::LuaApp;
use tidegate_lua::{Failure, Script, Vm};

use crate::apps::{self, Program};
use crate::lua_tests::stage::Stage;
use crate::scripts;

/// The end of the name of a file with tests.
const SUFFIX: &str = "_test.lua";
/// How often a coroutine of one test may continue.
const STEPS_MAX: usize = 1_000_000;
/// The virtual time of one test.
const SPAN_MAX: Span = Span::from_secs(24 * 3600);
/// Lines of a traceback that are reported.
const TRACE_LINES_MAX: usize = 6;

/// How a test ended.
#[derive(Debug)]
pub struct Outcome {
    /// The file.
    pub file: String,
    /// The name of the test.
    pub name: String,
    /// The virtual time that it took.
    pub span: Span,
    /// What failed, with a traceback; `None` if the test has passed.
    pub failure: Option<String>,
    /// What the application has logged.
    pub log: Vec<String>,
}

/// Runs the tests of all applications in `folder`, in the order of files and names, and gives each outcome to `report`.
///
/// # Errors
/// The folder cannot be read or has no tests; a script cannot be read or does not load.
pub fn run(folder: &Path, mut report: impl FnMut(Outcome)) -> Result<(), String> {
    let files = find(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    if files.is_empty() {
        return Err(format!("{}: no file ends with {SUFFIX}", folder.display()));
    }
    for file in files {
        let suite = Suite::read(&file)?;
        let mut names = suite.load()?.tests().to_vec();
        names.sort();
        if names.is_empty() {
            return Err(format!("{}: the file has no tests", suite.tests.file));
        }
        for name in names {
            let mut stage = Stage::new(suite.load()?);
            let failure = stage.run(&name).err();
            let (span, log) = stage.end();
            report(Outcome { file: suite.tests.file.clone(), name, span, failure, log });
        }
    }
    Ok(())
}

/// The files with tests, sorted.
fn find(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.file_name().is_some_and(|name| name.to_string_lossy().ends_with(SUFFIX)) {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

/// An application and its tests.
struct Suite {
    tests: Script,
    script: Script,
}

impl Suite {
    /// Reads the tests and the application that they belong to.
    fn read(file: &Path) -> Result<Self, String> {
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        let app =
            file.with_file_name(format!("{}.lua", name.strip_suffix(SUFFIX).unwrap_or(&name)));
        let script = |path: &Path| {
            let text =
                scripts::read_file(path).map_err(|what| format!("{}: {what}", path.display()))?;
            Ok::<_, String>(Script { file: path.display().to_string(), text })
        };
        Ok(Self { tests: script(file)?, script: script(&app)? })
    }

    /// Loads both into a new VM.
    fn load(&self) -> Result<Vm, String> {
        let name = Path::new(&self.script.file).file_stem().unwrap_or_default();
        let app = LuaApp {
            name: name.to_string_lossy().into_owned(),
            script: self.script.file.clone(),
            ..LuaApp::default()
        };
        let program = Arc::new(Program::alone(self.script.clone()));
        apps::load_tests(&app, &program, &self.tests).map_err(|failure| text_of(&failure))
    }
}

/// A failure with the first lines of its traceback.
fn text_of(failure: &Failure) -> String {
    let mut text = failure.message.clone();
    for line in failure.trace.lines().filter(|line| !line.contains("[C]")).take(TRACE_LINES_MAX) {
        text.push('\n');
        text.push_str(line.trim());
    }
    text
}
