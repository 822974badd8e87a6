//! Entries of tables that count: windows compared with an exact count, workers that count together, floods of keys.

use core::fmt::Write as _;

use proptest::prelude::*;
use tidegate_base::prng::{Prng, mix64};
use tidegate_base::{Moment, Span};
use tidegate_config::model::{Count, CountTable, Counted, Placeholder, Template, TemplatePiece};
use tidegate_gate::count_cells::{CountCells, Counts, Held, KeyText, Outcome};

const EXPIRE: Span = Span::from_secs(600);

fn table(counts: &[(Counted, u64)], entries_max: u32) -> CountTable {
    let count = |(what, secs): &(Counted, u64)| Count {
        what: *what,
        window: (*secs > 0).then(|| Span::from_secs(*secs)),
    };
    CountTable {
        name: "t".to_owned(),
        key: Template { pieces: vec![TemplatePiece::Value(Placeholder::Client)] },
        counts: counts.iter().map(count).collect(),
        expire: EXPIRE,
        entries_max,
    }
}

fn cells(counts: &[(Counted, u64)], entries_max: u32) -> CountCells {
    CountCells::new(&table(counts, entries_max), 1)
}

fn at(millis: u64) -> Moment {
    Moment::ZERO.after(Span::from_secs(1000)).after(Span::from_millis(millis))
}

fn begin(cells: &CountCells, key: u64, now: Moment) -> Option<Held> {
    cells.begin(key, now, EXPIRE, |text| {
        // Writing to the text cannot fail.
        let _ = write!(text, "key-{key}");
    })
}

/// Counts a request that ends at once.
fn pass(cells: &CountCells, key: u64, now: Moment) {
    if let Some(held) = begin(cells, key, now) {
        cells.end(held, now, EXPIRE, &Outcome::default());
    }
}

fn read(cells: &CountCells, key: u64, now: Moment) -> Counts {
    cells.read(key, now, EXPIRE)
}

proptest! {
    /// The count is exact except for the part of the window that is leaving it.
    #[test]
    fn window_counts_what_happened_in_it(
        steps in prop::collection::vec((0..4000_u64, any::<bool>()), 1..200),
    ) {
        let cells = cells(&[(Counted::Requests, 7)], 8);
        let (mut millis, mut events) = (0, Vec::new());
        for (step, is_request) in steps {
            millis += step;
            if is_request {
                pass(&cells, 1, at(millis));
                events.push(millis);
                continue;
            }
            // Parts of a second each; `at` begins at a whole one.
            let age = |event: &u64| millis / 1000 - event / 1000;
            let least = events.iter().filter(|event| age(event) < 7).count() as u64;
            let leaving = events.iter().filter(|event| age(event) == 7).count() as u64;
            let exact = events.iter().filter(|event| millis - **event < 7000).count() as u64;
            let [count, ..] = read(&cells, 1, at(millis));
            prop_assert!((least..=least + leaving).contains(&count), "{count} {least} {leaving}");
            prop_assert!(count.abs_diff(exact) <= leaving, "{count} {exact} {leaving}");
        }
    }
}

#[test]
fn steady_requests_are_counted_exactly() {
    let cells = cells(&[(Counted::Requests, 10), (Counted::Requests, 0)], 8);
    for millis in 0..60_000 {
        if millis % 20 == 0 {
            pass(&cells, 1, at(millis));
        }
        if millis > 10_000 {
            let [count, total, ..] = read(&cells, 1, at(millis));
            assert!((499..=501).contains(&count), "{millis}: {count}");
            assert_eq!(total, millis / 20 + 1);
        }
    }
    assert_eq!(read(&cells, 1, at(70_100))[0], 0, "a window later");
}

#[test]
fn clocks_of_workers_may_differ() {
    let cells = cells(&[(Counted::Requests, 7)], 8);
    pass(&cells, 1, at(5000));
    // Behind by some parts: the request counts where it happened.
    pass(&cells, 1, at(2000));
    assert_eq!(read(&cells, 1, at(5000))[0], 2);
    // A worker whose clock is behind sees what another one counts.
    pass(&cells, 1, at(6000));
    assert_eq!(read(&cells, 1, at(5500))[0], 3);
    // A whole window behind: what happens there is over.
    pass(&cells, 1, at(30_000));
    pass(&cells, 1, at(22_000));
    assert_eq!(read(&cells, 1, at(30_000))[0], 1);
}

