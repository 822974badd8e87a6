//! Files of several parts, and references in their strings.
//! In: texts of a file and of those that it includes. Out: the configuration, or errors that name file, line and column.

use tidegate_config::Loaded;
use tidegate_config::model::{Action, Config};
use tidegate_config::references::{Reference, VALUE_BYTES_MAX};
use tidegate_config::text::Text;

const MAIN: &str = "include = [\"conf.d/*.toml\"]\n[[listener]]\nbind = \"127.0.0.1:8080\"\n\
    [[route]]\nhost = \"main\"\nrespond = { body = \"main\" }";

/// The variable LONG is longer than a value may be; HOST is "a.example"; a few others have the values below.
fn look_up(reference: Reference<'_>) -> Result<String, String> {
    match reference {
        Reference::Variable("HOST") => Ok("a.example".to_owned()),
        Reference::Variable("SEVEN") => Ok("7".to_owned()),
        Reference::Variable("HUGE") => Ok("99999999999999999999".to_owned()),
        Reference::Variable("YES") => Ok("true".to_owned()),
        Reference::Variable("TRICKY") => Ok("${HOST}\"".to_owned()),
        Reference::Variable("LONG") => Ok("x".repeat(VALUE_BYTES_MAX + 1)),
        Reference::Variable(_) => Err("not set".to_owned()),
        Reference::File(path) => Ok(format!("content of {path}")),
    }
}

/// The files `1.toml`, `2.toml` and so on are included in this order.
fn parse(main: &str, parts: &[&str]) -> Result<Loaded, String> {
    let mut text = Text::of(main, "site.toml");
    for (at, part) in parts.iter().enumerate() {
        text.include(part, &format!("{}.toml", at + 1));
    }
    tidegate_config::parse_text(&text, "/etc/t", Some(&mut look_up))
        .map_err(|errors| errors.to_string())
}

fn config(main: &str, parts: &[&str]) -> Config {
    match parse(main, parts) {
        Ok(loaded) => loaded.config,
        Err(text) => panic!("{text}"),
    }
}

fn errors(main: &str, parts: &[&str]) -> String {
    parse(main, parts).expect_err("the file is wrong")
}

#[test]
fn included_tables_follow_those_of_the_file() {
    let config = config(
        MAIN,
        &[
            "# a comment\n\n[[route]]\nhost = \"one\"\nproxy = \"p\"\n",
            "\u{feff}[[route]]\nhost = \"two\"\nproxy = \"p\"\n[pool.p]\nservers = [\"127.0.0.1:1\"]",
            "",
        ],
    );
    let hosts: Vec<String> =
        config.routes.iter().map(|route| format!("{:?}", route.hosts)).collect();
    assert_eq!(hosts.len(), 3);
    for (host, name) in hosts.iter().zip(["main", "one", "two"]) {
        assert!(host.contains(name), "{host}");
    }
    assert_eq!(config.pools.len(), 1);
}

#[test]
fn errors_name_the_included_file_with_its_own_lines() {
    let printed = errors(
        MAIN,
        &["[[route]]\nrespond = { status = 204 }\n", "\n[pool.p]\nservers = [\"x\"]\n"],
    );
    assert!(printed.contains(" --> 2.toml:3:12\n"), "{printed}");
    let printed =
        errors(MAIN, &["[pool.p]\nservers = [\"127.0.0.1:1\n", "[[route]]\nproxy = \"p\"\n"]);
    assert!(printed.contains(" --> 1.toml:2:24\n"), "an open string ends with its file: {printed}");
    let printed = errors(&MAIN.replace("127.0.0.1:8080", "?"), &["[[route]]\nproxy = \"q\"\n"]);
    assert!(
        printed.contains(" --> site.toml:3:8\n") && printed.contains(" --> 1.toml:2:9\n"),
        "{printed}"
    );
    let printed = errors(MAIN, &["[server]\nworkers = 1\n", "[server]\nworkers = 2\n"]);
    assert!(printed.contains("duplicate") && printed.contains(" --> 2.toml:1:"), "{printed}");
}

#[test]
fn settings_of_one_file_cannot_become_part_of_a_table_of_another() {
    for (part, expected) in [
        ("host = \"x\"\n[[route]]\nproxy = \"p\"\n", "`host` is outside of a table"),
        ("include = [\"more.toml\"]\n", "include the files in the main file"),
        ("[route.request]\nset = { a = \"b\" }\n", "belongs to a [[route]] of another file"),
    ] {
        let printed = errors(MAIN, &[part]);
        assert!(printed.contains(expected) && printed.contains(" --> 1.toml:1:"), "{printed}");
    }
}

#[test]
fn patterns_are_checked() {
    for (value, expected) in [
        ("[\"\"]", "the path of a file"),
        ("[\"conf.d/\"]", "the path of a file"),
        ("[\"*/a.toml\"]", "only after the last slash"),
        ("[\"a.toml\", \"a.toml\"]", "each pattern once"),
        ("1", "a string"),
    ] {
        let main = MAIN.replace("[\"conf.d/*.toml\"]", value);
        assert!(errors(&main, &[]).contains(expected), "{value}: {}", errors(&main, &[]));
    }
}

#[test]
fn references_are_replaced_by_their_values() {
    let main = "[[listener]]\nbind = \"127.0.0.1:8080\"\n[[route]]\nhost = \"${HOST}\"\n\
        respond = { body = \"<${TRICKY}> ${file:key} ${file:/k} $${HOST} ${1}\" }\n";
    let config = config(main, &[]);
    assert!(format!("{:?}", config.routes[0].hosts).contains("a.example"));
    let Action::Respond(respond) = &config.routes[0].action else { panic!("it responds") };
    let body = String::from_utf8_lossy(&respond.body).into_owned();
    assert_eq!(body, "<${HOST}\"> content of /etc/t/key content of /k ${HOST} ${1}");
}

#[test]
fn numbers_and_booleans_may_be_references() {
    let main = |weight: &str| {
        format!(
            "[[listener]]\nbind = \"127.0.0.1:8080\"\n[[route]]\nproxy = \"p\"\n[pool.p]\nstrict = \"${{YES}}\"\n\
             servers = [{{ address = \"10.0.0.1:1\", weight = \"{weight}\" }}]\n"
        )
    };
    let pool = &config(&main("${SEVEN}"), &[]).pools[0];
    assert_eq!((pool.servers[0].weight, pool.strict), (7, true));
    // A string of the file is no number, nor is a string with more than a reference.
    for weight in ["7", "${SEVEN}0", "$${SEVEN}", "${HOST}", "${HUGE}"] {
        let printed = errors(&main(weight), &[]);
        assert!(printed.contains("`weight` cannot be"), "{weight}: {printed}");
    }
}

#[test]
fn reference_without_a_value_is_an_error_at_its_place() {
    let main =
        "[[listener]]\nbind = \"127.0.0.1:8080\"\n[[route]]\nrespond = { body = \"a ${NONE}\" }\n";
    let printed = errors(main, &[]);
    assert!(
        printed.contains("\"${NONE}\" has no value: not set\n  --> site.toml:4:23\n"),
        "{printed}"
    );
    assert!(printed.contains("help: set it, or write $${NONE} for the text itself"), "{printed}");
    let printed = errors(
        MAIN,
        &["[[route]]\nhost = [\"b\", \"\\u0024{LONG}\"]\nrespond = { status = 204 }\n"],
    );
    assert!(printed.contains("larger than 64 KiB\n  --> 1.toml:2:14\n"), "{printed}");
}
