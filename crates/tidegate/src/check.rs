//! `tidegate check FILE`: reads a configuration as `run` would, with its certificates and keys, and reports errors.
//! In: a path. Out: one line on stdout, or all errors on stderr and exit code 2; with `--json`, one JSON object.
//! Never: opens a listener or looks up a name.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use serde_json::{Value, json};
use tidegate_config::model::Config;
use tidegate_config::report::Mistake;
use tidegate_server::certificates::TlsFault;

use crate::source::{self, Refusal};
use crate::{USAGE, print_message, print_result};

/// Arguments of `tidegate check`.
#[derive(Args, Debug)]
pub struct CheckArgs {
    /// The configuration file
    file: PathBuf,
    /// Print one JSON object on stdout instead of text
    #[arg(long)]
    json: bool,
}

/// Checks the file and prints the result.
pub fn run(args: &CheckArgs) -> ExitCode {
    let file = args.file.display().to_string();
    let loaded = source::load(&args.file).and_then(|(config, warnings)| {
        match tidegate_server::certificates::check(&config) {
            Ok(()) => Ok((config, warnings)),
            Err(faults) => Err(Refusal::Certificates(faults)),
        }
    });
    match loaded {
        Ok((config, warnings)) if args.json => {
            let result = json!({
                "file": file,
                "ok": true,
                "listeners": config.listeners.len(),
                "routes": config.routes.len(),
                "pools": config.pools.len(),
                "servers": config.pools.iter().map(|pool| pool.servers.len()).sum::<usize>(),
                "errors": [],
                "warnings": all_as_json(warnings.mistakes()),
            });
            print_result(&format!("{result}\n"))
        }
        Ok((config, warnings)) => {
            print_message(&warnings.to_string());
            print_result(&format!("{file}: ok, {}\n", summary(&config)))
        }
        Err(refusal) => {
            if args.json {
                let errors = match &refusal {
                    Refusal::Unreadable(text) => {
                        vec![json!({ "kind": "unreadable", "what": text })]
                    }
                    Refusal::Wrong(errors) => all_as_json(errors.mistakes()),
                    Refusal::Certificates(faults) => {
                        let what = |fault: &TlsFault| json!({ "kind": "certificate", "what": fault.to_string() });
                        faults.iter().map(what).collect()
                    }
                };
                let result = json!({ "file": file, "ok": false, "errors": errors, "warnings": [] });
                print_result(&format!("{result}\n"));
            } else {
                print_message(&refusal.to_string());
            }
            ExitCode::from(USAGE)
        }
    }
}

fn summary(config: &Config) -> String {
    let servers = config.pools.iter().map(|pool| pool.servers.len()).sum();
    let parts = [
        counted(config.listeners.len(), "listener"),
        counted(config.routes.len(), "route"),
        counted(config.pools.len(), "pool"),
        counted(servers, "server"),
    ];
    parts.join(", ")
}

fn counted(count: usize, noun: &str) -> String {
    match count {
        1 => format!("1 {noun}"),
        count => format!("{count} {noun}s"),
    }
}

fn all_as_json(mistakes: &[Mistake]) -> Vec<Value> {
    mistakes
        .iter()
        .map(|mistake| {
            json!({
                "kind": mistake.kind.name(),
                "line": mistake.line,
                "column": mistake.column,
                "what": mistake.what,
                "allowed": mistake.allowed,
                "help": mistake.help,
            })
        })
        .collect()
}
