//! Lookups of names: what is asked, what is kept, and who gets which result.
//! In: questions, answers, times. Out: queries, results.

use tidegate_base::{Moment, Span};
use tidegate_gate::lookups::*;
use tidegate_wire::dns::{ANSWER_BYTES_MAX, Question, Record, RecordKind};

const START: Moment = Moment::from_nanos(1_000_000_000);

fn question(name: &str) -> Question {
    Question::new(name, RecordKind::A).expect("a name")
}

fn after(seconds: u64) -> Moment {
    START.after(Span::from_secs(seconds))
}

/// The answer to a query: an address that is kept for `seconds`, or a code.
fn answer(query: &Query, result: Result<u32, u8>) -> Vec<u8> {
    let mut bytes = query.bytes[..query.bytes.len() - 11].to_vec();
    let code = result.err().unwrap_or(0);
    bytes[2..4].copy_from_slice(&[0x81, 0x80 | code]);
    bytes[6..12].copy_from_slice(&[0, u8::from(result.is_ok()), 0, 0, 0, 0]);
    if let Ok(seconds) = result {
        bytes.extend([0xc0, 12, 0, 1, 0, 1]);
        bytes.extend(seconds.to_be_bytes());
        bytes.extend([0, 4, 10, 0, 0, 1]);
    }
    bytes
}

fn begun(asked: Asked<u32>) -> LookupId<u32> {
    match asked {
        Asked::Begun(id) => id,
        other => panic!("{other:?}"),
    }
}

fn known(asked: Asked<u32>) -> Result<usize, Fault> {
    match asked {
        Asked::Known(found) => found.map(|found| found.records.len()),
        other => panic!("{other:?}"),
    }
}

#[test]
fn question_is_asked_once_and_its_result_kept() {
    let mut lookups = Lookups::default();
    let id = begun(lookups.ask(question("a"), 0, 1, START));
    assert!(matches!(lookups.ask(question("A."), 1, 2, START), Asked::Joined));
    let query = lookups.next_query(id, 2, 7, START).expect("a query");
    assert_eq!((query.server, lookups.first_due()), (0, START.after(ATTEMPT_SPAN)));
    let bytes = answer(&query, Ok(60));
    let Step::Ended(waiting, found) = lookups.take_answer(id, &bytes, START) else { panic!() };
    assert_eq!(waiting, [1, 2]);
    let address = Record::A([10, 0, 0, 1].into());
    assert_eq!(found.expect("records").records, [address]);
    assert_eq!((lookups.len(), lookups.first_due()), (0, Moment::NEVER));
    assert_eq!(known(lookups.ask(question("a"), 0, 3, after(59))), Ok(1));
    begun(lookups.ask(question("a"), 0, 4, after(60)));
    // A late copy of the answer matches nothing.
    assert!(matches!(lookups.take_answer(id, &bytes, after(60)), Step::Waits));
}

#[test]
fn forged_answer_is_ignored_and_a_server_that_fails_gives_way_to_the_next() {
    let mut lookups = Lookups::default();
    let id = begun(lookups.ask(question("a"), 0, 1, START));
    let first = lookups.next_query(id, 2, 7, START).expect("a query");
    let mut forged = answer(&first, Ok(60));
    forged[1] ^= 1;
    assert!(matches!(lookups.take_answer(id, &forged, START), Step::Waits));
    assert!(matches!(lookups.take_answer(id, &answer(&first, Err(2)), START), Step::Again));
    let second = lookups.next_query(id, 2, 8, START).expect("a query");
    assert_eq!(second.server, 1);
    lookups.note_unreachable(id);
    // The answer of the first server is too late.
    assert!(matches!(lookups.take_answer(id, &answer(&first, Ok(60)), START), Step::Waits));
    let step = lookups.take_answer(id, &answer(&second, Ok(60)), START);
    assert!(matches!(step, Step::Ended(_, Ok(_))));
}

