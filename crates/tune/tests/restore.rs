//! Apply and undo on trees: byte for byte, whatever instant the work ends at.

mod support;

use std::fs;
use std::path::Path;
use support::Scratch;
use tidegate_tune::action::Action;
use tidegate_tune::apply::{ApplyError, Point, apply};
use tidegate_tune::check::{Hand, check};
use tidegate_tune::host::Host;
use tidegate_tune::journal::{self, Journal, JournalError, Progress};
use tidegate_tune::persist::kept_actions;
use tidegate_tune::undo::{Fate, undo};
use tidegate_tune::workload::{For, Workload};

/// All that `apply --persist` would do on a host, but for calls of tools, which trees cannot run.
fn works(host: &Host) -> Vec<(&'static str, Vec<Action>)> {
    let report = check(host, &Workload::of(For::All));
    let mut works = Vec::new();
    for entry in report.entries.iter().filter(|entry| entry.hand() == Hand::Apply) {
        let finding = &entry.finding;
        let (kept, _) = kept_actions(host, entry.item.id, &finding.actions, &finding.kept);
        let actions: Vec<Action> = finding
            .actions
            .iter()
            .chain(&kept)
            .filter(|action| !matches!(action, Action::Run { .. }))
            // A tree does not have the kernel's way of bracketing the value that holds.
            .filter(|action| !action.target().contains("transparent_hugepage"))
            .cloned()
            .collect();
        works.push((entry.item.id, actions));
    }
    works
}

/// Applies everything, ended at the `last`th point; gives whether it was ended.
fn apply_until(host: &Host, state: &Path, last: usize) -> bool {
    let mut journal = Journal::open(state).unwrap();
    let mut point = 0;
    for (id, actions) in works(host) {
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
            matches!(undone.fate, Fate::AlreadyBack | Fate::Restored),
            "{}: {:?}",
            undone.step.action.target(),
            undone.fate
        );
    }
    assert!(journal.outstanding().is_empty());
}

#[test]
fn ended_at_any_step_undo_restores_every_byte() {
    for name in ["ena-vm", "container"] {
        let (tree, state) = (Scratch::of_host(name), Scratch::new());
        let host = Host::recorded(&tree.0);
        let before = tree.contents();
        let mut points = 0;
        while apply_until(&host, &state.0, points) {
            undo_all(&host, &state.0);
            assert_eq!(before, tree.contents(), "{name} ended at point {points}");
            points += 1;
        }
        assert!(points > 20, "{name} has only {points} points");
        assert_ne!(before, tree.contents(), "applied to the end, something is different");
        undo_all(&host, &state.0);
        assert_eq!(before, tree.contents());
    }
}

