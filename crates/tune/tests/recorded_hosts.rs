//! What `tune check` says of recorded hosts, against reports that were read and kept.
//! TIDEGATE_BLESS=1 writes the kept reports anew: read the difference before committing it.

mod support;

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use support::Scratch;
use tidegate_tune::check::{Report, check};
use tidegate_tune::finding::{Finding, State};
use tidegate_tune::host::Host;
use tidegate_tune::items;
use tidegate_tune::workload::{For, Workload};
use tidegate_tune::{page, report};

const HOSTS: [&str; 6] = ["laptop", "ena-vm", "container", "podman", "numa-server", "two-cpu-vm"];

fn look_at(name: &str, kind: For, connections: Option<u64>) -> Report {
    let tree = Scratch::of_host(name);
    let mut workload = Workload::of(kind);
    workload.asked_connections = connections;
    check(&Host::recorded(&tree.0), &workload)
}

fn compare(name: &str, text: &str) {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/golden/{name}.txt"));
    if std::env::var_os("TIDEGATE_BLESS").is_some() {
        fs::write(&file, text).unwrap();
    }
    let kept = fs::read_to_string(&file).unwrap_or_default();
    for (number, (ours, theirs)) in text.lines().zip(kept.lines()).enumerate() {
        assert_eq!(ours, theirs, "{} line {}", file.display(), number + 1);
    }
    assert_eq!(text.lines().count(), kept.lines().count(), "{}", file.display());
}

#[test]
fn the_reports_of_recorded_hosts_are_the_kept_ones() {
    for name in HOSTS {
        compare(name, &report::text(&look_at(name, For::All, None)));
    }
    compare("ena-vm-million", &report::text(&look_at("ena-vm", For::Push, Some(1_200_000))));
}

#[test]
fn the_same_host_gives_the_same_report_twice() {
    for name in HOSTS {
        let once = report::json(&look_at(name, For::All, None));
        assert_eq!(once, report::json(&look_at(name, For::All, None)));
    }
}

#[test]
fn every_item_costs_something_on_some_host_or_says_why_it_never_does() {
    let mut costly = BTreeSet::new();
    for name in HOSTS {
        for connections in [None, Some(20_000_000)] {
            let report = look_at(name, For::All, connections);
            costly.extend(report.in_state("costs").map(|entry| entry.item.id));
            costly.extend(report.in_state("blocked").map(|entry| entry.item.id));
        }
    }
    // Advice that is only ever a remark, and signs that none of these hosts shows.
    let silent = ["app-smt-siblings", "app-build", "lock-contention"];
    for item in items::ALL {
        assert!(
            costly.contains(item.id) || silent.contains(&item.id),
            "{} costs nothing on any recorded host: record one that shows it",
            item.id
        );
    }
}

#[test]
fn checking_changes_nothing() {
    for name in HOSTS {
        let tree = Scratch::of_host(name);
        let before = tree.contents();
        let _ = check(&Host::recorded(&tree.0), &Workload::of(For::All));
        assert_eq!(before, tree.contents(), "{name}");
    }
}

#[test]
fn rules_are_asked_for_only_where_that_loads_nothing() {
    let tree = Scratch::of_host("laptop");
    let found = || {
        let report = check(&Host::recorded(&tree.0), &Workload::of(For::All));
        let entry = report.entries.iter().find(|entry| entry.item.id == "netfilter-rules").unwrap();
        entry.finding.found.clone()
    };
    let write = |path: &str, text: &str| {
        let file = tree.0.join(path);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, text).unwrap();
    };
    // What the tool would say, if it were asked.
    write(
        "commands/nft_list_ruleset",
        "table ip x {\n chain c {\n  type filter hook input\n }\n}\n",
    );
    write("proc/modules", "ext4 1 1 - Live 0x0\n");
    assert!(found().contains("nf_tables is not loaded"), "{}", found());
    write("proc/modules", "nf_tables 1 1 - Live 0x0\n");
    assert!(found().contains("1 hooked chains"), "{}", found());
    write("proc/modules", "ext4 1 1 - Live 0x0\n");
    write("proc/sys/kernel/osrelease", "6.1.0\n");
    write("lib/modules/6.1.0/modules.builtin", "kernel/net/netfilter/nf_tables.ko\n");
    assert!(found().contains("1 hooked chains"), "{}", found());
}

