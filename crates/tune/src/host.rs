//! The host as this crate sees it: files below a root, and the output of read-only tools.
//! In: absolute paths as on a live host, argument lists. Out: their text, or why it cannot be had.
//! Never: panics on what a file holds; waits for a tool longer than `TOOL_WAIT_MS_MAX`.
//! Limits: `FILE_BYTES_MAX`, `TOOL_OUTPUT_BYTES_MAX`.
//! Invariant: a recorded host starts no process and reads nothing outside its tree.

use std::ffi::OsStr;
use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// Bytes read of one file; what is longer is cut (nothing under /proc that we read is).
pub const FILE_BYTES_MAX: u64 = 4 * 1024 * 1024;
/// Bytes kept of a tool's output.
pub const TOOL_OUTPUT_BYTES_MAX: u64 = 4 * 1024 * 1024;
/// How long a tool may take before it is stopped.
pub const TOOL_WAIT_MS_MAX: u64 = 5_000;

/// How the binary that asks was built; an argument so that recorded hosts give the same report
/// from every build.
#[derive(Clone, Debug)]
pub struct Build {
    /// Compiled with optimisation and without debug assertions.
    pub optimised: bool,
    /// Instruction set it may use without asking, such as `x86-64-v3` or `baseline`.
    pub instruction_set: String,
}

impl Build {
    /// How this binary was built.
    #[must_use]
    pub fn of_this_binary() -> Self {
        let set = if cfg!(target_feature = "avx512f") {
            "x86-64-v4"
        } else if cfg!(target_feature = "avx2") {
            "x86-64-v3"
        } else if cfg!(target_feature = "sse4.2") {
            "x86-64-v2"
        } else {
            "baseline"
        };
        Self { optimised: !cfg!(debug_assertions), instruction_set: set.to_owned() }
    }
}

/// Where tools' output comes from.
#[derive(Clone, Debug)]
enum Tools {
    /// They are run.
    Live,
    /// Files named by [`tool_file_name`] in this folder; a tool without one is missing.
    Recorded(PathBuf),
}

/// A host to look at, live or recorded.
#[derive(Clone, Debug)]
pub struct Host {
    root: PathBuf,
    tools: Tools,
    process: String,
    build: Build,
}

impl Host {
    /// The host this runs on.
    #[must_use]
    pub fn live() -> Self {
        Self {
            root: PathBuf::from("/"),
            tools: Tools::Live,
            process: "self".to_owned(),
            build: Build::of_this_binary(),
        }
    }

    /// A tree made by `fixtures/record.sh`: files below `root`, tools' output in `root/commands`.
    #[must_use]
    pub fn recorded(root: &Path) -> Self {
        Self {
            root: root.to_owned(),
            tools: Tools::Recorded(root.join("commands")),
            process: "self".to_owned(),
            build: Build { optimised: true, instruction_set: "x86-64-v3".to_owned() },
        }
    }

    /// The same host, looking at the limits and rights of the process `pid` instead of our own.
    #[must_use]
    pub fn with_process(mut self, pid: u32) -> Self {
        self.process = pid.to_string();
        self
    }

    /// The root by which the journal tells hosts apart: `/`, or a recorded tree's folder without links.
    #[must_use]
    pub fn root_name(&self) -> String {
        let root = fs::canonicalize(&self.root).unwrap_or_else(|_| self.root.clone());
        root.to_string_lossy().into_owned()
    }

    /// Whether this is the host we run on (only there may tools change things).
    #[must_use]
    pub fn is_live(&self) -> bool {
        matches!(self.tools, Tools::Live)
    }

    /// How the asking binary was built.
    #[must_use]
    pub fn build(&self) -> &Build {
        &self.build
    }

    /// The path of `file` of the process that is looked at, such as `/proc/self/limits`.
    #[must_use]
    pub fn process_path(&self, file: &str) -> String {
        format!("/proc/{}/{file}", self.process)
    }

    /// Where `path` (absolute, as on the live host) lies in this host's tree.
    #[must_use]
    pub fn locate(&self, path: &str) -> PathBuf {
        self.root.join(path.trim_start_matches('/'))
    }

    /// Where `path`, which exists, lies: on a recorded host without links and inside its tree, as links (or
    /// `..` in a journal) in a tree of somebody else may lead to this host.
    ///
    /// # Errors
    /// [`Unreadable`] when it does not exist or lies outside.
    pub fn locate_inside(&self, path: &str) -> Result<PathBuf, Unreadable> {
        let place = self.locate(path);
        if self.is_live() {
            return Ok(place);
        }
        let real =
            |place: &Path| fs::canonicalize(place).map_err(|error| Unreadable::file(path, &error));
        let (place, root) = (real(&place)?, real(&self.root)?);
        if place.starts_with(&root) {
            return Ok(place);
        }
        let cause = Cause::Odd("it lies outside the recorded host".to_owned());
        Err(Unreadable { what: path.to_owned(), cause })
    }

