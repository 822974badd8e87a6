//! Adds up the result lines of test runs; `make test` ends with the total.
//! In: logs of `cargo test`. Out: `N passed, N failed, N skipped`.
//! Invariant: a log without a result line counts as a failure, because its tests did not run.

use std::process::ExitCode;

#[derive(Default, Debug, PartialEq, Eq)]
struct Counts {
    passed: u64,
    failed: u64,
    skipped: u64,
}

/// Prints the total over `logs`. Fails on a failed or skipped test and on a log without a result line.
pub(crate) fn run(logs: &[String]) -> ExitCode {
    let mut total = Counts::default();
    for log in logs {
        let text = match std::fs::read_to_string(log) {
            Ok(text) => text,
            Err(error) => {
                eprintln!("{log}: {error}");
                total.failed += 1;
                continue;
            }
        };
        let counts = count(&text);
        if counts == Counts::default() {
            eprintln!("{log}: no test ran");
            total.failed += 1;
        }
        total.passed += counts.passed;
        total.failed += counts.failed;
        total.skipped += counts.skipped;
    }
    eprintln!();
    #[expect(clippy::print_stdout, reason = "the result of the job goes to stdout")]
    {
        println!("{} passed, {} failed, {} skipped", total.passed, total.failed, total.skipped);
    }
    if total.failed == 0 && total.skipped == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn count(text: &str) -> Counts {
    let mut counts = Counts::default();
    for line in text.lines() {
        let Some(rest) = line.strip_prefix("test result: ") else { continue };
        let number = |word: &str| {
            rest.split([';', '.'])
                .filter_map(|part| part.trim().strip_suffix(word)?.trim().parse::<u64>().ok())
                .sum::<u64>()
        };
        counts.passed += number("passed");
        counts.failed += number("failed");
        counts.skipped += number("ignored") + number("skipped");
    }
    counts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn result_lines_are_added_up() {
        let text = "noise\ntest result: ok. 10 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.01s\n\
                    test result: FAILED. 3 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out\n";
        assert_eq!(count(text), Counts { passed: 13, failed: 2, skipped: 1 });
        assert_eq!(count("nothing"), Counts::default());
    }
}
