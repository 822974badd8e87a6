//! capacity-socket-buffers: the initial and maximum sizes of socket buffers.

use crate::action::Action;
use crate::capacity::{ACTIVE_ONE_IN, Needs, gib};
use crate::environment::Environment;
use crate::finding::Finding;
use crate::host::{Host, Unreadable};
use crate::item::{Benefit, EVERY_KIND, Gain, Group, Item, MILLION, Published, Risk, Scope};
use crate::workload::Workload;

/// The item.
pub const ITEM: Item = Item {
    id: "capacity-socket-buffers",
    group: Group::Capacity,
    title: "sizes of socket buffers (tcp_rmem, tcp_wmem)",
    mechanism: "The second number is the initial buffer size of a socket, the third its maximum. Buffers \
        take memory only for the bytes that they hold, but slow readers fill them: the initial size times \
        the number of slow connections must fit into memory.",
    avoid: "Small maxima limit the throughput of single long-distance connections (bandwidth times \
        round-trip time).",
    gain: Gain {
        benefit: Benefit::Capacity,
        percent: 8.0,
        source: MILLION,
        published: Published::No,
    },
    risk: Risk::Trade,
    scope: Scope::NetNamespace,
    kinds: EVERY_KIND,
    detect,
};

/// The initial size for very many connections.
const START_BYTES: u64 = 16_384;
/// A maximum below this limits the throughput of single connections.
const GROWN_BYTES_MIN: u64 = 4 << 20;

fn detect(host: &Host, workload: &Workload) -> Result<Finding, Unreadable> {
    let paths = ["/proc/sys/net/ipv4/tcp_rmem", "/proc/sys/net/ipv4/tcp_wmem"];
    let (mut sizes, mut start_sum) = (Vec::new(), 0);
    for path in paths {
        let numbers = host.read_numbers(path, 3)?;
        let [least, start, grown, ..] = numbers[..] else {
            return Err(Unreadable::unexpected(path, "fewer than three numbers"));
        };
        start_sum = start.saturating_add(start_sum);
        sizes.push((path, least, start, grown));
    }
    let needs = Needs::of(host, workload);
    let memory = Environment::of(host).memory_bytes;
    let worst = (needs.sockets / ACTIVE_ONE_IN).saturating_mul(start_sum);
    let words: Vec<String> = sizes.iter().map(|(_, a, b, c)| format!("{a} {b} {c}")).collect();
    let found = format!(
        "rmem {}, wmem {}; with one connection in {ACTIVE_ONE_IN} full at the initial size: {}",
        words[0],
        words[1],
        gib(worst)
    );
    let too_large = memory > 0 && worst > memory / 4;
    let too_small = sizes.iter().any(|(_, _, _, grown)| *grown < GROWN_BYTES_MIN);
    let mut finding = Finding::good_if(!too_large && !too_small, found);
    for (path, least, start, grown) in sizes {
        let start_wanted = if too_large { start.min(START_BYTES) } else { start };
        let grown_wanted = grown.max(GROWN_BYTES_MIN);
        if (start_wanted, grown_wanted) != (start, grown) {
            finding = finding
                .action(Action::setting(path, format!("{least} {start_wanted} {grown_wanted}")));
        }
    }
    Ok(finding)
}
