//! `tidegate ctl top`: a live view of a running process, for a terminal of 80 columns.
//! In: two reports each of `show info`, `show stat`, `show pools` and `show threads`. Out: rates between the two: of the process,
//! its workers, its pools and servers. Without a terminal, plain lines; exit code 1 if the process cannot be reached.
//! Limits: a terminal gets as many servers as it has lines, those with the most requests first.

use std::collections::BTreeMap;
use std::io::{self, IsTerminal as _, Write as _};
use std::process::{Command, ExitCode, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;
use serde_json::{Map, Value};

use super::{CtlArgs, IO_TIMEOUT, Place, place};
use crate::{DONE, FAILED, USAGE, print_message};

/// Columns of a line.
const WIDTH: usize = 80;
/// Lines of a terminal whose size is unknown.
const HEIGHT: usize = 24;
/// Columns of the name of a pool or server.
const NAME_WIDTH: usize = 30;

/// Arguments of `tidegate ctl top`.
#[derive(Args, Debug)]
#[command(after_help = "\
Rates cover the time since the previous view. ERR/S counts responses with 5xx and failed connections, AVG is the mean time of
recent requests in milliseconds. Ctrl-C ends it.")]
pub(super) struct TopArgs {
    /// Seconds between two views
    #[arg(long, value_name = "SECONDS", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=3600))]
    every: u64,
    /// End after this many views [default: never on a terminal, otherwise 1]
    #[arg(short = 'n', long, value_name = "NUMBER", value_parser = clap::value_parser!(u64).range(1..))]
    rounds: Option<u64>,
}

/// Shows the views.
pub(super) fn run(args: &TopArgs, ctl: &CtlArgs) -> ExitCode {
    let place = match place(ctl) {
        Ok(place) => place,
        Err(text) => {
            print_message(&text);
            return ExitCode::from(USAGE);
        }
    };
    let is_terminal = io::stdout().is_terminal();
    let rounds = args.rounds.or(if is_terminal { None } else { Some(1) });
    match show_rounds(&place, (args.every, rounds), is_terminal) {
        Ok(()) => ExitCode::from(DONE),
        Err(text) => {
            print_message(&text);
            ExitCode::from(FAILED)
        }
    }
}

fn show_rounds(
    place: &Place,
    (every, rounds): (u64, Option<u64>),
    is_terminal: bool,
) -> Result<(), String> {
    let mut before = Sample::take(place)?;
    let mut round = 0;
    while rounds.is_none_or(|rounds| round < rounds) {
        thread::sleep(Duration::from_secs(every));
        let after = Sample::take(place)?;
        let mut lines = view(&before, &after);
        let mut text = String::new();
        if is_terminal {
            lines.truncate(height().saturating_sub(1));
            // To the top; each line is cleared to its end, and then the rest of the terminal.
            text.push_str("\x1b[H");
            lines.iter().for_each(|line| text.push_str(&format!("{line}\x1b[K\n")));
            text.push_str("\x1b[J");
        } else {
            lines.iter().for_each(|line| text.push_str(&format!("{line}\n")));
        }
        let mut stdout = io::stdout().lock();
        if stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()).is_err() {
            return Ok(());
        }
        (before, round) = (after, round + 1);
    }
    Ok(())
}

/// The lines of the terminal.
fn height() -> usize {
    let size = Command::new("stty").arg("size").stdin(Stdio::inherit()).output();
    let text = size.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    let lines = text.ok().and_then(|text| text.split(' ').next()?.parse().ok());
    lines.filter(|lines| *lines > 1).unwrap_or(HEIGHT)
}

/// The report of a process at one time.
struct Sample {
    at: Instant,
    info: Map<String, Value>,
    /// The rows of `show stat`.
    stat: Vec<Map<String, Value>>,
    /// The requests that wait for a server, by pool.
    queued: BTreeMap<String, u64>,
    workers: Vec<Vec<u64>>,
}

impl Sample {
    /// Asks the process.
    fn take(place: &Place) -> Result<Self, String> {
        let ask = |command: &str| place.order(command, IO_TIMEOUT);
        Self::parse(
            &ask("show info json")?,
            &ask("show stat json")?,
            &ask("show pools json")?,
            &ask("show threads")?,
        )
        .ok_or_else(|| {
            format!(
                "tidegate: the process at {} sent a report that this version cannot read; help: use its version of tidegate\n",
                place.at
            )
        })
    }

    fn parse(info: &str, stat: &str, pools: &str, threads: &str) -> Option<Self> {
        let pools: Vec<Map<String, Value>> = serde_json::from_str(pools).ok()?;
        let queued = pools.iter().filter_map(|row| {
            Some((row.get("pool")?.as_str()?.to_owned(), number(row, "pool_queued")))
        });
        // A reply ends with an empty line.
        let workers = threads.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
        let numbers =
            |line: &str| line.split(' ').map(|word| word.parse().unwrap_or_default()).collect();
        Some(Self {
            at: Instant::now(),
            info: serde_json::from_str(info).ok()?,
            stat: serde_json::from_str(stat).ok()?,
            queued: queued.collect(),
            workers: workers.map(numbers).collect(),
        })
    }

