//! The command line of `tidegate bench`: runs the module of each subcommand.
//! In: arguments. Out: an exit code: 0 success, 1 the run found failures, 2 the run could not start.
//! Never: measures anything itself.

use crate::compare::{self, CompareArgs};
use crate::floor::{self, Floor, Role};
use crate::http::{self, HttpArgs};
use crate::plan::THREADS_MAX;
use crate::push::{self, PushArgs};
use crate::ws::{self, EchoArgs};
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
    /// Load an HTTP server and report throughput, latency and CPU time per request
    Http(Box<HttpArgs>),
    /// Load a push server: many WebSocket subscribers, and publications through its API
    Push(Box<PushArgs>),
    /// Load a WebSocket echo server: messages per second, latency and CPU time per message
    Ws(Box<EchoArgs>),
    /// Measure the floor: the minimum CPU time of a request on this kernel, with receive and send alone
    Floor(FloorArgs),
    /// Compare Tidegate with the floor and the installed servers (nginx, HAProxy) in paired rounds
    Compare(CompareArgs),
}

/// Arguments of `tidegate bench floor`.
#[derive(Args, Debug)]
pub struct FloorArgs {
    /// Serve at this address until a signal arrives (port 0: any free port, which is printed); without
    /// this option the floor is measured on this machine
    #[arg(long, value_name = "IP:PORT")]
    listen: Option<SocketAddr>,
    /// Print the measurement as JSON lines
    #[arg(long, conflicts_with = "listen")]
    json: bool,
    /// Forward all bytes to this origin instead of responding
    #[arg(long, value_name = "IP:PORT", requires = "listen")]
    proxy: Option<SocketAddr>,
    /// Number of threads; the descriptor limit applies to each thread
    #[arg(long, value_name = "N", requires = "listen", default_value_t = 1,
        value_parser = clap::value_parser!(u16).range(1..=i64::from(THREADS_MAX)))]
    threads: u16,
    /// Run on this CPU only
    #[arg(long, value_name = "N", requires = "listen")]
    cpu: Option<usize>,
    /// Respond with the 13-byte plain text of the pipelining case
    #[arg(long, requires = "listen", conflicts_with_all = ["proxy", "body_bytes"])]
    plaintext: bool,
    /// Send each publication of `bench push --plain` to all connections: the floor of a push server
    #[arg(long, requires = "listen", conflicts_with_all = ["proxy", "body_bytes", "plaintext"])]
    push: bool,
    /// Respond with a body of this many bytes
    #[arg(long, value_name = "N", requires = "listen", conflicts_with = "proxy")]
    body_bytes: Option<usize>,
}

/// Runs `tidegate bench` and returns its exit code.
#[must_use]
pub fn run(args: BenchArgs) -> ExitCode {
    match args.command {
        BenchCommand::Http(args) => http::run(&args),
        BenchCommand::Push(args) => push::run(&args),
        BenchCommand::Ws(args) => ws::run(&args),
        BenchCommand::Floor(args) => run_floor(&args),
        BenchCommand::Compare(args) => compare::run(&args),
    }
}

/// Prints on stderr why the command could not run.
fn usage_error(message: &str) -> ExitCode {
    eprintln!("tidegate: {message}");
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
            "--cpu {cpu}: {error}; CPUs that this process may use: {:?}",
            crate::machine::allowed_cpus()
        ));
    }
    // If this fails, the current limit applies to each thread, and further connections wait in the backlog.
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
    // The server also runs if stdout is closed.
    let _ = writeln!(stdout, "listening on {}", floor.address()).and_then(|()| stdout.flush());
    let served = match args.threads {
        threads if args.push => floor.serve_push(threads),
        1 => floor.serve(),
        threads => floor.serve_on(threads),
    };
    match served {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("tidegate: bench floor: {error}");
            ExitCode::FAILURE
        }
    }
}
