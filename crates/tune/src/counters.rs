//! Protocol counters of the kernel (/proc/net/netstat, /proc/net/snmp): pairs of lines, names above values.
//! In: a host, a path. Out: one counter by its group and name.

use crate::host::{Host, Unreadable};

/// A counter such as `TcpExt` `ListenOverflows`; 0 if this kernel does not count it.
///
/// # Errors
/// [`Unreadable`] if the file cannot be read.
pub fn counter(host: &Host, path: &str, group: &str, name: &str) -> Result<u64, Unreadable> {
    let text = host.read(path)?;
    let mut lines = text.lines().filter(|line| line.split(':').next() == Some(group));
    let (Some(names), Some(values)) = (lines.next(), lines.next()) else {
        return Ok(0);
    };
    let found = names
        .split_whitespace()
        .zip(values.split_whitespace())
        .find_map(|(key, value)| (key == name).then(|| value.parse().ok())?);
    Ok(found.unwrap_or(0))
}
