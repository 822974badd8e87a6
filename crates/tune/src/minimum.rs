//! Settings with a minimum value, the most common kind of advice.
//! In: a path under /proc/sys, the minimum. Out: a finding with the write that sets it.

use crate::action::{Action, sysctl_key};
use crate::finding::Finding;
use crate::host::{Host, Unreadable};

/// `Good` if the number at `path` is at least `wanted`, otherwise `Costs` with the write.
///
/// # Errors
/// [`Unreadable`] if the setting cannot be read.
pub fn at_least(host: &Host, path: &str, wanted: u64) -> Result<Finding, Unreadable> {
    let present = host.read_number(path)?;
    let name = sysctl_key(path).unwrap_or_else(|| path.to_owned());
    if present >= wanted {
        return Ok(Finding::good(format!("{name} is {present} (wanted: at least {wanted})")));
    }
    Ok(Finding::costs(format!("{name} is {present}; wanted: at least {wanted}"))
        .action(Action::setting(path, wanted)))
}
