//! The commands about tables that count what clients do.
//! In: words; the tables in force; the clock. Out: text, or an error.
//! Limits: `SHOWN_MAX` keys are shown.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fmt::Write as _;

use rustix::time::{ClockId, clock_gettime};
use tidegate_base::Moment;
use tidegate_config::model::Counted;
use tidegate_gate::count_cells::{Counts, Shown};
use tidegate_gate::counting::Table;

use super::Operations;
use super::command::Outcome;
use super::command::Reply::{Changed, Shown as ShownText};
use super::rows::listed;

/// Maximum number of keys that one command shows, and how many it shows unless it has a number.
const SHOWN_MAX: usize = 100_000;
const SHOWN_DEFAULT: usize = 1000;

fn find(name: &str, operations: &Operations) -> Result<Table, String> {
    let tables = operations.process().tables;
    tables.find(name).cloned().ok_or_else(|| {
        let known: Vec<&str> =
            tables.all().iter().map(|table| table.settings().name.as_str()).collect();
        format!("no table {name:?}; the tables are: {}", listed(&known))
    })
}

/// The time on the clock of the workers.
fn now() -> Moment {
    let time = clock_gettime(ClockId::Monotonic);
    Moment::from_nanos(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}

/// Shows all tables, the keys of one with the largest counts, or the counts of one key.
pub(super) fn show(arguments: &[&str], operations: &Operations) -> Outcome {
    let usage = "usage: show table [NAME [LIMIT | key KEY]]";
    match arguments {
        [] => {
            let mut text = String::from("# name entries entries-max bytes evictions uncounted\n");
            for table in operations.process().tables.all() {
                let (name, cells) = (&table.settings().name, table.cells());
                // Writing to a String cannot fail.
                let _ = writeln!(
                    text,
                    "{name} {} {} {} {} {}",
                    cells.entries(),
                    cells.entries_max(),
                    cells.bytes(),
                    cells.displaced(),
                    cells.uncounted()
                );
            }
            Ok(ShownText(text))
        }
        [name] => show_largest(&find(name, operations)?, SHOWN_DEFAULT),
        [name, "key", key] => {
            let table = find(name, operations)?;
            let key = table.text_of(key);
            let mut text = heading(&table);
            match table.shown(now()).find(|one| one.text == key) {
                Some(one) => write_line(&mut text, &table, &one),
                None => return Err(absent(name, &key)),
            }
            Ok(ShownText(text))
        }
        [name, limit] => {
            let limit = limit.parse().ok().filter(|limit| (1..=SHOWN_MAX).contains(limit));
            let limit = limit.ok_or_else(|| format!("LIMIT must be 1 to {SHOWN_MAX}; {usage}"))?;
            show_largest(&find(name, operations)?, limit)
        }
        _ => Err(usage.to_owned()),
    }
}

/// Shows the `limit` keys whose counts are largest, compared in the order of the settings.
fn show_largest(table: &Table, limit: usize) -> Outcome {
    let mut largest: BinaryHeap<Reverse<(Counts, String, core::time::Duration)>> =
        BinaryHeap::new();
    let mut left_out: u64 = 0;
    for Shown { text, unused, counts } in table.shown(now()) {
        largest.push(Reverse((counts, text, unused)));
        if largest.len() > limit {
            largest.pop();
            left_out += 1;
        }
    }
    let mut text = heading(table);
    for Reverse((counts, key, unused)) in largest.into_sorted_vec() {
        write_line(&mut text, table, &Shown { text: key, unused, counts });
    }
    if left_out > 0 {
        let _ = writeln!(text, "# keys not shown: {left_out}");
    }
    Ok(ShownText(text))
}

fn heading(table: &Table) -> String {
    let mut text = String::from("# key unused");
    for count in &table.settings().counts {
        let _ = write!(text, " {count}");
    }
    text.push('\n');
    text
}

fn write_line(text: &mut String, table: &Table, one: &Shown) {
    let _ = write!(text, "{} {}s", one.text, one.unused.as_secs());
    for count in one.counts.iter().take(table.settings().counts.len()) {
        let _ = write!(text, " {count}");
    }
    text.push('\n');
}

fn absent(name: &str, key: &str) -> String {
    format!("table {name:?} has no key {key:?}")
}

/// Sets all counts of a table, or of one key, to zero. Requests in progress stay counted.
pub(super) fn clear(arguments: &[&str], operations: &Operations) -> Outcome {
    match arguments {
        [name] => {
            let count = find(name, operations)?.cells().clear(None);
            Ok(Changed(format!("keys cleared: {count}\n")))
        }
        [name, key] | [name, "key", key] => {
            let table = find(name, operations)?;
            let key = table.text_of(key);
            match table.cells().clear(Some(&key)) {
                0 => Err(absent(name, &key)),
                _ => Ok(Changed(String::new())),
            }
        }
        _ => Err("usage: clear table NAME [KEY]".to_owned()),
    }
}

/// Sets the mark of a key.
pub(super) fn set(arguments: &[&str], operations: &Operations) -> Outcome {
    let [name, key, "mark", mark] = arguments else {
        return Err("usage: set table NAME KEY mark NUMBER".to_owned());
    };
    let table = find(name, operations)?;
    let mark = mark.parse().map_err(|_| {
        format!("the mark cannot be {mark:?}; allowed: a whole number from 0 to {}", u64::MAX)
    })?;
    if !table.settings().counts.iter().any(|count| count.what == Counted::Mark) {
        return Err(format!("table {name:?} has no marks: add \"mark\" to its `counts`"));
    }
    match table.mark(key, mark, now()) {
        true => Ok(Changed(String::new())),
        false => Err(absent(name, &table.text_of(key))),
    }
}
