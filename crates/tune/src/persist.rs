//! Files that keep changes over restarts, each naming its origin.
//! In: an item's actions and the files it asks for itself. Out: file (and folder) actions, which are
//! journaled and put back like every other.
//! Limits: one file a kind and item. Never: edits a file of somebody else.

use crate::action::{Action, sysctl_key};
use crate::finding::KeptFile;
use crate::host::{Host, find_tool};
use std::path::Path;

/// What keeps an item's changes: sysctl.d for /proc/sys, udev rules for interfaces, tmpfiles.d for the
/// rest, and the files that the item asks for. Second: what nothing keeps, in words.
#[must_use]
pub fn kept_actions(
    host: &Host,
    item: &str,
    actions: &[Action],
    kept: &[KeptFile],
) -> (Vec<Action>, Vec<String>) {
    let (mut sysctl, mut tmpfiles, mut udev) = (String::new(), String::new(), String::new());
    let mut not_kept = Vec::new();
    for action in actions {
        match action {
            // The numbers of interrupts may be others after a restart.
            Action::Setting { path, .. } if path.starts_with("/proc/irq/") => {
                not_kept.push(action.command_text());
            }
            Action::Setting { path, value } => match (sysctl_key(path), interface_file(path)) {
                (Some(key), _) => sysctl.push_str(&format!("{key} = {value}\n")),
                (None, Some((name, file))) => {
                    udev.push_str(&format!("{}, ATTR{{{file}}}=\"{value}\"\n", udev_match(name)));
                }
                (None, None) => tmpfiles.push_str(&format!("w- {path} - - - - {value}\n")),
            },
            Action::Run { argv, .. } => match device_of(argv) {
                Some(name) => {
                    udev.push_str(&format!("{}, RUN+=\"{}\"\n", udev_match(name), call(argv)));
                }
                None => not_kept.push(argv.join(" ")),
            },
            Action::Beside { .. } | Action::Folder { .. } | Action::File { .. } => {}
        }
    }
    let made = [
        (format!("/etc/sysctl.d/90-tidegate-{item}.conf"), sysctl),
        (format!("/etc/tmpfiles.d/tidegate-{item}.conf"), tmpfiles),
        (format!("/etc/udev/rules.d/90-tidegate-{item}.rules"), udev),
    ];
    let asked = kept.iter().map(|file| (file.path.clone(), file.text.clone()));
    let mut result = Vec::new();
    for (path, body) in made.into_iter().chain(asked).filter(|(_, body)| !body.is_empty()) {
        add_folders(host, &path, &mut result);
        let text = format!(
            "# Written by `tidegate tune apply {item} --persist`; `tidegate tune undo` removes it.\n{body}"
        );
        result.push(Action::File { path, text });
    }
    (result, not_kept)
}

/// Folders on the way to `path` that do not exist yet.
fn add_folders(host: &Host, path: &str, actions: &mut Vec<Action>) {
    let mut missing: Vec<String> = Path::new(path)
        .ancestors()
        .skip(1)
        .filter_map(|folder| folder.to_str())
        .take_while(|folder| *folder != "/" && !host.exists(folder))
        .map(str::to_owned)
        .collect();
    missing.reverse();
    for path in missing {
        let folder = Action::Folder { path };
        if !actions.contains(&folder) {
            actions.push(folder);
        }
    }
}

/// A call as udev wants it: the tool by its full path.
fn call(argv: &[String]) -> String {
    let name = argv.first().map(String::as_str).unwrap_or_default();
    let tool = find_tool(name).map_or_else(|| name.to_owned(), |tool| tool.display().to_string());
    let rest = argv.iter().skip(1).cloned();
    std::iter::once(tool).chain(rest).collect::<Vec<_>>().join(" ")
}

/// An interface that gets a lasting name appears under another one (`add`) and is then renamed (`move`).
fn udev_match(name: &str) -> String {
    format!("ACTION==\"add|move\", SUBSYSTEM==\"net\", KERNEL==\"{name}\"")
}

fn interface_file(path: &str) -> Option<(&str, &str)> {
    path.strip_prefix("/sys/class/net/")?.split_once('/')
}

/// The interface in a call of ethtool or tc.
fn device_of(argv: &[String]) -> Option<&str> {
    match argv.first().map(String::as_str) {
        Some("ethtool") => argv.get(2).map(String::as_str),
        Some("tc") => {
            let at = argv.iter().position(|word| word == "dev")?;
            argv.get(at + 1).map(String::as_str)
        }
        _ => None,
    }
}
