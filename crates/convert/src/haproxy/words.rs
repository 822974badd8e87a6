//! Splits HAProxy's file into sections, lines and words.
//! In: text. Out: sections with the lines of `defaults` that apply to them.
//! Limits: `LINES_MAX` lines of all sections together, with those of `defaults`.

/// A file in which many sections repeat long `defaults` has more lines than this; the rest is left out.
const LINES_MAX: usize = 200_000;

/// A line: its number and its words.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Line {
    pub(super) number: usize,
    pub(super) words: Vec<String>,
}

impl Line {
    /// The word at `index`, or an empty text.
    pub(super) fn word(&self, index: usize) -> &str {
        self.words.get(index).map_or("", String::as_str)
    }

    /// The words from `index` on.
    pub(super) fn from(&self, index: usize) -> &[String] {
        self.words.get(index..).unwrap_or_default()
    }
}

/// A section.
#[derive(Clone, Debug)]
pub(super) struct Section {
    /// `global`, `frontend` and so on.
    pub(super) kind: String,
    pub(super) name: String,
    /// The number of the line that begins it.
    pub(super) line: usize,
    /// The lines: first those of `defaults`, then its own.
    pub(super) lines: Vec<Line>,
}

impl Section {
    /// The last line that begins with `words`.
    pub(super) fn last(&self, words: &[&str]) -> Option<&Line> {
        self.lines.iter().rev().find(|line| begins(line, words))
    }

    /// Whether `option NAME` is on: a later `no option NAME` switches it off.
    pub(super) fn option(&self, name: &str) -> Option<&Line> {
        let fits =
            |line: &&Line| begins(line, &["option", name]) || begins(line, &["no", "option", name]);
        self.lines.iter().rev().find(fits).filter(|line| line.word(0) == "option")
    }
}

fn begins(line: &Line, words: &[&str]) -> bool {
    words.iter().enumerate().all(|(index, word)| line.word(index) == *word)
}

/// The sections of the file, and lines before the first one.
pub(super) fn sections(text: &str) -> (Vec<Section>, Vec<Line>) {
    const KINDS: [&str; 20] = [
        "global",
        "defaults",
        "frontend",
        "backend",
        "listen",
        "userlist",
        "resolvers",
        "peers",
        "mailers",
        "cache",
        "program",
        "http-errors",
        "ring",
        "log-forward",
        "fcgi-app",
        "crt-store",
        "traces",
        "acme",
        "log-profile",
        "namespace_list",
    ];
    let (mut sections, mut stray): (Vec<Section>, Vec<Line>) = (Vec::new(), Vec::new());
    let mut defaults: Vec<(String, Vec<Line>)> = Vec::new();
    let mut count = 0;
    for (index, text) in text.lines().enumerate() {
        let line = Line { number: index + 1, words: words(text) };
        if line.words.is_empty() {
            continue;
        }
        if KINDS.contains(&line.word(0)) {
            close(sections.last(), &mut defaults);
            let from = line.words.iter().position(|word| word == "from");
            let inherited = match from.map(|at| line.word(at + 1)) {
                Some(name) => defaults.iter().rev().find(|(own, _)| own == name),
                None => defaults.last(),
            };
            let takes = ["frontend", "backend", "listen"].contains(&line.word(0));
            let lines =
                inherited.filter(|_| takes).map(|(_, lines)| lines.clone()).unwrap_or_default();
            let lines = match count + lines.len() > LINES_MAX {
                true => Vec::new(),
                false => lines,
            };
            count += lines.len();
            let name = if from == Some(1) { "" } else { line.word(1) };
            sections.push(Section {
                kind: line.word(0).to_owned(),
                name: name.to_owned(),
                line: line.number,
                lines,
            });
            continue;
        }
        match sections.last_mut() {
            Some(section) => section.lines.push(line),
            None => stray.push(line),
        }
    }
    (sections, stray)
}

/// Keeps the lines of a section `defaults` that has ended.
fn close(section: Option<&Section>, defaults: &mut Vec<(String, Vec<Line>)>) {
    if let Some(section) = section.filter(|section| section.kind == "defaults") {
        defaults.push((section.name.clone(), section.lines.clone()));
    }
}

/// The words of a line: quotes and backslashes join, `#` begins a comment.
pub(super) fn words(line: &str) -> Vec<String> {
    let (mut words, mut word, mut is_open) = (Vec::new(), String::new(), false);
    let mut quote = None;
    let mut chars = line.chars();
    while let Some(c) = chars.next() {
        match (c, quote) {
            ('\\', None | Some('"')) => {
                is_open = true;
                match chars.next() {
                    // A backslash before another character belongs to a regular expression.
                    Some(next) if " \\\"'#".contains(next) => word.push(next),
                    Some(next) => word.extend(['\\', next]),
                    None => {}
                }
            }
            ('"' | '\'', None) => {
                quote = Some(c);
                is_open = true;
            }
            (c, Some(open)) if c == open => quote = None,
            ('#', None) => break,
            (c, None) if c.is_whitespace() => {
                if is_open {
                    words.push(core::mem::take(&mut word));
                    is_open = false;
                }
            }
            (c, _) => {
                word.push(c);
                is_open = true;
            }
        }
    }
    if is_open {
        words.push(word);
    }
    words
}

#[cfg(test)]
mod tests {
    use super::words;

    #[test]
    fn words_end_at_blanks_outside_of_quotes() {
        for (line, expected) in [
            ("  acl a  path_beg /x # comment", &["acl", "a", "path_beg", "/x"][..]),
            (
                "http-request set-header A \"b c\" if d",
                &["http-request", "set-header", "A", "b c", "if", "d"],
            ),
            ("x a\\ b 'c \\d' \"\"", &["x", "a b", "c \\d", ""]),
            ("path_reg ^/a\\.b", &["path_reg", "^/a\\.b"]),
            ("# all", &[]),
            ("open 'quote", &["open", "quote"]),
        ] {
            assert_eq!(words(line), expected, "{line}");
        }
    }
}
