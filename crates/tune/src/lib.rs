//! The host advisor: finds settings of the host that cost performance, changes them, undoes the changes, and
//! measures their gain.
//! In: a `Host` (the files under /proc and /sys, and read-only tools), a `Workload`. Out: a `Report`;
//! on request, journaled changes and measured gains.
//! Never: writes while checking; applies a security trade-off that was not named; changes a value before
//! its previous value is on disk.
//! Invariant: every change that was begun is in the journal, so `undo` finds it after any crash.
#![forbid(unsafe_code)]

pub mod action;
pub mod apply;
pub mod capacity;
pub mod check;
pub mod cli;
pub mod counters;
pub mod cpu_list;
pub mod environment;
pub mod finding;
pub mod host;
pub mod interfaces;
pub mod item;
pub mod items;
pub mod journal;
pub mod minimum;
pub mod mounts;
pub mod page;
pub mod persist;
pub mod prove;
pub mod report;
pub mod undo;
pub mod workload;
