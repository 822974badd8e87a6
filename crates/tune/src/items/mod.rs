//! All items of advice, one file each, in the order of the manual.
//! Invariant: IDs are unique, and each item is documented on the page of its group (checked by tests).

use crate::item::Item;

mod app_build;
mod app_numa;
mod app_pinning;
mod app_quota;
mod app_smt_siblings;
mod capacity_epoll_watches;
mod capacity_file_max;
mod capacity_huge_pages;
mod capacity_kernel_threads;
mod capacity_map_count;
mod capacity_memlock;
mod capacity_memory;
mod capacity_nofile;
mod capacity_oom_score;
mod capacity_overcommit;
mod capacity_port_range;
mod capacity_socket_buffers;
pub(crate) mod capacity_somaxconn;
mod capacity_source_addresses;
mod capacity_syn_backlog;
mod capacity_systemd;
mod capacity_tcp_mem;
mod capacity_time_wait;
mod cpu_clocksource;
mod cpu_governor;
mod cpu_idle_states;
mod cpu_mitigations;
mod cpu_steal;
mod cpu_turbo;
mod interrupt_busy_poll;
mod interrupt_coalescing;
mod interrupt_napi_deferral;
mod last_congestion_control;
mod last_mtu;
mod last_offloads;
mod last_timestamps;
mod locality_irq_affinity;
mod locality_irqbalance;
mod locality_queues;
mod locality_reuseport;
mod locality_rps;
mod locality_xps;
mod lock_contention;
mod lock_qdisc;
mod neighbour_daemons;
mod neighbour_packet_sockets;
mod netfilter_conntrack;
mod netfilter_containers;
mod netfilter_rules;
mod pressure_cloud;
mod pressure_listen;
mod pressure_numa;
mod pressure_retransmits;
mod pressure_softnet;
mod pressure_syn_cookies;
mod syscall_audit;
mod syscall_seccomp;
mod syscall_tracing;

/// All items, group by group; within a group in the order to apply them: irqbalance is stopped first, then the
/// queues are created, and only then the interrupts are placed.
pub const ALL: &[Item] = &[
    app_quota::ITEM,
    app_pinning::ITEM,
    app_smt_siblings::ITEM,
    app_numa::ITEM,
    app_build::ITEM,
    cpu_mitigations::ITEM,
    cpu_governor::ITEM,
    cpu_idle_states::ITEM,
    cpu_clocksource::ITEM,
    cpu_steal::ITEM,
    cpu_turbo::ITEM,
    syscall_audit::ITEM,
    syscall_seccomp::ITEM,
    syscall_tracing::ITEM,
    netfilter_rules::ITEM,
    netfilter_conntrack::ITEM,
    netfilter_containers::ITEM,
    locality_irqbalance::ITEM,
    locality_queues::ITEM,
    locality_irq_affinity::ITEM,
    locality_rps::ITEM,
    locality_xps::ITEM,
    locality_reuseport::ITEM,
    interrupt_coalescing::ITEM,
    interrupt_busy_poll::ITEM,
    interrupt_napi_deferral::ITEM,
    neighbour_packet_sockets::ITEM,
    neighbour_daemons::ITEM,
    lock_qdisc::ITEM,
    lock_contention::ITEM,
    last_offloads::ITEM,
    last_congestion_control::ITEM,
    last_mtu::ITEM,
    last_timestamps::ITEM,
    capacity_memory::ITEM,
    capacity_nofile::ITEM,
    capacity_file_max::ITEM,
    capacity_systemd::ITEM,
    capacity_port_range::ITEM,
    capacity_source_addresses::ITEM,
    capacity_somaxconn::ITEM,
    capacity_syn_backlog::ITEM,
    capacity_tcp_mem::ITEM,
    capacity_socket_buffers::ITEM,
    capacity_time_wait::ITEM,
    capacity_epoll_watches::ITEM,
    capacity_map_count::ITEM,
    capacity_oom_score::ITEM,
    capacity_overcommit::ITEM,
    capacity_huge_pages::ITEM,
    capacity_memlock::ITEM,
    capacity_kernel_threads::ITEM,
    pressure_softnet::ITEM,
    pressure_listen::ITEM,
    pressure_syn_cookies::ITEM,
    pressure_retransmits::ITEM,
    pressure_cloud::ITEM,
    pressure_numa::ITEM,
];

/// The item with this ID.
#[must_use]
pub fn by_id(id: &str) -> Option<&'static Item> {
    ALL.iter().find(|item| item.id == id)
}