    /// Where `path`, which need not exist, lies: as [`Self::locate_inside`] for the folder that holds it.
    ///
    /// # Errors
    /// [`Unreadable`] as there, and for a path without a name.
    pub fn locate_entry(&self, path: &str) -> Result<PathBuf, Unreadable> {
        match (Path::new(path).parent().and_then(Path::to_str), Path::new(path).file_name()) {
            (Some(folder), Some(name)) => Ok(self.locate_inside(folder)?.join(name)),
            _ => Err(Unreadable::odd(path, "no name of a file")),
        }
    }

    /// Whether `path` exists.
    #[must_use]
    pub fn exists(&self, path: &str) -> bool {
        self.locate(path).exists()
    }

    /// The text of a file, as it is.
    ///
    /// # Errors
    /// [`Unreadable`] with the path and the cause.
    pub fn read_raw(&self, path: &str) -> Result<String, Unreadable> {
        let mut bytes = Vec::new();
        File::open(self.locate_inside(path)?)
            .and_then(|file| file.take(FILE_BYTES_MAX).read_to_end(&mut bytes))
            .map_err(|error| Unreadable::file(path, &error))?;
        String::from_utf8(bytes).map_err(|_| Unreadable {
            what: path.to_owned(),
            cause: Cause::Odd("it is not text".to_owned()),
        })
    }

    /// The text of a file without white space at its ends.
    ///
    /// # Errors
    /// [`Unreadable`] with the path and the cause.
    pub fn read(&self, path: &str) -> Result<String, Unreadable> {
        self.read_raw(path).map(|text| text.trim().to_owned())
    }

    /// A file that holds one whole number.
    ///
    /// # Errors
    /// [`Unreadable`] when the file cannot be read or holds something else.
    pub fn read_number(&self, path: &str) -> Result<u64, Unreadable> {
        let text = self.read(path)?;
        text.parse().map_err(|_| Unreadable::odd(path, &text))
    }

    /// A file that holds whole numbers apart from each other by white space.
    ///
    /// # Errors
    /// [`Unreadable`] when the file cannot be read or holds fewer than `count` numbers.
    pub fn read_numbers(&self, path: &str, count: usize) -> Result<Vec<u64>, Unreadable> {
        let text = self.read(path)?;
        let numbers: Vec<u64> =
            text.split_whitespace().map_while(|word| word.parse().ok()).collect();
        if numbers.len() < count {
            return Err(Unreadable::odd(path, &text));
        }
        Ok(numbers)
    }

    /// The names in a folder, sorted with numbers in their order (`cpu2` before `cpu10`).
    ///
    /// # Errors
    /// [`Unreadable`] with the path and the cause.
    pub fn list(&self, folder: &str) -> Result<Vec<String>, Unreadable> {
        let entries =
            fs::read_dir(self.locate(folder)).map_err(|error| Unreadable::file(folder, &error))?;
        let mut names: Vec<String> =
            entries.flatten().filter_map(|entry| entry.file_name().into_string().ok()).collect();
        names.sort_by_key(|name| natural_key(name));
        Ok(names)
    }

    /// The last name in a symbolic link's target.
    ///
    /// # Errors
    /// [`Unreadable`] when it is no link or may not be read.
    pub fn link_name(&self, path: &str) -> Result<String, Unreadable> {
        let target =
            fs::read_link(self.locate(path)).map_err(|error| Unreadable::file(path, &error))?;
        target
            .file_name()
            .and_then(|name| name.to_str())
            .map(str::to_owned)
            .ok_or_else(|| Unreadable::odd(path, "a link without a name"))
    }

    /// The text of a symbolic link.
    ///
    /// # Errors
    /// [`Unreadable`] when it is no link or may not be read.
    pub fn link_text(&self, path: &str) -> Result<String, Unreadable> {
        fs::read_link(self.locate(path))
            .map(|target| target.to_string_lossy().into_owned())
            .map_err(|error| Unreadable::file(path, &error))
    }

