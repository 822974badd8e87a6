//! `tidegate ctl profile`: takes a profile of a running process, and draws it.
//! In: a duration, or a profile that was saved. Out: a flame graph, a table, or a file for other tools; exit code 1 if the
//! profile cannot be taken, 2 if an argument is invalid.
//! Invariant: a flame graph contains its profile, so that it can be compared later.

use std::io::{self, IsTerminal as _, Write as _};
use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use clap::{ArgGroup, Args};
use tidegate_profile::folded::Profile;
use tidegate_profile::{graph, pprof, table};
use tidegate_server::files;

use super::{CtlArgs, IO_TIMEOUT, Place, is_address, place};
use crate::{DONE, FAILED, USAGE, print_message, print_result};

/// Bytes of a saved profile.
const SAVED_BYTES_MAX: u64 = 256 << 20;
/// The longest profile, as the process allows it.
const SPAN_MAX: Duration = Duration::from_secs(300);

/// Arguments of `tidegate ctl profile`.
#[derive(Args, Debug)]
#[command(group = ArgGroup::new("format"), after_help = "\
Examples:
  tidegate ctl profile 10s > flame.svg                      open it in a browser
  tidegate ctl profile 10s --text                           the functions that cost the most
  tidegate ctl profile 10s --against flame.svg > diff.svg   what costs more or less than in flame.svg
  tidegate ctl profile 10s --against 127.0.0.1:9902 --text  two processes at the same time
  tidegate ctl profile 10s --route 'a.example/api/*' --text  only the work for the requests of a route
  tidegate ctl profile --from flame.svg --pprof > cpu.pb    for: go tool pprof cpu.pb
  tidegate ctl profile stop                                 end a running profile early")]
pub(super) struct ProfileArgs {
    /// How long, such as 10s or 2m; or `stop`: end the profile that is being taken
    #[arg(
        value_name = "DURATION",
        default_value = "10s",
        conflicts_with = "from",
        allow_hyphen_values = true
    )]
    duration: String,
    /// Print a table of functions; the default on a terminal
    #[arg(long, group = "format")]
    text: bool,
    /// Print a flame graph as SVG; the default for a file
    #[arg(long, group = "format")]
    svg: bool,
    /// Print folded stacks, which other tools for flame graphs read
    #[arg(long, group = "format", conflicts_with = "against")]
    folded: bool,
    /// Write the format of pprof
    #[arg(long, group = "format", conflicts_with = "against")]
    pprof: bool,
    /// Compare with a saved profile (a flame graph or folded stacks), or with the process whose admin interface has this address
    #[arg(long, value_name = "FILE|ADDRESS")]
    against: Option<String>,
    /// Use a saved profile instead of a new one
    #[arg(long, value_name = "FILE")]
    from: Option<String>,
    /// Sample this worker only
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = clap::value_parser!(u16))]
    worker: Option<u16>,
    /// Sample only what a worker does for requests of this route, by its name as in `show stat` and in logs
    #[arg(long, value_name = "NAME", conflicts_with = "from")]
    route: Option<String>,
    /// Number of samples per second of CPU time of each worker [default: 99]
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = clap::value_parser!(u32).range(1..=999))]
    hertz: Option<u32>,
    /// How to take samples [default: perf, if the system allows it]
    #[arg(long, value_name = "METHOD", value_parser = ["perf", "timers"])]
    by: Option<String>,
}

/// Takes the profile and prints it.
pub(super) fn run(args: &ProfileArgs, ctl: &CtlArgs) -> ExitCode {
    let profiles = match &args.from {
        Some(path) => saved(path).and_then(|profile| {
            let before = args.against.as_deref().map(saved).transpose()?;
            Ok((profile, before))
        }),
        None => {
            let place = match place(ctl) {
                Ok(place) => place,
                Err(text) => {
                    print_message(&text);
                    return ExitCode::from(USAGE);
                }
            };
            if args.duration == "stop" {
                return match place.order("profile stop", IO_TIMEOUT) {
                    Ok(_) => ExitCode::from(DONE),
                    Err(text) => failed(&text),
                };
            }
            let Some(span) = parse_span(&args.duration) else {
                print_message(&format!(
                    "tidegate: {:?} is not a duration of up to 5m, such as 10s, 500ms or 2m\n",
                    args.duration
                ));
                return ExitCode::from(USAGE);
            };
            take_both(args, &place, span)
        }
    };
    match profiles {
        Ok((profile, before)) => print(args, &profile, before.as_ref()),
        Err(text) => failed(&text),
    }
}

