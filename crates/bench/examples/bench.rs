//! `tidegate bench` as a separate program, for work on this crate:
//! `cargo run --example bench -- bench floor`.

use clap::{Parser, Subcommand};
use std::process::ExitCode;

#[derive(Parser)]
#[command(name = "tidegate")]
struct Command {
    #[command(subcommand)]
    command: Subcommands,
}

#[derive(Subcommand)]
enum Subcommands {
    /// Load generator
    Bench(tidegate_bench::cli::BenchArgs),
}

fn main() -> ExitCode {
    let Subcommands::Bench(args) = Command::parse().command;
    tidegate_bench::cli::run(args)
}
