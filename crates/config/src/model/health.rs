//! Health checks of servers.
//! In: the reader of pools. Out: plain data.

use tidegate_base::Span;

/// `health` of a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HealthCheck {
    /// The kind of check.
    pub kind: CheckKind,
    /// Time from the start of a check to the start of the next.
    pub every: Span,
    /// The same, while results differ from the state of the server; at most `every`.
    pub fast_every: Span,
    /// Time for a check.
    pub timeout: Span,
    /// Successes in a row until a server is up; at least 1.
    pub rise: u32,
    /// Failures in a row until a server is down; at least 1.
    pub fall: u32,
    /// The port that is checked; `None`: that of the server.
    pub port: Option<u16>,
    /// Whether the connection is secured. Only if the pool has TLS settings.
    pub is_secured: bool,
    /// How long a connection is kept open and used for further checks; `None`: each check opens its own. Only for
    /// checks that send a request.
    pub keep_alive: Option<Span>,
}

/// The kind of check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CheckKind {
    /// It opens a connection.
    Tcp,
    /// It sends a request.
    Http(HttpCheck),
    /// It calls the health service of gRPC.
    Grpc(GrpcCheck),
    /// It opens a WebSocket connection and closes it.
    WebSocket(WebSocketCheck),
}

/// A check by the protocol `grpc.health.v1`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GrpcCheck {
    /// The name of the service; empty: the server as a whole.
    pub service: String,
    /// Host; `None`: the address of the server.
    pub host: Option<String>,
}

/// A check by a WebSocket handshake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WebSocketCheck {
    /// The path with its query.
    pub target: String,
    /// Host; `None`: the address of the server.
    pub host: Option<String>,
}

/// `agent` of a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentCheck {
    /// The port of the agent, on each server's address.
    pub port: u16,
    /// Time from the start of a check to the start of the next.
    pub every: Span,
    /// Time for a check.
    pub timeout: Span,
    /// The text that is sent to the agent first, without the end of the line that follows it; `None`: nothing.
    pub send: Option<String>,
}

/// The request of a check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpCheck {
    /// The path with its query.
    pub target: String,
    /// Host; `None`: the address of the server.
    pub host: Option<String>,
    /// The method.
    pub method: CheckMethod,
    /// The statuses with which the check passes, as inclusive ranges; at least one.
    pub status: Vec<(u16, u16)>,
    /// What the body must contain; `None`: the body does not matter.
    pub body: Option<BodyCheck>,
}

/// `body` of a check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BodyCheck {
    /// The text that the body contains; not empty.
    pub text: String,
    /// How many bytes of the body are searched.
    pub bytes_max: usize,
}

/// `method` of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CheckMethod {
    /// GET.
    Get,
    /// HEAD.
    Head,
    /// OPTIONS.
    Options,
}
