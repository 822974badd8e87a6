//! app-cpu-quota: compares the CPU quota of the cgroup with the number of workers.

use crate::environment::allowed_cpus;
use crate::finding::Finding;
use crate::host::{Host, Unreadable};
use crate::item::{Benefit, EVERY_KIND, Gain, Group, Item, KERNEL_DOCS, Published, Risk, Scope};
use crate::workload::Workload;

/// The item.
pub const ITEM: Item = Item {
    id: "app-cpu-quota",
    group: Group::Application,
    title: "CPU quota of the cgroup",
    mechanism: "A cgroup quota stops all threads of the group once they have used its CPU time for the \
        current period (100 ms). If there are more workers than the quota covers, they use it up early and \
        all pause until the next period. This adds tens of milliseconds to every connection.",
    avoid: "A quota protects other workloads on the host. If it must stay, run only as many workers as it \
        covers.",
    gain: Gain {
        benefit: Benefit::Latency,
        percent: 10.0,
        source: KERNEL_DOCS,
        published: Published::No,
    },
    risk: Risk::None,
    scope: Scope::Process,
    kinds: EVERY_KIND,
    detect,
};

fn detect(host: &Host, workload: &Workload) -> Result<Finding, Unreadable> {
    let allowed = allowed_cpus(host).len() as u64;
    let workers = workload.workers.unwrap_or(allowed).max(1);
    let Some(hundredths) = quota_hundredths(host) else {
        return Ok(Finding::good(format!("no quota; {workers} workers on {allowed} CPUs")));
    };
    let covered = (hundredths / 100).max(1);
    let found = format!(
        "the quota is {}.{:02} CPUs for {workers} workers",
        hundredths / 100,
        hundredths % 100
    );
    if workers <= covered {
        return Ok(Finding::good(found));
    }
    Ok(Finding::costs(found)
        .because("all workers pause together whenever the quota of a period is used up")
        .advise(format!("tidegate run --workers {covered}"))
        .advise(format!(
            "or raise the quota to {workers} CPUs (docker --cpus, CPUQuota= in systemd)"
        )))
}

/// The smallest quota between this cgroup and the root, in hundredths of a CPU; supports cgroup v2 and v1.
fn quota_hundredths(host: &Host) -> Option<u64> {
    let groups = host.read(&host.process_path("cgroup")).ok()?;
    let mut tightest: Option<u64> = None;
    for line in groups.lines() {
        let mut parts = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else {
            continue;
        };
        let mut folder = path.trim_end_matches('/');
        loop {
            let found = if controllers.is_empty() {
                host.read(&format!("/sys/fs/cgroup{folder}/cpu.max"))
                    .ok()
                    .and_then(|text| v2(&text))
            } else if controllers.split(',').any(|name| name == "cpu") {
                v1(host, &format!("/sys/fs/cgroup/cpu{folder}"))
            } else {
                None
            };
            tightest = tightest.into_iter().chain(found).min();
            match folder.rsplit_once('/') {
                Some((parent, _)) => folder = parent,
                None => break,
            }
        }
    }
    tightest
}

fn v2(text: &str) -> Option<u64> {
    let mut words = text.split_whitespace();
    let quota: u64 = words.next()?.parse().ok()?;
    let period: u64 = words.next()?.parse().ok()?;
    quota.saturating_mul(100).checked_div(period)
}

fn v1(host: &Host, folder: &str) -> Option<u64> {
    let quota: u64 = host.read(&format!("{folder}/cpu.cfs_quota_us")).ok()?.parse().ok()?;
    let period = host.read_number(&format!("{folder}/cpu.cfs_period_us")).ok()?;
    quota.saturating_mul(100).checked_div(period)
}