#[test]
fn exchange_counts_what_it_has_done_at_its_end() {
    let counts = [
        (Counted::Connections, 0),
        (Counted::Errors, 10),
        (Counted::Failures, 0),
        (Counted::BytesReceived, 10),
        (Counted::BytesSent, 0),
        (Counted::Mark, 0),
    ];
    let cells = cells(&counts, 8);
    let held: Vec<_> = (0..3).filter_map(|_| begin(&cells, 1, at(0))).collect();
    assert_eq!(read(&cells, 1, at(0))[..6], [3, 0, 0, 0, 0, 0]);
    for (held, status) in held.into_iter().zip([404, 503, 200]) {
        let outcome = Outcome { status, bytes_received: 10, bytes_sent: 1 << 41 };
        cells.end(held, at(100), EXPIRE, &outcome);
    }
    assert_eq!(read(&cells, 1, at(100))[..6], [0, 1, 1, 30, 3 << 41, 0]);
    assert_eq!(read(&cells, 2, at(100)), [0; 8], "another key");
    assert!(cells.mark("key-1", 7) && !cells.mark("key-2", 7));
    assert_eq!(read(&cells, 1, at(100))[5], 7);
    // A part of a window counts up to 2^40 - 1.
    for _ in 0..3 {
        let held = begin(&cells, 1, at(200)).expect("it is counted");
        let outcome = Outcome { status: 200, bytes_received: u64::MAX, bytes_sent: 0 };
        cells.end(held, at(200), EXPIRE, &outcome);
    }
    assert_eq!(read(&cells, 1, at(200))[3], (1 << 40) - 1);
}

#[test]
fn unused_key_expires_unless_a_request_is_in_progress() {
    let cells = cells(&[(Counted::Requests, 0), (Counted::Connections, 0)], 8);
    let held = begin(&cells, 1, at(0)).expect("it is counted");
    pass(&cells, 2, at(0));
    let later = at(EXPIRE.as_millis() as u64 + 1000);
    assert_eq!((read(&cells, 1, later)[..2].to_vec(), read(&cells, 2, later)[0]), (vec![1, 1], 0));
    assert_eq!(cells.shown(later, EXPIRE).count(), 1);
    cells.end(held, later, EXPIRE, &Outcome::default());
    assert_eq!(read(&cells, 1, later)[..2], [1, 0], "the end is a use, too");
    pass(&cells, 2, later);
    assert_eq!(read(&cells, 2, later)[0], 1, "it begins again");
    assert_eq!((cells.entries(), cells.displaced()), (2, 0));
}

#[test]
fn flood_of_keys_does_not_displace_busy_keys() {
    let cells = cells(&[(Counted::Requests, 0), (Counted::Connections, 0)], 4096);
    let mut prng = Prng::new(1);
    let busy: Vec<u64> = (1..=256).map(mix64).collect();
    let slow = begin(&cells, 7, at(0)).expect("it is counted");
    for _ in 0..3 {
        pass(&cells, 7, at(0));
    }
    for second in 0..100 {
        let now = at(second * 1000);
        for key in &busy {
            for _ in 0..4 {
                pass(&cells, *key, now);
            }
        }
        // New keys with one or two requests each.
        for _ in 0..5000 {
            let key = prng.next_u64();
            pass(&cells, key, now);
            if key.is_multiple_of(2) {
                pass(&cells, key, now);
            }
        }
    }
    let kept = busy.iter().filter(|key| read(&cells, **key, at(99_000))[0] == 400).count();
    // A set of eight may have more than eight of these keys at the most unlikely.
    assert_eq!(kept, 256);
    assert_eq!(read(&cells, 7, at(99_000))[..2], [4, 1], "a request in progress is a use");
    assert_eq!((cells.entries(), cells.in_progress()), (4096, 1));
    assert!(cells.displaced() > 400_000, "{}", cells.displaced());
    cells.end(slow, at(99_000), EXPIRE, &Outcome::default());
    assert_eq!(cells.in_progress(), 0);
}

#[test]
fn request_of_a_displaced_key_changes_no_other_key() {
    let cells = cells(&[(Counted::Connections, 0), (Counted::Errors, 0)], 8);
    let held: Vec<_> = (0..20).map(|key| begin(&cells, key, at(key)).expect("counted")).collect();
    assert_eq!((cells.in_progress(), cells.displaced()), (8, 12));
    let error = Outcome { status: 404, ..Outcome::default() };
    let is_known = |key: &u64| read(&cells, *key, at(100))[0] == 1;
    let (known, lost): (Vec<u64>, Vec<u64>) = (0..20).partition(is_known);
    assert_eq!((known.len(), lost.len()), (8, 12));
    for key in lost {
        cells.end(held[key as usize], at(100), EXPIRE, &error);
    }
    let total: u64 = (0..20).map(|key| read(&cells, key, at(100))[1]).sum();
    assert_eq!((cells.in_progress(), total), (8, 0), "their keys have lost their entries");
    for key in known {
        cells.end(held[key as usize], at(100), EXPIRE, &error);
    }
    let total: u64 = (0..20).map(|key| read(&cells, key, at(100))[1]).sum();
    assert_eq!((cells.in_progress(), total), (0, 8));
}

