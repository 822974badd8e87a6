//! Completion scripts in a real shell, and manual pages in a real formatter.
//! In: what `tidegate completions` and `tidegate man` print. Out: passed assertions.
//! Never: writes outside of a temporary folder.

use std::fs;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::Output;

use tidegate_testing::{command, run};

const PROGRAM: &str = env!("CARGO_BIN_EXE_tidegate");

fn tidegate(arguments: &[&str]) -> Output {
    run(command(PROGRAM).args(arguments))
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A path for a file or folder of the test `name`, which the test removes.
fn place(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("tidegate-{}-{name}", std::process::id()))
}

/// What bash offers for the last of `words`, with the completion script loaded.
fn offered(script: &str, words: &[&str]) -> Vec<String> {
    let (last, before) = (words[words.len() - 1], words[words.len() - 2]);
    let path = place("completions.bash");
    let mut file = fs::File::create(&path).expect("a file can be made");
    let list: Vec<_> = words.iter().map(|word| format!("'{word}'")).collect();
    write!(
        file,
        "{script}\ncomplete -p tidegate >&2 || exit 1\nCOMP_WORDS=({})\nCOMP_CWORD={}\n\
         _tidegate tidegate '{last}' '{before}'\nprintf '%s\\n' \"${{COMPREPLY[@]}}\"\n",
        list.join(" "),
        words.len() - 1
    )
    .expect("the file can be written");
    let output = run(command("bash").args(["--noprofile", "--norc"]).arg(&path));
    let _ = fs::remove_file(&path);
    assert!(output.status.success(), "{}", text(&output.stderr));
    text(&output.stdout).lines().map(str::to_owned).collect()
}

#[test]
fn bash_offers_subcommands_and_options() {
    let output = tidegate(&["completions", "bash"]);
    assert_eq!((output.status.code(), text(&output.stderr)), (Some(0), String::new()));
    let script = text(&output.stdout);
    let all = offered(&script, &["tidegate", ""]);
    for name in ["run", "check", "ctl", "lua", "schema", "completions", "man", "bench", "tune"] {
        assert!(all.iter().any(|word| word == name), "{name}: {all:?}");
    }
    assert_eq!(offered(&script, &["tidegate", "sch"]), ["schema"]);
    let options = offered(&script, &["tidegate", "check", "--o"]);
    assert_eq!(options, ["--offline"]);
    assert_eq!(offered(&script, &["tidegate", "completions", "zs"]), ["zsh"]);
}

#[test]
fn other_shells_get_a_script_and_an_unknown_shell_is_refused() {
    for (shell, begin) in [("zsh", "#compdef tidegate"), ("fish", "# Print an optspec")] {
        let script = text(&tidegate(&["completions", shell]).stdout);
        assert!(script.starts_with(begin), "{shell}: {}", &script[..80]);
        assert!(script.contains("bench"), "{shell}");
    }
    let wrong = tidegate(&["completions", "tcl"]);
    assert_eq!(wrong.status.code(), Some(2));
    assert!(text(&wrong.stderr).contains("bash"), "{}", text(&wrong.stderr));
}

#[test]
fn every_manual_page_renders_without_a_warning() {
    let folder = place("man");
    let output = tidegate(&["man", "--to", &folder.display().to_string()]);
    assert_eq!((output.status.code(), text(&output.stderr)), (Some(0), String::new()));
    let mut pages: Vec<_> =
        fs::read_dir(&folder).expect("the folder exists").map(|e| e.expect("an entry")).collect();
    pages.sort_by_key(|page| page.file_name());
    let names: Vec<_> =
        pages.iter().map(|page| text(page.file_name().as_encoded_bytes())).collect();
    for name in ["tidegate.1", "tidegate-run.1", "tidegate-bench-http.1", "tidegate-man.1"] {
        assert!(names.iter().any(|own| own == name), "{name}: {names:?}");
    }
    for page in &pages {
        let mut formatter = command("man");
        // `man` warns of a locale that is not installed.
        formatter.env("LC_ALL", "C.UTF-8").env_remove("MANOPT").env_remove("MANROFFOPT");
        let shown = run(formatter.args(["--warnings", "-E", "UTF-8", "-l"]).arg(page.path()));
        assert_eq!((text(&shown.stderr), shown.status.code()), (String::new(), Some(0)));
        let shown = text(&shown.stdout);
        assert!(
            shown.contains("SYNOPSIS") && shown.contains("SEE ALSO") | shown.contains("SIGNALS")
        );
    }
    fs::remove_dir_all(&folder).expect("the folder can be removed");
}

#[test]
fn man_prints_the_page_of_a_subcommand_and_names_the_allowed_words() {
    let page = text(&tidegate(&["man", "bench", "http"]).stdout);
    assert!(page.contains("tidegate\\-bench\\-http \\- "), "{}", &page[..400]);
    for (arguments, allowed) in
        [(&["man", "nope"][..], "run, check"), (&["man", "run", "x"], "no further word")]
    {
        let wrong = tidegate(arguments);
        assert_eq!(wrong.status.code(), Some(2));
        let message = text(&wrong.stderr);
        assert!(
            message.starts_with("tidegate: no subcommand") && message.contains(allowed),
            "{message}"
        );
    }
    let wrong = tidegate(&["man", "--to", "/proc/none"]);
    assert_eq!(wrong.status.code(), Some(1));
    assert!(text(&wrong.stderr).starts_with("tidegate: /proc/none: "), "{}", text(&wrong.stderr));
}
