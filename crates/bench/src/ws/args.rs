//! The arguments of `tidegate bench ws`, and the plan that they describe.
//! In: text. Out: an `EchoPlan`, or an error with the correct form.
//! Never: resolves contradicting arguments silently.

use super::message::{FRAGMENTS_MAX, Message, SIZE_MAX};
use super::{EchoPlan, EchoTarget, Pace};
use crate::fleet;
use crate::handshake::parse_url;
use crate::plan::{CONNECTIONS_MAX, PIPELINE_MAX, Plan, THREADS_MAX};
use crate::quantity::{Sources, parse_duration, parse_rate, parse_sources};
use crate::tls::TlsOptions;
use core::time::Duration;
use std::path::PathBuf;
use tidegate_base::Address;
use tidegate_wire::websocket::Kind;

/// Arguments of `tidegate bench ws`.
#[derive(clap::Args, Debug)]
pub struct EchoArgs {
    /// The URL of an echo server: ws://HOST[:PORT]/PATH or wss://...; with several, connections take them in turn
    #[arg(value_name = "URL", required = true)]
    urls: Vec<String>,
    /// Number of connections
    #[arg(short, long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=i64::from(CONNECTIONS_MAX)))]
    connections: u32,
    /// Number of client threads, each with its own descriptor limit [default: as many as that limit requires]
    #[arg(short, long, value_parser = clap::value_parser!(u16).range(1..=i64::from(THREADS_MAX)))]
    threads: Option<u16>,
    /// Local addresses that connections use in turn: ADDR or ADDR-ADDR, comma-separated [default on loopback: as
    /// many of 127.0.0.0/8 as the ports require]
    #[arg(long, alias = "sources", value_name = "ADDR[,ADDR..]", value_parser = parse_sources)]
    source: Option<Sources>,
    /// How long to send messages
    #[arg(short, long, value_parser = parse_duration, default_value = "10s")]
    duration: Duration,
    /// Exclude this first part of the run from the figures
    #[arg(long, value_parser = parse_duration, default_value = "0s")]
    warm_up: Duration,
    /// Open loop: messages per second over all connections, without waiting for echoes, e.g. 20000/s [default: closed loop]
    #[arg(short = 'R', long, value_parser = parse_rate)]
    rate: Option<f64>,
    /// Messages that wait for their echo on each connection; in an open loop, the maximum
    #[arg(short, long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=i64::from(PIPELINE_MAX)))]
    outstanding: u16,
    /// Bytes of each message
    #[arg(long, value_name = "BYTES", default_value_t = 20)]
    size: usize,
    /// Send text messages (the default)
    #[arg(long, conflicts_with = "binary")]
    text: bool,
    /// Send binary messages
    #[arg(long)]
    binary: bool,
    /// Frames of each message; none of them is empty
    #[arg(long, value_name = "N", default_value_t = 1)]
    fragments: usize,
    /// Offer permessage-deflate, and compress messages if the server agrees
    #[arg(long, conflicts_with = "fragments")]
    compress: bool,
    /// Trust the CA certificates in this file (PEM) instead of the system's, with wss://
    #[arg(long, value_name = "FILE")]
    ca: Option<PathBuf>,
    /// Accept any certificate for any name: the connection is encrypted but the server is not verified
    #[arg(short = 'k', long, visible_alias = "insecure")]
    accept_any_certificate: bool,
    /// Server name to request and to verify [default: the URL's host]
    #[arg(long = "sni", value_name = "NAME")]
    server_name: Option<String>,
    /// Time limit for establishing a connection, and for an echo
    #[arg(short = 'w', long, value_parser = parse_duration, default_value = "10s")]
    timeout: Duration,
    /// Additional header field of the handshake, 'name: value'; may be repeated
    #[arg(short = 'H', long, value_name = "FIELD")]
    pub(super) header: Vec<String>,
    /// Report the CPU time and memory of this process and its children; may be repeated
    #[arg(long = "server-pid", value_name = "PID")]
    pub(super) server_pids: Vec<u32>,
    /// CPUs to which the client's threads are pinned in turn, comma-separated
    #[arg(long, value_delimiter = ',', value_name = "N")]
    pub(super) client_cpus: Vec<usize>,
    /// Print the report as JSON
    #[arg(long)]
    pub(super) json: bool,
}

