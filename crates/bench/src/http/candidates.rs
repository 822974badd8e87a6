//! A server that is loaded: found running, or started for the time of the run.
//! In: a URL, and perhaps a command line. Out: an address that answers, and whose process it is.
//! Never: a start beside a stranger on the same port.

use crate::machine;
use crate::process::{self, Door, Running};
use crate::target::Url;
use std::os::unix::process::CommandExt as _;
use std::process::Command;
use tidegate_base::Address;

/// One server; a started one is stopped when this goes.
#[derive(Debug)]
pub(super) struct Candidate {
    running: Option<Running>,
}

impl Candidate {
    /// Finds the server of `url`, or starts it by `command` on `cpus` (empty: any).
    ///
    /// # Errors
    /// A sentence for the operator.
    pub(super) fn new(
        name: &str,
        url: &Url,
        command: Option<&str>,
        cpus: &[usize],
    ) -> Result<Self, String> {
        let Address::Tcp(address) = url.resolve()? else {
            return Ok(Self { running: None });
        };
        let Some(command) = command else {
            // A silent one may be overloaded: the run tells of connects that take too long.
            if process::knock(address) == Door::Free {
                return Err(format!("{name}: nothing listens on {address}"));
            }
            return Ok(Self { running: None });
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
        // A group of its own: Ctrl-C ends the run first, and the run ends the candidate.
        let mut running =
            Running::start(Command::new(program).args(arguments).process_group(0), cpus)
                .map_err(|error| format!("{name}: {program}: {error}"))?;
        running.wait_until_listening(address).map_err(|why| format!("{name}: {command}: {why}"))?;
        Ok(Self { running: Some(running) })
    }

    /// The process that was started.
    pub(super) fn pid(&self) -> Option<u32> {
        self.running.as_ref().map(Running::pid)
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
        let error = Candidate::new("a", &url, Some("true"), &[]).unwrap_err();
        assert!(error.contains("is taken already"), "{error}");
        assert!(Candidate::new("a", &url, None, &[]).is_ok());
    }
}
