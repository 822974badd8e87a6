//! Reads `retry-on` of a pool.
//! In: the table of a pool. Out: checked settings.

use crate::model::{RETRY_STATUSES, RetryOn};
use crate::report::{Kind, Note, Notes, quoted};
use crate::table::{Table, wrong_type};

/// Reads the failures that are retried.
pub(crate) fn read(pool: &Table<'_>, notes: &mut Notes) -> RetryOn {
    let Some(value) = pool.value("retry-on") else { return RetryOn::default() };
    let mut on = RetryOn { connect: false, reset: false, ..RetryOn::default() };
    let Some(rows) = value.get_ref().as_array() else {
        let note = wrong_type("`retry-on`", value, "an array of failures");
        notes.error(note.help("write retry-on = [\"connect\", \"reset\", 503]"));
        return on;
    };
    for row in rows.iter() {
        let integer = row.get_ref().as_integer();
        let status =
            integer.and_then(|number| u16::from_str_radix(number.as_str(), number.radix()).ok());
        match (row.get_ref().as_str(), status) {
            (Some("connect"), _) => on.connect = true,
            (Some("reset"), _) => on.reset = true,
            (Some("timeout"), _) => on.timeout = true,
            (Some("malformed"), _) => on.malformed = true,
            (_, Some(status)) if RETRY_STATUSES.contains(&status) => on.statuses.push(status),
            _ => {
                let found = row.get_ref().as_str().map(quoted);
                let found = found.or_else(|| integer.map(|number| number.as_str().to_owned()));
                let found = found.unwrap_or_else(|| "this value".to_owned());
                let what = format!("`retry-on` cannot contain {found}");
                let note = Note::new(Kind::Value, row.span(), what);
                let allowed = "\"connect\", \"reset\", \"timeout\", \"malformed\", or a status from 400 to 599";
                notes.error(note.allowed(allowed));
            }
        }
    }
    on
}
