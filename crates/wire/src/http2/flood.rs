//! Allowances for actions of a peer that cost this side work without serving a request.
//! In: events of each kind, the time, completed work that restores some allowances. Out: whether the
//! allowance is used up.
//! Never: charges a frame that a request needs.
//! Limits: the table `Cost::bounds`: how many at once, and how many more for each second.
//! Invariant: an allowance never exceeds its bound, however long the connection was idle. Only sent DATA frames add to
//! it: they grant WINDOW_UPDATE frames.
//!
//! Two attacks use resets: the peer opens and resets streams (CVE-2023-44487), or provokes resets from this
//! side (CVE-2025-8671). Both are charged to one allowance, and each stream that ends normally restores one
//! reset.

use super::bounds::DATA_BYTES_MAX;
use super::connection::Role;
use super::fault::FaultKind;
use tidegate_base::Moment;

/// The kind of charge.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Cost {
    /// A stream was reset by the peer, or by this side because of a fault of the peer.
    Reset,
    /// PING that is not an acknowledgement.
    Ping,
    /// SETTINGS that is not an acknowledgement.
    Settings,
    /// PRIORITY or PRIORITY_UPDATE.
    Priority,
    /// DATA without content that does not end its stream, or CONTINUATION without content.
    Empty,
    /// WINDOW_UPDATE.
    WindowUpdate,
    /// A frame without effect: of an unknown type, or RST_STREAM for a closed stream.
    Unknown,
    /// A violation that is harmless and otherwise ignored.
    Glitch,
    /// A tiny DATA frame sent because the peer's window was tiny. Never a fault: data waits instead.
    TinySend,
}

/// How many kinds there are.
const COSTS: usize = 9;

impl Cost {
    const ALL: [Self; COSTS] = [
        Self::Reset,
        Self::Ping,
        Self::Settings,
        Self::Priority,
        Self::Empty,
        Self::WindowUpdate,
        Self::Unknown,
        Self::Glitch,
        Self::TinySend,
    ];

    /// How many are allowed at once, beyond which a shared connection is stopped gracefully. `None`: none are, because the action
    /// concerns the connection as a whole.
    const fn graceful(self) -> Option<u16> {
        match self {
            Self::Glitch => Some(GLITCHES_GRACEFUL),
            Self::Empty => Some(EMPTY_FRAMES_MAX),
            Self::Unknown => Some(UNKNOWN_FRAMES_MAX),
            _ => None,
        }
    }

    /// How many are allowed at once, how many more per second, and the fault of a peer that needs more.
    const fn bounds(self) -> (u16, u16, FaultKind) {
        match self {
            Self::Reset => (RESETS_MAX, RESETS_PER_SECOND, FaultKind::ResetFlood),
            Self::Ping => (PINGS_MAX, PINGS_PER_SECOND, FaultKind::PingFlood),
            Self::Settings => (SETTINGS_MAX, SETTINGS_PER_SECOND, FaultKind::SettingsFlood),
            Self::Priority => (PRIORITIES_MAX, PRIORITIES_PER_SECOND, FaultKind::PriorityFlood),
            Self::Empty => (EMPTY_FRAMES_MAX, EMPTY_FRAMES_PER_SECOND, FaultKind::EmptyFrameFlood),
            Self::WindowUpdate => {
                (WINDOW_UPDATES_MAX, WINDOW_UPDATES_PER_SECOND, FaultKind::WindowUpdateFlood)
            }
            Self::Unknown => {
                (UNKNOWN_FRAMES_MAX, UNKNOWN_FRAMES_PER_SECOND, FaultKind::UnknownFrameFlood)
            }
            Self::Glitch => (GLITCHES_MAX, GLITCHES_PER_SECOND, FaultKind::GlitchFlood),
            Self::TinySend => (TINY_SENDS_MAX, TINY_SENDS_PER_SECOND, FaultKind::GlitchFlood),
        }
    }
}

