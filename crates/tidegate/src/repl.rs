//! `tidegate lua repl APP`: runs lines of Lua in an application of a running process.
//! In: lines, by default of the terminal. Out: the values of each line; exit code 1 if a line of a file or pipe has failed or
//! there is no process, 2 if the address is invalid.
//! Never: runs Lua itself.

use std::io::{self, BufRead, IsTerminal};
use std::process::ExitCode;

use crate::ctl::{IO_TIMEOUT, PlaceArgs};
use crate::{DONE, FAILED, USAGE, print_message, print_result};

/// Reads lines until the end of the input, and runs each one.
pub fn run(app: &str, worker: u32, args: &PlaceArgs) -> ExitCode {
    let place = match args.place() {
        Ok(place) => place,
        Err(text) => {
            print_message(&text);
            return ExitCode::from(USAGE);
        }
    };
    let is_terminal = io::stdin().is_terminal();
    let mut code = DONE;
    let mut input = io::stdin().lock();
    loop {
        if is_terminal {
            let _ = print_result("> ");
        }
        let mut line = String::new();
        match input.read_line(&mut line) {
            Ok(0) | Err(_) => return ExitCode::from(code),
            Ok(_) if line.trim().is_empty() => continue,
            Ok(_) => {}
        }
        let command = format!("lua eval {app} worker {worker} {}", encoded(line.trim_end()));
        match place.order(&command, IO_TIMEOUT) {
            Ok(reply) => {
                // The line is flushed; a reader that has left is no failure.
                let _ = print_result(&format!("{}\n", reply.trim_matches('\n')));
            }
            Err(text) => {
                print_message(&text);
                code = if is_terminal { DONE } else { FAILED };
            }
        }
    }
}

/// Code as one word of a command: everything but letters, digits and harmless marks is percent-encoded.
fn encoded(code: &str) -> String {
    let mut out = String::new();
    for byte in code.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' => out.push(char::from(byte)),
            b'(' | b')' | b'.' | b',' | b'_' | b'=' | b':' | b'+' | b'-' | b'*' | b'/' => {
                out.push(char::from(byte));
            }
            byte => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_is_one_word() {
        assert_eq!(encoded("return 1; x{'é'}"), "return%201%3B%20x%7B%27%C3%A9%27%7D");
    }
}
