//! `show events`: recent changes in the process.
//! In: words; the events that the process has kept. Out: rows, the newest first.

use super::Operations;
use super::command::Outcome;
use super::rows::Rows;
use crate::events::{self, EVENTS_MAX, EventKind};
use crate::log::Stamp;

/// How many events are shown unless the command contains a number.
const SHOWN_DEFAULT: usize = 50;

/// The arguments of the command.
#[derive(PartialEq, Eq, Debug)]
struct Selection {
    kind: Option<EventKind>,
    limit: usize,
    is_json: bool,
}

/// Shows the last events, of all kinds or of one.
pub(super) fn show(arguments: &[&str], _: &Operations) -> Outcome {
    let selection = Selection::parse(arguments)?;
    let mut rows = Rows::new(&["time", "kind", "event"]);
    let all = events::recent().into_iter().rev();
    let wanted = all.filter(|event| selection.kind.is_none_or(|kind| event.kind == kind));
    for event in wanted.take(selection.limit) {
        let time = Stamp(event.time).to_string();
        rows.push([time.into(), event.kind.name().into(), event.text.into()]);
    }
    rows.shown(selection.is_json)
}

impl Selection {
    fn parse(arguments: &[&str]) -> Result<Self, String> {
        let mut selection = Self { kind: None, limit: SHOWN_DEFAULT, is_json: false };
        for word in arguments {
            let kind = EventKind::ALL.into_iter().find(|kind| kind.name() == *word);
            match (kind, word.parse::<usize>()) {
                (Some(kind), _) => selection.kind = Some(kind),
                (None, Ok(limit)) if (1..=EVENTS_MAX).contains(&limit) => selection.limit = limit,
                (None, _) if *word == "json" => selection.is_json = true,
                (None, _) => {
                    let kinds = EventKind::ALL.map(EventKind::name).join(", ");
                    return Err(format!(
                        "`show events` does not accept {word:?}; allowed: a number from 1 to {EVENTS_MAX}, json, {kinds}"
                    ));
                }
            }
        }
        Ok(selection)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_select_events() {
        let selection = Selection { kind: Some(EventKind::Server), limit: 7, is_json: true };
        assert_eq!(Selection::parse(&["server", "json", "7"]), Ok(selection));
        for word in ["0", "1001", "frob"] {
            let error = Selection::parse(&[word]).expect_err(word);
            assert!(error.ends_with("json, reload, server, ejection, admin, process"), "{error}");
        }
    }
}
