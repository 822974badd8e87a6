//! The arguments of `tidegate bench push`, and the plan that they describe.
//! In: text. Out: a `PushPlan`, or an error with the correct form.
//! Never: resolves contradicting arguments silently.

use super::payload::{NUMBER_MAX, Payload, SIZE_MIN, TAGS};
use super::{ClientProtocol, Pace, PushPlan, TalkPlan};
use crate::fleet;
use crate::handshake::parse_url;
use crate::plan::{CONNECTIONS_MAX, Plan, THREADS_MAX};
use crate::quantity::{Sources, parse_duration, parse_rate, parse_share, parse_sources};
use crate::target::Url;
use crate::tls::TlsOptions;
use core::time::Duration;
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};
use tidegate_base::Address;

/// Most publications of a run, because their times are kept.
const PUBLICATIONS_MAX: f64 = 10_000_000.0;

/// Largest message of a subscriber that talks.
const TALK_BYTES_MAX: usize = 4096;

/// Arguments of `tidegate bench push`.
#[derive(clap::Args, Debug)]
pub struct PushArgs {
    /// The URL to which subscribers connect: ws://HOST[:PORT]/PATH; `{}` in it stands for the number of the channel
    #[arg(value_name = "URL")]
    url: String,
    /// Number of subscribers, each with its own connection
    #[arg(short, long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=i64::from(CONNECTIONS_MAX)))]
    connections: u32,
    /// Number of client threads, each with its own descriptor limit [default: as many as that limit requires]
    #[arg(short, long, value_parser = clap::value_parser!(u16).range(1..=i64::from(THREADS_MAX)))]
    threads: Option<u16>,
    /// Local addresses that connections use in turn: ADDR or ADDR-ADDR, comma-separated [default on loopback: as
    /// many of 127.0.0.0/8 as the ports require]
    #[arg(long, alias = "sources", value_name = "ADDR[,ADDR..]", value_parser = parse_sources)]
    source: Option<Sources>,
    /// Connections to begin per second [default: as fast as the server accepts them]
    #[arg(long, value_name = "RATE", value_parser = parse_rate)]
    setup_rate: Option<f64>,
    /// Open no more connections once the host has less memory available than this many MiB
    #[arg(long, value_name = "MIB", default_value_t = 0)]
    memory_min: u64,
    /// Time limit for establishing a connection, and for missing messages after the last publication
    #[arg(short = 'w', long, value_parser = parse_duration, default_value = "10s")]
    timeout: Duration,
    /// Wait between the last connection and the first publication
    #[arg(long, value_parser = parse_duration, default_value = "1s")]
    settle: Duration,
    /// Number of publications, each after the receipt of the one before [default: 10, without --rate]
    #[arg(short = 'n', long, value_name = "N", conflicts_with = "rate", value_parser = clap::value_parser!(u32).range(0..=1_000_000))]
    broadcasts: Option<u32>,
    /// Pause between the receipt of a publication and the next publication
    #[arg(long, value_parser = parse_duration, default_value = "1s", conflicts_with = "rate")]
    pause: Duration,
    /// Publish at this rate over all channels, without waiting for receipts, instead of --broadcasts: 10/s
    #[arg(short = 'R', long, value_parser = parse_rate)]
    rate: Option<f64>,
    /// How long to publish at --rate
    #[arg(short, long, value_parser = parse_duration, default_value = "10s", requires = "rate")]
    duration: Duration,
    /// Bytes of each message: 13, or 15 and more
    #[arg(long, value_name = "BYTES", default_value_t = SIZE_MIN)]
    size: usize,
    /// Share of the subscribers that send messages themselves while publications are sent: 5%
    #[arg(long, value_name = "SHARE", value_parser = parse_share, conflicts_with = "plain")]
    talkers: Option<f64>,
    /// Interval at which each talker sends a message
    #[arg(long, value_name = "TIME", value_parser = parse_duration, default_value = "1s", requires = "talkers")]
    talk_every: Duration,
    /// Bytes of each message of a talker
    #[arg(long, value_name = "BYTES", default_value_t = 20, requires = "talkers")]
    talk_size: usize,
    /// Number of channels; subscribers and publications take them in turn
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=i64::from(CONNECTIONS_MAX)))]
    channels: u32,
    /// The channel in the server API; `{}` stands for its number [default: the URL after /subscribe/]
    #[arg(long, value_name = "NAME")]
    channel: Option<String>,
    /// Where publications are sent [default: api/publish instead of subscribe/CHANNEL in the URL]
    #[arg(long, value_name = "URL")]
    publish_url: Option<String>,
    /// Key of the server API, in X-API-Key
    #[arg(long, value_name = "KEY")]
    api_key: Option<String>,
    /// Send the message alone as the body of a publication, as nchan expects, instead of JSON for the server API;
    /// `{}` in --publish-url stands for the number of the channel
    #[arg(long, requires = "publish_url")]
    publish_body: bool,
    /// Additional header field of the subscribers' requests, 'name: value'; may be repeated
    #[arg(short = 'H', long, value_name = "FIELD")]
    pub(super) header: Vec<String>,
    /// Speak Centrifugo's client protocol (JSON): the URL is that of connection/websocket, and --channel names the channel
    #[arg(long, requires = "channel", conflicts_with_all = ["plain", "talkers"])]
    client_protocol: bool,
    /// Token of the subscribers, with --client-protocol
    #[arg(long, value_name = "JWT", requires = "client_protocol")]
    token: Option<String>,
    /// Trust the CA certificates in this file (PEM) instead of the system's, with wss://
    #[arg(long, value_name = "FILE")]
    ca: Option<PathBuf>,
    /// Accept any certificate for any name: the connection is encrypted but the server is not verified
    #[arg(short = 'k', long, visible_alias = "insecure")]
    accept_any_certificate: bool,
    /// Server name to request and to verify [default: the URL's host]
    #[arg(long = "sni", value_name = "NAME")]
    server_name: Option<String>,
    /// Connections without a handshake, for `bench floor --push`
    #[arg(long)]
    plain: bool,
    /// Report the CPU time and memory of this process and its children; may be repeated
    #[arg(long = "server-pid", value_name = "PID")]
    pub(super) server_pids: Vec<u32>,
    /// CPUs to which the client's threads are pinned in turn, comma-separated
    #[arg(long, value_delimiter = ',', value_name = "N")]
    pub(super) client_cpus: Vec<usize>,
    /// Print a line of counts each second
    #[arg(short = 'l', long, conflicts_with = "json")]
    pub(super) lines: bool,
    /// Print the report as JSON
    #[arg(long)]
    pub(super) json: bool,
}

