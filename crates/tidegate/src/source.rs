//! Reads a configuration file and parses it.
//! In: a path. Out: `Config` and `Warnings`, or a `Refusal` to print.
//! Limits: reads at most one byte more than `FILE_BYTES_MAX`.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use tidegate_config::model::Config;
use tidegate_config::{Errors, FILE_BYTES_MAX, Warnings};
use tidegate_server::certificates::TlsFault;

/// Why a configuration cannot be used.
#[derive(Debug)]
pub enum Refusal {
    /// The file cannot be read; the text is the reason.
    Unreadable(String),
    /// The file has errors.
    Wrong(Errors),
    /// Certificates or keys named in the file cannot be used.
    Certificates(Vec<TlsFault>),
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Unreadable(text) => writeln!(f, "tidegate: {text}"),
            Self::Wrong(errors) => write!(f, "{errors}"),
            Self::Certificates(faults) => {
                faults.iter().try_for_each(|fault| writeln!(f, "tidegate: {fault}"))
            }
        }
    }
}

/// Reads and checks the file at `path`.
pub fn load(path: &Path) -> Result<(Config, Warnings), Refusal> {
    let name = path.display().to_string();
    let text = read(path).map_err(|why| Refusal::Unreadable(format!("{name}: {why}")))?;
    tidegate_config::parse_with_warnings(&text, &name).map_err(Refusal::Wrong)
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
