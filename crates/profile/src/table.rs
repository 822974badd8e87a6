//! Profiles as tables of functions, as `perf report` prints them.
//! In: one profile, or two. Out: text with fixed columns.
//! Limits: `ROWS_MAX` functions.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use crate::folded::{Profile, bare};

/// Functions in a table.
const ROWS_MAX: usize = 60;

/// The cost of a function, in samples.
#[derive(Clone, Copy, Default, PartialEq, Debug)]
struct Cost {
    /// In the function itself.
    own: f64,
    /// In the function and in those that it calls.
    all: f64,
}

/// Functions by name and whether they belong to the kernel.
type Costs<'p> = BTreeMap<(&'p str, bool), Cost>;

fn costs(profile: &Profile) -> Costs<'_> {
    let mut costs = Costs::new();
    for (stack, count) in profile.stacks() {
        let frames: Vec<_> = stack.split(';').map(bare).collect();
        // A function that calls itself counts once.
        for frame in frames.iter().collect::<BTreeSet<_>>() {
            costs.entry(*frame).or_default().all += count as f64;
        }
        if let Some(last) = frames.last() {
            costs.entry(*last).or_default().own += count as f64;
        }
    }
    costs
}

/// The functions that cost the most.
#[must_use]
pub fn table(profile: &Profile) -> String {
    let samples = profile.samples().max(1) as f64;
    let costs = costs(profile);
    let mut rows: Vec<_> = costs.into_iter().collect();
    rows.sort_by(|(one, a), (other, b)| {
        (b.own, b.all)
            .partial_cmp(&(a.own, a.all))
            .unwrap_or(one.cmp(other).reverse())
            .then(one.cmp(other))
    });
    let per_request = profile.micros_per_request();
    let mut text = heading("", profile);
    let unit = if per_request.is_some() { "  us/request" } else { "" };
    let _ = writeln!(text, "#    self   total{unit}  function ([k]: of the kernel)");
    for ((name, is_kernel), cost) in rows.iter().take(ROWS_MAX) {
        let share = |count: f64| 100.0 * count / samples;
        let _ = write!(text, "  {:6.2}% {:6.2}%", share(cost.own), share(cost.all));
        if let Some(micros) = per_request {
            let _ = write!(text, "{:12.3}", cost.own * micros);
        }
        let _ = writeln!(text, "  {} {name}", mark(*is_kernel));
    }
    finish(text, rows.len())
}

/// The functions whose cost differs the most between two profiles.
#[must_use]
pub fn comparison(before: &Profile, now: &Profile) -> String {
    let (scales, unit) = scales(before, now);
    let (old, new) = (costs(before), costs(now));
    let names: BTreeSet<_> = old.keys().chain(new.keys()).copied().collect();
    let mut rows: Vec<_> = names
        .into_iter()
        .map(|name| {
            let cost = |costs: &Costs<'_>, scale: f64| {
                costs.get(&name).map_or(0.0, |cost| cost.own * scale)
            };
            (name, cost(&old, scales.0), cost(&new, scales.1))
        })
        .collect();
    rows.sort_by(|a, b| (b.2 - b.1).abs().total_cmp(&(a.2 - a.1).abs()).then(a.0.cmp(&b.0)));
    let mut text = heading("before: ", before) + &heading("now:    ", now);
    let _ = writeln!(text, "#   before       now    change  function itself, in {unit}");
    let (all_old, all_new) = (before.samples() as f64 * scales.0, now.samples() as f64 * scales.1);
    let _ = writeln!(text, "  {all_old:8.3}  {all_new:8.3}  {:+8.3}  (all)", all_new - all_old);
    for ((name, is_kernel), old, new) in rows.iter().take(ROWS_MAX) {
        let mark = mark(*is_kernel);
        let _ = writeln!(text, "  {old:8.3}  {new:8.3}  {:+8.3}  {mark} {name}", new - old);
    }
    finish(text, rows.len())
}