/// Resets of streams at once; each stream that ends normally allows one more (CVE-2023-44487, CVE-2025-8671).
/// A browser that leaves a page resets all its streams: `STREAMS_DEFAULT`.
pub const RESETS_MAX: u16 = 200;
/// Further resets per second.
pub const RESETS_PER_SECOND: u16 = 10;
/// PING frames at once (CVE-2019-9512). Each DATA frame that this side sends restores one, because gRPC
/// measures the path with a PING after received data.
pub const PINGS_MAX: u16 = 100;
/// Further PING frames per second.
pub const PINGS_PER_SECOND: u16 = 10;
/// SETTINGS frames at once (CVE-2019-9515).
pub const SETTINGS_MAX: u16 = 50;
/// Further SETTINGS frames per second.
pub const SETTINGS_PER_SECOND: u16 = 5;
/// PRIORITY and PRIORITY_UPDATE frames at once (CVE-2019-9513). Each request restores some.
pub const PRIORITIES_MAX: u16 = 200;
/// Further ones per second.
pub const PRIORITIES_PER_SECOND: u16 = 20;
/// PRIORITY and PRIORITY_UPDATE frames that each request restores.
pub const PRIORITIES_PER_REQUEST: u16 = 4;
/// Empty frames at once (CVE-2019-9518).
pub const EMPTY_FRAMES_MAX: u16 = 100;
/// Further empty frames per second.
pub const EMPTY_FRAMES_PER_SECOND: u16 = 10;
/// Empty frames that each request to a server restores: servers send some without harm.
pub const EMPTY_FRAMES_PER_RESPONSE: u16 = 8;
/// Frames without effect that each request to a server restores.
pub const UNKNOWN_FRAMES_PER_RESPONSE: u16 = 8;
/// WINDOW_UPDATE frames at once, in addition to those that sent DATA frames allow. Each request restores some.
pub const WINDOW_UPDATES_MAX: u16 = 1000;
/// Further ones per second.
pub const WINDOW_UPDATES_PER_SECOND: u16 = 50;
/// WINDOW_UPDATE frames that each request restores and each DATA frame sent allows. A peer may update the stream and
/// the connection after each read of 4 KiB, and DATA frames may be tiny, so this is generous.
pub const WINDOW_UPDATES_PER_FRAME: u16 = 20;
/// WINDOW_UPDATE frames that earlier DATA frames allow: those of 2 GiB, the most that a peer's windows hold. A peer
/// with large windows may receive much data, consume it later, and return the windows at once.
pub const WINDOW_UPDATES_GRANTED_MAX: u32 =
    (1 << 31) / DATA_BYTES_MAX as u32 * WINDOW_UPDATES_PER_FRAME as u32;
/// Frames of unknown types at once, and RST_STREAM for streams that are closed. Each stream that ends
/// normally restores one, because its RST_STREAM may have crossed the end. If the stream was opened at the same time, RST_STREAM
/// counts as a reset instead: the client cannot have seen the response.
pub const UNKNOWN_FRAMES_MAX: u16 = 200;
/// Further ones per second.
pub const UNKNOWN_FRAMES_PER_SECOND: u16 = 20;
/// Harmless violations at once; more end the connection.
pub const GLITCHES_MAX: u16 = 200;
/// The number of harmless violations at once that begins a graceful stop of the connection.
pub const GLITCHES_GRACEFUL: u16 = 150;
/// Harmless violations forgiven per second.
pub const GLITCHES_PER_SECOND: u16 = 2;
/// How many times as many violations and empty or unknown frames a server may send as a client. Its connection is stopped
/// gracefully before that, so that its faults do not end the exchanges of several clients.
pub const SERVER_PATIENCE: u16 = 20;
/// DATA frames below `SEND_BYTES_MIN` that tiny windows of the peer may cause at once.
pub const TINY_SENDS_MAX: u16 = 100;
/// Further ones per second.
pub const TINY_SENDS_PER_SECOND: u16 = 10;

/// The allowances of one connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct Allowances {
    /// How much of each allowance is used, in the order of `Cost`. At most its bound.
    used: [u16; COSTS],
    /// WINDOW_UPDATE frames that sent DATA frames allow. At most `WINDOW_UPDATES_GRANTED_MAX`.
    granted_updates: u32,
    /// The second up to which time has reduced `used`.
    second: u64,
    /// The peer is a server: exchanges of several clients use the connection.
    is_shared: bool,
}

impl Allowances {
    /// The allowances of the peer of a side that has this role.
    pub(super) const fn new(now: Moment, role: Role) -> Self {
        let second = now.as_nanos() / 1_000_000_000;
        let is_shared = matches!(role, Role::Client);
        Self { used: [0; COSTS], granted_updates: 0, second, is_shared }
    }

    /// Charges one event.
    ///
    /// # Errors
    /// If its allowance is used up. Nothing is charged then.
    pub(super) fn charge(&mut self, now: Moment, cost: Cost) -> Result<(), FaultKind> {
        let (max, _, fault) = cost.bounds();
        let is_patient = self.is_shared && cost.graceful().is_some();
        let max = if is_patient { max * SERVER_PATIENCE } else { max };
        self.forgive(now);
        let used = &mut self.used[cost as usize];
        if *used >= max {
            return Err(fault);
        }
        *used += 1;
        Ok(())
    }

