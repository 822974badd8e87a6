//! Compares the reports of `tune check` for recorded hosts with golden files.
//! TIDEGATE_BLESS=1 rewrites the golden files: read the diff before committing it.

mod support;

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use support::Scratch;
use tidegate_testing::{command, run};
use tidegate_tune::check::{Report, check};
use tidegate_tune::finding::{Finding, State};
use tidegate_tune::host::Host;
use tidegate_tune::item::Published;
use tidegate_tune::items;
use tidegate_tune::workload::{For, Workload};
use tidegate_tune::{page, report};

const HOSTS: [&str; 6] = ["laptop", "ena-vm", "container", "podman", "numa-server", "two-cpu-vm"];

fn look_at(name: &str, kind: For, connections: Option<u64>) -> Report {
    let tree = Scratch::of_host(name);
    let mut workload = Workload::of(kind);
    workload.requested_connections = connections;
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
fn reports_of_recorded_hosts_match_the_golden_files() {
    for name in HOSTS {
        compare(name, &report::text(&look_at(name, For::All, None)));
    }
    compare("ena-vm-million", &report::text(&look_at("ena-vm", For::Push, Some(1_200_000))));
}

#[test]
fn report_is_deterministic() {
    for name in HOSTS {
        let once = report::json(&look_at(name, For::All, None));
        assert_eq!(once, report::json(&look_at(name, For::All, None)));
    }
}

#[test]
fn every_item_costs_performance_on_some_recorded_host() {
    let mut costly = BTreeSet::new();
    for name in HOSTS {
        for connections in [None, Some(20_000_000)] {
            let report = look_at(name, For::All, connections);
            costly.extend(report.in_state("costs").map(|entry| entry.item.id));
            costly.extend(report.in_state("blocked").map(|entry| entry.item.id));
        }
    }
    // Items that only report, and items whose condition none of these hosts has.
    let silent = ["app-smt-siblings", "app-build", "lock-contention"];
    for item in items::ALL {
        assert!(
            costly.contains(item.id) || silent.contains(&item.id),
            "{} costs nothing on any recorded host: record a host where it does",
            item.id
        );
    }
}

#[test]
fn interrupts_keep_away_from_the_cpus_of_the_workers() {
    let tree = Scratch::of_host("ena-vm");
    let worker_cpus: Vec<u32> = vec![0, 1];
    let workload = Workload { worker_cpus: worker_cpus.clone(), ..Workload::of(For::All) };
    let report = check(&Host::recorded(&tree.0), &workload);
    let entry = report.entries.iter().find(|entry| entry.item.id == "locality-irq-affinity");
    let finding = &entry.expect("the item matters for all work").finding;
    assert_eq!(finding.state, State::Costs, "{finding:?}");
    let written: Vec<u32> = finding
        .commands()
        .iter()
        .filter_map(|command| command.split_whitespace().nth(1)?.parse().ok())
        .collect();
    assert!(
        !written.is_empty() && written.iter().all(|cpu| !worker_cpus.contains(cpu)),
        "{written:?}"
    );
}

#[test]
fn text_reports_fit_eighty_columns() {
    for name in HOSTS {
        for connections in [None, Some(1_200_000)] {
            for line in report::text(&look_at(name, For::All, connections)).lines() {
                // A path or command that is longer than the line is not broken.
                let words = line.split_whitespace().count();
                assert!(line.chars().count() <= 80 || words <= 2, "{name}: {line}");
            }
        }
    }
}

/// The steps of the guide: the published gain in percent, and the text of the section.
fn published_steps() -> Vec<(f64, String)> {
    let guide = include_str!("../../../docs/tuning/nine-steps.md");
    let section = |number: usize| {
        let (_, rest) = guide.split_once(&format!("\n## {number}. ")).unwrap();
        rest.split("\n## ").next().unwrap().to_owned()
    };
    let rows = guide.lines().filter_map(|line| {
        let mut cells = line.strip_prefix("| ")?.split(" | ");
        let number = cells.next()?.split(' ').next()?.parse().ok()?;
        let gain = cells.next()?.strip_prefix('+')?.strip_suffix(" %")?.parse().ok()?;
        Some((gain, section(number)))
    });
    rows.collect()
}

#[test]
fn published_percentages_are_those_of_a_step_that_measured_the_item() {
    let steps = published_steps();
    assert_eq!(steps.len(), 9);
    for item in items::ALL {
        let (Published::Step(gain) | Published::PartOfStep(gain)) = item.gain.published else {
            continue;
        };
        let is_measured = steps.iter().any(|(of_step, section)| {
            let mut words =
                section.split(|letter: char| !letter.is_alphanumeric() && letter != '-');
            (of_step - gain).abs() < f64::EPSILON && words.any(|word| word == item.id)
        });
        assert!(is_measured, "{}: no step with +{gain} % names it", item.id);
    }
    // The article used host networking from the first step on.
    let containers = items::by_id("netfilter-containers").unwrap();
    assert_eq!(containers.gain.published, Published::No);
}

#[test]
fn only_published_percentages_are_shown() {
    let steps = published_steps();
    let mut seen = 0;
    for name in HOSTS {
        for line in report::text(&look_at(name, For::All, None)).lines() {
            let Some(gain) = line.strip_prefix("  ").filter(|rest| !rest.starts_with(' ')) else {
                continue;
            };
            let gain = gain.strip_prefix("part of ").unwrap_or(gain);
            let Some((percent, _)) = gain.strip_prefix('+').and_then(|rest| rest.split_once(" %"))
            else {
                continue;
            };
            let percent: f64 = percent.parse().unwrap();
            assert!(steps.iter().any(|(gain, _)| (gain - percent).abs() < f64::EPSILON), "{line}");
            seen += 1;
        }
    }
    assert!(seen > 10, "only {seen} percentages were examined");
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
fn nft_runs_only_if_nf_tables_is_present() {
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
    // The output of nft, if it is run.
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
fn invalid_file_contents_do_not_panic() {
    for (text, name) in [
        ("", "empty"),
        ("18446744073709551615", "one huge number"),
        ("\u{fffd}\n-1 x,y:\n", "nonsense"),
        ("18446744073709551615 18446744073709551615 18446744073709551615", "huge numbers"),
    ] {
        for host in ["laptop", "ena-vm", "container"] {
            let tree = Scratch::of_host(host);
            for (path, body) in tree.contents() {
                // The CPUs stay known, so that every item runs completely.
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
fn page_loads_no_external_resources() {
    for name in HOSTS {
        let html = page::html(&look_at(name, For::All, Some(1_000_000)));
        for word in ["src=", "http://", "https://", "@import", "url("] {
            assert!(!html.contains(word), "{name}: {word}");
        }
    }
}

#[test]
fn page_shows_complete_apply_commands() {
    let page = page::html(&look_at("numa-server", For::All, None));
    assert!(page.contains("<code>tidegate tune apply locality-queues --yes</code>"));
    let audit = "tidegate tune apply syscall-audit --accept-risk syscall-audit --yes";
    assert!(page.contains(&format!("<code>{audit}</code>")));
}

#[test]
fn containers_and_virtual_machines_are_recognised() {
    let place = |name| look_at(name, For::All, None).environment.line();
    assert!(place("laptop").starts_with("bare metal"));
    assert!(place("ena-vm").starts_with("virtual machine (Amazon EC2)"));
    assert!(place("container").starts_with("container (kubepods) in a virtual machine (Google)"));
    assert!(
        place("two-cpu-vm").starts_with("virtual machine"),
        "files of a container image do not make a container"
    );
}

/// The finding of one item on a recorded host after some of its files were replaced.
fn finding_of(host: &str, id: &str, files: &[(&str, &str)]) -> Finding {
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
fn sockets_for_rare_protocols_only_are_good() {
    // Recorded on a host where systemd-networkd listens for LLDP on two cards.
    let head = "sk               RefCnt Type Proto  Iface R Rmem   User   Inode\n";
    let lldp = format!(
        "{head}00000000276de654 3      3    88cc   3     1 0      998    1461  \n\
         0000000058cd0248 3      3    88cc   2     1 0      998    1462  \n"
    );
    let finding_for =
        |text: &str| finding_of("laptop", "neighbour-packet-sockets", &[("proc/net/packet", text)]);
    let finding = finding_for(&lldp);
    assert_eq!(finding.state, State::Good, "{}", finding.found);
    assert!(finding.found.contains("2 of them only for rare protocols"), "{}", finding.found);
    for protocol in ["0003", "0800", "86dd"] {
        let finding = finding_for(&lldp.replacen("88cc", protocol, 1));
        assert_eq!(finding.state, State::Costs, "{protocol}: {}", finding.found);
    }
}

#[test]
fn unit_that_is_not_installed_has_the_limits_of_the_manager() {
    // For such a unit systemd prints the maximum of the kernel, which no service gets.
    let unit = "commands/systemctl_show_-p_LoadState_-p_LimitNOFILE_tidegate.service";
    let manager = "commands/systemctl_show_-p_DefaultLimitNOFILE";
    let finding_for = |state: &str| {
        finding_of(
            "laptop",
            "capacity-systemd",
            &[
                (unit, &format!("LimitNOFILE=1048576\nLoadState={state}\n")),
                (manager, "DefaultLimitNOFILE=1024\n"),
            ],
        )
    };
    let finding = finding_for("not-found");
    assert_eq!(finding.state, State::Costs, "{}", finding.found);
    assert!(finding.found.contains("is not installed) is 1024"), "{}", finding.found);
    assert_eq!(finding_for("loaded").state, State::Good);
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

fn virtio_finding(id: &str, allowed: [u32; 8], effective: [u32; 8]) -> Finding {
    let files = virtio_card(allowed, effective);
    let files: Vec<(&str, &str)> =
        files.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
    finding_of("container", id, &files)
}

#[test]
fn each_queue_pair_needs_its_own_cpu() {
    let id = "locality-irq-affinity";
    // Two interrupts a pair: four pairs on two CPUs are badly placed, though there are eight interrupts.
    let half = [0, 0, 1, 1, 0, 0, 1, 1];
    assert_ne!(virtio_finding(id, half, half).state, State::Good);
    // irqbalance may separate the two interrupts of a pair: only the receive interrupt counts.
    let apart = [0, 2, 1, 3, 0, 2, 1, 3];
    assert_ne!(virtio_finding(id, apart, apart).state, State::Good);
    let whole = [0, 0, 1, 1, 2, 2, 3, 3];
    assert_eq!(virtio_finding(id, whole, whole).state, State::Good);
}

#[test]
fn moved_interrupt_counts_at_its_new_cpu() {
    // The kernel moves an interrupt when it next fires; until then the effective CPU is the old one.
    let (whole, old) = ([0, 0, 1, 1, 2, 2, 3, 3], [0; 8]);
    let finding = virtio_finding("locality-irq-affinity", whole, old);
    assert_eq!(finding.state, State::Good, "{}", finding.found);
}

#[test]
fn node_of_a_virtio_card_is_that_of_its_parent_device() {
    let finding = virtio_finding("app-numa", [0; 8], [0; 8]);
    assert!(finding.found.contains("enp1s0 is on node 1 (CPUs 2-3)"), "{}", finding.found);
}

#[test]
fn interrupts_of_disabled_queues_do_not_count() {
    let cpus = [0, 0, 1, 1, 3, 3, 3, 3];
    let mut files = virtio_card(cpus, cpus);
    // Two of the four pairs are in use; virtio keeps the interrupts of the other two.
    files.retain(|(path, _)| !path.contains("x-2/") && !path.contains("x-3/"));
    let files: Vec<(&str, &str)> =
        files.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
    let finding = finding_of("container", "locality-irq-affinity", &files);
    assert_eq!(finding.found, "enp1s0: 4 interrupts, the receive interrupts on CPUs 0-1");
    assert_eq!(finding.state, State::Good);
}

#[test]
fn retransmissions_are_a_share_of_all_sent_segments() {
    // OutSegs does not count retransmissions. Without them in the sum, the share could exceed 100 %.
    let snmp = "Tcp: ActiveOpens OutSegs RetransSegs\nTcp: 400 1000 3000\n";
    let finding = finding_of("laptop", "pressure-retransmits", &[("proc/net/snmp", snmp)]);
    assert_eq!(finding.found, "3000 of 4000 segments since boot were retransmissions (75.00 %)");
}

#[test]
fn undo_restores_the_number_of_queues_that_ethtool_reported() {
    // A driver may show queues under /sys that it does not count as channels (those of AF_XDP, for example).
    let shown = "Channel parameters for eth0:\nPre-set maximums:\nCombined:\t8\n\
        Current hardware settings:\nCombined:\t1\n";
    let finding = finding_of("ena-vm", "locality-queues", &[("commands/ethtool_-l_eth0", shown)]);
    let call = finding.actions.iter().find(|action| action.acts()).unwrap();
    assert_eq!(call.undo_text(), "ethtool -L eth0 combined 1");
}

#[test]
fn rps_flow_count_is_rounded_as_by_the_kernel() {
    let tree = Scratch::of_host("ena-vm");
    fs::remove_dir_all(tree.0.join("sys/class/net/eth0/queues/rx-3")).unwrap();
    let report = check(&Host::recorded(&tree.0), &Workload::of(For::All));
    let entry = report.entries.iter().find(|entry| entry.item.id == "locality-rps").unwrap();
    let commands = entry.finding.commands();
    let flows: Vec<&String> =
        commands.iter().filter(|command| command.contains("flow_cnt")).collect();
    // The kernel rounds 32768 / 3 up. After a kill before the `done` record, the value must still be
    // recognised as ours.
    assert_eq!(flows.len(), 3, "{commands:?}");
    assert!(flows.iter().all(|command| command.starts_with("echo 16384 ")), "{flows:?}");
}

#[test]
fn without_ethtool_few_queues_are_not_good() {
    let tree = Scratch::of_host("ena-vm");
    fs::remove_file(tree.0.join("commands/ethtool_-l_eth0")).unwrap();
    fs::remove_dir_all(tree.0.join("sys/class/net/eth0/queues/rx-3")).unwrap();
    let report = check(&Host::recorded(&tree.0), &Workload::of(For::All));
    let entry = report.entries.iter().find(|entry| entry.item.id == "locality-queues").unwrap();
    let State::Skipped(reason) = &entry.finding.state else { panic!("{:?}", entry.finding) };
    assert!(reason.contains("ethtool"), "{reason}");
}

#[test]
fn unit_limit_above_nr_open_is_not_good() {
    // Observed with systemd 252: `systemctl show` prints 1375256, and /proc/PID/limits contains 1048576.
    let unit = "commands/systemctl_show_-p_LoadState_-p_LimitNOFILE_tidegate.service";
    let limit = "LimitNOFILE=1375256\nLoadState=loaded\n";
    let finding_for = |nr_open: &str| {
        let tree = Scratch::of_host("laptop");
        fs::write(tree.0.join(unit), limit).unwrap();
        fs::write(tree.0.join("proc/sys/fs/nr_open"), nr_open).unwrap();
        let mut workload = Workload::of(For::All);
        workload.requested_connections = Some(10_000_000);
        let report = check(&Host::recorded(&tree.0), &workload);
        report
            .entries
            .into_iter()
            .find(|entry| entry.item.id == "capacity-systemd")
            .unwrap()
            .finding
    };
    let finding = finding_for("1048576");
    assert_eq!(finding.state, State::Costs, "{}", finding.found);
    assert!(finding.found.contains("fs.nr_open lowers to 1048576"), "{}", finding.found);
    assert!(finding.kept.is_empty(), "the limit in the unit is already high enough");
    assert_eq!(finding_for("1400000").state, State::Good);
}

#[test]
fn recorder_runs_each_tool_for_each_interface() {
    let (tools, out) = (Scratch::new(), Scratch::new());
    let tool = tools.0.join("ethtool");
    fs::write(&tool, "#!/bin/sh\necho \"$@\"\n").unwrap();
    fs::set_permissions(&tool, fs::Permissions::from_mode(0o755)).unwrap();
    let path = format!("{}:{}", tools.0.display(), std::env::var("PATH").unwrap());
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/record.sh");
    let folder = out.0.join("here");
    let output = run(command("sh").arg(script).arg(&folder).env("PATH", path));
    assert!(output.status.success(), "{output:?}");
    for flag in ["-c", "-k", "-l"] {
        let recorded =
            fs::read_to_string(folder.join(format!("commands/ethtool_{flag}_lo"))).unwrap();
        assert_eq!(recorded, format!("{flag} lo\n"));
    }
    // The recording can be checked.
    let report = check(&Host::recorded(&folder), &Workload::of(For::All));
    assert_eq!(report.entries.len(), items::ALL.len());
}

#[test]
fn queues_are_created_before_their_interrupts_are_placed() {
    let tree = Scratch::of_host("ena-vm");
    let queue = tree.0.join("sys/class/net/eth0/queues/rx-3");
    fs::remove_dir_all(queue).unwrap();
    let shown = tree.0.join("commands/ethtool_-l_eth0");
    let fewer = fs::read_to_string(&shown).unwrap().replacen("Combined:\t4", "Combined:\t3", 2);
    fs::write(shown, fewer.replacen("Combined:\t3", "Combined:\t4", 1)).unwrap();
    let mut tune = command(env!("CARGO_BIN_EXE_tidegate-tune"));
    let output = run(tune.args(["apply", "locality", "--root"]).arg(&tree.0));
    let text = String::from_utf8(output.stdout).unwrap();
    let place = |words: &str| text.find(words).unwrap_or_else(|| panic!("{words}: {text}"));
    let order = ["systemctl stop irqbalance", "ethtool -L eth0", "/proc/irq/28/smp_affinity_list"];
    assert!(order.is_sorted_by_key(|words| place(words)), "{text}");
    assert!(text.contains("settings that the driver may change with it"), "{text}");
}