/// The factors by which samples of two profiles are multiplied to compare them, and the unit of the product: CPU time for each
/// request if both state their requests, else percents.
#[must_use]
pub fn scales(before: &Profile, now: &Profile) -> ((f64, f64), &'static str) {
    match (before.micros_per_request(), now.micros_per_request()) {
        (Some(before), Some(now)) => ((before, now), "us/request"),
        _ => {
            let percent = |profile: &Profile| 100.0 / profile.samples().max(1) as f64;
            ((percent(before), percent(now)), "% of the samples")
        }
    }
}

fn heading(what: &str, profile: &Profile) -> String {
    let facts = &profile.facts;
    let samples = profile.samples();
    let share = |part: u64, all: u64| 100.0 * part as f64 / all.max(1) as f64;
    let in_kernel = share(profile.kernel_samples(), samples);
    let accounted = facts.user_ms + facts.kernel_ms;
    let compared = match facts.route.as_str() {
        "" => format!(
            "the kernel counts {:.1}% and {:.1}% of {accounted} ms",
            share(facts.user_ms, accounted),
            share(facts.kernel_ms, accounted),
        ),
        // The kernel has no information about routes.
        _ => format!(
            "the route has {:.1}% of all {} samples",
            share(samples, samples + facts.left_out),
            samples + facts.left_out
        ),
    };
    format!(
        "# {what}{samples} samples of {}\n# {what}{:.1}% in the program, {in_kernel:.1}% in the kernel; {compared}\n",
        facts.words(),
        100.0 - in_kernel,
    )
}

fn mark(is_kernel: bool) -> &'static str {
    if is_kernel { "[k]" } else { "[.]" }
}

fn finish(mut text: String, rows: usize) -> String {
    if rows > ROWS_MAX {
        let _ = writeln!(text, "# {} more", rows - ROWS_MAX);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn profile(stacks: &str) -> Profile {
        Profile::parse(stacks).expect("stacks")
    }

    const FACTS: &str = "# tidegate-profile seconds=10.00 hertz=100 workers=1 requests=1000000 user-ms=80 kernel-ms=20 \
        lost=0 means=perf .\n";

    #[test]
    fn functions_are_in_the_order_of_their_own_cost() {
        let text = table(&profile(&format!("{FACTS}a;b 30\na;b;b 10\na;b;recv_[k] 50\na 10\n")));
        let rows: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
        assert_eq!(
            rows,
            [
                "   50.00%  50.00%       0.500  [k] recv",
                "   40.00%  90.00%       0.400  [.] b",
                "   10.00% 100.00%       0.100  [.] a",
            ]
        );
        assert!(
            text.starts_with(
                "# 100 samples of 1 worker, 10.0 s, 100 Hz by perf, 1000000 requests\n"
            )
        );
        assert!(text.contains("\n# 50.0% in the program, 50.0% in the kernel; the kernel counts 80.0% and 20.0% of 100 ms\n"));
    }

    #[test]
    fn profiles_are_compared_by_their_cost_for_a_request() {
        let before = profile(&format!("{FACTS}a;b 50\na;c 50\n"));
        let now = profile(&format!("{}a;b 50\na;d 20\n", FACTS.replace("=1000000 ", "=500000 ")));
        let text = comparison(&before, &now);
        let rows: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
        assert_eq!(
            rows,
            [
                "     1.000     1.400    +0.400  (all)",
                "     0.500     1.000    +0.500  [.] b",
                "     0.500     0.000    -0.500  [.] c",
                "     0.000     0.400    +0.400  [.] d",
                "     0.000     0.000    +0.000  [.] a",
            ]
        );
        let shares = comparison(&profile("a 1\nb 3\n"), &profile("a 3\nb 1\n"));
        assert!(shares.contains("in % of the samples\n   100.000   100.000    +0.000  (all)\n"));
        assert!(shares.contains("    25.000    75.000   +50.000  [.] a\n"), "{shares}");
    }
}
