//! A server that is loaded: found running, or started for the time of the run.
//! In: a URL, and perhaps a command line. Out: an address that answers, and whose process it is.
//! Never: a start beside a stranger on the same port.

use crate::machine;
use crate::process::{self, Door, Running};
use crate::target::Url;
use core::sync::atomic::AtomicBool;
use std::process::Command;
use tidegate_base::Address;

/// One server; a started one is stopped when this goes.
#[derive(Debug)]
pub(super) struct Candidate {
    name: String,
    running: Option<Running>,
}

impl Candidate {
    /// Finds the server of `url`, or starts it by `command` on `cpus` (empty: any). Where `stop` is set
    /// meanwhile, nothing is waited for any more.
    ///
    /// # Errors
    /// A sentence for the operator.
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
            // A silent one may be overloaded: the run tells of connects that take too long.
            if process::knock(address) == Door::Free {
                return Err(format!("{name}: nothing listens on {address}"));
            }
            return Ok(found);
        };
        if process::knock(address) != Door::Free {
            return Err(format!(
                "{name}: {address} is taken already; stop what listens there, or its share of the load \
                 would be counted as this candidate's"
            ));
        }
        let words = split_words(command)?;
        let [program, arguments @ ..] = &words[..] else {
            return Err(format!("--start for {name} is empty"));
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

    /// The process that was started.
    pub(super) fn pid(&self) -> Option<u32> {
        self.running.as_ref().map(Running::pid)
    }

    /// How the process that was started ended, if it did.
    pub(super) fn ended(&self) -> Option<String> {
        let ended = self.running.as_ref()?.ended()?;
        Some(format!("{}: what --start started did not stay: {ended}", self.name))
    }
}

/// A command line's words: quotes `'` and `"` hold words together, a backslash takes the next
/// character as it is.
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
    fn a_command_line_is_split_as_a_shell_would() {
        let words = split_words(r#"nginx -c '/a b/c.conf' -g "daemon \"off\";" x\ y """#).unwrap();
        assert_eq!(words, ["nginx", "-c", "/a b/c.conf", "-g", "daemon \"off\";", "x y", ""]);
        assert!(split_words("a 'b").unwrap_err().contains("not closed"));
    }

    #[test]
    fn a_taken_port_is_refused() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let url = Url::parse(&format!("http://{}/", listener.local_addr().unwrap())).unwrap();
        let stop = AtomicBool::new(false);
        let error = Candidate::new("a", &url, Some("true"), &[], &stop).unwrap_err();
        assert!(error.contains("is taken already"), "{error}");
        assert!(Candidate::new("a", &url, None, &[], &stop).is_ok());
    }
}
