//! `tidegate tune` on its own, for work on this crate.
use clap::Parser;
use std::process::ExitCode;
use tidegate_tune::cli::{Args, run};

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    args: Args,
}

fn main() -> ExitCode {
    run(Line::parse().args)
}