    fn counter(&self, name: &str) -> u64 {
        self.info.get("counters").and_then(Value::as_object).map_or(0, |all| number(all, name))
    }

    /// The row of a server, or of a whole pool or listener.
    fn row(&self, proxy: &str, server: &str) -> Option<&Map<String, Value>> {
        self.stat.iter().find(|row| text(row, "pxname") == proxy && text(row, "svname") == server)
    }
}

/// The lines of a view.
fn view(before: &Sample, after: &Sample) -> Vec<String> {
    let seconds = after.at.saturating_duration_since(before.at).as_secs_f64().max(0.001);
    let mut lines = process_lines(before, after, seconds);
    lines.push(String::new());
    lines.push(
        "WORKER   CPU%  KERNEL%     REQ/S   ACCEPT/S   CLIENTS   SERVERS   EXCHANGES".to_owned(),
    );
    for (at, worker) in after.workers.iter().enumerate() {
        // Columns of `show threads`: worker thread user_ms kernel_ms turns accepted requests downstream_now upstream_now
        // exchanges_now.
        let now = |column: usize| worker.get(column).copied().unwrap_or_default();
        let earlier = before.workers.get(at);
        let rate = |column: usize| {
            let earlier = earlier.and_then(|of| of.get(column)).copied().unwrap_or_default();
            now(column).saturating_sub(earlier) as f64 / seconds
        };
        lines.push(format!(
            "{:<6}{:>7.1}{:>9.1}{:>10}{:>11}{:>10}{:>10}{:>12}",
            now(0),
            (rate(2) + rate(3)) / 10.0,
            rate(3) / 10.0,
            short(rate(6)),
            short(rate(5)),
            now(7),
            now(8),
            now(9),
        ));
    }
    lines.push(String::new());
    lines.push(format!(
        "{:<NAME_WIDTH$} {:<8}{:>8}{:>8}{:>8}{:>8}{:>8}",
        "POOL, SERVER", "STATE", "REQ/S", "ERR/S", "NOW", "QUEUE", "AVG"
    ));
    lines.extend(pool_lines(before, after, seconds));
    lines.into_iter().map(|line| line.chars().take(WIDTH).collect()).collect()
}

fn process_lines(before: &Sample, after: &Sample, seconds: f64) -> Vec<String> {
    let rate =
        |name: &str| after.counter(name).saturating_sub(before.counter(name)) as f64 / seconds;
    let (info, sum) = (&after.info, |column: &str| {
        let of = |sample: &Sample| -> u64 {
            let listeners = sample.stat.iter().filter(|row| text(row, "svname") == "FRONTEND");
            listeners.map(|row| number(row, column)).sum()
        };
        of(after).saturating_sub(of(before)) as f64 / seconds
    });
    let stopping = if number(info, "Stopping") > 0 { "  STOPPING" } else { "" };
    vec![
        format!(
            "tidegate {}  pid {}  up {}  workers {}{stopping}",
            text(info, "Version"),
            number(info, "Pid"),
            text(info, "Uptime"),
            number(info, "Nbthread"),
        ),
        format!(
            "requests/s {}  2xx {}  3xx {}  4xx {}  5xx {}  retries {}  bugs {}",
            short(rate("requests")),
            short(rate("answers_2xx")),
            short(rate("answers_3xx")),
            short(rate("answers_4xx")),
            short(rate("answers_5xx")),
            short(rate("retries")),
            after.counter("bugs"),
        ),
        format!(
            "clients {}  new/s {}  TLS handshakes/s {}  bytes/s in {}  out {}",
            number(info, "CurrConns"),
            short(rate("accepted")),
            short(rate("tls_handshakes")),
            short(sum("bin")),
            short(sum("bout")),
        ),
    ]
}

/// Each pool, and its servers, those with the most requests first.
fn pool_lines(before: &Sample, after: &Sample, seconds: f64) -> Vec<String> {
    let mut lines = Vec::new();
    for pool in after.stat.iter().filter(|row| text(row, "svname") == "BACKEND") {
        let name = text(pool, "pxname");
        let queued = after.queued.get(name).copied().unwrap_or_default();
        lines.push(row_line(before, pool, (name, &queued.to_string()), seconds));
        let is_server = |row: &&Map<String, Value>| {
            text(row, "pxname") == name && !matches!(text(row, "svname"), "BACKEND" | "FRONTEND")
        };
        let mut servers: Vec<_> = after.stat.iter().filter(is_server).collect();
        servers.sort_by_key(|row| {
            let earlier = before.row(name, text(row, "svname"));
            let earlier = earlier.map_or(0, |row| number(row, "stot"));
            core::cmp::Reverse(number(row, "stot").saturating_sub(earlier))
        });
        for server in servers {
            let shown = format!("  {}", text(server, "svname"));
            lines.push(row_line(before, server, (&shown, ""), seconds));
        }
    }
    lines
}