#[test]
fn attempts_end_and_their_fault_is_not_kept() {
    for (servers, attempts) in [(0, 0), (1, 2), (2, 4), (5, ATTEMPTS_MAX)] {
        let mut lookups = Lookups::default();
        let id = begun(lookups.ask(question("a"), 0, 1, START));
        let (mut count, mut now) = (0, START);
        while lookups.next_query(id, servers, 7, now).is_some() {
            count += 1;
            assert_eq!(lookups.next_late(now), None);
            now = now.after(ATTEMPT_SPAN);
            assert_eq!(lookups.next_late(now), Some(id));
        }
        assert_eq!(count, attempts, "{servers} servers");
        let Step::Ended(waiting, found) = lookups.end(id, now) else { panic!() };
        let fault = if servers == 0 { Fault::NoServer } else { Fault::Timeout };
        assert_eq!((waiting, found), (vec![1], Err(fault)));
        begun(lookups.ask(question("a"), 0, 1, now));
    }
}

#[test]
fn servers_that_cannot_be_reached_are_no_timeout() {
    let mut lookups = Lookups::default();
    let id = begun(lookups.ask(question("a"), 0, 1, START));
    while lookups.next_query(id, 1, 7, START).is_some() {
        lookups.note_unreachable(id);
    }
    assert!(matches!(lookups.end(id, START), Step::Ended(_, Err(Fault::ServerFailed))));
}

#[test]
fn absence_is_not_kept_unless_the_zone_states_how_long() {
    let mut lookups = Lookups::default();
    let id = begun(lookups.ask(question("a"), 0, 1, START));
    let query = lookups.next_query(id, 1, 7, START).expect("a query");
    let step = lookups.take_answer(id, &answer(&query, Err(3)), START);
    assert!(matches!(step, Step::Ended(_, Err(Fault::UnknownName))));
    begun(lookups.ask(question("a"), 0, 1, START));
}

#[test]
fn lookups_and_results_are_bounded() {
    let mut lookups = Lookups::default();
    let name = |at: usize| question(&format!("n{at}"));
    for at in 0..ORIGIN_LOOKUPS_MAX {
        begun(lookups.ask(name(at), 1, 0, START));
    }
    assert_eq!(known(lookups.ask(question("one-more"), 1, 0, START)), Err(Fault::TooMany));
    assert!(matches!(lookups.ask(name(0), 1, 0, START), Asked::Joined), "it asks nothing new");
    for at in ORIGIN_LOOKUPS_MAX..LOOKUPS_MAX {
        begun(lookups.ask(name(at), 2, 0, START));
    }
    assert_eq!(known(lookups.ask(question("one-more"), 3, 0, START)), Err(Fault::TooMany));
    for _ in LOOKUPS_MAX + 1..WAITING_MAX {
        assert!(matches!(lookups.ask(name(0), 2, 0, START), Asked::Joined));
    }
    assert_eq!(known(lookups.ask(name(0), 2, 0, START)), Err(Fault::TooMany));
    let mut ended = 0;
    while let Some((_, Step::Ended(waiting, found))) = lookups.end_next(START) {
        assert_eq!(found, Err(Fault::Stopping));
        ended += waiting.len();
    }
    assert_eq!((ended, lookups.is_empty()), (WAITING_MAX, true));
    for at in 0..=KEPT_MAX {
        let id = begun(lookups.ask(name(at), 0, 0, START));
        let query = lookups.next_query(id, 1, 7, START).expect("a query");
        lookups.take_answer(id, &answer(&query, Ok(60 + at as u32)), START);
    }
    assert_eq!(known(lookups.ask(name(1), 0, 0, START)), Ok(1));
    begun(lookups.ask(name(0), 0, 0, START));
    // A time that is far away counts as an hour.
    let id = begun(lookups.ask(question("long"), 0, 0, START));
    let query = lookups.next_query(id, 1, 7, START).expect("a query");
    lookups.take_answer(id, &answer(&query, Ok(1 << 30)), START);
    assert_eq!(known(lookups.ask(question("long"), 0, 0, after(3599))), Ok(1));
    begun(lookups.ask(question("long"), 0, 0, after(3600)));
}

#[test]
fn those_that_wait_can_be_renamed() {
    let mut lookups = Lookups::default();
    let id = begun(lookups.ask(question("a"), 0, 1, START));
    lookups.ask(question("a"), 0, 2, START);
    lookups.change_waiting(|waiter| *waiter += 10);
    let Step::Ended(waiting, _) = lookups.end(id, START) else { panic!() };
    assert_eq!(waiting, [11, 12]);
}

