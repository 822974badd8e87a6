//! `tidegate convert FILE`: translates a configuration of HAProxy or nginx.
//! In: a path, or - for stdin. Out: TOML on stdout, the lines that were not translated on stderr; exit code 0 if all lines were
//! translated, 1 if some were not, 2 if the file cannot be read or is not for HAProxy or nginx.

use std::fmt::Write as _;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, ValueEnum};
use tidegate_convert::{Conversion, INPUT_BYTES_MAX, LineResult, Program, convert};
use tidegate_server::files;

use crate::{FAILED, USAGE, print_message, print_result};

/// Arguments of `tidegate convert`.
#[derive(Args, Debug)]
pub struct ConvertArgs {
    /// The configuration file of the other program; - reads stdin
    file: PathBuf,
    /// The program whose configuration the file is [default: recognized by its content]
    #[arg(long, value_name = "PROGRAM")]
    from: Option<From>,
    /// Also list lines that Tidegate needs no setting for
    #[arg(short, long)]
    verbose: bool,
}

/// The value of `--from`.
#[derive(Clone, Copy, ValueEnum, Debug)]
enum From {
    /// HAProxy's haproxy.cfg
    Haproxy,
    /// nginx's nginx.conf, a file of conf.d, or the output of nginx -T
    Nginx,
}

/// Prints the translation.
pub fn run(args: &ConvertArgs) -> ExitCode {
    let name = match args.file.as_os_str() == "-" {
        true => "stdin".to_owned(),
        false => args.file.display().to_string(),
    };
    let text = match read(&args.file) {
        Ok(text) => text,
        Err(why) => {
            print_message(&format!("tidegate: {name}: {why}\n"));
            return ExitCode::from(USAGE);
        }
    };
    let program = match args.from {
        Some(From::Haproxy) => Some(Program::Haproxy),
        Some(From::Nginx) => Some(Program::Nginx),
        None => Program::of(&text),
    };
    let Some(program) = program else {
        print_message(&format!(
            "tidegate: {name}: not recognized as a configuration of HAProxy or nginx; help: name the program with \
             --from haproxy or --from nginx\n"
        ));
        return ExitCode::from(USAGE);
    };
    let conversion = convert(&text, &name, program);
    let printed = print_result(&conversion.toml);
    print_message(&summary(&conversion, &name, args.verbose));
    match conversion.count(LineResult::Untranslated) == 0 && conversion.is_accepted {
        true => printed,
        false => ExitCode::from(FAILED),
    }
}

/// The text of the file; the error is the reason why it cannot be read.
fn read(path: &Path) -> Result<String, String> {
    let limit = INPUT_BYTES_MAX as u64;
    let bytes = match path.as_os_str() == "-" {
        true => {
            let mut bytes = Vec::new();
            let read = io::stdin().lock().take(limit + 1).read_to_end(&mut bytes);
            read.map(|_| bytes).map_err(|error| error.to_string())?
        }
        false => files::read(path, limit).map_err(|error| error.to_string())?,
    };
    if bytes.len() > INPUT_BYTES_MAX {
        return Err(format!("larger than {} MiB", INPUT_BYTES_MAX >> 20));
    }
    String::from_utf8(bytes).map_err(|_| "not UTF-8".to_owned())
}

/// A line for each finding, and a last line with counts.
fn summary(conversion: &Conversion, name: &str, is_verbose: bool) -> String {
    let mut text = String::new();
    for finding in &conversion.findings {
        if finding.result == LineResult::Unneeded && !is_verbose {
            continue;
        }
        let (line, result, why) = (finding.line, finding.result.words(), &finding.why);
        let _ = match line {
            0 => writeln!(text, "{name}: {result}: {why}"),
            _ => writeln!(text, "{name}:{line}: {result}: {}\n    {why}", finding.text),
        };
    }
    if !conversion.is_accepted {
        let _ = writeln!(
            text,
            "tidegate: {name}: `tidegate check` rejects the result: it has no listener, or too many errors"
        );
    }
    let _ = writeln!(
        text,
        "tidegate: {name}: lines: {} not translated, {} translated with a difference, {} not needed",
        conversion.count(LineResult::Untranslated),
        conversion.count(LineResult::Different),
        conversion.count(LineResult::Unneeded)
    );
    text
}
