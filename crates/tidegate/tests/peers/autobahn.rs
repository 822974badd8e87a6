//! Cases of Autobahn's WebSocket test suite, whose client sends valid and invalid frames to the action `echo`.
//! In: a listener with compression. Out: each case ends as the suite requires, with the strictest of its results.
//! Limits: a case gives up on the server after two minutes or more; `scripts/autobahn.sh` runs all 517 cases.

use std::path::Path;

use tidegate_testing::command;

use crate::gate::Gate;
use crate::process::{Folder, run, text};

/// Runs the cases on `lanes` connections at a time; returns the last line of the report.
fn autobahn(compression: &str, lanes: &str, cases: &[&str]) -> String {
    let folder = Folder::new(&format!("autobahn-{compression}-{}", cases.len()));
    let config = format!(
        "[[listener]]\nbind = \"127.0.0.1:0\"\n[[route]]\npath = \"/echo\"\necho = true\n\
         [websocket]\nmessage-max = \"16MiB\"\ncompression = \"{compression}\"\n"
    );
    let gate = Gate::start(&folder, &config);
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let installed = root.join("target/peers/autobahn");
    assert!(installed.exists(), "Autobahn is missing: run scripts/install-peers.sh");
    let mut command = command(installed.join("bin/python"));
    command.arg(root.join("scripts/autobahn/run.py")).arg(installed.join("suite"));
    command.arg(format!("ws://{}/echo", gate.address())).arg(lanes).args(cases);
    let output = run(&mut command);
    let printed = text(&output.stdout);
    let last = printed.lines().last().unwrap_or_default().to_owned();
    assert!(output.status.success(), "{printed}\n{}", text(&output.stderr));
    last
}

#[test]
fn frames_fragments_texts_and_closes_are_handled_as_required() {
    let cases = ["1.*", "2.*", "3.*", "4.*", "5.*", "6.*", "7.*", "10.*"];
    let wanted = "247 cases, 0 not as required: {'INFORMATIONAL INFORMATIONAL': 3, 'OK OK': 244}";
    assert_eq!(autobahn("shared", "8", &cases), wanted);
}

#[test]
fn large_and_many_messages_are_echoed() {
    let wanted = "54 cases, 0 not as required: {'OK OK': 54}";
    assert_eq!(autobahn("off", "2", &["9.*"]), wanted);
}

/// Each kind of data, each set of parameters, and fragments.
const COMPRESSED: [&str; 14] = [
    "12.1.2", "12.2.2", "12.3.2", "12.4.2", "12.5.2", "12.2.11", "13.1.2", "13.2.2", "13.3.2",
    "13.4.2", "13.5.2", "13.6.2", "13.7.2", "13.3.11",
];

#[test]
fn compressed_messages_come_back_with_each_set_of_parameters() {
    for compression in ["shared", "dedicated"] {
        let wanted = "14 cases, 0 not as required: {'OK OK': 14}";
        assert_eq!(autobahn(compression, "2", &COMPRESSED), wanted, "{compression}");
    }
}
