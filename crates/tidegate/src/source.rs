//! Brings a configuration file in: bytes of a file to a checked configuration.
//! In: a path. Out: `Config` and `Warnings`, or what to tell the operator.
//! Limits: `FILE_BYTES_MAX`; what is beyond is not read.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use tidegate_config::model::Config;
use tidegate_config::{Errors, FILE_BYTES_MAX, Warnings};
use tidegate_server::certificates::TlsFault;

/// Why there is no configuration.
#[derive(Debug)]
pub enum Refusal {
    /// The file cannot be read; the text says why.
    Unreadable(String),
    /// The file is wrong.
    Wrong(Errors),
    /// Certificates or keys that it names cannot be used.
    Certificates(Vec<TlsFault>),
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Unreadable(text) => writeln!(f, "error: {text}"),
            Self::Wrong(errors) => write!(f, "{errors}"),
            Self::Certificates(faults) => {
                faults.iter().try_for_each(|fault| writeln!(f, "error: {fault}"))
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
    // One byte more than allowed, so that the reader sees that there is more.
    let limit = FILE_BYTES_MAX as u64 + 1;
    let file = File::open(path).map_err(|error| format!("cannot be opened: {error}"))?;
    file.take(limit).read_to_end(&mut bytes).map_err(|error| format!("cannot be read: {error}"))?;
    String::from_utf8(bytes).map_err(|error| {
        format!(
            "is no UTF-8 text: byte {} is odd; save it as UTF-8",
            error.utf8_error().valid_up_to()
        )
    })
}