#[test]
fn workers_together_count_exactly() {
    const WORKERS: u64 = 4;
    const ROUNDS: u64 = 20_000;
    const KEYS: u64 = 16;
    let counts = [
        (Counted::Requests, 0),
        (Counted::Requests, 60),
        (Counted::Errors, 60),
        (Counted::Connections, 0),
    ];
    let cells = cells(&counts, 4096);
    std::thread::scope(|scope| {
        for _ in 0..WORKERS {
            scope.spawn(|| {
                for round in 0..ROUNDS {
                    let now = at(round);
                    if let Some(held) = begin(&cells, round % KEYS, now) {
                        let outcome = Outcome { status: 404, ..Outcome::default() };
                        cells.end(held, now, EXPIRE, &outcome);
                    }
                }
            });
        }
    });
    let all: Vec<Counts> = (0..KEYS).map(|key| read(&cells, key, at(ROUNDS))).collect();
    let sum = |index: usize| all.iter().map(|counts| counts[index]).sum::<u64>();
    let total = WORKERS * ROUNDS - cells.uncounted();
    assert_eq!((sum(0), sum(1), sum(2), sum(3)), (total, total, total, 0));
    assert!(cells.uncounted() < 1000, "{}", cells.uncounted());
    assert_eq!((cells.entries(), cells.in_progress()), (KEYS, 0));
}

/// Workers that add, count and displace at the same time keep the number of entries, and lose no place.
#[test]
fn workers_that_displace_keys_keep_the_number_of_entries() {
    let cells = cells(&[(Counted::Requests, 0), (Counted::Connections, 0)], 64);
    std::thread::scope(|scope| {
        for worker in 0..4 {
            let cells = &cells;
            scope.spawn(move || {
                let mut prng = Prng::new(worker);
                let mut held = Vec::new();
                for step in 0..20_000 {
                    held.extend(begin(cells, prng.below(500), at(step)));
                    if held.len() > 10 {
                        let one = held.swap_remove(prng.below(10) as usize);
                        cells.end(one, at(step), EXPIRE, &Outcome::default());
                    }
                }
                for one in held {
                    cells.end(one, at(20_000), EXPIRE, &Outcome::default());
                }
            });
        }
    });
    assert_eq!((cells.entries(), cells.in_progress()), (64, 0));
    let texts: std::collections::BTreeSet<String> =
        cells.shown(at(20_000), EXPIRE).map(|shown| shown.text).collect();
    assert_eq!(texts.len(), 64, "each key has one entry");
}

#[test]
fn commands_see_and_clear_keys() {
    let cells = cells(&[(Counted::Requests, 0), (Counted::Connections, 0)], 64);
    for key in 0..3 {
        pass(&cells, key, at(0));
    }
    let held = begin(&cells, 2, at(0)).expect("it is counted");
    let shown = |cells: &CountCells| {
        let mut all: Vec<_> = cells.shown(at(5000), EXPIRE).collect();
        all.sort_by(|a, b| a.text.cmp(&b.text));
        all.into_iter()
            .map(|one| (one.text, one.unused.as_secs(), one.counts[0], one.counts[1]))
            .collect::<Vec<_>>()
    };
    let line = |key: &str, requests, in_progress| (key.to_owned(), 5, requests, in_progress);
    assert_eq!(shown(&cells), [line("key-0", 1, 0), line("key-1", 1, 0), line("key-2", 2, 1)]);
    assert_eq!((cells.clear(Some("key-0")), cells.clear(Some("key-9"))), (1, 0));
    assert_eq!(shown(&cells), [line("key-1", 1, 0), line("key-2", 2, 1)]);
    assert_eq!(cells.clear(None), 2);
    assert_eq!(shown(&cells), [line("key-2", 0, 1)], "a request in progress stays");
    cells.end(held, at(0), EXPIRE, &Outcome::default());
    assert_eq!((cells.clear(None), cells.entries(), cells.in_progress()), (1, 0, 0));
}

#[test]
fn memory_is_what_the_settings_state() {
    let counts = [(Counted::Requests, 10), (Counted::Errors, 60), (Counted::Connections, 0)];
    let mut settings = table(&counts, 1000);
    for (key, text) in [(Placeholder::Client, 24), (Placeholder::Path, 64)] {
        settings.key.pieces = vec![TemplatePiece::Value(key)];
        let cells = CountCells::new(&settings, 1);
        assert_eq!(settings.entry_bytes(), 24 + text + 64 + 64 + 8);
        assert_eq!(cells.entries_max(), 1000);
        // One byte more for each set of eight.
        assert_eq!(cells.bytes() as u64, 1000 * settings.entry_bytes() + 125);
    }
}

#[test]
fn text_of_a_key_is_cut() {
    let mut text = KeyText::default();
    let _ = write!(text, "{}", "k".repeat(100));
    let settings = CountTable {
        key: Template { pieces: vec![TemplatePiece::Value(Placeholder::Path)] },
        ..table(&[(Counted::Requests, 0)], 8)
    };
    let cells = CountCells::new(&settings, 1);
    let _ = cells.begin(1, at(0), EXPIRE, |own| *own = text);
    let shown: Vec<_> = cells.shown(at(0), EXPIRE).map(|one| one.text).collect();
    assert_eq!(shown, [format!("{}...", "k".repeat(61))]);
}
