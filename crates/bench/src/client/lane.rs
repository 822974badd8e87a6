//! One connection of the plan, through all the sockets it has one after the other.
//! In: events of its socket. Out: what is in flight on it, and what it has done.
//! Limits: `PIPELINE_MAX` requests in flight. Invariant: `pending` is in the order of sending.

use super::reader::Reader;
use crate::plan::Schedule;
use std::collections::VecDeque;
use tidegate_base::Moment;
use tidegate_reactor::SockId;

/// Where a connection is on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// No socket; a wake-up will make one.
    Absent,
    /// The socket is on its way to the server.
    Connecting,
    /// The TLS handshake is under way.
    Handshaking,
    /// Requests may be sent.
    Open,
    /// Nothing more will be sent.
    Over,
}

/// A request that was sent.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sent {
    /// When it was to be sent.
    pub(super) planned: Moment,
    /// When it was sent.
    pub(super) at: Moment,
    /// Its number in the mix.
    pub(super) number: u16,
    /// Whether figures count what becomes of it.
    pub(super) is_counted: bool,
}

/// One connection of the plan.
#[derive(Debug)]
pub(super) struct Lane {
    pub(super) sock: SockId,
    /// Whom it goes to, as the mix numbers them.
    pub(super) authority: u16,
    pub(super) phase: Phase,
    pub(super) reader: Reader,
    pub(super) pending: VecDeque<Sent>,
    /// When the first byte of the answer that is coming in came; `ZERO`: none has.
    pub(super) first_byte_at: Moment,
    /// When the connect began.
    pub(super) connect_at: Moment,
    /// When the TLS handshake began.
    pub(super) handshake_at: Moment,
    /// Requests that were sent on the present socket.
    pub(super) sent_on_socket: u64,
    /// Whether it was ever there.
    pub(super) was_open: bool,
    /// Whole answers that count.
    pub(super) answered: u64,
    /// Failures since the last whole answer.
    pub(super) failures: u32,
    /// Whether it stands in the list of idle connections.
    pub(super) is_listed: bool,
    /// Whether a wake-up is on its way.
    pub(super) has_wake: bool,
    /// Its own rhythm, where the pace is one for each connection.
    pub(super) schedule: Option<Box<Schedule>>,
    /// When that rhythm begins: with the connection, which a ramp may open late.
    pub(super) rhythm_began: Moment,
    /// The next planned send time of that rhythm.
    pub(super) next_planned: Moment,
    /// Since when it has room for a request; what was planned before had to wait for it.
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
            pending: VecDeque::new(),
            first_byte_at: Moment::ZERO,
            connect_at: Moment::ZERO,
            handshake_at: Moment::ZERO,
            sent_on_socket: 0,
            was_open: false,
            answered: 0,
            failures: 0,
            is_listed: false,
            has_wake: false,
            schedule,
            rhythm_began: opened_at,
            next_planned,
            free_since: opened_at,
        }
    }

    /// Forgets the socket and what came in on it.
    pub(super) fn forget_socket(&mut self) {
        self.sock = SockId::NONE;
        self.phase = Phase::Absent;
        self.reader = Reader::default();
        self.pending.clear();
        self.first_byte_at = Moment::ZERO;
        self.sent_on_socket = 0;
    }
}