impl PushArgs {
    /// The plan of the load.
    ///
    /// # Errors
    /// A message about an argument.
    pub(super) fn plan(&self) -> Result<PushPlan, String> {
        let url = parse_url(&self.url)?;
        if self.plain && url.is_secure {
            return Err("--plain needs ws://".to_owned());
        }
        let Address::Tcp(address) = url.resolve()? else {
            return Err(format!("{}: only TCP is supported", self.url));
        };
        let has_place = match &self.channel {
            Some(channel) if self.client_protocol => channel.contains("{}"),
            Some(_) | None => url.target.contains("{}"),
        };
        if self.channels > 1 && !has_place {
            return Err(
                "--channels needs a URL (with --client-protocol: a channel) that contains {} in place of the number"
                    .to_owned()
            );
        }
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let tag = (since_epoch.as_millis() % u128::from(TAGS)) as u16;
        let pace = match (self.rate, self.broadcasts) {
            (Some(per_second), _) => Pace::Rate { per_second, duration: self.duration },
            (None, count) => Pace::Broadcasts { count: count.unwrap_or(10), pause: self.pause },
        };
        let publications = match pace {
            Pace::Rate { per_second, duration } => per_second * duration.as_secs_f64(),
            Pace::Broadcasts { count, .. } => f64::from(count),
        };
        if publications > PUBLICATIONS_MAX {
            return Err(format!(
                "{publications:.0} publications are too many; allowed: {PUBLICATIONS_MAX:.0}"
            ));
        }
        let threads = fleet::threads(self.connections, self.threads)?;
        let connections = Plan {
            connections: self.connections,
            threads,
            sources: fleet::sources(self.connections, self.source.as_ref(), address)?,
            ..Plan::default()
        };
        let (publish_url, channel) = self.publishing(&url)?;
        if self.talk_size > TALK_BYTES_MAX || self.talk_every.is_zero() {
            return Err(format!(
                "--talk-size is at most {TALK_BYTES_MAX} bytes, and --talk-every more than 0"
            ));
        }
        let talk = self.talkers.map(|share| TalkPlan {
            share,
            every: self.talk_every,
            bytes: self.talk_size,
        });
        Ok(PushPlan {
            connections,
            threads,
            channels: self.channels,
            target: url.target.clone(),
            url,
            address,
            publish_url,
            channel,
            api_key: self.api_key.clone(),
            publishes_body: self.publish_body,
            setup_rate: self.setup_rate,
            memory_min: self.memory_min << 20,
            timeout: self.timeout,
            settle: self.settle,
            pace,
            publications: (publications.ceil() as u32).min(NUMBER_MAX),
            payload: Payload::new(self.size, tag)?,
            talk,
            tls: TlsOptions::of_verification(
                self.ca.clone(),
                self.accept_any_certificate,
                self.server_name.clone(),
            ),
            client_protocol: self
                .client_protocol
                .then(|| ClientProtocol { token: self.token.clone().unwrap_or_default() }),
            is_plain: self.plain,
        })
    }