    /// What a read-only tool prints. Used by `check`: only ask tools for what does not change the host.
    ///
    /// # Errors
    /// [`Unreadable`] when the tool is missing, fails or takes too long.
    pub fn ask(&self, argv: &[&str]) -> Result<String, Unreadable> {
        match &self.tools {
            Tools::Live => run_tool(argv),
            Tools::Recorded(folder) => {
                let file = folder.join(tool_file_name(argv));
                fs::read_to_string(file).map_err(|_| Unreadable {
                    what: argv.first().copied().unwrap_or_default().to_owned(),
                    cause: Cause::MissingTool,
                })
            }
        }
    }

    /// Writes `value` to an existing file under /proc or /sys in one write, as the kernel wants it.
    ///
    /// # Errors
    /// [`Unreadable`] with the path and the cause.
    pub fn write_setting(&self, path: &str, value: &str) -> Result<(), Unreadable> {
        OpenOptions::new()
            .write(true)
            .truncate(true)
            .open(self.locate_inside(path)?)
            .and_then(|mut file| file.write_all(value.as_bytes()))
            .map_err(|error| Unreadable::file(path, &error))
    }
}

/// Why something could not be read (or written).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unreadable {
    /// The path or the tool.
    pub what: String,
    /// Why.
    pub cause: Cause,
}

/// The causes that a report tells apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The host has none of it; what it has none of.
    Absent(&'static str),
    /// No right to read it.
    Denied,
    /// The tool ran and failed; its last line.
    Failed(String),
    /// The change was accepted and nothing changed.
    Ineffective,
    /// There is no such file on this kernel.
    Missing,
    /// The tool is not installed.
    MissingTool,
    /// It holds what we do not understand.
    Odd(String),
    /// It is on a read-only file system.
    ReadOnly,
    /// The kernel refused the value.
    Refused,
    /// The tool took longer than `TOOL_WAIT_MS_MAX`.
    TooSlow,
}

impl Unreadable {
    /// From an error of the file system.
    #[must_use]
    pub fn file(path: &str, error: &io::Error) -> Self {
        let cause = match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => Cause::Missing,
            io::ErrorKind::PermissionDenied => Cause::Denied,
            io::ErrorKind::ReadOnlyFilesystem => Cause::ReadOnly,
            io::ErrorKind::InvalidInput => Cause::Refused,
            _ => Cause::Odd(error.to_string()),
        };
        Self { what: path.to_owned(), cause }
    }

    /// A file that holds `text`, which is not what its reader expects.
    #[must_use]
    pub fn odd(path: &str, text: &str) -> Self {
        let start: String = text.chars().take(40).collect();
        Self { what: path.to_owned(), cause: Cause::Odd(format!("it holds {start:?}")) }
    }
}

impl fmt::Display for Unreadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = &self.what;
        match &self.cause {
            Cause::Absent(what_of) => write!(f, "there is no {what_of}"),
            Cause::Denied => write!(f, "{what} needs more rights: run as root"),
            Cause::Failed(line) => write!(f, "the tool {what} failed: {line}"),
            Cause::Ineffective => {
                write!(f, "`{what}` was accepted but changed nothing: it has no effect here")
            }
            Cause::Missing => write!(f, "{what} does not exist on this kernel"),
            Cause::MissingTool => write!(f, "the tool {what} is not installed"),
            Cause::Odd(found) => write!(f, "{what} is not understood: {found}"),
            Cause::ReadOnly => write!(f, "{what} is on a read-only file system"),
            Cause::Refused => write!(f, "the kernel refused the value for {what}"),
            Cause::TooSlow => write!(f, "the tool {what} did not answer in time"),
        }
    }
}

impl std::error::Error for Unreadable {}

/// The name of the file that holds a tool's recorded output: its arguments joined by `_`, with
/// every character that is not a letter, digit, `.`, `-` or `_` as `+`.
#[must_use]
pub fn tool_file_name(argv: &[&str]) -> String {
    argv.join("_")
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() || "._-".contains(c) { c } else { '+' })
        .collect()
}

/// Runs a tool and gives what it printed on standard output.
///
/// # Errors
/// [`Unreadable`] when the tool is missing, fails or takes too long.
pub fn run_tool(argv: &[&str]) -> Result<String, Unreadable> {
    let name = argv.first().copied().unwrap_or_default();
    let failed = |cause| Unreadable { what: name.to_owned(), cause };
    let mut child = Command::new(find_tool(name).ok_or_else(|| failed(Cause::MissingTool))?)
        .args(argv.iter().skip(1))
        .env("LC_ALL", "C")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| Unreadable::file(name, &error))?;
    let stdout = child.stdout.take().map(read_in_background);
    let stderr = child.stderr.take().map(read_in_background);
    let Some(success) = wait_for(&mut child) else {
        return Err(failed(Cause::TooSlow));
    };
    let text = |reader: Option<thread::JoinHandle<String>>| {
        reader.and_then(|reader| reader.join().ok()).unwrap_or_default()
    };
    let (output, complaint) = (text(stdout), text(stderr));
    if success {
        return Ok(output);
    }
    let last = complaint.lines().chain(output.lines()).next_back().unwrap_or("no message");
    let says_so = ["not permitted", "ermission denied", "must be root"];
    if says_so.iter().any(|words| complaint.contains(words)) {
        return Err(failed(Cause::Denied));
    }
    Err(failed(Cause::Failed(last.trim().to_owned())))
}

