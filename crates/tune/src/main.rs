//! `tidegate tune` on its own, for work on this crate and for its tests; users have it in `tidegate`.
//! In: the command line. Out: the exit code of `cli::run`. Never: decides anything.
#![forbid(unsafe_code)]

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
