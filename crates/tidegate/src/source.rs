//! Reads a configuration file and parses it.
//! In: a path. Out: a `Source`, or a `Refusal` to print: also about the files, paths and names in the configuration.
//! Limits: reads at most one byte more than `FILE_BYTES_MAX`; `RESOLVE_MAX` for all names.

use std::path::Path;
use std::time::Duration;

use tidegate_config::places::Finding;
use tidegate_config::{Errors, FILE_BYTES_MAX, Loaded, SUPPLIED_BYTES_MAX};
use tidegate_server::{apps, certificates, files, names, paths, tokens};

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

/// A configuration file: its name in messages, its text, and what it contains.
pub struct Source {
    /// The path as the user wrote it.
    pub name: String,
    /// The text of the file.
    pub text: String,
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

/// Reads and checks the file at `path`. Relative paths in the file start from its folder.
pub fn load(path: &Path) -> Result<Source, Refusal> {
    let name = path.display().to_string();
    let unreadable = |why| Refusal::Unreadable(format!("{name}: {why}"));
    let text = read(path).map_err(unreadable)?;
    let folder = path.parent().unwrap_or(Path::new("")).to_str().ok_or_else(|| {
        unreadable("the path of the folder is not UTF-8; move the file".to_owned())
    })?;
    let mut loaded =
        tidegate_config::parse_in_folder(&text, &name, folder).map_err(Refusal::Wrong)?;
    match tidegate_config::supply(&mut loaded.config, read_supply) {
        Ok(()) => Ok(Source { name, text, loaded }),
        Err(findings) => Err(Refusal::Wrong(loaded.places.errors(findings, &text, &name))),
    }
}

/// As [`load`], and checks the paths at which the start reads or creates something. What else is wrong is reported with
/// them; without them, the start itself finds it.
pub fn load_to_serve(path: &Path) -> Result<Source, Refusal> {
    let source = load(path)?;
    match paths::check(&source.loaded.config, path).is_empty() {
        true => Ok(source),
        false => examine(source, path, true),
    }
}

/// Checks everything that `source`, read from `path`, names outside of itself. `resolves`: also the names of servers.
pub fn examine(source: Source, path: &Path, resolves: bool) -> Result<Source, Refusal> {
    let Source { name, text, loaded } = &source;
    let faults = certificates::check(&loaded.config).err().unwrap_or_default();
    let mut findings: Vec<Finding> = faults.into_iter().map(Finding::from).collect();
    findings.extend(apps::check(&loaded.config));
    findings.extend(tokens::check(&loaded.config));
    findings.extend(paths::check(&loaded.config, path));
    if resolves {
        findings.extend(names::check(&loaded.config, RESOLVE_MAX));
    }
    match findings.is_empty() {
        true => Ok(source),
        false => Err(Refusal::Wrong(loaded.places.errors(findings, text, name))),
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
