//! Golden tests of the messages for each kind of mistake.
//! In: `mistakes.txt`, cases of a name, a file and the exact messages. Out: the messages are equal.
//! `TIDEGATE_BLESS=1` rewrites the messages; read the diff before you commit it.

use std::fmt::Write as _;
use std::path::Path;

const NAME_MARK: &str = "==== ";
const TEXT_MARK: &str = "----\n";

fn messages(file: &str) -> String {
    match tidegate_config::parse_with_warnings(file, "site.toml") {
        Ok((_, warnings)) => warnings.to_string(),
        Err(errors) => errors.to_string(),
    }
}

fn cases(table: &str) -> Vec<(&str, &str, &str)> {
    table
        .split(NAME_MARK)
        .skip(1)
        .map(|case| {
            let (name, rest) = case.split_once('\n').expect("a line break follows the name");
            let (file, text) = rest.split_once(TEXT_MARK).unwrap_or((rest, ""));
            (name, file, text)
        })
        .collect()
}

#[test]
fn each_mistake_has_the_expected_message() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/mistakes.txt");
    let table = std::fs::read_to_string(&path).expect("mistakes.txt is in this folder");
    let mut rewritten = String::new();
    for (name, file, _) in cases(&table) {
        let text = messages(file);
        writeln!(rewritten, "{NAME_MARK}{name}\n{file}{TEXT_MARK}{text}").expect("memory");
    }
    if std::env::var_os("TIDEGATE_BLESS").is_some() {
        std::fs::write(&path, rewritten).expect("mistakes.txt can be written");
        return;
    }
    for (name, file, text) in cases(&table) {
        assert_eq!(format!("{}\n", messages(file)), text, "case: {name}");
    }
}

#[test]
fn all_mistakes_of_a_file_are_reported_at_once() {
    let file = "[server]\nworkers = 0\nvai = 1\n[[listener]]\nbnid = 1\n[[route]]\npath = 1\n";
    let errors = tidegate_config::parse(file, "site.toml").expect_err("the file has mistakes");
    let lines: Vec<usize> = errors.mistakes().iter().map(|mistake| mistake.line).collect();
    assert_eq!(lines, [2, 3, 4, 5, 6, 7]);
}

#[test]
fn too_large_file_is_rejected() {
    let file = "#".repeat(tidegate_config::FILE_BYTES_MAX + 1);
    let errors = tidegate_config::parse(&file, "site.toml").expect_err("the file is too large");
    assert!(errors.to_string().contains("up to 4 MiB"), "{errors}");
}

/// Goal: no text makes the parser panic. Method: a valid file is cut at every byte, and each of its lines is
/// replaced by unusual ones.
#[test]
fn no_text_makes_the_parser_panic() {
    let good = tidegate_config::embedded_text().replace("Hello", "é");
    // The pages after the head are long, and their bytes are all alike to the parser.
    let head = &good[..good.find("'''").unwrap_or(good.len())];
    for cut in (0..head.len()).filter(|&cut| head.is_char_boundary(cut)) {
        let _ = messages(&head[..cut]);
    }
    for (number, _) in head.lines().enumerate() {
        for odd in [
            "x",
            "[pool]",
            "[[pool]]",
            "route = 1",
            "bind = []",
            "= 1",
            "\u{0}",
            "[[a]",
            "\"\" = 1",
        ] {
            let lines = head.lines().enumerate();
            let changed: Vec<&str> =
                lines.map(|(at, line)| if at == number { odd } else { line }).collect();
            let _ = messages(&changed.join("\n"));
        }
    }
}

#[test]
fn deeply_nested_or_repetitive_file_is_rejected_with_a_message() {
    const DEEP: usize = 50_000;
    let keys = vec!["a"; DEEP].join(".");
    let files = [
        format!("x = {}{}", "[".repeat(DEEP), "]".repeat(DEEP)),
        format!("x = {}1{}", "{a=".repeat(DEEP), "}".repeat(DEEP)),
        format!("{keys} = 1"),
        format!("[{keys}]"),
        format!("[[{keys}]]"),
        format!("[[listener]]\nbind = \"127.0.0.1:0\"\nbacklog = {}", "9".repeat(DEEP)),
        format!("[[listener]]\nbind = \"127.0.0.1:{}\"", "9".repeat(DEEP)),
        format!("[[listener]]\ntimeouts = {{ head = \"{}s\" }}", "9".repeat(DEEP)),
        "[[listener]]\nbind = \"127.0.0.1:0\"\nbind = \"127.0.0.1:1\"".to_owned(),
        "[[route]]\nhots = 7\n".repeat(DEEP / 10),
        "\u{0}\u{1}\u{7f}".repeat(DEEP),
    ];
    for file in files {
        let start: String = file.chars().take(40).collect();
        let Err(errors) = tidegate_config::parse(&file, "site.toml") else {
            panic!("{start} was accepted")
        };
        assert!(errors.to_string().contains("site.toml:"), "{start}: {errors}");
    }
}

#[test]
fn ten_thousand_routes_are_accepted() {
    let mut file = "[[listener]]\nbind = \"127.0.0.1:0\"\n".to_owned();
    for number in 0..10_000 {
        write!(file, "[[route]]\nhost = \"*.h{number}.example\"\npath = \"/a{number}/*\"\n")
            .expect("memory");
        file.push_str("respond = { status = 204 }\n");
    }
    let config = tidegate_config::parse(&file, "site.toml");
    assert_eq!(config.expect("the file is valid").routes.len(), 10_000);
}