#[test]
fn a_host_whose_files_hold_nonsense_is_skipped_not_crashed_upon() {
    for (text, name) in [
        ("", "empty"),
        ("18446744073709551615", "one huge number"),
        ("\u{fffd}\n-1 x,y:\n", "nonsense"),
        ("18446744073709551615 18446744073709551615 18446744073709551615", "huge numbers"),
    ] {
        for host in ["laptop", "ena-vm", "container"] {
            let tree = Scratch::of_host(host);
            for (path, body) in tree.contents() {
                // Which CPUs there are stays known, so that every item goes its whole way.
                if body.is_some() && !path.ends_with("self/status") && !path.ends_with("online") {
                    fs::write(path, text).unwrap();
                }
            }
            let report = check(&Host::recorded(&tree.0), &Workload::of(For::All));
            assert_eq!(report.entries.len(), items::ALL.len(), "{host} {name}");
            let _ = page::html(&report);
        }
    }
}

#[test]
fn the_page_needs_nothing_from_elsewhere() {
    for name in HOSTS {
        let html = page::html(&look_at(name, For::All, Some(1_000_000)));
        for word in ["src=", "http://", "https://", "@import", "url("] {
            assert!(!html.contains(word), "{name}: {word}");
        }
    }
}

#[test]
fn the_page_names_commands_that_do_what_they_say() {
    let page = page::html(&look_at("numa-server", For::All, None));
    assert!(page.contains("<code>tidegate tune apply locality-queues --yes</code>"));
    let audit = "tidegate tune apply syscall-audit --accept-risk syscall-audit --yes";
    assert!(page.contains(&format!("<code>{audit}</code>")));
}

#[test]
fn containers_and_virtual_machines_are_recognised() {
    let place = |name| look_at(name, For::All, None).environment.line();
    assert!(place("laptop").starts_with("bare machine"));
    assert!(place("ena-vm").starts_with("virtual machine (Amazon EC2)"));
    assert!(place("container").starts_with("container (kubepods) in a virtual machine (Google)"));
    assert!(
        place("two-cpu-vm").starts_with("virtual machine"),
        "an image's leavings are no container"
    );
}

/// What one item says of a recorded host after some of its files were replaced.
fn item_says(host: &str, id: &str, files: &[(&str, &str)]) -> Finding {
    let tree = Scratch::of_host(host);
    for (path, text) in files {
        let file = tree.0.join(path);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, text).unwrap();
    }
    let report = check(&Host::recorded(&tree.0), &Workload::of(For::All));
    report.entries.into_iter().find(|entry| entry.item.id == id).unwrap().finding
}

#[test]
fn sockets_for_rare_protocols_alone_are_no_neighbours() {
    // As recorded where systemd-networkd listens for LLDP on two cards.
    let head = "sk               RefCnt Type Proto  Iface R Rmem   User   Inode\n";
    let lldp = format!(
        "{head}00000000276de654 3      3    88cc   3     1 0      998    1461  \n\
         0000000058cd0248 3      3    88cc   2     1 0      998    1462  \n"
    );
    let says =
        |text: &str| item_says("laptop", "neighbour-packet-sockets", &[("proc/net/packet", text)]);
    let finding = says(&lldp);
    assert_eq!(finding.state, State::Good, "{}", finding.found);
    assert!(finding.found.contains("2 of them for rare protocols alone"), "{}", finding.found);
    for protocol in ["0003", "0800", "86dd"] {
        let finding = says(&lldp.replacen("88cc", protocol, 1));
        assert_eq!(finding.state, State::Costs, "{protocol}: {}", finding.found);
    }
}

#[test]
fn a_unit_that_is_not_installed_has_the_limits_of_the_manager() {
    // Of such a unit systemd prints the kernel's ceiling, which no service is given.
    let unit = "commands/systemctl_show_-p_LoadState_-p_LimitNOFILE_tidegate.service";
    let manager = "commands/systemctl_show_-p_DefaultLimitNOFILE";
    let says = |state: &str| {
        item_says(
            "laptop",
            "capacity-systemd",
            &[
                (unit, &format!("LimitNOFILE=1048576\nLoadState={state}\n")),
                (manager, "DefaultLimitNOFILE=1024\n"),
            ],
        )
    };
    let finding = says("not-found");
    assert_eq!(finding.state, State::Costs, "{}", finding.found);
    assert!(finding.found.contains("is not installed) is 1024"), "{}", finding.found);
    assert_eq!(says("loaded").state, State::Good);
}

