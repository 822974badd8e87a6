//! What a health check sends and reads on its connection, for all kinds of checks.
//! In: the settings of a check; random numbers, the time; bytes of a server. Out: bytes to send; the result once it is known.
//! Never: opens or closes a connection.

use tidegate_base::Moment;
use tidegate_config::model::CheckKind;

use super::grpc::GrpcTalk;
use super::websocket::WebSocketTalk;
use super::{ResponseReader, RestReader};
use crate::health::{Outcome, Stage};

/// What a check needs on a new connection, besides its settings.
#[derive(Clone, Copy, Debug)]
pub struct TalkStart<'a> {
    /// The host that the check names.
    pub host: &'a str,
    /// The connection uses TLS.
    pub is_secured: bool,
    /// Random numbers.
    pub random: [u64; 2],
    /// The time.
    pub now: Moment,
}

/// The conversation of a check with a server.
#[derive(Debug)]
pub enum Talk {
    /// By HTTP/1. The check sends the request itself.
    Http(ResponseReader),
    /// By gRPC.
    Grpc(Box<GrpcTalk>),
    /// By WebSocket.
    WebSocket(Box<WebSocketTalk>),
}

impl Default for Talk {
    fn default() -> Self {
        Self::Http(ResponseReader::default())
    }
}

impl Talk {
    /// Begins the conversation on a new connection, and appends its first bytes, except those of `encode_request`.
    #[must_use]
    pub fn begin(kind: &CheckKind, start: &TalkStart<'_>, out: &mut Vec<u8>) -> Self {
        match kind {
            CheckKind::Tcp | CheckKind::Http(_) => Self::default(),
            CheckKind::Grpc(check) => Self::Grpc(Box::new(GrpcTalk::begin(check, start, out))),
            CheckKind::WebSocket(check) => {
                Self::WebSocket(Box::new(WebSocketTalk::begin(check, start, out)))
            }
        }
    }

    /// Takes bytes of the server, and appends bytes to send. Returns the result once it is known; no more bytes follow then.
    pub fn read(
        &mut self,
        kind: &CheckKind,
        now: Moment,
        bytes: &[u8],
        out: &mut Vec<u8>,
    ) -> Option<Outcome> {
        match (self, kind) {
            (Self::Http(reader), CheckKind::Http(check)) => reader.read(check, bytes),
            // A check by `tcp` ends when the connection is open.
            (Self::Http(_), _) => None,
            (Self::Grpc(talk), _) => talk.read(now, bytes, out),
            (Self::WebSocket(talk), _) => talk.read(bytes, out),
        }
    }

    /// The result if the server ends the connection now.
    #[must_use]
    pub fn ended(&self) -> Outcome {
        match self {
            Self::Http(reader) => reader.ended(),
            Self::Grpc(_) => Outcome::Closed(Stage::Response),
            Self::WebSocket(talk) => talk.ended(),
        }
    }

    /// The rest of the response; `None`: the connection must not be used again.
    #[must_use]
    pub fn into_rest(self) -> Option<RestReader> {
        match self {
            Self::Http(reader) => reader.into_rest(),
            Self::Grpc(_) | Self::WebSocket(_) => None,
        }
    }
}
