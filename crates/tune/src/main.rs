//! `tidegate tune` as a separate program, for developing and testing this crate. Users run it as part of `tidegate`.
//! In: the command line. Out: the exit code of `cli::run`. Never: contains logic.
#![forbid(unsafe_code)]

use clap::Parser;
use std::process::ExitCode;
use tidegate_tune::cli::{Args, run};

#[derive(Parser)]
#[command(max_term_width = 80)]
struct Line {
    #[command(flatten)]
    args: Args,
}

fn main() -> ExitCode {
    run(Line::parse().args)
}
