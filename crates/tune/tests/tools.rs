//! Runs real tools that fail or report success without effect; they change only a directory of the test.
//! A separate test program, whose tests open each journal once: a child process that is being started briefly holds
//! all locks of this process, so a test that reopens its journal at that instant would find it busy.

mod support;

use support::Scratch;
use tidegate_tune::action::Action;
use tidegate_tune::apply::{ApplyError, apply};
use tidegate_tune::host::Host;
use tidegate_tune::journal::Journal;

#[test]
fn change_without_effect_is_reported_as_failed() {
    let state = Scratch::new();
    let mut journal = Journal::open(&state.0).unwrap();
    // Succeeds and does nothing, like a driver that ignores a setting.
    let actions = [Action::run("true", "true", "echo same")];
    let failed = apply(&Host::live(), &mut journal, "item", &actions, &mut |_| false).unwrap_err();
    assert!(failed.to_string().contains("changed nothing"), "{failed}");
    assert!(journal.outstanding().is_empty(), "there is nothing to undo");
}

#[test]
fn failed_rollback_is_reported() {
    let (folder, state) = (Scratch::new(), Scratch::new());
    let made = folder.0.display();
    let mut journal = Journal::open(&state.0).unwrap();
    let call = |undo: &str| Action::run(&format!("touch {made}/made"), undo, &format!("ls {made}"));
    let actions = [call("false"), Action::run("false", "false", "true")];
    let failed = apply(&Host::live(), &mut journal, "x", &actions, &mut |_| false).unwrap_err();
    assert!(matches!(failed, ApplyError::HalfDone(..)), "{failed}");
    assert!(
        failed.to_string().contains("not all changes of this item could be undone"),
        "{failed}"
    );
    assert_eq!(journal.outstanding().len(), 1, "a later undo can try again");
}