/// The servers that a lookup of `name` asks until one of `answering` answers, and the time of the answer.
fn ask_servers(
    lookups: &mut Lookups<u32>,
    (name, answering): (&str, &[usize]),
    mut now: Moment,
) -> (Vec<usize>, Moment) {
    let id = begun(lookups.ask(question(name), 0, 1, now));
    let mut asked = Vec::new();
    while let Some(query) = lookups.next_query(id, 3, 7, now) {
        asked.push(query.server);
        if answering.contains(&query.server) {
            let step = lookups.take_answer(id, &answer(&query, Ok(0)), now);
            assert!(matches!(step, Step::Ended(_, Ok(_))));
            return (asked, now);
        }
        now = now.after(ATTEMPT_SPAN);
    }
    lookups.end(id, now);
    (asked, now)
}

#[test]
fn server_that_is_silent_delays_one_lookup_and_not_each() {
    let mut lookups = Lookups::default();
    assert_eq!(ask_servers(&mut lookups, ("a", &[0, 1, 2]), START), (vec![0], START));
    let (asked, silent_at) = ask_servers(&mut lookups, ("b", &[1, 2]), START);
    assert_eq!((asked, silent_at), (vec![0, 1], after(2)));
    for name in ["c", "d"] {
        assert_eq!(ask_servers(&mut lookups, (name, &[1, 2]), silent_at), (vec![1], silent_at));
    }
    // After a while, one lookup tries the first server again, and the others do not wait for that.
    let later = silent_at.after(SILENT_SPAN);
    let trying = begun(lookups.ask(question("e"), 0, 1, later));
    assert_eq!(lookups.next_query(trying, 3, 7, later).expect("a query").server, 0);
    assert_eq!(ask_servers(&mut lookups, ("f", &[1, 2]), later), (vec![1], later));
    let due = later.after(ATTEMPT_SPAN);
    assert_eq!(lookups.next_query(trying, 3, 7, due).expect("a query").server, 1);
    assert_eq!(ask_servers(&mut lookups, ("g", &[1, 2]), due), (vec![1], due));
    // Once it answers, the list has its order again.
    let again = due.after(SILENT_SPAN);
    assert_eq!(ask_servers(&mut lookups, ("h", &[0]), again), (vec![0], again));
    assert_eq!(ask_servers(&mut lookups, ("i", &[0, 1, 2]), again), (vec![0], again));
    // If all are silent, each is asked all the same.
    let (asked, end) = ask_servers(&mut lookups, ("j", &[]), again);
    assert_eq!(asked, [0, 1, 2, 0]);
    assert_eq!(ask_servers(&mut lookups, ("k", &[2]), end).0, [0, 1, 2]);
}

#[test]
fn server_that_answers_with_a_failure_is_not_silent() {
    let mut lookups = Lookups::default();
    for name in ["a", "b"] {
        let id = begun(lookups.ask(question(name), 0, 1, START));
        let first = lookups.next_query(id, 2, 7, START).expect("a query");
        assert_eq!(first.server, 0, "the list says what is preferred");
        assert!(matches!(lookups.take_answer(id, &answer(&first, Err(2)), START), Step::Again));
        let second = lookups.next_query(id, 2, 8, START).expect("a query");
        let step = lookups.take_answer(id, &answer(&second, Ok(0)), START);
        assert!(second.server == 1 && matches!(step, Step::Ended(_, Ok(_))));
    }
}

#[test]
fn answer_that_is_too_long_is_not_kept() {
    let mut lookups = Lookups::default();
    let id = begun(lookups.ask(question("a"), 0, 1, START));
    let query = lookups.next_query(id, 1, 7, START).expect("a query");
    let mut bytes = answer(&query, Ok(60));
    bytes.resize(usize::from(ANSWER_BYTES_MAX) + 1, 0);
    let step = lookups.take_answer(id, &bytes, START);
    assert!(matches!(step, Step::Ended(_, Err(Fault::Truncated))));
    begun(lookups.ask(question("a"), 0, 1, START));
}
