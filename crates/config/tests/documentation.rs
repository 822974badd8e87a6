//! Holds `docs/configuration.md` to the table of settings.
//! In: the document. Out: its examples parse without a warning; its reference part is the table's.
//! `TIDEGATE_BLESS=1` writes the reference part anew.

use std::path::{Path, PathBuf};

const BEGIN: &str = "<!-- settings: begin -->\n";
const END: &str = "<!-- settings: end -->\n";

fn document() -> (PathBuf, String) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/configuration.md");
    let text = std::fs::read_to_string(&path).expect("the document is in docs/");
    (path, text)
}

#[test]
fn every_example_parses_without_a_warning() {
    let (_, text) = document();
    let examples: Vec<&str> = text
        .split("```toml\n")
        .skip(1)
        .map(|rest| rest.split("```").next().unwrap_or_default())
        .collect();
    assert_eq!(examples.len(), 3);
    for example in examples {
        match tidegate_config::parse_with_warnings(example, "docs/configuration.md") {
            Ok((_, warnings)) => assert!(warnings.is_empty(), "{warnings}"),
            Err(errors) => panic!("{errors}"),
        }
    }
}

#[test]
fn the_reference_part_is_the_table_of_settings() {
    let (path, text) = document();
    let (before, rest) = text.split_once(BEGIN).expect("the part has a beginning");
    let (part, after) = rest.split_once(END).expect("the part has an end");
    let wanted = tidegate_config::reference();
    if std::env::var_os("TIDEGATE_BLESS").is_some() {
        let anew = format!("{before}{BEGIN}{wanted}{END}{after}");
        std::fs::write(path, anew).expect("the document can be written");
        return;
    }
    assert!(
        part == wanted,
        "run TIDEGATE_BLESS=1 cargo test -p tidegate-config, then read the diff"
    );
}
