//! The ring of consistent hashing: which points each server of a pool has.
//! In: the addresses and weights of servers. Out: sorted points, each with its server.
//! Limits: `RING_POINTS_MAX` points of a pool's ring.

use tidegate_base::prng::{hash_bytes, mix64};
use tidegate_config::model::{self, ServerAddress};

/// Maximum number of points of a pool's hash ring. If the weights require more, each server gets proportionally fewer.
const RING_POINTS_MAX: usize = 1 << 16;

/// Points of the ring for each unit of weight. With 160, the shares of equal servers differ by about a tenth.
const RING_POINTS_PER_WEIGHT: u64 = 160;

/// Computes the sorted points of the ring. A server's points depend only on its address (and on how many
/// earlier servers have the same address), so that adding or removing a server moves only the keys that this
/// server gains or loses.
pub(crate) fn build_ring(identities: &[u64], weights: &[u32]) -> Vec<(u64, u16)> {
    let unit = weights.iter().fold(0, |unit, &weight| common_divisor(unit, weight)).max(1);
    let points_of = |weight: u32| u64::from(weight / unit) * RING_POINTS_PER_WEIGHT;
    let wanted: u64 = weights.iter().map(|&weight| points_of(weight)).sum();
    let mut ring = Vec::new();
    for (index, (&identity, &weight)) in identities.iter().zip(weights).enumerate() {
        let Ok(owner) = u16::try_from(index) else {
            break;
        };
        let mut points = points_of(weight);
        if wanted > RING_POINTS_MAX as u64 {
            points = points * RING_POINTS_MAX as u64 / wanted;
        }
        // A server of weight 0 has no point, so that its keys move to other servers.
        let points = if weight == 0 { 0 } else { points.max(1) };
        for point in 0..points {
            let hash = mix64(mix64(identity).wrapping_add(point << 1 | 1));
            ring.push((hash, owner));
        }
    }
    ring.sort_unstable();
    ring
}

/// The identity of each server, from which its points are computed: its address, and how many earlier servers have the same
/// address.
pub(crate) fn identities(servers: &[model::Upstream]) -> Vec<u64> {
    let addresses: Vec<u64> = servers.iter().map(|server| identity(&server.address)).collect();
    let earlier =
        |at: usize| addresses[..at].iter().filter(|other| **other == addresses[at]).count();
    (0..addresses.len()).map(|at| addresses[at].wrapping_add(earlier(at) as u64)).collect()
}

fn identity(address: &ServerAddress) -> u64 {
    match address {
        ServerAddress::Unix(path) => hash_bytes(path.as_bytes()),
        other @ (ServerAddress::Ip(_) | ServerAddress::Name(..) | ServerAddress::Slot(_)) => {
            hash_bytes(other.to_string().as_bytes())
        }
    }
}

fn common_divisor(a: u32, b: u32) -> u32 {
    if b == 0 { a } else { common_divisor(b, a % b) }
}
