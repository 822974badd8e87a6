//! The host: files below a root directory, and the output of read-only tools.
//! In: absolute paths as on a live host, argument lists. Out: their text, or why it cannot be read.
//! Never: panics because of the content of a file; waits for a tool longer than `TOOL_WAIT_MS_MAX`.
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

/// Maximum bytes read of one file; a longer file is cut (no file under /proc that this crate reads is longer).
pub const FILE_BYTES_MAX: u64 = 4 * 1024 * 1024;
/// Maximum bytes kept of the output of a tool.
pub const TOOL_OUTPUT_BYTES_MAX: u64 = 4 * 1024 * 1024;
/// Time limit of a tool; the tool is then killed.
pub const TOOL_WAIT_MS_MAX: u64 = 5_000;

/// How this binary was built. A value rather than a constant, so that recorded hosts give the same report with
/// every build.
#[derive(Clone, Debug)]
pub struct Build {
    /// Compiled with optimisation and without debug assertions.
    pub optimised: bool,
    /// Instruction set that it uses without a check at run time, such as `x86-64-v3` or `baseline`.
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

/// The source of tool output.
#[derive(Clone, Debug)]
enum Tools {
    /// The tools are run.
    Live,
    /// Files named by [`tool_file_name`] in this directory; a tool without a file counts as not installed.
    Recorded(PathBuf),
}

/// A host to check, live or recorded.
#[derive(Clone, Debug)]
pub struct Host {
    /// Directory used in place of `/`.
    root: PathBuf,
    /// The source of tool output.
    tools: Tools,
    /// Name below /proc of the checked process: a process ID or `self`.
    process: String,
    /// How the checked binary was built.
    build: Build,
}

impl Host {
    /// The host on which this process runs.
    #[must_use]
    pub fn live() -> Self {
        Self {
            root: PathBuf::from("/"),
            tools: Tools::Live,
            process: "self".to_owned(),
            build: Build::of_this_binary(),
        }
    }

    /// A tree made by `fixtures/record.sh`: files below `root`, the output of tools in `root/commands`.
    #[must_use]
    pub fn recorded(root: &Path) -> Self {
        Self {
            root: root.to_owned(),
            tools: Tools::Recorded(root.join("commands")),
            process: "self".to_owned(),
            build: Build { optimised: true, instruction_set: "x86-64-v3".to_owned() },
        }
    }

    /// The same host, checking the limits and rights of process `pid` instead of this process.
    #[must_use]
    pub fn with_process(mut self, pid: u32) -> Self {
        self.process = pid.to_string();
        self
    }

    /// The root by which the journal identifies a host: `/`, or the directory of a recorded tree with links
    /// resolved.
    #[must_use]
    pub fn root_name(&self) -> String {
        let root = fs::canonicalize(&self.root).unwrap_or_else(|_| self.root.clone());
        root.to_string_lossy().into_owned()
    }

    /// Whether this is the live host. Tools may change settings only there.
    #[must_use]
    pub fn is_live(&self) -> bool {
        matches!(self.tools, Tools::Live)
    }

    /// How this binary was built.
    #[must_use]
    pub fn build(&self) -> &Build {
        &self.build
    }

    /// The path of `file` of the checked process, such as `/proc/self/limits`.
    #[must_use]
    pub fn process_path(&self, file: &str) -> String {
        format!("/proc/{}/{file}", self.process)
    }

    /// The location of `path` (absolute, as on the live host) in the tree of this host.
    #[must_use]
    pub fn locate(&self, path: &str) -> PathBuf {
        self.root.join(path.trim_start_matches('/'))
    }

    /// The location of an existing `path`. On a recorded host links are resolved and the result must be inside the
    /// tree, because links in an untrusted tree (or `..` in a journal) could lead to files of this host.
    ///
    /// # Errors
    /// [`Unreadable`] if the path does not exist or is outside the tree.
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
        let cause = Cause::Unexpected("the path leads outside the recorded host".to_owned());
        Err(Unreadable { what: path.to_owned(), cause })
    }

    /// The location of a `path` that need not exist; its directory is checked as in [`Self::locate_inside`].
    ///
    /// # Errors
    /// [`Unreadable`] as there, and for a path without a file name.
    pub fn locate_entry(&self, path: &str) -> Result<PathBuf, Unreadable> {
        match (Path::new(path).parent().and_then(Path::to_str), Path::new(path).file_name()) {
            (Some(folder), Some(name)) => Ok(self.locate_inside(folder)?.join(name)),
            _ => Err(Unreadable::unexpected(path, "no file name")),
        }
    }