/// A virtio card with four pairs of queues, as /proc and /sys show it, with the CPUs of its interrupts.
fn virtio_card(allowed: [u32; 8], effective: [u32; 8]) -> Vec<(String, String)> {
    let mut files = vec![
        ("sys/class/net/enp1s0/operstate".to_owned(), "up".to_owned()),
        ("sys/class/net/enp1s0/device/uevent".to_owned(), "DRIVER=virtio_net\n".to_owned()),
        ("sys/class/net/enp1s0/numa_node".to_owned(), "1\n".to_owned()),
        ("proc/self/status".to_owned(), "Cpus_allowed_list:\t0-3\n".to_owned()),
        ("sys/devices/system/node/node0/cpulist".to_owned(), "0-1\n".to_owned()),
        ("sys/devices/system/node/node1/cpulist".to_owned(), "2-3\n".to_owned()),
    ];
    let mut table = String::from("           CPU0\n");
    for position in 0..8usize {
        let (queue, number) = (position / 2, 62 + position);
        let (way, kind) = if position % 2 == 0 { ("input", "rx") } else { ("output", "tx") };
        table.push_str(&format!(
            "  {number}: 5 PCI-MSI 1730150{position}-edge virtio3-{way}.{queue}\n"
        ));
        files
            .push((format!("sys/class/net/enp1s0/queues/{kind}-{queue}/xps_cpus"), "0".to_owned()));
        files.push((format!("sys/class/net/enp1s0/msi_irqs/{number}"), String::new()));
        let irq = format!("proc/irq/{number}");
        files.push((format!("{irq}/smp_affinity_list"), allowed[position].to_string()));
        files.push((format!("{irq}/effective_affinity_list"), effective[position].to_string()));
    }
    files.push(("proc/interrupts".to_owned(), table));
    files
}

fn virtio_says(id: &str, allowed: [u32; 8], effective: [u32; 8]) -> Finding {
    let files = virtio_card(allowed, effective);
    let files: Vec<(&str, &str)> =
        files.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
    item_says("container", id, &files)
}

#[test]
fn pairs_of_queues_want_a_cpu_each_not_half_a_one() {
    let id = "locality-irq-affinity";
    // Two interrupts a pair: four pairs on two CPUs are badly placed, though there are eight interrupts.
    let half = [0, 0, 1, 1, 0, 0, 1, 1];
    assert_ne!(virtio_says(id, half, half).state, State::Good);
    // irqbalance may put the two of a pair apart: what counts is where packets come in.
    let apart = [0, 2, 1, 3, 0, 2, 1, 3];
    assert_ne!(virtio_says(id, apart, apart).state, State::Good);
    let whole = [0, 0, 1, 1, 2, 2, 3, 3];
    assert_eq!(virtio_says(id, whole, whole).state, State::Good);
}

#[test]
fn an_interrupt_that_is_moved_counts_where_it_will_come() {
    // The kernel moves an interrupt when it next comes; until then the effective CPU is the old one.
    let (whole, old) = ([0, 0, 1, 1, 2, 2, 3, 3], [0; 8]);
    let finding = virtio_says("locality-irq-affinity", whole, old);
    assert_eq!(finding.state, State::Good, "{}", finding.found);
}

#[test]
fn the_node_of_a_virtio_card_is_that_of_the_device_above_it() {
    let finding = virtio_says("app-numa", [0; 8], [0; 8]);
    assert!(finding.found.contains("enp1s0 is on node 1 (CPUs 2-3)"), "{}", finding.found);
}

#[test]
fn interrupts_of_queues_that_are_turned_off_do_not_count() {
    let cpus = [0, 0, 1, 1, 3, 3, 3, 3];
    let mut files = virtio_card(cpus, cpus);
    // Two of the four pairs are in use; virtio keeps the interrupts of the others.
    files.retain(|(path, _)| !path.contains("x-2/") && !path.contains("x-3/"));
    let files: Vec<(&str, &str)> =
        files.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
    let finding = item_says("container", "locality-irq-affinity", &files);
    assert_eq!(finding.found, "enp1s0: 4 interrupts, those of receiving on CPUs 0-1");
    assert_eq!(finding.state, State::Good);
}

#[test]
fn what_was_sent_again_is_a_share_of_all_that_was_sent() {
    // OutSegs does not count retransmissions, so without them in the sum there may be more than all.
    let snmp = "Tcp: ActiveOpens OutSegs RetransSegs\nTcp: 400 1000 3000\n";
    let finding = item_says("laptop", "pressure-retransmits", &[("proc/net/snmp", snmp)]);
    assert_eq!(finding.found, "3000 of 4000 segments since the host started (75.00 %)");
}

#[test]
fn queues_go_back_to_the_number_that_the_tool_showed() {
    // A driver may show queues under /sys that it does not count as channels (those of AF_XDP, say).
    let shown = "Channel parameters for eth0:\nPre-set maximums:\nCombined:\t8\n\
        Current hardware settings:\nCombined:\t1\n";
    let finding = item_says("ena-vm", "locality-queues", &[("commands/ethtool_-l_eth0", shown)]);
    let call = finding.actions.iter().find(|action| action.acts()).unwrap();
    assert_eq!(call.undo_text(), "ethtool -L eth0 combined 1");
}