    /// Charges a WINDOW_UPDATE.
    ///
    /// # Errors
    /// If no DATA frame has granted it and its allowance is used up.
    pub(super) fn charge_window_update(&mut self, now: Moment) -> Result<(), FaultKind> {
        match self.granted_updates.checked_sub(1) {
            Some(left) => {
                self.granted_updates = left;
                Ok(())
            }
            None => self.charge(now, Cost::WindowUpdate),
        }
    }

    /// Counts a DATA frame that was sent, which allows frames that its receiver may send in return.
    pub(super) fn note_data_sent(&mut self) {
        let granted = self.granted_updates + u32::from(WINDOW_UPDATES_PER_FRAME);
        self.granted_updates = granted.min(WINDOW_UPDATES_GRANTED_MAX);
        self.refund(Cost::Ping, 1);
    }

    /// Restores the allowance for `count` events, after completed work.
    pub(super) const fn refund(&mut self, cost: Cost, count: u16) {
        self.used[cost as usize] = self.used[cost as usize].saturating_sub(count);
    }

    /// Whether so much of an allowance is used that the connection must be stopped gracefully.
    pub(super) const fn is_excessive(&self, cost: Cost) -> bool {
        let used = self.used[cost as usize];
        match cost.graceful() {
            Some(most) if self.is_shared || matches!(cost, Cost::Glitch) => used >= most,
            _ => false,
        }
    }

    /// Reduces the used allowance by the time that has passed.
    fn forgive(&mut self, now: Moment) {
        let second = now.as_nanos() / 1_000_000_000;
        if second == self.second {
            return;
        }
        let passed = u16::try_from(second.saturating_sub(self.second)).unwrap_or(u16::MAX);
        self.second = second;
        for (used, cost) in self.used.iter_mut().zip(Cost::ALL) {
            let (_, per_second, _) = cost.bounds();
            *used = used.saturating_sub(per_second.saturating_mul(passed));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(seconds: u64) -> Moment {
        Moment::from_nanos(seconds * 1_000_000_000)
    }

    #[test]
    fn earlier_data_frames_grant_window_updates_up_to_a_bound() {
        let mut allowances = Allowances::new(at(0), Role::Server);
        let charged = |allowances: &mut Allowances| {
            (0..u32::MAX).take_while(|_| allowances.charge_window_update(at(0)).is_ok()).count()
                as u32
        };
        for _ in 0..1_000 {
            allowances.note_data_sent();
        }
        let granted = 1_000 * u32::from(WINDOW_UPDATES_PER_FRAME);
        assert_eq!(charged(&mut allowances), granted + u32::from(WINDOW_UPDATES_MAX));
        for _ in 0..WINDOW_UPDATES_GRANTED_MAX {
            allowances.note_data_sent();
        }
        assert_eq!(charged(&mut allowances), WINDOW_UPDATES_GRANTED_MAX);
    }

    #[test]
    fn each_allowance_ends_at_its_bound_and_recovers_with_time() {
        for cost in Cost::ALL {
            let (max, per_second, fault) = cost.bounds();
            let mut allowances = Allowances::new(at(1_000), Role::Server);
            for _ in 0..max {
                assert_eq!(allowances.charge(at(1_000), cost), Ok(()));
            }
            assert_eq!(allowances.charge(at(1_000), cost), Err(fault), "{cost:?}");
            // Time without events earns nothing beyond the bound.
            let mut idle = Allowances::new(at(1_000), Role::Server);
            for _ in 0..max {
                assert_eq!(idle.charge(at(9_000), cost), Ok(()));
            }
            assert_eq!(idle.charge(at(9_000), cost), Err(fault), "{cost:?}");
            for _ in 0..per_second {
                assert_eq!(allowances.charge(at(1_001), cost), Ok(()), "{cost:?}");
            }
            assert_eq!(allowances.charge(at(1_001), cost), Err(fault), "{cost:?}");
            allowances.refund(cost, 1);
            assert_eq!(allowances.charge(at(1_001), cost), Ok(()));
            allowances.forgive(at(100_000));
            assert_eq!(allowances.used[cost as usize], 0);
        }
    }

    #[test]
    fn server_exceeds_the_graceful_bound_long_before_its_last_one() {
        for (cost, graceful) in [
            (Cost::Glitch, GLITCHES_GRACEFUL),
            (Cost::Empty, EMPTY_FRAMES_MAX),
            (Cost::Unknown, UNKNOWN_FRAMES_MAX),
        ] {
            let mut allowances = Allowances::new(at(0), Role::Client);
            let (max, _, fault) = cost.bounds();
            for count in 1..=max * SERVER_PATIENCE {
                assert_eq!(allowances.charge(at(0), cost), Ok(()));
                assert_eq!(allowances.is_excessive(cost), count >= graceful, "{cost:?} {count}");
            }
            assert_eq!(allowances.charge(at(0), cost), Err(fault));
        }
    }
}