    /// Whether `path` exists.
    #[must_use]
    pub fn exists(&self, path: &str) -> bool {
        self.locate(path).exists()
    }

    /// The text of a file, unchanged.
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
            cause: Cause::Unexpected("the content is not UTF-8 text".to_owned()),
        })
    }

    /// The text of a file without leading and trailing white space.
    ///
    /// # Errors
    /// [`Unreadable`] with the path and the cause.
    pub fn read(&self, path: &str) -> Result<String, Unreadable> {
        self.read_raw(path).map(|text| text.trim().to_owned())
    }

    /// Reads a file that contains one integer.
    ///
    /// # Errors
    /// [`Unreadable`] if the file cannot be read or contains something else.
    pub fn read_number(&self, path: &str) -> Result<u64, Unreadable> {
        let text = self.read(path)?;
        text.parse().map_err(|_| Unreadable::unexpected(path, &text))
    }

    /// Reads a file that contains integers separated by white space.
    ///
    /// # Errors
    /// [`Unreadable`] if the file cannot be read or contains fewer than `count` integers.
    pub fn read_numbers(&self, path: &str, count: usize) -> Result<Vec<u64>, Unreadable> {
        let text = self.read(path)?;
        let numbers: Vec<u64> =
            text.split_whitespace().map_while(|word| word.parse().ok()).collect();
        if numbers.len() < count {
            return Err(Unreadable::unexpected(path, &text));
        }
        Ok(numbers)
    }

    /// The names in a directory, sorted with numbers in numeric order (`cpu2` before `cpu10`).
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

    /// The last component of the target of a symbolic link.
    ///
    /// # Errors
    /// [`Unreadable`] if the path is not a link or may not be read.
    pub fn link_name(&self, path: &str) -> Result<String, Unreadable> {
        let target =
            fs::read_link(self.locate(path)).map_err(|error| Unreadable::file(path, &error))?;
        target
            .file_name()
            .and_then(|name| name.to_str())
            .map(str::to_owned)
            .ok_or_else(|| Unreadable::unexpected(path, "a link target without a name"))
    }

    /// The target of a symbolic link.
    ///
    /// # Errors
    /// [`Unreadable`] if the path is not a link or may not be read.
    pub fn link_text(&self, path: &str) -> Result<String, Unreadable> {
        fs::read_link(self.locate(path))
            .map(|target| target.to_string_lossy().into_owned())
            .map_err(|error| Unreadable::file(path, &error))
    }

    /// The output of a read-only tool. Used by `check`, so the command must not change the host.
    ///
    /// # Errors
    /// [`Unreadable`] if the tool is not installed, fails or takes too long.
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

    /// Writes `value` to an existing file under /proc or /sys with one write, as the kernel requires.
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

/// Why a file or tool could not be read, written or run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unreadable {
    /// The path or the tool.
    pub what: String,
    /// The cause.
    pub cause: Cause,
}

/// The causes that a report distinguishes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The host has no such object; contains its name.
    Absent(&'static str),
    /// No permission.
    Denied,
    /// The tool failed; its last line of output.
    Failed(String),
    /// The change was accepted but had no effect.
    Ineffective,
    /// The file does not exist on this kernel.
    Missing,
    /// The tool is not installed.
    MissingTool,
    /// The content is not as expected; a description.
    Unexpected(String),
    /// The file is on a read-only file system.
    ReadOnly,
    /// The kernel refused the value.
    Refused,
    /// The tool took longer than `TOOL_WAIT_MS_MAX`.
    TooSlow,
}

impl Unreadable {
    /// From a file system error.
    #[must_use]
    pub fn file(path: &str, error: &io::Error) -> Self {
        let cause = match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => Cause::Missing,
            io::ErrorKind::PermissionDenied => Cause::Denied,
            io::ErrorKind::ReadOnlyFilesystem => Cause::ReadOnly,
            io::ErrorKind::InvalidInput => Cause::Refused,
            _ => Cause::Unexpected(error.to_string()),
        };
        Self { what: path.to_owned(), cause }
    }

    /// For a file whose content `text` is not as expected.
    #[must_use]
    pub fn unexpected(path: &str, text: &str) -> Self {
        let start: String = text.chars().take(40).collect();
        Self {
            what: path.to_owned(),
            cause: Cause::Unexpected(format!("unexpected content {start:?}")),
        }
    }
}

