//! Checks docs/haproxy-behaviour.md: each row has a verdict, each test that it names exists, and its totals are right.
//! In: the page; the names of all tests and scenes. Out: findings as `line: what is wrong`.
//! Limits: a test counts as existing if a function of its name exists in any source file.

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;
    use std::process::Command;

    const PAGE: &str = "docs/haproxy-behaviour.md";

    fn root() -> &'static Path {
        Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask is a folder of the root")
    }

    /// The names of all functions of the sources, and of all scenes with their ending.
    fn known_tests() -> BTreeSet<String> {
        let output = Command::new("git")
            .args(["ls-files", "--cached", "--others", "--exclude-standard", "crates"])
            .current_dir(root())
            .output()
            .expect("git lists the files");
        let mut names = BTreeSet::new();
        for path in String::from_utf8_lossy(&output.stdout).lines() {
            if path.ends_with(".scene") {
                names.extend(path.rsplit('/').next().map(str::to_owned));
            }
            if !path.ends_with(".rs") {
                continue;
            }
            let Ok(text) = std::fs::read_to_string(root().join(path)) else { continue };
            for line in text.lines() {
                let Some(rest) = line.trim_start().strip_prefix("fn ") else { continue };
                names.extend(rest.split('(').next().map(str::to_owned));
            }
        }
        names
    }

    /// The texts between backquotes.
    fn quoted(cell: &str) -> Vec<&str> {
        cell.split('`').skip(1).step_by(2).collect()
    }

    /// What is wrong with the page, and its first paragraph's totals.
    fn check(page: &str, known: &BTreeSet<String>) -> Vec<String> {
        let mut findings = Vec::new();
        let mut totals = [0; 3];
        for (index, line) in page.lines().enumerate() {
            let mut find = |what: String| findings.push(format!("{}: {what}", index + 1));
            if line.starts_with("| reg-test ") || line.starts_with("|---") {
                continue;
            }
            if !line.starts_with('|') {
                // Outside of tables, the names of tests are the longest ones.
                let is_test =
                    |name: &str| name.ends_with(".scene") || name.matches('_').count() > 3;
                for name in quoted(line).into_iter().filter(|name| is_test(name)) {
                    if !known.contains(name) {
                        find(format!("there is no test {name}"));
                    }
                }
                continue;
            }
            let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
            let [_, _, verdict, shown] = cells[..] else {
                find("not four cells".to_owned());
                continue;
            };
            let kinds = ["same", "different:", "no feature"];
            let Some(kind) = kinds.iter().position(|kind| verdict.starts_with(kind)) else {
                find(format!("{verdict:?} does not begin with one of {kinds:?}"));
                continue;
            };
            totals[kind] += 1;
            if (kind == 2) != quoted(shown).is_empty() {
                find("exactly the rows of existing features name tests".to_owned());
            }
            for name in quoted(shown).into_iter().filter(|name| !known.contains(*name)) {
                find(format!("there is no test {name}"));
            }
        }
        let [same, different, none] = totals;
        let stated = format!(
            "of {} behaviours, {same} are the same, {different} differ on purpose, and {none} have no counterpart",
            same + different + none
        );
        if !page.replace('\n', " ").contains(&stated) {
            findings.push(format!("the first paragraph should state: {stated}"));
        }
        findings
    }

    #[test]
    fn comparison_with_haproxy_names_existing_tests() {
        let page = std::fs::read_to_string(root().join(PAGE)).expect("the page exists");
        let findings = check(&page, &known_tests());
        assert!(findings.is_empty(), "{PAGE}\n{}", findings.join("\n"));
    }

    #[test]
    fn each_mistake_in_a_comparison_is_reported() {
        let known = BTreeSet::from(["a_test".to_owned(), "a.scene".to_owned()]);
        let totals =
            "of 2 behaviours, 1 are the same, 0 differ on purpose, and 1 have no counterpart";
        let page = |row: &str| format!("{totals}\n| a | b | no feature | |\n{row}\n");
        assert_eq!(check(&page("| a | b | same | `a_test`, `a.scene` |"), &known), [""; 0]);
        for (row, what) in [
            ("| a | b | same | `b_test` |", "there is no test b_test"),
            ("| a | b | same | |", "name tests"),
            ("| a | b | equal | `a_test` |", "does not begin"),
            ("| a | same | `a_test` |", "four cells"),
            ("As `b_of_that_name_fails` shows.", "there is no test b_of"),
            ("| a | b | different: c | `a_test` |", "should state: of 2 behaviours, 0 are"),
        ] {
            let findings = check(&page(row), &known).join("\n");
            assert!(findings.contains(what), "{row}: {findings}");
        }
    }
}
