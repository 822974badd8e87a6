//! Reads a configuration file and parses it.
//! In: a path. Out: a `Source`, or a `Refusal` to print.
//! Limits: reads at most one byte more than `FILE_BYTES_MAX`.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use tidegate_config::{Errors, FILE_BYTES_MAX, Loaded, SUPPLIED_BYTES_MAX};

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

/// Reads a file that the configuration names.
fn read_supply(path: &str) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    // One byte more than allowed, so that a file that is too large is noticed.
    let limit = SUPPLIED_BYTES_MAX + 1;
    let file = File::open(path).map_err(|error| error.to_string())?;
    file.take(limit).read_to_end(&mut bytes).map_err(|error| error.to_string())?;
    Ok(bytes)
}

fn read(path: &Path) -> Result<String, String> {
    let mut bytes = Vec::new();
    // One byte more than allowed, so that the parser can report a file that is too large.
    let limit = FILE_BYTES_MAX as u64 + 1;
    let file = File::open(path).map_err(|error| format!("cannot open the file: {error}"))?;
    file.take(limit)
        .read_to_end(&mut bytes)
        .map_err(|error| format!("cannot read the file: {error}"))?;
    String::from_utf8(bytes).map_err(|error| {
        format!(
            "not UTF-8: invalid byte at offset {}; save the file as UTF-8",
            error.utf8_error().valid_up_to()
        )
    })
}
