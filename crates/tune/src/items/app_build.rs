//! app-build: how the running binary was built.

use crate::finding::Finding;
use crate::host::{Host, Unreadable};
use crate::item::{Benefit, EVERY_KIND, Gain, Group, Item, NINE_STEPS, Published, Risk, Scope};
use crate::workload::Workload;

/// The item.
pub const ITEM: Item = Item {
    id: "app-build",
    group: Group::Application,
    title: "build of this binary",
    mechanism: "A build without optimisation runs several times slower. A build for the CPU of this host \
        may use wider vector instructions without a check at run time; the nine-steps article gained 5 to \
        10 % each from -O3 and -march=native in C.",
    avoid: "Do not use a CPU-specific build for binaries that run on several kinds of machine: on an older \
        CPU it stops with SIGILL.",
    gain: Gain {
        benefit: Benefit::Throughput,
        percent: 5.0,
        source: NINE_STEPS,
        published: Published::PartOfStep(55.0),
    },
    risk: Risk::Trade,
    scope: Scope::Process,
    kinds: EVERY_KIND,
    detect,
};

fn detect(host: &Host, _: &Workload) -> Result<Finding, Unreadable> {
    let build = host.build();
    if !build.optimised {
        return Ok(Finding::costs("built without optimisation (debug assertions are on)")
            .because("every request takes several times the CPU time")
            .percent(100.0)
            .advise("cargo build --release"));
    }
    let found = format!("optimised, for {}", build.instruction_set);
    Ok(Finding::good_if(build.instruction_set != "baseline", found)
        .percent(1.0)
        .because("the hot loops already select wide instructions at run time, so expect little")
        .advise("RUSTFLAGS='-C target-cpu=native' cargo build --release"))
}