#[test]
fn flows_of_a_queue_are_asked_for_as_the_kernel_shows_them() {
    let tree = Scratch::of_host("ena-vm");
    fs::remove_dir_all(tree.0.join("sys/class/net/eth0/queues/rx-3")).unwrap();
    let report = check(&Host::recorded(&tree.0), &Workload::of(For::All));
    let entry = report.entries.iter().find(|entry| entry.item.id == "locality-rps").unwrap();
    let commands = entry.finding.commands();
    let flows: Vec<&String> =
        commands.iter().filter(|command| command.contains("flow_cnt")).collect();
    // The kernel rounds 32768 / 3 up; a kill before the journal has it must not look like another's value.
    assert_eq!(flows.len(), 3, "{commands:?}");
    assert!(flows.iter().all(|command| command.starts_with("echo 16384 ")), "{flows:?}");
}

#[test]
fn without_ethtool_few_queues_are_not_called_good() {
    let tree = Scratch::of_host("ena-vm");
    fs::remove_file(tree.0.join("commands/ethtool_-l_eth0")).unwrap();
    fs::remove_dir_all(tree.0.join("sys/class/net/eth0/queues/rx-3")).unwrap();
    let report = check(&Host::recorded(&tree.0), &Workload::of(For::All));
    let entry = report.entries.iter().find(|entry| entry.item.id == "locality-queues").unwrap();
    let State::Skipped(reason) = &entry.finding.state else { panic!("{:?}", entry.finding) };
    assert!(reason.contains("ethtool"), "{reason}");
}

#[test]
fn a_limit_of_a_unit_above_what_the_kernel_gives_is_not_called_good() {
    // Seen under systemd 252: `systemctl show` prints 1375256, and /proc/PID/limits has 1048576.
    let unit = "commands/systemctl_show_-p_LoadState_-p_LimitNOFILE_tidegate.service";
    let limit = "LimitNOFILE=1375256\nLoadState=loaded\n";
    let says = |nr_open: &str| {
        let tree = Scratch::of_host("laptop");
        fs::write(tree.0.join(unit), limit).unwrap();
        fs::write(tree.0.join("proc/sys/fs/nr_open"), nr_open).unwrap();
        let mut workload = Workload::of(For::All);
        workload.asked_connections = Some(10_000_000);
        let report = check(&Host::recorded(&tree.0), &workload);
        report
            .entries
            .into_iter()
            .find(|entry| entry.item.id == "capacity-systemd")
            .unwrap()
            .finding
    };
    let finding = says("1048576");
    assert_eq!(finding.state, State::Costs, "{}", finding.found);
    assert!(finding.found.contains("lets it have 1048576"), "{}", finding.found);
    assert!(finding.kept.is_empty(), "the unit says enough already");
    assert_eq!(says("1400000").state, State::Good);
}

#[test]
fn the_recorder_asks_each_tool_about_each_interface() {
    let (tools, out) = (Scratch::new(), Scratch::new());
    let tool = tools.0.join("ethtool");
    fs::write(&tool, "#!/bin/sh\necho \"$@\"\n").unwrap();
    fs::set_permissions(&tool, fs::Permissions::from_mode(0o755)).unwrap();
    let path = format!("{}:{}", tools.0.display(), std::env::var("PATH").unwrap());
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/record.sh");
    let folder = out.0.join("here");
    let status = Command::new("sh").arg(script).arg(&folder).env("PATH", path).status().unwrap();
    assert!(status.success());
    for flag in ["-c", "-k", "-l"] {
        let said = fs::read_to_string(folder.join(format!("commands/ethtool_{flag}_lo"))).unwrap();
        assert_eq!(said, format!("{flag} lo\n"));
    }
    // What was recorded can be looked at.
    let report = check(&Host::recorded(&folder), &Workload::of(For::All));
    assert_eq!(report.entries.len(), items::ALL.len());
}

#[test]
fn queues_are_made_before_their_interrupts_are_placed() {
    let tree = Scratch::of_host("ena-vm");
    let queue = tree.0.join("sys/class/net/eth0/queues/rx-3");
    fs::remove_dir_all(queue).unwrap();
    let shown = tree.0.join("commands/ethtool_-l_eth0");
    let fewer = fs::read_to_string(&shown).unwrap().replacen("Combined:\t4", "Combined:\t3", 2);
    fs::write(shown, fewer.replacen("Combined:\t3", "Combined:\t4", 1)).unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_tidegate-tune"))
        .args(["apply", "locality", "--root"])
        .arg(&tree.0)
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let place = |words: &str| text.find(words).unwrap_or_else(|| panic!("{words}: {text}"));
    let order = ["systemctl stop irqbalance", "ethtool -L eth0", "/proc/irq/28/smp_affinity_list"];
    assert!(order.is_sorted_by_key(|words| place(words)), "{text}");
    assert!(text.contains("settings that the driver may set anew with it"), "{text}");
}