#[test]
fn a_line_of_the_journal_torn_at_any_byte_is_as_if_it_were_not_there() {
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
        // Torn in the announcement, nothing was done; torn in the note, it was.
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
fn what_was_changed_on_one_host_is_never_put_back_on_another() {
    let (one, other, state) =
        (Scratch::of_host("ena-vm"), Scratch::of_host("ena-vm"), Scratch::new());
    let (here, there) = (Host::recorded(&one.0), Host::recorded(&other.0));
    let actions = [Action::setting("/proc/sys/net/core/somaxconn", 4096)];
    let mut journal = Journal::open(&state.0).unwrap();
    apply(&here, &mut journal, "x", &actions, &mut |_| false).unwrap();
    // The other host is as if the same had been done there: its value would be taken for ours.
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
fn a_line_that_names_no_host_is_of_the_live_one() {
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
fn a_damaged_line_in_the_middle_stops_everything() {
    let state = Scratch::new();
    fs::write(state.0.join("journal.jsonl"), "nonsense\n{}\n").unwrap();
    assert!(matches!(Journal::open(&state.0), Err(JournalError::Damaged(_, 1))));
}

#[test]
fn a_journal_that_cannot_be_looked_at_is_not_one_that_is_not_there() {
    let state = Scratch::new();
    assert!(!journal::exists(&state.0).unwrap());
    assert!(!journal::exists(&state.0.join("no/such/folder")).unwrap());
    let file = state.0.join("journal.jsonl");
    std::os::unix::fs::symlink(&file, &file).unwrap();
    assert!(matches!(journal::exists(&state.0), Err(JournalError::Io(..))));
}

#[test]
fn only_one_process_has_the_journal() {
    let state = Scratch::new();
    let _journal = Journal::open(&state.0).unwrap();
    assert!(matches!(Journal::open(&state.0), Err(JournalError::Busy(_))));
}

#[test]
fn a_value_changed_since_is_reported_and_left_alone() {
    let (tree, state) = (Scratch::of_host("ena-vm"), Scratch::new());
    let host = Host::recorded(&tree.0);
    let path = "/proc/sys/net/core/somaxconn";
    let mut journal = Journal::open(&state.0).unwrap();
    let actions = [Action::setting(path, 4096), Action::setting("/proc/sys/vm/swappiness", 1)];
    apply(&host, &mut journal, "x", &actions, &mut |_| false).unwrap();
    fs::write(host.locate(path), "777\n").unwrap();
    let fates = undo(&host, &mut journal).unwrap();
    assert_eq!(fates[0].fate, Fate::Restored, "the newest comes first");
    assert_eq!(fates[1].fate, Fate::ChangedSince("777".to_owned()));
    assert_eq!(host.read(path).unwrap(), "777");
    assert_eq!(host.read("/proc/sys/vm/swappiness").unwrap(), "60");
    assert_eq!(journal.outstanding().len(), 1, "it stays in the journal");
}

#[test]
fn a_restart_that_reset_the_value_needs_no_undo() {
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
    assert_eq!(fates[0].fate, Fate::AlreadyBack);
    assert!(fates[0].restarted);
}

#[test]
fn an_item_whose_second_action_fails_is_put_back_whole() {
    let (tree, state) = (Scratch::of_host("ena-vm"), Scratch::new());
    let host = Host::recorded(&tree.0);
    let before = tree.contents();
    let mut journal = Journal::open(&state.0).unwrap();
    let path = "/proc/sys/net/core/somaxconn";
    apply(&host, &mut journal, "first", &[Action::setting(path, 200)], &mut |_| false).unwrap();
    let actions = [Action::setting(path, 4096), Action::setting("/proc/sys/no/such", 1)];
    let failed = apply(&host, &mut journal, "second", &actions, &mut |_| false);
    assert!(matches!(failed, Err(ApplyError::Action(_))));
    assert_eq!(host.read(path).unwrap(), "200", "what an earlier item did stays");
    undo(&host, &mut journal).unwrap();
    assert_eq!(before, tree.contents());
}

#[test]
fn a_journal_that_another_user_may_have_written_is_not_believed() {
    use std::os::unix::fs::{PermissionsExt, chown, symlink};
    let state = Scratch::new();
    let file = state.0.join("journal.jsonl");
    fs::write(&file, "").unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o666)).unwrap();
    assert!(matches!(Journal::open(&state.0), Err(JournalError::Foreign(_))));
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    assert!(Journal::open(&state.0).is_ok());
    // Only root can give a file away.
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
fn links_and_steps_upwards_lead_no_change_out_of_a_recorded_host() {
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
    assert_eq!(fs::read_dir(&outside.0).unwrap().count(), 1, "nothing was made beside it");
    assert_eq!(fs::read_to_string(tree.0.join("etc/x.conf")).unwrap(), "ours");
}

#[test]
fn two_changes_of_one_value_are_undone_to_the_first_state() {
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
fn what_is_as_wanted_already_is_not_journaled() {
    let (tree, state) = (Scratch::of_host("ena-vm"), Scratch::new());
    let host = Host::recorded(&tree.0);
    let mut journal = Journal::open(&state.0).unwrap();
    let actions = [Action::setting("/proc/sys/net/core/somaxconn", 128)];
    assert_eq!(apply(&host, &mut journal, "x", &actions, &mut |_| false).unwrap(), 0);
    assert!(journal.outstanding().is_empty());
}

#[test]
fn files_that_persist_name_their_origin_and_go_with_undo() {
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
fn a_file_that_was_written_but_not_yet_put_in_place_goes_with_undo() {
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
    // The next thing a kill could interrupt.
    fs::write(tree.0.join("etc/sysctl.d/90-tidegate-x.tidegate-new"), "a = ").unwrap();
    undo_all(&host, &state.0);
    assert_eq!(before, tree.contents());
}

#[test]
fn what_is_in_place_already_can_still_be_kept_over_restarts() {
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
fn what_a_tool_sets_anew_on_the_side_is_as_before_after_the_undo() {
    let (tree, state) = (Scratch::of_host("ena-vm"), Scratch::new());
    let host = Host::recorded(&tree.0);
    let before = tree.contents();
    let (side, path) = ("/proc/irq/28/smp_affinity_list", "/proc/sys/net/core/somaxconn");
    let actions = [Action::Beside { path: side.to_owned() }, Action::setting(path, 4096)];
    let mut journal = Journal::open(&state.0).unwrap();
    let done = apply(&host, &mut journal, "x", &actions, &mut |_| false).unwrap();
    assert_eq!(done, 1, "saving is no change");
    // The driver places the interrupt anew, and once more when the change is put back.
    fs::write(host.locate(side), "3\n").unwrap();
    let fates = undo(&host, &mut journal).unwrap();
    assert!(fates.iter().all(|undone| undone.fate == Fate::Restored), "{fates:?}");
    assert_eq!(before, tree.contents());
    // After a restart what is there was placed by others.
    apply(&host, &mut journal, "x", &actions, &mut |_| false).unwrap();
    fs::write(host.locate(side), "3\n").unwrap();
    fs::create_dir_all(host.locate("/proc/sys/kernel/random")).unwrap();
    fs::write(host.locate("/proc/sys/kernel/random/boot_id"), "another").unwrap();
    undo(&host, &mut journal).unwrap();
    assert_eq!(host.read(side).unwrap(), "3");
    assert!(journal.outstanding().is_empty());
}

#[test]
fn what_stays_changed_keeps_what_was_placed_beside_it() {
    let (tree, state) = (Scratch::of_host("ena-vm"), Scratch::new());
    let host = Host::recorded(&tree.0);
    let before = tree.contents();
    let (side, path) = ("/proc/irq/28/smp_affinity_list", "/proc/sys/net/core/somaxconn");
    let actions = [Action::Beside { path: side.to_owned() }, Action::setting(path, 4096)];
    let mut journal = Journal::open(&state.0).unwrap();
    apply(&host, &mut journal, "x", &actions, &mut |_| false).unwrap();
    // Somebody makes another number of queues and places the interrupts for it.
    fs::write(host.locate(path), "777\n").unwrap();
    fs::write(host.locate(side), "3\n").unwrap();
    let fates = undo(&host, &mut journal).unwrap();
    assert!(fates.iter().all(|undone| undone.is_left()), "{fates:?}");
    assert_eq!(host.read(side).unwrap(), "3");
    // They go back to ours: then all of it can be put back.
    fs::write(host.locate(path), "4096").unwrap();
    drop(journal);
    undo_all(&host, &state.0);
    assert_eq!(before, tree.contents());
}

#[test]
fn what_is_kept_reaches_interfaces_that_are_renamed_and_no_interrupt_by_its_number() {
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
    // A lasting name comes by a `move` after the `add`.
    assert!(
        text.contains("ACTION==\"add|move\", SUBSYSTEM==\"net\", KERNEL==\"eth0\", ATTR"),
        "{text}"
    );
    assert_eq!(not_kept, ["echo 3 > /proc/irq/27/smp_affinity_list"]);
}
