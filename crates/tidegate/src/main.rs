//! The binary: flags in, the right room out.
//! In: a command line. Out: an exit code: 0 done, 1 the run found failures, 2 usage or configuration error.
//! Never: does a room's work; each subcommand is one module or one crate.
#![forbid(unsafe_code)]

mod check;
mod run;
mod schema;
mod source;

use std::io::{self, Write as _};
use std::process::ExitCode;

use clap::{Parser, Subcommand};

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// Exit code when all is done.
const DONE: u8 = 0;
/// Exit code when the run found failures.
const FAILED: u8 = 1;
/// Exit code when the command line or the configuration is wrong.
const USAGE: u8 = 2;

/// HTTP reverse proxy and load balancer, with the proof of its own numbers
#[derive(Parser, Debug)]
#[command(name = "tidegate", version, arg_required_else_help = true)]
struct CommandLine {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// Serve; without -c, an embedded configuration on 127.0.0.1
    Run(run::RunArgs),
    /// Parse and validate a configuration: every error with file, line, column and the mend
    Check(check::CheckArgs),
    /// Print the JSON Schema of the configuration, for editors
    Schema,
    /// Load generator
    Bench(tidegate_bench::cli::BenchArgs),
    /// Host advisor: what this host costs, what may be changed, and the proof of it
    Tune(tidegate_tune::cli::Args),
}

fn main() -> ExitCode {
    match CommandLine::parse().command {
        Command::Run(args) => run::run(&args),
        Command::Check(args) => check::run(&args),
        Command::Schema => schema::run(),
        Command::Bench(args) => tidegate_bench::cli::run(args),
        Command::Tune(args) => tidegate_tune::cli::run(args),
    }
}

/// Writes a result to stdout; a reader that went away (`| head`) is no failure.
fn print_result(text: &str) -> ExitCode {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Ok(()) => ExitCode::from(DONE),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => ExitCode::from(DONE),
        Err(error) => {
            print_message(&format!("error: stdout cannot be written: {error}\n"));
            ExitCode::from(FAILED)
        }
    }
}

/// Writes a message to stderr; a stderr that went away is no reason to stop serving.
fn print_message(text: &str) {
    let _ = io::stderr().lock().write_all(text.as_bytes());
}
