//! A server under load: already running, or started for the run.
//! In: a URL, and optionally a command line. Out: a listening server, and its process if it was started.
//! Never: starts a server on a port that another process uses.

use crate::machine;
use crate::process::{self, PortState, Running};
use crate::target::Url;
use core::sync::atomic::AtomicBool;
use std::process::Command;
use tidegate_base::Address;

/// One server under load. If it was started, dropping this value stops it.
#[derive(Debug)]
pub(super) struct Candidate {
    name: String,
    /// The started process; `None` if the server was already running.
    running: Option<Running>,
}

impl Candidate {
    /// Finds the server of `url`, or starts it with `command` on `cpus` (empty: any). Setting `stop` ends the
    /// wait for the server.
    ///
    /// # Errors
    /// A message for the operator.
    pub(super) fn new(
        name: &str,
        url: &Url,
        command: Option<&str>,
        cpus: &[usize],
        stop: &AtomicBool,
    ) -> Result<Self, String> {
        let found = Self { name: name.to_owned(), running: None };
        let Address::Tcp(address) = url.resolve()? else {
            return Ok(found);
        };
        let Some(command) = command else {
            // A port that is in use but silent may belong to an overloaded server. The run reports its timeouts.
            if process::probe_port(address) == PortState::Free {
                return Err(format!("{name}: nothing listens on {address}"));
            }
            return Ok(found);
        };
        if process::probe_port(address) != PortState::Free {
            return Err(format!(
                "{name}: {address} is already in use; stop the program that listens there: its share of the \
                 load would be counted as this candidate's"
            ));
        }
        let words = split_words(command)?;
        let [program, arguments @ ..] = &words[..] else {
            return Err(format!("--start for {name} is empty; give the command that starts it"));
        };
        let allowed = machine::allowed_cpus();
        let cpus = if cpus.is_empty() { &allowed[..] } else { cpus };
        let running = Running::start(Command::new(program).args(arguments), cpus)
            .map_err(|error| format!("{name}: {program}: {error}"))?;
        running
            .wait_until_listening(address, stop)
            .map_err(|why| format!("{name}: {command}: {why}"))?;
        Ok(Self { running: Some(running), ..found })
    }

    /// The id of the started process.
    pub(super) fn pid(&self) -> Option<u32> {
        self.running.as_ref().map(Running::pid)
    }

    /// How the started process ended; `None` while it runs.
    pub(super) fn ended(&self) -> Option<String> {
        let ended = self.running.as_ref()?.ended()?;
        Some(format!("{}: the command of --start did not keep running: {ended}", self.name))
    }
}

/// Splits a command line into words: quotes `'` and `"` group characters, a backslash takes the next
/// character literally.
fn split_words(text: &str) -> Result<Vec<String>, String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote = None;
    let mut chars = text.chars();
    while let Some(char) = chars.next() {
        match (quote, char) {
            (Some(open), char) if char == open => quote = None,
            (None, '\'' | '"') => {
                quote = Some(char);
                word.get_or_insert_default();
            }
            (None | Some('"'), '\\') => word.get_or_insert_default().extend(chars.next()),
            (None, char) if char.is_whitespace() => words.extend(word.take()),
            (_, char) => word.get_or_insert_default().push(char),
        }
    }
    if let Some(open) = quote {
        return Err(format!("--start {text}: the quote {open} is not closed"));
    }
    words.extend(word);
    Ok(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_line_is_split_as_in_a_shell() {
        let words = split_words(r#"nginx -c '/a b/c.conf' -g "daemon \"off\";" x\ y """#).unwrap();
        assert_eq!(words, ["nginx", "-c", "/a b/c.conf", "-g", "daemon \"off\";", "x y", ""]);
        assert!(split_words("a 'b").unwrap_err().contains("not closed"));
    }

    #[test]
    fn port_in_use_is_rejected() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let url = Url::parse(&format!("http://{}/", listener.local_addr().unwrap())).unwrap();
        let stop = AtomicBool::new(false);
        let error = Candidate::new("a", &url, Some("true"), &[], &stop).unwrap_err();
        assert!(error.contains("is already in use"), "{error}");
        assert!(Candidate::new("a", &url, None, &[], &stop).is_ok());
    }
}
