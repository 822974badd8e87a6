//! The commands that replace certificates, as HAProxy's `set ssl cert` and `commit ssl cert` do.
//! In: words, and the lines of PEM after `set tls cert`. Out: an edit for the thread that reloads; its result, or an error.
//! Never: shows a private key, or replaces a certificate before `commit tls cert`. An edit lasts until the file is read again.

use std::collections::BTreeSet;

use tidegate_config::live_edit::{certificates_of, find_certificate};

use super::Operations;
use super::command::Outcome;
use super::command::Reply::{self, Changed, Shown};
use super::pending::Pending;

const SET_USAGE: &str = "usage: set tls cert NAME <<, then lines of PEM (the certificate, the intermediate certificates, the \
    key), then an empty line; with tidegate ctl: set tls cert NAME FILE [FILE...]";

/// Whether lines of PEM follow the command.
pub(super) fn has_lines(words: &[&str]) -> bool {
    words.starts_with(&["set", "tls", "cert"]) && words.last() == Some(&"<<")
}

/// Lists the certificates that wait for `commit`, with an asterisk, and all certificates in files, as HAProxy does.
pub(super) fn show(arguments: &[&str], operations: &Operations) -> Outcome {
    if !arguments.is_empty() {
        return Err("usage: show tls cert; help: show tls lists names and expiry".to_owned());
    }
    let mut text = String::new();
    let waiting = operations.staged.paths();
    if !waiting.is_empty() {
        text.push_str("# transaction\n");
        waiting.iter().for_each(|path| text.push_str(&format!("*{path}\n")));
        text.push('\n');
    }
    text.push_str("# filename\n");
    let config = operations.config();
    let paths: BTreeSet<&String> = certificates_of(&config).map(|one| &one.cert).collect();
    paths.iter().for_each(|path| text.push_str(&format!("{path}\n")));
    Ok(Shown(text))
}

/// Returns the usage of the command: its lines of PEM are missing.
pub(super) fn set_without_lines(_: &[&str], _: &Operations) -> Outcome {
    Err(SET_USAGE.to_owned())
}

/// Keeps a certificate and its key for `commit`.
pub(super) fn set(words: &[&str], pem: &str, operations: &Operations) -> Outcome {
    let ["set", "tls", "cert", name, _] = words else { return Err(SET_USAGE.to_owned()) };
    let path = find_certificate(&operations.config(), name)?;
    let (summary, replaced) = operations.staged.stage(&path, pem)?;
    let what = if replaced { "updated" } else { "created" };
    Ok(Changed(format!(
        "Transaction {what} for certificate {path}!\n# {summary}; help: commit tls cert {path}\n"
    )))
}

/// From now on, uses the staged certificate.
pub(super) fn commit(arguments: &[&str], operations: &Operations) -> Outcome {
    let [name] = arguments else { return Err("usage: commit tls cert NAME".to_owned()) };
    let path = waiting(name, operations)?;
    let Some(given) = operations.staged.get(&path) else { return Err(none_waits(name)) };
    Ok(Reply::Pending(Pending::Certificate(path, given)))
}

/// Drops the certificate that waits.
pub(super) fn abort(arguments: &[&str], operations: &Operations) -> Outcome {
    let [name] = arguments else { return Err("usage: abort tls cert NAME".to_owned()) };
    let path = waiting(name, operations)?;
    let given = operations.staged.get(&path);
    match given.is_some_and(|given| operations.staged.remove(&path, &given)) {
        true => Ok(Changed(format!("Transaction aborted for certificate '{path}'!\n"))),
        false => Err(none_waits(name)),
    }
}

/// The path of the certificate, even if the configuration no longer names it.
fn waiting(name: &str, operations: &Operations) -> Result<String, String> {
    match operations.staged.get(name) {
        Some(_) => Ok(name.to_owned()),
        None => find_certificate(&operations.config(), name),
    }
}

fn none_waits(name: &str) -> String {
    format!("no new certificate waits for {name:?}; help: set tls cert")
}
