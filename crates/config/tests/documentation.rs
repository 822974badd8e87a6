//! Checks the documents against the file format.
//! In: README.md and docs/. Out: every TOML block parses without a warning; the reference part of
//! `docs/configuration.md` equals the table of settings.
//! `TIDEGATE_BLESS=1` rewrites the reference part.

use std::path::{Path, PathBuf};

const BEGIN: &str = "<!-- settings: begin -->\n";
const END: &str = "<!-- settings: end -->\n";

fn document() -> (PathBuf, String) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/configuration.md");
    let text = std::fs::read_to_string(&path).expect("the document is in docs/");
    (path, text)
}

/// README.md and every page of docs/, including its folders.
fn documents() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut documents = vec![root.join("README.md")];
    let mut folders = vec![root.join("docs")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).expect("the folder can be listed") {
            let path = entry.expect("the folder can be listed").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "md") {
                documents.push(path);
            }
        }
    }
    documents
}

#[test]
fn every_example_parses_without_a_warning() {
    let mut count = 0;
    for path in documents() {
        let name = path.display().to_string();
        let text = std::fs::read_to_string(&path).expect("the document can be read");
        for rest in text.split("```toml\n").skip(1) {
            let example = rest.split("```").next().unwrap_or_default();
            match tidegate_config::parse_with_warnings(example, &name) {
                Ok((_, warnings)) => assert!(warnings.is_empty(), "{example}\n{warnings}"),
                Err(errors) => panic!("{example}\n{errors}"),
            }
            count += 1;
        }
    }
    assert!(count >= 8, "found only {count} examples");
}

#[test]
fn reference_part_equals_the_table_of_settings() {
    let (path, text) = document();
    let (before, rest) = text.split_once(BEGIN).expect("the reference part has a beginning");
    let (part, after) = rest.split_once(END).expect("the reference part has an end");
    let wanted = tidegate_config::reference();
    if std::env::var_os("TIDEGATE_BLESS").is_some() {
        let rewritten = format!("{before}{BEGIN}{wanted}{END}{after}");
        std::fs::write(path, rewritten).expect("the document can be written");
        return;
    }
    assert!(
        part == wanted,
        "run TIDEGATE_BLESS=1 cargo test -p tidegate-config, then read the diff"
    );
}
