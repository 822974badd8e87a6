//! `tidegate run`: serves until SIGTERM or SIGINT.
//! In: the path of a configuration, or none for the embedded configuration.
//! Out: exit code 0 after a graceful stop, 1 if the start failed, 2 if the configuration is invalid.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use tidegate_config::model::Config;
use tidegate_server::RunOptions;

use crate::{DONE, FAILED, USAGE, print_message, source};

/// Printed if no configuration file is given.
const EMBEDDED_NOTE: &str = "\
tidegate: no configuration file given (-c FILE): serving the embedded configuration
tidegate: open http://127.0.0.1:8080/ or try /json /plaintext /synthetic?s=1k /proxied/json
";

/// Arguments of `tidegate run`.
#[derive(Args, Debug)]
pub struct RunArgs {
    /// The configuration file; without it, the embedded configuration
    #[arg(short, long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Worker threads; overrides `workers` of the file
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    workers: Option<u16>,
}

/// Serves until a signal stops the process.
pub fn run(args: &RunArgs) -> ExitCode {
    let Some(config) = load(args) else {
        return ExitCode::from(USAGE);
    };
    match tidegate_server::run(config, RunOptions { workers: args.workers }) {
        Ok(()) => ExitCode::from(DONE),
        Err(error) => {
            print_message(&format!("tidegate: {error}\n"));
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
