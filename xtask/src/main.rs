//! Jobs of this repository: `cargo xtask tidy`, `cargo xtask test-summary`.
//! In: the working tree, or logs of tests. Out: findings, one on each line; exit code 1 if there are any.
//! Never: needs a tool other than cargo and git.
#![forbid(unsafe_code)]

#[cfg(test)]
mod compared;
mod summary;
mod tidy;

use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.first().map(String::as_str) {
        Some("tidy") => tidy::run(),
        Some("test-summary") => summary::run(&arguments[1..]),
        _ => {
            eprintln!("usage: cargo xtask tidy | cargo xtask test-summary LOG...");
            ExitCode::from(2)
        }
    }
}