fn row_line(
    before: &Sample,
    row: &Map<String, Value>,
    (name, queued): (&str, &str),
    seconds: f64,
) -> String {
    let earlier = before.row(text(row, "pxname"), text(row, "svname"));
    let rate = |columns: &[&str]| {
        let sum = |row: &Map<String, Value>| columns.iter().map(|at| number(row, at)).sum::<u64>();
        sum(row).saturating_sub(earlier.map_or(0, sum)) as f64 / seconds
    };
    let name: String = match name.chars().count() {
        0..=NAME_WIDTH => name.to_owned(),
        count => {
            // The end tells servers apart.
            let end = name.chars().skip(count - NAME_WIDTH + 2);
            core::iter::once('~').chain(core::iter::once(' ')).chain(end).collect()
        }
    };
    let state: String = text(row, "status").chars().take(8).collect();
    format!(
        "{name:<NAME_WIDTH$} {state:<8}{:>8}{:>8}{:>8}{queued:>8}{:>8}",
        short(rate(&["stot"])),
        short(rate(&["hrsp_5xx", "econ"])),
        number(row, "scur"),
        number(row, "ttime"),
    )
}

fn number(row: &Map<String, Value>, name: &str) -> u64 {
    row.get(name).and_then(Value::as_u64).unwrap_or_default()
}

fn text<'r>(row: &'r Map<String, Value>, name: &str) -> &'r str {
    row.get(name).and_then(Value::as_str).unwrap_or_default()
}

/// A number in up to six characters.
fn short(value: f64) -> String {
    match value {
        ..9.95 if value.fract() > 0.0 => format!("{value:.1}"),
        ..99_999.5 => format!("{value:.0}"),
        ..99_999_500.0 => format!("{:.0}k", value / 1e3),
        ..99_999_500_000.0 => format!("{:.0}M", value / 1e6),
        _ => format!("{:.0}G", value / 1e9),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(requests: u64, of_server: u64, at: Instant) -> Sample {
        let info = format!(
            "{{\"Version\":\"1.2.3\",\"Pid\":7,\"Uptime\":\"0d 1h\",\"Nbthread\":1,\"CurrConns\":5,\"Stopping\":0,\
             \"counters\":{{\"requests\":{requests},\"answers_5xx\":{}}}}}",
            requests / 10
        );
        let long = "a.very.long.name.of.a.server.example:8000";
        let stat = format!(
            "[{{\"pxname\":\"web\",\"svname\":\"FRONTEND\",\"bin\":{requests},\"bout\":0}},\
              {{\"pxname\":\"app\",\"svname\":\"{long}\",\"stot\":1,\"status\":\"DOWN\"}},\
              {{\"pxname\":\"app\",\"svname\":\"10.0.0.1:8000\",\"stot\":{of_server},\"scur\":3,\"ttime\":12,\"status\":\"UP\"}},\
              {{\"pxname\":\"app\",\"svname\":\"BACKEND\",\"stot\":{of_server},\"scur\":3,\"status\":\"UP\"}}]"
        );
        let pools = "[{\"pool\":\"app\",\"pool_queued\":4}]";
        let threads =
            format!("# worker\n0 99 {requests} {} 5 6 {requests} 8 9 10\n\n", requests / 2);
        let sample = Sample::parse(&info, &stat, pools, &threads).expect("it is complete");
        Sample { at, ..sample }
    }

    #[test]
    fn view_states_the_rates_between_two_samples() {
        let start = Instant::now();
        let before = sample(100, 10, start);
        let lines = view(&before, &sample(300, 30, start + Duration::from_secs(2)));
        let expected = [
            "tidegate 1.2.3  pid 7  up 0d 1h  workers 1",
            "requests/s 100  2xx 0  3xx 0  4xx 0  5xx 10  retries 0  bugs 0",
            "clients 5  new/s 0  TLS handshakes/s 0  bytes/s in 100  out 0",
            "",
            "WORKER   CPU%  KERNEL%     REQ/S   ACCEPT/S   CLIENTS   SERVERS   EXCHANGES",
            "0        15.0      5.0       100          0         8         9          10",
            "",
            "POOL, SERVER                   STATE      REQ/S   ERR/S     NOW   QUEUE     AVG",
            "app                            UP            10       0       3       4       0",
            "  10.0.0.1:8000                UP            10       0       3              12",
            "~ ame.of.a.server.example:8000 DOWN           0       0       0               0",
        ];
        assert_eq!(lines, expected);
        assert!(lines.iter().all(|line| line.chars().count() <= WIDTH));
    }

    #[test]
    fn numbers_are_short() {
        for (value, expected) in [
            (0.0, "0"),
            (0.25, "0.2"),
            (12.5, "12"),
            (99_999.0, "99999"),
            (100_000.0, "100k"),
            (2e9, "2000M"),
            (3e12, "3000G"),
        ] {
            assert_eq!(short(value), expected, "{value}");
        }
    }

    #[test]
    fn reports_of_another_form_are_refused() {
        assert!(Sample::parse("{}", "[]", "nonsense", "").is_none());
        assert!(Sample::parse("unknown command", "[]", "[]", "").is_none());
    }
}
