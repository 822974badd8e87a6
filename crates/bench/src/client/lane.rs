//! A lane: one of the plan's connections. It keeps its place in the plan while it uses one socket after the other.
//! In: events of the current socket. Out: the pending requests and the counts of the lane.
//! Limits: `PIPELINE_MAX` requests in flight. Invariant: `pending` is in the order of sending.

use super::http2::Session;
use super::reader::Reader;
use crate::plan::Schedule;
use std::collections::VecDeque;
use tidegate_base::Moment;
use tidegate_reactor::SockId;

/// The state of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// No socket; the next wake-up opens one.
    Absent,
    /// The TCP connection is being established.
    Connecting,
    /// The TLS handshake is in progress.
    Handshaking,
    /// The HTTP/2 connection has begun; the server's SETTINGS have not arrived.
    Greeting,
    /// Requests can be sent.
    Open,
    /// The lane is finished: it sends no more requests.
    Over,
}

/// A request that was sent.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sent {
    /// When it was planned to be sent.
    pub(super) planned: Moment,
    /// When it was sent.
    pub(super) at: Moment,
    /// Index of the request in the mix.
    pub(super) number: u16,
    /// Whether its result is counted.
    pub(super) is_counted: bool,
}

/// One connection of the plan.
#[derive(Debug)]
pub(super) struct Lane {
    /// The current socket; `NONE` if there is none.
    pub(super) sock: SockId,
    /// Index of its server among the authorities of the mix.
    pub(super) authority: u16,
    /// The state of the connection; `Absent` while it has no socket.
    pub(super) phase: Phase,
    /// Reads the responses of the current socket.
    pub(super) reader: Reader,
    /// The HTTP/2 connection on the current socket; `None` with HTTP/1.1.
    pub(super) session: Option<Box<Session>>,
    /// Requests without a complete response, in the order of sending.
    pub(super) pending: VecDeque<Sent>,
    /// When the first byte of the current response arrived; `ZERO` if none has.
    pub(super) first_byte_at: Moment,
    /// When the connection attempt began.
    pub(super) connect_at: Moment,
    /// When the TLS handshake or the HTTP/2 connection began.
    pub(super) handshake_at: Moment,
    /// Whether the TLS session was established without h2 although the plan needs h2.
    pub(super) lacks_http2: bool,
    /// Requests that were sent on the current socket.
    pub(super) sent_on_socket: u64,
    /// Whether a connection was ever established.
    pub(super) was_open: bool,
    /// Complete responses that are counted.
    pub(super) answered: u64,
    /// Failures since the last complete response.
    pub(super) failures: u32,
    /// Whether the lane is in the list of idle connections. It is never in the list twice.
    pub(super) is_listed: bool,
    /// Whether a wake-up is pending. There is at most one.
    pub(super) has_wake: bool,
    /// The lane's own schedule; `None` unless the pace is a rate per connection.
    pub(super) schedule: Option<Box<Schedule>>,
    /// When `schedule` begins: when the connection is due to be opened. A ramp may delay this.
    pub(super) schedule_began: Moment,
    /// The next planned send time of `schedule`.
    pub(super) next_planned: Moment,
    /// The time since which another request can be sent. Requests planned before it had to wait.
    pub(super) free_since: Moment,
}

impl Lane {
    pub(super) fn new(authority: u16, schedule: Option<Schedule>, opened_at: Moment) -> Self {
        let mut schedule = schedule.map(Box::new);
        let next_planned = schedule
            .as_mut()
            .map_or(Moment::NEVER, |schedule| opened_at.after(schedule.next_arrival()));
        Self {
            sock: SockId::NONE,
            authority,
            phase: Phase::Absent,
            reader: Reader::default(),
            session: None,
            pending: VecDeque::new(),
            first_byte_at: Moment::ZERO,
            connect_at: Moment::ZERO,
            handshake_at: Moment::ZERO,
            lacks_http2: false,
            sent_on_socket: 0,
            was_open: false,
            answered: 0,
            failures: 0,
            is_listed: false,
            has_wake: false,
            schedule,
            schedule_began: opened_at,
            next_planned,
            free_since: opened_at,
        }
    }

    /// Resets the state of the socket. `connect_at` and `handshake_at` stay until the next socket sets them.
    pub(super) fn reset_socket_state(&mut self) {
        self.sock = SockId::NONE;
        self.phase = Phase::Absent;
        self.reader = Reader::default();
        self.session = None;
        self.lacks_http2 = false;
        self.pending.clear();
        self.first_byte_at = Moment::ZERO;
        self.sent_on_socket = 0;
    }
}
