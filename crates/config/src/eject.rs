//! Reads `eject` and `retry-budget` of a pool.
//! In: the table of a pool. Out: checked settings.

use tidegate_base::Span;

use crate::listeners::refused;
use crate::model::{Eject, RetryBudget};
use crate::pattern::ValueError;
use crate::report::{Kind, Note, Notes};
use crate::table::Table;

/// Reads when servers are ejected; `None` if they are not.
pub(crate) fn read(pool: &Table<'_>, notes: &mut Notes) -> Option<Eject> {
    let mut eject = Eject {
        failures: Some(5),
        errors: Some(50),
        span: Span::from_secs(10),
        ejected_max: 50,
        latency: None,
        panic: None,
    };
    let value = pool.value("eject")?;
    if value.get_ref().as_bool().is_some() {
        let is_on = pool.flag("eject", notes);
        return is_on.then_some(eject);
    }
    let table = pool.open_table("eject", notes)?;
    table.set_bound("failures", &mut eject.failures, notes);
    match table.text("errors", notes) {
        Some(text) if text.text == "off" => eject.errors = None,
        Some(_) => {
            if let Some(percent) = read_percent("errors", &table, notes) {
                eject.errors = Some(percent);
            }
        }
        None => {}
    }
    table.set_duration("for", &mut eject.span, notes);
    if let Some(percent) = read_percent("ejected-max", &table, notes) {
        eject.ejected_max = percent;
    }
    table.set_bound("latency", &mut eject.latency, notes);
    match table.text("panic", notes) {
        Some(text) if text.text == "off" => {}
        Some(_) => eject.panic = read_percent("panic", &table, notes),
        None => {}
    }
    let may_eject = eject.failures.is_some() || eject.errors.is_some() || eject.latency.is_some();
    if !may_eject && eject.panic.is_none() {
        let what = "with failures = \"unlimited\" and errors = \"off\", no server is ever ejected";
        let note = Note::new(Kind::Conflict, value.span(), what);
        notes.error(note.help("remove `eject`, or write failures = 5"));
    }
    Some(eject)
}

/// Reads how many retries are allowed; `None` if all are.
pub(crate) fn read_retry_budget(pool: &Table<'_>, notes: &mut Notes) -> Option<RetryBudget> {
    let value = pool.value("retry-budget")?;
    if value.get_ref().as_str().is_some() {
        let percent = read_percent("retry-budget", pool, notes)?;
        return Some(RetryBudget { percent, min: 10 });
    }
    let table = pool.open_table("retry-budget", notes)?;
    let mut min = 10;
    table.set_number("min", &mut min, notes);
    let percent = read_percent("share", &table, notes)?;
    Some(RetryBudget { percent, min })
}

/// A part from 1% to 100%.
fn read_percent(key: &str, table: &Table<'_>, notes: &mut Notes) -> Option<u8> {
    let text = table.text(key, notes)?;
    let number = text.text.strip_suffix('%').and_then(|number| number.parse::<u8>().ok());
    if let Some(percent) = number.filter(|percent| (1..=100).contains(percent)) {
        return Some(percent);
    }
    let complaint = ValueError {
        what: "not a percentage from 1% to 100%".to_owned(),
        help: format!("write {key} = \"50%\""),
    };
    notes.error(refused(key, &text, complaint));
    None
}
