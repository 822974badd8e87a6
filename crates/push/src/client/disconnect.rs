//! Why clients are disconnected: the codes and reasons of Centrifugo that this program uses.

/// Why a client is disconnected: the code and reason of the Close frame. The reason is never empty, and no JSON.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Disconnect {
    /// The code.
    pub code: u16,
    /// The reason.
    pub reason: &'static str,
}

/// The disconnects of Centrifugo that this program uses.
impl Disconnect {
    /// `connect` has failed, and the client is still here.
    pub const CLOSED: Self = Self { code: 3000, reason: "connection closed" };
    /// The process stops.
    pub const SHUTDOWN: Self = Self { code: 3001, reason: "shutdown" };
    /// The token has expired and was not renewed.
    pub const EXPIRED: Self = Self { code: 3005, reason: "connection expired" };
    /// The token of a subscription has expired.
    pub const SUBSCRIPTION_EXPIRED: Self = Self { code: 3006, reason: "subscription expired" };
    /// The client does not read.
    pub const SLOW: Self = Self { code: 3008, reason: "slow" };
    /// Messages were dropped of a channel to which the application has subscribed the client, which connects again and recovers.
    pub const INSUFFICIENT_STATE: Self = Self { code: 3010, reason: "insufficient state" };
    /// The connection has lasted long enough, and the client connects again.
    pub const FORCE_RECONNECT: Self = Self { code: 3011, reason: "force reconnect" };
    /// The client does not answer pings.
    pub const NO_PONG: Self = Self { code: 3012, reason: "no pong" };
    /// The token is invalid.
    pub const INVALID_TOKEN: Self = Self { code: 3500, reason: "invalid token" };
    /// The client violated the protocol.
    pub const BAD_REQUEST: Self = Self { code: 3501, reason: "bad request" };
    /// The client has not connected in time.
    pub const STALE: Self = Self { code: 3502, reason: "stale" };
    /// The client sent data that is not JSON.
    pub const INAPPROPRIATE_PROTOCOL: Self = Self { code: 3506, reason: "inappropriate protocol" };
    /// The command does not exist here.
    pub const NOT_AVAILABLE: Self = Self { code: 3508, reason: "not available" };
}
