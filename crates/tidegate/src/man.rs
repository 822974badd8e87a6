//! `tidegate man [COMMAND]`: the manual page of the program or of a subcommand, as roff for man(1).
//! In: the words of a subcommand, or a folder. Out: a page on stdout, or all pages as files in the folder; exit code 1 if a
//! file cannot be written, 2 if there is no such subcommand.
//! Invariant: equal programs give equal pages: a page contains no date.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Command, CommandFactory as _};
use clap_mangen::Man;

use crate::{CommandLine, DONE, FAILED, USAGE, print_message, print_result};

/// The text after the options on the page of the program.
const PROGRAM_SECTIONS: &str = r#".SH EXIT STATUS
.TP
0
success
.TP
1
the run failed, or found failures
.TP
2
the command line or the configuration is invalid
.SH SIGNALS
A process of tidegate\-run(1) handles these signals:
.TP
SIGTERM, SIGINT
stop: serve what is in flight for up to shutdown\-grace; a second signal stops at once
.TP
SIGHUP
read the configuration file again; a file with errors changes nothing
.TP
SIGUSR1
open the files of the access log again, after logrotate(8) has renamed them
.TP
SIGUSR2
start the program again with the same listening sockets, and stop when the new process serves
.SH EXAMPLES
.TP
.B tidegate run
serve an embedded configuration on 127.0.0.1:8080
.TP
.B tidegate check tidegate.toml
report all mistakes of a configuration file
.TP
.B tidegate run tidegate.toml
serve a configuration file
.TP
.B tidegate ctl show stat
state and figures of listeners, pools and servers, as HAProxy prints them
.SH SEE ALSO
haproxy(1), nginx(8), systemd.service(5)
"#;

/// Arguments of `tidegate man`.
#[derive(Args, Debug)]
pub struct ManArgs {
    /// The subcommand, such as: ctl, or: bench http; without it, the page of the program
    #[arg(value_name = "COMMAND")]
    command: Vec<String>,
    /// Write the pages of the program and of all subcommands to this folder
    #[arg(long, value_name = "FOLDER", conflicts_with = "command")]
    to: Option<PathBuf>,
}

/// Prints a page, or writes all.
pub fn run(args: &ManArgs) -> ExitCode {
    let mut program = CommandLine::command().disable_help_subcommand(true);
    program.build();
    if let Some(folder) = &args.to {
        return match write_all(folder, &program) {
            Ok(()) => ExitCode::from(DONE),
            Err(error) => {
                print_message(&format!("tidegate: {}: {error}\n", folder.display()));
                ExitCode::from(FAILED)
            }
        };
    }
    let mut found = &program;
    for word in &args.command {
        let Some(next) = subcommands(found).find(|next| next.get_name() == word) else {
            let names: Vec<_> = subcommands(found).map(Command::get_name).collect();
            let allowed = match names.is_empty() {
                true => "no further word".to_owned(),
                false => names.join(", "),
            };
            let word = word.escape_debug();
            print_message(&format!("tidegate: no subcommand {word}; allowed: {allowed}\n"));
            return ExitCode::from(USAGE);
        };
        found = next;
    }
    match page(found) {
        Ok(page) => print_result(&page),
        Err(error) => {
            print_message(&format!("tidegate: {error}\n"));
            ExitCode::from(FAILED)
        }
    }
}

/// The subcommands that have a page.
fn subcommands(command: &Command) -> impl Iterator<Item = &Command> {
    command.get_subcommands().filter(|command| !command.is_hide_set())
}

/// Writes the page of `command`, and those of its subcommands, to files in `folder`.
fn write_all(folder: &Path, command: &Command) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    fs::write(folder.join(format!("{}.1", name(command))), page(command)?)?;
    subcommands(command).try_for_each(|command| write_all(folder, command))
}

/// The name of the page, such as tidegate-bench-http.
fn name(command: &Command) -> &str {
    command.get_display_name().unwrap_or_else(|| command.get_name())
}

/// The page of one command.
fn page(command: &Command) -> io::Result<String> {
    let is_program = !name(command).contains('-');
    let title = name(command).to_uppercase();
    let man = Man::new(command.clone()).title(title).section("1").manual("Tidegate");
    let mut roff = Vec::new();
    man.render_title(&mut roff)?;
    man.render_name_section(&mut roff)?;
    man.render_synopsis_section(&mut roff)?;
    if command.get_about().is_some() || command.get_long_about().is_some() {
        man.render_description_section(&mut roff)?;
    }
    if command.get_arguments().any(|argument| !argument.is_hide_set()) {
        man.render_options_section(&mut roff)?;
    }
    if subcommands(command).next().is_some() {
        man.render_subcommands_section(&mut roff)?;
    }
    if command.get_after_help().is_some() || command.get_after_long_help().is_some() {
        man.render_extra_section(&mut roff)?;
    }
    match is_program {
        true => roff.extend_from_slice(PROGRAM_SECTIONS.as_bytes()),
        false => {
            let program = name(command).split('-').next().unwrap_or_default();
            roff.extend_from_slice(format!(".SH SEE ALSO\n{program}(1)\n").as_bytes());
        }
    }
    Ok(String::from_utf8_lossy(&roff).into_owned())
}