fn failed(text: &str) -> ExitCode {
    print_message(text);
    ExitCode::from(FAILED)
}

/// Takes the profile, and at the same time that of the other process, or reads the saved one.
fn take_both(
    args: &ProfileArgs,
    place: &Place,
    span: Duration,
) -> Result<(Profile, Option<Profile>), String> {
    if io::stderr().is_terminal() {
        print_message(&format!("tidegate: profiling for {} ...\n", args.duration));
    }
    let Some(against) = &args.against else {
        return Ok((take(args, place, span)?, None));
    };
    if !is_address(against) {
        // A file that cannot be read is reported at once.
        let before = saved(against)?;
        return Ok((take(args, place, span)?, Some(before)));
    }
    thread::scope(|scope| {
        let other = scope.spawn(|| take(args, &place.with_address(against), span));
        let profile = take(args, place, span);
        let before = other.join().unwrap_or_else(|_| {
            Err("tidegate: the thread that takes the other profile failed\n".to_owned())
        });
        Ok((profile?, Some(before?)))
    })
}

/// Takes the profile of the process at an address.
fn take(args: &ProfileArgs, place: &Place, span: Duration) -> Result<Profile, String> {
    let mut command = format!("profile {} attached", args.duration);
    for (word, value) in [
        ("worker", args.worker.map(|number| number.to_string())),
        ("hertz", args.hertz.map(|number| number.to_string())),
        ("by", args.by.clone()),
        ("route", args.route.clone()),
    ] {
        if let Some(value) = value {
            command.push_str(&format!(" {word} {value}"));
        }
    }
    let reply = place.order(&command, span + 2 * IO_TIMEOUT)?;
    Profile::parse(&reply).map_err(|_| {
        let what = match &args.route {
            None => String::new(),
            Some(route) => format!(" for route {route}"),
        };
        format!("tidegate: the workers of {} used no CPU time{what}; help: profile while there are requests\n", place.at)
    })
}

/// Reads a profile that was saved as a flame graph or as folded stacks.
fn saved(path: &str) -> Result<Profile, String> {
    let fault = |what: &dyn std::fmt::Display| format!("tidegate: {path}: {what}\n");
    let bytes = files::read(path, SAVED_BYTES_MAX).map_err(|error| fault(&error))?;
    let text = String::from_utf8_lossy(&bytes);
    let parsed = match text.trim_start().starts_with("<?xml") {
        true => graph::profile_in(&text),
        false => Profile::parse(&text),
    };
    parsed.map_err(|what| fault(&what))
}

fn print(args: &ProfileArgs, profile: &Profile, before: Option<&Profile>) -> ExitCode {
    let is_text = args.text || (io::stdout().is_terminal() && !args.svg);
    match (args.folded, args.pprof, before) {
        (true, ..) => print_result(&profile.to_string()),
        (_, true, _) => match io::stdout().lock().write_all(&pprof::encode(profile)) {
            Ok(()) => ExitCode::from(DONE),
            Err(error) => failed(&format!("tidegate: cannot write to stdout: {error}\n")),
        },
        (.., Some(before)) if is_text => print_result(&table::comparison(before, profile)),
        (.., None) if is_text => print_result(&table::table(profile)),
        (.., before) => print_result(&graph::svg(profile, before)),
    }
}

/// A duration such as `10s`, `500ms` or `2m`.
fn parse_span(text: &str) -> Option<Duration> {
    let end = text.find(|c: char| !c.is_ascii_digit())?;
    let (number, unit) = text.split_at(end);
    let number: u64 = number.parse().ok()?;
    let millis = match unit {
        "ms" => number,
        "s" => number.checked_mul(1000)?,
        "m" => number.checked_mul(60_000)?,
        _ => return None,
    };
    Some(Duration::from_millis(millis)).filter(|span| *span <= SPAN_MAX)
}