impl fmt::Display for Unreadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = &self.what;
        match &self.cause {
            Cause::Absent(what_of) => write!(f, "there is no {what_of}"),
            Cause::Denied => write!(f, "no permission for {what}: run as root"),
            Cause::Failed(line) => write!(f, "the tool {what} failed: {line}"),
            Cause::Ineffective => {
                write!(
                    f,
                    "`{what}` was accepted but changed nothing: it has no effect on this host"
                )
            }
            Cause::Missing => write!(f, "{what} does not exist on this kernel"),
            Cause::MissingTool => write!(f, "the tool {what} is not installed"),
            Cause::Unexpected(found) => write!(f, "{what}: {found}"),
            Cause::ReadOnly => write!(f, "{what} is on a read-only file system"),
            Cause::Refused => write!(f, "the kernel refused the value for {what}"),
            Cause::TooSlow => write!(f, "the tool {what} timed out"),
        }
    }
}

impl std::error::Error for Unreadable {}

/// The name of the file with the recorded output of a tool: its arguments joined by `_`, with every character other
/// than letters, digits, `.`, `-` and `_` replaced by `+`.
#[must_use]
pub fn tool_file_name(argv: &[&str]) -> String {
    argv.join("_")
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() || "._-".contains(c) { c } else { '+' })
        .collect()
}

/// Runs a tool and returns its standard output.
///
/// # Errors
/// [`Unreadable`] if the tool is not installed, fails or takes too long.
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
    let (output, errors) = (text(stdout), text(stderr));
    if success {
        return Ok(output);
    }
    let last = errors.lines().chain(output.lines()).next_back().unwrap_or("no message");
    let denied = ["not permitted", "ermission denied", "must be root"];
    if denied.iter().any(|words| errors.contains(words)) {
        return Err(failed(Cause::Denied));
    }
    Err(failed(Cause::Failed(last.trim().to_owned())))
}

/// The path of a tool: in `PATH`, or in /usr/sbin and /sbin, which are often missing from the `PATH` of users.
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
        // A relative directory could contain any user's program named `tc`.
        .filter(|folder| folder.is_absolute())
        .map(|folder| folder.join(name))
        .find(|file| file.is_file())
}

/// Waits for a tool to exit; `None` if it had to be killed, otherwise whether it succeeded.
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

/// Splits a name into text and numbers for sorting in natural order.
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
    fn names_sort_in_natural_order() {
        let mut names = ["cpu10", "cpu2", "cpufreq", "cpu1"].map(str::to_owned);
        names.sort_by_key(|name| natural_key(name));
        assert_eq!(names, ["cpu1", "cpu2", "cpu10", "cpufreq"]);
    }

    #[test]
    fn missing_tool_and_failing_tool_are_distinguished() {
        let missing = run_tool(&["tidegate-no-such-tool"]).unwrap_err();
        assert_eq!(missing.cause, Cause::MissingTool);
        let failing = run_tool(&["sh", "-c", "echo broken >&2; exit 3"]).unwrap_err();
        assert_eq!(failing.cause, Cause::Failed("broken".to_owned()));
        assert_eq!(run_tool(&["printf", "yes"]), Ok("yes".to_owned()));
        // The message of auditctl.
        let script = "echo You must be root to run this program. >&2; exit 4";
        assert_eq!(run_tool(&["sh", "-c", script]).unwrap_err().cause, Cause::Denied);
    }

    #[test]
    fn tool_is_never_taken_from_the_working_directory() {
        assert!(Path::new("Cargo.toml").is_file());
        for path in ["", ".", ":/usr/bin", "src/.."] {
            assert_eq!(tool_in(OsStr::new(path), "Cargo.toml"), None, "PATH={path}");
        }
        assert!(tool_in(OsStr::new("."), "sh").is_some_and(|tool| tool.is_absolute()));
    }

    #[test]
    fn missing_file_is_reported() {
        let error = Host::recorded(Path::new("/nonexistent")).read("/proc/version").unwrap_err();
        assert_eq!(error.to_string(), "/proc/version does not exist on this kernel");
    }
}
