//! `tidegate lua`: `test DIR` runs the tests of Lua applications; for `repl`, see `repl.rs`.
//! In: a folder. Out: a line for each test, what failed, and a last line with counts; exit code 1 if a test failed, 2 if
//! there are no tests or a script does not load.
//! Never: opens a socket.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use tidegate_server::lua_tests::{self, Outcome};

use crate::ctl::PlaceArgs;
use crate::repl;
use crate::{DONE, FAILED, USAGE, print_message, print_result};

/// Arguments of `tidegate lua`.
#[derive(Args, Debug)]
pub struct LuaArgs {
    #[command(subcommand)]
    command: LuaCommand,
}

#[derive(Subcommand, Debug)]
enum LuaCommand {
    /// Run the tests of applications: NAME_test.lua tests NAME.lua
    Test {
        /// The folder with the applications
        folder: PathBuf,
    },
    /// Run lines of Lua in an application of a running process, and print their values
    Repl {
        /// The application: NAME of [lua.NAME]
        app: String,
        /// The worker whose VM runs the lines
        #[arg(long, value_name = "NUMBER", default_value_t = 0)]
        worker: u32,
        #[command(flatten)]
        place: PlaceArgs,
    },
}

/// Runs the subcommand.
pub fn run(args: &LuaArgs) -> ExitCode {
    let folder = match &args.command {
        LuaCommand::Test { folder } => folder,
        LuaCommand::Repl { app, worker, place } => return repl::run(app, *worker, place),
    };
    let (mut passed, mut failed) = (0_usize, 0_usize);
    let ended = lua_tests::run(folder, |outcome| {
        match outcome.failure {
            None => passed += 1,
            Some(_) => failed += 1,
        }
        print_result(&line(&outcome));
    });
    if let Err(why) = ended {
        print_message(&format!("tidegate: {why}\n"));
        return ExitCode::from(USAGE);
    }
    print_result(&format!("{passed} passed, {failed} failed\n"));
    ExitCode::from(if failed == 0 { DONE } else { FAILED })
}

/// The lines about a test.
fn line(outcome: &Outcome) -> String {
    let Outcome { file, name, span, failure, log } = outcome;
    let seconds = span.as_nanos() as f64 / 1e9;
    let mut text = String::new();
    let Some(failure) = failure else {
        let _ = writeln!(text, "ok    {file}: {name} ({seconds:.2} s)");
        return text;
    };
    let _ = writeln!(text, "FAIL  {file}: {name} ({seconds:.2} s)");
    for line in failure.lines() {
        let _ = writeln!(text, "        {line}");
    }
    for line in log.iter().flat_map(|entry| entry.lines()) {
        let _ = writeln!(text, "        log: {line}");
    }
    text
}
