//! The settings of retry budgets.
//! In: nothing. Out: the section `[pool.NAME.retry-budget]`.

use super::Preset::{Required, Value};
use super::Shape::{Number, Text};
use super::{Section, key};

/// `retry-budget = { ... }` of a pool.
pub static RETRY_BUDGET: Section = Section {
    path: "[pool.NAME.retry-budget]",
    about: "Limits the retries of a pool to a share of its requests, so that retries do not multiply the load of servers that are \
             overloaded. A request whose retry is not allowed fails as after its last attempt. Each worker counts its own requests and \
             retries, of the last 5 to 10 s.",
    keys: &[
        key(
            "share",
            Text("a percentage from \"1%\" to \"100%\""),
            Required,
            "The largest number of retries, as a share of the requests to the pool.",
            "",
        ),
        key(
            "min",
            Number(0, 1_000_000),
            Value("10"),
            "This many retries within 10 s are always allowed, in all workers together (rounded up for each worker).",
            "A single failure in a quiet minute is worth a retry.",
        ),
    ],
    later: &[],
};
