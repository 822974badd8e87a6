//! `tidegate run`: serves until SIGTERM or SIGINT.
//! In: a path or nothing (the embedded configuration). Out: exit code 0 after a stop in order,
//! 1 when serving could not begin, 2 when the configuration is wrong.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use tidegate_config::model::Config;
use tidegate_server::RunOptions;

use crate::{DONE, FAILED, USAGE, print_message, source};

/// Where to look when no file is named.
const EMBEDDED_NOTE: &str = "\
tidegate: no file is named (-c FILE), so the embedded configuration serves
tidegate: open http://127.0.0.1:8080/ or try /json /plaintext /synthetic?s=1k /proxied/json
";

/// Arguments of `tidegate run`.
#[derive(Args, Debug)]
pub struct RunArgs {
    /// The configuration file; without it, the embedded configuration
    #[arg(short, long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Worker threads, instead of the file's number
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    workers: Option<u16>,
}

/// Serves, and says how it ended.
pub fn run(args: &RunArgs) -> ExitCode {
    let Some(config) = load(args) else {
        return ExitCode::from(USAGE);
    };
    match tidegate_server::run(config, RunOptions { workers: args.workers }) {
        Ok(()) => ExitCode::from(DONE),
        Err(error) => {
            print_message(&format!("error: {error}\n"));
            ExitCode::from(FAILED)
        }
    }
}

fn load(args: &RunArgs) -> Option<Config> {
    let Some(path) = &args.config else {
        print_message(EMBEDDED_NOTE);
        return Some(tidegate_config::embedded());
    };
    match source::load(path) {
        Ok((config, warnings)) => {
            print_message(&warnings.to_string());
            Some(config)
        }
        Err(refusal) => {
            print_message(&refusal.to_string());
            None
        }
    }
}