/// Where a tool lies: in `PATH` or, as users often lack them there, in the administrators' folders.
#[must_use]
pub fn find_tool(name: &str) -> Option<PathBuf> {
    if name.contains('/') {
        return Some(PathBuf::from(name)).filter(|path| path.exists());
    }
    tool_in(&std::env::var_os("PATH").unwrap_or_default(), name)
}

fn tool_in(path: &OsStr, name: &str) -> Option<PathBuf> {
    std::env::split_paths(path)
        .chain(["/usr/sbin", "/sbin", "/usr/bin", "/bin"].map(PathBuf::from))
        // A folder relative to where the user stands may hold anybody's `tc`.
        .filter(|folder| folder.is_absolute())
        .map(|folder| folder.join(name))
        .find(|file| file.is_file())
}

/// Waits until a tool ends; `None` when it had to be stopped, else whether it succeeded.
fn wait_for(child: &mut Child) -> Option<bool> {
    let deadline = Instant::now() + Duration::from_millis(TOOL_WAIT_MS_MAX);
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return Some(status.success()),
            Ok(None) if Instant::now() < deadline => thread::sleep(Duration::from_millis(2)),
            Ok(None) | Err(_) => {
                let _ = child.kill();
                let _ = child.wait();
                return None;
            }
        }
    }
}

fn read_in_background(stream: impl Read + Send + 'static) -> thread::JoinHandle<String> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        let _ = stream.take(TOOL_OUTPUT_BYTES_MAX).read_to_end(&mut bytes);
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

/// Splits a name into text and numbers so that it sorts as people expect.
fn natural_key(name: &str) -> Vec<(String, u64)> {
    let mut key = Vec::new();
    let (mut text, mut digits) = (String::new(), String::new());
    for c in name.chars() {
        if c.is_ascii_digit() {
            digits.push(c);
        } else {
            if !digits.is_empty() {
                key.push((std::mem::take(&mut text), digits.parse().unwrap_or(u64::MAX)));
                digits.clear();
            }
            text.push(c);
        }
    }
    key.push((text, digits.parse().unwrap_or(0)));
    key
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_sort_with_numbers_in_their_order() {
        let mut names = ["cpu10", "cpu2", "cpufreq", "cpu1"].map(str::to_owned);
        names.sort_by_key(|name| natural_key(name));
        assert_eq!(names, ["cpu1", "cpu2", "cpu10", "cpufreq"]);
    }

    #[test]
    fn a_missing_tool_and_a_failing_tool_are_told_apart() {
        let missing = run_tool(&["tidegate-no-such-tool"]).unwrap_err();
        assert_eq!(missing.cause, Cause::MissingTool);
        let failing = run_tool(&["sh", "-c", "echo broken >&2; exit 3"]).unwrap_err();
        assert_eq!(failing.cause, Cause::Failed("broken".to_owned()));
        assert_eq!(run_tool(&["printf", "yes"]), Ok("yes".to_owned()));
        // As auditctl says it.
        let says = "echo You must be root to run this program. >&2; exit 4";
        assert_eq!(run_tool(&["sh", "-c", says]).unwrap_err().cause, Cause::Denied);
    }

    #[test]
    fn a_tool_is_never_taken_from_where_the_user_stands() {
        assert!(Path::new("Cargo.toml").is_file());
        for path in ["", ".", ":/usr/bin", "src/.."] {
            assert_eq!(tool_in(OsStr::new(path), "Cargo.toml"), None, "PATH={path}");
        }
        assert!(tool_in(OsStr::new("."), "sh").is_some_and(|tool| tool.is_absolute()));
    }

    #[test]
    fn a_file_that_is_not_there_says_so() {
        let error = Host::recorded(Path::new("/nonexistent")).read("/proc/version").unwrap_err();
        assert_eq!(error.to_string(), "/proc/version does not exist on this kernel");
    }
}
