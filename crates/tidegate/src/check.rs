//! `tidegate check FILE`: reads a configuration as `run` would, with its certificates, keys and scripts, resolves the
//! names of its servers, and reports every error at its place.
//! In: a path. Out: one line on stdout, or all errors on stderr and exit code 2; with `--json`, one JSON object.
//! Never: opens a listener.
//! Limits: `RESOLVE_MAX` for all names.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use serde_json::{Value, json};
use tidegate_config::model::Config;
use tidegate_config::places::Finding;
use tidegate_config::report::Mistake;
use tidegate_server::{apps, certificates, names};

use crate::source::{self, Refusal, Source};
use crate::{USAGE, print_message, print_result};

/// How long the names of all servers may take to resolve.
const RESOLVE_MAX: Duration = Duration::from_secs(10);

/// Arguments of `tidegate check`.
#[derive(Args, Debug)]
pub struct CheckArgs {
    /// The configuration file
    file: PathBuf,
    /// Print one JSON object on stdout instead of text
    #[arg(long)]
    json: bool,
    /// Do not resolve the names of servers
    #[arg(long)]
    offline: bool,
}

/// Reads the file, its certificates and keys, and resolves the names of its servers.
fn load(args: &CheckArgs) -> Result<Source, Refusal> {
    let source = source::load(&args.file)?;
    let Source { name, text, loaded } = &source;
    let faults = certificates::check(&loaded.config).err().unwrap_or_default();
    let mut findings: Vec<Finding> = faults.into_iter().map(Finding::from).collect();
    findings.extend(apps::check(&loaded.config));
    if !args.offline {
        findings.extend(names::check(&loaded.config, RESOLVE_MAX));
    }
    match findings.is_empty() {
        true => Ok(source),
        false => Err(Refusal::Wrong(loaded.places.errors(findings, text, name))),
    }
}

/// Checks the file and prints the result.
pub fn run(args: &CheckArgs) -> ExitCode {
    let file = args.file.display().to_string();
    match load(args) {
        Ok(Source { loaded, .. }) if args.json => {
            let config = &loaded.config;
            let result = json!({
                "file": file,
                "ok": true,
                "listeners": config.listeners.len(),
                "routes": config.routes.len(),
                "pools": config.pools.len(),
                "applications": config.lua.len(),
                "servers": config.pools.iter().map(|pool| pool.servers.len()).sum::<usize>(),
                "errors": [],
                "warnings": all_as_json(loaded.warnings.mistakes()),
            });
            print_result(&format!("{result}\n"))
        }
        Ok(source) => {
            print_message(&source.warnings_text());
            print_result(&format!("{file}: ok, {}\n", summary(&source.loaded.config)))
        }
        Err(refusal) => {
            if args.json {
                let errors = match &refusal {
                    Refusal::Unreadable(text) => {
                        vec![json!({ "kind": "unreadable", "what": text })]
                    }
                    Refusal::Wrong(errors) => all_as_json(errors.mistakes()),
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
