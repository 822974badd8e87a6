//! Apply and undo on recorded hosts: undo restores every byte, at whatever instant apply stops.

mod support;

use std::fs;
use std::path::Path;
use support::Scratch;
use tidegate_tune::action::Action;
use tidegate_tune::apply::{ApplyError, Point, apply};
use tidegate_tune::check::{ChangedBy, check};
use tidegate_tune::host::Host;
use tidegate_tune::journal::{self, Journal, JournalError, Progress};
use tidegate_tune::persist::kept_actions;
use tidegate_tune::undo::{UndoResult, undo};
use tidegate_tune::workload::{For, Workload};

/// All actions of `apply --persist` on a host, except tool calls, which a recorded host cannot run.
fn all_actions(host: &Host) -> Vec<(&'static str, Vec<Action>)> {
    let report = check(host, &Workload::of(For::All));
    let mut items = Vec::new();
    for entry in report.entries.iter().filter(|entry| entry.changed_by() == ChangedBy::Apply) {
        let finding = &entry.finding;
        let (kept, _) = kept_actions(host, entry.item.id, &finding.actions, &finding.kept);
        let actions: Vec<Action> = finding
            .actions
            .iter()
            .chain(&kept)
            .filter(|action| !matches!(action, Action::Run { .. }))
            // The kernel puts the current value in brackets. A recorded file does not.
            .filter(|action| !action.target().contains("transparent_hugepage"))
            .cloned()
            .collect();
        items.push((entry.item.id, actions));
    }
    items
}

/// Applies everything and stops after `last` points; returns whether it was stopped.
fn apply_until(host: &Host, state: &Path, last: usize) -> bool {
    let mut journal = Journal::open(state).unwrap();
    let mut point = 0;
    for (id, actions) in all_actions(host) {
        let mut killer = |_| {
            point += 1;
            point > last
        };
        match apply(host, &mut journal, id, &actions, &mut killer) {
            Ok(_) => {}
            Err(ApplyError::Killed) => return true,
            Err(error) => panic!("{id}: {error}"),
        }
    }
    false
}

fn undo_all(host: &Host, state: &Path) {
    let mut journal = Journal::open(state).unwrap();
    for undone in undo(host, &mut journal).unwrap() {
        assert!(
            matches!(undone.fate, UndoResult::AlreadyBack | UndoResult::Restored),
            "{}: {:?}",
            undone.step.action.target(),
            undone.fate
        );
    }
    assert!(journal.outstanding().is_empty());
}

#[test]
fn undo_after_a_stop_at_any_point_restores_every_byte() {
    for name in ["ena-vm", "container"] {
        let (tree, state) = (Scratch::of_host(name), Scratch::new());
        let host = Host::recorded(&tree.0);
        let before = tree.contents();
        let mut points = 0;
        while apply_until(&host, &state.0, points) {
            undo_all(&host, &state.0);
            assert_eq!(before, tree.contents(), "{name} stopped at point {points}");
            points += 1;
        }
        assert!(points > 20, "{name} has only {points} points");
        assert_ne!(before, tree.contents(), "the complete apply changes the tree");
        undo_all(&host, &state.0);
        assert_eq!(before, tree.contents());
    }
}

#[test]
fn journal_line_cut_at_any_byte_is_ignored() {
    let (tree, state) = (Scratch::new(), Scratch::new());
    let path = "/proc/sys/net/core/somaxconn";
    let file = tree.0.join(path.trim_start_matches('/'));
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    fs::write(&file, "128\n").unwrap();
    let host = Host::recorded(&tree.0);
    let journal_file = state.0.join("journal.jsonl");
    for line in 0..2 {
        fs::write(&file, "128\n").unwrap();
        fs::write(&journal_file, "").unwrap();
        let mut journal = Journal::open(&state.0).unwrap();
        apply(&host, &mut journal, "x", &[Action::setting(path, 4096)], &mut |_| false).unwrap();
        drop(journal);
        let whole = fs::read(&journal_file).unwrap();
        let first_end = whole.iter().position(|byte| *byte == b'\n').unwrap() + 1;
        // If the `begun` line is cut, the action was not performed; if the `done` line is cut, it was.
        let (from, to, value) = match line {
            0 => (0, first_end, "128\n"),
            _ => (first_end, whole.len(), "4096"),
        };
        for cut in from..to {
            fs::write(&file, value).unwrap();
            fs::write(&journal_file, &whole[..cut]).unwrap();
            undo_all(&host, &state.0);
            assert_eq!(fs::read_to_string(&file).unwrap(), "128\n", "cut at byte {cut}");
        }
    }
}

