//! One change to the host, small enough to be journaled, done and put back alone.
//! In: made by items. Out: text for people, and how to do it, look at it and put it back.
//! Invariant: an action that cannot be looked at and put back does not exist; such advice is text.

use crate::cpu_list::parse_mask;
use crate::host::{Host, Unreadable};
use serde::{Deserialize, Serialize};

/// What is written or run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "kind")]
pub enum Action {
    /// Changes nothing itself: a setting that the next call of a tool changes beside what it is called for
    /// (a driver places its interrupts anew with other queues). Put back after that call was.
    Beside {
        /// Absolute path.
        path: String,
    },
    /// Makes a folder for a file that persists; put back by removing it when it is empty.
    Folder {
        /// Absolute path.
        path: String,
    },
    /// Makes or replaces a file that persists; put back byte for byte, or removed.
    File {
        /// Absolute path.
        path: String,
        /// The whole text.
        text: String,
    },
    /// Runs a tool; put back by another call of it.
    Run {
        /// What changes the host.
        argv: Vec<String>,
        /// What puts the found state back.
        undo: Vec<String>,
        /// What prints the state, so that a later change by somebody else is noticed.
        probe: Vec<String>,
    },
    /// Writes a kernel setting under /proc or /sys.
    Setting {
        /// Absolute path.
        path: String,
        /// The value, without a line end.
        value: String,
    },
}

impl Action {
    /// A write to a kernel setting.
    #[must_use]
    pub fn setting(path: impl Into<String>, value: impl ToString) -> Self {
        Self::Setting { path: path.into(), value: value.to_string() }
    }

    /// A tool's call with its opposite and its probe, each as words apart from each other by blanks.
    #[must_use]
    pub fn run(argv: &str, undo: &str, probe: &str) -> Self {
        let words = |text: &str| text.split_whitespace().map(str::to_owned).collect();
        Self::Run { argv: words(argv), undo: words(undo), probe: words(probe) }
    }

    /// Whether the action changes something itself.
    #[must_use]
    pub const fn acts(&self) -> bool {
        !matches!(self, Self::Beside { .. })
    }

    /// The action as a shell user would type it.
    #[must_use]
    pub fn command_text(&self) -> String {
        match self {
            Self::Beside { path } => format!("save {path}"),
            Self::Folder { path } => format!("mkdir {path}"),
            Self::File { path, .. } => format!("write the file {path}"),
            Self::Run { argv, .. } => argv.join(" "),
            Self::Setting { path, value } => match sysctl_key(path) {
                Some(key) if value.contains(char::is_whitespace) => {
                    format!("sysctl -w {key}=\"{value}\"")
                }
                Some(key) => format!("sysctl -w {key}={value}"),
                None => format!("echo {value} > {path}"),
            },
        }
    }

    /// The call that puts back what a tool did, as a shell user would type it; empty for the others.
    #[must_use]
    pub fn undo_text(&self) -> String {
        match self {
            Self::Run { undo, .. } => undo.join(" "),
            _ => String::new(),
        }
    }

    /// What the action changes, for messages.
    #[must_use]
    pub fn target(&self) -> String {
        match self {
            Self::Beside { path }
            | Self::Folder { path }
            | Self::File { path, .. }
            | Self::Setting { path, .. } => path.clone(),
            Self::Run { probe, .. } => format!("what `{}` shows", probe.join(" ")),
        }
    }

    /// The present state of what the action changes; `None` when it does not exist.
    ///
    /// # Errors
    /// [`Unreadable`] when the state cannot be read: then the action must not be done.
    pub fn state(&self, host: &Host) -> Result<Option<String>, Unreadable> {
        match self {
            Self::Folder { path } => Ok(host.exists(path).then(String::new)),
            Self::File { path, .. } if !host.exists(path) => Ok(None),
            Self::File { path, .. } => host.read_raw(path).map(Some),
            Self::Beside { path } | Self::Setting { path, .. } => {
                host.read_raw(path).map(|text| Some(chosen(path, text)))
            }
            Self::Run { probe, .. } => {
                let argv: Vec<&str> = probe.iter().map(String::as_str).collect();
                host.ask(&argv).map(Some)
            }
        }
    }

    /// Whether `state` is what this action leads to, as far as the action alone can tell.
    #[must_use]
    pub fn is_reached_by(&self, state: Option<&str>) -> bool {
        match self {
            Self::Folder { .. } => state.is_some(),
            Self::File { text, .. } => state == Some(text),
            Self::Beside { .. } | Self::Run { .. } => false,
            Self::Setting { path, value } => state.is_some_and(|state| same(path, state, value)),
        }
    }
}

/// The name that `sysctl` uses for a path under /proc/sys; a dot inside a part (as in the names of
/// VLAN interfaces) is written `/` there.
#[must_use]
pub fn sysctl_key(path: &str) -> Option<String> {
    let key = path.strip_prefix("/proc/sys/")?;
    Some(
        key.chars()
            .map(|c| {
                if c == '/' {
                    '.'
                } else if c == '.' {
                    '/'
                } else {
                    c
                }
            })
            .collect(),
    )
}

/// The value in the text of a setting: files of the memory management list all values and bracket the
/// one that holds (`always [madvise] never`), and take only one word back.
fn chosen(path: &str, text: String) -> String {
    let bracketed = path
        .starts_with("/sys/kernel/mm/")
        .then(|| text.split_whitespace().find(|word| word.starts_with('[')))
        .flatten()
        .map(|word| word.trim_matches(['[', ']']).to_owned());
    bracketed.unwrap_or(text)
}

/// Whether two texts of one setting mean the same: the kernel writes back with its own white space,
/// and masks with leading zeros.
#[must_use]
pub fn same(path: &str, one: &str, other: &str) -> bool {
    if one.split_whitespace().eq(other.split_whitespace()) {
        return true;
    }
    let name = path.rsplit('/').next().unwrap_or_default();
    let is_mask = ["xps_cpus", "rps_cpus", "smp_affinity", "cpumask"].contains(&name);
    is_mask && parse_mask(one).is_some() && parse_mask(one) == parse_mask(other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_setting_reads_as_a_command() {
        let action = Action::setting("/proc/sys/net/ipv4/tcp_mem", "1 2 3");
        assert_eq!(action.command_text(), "sysctl -w net.ipv4.tcp_mem=\"1 2 3\"");
        assert_eq!(
            sysctl_key("/proc/sys/net/ipv4/conf/eth0.5/rp_filter").unwrap(),
            "net.ipv4.conf.eth0/5.rp_filter"
        );
    }

    #[test]
    fn of_several_words_the_bracketed_one_is_the_value() {
        let path = "/sys/kernel/mm/transparent_hugepage/enabled";
        assert_eq!(chosen(path, "[always] madvise never\n".to_owned()), "always");
        assert_eq!(chosen("/proc/sys/a", "[x]".to_owned()), "[x]");
    }

    #[test]
    fn white_space_and_zeros_of_a_mask_make_no_difference() {
        assert!(same("/proc/sys/net/ipv4/tcp_mem", "1\t2\t3\n", "1 2 3"));
        assert!(same("/sys/class/net/e/queues/tx-0/xps_cpus", "00000000,0000000f\n", "f"));
        assert!(!same("/proc/sys/net/core/somaxconn", "0f", "f"));
    }
}
