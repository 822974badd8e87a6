//! Reads a configuration file, the files that it includes and the values that it refers to, and parses it.
//! In: a path; the environment. Out: a `Source`, or a `Refusal` to print: also about the files, paths and names in the
//! configuration.
//! Limits: `INCLUDED_MAX` included files; reads at most one byte more than `FILE_BYTES_MAX`; `RESOLVE_MAX` for all names.

use std::env::VarError;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tidegate_config::findings::Finding;
use tidegate_config::include::{self, INCLUDED_MAX, Include};
use tidegate_config::references::{Reference, VALUE_BYTES_MAX};
use tidegate_config::text::Text;
use tidegate_config::{Errors, FILE_BYTES_MAX, Loaded, SUPPLIED_BYTES_MAX};
use tidegate_server::{apps, certificates, files, paths, resolve, tokens};

/// How long the names of all servers may take to resolve.
const RESOLVE_MAX: Duration = Duration::from_secs(10);

/// Why a configuration cannot be used.
#[derive(Debug)]
pub enum Refusal {
    /// The file cannot be read; the text is the reason.
    Unreadable(String),
    /// The file has errors, or names certificates, keys or servers that cannot be used.
    Wrong(Errors),
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Unreadable(text) => writeln!(f, "tidegate: {text}"),
            Self::Wrong(errors) => writeln!(f, "{errors}\ntidegate: {}", errors.summary()),
        }
    }
}

/// A configuration file: its text, and its parsed content.
pub struct Source {
    /// The text of the file and of those that it includes.
    pub text: Text,
    /// The configuration, warnings, and the places of its settings.
    pub loaded: Loaded,
}

impl Source {
    /// The warnings about the file, ready to print; empty if there are none.
    pub fn warnings_text(&self) -> String {
        let warnings = &self.loaded.warnings;
        match warnings.is_empty() {
            true => String::new(),
            false => format!("{warnings}\ntidegate: {}\n", warnings.summary()),
        }
    }
}

/// Reads and checks the file at `path`, and those that it includes. Relative paths in the files start from its folder.
pub fn load(path: &Path) -> Result<Source, Refusal> {
    load_noting(path, &mut Vec::new())
}

/// As [`load`]. `included` gets the paths to watch: one of them changes if an included file changes, or if a further file
/// matches a pattern. It gets the paths even if the configuration is refused; only if the file itself cannot be read, it
/// stays unchanged.
fn load_noting(path: &Path, included: &mut Vec<PathBuf>) -> Result<Source, Refusal> {
    let name = path.display().to_string();
    let unreadable = |why| Refusal::Unreadable(format!("{name}: {why}"));
    let text = read(path).map_err(unreadable)?;
    let folder = path.parent().unwrap_or(Path::new("")).to_str().ok_or_else(|| {
        unreadable("the path of the folder is not UTF-8; move the file".to_owned())
    })?;
    let mut parts = Included { text: Text::of(&text, &name), seen: Vec::new(), count: 0 };
    let faults: Vec<_> = include::includes(&text)
        .into_iter()
        .filter_map(|of| parts.add(Path::new(folder), &of).err().map(|what| (of, what)))
        .collect();
    *included = parts.seen;
    if !faults.is_empty() {
        return Err(Refusal::Wrong(include::include_errors(&text, &name, faults)));
    }
    let text = parts.text;
    let mut loaded =
        tidegate_config::parse_text(&text, folder, Some(&mut look_up)).map_err(Refusal::Wrong)?;
    match tidegate_config::supply(&mut loaded.config, read_supply) {
        Ok(()) => {
            loaded.note_supplied(&text);
            Ok(Source { text, loaded })
        }
        Err(findings) => Err(Refusal::Wrong(loaded.places.errors(findings, &text))),
    }
}

/// Collects the included files.
struct Included {
    text: Text,
    /// The files, whether or not they could be read, and for each pattern its folder and a path in it.
    seen: Vec<PathBuf>,
    count: usize,
}

