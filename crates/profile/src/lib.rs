//! Profiles of a process: stacks that were sampled, the names of their functions, and readable forms: flame graphs, tables, and
//! files for other tools.
//! In: registers and stacks of threads of this process; texts of profiles. Out: texts.
//! Never: takes samples, or runs on a worker: names need files, memory and time.
//! Limits: `stacks::STACKS_MAX` different stacks of `stacks::DEPTH_MAX` frames.
#![forbid(unsafe_code)]

pub mod folded;
pub mod graph;
mod modules;
pub mod pprof;
pub mod stacks;
mod symbols;
pub mod table;