#[test]
fn changes_of_one_host_are_never_undone_on_another() {
    let (one, other, state) =
        (Scratch::of_host("ena-vm"), Scratch::of_host("ena-vm"), Scratch::new());
    let (here, there) = (Host::recorded(&one.0), Host::recorded(&other.0));
    let actions = [Action::setting("/proc/sys/net/core/somaxconn", 4096)];
    let mut journal = Journal::open(&state.0).unwrap();
    apply(&here, &mut journal, "x", &actions, &mut |_| false).unwrap();
    // The other host has the same value, so without the check undo would take it for its own change.
    fs::write(there.locate("/proc/sys/net/core/somaxconn"), "4096").unwrap();
    let before = other.contents();
    let refused = undo(&there, &mut journal).unwrap_err();
    assert!(matches!(refused, JournalError::OtherRoot(..)), "{refused}");
    assert!(refused.to_string().contains(&here.root_name()), "{refused}");
    let refused = apply(&there, &mut journal, "y", &actions, &mut |_| false);
    assert!(matches!(refused, Err(ApplyError::Journal(JournalError::OtherRoot(..)))));
    assert_eq!(before, other.contents());
    assert_eq!(journal.outstanding().len(), 1);
    drop(journal);
    undo_all(&here, &state.0);
}

#[test]
fn journal_line_without_root_belongs_to_the_live_host() {
    let (tree, state) = (Scratch::of_host("ena-vm"), Scratch::new());
    let host = Host::recorded(&tree.0);
    let path = "/proc/sys/net/core/somaxconn";
    let mut journal = Journal::open(&state.0).unwrap();
    apply(&host, &mut journal, "x", &[Action::setting(path, 4096)], &mut |_| false).unwrap();
    drop(journal);
    let file = state.0.join("journal.jsonl");
    let named = format!("\"root\":\"{}\",", host.root_name());
    let text = fs::read_to_string(&file).unwrap();
    assert!(text.contains(&named), "{text}");
    fs::write(&file, text.replace(&named, "")).unwrap();
    let mut journal = Journal::open(&state.0).unwrap();
    assert_eq!(journal.outstanding()[0].root, "/");
    let refused = undo(&host, &mut journal).unwrap_err();
    assert!(refused.to_string().contains("the live host"), "{refused}");
}

#[test]
fn damaged_journal_line_is_refused() {
    let state = Scratch::new();
    fs::write(state.0.join("journal.jsonl"), "nonsense\n{}\n").unwrap();
    assert!(matches!(Journal::open(&state.0), Err(JournalError::Damaged(_, 1))));
}

#[test]
fn unreadable_journal_is_an_error() {
    let state = Scratch::new();
    assert!(!journal::exists(&state.0).unwrap());
    assert!(!journal::exists(&state.0.join("no/such/folder")).unwrap());
    let file = state.0.join("journal.jsonl");
    std::os::unix::fs::symlink(&file, &file).unwrap();
    assert!(matches!(journal::exists(&state.0), Err(JournalError::Io(..))));
}

#[test]
fn journal_is_locked() {
    let state = Scratch::new();
    let _journal = Journal::open(&state.0).unwrap();
    assert!(matches!(Journal::open(&state.0), Err(JournalError::Busy(_))));
}

#[test]
fn value_changed_since_is_reported_and_left_as_it_is() {
    let (tree, state) = (Scratch::of_host("ena-vm"), Scratch::new());
    let host = Host::recorded(&tree.0);
    let path = "/proc/sys/net/core/somaxconn";
    let mut journal = Journal::open(&state.0).unwrap();
    let actions = [Action::setting(path, 4096), Action::setting("/proc/sys/vm/swappiness", 1)];
    apply(&host, &mut journal, "x", &actions, &mut |_| false).unwrap();
    fs::write(host.locate(path), "777\n").unwrap();
    let fates = undo(&host, &mut journal).unwrap();
    assert_eq!(fates[0].fate, UndoResult::Restored, "the newest step is undone first");
    assert_eq!(fates[1].fate, UndoResult::ChangedSince("777".to_owned()));
    assert_eq!(host.read(path).unwrap(), "777");
    assert_eq!(host.read("/proc/sys/vm/swappiness").unwrap(), "60");
    assert_eq!(journal.outstanding().len(), 1, "the step stays in the journal");
}