impl Included {
    /// Appends the files of one pattern; the error says why that is not possible.
    fn add(&mut self, folder: &Path, include: &Include) -> Result<(), String> {
        if include.is_literal() {
            return self.add_file(&folder.join(&include.pattern));
        }
        let (below, pattern) = include.split();
        let folder = folder.join(below);
        self.seen.extend([folder.clone(), folder.join(pattern)]);
        let listed = if folder.as_os_str().is_empty() { Path::new(".") } else { &folder };
        let entries = std::fs::read_dir(listed)
            .map_err(|error| format!("the folder {} cannot be read: {error}", listed.display()))?;
        let mut names = Vec::new();
        for entry in entries {
            let entry = entry.map_err(|error| error.to_string())?;
            let name = entry.file_name();
            if name.to_str().is_some_and(|name| include::fits(pattern, name))
                && !entry.path().is_dir()
            {
                names.push(name);
            }
        }
        names.sort_unstable();
        names.into_iter().try_for_each(|name| self.add_file(&folder.join(name)))
    }

    fn add_file(&mut self, path: &Path) -> Result<(), String> {
        self.count += 1;
        if self.count > INCLUDED_MAX {
            return Err(format!("more than {INCLUDED_MAX} files are included"));
        }
        if self.seen.iter().any(|seen| seen == path) {
            return Err(format!(
                "{} is included twice; remove one entry of `include`",
                path.display()
            ));
        }
        self.seen.push(path.to_owned());
        let text = read(path).map_err(|why| format!("{}: {why}", path.display()))?;
        if self.text.joined().len() + text.len() > FILE_BYTES_MAX {
            return Err(format!("all files together are larger than {} MiB", FILE_BYTES_MAX >> 20));
        }
        self.text.include(&text, &path.display().to_string());
        Ok(())
    }
}

/// The value of a reference in the file.
fn look_up(reference: Reference<'_>) -> Result<String, String> {
    match reference {
        Reference::Variable(name) => std::env::var(name).map_err(|error| match error {
            VarError::NotPresent => "the environment has no variable of this name".to_owned(),
            VarError::NotUnicode(_) => "the variable is not UTF-8".to_owned(),
        }),
        Reference::File(path) => {
            let bytes =
                files::read(path, VALUE_BYTES_MAX as u64).map_err(|error| error.to_string())?;
            let mut text =
                String::from_utf8(bytes).map_err(|_| "the file is not UTF-8".to_owned())?;
            let content = text.trim_end_matches('\n').trim_end_matches('\r').len();
            text.truncate(content);
            Ok(text)
        }
    }
}

/// As [`load`], and checks the paths at which the start reads or creates something. If one of these paths cannot be
/// used, all other faults are reported with it; otherwise the start itself reports them.
/// `included`: the files and folders to watch in addition to the file.
pub fn load_to_serve(path: &Path, included: &mut Vec<PathBuf>) -> Result<Source, Refusal> {
    let source = load_noting(path, included)?;
    match paths::check(&source.loaded.config, path).is_empty() {
        true => Ok(source),
        false => examine(source, path, true),
    }
}

/// Checks everything that `source`, read from `path`, names outside of itself. `resolves`: also the names of servers.
pub fn examine(source: Source, path: &Path, resolves: bool) -> Result<Source, Refusal> {
    let Source { text, loaded, .. } = &source;
    let faults = certificates::check(&loaded.config).err().unwrap_or_default();
    let mut findings: Vec<Finding> = faults.into_iter().map(Finding::from).collect();
    findings.extend(apps::check(&loaded.config));
    findings.extend(tokens::check(&loaded.config));
    findings.extend(paths::check(&loaded.config, path));
    if resolves {
        findings.extend(resolve::check(&loaded.config, RESOLVE_MAX));
    }
    match findings.is_empty() {
        true => Ok(source),
        false => Err(Refusal::Wrong(loaded.places.errors(findings, text))),
    }
}

/// Reads a file that the configuration names.
fn read_supply(path: &str) -> Result<Vec<u8>, String> {
    files::read(path, SUPPLIED_BYTES_MAX).map_err(|error| error.to_string())
}

fn read(path: &Path) -> Result<String, String> {
    // One byte more than allowed is read, so that the parser can report a file that is too large.
    let bytes = files::read(path, FILE_BYTES_MAX as u64)
        .map_err(|error| format!("cannot read the file: {error}"))?;
    String::from_utf8(bytes).map_err(|error| {
        format!(
            "not UTF-8: invalid byte at offset {}; save the file as UTF-8",
            error.utf8_error().valid_up_to()
        )
    })
}
