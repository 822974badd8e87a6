//! `tidegate bench` by itself, for work on this crate: `cargo run --example bench -- bench floor`.

use clap::{Parser, Subcommand};
use std::process::ExitCode;

#[derive(Parser)]
#[command(name = "tidegate")]
struct Command {
    #[command(subcommand)]
    command: Door,
}

#[derive(Subcommand)]
enum Door {
    /// Load generator
    Bench(tidegate_bench::cli::BenchArgs),
}

fn main() -> ExitCode {
    let Door::Bench(args) = Command::parse().command;
    tidegate_bench::cli::run(args)
}