#[test]
fn value_reset_by_a_reboot_needs_no_undo() {
    let (tree, state) = (Scratch::of_host("ena-vm"), Scratch::new());
    let host = Host::recorded(&tree.0);
    let path = "/proc/sys/net/core/somaxconn";
    let mut journal = Journal::open(&state.0).unwrap();
    apply(&host, &mut journal, "x", &[Action::setting(path, 4096)], &mut |_| false).unwrap();
    drop(journal);
    fs::write(host.locate(path), "128\n").unwrap();
    fs::create_dir_all(host.locate("/proc/sys/kernel/random")).unwrap();
    fs::write(host.locate("/proc/sys/kernel/random/boot_id"), "another").unwrap();
    let mut journal = Journal::open(&state.0).unwrap();
    let fates = undo(&host, &mut journal).unwrap();
    assert_eq!(fates[0].fate, UndoResult::AlreadyBack);
    assert!(fates[0].restarted);
}

#[test]
fn failure_of_the_second_action_undoes_the_whole_item() {
    let (tree, state) = (Scratch::of_host("ena-vm"), Scratch::new());
    let host = Host::recorded(&tree.0);
    let before = tree.contents();
    let mut journal = Journal::open(&state.0).unwrap();
    let path = "/proc/sys/net/core/somaxconn";
    apply(&host, &mut journal, "first", &[Action::setting(path, 200)], &mut |_| false).unwrap();
    let actions = [Action::setting(path, 4096), Action::setting("/proc/sys/no/such", 1)];
    let failed = apply(&host, &mut journal, "second", &actions, &mut |_| false);
    assert!(matches!(failed, Err(ApplyError::Action(_))));
    assert_eq!(host.read(path).unwrap(), "200", "the change of an earlier item stays");
    undo(&host, &mut journal).unwrap();
    assert_eq!(before, tree.contents());
}

#[test]
fn journal_writable_by_another_user_is_refused() {
    use std::os::unix::fs::{PermissionsExt, chown, symlink};
    let state = Scratch::new();
    let file = state.0.join("journal.jsonl");
    fs::write(&file, "").unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o666)).unwrap();
    assert!(matches!(Journal::open(&state.0), Err(JournalError::Foreign(_))));
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    assert!(Journal::open(&state.0).is_ok());
    // Only root can change the owner of a file.
    if chown(&file, Some(65_534), None).is_ok() {
        assert!(matches!(Journal::open(&state.0), Err(JournalError::Foreign(_))));
    }
    let elsewhere = Scratch::new();
    fs::remove_file(&file).unwrap();
    symlink(elsewhere.0.join("other"), &file).unwrap();
    assert!(matches!(Journal::open(&state.0), Err(JournalError::Io(..))));
    assert!(!elsewhere.0.join("other").exists());
}

#[test]
fn links_and_parent_paths_do_not_leave_a_recorded_host() {
    use std::os::unix::fs::symlink;
    let (tree, outside, state) = (Scratch::of_host("ena-vm"), Scratch::new(), Scratch::new());
    let victim = outside.0.join("victim");
    fs::write(&victim, "theirs").unwrap();
    let host = Host::recorded(&tree.0);
    let setting = "/proc/sys/net/core/somaxconn";
    fs::remove_file(host.locate(setting)).unwrap();
    symlink(&victim, host.locate(setting)).unwrap();
    symlink(&outside.0, tree.0.join("out")).unwrap();
    fs::create_dir_all(tree.0.join("etc")).unwrap();
    symlink(&victim, tree.0.join("etc/x.tidegate-new")).unwrap();
    let upwards = format!("/../../..{}", victim.display());
    let file = |path: &str| Action::File { path: path.to_owned(), text: "ours".to_owned() };
    let mut journal = Journal::open(&state.0).unwrap();
    for action in [
        Action::setting(setting, 1),
        Action::setting(upwards, 1),
        Action::Folder { path: "/out/folder".to_owned() },
        file("/out/file"),
        file("/etc/x.conf"),
    ] {
        let _ = apply(&host, &mut journal, "x", &[action], &mut |_| false);
    }
    assert_eq!(fs::read_to_string(&victim).unwrap(), "theirs");
    assert_eq!(fs::read_dir(&outside.0).unwrap().count(), 1, "no other file was created");
    assert_eq!(fs::read_to_string(tree.0.join("etc/x.conf")).unwrap(), "ours");
}

