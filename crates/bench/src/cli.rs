//! The command line of `tidegate bench`: which room a subcommand opens.
//! In: arguments. Out: an exit code: 0 done, 1 the run found failures, 2 usage.
//! Never: measures anything itself.

use crate::compare::{self, CompareArgs};
use crate::floor::{self, Floor, Role};
use crate::http::{self, HttpArgs};
use crate::plan::THREADS_MAX;
use clap::{Args, Subcommand};
use core::net::SocketAddr;
use std::io::{self, Write as _};
use std::process::ExitCode;

/// Arguments of `tidegate bench`.
#[derive(Args, Debug)]
pub struct BenchArgs {
    #[command(subcommand)]
    command: BenchCommand,
}

#[derive(Subcommand, Debug)]
enum BenchCommand {
    /// Load an HTTP server; figures that can be believed
    Http(Box<HttpArgs>),
    /// What this machine's kernel allows: receive and send, nothing else
    Floor(FloorArgs),
    /// Paired rounds against the floor and against the peers that are installed
    Compare(CompareArgs),
}

/// Arguments of `tidegate bench floor`.
#[derive(Args, Debug)]
pub struct FloorArgs {
    /// Serve at this address until a signal comes (port 0: any free one, which is printed); without it
    /// the floor is measured here and now
    #[arg(long, value_name = "IP:PORT")]
    listen: Option<SocketAddr>,
    /// Print the measurement as JSON lines
    #[arg(long, conflicts_with = "listen")]
    json: bool,
    /// Pass bytes on to this origin instead of answering
    #[arg(long, value_name = "IP:PORT", requires = "listen")]
    proxy: Option<SocketAddr>,
    /// Threads; the descriptor limit holds for each of them
    #[arg(long, value_name = "N", requires = "listen", default_value_t = 1,
        value_parser = clap::value_parser!(u16).range(1..=i64::from(THREADS_MAX)))]
    threads: u16,
    /// Run on this CPU only
    #[arg(long, value_name = "N", requires = "listen")]
    cpu: Option<usize>,
    /// Answer with the 13-byte plain text of the pipelining case
    #[arg(long, requires = "listen", conflicts_with_all = ["proxy", "body_bytes"])]
    plaintext: bool,
    /// Answer with a body of this many bytes
    #[arg(long, value_name = "N", requires = "listen", conflicts_with = "proxy")]
    body_bytes: Option<usize>,
}

/// Runs `tidegate bench` and says how it went.
#[must_use]
pub fn run(args: BenchArgs) -> ExitCode {
    match args.command {
        BenchCommand::Http(args) => http::run(&args),
        BenchCommand::Floor(args) => run_floor(&args),
        BenchCommand::Compare(args) => compare::run(&args),
    }
}

/// Tells the operator on stderr why nothing ran.
fn usage_error(message: &str) -> ExitCode {
    eprintln!("tidegate bench: {message}");
    ExitCode::from(2)
}

fn run_floor(args: &FloorArgs) -> ExitCode {
    let Some(listen) = args.listen else {
        return compare::measure_floor(args.json);
    };
    if let Some(cpu) = args.cpu
        && let Err(error) = crate::machine::pin(&[cpu])
    {
        return usage_error(&format!(
            "--cpu {cpu}: {error}; allowed here: {:?}",
            crate::machine::allowed_cpus()
        ));
    }
    // A limit that cannot be raised holds for each thread: connections above it wait in the backlog.
    let _ = crate::machine::raise_descriptor_limit();
    let role = match (args.proxy, args.body_bytes) {
        (Some(origin), _) => Role::Proxy(origin),
        (None, Some(bytes)) => Role::Answer {
            content_type: "application/octet-stream".to_owned(),
            body: vec![b'x'; bytes],
        },
        (None, None) if args.plaintext => Role::Answer {
            content_type: "text/plain".to_owned(),
            body: floor::PLAINTEXT_BODY.into(),
        },
        (None, None) => Role::Answer {
            content_type: "application/json".to_owned(),
            body: floor::JSON_BODY.into(),
        },
    };
    let floor = match Floor::listen(listen, role) {
        Ok(floor) => floor,
        Err(error) => return usage_error(&format!("--listen {listen}: {error}")),
    };
    let mut stdout = io::stdout();
    // Nobody may be reading; the server serves all the same.
    let _ = writeln!(stdout, "listening on {}", floor.address()).and_then(|()| stdout.flush());
    let served = if args.threads == 1 { floor.serve() } else { floor.serve_on(args.threads) };
    match served {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("tidegate bench floor: {error}");
            ExitCode::FAILURE
        }
    }
}
