//! `tidegate ctl`: sends a command to the admin interface of a running process, and prints its reply.
//! In: a command, the address of the interface or the file that configures it. Out: exit code 0; 1 if the command failed
//! or no process listens; 2 if the address is invalid.

mod certificate;
mod place;
mod profile;
mod top;

use std::io::{self, Write};
use std::process::ExitCode;

use clap::{Args, Subcommand};

pub use self::place::{IO_TIMEOUT, Place, PlaceArgs, TlsArgs, is_address};
use crate::{DONE, FAILED, USAGE, print_message};

/// Arguments of `tidegate ctl`.
#[derive(Args, Debug)]
#[command(
    disable_help_subcommand = true,
    after_help = "`tidegate ctl help` lists the commands of the process."
)]
pub struct CtlArgs {
    #[command(flatten)]
    place: PlaceArgs,
    /// The command, such as: show stat; `help` lists all
    #[command(subcommand)]
    command: CtlCommand,
}

#[derive(Subcommand, Debug)]
enum CtlCommand {
    /// Profile the process: a flame graph of what its workers execute, as SVG on stdout
    Profile(profile::ProfileArgs),
    /// Show the rates of the process, its workers, pools and servers, refreshed every second
    Top(top::TopArgs),
    #[command(external_subcommand)]
    Line(Vec<String>),
}

/// Sends the command, and prints its reply or the error.
pub fn run(args: &CtlArgs) -> ExitCode {
    let words = match &args.command {
        CtlCommand::Profile(profile) => return profile::run(profile, args),
        CtlCommand::Top(top) => return top::run(top, args),
        CtlCommand::Line(words) => words,
    };
    let place = match place(args) {
        Ok(place) => place,
        Err(text) => {
            print_message(&text);
            return ExitCode::from(USAGE);
        }
    };
    let (words, lines) = match certificate::with_lines(&words.join(" ")) {
        Ok(Some((command, lines))) => (vec![command], lines),
        Ok(None) => (words.clone(), String::new()),
        Err(text) => {
            print_message(&text);
            return ExitCode::from(USAGE);
        }
    };
    if let Some(text) = words.iter().find(|text| !text.bytes().all(is_allowed)) {
        print_message(&format!(
            "tidegate: {text:?} contains a character that a command cannot contain; allowed: visible ASCII characters except \
             the semicolon, and spaces; help: run one command at a time, and change values with other characters in the file\n"
        ));
        return ExitCode::from(USAGE);
    }
    let command = match lines.as_str() {
        "" => words.join(" "),
        lines => format!("{}\n{lines}", words.join(" ")),
    };
    match place.order(&command, IO_TIMEOUT) {
        Ok(reply) => {
            let _ = io::stdout().write_all(reply.trim_end_matches('\n').as_bytes());
            let _ = io::stdout().write_all(if reply.trim().is_empty() { b"" } else { b"\n" });
            ExitCode::from(DONE)
        }
        Err(text) => {
            print_message(&text);
            ExitCode::from(FAILED)
        }
    }
}

/// Whether a command may contain this byte. The interface closes the connection after any other byte, and a semicolon would
/// separate commands.
const fn is_allowed(byte: u8) -> bool {
    matches!(byte, b' '..=b'~') && byte != b';'
}

/// The interface that the command line names; the error is a string to print.
fn place(args: &CtlArgs) -> Result<Place, String> {
    args.place.place()
}
