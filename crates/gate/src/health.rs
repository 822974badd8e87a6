//! Whether a server is up, by the results of its checks, and when it is checked next.
//! In: the result of each check, random numbers. Out: changes of the state; the time until the next check.
//! Never: connects, reads the clock. `balance` decides how a result affects requests.
//! Invariant: `score` is below `rise` while the server is down, and from `rise` to `rise + fall - 1` while it is up.

use core::fmt;

use tidegate_base::Span;
use tidegate_config::model::HealthCheck;
use tidegate_wire::tls;

/// The first checks of servers are spread over this time, or over `every` if that is shorter.
const FIRST_SPREAD: Span = Span::from_secs(2);
/// The part of the interval by which a check may be earlier.
const JITTER_PARTS: u64 = 10;

/// Whether a server may get requests, as an operator or its agent sets it.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum ServerState {
    /// It takes requests.
    #[default]
    Ready,
    /// It takes no new requests.
    Drain,
    /// It takes no new requests, because it is being worked on.
    Maintenance,
}

impl ServerState {
    /// The words of commands and agents.
    pub const WORDS: [(&'static str, Self); 3] =
        [("ready", Self::Ready), ("drain", Self::Drain), ("maint", Self::Maintenance)];
}

/// The state of a server by its checks. Its counting is HAProxy's: one result against the state counts, one that agrees
/// with it begins the count again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Health {
    /// 0: down for sure; `rise + fall - 1`: up for sure.
    score: u32,
    /// Successes in a row until the server is up.
    rise: u32,
    /// Failures in a row until the server is down.
    fall: u32,
}

impl Health {
    /// The state before the first check: up, but the first failure takes the server down.
    #[must_use]
    pub fn new(check: &HealthCheck) -> Self {
        let (rise, fall) = (check.rise.max(1), check.fall.max(1));
        Self { score: rise, rise, fall }
    }

    /// Uses other settings. A server that is up stays up, and one that is down stays down.
    pub fn change(&mut self, check: &HealthCheck) {
        let (rise, fall) = (check.rise.max(1), check.fall.max(1));
        if (rise, fall) != (self.rise, self.fall) {
            let score = if self.is_up() { rise + fall - 1 } else { 0 };
            *self = Self { score, rise, fall };
        }
    }

    /// The state of a server that was not checked yet, with the same settings.
    #[must_use]
    pub const fn unchecked(self) -> Self {
        Self { score: self.rise, ..self }
    }

    /// Continues with the counts of an earlier process: its score, `rise` and `fall`. With other settings, only whether the
    /// server is up counts.
    pub fn resume(&mut self, (score, rise, fall): (u32, u32, u32)) {
        let most = self.rise + self.fall - 1;
        self.score = match (rise, fall) == (self.rise, self.fall) {
            true => score.min(most),
            false if score >= rise => most,
            false => 0,
        };
    }

    /// Takes the result of a check. Returns whether the server went up or down with it.
    pub fn note(&mut self, passed: bool) -> bool {
        let was_up = self.is_up();
        let most = self.rise + self.fall - 1;
        self.score = match (passed, was_up) {
            (true, true) => most,
            (true, false) if self.score + 1 == self.rise => most,
            (true, false) => self.score + 1,
            (false, true) if self.score > self.rise => self.score - 1,
            (false, _) => 0,
        };
        was_up != self.is_up()
    }

    /// Whether the server is up.
    #[must_use]
    pub fn is_up(&self) -> bool {
        self.score >= self.rise
    }

    /// Whether the last results agree with the state.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        self.score == 0 || self.score == self.rise + self.fall - 1
    }

    /// The state as HAProxy shows it: "UP", "UP 2/3" after a failure, "DOWN", "DOWN 1/2" after a success.
    #[must_use]
    pub fn word(&self) -> String {
        match (self.is_up(), self.is_settled()) {
            (true, true) => "UP".to_owned(),
            (true, false) => format!("UP {}/{}", self.score - self.rise + 1, self.fall),
            (false, true) => "DOWN".to_owned(),
            (false, false) => format!("DOWN {}/{}", self.score, self.rise),
        }
    }

    /// The score, `rise` and `fall`, as HAProxy's statistics name them.
    #[must_use]
    pub fn numbers(&self) -> (u32, u32, u32) {
        (self.score, self.rise, self.fall)
    }

    /// The time from the start of a check to the start of the next one.
    #[must_use]
    pub fn interval(&self, check: &HealthCheck, random: u64) -> Span {
        let span = if self.is_settled() { check.every } else { check.fast_every };
        delay(span, random)
    }
}

/// The time until the first check of a server that is checked after `every`.
#[must_use]
pub fn first_delay(every: Span, random: u64) -> Span {
    spread(every.min(FIRST_SPREAD), random)
}

/// The time from the start of a check to the start of the next one: `every`, or up to a tenth less.
#[must_use]
pub fn delay(every: Span, random: u64) -> Span {
    every - spread(every / JITTER_PARTS as u32, random)
}

/// How long a connection is used for checks with this `keep-alive`: the time, or up to a half less, so that connections
/// that were opened together are not renewed together.
#[must_use]
pub fn connection_span(keep_alive: Span, random: u64) -> Span {
    keep_alive - spread(keep_alive / 2, random)
}

