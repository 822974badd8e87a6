//! `tidegate completions SHELL`: the completion script of a shell on stdout.

use std::process::ExitCode;

use clap::{Args, CommandFactory as _};
use clap_complete::Shell;

use crate::{CommandLine, print_result};

/// Arguments of `tidegate completions`.
#[derive(Args, Debug)]
pub struct CompletionsArgs {
    /// The shell
    #[arg(value_name = "SHELL")]
    shell: Shell,
}

/// Prints the script.
pub fn run(args: &CompletionsArgs) -> ExitCode {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut CommandLine::command(), "tidegate", &mut script);
    print_result(&String::from_utf8_lossy(&script))
}