#[test]
fn several_changes_of_one_value_are_undone_to_the_first_state() {
    let (tree, state) = (Scratch::of_host("ena-vm"), Scratch::new());
    let host = Host::recorded(&tree.0);
    let before = tree.contents();
    let path = "/proc/sys/net/core/somaxconn";
    for value in [1000, 2000, 3000] {
        let mut journal = Journal::open(&state.0).unwrap();
        let actions = [Action::setting(path, value)];
        apply(&host, &mut journal, "x", &actions, &mut |_| false).unwrap();
    }
    undo_all(&host, &state.0);
    assert_eq!(before, tree.contents());
}

#[test]
fn action_already_in_effect_is_not_journaled() {
    let (tree, state) = (Scratch::of_host("ena-vm"), Scratch::new());
    let host = Host::recorded(&tree.0);
    let mut journal = Journal::open(&state.0).unwrap();
    let actions = [Action::setting("/proc/sys/net/core/somaxconn", 128)];
    assert_eq!(apply(&host, &mut journal, "x", &actions, &mut |_| false).unwrap(), 0);
    assert!(journal.outstanding().is_empty());
}

#[test]
fn persistent_files_name_their_command_and_are_removed_by_undo() {
    let (tree, state) = (Scratch::of_host("ena-vm"), Scratch::new());
    let host = Host::recorded(&tree.0);
    let before = tree.contents();
    assert!(!apply_until(&host, &state.0, usize::MAX));
    let file = tree.0.join("etc/sysctl.d/90-tidegate-capacity-somaxconn.conf");
    let text = fs::read_to_string(file).unwrap();
    assert_eq!(
        text,
        "# Written by `tidegate tune apply capacity-somaxconn --persist`; `tidegate tune undo` removes it.\n\
         net.core.somaxconn = 4096\n"
    );
    let journal = Journal::open(&state.0).unwrap();
    assert!(journal.outstanding().iter().all(|step| matches!(step.progress, Progress::Done(_))));
    drop(journal);
    undo_all(&host, &state.0);
    assert_eq!(before, tree.contents());
}

#[test]
fn undo_removes_a_draft_that_was_not_renamed() {
    let (tree, state) = (Scratch::of_host("ena-vm"), Scratch::new());
    let host = Host::recorded(&tree.0);
    fs::create_dir_all(tree.0.join("etc/sysctl.d")).unwrap();
    let before = tree.contents();
    let path = "/etc/sysctl.d/90-tidegate-x.conf".to_owned();
    let file = Action::File { path, text: "a = 1\n".to_owned() };
    let mut journal = Journal::open(&state.0).unwrap();
    let mut killer = |point| point == Point::BeforeAction;
    assert!(apply(&host, &mut journal, "x", &[file], &mut killer).is_err());
    drop(journal);
    // The state after a kill while the draft is written.
    fs::write(tree.0.join("etc/sysctl.d/90-tidegate-x.tidegate-new"), "a = ").unwrap();
    undo_all(&host, &state.0);
    assert_eq!(before, tree.contents());
}

#[test]
fn applied_changes_can_be_persisted_later() {
    let (tree, state) = (Scratch::of_host("ena-vm"), Scratch::new());
    let host = Host::recorded(&tree.0);
    let before = tree.contents();
    let path = "/proc/sys/net/core/somaxconn";
    let actions = vec![Action::setting(path, 4096)];
    let mut journal = Journal::open(&state.0).unwrap();
    apply(&host, &mut journal, "x", &actions, &mut |_| false).unwrap();
    let known = journal.actions_of("x");
    assert_eq!(known, actions);
    let (kept, _) = kept_actions(&host, "x", &known, &[]);
    apply(&host, &mut journal, "x", &kept, &mut |_| false).unwrap();
    assert!(tree.0.join("etc/sysctl.d/90-tidegate-x.conf").exists());
    drop(journal);
    undo_all(&host, &state.0);
    assert_eq!(before, tree.contents());
}

