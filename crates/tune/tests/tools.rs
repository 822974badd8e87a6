//! Tools that fail or lie, run for real; they touch nothing but a folder of the test.
//! A program of its own, whose tests open each journal once: a tool being started holds for an instant every lock that the
//! process has, and another test that opens its journal again just then would find it busy.

mod support;

use support::Scratch;
use tidegate_tune::action::Action;
use tidegate_tune::apply::{ApplyError, apply};
use tidegate_tune::host::Host;
use tidegate_tune::journal::Journal;

#[test]
fn a_change_that_is_accepted_without_effect_is_not_called_done() {
    let state = Scratch::new();
    let mut journal = Journal::open(&state.0).unwrap();
    // Says yes and does nothing, as a driver that ignores a setting does.
    let actions = [Action::run("true", "true", "echo same")];
    let failed = apply(&Host::live(), &mut journal, "item", &actions, &mut |_| false).unwrap_err();
    assert!(failed.to_string().contains("changed nothing"), "{failed}");
    assert!(journal.outstanding().is_empty(), "there is nothing to put back");
}

#[test]
fn an_item_that_cannot_be_put_back_is_not_said_to_be() {
    let (folder, state) = (Scratch::new(), Scratch::new());
    let made = folder.0.display();
    let mut journal = Journal::open(&state.0).unwrap();
    let call = |undo: &str| Action::run(&format!("touch {made}/made"), undo, &format!("ls {made}"));
    let actions = [call("false"), Action::run("false", "false", "true")];
    let failed = apply(&Host::live(), &mut journal, "x", &actions, &mut |_| false).unwrap_err();
    assert!(matches!(failed, ApplyError::HalfDone(..)), "{failed}");
    assert!(failed.to_string().contains("could NOT all be put back"), "{failed}");
    assert_eq!(journal.outstanding().len(), 1, "undo tries again");
}
