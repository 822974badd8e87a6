//! The binary: parses the command line and calls the crate or module of the subcommand.
//! In: a command line. Out: an exit code: 0 success, 1 the run failed or found failures, 2 usage or configuration
//! error.
//! Never: implements a subcommand here; each subcommand is one module or one crate.
#![forbid(unsafe_code)]

mod check;
mod completions;
mod convert;
mod ctl;
mod lua;
mod man;
mod repl;
mod run;
mod schema;
mod source;

use std::io::{self, Write as _};
use std::path::Path;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

#[cfg(feature = "jemalloc")]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// Exit code for success.
const DONE: u8 = 0;
/// Exit code if the run failed or found failures.
const FAILED: u8 = 1;
/// Exit code if the command line or the configuration is invalid.
const USAGE: u8 = 2;

/// HTTP reverse proxy and load balancer, with a load generator and a host advisor
#[derive(Parser, Debug)]
#[command(name = "tidegate", version, arg_required_else_help = true, max_term_width = 80)]
struct CommandLine {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// Serve; without a file, the embedded configuration on 127.0.0.1
    Run(run::RunArgs),
    /// Validate a configuration: reports every error with file, line, column and the fix
    Check(check::CheckArgs),
    /// Translate a configuration of HAProxy or nginx; lines that cannot be translated are listed
    Convert(convert::ConvertArgs),
    /// Send a command to the admin interface of a running process, such as: show stat
    Ctl(ctl::CtlArgs),
    /// Test Lua applications, or run Lua code in a running process
    Lua(lua::LuaArgs),
    /// Print the JSON Schema of the configuration, for editors
    Schema,
    /// Print the completion script of a shell
    Completions(completions::CompletionsArgs),
    /// Print the manual page, as roff: tidegate man | man -l -
    Man(man::ManArgs),
    /// Measure a server: generate load, compare servers
    Bench(tidegate_bench::cli::BenchArgs),
    /// Tune this host: find settings that cost performance, change them, measure the gain
    Tune(tidegate_tune::cli::Args),
}

fn main() -> ExitCode {
    let line = match CommandLine::try_parse() {
        Ok(line) => line,
        Err(error) => return print_usage_error(&error),
    };
    match line.command {
        Command::Run(args) => run::run(&args),
        Command::Check(args) => check::run(&args),
        Command::Convert(args) => convert::run(&args),
        Command::Ctl(args) => ctl::run(&args),
        Command::Lua(args) => lua::run(&args),
        Command::Schema => schema::run(),
        Command::Completions(args) => completions::run(&args),
        Command::Man(args) => man::run(&args),
        Command::Bench(args) => tidegate_bench::cli::run(args),
        Command::Tune(args) => tidegate_tune::cli::run(args),
    }
}

/// Prints the error of an invalid command line with the prefix of all errors. Prints `--help` and `--version` as clap does.
fn print_usage_error(error: &clap::Error) -> ExitCode {
    let text = error.render().to_string();
    let Some(what) = text.strip_prefix("error: ") else { error.exit() };
    let help = std::env::args().nth(1).and_then(|word| advice(&word));
    let help = help.map_or_else(String::new, |help| format!("help: {help}\n"));
    print_message(&format!("tidegate: {what}{help}"));
    ExitCode::from(USAGE)
}

/// The command to run in place of a first word that other servers understand.
fn advice(word: &str) -> Option<&'static str> {
    let is_file =
        || word.ends_with(".toml") || word.ends_with(".conf") || Path::new(word).is_file();
    match word {
        "-t" | "-T" | "--test" | "--check" | "test" | "validate" | "configtest" => {
            Some("to check a file, run: tidegate check FILE")
        }
        "-c" | "-f" | "-C" | "--config" | "--file" | "start" | "serve" | "server" | "up" => {
            Some("to serve, run: tidegate run FILE")
        }
        "-s" | "reload" | "stop" | "quit" | "restart" => Some(
            "to reload, send SIGHUP to the process or run: tidegate ctl reload (it needs [admin] in the file); \
             to stop, send SIGTERM",
        ),
        "-v" | "version" => Some("to see the version, run: tidegate --version"),
        "status" | "stats" => {
            Some("to see the state, run: tidegate ctl show stat (it needs [admin] in the file)")
        }
        _ if is_file() => {
            Some("to serve, run: tidegate run FILE; to check a file: tidegate check FILE")
        }
        _ => None,
    }
}

/// Writes a result to stdout. A closed pipe (`| head`) is not a failure.
fn print_result(text: &str) -> ExitCode {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Ok(()) => ExitCode::from(DONE),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => ExitCode::from(DONE),
        Err(error) => {
            print_message(&format!("tidegate: cannot write to stdout: {error}\n"));
            ExitCode::from(FAILED)
        }
    }
}

/// Writes a message to stderr. A failed write is ignored, because it is no reason to stop serving.
fn print_message(text: &str) {
    let _ = io::stderr().lock().write_all(text.as_bytes());
}