    /// The URL for publications, and the name of their channel.
    fn publishing(&self, url: &Url) -> Result<(Url, String), String> {
        let path = url.target.split('?').next().unwrap_or(&url.target);
        let parts = match self.client_protocol {
            true => path.split_once("/connection/"),
            false => path.split_once("/subscribe/"),
        };
        let publish_url = match (&self.publish_url, parts) {
            (Some(text), _) => parse_url(text)?,
            (None, Some((before, _))) => {
                Url { target: format!("{before}/api/publish"), ..url.clone() }
            }
            (None, None) => {
                return Err(format!(
                    "{} does not contain /subscribe/; give --publish-url and --channel",
                    self.url
                ));
            }
        };
        let channel = match (&self.channel, parts) {
            (Some(channel), _) => channel.clone(),
            (None, Some((_, channel))) => decode_percent(channel),
            (None, None) if self.publish_body => String::new(),
            (None, None) => {
                return Err("give the channel of publications with --channel".to_owned());
            }
        };
        Ok((publish_url, channel))
    }
}

/// Text without percent-encoding (RFC 3986 section 2.1). Incomplete triplets stay.
fn decode_percent(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, after)) = rest.split_first() {
        let digits = after.get(..2).and_then(|digits| core::str::from_utf8(digits).ok());
        let byte = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok());
        match byte.filter(|_| first == b'%') {
            Some(byte) => {
                bytes.push(byte);
                rest = &after[2..];
            }
            None => {
                bytes.push(first);
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: PushArgs,
    }

    fn plan(arguments: &[&str]) -> Result<PushPlan, String> {
        let line = Line::try_parse_from([&["bench"], arguments].concat());
        line.map_err(|error| error.to_string())?.args.plan()
    }

    #[test]
    fn publish_url_and_channel_come_from_the_subscribers_url() {
        let plan = plan(&["ws://127.0.0.1:1/push/subscribe/a%3Ab%20c?x=1"]).unwrap();
        assert_eq!(plan.publish_url.target, "/push/api/publish");
        assert_eq!((plan.channel.as_str(), plan.publications), ("a:b c", 10));
        assert_eq!(plan.pace, Pace::Broadcasts { count: 10, pause: Duration::from_secs(1) });
    }

    #[test]
    fn contradicting_arguments_are_refused() {
        const URL: &str = "ws://127.0.0.1:1/subscribe/a";
        for arguments in [
            &["ws://127.0.0.1:1/x"][..],
            &["wss://127.0.0.1:1/subscribe/a", "--plain"],
            &["ws://127.0.0.1:1/connection/websocket", "--client-protocol"],
            &[URL, "--token", "x"],
            &[
                "ws://127.0.0.1:1/connection/x",
                "--client-protocol",
                "--channel",
                "a",
                "--channels",
                "2",
            ],
            &[URL, "--channels", "2"],
            &[URL, "--rate", "1/s", "--broadcasts", "2"],
            &[URL, "--rate", "1M/s", "--duration", "1h"],
            &[URL, "--size", "14"],
            &[URL, "--talkers", "101%"],
            &[URL, "--talkers", "0"],
            &[URL, "--talk-every", "1s"],
            &[URL, "--talkers", "5%", "--talk-every", "0"],
            &[URL, "--talkers", "5%", "--plain"],
            &[URL, "--connections", "200000", "--source", "127.0.0.1"],
            &[URL, "--connections", "4000000", "--threads", "1"],
        ] {
            assert!(plan(arguments).is_err(), "{arguments:?}");
        }
    }

    #[test]
    fn loopback_addresses_multiply_the_ports() {
        let plan = plan(&["ws://127.0.0.1:1/subscribe/a", "-c", "45000", "-t", "60"]).unwrap();
        let sources: Vec<String> =
            plan.connections.sources.iter().map(ToString::to_string).collect();
        // A source has up to 64,512 ports, and the kernel's default is 28,232.
        assert!((2..=4).contains(&sources.len()), "{sources:?}");
        assert_eq!(sources[..2], ["127.0.0.1", "127.0.0.2"]);
        assert_eq!(plan.threads, 60);
    }
}