#[test]
fn undo_restores_side_effects_of_a_tool() {
    let (tree, state) = (Scratch::of_host("ena-vm"), Scratch::new());
    let host = Host::recorded(&tree.0);
    let before = tree.contents();
    let (side, path) = ("/proc/irq/28/smp_affinity_list", "/proc/sys/net/core/somaxconn");
    let actions = [Action::SideEffect { path: side.to_owned() }, Action::setting(path, 4096)];
    let mut journal = Journal::open(&state.0).unwrap();
    let done = apply(&host, &mut journal, "x", &actions, &mut |_| false).unwrap();
    assert_eq!(done, 1, "saving a setting is not a change");
    // The driver moves the interrupt, and moves it again when the change is undone.
    fs::write(host.locate(side), "3\n").unwrap();
    let fates = undo(&host, &mut journal).unwrap();
    assert!(fates.iter().all(|undone| undone.fate == UndoResult::Restored), "{fates:?}");
    assert_eq!(before, tree.contents());
    // After a reboot, the current value was set by another program.
    apply(&host, &mut journal, "x", &actions, &mut |_| false).unwrap();
    fs::write(host.locate(side), "3\n").unwrap();
    fs::create_dir_all(host.locate("/proc/sys/kernel/random")).unwrap();
    fs::write(host.locate("/proc/sys/kernel/random/boot_id"), "another").unwrap();
    undo(&host, &mut journal).unwrap();
    assert_eq!(host.read(side).unwrap(), "3");
    assert!(journal.outstanding().is_empty());
}

#[test]
fn side_effects_stay_with_a_change_that_is_not_undone() {
    let (tree, state) = (Scratch::of_host("ena-vm"), Scratch::new());
    let host = Host::recorded(&tree.0);
    let before = tree.contents();
    let (side, path) = ("/proc/irq/28/smp_affinity_list", "/proc/sys/net/core/somaxconn");
    let actions = [Action::SideEffect { path: side.to_owned() }, Action::setting(path, 4096)];
    let mut journal = Journal::open(&state.0).unwrap();
    apply(&host, &mut journal, "x", &actions, &mut |_| false).unwrap();
    // An operator sets another number of queues and places the interrupts for it.
    fs::write(host.locate(path), "777\n").unwrap();
    fs::write(host.locate(side), "3\n").unwrap();
    let fates = undo(&host, &mut journal).unwrap();
    assert!(fates.iter().all(|undone| undone.is_left()), "{fates:?}");
    assert_eq!(host.read(side).unwrap(), "3");
    // The operator restores our value: then everything can be undone.
    fs::write(host.locate(path), "4096").unwrap();
    drop(journal);
    undo_all(&host, &state.0);
    assert_eq!(before, tree.contents());
}

#[test]
fn persistent_rules_match_renamed_interfaces_and_skip_interrupt_numbers() {
    let tree = Scratch::of_host("ena-vm");
    let host = Host::recorded(&tree.0);
    let actions = [
        Action::setting("/sys/class/net/eth0/gro_flush_timeout", 20_000),
        Action::setting("/proc/irq/27/smp_affinity_list", 3),
    ];
    let (kept, not_kept) = kept_actions(&host, "x", &actions, &[]);
    let files: Vec<&Action> =
        kept.iter().filter(|action| matches!(action, Action::File { .. })).collect();
    let [Action::File { path, text }] = files[..] else { panic!("{kept:?}") };
    assert_eq!(path, "/etc/udev/rules.d/90-tidegate-x.rules");
    // An interface gets its persistent name with a `move` event after the `add` event.
    assert!(
        text.contains("ACTION==\"add|move\", SUBSYSTEM==\"net\", KERNEL==\"eth0\", ATTR"),
        "{text}"
    );
    assert_eq!(not_kept, ["echo 3 > /proc/irq/27/smp_affinity_list"]);
}
