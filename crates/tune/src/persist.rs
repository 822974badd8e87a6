//! Files that keep changes after a reboot. The first line of each file names the command that wrote it.
//! In: the actions of an item, and the files that the item itself defines. Out: file and directory actions, which
//! are journaled and undone like all other actions.
//! Limits: one file per kind and item. Never: edits a file that another program or person wrote.

use crate::action::{Action, sysctl_key};
use crate::finding::KeptFile;
use crate::host::{Host, find_tool};
use std::path::Path;

/// The actions that keep the changes of an item: sysctl.d for /proc/sys, udev rules for interfaces, tmpfiles.d for
/// other settings, and the files that the item defines. The second value lists the commands that no file can keep.
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
            // Interrupt numbers may change at a reboot.
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
            Action::SideEffect { .. } | Action::Folder { .. } | Action::File { .. } => {}
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

/// Adds actions for the parent directories of `path` that do not exist yet.
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

/// A command for a udev rule, which requires the full path of the tool.
fn call(argv: &[String]) -> String {
    let name = argv.first().map(String::as_str).unwrap_or_default();
    let tool = find_tool(name).map_or_else(|| name.to_owned(), |tool| tool.display().to_string());
    let rest = argv.iter().skip(1).cloned();
    std::iter::once(tool).chain(rest).collect::<Vec<_>>().join(" ")
}

/// A match for an interface. One with a persistent name first appears under another name (`add`) and is then
/// renamed (`move`).
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
