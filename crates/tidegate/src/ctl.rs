//! `tidegate ctl`: sends a command to the admin interface of a running process, and prints its reply.
//! In: a command, the address of the interface or the file that configures it. Out: exit code 0; 1 if the command failed
//! or no process listens; 2 if the address is invalid.

mod certificate;
mod profile;
mod top;

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Subcommand};
use tidegate_config::model::Bind;
use tidegate_server::files;

use crate::source;
use crate::{DONE, FAILED, USAGE, print_message};

/// The default address of the interface.
const ADDRESS: &str = "127.0.0.1:9901";
/// Bytes of the file of the token.
const TOKEN_BYTES_MAX: u64 = 4096;
/// How long a read or write may take.
const IO_TIMEOUT: Duration = Duration::from_secs(30);

/// Arguments of `tidegate ctl`.
#[derive(Args, Debug)]
#[command(
    disable_help_subcommand = true,
    after_help = "`tidegate ctl help` lists the commands of the process."
)]
pub struct CtlArgs {
    /// Address of the admin interface: IP:PORT or unix:PATH [default: 127.0.0.1:9901]
    #[arg(long, value_name = "ADDRESS", conflicts_with = "config", global = true)]
    at: Option<String>,
    /// File with the token of the interface
    #[arg(long, value_name = "FILE", global = true)]
    token_file: Option<PathBuf>,
    /// The configuration file of the process: its `[admin]` states the address and the token
    #[arg(short, long, value_name = "FILE", global = true)]
    config: Option<PathBuf>,
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
    let (bind, token_file) = match place(args) {
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
    match order(&bind, token_file.as_deref(), &command, IO_TIMEOUT) {
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

/// Sends one command. Returns its reply; the error is a text to print.
fn order(
    bind: &str,
    token_file: Option<&Path>,
    command: &str,
    timeout: Duration,
) -> Result<String, String> {
    let reply = send_with_timeout(bind, token_file, command, timeout).map_err(|error| {
        format!(
            "tidegate: the admin interface at {bind} cannot be used: {error}; help: check [admin] and --at\n"
        )
    })?;
    match reply.strip_prefix("error: ") {
        // The findings of a reload have prefixes of their own.
        Some(why) if why.starts_with("error: ") || why.starts_with("tidegate: ") => {
            Err(format!("{}\n", why.trim_end()))
        }
        Some(why) => Err(format!("tidegate: {}\n", why.trim_end())),
        // Every reply ends with a line feed, even an empty one.
        None if reply.is_empty() => Err(format!(
            "tidegate: the admin interface at {bind} closed the connection without a reply, so the command was probably not \
             executed; help: check the command with `tidegate ctl help`\n"
        )),
        None => Ok(reply),
    }
}

/// The address of the interface, and the file of its token; the error is a text to print.
fn place(args: &CtlArgs) -> Result<(String, Option<PathBuf>), String> {
    let Some(path) = &args.config else {
        let at = args.at.clone().unwrap_or_else(|| ADDRESS.to_owned());
        if !is_address(&at) {
            let at = at.escape_debug();
            return Err(format!(
                "tidegate: --at {at} is not an address; allowed: IP:PORT or unix:PATH\n"
            ));
        }
        return Ok((at, args.token_file.clone()));
    };
    let source = source::load(path).map_err(|refusal| refusal.to_string())?;
    let Some(admin) = &source.loaded.config.admin else {
        return Err(format!(
            "tidegate: {} has no [admin]; help: add [admin] with bind = \"127.0.0.1:9901\", or use --at\n",
            path.display()
        ));
    };
    let at = match &admin.bind {
        Bind::Tcp(address) => address.to_string(),
        Bind::Unix(path) => format!("unix:{path}"),
    };
    let token = args.token_file.clone().or_else(|| admin.token_file.clone().map(PathBuf::from));
    Ok((at, token))
}

fn is_address(at: &str) -> bool {
    at.starts_with("unix:") || at.parse::<SocketAddr>().is_ok()
}

/// Sends one line, and returns all that the interface sends until it closes the connection.
pub fn send(at: &str, token_file: Option<&Path>, command: &str) -> io::Result<String> {
    send_with_timeout(at, token_file, command, IO_TIMEOUT)
}

/// As `send`; the reply may take as long as `timeout`.
fn send_with_timeout(
    at: &str,
    token_file: Option<&Path>,
    command: &str,
    timeout: Duration,
) -> io::Result<String> {
    let mut line = String::new();
    if let Some(path) = token_file {
        let token = files::read(path, TOKEN_BYTES_MAX)?;
        line = format!("auth {}; ", String::from_utf8_lossy(&token).trim());
    }
    line.push_str(command);
    line.push('\n');
    match at.strip_prefix("unix:") {
        Some(path) => {
            let stream = UnixStream::connect(path)?;
            stream.set_read_timeout(Some(timeout))?;
            exchange(stream, &line)
        }
        None => {
            let address: SocketAddr = at
                .parse()
                .map_err(|_| io::Error::other("not an address; allowed: IP:PORT or unix:PATH"))?;
            let stream = TcpStream::connect_timeout(&address, IO_TIMEOUT)?;
            stream.set_read_timeout(Some(timeout))?;
            exchange(stream, &line)
        }
    }
}

fn exchange(mut stream: impl Read + Write, line: &str) -> io::Result<String> {
    stream.write_all(line.as_bytes())?;
    let mut reply = Vec::new();
    stream.read_to_end(&mut reply)?;
    Ok(String::from_utf8_lossy(&reply).into_owned())
}
