//! capacity-oom-score: which process the kernel kills first when memory runs out.

use crate::finding::Finding;
use crate::host::{Host, Unreadable};
use crate::item::{Benefit, EVERY_KIND, Gain, Group, Item, KERNEL_DOCS, Published, Risk, Scope};
use crate::workload::Workload;

/// The item.
pub const ITEM: Item = Item {
    id: "capacity-oom-score",
    group: Group::Capacity,
    title: "out-of-memory score",
    mechanism: "When memory runs out, the kernel kills the process with the highest score. The score is \
        the memory use of the process, adjusted by oom_score_adj. A server with a million connections is \
        usually the largest process; if it is killed, all clients reconnect at once.",
    avoid: "Do not lower the score of a server that may leak memory: it is better killed and restarted \
        before the whole host fails.",
    gain: Gain {
        benefit: Benefit::Stability,
        percent: 2.0,
        source: KERNEL_DOCS,
        published: Published::No,
    },
    risk: Risk::Trade,
    scope: Scope::Process,
    kinds: EVERY_KIND,
    detect,
};

fn detect(host: &Host, _: &Workload) -> Result<Finding, Unreadable> {
    let path = host.process_path("oom_score_adj");
    let text = host.read(&path)?;
    let adjustment: i64 = text.parse().map_err(|_| Unreadable::unexpected(&path, &text))?;
    let panics = host.read_number("/proc/sys/vm/panic_on_oom").unwrap_or(0) > 0;
    let found = format!(
        "oom_score_adj {adjustment}{}",
        if panics { "; the kernel panics when memory runs out (vm.panic_on_oom)" } else { "" }
    );
    Ok(Finding::good_if(adjustment <= 0, found)
        .because("the kernel kills this process before others")
        .advise(
            "systemd: OOMScoreAdjust=-500 in the unit; Kubernetes: set requests equal to limits",
        )
        .keep(
            "/etc/systemd/system/tidegate.service.d/90-tidegate-oom.conf",
            "[Service]\nOOMScoreAdjust=-500\n",
        ))
}