impl EchoArgs {
    /// The plan of the load.
    ///
    /// # Errors
    /// A message about an argument.
    pub(super) fn plan(&self) -> Result<EchoPlan, String> {
        let targets: Vec<EchoTarget> =
            self.urls.iter().map(|url| target(url)).collect::<Result<_, _>>()?;
        let address =
            targets.first().ok_or("give the URL of an echo server: ws://HOST[:PORT]/PATH")?.address;
        if self.size > SIZE_MAX {
            return Err(format!("--size {}: too large; allowed: 0 to {SIZE_MAX}", self.size));
        }
        let most = self.size.clamp(1, FRAGMENTS_MAX);
        if !(1..=most).contains(&self.fragments) {
            return Err(format!(
                "--fragments {}: a message of {} bytes has 1 to {most} fragments",
                self.fragments, self.size
            ));
        }
        if self.duration.is_zero() {
            return Err("--duration 0 would send nothing; give a longer time".to_owned());
        }
        let threads = fleet::threads(self.connections, self.threads)?;
        let sources = fleet::sources(self.connections, self.source.as_ref(), address)?;
        let kind = if self.binary { Kind::Binary } else { Kind::Text };
        Ok(EchoPlan {
            connections: Plan {
                connections: self.connections,
                threads,
                sources,
                ..Plan::default()
            },
            threads,
            targets,
            compresses: self.compress,
            tls: TlsOptions::of_verification(
                self.ca.clone(),
                self.accept_any_certificate,
                self.server_name.clone(),
            ),
            message: Message::new(kind, self.size, self.fragments),
            fragments: self.fragments,
            outstanding: self.outstanding,
            pace: self.rate.map_or(Pace::Closed, Pace::Rate),
            warm_up: self.warm_up,
            duration: self.duration,
            timeout: self.timeout,
        })
    }
}

/// Parses a URL and resolves its address.
fn target(text: &str) -> Result<EchoTarget, String> {
    let url = parse_url(text)?;
    match url.resolve()? {
        Address::Tcp(address) => Ok(EchoTarget { url, address }),
        Address::Unix(_) => Err(format!("{text}: only TCP is supported")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: EchoArgs,
    }

    fn plan(arguments: &[&str]) -> Result<EchoPlan, String> {
        let line = Line::try_parse_from([&["bench", "ws://127.0.0.1:1/echo"], arguments].concat());
        line.map_err(|error| error.to_string())?.args.plan()
    }

    #[test]
    fn contradicting_arguments_are_refused() {
        for (arguments, is_allowed) in [
            (&[][..], true),
            (&["--size", "0"], true),
            (&["--size", "16777216", "--binary", "--fragments", "1000"], true),
            (&["--size", "16777217"], false),
            (&["--text", "--binary"], false),
            (&["--fragments", "0"], false),
            (&["--size", "5", "--fragments", "5"], true),
            (&["--size", "5", "--fragments", "6"], false),
            (&["--size", "0", "--fragments", "2"], false),
            (&["--outstanding", "0"], false),
            (&["--duration", "0"], false),
            (&["-c", "200000", "--source", "127.0.0.1"], false),
            (&["wss://127.0.0.1:2/echo", "--compress", "-k"], true),
            (&["--compress", "--fragments", "2"], false),
            (&["http://127.0.0.1:2/echo", "unix:/tmp/x"], false),
        ] {
            assert_eq!(plan(arguments).is_ok(), is_allowed, "{arguments:?}");
        }
    }
}
