//! One change to the host, small enough to be journaled, applied and undone alone.
//! In: built by items. Out: text for people; the current state, and whether the action is already in effect.
//! Invariant: every action can be inspected and undone; other advice is text only.

use crate::cpu_list::parse_mask;
use crate::host::{Host, Unreadable};
use serde::{Deserialize, Serialize};

/// The file that is written, or the tool that is run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "kind")]
pub enum Action {
    /// Changes nothing itself. Saves a setting that the next tool call changes as a side effect (a driver moves its
    /// interrupts when the number of queues changes). Restored after that tool call was undone.
    #[serde(rename = "beside")]
    SideEffect {
        /// Absolute path.
        path: String,
    },
    /// Creates a directory for a file that persists. Undone by removing the directory if it is empty.
    Folder {
        /// Absolute path.
        path: String,
    },
    /// Creates or replaces a file that persists. Undone by restoring the previous bytes or removing the file.
    File {
        /// Absolute path.
        path: String,
        /// The whole text.
        text: String,
    },
    /// Runs a tool. Undone by another tool call.
    Run {
        /// The command that changes the host.
        argv: Vec<String>,
        /// The command that restores the previous state.
        undo: Vec<String>,
        /// The command that prints the state, so that a later change by another program is noticed.
        probe: Vec<String>,
    },
    /// Writes a kernel setting under /proc or /sys.
    Setting {
        /// Absolute path.
        path: String,
        /// The value, without a newline.
        value: String,
    },
}

impl Action {
    /// An action that writes a kernel setting.
    #[must_use]
    pub fn setting(path: impl Into<String>, value: impl ToString) -> Self {
        Self::Setting { path: path.into(), value: value.to_string() }
    }

    /// An action that runs a tool, with its undo and its probe commands; words are separated by white space.
    #[must_use]
    pub fn run(argv: &str, undo: &str, probe: &str) -> Self {
        let words = |text: &str| text.split_whitespace().map(str::to_owned).collect();
        Self::Run { argv: words(argv), undo: words(undo), probe: words(probe) }
    }

    /// Whether the action changes something itself.
    #[must_use]
    pub const fn acts(&self) -> bool {
        !matches!(self, Self::SideEffect { .. })
    }

    /// The action as a shell command.
    #[must_use]
    pub fn command_text(&self) -> String {
        match self {
            Self::SideEffect { path } => format!("save {path}"),
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

    /// The command that undoes a tool call; empty for the other actions.
    #[must_use]
    pub fn undo_text(&self) -> String {
        match self {
            Self::Run { undo, .. } => undo.join(" "),
            _ => String::new(),
        }
    }

    /// The target of the action, for messages.
    #[must_use]
    pub fn target(&self) -> String {
        match self {
            Self::SideEffect { path }
            | Self::Folder { path }
            | Self::File { path, .. }
            | Self::Setting { path, .. } => path.clone(),
            Self::Run { probe, .. } => format!("the output of `{}`", probe.join(" ")),
        }
    }

    /// The current state of the target; `None` if the target does not exist.
    ///
    /// # Errors
    /// [`Unreadable`] if the state cannot be read; the action must then not be performed.
    pub fn state(&self, host: &Host) -> Result<Option<String>, Unreadable> {
        match self {
            Self::Folder { path } => Ok(host.exists(path).then(String::new)),
            Self::File { path, .. } if !host.exists(path) => Ok(None),
            Self::File { path, .. } => host.read_raw(path).map(Some),
            Self::SideEffect { path } | Self::Setting { path, .. } => {
                host.read_raw(path).map(|text| Some(chosen(path, text)))
            }
            Self::Run { probe, .. } => {
                let argv: Vec<&str> = probe.iter().map(String::as_str).collect();
                host.ask(&argv).map(Some)
            }
        }
    }

    /// Whether `state` is the result of this action, as far as the action itself can tell.
    #[must_use]
    pub fn is_reached_by(&self, state: Option<&str>) -> bool {
        match self {
            Self::Folder { .. } => state.is_some(),
            Self::File { text, .. } => state == Some(text),
            Self::SideEffect { .. } | Self::Run { .. } => false,
            Self::Setting { path, value } => state.is_some_and(|state| same(path, state, value)),
        }
    }
}

/// The name that `sysctl` uses for a path under /proc/sys. `sysctl` writes a dot inside a path component (as in
/// the names of VLAN interfaces) as `/`.
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

/// The value in the text of a setting. Files of the memory management list all values with the current one in
/// brackets (`always [madvise] never`), and accept a single word.
fn chosen(path: &str, text: String) -> String {
    let bracketed = path
        .starts_with("/sys/kernel/mm/")
        .then(|| text.split_whitespace().find(|word| word.starts_with('[')))
        .flatten()
        .map(|word| word.trim_matches(['[', ']']).to_owned());
    bracketed.unwrap_or(text)
}

/// Whether two texts of one setting have the same meaning: the kernel prints its own white space, and masks with
/// leading zeros.
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
    fn setting_is_shown_as_sysctl_command() {
        let action = Action::setting("/proc/sys/net/ipv4/tcp_mem", "1 2 3");
        assert_eq!(action.command_text(), "sysctl -w net.ipv4.tcp_mem=\"1 2 3\"");
        assert_eq!(
            sysctl_key("/proc/sys/net/ipv4/conf/eth0.5/rp_filter").unwrap(),
            "net.ipv4.conf.eth0/5.rp_filter"
        );
    }

    #[test]
    fn bracketed_word_is_the_value() {
        let path = "/sys/kernel/mm/transparent_hugepage/enabled";
        assert_eq!(chosen(path, "[always] madvise never\n".to_owned()), "always");
        assert_eq!(chosen("/proc/sys/a", "[x]".to_owned()), "[x]");
    }

    #[test]
    fn white_space_and_leading_zeros_of_masks_are_ignored() {
        assert!(same("/proc/sys/net/ipv4/tcp_mem", "1\t2\t3\n", "1 2 3"));
        assert!(same("/sys/class/net/e/queues/tx-0/xps_cpus", "00000000,0000000f\n", "f"));
        assert!(!same("/proc/sys/net/core/somaxconn", "0f", "f"));
    }
}
