//! The command line with real settings, in its own network namespace: all settings are the same before and after,
//! even if the process is killed before the end.

mod support;

use std::fs;
use std::process::Output;
use support::Scratch;
use tidegate_testing::{command, run};
use tidegate_tune::action::Action;
use tidegate_tune::apply::apply;
use tidegate_tune::host::Host;
use tidegate_tune::item::Group;
use tidegate_tune::items;
use tidegate_tune::journal::Journal;
use tidegate_tune::undo::{UndoResult, undo};

/// The `tidegate tune` program, which Cargo builds before these tests.
const TUNE: &str = env!("CARGO_BIN_EXE_tidegate-tune");

/// Runs a script in its own network namespace, with `$TUNE` and `$STATE`.
fn in_namespace(script: &str, state: &Scratch) -> Output {
    let flags = if rustix::process::geteuid().is_root() { "-n" } else { "-rn" };
    let mut command = command("unshare");
    run(command.args([flags, "sh", "-euc", script]).env("TUNE", TUNE).env("STATE", &state.0))
}

/// The output without its line breaks.
fn flat(output: &[u8]) -> String {
    let text = String::from_utf8_lossy(output);
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn passes(script: &str) -> String {
    let state = Scratch::new();
    let output = in_namespace(script, &state);
    let text = flat(&output.stdout);
    assert!(
        output.status.success(),
        "{script}\n{text}\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
    text
}

/// The settings that the scripts compare: all settings of the network namespace.
const SNAPSHOT: &str = "snapshot() { (cd /proc/sys/net && grep -rs '' core ipv4 | grep -v -e _key -e secret | sort); }\n";
const ITEMS: &str = "capacity-somaxconn capacity-port-range capacity-syn-backlog capacity-time-wait last-congestion-control";

#[test]
fn undo_after_apply_restores_every_setting() {
    let text = passes(&format!(
        "{SNAPSHOT}
        echo 99 > /proc/sys/net/core/somaxconn
        snapshot > $STATE/before
        $TUNE apply {ITEMS} --yes --state $STATE --connections 200000 || true
        test $(cat /proc/sys/net/core/somaxconn) = 65535
        snapshot > $STATE/applied
        ! cmp -s $STATE/before $STATE/applied
        $TUNE undo --state $STATE
        snapshot > $STATE/after
        cmp $STATE/before $STATE/after"
    ));
    assert!(text.contains("All changes were undone."), "{text}");
}

#[test]
fn undo_after_a_kill_at_any_time_restores_every_setting() {
    // How far it gets in this many milliseconds differs from run to run; the result must not.
    passes(&format!(
        "{SNAPSHOT}
        echo 99 > /proc/sys/net/core/somaxconn
        snapshot > $STATE/before
        for ms in 001 002 004 006 008 010 013 016 020 025 030 040; do
            $TUNE apply {ITEMS} --yes --state $STATE --connections 200000 > $STATE/out 2>&1 &
            pid=$!
            sleep 0.$ms
            kill -9 $pid 2> /dev/null || true
            wait $pid || true
            $TUNE undo --state $STATE
            snapshot > $STATE/after
            cmp $STATE/before $STATE/after
        done"
    ));
}

#[test]
fn tool_change_is_undone_by_the_tool() {
    // /sys shows the interfaces of the namespace that mounted it, so the test mounts its own.
    let text = passes(
        "unshare -m sh -euc '
        mount -t sysfs none /sys
        ip link add tide0 numtxqueues 4 numrxqueues 4 type veth peer name tide1
        ip link set tide0 up; ip link set tide1 up
        tc qdisc replace dev tide0 handle 7: root pfifo limit 777
        tc qdisc show dev tide0 > $STATE/before
        $TUNE apply lock-qdisc --interface tide0 --yes --state $STATE
        tc qdisc show dev tide0 | grep -q \"qdisc mq\"
        $TUNE undo --state $STATE
        tc qdisc show dev tide0 > $STATE/after
        grep -q \"limit 777p\" $STATE/after
        cmp $STATE/before $STATE/after
        tc qdisc replace dev tide0 root pfifo_fast
        tc qdisc show dev tide0 > $STATE/before
        $TUNE apply lock-qdisc --interface tide0 --yes --state $STATE
        $TUNE undo --state $STATE
        tc qdisc show dev tide0 | cmp $STATE/before -'",
    );
    assert!(text.contains("tc qdisc replace dev tide0 root mq"), "{text}");
    assert!(text.contains("All changes were undone."), "{text}");
}

#[test]
fn read_only_settings_are_reported_and_unchanged() {
    let text = passes(
        "unshare -m sh -euc '
        echo 99 > /proc/sys/net/core/somaxconn
        mount --bind /proc/sys /proc/sys
        mount -o remount,ro,bind /proc/sys
        code=0
        $TUNE apply capacity-somaxconn --yes --state $STATE || code=$?
        test $code = 1
        $TUNE undo --state $STATE'",
    );
    assert!(text.contains("/proc/sys is mounted read-only here"), "{text}");
    assert!(text.contains("Nothing to undo"), "{text}");
}

#[test]
fn apply_without_yes_changes_nothing() {
    let text = passes(&format!(
        "{SNAPSHOT}
        echo 99 > /proc/sys/net/core/somaxconn
        snapshot > $STATE/before
        $TUNE check > /dev/null
        $TUNE apply --state $STATE/journal
        snapshot > $STATE/after
        cmp $STATE/before $STATE/after
        ! test -e $STATE/journal"
    ));
    assert!(text.contains("sysctl -w net.core.somaxconn=4096 (now 99)"), "{text}");
    assert!(text.contains("Nothing was changed."), "{text}");
}

#[test]
fn value_changed_since_is_kept_until_undo_forget() {
    let text = passes(
        "echo 99 > /proc/sys/net/core/somaxconn
        $TUNE apply capacity-somaxconn --yes --state $STATE
        echo 555 > /proc/sys/net/core/somaxconn
        code=0; $TUNE undo --state $STATE || code=$?
        test $code = 1
        test $(cat /proc/sys/net/core/somaxconn) = 555
        $TUNE undo --state $STATE --forget
        test $(cat /proc/sys/net/core/somaxconn) = 555
        $TUNE undo --state $STATE",
    );
    assert!(text.contains("not restored: the value was changed to \"555\" afterwards"), "{text}");
    assert!(text.contains("Nothing to undo"), "{text}");
}

#[test]
fn security_trade_off_requires_accept_risk() {
    let tree = Scratch::of_host("ena-vm");
    let state = Scratch::new();
    let apply = |words: &[&str]| {
        let mut command = command(TUNE);
        command.args(["apply", "--root"]).arg(&tree.0).arg("--state").arg(&state.0);
        let output = run(command.args(words));
        (output.status.code(), flat(&output.stdout))
    };
    let (code, text) = apply(&["syscall-audit"]);
    assert_eq!(code, Some(1));
    assert!(text.contains("refused, because it is a security trade-off"), "{text}");
    let (code, text) = apply(&["syscalls"]);
    assert_eq!(code, Some(1), "naming the group does not accept the risk: {text}");
    let (code, text) = apply(&["syscall-audit", "--accept-risk", "syscall-audit"]);
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("auditctl -a never,task"), "{text}");
    let (code, _) = apply(&["no-such-item"]);
    assert_eq!(code, Some(2));
}

#[test]
fn item_to_change_by_hand_is_not_offered_for_its_risk() {
    let state = Scratch::new();
    let apply = |host: &Scratch, words: &[&str]| {
        let mut command = command(TUNE);
        command.args(["apply", "--root"]).arg(&host.0).arg("--state").arg(&state.0);
        let output = run(command.args(words));
        (output.status.code(), flat(&output.stdout))
    };
    let tree = Scratch::of_host("ena-vm");
    let by_hand = "cpu-mitigations: must be changed by hand: ";
    for words in
        [&["cpu-mitigations"][..], &["cpu-mitigations", "--accept-risk", "cpu-mitigations"]]
    {
        let (code, text) = apply(&tree, words);
        assert_eq!(code, Some(1), "{text}");
        assert!(text.contains(by_hand) && !text.contains("--accept-risk"), "{text}");
    }
    // By the name of a group, too.
    let (code, text) = apply(&tree, &["cpu"]);
    assert!(code == Some(1) && text.contains(by_hand), "{text}");
    // Without a name, items that need the user are left out.
    let (code, text) = apply(&tree, &[]);
    assert!(code == Some(0) && !text.contains("by hand"), "{text}");
}

#[test]
fn output_of_apply_and_undo_fits_eighty_columns() {
    for name in ["laptop", "ena-vm", "numa-server", "podman"] {
        let (tree, state) = (Scratch::of_host(name), Scratch::new());
        let tune = |words: &[&str]| {
            let mut command = command(TUNE);
            let output =
                run(command.args(words).arg("--root").arg(&tree.0).arg("--state").arg(&state.0));
            String::from_utf8_lossy(&output.stdout).into_owned()
        };
        let groups = Group::ALL.map(Group::name);
        let items: Vec<&str> = items::ALL.iter().map(|item| item.id).collect();
        let all = [&["apply"][..], &items].concat();
        let texts = [
            tune(&["apply"]),
            tune(&[&["apply"][..], &groups].concat()),
            tune(&all),
            tune(&[&all[..], &["--persist", "--yes"]].concat()),
            tune(&all),
            tune(&["undo"]),
            tune(&["undo"]),
        ];
        for line in texts.iter().flat_map(|text| text.lines()) {
            // A path that is longer than the line is not broken, and a file is shown as it is written.
            let words = line.split_whitespace().count();
            let is_file = line.starts_with("    | ");
            assert!(line.chars().count() <= 80 || words <= 2 || is_file, "{name}: {line}");
        }
    }
}

#[test]
fn applying_a_good_item_succeeds_and_hints_name_the_journal() {
    let text = passes(
        "echo 99 > /proc/sys/net/core/somaxconn
        $TUNE apply capacity-somaxconn --yes --state $STATE/own
        $TUNE apply capacity-somaxconn --yes --state $STATE/own
        $TUNE undo --state $STATE/own",
    );
    assert!(text.contains("capacity-somaxconn: already good"), "{text}");
    assert!(
        text.contains("`tidegate tune undo --state ") && text.contains("/own` restores"),
        "{text}"
    );
}

#[test]
fn source_addresses_are_added_and_removed() {
    let text = passes(
        "ip link set lo up
        $TUNE apply capacity-source-addresses --source 192.0.2.10-192.0.2.12 --interface lo --yes --state $STATE
        test $(ip -oneline -4 address show dev lo to 192.0.2.0/24 | wc -l) = 3
        $TUNE apply capacity-source-addresses --source 192.0.2.10-192.0.2.12 --interface lo --yes --state $STATE
        $TUNE undo --state $STATE
        test $(ip -oneline -4 address show dev lo to 192.0.2.0/24 | wc -l) = 0",
    );
    assert!(text.contains("0 of 3 named addresses are present"), "{text}");
    assert!(text.contains("already good (3 of 3 named addresses are present)"), "{text}");
}

#[test]
fn undo_reports_an_unreadable_journal() {
    // User 0 without the capabilities of root may not enter a directory with mode 000.
    let text = passes(
        "echo 99 > /proc/sys/net/core/somaxconn
        mkdir $STATE/closed
        $TUNE apply capacity-somaxconn --yes --state $STATE/closed
        chmod 000 $STATE/closed
        code=0
        setpriv --bounding-set=-all --inh-caps=-all -- $TUNE undo --state $STATE/closed 2>&1 || code=$?
        test $code = 1
        chmod 700 $STATE/closed
        $TUNE undo --state $STATE/closed
        test $(cat /proc/sys/net/core/somaxconn) = 99",
    );
    assert!(text.contains("run as root"), "{text}");
    assert!(!text.contains("Nothing to undo"), "{text}");
}

#[test]
fn tool_that_restores_another_state_is_reported() {
    let state = Scratch::new();
    let folder = state.0.display();
    for (name, text) in [("now", "one"), ("one", "one"), ("two", "two"), ("three", "three")] {
        fs::write(state.0.join(name), text).unwrap();
    }
    // The tool changes only files of this test.
    let host = Host::live();
    let change = |back: &str| {
        let copy = |name| format!("cp {folder}/{name} {folder}/now");
        Action::run(&copy("two"), &copy(back), &format!("cat {folder}/now"))
    };
    let mut journal = Journal::open(&state.0).unwrap();
    apply(&host, &mut journal, "x", &[change("one")], &mut |_| false).unwrap();
    assert_eq!(undo(&host, &mut journal).unwrap()[0].fate, UndoResult::Restored);
    apply(&host, &mut journal, "x", &[change("three")], &mut |_| false).unwrap();
    let fates = undo(&host, &mut journal).unwrap();
    let UndoResult::Failed(reason) = &fates[0].fate else { panic!("{:?}", fates[0].fate) };
    assert!(reason.contains("differs from the previous state \"one\""), "{reason}");
    assert_eq!(journal.outstanding().len(), 1, "the step stays in the journal");
}

#[test]
fn incomplete_journal_line_is_removed_after_a_full_disk() {
    // A file size limit cuts a write short, as a full disk does.
    let text = passes(&format!(
        "{SNAPSHOT}
        echo 99 > /proc/sys/net/core/somaxconn
        snapshot > $STATE/before
        code=0
        (trap '' XFSZ; ulimit -f 1
            exec $TUNE apply {ITEMS} --yes --state $STATE --connections 200000) || code=$?
        test $code = 1
        test -s $STATE/journal.jsonl
        test -z \"$(tail -c1 $STATE/journal.jsonl)\"
        $TUNE undo --state $STATE
        snapshot > $STATE/after
        cmp $STATE/before $STATE/after"
    ));
    assert!(text.contains("File too large"), "{text}");
}

#[test]
fn unknown_names_are_usage_errors() {
    let refused = |words: &[&str], reason: &str| {
        let output = run(command(TUNE).args(words));
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{words:?}: {text}");
        assert!(text.contains(reason), "{words:?}: {text}");
        assert!(output.stdout.is_empty(), "{words:?}");
    };
    refused(&["prove", "no-such-item"], "no item or group is named no-such-item");
    refused(&["prove", "--accept-risk", "no-such-item"], "no item or group is named");
    refused(&["prove", "--root", "/"], "prove measures the host on which it runs");
    for command in ["check", "apply", "prove"] {
        refused(&[command, "--interface", "nope0"], "no such interface; allowed: ");
        refused(&[command, "--pid", "4194304"], "no such process");
    }
    for command in ["check", "apply", "undo"] {
        refused(&[command, "--root", "/nonexistent"], "has no directory `proc`");
    }
}

#[test]
fn recorded_host_has_its_own_journal() {
    let (tree, state) = (Scratch::of_host("ena-vm"), Scratch::new());
    let tune = |words: &[&str]| {
        let output = run(command(TUNE).args(words));
        (output.status.code(), flat(&[output.stdout, output.stderr].concat()))
    };
    let (root, folder) = (tree.0.to_str().unwrap(), state.0.to_str().unwrap());
    let (code, text) = tune(&["apply", "capacity-somaxconn", "--yes", "--root", root]);
    assert_eq!(code, Some(0), "{text}");
    assert!(
        tree.0.join("var/lib/tidegate/tune/journal.jsonl").exists(),
        "the journal is inside its tree"
    );
    let (code, text) = tune(&["undo", "--root", root]);
    assert!(code == Some(0) && text.contains("somaxconn: restored"), "{text}");
    // With the same --state directory, the live host refuses the journal of the recorded host.
    let apply = ["apply", "capacity-somaxconn", "--yes", "--root", root, "--state", folder];
    assert_eq!(tune(&apply).0, Some(0));
    let (code, text) = tune(&["undo", "--state", folder]);
    assert_eq!(code, Some(1), "{text}");
    assert!(
        text.contains(&format!("the recorded host {}", tree.0.canonicalize().unwrap().display())),
        "{text}"
    );
    let (code, text) = tune(&["undo", "--state", folder, "--root", root]);
    assert!(code == Some(0) && text.contains("somaxconn: restored"), "{text}");
}

#[test]
fn capacity_runs_fail_with_small_values_and_pass_with_planned_ones() {
    let own = vec![TUNE.to_owned()];
    for shown in tidegate_tune::prove::demonstration::demonstrate_all(&own) {
        let (without, with) = shown.result.clone().unwrap_or_else(|reason| {
            panic!("{}: {reason}", shown.item);
        });
        assert!(without < shown.wanted, "{}", shown.line());
        assert_eq!(with, shown.wanted, "{}", shown.line());
    }
}