/// A time below `span`, evenly by `random`.
fn spread(span: Span, random: u64) -> Span {
    let nanos = span.as_nanos() as u64;
    Span::from_nanos(((u128::from(nanos) * u128::from(random)) >> 64) as u64)
}

/// How far a check came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// The connection is being opened.
    Connect,
    /// The TLS handshake is in progress.
    Handshake,
    /// The request was sent.
    Response,
}

/// The result of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The connection is open, which was all that was checked; with TLS if `is_secured`.
    Connected {
        /// The handshake is done.
        is_secured: bool,
    },
    /// The response has a status with which the check passes.
    Passed(u16),
    /// The response has another status.
    Status(u16),
    /// The response has a status with which the check passes, but not the expected body.
    Body(u16),
    /// The response is not valid HTTP/1.
    Malformed,
    /// The health service of gRPC reports that the service is being served.
    Serving,
    /// It reports another state of the service.
    NotServing,
    /// The call failed with this status of gRPC.
    GrpcStatus(u16),
    /// The response is not valid gRPC.
    NotGrpc,
    /// The response to the WebSocket handshake is invalid.
    BadHandshake,
    /// The server did not close the WebSocket connection cleanly.
    NotClosed,
    /// The connection was refused.
    Refused,
    /// The address cannot be reached.
    Unreachable,
    /// The connection was closed or reset at this stage.
    Closed(Stage),
    /// The time of the check was over at this stage.
    TimedOut(Stage),
    /// The TLS handshake failed.
    Tls(tls::Fault),
}

impl Outcome {
    /// Whether the check has passed.
    #[must_use]
    pub fn is_success(self) -> bool {
        matches!(self, Self::Connected { .. } | Self::Passed(_) | Self::Serving)
    }

    /// HAProxy's word for the result, as in `check_status`.
    #[must_use]
    pub fn code(self) -> &'static str {
        match self {
            Self::Connected { is_secured: false } => "L4OK",
            Self::Connected { is_secured: true } => "L6OK",
            Self::Passed(_) | Self::Serving => "L7OK",
            Self::Status(_) | Self::NotServing | Self::GrpcStatus(_) => "L7STS",
            Self::Body(_)
            | Self::Malformed
            | Self::NotGrpc
            | Self::BadHandshake
            | Self::NotClosed
            | Self::Closed(Stage::Response) => "L7RSP",
            Self::Refused | Self::Unreachable | Self::Closed(Stage::Connect) => "L4CON",
            Self::TimedOut(Stage::Connect) => "L4TOUT",
            Self::TimedOut(Stage::Handshake) => "L6TOUT",
            Self::TimedOut(Stage::Response) => "L7TOUT",
            Self::Tls(_) | Self::Closed(Stage::Handshake) => "L6RSP",
        }
    }

    /// All words of [`Self::code`].
    pub const CODES: [&'static str; 10] =
        ["L4OK", "L4CON", "L4TOUT", "L6OK", "L6RSP", "L6TOUT", "L7OK", "L7STS", "L7RSP", "L7TOUT"];

    /// The status of the response.
    #[must_use]
    pub fn status(self) -> Option<u16> {
        match self {
            Self::Passed(status) | Self::Status(status) | Self::Body(status) => Some(status),
            _ => None,
        }
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Connected { is_secured: false } => write!(f, "connected"),
            Self::Connected { is_secured: true } => write!(f, "connected with TLS"),
            Self::Passed(status) | Self::Status(status) => write!(f, "status {status}"),
            Self::Body(status) => {
                write!(f, "status {status}, but the body does not contain the expected text")
            }
            Self::Malformed => write!(f, "the response is not valid HTTP/1"),
            Self::Serving => write!(f, "gRPC: serving"),
            Self::NotServing => write!(f, "gRPC: not serving"),
            Self::GrpcStatus(5) => write!(f, "gRPC status 5: the service is not known"),
            Self::GrpcStatus(12) => write!(f, "gRPC status 12: the server has no health service"),
            Self::GrpcStatus(status) => write!(f, "gRPC status {status}"),
            Self::NotGrpc => write!(f, "the response is not valid gRPC"),
            Self::BadHandshake => write!(f, "the response to the WebSocket handshake is invalid"),
            Self::NotClosed => write!(f, "the WebSocket connection was not closed cleanly"),
            Self::Refused => write!(f, "connection refused"),
            Self::Unreachable => write!(f, "the address is unreachable"),
            Self::Closed(Stage::Connect) => write!(f, "the connection was reset"),
            Self::Closed(Stage::Handshake) => write!(f, "closed during the TLS handshake"),
            Self::Closed(Stage::Response) => write!(f, "closed without a response"),
            Self::TimedOut(Stage::Connect) => write!(f, "timed out connecting"),
            Self::TimedOut(Stage::Handshake) => write!(f, "timed out in the TLS handshake"),
            Self::TimedOut(Stage::Response) => write!(f, "timed out waiting for the response"),
            Self::Tls(fault) => write!(f, "TLS: {}", fault.text()),
        }
    }
}
