//! `tidegate check FILE`: reads a configuration as `run` would, with its certificates, keys and scripts, resolves the
//! names of its servers, and reports every error at its place.
//! In: a path. Out: one line on stdout, or all errors on stderr and exit code 2; with `--json`, one JSON object.
//! With `--request`: which route takes a request, and what happens to it. With `--against`: what would change.
//! Never: opens a listener.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use serde_json::{Value, json};
use tidegate_config::model::Config;
use tidegate_config::report::Mistake;
use tidegate_server::Inventory;
use tidegate_server::explain::{self, ExplainedRequest, Explanation};

use crate::ctl::{self, IO_TIMEOUT, Place, TlsArgs};
use crate::source::{self, Refusal, Source};
use crate::{USAGE, print_message, print_result};

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
    /// Print what changes if this file replaces another one, or the configuration of a running process
    #[arg(long, value_name = "FILE|ADDRESS", conflicts_with = "request")]
    against: Option<String>,
    /// File with the token of the admin interface at ADDRESS
    #[arg(long, value_name = "FILE", requires = "against")]
    token_file: Option<PathBuf>,
    #[command(flatten)]
    tls: TlsArgs,
    /// Print which route takes this request, why earlier routes do not, and what its server receives
    #[arg(long, value_name = "METHOD URL")]
    request: Option<String>,
    /// A header field of the request, such as "Cookie: a=b"
    #[arg(long, value_name = "FIELD", requires = "request")]
    header: Vec<String>,
    /// The address of the request's client
    #[arg(long, value_name = "ADDRESS", requires = "request", default_value = "127.0.0.1")]
    client: IpAddr,
    /// The listener that the request is sent to [default: the one with the port or scheme of the URL]
    #[arg(long, value_name = "NAME", requires = "request")]
    listener: Option<String>,
}

/// Reads the file, its certificates and keys, and resolves the names of its servers.
fn load(args: &CheckArgs) -> Result<Source, Refusal> {
    source::examine(source::load(&args.file)?, &args.file, !args.offline)
}

/// Checks the file and prints the result.
pub fn run(args: &CheckArgs) -> ExitCode {
    let file = args.file.display().to_string();
    let loaded = load(args);
    let changes = match (&loaded, &args.against) {
        (Ok(source), Some(against)) => match changes(args, against, &source.loaded.config) {
            Ok(changes) => Some(changes),
            Err(text) => {
                print_message(&text);
                return ExitCode::from(USAGE);
            }
        },
        _ => None,
    };
    let explanation = match (&loaded, &args.request) {
        (Ok(source), Some(request)) => match explain(args, request, source) {
            Ok(explanation) => Some(explanation),
            Err(text) => {
                print_message(&format!("tidegate: {text}\n"));
                return ExitCode::from(USAGE);
            }
        },
        (Ok(_), None) | (Err(_), _) => None,
    };
    match loaded {
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
                "changes": changes,
                "request": explanation.as_ref().map(as_json),
            });
            print_result(&format!("{result}\n"))
        }
        Ok(source) => {
            if let Some(explanation) = explanation {
                return print_result(&explanation.text);
            }
            print_message(&source.warnings_text());
            let ok = format!("{file}: ok, {}\n", summary(&source.loaded.config));
            print_result(&match changes {
                None => ok,
                Some(changes) if changes.is_empty() => format!("{ok}no changes\n"),
                Some(changes) => format!("{ok}{}\n", changes.join("\n")),
            })
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

/// What changes if `config` replaces the configuration at `against`; the error is a string to print.
fn changes(args: &CheckArgs, against: &str, config: &Config) -> Result<Vec<String>, String> {
    let next = Inventory::of(config);
    let path = Path::new(against);
    if !ctl::is_address(against) {
        let source = source::load(path).map_err(|refusal| refusal.to_string())?;
        return Ok(Inventory::of(&source.loaded.config).changes_to(&next));
    }
    let unusable = |why: &str| format!("tidegate: the admin interface at {against}: {why}\n");
    let place = Place::at(against, args.token_file.as_deref(), &args.tls)?;
    let reply =
        place.send("show config", IO_TIMEOUT).map_err(|error| unusable(&error.to_string()))?;
    match Inventory::parse(reply.trim_end()) {
        Some(before) if !reply.trim().is_empty() => Ok(before.changes_to(&next)),
        _ => Err(unusable(
            reply.lines().next().unwrap_or("the process closed the connection without a reply"),
        )),
    }
}

/// What happens to the request of the command line; the error is a string to print.
fn explain(args: &CheckArgs, request: &str, source: &Source) -> Result<Explanation, String> {
    let question = ExplainedRequest {
        request,
        fields: &args.header,
        client: args.client,
        listener: args.listener.as_deref(),
    };
    explain::explain(&source.loaded.config, &question)
}

/// Routes are numbered from 1, as in the text.
fn as_json(found: &Explanation) -> Value {
    let earlier = found.earlier.iter();
    let earlier = earlier.map(|(route, why)| json!({ "route": route + 1, "reason": why }));
    json!({
        "listener": found.listener,
        "earlier": earlier.collect::<Vec<_>>(),
        "route": found.route.map(|route| route + 1),
        "effects": found.effects().collect::<Vec<_>>(),
        "forwarded": found.forwarded().collect::<Vec<_>>(),
    })
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
                "file": mistake.file,
                "line": mistake.line,
                "column": mistake.column,
                "what": mistake.what,
                "allowed": mistake.allowed,
                "help": mistake.help,
            })
        })
        .collect()
}
