//! Whole files and what they become.
//! In: `tests/haproxy/*.cfg`, `tests/nginx/*.conf`. Out: the TOML beside each file, which the configuration reader accepts.
//! `TIDEGATE_BLESS=1` rewrites the TOML.

use std::fs;
use std::path::{Path, PathBuf};

use tidegate_convert::{LineResult, Program, convert};

/// The fewest files of each program.
const FILES_MIN: usize = 6;

fn inputs(folder: &str, end: &str) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(folder);
    let entries = fs::read_dir(folder).expect("the folder exists");
    let paths = entries.map(|entry| entry.expect("an entry").path());
    let mut paths: Vec<_> =
        paths.filter(|path| path.extension().is_some_and(|own| own == end)).collect();
    paths.sort();
    paths
}

fn check(program: Program, folder: &str, end: &str) {
    let paths = inputs(folder, end);
    assert!(paths.len() >= FILES_MIN, "{folder}: {}", paths.len());
    for path in paths {
        let name = path.file_name().and_then(|name| name.to_str()).expect("a name");
        let text = fs::read_to_string(&path).expect("the file is text");
        assert_eq!(Program::of(&text), Some(program), "{name}");
        let conversion = convert(&text, name, program);
        let errors = tidegate_config::parse(&conversion.toml, "").err();
        assert!(
            errors.is_none() && conversion.is_accepted,
            "{name}: {errors:?}\n{}",
            conversion.toml
        );
        let expected = path.with_extension("toml");
        if std::env::var_os("TIDEGATE_BLESS").is_some() {
            fs::write(&expected, &conversion.toml).expect("the file can be written");
        }
        let expected = fs::read_to_string(&expected).unwrap_or_default();
        assert_eq!(conversion.toml, expected, "{name}");
        for finding in &conversion.findings {
            assert_ne!(finding.why, "", "{name}: {finding:?}");
            let place = format!("{name}:{}:", finding.line);
            let is_named = conversion.toml.contains(&place);
            assert!(
                is_named || finding.result == LineResult::Unneeded || finding.line == 0,
                "{finding:?}"
            );
        }
    }
}

#[test]
fn files_of_haproxy_become_the_expected_toml() {
    check(Program::Haproxy, "haproxy", "cfg");
}

#[test]
fn files_of_nginx_become_the_expected_toml() {
    check(Program::Nginx, "nginx", "conf");
}
