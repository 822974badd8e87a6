//! Whether a request that failed upstream may be sent again. RFC 9110 section 9.2.2, RFC 9112
//! section 9.3.1.
//! In: where it failed, what kind of request it is, how much of it has left. Out: yes or no.
//! Never: chooses the server (balance) or the answer (worker).
//! Invariant: a request that a server may have acted upon is repeated only if it is idempotent, and
//! only as it was sent the first time.

/// Where an exchange with a server failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailurePoint {
    /// The connection never stood: refused, unreachable, timed out.
    Connect,
    /// A connection that had been idle was closed or reset before the answer's first byte: most
    /// likely the server closed it while the request was on its way.
    ReusedReset,
    /// A fresh connection was closed or reset before the answer's first byte: the server did this
    /// to the request itself.
    FreshReset,
    /// No answer within `response-head`: the server may still be at it.
    ResponseTimeout,
    /// After the answer's first byte.
    InResponse,
}

/// A failed attempt: all that the decision needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FailedAttempt {
    /// Where it failed.
    pub point: FailurePoint,
    /// The method is idempotent (RFC 9110 section 9.2.2).
    pub idempotent: bool,
    /// Bytes of the request's body were taken from the client.
    pub body_sent: bool,
    /// Those bytes were all kept and can be sent again.
    pub body_replayable: bool,
    /// Attempts made, this one among them; at least 1.
    pub attempts: u32,
    /// The pool's `retries`.
    pub retries_max: u32,
}

/// Whether the request may be sent once more, to another server.
///
/// A failed connect is repeated for every method: no server has seen the request. A reset of a
/// reused connection only for idempotent ones: the server may have acted before it closed. A reset
/// of a fresh one is not: the request itself may be what breaks servers. Nothing is repeated after
/// the answer began, nor what cannot be sent as it was sent the first time.
#[must_use]
pub fn may_retry(failed: &FailedAttempt) -> bool {
    let whole = !failed.body_sent || failed.body_replayable;
    let allowed = failed.attempts <= failed.retries_max;
    let safe = match failed.point {
        FailurePoint::Connect => true,
        FailurePoint::ReusedReset => failed.idempotent,
        FailurePoint::FreshReset | FailurePoint::ResponseTimeout | FailurePoint::InResponse => {
            false
        }
    };
    whole && allowed && safe
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_truth_table_of_retries() {
        use FailurePoint::{Connect, FreshReset, InResponse, ResponseTimeout, ReusedReset};
        // (idempotent, body_sent, body_replayable) -> may retry, while retries are left
        let shapes = [
            (true, false, false),
            (true, true, true),
            (true, true, false),
            (false, false, false),
            (false, true, true),
            (false, true, false),
        ];
        let table = [
            (Connect, [true, true, false, true, true, false]),
            (ReusedReset, [true, true, false, false, false, false]),
            (FreshReset, [false; 6]),
            (ResponseTimeout, [false; 6]),
            (InResponse, [false; 6]),
        ];
        for (point, expected) in table {
            for ((idempotent, body_sent, body_replayable), expected) in
                shapes.into_iter().zip(expected)
            {
                for (attempts, retries_max) in [(1, 0), (1, 1), (2, 1), (3, 3), (4, 3)] {
                    let failed = FailedAttempt {
                        point,
                        idempotent,
                        body_sent,
                        body_replayable,
                        attempts,
                        retries_max,
                    };
                    let left = attempts <= retries_max;
                    assert_eq!(may_retry(&failed), expected && left, "{failed:?}");
                }
            }
        }
    }
}
