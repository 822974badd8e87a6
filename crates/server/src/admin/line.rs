//! The line protocol of the admin interface, as scripts for HAProxy's Runtime API use it.
//! In: lines of commands, separated by `;`. Out: for each command its text and an empty line. After a line the
//! connection closes, unless `prompt` began a session.

use std::io::{self, Write};

use super::command::{self, Reply};
use super::{Caller, Input, Operations, Stream};

/// Serves the line `first` and, in a session, the lines after it.
pub(super) fn serve(
    mut stream: &Stream,
    first: String,
    mut input: Input,
    caller: &Caller,
    operations: &Operations,
) -> io::Result<()> {
    let mut session = Session { has_prompt: false, is_known: caller.token.is_none() };
    let mut next = Some(first);
    while let Some(line) = next {
        let mut output = String::new();
        let mut quits = false;
        for text in line.split(';').map(str::trim).filter(|text| !text.is_empty()) {
            match session.run(text, caller, operations) {
                Some(reply) => output.push_str(&reply),
                None => quits = true,
            }
        }
        let goes_on = session.has_prompt && !quits;
        if goes_on {
            output.push_str("\n> ");
        }
        stream.write_all(output.as_bytes())?;
        if !goes_on {
            return Ok(());
        }
        next = input.read_line(&mut stream)?;
    }
    Ok(())
}

/// The state of a connection.
struct Session {
    /// The client wants a prompt, and to send more lines.
    has_prompt: bool,
    /// The client has presented the token, or needs none.
    is_known: bool,
}

impl Session {
    /// Runs a command. Returns its text, or `None` to close the connection.
    fn run(&mut self, text: &str, caller: &Caller, operations: &Operations) -> Option<String> {
        let words: Vec<&str> = text.split_ascii_whitespace().collect();
        match words.as_slice() {
            ["quit" | "exit"] => return None,
            ["prompt"] => {
                self.has_prompt = !self.has_prompt;
                return Some(String::new());
            }
            ["auth", token] => {
                self.is_known = caller.accepts(token);
                return Some(if self.is_known { String::new() } else { denied() });
            }
            _ if !self.is_known => return Some(denied()),
            _ => {}
        }
        Some(match command::run(&words, operations) {
            Ok(Reply::Shown(text)) => text + "\n",
            Ok(Reply::Changed(text)) => {
                super::audit(caller, &words.join(" "));
                text + "\n"
            }
            Err(why) => format!("error: {why}\n\n"),
        })
    }
}

fn denied() -> String {
    "error: present the token first: auth TOKEN\n\n".to_owned()
}
